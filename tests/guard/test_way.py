"""The way of a verdict, row by row: each pair of state and event does what the table says, or cannot be.

An attempt is led into a state by what really leads there, with a loop, a pull and a block that do
as they are told; then the event happens, as it really happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamguard._base.machine import ImpossibleError, arrows, missing
from streamguard._guard import attempt as attempt_module
from streamguard._guard.attempt import Attempt
from streamguard._guard.plan import Plan
from streamguard._guard.way import FINAL, WAY, Do
from streamguard._guard.way import WayEvent as Event
from streamguard._guard.way import WayState as State
from streamguard._loops import Cut
from streamguard._watch.watch import Due, Limits
from streamguard.activity import Activity
from streamguard.backends.stream_reading import Reading
from streamguard.errors import Verdict
from streamguard.events import CutWithdrawn, PullDeaf, StreamEnded, StreamStarted, TimedOut
from streamguard.signals import TurnEnded
from tests.diagrams import DOCS, mermaid, shown_in
from tests.loops.test_timekeeper import Clockwork
from tests.support import Events

IDLE, TOTAL = 60.0, 600.0

# Why there is no row for a pair: what would have to be so for it to happen, and is not.
IMPOSSIBLE: dict[str, dict[State, set[Event]]] = {
    "only what is not under way begins": {
        state: {Event.BEGIN} for state in State if state not in {State.UNBEGUN, State.OVER}
    },
    "the watch is asked only while nothing is due": {
        state: {Event.REACHED} for state in State if state is not State.WATCHING
    },
    "the passes are only made for a limit that is due": {
        state: {Event.TOLD, Event.INTERRUPT} for state in State if state is not State.DUE
    }
    | {
        state: {Event.TOLD, Event.INTERRUPT, Event.GONE, Event.PULL_CUT}
        for state in State
        if state not in {State.DUE, State.INTERRUPTED}
    },
    "nothing is looked at where nothing is due": {
        state: {Event.BUSY}
        for state in State
        if state not in {State.DUE, State.INTERRUPTED, State.DECIDED}
    },
    "a block is cancelled once, for a limit that is due or a verdict that is final": {
        state: {Event.BLOCK_CUT}
        for state in State
        if state not in {State.DUE, State.INTERRUPTED, State.DECIDED}
    },
    "no cut is under way that could have failed": {
        state: {Event.DEAF}
        for state in (State.UNBEGUN, State.WATCHING, State.INTERRUPTING, State.LEAVING, State.OVER)
    }
    | {State.STRUCK: {Event.DEAF}},
    "no block is being cancelled": {
        state: {Event.BLOCK_DEAF}
        for state in State
        if state not in {State.DUE, State.INTERRUPTED, State.STRUCK}
    },
    "no interrupt runs": {
        state: {Event.FRUITLESS, Event.UNATTENDED}
        for state in State
        if state is not State.INTERRUPTING
    },
    "nothing has been asked for": {
        State.UNBEGUN: {
            Event.MESSAGE,
            Event.GOOD_END,
            Event.BAD_END,
            Event.ANSWERED,
            Event.UNWOUND,
            Event.FOREIGN,
            Event.LATE,
            Event.VERDICT,
            Event.ASIDE,
            Event.TORN_DOWN,
        }
    },
    "what comes after the verdict is not delivered": {
        state: {Event.MESSAGE, Event.GOOD_END, Event.BAD_END} for state in FINAL
    },
    "that pull was not cut, so it ends as it ends": {
        state: {Event.UNWOUND} for state in (State.WATCHING, State.DUE, State.LEAVING, State.OVER)
    },
    "the verdict is final already": {
        state: {Event.UNWOUND, Event.VERDICT, Event.LATE} for state in FINAL
    },
    "no verdict is final": {
        state: {Event.CLAIM} for state in State if state not in FINAL | {State.OVER}
    },
    "our cancellation is on its way, or was somebody else's": {
        state: {Event.LATE}
        for state in (State.CUT, State.LAST_CUT, State.STRUCK, State.LEAVING, State.OVER)
    },
    "what a message shows waits for one that meets nothing else": {
        state: {Event.PROVEN} for state in State if state is not State.WATCHING
    },
    "an end that is asked for by leaving is no truncation": {State.LEAVING: {Event.VERDICT}},
    "nothing is being torn down": {
        state: {Event.TORN_DOWN} for state in State if state not in FINAL | {State.OVER}
    },
}


class Target:
    """A pull or a block that answers a cut as it is told to."""

    def __init__(self) -> None:
        self.answer = Cut.SENT
        self.cuts: list[bool] = []

    def cut(self, *, force: bool = False) -> Cut:
        self.cuts.append(force)
        return self.answer


class FakeLoop:
    """A loop whose time is set."""

    cancelled = asyncio.CancelledError
    timers_may_exit = True

    def __init__(self) -> None:
        self.timekeeper = Clockwork()
        self.spawned: list[str] = []

    def clock(self) -> float:
        return self.timekeeper.now

    def spawn(self, function: Callable[[], Any], *, name: str = "teardown") -> FakeLoop:
        self.spawned.append(name)
        return self

    def cancel(self) -> None:
        self.spawned.append("cancelled")

    def is_running_here(self) -> bool:
        return True


@dataclass
class Case:
    """An attempt in the state that is asked for."""

    attempt: Attempt
    loop: FakeLoop
    events: Events
    pull: Target = field(default_factory=Target)
    block: Target = field(default_factory=Target)

    @property
    def state(self) -> State:
        return self.attempt.state

    def pass_time(self, seconds: float) -> None:
        """Let the alarm go off then, without the passes."""
        self.loop.timekeeper.now += seconds
        self.loop.timekeeper.ring()

    def confirm(self) -> None:
        while self.loop.timekeeper.passing:
            self.loop.timekeeper.passing.pop()()

    def reach(self) -> None:
        self.pass_time(IDLE)

    def strike(self) -> None:
        """`total` is due while the consumer works."""
        self.attempt.answered()
        self.pass_time(TOTAL)
        self.confirm()


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    def make(
        *, mode: Any = "enforce", interrupts: tuple[Any, ...] = (), begun: bool = True
    ) -> Case:
        loop, events = FakeLoop(), Events()
        monkeypatch.setattr(attempt_module.loops, "current", lambda: loop)
        plan = Plan(interrupts=interrupts, observers=(events,), activity=Activity())
        case = Case(Attempt(plan, Limits(idle=IDLE, total=TOTAL), mode), loop, events)
        attempt = case.attempt
        attempt.reading = Said(attempt.reading)
        attempt.pull, attempt.block = case.pull, case.block
        if begun:
            attempt.begin()
            attempt.asked()
        return case

    return make


class Said(Reading):
    """Messages that are their own signals."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(None)

    def signals(self, message: Any, reporter: Any) -> Any:
        return (message,) if isinstance(message, TurnEnded) else ()


def watching(new: Any) -> Case:
    return new()


def due(new: Any, **knobs: Any) -> Case:
    case = new(**knobs)
    case.reach()
    return case


def interrupting(new: Any) -> Case:
    case = due(new, interrupts=(lambda: None,))
    case.confirm()
    return case


def interrupted(new: Any) -> Case:
    case = interrupting(new)
    case.pass_time(5)
    case.loop.timekeeper.ring()
    return case


def cut(new: Any) -> Case:
    case = due(new)
    case.confirm()
    return case


def last_cut(new: Any) -> Case:
    case = interrupted(new)
    case.confirm()
    return case


def struck(new: Any) -> Case:
    case = new()
    case.strike()
    return case


def decided(new: Any) -> Case:
    case = cut(new)
    case.attempt.answered()  # meanwhile it waits for something else
    case.pass_time(5)
    return case


def claimed(new: Any) -> Case:
    case = cut(new)
    case.attempt.answered()
    case.attempt.decide()
    return case


def surfacing(new: Any) -> Case:
    case = struck(new)
    case.attempt.leave(is_cancelled=True)
    return case


def leaving(new: Any) -> Case:
    case = new()
    case.attempt.leave()
    return case


def over(new: Any) -> Case:
    case = new()
    case.attempt.end()
    return case


REACH: dict[State, Callable[[Any], Case]] = {
    State.UNBEGUN: lambda new: new(begun=False),
    State.WATCHING: watching,
    State.DUE: due,
    State.INTERRUPTING: interrupting,
    State.INTERRUPTED: interrupted,
    State.CUT: cut,
    State.LAST_CUT: last_cut,
    State.STRUCK: struck,
    State.DECIDED: decided,
    State.CLAIMED: claimed,
    State.SURFACING: surfacing,
    State.LEAVING: leaving,
    State.OVER: over,
}


def confirm_with(answer: Cut) -> Callable[[Case], None]:
    def happen(case: Case) -> None:
        case.pull.answer = case.block.answer = answer
        if case.state in FINAL:
            case.attempt.watch.waiting_since = None
            case.loop.timekeeper.put(case.attempt, case.loop.clock())
            case.loop.timekeeper.ring()
        case.confirm()

    return happen


def never_parked(case: Case) -> None:
    case.pull.answer = case.block.answer = Cut.NOT_PARKED
    for _ in range(40):
        case.confirm()
        case.pass_time(0.5)


def deaf(case: Case) -> None:
    if case.state in {State.DUE, State.INTERRUPTED}:
        never_parked(case)
    elif case.state in FINAL:
        case.attempt.asked()  # it still waits
        case.loop.timekeeper.put(case.attempt, case.loop.clock())
        case.loop.timekeeper.ring()
    else:
        case.pass_time(5)


def block_deaf(case: Case) -> None:
    if case.state is State.DUE:  # of `total`, which is the block's
        case.attempt.answered()
        case.pass_time(TOTAL)
        never_parked(case)
    elif case.state is State.INTERRUPTED:
        case.attempt.watch.waiting_since = None
        never_parked(case)
    else:
        case.pass_time(5)


def of_block(case: Case) -> None:
    if case.state is State.DUE:
        case.attempt.answered()
        case.pass_time(TOTAL)
    elif case.state is State.INTERRUPTED:
        case.attempt.watch.waiting_since = None
    else:
        case.loop.timekeeper.put(case.attempt, case.loop.clock())
        case.loop.timekeeper.ring()
    case.confirm()


def late(case: Case) -> None:
    case.attempt._withdrawn = attempt_module._Reached(
        None, verdict=Verdict(limit="idle", at=0.0, window=IDLE, elapsed=IDLE)
    )
    assert case.attempt.is_our_cut(asyncio.CancelledError())


def proven(case: Case) -> None:
    watch = case.attempt.watch
    watch.struck = Due("repeats", case.loop.clock(), 3, 0.0, "Bash", amount=3)
    case.attempt.received("news")


def claim(case: Case) -> None:
    if case.state is State.OVER:  # by a second pull, after the first has got it
        case.attempt._on(Event.CLAIM)
    else:
        case.attempt.decide()


def unattended(case: Case) -> None:
    case.attempt.answered()
    case.pass_time(5)


HAPPEN: dict[Event, Callable[[Case], object]] = {
    Event.BEGIN: lambda case: case.attempt.begin(),
    Event.REACHED: Case.reach,
    Event.GONE: confirm_with(Cut.NOBODY),
    Event.TOLD: Case.confirm,
    Event.INTERRUPT: Case.confirm,
    Event.BUSY: confirm_with(Cut.NOT_PARKED),
    Event.PULL_CUT: confirm_with(Cut.SENT),
    Event.BLOCK_CUT: of_block,
    Event.DEAF: deaf,
    Event.BLOCK_DEAF: block_deaf,
    Event.FRUITLESS: lambda case: case.pass_time(5),
    Event.UNATTENDED: unattended,
    Event.MESSAGE: lambda case: case.attempt.received("news"),
    Event.GOOD_END: lambda case: case.attempt.received(TurnEnded("success")),
    Event.BAD_END: lambda case: case.attempt.received(TurnEnded("error")),
    Event.ANSWERED: lambda case: case.attempt.answered(),
    Event.UNWOUND: lambda case: case.attempt.decide(),
    Event.FOREIGN: lambda case: case.attempt.outranked(),
    Event.LATE: late,
    Event.PROVEN: proven,
    Event.VERDICT: lambda case: case.attempt.decide(
        Verdict(limit="truncated", at=0.0, window=None, elapsed=0.0)
    ),
    Event.ASIDE: lambda case: case.attempt.heard(),
    Event.CLAIM: claim,
    Event.TORN_DOWN: lambda case: case.attempt._on(Event.TORN_DOWN),
    Event.LEFT: lambda case: case.attempt.leave(),
    Event.LEFT_CUT: lambda case: case.attempt.leave(is_cancelled=True),
    Event.END: lambda case: case.attempt.end(),
}
KNOBS: dict[Event, Callable[[], dict[str, Any]]] = {
    Event.TOLD: lambda: {"mode": "warn"},
    Event.INTERRUPT: lambda: {"interrupts": (lambda: None,)},
}


def is_silent(case: Case) -> bool:
    """Nothing is told but that the stream began."""
    return all(isinstance(event, StreamStarted) for event in case.events)


# What each step leaves behind: `None` where there is nothing to be seen of it.
SEEN: dict[Do, Callable[[Case], object]] = {
    Do.NOTHING: lambda case: True,
    Do.BEGIN: lambda case: (
        len(case.events.of(StreamStarted)) >= 1 and case.attempt._shown_as is not None
    ),
    Do.REARM: lambda case: case.attempt.entry is not None,
    Do.REST: lambda case: case.attempt._reached is None and not case.pull.cuts[1:],
    Do.JUDGE_AGAIN: lambda case: case.attempt._reached.due is None,
    Do.PASS: lambda case: case.loop.timekeeper.passing and not case.attempt.watch.steady,
    Do.LOOK_AGAIN: lambda case: case.attempt.entry[0] > case.loop.clock(),
    Do.WARN: lambda case: case.events.of(TimedOut)[0].enforced is False and not case.pull.cuts,
    Do.INTERRUPT: lambda case: case.loop.spawned == ["interrupt"] and not case.pull.cuts,
    Do.AWAIT_UNWINDING: lambda case: case.attempt.entry[0] == case.loop.clock() + 5,
    Do.GIVE_UP_INTERRUPT: lambda case: case.loop.spawned == ["interrupt", "cancelled"],
    Do.DECIDE: lambda case: case.attempt.verdict and case.events.of(TimedOut)[0].enforced,
    Do.DECIDE_UNASKED: lambda case: case.attempt.verdict and case.events.of(TimedOut)[0].enforced,
    Do.END_BADLY: lambda case: case.attempt.verdict and case.events.of(TimedOut)[0].enforced,
    Do.DECIDE_DEAF: lambda case: case.attempt.verdict and case.events.of(PullDeaf),
    Do.AWAIT_END: lambda case: True not in case.pull.cuts,
    Do.CANCEL_AGAIN: lambda case: case.pull.cuts[-1] is True and case.attempt.entry,
    Do.WITHDRAW: lambda case: case.events.of(CutWithdrawn) and not case.attempt._withdrawn,
    Do.WITHDRAW_CUT: lambda case: case.events.of(CutWithdrawn) and case.attempt._withdrawn,
    Do.STOP_WATCHING: lambda case: case.attempt.entry is None and is_silent(case),
    Do.WITHDRAW_AND_STOP: lambda case: case.events.of(CutWithdrawn) and not case.attempt.entry,
    Do.END: lambda case: len(case.events.of(StreamEnded)) == 1 and case.attempt.entry is None,
}


def names(value: Any) -> str:
    return getattr(value, "name", str(value))


@pytest.mark.parametrize(("state", "event", "then", "does"), list(arrows(WAY)), ids=names)
def test_a_row(new: Any, state: State, event: Event, then: State, does: Do) -> None:
    """T3, T9, D1, O6: in this state, this event leads there, and does that."""
    case = due(new, **KNOBS[event]()) if event in KNOBS else REACH[state](new)
    assert case.state is state
    HAPPEN[event](case)
    assert case.state is then
    assert SEEN[does](case)
    if state is not State.DUE and then not in {State.CUT, State.LAST_CUT, State.STRUCK}:
        # A step that cancels says so in its name.
        assert case.pull.cuts in ([], [False]) or does in {Do.CANCEL_AGAIN, Do.DECIDE_DEAF}


def impossible() -> dict[tuple[State, Event], str]:
    return {
        (state, event): why
        for why, pairs in IMPOSSIBLE.items()
        for state, events in pairs.items()
        for event in events
    }


def test_every_pair_is_a_row_or_stated_to_be_impossible() -> None:
    """No pair of state and event was forgotten, and none is both."""
    assert set(missing(WAY, State, Event)) ^ set(impossible()) == set()


@pytest.mark.parametrize(("state", "event"), sorted(impossible(), key=str), ids=names)
def test_what_is_impossible_is_said(state: State, event: Event) -> None:
    """It is an error of its own, and leaves the state as it is."""
    attempt = Attempt.__new__(Attempt)
    attempt.state = state
    with pytest.raises(ImpossibleError, match=f"{event.name} while {state.name}"):
        attempt._on(event)
    assert attempt.state is state


def test_the_docs_show_the_table() -> None:
    """docs/explanation/verdict.md draws it, and names each state as it is."""
    assert shown_in("explanation/verdict.md", "## All that can happen") == mermaid(
        WAY, State.UNBEGUN, (State.OVER,)
    )
    page = (DOCS / "explanation/verdict.md").read_text()
    for state in State:
        assert f"| {state.name.lower().replace('_', ' ')} | {state.value} |" in page
