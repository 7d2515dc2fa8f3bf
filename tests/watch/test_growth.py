"""What a fact or a question costs does not grow with what is in flight, held or announced.

Nothing is timed: what is counted is the steps of the interpreter, and the memory that is wanted on the way, which a
copy of something large cannot do without. Both are the same on every machine.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import pytest

from streamguard._watch.watch import Half, Limits, Watch
from streamguard.activity import Activity
from streamguard.events.changes import News
from streamguard.events.teller import Teller
from streamguard.signals import (
    Liveness,
    Progress,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

FEW, MANY = 32, 1024
# Of as many again a search takes one more step; this is far from 32 times as much.
STEPS_MORE = 1.5
# Lists and dicts that have to grow do so by a part of themselves, now and then: not in the cheapest of several goes.
BYTES_MORE = 2_000
GOES = 8

LIMITS = Limits(
    idle=60.0,
    gate=True,
    tools=7200.0,
    tools_by_name={"Slow": 9000.0},
    quiet=600.0,
    repeats=3,
    exit_grace=30.0,
    ceilings={"tokens": 1e12, "cost": 1e6},
)


class Stream:
    """A watch with so many of each, and somebody who observes it."""

    def __init__(self, of: str, many: int) -> None:
        self.now = 100.0
        self.watch = Watch(LIMITS)
        self.watch.begin(0.0)
        self.watch.asked(0.0)
        self.told = Told()
        self.news = News(self.watch, self.told)
        for number in range(many):
            self.now += 2**-10
            self.see(*self.begun(of, number))
        if of == "background":
            self.see(TurnEnded())
        if of == "hold":
            for number in range(many):
                self.watch.hold(number, 5000.0 + number, self.now)
        self.look()
        self.number = 0

    def begun(self, of, number):
        match of:
            case "work":
                return [WorkStarted(f"w{number}", "Bash", input=number)]
            case "other names":
                return [WorkStarted(f"w{number}", f"tool {number}")]
            case "children":
                return [WorkStarted(f"w{number}", "Bash", parent="w0")]
            case "strangers":
                return [
                    WorkStarted(f"w{number}", "Task", background=True, parent=f"call {number}")
                ]
            case "background":
                return [WorkStarted(f"w{number}", "Bash", background=True)]
            case "quiet":
                return [WorkStarted(f"w{number}", "Task"), WorkProgressed(f"w{number}")]
            case "wait":
                return [Waiting(f"w{number}", "retry", 90_000.0 + number)]
            case _:
                return []

    def see(self, *signals):
        self.watch.answered(self.now)
        self.watch.see(signals, self.now)
        self.news.look(self.now, signals)
        self.watch.asked(self.now)
        self.watch.deadline()

    def look(self):
        self.news.look(self.now)

    def another(self) -> str:
        self.number += 1
        return str(self.number)

    # -- what is counted -------------------------------------------------------------------------

    def a_progress(self):
        self.see(Progress())

    def a_ping(self):
        self.see(Liveness())

    def usage(self):
        self.see(Usage({"input_tokens": 10.0}, call=self.another()))

    def work_that_comes_and_goes(self):
        name = self.another()
        self.see(WorkStarted(name, "Bash", input=name))
        self.see(WorkFinished(name, outcome=name))

    def work_with_a_parent(self):
        name = self.another()
        self.see(WorkStarted(name, "Slow", parent="w3"))
        self.see(WorkFinished(name))

    def the_first_ends(self):
        self.see(WorkFinished(f"w{self.number}"))
        self.number += 1

    def a_word_of_one(self):
        self.see(WorkProgressed(f"w{self.number}"))
        self.number += 1

    def a_word_of_a_call_that_is_over(self):
        self.see(WorkProgressed(f"call {self.number}"))
        self.number += 1

    def a_hold(self):
        key = object()
        self.watch.hold(key, self.now + 60.0, self.now)
        self.look()
        self.watch.release(key, self.now)
        self.look()

    def a_hold_that_lapses(self):
        self.watch.hold(object(), self.now + 1.0, self.now)
        self.look()
        self.now += 2.0
        self.see(Progress())

    def a_wait(self):
        name = self.another()
        self.see(Waiting(name, "retry"))
        self.see(Waiting(name, "retry"))
        self.see(WaitEnded(name))

    def a_turn(self):
        self.see(WorkStarted("of this turn", "Bash"))
        self.see(TurnEnded())

    def questions(self):
        watch, now = self.watch, self.now
        watch.judge(now)
        watch.due(now)
        watch.is_held(now)
        watch.lateness(watch._dues(now)[0], now)

    def a_half(self):
        self.see(Progress())
        assert isinstance(self.watch.judge(self.watch.holds.last + 31.0), Half)

    def a_stall(self):
        """The first is over, and found so too late."""
        self.watch.judge(8000.0)


class Told(Teller):
    """Nobody."""

    def __init__(self) -> None:
        super().__init__(Activity(), ())

    def tell(self, kind, **facts) -> None:
        pass


def steps(do: Callable[[], object]) -> int:
    """How many steps of the interpreter it takes."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, _arg):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


def wanted(do: Callable[[], object]) -> int:
    """How many bytes more there are while it is under way."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        do()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


ANY = [
    Stream.a_progress,
    Stream.a_ping,
    Stream.usage,
    Stream.work_that_comes_and_goes,
    Stream.a_hold,
    Stream.a_hold_that_lapses,
    Stream.a_wait,
    Stream.questions,
]
OF = {
    "work": [*ANY, Stream.work_with_a_parent, Stream.the_first_ends, Stream.a_stall],
    "other names": [Stream.work_that_comes_and_goes, Stream.a_stall],
    "children": [Stream.a_progress, Stream.the_first_ends, Stream.work_with_a_parent],
    "strangers": [Stream.a_word_of_a_call_that_is_over, Stream.the_first_ends],
    "background": [*ANY, Stream.a_turn, Stream.the_first_ends],
    "quiet": [*ANY, Stream.a_word_of_one, Stream.work_with_a_parent, Stream.the_first_ends],
    "wait": [*ANY, Stream.a_half],
    "hold": [*ANY, Stream.a_half, Stream.a_turn],
}


@pytest.mark.parametrize(("of", "do"), [(of, do) for of, all_ in OF.items() for do in all_])
def test_nothing_costs_more_where_much_is_in_flight(of, do):
    """Neither steps nor memory: of 32, and of 1024."""
    few, many = (Stream(of, size) for size in (FEW, MANY))
    for stream in (few, many):
        steps(lambda stream=stream: do(stream))  # 3.12 tells of opcodes from the second time on
    least = min(steps(lambda: do(few)) for _ in range(GOES))
    assert min(steps(lambda: do(many)) for _ in range(GOES)) <= least * STEPS_MORE
    least = min(wanted(lambda: do(few)) for _ in range(GOES))
    assert min(wanted(lambda: do(many)) for _ in range(GOES)) <= least + BYTES_MORE


def test_a_stream_without_work_or_holds_shares_what_it_has_none_of():
    """Also once its turn is over, and what it held."""
    watch, other = (Watch(LIMITS) for _ in range(2))
    watch.begin(0.0)
    watch.see([WorkStarted("a", "Task"), WorkProgressed("a"), Waiting("b", "retry")], 0.0)
    watch.hold("c", 5.0, 0.0)
    assert watch._in_flight is not other._in_flight
    watch.see([TurnEnded()], 1.0)
    watch.release("c", 1.0)
    assert watch._in_flight is other._in_flight
    assert watch._holds is other._holds
    watch.touch(2.0)
    assert watch._waits is other._waits
    assert not other.work
    assert len(other.holds) == 0


def test_rules_that_are_off_are_not_asked():
    """B1, B2, B4: neither is anything hashed, nor compared with a ceiling; and a control, with both on."""

    def called(limits):
        watch, names = Watch(limits), set()
        watch.begin(0.0)
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, _arg: names.add(frame.f_code.co_qualname))
        try:
            watch.see([WorkStarted("a", "Bash", input={"x": 1}), Usage({"input_tokens": 1})], 1.0)
            watch.see([WorkFinished("a", outcome="ok")], 2.0)
        finally:
            sys.setprofile(before)
        return {name for name in names if name.startswith(("Repetition", "digest"))} | (
            names & {"Watch._look_at_ceilings", "InFlight.quiet_dues"}
        )

    assert called(Limits(idle=60.0, gate=True)) == set()
    assert {"digest", "Repetition.started", "Watch._look_at_ceilings"} <= called(LIMITS)
