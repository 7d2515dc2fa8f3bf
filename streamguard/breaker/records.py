"""One circuit in its store: asked, changed, and reported to, whatever the store does (P3).

A store may fail, hang, or take its time. None of that reaches a stream:

*Reports* never raise. One that the store did not take is owed: it is made again, in order, before
the next thing that is asked of the store. Generations make that safe: a report that comes late
counts only if nothing has changed since.

*A store that blocks* is never called on an event loop. What is reported there goes to a thread
that is there while there is something to do, one thing after the other; what is read there is
what was known last. Nobody waits for that thread, but who asks for a permit (for `PATIENCE`), and
the end of the process (once more so long).

Knows circuits and stores, and nothing of permits, waiting and rules.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from streamguard import _loops as loops
from streamguard.breaker.circuit import Circuit
from streamguard.errors import ENDS_THE_PROGRAM
from streamguard.events.teller import logger

if TYPE_CHECKING:
    from streamguard.breaker.circuit_store import CircuitStore

T = TypeVar("T")

Operation: TypeAlias = Literal["ask", "report", "read"]
Change: TypeAlias = Callable[[Circuit, float], tuple[Circuit, T]]

# Seconds. How long who asks for a permit waits for a store, before it goes on without.
PATIENCE: Final = 5.0
# Reports that are owed to a store that fails; of more than that, the oldest are forgotten.
MOST_OWED: Final = 256


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """One update, as the store made it."""

    before: Circuit
    after: Circuit
    now: float
    answer: T


class Records:
    """The circuit of `key`. `failed` is told what the store failed at, and how."""

    def __init__(
        self, key: str, store: CircuitStore, failed: Callable[[Operation, BaseException], None]
    ) -> None:
        self.key = key
        self._store = store
        self._tell_of_failure = failed
        self._is_down = False
        self._known = Circuit()
        # The store's time of it, and ours.
        self._known_at: tuple[float, float] | None = None
        self._owed: deque[Callable[[], Callable[[], None]]] = deque(maxlen=MOST_OWED)
        self._settling = threading.RLock()
        self._is_settling = False
        self._worker = OneByOne()
        self._asked: deque[_Job[Any]] = deque()

    @property
    def blocks(self) -> bool:
        """Whether the store must not be called where the caller is."""
        return self._store.blocks and loops.current_or_none() is not None

    # -- what is known -----------------------------------------------------------------------

    @property
    def known(self) -> Circuit:
        """The circuit as it was when the store was last heard of. Asks nobody."""
        return self._known

    @property
    def now(self) -> float:
        """The store's time, as far as it is known. Asks nobody."""
        if self._known_at is None:
            return 0.0
        store_time, ours = self._known_at
        return store_time + time.monotonic() - ours

    def read(self) -> tuple[Circuit, float]:
        """The circuit and the time; what is known of them, where the store cannot be asked."""
        if not self.blocks:
            self.settle()
            try:
                step = self.update(lambda circuit, _now: (circuit, None))
            except ENDS_THE_PROGRAM:
                raise
            except BaseException as error:  # noqa: BLE001 - it is reported
                self.failed("read", error)
            else:
                return step.after, step.now
        return self._known, self.now

    # -- speaking to the store ---------------------------------------------------------------

    def update(self, change: Change[T]) -> Step[T]:
        """Apply `change`, here and now. Raises what the store raises."""

        def tracked(before: Circuit, now: float) -> tuple[Circuit, Step[T]]:
            after, answer = change(before, now)
            return after, Step(before, after, now, answer)

        step = self._store.update(self.key, tracked)
        self._worker.moved()
        # Of two threads, the one that comes last may bring what is older.
        if step.after.generation >= self._known.generation or step.now > self.now:
            self._known, self._known_at = step.after, (step.now, time.monotonic())
        if self._is_down:
            self._is_down = False
            logger.info("circuit %r: its store works again", self.key)
        return step

    def report(self, change: Change[T], then: Callable[[Step[T]], None]) -> None:
        """Apply `change` as soon as the store lets us, and call `then` with what came of it."""

        def made() -> Callable[[], None]:
            step = self.update(change)
            return lambda: then(step)

        self._owed.append(made)
        if self.blocks:
            self._worker.do(self.settle)
        else:
            self.settle()

    def settle(self) -> None:
        """Make what reports are owed, as far as the store lets us. Does not raise."""
        while self._owed and (then := self._settle_one()) is not None:
            then()  # with no lock held: what is told of may report, too

    def _settle_one(self) -> Callable[[], None] | None:
        with self._settling:
            if self._is_settling or not self._owed:  # in a store that calls us back, or another
                return None
            self._is_settling = True
            try:
                then = self._owed[0]()
            except ENDS_THE_PROGRAM:
                raise
            except BaseException as error:  # noqa: BLE001 - it is reported
                self.failed("report", error)
                return None
            finally:
                self._is_settling = False
            self._owed.popleft()
            return then

    def failed(self, operation: Operation, error: BaseException) -> None:
        """The store did; said in the log once for each outage."""
        if not self._is_down:
            self._is_down = True
            logger.warning(
                "circuit %r: its store fails (%s); attempts are let through without it, and what "
                "they report is kept until it works again",
                self.key,
                type(error).__name__,
            )
        self._tell_of_failure(operation, error)

    # -- asking from a coroutine -------------------------------------------------------------

    async def ask(
        self,
        question: Callable[[], T],
        *,
        share: Callable[[T], T | None],
        forget: Callable[[T], None],
    ) -> T | None:
        """What `question` answers, asked where it may block; None if the store hangs.

        `share` makes an answer for the next who waits from that of the one before, where one
        question is enough for both. `forget` is given an answer that nobody waits for any more.
        """
        if not self._store.blocks:
            return question()
        from anyio import to_thread

        job = _Job(question, share, forget)
        if not self._worker.is_stuck:
            self._asked.append(job)
            self._worker.do(self._answer_all)
            try:
                await to_thread.run_sync(self._wait_for, job, abandon_on_cancel=True)
            except BaseException:
                job.abandon()
                raise
        if (answer := job.take()) is None:
            self.failed("ask", TimeoutError(f"no answer within {PATIENCE:g} s"))
        return answer

    def _wait_for(self, job: _Job[Any]) -> None:
        # Real seconds: a clock of tests does not pass while a thread works. A queue is no hang.
        while not job.over.wait(self._worker.patience_left) and not self._worker.is_stuck:
            pass

    def _answer_all(self) -> None:
        """Answer all who ask by now, with as few questions as that takes."""
        answer: Any = None
        for _ in range(len(self._asked)):
            answer = self._asked.popleft().answer(answer)

    def flush(self, within: float) -> bool:
        """Wait until what was reported is written; False if that takes longer."""
        if not self._store.blocks:
            self.settle()
            return not self._owed
        return self._worker.wait(within) and not self._owed


class _Job(Generic[T]):
    """A question to be asked by another thread, whose answer may come too late."""

    def __init__(
        self,
        question: Callable[[], T],
        share: Callable[[T], T | None],
        forget: Callable[[T], None],
    ) -> None:
        self._question = question
        self._share = share
        self._forget = forget
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._answer: T | None = None
        self.over = threading.Event()

    def answer(self, before: T | None) -> T | None:
        """Answer it, with the help of the answer before; the answer there is now."""
        if self._is_abandoned:
            return before
        shared = self._share(before) if before is not None else None
        answer = shared if shared is not None else self._question()
        with self._lock:
            is_wanted = not self._is_abandoned
            if is_wanted:
                self._answer = answer
        self.over.set()
        if not is_wanted:
            self._forget(answer)
        return answer

    def take(self) -> T | None:
        """The answer, if there is one by now; later it is not wanted any more."""
        with self._lock:
            self._is_abandoned = True
            answer, self._answer = self._answer, None
        return answer

    def abandon(self) -> None:
        """Whoever asked is gone."""
        self.over.set()
        if (answer := self.take()) is not None:
            self._forget(answer)


class OneByOne:
    """Does one thing after the other, in a thread that is there while there is something to do."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], Any]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._begun = 0.0

    @property
    def is_stuck(self) -> bool:
        """Whether what it does now takes longer than anybody would wait."""
        return self._thread is not None and self.patience_left == 0

    @property
    def patience_left(self) -> float:
        """Seconds until what it does now takes too long."""
        return max(0.0, self._begun + PATIENCE - time.monotonic())

    def moved(self) -> None:
        """What is done now goes on: it is slow, perhaps, and does not hang."""
        self._begun = time.monotonic()

    def do(self, job: Callable[[], Any]) -> None:
        """Have `job` done, after all that was to be done before."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._begun = time.monotonic()
                self._thread = threading.Thread(
                    target=self._work, name="streamguard circuit store", daemon=True
                )
                _working.add(self)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._begun = time.monotonic()
                if not self._jobs:
                    self._thread = None
                    _working.discard(self)
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:  # noqa: BLE001 - the thread has to go on for the others
                logger.exception("a circuit's report raised")

    def wait(self, within: float) -> bool:
        """Wait until nothing is left to be done; False if that takes longer."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(within)
        return not thread.is_alive()


_working: set[OneByOne] = set()


@atexit.register
def _let_them_end() -> None:
    """What was reported at the end of a program is written, unless a store hangs."""
    until = time.monotonic() + PATIENCE
    for worker in list(_working):
        worker.wait(max(0.0, until - time.monotonic()))
