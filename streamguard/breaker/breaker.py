"""The circuit breaker: who may try a backend now, told from how the last attempts went (P3).

One breaker for each backend *key* (a provider and an account), shared by all its streams:

    breaker = CircuitBreaker("anthropic/team-7", on_open="wait")

    with await breaker.acquire() as permit:     # or try_acquire(), from any thread
        async for message in stream:
            permit.progressed()

The rules are `circuit.Rules`, which see. Here is what they need of the world: records of the
circuit (`records.Records`), a lock around what is decided once, observers, and waiting. Every method
but `acquire` is synchronous and may be called from any task, loop or thread.

Imports errors, events, circuit, records and retry; anyio and loops where somebody waits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from streamguard._base.callbacks import several
from streamguard._base.calling import checked_class, refusing
from streamguard._base.durations import in_words
from streamguard._base.near import near
from streamguard._base.numbers import Seconds, seconds, wait
from streamguard._base.quoting import quoted
from streamguard.breaker.circuit import (
    Admitted,
    Circuit,
    Outcome,
    Refused,
    Rules,
    Snapshot,
    Status,
    checked,
)
from streamguard.breaker.circuit_events import (
    CircuitChanged,
    CircuitEvent,
    CircuitObserver,
    CircuitRefused,
    CircuitReported,
    CircuitStoreFailed,
    CircuitThrottled,
)
from streamguard.breaker.circuit_store import CircuitStore, MemoryStore
from streamguard.breaker.records import PATIENCE, Change, Operation, Records, Step
from streamguard.errors import (
    ENDS_THE_PROGRAM,
    CircuitEscalatedError,
    CircuitOpenError,
    ConfigError,
)
from streamguard.events.teller import logger, tell
from streamguard.retry import ErrorClass, classify, retry_after

if TYPE_CHECKING:
    from typing import Self

    from streamguard._loops import Loop

T = TypeVar("T")
OnOpen: TypeAlias = Literal["raise", "wait"]

# Seconds. A wait that rounding has made too short to move a clock would be made again for ever.
SHORTEST_WAIT: Final = 0.001
# Seconds. How often who waits looks again at a store that other machines change, too.
LOOK_AGAIN: Final = 5.0
# That of no circuit: what is reported in it changes nothing.
NO_GENERATION: Final = -1


# --- permits ------------------------------------------------------------------------------


class Permit:
    """Leave to make one attempt, which reports once how it ended.

    As a context manager it reports by how the block is left. An end without an error is a
    success, an error counts as its class does, and a cancellation says nothing about the backend.
    Reports after the first outcome are ignored. A report never raises an error of the store: it is
    made when the store works again.
    """

    def __init__(self, breaker: CircuitBreaker, holder: str, admitted: Admitted) -> None:
        self._breaker = breaker
        self._holder = holder
        # Entered again by an observer that reports on the permit it is told of.
        self._lock = threading.RLock()
        self._generation = admitted.generation
        self._reported = False
        self._progress_counts = admitted.is_probe
        self.is_probe = admitted.is_probe

    def __repr__(self) -> str:
        kind = "probe" if self.is_probe else "attempt"
        state = "reported" if self._reported else "under way"
        return (
            f"<Permit for {kind} of {self._breaker.key!r}, generation {self._generation}, {state}>"
        )

    @property
    def generation(self) -> int:
        """Where the outcome counts. Grows as the circuit's does, so it fences."""
        return self._generation

    def progressed(self) -> None:
        """The backend did something new. May be called for each message; the first one counts."""
        if self._progress_counts:
            self._progress()

    def succeeded(self) -> None:
        """A turn was completed."""
        self._end(Outcome.SUCCESS)

    def failed(
        self,
        error_class: ErrorClass = ErrorClass.UNKNOWN,
        *,
        retry_after: Seconds | None = None,
    ) -> None:
        """The attempt failed. The error's class decides what that means for the circuit.

        A rate limit is no failure, but stops all attempts for `retry_after` seconds. Refused
        credentials need a person at once. A bad request says nothing about the backend.
        """
        throttle = retry_after if error_class is ErrorClass.RATE_LIMIT else None
        self._end(_OUTCOMES.get(error_class, Outcome.FAILURE), throttle or 0.0)

    def released(self) -> None:
        """The attempt says nothing about the backend: it was cancelled, or never made."""
        self._end(Outcome.NEUTRAL)

    def ended(self, error: BaseException | None) -> None:
        """The attempt is over, with this error or, with None, with a completed turn."""
        if error is None:
            self.succeeded()
        else:
            self.failed(classify(error), retry_after=retry_after(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object, /) -> None:
        self.ended(error)

    def _progress(self) -> None:
        with self._lock:
            if self._progress_counts and not self._reported:
                self._progress_counts = False
                self._breaker._progressed(self)

    def _end(self, outcome: Outcome, throttle: Seconds = 0.0) -> None:
        throttle = wait(throttle, "retry_after")
        with self._lock:
            if self._reported:
                return
            self._reported = True
            self._breaker._ended(self, outcome, throttle)


_OUTCOMES = {
    ErrorClass.NEVER: Outcome.NEUTRAL,
    ErrorClass.VALIDATION: Outcome.NEUTRAL,
    ErrorClass.RATE_LIMIT: Outcome.NEUTRAL,
    ErrorClass.AUTH: Outcome.ESCALATE,
    ErrorClass.PERMANENT: Outcome.ESCALATE,
}


# --- the breaker --------------------------------------------------------------------------


@checked_class
class CircuitBreaker:
    """Allow attempts while the backend works, and spare it while it does not.

    `key`: which circuit it is, such as the name of an account. `open_after` failures in a row open it for `pause` seconds, then one probe at a time (`probes`)
    may try; `reset_after` success closes it. A probe that fails opens it again, for
    `pause_growth` times as long as before, at most for `longest_pause`. Opened `escalate_after`
    times in a row it is shut until `reset()` (None = never). A probe that does not report holds
    its place for `probe_lease` seconds: as long as a first message may take, and at least as long
    as `pause`.

    `on_open`: what `acquire` does while no attempt is allowed. "wait" waits, "raise" raises a
    `CircuitOpenError`. If you do not write it, a session waits, and a caller of `acquire` gets the
    error. A session that retries waits in any case. `store` keeps
    the circuit, by default in this object, on `clock` (in virtual time give the loop's,
    `clock=anyio.current_time`). `observer`, one or several as a list, is told each `CircuitEvent`.
    """

    def __init__(
        self,
        key: str = "",
        *,
        open_after: int = 3,
        pause: Seconds = 30.0,
        escalate_after: int | None = 5,
        reset_after: int = 1,
        probes: int = 1,
        probe_lease: Seconds = 300.0,
        pause_growth: float = 2.0,
        longest_pause: Seconds = 300.0,
        on_open: OnOpen | None = None,
        clock: Callable[[], float] | None = None,
        store: CircuitStore | None = None,
        observer: CircuitObserver | Iterable[CircuitObserver] | None = None,
    ) -> None:
        if not isinstance(cast("object", key), str):
            raise ConfigError(
                f"CircuitBreaker({key!r}): the key is a text, such as CircuitBreaker('anthropic/team-7'); "
                "numbers have names, such as open_after=3"
            )
        if on_open is not None and on_open not in get_args(OnOpen):
            hint = near(on_open, get_args(OnOpen), "use 'raise' or 'wait'")
            raise ConfigError(f"on_open={on_open!r}: {hint}")
        if store is not None and clock is not None:
            raise ConfigError("clock= belongs to the store: give it there, or leave store= out")
        self.key = key
        self.on_open: OnOpen | None = on_open
        self._rules = Rules(
            open_after=open_after,
            pause=seconds(pause, "pause"),
            escalate_after=escalate_after,
            reset_after=reset_after,
            probes=probes,
            probe_lease=seconds(probe_lease, "probe_lease"),
            pause_growth=pause_growth,
            longest_pause=seconds(longest_pause, "longest_pause"),
        )
        self._store: CircuitStore = store or MemoryStore(clock or time.monotonic)
        self._records = Records(key, self._store, self._store_failed)
        self._observers = several("observer", observer, "event")

    def __repr__(self) -> str:
        circuit = self._records.known
        return f"<CircuitBreaker {self.key!r} {circuit.status}, {circuit.failures} failures>"

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __enter__ = __exit__ = __aenter__ = __aexit__ = refusing(
            "a permit is entered, not the breaker: with await breaker.acquire() as permit"
        )

    # -- permits ---------------------------------------------------------------------------

    def try_acquire(self) -> Permit:
        """A permit, or a `CircuitOpenError` that says when to ask again.

        It calls the store in your own thread: on an event loop, prefer `acquire`.
        """
        return self._granted(self._ask())

    async def acquire(
        self, *, within: Seconds = math.inf, on_open: OnOpen | None = None
    ) -> Permit:
        """A permit; with `on_open="wait"`, as soon as there is one.

        Raises a `CircuitOpenError` when `try_acquire` does, or when waiting would not help. That is
        when only `reset()` would help, or when the wait would not end `within` so many seconds or
        before the deadline of a scope around it. `on_open` replaces the breaker's own, for this call.

        A store that fails, or that does not answer within 5 s, stops no attempt: the permit then
        does not count.
        """
        import anyio
        from anyio import lowlevel

        longest = wait(within, "within", infinite=True)
        await lowlevel.checkpoint()
        if (on_open or self.on_open) != "wait":
            return self._granted(await self._ask_from_coroutine())
        until = min(anyio.current_time() + longest, anyio.current_effective_deadline())
        return await self._wait_for_permit(until)

    async def _wait_for_permit(self, until: float) -> Permit:
        import anyio

        from streamguard import _loops as loops

        loop = loops.current()
        while True:
            changed = anyio.Event()
            # Listening before asking: no change may fall between the answer and the wait.
            hear = partial(_submit, loop, changed.set)
            unlisten = self._unharmed(partial(self._store.listen, self.key, hear))
            try:
                answer = await self._ask_from_coroutine()
                left = until - anyio.current_time()
                if answer.permit is not None or answer.at_least >= left or left <= 0:
                    return self._granted(answer)
                nap = min(answer.wait, left)
                nap = min(nap, LOOK_AGAIN) if self._store.blocks else nap
                with anyio.move_on_after(max(nap, SHORTEST_WAIT)):
                    await changed.wait()
            finally:
                if unlisten is not None:
                    self._unharmed(unlisten)

    def _unharmed(self, function: Callable[[], T]) -> T | None:
        """Call it; None if it raises, which is reported."""
        try:
            return function()
        except ENDS_THE_PROGRAM:
            raise
        except BaseException as error:  # noqa: BLE001 - it is reported
            self._records.failed("ask", error)
            return None

    async def _ask_from_coroutine(self) -> _Answer:
        answer = await self._records.ask(
            self._ask, share=self._also_for_the_next, forget=_Answer.give_back
        )
        return answer or self._let_through()

    def _also_for_the_next(self, answer: _Answer) -> _Answer | None:
        """What the store would say to who asked in the same instant; None where a probe began."""
        if (permit := answer.permit) is None:
            return answer
        if permit.is_probe:
            return None
        admitted = Admitted(permit.generation, is_probe=False)
        return replace(answer, permit=Permit(self, uuid.uuid4().hex, admitted))

    def _ask(self) -> _Answer:
        holder = uuid.uuid4().hex

        def change(circuit: Circuit, now: float) -> tuple[Circuit, Admitted | Refused]:
            return self._rules.admit(circuit, now, holder)

        self._records.settle()
        step = self._unharmed(lambda: self._records.update(change))
        if step is None:
            return self._let_through()
        answer = step.answer
        if isinstance(answer, Refused):
            return _Answer(None, answer.retry_after, answer.at_least, step.after, step.now)
        permit = Permit(self, holder, answer)
        try:
            self._tell_of_change(step)
        except BaseException:  # an observer that ends the program
            permit.released()
            raise
        return _Answer(permit, 0.0, 0.0, step.after, step.now)

    def _let_through(self) -> _Answer:
        """The store is no reason not to try. Its circuit does not know of this attempt."""
        permit = Permit(self, uuid.uuid4().hex, Admitted(NO_GENERATION, is_probe=False))
        return _Answer(permit, 0.0, 0.0, self._records.known, self._records.now)

    def _granted(self, answer: _Answer) -> Permit:
        if answer.permit is not None:
            return answer.permit
        status, wait = answer.circuit.status, answer.wait
        self._tell(CircuitRefused(key=self.key, at=answer.at, status=status, retry_after=wait))
        kind = CircuitEscalatedError if status == "escalated" else CircuitOpenError
        raise kind(_why(self.key, answer.circuit, wait), key=self.key, retry_after=wait)

    def _progressed(self, permit: Permit) -> None:
        def change(circuit: Circuit, _now: float) -> tuple[Circuit, int]:
            return self._rules.progressed(circuit, permit.generation)

        def then(step: Step[int]) -> None:
            permit._generation = step.answer
            self._tell_of_change(step)

        self._records.report(change, then)

    def _ended(self, permit: Permit, outcome: Outcome, throttle: float) -> None:
        # In one step: between two of them somebody might slip in.
        def change(circuit: Circuit, now: float) -> tuple[Circuit, bool]:
            if throttle:
                circuit = self._rules.throttled(circuit, now, throttle)
            return self._rules.ended(circuit, now, permit._holder, permit.generation, outcome)

        def then(step: Step[bool]) -> None:
            self._tell_of_change(step)
            key, at, counted = self.key, step.now, step.answer
            self._tell(
                CircuitReported(
                    key=key, at=at, outcome=outcome, counted=counted, is_probe=permit.is_probe
                )
            )
            if throttle:
                self._tell(CircuitThrottled(key=key, at=at, retry_after=throttle))

        self._records.report(change, then)

    # -- orders: a person hears if the store does not take them --------------------------------

    def throttle(self, retry_after: Seconds) -> None:
        """Allow no attempt for so many seconds: the backend has asked for it (429)."""
        pause = wait(retry_after, "retry_after")
        step = self._order(lambda circuit, now: (self._rules.throttled(circuit, now, pause), None))
        self._tell(CircuitThrottled(key=self.key, at=step.now, retry_after=pause))

    def isolate(self) -> None:
        """Allow no attempt until `reset()`: the backend is known to be out of service."""
        self._order(lambda circuit, _now: (self._rules.isolated(circuit), None))

    def reset(self) -> None:
        """Begin anew, whatever the state: a person has seen to it."""
        self._order(lambda circuit, _now: (self._rules.reset(circuit), None))

    # -- what others read ------------------------------------------------------------------

    @property
    def circuit(self) -> Circuit:
        """The circuit as it is now. An open one half opens when a caller asks for a permit.

        On an event loop, a store that blocks is not asked. Then this is the circuit as the store last
        told it. It is so anywhere if the store fails.
        """
        return self._records.read()[0]

    @property
    def status(self) -> Status:
        """`closed`, `open`, `half_open`, `escalated` or `isolated`."""
        return self.circuit.status

    @property
    def failures(self) -> int:
        """How many failures in a row were counted."""
        return self.circuit.failures

    @property
    def retry_after(self) -> float:
        """The seconds until an attempt is allowed: 0 for now, infinite if only `reset()` helps.

        While a probe is under way, it is the time for which the probe may hold its place.
        """
        return self._rules.wait(*self._records.read())

    @property
    def pause_left(self) -> float:
        """The seconds in which certainly no attempt is allowed; a probe may end at any time."""
        return self._rules.pause_left(*self._records.read())

    def snapshot(self) -> Snapshot:
        """The circuit as JSON, to keep it over a restart. Times are kept as what is left."""
        return self._order(
            lambda circuit, now: (circuit, self._rules.snapshot(circuit, now))
        ).answer

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where `snapshot` was taken. Reports of earlier permits no longer count."""
        known = checked(snapshot)
        self._order(lambda circuit, now: (self._rules.restored(circuit, now, known), None))

    def flush(self, within: Seconds = PATIENCE) -> bool:
        """Wait until what was reported is in the store; False if it is not `within` seconds.

        Call it before you close a store that blocks. Other code does not have to wait for it.
        """
        return self._records.flush(wait(within, "within"))

    # -- the store and the observer ----------------------------------------------------------

    def _order(self, change: Change[T]) -> Step[T]:
        """Apply `change` here and now, after what was reported before."""
        self._records.settle()
        step = self._records.update(change)
        self._tell_of_change(step)
        return step

    def _store_failed(self, operation: Operation, error: BaseException) -> None:
        at = self._records.now
        self._tell(CircuitStoreFailed(key=self.key, at=at, operation=operation, error=error))

    def _tell_of_change(self, step: Step[Any]) -> None:
        before, after = step.before, step.after
        if after.generation == before.generation:
            return
        event = CircuitChanged(
            key=self.key,
            at=step.now,
            before=before.status,
            after=after.status,
            cause=after.cause,
            failures=after.failures,
            generation=after.generation,
        )
        said = f"circuit {self.key!r} is {after.status.replace('_', ' ')}: {after.cause}"
        logger.log(_LEVELS.get(after.status, logging.INFO), "%s", quoted(said))
        self._tell(event)

    def _tell(self, event: CircuitEvent) -> None:
        tell(self._observers, event)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What somebody who asks gets: a permit, or how long to wait for one, and for sure."""

    permit: Permit | None
    wait: float
    at_least: float
    circuit: Circuit
    at: float

    def give_back(self) -> None:
        """Nobody wants it any more."""
        if self.permit is not None:
            self.permit.released()


_LEVELS: Final[dict[Status, int]] = {"open": logging.WARNING, "escalated": logging.ERROR}


def _why(key: str, circuit: Circuit, wait: float) -> str:
    """Why nobody may try, when that ends, and what to do."""
    name = f"circuit {key!r}" if key else "the circuit"
    if wait == math.inf:
        return (
            f"{name} is {circuit.status} ({circuit.cause}): nobody may try until a person has "
            "looked at the backend and calls reset() on its breaker"
        )
    return f"{name} {_STATES[circuit.status].format(circuit.cause)} in {in_words(wait)}: {_NEXT}"


_NEXT: Final = "wait so long, as on_open='wait' does, or find out why the backend fails"
_STATES: Final[dict[Status, str]] = {
    "open": "is open ({}); the next probe may be made",
    "half_open": "is half open and its probe is under way; another may be made",
    "closed": "is closed, but the backend asked for a pause; the next attempt may be made",
}


def _submit(loop: Loop, function: Callable[[], object]) -> None:
    # Who waited there may be gone with the whole loop, between two looks at the listeners.
    with suppress(RuntimeError):
        loop.submit(function)
