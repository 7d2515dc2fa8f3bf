"""The real `claude`, `codex`, `copilot`, `kimi`, `opencode` and `qwen` under `streamguard run`, on a server that misbehaves.

Real time: WINDOW is as long as a busy machine needs, and `--first` longer, since a CLI's start is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest

from tests.loopback.script import stall, status, text
from tests.process.backends import PATIENCE
from tests.real.clis import FOREVER
from tests.runner.commands import OURS, ROOT

# kimi's lines tell a tool once it has ended.
TELLING = ("claude", "codex", "copilot", "opencode", "qwen")
telling = pytest.mark.parametrize("cli", TELLING, indirect=True)
WINDOW = 4
LONG = 6  # where a verdict would be a false one


@pytest.fixture(params=["claude", "codex", "copilot", "kimi", "opencode", "qwen"])
def cli(request, start_cli):
    return start_cli(request.param)


@pytest.fixture
def run(cli, backends, tmp_path):
    """Runs the CLI under limits; gives the exit code, the lines and what the status file says."""

    def run(*limits, through=(), stdin=subprocess.DEVNULL):
        status = tmp_path / "status.json"
        words = [*OURS, "run", "--first", str(2 * PATIENCE), "--kill-after", "2"]
        words += ["--status-file", str(status), *map(str, limits), "--", *through]
        process = backends.popen(
            [*words, cli.executable, *cli.words("Begin.")],
            env=cli.env({"PYTHONPATH": str(ROOT)}),
            cwd=cli.home,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        out, _ = process.communicate(timeout=4 * PATIENCE)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
        return process.returncode, lines, json.loads(status.read_text())

    return run


def test_a_normal_run_is_left_alone(run, cli, server, backends):
    server.script(text("I look. ") + cli.shell("echo it is here"), text("Done."))
    code, lines, told = run("--idle", PATIENCE)
    assert (code, told["limit"], told["result"]) == (0, None, "success")
    assert told["session_id"]
    assert len(lines) == told["messages"]
    assert backends.living() == set()


def test_a_hang_is_124_and_nothing_is_left(run, cli, server, backends):
    server.script(cli.shell("echo it is here"), text("I ", "think.") | stall(after=cli.midway))
    code, _, told = run("--idle", WINDOW)
    assert code == told["exit_code"]
    assert (code in (124, 137), told["limit"]) == (True, "idle")
    assert told["survivors"] == []
    assert backends.living() == set()


@telling
def test_a_long_tool_is_no_hang(run, cli, server):
    """T5: it takes longer than the window."""
    server.script(cli.shell(f"timeout {LONG + 1} {FOREVER}; echo at last"), text("Done."))
    code, _, told = run("--idle", LONG)
    assert (code, told["result"]) == (0, "success")


def test_a_hang_after_the_result_is_ended_and_stays_a_success(run, cli, server, backends):
    """T14. What stays is a wrapper of the CLI's, as its npm package has one."""
    server.script(text("Done."))
    stays = ["sh", "-c", f'"$@"; {FOREVER}', "sh"]
    code, _, told = run("--idle", 2 * PATIENCE, "--exit-grace", 1, through=stays)
    assert (code, told["limit"], told["result"]) == (0, "exit_grace", "success")
    assert backends.living() == set()


@telling
def test_an_error_in_a_process_that_stays_is_ended_in_seconds(run, cli, server, backends):
    """T14: its turn is over, and badly."""
    server.script(forever=status(400))
    stays = ["sh", "-c", f'"$@"; {FOREVER}', "sh"]
    code, _, told = run("--idle", 2 * PATIENCE, "--exit-grace", 1, through=stays)
    assert (code, told["limit"], told["result"]) == (1, "exit_grace", "error")
    assert backends.living() == set()


@telling
def test_a_tool_that_left_for_its_own_session_is_ended_too(run, cli, server, backends):
    """D4."""
    orphan = cli.home / "orphan"
    # Whose tool is ended before it is itself may ask what to do next.
    server.script(
        cli.shell(f"setsid {FOREVER} & echo $! >{orphan}; {FOREVER}"),
        forever=text("It was ended."),
    )
    code, _, told = run("--idle", 2 * PATIENCE, "--tools", 2 * WINDOW)
    assert (code in (124, 137), told["limit"]) == (True, "tools")
    assert orphan.exists()
    assert told["survivors"] == []
    assert backends.living() == set()


@pytest.fixture
def pipe():
    """A standard input that nobody writes to, and nobody closes."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
def test_who_waits_for_input_that_never_comes_is_told_so(run, cli, server, pipe):
    """codex reads it also with a prompt in its arguments, for ever; claude gives it up after 3 s."""
    server.script(text("Done."))
    code, _, told = run("--first", PATIENCE, stdin=pipe)
    if cli.name == "codex":
        assert (code, told["limit"]) == (124, "first")
        assert "; it waits for standard input, a pipe that nobody closes" in told["reason"]
    else:
        assert (code, told["result"]) == (0, "success")


@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
def test_without_input_nobody_waits_for_it(run, cli, server, pipe):
    server.script(text("Done."))
    code, _, told = run("--idle", PATIENCE, "--stdin", "null", stdin=pipe)
    assert (code, told["result"]) == (0, "success")


# opencode reads all of its standard input before it begins, although it was given a prompt.


@pytest.mark.parametrize("cli", ["opencode"], indirect=True)
def test_a_stdin_that_stays_open_is_named_as_the_cause(run, cli, server):
    ours, theirs = socket.socketpair()  # what communicate() would close, a socket keeps open
    with ours, theirs:
        code, lines, told = run("--first", PATIENCE, stdin=theirs)
    assert (code in (124, 137), lines, server.requests) == (True, [], [])
    assert "standard input" in told["reason"]


@pytest.mark.parametrize("cli", ["opencode"], indirect=True)
def test_without_a_stdin_the_same_command_does_its_work(run, cli, server):
    """The control."""
    server.script(text("Done."))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        code, _, told = run("--stdin", "null", stdin=theirs)
    assert (code, told["result"]) == (0, "success")


@pytest.mark.parametrize("cli", ["opencode"], indirect=True)
def test_a_tool_that_nobody_tells_of_is_a_silence(run, cli, server, backends):
    """The control of `test_a_long_tool_is_no_hang`: what opencode says without the tap."""
    cli.has_tap = False
    server.script(
        text("I look. ") + cli.shell(f"timeout {2 * PATIENCE} {FOREVER}"),
        forever=text("It was ended."),
    )
    code, _, told = run("--idle", LONG)
    assert (code in (124, 137), told["limit"]) == (True, "idle")
    assert backends.living() == set()
