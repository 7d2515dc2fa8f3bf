"""`BlockClock`: what ends a session's block by the clock, whatever its consumer does (O5, F2).

Two clocks run on while nobody waits for a message: `total`, and the lease of a session that has one. While the
backend keeps the consumer waiting the watch sees to both, and the pull raises the verdict. Else the block's scope is
cancelled: the consumer is at work, waits for its next attempt, or asks nothing more. A lease moves with each
renewal, so that it is asked anew each time. Knows the conversation and the timekeeper; decides nothing but this.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio

from streamguard import _loops as loops
from streamguard import events
from streamguard.errors import ERRORS, LeaseLostError, StreamGuardError, Verdict

if TYPE_CHECKING:
    from streamguard._guard.attempt import Attempt
    from streamguard._loops.timekeeper import Entry
    from streamguard.sessions.hosting import Hosting
    from streamguard.sessions.turns import Conversation

_LOOK: Final = 0.1
_ByTheClock: TypeAlias = Literal["lease", "total"]


class BlockClock:
    """The end of one session's block. Made, and left, by the task that has the block.

    `struck`: the verdict for which the block was cancelled.
    """

    def __init__(self, hosting: Hosting, conversation: Conversation[Any]) -> None:
        self.entry: Entry | None = None
        self.struck: Verdict | None = None
        self._is_stopped = False
        self._hosting = hosting
        self._conversation = conversation
        # What the timekeeper wakes us for happens in the context of who uses the session.
        self._context = contextvars.copy_context()
        self._task = hosting.loop.current_task()
        self._scope = anyio.CancelScope()
        self._scope.__enter__()
        self.look()

    def look(self) -> None:
        """Be woken for whatever comes next."""
        if self._is_stopped:
            return
        self._hosting.loop.timekeeper.put(self, min(self._ends().values()))

    def stop(self) -> None:
        """The block is left: nothing strikes it any more."""
        self._is_stopped = True
        self._hosting.loop.timekeeper.drop(self)

    def leave(self, exc: BaseException | None) -> bool:
        """Leave the scope; whether `exc` was its own cancel."""
        if loops.current().current_task() is not self._task:
            # A generator that is entered by one task and closed by another: that one is gone, and
            # what is left of the scope with it.
            return False
        kind, traceback = (type(exc), exc.__traceback__) if exc is not None else (None, None)
        return bool(self._scope.__exit__(kind, exc, traceback)) and exc is not None

    def error(self, failure: BaseException | None) -> BaseException:
        """What the block raises that was struck. `failure`: what had ended its last attempt."""
        assert self.struck is not None
        kind = ERRORS[self.struck.limit]
        if isinstance(failure, kind):
            return failure
        return kind(verdict=self.struck, activity=self._hosting.teller.activity)

    # -- the timekeeper's calls ------------------------------------------------------------

    def on_time(self, now: float) -> bool:  # noqa: ARG002 - a sleeper's method
        return True

    def on_confirmed(self, now: float) -> None:
        """Where a message is waited for, the pull sees to it; elsewhere the block is cancelled."""
        over: list[_ByTheClock] = [limit for limit, end in self._ends().items() if end <= now]
        if not over:
            self.look()  # the lease was renewed
            return
        limit, conversation = over[0], self._conversation
        if conversation.has_told_deadline():
            return  # whoever got it is at work on it
        if limit == "lease":
            self._context.run(self._lose, now)
            if conversation.has_told_deadline():
                return
        attempt = self._attempt_under_way()
        will_raise = attempt is not None and (
            attempt.in_use or attempt.verdict or attempt.candidate
        )
        # What has failed may take its time to close; a lease that is lost meanwhile does not wait for that.
        if will_raise or (conversation.is_pulled and limit == "total"):
            self._hosting.loop.timekeeper.put(self, now + _LOOK)
            return
        self._context.run(self._strike, limit, now)

    def _ends(self) -> dict[_ByTheClock, float]:
        ends: dict[_ByTheClock, float] = {}
        if self._hosting.limits.lease is not None:
            ends["lease"] = self._hosting.limits.lease()[1]
        ends["total"] = self._hosting.total_deadline
        return ends

    def _lose(self, now: float) -> None:
        """What does not end by itself is ended now, also where no message is waited for."""
        conversation = self._conversation
        if conversation.owner is not None:
            conversation.owner.condemn()
        if conversation.waits_to_begin:
            verdict = self._verdict("lease", now)
            activity = self._hosting.teller.activity
            conversation.lose(LeaseLostError(verdict=verdict, activity=activity))

    def _attempt_under_way(self) -> Attempt | None:
        owner = self._conversation.owner
        attempt = owner.attempt if owner is not None else None
        return attempt if attempt is not None and not attempt.is_over else None

    def _strike(self, limit: _ByTheClock, now: float) -> None:
        self.struck = self._verdict(limit, now)
        self._scope.cancel()

    def _verdict(self, limit: _ByTheClock, now: float) -> Verdict:
        """The verdict on that limit. It is told once, whoever decides it."""
        owner, attempt = self._conversation.owner, self._attempt_under_way()
        failure = owner.failure if owner is not None else None
        told: Verdict | None = failure.verdict if isinstance(failure, StreamGuardError) else None
        if attempt is not None:
            told = told or attempt.verdict
        if told is not None and told.limit == limit:
            return told
        if attempt is not None and (overdue := attempt.overdue_total()) is not None:
            attempt.decide(overdue)
            return overdue
        verdict = self._hosting.verdict_on(limit, now)
        self._hosting.teller.tell(events.TimedOut, at=now, verdict=verdict, enforced=True)
        return verdict
