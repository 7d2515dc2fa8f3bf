"""`Ledger`: what one turn has done, as far as its messages say; and the reading that keeps it.

All that a decision asks of the past is here: tool calls (which the watches count, into one place) and
deliveries over the whole turn, messages and new progress of the latest attempt. Knows signals, readings
and the watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamguard._base.done import Deeds
from streamguard.backends.stream_reading import Reading
from streamguard.retry.failure_said import FailureSaid
from streamguard.signals import (
    Progress,
    SessionOpened,
    Signal,
    TurnEnded,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamguard._guard.attempt import Attempt
    from streamguard._guard.plan import Plan
    from streamguard.backends import Backend
    from streamguard.backends.stream_reading import Reporter
    from streamguard.breaker.breaker import Permit
    from streamguard.sessions.exclusive import Exclusive
    from streamguard.sessions.points import ResumePoint
    from streamguard.sessions.replay import Replay
    from streamguard.signals import Failed

# What a consumer can act on: a delivery that cannot be taken back (gRPC calls it commitment).
_ACTS = (Progress, WorkStarted, WorkProgressed, WorkFinished, TurnEnded)


class Ledger:
    """What was done in one turn, over all its attempts, and in the latest one.

    Messages that are plain progress are not all told: the watch counts them. `deeds` is the count that
    the watches of all its attempts share.
    """

    def __init__(self, replay: Replay | None, start: ResumePoint) -> None:
        self.replay = replay
        self.token: str | None = None
        self.permit: Permit | None = None
        self.exclusive: Exclusive | None = None
        self.deeds = Deeds()
        self._committed = 0
        self._heard = 0
        self._attempt: Attempt | None = None
        self._backend: Backend | None = None  # of the attempts before
        self._begun = 0.0
        self._asides = 0
        self._last_aside = 0
        self._first_new: float | None = None
        self.has_progressed = False  # in any attempt
        self._last_new = 0.0
        self._failure = FailureSaid()
        self.ended: TurnEnded | None = None
        self.turns_ended_well = 0
        self.go_on_from(start)

    def go_on_from(self, point: ResumePoint) -> None:
        """That is where the session stands as the turn begins."""
        self.token, self.deeds.work_dir = point.token, point.work_dir
        self.deeds.go_on_spending(point.spent)

    @property
    def backend(self) -> Backend | None:
        """Whose messages came in the latest attempt that brought any: whose come next, too."""
        latest = self._attempt.reading.backend if self._attempt is not None else None
        return latest or self._backend

    def follow(self, earlier: Ledger) -> None:
        """Its turn follows that one."""
        self._backend = earlier.backend
        self.deeds.spending = earlier.deeds.spending

    def begin(self, attempt: Attempt, now: float) -> None:
        """Another attempt of the turn begins."""
        self._backend = self.backend
        self._settle()
        self._attempt, self._begun = attempt, now
        self.deeds.begin_attempt()
        self.deeds.go_on_from(attempt.watch.deeds)
        attempt.watch.deeds = self.deeds
        self._asides = self._last_aside = 0
        self._first_new = None
        self._failure, self.ended = FailureSaid(), None
        self.turns_ended_well = 0
        if self.replay is not None:
            self.replay.begin()

    def carry(self, tool_calls: int, committed: int) -> None:
        """What was done before: on the same connection, with which it would be lost, or elsewhere."""
        self.deeds.carry(tool_calls)
        self._committed += committed

    def take_up(self, point: ResumePoint) -> None:
        """The turn was begun elsewhere, and had come to this point."""
        self.carry(point.tools_run, point.committed)
        self._heard += point.heard

    def _settle(self) -> None:
        self._committed, self._heard = self.committed, self._heard + self.messages
        self._attempt = None

    # -- over the turn ---------------------------------------------------------------------

    @property
    def tool_calls(self) -> int:
        """How many were begun."""
        return self.deeds.tools_run

    @property
    def committed(self) -> int:
        """How many messages came that a consumer can act on, and that were no replay."""
        dropped = self.replay.dropped if self.replay is not None and self._attempt else 0
        return self._committed + self.messages - self._asides - dropped

    @property
    def ends_with_aside(self) -> bool:
        """Whether a consumer cannot act on the latest message."""
        return self._last_aside == self.messages

    @property
    def was_heard(self) -> bool:
        """Whether the backend has said anything at all since it was asked."""
        return self._heard + self.messages > 0

    # -- of the latest attempt -------------------------------------------------------------

    @property
    def messages(self) -> int:
        """How many came."""
        return self._attempt.watch.messages if self._attempt is not None else 0

    @property
    def has_answered(self) -> bool:
        """Whether it has brought anything that is new, and that a consumer can act on."""
        return self._first_new is not None

    def lived(self, now: float) -> float:
        """Seconds since it began."""
        return now - self._begun

    @property
    def productive(self) -> float:
        """Seconds between its first and its last new progress; silence after it excluded (R5)."""
        if self._first_new is None or self._attempt is None:
            return 0.0
        return max(0.0, self._latest_new() - self._first_new)

    @property
    def is_completed(self) -> bool:
        """Whether the turn has ended and no other has begun: nothing is left to be done."""
        return self._attempt is not None and self._attempt.watch.completed

    def _latest_new(self) -> float:
        # While the watch is steady nothing is told, and everything that comes is progress.
        watch = self._attempt.watch if self._attempt is not None else None
        if watch is not None and watch.steady and watch.last_message is not None:
            return max(self._last_new, watch.last_message)
        return self._last_new

    def note(self, signals: tuple[Signal, ...], now: float) -> None:
        """A new message said `signals`."""
        if not any(isinstance(signal, _ACTS) for signal in signals):
            self._last_new = self._latest_new()
            self._asides += 1
            self._last_aside = self.messages + 1  # it is counted when it has been read
        else:
            if self._first_new is None:
                self._first_new = now
            self.has_progressed = True
            self._last_new = now
            if self.permit is not None:
                self.permit.progressed()
        for signal in signals:
            self._take(signal)

    @property
    def failed(self) -> Failed | None:
        """What its messages say of a failure that the backend did not get over."""
        return self._failure.failed

    def _take(self, signal: Signal) -> None:
        self._failure.take(signal)
        match signal:
            case SessionOpened():
                self.token = signal.token if signal.resumable else None
                if self.token is not None and self.exclusive is not None:
                    self.exclusive.known(self.token)
            case TurnEnded():
                self.ended = signal
                if signal.outcome == "success":
                    self.turns_ended_well += 1
            case _:
                pass


class Noted(Reading):
    """A reading whose signals also go into a ledger, and that tells replays from new messages."""

    __slots__ = ("_clock", "_ledger", "is_replayed")

    def __init__(self, plan: Plan, ledger: Ledger, clock: Callable[[], float]) -> None:
        super().__init__(plan.backend)
        self.go_on_from(ledger.backend)
        self._ledger = ledger
        self._clock = clock
        self.is_replayed = False

    @property
    def cursor(self) -> object:
        """Where a replay would have to go on from; None without one."""
        return self._ledger.replay.cursor if self._ledger.replay is not None else None

    def signals(self, message: Any, reporter: Reporter) -> tuple[Signal, ...]:
        said = super().signals(message, reporter)
        if (replay := self._ledger.replay) is not None:
            self.plain = None  # every message is asked for its key
            self.is_replayed = replay.drops(message)
            if self.is_replayed:
                return said
        self._ledger.note(said, self._clock())
        return said
