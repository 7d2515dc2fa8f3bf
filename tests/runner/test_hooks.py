"""`streamguard run --on-warn` and `--on-end`: told in time, bounded, and without a say."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time

import pytest

from streamguard._base import defaults
from streamguard.runner.hooks import FACTS
from tests.process.backends import comes_true
from tests.runner.commands import ENDLESS, INIT, OURS, ROOT, SESSION, TEXT, says, sh

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.6", "--kill-after", "1"]
TALKS = sh(f"{says(INIT, TEXT)}; exec sleep 600")
# As `run`, with another time for hooks: its arguments follow.
WITHIN = "import sys; from streamguard._base import defaults; defaults.HOOK = {}; from streamguard.cli import main; main()"


def telling(path):
    """A hook that writes what it was told into a file of its own, by its event."""
    code = (
        "import json, os; told = {k[12:]: v for k, v in os.environ.items() if k.startswith('STREAMGUARD_')}; "
        f"open({str(path)!r} + told['EVENT'], 'w').write(json.dumps(told))"
    )
    return shlex.join([sys.executable, "-S", "-c", code])


def told_in(path):
    told = json.loads(path.read_text())
    return {name: value for name, value in told.items() if name in FACTS}


def within(seconds, *words):
    return [sys.executable, "-c", WITHIN.format(seconds), "run", *words]


def test_the_end_is_told_with_its_facts(commands, tmp_path):
    status, record = tmp_path / "status.json", tmp_path / "evidence"
    words = ["--status-file", str(status), "--record", str(record)]
    hook = ["--on-end", telling(tmp_path / "told.")]
    done = commands.guarded(*SILENCE, *words, *hook, "--", *TALKS)
    assert done.code == 124
    told, end = told_in(tmp_path / "told.ended"), json.loads(status.read_text())
    assert told.pop("REASON") == end["reason"]
    assert float(told.pop("ELAPSED")) >= 0.6
    (receipt,) = record.glob("*/receipts/*")
    assert told == {
        "EVENT": "ended",
        "LIMIT": "idle",
        "WINDOW": "0.6",
        "PID": str(end["pid"]),
        "EXIT": "124",
        "RECEIPT": str(receipt),
        "STATUS_FILE": str(status),
        "SESSION_ID": SESSION,
    }
    assert end["receipt"] == str(receipt)


@pytest.mark.parametrize(
    ("command", "code"), [(["true"], 0), (sh("exit 3"), 3), (["no_such_command"], 127)]
)
def test_an_end_without_a_limit_has_no_limit(commands, tmp_path, command, code):
    """What an outer run has told its own is not told again."""
    outer = {**os.environ, "STREAMGUARD_LIMIT": "total", "STREAMGUARD_RECEIPT": "elsewhere"}
    words = [*SILENCE, "--on-end", telling(tmp_path / "told."), "--", *command]
    assert commands.guarded(*words, env=outer).code == code
    told = told_in(tmp_path / "told.ended")
    assert told["EXIT"] == str(code)
    assert told.keys().isdisjoint({"LIMIT", "WINDOW", "ELAPSED", "RECEIPT", "SESSION_ID"})


def test_half_a_silence_is_told_while_the_command_runs(commands, tmp_path):
    words = ["--idle", "20", "--on-warn", telling(tmp_path / "told."), "--", *TALKS]
    process = commands.start(*OURS, "run", *words)
    half = tmp_path / "told.half_time"
    assert comes_true(lambda: half.exists() and half.read_text())
    assert process.poll() is None
    told = told_in(half)
    assert (told["LIMIT"], told["WINDOW"], told["ELAPSED"]) == ("idle", "20", "10")
    assert told["SESSION_ID"] == SESSION
    os.kill(int(told["PID"]), 0)
    process.terminate()
    process.communicate()


def test_mode_warn_tells_what_would_be_ended(commands, tmp_path):
    environment = {**os.environ, "STREAMGUARD_MODE": "warn"}
    words = [*SILENCE, "--on-warn", telling(tmp_path / "told."), "--", *TALKS]
    process = commands.start(*OURS, "run", *words, env=environment)
    assert comes_true((tmp_path / "told.would_end").exists)
    process.terminate()
    process.communicate()


def test_a_further_attempt_is_told(commands, tmp_path):
    words = ["--retries", "1", "--backoff", "0", "--on-warn", telling(tmp_path / "told.")]
    commands.guarded("--first", "0.6", *words, "--", *ENDLESS)
    assert "trying again now (1 of 1)" in told_in(tmp_path / "told.retry")["REASON"]


def test_its_output_goes_to_standard_error_and_its_input_is_empty(commands):
    hook = shlex.join(sh("cat; echo told; echo loudly >&2"))
    words = ["--idle", LONG, "--on-end", hook, "--", "echo", "out"]
    done = commands.guarded(*words, stdin=b"the command's")
    assert (done.code, done.out) == (0, b"out\n")
    assert done.err.splitlines() == ["told", "loudly"]


def test_it_works_where_the_run_does(commands, tmp_path):
    words = ["--total", LONG, "--on-end", "sh -c 'pwd; echo $0 $PWD'", "--", "true"]
    assert commands.guarded(*words, cwd=tmp_path).err.splitlines()[0] == str(tmp_path)


def test_no_shell_reads_it(commands):
    words = ["--total", LONG, "--on-end", "echo '$HOME;' > x", "--", "true"]
    assert commands.guarded(*words).err == "$HOME; > x\n"


@pytest.mark.parametrize("hook", ["false", "no_such_hook", "sh -c 'kill -9 $$'", "/"])
@pytest.mark.parametrize("code", [0, 7])
def test_it_has_no_say(commands, hook, code):
    """A hook that fails is a line, and changes no code."""
    words = ["--total", LONG, "--on-end", hook, "--", *sh(f"exit {code}")]
    done = commands.guarded(*words)
    assert done.code == code
    (line,) = done.err.splitlines()
    assert line.startswith("streamguard run: --on-end: ")


def test_one_that_hangs_is_ended_with_all_that_it_started(commands):
    """Also what has left its session. Deaf, so that it takes KILL."""
    deaf = "trap '' TERM; setsid sleep 600 & echo $!; sleep 600; sleep 600"
    words = ["--total", LONG, "--on-end", shlex.join(sh(deaf)), "--", *sh("exit 7")]
    began = time.monotonic()
    done = commands.run(*within(0.5, *words))
    assert done.code == 7
    assert done.err.splitlines()[1:] == [
        "streamguard run: --on-end: 'sh' was ended: it was not done in 0.5 s"
    ]
    assert commands.living() == set()
    assert time.monotonic() - began < defaults.HOOK


def test_what_it_leaves_in_the_background_ends_with_it(commands):
    words = ["--total", LONG, "--on-end", "sh -c 'setsid sleep 600 & echo told'", "--", "true"]
    assert commands.guarded(*words) == (0, b"", "told\n")
    assert commands.living() == set()


def test_a_warning_that_hangs_holds_up_no_verdict(commands):
    words = [*SILENCE, "--on-warn", shlex.join(ENDLESS), "--", *TALKS]
    path = commands.folder / "status.json"
    done = commands.run(*within(5.0, "--status-file", str(path), *words))
    told = json.loads(path.read_text())
    assert (done.code, told["limit"]) == (124, "idle")
    assert told["elapsed"] < 5.0
    assert commands.living() == set()


def test_the_commands_reader_does_not_wait_for_a_hook(commands, tmp_path):
    """Its output has ended before the hook has."""
    go = tmp_path / "go"
    hook = shlex.join(sh(f"while ! test -e {go}; do sleep 0.05; done"))
    process = commands.start(*OURS, "run", "--idle", LONG, "--on-end", hook, "echo", "out")
    assert process.stdout.read() == b"out\n"
    assert process.poll() is None
    go.touch()
    assert process.wait(60) == 0
    process.communicate()


def test_a_signal_does_not_wait_for_it(commands, tmp_path):
    hook = shlex.join(sh(f"touch {tmp_path / 'began'}; exec sleep 600"))
    process = commands.start(*OURS, "run", "--total", LONG, "--on-end", hook, "true")
    assert comes_true((tmp_path / "began").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.communicate()
    assert commands.all_gone()


def test_a_killed_run_leaves_no_hook(commands, tmp_path):
    hook = shlex.join(sh(f"touch {tmp_path / 'began'}; exec sleep 600"))
    process = commands.start(*OURS, "run", "--total", LONG, "--on-end", hook, "true")
    assert comes_true((tmp_path / "began").exists)
    process.kill()
    process.communicate()
    assert commands.all_gone()


@pytest.mark.parametrize("words", ["", "'", " "])
def test_what_is_no_command_is_wrong_usage(commands, words):
    assert commands.guarded("--total", LONG, "--on-end", words, "true").code == 125


def test_a_hook_is_not_imported_for_who_has_none(commands):
    code = "import sys; sys.modules['streamguard.runner.hooks'] = None; from streamguard.cli import main; main()"
    done = commands.run(sys.executable, "-c", code, "run", "--total", LONG, "true", cwd=ROOT)
    assert done == (0, b"", "")
