"""`Attempt`: one attempt at a stream, where the watch's time meets the loop's.

The way of a verdict, each step in one method:

    on_time        the deadline has come: the watch judges (T2, T4)
    on_confirmed   the loop has made its passes, and it still holds: cut what is parked (T9)
    (unwinding)    the verdict is a candidate; a message that comes after all withdraws it (T3)
    decide         it is final and told; teardown starts, by the consumer or, if its pull
                   stays deaf, by the timekeeper (O6)
    conclude       the consumer waits for the teardown and gets the error, or the normal end

Who pulls, and whose scope is cancelled, is the business of `guarded` and `monitor`; they lend the
attempt what it may cut. This module knows watch, loop, teardown and events.
"""

from __future__ import annotations

import contextvars
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from streamguard import events, loops
from streamguard.activity import Activity
from streamguard.errors import ERRORS, StreamGuardError, Teardown, Verdict
from streamguard.loops import Cut, Loop
from streamguard.reading import PROGRESS, Reading
from streamguard.scopes import path as scopes_in_force
from streamguard.teardown import UNWINDING, Disconnecting, Spawn
from streamguard.watch import Due, Half, Limits, Stalled, Watch

if TYPE_CHECKING:
    from streamguard.config import Mode
    from streamguard.loops.timekeeper import Entry
    from streamguard.plan import Plan

NO_LIMITS: Final = Limits()

# Between looks at a pull that is not parked: short at first, since most are a pass away.
_FIRST_LOOK: Final = 2**-10
_LAST_LOOK: Final = 0.5


class Cuttable(Protocol):
    """What a limit may cut: a parked pull, or a block's scope."""

    def cut(self, *, force: bool = False) -> Cut:
        """Cancel it, unless that would lose a message. `force`: even then."""
        ...


# Bound things by id, to the attempt that has them now (O1).
_holders: weakref.WeakValueDictionary[int, Attempt] = weakref.WeakValueDictionary()


class Attempt:
    """Watch, verdict and teardown of one attempt."""

    __slots__ = (
        "__weakref__",
        "_cut_at",
        "_disconnecting",
        "_error",
        "_look",
        "_noticed_at",
        "_stamps",
        "activity",
        "block",
        "candidate",
        "context",
        "entry",
        "is_over",
        "loop",
        "mode",
        "plan",
        "pull",
        "reading",
        "spawn",
        "struck_block",
        "verdict",
        "watch",
    )

    def __init__(self, plan: Plan, limits: Limits, mode: Mode) -> None:
        self.plan = plan
        self.mode = mode
        self.watch = Watch(limits)
        self.activity = plan.activity or Activity()
        self.reading = Reading(plan.backend)
        self.loop: Loop | None = None
        self.pull: Cuttable | None = None
        self.block: Cuttable | None = None
        self.spawn: Spawn | None = None
        self.entry: Entry | None = None
        self.candidate: Verdict | None = None
        self.verdict: Verdict | None = None
        self.struck_block = False
        self.is_over = False
        self._noticed_at: float | None = None
        self._look = _FIRST_LOOK
        self._cut_at = 0.0
        self._disconnecting: Disconnecting | None = None
        self._error: StreamGuardError | None = None
        self._stamps: list[float] | None = None

    # -- facts ---------------------------------------------------------------------------

    def begin(self) -> None:
        """The first pull, the block's entry, or a pull after an error of the source's."""
        self._lease()
        self.is_over = False
        # What the timekeeper wakes us for happens in the context of who uses the stream.
        self.context = contextvars.copy_context()
        self.loop = loops.current()
        now = self.loop.clock()
        self.watch.begin(now)
        self.activity.bind(self, now)
        if self.block is not None:
            self.reconsider()
        self.tell(events.StreamStarted(activity=self.activity, at=now))

    def asked(self) -> None:
        """A pull waits, or is about to."""
        assert self.loop is not None
        self.watch.asked(self.loop.clock())
        self.reconsider()

    def answered(self) -> None:
        """The pull is over."""
        assert self.loop is not None
        self._noticed_at = None
        self.watch.answered(self.loop.clock())

    def abandoned(self) -> None:
        """The pull's coroutine is being closed: nobody waits, and nothing may be awaited."""
        if self.loop is None or not self.loop.is_running_here():
            self.watch.waiting_since = None
            return  # collected after the run, or in another thread: there is no time to keep
        self.answered()
        if self.verdict is None and not self.struck_block:
            self.withdraw()

    def received(self, message: object) -> None:
        """A message came, and is about to be delivered."""
        assert self.loop is not None
        watch, signals = self.watch, self.reading.signals(message, self)
        if watch.steady and signals is PROGRESS:
            watch.messages += 1
            watch.waiting_since = None
            return
        now = self.loop.clock()
        self._noticed_at = None
        watch.answered(now)
        watch.see(signals, now, time.time())
        if watch.steady and not self._is_covered(now):
            watch.leave_steady()
        if self.plan.stamps:
            self._stamp(now)

    def _is_covered(self, now: float) -> bool:
        """Whether the alarm comes before any deadline of a wait that begins now, or later.

        Only then may the watch stay steady, in which nobody looks at the alarm. So it is set as
        for a wait that begins now. Stamps want each message to be seen.
        """
        if self.plan.stamps:
            return False
        watch = self.watch
        if self.entry is None or self.entry[0] > now + watch.limits.horizon:
            watch.waiting_since = now
            self.reconsider()
            watch.waiting_since = None
        return True

    def reconsider(self) -> None:
        """See that the timekeeper wakes us in time for the next deadline."""
        if self.loop is None or self.candidate is not None or self._noticed_at is not None:
            return
        when = self.watch.deadline()
        if self.block is not None:
            when = min(when, self.watch.total_deadline())
        if when != float("inf") and (self.entry is None or when < self.entry[0]):
            self.loop.timekeeper.put(self, when)

    def end(self, error: BaseException | None = None) -> None:
        """The attempt is over: nothing of it stays behind."""
        if self.loop is None or self.is_over:
            return
        self.is_over = True
        self.loop.timekeeper.drop(self)
        self.activity.unbind(self)
        self.tell(events.StreamEnded(activity=self.activity, at=self.loop.clock(), error=error))

    # -- the way of a verdict ------------------------------------------------------------

    def on_time(self, now: float) -> bool:
        """The timekeeper's call: True asks for `on_confirmed` after the passes."""
        if self.verdict is not None:
            return False
        if self.candidate is not None:
            self._go_deaf(self.candidate, now)
            return False
        if self._noticed_at is not None:
            return True
        match self._judge(now):
            case Due():
                self._noticed_at, self._look = now, _FIRST_LOOK
                self.watch.leave_steady()  # whoever answers now must say so
                return True
            case Stalled() as stalled:
                self.tell(
                    events.LoopStalled(
                        activity=self.activity,
                        at=now,
                        limit=stalled.limit,
                        lateness=stalled.lateness,
                        extended_by=stalled.extended_by,
                    )
                )
            case Half() as half:
                self.tell(
                    events.HalfTime(
                        activity=self.activity, at=now, limit=half.limit, window=half.window
                    )
                )
            case None:
                pass
        self.reconsider()
        if self.entry is None:
            self.watch.leave_steady()  # nobody waits: the next pull must set the alarm
        return False

    def on_confirmed(self, now: float) -> None:
        """Whatever had arrived by the deadline has been handed over; it may not hold any more."""
        if self._noticed_at is None:
            # Answered in the meantime. A pull may be out again that nobody set an alarm for.
            self.reconsider()
            return
        due = self._due(now)
        if due is None:
            self._noticed_at = None
            self.reconsider()
        elif self.mode == "warn":
            self._noticed_at = None
            verdict = self._record(due, now)
            self.watch.mute(due)  # before an observer can begin a new silence
            self.tell(
                events.TimedOut(activity=self.activity, at=now, verdict=verdict, enforced=False)
            )
            self.reconsider()
        else:
            self._cut(due, now)

    def _cut(self, due: Due, now: float) -> None:
        assert self.loop is not None
        assert self._noticed_at is not None
        # `total` binds the whole block; every other limit surfaces at the pull (O5).
        of_block = self.watch.waiting_since is None or due.limit == "total"
        target = self.block if of_block and self.block is not None else self.pull
        assert target is not None
        if target.cut() is Cut.SENT:
            self.struck_block = target is self.block
            self.candidate = self._record(due, now)
            self.loop.timekeeper.put(self, now + UNWINDING)
        elif now - self._noticed_at >= UNWINDING:
            self.struck_block = target is self.block
            self._go_deaf(self._record(due, now), now)
            target.cut(force=True)  # what comes now is too late anyway (T3)
        else:
            self.loop.timekeeper.put(self, now + self._look)
            self._look = min(self._look * 2, _LAST_LOOK)

    def _go_deaf(self, verdict: Verdict, now: float) -> None:
        self.candidate = verdict
        self.tell(events.PullDeaf(activity=self.activity, at=now, verdict=verdict))
        self.decide()

    def withdraw(self) -> None:
        """Something outranked the candidate: a message, a finished body, another's cancel."""
        assert self.loop is not None
        if self.candidate is None:
            return
        withdrawn, self.candidate = self.candidate, None
        self.tell(
            events.CutWithdrawn(activity=self.activity, at=self.loop.clock(), verdict=withdrawn)
        )
        self.loop.timekeeper.drop(self)

    def decide(self, verdict: Verdict | None = None) -> None:
        """Make the candidate, or `verdict`, final; start the teardown (D1)."""
        if self.verdict is not None:
            return
        assert self.loop is not None
        self.verdict = verdict or self.candidate
        assert self.verdict is not None
        self._cut_at = self.loop.clock()
        self.loop.timekeeper.drop(self)
        self.tell(
            events.TimedOut(
                activity=self.activity, at=self._cut_at, verdict=self.verdict, enforced=True
            )
        )
        self._disconnecting = Disconnecting(
            self.plan.disconnects, self.plan.disconnect_timeout, self, self.loop
        )
        self._disconnecting.start(self.spawn or self.loop.spawn)

    async def torn_down(self, cancellation: BaseException | None = None) -> None:
        """Wait for the teardown's end, through one cancellation: this one, or the next (D6)."""
        assert self._disconnecting is not None
        await self._disconnecting.finish(cancellation)

    def conclude(self, *, closed: bool, cause: BaseException | None) -> StreamGuardError | None:
        """What the consumer gets for the final verdict; None is a normal end. Decided once."""
        if self.is_over:
            return self._error
        assert self.loop is not None
        assert self.verdict is not None
        assert self._disconnecting is not None
        now = self.loop.clock()
        outcome = self._disconnecting.outcome
        teardown = Teardown(
            confirmed=closed and outcome in ("none", "returned"),
            disconnect=outcome,
            elapsed=now - self._cut_at,
        )
        self.tell(
            events.TornDown(
                activity=self.activity, at=now, verdict=self.verdict, teardown=teardown
            )
        )
        if (kind := ERRORS.get(self.verdict.limit)) is not None:
            self._error = kind(verdict=self.verdict, activity=self.activity)
            self._error.teardown = teardown
            self._error.__cause__ = cause
        self.end(self._error)
        return self._error

    # -- questions to the watch ----------------------------------------------------------

    @property
    def has_bare_total(self) -> bool:
        """Whether `total` runs without a block whose scope it could cancel."""
        return self.block is None and self.watch.limits.total is not None

    def overdue_total(self) -> Verdict | None:
        """The verdict on `total`, if it is spent before anything is asked for (T1)."""
        assert self.loop is not None
        now = self.loop.clock()
        due = self.watch.overdue_total(now)
        return self._record(due, now) if due is not None else None

    def truncated(self) -> Verdict:
        """The verdict on a stream that ended before its turn did (T10)."""
        assert self.loop is not None
        now = self.loop.clock()
        since = self.watch.started or now
        verdict = self.watch.verdict(Due("idle", now, 0.0, since), now)
        return self._signed(replace(verdict, limit="truncated", window=None))

    def _judge(self, now: float) -> Due | Half | Stalled | None:
        judgement = self.watch.judge(now)
        if judgement is None and self.block is not None:
            return self.watch.overdue_total(now)
        return judgement

    def _due(self, now: float) -> Due | None:
        due = self.watch.due(now)
        if due is None and self.block is not None:
            return self.watch.overdue_total(now)
        return due

    def _record(self, due: Due, now: float) -> Verdict:
        return self._signed(self.watch.verdict(due, now))

    def _signed(self, verdict: Verdict) -> Verdict:
        return replace(
            verdict,
            name=self.activity.name,
            labels=dict(self.activity.labels),
            token=self.activity.token,
            scope=scopes_in_force(),
            when=datetime.now(UTC),
        )

    # -- telling -------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        """Log `event` and give it to every observer."""
        events.tell((events.log, *self.plan.observers), event)

    def _tell_now(self, make: Callable[[float], events.Event]) -> None:
        self.tell(make(self.loop.clock() if self.loop is not None else 0.0))

    def unknown_message(self, kind: type) -> None:
        name = f"{kind.__module__}.{kind.__qualname__}"
        self._tell_now(
            lambda now: events.UnknownMessage(activity=self.activity, at=now, type_name=name)
        )

    def reader_failed(self, kind: type, error: Exception) -> None:
        self._tell_now(
            lambda now: events.ReaderFailed(
                activity=self.activity, at=now, type_name=kind.__qualname__, error=error
            )
        )

    def disconnect_failed(self, error: BaseException) -> None:
        self._tell_now(
            lambda now: events.DisconnectFailed(activity=self.activity, at=now, error=error)
        )

    def disconnect_abandoned(self, bound: float) -> None:
        self._tell_now(
            lambda now: events.DisconnectAbandoned(activity=self.activity, at=now, bound=bound)
        )

    def _stamp(self, now: float) -> None:
        """Call the stamps that are due: each at most once in its interval (O8)."""
        if self._stamps is None:
            self._stamps = [-float("inf")] * len(self.plan.stamps)
        for i, (stamp, every) in enumerate(self.plan.stamps):
            if now - self._stamps[i] >= every:
                self._stamps[i] = now
                try:
                    stamp(self.activity)
                except Exception:  # noqa: BLE001 - a stamp never disturbs the stream
                    events.logger.exception("activity_stamp callback %r raised", stamp)

    # -- bound things --------------------------------------------------------------------

    def _lease(self) -> None:
        """Take what is bound to the operator, unless another stream has it now (O1)."""
        for thing in self.plan.bound:
            holder = _holders.get(id(thing))
            if holder is not None and holder is not self and holder.in_use:
                raise RuntimeError(
                    f"{thing!r} is bound to an operator that is guarding another stream right now "
                    f"({holder.activity!r}). One client, disconnect, process or activity serves one "
                    "stream at a time: make an operator for each, next to the stream it guards"
                )
            _holders[id(thing)] = self

    @property
    def cancelled(self) -> type[BaseException]:
        """The loop's cancellation."""
        assert self.loop is not None
        return self.loop.cancelled

    @property
    def in_use(self) -> bool:
        """Whether a pull is outstanding or the block is open."""
        return self.watch.waiting_since is not None or self.block is not None
