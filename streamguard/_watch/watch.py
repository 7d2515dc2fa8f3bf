"""The heart: what time means for one attempt. No I/O, no clock of its own, no awaits.

Theory of operation
-------------------
Callers report facts, each with the instant `now` at which it held:

    begin      the first pull was made, or the block was entered
    asked      a pull found nothing ready: we are being kept waiting
    answered   that pull is over, whatever it brought
    see        one message, as the signals a reader made of it
    hear       what the backend says beside its stream, as signals
    hold, release, touch, mark_prompt      what the stream itself cannot show
    exited     the backend's process is dead; its stream may still be open
    woke       this machine had slept: what we wait for may be lost for ever

and ask two questions: `deadline()`, the next instant at which something must be decided (the
caller sleeps until then; nothing ticks), and `judge(now)`, what is to be decided now.

Two *sums* add up the time in which the backend kept us waiting (T1): `_silent` for `idle` and for
`first` in its place, `_lifeless` for `liveness`. They grow only between `asked` and `answered` while
a turn is open, and `_silent` only while no work is in flight and no hold is in force.
`_settle(now)` brings them up to date and is the first thing that every fact does, so that no fact
can rewrite the time before it. Everything else is a fixed instant plus a window. Deadlines are
computed by one formula and compared with `>=`, so that a verdict is never early and is always given
at its own deadline (T2).

What the signals tell of work done it passes on to its `deeds`, which the attempts at one prompt share.

What changes this state is in this file, but for what is in flight (`in_flight`) and repeated (`repetition`). It imports
only signals, errors, windows (the values it takes and gives), ends, done and the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

from streamguard._base import defaults
from streamguard._base.done import Deeds, Done
from streamguard._base.spending import CEILINGS
from streamguard._watch.ends import Announced, Holds, next_number
from streamguard._watch.in_flight import InFlight, Work
from streamguard._watch.repetition import Repetition
from streamguard._watch.windows import (
    Changed,
    Due,
    Found,
    Half,
    Judgement,
    Limits,
    Noticed,
    Stalled,
    end_of,
)
from streamguard.errors import Limit, Verdict
from streamguard.signals import (
    Liveness,
    Progress,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

__all__ = [
    "DRAIN",
    "Due",
    "Found",
    "Half",
    "Judgement",
    "Limits",
    "Stalled",
    "Watch",
    "Work",
]

_K = TypeVar("_K")
_V = TypeVar("_V")

# What a dead process has left in its pipes comes at once: silence longer than this is the end.
DRAIN: Final = 0.5
# T4: a deadline noticed later than this is a loop that did not run, not a silence.
LATE: Final = 0.25
STALL_EXTENSION: Final = 1.0
STALLS_IN_A_ROW: Final = 3

# Of limits that are due at the same instant the wider one is named: it is what binds.
_PRECEDENCE: Final[tuple[Limit, ...]] = (
    "lease",
    "total",
    "exited",
    "turn",
    "tools",
    "first",
    "idle",
    "liveness",
    "after_sleep",
    "exit_grace",
    "quiet",
    "repeats",
    *CEILINGS,
    "empty",
)
_SILENCES: Final[frozenset[Limit]] = frozenset({"idle", "first"})
_LIVENESS: Final[frozenset[Limit]] = frozenset({"liveness"})
_AFTER_SLEEP: Final[frozenset[Limit]] = frozenset({"after_sleep"})
_EXITED: Final[frozenset[Limit]] = frozenset({"exited"})
_OF_A_TURN: Final[frozenset[Limit]] = frozenset({"turn", "exit_grace"})
# Each piece of work has a clock of its own.
_OF_WORK: Final[frozenset[Limit]] = frozenset({"tools", "quiet"})
# Their clocks run on through the consumer's time, in which nobody judges them (T1).
_UNATTENDED: Final[frozenset[Limit]] = frozenset({"turn", "tools", "exit_grace"})

# They end by the clock, whether or not the loop ran.
_BY_THE_CLOCK: Final[frozenset[Limit]] = frozenset({"total", "lease"})
# A message has shown them, whatever the clock.
_SHOWN: Final[frozenset[Limit]] = frozenset({"repeats", *CEILINGS, "empty"})

_NAMELESS: Final = "a tool"

# Shared, and never changed: most streams need none.
_NO_WORK: Final = InFlight()
_NO_HOLDS: Final = Holds()
_NO_WAITS: Final[dict[str, float]] = {}
_NOTHING: Final[frozenset[Limit]] = frozenset()


_NONE_NOTICED: Final[Mapping[Limit, Noticed]] = MappingProxyType({})


@dataclass(slots=True)
class Watch:
    """Limits, gate and holds of one attempt: facts in, next deadline and judgement out."""

    limits: Limits

    # What others may read.
    turns: int = 0
    last_signal: str | None = None
    token: str | None = None
    _deeds: Deeds | None = None  # made by the first signal that tells of one
    started: float | None = None
    waiting_since: float | None = None
    turn_open: bool = False
    ended_well: bool = False  # the latest turn that has ended
    ended_empty: bool = False  # … and it did nothing (B3)
    # What a message has shown: to be told, or, in `end_on`, to be ended for.
    found: tuple[Found, ...] = ()
    struck: Due | None = None
    _unsaid: Found | None = None  # what it was struck for
    concern: Limit | None = None  # the latest that was found, for whoever looks
    progressed: bool = False
    # While steady, a message that is plain progress changes nothing but `messages`, `mark` and
    # `waiting_since`, because the sums are zero before and after it. Callers may then set these
    # instead of telling `asked`, `answered` and `see`: three calls less for each message.
    steady: bool = False
    # For who does so, and set by him: the type whose every message is plain progress, and how many of
    # them a pull may still bring with nothing to look at first. Each is told by taking one off `left`.
    plain: type | None = None
    left: int = 0
    upto: int = 0  # messages, once none is left

    # Seconds the backend kept us waiting, settled up to `mark`.
    mark: float = 0.0
    _silent: float = 0.0
    _lifeless: float = 0.0
    _awake: float | None = None  # … since this machine woke, if nothing has come since (B5)
    _last_message: float | None = None
    _last_progress: float | None = None
    _in_flight: InFlight = _NO_WORK
    _holds: Holds = _NO_HOLDS
    changed: Changed | None = None  # for whoever observes
    # Waits that were announced since anything else has happened, and the latest end of each (T6).
    _waits: dict[str, float] = field(default_factory=lambda: _NO_WAITS)
    _armed: bool = False
    _turn_started: float | None = None  # with its first pull or message
    _exit_from: float = 0.0
    _exited_at: float | None = None
    _more_expected: bool = False
    _half_told: bool = False
    # Seconds the backend kept us waiting with no hold in force, in all (B1).
    _attended: float = 0.0
    _repetition: Repetition | None = None
    _has_worked: bool = False  # in this turn
    _messages_before: int = 0  # … it began
    _muted: frozenset[Limit] = _NOTHING
    # Each clock that was found to be over, as long as it runs. Work in flight has its own.
    _noticed: Mapping[Limit, Noticed] = field(default_factory=lambda: _NONE_NOTICED)

    # -- facts ---------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The first pull was made, or the block was entered: `total` runs, a turn is open.

        Said again, where a source goes on after an error of its own: with which process is open.
        """
        self._settle(now)
        self._exited_at = None
        if self.started is None:
            self.started = now
            if not self.turn_open:
                self._open_turn()

    def mark_prompt(self, now: float) -> None:
        """A prompt was sent: a new turn begins (T14)."""
        self._settle(now)
        self._open_turn()
        self._turn_started = now

    def asked(self, now: float) -> None:
        """A pull found nothing ready: from here on the backend keeps us waiting."""
        self._settle(now)
        self.waiting_since = now
        if self._turn_started is None:
            self._turn_started = now

    def prompted_before(self, now: float) -> float:
        """When the turn began, or as long before `now` as may pass in silence: no limit is past."""
        began = now if self._turn_started is None else min(self._turn_started, now)
        windows = (self.limits.idle, self.limits.first)
        return max(began, *(now - window for window in windows if window is not None))

    def answered(self, now: float) -> None:
        """The pull that waited is over."""
        self._settle(now)
        self.waiting_since = None

    def see(
        self,
        signals: Iterable[Signal],
        now: float,
        wall: float = 0.0,
        *,
        is_replayed: bool = False,
    ) -> None:
        """One message came. `wall` is the epoch at `now`, for holds with a wall-clock end.

        `is_replayed`: it came before, and tells of nothing done since.
        """
        self._settle(now)
        self.upto += 1
        self._last_message = now
        if self._turn_started is None:
            self._turn_started = now
        self._hear_again()
        progress_last = False  # a message may also say nothing at all
        for signal in signals:
            self._take(signal, now, wall, is_new=not is_replayed)
            progress_last = isinstance(signal, Progress)
        self._say_what_ends_nothing()
        self.steady = (
            progress_last
            and self._holds is _NO_HOLDS
            and not self._in_flight.listened
            and self._exited_at is None
            and self.struck is None
        )

    def hear(self, signals: Iterable[Signal], now: float, wall: float = 0.0) -> None:
        """Something was said beside the stream: as in a message, but none was delivered."""
        self._settle(now)
        self._hear_again()
        for signal in signals:
            self._take(signal, now, wall)

    def hold(self, key: object, until: float, now: float) -> None:
        """Something the stream cannot show pauses `idle` until released, or `until` (T6)."""
        self._settle(now)
        self._hold(key, until, now)

    def release(self, key: object, now: float) -> None:
        """A hold is over. Unknown ones, and those that have lapsed, are ignored."""
        self._settle(now)
        self._release((key,))

    def touch(self, now: float) -> None:
        """Outside evidence of progress: as good as a message, but opens no turn."""
        self._settle(now)
        self._progress(now)

    def exited(self, now: float) -> None:
        """The backend's process is dead. What has not been read of it may still come."""
        self._settle(now)
        self._exited_at = now
        self._restart(_EXITED)

    def woke(self, now: float) -> bool:
        """This machine had slept. True: what is waited for has `after_sleep` to show itself (B5).

        Only where nothing but the other side is waited for: work of this machine's own has slept as
        well and goes on, and a hold is somebody's to end.
        """
        self._settle(now)
        if self.limits.after_sleep is None or self.waiting_since is None or not self.turn_open:
            return False
        if self._holds is not _NO_HOLDS or self._gated():
            return False
        self._awake = 0.0
        self._restart(_AFTER_SLEEP)
        return self._after_sleep() is not None

    def mute(self, due: Due) -> None:
        """Stop judging what was told (mode `warn`): once per silence, entry or turn."""
        self.leave_steady()
        if due.limit == "tools":
            # What was in flight paused `idle` up to here, and no longer (T5).
            self._settle(max(self.mark, due.deadline))
            self._in_flight.lapse(due.deadline)
        elif due.limit == "quiet":
            self._in_flight.tell_quiet(due.key)
        elif due.limit in _SHOWN:
            self.struck = None
            if due.limit in CEILINGS:  # each message from here on is beyond it
                self._muted = self._muted.union((due.limit,))
        else:
            self._muted = self._muted.union((due.limit,))

    def leave_steady(self) -> None:
        """From here on every fact must be told. Not `steady = False`: that forgets progress."""
        if self.steady:
            self._last_progress = self._last_message = self.mark
            self.steady = False
            self.plain = None
            self.grant(0)

    def came_steadily(self) -> None:
        """A message came that changes nothing, while all is steady: another of those that were granted, if any was."""
        if self.left:
            self.left -= 1
        else:
            self.upto += 1

    def grant(self, messages: int) -> None:
        """So many may come, from here on, with nothing to look at before."""
        self.upto += messages - self.left
        self.left = messages

    # -- questions -----------------------------------------------------------------------

    @property
    def work(self) -> Mapping[str, Work]:
        """Work in flight by id, as it began. It changes in place: another thread goes through a copy."""
        return self._in_flight.work

    @property
    def holds(self) -> Holds:
        """Those in force; they change in place."""
        return self._holds

    @property
    def deeds(self) -> Deeds:
        """What was done."""
        if self._deeds is None:
            self._deeds = Deeds()
        return self._deeds

    @deeds.setter
    def deeds(self, deeds: Deeds) -> None:
        self._deeds = deeds

    def done(self, attempts: int = 1) -> Done:
        """A count of it. Any thread may ask, and makes nothing that it would have to share."""
        return (self._deeds or Deeds()).so_far(attempts)

    @property
    def messages(self) -> int:
        """How many came."""
        return self.upto - self.left

    @property
    def completed(self) -> bool:
        """A TurnEnded was seen and no further turn has begun (T3)."""
        return self.turns > 0 and not self.turn_open

    @property
    def last_message(self) -> float | None:
        """When the last message came that was waited for, or the wait after it began."""
        return self.mark if self.steady else self._last_message

    @property
    def last_progress(self) -> float | None:
        """When the backend last did something, as far as messages show."""
        return self.last_message if self.steady else self._last_progress

    @property
    def first_seen(self) -> bool:
        """Whether the backend ever did something."""
        return self.progressed or self.turns > 0

    def is_held(self, now: float) -> bool:
        """Whether a hold is in force. May be asked from any thread."""
        return self._holds.last > now

    def deadline(self) -> float:
        """The next instant at which `judge` has something to say; inf if never."""
        nearest = math.inf
        for due in self._dues(-math.inf):
            nearest = min(nearest, self._decidable(due), self._half_time(due))
        return nearest

    def horizon(self, now: float) -> float:
        """Before when no wait that begins now, or later, wants a decision, with nothing in flight.

        A silence starts anew with each message; a turn does not, and `total` has its alarm from
        the first wait, or the block's entry, on.
        """
        nearest = now + self.limits.horizon
        if self.limits.turn is None or self._turn_started is None:
            return nearest
        return min(nearest, end_of(self.limits.turn, self._turn_started))

    def total_deadline(self) -> float:
        """When `total` is spent, whether or not anybody waits; inf if it is off or told."""
        return math.inf if (total := self._total()) is None else total.deadline

    def overdue_total(self, now: float) -> Due | None:
        """`total`, if it is spent: judged even when no pull is outstanding (T1)."""
        return total if (total := self._total()) is not None and now >= total.deadline else None

    def lease(self) -> Due | None:
        """The lease, and when it ends unless it is renewed before; None without one."""
        if self.limits.lease is None:
            return None
        since, until = self.limits.lease()
        return Due("lease", until, until - since, since)

    def due(self, now: float) -> Due | None:
        """The limit that has been reached, without the question whether the loop ran."""
        return self._reached([due for due in self._dues(now) if self._ends(due)], now)

    def judge(self, now: float) -> Judgement:
        """What is to be decided at `now`. A stall is decided here, by moving the limit (T4)."""
        judgement = self._judged(now)
        if not isinstance(judgement, Due) or self._ends(judgement):
            return judgement
        self._in_flight.tell_quiet(judgement.key)
        self.concern = judgement.limit
        spent = now - judgement.since
        return Found("quiet", judgement.window, spent, (judgement.work or "",), judgement.key)

    def _ends(self, due: Due) -> bool:
        """Whether it ends anything, or is only told (B1)."""
        return due.limit != "quiet" or "quiet" in self.limits.end_on

    def _judged(self, now: float) -> Due | Half | Stalled | None:
        dues = self._dues(now)
        if (due := self._reached(dues, now)) is None:
            for silence in dues:
                if now >= self._half_time(silence):
                    self.leave_steady()
                    self._half_told = True
                    return Half(silence.limit, silence.window)
            return None
        self.leave_steady()
        if due.limit in _BY_THE_CLOCK or due.limit in _SHOWN:
            return due
        lateness = now - self._decidable(due)
        noticed = self._noticed_of(due) or Noticed(0)
        if noticed.stalls >= STALLS_IN_A_ROW:
            return due
        if lateness <= min(LATE, due.window / 2):
            # It was noticed in time: if somebody else's cancel puts the verdict off, that is no
            # stall, however much later it is judged again.
            self._notice(due, Noticed(STALLS_IN_A_ROW, noticed.until))
            return due
        extension = min(due.window, STALL_EXTENSION)
        self._notice(due, Noticed(noticed.stalls + 1, now + extension))
        return Stalled(due.limit, lateness, extension)

    def _noticed_of(self, due: Due) -> Noticed | None:
        if due.limit in _OF_WORK:
            return self._in_flight.noticed(due)
        return self._noticed.get(due.limit)

    def _notice(self, due: Due, noticed: Noticed) -> None:
        if due.limit in _OF_WORK:
            self._in_flight.notice(due, noticed)
        else:
            self._noticed = {**self._noticed, due.limit: noticed}

    def lateness(self, due: Due, now: float) -> float:
        """How long `due` could have been decided already."""
        return max(0.0, now - self._decidable(due))

    def verdict(
        self, due: Due, now: float, lateness: float | None = None, **known: Any
    ) -> Verdict:
        """`due`, decided at `now`, as a record of all that is known here, and `known` besides."""
        known.setdefault("token", self.token)
        known.setdefault("first_seen", self.progressed or self.turns > 0)
        if "done" not in known:
            known["done"] = self.done()
        last = self.last_message
        return Verdict(
            limit=due.limit,
            window=due.window,
            elapsed=now - due.since,
            lateness=self.lateness(due, now) if lateness is None else lateness,
            at=now,
            messages=self.messages,
            last_signal=self.last_signal,
            last_message_age=None if last is None else now - last,
            in_flight=tuple(entry.name or key for key, entry in self.work.items()),
            work=due.work,
            amount=due.amount,
            **known,
        )

    # -- what signals do -----------------------------------------------------------------

    def _take(  # noqa: C901, PLR0912 - a table
        self, signal: Signal, now: float, wall: float, *, is_new: bool = True
    ) -> None:
        self.last_signal = type(signal).__name__
        if type(signal) is Progress and self.turn_open:  # most are
            self._progress(now)
            return
        if is_new:
            self.deeds.note(signal)
        match signal:
            case Liveness():
                self._armed = True
                return
            case Usage():
                if self.limits.ceilings:
                    self._look_at_ceilings(now)
                return
            case WorkProgressed() if not self.turn_open:
                self._in_flight.hear(signal.id, self._attended)
                return  # background work's own: it opens no turn (T14)
            case SessionOpened():
                self.token = signal.token if signal.resumable else None
                self._end_idle()
                return
            case TurnEnded():
                is_empty = self._is_empty(signal)
                self._progress(now)
                self.ended_well = signal.outcome == "success"
                self.ended_empty = is_empty
                self._close_turn(now, more_expected=signal.more_expected)
                if is_empty:
                    self._find(Found("empty"), now)
                return
            case Progress() | WorkStarted() if not self.turn_open:
                self._open_turn()
                self._turn_started = now
            case Waiting():
                self._announce(signal, now, wall)
                return
            case WaitEnded() if Announced(signal.id) not in self._holds:
                # Backends say "allowed" unasked; it is a sign, but nothing was done yet.
                self._end_idle()
                return
            case _:
                pass
        self._progress(now)
        match signal:
            case WorkStarted():
                self._open_work(signal, now)
            case WorkProgressed():
                self._in_flight.hear(signal.id, self._attended)
            case WorkFinished():
                self._close_work(signal, now)
            case WaitEnded():
                self._release((Announced(signal.id),))
            case _:
                pass

    def _open_work(self, signal: WorkStarted, now: float) -> None:
        self._has_worked |= signal.scope != "hook"
        if self.limits.repeats is not None:
            if self._repetition is None:
                self._repetition = Repetition(self.limits.repeats)
            self._repetition.started(signal)
        in_flight = self._in_flight
        if signal.parent is not None:
            in_flight.hear(signal.parent, self._attended)
        if not signal.id:
            self._drop_work((signal.id,))  # nobody can tell which it is: the latest has just begun
        # A second start of the same id is the same work (partial, then final): S3.
        if signal.id in in_flight.work:
            if signal.background:
                in_flight.outlive_turn(signal.id)
            return
        if in_flight is _NO_WORK:
            self._in_flight = in_flight = InFlight()
        allowance = self.limits.allowance(signal.name)
        allowance = math.inf if allowance is None else allowance
        name = signal.name or ("" if signal.id else _NAMELESS)
        begun_by = None if signal.parent is None else in_flight.goes_on_as(signal.parent)
        work = Work(name, now, allowance, signal.background, signal.scope, begun_by)
        work.quiet, is_named = self.limits.quiet_for(signal.name)
        in_flight.begin(signal.id, work)
        if is_named and work.quiet is not None:
            in_flight.listen(signal.id, work.quiet, self._attended)
        if self.changed is not None:
            self.changed.work[signal.id] = None

    def _close_work(self, signal: WorkFinished, now: float) -> None:
        if self._repetition is not None and (found := self._repetition.finished(signal)):
            self._find(found, now)
        if signal.id not in self._in_flight.work:
            return
        self._drop_work((signal.id,))
        if not self.turn_open:
            self._exit_from = now  # T14: the grace begins when background work is done

    def _drop_work(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            if self._in_flight.end(id_, self._attended) and self.changed is not None:
                self.changed.work[id_] = None

    # -- beyond silence ------------------------------------------------------------------

    def _find(self, finding: Found, now: float) -> None:
        """A message has shown it: it is to be told, or ends the stream where that was asked for."""
        if finding.limit not in self.limits.end_on:
            self.found = (*self.found, finding)
            self.concern = finding.limit
        elif self.struck is None:
            since = now if self.started is None else self.started
            work = ", ".join(finding.names) or None
            due = Due(finding.limit, now, finding.window, since, work, amount=finding.amount)
            self.struck, self._unsaid = due, finding

    def _say_what_ends_nothing(self) -> None:
        """A turn that is over is not ended for what its last message has shown (T3): so that is told."""
        if self.struck is not None and self._unsaid is not None and self.strike is None:
            self.found, self._unsaid = (*self.found, self._unsaid), None

    def spent_before(self, now: float) -> None:
        """What was used up before counts, too: a turn that begins beyond a ceiling is not asked for (B4)."""
        if self.limits.ceilings:
            self._look_at_ceilings(now)

    def _look_at_ceilings(self, now: float) -> None:
        """What was used up may be beyond a ceiling now: told once, ended for whenever it is seen (B4)."""
        spending = self.deeds.spending
        if spending is None:
            return
        for limit, ceiling in self.limits.ceilings.items():
            spent = spending.spent(limit)
            if spent <= ceiling or limit in self._muted:
                continue
            if limit in self.limits.end_on or limit not in spending.told:
                spending.told |= {limit}
                self._find(Found(limit, ceiling, spent), now)

    def _is_empty(self, ended: TurnEnded) -> bool:
        """Whether the turn ends with success and did nothing (B3)."""
        if not self.turn_open or ended.outcome != "success" or self._has_worked:
            return False
        if ended.answered is not None:
            return not ended.answered
        # A message that is all there is may hold the answer.
        return not self.progressed and self.messages - self._messages_before > 1

    @property
    def strike(self) -> Due | None:
        """What the stream is to be ended for. A turn that is over stays what it was (T3); the next one is not."""
        due = self.struck
        return due if due is not None and (self.turn_open or due.limit == "empty") else None

    @property
    def abandoned(self) -> tuple[str, ...]:
        """What is in flight in the background: if the stream ends now, nobody waits for it any more."""
        return tuple(entry.name or key for key, entry in self.work.items() if entry.background)

    def _announce(self, signal: Waiting, now: float, wall: float) -> None:
        """A wait begins, or is announced again: then it is the same one, and no sign of work (T6).

        It is another one as soon as anything else has happened: whatever resets `idle`, but for the
        beginning of other waits, which may all be announced in turns for ever.
        """
        key = Announced(signal.id)
        match signal.until:
            case None:
                until = now + defaults.HOLD
            case datetime() as moment:
                until = now + (moment.timestamp() - wall)
            case epoch:
                until = now + (epoch - wall)
        latest = self._waits.get(signal.id)
        if latest is None:
            self._stir(now)
            if self._waits is _NO_WAITS:
                self._waits = {}
            self._waits[signal.id] = max(until, now + defaults.HOLD)
        elif signal.until is None and (held := self._holds.get(key)) and held[0] > now:
            return  # its end is known
        elif (until := min(until, latest)) <= now and key not in self._holds:
            return
        self._hold(key, until, now)

    def _hold(self, key: object, until: float, now: float) -> None:
        # Whichever way the last hold ends, a fresh window follows (T6). So what was before is
        # forgotten now, and nobody has to be told when a hold lapses.
        self._fresh_window()
        if self._holds is _NO_HOLDS:
            self._holds = Holds()
        known = self._holds.get(key)
        self._holds.put(key, max(until, now), next_number() if known is None else known[1])
        if self.changed is not None:
            self.changed.holds[key] = None

    def _release(self, keys: Collection[object]) -> None:
        for key in keys:
            self._holds.drop(key)
        self._are_over(keys)

    def _are_over(self, holds: Iterable[object]) -> None:
        if self.changed is not None:
            self.changed.holds.update(dict.fromkeys(holds))
        if not self._holds:
            self._holds = _NO_HOLDS

    # -- turns and silences --------------------------------------------------------------

    def _open_turn(self) -> None:
        self.turn_open = True
        self.progressed = self._has_worked = False
        self._messages_before = self.messages
        self._turn_started = None
        if self._repetition is not None:
            self._repetition.forget()
        if self.struck is not None and self.struck.limit == "repeats":
            self.struck = None  # of the turn before, which has ended all the same
        self._waits = _NO_WAITS
        self._restart(_OF_A_TURN)
        self._fresh_window()

    def _close_turn(self, now: float, *, more_expected: bool) -> None:
        self.turns += 1
        self.turn_open = False
        self._exit_from = now
        self._more_expected = more_expected
        self._restart(_OF_A_TURN)
        self._drop_work(self._in_flight.of_turn)
        if not self._in_flight.work:
            self._in_flight = _NO_WORK
        self._release(self._holds.announced)

    def _progress(self, now: float) -> None:
        self._waits = _NO_WAITS
        self._stir(now)

    def _stir(self, now: float) -> None:
        """What resets `idle` and ends `first`."""
        self.progressed = True
        self._last_progress = now
        self._fresh_window()

    def _end_idle(self) -> None:
        """What resets `idle` but does not end `first`, nor the silence before it (S0)."""
        self._waits = _NO_WAITS
        if self.limits.first is None or self.progressed:
            self._fresh_window()

    def _fresh_window(self) -> None:
        self._silent = 0.0
        self._half_told = False
        self._restart(_SILENCES)
        self._sleep_is_over()

    def _hear_again(self) -> None:
        """A message has come: the line is alive."""
        self._lifeless = 0.0
        self._restart(_LIVENESS)
        self._sleep_is_over()

    def _sleep_is_over(self) -> None:
        """Whether this machine has slept says nothing of what is waited for from here on."""
        if self._awake is not None:
            self._awake = None
            self._restart(_AFTER_SLEEP)

    def _restart(self, limits: frozenset[Limit]) -> None:
        """The clocks of `limits` start anew: what was told of them and their stalls are past."""
        if self._noticed:
            self._noticed = _but(self._noticed, limits)
        if self._muted:
            self._muted = self._muted.difference(limits) or _NOTHING

    # -- time ----------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Bring the sums up to `now`, ending the holds that have lapsed on the way."""
        if self.steady:
            self.leave_steady()
        since, self.mark = self.mark, now
        quiet_from = since
        if self._holds is not _NO_HOLDS:
            quiet_from = self._holds.last
            if lapsed := self._holds.over(now):
                self._are_over(lapsed)
        if self.waiting_since is None:
            return
        is_held = self._holds is not _NO_HOLDS
        if not is_held:
            self._attended += now - quiet_from
        if not self.turn_open:
            return
        self._lifeless += now - since
        if self._awake is not None:
            self._awake += now - since
        if not is_held and not self._gated():
            self._silent += now - quiet_from

    def _gated(self) -> bool:
        return self._in_flight is not _NO_WORK and self.limits.gate and self._in_flight.pauses

    def _silence(self) -> Due | None:
        """The silence that is being measured: `first` until a turn's first progress."""
        limit: Limit = "idle" if self.progressed or self.limits.first is None else "first"
        window = self.limits.idle if limit == "idle" else self.limits.first
        if window is None or self._gated():
            return None
        is_held = self._holds is not _NO_HOLDS
        since = self._holds.last if is_held else self.mark - self._silent
        return Due(limit, end_of(window, since), window, since)

    def _after_sleep(self) -> Due | None:
        """The end of what is waited for since this machine woke, if any silence is limited (B5)."""
        if (window := self.limits.after_sleep) is None or self._awake is None:
            return None
        is_listening = self._armed and self.limits.liveness is not None
        if not is_listening and self._silence() is None:
            return None
        since = self.mark - self._awake
        return Due("after_sleep", end_of(window, since), window, since)

    def _half_time(self, due: Due) -> float:
        """When half of a silence's window is gone, if that is to be told and was not."""
        if self._half_told or not self.limits.half_time or due.limit not in _SILENCES:
            return math.inf
        return due.deadline - due.window / 2

    def _total(self) -> Due | None:
        if (window := self.limits.total) is None or self.started is None or "total" in self._muted:
            return None
        return Due("total", end_of(window, self.started), window, self.started)

    def _dues(self, now: float) -> list[Due]:
        """Every limit whose clock runs, with its deadline; of work in flight what is next, or over `now`.

        None runs unless a pull waits.
        """
        if self.waiting_since is None:
            return []
        dues = self._turn_dues(now) if self.turn_open else self._between_turns()
        if self.limits.total is not None and (total := self._total()) is not None:
            dues.append(total)
        if (lease := self.lease()) is not None:
            dues.append(lease)
        if self._exited_at is not None:
            since = max(self._exited_at, self.waiting_since)
            dues.append(Due("exited", end_of(DRAIN, since), DRAIN, since))
        if self._in_flight.listened:
            until = self.mark if self._holds is _NO_HOLDS else self._holds.last
            dues += self._in_flight.quiet_dues(now, until, self._attended)
        if (strike := self.strike) is not None:
            dues.append(strike)
        return [due for due in dues if due.limit not in self._muted] if self._muted else dues

    def _turn_dues(self, now: float) -> list[Due]:
        dues: list[Due] = []
        if (silence := self._silence()) is not None:
            dues.append(silence)
        if self._armed and (window := self.limits.liveness) is not None:
            since = self.mark - self._lifeless
            dues.append(Due("liveness", end_of(window, since), window, since))
        if self._awake is not None and (woken := self._after_sleep()) is not None:
            dues.append(woken)
        if (window := self.limits.turn) is not None and (began := self._turn_started) is not None:
            dues.append(Due("turn", end_of(window, began), window, began))
        if self._in_flight is not _NO_WORK and self.limits.gate:
            dues += self._in_flight.dues(now)
        return dues

    def _between_turns(self) -> list[Due]:
        """After a turn's end: only `exit_grace`, once background work is done (T14)."""
        if (window := self.limits.exit_grace) is None:
            return []
        since = max(self._exit_from, self._in_flight.last_until)
        if self._more_expected:
            # An announced turn that never comes lapses as an announced wait does.
            since = max(since, self._exit_from + defaults.HOLD)
        return [Due("exit_grace", end_of(window, since), window, since)]

    def _decidable(self, due: Due) -> float:
        """When `due` can be decided: at its deadline, a stall's extension and T1 permitting.

        What is later than this is a stall. So what ran on where nobody judges it (before the pull,
        before the turn) is decided at the first instant at which somebody does, and late only
        from there on. A silence adds up under our eyes: it may be over unnoticed just once.
        """
        noticed = self._noticed_of(due)
        if due.limit in _BY_THE_CLOCK or (noticed is None and due.limit not in _UNATTENDED):
            return due.deadline
        when = due.deadline if noticed is None else max(due.deadline, noticed.until)
        for judged in (self.waiting_since, self._turn_started):
            if judged is not None and judged > when:
                when = judged
        return when

    def _reached(self, dues: list[Due], now: float) -> Due | None:
        first: Due | None = None
        for due in dues:
            is_reached = now >= due.deadline and now >= self._decidable(due)
            if is_reached and (first is None or _rank(due) < _rank(first)):
                first = due
        return first


def _but(mapping: Mapping[_K, _V], keys: Collection[_K]) -> Mapping[_K, _V]:
    """`mapping` without `keys`."""
    if mapping.keys().isdisjoint(keys):
        return mapping
    return {key: value for key, value in mapping.items() if key not in keys}


def _rank(due: Due) -> tuple[float, int]:
    return due.deadline, _PRECEDENCE.index(due.limit)
