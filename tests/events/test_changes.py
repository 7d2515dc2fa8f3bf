"""What is told of work, holds and turns: each beginning once, and each end once."""

from __future__ import annotations

import time

import anyio
import pytest

from streamguard import Activity, ToolTimeoutError, idle_guard
from streamguard.events import HoldBegan, HoldOver, StreamEnded, TurnOver, WorkBegan, WorkOver
from streamguard.signals import TurnEnded, WorkStarted
from streamguard.testing import (
    Script,
    call,
    done,
    hang,
    say,
    silence,
    tool,
    tool_end,
    tool_start,
    wait_ended,
    waiting,
)
from tests.support import Events, take

TOLD = (WorkBegan, WorkOver, HoldBegan, HoldOver, TurnOver)


def told(events):
    """What was told, as `(seconds since the start, what, name or reason, how)`."""
    began = events[0].at
    return [
        (
            round(event.at - began, 3),
            type(event).__name__,
            getattr(event, "name", "") or getattr(event, "reason", ""),
            getattr(event, "outcome", ""),
        )
        for event in events
        if isinstance(event, TOLD)
    ]


async def watched(*steps, activity=None):
    events = Events()
    taken = await take(Script(*steps) | idle_guard(60, activity=activity, observer=events))
    return events, taken


async def test_work_begins_and_is_over(loop, form):
    """E6: at the instants of its messages, by name, with how it ended."""
    events, _ = await watched(
        tool("Bash", 100),
        tool_start("t", "Edit"),
        silence(5),
        tool_end("t", error=True),
        done(),
    )
    assert told(events) == [
        (0, "WorkBegan", "Bash", ""),
        (100, "WorkOver", "Bash", "finished"),
        (100, "WorkBegan", "Edit", ""),
        (105, "WorkOver", "Edit", "failed"),
        (105, "TurnOver", "", "success"),
    ]
    assert [event.elapsed for event in events.of(WorkOver)] == pytest.approx([100, 5])


async def test_what_the_turn_leaves_unfinished_is_dropped(loop):
    """S3: with the turn; in the background, with the stream."""
    events, _ = await watched(
        tool_start("a", "Bash"),
        tool_start("b", "server", background=True),
        silence(1),
        done(),
        silence(9),
    )
    assert told(events)[2:] == [
        (1, "WorkOver", "Bash", "dropped"),
        (1, "TurnOver", "", "success"),
        (10, "WorkOver", "server", "dropped"),
    ]


async def test_what_a_verdict_cut_is_over_before_the_stream_is(loop, form):
    """E6: so that who keeps count of it, or draws it, ends with nothing open."""
    events = Events()
    guard = idle_guard(60, tools=100, observer=events)
    taken = await take(Script(tool_start("t", "Bash"), hang()) | guard, form)
    assert isinstance(taken.error, ToolTimeoutError)
    assert told(events)[1:] == [(100, "WorkOver", "Bash", "dropped")]
    assert isinstance(events[-1], StreamEnded)


async def test_a_hold_by_hand(loop):
    """T6: also one that is older than the stream, and released while nothing else happens."""
    activity = Activity("a")
    hold = activity.hold("permission")

    async def release():
        await anyio.sleep(100)
        hold.__exit__(None, None, None)

    hold.__enter__()
    async with anyio.create_task_group() as group:
        group.start_soon(release)
        events, _ = await watched(silence(120), done(), activity=activity)
    assert told(events)[:2] == [
        (0, "HoldBegan", "permission", ""),
        (100, "HoldOver", "permission", ""),
    ]
    [began] = events.of(HoldBegan)
    assert began.until - began.at == pytest.approx(3600, abs=0.5)


async def test_a_hold_that_the_backend_announced(loop):
    """S0: by its reason; said again when its end has moved."""
    until = time.time() + 500
    events, _ = await watched(
        waiting("w", "rate_limit"),
        silence(10),
        waiting("w", "rate_limit", until=until),
        silence(10),
        wait_ended("w"),
        done(),
    )
    assert told(events)[:3] == [
        (0, "HoldBegan", "rate_limit", ""),
        (10, "HoldBegan", "rate_limit", ""),
        (20, "HoldOver", "rate_limit", ""),
    ]
    assert {event.id for event in events.of(HoldBegan)} == {"w"}


async def test_a_hold_that_lapses_was_over_when_it_lapsed(loop):
    """T6: nobody is told at that moment; the next message tells of it."""
    activity = Activity("a")
    hold = activity.hold("permission", allowance=30)
    events, _ = await watched(
        call(hold.__enter__), silence(50), say("x"), done(), activity=activity
    )
    assert told(events)[:2] == [
        (0, "HoldBegan", "permission", ""),
        (30, "HoldOver", "permission", ""),
    ]
    hold.__exit__(None, None, None)
    assert len(events.of(HoldOver)) == 1


async def test_a_hold_that_outlives_its_stream(loop):
    """E6: each beginning has one end."""
    activity = Activity("a")
    with activity.hold("permission"):
        events, _ = await watched(say("x"), done(), activity=activity)
    assert [name for _, name, *_ in told(events)] == ["HoldBegan", "TurnOver", "HoldOver"]


async def test_nothing_is_made_where_nobody_observes(loop):
    """E6: it costs nothing there."""
    stream = Script(tool("Bash", 1), hang()) | idle_guard(60)
    iterator = aiter(stream)
    await anext(iterator)
    assert iterator.attempt._news is None
    await iterator.aclose()


async def test_work_says_who_began_it(loop):
    """E6: a subagent's tool has the subagent's call as its parent, and each its scope."""
    told = Events()

    async def subagent():
        yield WorkStarted("t-1", "Task", scope="subagent")
        yield WorkStarted("t-2", "Bash", parent="t-1")
        yield TurnEnded()

    async for _ in subagent() | idle_guard(60, read=lambda signal: signal, observer=told):
        pass
    assert [(work.name, work.scope, work.parent) for work in told.of(WorkBegan)] == [
        ("Task", "subagent", None),
        ("Bash", "tool", "t-1"),
    ]
