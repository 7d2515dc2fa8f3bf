"""The cases of the idle watchdog (S4), over three loops: what it had to detect, and what it could not."""

from __future__ import annotations

import anyio
import pytest

from streamguard import IdleTimeoutError, ToolTimeoutError, idle_guard
from streamguard.events import TimedOut
from streamguard.testing import (
    FakeClient,
    Script,
    done,
    hang,
    opened,
    repeat,
    say,
    silence,
    tool,
    tool_end,
    tool_start,
)
from tests.support import Events, take

WINDOW = 50.0


@pytest.fixture
def guard():
    return idle_guard(WINDOW)


# -- S4-19: a watchdog beside the message loop ---------------------------------------------------


async def test_it_fires_after_activity_that_stopped(loop, form, guard):
    """S4-19: some messages, then nothing: one window after the last one."""
    source = Script(*[say("x"), silence(10)] * 3, hang())
    taken = await take(source | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert len(taken.messages) == 3
    assert loop.took(taken.elapsed, 20 + WINDOW)


async def test_it_fires_where_nothing_ever_came(loop, form, guard):
    """S4-05, S4-19: a backend that hangs from its start."""
    taken = await take(Script(hang()) | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, WINDOW)


async def test_switched_off_it_never_fires(loop, form):
    """S4-19: then the end is the caller's own cancellation, and is not renamed (S4-11)."""
    for off in (idle_guard(None), idle_guard(WINDOW, mode="off")):
        with anyio.move_on_after(500) as scope:
            taken = await take(Script(say("a"), hang()) | off, form)
            pytest.fail(f"it ended: {taken}")
        assert scope.cancelled_caught


async def test_a_run_that_is_well_is_left_alone(loop, form, guard):
    """S4-19: nothing is added, lost, delayed or told."""
    events = Events()
    source = Script(*[say("x"), silence(40)] * 10, done())
    plain = [message async for message in source]
    taken = await take(source | guard.replace(observer=events), form)
    assert taken.error is None
    assert taken.messages == plain
    assert loop.took(taken.elapsed, 400)
    assert not events.of(TimedOut)


async def test_a_tool_of_four_windows_is_no_hang(loop, form, guard):
    """S4-06, S4-07, S4-19: what is in flight is being waited for."""
    taken = await take(Script(say("a"), tool("Bash", 4 * WINDOW), done()) | guard, form)
    assert taken.error is None
    assert loop.took(taken.elapsed, 4 * WINDOW)


async def test_it_fires_after_the_result(loop, form, guard):
    """S4-19: and the result itself was the last sign of life."""
    source = Script(say("a"), tool("Bash", 4 * WINDOW), hang())
    taken = await take(source | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 5 * WINDOW)


async def test_stray_results_do_not_count_below_zero(loop, form, guard):
    """S4-06: results that nobody started, then a tool: it still pauses, and its end still ends."""
    source = Script(
        *(tool_end("x"), tool_end("y"), tool_start("1"), silence(4 * WINDOW)),
        *(tool_end("1"), hang()),
    )
    taken = await take(source | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 5 * WINDOW)


async def test_a_lost_result_does_not_hold_for_ever(loop, form):
    """S4: what a counter would wait for until the end of time ends at its allowance."""
    guard = idle_guard(WINDOW, tools=300)
    taken = await take(Script(tool_start("lost", "Bash"), hang()) | guard, form)
    assert type(taken.error) is ToolTimeoutError
    assert loop.took(taken.elapsed, 300)


async def test_a_consumer_that_is_behind_is_no_hang(loop, form, guard):
    """S4-07, S4-09: as long as messages lie ready it waits, and then for a whole window."""
    client = FakeClient(Script(*[say("x")] * 5, hang()))
    await client.connect("go")
    taken = await take(client.receive_response() | guard, form, lambda _message: anyio.sleep(60))
    assert type(taken.error) is IdleTimeoutError
    assert len(taken.messages) == 5
    assert loop.took(taken.elapsed, 5 * 60 + WINDOW)
    await client.disconnect()


async def test_it_fires_once(loop, form):
    """S4-10: one verdict, one disconnect, however often the stream is asked afterwards."""
    events, client = Events(), FakeClient(Script(hang()))
    await client.connect("go")
    guard = idle_guard(WINDOW, client=client, observer=events)
    stream = client.receive_response() | guard
    error = (await take(stream, form)).error
    assert type(error) is IdleTimeoutError
    assert len(events.of(TimedOut)) == 1
    assert client.calls.count("disconnect") == 1


async def test_the_error_keeps_what_a_retry_needs(loop, form):
    """S4-14: the session goes on from there."""
    source = Script(opened("sess-1"), say("a"), hang())
    error = (await take(source | idle_guard(WINDOW), form)).error
    assert error.verdict.token == error.activity.token == "sess-1"


async def test_a_result_that_came_in_time_wins(loop, form, guard):
    """S4-12, T3: a finished turn is never a hang, even at the very instant of the verdict."""
    taken = await take(Script(say("a"), silence(WINDOW), done()) | guard, form)
    assert taken.error is None
    assert loop.took(taken.elapsed, WINDOW)


# -- S1: beside other sessions -------------------------------------------------------------------


async def test_a_stream_that_ends_because_we_disconnected_is_no_normal_end(loop, form):
    """S1-16: the end that follows the verdict is raised as the verdict."""
    client = FakeClient(Script(say("a"), hang()))
    await client.connect("go")
    taken = await take(client.receive_response() | idle_guard(50, client=client), form)
    assert type(taken.error) is IdleTimeoutError
    assert client.disconnected


async def test_sessions_share_no_state(loop):
    """S1-22: one hangs, its neighbour with the same operator does not notice."""
    guard = idle_guard(WINDOW)
    ends = {}

    async def session(name, source):
        ends[name] = (await take(source | guard)).error

    talk = repeat(say("x"), silence(20), times=20)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            session, "hangs", Script(say("a"), tool_start("1"), tool_end("1"), hang())
        )
        tasks.start_soon(session, "well", Script(talk, done()))
    assert type(ends["hangs"]) is IdleTimeoutError
    assert ends["well"] is None
