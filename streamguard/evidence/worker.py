"""`Worker`: one thread that does what may not be done on an event loop.

Why a thread of our own? A write can take seconds (a full page cache, a network's file system), and a
pool of the loop's is there for as long as the loop is, which at a verdict may be milliseconds. One
thread for all recorders of the process keeps what competes for the interpreter to one, and it works in
slices: every fifth of a millisecond it sleeps for a moment (`breathe`), so that a loop that wants to run
need not wait for the interpreter's own switch, which comes after 5 ms.

It is a daemon, so that a disk that hangs never keeps a program from ending; what is due then is seen
to at exit, within a budget. It collects for a while before it works, unless it is hurried, and ends
when it has had nothing to do for some seconds. Knows nothing of evidence.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

logger: Final = logging.getLogger("streamguard")

# How long what is due may wait for more of its kind.
COLLECTING: Final = 0.05
# How often what only ever grows is seen to.
PERIOD: Final = 0.5
_IDLE: Final = 5.0
_SLICE: Final = 0.0002
_PAUSE: Final = 0.00005
_AT_EXIT: Final = 5.0


class Chore(Protocol):
    """Something that is due now and then."""

    def do(self) -> None:
        """Do what there is to do, on the worker's thread."""
        ...


class Worker:
    """Jobs in the order in which they came; chores when they are due; all in one thread."""

    def __init__(self, name: str, rank: int = 0) -> None:
        self._name = name
        self.rank = rank  # at exit the lower ones go first, as they give work to the others
        self._begin()
        _workers.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._is_awake = False
        self._due: deque[Chore] = deque()
        self._jobs: deque[Callable[[], object]] = deque()
        self._later: dict[Chore, None] = {}
        self._looked_later = 0.0
        self._timed: dict[Chore, float] = {}
        self._slice_end = 0.0

    # -- from any thread -------------------------------------------------------------------

    def soon(self, chore: Chore) -> None:
        """Do `chore` with the next lot. Cheap; say it once until it is done."""
        self._due.append(chore)
        if not self._is_awake:
            self._rouse()

    def now(self, job: Callable[[], object]) -> None:
        """Do `job`, after every chore that is due by then, without collecting first."""
        self._jobs.append(job)
        self._hurry.set()
        if not self._is_awake:
            self._rouse()

    def flush(self, timeout: float) -> bool:
        """Wait until all that came before is done; False if that took too long."""
        done = threading.Event()
        if threading.current_thread() is self._thread:
            return False  # it cannot wait for itself
        self.now(self._see_to_all)
        self.now(done.set)
        if done.wait(timeout if self._is_alive else 0.0):
            return True
        if not self._is_alive:  # no thread can be begun any more: the program is ending
            with self._lock:
                self._cycle()
        return done.is_set()

    # -- on the worker's thread ------------------------------------------------------------

    def later(self, chore: Chore) -> None:
        """Do `chore` within `PERIOD`, and before any `flush` returns."""
        self._later[chore] = None

    def after(self, chore: Chore, seconds: float) -> None:
        """Do `chore` in so many seconds; or sooner, if it is said to be due or `flush` is called."""
        self._timed[chore] = time.monotonic() + seconds

    def breathe(self) -> None:
        """Let others run, if this has run for long."""
        # Not `sleep(0)`: it takes the interpreter again before anybody has woken up.
        if time.monotonic() >= self._slice_end:
            if threading.current_thread() is self._thread:
                time.sleep(_PAUSE)
            self._slice_end = time.monotonic() + _SLICE

    @property
    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _rouse(self) -> None:
        with self._lock:
            if not self._is_alive:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._is_awake = True
                with suppress(RuntimeError):  # the program is ending: see `flush`
                    self._thread.start()
            self._wake.set()

    def _run(self) -> None:
        while self._wait():
            self._is_awake = True
            self._hurry.wait(COLLECTING)
            self._hurry.clear()
            self._cycle()

    def _wait(self) -> bool:
        """Wait until there is something to do; False when there was nothing for long."""
        self._wake.clear()
        self._is_awake = False
        if self._due or self._jobs:
            return True
        if self._wake.wait(self._rest()) or self._later or self._timed:
            return True
        with self._lock:
            if self._due or self._jobs or self._wake.is_set():
                return True
            self._thread = None
            return False

    def _rest(self) -> float:
        rest = PERIOD if self._later else _IDLE
        due = min(self._timed.values(), default=math.inf)
        return max(0.0, min(rest, due - time.monotonic()))

    def _cycle(self) -> None:
        jobs = len(self._jobs)
        for _ in range(len(self._due)):
            self._do(self._due.popleft().do)
            self.breathe()
        now = time.monotonic()
        for chore in [each for each, when in self._timed.items() if when <= now]:
            del self._timed[chore]
            self._do(chore.do)
        if now - self._looked_later >= PERIOD:
            self._see_to_later()
        for _ in range(jobs):
            self._do(self._jobs.popleft())
            self.breathe()

    def _see_to_all(self) -> None:
        timed, self._timed = self._timed, {}
        for chore in timed:
            self._do(chore.do)
        self._see_to_later()

    def _see_to_later(self) -> None:
        self._looked_later = time.monotonic()
        chores, self._later = self._later, {}
        for chore in chores:
            self._do(chore.do)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            # What may fail is caught, and told, where it is known what it was.
            logger.exception("%s: %r raised", self._name, work)


class AtOnce:
    """The same without a thread, for who has nothing else to do and calls `see_to` now and then."""

    def __init__(self) -> None:
        self._due: deque[Chore] = deque()
        self._later: dict[Chore, None] = {}
        self._looked_later = 0.0

    @property
    def rest(self) -> float | None:
        """How long `see_to` may be put off; None if there is nothing to do."""
        if self._due:
            return COLLECTING
        return PERIOD if self._later else None

    def soon(self, chore: Chore) -> None:
        self._due.append(chore)

    def now(self, job: Callable[[], object]) -> None:
        self._do_due()
        job()

    def later(self, chore: Chore) -> None:
        self._later[chore] = None

    def after(self, chore: Chore, seconds: float) -> None:
        del seconds  # it is said again before that if it matters
        self._later[chore] = None

    def breathe(self) -> None:
        pass

    def see_to(self, *, all_of_it: bool = False) -> None:
        """Do what is due; with `all_of_it`, what may be put off, too."""
        self._do_due()
        now = time.monotonic()
        if all_of_it or now - self._looked_later >= PERIOD:
            self._looked_later = now
            chores, self._later = self._later, {}
            for chore in chores:
                chore.do()

    def _do_due(self) -> None:
        while self._due:
            self._due.popleft().do()


# Who does chores and jobs.
Executor: TypeAlias = Worker | AtOnce

_workers: Final[WeakSet[Worker]] = WeakSet()


@atexit.register
def _finish() -> None:
    """What is due when the program ends is done, unless that takes too long."""
    deadline = time.monotonic() + _AT_EXIT
    for worker in sorted(_workers, key=lambda worker: worker.rank):
        if worker._is_awake or worker._due or worker._jobs or worker._later or worker._timed:
            worker.flush(max(0.0, deadline - time.monotonic()))


def _forget() -> None:
    """In a forked child there is no thread, and what was due is the parent's."""
    for worker in list(_workers):
        worker._begin()


os.register_at_fork(after_in_child=_forget)
