"""The rules of time, told the slow way: an oracle for the watch.

It keeps every fact with its instant and, for each question, lives the whole attempt again from
the first fact on, cutting time wherever anything changes. Nothing is carried from one question to
the next, nothing is clever, and nothing is shared with the watch but its vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streamguard.signals import (
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

SHOWN = ["repeats", "tokens", "cost", "calls", "empty"]
WIDEST_FIRST = [
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
    *SHOWN,
]
DRAIN = 0.5
NEVER = math.inf


@dataclass(frozen=True)
class Limit:
    """A limit that will be reached if nothing else happens."""

    limit: str
    deadline: float
    window: float
    since: float
    work: str | None = None
    key: str = ""


@dataclass
class Entry:
    """A piece of work in flight."""

    name: str
    since: float
    allowance: float
    background: bool
    told: bool = False
    parent: str | None = None
    quiet: float | None = None
    heard: float | None = None
    quiet_told: bool = False

    @property
    def until(self):
        return self.since + self.allowance


@dataclass
class World:
    """What is the case at one instant, after all facts up to then."""

    now: float = -math.inf
    started: float | None = None
    asked: float | None = None
    messages: int = 0
    turns: int = 0
    in_turn: bool = False
    turn_from: float | None = None
    progressed: bool = False
    grace_from: float = 0.0
    more_expected: bool = False
    token: str | None = None
    last_progress: float | None = None
    work: dict[str, Entry] = field(default_factory=dict)
    holds: dict[Any, float] = field(default_factory=dict)
    died: float | None = None  # the process behind the stream
    pings: bool = False
    silent: float = 0.0  # how long the backend has kept us waiting, work and holds aside
    lifeless: float = 0.0  # how long not even a ping came, while we waited
    awake: float | None = None  # B5: … since the machine woke, if nothing has come since
    half_told: bool = False
    told: set[str] = field(default_factory=set)
    noticed: dict[Any, tuple[int, float]] = field(default_factory=dict)  # stalls, not before
    waits: dict[str, float] = field(default_factory=dict)  # announced, and held for how long
    attended: float = 0.0  # how long it was waited for at all, holds aside
    has_worked: bool = False
    progressed_before: bool = False  # the signal that is looked at
    turn_message: int = 0
    rows: dict[Any, Row] = field(default_factory=dict)
    calls: int = 0
    found: list[Any] = field(default_factory=list)
    unsaid: Any = None
    struck: Limit | None = None  # what it is to be ended for


@dataclass
class Row:
    """B2: all that one agent has begun in a turn, in that order, and what came of it."""

    begun: list[list[Any]] = field(default_factory=list)  # id, name, asked, what came of it
    steps: list[Any] = field(default_factory=list)
    told: int = 0

    def over(self) -> Iterator[Any]:
        """The steps that are over now, in the order in which they began."""
        while self.begun and self.begun[0][3] is not None:
            _, name, asked, (outcome, error) = self.begun.pop(0)
            yield None if asked is None or outcome is None else (name, asked, outcome, error)

    def add(self, step: Any, times: int) -> int:
        """The period of what is found with this step, 0 if nothing is."""
        if step is None:
            self.steps, self.told = [], 0
            return 0
        self.steps.append(step)
        if self.told and step == self.steps[-1 - self.told]:
            return 0
        self.told = next((p for p in (1, 2, 3, 4) if self.is_periodic(p, times)), 0)
        return self.told

    def is_periodic(self, period: int, times: int) -> bool:
        """Whether the last steps are so many rounds of that length."""
        steps, others = self.steps, period * (times - 1)
        return len(steps) >= period + others and all(
            steps[-i] == steps[-i - period] for i in range(1, others + 1)
        )


class Naive:
    """The same questions as the watch's, answered from the list of facts."""

    def __init__(self, limits):
        self.limits = limits
        self.facts: list[tuple[float, str, Any]] = []
        self.lived: tuple[Any, World] | None = (
            None  # the last answer: several questions are asked at once
        )

    def tell(self, now: float, what: str, value: Any = None) -> None:
        self.facts.append((now, what, value))

    def see(self, signals: Iterable[Any], now: float, wall: float) -> None:
        self.tell(now, "message")
        for signal in signals:
            self.tell(now, "signal", (signal, wall))
        self.tell(now, "told_all")

    def mute(self, due: Any) -> None:
        """T5: work pauses `idle` until its allowance ends, or until what was told last if later."""
        answers = {"half", "stall", "in_time", "quiet_told"}
        told = [
            at
            for at, what, value in self.facts
            if what not in answers and (what != "mute" or value.limit == "tools")
        ]
        self.tell(max(told[-1], due.deadline), "mute", due)
        self.facts.sort(key=lambda fact: fact[0])

    # -- living it again -------------------------------------------------------------------

    def world(self, now: float) -> World:
        asked = now, len(self.facts)
        if self.lived is None or self.lived[0] != asked:
            self.lived = asked, self.live_all(now)
        return self.lived[1]

    def live_all(self, now: float) -> World:
        world = World()
        for at, what, value in self.facts:
            self.pass_time(world, at)
            getattr(self, f"fact_{what}")(world, value)
        self.pass_time(world, now)
        return world

    def pass_time(self, world: World, to: float) -> None:
        for until in sorted(until for until in world.holds.values() if until <= to):
            self.live(world, until)
            # T6: a hold may lapse, and the end of the last one starts a fresh window.
            for key in [key for key, end in world.holds.items() if end <= until]:
                self.end_hold(world, key)
        self.live(world, to)

    def live(self, world: World, to: float) -> None:
        """A stretch of time in which nothing changes."""
        length, world.now = to - world.now, to
        if world.asked is not None and not world.holds:
            world.attended += length
        if world.asked is None or not world.in_turn:
            return  # T1: nobody waits. T14: between turns neither clock runs
        world.lifeless += length
        if world.awake is not None:
            world.awake += length
        if not world.holds and not self.gated(world):
            world.silent += length

    def gated(self, world: World) -> bool:
        return self.limits.gate and any(not entry.told for entry in world.work.values())

    def awaits_first(self, world: World) -> bool:
        return self.limits.first is not None and not world.progressed

    # -- facts -------------------------------------------------------------------------------

    def fact_begin(self, world, _):
        world.died = None  # T10: it begins anew with the process that is there now
        if world.started is None:
            world.started = world.now
            if not world.in_turn:
                self.open_turn(world)

    def fact_mark_prompt(self, world, _):
        self.open_turn(world)
        world.turn_from = world.now

    def fact_asked(self, world, _):
        world.asked = world.now
        if world.turn_from is None:
            world.turn_from = world.now  # the turn's clock: from its first pull

    def fact_answered(self, world, _):
        world.asked = None

    def fact_message(self, world, _):
        world.messages += 1
        if world.turn_from is None:
            world.turn_from = world.now
        world.lifeless = 0.0
        world.awake = None
        self.restart(world, "liveness", "after_sleep")

    def fact_woke(self, world, _):
        """B5: work of the machine's own, and what somebody holds, is left alone."""
        is_measured = world.asked is not None and world.in_turn
        if is_measured and not world.holds and not self.gated(world):
            world.awake = 0.0
            self.restart(world, "after_sleep")

    def fact_told_all(self, world, _):
        """B4: what ends nothing, since its turn is over, is told."""
        struck, unsaid = world.struck, world.unsaid
        if struck is not None and unsaid and not (world.in_turn or struck.limit == "empty"):
            world.found.append(unsaid)
            world.unsaid = None

    def fact_exited(self, world, _):
        world.died = world.now
        self.restart(world, "exited")

    def fact_touch(self, world, _):
        self.progress(world)

    def fact_hold(self, world, value):
        key, until = value
        world.awake = None
        self.restart(world, "after_sleep")
        world.holds[key] = max(until, world.now)
        if until <= world.now:
            self.end_hold(world, key)

    def fact_release(self, world, key):
        if key in world.holds:
            self.end_hold(world, key)

    def fact_quiet_told(self, world, key):
        world.work[key].quiet_told = True

    def fact_mute(self, world, due):
        if due.limit in SHOWN:
            world.struck = None
            if due.limit in self.limits.ceilings:
                world.told.add(due.limit)
        elif due.limit == "quiet":
            if due.key in world.work:
                world.work[due.key].quiet_told = True
        elif due.limit != "tools":
            world.told.add(due.limit)
        for entry in world.work.values():
            if due.limit == "tools" and entry.until <= due.deadline:
                entry.told = True

    def fact_half(self, world, _):
        world.half_told = True

    def fact_stall(self, world, value):
        """T4: it moves the limit that was due, of `tools` that entry's, and no other."""
        clock, until = value
        stalls, _ = world.noticed.get(clock, (0, -NEVER))
        world.noticed[clock] = (stalls + 1, until)

    def fact_in_time(self, world, clock):
        """T4: what was found to be over when it was is proven: nothing later is a stall of it."""
        _, until = world.noticed.get(clock, (0, -NEVER))
        world.noticed[clock] = (3, until)

    def fact_signal(self, world, value):
        signal, wall = value
        if isinstance(signal, WorkProgressed) and not world.in_turn:
            self.hear(world, signal.id)
            return
        opens = isinstance(signal, (Progress, WorkStarted))
        if opens and not world.in_turn:
            self.open_turn(world)
            world.turn_from = world.now
        if isinstance(signal, Waiting):
            self.announce(world, signal, wall)
            return
        if not isinstance(signal, (Liveness, Usage)):
            world.waits.clear()  # T6: something else has happened
        stray = isinstance(signal, WaitEnded) and ("announced", signal.id) not in world.holds
        no_work = stray or isinstance(signal, SessionOpened)
        if no_work and not self.awaits_first(world):
            self.fresh_window(world)  # S0: the silence before the first progress goes on
        world.progressed_before = world.progressed
        if not no_work and not isinstance(signal, (Liveness, Usage)):
            self.progress(world)
        match signal:
            case Liveness():
                world.pings = True
            case SessionOpened():
                world.token = signal.token if signal.resumable else None
            case Usage():
                world.calls += 1
                ceiling = self.limits.ceilings.get("calls")
                is_beyond = ceiling is not None and world.calls > ceiling
                is_beyond = is_beyond and "calls" not in world.told
                if is_beyond and ("calls" in self.limits.end_on or world.calls == ceiling + 1):
                    self.find(world, "calls")
            case WorkProgressed():
                self.hear(world, signal.id)
            case WorkStarted() if signal.id not in world.work or not signal.id:
                self.begin_work(world, signal)
                allowance = self.limits.tools_by_name.get(signal.name, self.limits.tools)
                allowance = NEVER if allowance is None else allowance
                name = signal.name or ("" if signal.id else "a tool")
                parent = signal.parent
                if parent is not None:
                    parent = self.goes_on_as(world, parent)
                entry = Entry(name, world.now, allowance, signal.background, parent=parent)
                named = self.limits.quiet_by_name
                entry.quiet = named.get(signal.name, self.limits.quiet)
                if signal.name in named and entry.quiet is not None:
                    entry.heard = world.attended
                world.work.pop(signal.id, None)  # the latest of the nameless has just begun
                world.work[signal.id] = entry
            case WorkStarted():
                self.begin_work(world, signal)
                world.work[signal.id].background |= signal.background
            case WorkFinished():
                self.end_work(world, signal)
                if signal.id in world.work:
                    self.drop(world, signal.id)
                    if not world.in_turn:
                        world.grace_from = world.now
            case WaitEnded() if not stray:
                self.fact_release(world, ("announced", signal.id))
            case TurnEnded():
                self.end_turn(world, signal)

    def announce(self, world, signal, wall):
        """T6: the same wait again is no progress, and lasts no longer for it."""
        held = ("announced", signal.id) in world.holds
        end = signal.until
        length = 3600.0  # S0: without an end it lapses after the hold's allowance
        if end is not None:
            length = (end if isinstance(end, (int, float)) else end.timestamp()) - wall
        until = world.now + length
        if signal.id not in world.waits:
            self.stir(world)
            world.waits[signal.id] = world.now + max(length, 3600.0)
        elif held and end is None:
            return
        else:
            until = min(until, world.waits[signal.id])
            if until <= world.now and not held:
                return
        self.fresh_window(world)
        self.fact_hold(world, (("announced", signal.id), until))

    # -- beyond silence ----------------------------------------------------------------------

    def goes_on_as(self, world, id_):
        """B1: a call that is over, and whose sub-agent goes on in the background."""
        begun = [
            key for key, entry in world.work.items() if entry.background and entry.parent == id_
        ]
        return id_ if id_ in world.work or not begun else begun[0]

    def hear(self, world, id_):
        """B1: a sign of its own."""
        id_ = self.goes_on_as(world, id_)
        entry = world.work.get(id_)
        if entry is not None and entry.quiet is not None:
            entry.heard, entry.quiet_told = world.attended, False
            world.noticed.pop(("quiet", id_), None)

    def drop(self, world, id_):
        entry = world.work.pop(id_)
        world.noticed.pop(("quiet", id_), None)
        if entry.parent is not None:
            self.hear(world, entry.parent)

    def find(self, world, limit, *facts):
        if limit not in self.limits.end_on:
            world.found.append((limit, *facts))
        elif world.struck is None:
            work = ", ".join(facts[0]) if facts else None
            window = {"repeats": self.limits.repeats, **self.limits.ceilings}.get(limit, 0.0)
            since = world.now if world.started is None else world.started
            world.struck = Limit(limit, world.now, window, since, work)
            world.unsaid = (limit, *facts)

    def begin_work(self, world, signal):
        world.has_worked |= signal.scope != "hook"
        if signal.parent is not None:
            self.hear(world, signal.parent)
        if not signal.id and "" in world.work:
            self.drop(world, "")
        if signal.background or signal.scope == "hook" or not signal.id:
            return
        for row in world.rows.values():
            for deed in row.begun:
                if deed[0] == signal.id and deed[3] is None:
                    deed[2] = signal.input if deed[2] is None else deed[2]
                    return
        row = world.rows.setdefault(signal.parent, Row())
        row.begun.append([signal.id, signal.name, signal.input, None])
        if len(row.begun) > 32:
            row.begun.pop(0)
            row.steps, row.told = [], 0

    def end_work(self, world, signal):
        world.rows.pop(signal.id, None)
        for row in world.rows.values():
            for deed in row.begun:
                if deed[0] == signal.id and deed[3] is None:
                    deed[3] = (signal.outcome, signal.error)
                    self.look_at(world, row)
                    return

    def look_at(self, world, row):
        times, found = self.limits.repeats, None
        if times is None:
            return
        for step in row.over():
            before = [name for name, *_ in row.steps[-3:]]
            if period := row.add(step, times):
                found = (*before, step[0])[-period:]
        if found:
            self.find(world, "repeats", found)

    # -- what facts do -----------------------------------------------------------------------

    def open_turn(self, world):
        world.in_turn, world.turn_from = True, None
        world.progressed = world.has_worked = False
        world.turn_message = world.messages
        world.rows.clear()
        if world.struck is not None and world.struck.limit == "repeats":
            world.struck = None
        world.more_expected = False
        world.waits.clear()
        self.restart(world, "turn", "exit_grace")
        self.fresh_window(world)

    def end_turn(self, world, signal):
        said = world.progressed_before or world.messages - world.turn_message <= 1
        if signal.answered is not None:
            said = signal.answered
        was_empty = world.in_turn and signal.outcome == "success"
        was_empty = was_empty and not world.has_worked and not said
        world.turns += 1
        world.in_turn = False
        if was_empty:
            self.find(world, "empty")
        world.grace_from = world.now
        world.more_expected = signal.more_expected
        self.restart(world, "turn", "exit_grace")
        for id_ in [id_ for id_, work in world.work.items() if not work.background]:
            self.drop(world, id_)
        for key in [key for key in world.holds if key[0] == "announced"]:
            self.end_hold(world, key)

    def progress(self, world):
        world.waits.clear()
        self.stir(world)

    def stir(self, world):
        world.progressed = True
        world.last_progress = world.now
        self.fresh_window(world)

    def fresh_window(self, world):
        world.silent = 0.0
        world.half_told = False
        world.awake = None
        self.restart(world, "idle", "first", "after_sleep")

    def restart(self, world, *limits):
        """T4, T11: `in a row` and `once per silence` last as long as a limit's clock runs."""
        world.told -= set(limits)
        for limit in limits:
            world.noticed.pop(limit, None)

    def end_hold(self, world, key):
        del world.holds[key]
        if not world.holds:
            self.fresh_window(world)

    # -- questions ---------------------------------------------------------------------------

    def limits_ahead(self, world: World) -> Iterator[Limit]:
        """Every limit that will be reached if from `world.now` on nothing happens."""
        limits = self.limits
        if world.asked is None:
            return
        if limits.total is not None:
            yield Limit("total", world.started + limits.total, limits.total, world.started)
        if world.died is not None:
            # T10: what it has left is read first, by this pull, in a turn or between two.
            since = max(world.died, world.asked)
            yield Limit("exited", since + DRAIN, DRAIN, since)
        yield from self.quiet_ahead(world)
        if world.struck is not None and (world.in_turn or world.struck.limit == "empty"):
            yield world.struck
        if not world.in_turn:
            if limits.exit_grace is not None and world.turns:
                since = max([world.grace_from, *(work.until for work in world.work.values())])
                if world.more_expected:
                    since = max(since, world.grace_from + 3600.0)
                yield Limit("exit_grace", since + limits.exit_grace, limits.exit_grace, since)
            return
        if limits.turn is not None:
            yield Limit("turn", world.turn_from + limits.turn, limits.turn, world.turn_from)
        for id_, work in world.work.items():
            if limits.gate and not work.told:
                name = work.name or id_
                yield Limit("tools", work.until, work.allowance, work.since, name)
        if limits.liveness is not None and world.pings:
            since = world.now - world.lifeless
            yield Limit("liveness", since + limits.liveness, limits.liveness, since)
        silence = self.silence_ahead(world)
        if silence is not None:
            yield silence
        listens = limits.liveness is not None and world.pings
        if world.awake is not None and limits.after_sleep is not None and (silence or listens):
            since = world.now - world.awake
            yield Limit("after_sleep", since + limits.after_sleep, limits.after_sleep, since)

    def quiet_ahead(self, world: World) -> Iterator[Limit]:
        """B1: each that has spoken, unless work of its own is in flight."""
        until = max(world.holds.values(), default=world.now)
        for id_, work in world.work.items():
            has_own = any(other.parent == id_ for other in world.work.values())
            if work.quiet is None or work.heard is None or work.quiet_told or has_own:
                continue
            since = until - (world.attended - work.heard)
            yield Limit("quiet", since + work.quiet, work.quiet, since, work.name or id_, id_)

    def silence_ahead(self, world: World) -> Limit | None:
        kind = "first" if self.awaits_first(world) else "idle"
        window = getattr(self.limits, kind)
        if world.asked is None or not world.in_turn or window is None:
            return None
        if self.gated(world):
            return None
        lapse = max(world.holds.values(), default=-NEVER)
        since = lapse if world.holds else world.now - world.silent
        return Limit(kind, since + window, window, since)

    def told(self, world, limit):
        """Mode `warn`: said once. The end of a hold still to lapse begins a new silence."""
        return limit.limit in world.told and not (limit.limit in {"idle", "first"} and world.holds)

    def decided_at(self, world: World, limit: Limit) -> float:
        if limit.limit == "total" or limit.limit in SHOWN:
            return limit.deadline
        at = limit.deadline
        _, extended = world.noticed.get(self.clock(limit), (0, None))
        if extended is not None:
            at = max(at, extended)
        if extended is not None or limit.limit in {"turn", "tools", "exit_grace"}:
            # T1: judged only once a later pull waits, and in its turn
            at = max(at, world.asked, -NEVER if world.turn_from is None else world.turn_from)
        return at

    def clock(self, limit: Limit) -> Any:
        """T5: of `tools` each entry has its own."""
        if limit.limit == "quiet":
            return ("quiet", limit.key)
        return (limit.work, limit.since) if limit.limit == "tools" else limit.limit

    def half_ahead(self, world: World) -> float:
        silence = self.silence_ahead(world)
        if silence is None or self.told(world, silence):
            return NEVER
        if world.half_told and not world.holds:
            return NEVER
        return silence.deadline - silence.window / 2

    def deadline(self, now: float) -> float:
        world = self.world(now)
        ahead = [limit for limit in self.limits_ahead(world) if not self.told(world, limit)]
        times = [self.decided_at(world, limit) for limit in ahead]
        return min([*times, self.half_ahead(world)])

    def due(self, now: float, *, to_end: bool = True) -> Limit | None:
        """B1: what is only told ends nothing."""
        world = self.world(now)
        reached = [
            limit
            for limit in self.limits_ahead(world)
            if not self.told(world, limit) and self.decided_at(world, limit) <= now
            if limit.limit != "quiet" or "quiet" in self.limits.end_on or not to_end
        ]
        reached.sort(key=lambda limit: (limit.deadline, WIDEST_FIRST.index(limit.limit)))
        return reached[0] if reached else None

    def judge(self, now: float) -> tuple[Any, ...] | Limit | None:
        world = self.world(now)
        due = self.due(now, to_end=False)
        if due is None:
            if self.half_ahead(world) > now:
                return None
            silence = self.silence_ahead(world)
            self.tell(now, "half")
            return ("half", silence.limit, silence.window)
        late = now - self.decided_at(world, due)
        stalls, _ = world.noticed.get(self.clock(due), (0, None))
        if due.limit != "total" and due.limit not in SHOWN and stalls < 3:
            if late > min(0.25, due.window / 2):
                extension = min(due.window, 1.0)
                self.tell(now, "stall", (self.clock(due), now + extension))
                return ("stalled", due.limit, late, extension)
            self.tell(now, "in_time", self.clock(due))
        if due.limit == "quiet" and "quiet" not in self.limits.end_on:
            self.tell(now, "quiet_told", due.key)
            return ("found", "quiet", due.window, now - due.since, due.key)
        return due

    def total_deadline(self) -> float:
        world = self.world(self.facts[-1][0]) if self.facts else World()
        if self.limits.total is None or world.started is None or "total" in world.told:
            return NEVER
        return world.started + self.limits.total
