"""What the rules say of one guarded stream, the slow way: an oracle for `streams`.

It walks through time in eighths of a second. At each instant it lets happen what happens, asks
which limits are reached, and adds up the silence. It has no timers, no tasks and no deadlines, and
nothing of the library. Times of a schedule are in units of `scale` seconds.

Where the rules leave open which of two things at one instant comes first, a `Ties` says how it
is to be here; `allowed` gives what any of them allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TICK = 1 / 8
ANNOUNCED = 3600.0  # seconds: how long an announced wait lasts that nobody ends
TOLERATED = 0.25  # seconds: a deadline noticed later is a loop that did not run (T4)
FOREVER = 100.0  # units: how long a source hangs
LONGEST = 1000.0
NEVER = float("inf")

ERRORS = {
    "idle": "IdleTimeoutError",
    "first": "FirstMessageTimeoutError",
    "liveness": "LivenessTimeoutError",
    "tools": "ToolTimeoutError",
    "turn": "TurnTimeoutError",
    "total": "TotalTimeoutError",
    "exit_grace": "end",
    "after_sleep": "IdleTimeoutError",
    "calls": "CeilingExceededError",
}


class Ties(NamedTuple):
    """Which of two things at the same instant comes first."""

    # A cancel from outside, or the consumer's own patience, against messages and limits: nothing
    # is promised about somebody else's timer.
    outer: str = "after the stream"  # "first", "after the stream", "last"
    # What is said from another task, against a limit that is due.
    asides_late: bool = False
    # A limit that strikes the block, against the step of a consumer that is at work: it may be
    # cut before it, or after it at its next await (O5).
    strikes_first: bool = False
    # Of limits that are due at once, which is named.
    named: int = 0
    # From so many messages on; until then the patience comes after the stream. Each tie is one.
    outer_from: int = 0


class Outcome(NamedTuple):
    """What the consumer saw."""

    delivered: tuple[tuple[int, float], ...]  # messages by number, and when
    end: str
    at: float
    disconnects: int  # how often


class Struck(NamedTuple):
    """The first limit that is reached: which could be named, and when."""

    limits: tuple[str, ...]
    at: float
    is_certain: bool = True  # however ties go


@dataclass
class Life:
    """One life of a guarded stream."""

    schedule: dict[str, Any]
    form: str
    native: bool  # asyncio's loops, where a cancel can come that is nobody's scope
    ties: Ties = field(default_factory=Ties)

    now: float = 0.0
    # the source
    step: int = 0
    repeats: int = 0
    wakes: float | None = None
    is_finished: bool = False  # a generator that a cancel has ended
    failure: str | None = None
    buffer: list[Any] = field(default_factory=list)
    number: int = 0
    # the consumer
    doing: str = "enters"
    until: float = 0.0
    actions: list[Any] = field(default_factory=list)
    asked_at: float = 0.0
    pulled_at: float = 0.0
    patience: int = 0
    own_holds: int = 0
    delivered: list[tuple[int, float]] = field(default_factory=list)
    was_interrupted: bool = False
    # the watch
    started: float | None = None
    in_turn: bool = True
    turn_from: float | None = None
    progressed: bool = False
    turns: int = 0
    grace_from: float = 0.0
    more: bool = False
    pings: bool = False
    silent: float = 0.0
    lifeless: float = 0.0
    awake: float | None = None  # B5: waited for since the machine woke, if nothing came since
    judged_from: float = 0.0
    holds: dict[Any, float] = field(default_factory=dict)
    same_waits: set[str] = field(default_factory=set)
    work: dict[str, tuple[float, bool]] = field(default_factory=dict)
    moved: dict[Any, tuple[int, float]] = field(default_factory=dict)
    used: int = 0  # calls of the model that were told
    torn_down: float | None = (
        None  # when what follows a message that was beyond the ceiling is over
    )
    # how it ends
    struck: Struck | None = None
    ended: Outcome | None = None
    is_unclear: bool = False

    def __post_init__(self) -> None:
        self.limits = self.schedule["limits"]
        self.asides = list(self.schedule["asides"])
        self.outer = list(self.schedule["outer"])
        self.scale = self.schedule["scale"]

    # -- the walk ------------------------------------------------------------------------

    def live(self) -> Outcome:
        self.started = self.judged_from = 0.0
        self.ask()
        while self.ended is None:
            self.at_this_instant()
            if self.ended is None:
                self.pass_time(TICK)
            if self.now > LONGEST:
                self.end("hung")
        return self.ended

    def at_this_instant(self) -> None:
        outer = self.ties.outer
        if len(self.delivered) < self.ties.outer_from:
            outer = "after the stream"
        if outer == "first":
            self.from_outside()
        if self.ties.strikes_first and self.doing == "works":
            self.judge(strikes_only=True)
        if not self.ties.asides_late:
            self.do_asides()
            if outer == "first":  # it may have come while an aside blocked the loop
                self.from_outside()
        self.let_happen()
        if outer == "after the stream":
            self.from_outside()
            self.let_happen()
        self.judge()
        if self.ties.asides_late:
            self.do_asides()
            self.let_happen()
        if outer == "last":
            self.from_outside()
            self.let_happen()

    def pass_time(self, length: float) -> None:
        """A stretch in which nothing happens; it may be long, if the loop is blocked."""
        end = self.now + length
        while self.now < end:
            self.lapse()
            if self.is_waiting and self.in_turn:
                self.lifeless += TICK
                if self.awake is not None:
                    self.awake += TICK
                if not self.holds and not self.is_gated:
                    self.silent += TICK
            self.now += TICK
            self.lapse()

    def block(self, length: float) -> None:
        """The loop is blocked. What is due at its first instant, and who else comes, is anybody's guess."""
        begin, end = self.now, self.now + length
        others = [self.outer[1]] if self.outer[0] != "none" else []
        if self.schedule["patience"][0] != "none" and self.doing == "asks":
            others.append(self.pulled_at + self.schedule["patience"][1])
        self.is_unclear |= any(begin <= other <= end for other in others) or any(self.reached())
        self.pass_time(length)
        wakes = [self.wakes] if self.doing == "asks" else [self.until]
        self.is_unclear |= any(self.reached()) and any(
            at is not None and at <= end for at in wakes
        )

    def lapse(self) -> None:
        for key in [key for key, until in self.holds.items() if until <= self.now]:
            self.end_hold(key)

    def end(self, how: str, after: float = 0.0) -> None:
        if self.ended is None:
            calls = int(self.struck is not None and self.schedule["disconnect"] != ["none"])
            self.ended = Outcome(tuple(self.delivered), how, self.now + after, calls)

    # -- the source ----------------------------------------------------------------------

    @property
    def runs_ahead(self) -> bool:
        return self.schedule["kind"] == "channel"

    def run_source(self) -> bool:
        """Whether the source did anything."""
        if self.is_finished or (not self.runs_ahead and self.doing != "asks"):
            return False
        if not self.runs_ahead and self.buffer:
            return False
        steps = self.schedule["source"]
        if self.wakes is not None:
            if self.wakes > self.now:
                return False
            self.wakes = None
            self.advance()
            return True
        if self.step >= len(steps):
            self.failure, self.is_finished = "end", True
            return True
        match steps[self.step]:
            case ["sleep", d]:
                self.wakes = self.now + d
            case ["every", d, _, _]:
                self.wakes = self.now + d
            case ["say", signals]:
                self.say(signals)
                self.step += 1
            case ["hang"] | ["told"]:
                self.wakes = self.now + FOREVER
            case ["raise"]:
                self.failure, self.is_finished = "source", True
            case ["genexit"]:
                self.failure, self.is_finished = "GeneratorExit", True
            case ["block", d]:
                self.step += 1
                self.block(d)
        return True

    def advance(self) -> None:
        match self.schedule["source"][self.step]:
            case ["every", _, times, signals]:
                self.say(signals)
                self.repeats += 1
                if self.repeats < times:
                    return
                self.repeats = 0
        self.step += 1

    def say(self, signals: Any) -> None:
        self.buffer.append((self.number, signals))
        self.number += 1

    # -- the consumer --------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        if self.form == "monitor" and not self.schedule["marks"]:
            return True
        return self.doing == "asks"

    def let_happen(self) -> None:
        while self.ended is None and (self.run_source() or self.run_consumer()):
            pass

    @property
    def is_beyond(self) -> bool:
        """B4: of a turn that is over nothing is asked any more."""
        return (
            bool(self.schedule.get("ceiling"))
            and self.used > self.schedule["ceiling"]
            and self.in_turn
        )

    def prove(self) -> None:
        """B4: what was given is the last that is; the teardown does not wait for the consumer."""
        if self.is_beyond and self.torn_down is None:
            self.struck = Struck(("calls",), self.now)
            self.torn_down = self.now + self.teardown_takes()

    def ask(self) -> None:
        if self.torn_down is not None:
            self.end(ERRORS["calls"], max(0.0, self.torn_down - self.now))
            return
        if self.form == "bare" and self.now >= self.limits.get("total", NEVER):
            self.strike(["total"])
            return
        self.doing, self.pulled_at = "asks", self.now
        if self.form != "monitor" or self.schedule["marks"]:
            self.asked_at = self.now
        if self.turn_from is None:
            self.turn_from = self.now

    def run_consumer(self) -> bool:
        if self.doing == "asks":
            if self.buffer:
                self.take(self.buffer.pop(0))
                return True
            if self.failure is not None:
                self.source_is_over()
                return True
            return False
        if self.doing == "works" and self.until <= self.now:
            while self.own_holds:
                self.end_hold(("own", self.own_holds))
                self.own_holds -= 1
            self.act()
            return True
        return False

    def source_is_over(self) -> None:
        interrupted = self.was_interrupted and self.in_turn and self.form != "monitor"
        if self.failure == "end" and interrupted:
            self.end("StreamInterruptedError")
        else:
            self.end(str(self.failure))

    def take(self, message: Any) -> None:
        number, signals = message
        self.delivered.append((number, self.now))
        self.was_interrupted = False
        if self.form == "monitor":
            self.asked_at = self.now  # without marks it waits on from here
        self.see(signals)
        works = self.schedule["work"]
        self.actions = (
            list(works[len(self.delivered) - 1]) if len(self.delivered) <= len(works) else []
        )
        self.doing = "works"
        self.until = self.now
        self.act()

    def act(self) -> None:
        while self.actions:
            match self.actions.pop(0):
                case ["work" | "work under a timeout", d]:
                    self.until = self.now + d
                    return
                case ["hold", d]:
                    self.own_holds += 1
                    self.hold(("own", self.own_holds), self.now + ANNOUNCED)
                    self.until = self.now + d
                    return
                case ["touch"]:
                    self.progress()
                case ["prompt"]:
                    self.prompt()
                    self.prove()
                case ["block", d]:
                    self.block(d)
        match self.schedule["leave"]:
            case ["break", n] if len(self.delivered) >= n:
                self.end("break")
            case ["raise", n] if len(self.delivered) >= n:
                self.end("own")
            case _:
                self.ask()

    # -- from outside --------------------------------------------------------------------

    def do_asides(self) -> None:
        while self.ended is None and self.asides and self.asides[0][0] <= self.now:
            _, what, *more = self.asides.pop(0)
            match what, more:
                case "hold", [key, allowance]:
                    self.end_hold(("aside", key))
                    self.hold(("aside", key), self.now + allowance)
                case "release", [key]:
                    self.end_hold(("aside", key))
                case "touch", _:
                    self.progress()
                case "prompt", _:
                    self.prompt()
                    if not self.is_waiting:
                        self.prove()
                case "block", [d]:
                    self.block(d)
                case "sleep", _:
                    is_measured = self.is_waiting and self.in_turn
                    if is_measured and not self.is_gated and not self.holds:
                        self.awake = 0.0
                        self.moved.pop("after_sleep", None)

    def from_outside(self) -> None:
        if self.ended is None and self.outer[0] != "none" and self.now >= self.outer[1]:
            self.end("cancelled" if self.outer[0].startswith("cancel") else "outer")
        kind, length = self.schedule["patience"]
        if self.ended is not None or kind == "none" or self.doing != "asks":
            return
        if self.now >= self.pulled_at + length:
            self.patience += 1
            if not self.runs_ahead and not self.buffer and not self.is_finished:
                self.failure, self.is_finished = "end", True
            self.was_interrupted = True
            if self.patience > 3:
                self.end("impatient")
            else:
                self.ask()

    # -- limits --------------------------------------------------------------------------

    def judge(self, *, strikes_only: bool = False) -> None:
        if self.ended is not None:
            return
        if self.torn_down is not None:
            total = self.limits.get("total", NEVER)
            if self.form == "block" and self.now >= total:  # nor may its consumer work on (O5)
                self.end(ERRORS["calls"], max(0.0, self.torn_down - self.now))
            return
        due: list[str] = []
        for limit, deadline, window in self.reached():
            if strikes_only and not (limit == "total" or self.form == "monitor"):
                continue
            late = (self.now - deadline) * self.scale
            if limit in ("total", "calls") or late <= min(TOLERATED, window * self.scale / 2):
                due.append(limit)
                continue
            # T4: the loop did not run. That limit, and no other, is moved; three times at most.
            times, _ = self.moved.get(limit, (0, 0.0))
            if times >= 3:
                due.append(limit)
            else:
                self.moved[limit] = (times + 1, self.now + min(window, 1.0 / self.scale))
        if due:
            self.strike(due)

    def reached(self) -> Iterator[tuple[str, float, float]]:
        """Each limit that is reached, with the instant at which it could be told, and its window."""
        limits = self.limits
        is_judged = self.is_waiting or self.form != "bare"
        if is_judged and self.now >= (w := limits.get("total", NEVER)):
            yield "total", w, w
        if not self.is_waiting:
            return
        if self.is_beyond:
            yield "calls", self.now, 0.0
        for limit, passed, window, attended in self.clocks():
            if passed < window:
                continue
            deadline = self.now - (passed - window)
            if not attended:  # judged only while somebody waits, and in its own turn
                deadline = max(deadline, self.asked_at, self.judged_from)
            _, not_before = self.moved.get(limit, (0, 0.0))
            deadline = max(deadline, not_before)
            if self.now >= deadline:
                yield limit, deadline, window

    def clocks(self) -> Iterator[tuple[str, float, float, bool]]:
        """Limit, how long its clock has run, its window, whether it stops while nobody waits."""
        limits = self.limits
        if not self.in_turn:
            if (w := limits.get("exit_grace")) is not None:
                since = max([self.grace_from, *(until for until, _ in self.work.values())])
                if self.more:
                    since = max(since, self.grace_from + ANNOUNCED / self.scale)
                yield "exit_grace", self.now - since, w, False
            return
        silence = "first" if self.awaits_first else "idle"
        if (w := limits.get(silence)) is not None and not self.is_gated and not self.holds:
            yield silence, self.silent, w, True
        if (w := limits.get("liveness")) is not None and self.pings:
            yield "liveness", self.lifeless, w, True
        is_silence = limits.get(silence) is not None or (w is not None and self.pings)
        if self.awake is not None and (w := limits.get("after_sleep")) and is_silence:
            yield "after_sleep", self.awake, w, True
        if (w := limits.get("turn")) is not None and self.turn_from is not None:
            yield "turn", self.now - self.turn_from, w, False
        if (w := limits.get("tools")) is not None:
            for until, _ in self.work.values():
                yield "tools", self.now - until + w, w, False

    def strike(self, due: list[str]) -> None:
        """The verdict, and its teardown with a source that unwinds at once."""
        self.struck = Struck(tuple(due), self.now)
        limit = due[self.ties.named % len(due)]
        done = self.now + self.teardown_takes()
        for at, what, *more in self.asides:
            if what == "block" and (
                self.now <= at < done or (at == done and self.ties.asides_late)
            ):
                done = max(done, at + more[0])
                others = self.outer[1:2] if self.outer[0] != "none" else []
                self.is_unclear |= any(at <= other <= at + more[0] for other in others)
        how, first, *_ = (*self.outer, 0.0)
        # T9, D6: a native cancel waits for the teardown and outranks the verdict; against a
        # scope the verdict, which came first, wins.
        first = max(first, self.now)  # later, if the loop was blocked
        comes = first < done or (first == done and self.ties.outer == "first")
        if self.native and how in ("cancel", "timeout") and comes:
            self.end("outer" if how == "timeout" else "cancelled", done - self.now)
        self.end(ERRORS[limit], done - self.now)

    def teardown_takes(self) -> float:
        match self.schedule["disconnect"]:
            case ["none"]:
                return 0.0
            case [_, d]:
                return min(d, self.schedule["disconnect_timeout"])
        raise AssertionError

    # -- what messages say ---------------------------------------------------------------

    @property
    def awaits_first(self) -> bool:
        return self.limits.get("first") is not None and not self.progressed

    @property
    def is_gated(self) -> bool:
        return bool(self.work)

    def see(self, signals: Any) -> None:
        self.lifeless = 0.0
        self.awake = None
        self.moved.pop("liveness", None)
        self.moved.pop("after_sleep", None)
        # S2: a message whose reader raises is progress, whatever else it might have said.
        for signal in [["progress"]] if ["odd"] in signals else signals:
            self.take_in(signal)
        self.prove()

    def take_in(self, signal: Any) -> None:
        kind, *more = signal
        if kind not in ("wait", "ping", "usage"):
            self.same_waits.clear()
        match kind, more:
            case "ping", _:
                self.pings = True
            case "usage", _:
                self.used += 1
            case "session", _:
                self.no_work_done()
            case "turn", [_, announces]:
                self.progress()
                self.close_turn(announces)
            case "progress" | "failed", _:
                if not self.in_turn and kind == "progress":
                    self.open_turn(self.now)
                self.progress()
            case "start", [id_, background]:
                if not self.in_turn:
                    self.open_turn(self.now)
                self.progress()
                # S4-06: of work without an id nobody can tell whether it is the same.
                if not id_ and self.work.pop(id_, None) is not None:
                    self.moved.pop("tools", None)
                until, was = self.work.get(
                    id_, (self.now + self.limits.get("tools", NEVER), False)
                )
                self.work[id_] = (until, was or background)
            case "finish", [id_]:
                self.progress()
                if self.work.pop(id_, None) is not None:
                    self.moved.pop("tools", None)
                    if not self.in_turn:
                        self.grace_from = self.now
            case "wait", [id_]:
                # T6: announced again, also after a lapse, it is the same wait.
                if id_ not in self.same_waits:
                    self.progress()
                    self.same_waits.add(id_)
                    self.hold(("announced", id_), self.now + ANNOUNCED / self.scale)
            case "waited", [id_]:
                if ("announced", id_) in self.holds:
                    self.progress()
                    self.end_hold(("announced", id_))
                else:
                    self.no_work_done()

    def no_work_done(self) -> None:
        if not self.awaits_first:
            self.fresh_window()

    def progress(self) -> None:
        self.progressed = True
        self.same_waits.clear()
        self.fresh_window()

    def prompt(self) -> None:
        self.same_waits.clear()
        self.open_turn(self.now)
        self.judged_from = self.now

    def open_turn(self, began: float) -> None:
        self.in_turn, self.progressed, self.turn_from, self.more = True, False, began, False
        for limit in ("turn", "tools", "exit_grace"):
            self.moved.pop(limit, None)
        self.judged_from = self.now
        self.fresh_window()

    def close_turn(self, more: bool) -> None:
        self.turns += 1
        self.in_turn = False
        self.grace_from, self.more = self.now, more
        self.work = {id_: entry for id_, entry in self.work.items() if entry[1]}
        for limit in ("turn", "tools", "exit_grace"):
            self.moved.pop(limit, None)
        for key in [key for key in self.holds if key[0] == "announced"]:
            self.end_hold(key)

    def hold(self, key: Any, until: float) -> None:
        self.holds[key] = until
        self.silent = 0.0
        self.awake = None
        self.lapse()

    def end_hold(self, key: Any) -> None:
        if self.holds.pop(key, None) is not None and not self.holds:
            self.fresh_window()

    def fresh_window(self) -> None:
        self.silent = 0.0
        self.awake = None
        self.moved.pop("after_sleep", None)
        self.moved.pop("idle", None)
        self.moved.pop("first", None)


def is_unclear(schedule: dict[str, Any], form: str, *, native: bool) -> bool:
    """Whether the loop is blocked at an instant at which anything else is due."""
    alone = Life(schedule, form, native)
    alone.live()
    return alone.is_unclear


def allowed(schedule: dict[str, Any], form: str, *, native: bool) -> Iterator[Outcome]:
    """Every outcome that the rules allow; the likeliest first."""
    seen: set[Outcome] = set()
    has_outer = schedule["outer"][0] != "none" or schedule["patience"][0] != "none"
    outer = ("after the stream", "first", "last") if has_outer else ("after the stream",)
    asides = (False, True) if schedule["asides"] else (False,)
    strikes = (False,) if form == "bare" else (False, True)
    all_ties = [
        Ties(o, a, s, n) for n, o, a, s in itertools.product((0, 1, 2), outer, asides, strikes)
    ]
    if schedule["patience"][0] != "none":
        counts = range(1, 1 + sum(step[0] in ("say", "every") for step in schedule["source"]) * 2)
        all_ties += [ties._replace(outer_from=n) for n in counts for ties in all_ties]
    for ties in all_ties:
        life = Life(schedule, form, native, ties)
        outcome = life.live()
        if outcome not in seen:
            seen.add(outcome)
            yield outcome
        if schedule["outer"][1:2] == [outcome.at]:
            # It may come while a block is being left, a teardown is waited for, or between two of
            # the messages of that instant.
            how = "cancelled" if schedule["outer"][0] == "cancel" else "outer"
            delivered = outcome.delivered
            yield Outcome(delivered, how, outcome.at, outcome.disconnects)
            yield Outcome(delivered, how, outcome.at, 0)
            while delivered and delivered[-1][1] == outcome.at:
                delivered = delivered[:-1]
                yield Outcome(delivered, how, outcome.at, 0)


def undisturbed(schedule: dict[str, Any], form: str, *, native: bool) -> list[Outcome]:
    """What it may come to with nobody from outside."""
    alone = {**schedule, "outer": ["none"], "patience": ["none", 0]}
    return list(allowed(alone, form, native=native))


def struck(schedule: dict[str, Any], form: str, *, native: bool) -> Struck | None:
    """The limits that are reached first, were it not for anything from outside; which, and when."""
    alone = {**schedule, "outer": ["none"], "patience": ["none", 0]}
    lives = [
        Life(alone, form, native, Ties("last", asides_late, strikes_first))
        for strikes_first, asides_late in itertools.product((False, True), repeat=2)
    ]
    for life in lives:
        life.live()
    found = [life.struck for life in lives if life.struck is not None]
    if not found:
        return None
    limits = {limit for each in found for limit in each.limits}
    return Struck(tuple(limits), min(each.at for each in found), len(found) == len(lives))
