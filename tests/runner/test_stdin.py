"""`streamguard run --stdin`, and what is said of a command that waits for input which never comes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamguard.runner import parked
from streamguard.runner.stdin import Input
from tests.process.backends import comes_true
from tests.runner.commands import ENDLESS, OURS, sh

LONG = "600"
HANGS = ["--first", "0.4", "--kill-after", "1"]
WAITS = (
    "it waits for standard input, a pipe that nobody closes: if it needs none, say --stdin null"
)
MAY = "it may be waiting for standard input, a pipe that nobody closes"
PYTHON = [sys.executable, "-c"]
BY_EPOLL = [
    *PYTHON,
    "import select; e = select.epoll(); e.register(0, select.EPOLLIN); e.poll()",
]
PAUSED = [*PYTHON, "import select; e = select.epoll(); e.register(0, 0); e.poll()"]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


@pytest.fixture
def pipe():
    """The reading end of a pipe that nobody writes to, and nobody closes."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "command",
    [["cat"], sh("cat; true"), [*PYTHON, "import sys; sys.stdin.read()"]],
    ids=["reads", "a child reads", "Python"],
)
def test_a_hang_that_waits_for_input_names_it_as_the_cause(commands, pipe, command):
    path = commands.folder / "told.json"
    words = [*HANGS, "--status-file", str(path), "--", *command]
    done = commands.wait(commands.start(*OURS, "run", *words, stdin=pipe))
    assert done.code == 124
    assert WAITS in done.err
    assert WAITS in json.loads(path.read_text())["reason"]


def test_where_it_is_one_of_several_things_it_may_be_the_cause(commands, pipe):
    done = commands.wait(commands.start(*OURS, "run", *HANGS, "--", *BY_EPOLL, stdin=pipe))
    assert MAY in done.err


@pytest.mark.skipif(shutil.which("node") is None, reason="no node: .ci/tools installs it")
def test_node_and_what_is_made_with_it_may_wait_for_it(commands, pipe):
    command = ["node", "-e", "process.stdin.on('data', () => {})"]
    done = commands.wait(commands.start(*OURS, "run", "--first", "3", "--", *command, stdin=pipe))
    assert MAY in done.err


@pytest.mark.parametrize("command", [ENDLESS, PAUSED, sh("sleep 600 | cat")])
def test_who_waits_for_something_else_is_not_told_so(commands, pipe, command):
    done = commands.wait(commands.start(*OURS, "run", *HANGS, "--", *command, stdin=pipe))
    assert done.code == 124
    assert "standard input" not in done.err


@pytest.mark.parametrize("given", ["/dev/null", "a file"])
def test_an_input_that_ends_is_no_cause(commands, tmp_path, given):
    path = tmp_path / "prompt"
    path.write_text("Go.")
    with Path(path if given == "a file" else given).open() as file:
        done = commands.wait(commands.start(*OURS, "run", *HANGS, *ENDLESS, stdin=file))
    assert "standard input" not in done.err


def test_after_output_it_is_no_cause_any_more(commands, pipe):
    words = ["--first", LONG, "--idle", "0.4", "--", *sh("echo out; exec cat")]
    done = commands.wait(commands.start(*OURS, "run", *words, stdin=pipe))
    assert done.code == 124
    assert "standard input" not in done.err


def test_a_command_that_is_tried_again_reads_a_pipe_of_ours_and_is_told_so_too(commands, pipe):
    words = [*HANGS, "--retries", "1", "--backoff", "0", "--", "cat"]
    done = commands.wait(commands.start(*OURS, "run", *words, stdin=pipe))
    assert done.err.count(WAITS) == 2


def test_mode_warn_says_it_as_well(commands, pipe):
    """Told by default: the person at the log can end it."""
    environment = {**os.environ, "STREAMGUARD_MODE": "warn"}
    process = commands.start(
        *OURS, "run", *HANGS, "--", "cat", stdin=pipe, env=environment, text=True
    )
    assert WAITS in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate()


def test_a_terminal_at_which_nobody_types_is_named(commands):
    ours, theirs = os.openpty()
    try:
        done = commands.wait(commands.start(*OURS, "run", *HANGS, "--", "cat", stdin=theirs))
    finally:
        os.close(ours)
        os.close(theirs)
    assert "standard input, a terminal that nobody types at" in done.err


def test_what_is_hidden_is_told_by_what_a_thread_sleeps_in(tmp_path, monkeypatch, pipe):
    """Yama shows nobody but root another process's call; then nothing is certain."""
    process = subprocess.Popen(["cat"], stdin=pipe)
    try:
        assert comes_true(lambda: parked._look(process.pid, Input(pipe).file) == b"reads")
        content = parked._content

        def hidden(path):
            if path.endswith("syscall"):
                raise PermissionError(path)
            return content(path)

        monkeypatch.setattr(parked, "_content", hidden)
        assert parked._look(process.pid, Input(pipe).file) == b"may"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("more", [[], ["--pty"], ["--foreground"], ["--retries", "1"]])
def test_stdin_null_gives_it_nothing_to_wait_for(commands, pipe, more):
    words = ["--first", LONG, "--stdin", "null", *more, "--", *sh("cat; echo done")]
    done = commands.wait(commands.start(*OURS, "run", *words, stdin=pipe))
    assert (done.code, done.out) == (0, b"done\n")


def test_stdin_null_also_where_ours_is_closed(commands):
    line = f"exec {' '.join(OURS)} run --total 600 --stdin null -- sh -c 'cat; echo done' <&-"
    assert commands.run(*sh(line)) == (0, b"done\n", "")


def test_stdin_can_be_configured(commands, pipe, tmp_path):
    (tmp_path / "streamguard.toml").write_text('[run]\nstdin = "null"\n')
    process = commands.start(
        *OURS, "run", "--first", LONG, *sh("cat; echo done"), stdin=pipe, cwd=tmp_path
    )
    assert commands.wait(process).out == b"done\n"
