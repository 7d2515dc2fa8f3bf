"""`Attempt`: one attempt at a stream, where the watch's time meets the loop's.

What can happen to it, and what is done then, is the table in `way`; here each event is noticed and
each step is done. A verdict's steps, in their order:

    on_time        the deadline has come: the watch judges (T2, T4)
    on_confirmed   the loop has made its passes, and it still holds
    _interrupt     where the user gave an interrupt: the turn may yet end well by itself (D1)
    _cut           what is parked is cancelled (T9)
    _decide        it is final and told; teardown starts, by the consumer or, if its pull
                   stays deaf, by the timekeeper (O6)
    conclude       the consumer waits for the teardown and gets the error, or the normal end

Who pulls, and whose scope is cancelled, is the business of `guarded` and `monitor`; they lend the
attempt what it may cut. This module knows watch, loop, supervision, teardown and events.
"""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from streamguard import _loops as loops
from streamguard import activity as activities
from streamguard import events
from streamguard._base.machine import impossible
from streamguard._base.numbers import Default
from streamguard._base.tracebacks import Raised, blame, note
from streamguard._guard.knobs import is_guess
from streamguard._guard.supervision import Supervision
from streamguard._guard.teardown import INTERRUPTING, UNWINDING, InterruptRun, Spawn, TearingDown
from streamguard._guard.way import AFTER_INTERRUPT, CUT, FINAL, WAY, Do
from streamguard._guard.way import WayEvent as Event
from streamguard._guard.way import WayState as State
from streamguard._loops import Cut, Loop
from streamguard._scopes import scopes
from streamguard._watch.watch import (
    DRAIN,
    Due,
    Found,
    Half,
    Judgement,
    Limits,
    Stalled,
    Watch,
)
from streamguard.activity import Activity
from streamguard.backends.stream_reading import PROGRESS, Reading
from streamguard.errors import (
    ENDS_THE_PROGRAM,
    ERRORS,
    StreamGuardError,
    Tail,
    Teardown,
    Verdict,
)
from streamguard.events import recorders as recording
from streamguard.events.changes import News
from streamguard.events.teller import Teller, logger
from streamguard.signals import Signal, TurnEnded

if TYPE_CHECKING:
    from streamguard._base.vitals import Vitals
    from streamguard._guard.modes import Mode
    from streamguard._guard.plan import Plan
    from streamguard._loops.timekeeper import Entry
    from streamguard.errors import Limit
    from streamguard.events.kinds import StreamOutcome

NO_LIMITS: Final = Limits()

# A member of an Enum costs ten times a global's look-up, and this one is asked for at each
# message.
_WATCHING: Final = State.WATCHING
# Between looks at a pull that is not parked: short at first, since most are a pass away.
_FIRST_LOOK: Final = 2**-10
_LAST_LOOK: Final = 0.5
# A dead process hears none, and who has lost the lease may not wait for it.
_NO_INTERRUPT: Final[tuple[Limit, ...]] = ("exited", "lease")
# Between the cancels of what has swallowed one, when nothing that it could bring counts any more.
_AGAIN: Final = 1.0
# A process that ends closes its pipes, and is dead a moment later.
_LAST_WORDS: Final = 0.1


class Cuttable(Protocol):
    """What a limit may cut: a parked pull, or a block's scope."""

    def cut(self, *, force: bool = False) -> Cut:
        """Cancel it, unless that would lose a message. `force`: even then."""
        ...


# Bound things by id, to the attempt that has them now (O1).
_holders: weakref.WeakValueDictionary[int, Attempt] = weakref.WeakValueDictionary()


# An RLock: the collector may run at any line, and ends the streams that it finds.
_making: Final = threading.RLock()


class _Reached:
    """A limit that is due, from when it was noticed; then the verdict that comes of it.

    The record is made when somebody is to be told: of 10,000 limits that are reached at one
    instant, the last must not wait for the others' records. `due`: None if the watch is to be
    asked again.
    """

    __slots__ = (
        "decided_at",
        "due",
        "first_seen",
        "interrupt_error",
        "is_forced",
        "is_of_wait",
        "lateness",
        "look",
        "noticed_at",
        "verdict",
    )

    def __init__(
        self, due: Due | None, noticed_at: float = 0.0, verdict: Verdict | None = None
    ) -> None:
        self.due = due
        self.noticed_at = noticed_at
        self.verdict = verdict
        self.look = _FIRST_LOOK
        self.decided_at = self.lateness = 0.0
        self.first_seen = False
        self.interrupt_error: Raised | None = None
        self.is_of_wait = False  # it was cut in a wait, which no message has answered since
        self.is_forced = False  # its pull was cancelled again: nobody knows what that cut short


class Attempt:
    """Watch, verdict and teardown of one attempt."""

    __slots__ = (
        "__weakref__",
        "_context",
        "_error",
        "_interrupting",
        "_news",
        "_reached",
        "_shown_as",
        "_stamps",
        "_tap",
        "_teller",
        "_withdrawn",
        "block",
        "entry",
        "exit",
        "is_left_open",
        "is_spared",
        "loop",
        "mode",
        "origin",
        "plan",
        "pull",
        "reading",
        "spawn",
        "state",
        "supervision",
        "teardown",
        "tearing_down",
        "watch",
    )

    def __init__(self, plan: Plan, limits: Limits, mode: Mode) -> None:
        self.plan = plan
        self.mode = mode
        self.origin: object = None  # what is iterated, where it is known
        self.watch = Watch(limits)
        self.reading = Reading(plan.backend)
        self.loop: Loop | None = None
        self.pull: Cuttable | None = None
        self.block: Cuttable | None = None
        self.spawn: Spawn | None = None
        self.is_left_open = False  # a connection goes on after this stream, and work in it with it
        self.entry: Entry | None = None
        self.exit: BaseException | None = None  # what ends the program, on its way to the consumer
        self.is_spared = False
        # What the verdict's came to, once it is over: also of a verdict that no error comes of.
        self.teardown: Teardown | None = None
        self.tearing_down: TearingDown | None = None
        self.supervision: Supervision | None = None
        # Weakly: on trio the cancel that is its cause has the frames of whoever cancelled, and so us.
        self._error: weakref.ref[StreamGuardError] | None = None
        self._teller: Teller | None = None
        self.state = State.UNBEGUN
        self._reached: _Reached | None = None
        # What our cancel had been sent for when a message came all the same: the source may still
        # let that cancel go on.
        self._withdrawn: _Reached | None = None
        self._interrupting: InterruptRun | None = None
        self._stamps: list[float] | None = None
        self._news: News | None = None
        self._tap: recording.Tap | None = None
        self._shown_as: weakref.ref[Attempt] | None = None  # by `live()`, if it is

    # -- who tells, and what shows it --------------------------------------------------------

    @property
    def teller(self) -> Teller:
        """Who tells what happens. It and the activity are made when somebody asks for either.

        Of ten thousand streams that say nothing, nobody does.
        """
        return self._teller or self._made_teller()

    def _made_teller(self) -> Teller:
        with _making:  # any thread may ask, through `live()`
            plan, loop = self.plan, self.loop
            activity = plan.activity
            if activity is None:
                activity = Activity()
                if self.watch.started is not None:  # else it is bound when the stream begins
                    activity.show(self, is_live=self._shown_as is not None)
            made = Teller(activity, plan.listeners, *(() if loop is None else (loop.clock,)))
            if self._teller is None:
                self._teller = made
            return self._teller

    @property
    def activity(self) -> Activity:
        """What the stream is doing, for whoever looks."""
        return self.teller.activity

    def unknown_message(self, kind: type) -> None:
        """Its reading has found a type that no reader knows."""
        self.teller.unknown_message(kind)

    def reader_failed(self, kind: type, error: BaseException) -> None:
        """Its reader raised."""
        self.teller.reader_failed(kind, error)

    def moves_to(self, loop: Loop) -> None:
        """It is pulled on another loop from here on."""
        self.loop, self.entry = loop, None
        if self._teller is not None:
            self._teller.clock = loop.clock

    # -- the state -----------------------------------------------------------------------

    def _on(self, event: Event) -> Do:
        """Move on with `event`, and do what it asks for: which is told, too."""
        try:
            self.state, do = WAY[self.state][event]
        except KeyError:
            raise impossible(self.state, event) from None
        if (step := _STEPS.get(do)) is not None:
            step(self)
        return do

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, once it is final."""
        if self.tearing_down is None or self._reached is None:
            return None
        return self._reached.verdict

    @property
    def error(self) -> StreamGuardError | None:
        """What the consumer got for the final verdict, as long as anybody has it."""
        return self._error() if self._error is not None else None

    @property
    def candidate(self) -> Verdict | None:
        """What the pull or the block was cut for, as long as that can be taken back."""
        state = self.state
        return self._recorded() if state in CUT or state is State.STRUCK else None

    def _recorded(self) -> Verdict:
        """The verdict on what was reached."""
        reached = self._reached
        assert reached is not None
        if reached.verdict is None:
            assert reached.due is not None
            reached.verdict = self._record(
                reached.due, reached.decided_at, reached.lateness, first_seen=reached.first_seen
            )
        return reached.verdict

    def _examined(self) -> Verdict:
        """The verdict, with how the backend's processes are, before anything is done to them (B6)."""
        verdict = self._recorded()
        if verdict.vitals is None and (vitals := self._vitals()) is not None:
            assert self._reached is not None
            self._reached.verdict = verdict = replace(verdict, vitals=vitals)
        return verdict

    @property
    def is_begun(self) -> bool:
        """Whether it was begun and is not over."""
        return self.state not in {State.UNBEGUN, State.OVER}

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to be done."""
        return self.state is State.OVER

    @property
    def is_open(self) -> bool:
        """Whether it takes messages: it has begun, and its consumer has not left."""
        state = self.state
        return self.is_begun and state not in FINAL and state is not State.LEAVING

    @property
    def is_leaving(self) -> bool:
        """Whether its consumer has left, so that nothing is judged any more."""
        return self.state in {State.LEAVING, State.OVER}

    @property
    def is_undisturbed(self) -> bool:
        """Whether a pull that comes back now has nothing to ask."""
        return self.state is _WATCHING and self.exit is None

    @property
    def is_cut(self) -> bool:
        """Whether a cancellation that comes out of the pull now is ours."""
        return self.state in CUT or self.tearing_down is not None

    @property
    def is_struck(self) -> bool:
        """Whether the block around the pull was cancelled, and will say what for."""
        return self.state is State.STRUCK

    @property
    def is_done(self) -> bool:
        """Whether the turn has ended well, which no verdict on a silence before it changes (T3)."""
        return self.watch.completed and self.watch.ended_well

    @property
    def ends_in_verdict(self) -> bool:
        """Whether a pull that ends now has come to the verdict, however it ends."""
        return self.is_cut or self.state in AFTER_INTERRUPT

    # -- facts ---------------------------------------------------------------------------

    def begin(self) -> None:
        """The first pull, the block's entry, or a pull after an error of the source's."""
        self.lease()
        self._on(Event.BEGIN)
        # What the timekeeper wakes us for happens in the context of who uses the stream.
        self._context = contextvars.copy_context()
        self.loop = loops.current()
        now = self.loop.clock()
        self.watch.begin(now)
        if self.watch.limits.heeds_sleep:
            self.loop.timekeeper.heed_sleep()
        self.plan = recording.joined(self.plan)
        self._appear(now)
        if self.plan.observers:
            self._tap = self._tap or recording.tap_of(self)
            if any(each.reads_all for each in recording.among(self.plan.observers)):
                self.reading.read_all()
        if self.plan.stamps:
            self.reading.read_all()
        if self.block is not None:
            self.reconsider()
        if self._is_heard(events.StreamStarted):
            self.teller.tell(events.StreamStarted, at=now)
        if self.plan.observers:
            self._news = News(self.watch, self.teller)
            self._news.look(now)  # holds may be older than the stream
        try:
            self._supervise()
        except BaseException as error:
            self.end(error)
            raise

    def comes_from(self, origin: object) -> None:
        """`origin` is what is iterated."""
        self.origin = origin
        if self.plan.expected is not None:
            self.reading.expect(self.plan.expected, origin)

    def connected(self, plan: Plan) -> None:
        """The backend was opened within the attempt, and `plan` has the handles it came with."""
        self.plan = plan
        if self._teller is not None:
            self._teller.observers = plan.listeners
        self.lease()
        self._supervise()

    def _supervise(self) -> None:
        plan = self.plan
        if plan.process is not None and self.supervision is None:
            assert self.loop is not None
            self.supervision = Supervision(
                plan.process,
                plan.kill_grace,
                self.loop,
                self.teller,
                self.process_died,
                is_guess=is_guess(plan.process),
            )
            self.supervision.seek()

    def asked(self, *, since_prompt: bool = False) -> None:
        """A pull waits, or is about to; or has waited since the prompt, which was marked before."""
        assert self.loop is not None
        now = self.loop.clock()
        self.watch.asked(self.watch.prompted_before(now) if since_prompt else now)
        self.reconsider()

    def answered(self) -> None:
        """The pull is over."""
        assert self.loop is not None
        self.watch.answered(self.loop.clock())
        if self.state is not _WATCHING:
            self._put_off(Event.ANSWERED)

    def _put_off(self, event: Event) -> None:
        """Nothing is due any more, because of `event`; but a block's `total` nothing puts off."""
        if self.state is State.DUE and self.block is not None:
            assert self.loop is not None
            if self.watch.overdue_total(self.loop.clock()) is not None:
                event = Event.ASIDE
        self._on(event)

    def abandoned(self) -> None:
        """The pull's coroutine is being closed: nobody waits, and nothing may be awaited."""
        if self.loop is None or not self.loop.is_running_here():
            self.watch.waiting_since = None
            return  # collected after the run, or in another thread: there is no time to keep
        self.answered()
        self._on(Event.FOREIGN)

    def outranked(self) -> None:
        """Somebody else's cancellation came out of the pull."""
        self._on(Event.FOREIGN)

    def received(self, message: object) -> None:  # noqa: C901 - calls are dear here
        """A message came, and is about to be delivered."""
        watch, loop = self.watch, self.loop
        try:
            signals = self.reading.signals(message, self)
        except BaseException:  # a replay that differs: no silence has ended this stream (T3)
            self._put_off(Event.MESSAGE)
            raise
        if self._tap is not None:
            self._tap(message, signals)
        assert loop is not None
        if watch.steady and signals is PROGRESS:
            watch.came_steadily()
            if watch.waiting_since is not None or self.plan.stamps:
                watch.waiting_since = None
                watch.mark = loop.clock()
                if self.plan.stamps:
                    self._stamp(watch.mark)
            return
        now = loop.clock()
        if watch.messages == 0:
            self._is_known_now()
        watch.answered(now)
        if self.state is not _WATCHING:
            self._came_after_all(signals)
        watch.see(signals, now, time.time(), is_replayed=self.reading.is_replayed)
        if self._news is not None:
            self._news.look(now, signals)
        self._tell_of_findings(now)
        if watch.steady and not self._is_covered(now):
            watch.leave_steady()
        if self.plan.stamps:
            self._stamp(now)

    def _tell_of_findings(self, now: float) -> None:
        """A message has shown that the backend gets nowhere, or has used up too much."""
        watch = self.watch
        if watch.found:
            found, watch.found = watch.found, ()
            for finding in found:
                self._tell_of(finding, now)
        if (due := watch.strike) is None:
            return
        if self.mode == "warn":
            verdict = self._record(due, now, 0.0)
            watch.mute(due)
            self.teller.tell(events.TimedOut, at=now, verdict=verdict, enforced=False)
        elif watch.waiting_since is not None:  # said beside the stream: its pull is to be cut
            self.reconsider()
        elif self.state is _WATCHING:
            self._reached = _Reached(None, now, self._record(due, now, 0.0))
            self._on(Event.PROVEN)

    def _came_after_all(self, signals: tuple[Signal, ...]) -> None:
        """A message has come, though something is due or was cut."""
        # What the wait was cut for has been answered: a monitor's end from here on is the body's
        # own.
        if self._reached is not None:
            self._reached.is_of_wait = False
        ended = next((signal for signal in signals if isinstance(signal, TurnEnded)), None)
        if ended is None:
            self._put_off(Event.MESSAGE)
        else:
            self._put_off(Event.GOOD_END if ended.outcome == "success" else Event.BAD_END)

    def _is_known_now(self) -> None:
        """The backend has spoken for the first time, which may show whose it is, and which."""
        if self.supervision is not None:
            self.supervision.seek_again()  # some can only be named when they have spoken
        backend, limits = self.reading.backend, self.watch.limits
        if backend is None or (limits.idle is None and limits.first is None):
            return
        from streamguard.backends import facts

        for found in facts.news_of_collisions(
            backend.name, {"idle": limits.idle, "first": limits.first}
        ):
            self.teller.tell(
                events.WindowCollides, limit=found.limit, window=found.window, advice=str(found)
            )

    def _is_covered(self, now: float) -> bool:
        """Whether the alarm comes before any deadline of a wait that begins now, or later.

        Only then may the watch stay steady, in which nobody looks at the alarm. So it is set as
        for a wait that begins now.
        """
        if self.state is not _WATCHING:
            return False
        watch = self.watch
        # The alarm is set as if a pull waited already, for then nobody will be asked to set it.
        if watch.work or self.entry is None or self.entry[0] > watch.horizon(now):
            watch.waiting_since = now
            self.reconsider()
            watch.waiting_since = None
        return True

    def heard(self) -> None:
        """The watch was told something by hand (T6)."""
        self._on(Event.ASIDE)
        if self.loop is None or self._shown_as is None:
            return
        now = self.loop.clock()
        if self._news is not None:
            self._news.look(now)
        self._tell_of_findings(now)

    def reconsider(self) -> None:
        """See that the timekeeper wakes us in time for the next deadline."""
        if self.loop is None or self.state is not _WATCHING:
            return
        when = self.watch.deadline()
        if self.block is not None:
            when = min(when, self.watch.total_deadline())
        if when != float("inf") and (self.entry is None or when < self.entry[0]):
            self.loop.timekeeper.put(self, when)

    def leave(self, *, is_cancelled: bool = False) -> bool:
        """The consumer leaves; True if the block's verdict is what surfaces.

        `is_cancelled`: by a cancellation, or by an error that came of one.
        """
        # A monitor is told of no end: a wait that nothing has answered has ended by our cut.
        reached, is_monitor = self._reached, self.pull is self.block
        was_ended = is_monitor and self.is_struck and reached is not None and reached.is_of_wait
        self._on(Event.LEFT_CUT if is_cancelled or was_ended else Event.LEFT)
        return self.state is State.SURFACING

    def end(
        self, error: BaseException | None = None, *, outcome: StreamOutcome | None = None
    ) -> None:
        """The attempt is over: nothing of it stays behind."""
        if self._on(Event.END) is Do.NOTHING:
            return
        assert self.loop is not None
        if self.watch.waiting_since is not None:  # a monitor's block may wait to its very end
            self.watch.answered(self.loop.clock())
        if self.entry is not None:
            self.loop.timekeeper.drop(self)
        if self._interrupting is not None:
            self._stop_interrupting()
        if self.tearing_down is None:
            self._reached = None
        if self.supervision is not None:
            if self.tearing_down is None:
                self.supervision.release()
                self.supervision = None  # if all begins anew, it may be with another process
            else:  # it may have been left, and go on by itself (D6)
                self.tearing_down.when_over(self.supervision.release)
        self.let_go(outcome or ("completed" if error is None else "failed"), error)

    def let_go(self, outcome: StreamOutcome, error: BaseException | None = None) -> None:
        """The stream has ended, which is told once; a block may still be open around it."""
        if self._shown_as is None:
            return
        assert self.loop is not None
        now = self.loop.clock()
        self._disappear()
        if self._news is not None:
            self._news.end(now)
        if outcome == "completed":
            outcome = self._how_it_completed(now)
        if self._is_heard(events.StreamEnded):
            self.teller.tell(events.StreamEnded, at=now, error=error, outcome=outcome)

    def _is_heard(self, kind: type[events.Event]) -> bool:
        """Whether anybody may be told of that, or looks at this stream already."""
        return (
            self._teller is not None
            or bool(self.plan.listeners)
            or logger.isEnabledFor(kind.loudest)
        )

    def _appear(self, now: float) -> None:
        """It is live: to be seen by `live()`, by the scopes around it, and in its activity."""
        # Another thread may be making the teller: then it sees to all of it, or we do.
        with _making:
            self._shown_as = activities.appears(self)
            is_known = self._teller is not None or self.plan.activity is not None
        if is_known:
            assert self.loop is not None
            self.activity.bind(self, now)
            self.teller.clock, self.teller.observers = self.loop.clock, self.plan.listeners
        if scopes.current() is not None:
            scopes.begins(self.activity)

    def _disappear(self) -> None:
        """It is not live any more."""
        with _making:  # or another thread, just now, would show it as one that is
            shown_as, self._shown_as = self._shown_as, None
        activities.disappears(shown_as)
        if self._teller is not None:
            self._teller.activity.unbind(self)

    def _how_it_completed(self, now: float) -> StreamOutcome:
        """A success in name may be hollow (B3)."""
        if left := self._left_in_background:
            self._tell_of(Found("abandoned", names=left), now)
            return "abandoned"
        return "empty" if self.watch.ended_empty else "completed"

    @property
    def _left_in_background(self) -> tuple[str, ...]:
        """The background work that nobody waits for if the stream ends now (B3).

        Where there is a client, that lives on, and so does its work (D1).
        """
        return () if self.is_left_open or self.plan.disconnects else self.watch.abandoned

    def forgotten(self) -> None:
        """The consumer has let go of the stream without a word: a bare `break`."""
        if not self.is_begun or self.loop is None:
            return
        if self.loop.is_running_here():
            self.end(outcome="left")
        else:  # collected after the run, or in another thread: there is nobody to be told
            self._disappear()

    # -- the way of a verdict ------------------------------------------------------------

    def on_time(self, now: float) -> bool:
        """The timekeeper's call: True asks for `on_confirmed` after the passes."""
        match self.state:
            case State.WATCHING:
                return self._judges(now)
            case State.DUE | State.INTERRUPTED:
                return True
            case State.INTERRUPTING:
                self._in_context(self._interrupt_is_over)
            case State.CUT | State.LAST_CUT:
                self._in_context(self._on, Event.DEAF)
            case State.STRUCK:
                self._in_context(self._on, Event.BLOCK_DEAF)
            case State.DECIDED if self.block is not None and self.watch.waiting_since is None:
                self._cancel_block()
            case State.DECIDED | State.CLAIMED | State.SURFACING:
                self._on(Event.DEAF)
            case _:
                pass
        return False

    def on_wake(self, now: float, slept: float) -> None:
        """The timekeeper's call: this machine had slept."""
        if not self.is_open or self.watch.waiting_since is None:
            return
        window = self.watch.limits.after_sleep
        is_lost = not self._may_work_here() and self.watch.woke(now)
        told = {"slept": slept, "window": window if is_lost else None}
        self._in_context(partial(self.teller.tell, events.MachineWoke, at=now, **told))
        self.reconsider()

    def _may_work_here(self) -> bool:
        """Whether its silence may be a process of this machine at work, as far as one can tell (B5)."""
        if self.supervision is None or self.supervision.tree is None:
            return False
        # Of a backend that is known, work in flight is; else only who wrote the limit can know.
        is_written = not isinstance(self.watch.limits.after_sleep, Default)
        return self.reading.backend is None and not is_written

    def _in_context(self, function: Callable[..., object], *args: object) -> None:
        """Call what may reach observers, as if the stream's user did.

        What ends the program is the user's, too, where a timer cannot raise it.
        """
        assert self.loop is not None
        try:
            self._context.run(function, *args)
        except BaseException as error:
            if isinstance(error, Exception) or self.loop.timers_may_exit:
                raise
            self.exit = error
            self.watch.leave_steady()
            target = self.pull if self.watch.waiting_since is not None else self.block
            if target is not None:
                target.cut(force=True)

    def _judges(self, now: float) -> bool:
        """Ask the watch: True if a limit is due."""
        judgement: Judgement = self.watch.judge(now)
        if judgement is None and self.block is not None:
            judgement = self.watch.overdue_total(now)
        if isinstance(judgement, Due):
            self._reached = _Reached(judgement, now)
            if self.watch.steady:
                self.watch.leave_steady()  # whoever answers now must say so
            self._on(Event.REACHED)
            return True
        if judgement is not None:
            self._in_context(self._tell_of, judgement, now)
        if self.watch.waiting_since is None:
            self.watch.leave_steady()  # that alarm covers no wait any more: the next one sets its own
        self.reconsider()
        return False

    def _tell_of(self, judgement: Half | Stalled | Found, now: float) -> None:
        limit, tell = judgement.limit, self.teller.tell
        match judgement:
            case Half(_, window):
                tell(events.HalfTime, at=now, limit=limit, window=window, vitals=self._vitals())
            case Stalled(_, late, moved):
                tell(events.LoopStalled, at=now, limit=limit, lateness=late, extended_by=moved)
            case Found():
                kind, facts = judgement.told()
                tell(getattr(events, kind), at=now, vitals=self._vitals(), **facts)

    def _vitals(self) -> Vitals | None:
        return None if self.supervision is None else self.supervision.vitals()

    def on_confirmed(self, now: float) -> None:
        """Whatever had arrived by the deadline has been handed over; it may not hold any more."""
        reached = self._reached
        assert reached is not None
        if self.state is State.DUE:
            if reached.due is None:
                reached.due = self.watch.due(now)
            if reached.due is None and self.block is not None:
                reached.due = self.watch.overdue_total(now)
            if reached.due is None:
                self._on(Event.GONE)
                return
            if self.mode == "warn":
                self._in_context(self._on, Event.TOLD)
                return
            # Is a turn being waited for that an interrupt could end?
            waits = self.watch.turn_open and self.watch.waiting_since is not None
            if self.plan.interrupts and waits and reached.due.limit not in _NO_INTERRUPT:
                self._in_context(self._on, Event.INTERRUPT)
                return
        self._cut(reached, now)

    def _cut(self, reached: _Reached, now: float) -> None:
        # `total` binds the whole block; every other limit surfaces at the pull (O5).
        due = reached.verdict or reached.due
        assert due is not None
        of_block = due.limit == "total" or self.watch.waiting_since is None
        target = self.block if of_block and self.block is not None else self.pull
        assert target is not None
        sent = target.cut()
        # It has been answered since, or the block left: what comes of that is the consumer's.
        if sent is Cut.NOBODY:
            self._on(Event.GONE)
            return
        # Not parked, or somebody else's cancel is under way: looked at again. But not for ever: a
        # source that spins is never parked, and one that swallows that cancel waits on.
        is_late = now - reached.noticed_at >= UNWINDING
        if sent is not Cut.SENT and not is_late:
            self._on(Event.BUSY)
            return
        # A candidate from here on. The facts are of this instant: a message that the cut pull
        # still gives must not change what the verdict says, if it stands after all.
        if reached.due is not None:
            reached.decided_at, reached.lateness = now, self.watch.lateness(reached.due, now)
            reached.first_seen = self.watch.first_seen
        reached.is_of_wait = self.watch.waiting_since is not None
        if sent is Cut.SENT:
            self._on(Event.BLOCK_CUT if target is self.block else Event.PULL_CUT)
        else:
            is_block = target is self.block
            self._in_context(self._on, Event.BLOCK_DEAF if is_block else Event.DEAF)
            # What comes now is too late anyway (T3). A spinning source that would hear a cancel is
            # free at once; without this it would be cancelled only after the teardown.
            target.cut(force=True)

    # The steps of the table, by name.

    def _rest(self) -> None:
        self._reached = None
        assert self.loop is not None
        self.loop.timekeeper.drop(self)
        self.reconsider()

    def _judge_again(self) -> None:
        assert self._reached is not None
        self._reached.due = None

    def _look_again(self) -> None:
        reached = self._reached
        assert self.loop is not None
        assert reached is not None
        self.loop.timekeeper.put(self, self.loop.clock() + reached.look)
        reached.look = min(reached.look * 2, _LAST_LOOK)

    def _warn(self) -> None:
        assert self.loop is not None
        assert self._reached is not None
        assert self._reached.due is not None
        due, now = self._reached.due, self.loop.clock()
        self._reached = None
        verdict = self._record(due, now)
        if (vitals := self._vitals()) is not None:
            verdict = replace(verdict, vitals=vitals)
        self.watch.mute(due)  # before an observer can begin a new silence
        self.teller.tell(events.TimedOut, at=now, verdict=verdict, enforced=False)
        self.reconsider()

    def _await_unwinding(self) -> None:
        assert self.loop is not None
        self.loop.timekeeper.put(self, self.loop.clock() + UNWINDING)

    def _withdraw(self) -> None:
        """Something outranked the verdict: a message, a finished body, another's cancel."""
        verdict = self._recorded()
        self._stop_interrupting()
        self._rest()
        self.teller.tell(events.CutWithdrawn, verdict=verdict)

    def _withdraw_cut(self) -> None:
        # Kept: a source that has only flushed lets our cancel go on with its next step. Then there
        # is no other verdict to explain it, and this one holds (`is_our_cut`).
        self._withdrawn = self._reached
        self._withdraw()

    def _stop_watching(self) -> None:
        assert self.loop is not None
        self._reached = None
        self.loop.timekeeper.drop(self)

    def _decide(self) -> None:
        """Make the verdict final; start the teardown (D1)."""
        assert self.loop is not None
        verdict, plan = self._examined(), self.plan
        self.loop.timekeeper.drop(self)
        self.tearing_down = tearing_down = TearingDown(
            self.teller,
            self.loop,
            self.supervision,
            disconnects=plan.disconnects,
            disconnect_timeout=plan.disconnect_timeout,
            kill_grace=plan.kill_grace,
            evidence=tuple(r.written for r in recording.among(plan.observers))
            if plan.observers
            else (),
        )
        try:
            self.teller.tell(
                events.TimedOut, at=tearing_down.began, verdict=verdict, enforced=True
            )
        finally:  # also if an observer ends the program
            if self._interrupting is not None:
                self._stop_interrupting()
            torn_down = partial(self._on, Event.TORN_DOWN)
            tearing_down.start(self.spawn or self.loop.spawn, torn_down)

    def _decide_unasked(self) -> None:
        """It is final while no pull waits: the next one raises it."""
        self._decide()
        assert self.loop is not None
        if self.pull is self.block:
            self._cancel_block()  # a monitor has no pulls
        elif self.block is not None and (when := self.watch.total_deadline()) != float("inf"):
            self.loop.timekeeper.put(self, when)  # nor may the consumer work on beyond that

    def _decide_deaf(self) -> None:
        self.teller.tell(events.PullDeaf, verdict=self._examined())
        self._decide()

    def _cancel_block(self) -> None:
        """Let the block learn of a verdict that is final."""
        if self.block is not None and self.state is State.DECIDED:
            is_sent = self.block.cut() is Cut.SENT
            self._on(Event.BLOCK_CUT if is_sent else Event.BUSY)

    def _cancel_again(self) -> None:
        """Nothing that the pull could bring counts any more, and it still waits (O6)."""
        assert self.pull is not None
        if self.pull.cut(force=True) is Cut.SENT and self._reached is not None:
            self._reached.is_forced = True
        self._await_end()

    def _await_end(self) -> None:
        """What has just been done may end the pull; if not, it is cancelled again."""
        assert self.loop is not None
        if self.watch.waiting_since is not None and self.pull is not self.block:
            self.loop.timekeeper.put(self, self.loop.clock() + _AGAIN)

    # -- the interrupt -------------------------------------------------------------------

    def _interrupt(self) -> None:
        assert self.loop is not None
        reached = self._reached
        assert reached is not None
        assert reached.due is not None
        now = self.loop.clock()
        reached.verdict = self._record(reached.due, now)
        verdict = self._examined()
        self.teller.tell(events.Interrupting, at=now, verdict=verdict, bound=INTERRUPTING)
        self._interrupting = InterruptRun(self.plan.interrupts, self.loop, self.interrupt_failed)
        self.loop.timekeeper.put(self, now + INTERRUPTING)

    def _stop_interrupting(self) -> None:
        if self._interrupting is not None:
            self._interrupting.stop()
            self._interrupting = None

    def _interrupt_is_over(self) -> None:
        """It did not bring the turn's end: go on with the verdict."""
        is_asked = self.watch.waiting_since is not None
        self._on(Event.FRUITLESS if is_asked else Event.UNATTENDED)

    def _give_up_interrupt(self) -> None:
        assert self.loop is not None
        assert self._reached is not None
        self._stop_interrupting()
        # The interrupt has had its time; the cut has all of its own 5 s.
        self._reached.noticed_at, self._reached.look = self.loop.clock(), _FIRST_LOOK
        self.loop.timekeeper.put(self, self._reached.noticed_at)

    def _end_badly(self) -> None:
        """The turn is over, but not well: the verdict stands, and that message is delivered."""
        if self.plan.outlives_interrupt:
            self._keep_client()
        self._decide_unasked()

    def _keep_client(self) -> None:
        """The interrupt has ended the turn, and the same client can go on: nothing is torn down."""
        self.is_spared = True
        self.plan = replace(self.plan, disconnects=(), process=None)
        if self.supervision is not None:
            self.supervision.release()
            self.supervision = None

    # -- the end of a verdict's way --------------------------------------------------------

    def decide(self, verdict: Verdict | None = None) -> None:
        """Make `verdict` final, or, of a pull that has raised, what it was cut for.

        If one is final already, this pull comes for that.
        """
        if self.tearing_down is not None:
            self._on(Event.CLAIM)
            return
        if verdict is None:
            self._on(Event.UNWOUND)
            return
        if not self.is_over:
            self._reached = _Reached(None, verdict=verdict)
            self.watch.leave_steady()  # or the next pull would ask the source once more
        self._on(Event.VERDICT)

    def is_our_cut(self, error: BaseException) -> bool:
        """Whether `error` is our own cancel, of a source that had let a message go before it (T3).

        For a cancellation that nobody else has sent. If it is, the verdict that was withdrawn holds;
        but not if what came ended the turn well: then the cancel is only how the stream ends.
        """
        if self._withdrawn is None or not loops.consists_of(error, self.cancelled):
            return False
        # Only where no other verdict is on its way: else the cancel is that one's.
        if self.state not in {State.WATCHING, State.DUE} | AFTER_INTERRUPT - CUT:
            return False
        if self.is_done:
            return True
        self._reached, self._withdrawn = self._withdrawn, None
        self._on(Event.LATE)
        return True

    def conclude(self, *, closed: bool, cause: BaseException | None) -> StreamGuardError | None:
        """What the consumer gets for the final verdict; None is a normal end. Decided once."""
        reached, tearing_down = self._reached, self.tearing_down
        if self.state is State.OVER or reached is None or tearing_down is None:
            is_forgotten = self._error is not None and self.error is None
            return self._raisable(cause) if is_forgotten else self.error
        verdict = reached.verdict
        assert verdict is not None
        teardown = tearing_down.result(closed=closed, was_forced=reached.is_forced)
        if reached.interrupt_error is not None:
            teardown = replace(teardown, interrupt_error=reached.interrupt_error.what)
        self.teardown = teardown
        self.teller.tell(events.TornDown, verdict=verdict, teardown=teardown)
        kind = ERRORS.get(verdict.limit)
        if verdict.limit == "exited" and (
            self.watch.completed or (verdict.exit == 0 and not self._knows_turns)
        ):
            kind = None  # T3, T10
        error: StreamGuardError | None = None
        if kind is not None:
            error = self._raisable(cause)
        self.end(error)
        return error

    def _raisable(self, cause: BaseException | None) -> StreamGuardError:
        """The error of the final verdict: made anew if nobody has kept the one that was made."""
        verdict = self.verdict
        assert verdict is not None
        error = ERRORS[verdict.limit](verdict=verdict, activity=self.activity)
        error.teardown = self.teardown
        tail = getattr(self.origin, "tail", None)
        error.tail = tail if isinstance(tail, Tail) else None
        self.blame(error, cause)
        if self._reached is not None and self._reached.interrupt_error is not None:
            note(error, self._reached.interrupt_error.where)
        for raised in self.tearing_down.raised if self.tearing_down is not None else ():
            note(error, raised.where)
        self._error = weakref.ref(error)
        return error

    def blame(self, error: StreamGuardError, cause: BaseException | None) -> None:
        """Let the verdict's error come of `cause`, unless that is our own cancellation."""
        is_our_cancel = cause is not None and loops.consists_of(cause, self.cancelled)
        blame(error, cause, is_our_cancel=is_our_cancel)

    # -- questions to the watch ----------------------------------------------------------

    def overdue_total(self) -> Verdict | None:
        """The verdict on `total`, if it is spent before anything is asked for (T1)."""
        if self.loop is None:
            return None  # nothing was asked for yet
        now = self.loop.clock()
        due = self.watch.overdue_total(now)
        return self._record(due, now) if due is not None else None

    def overspent(self) -> Verdict | None:
        """The verdict on a turn that begins beyond a ceiling: nothing is asked for."""
        due = self.watch.strike
        if due is None or self.mode != "enforce":
            return None
        assert self.loop is not None
        return self._record(due, self.loop.clock(), 0.0)

    def lost(self) -> Verdict | None:
        """The verdict that the lease is over; None without one."""
        assert self.loop is not None
        lease = self.watch.lease()
        return self._record(lease, self.loop.clock()) if lease is not None else None

    @property
    def _knows_turns(self) -> bool:
        """Whether the backend is one that ends each of its turns."""
        backend = self.reading.backend
        return backend is not None and backend.always_ends_turns

    def left_open(self) -> Verdict | None:
        """The verdict on a stream that ends while work is open in the background, where that is one."""
        is_asked_for = "abandoned" in self.plan.end_on
        return self._of_an_end("abandoned") if is_asked_for and self._left_in_background else None

    def truncated(self) -> Verdict:
        """The verdict on a stream that ended before its turn did (T10)."""
        return self._of_an_end("truncated")

    async def exited(self) -> Verdict | None:
        """The verdict on a stream that ended before its turn did, if its process failed."""
        # A backend that nobody knows may be a server, whose streams end and which lives on.
        grace = DRAIN if self._knows_turns else _LAST_WORDS
        if self.supervision is None or not await self.supervision.is_dead_within(grace):
            return None
        verdict = self._of_an_end("exited")
        return verdict if verdict.exit else None

    def _of_an_end(self, limit: Limit) -> Verdict:
        """The verdict on what no window had to be waited for."""
        assert self.loop is not None
        now = self.loop.clock()
        due = Due(limit, now, 0.0, self.watch.started or now)
        return replace(self._record(due, now, 0.0), window=None)

    def _record(
        self, due: Due, now: float, lateness: float | None = None, **known: Any
    ) -> Verdict:
        activity = self.activity
        return self.watch.verdict(
            due,
            now,
            lateness,
            name=activity.name,
            stream=activity.display_name,
            labels=dict(activity.labels),
            guard=self.plan.guard,
            token=activity.token,
            done=activity.done,
            scope=scopes.path(),
            when=datetime.now(UTC),
            exit=self.supervision.exit_status
            if due.limit == "exited" and self.supervision is not None
            else None,
            **known,
        )

    # -- telling -------------------------------------------------------------------------

    def process_died(self) -> None:
        """The process is dead, and its stream may be held open by what it started."""
        assert self.loop is not None
        if self.is_over or self.supervision is None or self.supervision.tree is None:
            return
        tree = self.supervision.tree
        now = self.loop.clock()
        self.teller.tell(events.ProcessExited, at=now, pid=tree.pid, exit=tree.exit_status)
        if self.verdict is not None or self.supervision.is_guess:
            return
        self.watch.exited(now)
        self.reconsider()
        if self._interrupting is not None and self.entry is not None:
            # What has died says no more than it has said.
            self.loop.timekeeper.put(self, min(self.entry[0], now + DRAIN))

    def interrupt_failed(self, error: BaseException) -> None:
        """An interrupt raised."""
        if self._reached is not None:
            self._reached.interrupt_error = Raised.by("interrupt", error)
        self.teller.tell(events.InterruptFailed, error=error)
        if self._interrupting is not None:
            self._interrupt_is_over()

    def _stamp(self, now: float) -> None:
        """Call the stamps that are due: each at most once in its interval (O8)."""
        if self._stamps is None:
            self._stamps = [-float("inf")] * len(self.plan.stamps)
        for i, (stamp, every) in enumerate(self.plan.stamps):
            if now - self._stamps[i] >= every:
                self._stamps[i] = now
                try:
                    stamp(self.activity)
                except ENDS_THE_PROGRAM:
                    raise
                except BaseException:  # noqa: BLE001 - a stamp never disturbs the stream
                    logger.exception("activity_stamp callback %r raised", stamp)

    # -- bound things --------------------------------------------------------------------

    def lease(self) -> None:
        """Take what is bound to the operator, unless another stream has it now (O1)."""
        for thing in self.plan.bound:
            holder = _holders.get(id(thing))
            if holder is not None and holder is not self and holder.keeps(thing):
                raise RuntimeError(
                    f"{thing!r} is bound to an operator that is guarding another stream right now "
                    f"({holder.activity!r}). One client, disconnect, process or activity serves one "
                    "stream at a time: make an operator for each, next to the stream it guards, or "
                    "close the other stream first (`await guarded.aclose()`)"
                )
            _holders[id(thing)] = self

    def keeps(self, thing: object) -> bool:
        """Whether no other stream may have `thing` now.

        What ends a backend is kept through a turn, also between two pulls: a verdict on either
        stream would end the other's.
        """
        if self.in_use or self.loop is None or not self.loop.is_running_here():
            return self.in_use  # of a loop that has ended, nothing is left to be ended
        is_in_turn = self.is_begun and not self.watch.completed
        return is_in_turn and thing is not self.plan.activity

    @property
    def cancelled(self) -> type[BaseException]:
        """The loop's cancellation."""
        assert self.loop is not None
        return self.loop.cancelled

    @property
    def in_use(self) -> bool:
        """Whether a pull is outstanding or the block is open."""
        return self.watch.waiting_since is not None or self.block is not None


_STEPS: Final[Mapping[Do, Callable[[Attempt], None]]] = {
    Do.REARM: Attempt.reconsider,
    Do.REST: Attempt._rest,
    Do.JUDGE_AGAIN: Attempt._judge_again,
    Do.LOOK_AGAIN: Attempt._look_again,
    Do.WARN: Attempt._warn,
    Do.INTERRUPT: Attempt._interrupt,
    Do.AWAIT_UNWINDING: Attempt._await_unwinding,
    Do.GIVE_UP_INTERRUPT: Attempt._give_up_interrupt,
    Do.DECIDE: Attempt._decide,
    Do.DECIDE_UNASKED: Attempt._decide_unasked,
    Do.DECIDE_DEAF: Attempt._decide_deaf,
    Do.END_BADLY: Attempt._end_badly,
    Do.AWAIT_END: Attempt._await_end,
    Do.CANCEL_AGAIN: Attempt._cancel_again,
    Do.WITHDRAW: Attempt._withdraw,
    Do.WITHDRAW_CUT: Attempt._withdraw_cut,
    Do.STOP_WATCHING: Attempt._stop_watching,
    Do.WITHDRAW_AND_STOP: Attempt._withdraw,
}
