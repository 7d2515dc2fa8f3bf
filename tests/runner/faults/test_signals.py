"""Signals that are ignored, that come in storms, or at odd times."""

from __future__ import annotations

import os
import select
import signal
import socket
from pathlib import Path

import pytest

from streamguard.runner.outbox import Outbox
from tests.process.backends import PATIENCE, comes_true, is_stopped
from tests.runner import traces
from tests.runner.commands import OURS, RESULT, await_words, fill, says, sh

LONG = "600"
HARMLESS = [
    getattr(signal, f"SIG{name}")
    for name in ("USR1", "USR2", "ALRM", "VTALRM", "PROF", "POLL", "PWR", "XCPU", "STKFLT")
]
DEAF = f"trap '' {' '.join(str(int(number)) for number in HARMLESS)}"


# -- a signal that is ignored --------------------------------------------------------------


@pytest.mark.parametrize("name", ["INT", "HUP", "TERM"])
@pytest.mark.parametrize("form", ["run", "timeout"])
def test_a_signal_that_is_ignored_switches_no_limit_off(ground, form, name):
    """Where KILL is off, as it is for `timeout` unless it is asked for."""
    words = (
        ["run", "--total", "2", "--kill-after", "0", "--"] if form == "run" else ["timeout", "2"]
    )
    # The limit's own signal is TERM, too: the second one ends it.
    script = "trap 'trap - TERM' TERM" if name == "TERM" else f"trap '' {name}"
    script += "; touch ready; while :; do sleep 0.05; done"
    process = ground.commands.start(*OURS, *words, *sh(script), cwd=ground.folder)
    assert comes_true((ground.folder / "ready").exists)
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert process.wait(PATIENCE) == 124


def test_where_nobody_is_left_to_kill_it_is_said_without_a_grace(ground):
    """The signal was passed on, KILL is off, and every keeper is killed."""
    words = ["--total", LONG, "--kill-after", "0", "--status-file", str(ground.status), "--"]
    script = f"trap 'touch asked' TERM; touch ready; while :; do {ground.sleep} & wait $!; done"
    process = ground.start(*words, *sh(script))
    assert comes_true((ground.folder / "ready").exists)
    process.terminate()
    assert comes_true((ground.folder / "asked").exists)
    while process.poll() is None:
        for pid in traces.keepers(process.pid):
            os.kill(pid, signal.SIGKILL)
    done = ground.wait(process)
    assert "Traceback" not in done.err
    assert ground.told()["unproven"] is True
    assert done.code == ground.told()["exit_code"] == 137


def test_what_is_left_behind_and_needs_kill_changes_no_status(ground):
    script = f"(trap '' TERM; exec {ground.sleep}) >/dev/null & exit 3"
    done = ground.run("--reap", "--kill-after", "0.2", "--total", LONG, "--", *sh(script))
    assert done.code == 3
    assert ground.all_gone()


# -- storms --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["a signal", "by itself"])
def test_a_storm_takes_nothing_that_matters(ground, end):
    """The keeper stands still meanwhile, so that all that is told waits in its pipe."""
    words = ["--total", LONG, "--kill-after", LONG, "--status-file", str(ground.status), "--"]
    script = f"{DEAF}; touch ready; while [ ! -e end ]; do sleep 0.02; done; exit 7"
    process = ground.start(*words, *sh(script))
    assert comes_true((ground.folder / "ready").exists)
    assert comes_true(lambda: traces.keepers(process.pid))
    (keeper,) = traces.keepers(process.pid)
    for _ in range(3000):
        os.kill(keeper, signal.SIGSTOP)
        for number in HARMLESS:
            process.send_signal(number)
    if end == "a signal":
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
    else:
        (ground.folder / "end").touch()
        assert process.wait(PATIENCE) == 7
    assert "KILL" not in ground.told()["signals_sent"]


def full_pipe():
    """An outbox to a pipe that is full, what reads from it, and the poll that knows it."""
    reading, writing = os.pipe()
    fill(writing)
    outbox = Outbox(writing)
    poll = select.poll()
    outbox.attach(poll)
    return outbox, reading, poll


def test_what_a_full_pipe_does_not_take_waits_each_line_once():
    outbox, reading, poll = full_pipe()
    for line in ["ask 15 5", "pass 10", "pass 10", "ask 15 5", "bye"]:
        outbox.put(line)
    assert poll.poll(0) == []
    os.set_blocking(reading, False)
    while set(os.read(reading, 4096)) == {0} and not poll.poll(0):
        pass
    assert poll.poll(0)
    outbox.flush()
    assert poll.poll(0) == []
    came = b""
    while not came.endswith(b"bye\n"):
        came += os.read(reading, 1 << 16).lstrip(b"\0")
    assert came == b"ask 15 5\npass 10\nbye\n"
    outbox.close()
    os.close(reading)


def test_who_is_gone_is_told_nothing_more():
    outbox, reading, poll = full_pipe()
    outbox.put("ask 15 5")
    os.close(reading)
    outbox.flush()
    outbox.put("bye")
    assert poll.poll(0) == []
    outbox.close()


# -- odd times -----------------------------------------------------------------------------


def test_ctrl_z_stops_us_between_two_attempts(ground):
    words = ["--first", "0.2", "--retries", "1", "--backoff", "600", "--", "sleep", LONG]
    process = ground.start(*words, start_new_session=False, process_group=0)
    await_words(process, b"trying again")
    process.send_signal(signal.SIGTSTP)
    assert comes_true(lambda: is_stopped(process.pid))
    process.send_signal(signal.SIGCONT)
    assert comes_true(lambda: not is_stopped(process.pid))
    process.terminate()
    assert process.wait(PATIENCE) in (-signal.SIGTERM, 143)


# -- the last word -------------------------------------------------------------------------


def test_a_result_that_a_full_disk_has_not_taken_is_no_success(ground):
    words = ["--idle", LONG, "--exit-grace", "0.3", "--status-file", str(ground.status), "--"]
    with Path("/dev/full").open("wb") as full:
        done = ground.run(*words, *sh(f"{says(RESULT)}; exec sleep 600"), stdout=full)
    assert done.code == ground.told()["exit_code"] == 125
    assert ground.told()["bytes_lost"] > 0


@pytest.mark.parametrize("name", ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"])
def test_a_status_goes_to_a_socket_as_well(ground, name):
    """What standard error is below systemd, for one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = ["--total", LONG, "--status-file", name, "--"]
        process = ground.start(*words, *sh("exit 3"), stderr=theirs)
        theirs.close()
        assert process.wait(PATIENCE) == 3
        said = b""
        while chunk := ours.recv(1 << 16):
            said += chunk
    assert b'"exit_code": 3' in said
    assert b"nobody reads it" not in said
