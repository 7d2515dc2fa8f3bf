"""`streamguard run --lock`: one run at a time, however the one before has ended."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.process.backends import comes_true
from tests.runner.commands import ENDLESS, OURS, sh

LONG = "600"
READY = sh("echo ready; exec sleep 600")


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


@pytest.fixture
def first(commands, lock):
    """A run that has the lock, and whose command runs."""
    return begun(commands, lock, *READY)


def start(commands, lock, *command, env=None, grace="1"):
    words = ["--total", LONG, "--kill-after", grace, "--lock", str(lock), "--", *command]
    return commands.start(*OURS, "run", *words, env=env)


def begun(commands, lock, *command, **options):
    """A run whose command runs, and that has said who it is."""
    process = commands.ready(start(commands, lock, *command, **options))
    assert comes_true(lock.read_text)
    return process


def try_it(commands, lock, *command):
    return commands.wait(start(commands, lock, *(command or ("echo", "ran"))))


def kill_9(commands, lock, *command):
    """A run of that command, both halves of which are killed."""
    front = begun(commands, lock, *command)
    assert comes_true(lambda: keeper_of(front.pid))  # it says its name once the command runs
    keeper = keeper_of(front.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # neither sees to the other's end
        for pid in (keeper, front.pid):
            os.kill(pid, number)
    forget(front)
    return front.pid


def forget(process):
    """Wait for its end, and not for who else holds its pipes."""
    process.wait()
    process.stdout.close()
    process.stderr.close()


def keeper_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        children = map(int, file.read().split())
    return next((each for each in children if called(each) == "sguard-keeper"), None)


def called(pid):
    with open(f"/proc/{pid}/comm") as file:  # noqa: PTH123
        return file.read().strip()


def test_a_second_run_starts_nothing_and_says_who_has_it(commands, lock, first):
    began = time.monotonic()
    done = try_it(commands, lock, *sh("echo ran; exit 0"))
    assert (done.code, done.out) == (75, b"")
    (line,) = done.err.splitlines()
    assert line.startswith(f"streamguard run: --lock {lock}: process {first.pid} has it since 20")
    assert line.endswith("; not started")
    assert time.monotonic() - began < 10


def test_without_it_two_run_at_once(commands, lock, first):
    """A control."""
    done = commands.guarded("--total", LONG, "--", "echo", "ran")
    assert (done.code, done.out) == (0, b"ran\n")


@pytest.mark.parametrize(
    ("end", "code"), [(["true"], 0), (["false"], 1), (["no_such_command"], 127)]
)
def test_a_run_that_is_over_leaves_nothing(commands, lock, end, code):
    assert try_it(commands, lock, *end).code == code
    assert not lock.exists()
    assert try_it(commands, lock) == (0, b"ran\n", "")


def test_it_is_free_after_a_limit_and_between_attempts_it_is_not(commands, lock):
    script = f"{' '.join(OURS)} run --lock {lock} --total 600 -- true; echo $?"
    words = ["--first", "5", "--retries", "1", "--backoff", "0", "--lock", str(lock)]
    done = commands.guarded(*words, "--", *sh(f"{script} >&2; exec sleep 600"))
    assert done.code == 124
    assert [line for line in done.err.splitlines() if line.isdigit()] == ["75", "75"]
    assert try_it(commands, lock).code == 0


def test_a_killed_run_keeps_it_until_the_keeper_has_ended_the_tree(commands, lock):
    """`kill -9` of the run: its command takes the whole grace, and until then nothing else is started."""
    ours = commands.folder / "pid"
    deaf = sh(f"trap '' TERM; echo $$ >{ours}; echo ready; while :; do sleep 0.1; done")
    front = begun(commands, lock, *deaf, grace=LONG)
    front.kill()
    forget(front)
    done = try_it(commands, lock)
    assert done.code == 75
    assert f"what process {front.pid} started at 20" in done.err
    assert " is being ended; not started" in done.err
    os.kill(int(ours.read_text()), signal.SIGKILL)
    assert commands.all_gone()
    assert comes_true(lambda: try_it(commands, lock).code == 0)


def test_where_both_halves_were_killed_the_next_run_ends_what_is_left(commands, lock):
    ours = commands.folder / "pid"
    gone = kill_9(commands, lock, *sh(f"echo $$ >{ours}; echo ready; setsid sleep 600; sleep 600"))
    left = int(ours.read_text())
    os.kill(left, 0)  # a control: it lives
    done = try_it(commands, lock)
    assert (done.code, done.out) == (0, b"ran\n")
    assert f"process {gone} could not see to its end; its process {left}: " in done.err
    assert commands.all_gone()


def test_the_command_has_no_part_in_it(commands, lock):
    """What it leaves in the background keeps no lock."""
    done = try_it(commands, lock, *sh("sleep 600 >/dev/null 2>&1 & echo started"))
    assert done.code == 0
    assert try_it(commands, lock) == (0, b"ran\n", "")


def test_many_at_once_are_one(commands, lock):
    all_of_them = [start(commands, lock, *ENDLESS) for _ in range(6)]
    assert comes_true(lambda: sum(each.poll() is None for each in all_of_them) == 1)
    codes = [each.returncode for each in all_of_them if each.poll() is not None]
    assert codes == [75] * 5
    (one,) = (each for each in all_of_them if each.poll() is None)
    one.terminate()
    for each in all_of_them:
        each.communicate()


def test_a_file_with_something_in_it_is_not_taken_for_a_lock(commands, lock):
    lock.write_text("#!/bin/sh\n")
    done = try_it(commands, lock)
    assert done.code == 125
    assert "something else is in it: name a file for nothing but the lock" in done.err
    assert lock.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("where", ["no folder/lock", "."])
def test_where_no_lock_can_be_had_nothing_is_started(commands, tmp_path, where):
    done = try_it(commands, tmp_path / where)
    assert (done.code, done.out) == (125, b"")
    assert "no lock can be had there: " in done.err


def test_an_empty_file_is_one(commands, lock):
    lock.touch()
    assert try_it(commands, lock).code == 0


def test_unguarded_it_is_the_commands(commands, lock):
    """STREAMGUARD_MODE=off: what is switched off is the guard, and not the lock."""
    off = {**os.environ, "STREAMGUARD_MODE": "off"}
    process = commands.ready(start(commands, lock, *READY, env=off))
    done = try_it(commands, lock)
    assert done.code == 75
    assert f"process {process.pid} has it since 20" in done.err
    process.kill()
    process.communicate()
    assert try_it(commands, lock) == (0, b"ran\n", "")


def test_it_can_be_configured(commands, first, lock, tmp_path):
    (tmp_path / "streamguard.toml").write_text(f'[run]\nlock = "{lock}"\n')
    assert commands.guarded("--total", LONG, "echo", "ran", cwd=tmp_path).code == 75
