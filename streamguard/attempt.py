"""`Attempt`: one attempt at a stream, where the watch's time meets the loop's.

The way of a verdict, each step in one method:

    on_time        the deadline has come: the watch judges (T2, T4)
    on_confirmed   the loop has made its passes, and it still holds
    (interrupting) where the user gave an interrupt: the turn may yet end well by itself (D1)
    _cut           what is parked is cancelled (T9)
    (unwinding)    the verdict is a candidate; a message that comes after all withdraws it (T3)
    decide         it is final and told; teardown starts, by the consumer or, if its pull
                   stays deaf, by the timekeeper (O6)
    conclude       the consumer waits for the teardown and gets the error, or the normal end

Who pulls, and whose scope is cancelled, is the business of `guarded` and `monitor`; they lend the
attempt what it may cut. This module knows watch, loop, supervision, teardown and events.
"""

from __future__ import annotations

import contextvars
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from streamguard import events, loops, recording
from streamguard.activity import Activity
from streamguard.errors import ERRORS, StreamGuardError, Tail, Teardown, Verdict
from streamguard.loops import Cut, Loop
from streamguard.news import News
from streamguard.reading import PROGRESS, Reading
from streamguard.scopes import path as scopes_in_force
from streamguard.signals import Signal, TurnEnded
from streamguard.supervision import Supervision
from streamguard.teardown import INTERRUPTING, UNWINDING, Interrupting, Spawn, TearingDown
from streamguard.watch import DRAIN, Due, Half, Limits, Stalled, Watch

if TYPE_CHECKING:
    from streamguard.config import Mode
    from streamguard.errors import Limit
    from streamguard.loops.timekeeper import Entry
    from streamguard.plan import Plan
    from streamguard.process import ProcessTree, Termination

NO_LIMITS: Final = Limits()

# Between looks at a pull that is not parked: short at first, since most are a pass away.
_FIRST_LOOK: Final = 2**-10
_LAST_LOOK: Final = 0.5
# A process that ends closes its pipes, and is dead a moment later.
_LAST_WORDS: Final = 0.1


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
        "_candidate",
        "_context",
        "_cut_at",
        "_decided_at",
        "_error",
        "_first_seen",
        "_interrupting",
        "_lateness",
        "_look",
        "_news",
        "_noticed",
        "_noticed_at",
        "_sentence",
        "_stamps",
        "_supervision",
        "_tap",
        "_tearing_down",
        "activity",
        "block",
        "entry",
        "is_over",
        "is_spared",
        "loop",
        "mode",
        "origin",
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
        self.origin: object = None  # what is iterated, where it is known
        self.watch = Watch(limits)
        self.activity = plan.activity or Activity()
        self.reading = Reading(plan.backend)
        self.loop: Loop | None = None
        self.pull: Cuttable | None = None
        self.block: Cuttable | None = None
        self.spawn: Spawn | None = None
        self.entry: Entry | None = None
        # The record is made when somebody is to be told: of 10,000 limits that are reached at one
        # instant, the last must not wait for the others' records.
        self._candidate: Verdict | Due | None = None
        self._decided_at = self._lateness = 0.0
        self._first_seen = False
        self.verdict: Verdict | None = None
        self.struck_block = False
        self.is_over = False
        self._noticed: Due | None = None
        self._noticed_at: float | None = None
        self._look = _FIRST_LOOK
        self._cut_at = 0.0
        # The verdict while, and after, an interrupt was tried: only a turn's good end withdraws it.
        self._sentence: Verdict | None = None
        self._interrupting: Interrupting | None = None
        self._supervision: Supervision | None = None
        self._tearing_down: TearingDown | None = None
        self._error: StreamGuardError | None = None
        self._stamps: list[float] | None = None
        self._news: News | None = None
        self._tap: recording.Tap | None = None
        self.is_spared = False

    # -- facts ---------------------------------------------------------------------------

    def begin(self) -> None:
        """The first pull, the block's entry, or a pull after an error of the source's."""
        self.lease()
        self.is_over = False
        # What the timekeeper wakes us for happens in the context of who uses the stream.
        self._context = contextvars.copy_context()
        self.loop = loops.current()
        now = self.loop.clock()
        self.watch.begin(now)
        self.activity.bind(self, now)
        self._be_recorded()
        if self.block is not None:
            self.reconsider()
        self.tell(events.StreamStarted(activity=self.activity, at=now))
        if self.plan.observers:
            self._news = News(self.activity, self.watch, self.plan.observers)
            self._news.look(now)  # holds may be older than the stream
        try:
            self._supervise()
        except BaseException as error:
            self.end(error)
            raise

    def _be_recorded(self) -> None:
        self.plan = recording.joined(self.plan)
        if self._tap is None and self.plan.observers:
            self._tap = recording.tap_of(self)
        if any(recorder.reads_all for recorder in recording.among(self.plan.observers)):
            self.reading.read_all()

    def comes_from(self, origin: object) -> None:
        """`origin` is what is iterated."""
        self.origin = origin
        if self.plan.expected is not None:
            self.reading.expect(self.plan.expected, origin)

    def connected(self, plan: Plan) -> None:
        """The backend was opened within the attempt, and `plan` has the handles it came with."""
        self.plan = plan
        self.lease()
        self._supervise()

    def _supervise(self) -> None:
        plan = self.plan
        if plan.process is not None and self._supervision is None:
            assert self.loop is not None
            self._supervision = Supervision(plan.process, plan.kill_grace, self, self.loop)
            self._supervision.seek()

    def asked(self) -> None:
        """A pull waits, or is about to."""
        assert self.loop is not None
        self.watch.asked(self.loop.clock())
        self.reconsider()

    def answered(self) -> None:
        """The pull is over."""
        assert self.loop is not None
        if self._sentence is None:
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
        if self._tap is not None:
            self._tap(message, signals)
        if watch.steady and signals is PROGRESS:
            watch.messages += 1
            if watch.waiting_since is not None:
                watch.waiting_since = None
                watch.mark = self.loop.clock()
            return
        now = self.loop.clock()
        if self._sentence is not None or self._candidate is not None:
            self._weigh(signals)
        if self._sentence is None:
            self._noticed_at = None
        if watch.messages == 0:
            self._is_known_now()
        watch.answered(now)
        watch.see(signals, now, time.time())
        if self._news is not None:
            self._news.look(now, signals)
        if watch.steady and not self._is_covered(now):
            watch.leave_steady()
        if self.plan.stamps:
            self._stamp(now)

    def _is_known_now(self) -> None:
        """The backend has spoken for the first time, which may show whose it is, and which."""
        if self._supervision is not None:
            self._supervision.seek_again()  # some can only be named when they have spoken
        backend, limits = self.reading.backend, self.watch.limits
        if backend is None or (limits.idle is None and limits.first is None):
            return
        from streamguard.backends import facts

        for found in facts.news_of_collisions(
            backend.name, {"idle": limits.idle, "first": limits.first}
        ):
            self.tell(
                events.WindowCollides(
                    activity=self.activity,
                    at=self.loop.clock() if self.loop is not None else 0.0,
                    limit=found.limit,
                    window=found.window,
                    advice=str(found),
                )
            )

    def _is_covered(self, now: float) -> bool:
        """Whether the alarm comes before any deadline of a wait that begins now, or later.

        Only then may the watch stay steady, in which nobody looks at the alarm. So it is set as
        for a wait that begins now. Stamps want each message to be seen.
        """
        if self.plan.stamps or self._sentence is not None:
            return False
        watch = self.watch
        if watch.work or self.entry is None or self.entry[0] > now + watch.limits.horizon:
            watch.waiting_since = now
            self.reconsider()
            watch.waiting_since = None
        return True

    def heard(self) -> None:
        """The watch was told something by hand (T6)."""
        self.reconsider()
        if self._news is not None and self.loop is not None:
            self._news.look(self.loop.clock())

    def reconsider(self) -> None:
        """See that the timekeeper wakes us in time for the next deadline."""
        self._noticed = None  # something was said: it has to be judged anew
        if self.loop is None or self._noticed_at is not None:
            return
        if self._candidate is not None or self._sentence is not None:
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
        if self.watch.waiting_since is not None:  # a monitor's block may wait to its very end
            self.watch.answered(self.loop.clock())
        self.loop.timekeeper.drop(self)
        self._stop_interrupting()
        if self._supervision is not None:
            if self._tearing_down is None:
                self._supervision.release()
                self._supervision = None  # if all begins anew, it may be with another process
            else:  # it may have been left, and go on by itself (D6)
                self._tearing_down.when_over(self._supervision.release)
        self.activity.unbind(self)
        if self._news is not None:
            self._news.end(self.loop.clock())
        self.tell(events.StreamEnded(activity=self.activity, at=self.loop.clock(), error=error))

    # -- the way of a verdict ------------------------------------------------------------

    def on_time(self, now: float) -> bool:
        """The timekeeper's call: True asks for `on_confirmed` after the passes."""
        if self.verdict is not None:
            self._strike_block()
            return False
        if self._candidate is not None or self._interrupting is not None:
            self._context.run(self._lose_patience, now)
            return False
        if self._noticed_at is not None:
            return True
        judgement = self._judge(now)
        if isinstance(judgement, Due):
            self._noticed, self._noticed_at, self._look = judgement, now, _FIRST_LOOK
            self.watch.leave_steady()  # whoever answers now must say so
            return True
        if judgement is not None:
            self._context.run(self._tell_of, judgement, now)
        self.reconsider()
        if self.entry is None:
            self.watch.leave_steady()  # nobody waits: the next pull must set the alarm
        return False

    def _lose_patience(self, now: float) -> None:
        if self._candidate is not None:
            self._go_deaf(now)
        else:
            self._interrupt_is_over()

    def _tell_of(self, judgement: Half | Stalled, now: float) -> None:
        match judgement:
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

    def on_confirmed(self, now: float) -> None:
        """Whatever had arrived by the deadline has been handed over; it may not hold any more."""
        if self._noticed_at is None:
            # Answered in the meantime. A pull may be out again that nobody set an alarm for.
            self.reconsider()
            return
        if self._sentence is not None:
            self._cut(self._sentence, now)
            return
        due = self._noticed or self._due(now)
        if due is None:
            self._noticed_at = None
            self.reconsider()
        elif self.mode == "warn":
            self._context.run(self._warn, due, now)
        elif self._is_interruptible(due):
            self._context.run(self._interrupt, due, now)
        else:
            self._cut(due, now)

    def _warn(self, due: Due, now: float) -> None:
        self._noticed_at = None
        verdict = self._record(due, now)
        self.watch.mute(due)  # before an observer can begin a new silence
        self.tell(events.TimedOut(activity=self.activity, at=now, verdict=verdict, enforced=False))
        self.reconsider()

    def _cut(self, candidate: Verdict | Due, now: float) -> None:
        assert self.loop is not None
        assert self._noticed_at is not None
        # `total` binds the whole block; every other limit surfaces at the pull (O5).
        of_block = candidate.limit == "total" or self.watch.waiting_since is None
        target = self.block if of_block and self.block is not None else self.pull
        assert target is not None
        if target.cut() is Cut.SENT:
            self._charge(candidate, target, now)
            self.loop.timekeeper.put(self, now + UNWINDING)
        elif now - self._noticed_at >= UNWINDING:
            self._charge(candidate, target, now)
            self._context.run(self._go_deaf, now)
            target.cut(force=True)  # what comes now is too late anyway (T3)
        else:
            self.loop.timekeeper.put(self, now + self._look)
            self._look = min(self._look * 2, _LAST_LOOK)

    def _charge(self, candidate: Verdict | Due, target: Cuttable, now: float) -> None:
        self._candidate, self.struck_block = candidate, target is self.block
        if isinstance(candidate, Due):
            self._decided_at, self._lateness = now, self.watch.lateness(candidate, now)
            self._first_seen = self.watch.first_seen

    # -- the interrupt -------------------------------------------------------------------

    def _is_interruptible(self, due: Due) -> bool:
        """Whether a turn is being waited for that an interrupt could end."""
        waits = self.watch.turn_open and self.watch.waiting_since is not None
        return bool(self.plan.interrupts) and waits and due.limit != "exited"

    def _interrupt(self, due: Due, now: float) -> None:
        assert self.loop is not None
        self._sentence = verdict = self._record(due, now)
        self._noticed_at = None
        self.tell(
            events.Interrupting(
                activity=self.activity, at=now, verdict=verdict, bound=INTERRUPTING
            )
        )
        self._interrupting = Interrupting(self.plan.interrupts, self, self.loop)
        self._interrupting.start()
        self.loop.timekeeper.put(self, now + INTERRUPTING)

    def _stop_interrupting(self) -> None:
        if self._interrupting is not None:
            self._interrupting.stop()
            self._interrupting = None

    def _interrupt_is_over(self) -> None:
        """It did not bring the turn's end: go on with the sentence."""
        assert self.loop is not None
        self._stop_interrupting()
        if self.watch.waiting_since is None:
            self._decide_unasked()
        else:
            self._noticed_at, self._look = self.loop.clock(), _FIRST_LOOK
            self.loop.timekeeper.put(self, self._noticed_at)

    def _weigh(self, signals: tuple[Signal, ...]) -> None:
        """A message came although its pull was to be cut: whether it takes the verdict back."""
        if self._sentence is None:
            if not self.struck_block:
                self.withdraw()
            return
        ended = next((signal for signal in signals if isinstance(signal, TurnEnded)), None)
        if ended is not None and ended.outcome == "success":
            self.withdraw()
        elif ended is not None or self._interrupting is None:
            self._stop_interrupting()
            if ended is not None and self.plan.outlives_interrupt:
                self._spare()
            self._decide_unasked()  # but the message is delivered
        # Else it is what the turn still had to say: its end may follow.

    def _decide_unasked(self) -> None:
        """The sentence is final while no pull waits: the next one raises it."""
        self.decide(self._sentence)
        assert self.loop is not None
        if self.pull is self.block:
            self._strike_block()  # a monitor has no pulls
        elif self.block is not None and (when := self.watch.total_deadline()) != float("inf"):
            self.loop.timekeeper.put(self, when)  # nor may the consumer work on beyond that

    def _strike_block(self) -> None:
        """Let the block learn of a verdict that is final."""
        if self.block is not None and self.block.cut() is Cut.SENT:
            self.struck_block = True

    def _spare(self) -> None:
        """The interrupt has ended the turn, and the same client can go on: nothing is torn down."""
        self.is_spared = True
        self.plan = replace(self.plan, disconnects=(), process=None)
        if self._supervision is not None:
            self._supervision.release()
            self._supervision = None

    def _go_deaf(self, now: float) -> None:
        assert self.candidate is not None
        self.tell(events.PullDeaf(activity=self.activity, at=now, verdict=self.candidate))
        self.decide()

    def withdraw(self) -> None:
        """Something outranked the candidate: a message, a finished body, another's cancel."""
        assert self.loop is not None
        withdrawn = self.candidate or self._sentence
        if withdrawn is None:
            return
        self._stop_interrupting()
        self._candidate = self._sentence = self._noticed_at = None
        self.tell(
            events.CutWithdrawn(activity=self.activity, at=self.loop.clock(), verdict=withdrawn)
        )
        self.loop.timekeeper.drop(self)

    @property
    def is_cut(self) -> bool:
        """Whether something was cancelled, which nothing has taken back yet."""
        return self._candidate is not None

    @property
    def candidate(self) -> Verdict | None:
        """What the pull or the block was cut for."""
        if isinstance(self._candidate, Due):
            self._candidate = self._record(
                self._candidate, self._decided_at, self._lateness, first_seen=self._first_seen
            )
        return self._candidate

    @property
    def is_sentenced(self) -> bool:
        """Whether an interrupt was tried: how the pull ends now does not matter any more."""
        return self._sentence is not None

    def decide(self, verdict: Verdict | None = None) -> None:
        """Make the candidate, or `verdict`, final; start the teardown (D1)."""
        if self.verdict is not None:
            return
        assert self.loop is not None
        self.verdict = verdict or self.candidate or self._sentence
        assert self.verdict is not None
        self._cut_at = self.loop.clock()
        self.loop.timekeeper.drop(self)
        self._tearing_down = TearingDown(
            self,
            self.loop,
            disconnects=self.plan.disconnects,
            disconnect_timeout=self.plan.disconnect_timeout,
            supervision=self._supervision,
            kill_grace=self.plan.kill_grace,
            evidence=tuple(r.written for r in recording.among(self.plan.observers)),
        )
        try:
            self.tell(
                events.TimedOut(
                    activity=self.activity, at=self._cut_at, verdict=self.verdict, enforced=True
                )
            )
        finally:  # also if an observer ends the program
            self._stop_interrupting()
            self._tearing_down.start(self.spawn or self.loop.spawn)

    async def torn_down(self, cancellation: BaseException | None = None) -> None:
        """Wait for the teardown's end, through one cancellation: this one, or the next (D6)."""
        assert self._tearing_down is not None
        await self._tearing_down.finish(cancellation)

    def conclude(self, *, closed: bool, cause: BaseException | None) -> StreamGuardError | None:
        """What the consumer gets for the final verdict; None is a normal end. Decided once."""
        if self.is_over:
            return self._error
        assert self.loop is not None
        assert self.verdict is not None
        now = self.loop.clock()
        teardown = self._teardown(now, closed=closed)
        self.tell(
            events.TornDown(
                activity=self.activity, at=now, verdict=self.verdict, teardown=teardown
            )
        )
        if (kind := self._kind_of(self.verdict)) is not None:
            self._error = kind(verdict=self.verdict, activity=self.activity)
            self._error.teardown = teardown
            tail = getattr(self.origin, "tail", None)
            self._error.tail = tail if isinstance(tail, Tail) else None
            self._error.__cause__ = cause
        self.end(self._error)
        return self._error

    def _teardown(self, now: float, *, closed: bool) -> Teardown:
        """What was done, and whether the backend's end is certain (D5)."""
        assert self._tearing_down is not None
        outcome, ended = self._tearing_down.outcome, self._tearing_down.termination
        if ended is not None:
            return Teardown(
                confirmed=ended.confirmed,  # which alone suffices
                disconnect=outcome,
                elapsed=now - self._cut_at,
                signals=ended.signals,
                exit=ended.exit,
                survivors=ended.survivors,
                tree=ended.cause,
            )
        was_left = self._tearing_down.knows_tree  # somebody cancelled twice (D6)
        returned = outcome in ("none", "returned") and not was_left
        return Teardown(
            confirmed=closed and returned,
            disconnect=outcome,
            elapsed=now - self._cut_at,
            tree="unproven" if was_left else None,
        )

    def _kind_of(self, verdict: Verdict) -> type[StreamGuardError] | None:
        """The error that `verdict` is raised as; None for a normal end."""
        is_well = self.watch.completed or (verdict.exit == 0 and not self._knows_turns)
        if verdict.limit == "exited" and is_well:
            return None  # T3, T10
        return ERRORS.get(verdict.limit)

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

    @property
    def _knows_turns(self) -> bool:
        """Whether the backend is one that ends each of its turns."""
        backend = self.reading.backend
        return backend is not None and backend.always_ends_turns

    def truncated(self) -> Verdict:
        """The verdict on a stream that ended before its turn did (T10)."""
        return self._of_an_end("truncated")

    async def exited(self) -> Verdict | None:
        """The verdict on a stream that ended before its turn did, if its process failed."""
        # A backend that nobody knows may be a server, whose streams end and which lives on.
        grace = DRAIN if self._knows_turns else _LAST_WORDS
        if self._supervision is None or not await self._supervision.is_dead_within(grace):
            return None
        verdict = self._of_an_end("exited")
        return verdict if verdict.exit else None

    def _of_an_end(self, limit: Limit) -> Verdict:
        """The verdict on what no window had to be waited for."""
        assert self.loop is not None
        now = self.loop.clock()
        due = Due(limit, now, 0.0, self.watch.started or now)
        return replace(self._record(due, now, 0.0), window=None)

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

    def _record(
        self, due: Due, now: float, lateness: float | None = None, **known: Any
    ) -> Verdict:
        return self.watch.verdict(
            due,
            now,
            lateness,
            name=self.activity.name,
            labels=dict(self.activity.labels),
            token=self.activity.token,
            scope=scopes_in_force(),
            when=datetime.now(UTC),
            exit=self._exit_status if due.limit == "exited" else None,
            **known,
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

    def reader_failed(self, kind: type, error: BaseException) -> None:
        self._tell_now(
            lambda now: events.ReaderFailed(
                activity=self.activity, at=now, type_name=kind.__qualname__, error=error
            )
        )

    @property
    def _exit_status(self) -> int | None:
        return self._supervision.exit_status if self._supervision is not None else None

    def process_adopted(self, tree: ProcessTree) -> None:
        self._tell_now(
            lambda now: events.ProcessAdopted(
                activity=self.activity, at=now, pid=tree.pid, proof=tree.proof
            )
        )

    def process_unknown(self, error: Exception | None) -> None:
        self._tell_now(
            lambda now: events.ProcessUnknown(activity=self.activity, at=now, error=error)
        )

    def process_died(self) -> None:
        """The process is dead, and its stream may be held open by what it started."""
        assert self.loop is not None
        tree = self._supervision.tree if self._supervision is not None else None
        if self.is_over or tree is None:
            return
        now = self.loop.clock()
        self.tell(
            events.ProcessExited(
                activity=self.activity, at=now, pid=tree.pid, exit=tree.exit_status
            )
        )
        if self.verdict is not None:
            return
        self.watch.exited(now)
        self.reconsider()
        if self._interrupting is not None and self.entry is not None:
            # What has died says no more than it has said.
            self.loop.timekeeper.put(self, min(self.entry[0], now + DRAIN))

    def tree_ended(self, tree: ProcessTree, termination: Termination) -> None:
        now = self.loop.clock() if self.loop is not None else 0.0
        if termination.signals:
            self.tell(
                events.ProcessKilled(
                    activity=self.activity,
                    at=now,
                    pid=tree.pid,
                    signals=termination.signals,
                    exit=termination.exit,
                    elapsed=termination.elapsed,
                )
            )
        if not termination.confirmed:
            self.tell(
                events.ProcessSurvived(
                    activity=self.activity,
                    at=now,
                    pid=tree.pid,
                    survivors=termination.survivors,
                )
            )

    def interrupt_failed(self, error: BaseException) -> None:
        self._tell_now(
            lambda now: events.InterruptFailed(activity=self.activity, at=now, error=error)
        )
        if self._interrupting is not None:
            self._interrupt_is_over()

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
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException:  # noqa: BLE001 - a stamp never disturbs the stream
                    events.logger.exception("activity_stamp callback %r raised", stamp)

    # -- bound things --------------------------------------------------------------------

    def lease(self) -> None:
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
