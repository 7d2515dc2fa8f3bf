"""Sessions that are busy and get nowhere: what follows, and what adds up over attempts and prompts."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from streamguard import (
    CeilingExceededError,
    Connection,
    EmptyTurnError,
    RepeatedWorkError,
    ResumePoint,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import HollowEnd, RetryScheduled, StreamEnded
from streamguard.signals import TurnEnded, Usage
from streamguard.testing import (
    Script,
    done,
    fail,
    message,
    opened,
    repeat,
    say,
    tool,
    tool_start,
    usage,
)
from tests.support import Events, take

LOOP = repeat(tool("Bash", 1, input="make", outcome="failed"), times=50)


def playing(*scripts, points=None):
    """An `open` that plays one script for each attempt."""
    left = list(scripts)

    @asynccontextmanager
    async def open_(point):
        if points is not None:
            points.append(point)
        yield left.pop(0)

    return open_


async def test_a_loop_is_ended_and_the_session_resumed(loop):
    """B2, R3: it may get further another time."""
    points = []
    first = Script(opened("tok"), LOOP)
    second = Script(opened("tok"), say("done at last"), done())
    guard = idle_guard(60, repeats=5, end_on="repeats") | reconnecting_resume(backoff=(0,))
    async with session(playing(first, second, points=points), prompt="go") | guard as chat:
        taken = await take(chat)
    assert taken.error is None
    assert [point.token for point in points] == [None, "tok"]
    assert isinstance(points[1].reason, RepeatedWorkError)


async def test_an_empty_success_is_asked_again_where_that_is_written(loop):
    """B3, R3: nothing was done, so nothing is done twice."""
    events = Events()
    first = Script(opened("tok"), done(answered=False))
    second = Script(opened("tok"), say("42"), done())
    guard = idle_guard(60, end_on="empty", observer=events) | reconnecting_resume(backoff=(0,))
    async with session(playing(first, second), prompt="go") | guard as chat:
        taken = await take(chat)
    assert taken.error is None
    assert len(events.of(RetryScheduled)) == 1


async def test_a_ceiling_is_never_retried(loop):
    """B4: another attempt would cost more."""
    script = Script(opened("tok"), usage(output_tokens=500), say("x"))
    guard = idle_guard(60, tokens=100, end_on="tokens") | reconnecting_resume(backoff=(0,))
    async with session(playing(script), prompt="go") | guard as chat:
        taken = await take(chat)
    assert isinstance(taken.error, CeilingExceededError)
    assert taken.error.gave_up == "class"


async def test_attempts_add_up_without_counting_twice(loop):
    """B4: a process counts from its own beginning, and calls are told again."""
    broken = Script(
        opened("tok"),
        usage(output_tokens=40, call="a"),
        usage(output_tokens=40, call="a"),
        say("x"),
        fail(ConnectionError("gone")),
    )
    whole = Script(opened("tok"), say("y"), usage(output_tokens=30, span="process"), done())
    guard = idle_guard(60) | reconnecting_resume(backoff=(0,))
    async with session(playing(broken, whole), prompt="go") | guard as chat:
        taken = await take(chat)
        assert taken.error is None
        assert chat.activity.done.spent == {"tokens": 70, "calls": 1}


async def test_prompts_add_up_and_the_point_takes_it_along(loop):
    """B4: over turns, and over workers."""

    @asynccontextmanager
    async def open_(point):
        def ask(prompt):
            return Script(say(prompt), usage(output_tokens=60), done())

        yield Connection(ask)

    guard = idle_guard(60, tokens=100, end_on="tokens")
    async with session(open_, prompt="one") | guard as chat:
        assert (await take(chat)).error is None
        point = chat.point
        second = await take(chat.ask("two"))
    assert isinstance(second.error, CeilingExceededError)
    assert second.error.verdict.amount == 120
    assert point.spent == {"tokens": 60, "calls": 1}
    again = ResumePoint.from_json(point.as_json())
    assert again.spent == point.spent
    async with session(open_, point=again.asking("three")) | guard as chat:
        assert isinstance((await take(chat)).error, CeilingExceededError)


async def test_a_prompt_beyond_the_ceiling_is_not_asked(loop):
    """B4: the turn that passed it is over; the next one is refused, and costs nothing."""
    asked = []

    @asynccontextmanager
    async def open_(point):
        def ask(prompt):
            asked.append(prompt)
            end = (Usage({"output_tokens": 150}), TurnEnded("success", answered=True))
            return Script(say(prompt), message(end))

        yield Connection(ask)

    def read(said):
        return said if isinstance(said, tuple) else said.signals()

    guard = idle_guard(60, tokens=100, end_on="tokens", read=read)
    async with session(open_, prompt="one") | guard as chat:
        assert (await take(chat)).error is None
        second = await take(chat.ask("two"))
    assert isinstance(second.error, CeilingExceededError)
    assert asked == ["one"]


@pytest.mark.parametrize("lives_on", [True, False])
async def test_background_work_is_abandoned_with_its_connection_only(loop, lives_on):
    """B3: a connection that takes another prompt still has it."""
    events = Events()

    @asynccontextmanager
    async def open_(point):
        script = Script(say("x"), tool_start("b", "build", background=True), done())
        yield Connection(lambda _prompt: script) if lives_on else script

    async with session(open_, prompt="one") | idle_guard(60, observer=events) as chat:
        assert (await take(chat)).error is None
    outcomes = [event.outcome for event in events.of(StreamEnded)]
    assert outcomes == ["completed" if lives_on else "abandoned"]
    assert len(events.of(HollowEnd)) == (not lives_on)


async def test_an_empty_turn_is_an_error_of_that_turn(loop):
    """B3"""
    script = Script(opened("tok"), done(answered=False))
    async with session(playing(script), prompt="go") | idle_guard(60, end_on="empty") as chat:
        taken = await take(chat)
    assert isinstance(taken.error, EmptyTurnError)
