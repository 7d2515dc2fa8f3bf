"""The line reader and the options, on whatever comes (hypothesis), and what their start costs."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamguard._base import durations
from streamguard.cli.arguments import UsageError, parse
from streamguard.cli.run import OPTIONS, settings_of
from streamguard.runner.judge import Judge
from streamguard.runner.options import Settings
from tests.runner.commands import FAILED, INIT, RESULT, ROOT, TEXT, TOOL, TOOL_DONE
from tests.sizes import size

LINES = [INIT, TEXT, TOOL, TOOL_DONE, RESULT, FAILED, {"type": "unknown"}, {"a": [1, {"b": None}]}]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
PARTS = (
    st.sampled_from([json.dumps(line).encode() + b"\n" for line in LINES])
    | JSON.map(lambda value: json.dumps(value).encode() + b"\n")
    | st.dictionaries(st.sampled_from(["type", "subtype", "item", "message"]), JSON).map(
        lambda value: json.dumps(value).encode() + b"\r\n"
    )
    | st.binary(max_size=40)
    | st.sampled_from(
        [b"{", b"}", b"\n", b'{"type":', b"\xff\xfe", b'{"type":"assistant"', b"[" * 99]
    )
)


def judge_of(**limits):
    wanted = Settings()
    wanted.command = ("agent",)
    for name, value in {"idle": 10.0, "exit_grace": 5.0, **limits}.items():
        setattr(wanted, name, value)
    return Judge(wanted, 0.0, 0.0, lambda text: None)


def told(judge):
    watch = judge.watch
    in_flight = sorted(watch.work)
    return watch.messages, watch.turns, in_flight, judge.outcome, judge.token, watch.turn_open


@given(st.lists(PARTS, max_size=8), st.lists(st.floats(0, 1), max_size=8))
@settings(max_examples=size(dev=20, ci=120), deadline=None)
def test_whatever_comes_in_whatever_portions_is_understood_alike(parts, cuts):
    """S2: no output makes the reader raise; cut elsewhere, whole lines say the same."""
    text = b"".join(parts) + b"\n"
    whole, cut = judge_of(), judge_of()
    whole._is_certain = cut._is_certain = True
    whole.output(text, 1.0)
    ends = [0, *sorted(round(at * len(text)) for at in cuts), len(text)]
    for start, end in itertools.pairwise(ends):
        if start < end:
            cut.output(text[start:end], 1.0)
    messages, *said = told(whole)
    in_portions, *said_in_portions = told(cut)
    assert said == said_in_portions
    assert messages == text.count(b"\n") <= in_portions
    whole.waits(2.0)
    assert whole.deadline() > 2.0


def test_a_line_without_end_is_bounded_and_the_next_one_is_read():
    judge = judge_of()
    judge._is_certain = True
    judge.output(json.dumps(INIT).encode() + b"\n", 1.0)
    for _ in range(20):
        judge.output(b"x" * (1 << 20), 2.0)
    assert len(judge._lines._partial) == 0
    judge.output(b"\n" + json.dumps(RESULT).encode() + b"\n", 3.0)
    assert judge.outcome == "success"


def test_output_that_is_no_json_is_not_looked_at_for_ever():
    judge = judge_of()
    for i in range(20):
        judge.output(b"some text, line after line, four KB of it\n" * 100, float(i))
    assert not judge.wants_lines
    judge.waits(20.0)
    assert judge.deadline() == 30.0


def test_a_banner_of_any_kind_may_come_before_the_first_json_line():
    judge = judge_of()
    judge.output(b'{\n  "pretty": "printed",\n  "but": "no message"\n}\n' * 300, 1.0)
    judge.output(json.dumps(INIT).encode() + b"\n" + json.dumps(TOOL).encode() + b"\n", 2.0)
    for _ in range(10):
        judge.output(b"noise\n" * 2000, 3.0)
    assert judge.wants_lines
    assert told(judge)[2] == ["t1"]


def test_once_a_backend_is_known_half_a_line_is_nothing():
    judge = judge_of()
    judge.output(json.dumps(TEXT).encode() + b"\n", 1.0)
    judge.waits(1.0)
    for second in range(2, 11):
        judge.output(b"x", float(second))
        judge.waits(float(second))
    assert judge.deadline() == 11.0
    assert judge.verdict(11.0).limit == "idle"


def test_a_banner_is_a_first_output_and_ends_no_wait_for_json():
    judge = judge_of(idle=None, exit_grace=None, first=10.0, first_json=10.0, speaks_json=True)
    judge.output(b"Welcome", 1.0)
    judge.waits(1.0)
    assert judge.deadline() == 10.0
    judge.output(b"\n" + json.dumps(INIT).encode() + b"\n", 2.0)
    judge.waits(2.0)
    assert judge.deadline() == math.inf


def test_first_json_has_lines_read_until_it_is_over_and_no_longer():
    """S3-02: for as long as it waits there is no end to looking."""
    judge = judge_of(idle=None, exit_grace=None, first_json=100.0)
    for second in range(20):
        judge.output(b"some text, line after line, four KB of it\n" * 100, float(second))
    assert judge.wants_lines
    judge.output(b'{"any": "object"}\n', 30.0)
    assert not judge.wants_lines
    judge.waits(30.0)
    assert judge.deadline() == math.inf


def test_time_in_which_we_were_stopped_is_no_wait_for_json():
    """S3-02."""
    judge = judge_of(idle=None, exit_grace=None, first_json=10.0)
    judge.resumed(500.0)
    judge.waits(500.0)
    assert judge.deadline() == 510.0


@pytest.mark.parametrize("speaks_json", [False, True])
def test_of_an_agent_that_says_its_tools_silence_is_none_s3_02(speaks_json):
    """S3-02: and what its arguments promise is nothing that it has said."""
    judge = judge_of(
        idle=None, exit_grace=None, tools=10.0, watches_tools=True, speaks_json=speaks_json
    )
    assert judge.deadline() == 10.0
    judge.output(b"text\n", 5.0)
    judge.waits(5.0)
    assert judge.deadline() == 15.0
    judge.output(json.dumps(INIT).encode() + b"\n", 6.0)
    judge.waits(6.0)
    assert judge.deadline() == math.inf


def test_pings_hold_liveness_and_nothing_else_does():
    """Armed by the first ping, also behind a long banner, and in force during a tool, too."""
    ping = json.dumps({"type": "keep_alive"}).encode() + b"\n"
    judge = judge_of(idle=None, exit_grace=None, liveness=10.0)
    judge.output(b"banner\n" * 20_000, 1.0)
    judge.waits(1.0)
    assert judge.deadline() == math.inf
    judge.output(json.dumps(INIT).encode() + b"\n" + json.dumps(TOOL).encode() + b"\n" + ping, 2.0)
    judge.waits(2.0)
    judge.output(ping, 7.0)
    judge.waits(7.0)
    assert judge.deadline() == 17.0
    assert judge.verdict(17.0).limit == "liveness"


def test_a_tool_has_the_allowance_of_its_name():
    judge = judge_of(idle=None, exit_grace=None, watches_tools=True, tools_by_name={"Bash": 5.0})
    judge.output(json.dumps(INIT).encode() + b"\n" + json.dumps(TOOL).encode() + b"\n", 1.0)
    judge.waits(1.0)
    assert judge.deadline() == 6.0


def test_time_in_which_we_were_stopped_is_no_silence():
    judge = judge_of()
    judge.output(b"text\n", 1.0)
    judge.waits(1.0)
    judge.resumed(500.0)
    assert judge.deadline() == 510.0


# -- options ---------------------------------------------------------------------------------

WORDS = (
    st.sampled_from([f"--{name}" for name in OPTIONS if len(name) > 1])
    | st.sampled_from(
        ["--", "-", "-v", "-k5", "-s", "--idle=5", "--i", "5", "90", "1.5m", "true", ""]
    )
    | st.text(max_size=8)
    | st.tuples(st.sampled_from(sorted(OPTIONS)), st.text(max_size=5)).map(
        lambda pair: f"--{pair[0]}={pair[1]}"
    )
)


@given(st.lists(WORDS, max_size=8))
@settings(max_examples=size(dev=20, ci=300), deadline=None)
def test_options_are_understood_or_refused_with_a_reason(words):
    try:
        said, command = parse(words, OPTIONS)
        said.pop("help", None)
        with contextlib.redirect_stderr(None):
            found = settings_of(said, command)
    except UsageError as error:
        reason = str(error)
    else:
        reason = None
    assert reason != ""
    if reason is not None:
        return
    assert found.command == tuple(command) == tuple(words[len(words) - len(command) :])
    limits = (found.idle, found.first, found.turn, found.total, found.kill_after)
    assert all(limit is None or limit > 0 for limit in limits)


@given(st.floats(min_value=0, allow_infinity=False), st.sampled_from(["", "s", "m", "h", "d"]))
@settings(max_examples=size(dev=20, ci=200), deadline=None)
def test_every_number_is_a_duration(number, unit):
    expected = number * durations.UNITS.get(unit, 1)
    assert durations.parsed(f"{number!r}{unit}") == expected
    assert durations.parsed(f" +{number!r}{unit}") == expected
    if number:
        with pytest.raises(ValueError):
            durations.parsed(f"-{number!r}{unit}")


@given(st.floats(min_value=1e-300, allow_infinity=False), st.sampled_from(["", "s", "m", "h"]))
@settings(max_examples=size(dev=20, ci=200), deadline=None)
def test_every_hexadecimal_number_is_one_too(number, unit):
    assert durations.parsed(f"{number.hex()}{unit}") == number * durations.UNITS.get(unit, 1)


@given(st.text(max_size=10))
@settings(max_examples=size(dev=20, ci=300), deadline=None)
def test_any_text_is_a_duration_of_zero_or_more_or_none(text):
    try:
        found = durations.parsed(text)
    except ValueError:
        return
    assert found >= 0
    assert not math.isnan(found)


@pytest.mark.parametrize("off", ["0", "0s", "off", "None"])
def test_zero_of_a_limit_is_off_as_everywhere(off):
    names = ("idle", "first", "tools", "total", "quiet", "wait-for-limit")
    # No durations, so without a unit.
    names += () if off == "0s" else ("tokens", "cost", "calls", "repeats")
    said, _ = parse([word for name in names for word in (f"--{name}", off)], OPTIONS)
    assert set(said.values()) == {None}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--idle", "1h30m"], {"idle": 5400}),
        (["--idle=500ms", "--total", "1d 2h"], {"idle": 0.5, "total": 93600}),
        (["--backoff", "1s,0,1m30s"], {"backoff": (1, 0, 90)}),
        (["--repeats", "off"], {"repeats": None}),
    ],
)
def test_a_flag_takes_the_durations_of_code(words, expected):
    assert parse(words, OPTIONS)[0] == expected


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--idle", "15 min"], "write 15m"),
        (["--idle", "30m1h"], "use a duration such as 90"),
        (["--backoff", "off"], "0 = at once"),
        (["--backoff", "5 secs"], "write 5s"),
    ],
)
def test_a_flag_says_what_to_write(words, hint):
    with pytest.raises(UsageError, match=hint):
        parse(words, OPTIONS)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90"), (900, "15m"), (7200, "2h"), (0.5, "0.5")]
)
def test_a_duration_is_written_as_it_would_be_typed(seconds, text):
    assert durations.typed(seconds) == text
    assert durations.parsed(text) == seconds


# -- what it costs ---------------------------------------------------------------------------


def loaded(*words):
    """The modules that a whole `streamguard run` has imported when it ends."""
    program = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "def leave(code):\n"
        "    os.write(2, ' '.join(sys.modules).encode()); os._exit(code if code >= 0 else 1)\n"
        "import streamguard.runner.result as o; o.leave = leave\n"
        "from streamguard.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-I", "-S", "-c", program, *words]
    pipes = {"capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, check=False, cwd="/", **pipes)  # where nothing is configured
    return set(done.stderr.splitlines()[-1].split())


LOOPS = {"asyncio", "anyio", "trio", "selectors", "threading", "concurrent", "logging", "socket"}
SLOW = LOOPS | {"argparse", "typing", "re", "enum", "dataclasses", "json", "subprocess", "pathlib"}


def test_a_command_that_ends_at_once_pays_for_nothing_that_decides():
    """Cost: the start of `run` is the interpreter's and little more."""
    modules = loaded("run", "--idle", "15m", "--", "true")
    assert "streamguard.runner.poll_loop" in modules
    assert modules & SLOW == set()
    assert loaded("timeout", "0.1", "sleep", "60") & SLOW == set()


def test_no_event_loop_is_imported_whatever_happens():
    words = ["run", "--idle", "0.3", "--kill-after", "0.1", "--", "sh", "-c"]
    modules = loaded(*words, "trap '' TERM; echo '{\"type\":\"system\"}'; sleep 60; sleep 60")
    assert "streamguard._watch.watch" in modules
    assert modules & {"asyncio", "anyio", "trio", "uvloop", "argparse"} == set()
    # Ending a tree is the keeper's; at a verdict we look at it, and only then.
    quiet = loaded(*words, 'echo \'{"type":"system"}\'; sleep 0.1')
    assert not any(name.startswith("streamguard.process") for name in quiet)
