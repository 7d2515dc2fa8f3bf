"""The circuit breaker: who may try a backend now, told from how the last attempts went (P3).

One breaker for each backend *key* (a provider and an account), shared by all its streams:

    breaker = CircuitBreaker("anthropic/team-7", on_open="wait")

    with await breaker.acquire() as permit:     # or try_acquire(), from any thread
        async for message in stream:
            permit.progressed()

The rules are `circuit.Rules`, which see. Here is what they need of the world: a store that keeps
the circuit, a lock around what is decided once, observers, and waiting. Every method but
`acquire` is synchronous and may be called from any task, loop or thread.

Imports errors, events, circuit and retry; anyio and loops where somebody waits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar, get_args

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
from streamguard.breaker.events import (
    CircuitChanged,
    CircuitEvent,
    CircuitObserver,
    CircuitRefused,
    CircuitReported,
    CircuitThrottled,
)
from streamguard.breaker.store import CircuitStore, MemoryStore
from streamguard.checks import check_number
from streamguard.errors import CircuitEscalatedError, CircuitOpenError, ConfigError, seconds
from streamguard.events import logger, tell
from streamguard.retry import ErrorClass, classify, retry_after

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from streamguard.loops import Loop

T = TypeVar("T")
OnOpen: TypeAlias = Literal["raise", "wait"]

# Seconds. A wait that rounding has made too short to move a clock would be made again for ever.
SHORTEST_WAIT: Final = 0.001
# Seconds. How often who waits looks again at a store that other machines change, too.
LOOK_AGAIN: Final = 5.0


# --- permits ------------------------------------------------------------------------------


class Permit:
    """Leave to make one attempt, which reports once how it ended.

    As a context manager it reports by how the block is left: an end without an error is a
    success, an error counts as its class does, a cancellation says nothing about the backend.
    What is reported after the first outcome is ignored.
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
        retry_after: float | None = None,
    ) -> None:
        """The attempt failed. What that means for the circuit is its class's to say.

        A rate limit is no failure, but nobody may try for `retry_after` seconds; refused
        credentials need a person at once; a bad request says nothing about the backend.
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

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.ended(error)

    def _progress(self) -> None:
        with self._lock:
            if self._progress_counts and not self._reported:
                self._progress_counts = False
                self._generation = self._breaker._progressed(self._generation)

    def _end(self, outcome: Outcome, throttle: float = 0.0) -> None:
        with self._lock:
            if self._reported:
                return
            self._reported = True
            try:
                self._breaker._ended(self, outcome, throttle)
            except BaseException:  # the store is down, say: the outcome is not known yet
                self._reported = False
                raise


_OUTCOMES = {
    ErrorClass.NEVER: Outcome.NEUTRAL,
    ErrorClass.VALIDATION: Outcome.NEUTRAL,
    ErrorClass.RATE_LIMIT: Outcome.NEUTRAL,
    ErrorClass.AUTH: Outcome.ESCALATE,
    ErrorClass.PERMANENT: Outcome.ESCALATE,
}


# --- the breaker --------------------------------------------------------------------------


class CircuitBreaker:
    """Lets attempts through while the backend works, and spares it while it does not.

    `open_after` failures in a row open it for `pause` seconds, then one probe at a time (`probes`)
    may try; `reset_after` success closes it, `escalate_after` failures shut it until `reset()`
    (None = never). A probe that does not report holds its place for `probe_lease` seconds: as
    long as a first message may take, and at least as long as `pause`.

    `on_open="wait"` makes `acquire` wait where it would raise `CircuitOpenError`. `store` keeps
    the circuit, by default in this object, on `clock` (in virtual time give the loop's,
    `clock=anyio.current_time`). `observer` is told each `CircuitEvent`.
    """

    def __init__(
        self,
        key: str = "",
        *,
        open_after: int = 3,
        pause: float = 30.0,
        escalate_after: int | None = 5,
        reset_after: int = 1,
        probes: int = 1,
        probe_lease: float = 300.0,
        on_open: OnOpen = "raise",
        clock: Callable[[], float] | None = None,
        store: CircuitStore | None = None,
        observer: CircuitObserver | None = None,
    ) -> None:
        if on_open not in get_args(OnOpen):
            raise ConfigError(f"on_open={on_open!r}: use 'raise' or 'wait'")
        if store is not None and clock is not None:
            raise ConfigError("clock= belongs to the store: give it there, or leave store= out")
        self.key = key
        self.on_open: OnOpen = on_open
        self._rules = Rules(
            open_after=open_after,
            pause=pause,
            escalate_after=escalate_after,
            reset_after=reset_after,
            probes=probes,
            probe_lease=probe_lease,
        )
        self._store: CircuitStore = store or MemoryStore(clock or time.monotonic)
        self._observers = () if observer is None else (observer,)

    def __repr__(self) -> str:
        circuit = self.circuit
        return f"<CircuitBreaker {self.key!r} {circuit.status}, {circuit.failures} failures>"

    # -- permits ---------------------------------------------------------------------------

    def try_acquire(self) -> Permit:
        """A permit, or a `CircuitOpenError` that says when to ask again."""
        return self._granted(self._ask())

    async def acquire(self, *, within: float = math.inf) -> Permit:
        """A permit; with `on_open="wait"`, as soon as there is one.

        Raises a `CircuitOpenError` where `try_acquire` does, or where waiting is no use: only
        `reset()` would help, or the wait would not end `within` so many seconds, or not before
        the deadline of a scope around it.
        """
        import anyio
        from anyio import lowlevel

        check_number("within", within, infinite=True)
        await lowlevel.checkpoint()
        if self.on_open == "raise":
            return self._granted(await self._ask_from_coroutine())
        until = min(anyio.current_time() + within, anyio.current_effective_deadline())
        return await self._wait_for_permit(until)

    async def _wait_for_permit(self, until: float) -> Permit:
        import anyio

        from streamguard import loops

        loop = loops.current()
        while True:
            changed = anyio.Event()
            # Listening before asking: no change may fall between the answer and the wait.
            unlisten = self._store.listen(self.key, partial(_submit, loop, changed.set))
            try:
                answer = await self._ask_from_coroutine()
                wait = answer.wait
                if answer.permit is not None or wait >= until - anyio.current_time():
                    return self._granted(answer)
                nap = min(wait, LOOK_AGAIN) if self._store.blocks else wait
                with anyio.move_on_after(max(nap, SHORTEST_WAIT)):
                    await changed.wait()
            finally:
                unlisten()

    async def _ask_from_coroutine(self) -> _Answer:
        if not self._store.blocks:
            return self._ask()
        from anyio import to_thread

        return await to_thread.run_sync(self._ask)

    def _ask(self) -> _Answer:
        holder = uuid.uuid4().hex

        def change(circuit: Circuit, now: float) -> tuple[Circuit, Admitted | Refused]:
            return self._rules.admit(circuit, now, holder)

        admitted, circuit, now = self._update(change)
        if isinstance(admitted, Refused):
            return _Answer(None, admitted.retry_after, circuit, now)
        return _Answer(Permit(self, holder, admitted), 0.0, circuit, now)

    def _granted(self, answer: _Answer) -> Permit:
        if answer.permit is not None:
            return answer.permit
        status, wait = answer.circuit.status, answer.wait
        self._tell(CircuitRefused(key=self.key, at=answer.at, status=status, retry_after=wait))
        kind = CircuitEscalatedError if status == "escalated" else CircuitOpenError
        raise kind(_why(self.key, answer.circuit, wait), key=self.key, retry_after=wait)

    def _progressed(self, generation: int) -> int:
        def change(circuit: Circuit, _now: float) -> tuple[Circuit, int]:
            return self._rules.progressed(circuit, generation)

        return self._update(change)[0]

    def _ended(self, permit: Permit, outcome: Outcome, throttle: float) -> None:
        check_number("retry_after", throttle)

        # In one step: between two of them somebody might slip in.
        def change(circuit: Circuit, now: float) -> tuple[Circuit, bool]:
            if throttle:
                circuit = self._rules.throttled(circuit, now, throttle)
            return self._rules.ended(circuit, now, permit._holder, permit.generation, outcome)

        counted, _, now = self._update(change)
        self._tell(
            CircuitReported(
                key=self.key, at=now, outcome=outcome, counted=counted, is_probe=permit.is_probe
            )
        )
        if throttle:
            self._tell(CircuitThrottled(key=self.key, at=now, retry_after=throttle))

    # -- orders ----------------------------------------------------------------------------

    def throttle(self, retry_after: float) -> None:
        """Nobody may try for so many seconds: the backend has asked for it (429)."""
        check_number("retry_after", retry_after)
        _, _, now = self._update(
            lambda circuit, now: (self._rules.throttled(circuit, now, retry_after), None)
        )
        self._tell(CircuitThrottled(key=self.key, at=now, retry_after=retry_after))

    def isolate(self) -> None:
        """Let nobody try, until `reset()`: the backend is known to be out of service."""
        self._update(lambda circuit, _now: (self._rules.isolated(circuit), None))

    def reset(self) -> None:
        """Begin anew, whatever the state: a person has seen to it."""
        self._update(lambda circuit, _now: (self._rules.reset(circuit), None))

    # -- what others read ------------------------------------------------------------------

    @property
    def circuit(self) -> Circuit:
        """The circuit as it is now. An open one half opens when somebody asks for a permit."""
        return self._update(lambda circuit, _now: (circuit, circuit))[0]

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
        """The seconds until somebody may try: 0 for now, infinite if only `reset()` helps."""
        return self._update(lambda circuit, now: (circuit, self._rules.wait(circuit, now)))[0]

    def snapshot(self) -> Snapshot:
        """The circuit, to be kept as JSON over a restart. Times are kept as what is left."""
        return self._update(lambda circuit, now: (circuit, self._rules.snapshot(circuit, now)))[0]

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where `snapshot` was taken; permits given before report in vain."""
        known = checked(snapshot)
        self._update(lambda circuit, now: (self._rules.restored(circuit, now, known), None))

    # -- the store and the observer ----------------------------------------------------------

    def _update(
        self, change: Callable[[Circuit, float], tuple[Circuit, T]]
    ) -> tuple[T, Circuit, float]:
        """Apply `change`, and tell of the transition it made. Also the circuit, and the time."""

        def tracked(before: Circuit, now: float) -> tuple[Circuit, _Step[T]]:
            after, answer = change(before, now)
            return after, _Step(before, after, now, answer)

        step = self._store.update(self.key, tracked)
        if step.after.generation != step.before.generation:
            self._tell_of_change(step.before, step.after, step.now)
        return step.answer, step.after, step.now

    def _tell_of_change(self, before: Circuit, after: Circuit, now: float) -> None:
        event = CircuitChanged(
            key=self.key,
            at=now,
            before=before.status,
            after=after.status,
            cause=after.cause,
            failures=after.failures,
            generation=after.generation,
        )
        level = _LEVELS.get(after.status, logging.INFO)
        logger.log(level, "circuit %r is %s: %s", self.key, _worded(after.status), after.cause)
        self._tell(event)

    def _tell(self, event: CircuitEvent) -> None:
        tell(self._observers, event)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What somebody who asks gets: a permit, or how long to wait for one."""

    permit: Permit | None
    wait: float
    circuit: Circuit
    at: float


@dataclass(frozen=True, slots=True)
class _Step(Generic[T]):
    """One update, as the store made it."""

    before: Circuit
    after: Circuit
    now: float
    answer: T


_LEVELS: Final[dict[Status, int]] = {"open": logging.WARNING, "escalated": logging.ERROR}


def _worded(status: Status) -> str:
    return status.replace("_", " ")


def _why(key: str, circuit: Circuit, wait: float) -> str:
    """Why nobody may try, when that ends, and what to do."""
    name = f"circuit {key!r}" if key else "the circuit"
    if wait == math.inf:
        return (
            f"{name} is {circuit.status} ({circuit.cause}): nobody may try until a person has "
            "looked at the backend and calls reset() on its breaker"
        )
    return f"{name} {_STATES[circuit.status].format(circuit.cause)} in {seconds(wait)}: {_NEXT}"


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
