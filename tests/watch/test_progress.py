"""Busy, and getting nowhere: quiet work, repetition, ceilings and empty turns, as the watch sees them."""

from __future__ import annotations

from collections import deque

import pytest

from streamguard._watch.repetition import Repetition, digest
from streamguard._watch.watch import Due, Found, Limits, Watch
from streamguard.signals import (
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

TALK = (Progress(),)


def watching(**limits):
    watch = Watch(Limits(gate=True, half_time=False, **limits))
    watch.begin(0.0)
    watch.asked(0.0)
    return watch


def say(watch, now, *signals):
    """A message that was waited for; then the next one is."""
    watch.answered(now)
    watch.see(signals, now)
    watch.asked(now)


def found(watch):
    told, watch.found = watch.found, ()
    return told


# -- quiet ---------------------------------------------------------------------------------------


def chatty(watch, since, until, step=1.0):
    """Others talk; what the watch tells meanwhile, with its instant."""
    told, now = [], since
    while now < until:
        while watch.deadline() <= now + step:
            at = max(watch.deadline(), now)
            judged = watch.judge(at)
            if judged is None:
                break
            told.append((at, judged))
            if isinstance(judged, Due):
                return told
        now += step
        say(watch, now, Progress())
    return told


def test_a_sub_agent_that_falls_silent_is_named_though_others_talk():
    """B1: at its window, once."""
    watch = watching(idle=60.0, quiet=300.0)
    say(watch, 1.0, WorkStarted("t", "Task", "subagent"))
    say(watch, 5.0, WorkProgressed("t"))
    told = chatty(watch, 5.0, 1000.0)
    assert told == [(305.0, Found("quiet", 300.0, 300.0, ("Task",), "t"))]


def test_it_is_told_again_after_it_has_spoken_again():
    """B1: once per silence."""
    watch = watching(quiet=300.0)
    say(watch, 0.0, WorkStarted("t", "Task", "subagent"), WorkProgressed("t"))
    assert [at for at, _ in chatty(watch, 0.0, 400.0)] == [300.0]
    say(watch, 400.0, WorkProgressed("t"))
    assert [at for at, _ in chatty(watch, 400.0, 800.0)] == [700.0]


@pytest.mark.parametrize("sign", [Liveness(), Progress(), WorkProgressed("other")])
def test_only_its_own_signs_count(sign):
    """B1: a timer beside it, or another's word, is none."""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    say(watch, 9.0, sign)
    assert watch.deadline() == 10.0


def test_work_that_never_spoke_is_not_listened_for_unless_it_is_named():
    """B1: most tools say nothing until they are done."""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Bash"))
    assert chatty(watch, 0.0, 100.0) == []
    watch = watching(quiet_by_name={"Ta*": 10.0})
    say(watch, 0.0, WorkStarted("t", "Task"))
    assert watch.deadline() == 10.0


@pytest.mark.parametrize("name", ["Task", "Tasking"])
def test_a_name_may_be_left_out(name):
    """B1: None is off, by name, with wildcards."""
    watch = watching(quiet=10.0, quiet_by_name={"Task*": None})
    say(watch, 0.0, WorkStarted("t", name), WorkProgressed("t"))
    assert chatty(watch, 0.0, 100.0) == []


def test_work_of_its_own_in_flight_pauses_it():
    """B1: a sub-agent that runs the tests for half an hour says nothing meanwhile."""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    say(watch, 5.0, WorkStarted("b", "Bash", parent="t"))
    assert chatty(watch, 5.0, 1000.0) == []
    say(watch, 1000.0, WorkFinished("b"))
    assert watch.deadline() == 1010.0


def in_the_background(**limits):
    """A sub-agent that goes on as a task under an id of its own, after the call that has begun it."""
    watch = watching(**limits)
    say(watch, 0.0, WorkStarted("call", "Task"))
    say(watch, 1.0, WorkStarted("task:x", "local_agent", "task", "call", background=True))
    say(watch, 1.0, WorkFinished("call", outcome="launched"))
    return watch


def test_a_sub_agent_in_the_background_is_known_by_the_call_that_began_it():
    """B1: its messages name that call, which is over, and so do its tools, however long they take."""
    watch = in_the_background(quiet=10.0)
    say(watch, 2.0, WorkProgressed("call"))
    (at, told), *_ = chatty(watch, 2.0, 30.0)
    assert (at, told.limit, told.key) == (12.0, "quiet", "task:x")

    watch = in_the_background(quiet=10.0)
    say(watch, 2.0, WorkProgressed("call"))
    say(watch, 5.0, WorkStarted("b", "Bash", parent="call"))
    assert chatty(watch, 5.0, 1000.0) == []
    say(watch, 1000.0, WorkFinished("b"))
    assert watch.deadline() == 1010.0


def test_a_consumer_that_takes_an_hour_adds_nothing():
    """B1, T1: only while the backend is waited for."""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    watch.answered(4.0)
    watch.see(TALK, 4.0)
    watch.asked(3604.0)
    assert watch.deadline() == 3610.0


def test_a_hold_pauses_it():
    """B1, T6: a person is asked for a permission."""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    say(watch, 4.0, Waiting("ask", "human"))
    say(watch, 500.0, WorkProgressed("t"))  # it goes on beside
    watch.release(next(iter(watch.holds))[2], 600.0)
    watch.asked(600.0)
    assert watch.deadline() == 610.0


def test_it_ends_the_stream_where_that_was_written():
    """B1"""
    watch = watching(idle=60.0, quiet=10.0, end_on=frozenset({"quiet"}))
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    (at, due), *_ = chatty(watch, 0.0, 100.0)
    assert (at, due.limit, due.work, watch.due(at)) == (10.0, "quiet", "Task", due)
    verdict = watch.verdict(due, at)
    assert verdict.reason.startswith("stream heard nothing of Task for 10 s (limit quiet=10)")


def test_a_loop_that_did_not_run_proves_nothing():
    """B1, T4"""
    watch = watching(quiet=10.0)
    say(watch, 0.0, WorkStarted("t", "Task"), WorkProgressed("t"))
    stalled = watch.judge(15.0)
    assert (stalled.limit, stalled.lateness) == ("quiet", 5.0)
    assert isinstance(watch.judge(16.0), Found)


def test_background_work_is_listened_for_between_turns():
    """B1: the CLI stays for it, for hours if it is dead."""
    watch = watching(quiet=10.0, exit_grace=30.0)
    say(watch, 0.0, WorkStarted("t", "agent", "task", background=True), WorkProgressed("t"))
    say(watch, 1.0, TurnEnded("success"))
    say(watch, 2.0, WorkProgressed("t"))
    assert not watch.turn_open
    assert watch.deadline() == 12.0


# -- repetition ----------------------------------------------------------------------------------


def work(times, *steps, of=Repetition):
    """Each step is (name, input, outcome, error): what is found, with the number of the step."""
    repetition = of(times)
    told = []
    for number, (name, asked, outcome, *error) in enumerate(steps, 1):
        repetition.started(WorkStarted(str(number), name, input=asked))
        finished = WorkFinished(str(number), *error, outcome=outcome)
        if (hit := repetition.finished(finished)) is not None:
            told.append((number, hit.names))
    return told


SAME = ("Bash", {"command": "make"}, "nothing to be done")


def test_equal_work_is_told_at_its_number():
    """B2: 220 equal calls, once."""
    assert work(20, *[SAME] * 220) == [(20, ("Bash",))]


def test_a_failing_call_with_the_same_error():
    """B2"""
    assert work(5, *[("Bash", "x", "command not found", True)] * 8) == [(5, ("Bash",))]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_cycle_is_told_after_so_many_rounds(length):
    """B2"""
    cycle = [(f"Tool{n}", n, "ok") for n in range(length)]
    names = tuple(name for name, *_ in cycle)
    assert work(5, *cycle * 20) == [(5 * length, names)]


def test_a_cycle_of_five_is_none():
    """B2"""
    assert work(5, *[("Tool", n, "ok") for n in range(5)] * 20) == []


@pytest.mark.parametrize(
    "steps",
    [
        [("Poll", "job-7", f"{n} %") for n in range(500)],  # an outcome that changes
        [("Rename", {"from": f"a{n}", "to": f"b{n}"}, "ok") for n in range(500)],
        [("Bash", "make", f"error in line {n}", True) for n in range(500)],
        [("Bash", "make", None)] * 500,  # nobody tells what came of it
        [("Bash", None, "ok")] * 500,
        [(f"Tool{n}", "x", "ok") for n in range(500)],
    ],
)
def test_what_gets_somewhere_is_no_loop(steps):
    """B2"""
    assert work(3, *steps) == []


def test_a_row_that_was_broken_is_told_anew():
    """B2: once per row."""
    other = [("Edit", "y", "ok")]
    assert [n for n, _ in work(3, *[SAME] * 5, *other, *[SAME] * 5)] == [3, 9]


def test_steps_count_in_the_order_of_their_beginnings():
    """B2: of several at once, any may be done first."""
    repetition, told = Repetition(4), []
    for number in range(6):
        ids = f"a{number}", f"b{number}"
        for id_ in ids:
            repetition.started(WorkStarted(id_, "Read", input=id_[0]))
        for id_ in ids[:: -1 if number % 2 else 1]:
            told.append(repetition.finished(WorkFinished(id_, outcome="ok")))
    assert [hit.names for hit in told if hit] == [("Read", "Read")]


def test_each_sub_agent_has_a_row_of_its_own():
    """B2: a loop in one is seen, whatever the others do between."""
    repetition, told = Repetition(4), []
    for number in range(5):
        for parent, asked in ((None, number), ("t", "same")):
            id_ = f"{parent}{number}"
            repetition.started(WorkStarted(id_, "Bash", parent=parent, input=asked))
            told.append(repetition.finished(WorkFinished(id_, outcome="ok")))
    assert len([hit for hit in told if hit]) == 1


def test_a_start_that_is_told_once_more_may_bring_the_input():
    """B2: partial, then final."""
    repetition, told = Repetition(3), []
    for number in range(3):
        repetition.started(WorkStarted(str(number), "Bash"))
        repetition.started(WorkStarted(str(number), "Bash", input="x"))
        told.append(repetition.finished(WorkFinished(str(number), outcome="ok")))
    assert told[-1] is not None


def test_another_prompt_begins_anew():
    """B2: what a person asks for again is no loop."""
    watch = watching(repeats=5)
    for number in range(50):
        say(watch, 1.0, WorkStarted(str(number), "Bash", input="git status"))
        say(watch, 1.0, WorkFinished(str(number), outcome="clean"))
        if number % 4 == 3:
            say(watch, 1.0, TurnEnded("success"))
            watch.mark_prompt(1.0)
    assert found(watch) == ()


def test_background_work_and_hooks_are_no_steps():
    """B2"""
    repetition = Repetition(2)
    for number in range(9):
        hook = WorkStarted(f"h{number}", "PreToolUse", "hook", input="x")
        task = WorkStarted(f"t{number}", "task", "task", background=True, input="x")
        for each in (hook, task):
            repetition.started(each)
            assert repetition.finished(WorkFinished(each.id, outcome="y")) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": -1}, {"n": -2}),
        ([1, 2], (1, 2)),
        ("1", 1),
        (["a", "bc"], ["ab", "c"]),
        ({"a": None}, {}),
    ],
)
def test_different_inputs_have_different_numbers(one, other):
    """B2"""
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_what_cannot_be_looked_at_is_not_compared():
    """B2, S2: somebody's own class may do anything."""

    class Broken:
        def __repr__(self):
            raise ValueError("no")

    assert digest(Broken()) is None
    assert work(2, *[("Bash", Broken(), "ok")] * 9) == []


def test_an_address_is_no_outcome():
    """B2: objects that show nothing but where they lie, which the next one may do as well."""
    assert digest(object()) is None
    assert digest([object()]) is None
    assert work(2, *[("Bash", "make", object()) for _ in range(9)]) == []
    assert digest("a fault at 0x7f") is not None


def test_memory_is_bounded():
    """B2: works that never end, and sub-agents without number."""
    repetition = Repetition(20)
    for number in range(20_000):
        repetition.started(WorkStarted(str(number), "Bash", parent=str(number % 1_000), input=1))
    assert len(repetition._rows) <= 256
    assert all(len(row.queue) <= 32 for row in repetition._rows.values())
    assert len(repetition._in_flight) <= 256 * 32


def test_work_whose_end_is_lost_does_not_hide_a_loop():
    """B2, S3: what comes behind it is looked at all the same, a little later."""
    steps = [SAME] * 100
    repetition = Repetition(20)
    repetition.started(WorkStarted("lost", "Bash", input="x"))
    told = []
    for number, (name, asked, outcome) in enumerate(steps):
        repetition.started(WorkStarted(str(number), name, input=asked))
        told.append(repetition.finished(WorkFinished(str(number), outcome=outcome)))
    assert len([hit for hit in told if hit]) == 1


def test_an_id_that_is_used_again_is_that_of_the_later_work():
    """B2: also where the end of work before both was lost."""
    repetition = Repetition(2)

    def begin(*ids):
        for id_ in ids:
            repetition.started(WorkStarted(id_, "Bash", input=1))

    begin("lost", "again")
    assert repetition.finished(WorkFinished("again", outcome=1)) is None
    begin("again", *map(str, range(31)))  # of 34 the first two are given up
    for id_ in ("again", "0"):
        found = repetition.finished(WorkFinished(id_, outcome=1))
    assert found is not None
    assert found.names == ("Bash",)


def test_only_hashes_are_kept():
    """B2, E3"""
    secret = "sk-not-to-be-kept"
    repetition = Repetition(20)
    for number in range(3):
        repetition.started(WorkStarted(str(number), "Bash", input={"key": secret}))
        repetition.finished(WorkFinished(str(number), outcome=[secret]))
    repetition.started(WorkStarted("in flight", "Bash", input=secret))
    seen, queue = set(), [repetition]
    while queue:
        thing = queue.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, str) and secret in thing)
        if isinstance(thing, dict):
            queue += [*thing, *thing.values()]
        elif isinstance(thing, (list, tuple, deque)):
            queue += thing
        else:
            queue += [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ())]


# -- ceilings ------------------------------------------------------------------------------------


def test_a_ceiling_is_told_once_at_the_first_message_beyond():
    """B4"""
    watch = watching(ceilings={"tokens": 100})
    say(watch, 1.0, Usage({"output_tokens": 100}))
    assert found(watch) == ()
    say(watch, 2.0, Usage({"output_tokens": 1}))
    assert found(watch) == (Found("tokens", 100, 101),)
    say(watch, 3.0, Usage({"output_tokens": 1}))
    assert found(watch) == ()


def test_a_ceiling_strikes_where_that_was_written():
    """B4"""
    watch = watching(ceilings={"cost": 1.5}, end_on=frozenset({"cost"}))
    say(watch, 2.0, Usage({"total_cost_usd": 2.0}, "process"))
    assert watch.struck is not None
    assert watch.verdict(watch.struck, 2.0).reason.startswith("stream has cost 2 (limit cost=1.5)")


def test_a_ceiling_that_would_have_ended_it_is_said_once():
    """B4, T11: in mode `warn` every message from there on is beyond it."""
    limits = {"ceilings": {"tokens": 10, "cost": 1.5}, "end_on": frozenset({"tokens", "cost"})}
    watch = watching(**limits)
    struck = []
    for now in range(1, 10):
        say(watch, now, Usage({"output_tokens": 10, "cost_usd": 1.0}))
        if watch.strike is not None:
            struck.append((now, watch.strike.limit))
            watch.mute(watch.strike)
    assert struck == [(2, "tokens"), (3, "cost")]


def test_a_loop_of_a_turn_that_has_ended_ends_no_other():
    """B2, T3: the turn's end came with it, or was brought by an interrupt."""
    watch = watching(repeats=2, end_on=frozenset({"repeats"}))
    for id_ in "abc":
        signals = [WorkStarted(id_, "Bash", input=1), WorkFinished(id_, outcome=1)]
        say(watch, 1.0, *signals, *[TurnEnded("success")] * (id_ == "b"))
        assert watch.strike is None


# -- hollow ends ---------------------------------------------------------------------------------

OPENED = SessionOpened("s")


@pytest.mark.parametrize(
    ("messages", "is_empty"),
    [
        ([(OPENED,), (TurnEnded("success"),)], True),
        ([(OPENED,), (TurnEnded("success", answered=False),)], True),
        ([TALK, (TurnEnded("success", answered=False),)], True),
        ([(OPENED,), (TurnEnded("success", answered=True),)], False),
        ([TALK, (TurnEnded("success"),)], False),
        ([(TurnEnded("success"),)], False),  # all there is, which may be the answer
        ([(OPENED,), (TurnEnded("error"),)], False),
        (
            [
                (WorkStarted("a", "Bash"),),
                (WorkFinished("a"),),
                (TurnEnded("success", answered=False),),
            ],
            False,
        ),
        (
            [
                (WorkStarted("a", "Stop", "hook"),),
                (WorkFinished("a"),),
                (TurnEnded("success", answered=False),),
            ],
            True,
        ),
    ],
)
def test_a_turn_that_did_nothing_is_empty(messages, is_empty):
    """B3"""
    watch = watching()
    for signals in messages:
        say(watch, 1.0, *signals)
    assert watch.ended_empty is is_empty
    assert [each.limit for each in found(watch)] == ["empty"] * is_empty
