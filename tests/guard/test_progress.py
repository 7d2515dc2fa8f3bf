"""Busy, and getting nowhere, around a stream: told by events, ended where `end_on` says so."""

from __future__ import annotations

import pytest

from streamguard import (
    AbandonedWorkError,
    CeilingExceededError,
    ConfigError,
    EmptyTurnError,
    NoProgressError,
    QuietWorkError,
    RepeatedWorkError,
    idle_guard,
    idle_timeout,
)
from streamguard.events import (
    CeilingPassed,
    Concern,
    HollowEnd,
    StreamEnded,
    TimedOut,
    TornDown,
    TurnOver,
    WorkQuiet,
    WorkRepeated,
)
from streamguard.signals import TurnEnded, Usage
from streamguard.testing import (
    Script,
    done,
    hang,
    message,
    opened,
    repeat,
    say,
    silence,
    tool,
    tool_progress,
    tool_start,
    usage,
)
from tests.support import Disconnect, Events, take


def _read(said):
    return said if isinstance(said, tuple) else said.signals()


LOOP = repeat(say("again"), tool("Bash", 1, input="make", outcome="failed"), times=50)


def outcome(events):
    return events.of(StreamEnded)[0].outcome


async def test_a_loop_is_told_and_goes_on(loop, form):
    """B2: by default nothing is ended."""
    events = Events()
    taken = await take(Script(LOOP, done()) | idle_guard(60, observer=events), form)
    assert taken.error is None
    (told,) = events.of(WorkRepeated)
    assert (told.names, told.times, told.period, told.limit) == (("Bash",), 20, 1, "repeats")
    assert isinstance(told, Concern)
    assert outcome(events) == "completed"


async def test_a_loop_is_ended_where_that_is_written(loop, form):
    """B2, D1: the message that shows it is delivered, and disconnect runs at once."""
    events, disconnect = Events(), Disconnect()
    guard = idle_guard(60, repeats=3, end_on="repeats", disconnect=disconnect, observer=events)
    taken = await take(Script(LOOP, done()) | guard, form)
    assert isinstance(taken.error, RepeatedWorkError)
    assert isinstance(taken.error, NoProgressError)
    assert len(taken.messages) == 9
    verdict = taken.error.verdict
    assert (verdict.limit, verdict.window, verdict.amount, verdict.work) == (
        "repeats",
        3,
        3,
        "Bash",
    )
    assert "got nowhere: Bash 3 times with the same outcome (limit repeats=3)" in str(taken.error)
    assert taken.error.teardown.confirmed
    assert len(disconnect.calls) == 1
    assert not events.of(WorkRepeated)
    assert [event.enforced for event in events.of(TimedOut)] == [True]


async def test_teardown_does_not_wait_for_a_slow_consumer(loop, form):
    """B4: what is used up beyond the ceiling goes on costing while nobody pulls."""
    disconnect, clock = Disconnect(), []

    async def work(_):
        from anyio import current_time, sleep

        clock.append(current_time())
        await sleep(600)

    script = Script(usage(output_tokens=50), say("a"), usage(output_tokens=51), say("b"), hang())
    guard = idle_guard(3600, tokens=100, end_on=["tokens"], disconnect=disconnect)
    taken = await take(script | guard, form, work)
    assert isinstance(taken.error, CeilingExceededError)
    assert len(taken.messages) == 3
    assert disconnect.calls == [clock[2]]


async def test_in_mode_warn_nothing_is_ended(loop, form):
    """T11"""
    events = Events()
    guard = idle_guard(60, repeats=3, end_on="repeats", observer=events, mode="warn")
    taken = await take(Script(LOOP, done()) | guard, form)
    assert taken.error is None
    assert [(e.verdict.limit, e.enforced) for e in events.of(TimedOut)] == [("repeats", False)]


async def test_in_mode_warn_a_ceiling_is_said_once(loop, form):
    """B4, T11"""
    events = Events()
    script = Script(repeat(usage(output_tokens=50), say("a"), times=20), done())
    guard = idle_guard(60, tokens=100, end_on="tokens", observer=events, mode="warn")
    taken = await take(script | guard, form)
    assert taken.error is None
    assert [(e.verdict.limit, e.enforced) for e in events.of(TimedOut)] == [("tokens", False)]


async def test_a_quiet_sub_agent_behind_a_talking_one(loop, form):
    """B1: named at its window, though the stream is never idle."""
    events = Events()
    script = Script(
        tool_start("t", "Task"),
        tool_progress("t"),
        repeat(say("others talk"), silence(10), times=60),
        done(),
    )
    taken = await take(script | idle_guard(60, quiet=300, observer=events), form)
    assert taken.error is None
    (told,) = events.of(WorkQuiet)
    assert (told.id, told.name, told.elapsed) == ("t", "Task", 300)


async def test_a_quiet_sub_agent_ends_the_stream_where_that_is_written(loop, form):
    """B1"""
    script = Script(
        tool_start("t", "Task"),
        tool_progress("t"),
        repeat(say("others talk"), silence(7), times=600),
    )
    taken = await take(script | idle_guard(60, quiet={"Task": 300}, end_on="quiet"), form)
    assert isinstance(taken.error, QuietWorkError)
    assert taken.elapsed == pytest.approx(300)
    assert taken.error.verdict.work == "Task"


async def test_a_ceiling_is_told_once(loop, form):
    """B4"""
    events = Events()
    script = Script(repeat(usage(total_cost_usd=1.0), say("x"), times=5), done())
    await take(script | idle_guard(60, cost=2, observer=events), form)
    (told,) = events.of(CeilingPassed)
    assert (told.limit, told.ceiling, told.spent) == ("cost", 2, 3)


async def test_a_finished_turn_stays_finished(loop, form):
    """B4, T3: what its last message shows is told, and ends nothing."""
    script = Script(say("x"), usage(output_tokens=500), done())
    taken = await take(script | idle_guard(60, tokens=100, end_on="tokens"), form)
    assert isinstance(taken.error, CeilingExceededError)  # said before the turn's end
    events = Events()
    last = message((Usage({"output_tokens": 500}), TurnEnded("success")))
    guard = idle_guard(60, tokens=100, end_on="tokens", read=_read, observer=events)
    taken = await take(Script(say("x"), last) | guard, form)
    assert taken.error is None
    assert [event.limit for event in events.of(CeilingPassed)] == ["tokens"]


async def test_an_empty_success_is_a_fact(loop, form):
    """B3: in the turn's event, in the stream's outcome, and as a concern."""
    events = Events()
    taken = await take(
        Script(opened("s"), done(answered=False)) | idle_guard(60, observer=events), form
    )
    assert taken.error is None
    assert [event.is_empty for event in events.of(TurnOver)] == [True]
    assert outcome(events) == "empty"
    assert [event.limit for event in events.of(HollowEnd)] == ["empty"]


async def test_an_empty_success_is_an_error_where_that_is_written(loop, form):
    """B3: its message is delivered, then it raises."""
    guard = idle_guard(60, end_on=["empty"])
    taken = await take(Script(opened("s"), done(answered=False)) | guard, form)
    assert isinstance(taken.error, EmptyTurnError)
    assert len(taken.messages) == 2


async def test_an_answer_is_not_empty(loop, form):
    """B3"""
    events = Events()
    await take(Script(opened("s"), say("42"), done()) | idle_guard(60, observer=events), form)
    assert outcome(events) == "completed"
    assert not events.of(HollowEnd)


LEFT = Script(say("x"), tool_start("b", "build", background=True), done())


async def test_background_work_that_is_left_is_named(loop, form):
    """B3"""
    events = Events()
    taken = await take(LEFT | idle_guard(60, observer=events), form)
    assert taken.error is None
    assert outcome(events) == "abandoned"
    assert [event.work for event in events.of(HollowEnd)] == [("build",)]


async def test_a_client_that_lives_on_abandons_nothing(loop, form):
    """B3, D1: after a normal end the client stays its owner's."""
    events = Events()
    await take(LEFT | idle_guard(60, disconnect=Disconnect(), observer=events), form)
    assert outcome(events) == "completed"


async def test_abandoned_work_is_an_error_where_that_is_written(loop, form):
    """B3"""
    events = Events()
    guard = idle_guard(60, end_on=("abandoned",), observer=events)
    taken = await take(LEFT | guard, form)
    assert isinstance(taken.error, AbandonedWorkError)
    assert taken.error.verdict.in_flight == ("build",)
    assert len(events.of(TornDown)) == 1


# -- what may be written --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"repeats": 1}, "repeats=1: use a whole number, 2 or more"),
        ({"repeats": 2.5}, "repeats=2.5"),
        ({"quiet": -1}, "quiet=-1: use a positive number of seconds"),
        ({"quiet": {1: 5}}, "quiet={1: ...}"),
        ({"tokens": -1}, "tokens=-1: use a number, more than 0"),
        ({"cost": "3 $"}, "cost='3 $'"),
        ({"repeats": -1}, "repeats=-1: use a whole number, 2 or more"),
        ({"tokens": 1.5}, "tokens=1.5: use a whole number"),
        ({"end_on": "cost"}, "end_on='cost' can end nothing: cost is off; write it beside"),
        ({"end_on": "repeats", "repeats": None}, "repeats is off"),
        ({"end_on": "repeat"}, "did you mean 'repeats'?"),
        ({"end_on": ["idle"]}, "use one of quiet, repeats"),
        ({"end_on": 7}, "end_on=7"),
    ],
)
def test_a_mistake_is_said_where_it_is_written(knobs, said):
    """T12"""
    with pytest.raises(ConfigError) as caught:
        idle_guard(60, **knobs)
    assert said in str(caught.value)


def test_operators_merge():
    """T12: the tightest of each, what ends adds up, and a default gives way."""
    one = idle_guard(60, tokens=100, end_on="tokens")
    other = idle_guard(60, tokens=50, repeats=5, quiet={"Task": 9}, end_on="repeats")
    limits = (one | other).limits
    assert limits.ceilings == {"tokens": 50}
    assert (limits.repeats, limits.quiet, limits.quiet_by_name) == (5, 900, {"Task": 9})
    assert limits.end_on == {"tokens", "repeats"}
    assert (idle_timeout(5) | one).limits.repeats == 20
    off = one.replace(repeats=None, quiet=None, tokens=None, end_on=None).limits
    assert (off.repeats, off.quiet, off.ceilings, off.end_on) == (None, None, {}, frozenset())
