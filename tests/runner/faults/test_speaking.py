"""What `run` says and writes never keeps it from what it is for (faults 1, 6, 10, 11 and 15)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import termios
from pathlib import Path

import pytest

from tests.process.backends import PATIENCE, comes_true
from tests.runner.commands import INIT, SESSION, TEXT, says, sh
from tests.runner.faults.conftest import NOBODY
from tests.runner.test_terminal import Typed

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.3"]
# More than any pipe takes.
TALKATIVE = "head -c 3000000 /dev/zero >&2; exec "


@pytest.fixture
def full():
    """A pipe that takes nothing more and that nobody reads; its writing end blocks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


def is_full(pipe):
    """Whether what waits in it is all that it takes."""
    waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")
    return waiting >= 65536


# -- 1: nobody reads standard error ----------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--errors", "json"]], ids=" ".join)
def test_a_verdict_is_carried_out_though_nobody_reads_standard_error(anyones, options):
    words = ["--idle", "1", "--kill-after", "1", *options, "--status-file", str(anyones.status)]
    process = anyones.start(*words, "--", *sh(TALKATIVE + anyones.sleep))
    assert process.wait(PATIENCE) == 124
    assert anyones.living() == set()
    told = anyones.told()
    assert (told["limit"], told["exit_code"], told["survivors"]) == ("idle", 124, [])
    assert told["unsaid"]


def test_a_signal_is_passed_on_though_nobody_reads_standard_error(ground):
    process = ground.start("--verbose", "--idle", LONG, "--", *sh(TALKATIVE + ground.sleep))
    assert comes_true(lambda: is_full(process.stderr.fileno()))
    process.terminate()
    assert process.wait(PATIENCE) == -signal.SIGTERM
    assert ground.living() == set()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_after_the_verdict_is_heard_though_standard_error_is_full(ground, full, name):
    script = f"trap '' TERM INT HUP; echo ready; {ground.sleep}; {ground.sleep}"
    words = ["--verbose", *SILENCE, "--kill-after", "2", "--", *sh(script)]
    process = ground.commands.ready(ground.start(*words, stderr=full))
    process.send_signal(getattr(signal, name))
    assert process.wait(PATIENCE) in (137, -signal.SIGINT)
    assert ground.living() == set()


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--idle", LONG, "--", "nosuch"], 127), (["--nosuch"], 125), (["--idle", "1", "true"], 0)],
    ids=["not found", "wrong usage", "an end of its own"],
)
def test_an_end_without_a_verdict_comes_though_standard_error_is_full(ground, full, words, code):
    assert ground.start(*words, stderr=full).wait(PATIENCE) == code


@pytest.mark.timeout(120)
def test_a_terminal_that_was_stopped_by_ctrl_s_keeps_no_verdict_back(ground):
    words = ground.words(*SILENCE, "--", *sh(f"echo ready; exec {ground.sleep}"))
    typed = Typed(ground.commands, *words)
    try:
        assert typed.shows(b"ready")  # else there is output that waits, which is no silence
        typed.type(b"\x13")
        assert typed.process.wait(PATIENCE) in (124, 137)
        assert ground.living() == set()
    finally:
        typed.process.kill()
        typed.process.wait()
        typed.close()


# -- 6: a status file is nobody else's -------------------------------------------------------


@pytest.fixture
def victim(ground):
    path = ground.folder / "victim"
    path.write_text("precious\n")
    return path


def test_a_status_file_is_for_its_owners_eyes_only(ground):
    """It holds the session's id."""
    assert ground.run("--status-file", str(ground.status), "--idle", LONG, "--", "true").code == 0
    assert stat.S_IMODE(ground.status.stat().st_mode) == 0o600


def test_a_link_that_waits_where_a_file_beside_it_could_be_is_not_followed(ground, victim):
    """`FILE.PID` can be guessed: by `exec` the pid is the shell's, and what it forks comes after."""
    line = ground.line("--status-file", str(ground.status), "--idle", LONG, "--", "true")
    plant = f"for i in $(seq $$ $(($$ + 20))); do ln -s victim {ground.status}.$i; done"
    assert ground.shell(f"{plant}; exec {line}").code == 0
    assert victim.read_text() == "precious\n"
    assert ground.told()["exit_code"] == 0


def test_a_link_that_another_user_has_planted_is_not_followed(roots, victim):
    roots.status.symlink_to(victim)
    os.lchown(roots.status, NOBODY, NOBODY)
    done = roots.run("--status-file", str(roots.status), "--idle", LONG, "--", "true")
    assert done.code == 0
    assert victim.read_text() == "precious\n"


def test_a_link_in_a_folder_that_is_anothers_leads_nowhere(roots, victim):
    folder = roots.folder / "theirs"
    folder.mkdir(mode=0o755)
    (folder / "status.json").symlink_to(victim)
    os.lchown(folder / "status.json", NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)
    words = ["--status-file", str(folder / "status.json"), "--idle", LONG, "--", "true"]
    assert roots.run(*words).code == 0
    assert victim.read_text() == "precious\n"


# -- 10: a status file that nobody takes -----------------------------------------------------


@pytest.mark.parametrize(
    ("words", "script", "code"),
    [
        (["--idle", LONG], "exit 3", 3),
        (["--total", "1"], "exec SLEEP", 124),
        (["--total", "1", "--turn", LONG, "--kill-after", "0.2"], "trap '' TERM; SLEEP", 137),
    ],
    ids=["an end of its own", "a verdict", "a kill"],
)
def test_a_fifo_that_nobody_reads_holds_up_no_end(ground, words, script, code):
    os.mkfifo(ground.status)
    words = ["--status-file", str(ground.status), *words, "--"]
    done = ground.run(*words, *sh(script.replace("SLEEP", ground.sleep)))
    assert done.code == code
    assert f"--status-file {ground.status}" in done.err
    assert ground.living() == set()


def test_a_full_pipe_for_the_status_holds_up_no_end(ground, full):
    words = ["--status-file", f"/dev/fd/{full}", "--total", "1", "--", *sh(ground.sleep)]
    assert ground.run(*words, pass_fds=[full]).code == 124
    assert ground.living() == set()


def test_a_fifo_with_a_reader_gets_the_status(ground):
    os.mkfifo(ground.status)
    reading = os.open(ground.status, os.O_RDONLY | os.O_NONBLOCK)
    try:
        words = ["--status-file", str(ground.status), "--idle", LONG, "--", *sh("exit 3")]
        assert ground.run(*words).code == 3
        assert json.loads(os.read(reading, 1 << 16))["exit_code"] == 3
    finally:
        os.close(reading)


# -- 11: what others named is said in printable letters, on the line where it belongs --------

EVIL = "Ba\x1b[2Jsh\nstreamguard run: 'sh' was fine\r\x9b31m\x7f\u202e"


def is_plain(said):
    """Nothing in it but lines of printable letters, each of them ours."""
    lines = said.split("\n")
    assert lines.pop() == ""
    return all(line.isprintable() and line.startswith("streamguard run: ") for line in lines)


@pytest.mark.parametrize("options", [[], ["--verbose"]], ids=" ".join)
def test_a_tools_name_forges_nothing(ground, options):
    tool = {
        "type": "assistant",
        "session_id": SESSION,
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": EVIL}]},
    }
    # By a file: an `echo` may have a mind of its own about backslashes.
    (ground.folder / "lines").write_text("".join(json.dumps(line) + "\n" for line in (INIT, tool)))
    words = ["--tools", "0.5", *options, "--status-file", str(ground.status), "--"]
    done = ground.run(*words, *sh(f"cat lines; exec {ground.sleep}"))
    assert (done.code, ground.told()["limit"]) == (124, "tools")
    assert is_plain(done.err)
    assert len(ground.told()["in_flight"]) == 1


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--errors", "text"]], ids=" ".join)
def test_a_commands_name_forges_nothing(ground, options):
    evil = ground.folder / EVIL
    evil.write_text(f"#!/bin/sh\nexec {ground.sleep}\n")
    evil.chmod(0o755)
    done = ground.run("--total", "0.5", *options, "--", f"./{EVIL}")
    assert done.code == 124
    assert is_plain(done.err)
    assert done.err.count("was fine") == len(done.err.splitlines())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--idle", LONG, "--", EVIL], 127),
        ([f"--{EVIL}", "true"], 125),
        (["--idle", EVIL, "true"], 125),
        (["--signal", EVIL, "true"], 125),
        (["--idle", LONG, "--status-file", f"{EVIL}/status", "--", "true"], 0),
        (["--idle", LONG, "--record", f"/dev/null/{EVIL}", "--", "true"], 0),
    ],
    ids=["a command", "an option", "a duration", "a signal", "a status file", "a record"],
)
def test_what_cannot_be_used_is_named_in_printable_letters(ground, words, code):
    done = ground.run(*words)
    assert done.code in (code, 125)
    plain = [line for line in done.err.splitlines() if not line.startswith("Try '")]
    assert plain
    assert is_plain("".join(f"{line}\n" for line in plain))


def test_a_key_in_a_file_is_named_in_printable_letters(ground):
    ground.folder.chmod(0o755)  # else it is not believed
    (ground.folder / "streamguard.toml").write_text(
        '[run]\n"id\\u001b[2J\\nstreamguard run: all is well" = 3\n'
    )
    named = {**os.environ, "STREAMGUARD_CONFIG": str(ground.folder / "streamguard.toml")}
    done = ground.run("--", "true", env=named)
    assert done.code == 125
    assert is_plain("".join(f"{line}\n" for line in done.err.splitlines() if "Try '" not in line))


# -- 15: what cannot be started has ended, too -----------------------------------------------


@pytest.mark.parametrize(
    ("again", "code"), [("nosuch {session_id}", 127), ("/ {session_id}", 126)]
)
def test_an_attempt_that_cannot_be_started_is_told_of(ground, again, code):
    words = [*SILENCE, "--retries", "2", "--backoff", "0", "--resume-cmd", again]
    words += ["--status-file", str(ground.status), "--record", "evidence", "--"]
    done = ground.run(*words, *sh(f"{says(INIT, TEXT)}; exec {ground.sleep}"))
    assert done.code == code
    told = ground.told()
    assert (told["exit_code"], told["attempts"], told["session_id"]) == (code, 2, SESSION)
    receipts = [*Path(ground.folder, "evidence").rglob("*-timeout.json")]
    assert receipts
    assert all('"retry"' not in receipt.read_text() for receipt in receipts)
    assert ground.living() == set()


@pytest.mark.parametrize(("command", "code"), [("nosuch", 127), ("/", 126)])
def test_the_status_of_an_earlier_run_does_not_stay(ground, command, code):
    words = ["--idle", LONG, "--status-file", str(ground.status), "--"]
    assert ground.run(*words, "true").code == 0
    assert ground.told()["exit_code"] == 0
    assert ground.run(*words, command).code == code
    assert ground.told()["exit_code"] == code
    assert ground.told()["command"] == command


def test_a_session_id_of_200_kb_ends_nothing_untold(ground):
    lines = [{**line, "session_id": "x" * 200_000} for line in (INIT, TEXT)]
    (ground.folder / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [*SILENCE, "--retries", "1", "--backoff", "0", "--resume-cmd", "echo {session_id}"]
    words += ["--status-file", str(ground.status), "--"]
    done = ground.run(*words, *sh(f"cat lines; exec {ground.sleep}"))
    assert done.code == ground.told()["exit_code"] == 124
    assert "not tried again" in done.err
