"""Output that is lost, an environment that stays as it was, and small things (faults 8, 17, 19)."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from streamguard._base.variables import MARK
from tests.process.backends import PATIENCE, comes_true
from tests.runner import traces
from tests.runner.commands import (
    INIT,
    OURS,
    RESULT,
    ROOT,
    SESSION,
    TEXT,
    fill,
    gnu_timeout,
    says,
    sh,
)

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.3"]
GNU = gnu_timeout()


# -- 8: output that is lost ------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--pty"]], ids=["a pipe", "a terminal"])
def test_what_a_full_disk_has_not_taken_is_no_success(ground, options):
    with Path("/dev/full").open("wb") as full:
        # Deaf to HUP: our end of its terminal may be closed before it has ended.
        words = ["--idle", LONG, *options, "--status-file", str(ground.status), "--"]
        done = ground.run(*words, *sh("trap '' HUP; echo out"), stdout=full)
    assert done.code == 125
    assert "No space left on device" in done.err
    told = ground.told()
    assert told["exit_code"] == done.shell
    assert (told["bytes"], told["bytes_lost"]) == (0, 4)


def test_a_failure_of_the_commands_own_stays_though_the_disk_is_full(ground):
    with Path("/dev/full").open("wb") as full:
        done = ground.run("--idle", LONG, "--", *sh("echo out; exit 3"), stdout=full)
    assert done.code == 3
    assert "No space left on device" in done.err


def test_a_file_that_may_not_grow_is_no_success(ground):
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    target = ground.folder / "target"
    with target.open("wb") as stdout:
        words = ["--idle", LONG, "--status-file", str(ground.status), "--"]
        done = ground.run(*words, *sh("head -c 30000 /dev/zero"), stdout=stdout, preexec_fn=small)
    assert done.shell in (125, 141)
    assert "File too large" in done.err
    told = ground.told()
    assert told["bytes"] == target.stat().st_size == 10_000
    assert told["bytes_lost"] > 0


def test_a_disk_that_fills_up_is_no_success(roots):
    around = roots.unshare("--mount")
    (roots.folder / "disk").mkdir()
    words = ["--idle", LONG, "--status-file", str(roots.status), "--"]
    line = roots.line(*words, *sh("head -c 50000 /dev/zero; exit 0"))
    script = f"mount -t tmpfs -o size=16k none disk && {{ {line} >disk/out; echo $?; wc -c <disk/out; }}"
    done = roots.shell(script, *around)
    code, size = map(int, done.out.split())
    assert code in (125, 141)
    assert "No space left on device" in done.err
    told = roots.told()
    assert told["exit_code"] == code
    assert told["bytes"] == size
    assert told["bytes_lost"] > 0


def piped(ground, *words):
    """Our command line with a pipe at its standard output, and the end that nobody reads yet."""
    reading, writing = os.pipe()
    process = ground.start(*words, stdout=writing)
    os.close(writing)
    return process, reading


def test_a_slow_reader_at_total_is_the_limits_verdict(ground):
    words = ["--idle", LONG, "--total", "2", "--status-file", str(ground.status), "--"]
    process, reading = piped(ground, *words, *sh("head -c 1500000 /dev/zero"))
    try:
        assert process.wait(PATIENCE) == 124
        told = ground.told()
        assert (told["limit"], told["exit_code"]) == ("total", 124)
        received = 0
        while chunk := os.read(reading, 1 << 16):
            received += len(chunk)
    finally:
        os.close(reading)
    assert told["bytes"] == received < 1_500_000
    assert told["bytes_lost"] > 0 or told["command_exit"] != 0
    assert ground.living() == set()


def test_a_slow_reader_without_a_limit_gets_it_all(ground):
    words = ["--idle", LONG, "--status-file", str(ground.status), "--"]
    process, reading = piped(ground, *words, *sh("head -c 1500000 /dev/zero; echo >done"))
    received = 0
    while received < 100_000:
        received += len(os.read(reading, 1000))
    while chunk := os.read(reading, 1 << 16):
        received += len(chunk)
    os.close(reading)
    assert process.wait(PATIENCE) == 0
    assert received == 1_500_000
    assert (ground.told()["bytes"], ground.told()["bytes_lost"]) == (1_500_000, 0)


def test_a_reader_who_leaves_while_output_waits_for_it_is_told_of_by_sigpipe(ground):
    """Our reader's pipe is full: all that the command wrote waits with us when it has ended."""
    reading, writing = os.pipe()
    fill(writing)
    words = ["--idle", LONG, "--status-file", str(ground.status), "--"]
    process = ground.start(*words, *sh("head -c 30000 /dev/zero; echo >over"), stdout=writing)
    os.close(writing)
    assert comes_true((ground.folder / "over").exists)
    assert comes_true(lambda: not children_but_ours(process.pid))
    assert process.poll() is None
    os.close(reading)
    assert process.wait(PATIENCE) in (-signal.SIGPIPE, 141)
    assert ground.told()["bytes_lost"] == 30_000


def children_but_ours(pid):
    """Who lives below it and is another program."""
    ours = {pid} | traces.forks(pid)
    return {child for each in ours for child in traces.children(each)} - ours


# -- 17: the environment of the command ------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["LC_ALL=C"],
        ["LANG=C"],
        ["LC_ALL=POSIX"],
        ["LC_CTYPE=C"],
        ["LC_CTYPE=POSIX"],
        ["LC_CTYPE=C.UTF-8"],
        ["LC_CTYPE=", "LANG="],
        ["PYTHONCOERCECLOCALE=0"],
        ["LC_CTYPE=C", "PYTHONCOERCECLOCALE=0"],
        ["LANG=C.UTF-8", "LC_CTYPE=C"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["run", "timeout"])
def test_the_commands_environment_is_what_ours_was(ground, given, form):
    given = [f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT}", *given]
    words = ["run", "--idle", LONG] if form == "run" else ["timeout", LONG]
    done = ground.commands.run("env", "-i", *given, *OURS, *words, "env", "-0")
    seen = [entry.decode() for entry in done.out.split(b"\0") if entry]
    assert sorted(entry for entry in seen if not entry.startswith(f"{MARK}=")) == sorted(given)


# -- 19: small things ------------------------------------------------------------------------


def is_a_clear_end(done, *codes):
    """It did what it was asked to, or says in our own words that it could not."""
    assert "Traceback" not in done.err
    if done.code not in codes:
        assert done.code in (125, 126)
        assert done.err.startswith("streamguard run: ")
    return True


def test_a_system_without_dev_null_is_no_traceback(anyones):
    around = anyones.unshare("--mount")
    line = anyones.line("--total", "5", "--", *sh("echo out; exit 3"))
    done = anyones.shell(f"mount -t tmpfs none /dev && exec {line}", *around)
    assert is_a_clear_end(done, 3)


@pytest.mark.parametrize("descriptors", range(4, 11))
@pytest.mark.parametrize("options", [["--idle", LONG], ["--total", LONG], ["--pty"]], ids=" ".join)
def test_too_few_descriptors_are_a_clear_message(ground, descriptors, options):
    line = ground.line(*options, "--", "/bin/sh", "-c", "exit 3")
    done = ground.shell(f"ulimit -n {descriptors}; exec {line}")
    assert is_a_clear_end(done, 3)


def test_input_that_is_gone_when_it_is_read_never_blocks_us(ground):
    """Between a poll and a read somebody else who has the descriptor may be faster.

    Here nobody has to be: a socket that gives no less than it was told to says that it is readable
    when it holds a byte, and makes whoever reads wait for the rest.
    """
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    words = ["--retries", "1", "--total", "2", "--kill-after", "0.5", "--"]
    with ours:
        with theirs:
            process = ground.start(*words, *sh(f"exec {ground.sleep}"), stdin=theirs)
        ours.send(b"x")
        assert process.wait(PATIENCE) == 124
    assert ground.living() == set()


BAD_IDS = {
    "a space": "a b",
    "a semicolon": "a;b",
    "a slash": "../a",
    "a letter beyond ASCII": "\u00e9t\u00e9",
    "an equals sign": "a=b",
    "a quote": "a'b",
    "a brace": "{session_id}",
    "too long": "x" * 257,
    "an option": "-x",
}
GOOD_IDS = {"a UUID": SESSION, "all that may be": "aZ09._:-", "the longest": "x" * 256}


def resumed(ground, session_id):
    lines = [{**line, "session_id": session_id} for line in (INIT, TEXT)]
    (ground.folder / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = "sh -c 'echo \"$1\" >resumed; exit 3' x {session_id}"
    words = [*SILENCE, "--retries", "1", "--backoff", "0", "--resume-cmd", again]
    words += ["--status-file", str(ground.status), "--"]
    return ground.run(*words, *sh(f"cat lines; exec {ground.sleep}"))


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_session_id_that_no_agent_gives_is_not_put_on_a_command_line(ground, name):
    done = resumed(ground, BAD_IDS[name])
    assert done.code == 124
    assert not (ground.folder / "resumed").exists()
    assert "not tried again" in done.err


@pytest.mark.parametrize("name", GOOD_IDS)
def test_a_session_id_as_agents_give_them_is_used(ground, name):
    assert resumed(ground, GOOD_IDS[name]).code == 3
    assert (ground.folder / "resumed").read_text() == f"{GOOD_IDS[name]}\n"


BACKGROUND = {
    "type": "system",
    "subtype": "task_started",
    "session_id": SESSION,
    "task_id": "b1",
    "task_type": "local_bash",
    "is_backgrounded": True,
    "description": "make",
}


def test_background_work_that_a_verdict_dropped_is_named(ground):
    """T14: a success whose background work was open at the end is none without a word."""
    words = ["--idle", LONG, "--exit-grace", "0.3", "--tools", "1"]
    words += ["--status-file", str(ground.status), "--"]
    script = f"{says(INIT, TEXT, BACKGROUND, RESULT)}; exec {ground.sleep}"
    ground.run(*words, *sh(script))
    told = ground.told()
    assert told["limit"] in ("tools", "exit_grace")
    assert len(told["in_flight"]) == 1


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--errors", "json"]], ids=" ".join)
def test_a_command_without_any_limit_is_said_to_be_unguarded_once(ground, options):
    done = ground.run(*options, "--", *sh("exit 3"))
    assert done.code == 3
    assert done.err.count("no limit is on") == 1
    assert ground.run(*options, "--idle", LONG, "--", *sh("exit 3")).err == ""


@pytest.mark.skipif(GNU is None, reason="GNU timeout is not installed")
@pytest.mark.parametrize(
    "words",
    [
        ["-s", "KILL", ".1", "sleep", "600"],
        ["-s", "9", ".1", "sleep", "600"],
        ["-s0", "-k.1", ".1", "sleep", "600"],
        ["-k.1", ".1", "sh", "-c", "trap '' TERM; sleep 600; sleep 600"],
        ["--foreground", "-k.1", ".1", "sh", "-c", "trap '' TERM; sleep 1"],
        ["--preserve-status", "-s", "KILL", ".1", "sleep", "600"],
        ["-s", "TERM", ".1", "sleep", "600"],
        ["5", "sh", "-c", "kill -KILL $$"],
        *[["-s", name, "5", "true"] for name in ("RTMIN", "RTMIN+1", "RTMAX-1", "RTMAX")],
        *[["-s", name, "5", "true"] for name in ("137", "265", "SIGRTMIN+1", "sigkill", "EXIT")],
        *[["-s", name, "5", "true"] for name in ("RTMIN+99", "RTMAX+1", "65", "", "-1", "NONE")],
    ],
    ids=" ".join,
)
def test_timeout_ends_as_gnus_does_by_the_same_signal(commands, words):
    assert commands.run(*OURS, "timeout", *words).code == commands.run(GNU[0], *words).code


def test_run_that_had_to_kill_reads_as_137_in_a_shell(ground):
    deaf = sh(f"trap '' TERM; {ground.sleep}; {ground.sleep}")
    for words in (
        ["--kill-after", "0.2", "--total", "0.5"],
        ["--signal", "KILL", "--total", "0.5"],
    ):
        assert ground.run(*words, "--", *deaf).shell == 137
        assert ground.living() == set()
