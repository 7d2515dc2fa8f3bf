"""The thread that writes: in order, in slices, and gone when there is nothing to do."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from streamguard.evidence import worker
from streamguard.evidence.worker import Worker
from tests.growth import calls_of


class Chore:
    def __init__(self, done, name, then=None):
        self.done, self.name, self.then = done, name, then

    def do(self):
        self.done.append(self.name)
        if self.then is not None:
            self.then()


@pytest.fixture
def subject():
    return Worker("subject")


def test_what_is_due_is_done_before_a_job_that_came_after_it(subject):
    done = []
    subject.soon(Chore(done, "a"))
    subject.now(lambda: done.append("job"))
    subject.soon(Chore(done, "b"))
    assert subject.flush(60)
    assert done[:2] == ["a", "b"] or done[:2] == ["a", "job"]
    assert sorted(done) == ["a", "b", "job"]


def test_jobs_are_done_in_their_order_all_in_one_thread(subject):
    done = []
    for number in range(1000):
        subject.now(lambda number=number: done.append((number, threading.get_ident())))
    assert subject.flush(60)
    assert [number for number, _ in done] == list(range(1000))
    assert len({thread for _, thread in done} - {threading.get_ident()}) == 1


def test_the_clock_is_asked_once_for_all_that_is_due_later(subject):
    """With as many streams as that it would be asked a million times a minute."""
    subject.after(Chore([], 0), 10)
    one = calls_of(subject._rest)
    for number in range(1000):
        subject.after(Chore([], number), 5)
    assert calls_of(subject._rest) == one
    assert 0 < subject._rest() <= 5


def test_a_flush_sees_to_what_was_put_off(subject):
    done = []
    chore = Chore(done, "later")
    subject.soon(Chore(done, "now", lambda: (subject.later(chore), subject.after(chore, 1000))))
    assert subject.flush(60)
    assert done == ["now", "later", "later"]


def test_what_raises_is_logged_and_the_rest_is_done(subject, caplog):
    done = []
    subject.now(lambda: 1 / 0)
    subject.soon(Chore(done, "a", lambda: 1 / 0))
    subject.now(lambda: done.append("b"))
    assert subject.flush(60)
    assert done == ["a", "b"]
    assert caplog.text.count("ZeroDivisionError") == 2


def test_a_flush_gives_up_on_work_that_hangs(subject):
    stop = threading.Event()
    subject.now(lambda: stop.wait(60))
    assert not subject.flush(0.05)
    stop.set()
    assert subject.flush(60)


def test_it_cannot_wait_for_itself(subject):
    said = []
    subject.now(lambda: said.append(subject.flush(60)))
    assert subject.flush(60)
    assert said == [False]


def test_the_thread_ends_when_it_has_nothing_to_do_and_begins_again(subject, monkeypatch):
    monkeypatch.setattr(worker, "_IDLE", 0.01)
    done = []
    for number in range(3):
        subject.now(lambda number=number: done.append(number))
        assert subject.flush(60)
        thread = next((t for t in threading.enumerate() if t.name == "subject"), None)
        if thread is not None:
            thread.join(60)
            assert not thread.is_alive()
    assert done == [0, 1, 2]


def test_where_no_thread_can_begin_a_flush_does_it_itself(subject, monkeypatch):
    """As at the end of a program, since Python 3.12."""

    def start(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    done = []
    subject.soon(Chore(done, "a"))
    subject.now(lambda: done.append(threading.get_ident()))
    assert subject.flush(60)
    assert done == ["a", threading.get_ident()]


FORKS = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # that is what this is about
from streamguard.evidence.worker import Worker
from tests.growth import calls_of
worker, said = Worker("subject"), []
worker.now(lambda: said.append(os.getpid()))
assert worker.flush(60)
worker._jobs.append(lambda: said.append("the parent's"))
if pid := os.fork():
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
worker.now(lambda: said.append(os.getpid()))
assert worker.flush(60), "the child has no thread"
sys.exit(7 if said == [os.getppid(), os.getpid()] else 8)
"""


def test_a_forked_child_has_a_thread_of_its_own_and_nothing_of_its_parents():
    done = subprocess.run([sys.executable, "-c", FORKS], timeout=120, check=False)
    assert done.returncode == 7


def test_the_program_ends_though_a_disk_hangs():
    """What is due at exit has a budget: here it is next to none."""
    program = (
        "import time; from streamguard.evidence import worker; worker._AT_EXIT = 0.05\n"
        "worker.Worker('subject').now(lambda: time.sleep(1000)); print('done', flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=120, check=True
    )
    assert done.stdout.split() == [b"done"]
