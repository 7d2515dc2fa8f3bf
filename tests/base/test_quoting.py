"""Text from elsewhere neither commands a terminal nor forges a line, wherever a person reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import os
import pickle
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamguard import (
    Activity,
    CircuitBreaker,
    ConfigError,
    StreamGuardError,
    Teardown,
    ToolTimeoutError,
    events,
    idle_guard,
)
from streamguard._base.quoting import LINE, NAME, name, quoted
from streamguard._base.warning import StreamGuardWarning
from streamguard.breaker import Circuit
from streamguard.breaker import circuit_events as circuits
from streamguard.breaker.breaker import _why
from streamguard.cli import doctor, report, top
from streamguard.cli import main as command
from streamguard.cli.arguments import Option, UsageError, parse
from streamguard.configuration import from_config
from streamguard.errors import Attempted, EarlierError, ScopeName, Verdict
from streamguard.events.teller import tell_of_scope
from streamguard.evidence.report import drawing, page
from streamguard.observers.structlogs import StructlogObserver
from streamguard.specs import FlowSpec
from streamguard.testing import Script, hang, run_virtual, tool_start
from tests.report.support import Tape
from tests.sizes import size
from tests.support import take

FORGED = "Bash\x1b[2J\x9b1m\x07\r\nCRITICAL root: all is well \u202e\u2066\u2028\u0085\udcff\x00"
PIECES = st.sampled_from(
    [
        "\x1b[31m",
        "\n",
        "\r",
        "\x07",
        "\x9b",
        "\x85",
        "\u2028",
        "\u202e",
        "\u2066",
        "\u200b",
        "\udc80",
    ]
)
HOSTILE = st.lists(st.text(max_size=5) | PIECES | st.characters(), min_size=1, max_size=12).map(
    "".join
)
UNICODE = HOSTILE.map(lambda text: text.encode("utf-8", "replace").decode()).filter(str.strip)
SOME = settings(
    max_examples=size(dev=8, ci=60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def wrong_in(text: str, *, lines: bool = False) -> set[str]:
    """The characters of `text` that no line of ours may have."""
    allowed = "\n" if lines else ""
    return {c for c in text if unicodedata.category(c)[0] == "C" and c not in allowed} | (
        {"\u2028", "\u2029"} & set(text)
    )


# -- the function --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Bash", "mcp__a__b", "Prüfung größer", "検索", "поиск", "a\\b 'c' \"d\"", "🚀", ""]
)
def test_what_is_printable_stays_as_it_is(text):
    assert quoted(text) == text


def test_the_rest_is_written_as_python_writes_it():
    assert quoted("a\nb\x1b[2J\u202e\udcff\0") == r"a\nb\x1b[2J\u202e\udcff\x00"


@given(HOSTILE, st.integers(10, 40))
def test_a_line_is_bounded_and_what_is_quoted_stays_so(text, most):
    shown = quoted(text, most)
    assert wrong_in(shown) == set()
    assert len(shown) <= most
    assert quoted(shown, most) == shown


def test_of_what_is_too_long_both_ends_are_shown():
    shown = name("/home/" + "x" * 10_000 + "/file.py")
    assert len(shown) == NAME
    assert shown.startswith("/home/xxx")
    assert shown.endswith("xxx/file.py")
    assert "x...x" in shown


def test_a_large_text_costs_no_more_than_a_line():
    assert len(quoted("\x1b" * 10_000_000)) <= LINE


# -- verdicts and errors -------------------------------------------------------------------------


@SOME
@given(HOSTILE)
@example(FORGED)
def test_a_tools_name_in_a_verdict(tool):
    async def main() -> ToolTimeoutError:
        with pytest.raises(ToolTimeoutError) as caught:
            async for _ in Script(tool_start("t", tool), hang()) | idle_guard(60, tools=5):
                pass
        return caught.value

    error = run_virtual(main)
    assert wrong_in(str(error)) == wrong_in(error.verdict.reason) == set()
    assert error.verdict.in_flight == (tool or "t",)  # what a program reads is true


@given(HOSTILE, st.sampled_from(["idle", "tools", "total", "exited"]), st.booleans())
def test_a_verdicts_reason(text, limit, is_scope):
    path = (ScopeName("step", text), ScopeName("tool", text))
    verdict = Verdict(
        limit=limit,
        window=1.0,
        elapsed=1.0,
        name=text,
        scope=path,
        effective=path[0] if is_scope else None,
        fired=path[1] if is_scope else None,
        messages=1,
        last_signal=text,
        last_message_age=1.0,
        in_flight=(text, text),
        work=text,
    )
    assert wrong_in(verdict.reason) == set()
    assert wrong_in(str(StreamGuardError(verdict=verdict))) == set()
    assert wrong_in(str(path[0])) == set()


@given(HOSTILE)
def test_every_error_of_ours_is_one_line(text):
    for error in (StreamGuardError(text), ConfigError(f"{text}: wrong"), EarlierError(text, text)):
        assert wrong_in(str(error)) == set()
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert EarlierError(text, text).text == text
    failed = Attempted(attempt=1, error=text, error_class="idle", lived=1.0, messages=0)
    assert wrong_in(str(failed)) == set()


# -- the log -------------------------------------------------------------------------------------


def every_kind() -> list[type]:
    bases = events.Event, events.ScopeEvent, circuits.CircuitEvent
    return [kind for base in bases for kind in base.__subclasses__()]


def made(kind, text):
    """An event of that kind that has `text` wherever there can be one."""

    class SpeaksError(Exception):
        def __repr__(self) -> str:
            return text

    known = {
        "activity": Activity("x" + text),
        "error": SpeaksError(text),
        "verdict": Verdict(limit="tools", window=1.0, elapsed=1.0, name=text, work=text),
        "teardown": Teardown(confirmed="a" < text < "k", signals=(text,), tree="killed"),
        "signals": (text,),
        "survivors": (text,),
    }
    numbers = {"float", "int", "float | None", "int | None"}
    return kind(
        **{
            field.name: known.get(field.name, 3 if field.type in numbers else text)
            for field in dataclasses.fields(kind)
        }
    )


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
@SOME
@given(text=HOSTILE)
@example(text=FORGED)
def test_every_event_is_one_line_of_the_log(kind, text):
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    shown: list[str] = []

    class Logger:
        def log(self, level: int, event: str, **fields: object) -> None:
            shown.append(str(fields.get("message", "")))

    logger = logging.getLogger("streamguard")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        event = made(kind, text)
        if isinstance(event, events.Event):
            events.log(event)
        elif isinstance(event, events.ScopeEvent):
            tell_of_scope(event)
        StructlogObserver(Logger())(event)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert wrong_in(written.getvalue().removesuffix("\n")) == set()
    assert wrong_in(shown[0]) == set()


@SOME
@given(HOSTILE)
def test_a_circuits_log(text):
    records: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    logger, handler = logging.getLogger("streamguard"), Handler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        CircuitBreaker(text).reset()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert "reset by hand" in records[0]
    assert wrong_in(records[0]) == set()
    assert wrong_in(str(StreamGuardError(_why(text, Circuit(cause=text), 1.0)))) == set()


def test_a_stream_that_was_read_already_is_named_in_one_line():
    class Once:
        def __repr__(self) -> str:
            return FORGED

        def __aiter__(self):
            return self

        async def __anext__(self):
            raise StopAsyncIteration

    async def main() -> None:
        stream = Once() | idle_guard(60)
        await take(stream)
        stream.__aiter__()

    with pytest.warns(StreamGuardWarning, match="is iterated again after its end") as told:
        run_virtual(main)
    assert [str(each.message) for each in told if wrong_in(str(each.message))] == []


# -- the command line ----------------------------------------------------------------------------


@given(HOSTILE)
@example(FORGED)
def test_an_unknown_option(text):
    options = {
        "idle": Option("idle", float),
        "index": Option("i"),
        "x": Option("x"),
        "n": Option("n", int),
    }
    wrong = [f"--{text}"], [f"-{text}"], [f"--x{text}"], ["--idle", text], [f"--i{text}=1"]
    told = [refusal(words, options) for words in wrong]
    assert [each for each in told if wrong_in(each)] == []


def refusal(words, options) -> str:
    try:
        parse(words, options)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "words",
    [
        [FORGED],
        ["run", f"--{FORGED}"],
        ["run", "--idle", FORGED, "--", "true"],
        ["run", f"--signal={FORGED}", "--", "true"],
        ["run", "--resume-cmd", FORGED, "--", "true"],
        ["run", f"--errors={FORGED}", "--", "true"],
        ["timeout", FORGED, "true"],
        ["timeout", f"--{FORGED}", "true"],
        ["top", FORGED],
        ["top", "--every", FORGED],
        ["doctor", f"--{FORGED}"],
        ["demo", f"--{FORGED}"],
        ["report", f"/nowhere/{FORGED}"],
        ["report", ".", f"--{FORGED}"],
    ],
    ids=lambda words: "-".join(words).split("\x1b")[0][:40],
)
def test_what_was_typed_is_quoted_when_it_is_refused(words, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("\0", "") for word in words]  # which nobody can type
    try:
        code = command(words)
    except SystemExit as error:
        code = error.code
    out, err = capfd.readouterr()
    assert code
    assert err
    assert wrong_in(out + err, lines=True) == set()
    assert not any(line.startswith("CRITICAL") for line in err.splitlines())


@given(HOSTILE)
@example(FORGED)
def test_a_table_of_runs(text):
    told = {"pid": 7, "name": text, "state": text, "last_signal": text, "in_flight": [text, text]}
    assert wrong_in(top.RUNS.plain(top.rows([told], 1.0)), lines=True) == set()
    assert len(top.RUNS.plain(top.rows([told], 1.0)).splitlines()) == 2


@given(HOSTILE)
def test_what_the_doctor_finds(text):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        doctor._print([doctor.Finding("Backends", text, "ok", text)])
    assert wrong_in(out.getvalue(), lines=True) == set()
    legend, _, section, *lines, _, summary = out.getvalue().splitlines()
    assert (legend[0], section, summary) == ("+", "Backends", "Nothing to mend.")
    assert lines[0].startswith("  + ")
    assert all(
        line.startswith("    ") for line in lines[1:]
    )  # none of them is taken for another finding


def test_the_name_of_a_report_is_true_for_a_program(tmp_path, capfdbinary):
    """What is printed there is for `$(...)`; at a terminal it is quoted."""
    run = tmp_path / os.fsdecode(b"run \x1b[2J\xff\nx")
    tape = Tape(run)
    tape.stream("a").begins(0)
    tape.run()
    assert report.main([str(run)]) == 0
    assert capfdbinary.readouterr().out == os.fsencode(run / "report.html") + b"\n"


# -- files that somebody wrote -------------------------------------------------------------------


def toml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def refused(text: str, folder: Path) -> str:
    file = folder / "streamguard.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        from_config(file).guard("nobody")
    return str(caught.value)


@SOME
@given(UNICODE.filter(lambda text: all(ord(c) < 0x10000 for c in text)))
def test_a_key_or_a_value_of_a_file(tmp_path, text):
    key = toml(text)
    for written in (
        f"[guard]\n{key} = 3",
        f"[guard]\nmode = {key}",
        f"[guard.tools]\n{key} = {key}",
        f"{key} = 3",
        f"[guards.{key}]\nidle = 5",  # and another one is asked for
        f"[guards.{key}]\nidle = 5\nturn = 4",
        f"[breakers.{key}]\npause = 0",
        f"[run]\nsignal = 3\n[retry.{key}]",
    ):
        assert wrong_in(refused(written, tmp_path)) == set()


@SOME
@given(UNICODE.filter(lambda text: all(ord(c) < 0x10000 for c in text)))
@example("\0")
def test_what_is_explained(tmp_path, text):
    file = tmp_path / "streamguard.toml"
    file.write_text(f"[guards.{toml(text)}]\nidle = 5\n[resume]\nprompt = {toml(text)}")
    told = from_config(file).explain()
    assert wrong_in(told, lines=True) == set()
    assert len(told.splitlines()) == len(from_config(file).explain().split("\n"))
    assert not any(line.startswith("CRITICAL") for line in told.splitlines())


def test_the_path_of_a_file(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"\x1b[2J\xff\n\xc2\x9b")
    folder.mkdir()
    told = refused("[guard]\nidel = 3", folder)
    assert wrong_in(told) == set()
    (folder / "streamguard.toml").write_text("[guard]\nidle = 3")
    found = from_config(folder / "streamguard.toml")
    assert wrong_in(repr(found)) == set()
    assert wrong_in(found.explain(), lines=True) == set()
    with pytest.raises(ConfigError) as caught:
        FlowSpec.load(folder / "flow.txt")
    assert wrong_in(str(caught.value)) == set()


def test_yaml_that_is_wrong_is_told_in_one_line(tmp_path):
    pytest.importorskip("ruamel.yaml")
    file = tmp_path / "flow.yaml"
    file.write_text("steps:\n  - id: [\n")
    with pytest.raises(ConfigError) as caught:
        FlowSpec.load(file)
    assert "\\n" not in str(caught.value)
    assert wrong_in(str(caught.value)) == set()


def test_a_warning():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        FlowSpec.of({"timeouts": {"step": 2000, "llm_call": 3000}}, source=f"{FORGED}.toml")
    assert [str(each.message) for each in told if each.category is StreamGuardWarning]
    assert [each for each in told if wrong_in(str(each.message))] == []


# -- reports -------------------------------------------------------------------------------------


@SOME
@given(UNICODE)
def test_a_report(tmp_path_factory, text):
    tape = Tape(tmp_path_factory.mktemp("run"))
    stream = tape.stream("s" + text)
    stream.begins(0)
    stream.tell(events.WorkBegan, 1, id="t", name=text, background=False)
    stream.tell(
        events.RetryScheduled, 2, error_class=text, retry=1, delay=1.0, delay_source=text, why=text
    )
    run = tape.run()
    for drawn in (page(run), drawing(run)):
        assert wrong_in(drawn, lines=True) == set()


def test_a_folder_of_runs_with_any_name(tmp_path, capfdbinary):
    folder = tmp_path / os.fsdecode(b"all \x1b[2J\xff")
    run = folder / os.fsdecode(b"run \xff\n\x9b")
    tape = Tape(run)
    tape.stream("a").begins(0)
    tape.run()
    assert report.main([str(folder)]) == 0
    capfdbinary.readouterr()
    index = (folder / "index.html").read_text("utf-8")
    assert wrong_in(index, lines=True) == set()
    assert 'href="run%20%FF%0A%9B/report.html"' in index
