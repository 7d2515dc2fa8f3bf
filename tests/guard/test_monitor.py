"""O10: `idle_guard(...).monitor()`, the guard for loops that cannot be wrapped."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import anyio
import pytest

from streamguard import (
    Activity,
    DeadlineExceededError,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    ToolTimeoutError,
    idle_guard,
)
from streamguard import _loops as loops
from streamguard.events import StreamEnded, StreamStarted, TimedOut, TornDown
from streamguard.testing import done, say, tool_end, tool_start
from tests.conftest import Loop
from tests.support import Disconnect, Events

IDLE = 60.0


def message(step: Any) -> Any:
    return step.message


async def test_silence_surfaces_at_the_async_with(loop: Loop) -> None:
    """O10: it cancels the block's scope, runs the disconnect, and raises there as itself."""
    disconnect, events, unwound = Disconnect(), Events(), list[float]()
    guard = idle_guard(IDLE, disconnect=disconnect, observer=events)
    started = anyio.current_time()
    with pytest.raises(IdleTimeoutError) as raised:
        async with guard.monitor() as monitor:
            monitor.saw(message(say("a")))
            try:
                await anyio.sleep(1000)
            finally:
                unwound.append(anyio.current_time() - started)
    assert loop.took(unwound[0], IDLE)
    assert len(disconnect.calls) == 1
    assert raised.value.teardown is not None
    assert raised.value.teardown.confirmed
    assert raised.value.verdict is not None
    assert raised.value.verdict.messages == 1
    for kind in (StreamStarted, TimedOut, TornDown, StreamEnded):
        assert len(events.of(kind)) == 1
    assert not loops.current().timekeeper._heap
    await anyio.sleep(0)  # nothing strikes after the block


async def test_messages_keep_it_alive(loop: Loop) -> None:
    """O10: `saw` starts a fresh window each time."""
    async with idle_guard(IDLE).monitor() as monitor:
        for _ in range(5):
            await anyio.sleep(IDLE * 0.8)
            monitor.saw(message(say("a")))
    assert monitor.activity.messages == 5
    assert monitor.activity.status == "ended"


class OwnError(Exception):
    """The consumer's."""


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ("in a wait", "failed"),
        ("after a wait", "left"),
        ("after a wait that had failed", "left"),
        ("by itself", "completed"),
        ("at its end", "completed"),
    ],
)
async def test_whose_error_it_was_is_told(loop: Loop, ends: str, outcome: str) -> None:
    """O8, O10: what comes out of a wait is the backend's, anything else the consumer's."""
    events = Events()
    with suppress(OSError, OwnError):
        async with idle_guard(IDLE, observer=events).monitor() as monitor:
            with suppress(OSError if "had failed" in ends else StopAsyncIteration):
                with monitor.waiting():
                    await anyio.sleep(1)
                    if ends == "at its end":
                        raise StopAsyncIteration
                    if ends in ("in a wait", "after a wait that had failed"):
                        raise OSError("connection lost")
            if ends == "after a wait that had failed":
                with monitor.waiting():
                    await anyio.sleep(1)
            if ends.startswith("after a wait"):
                raise OwnError
    assert [event.outcome for event in events.of(StreamEnded)] == [outcome]


async def test_without_waiting_all_time_counts(loop: Loop) -> None:
    """O10: until `waiting` is used nobody can know which time is the consumer's."""
    with pytest.raises(IdleTimeoutError):
        async with idle_guard(IDLE).monitor():
            await anyio.sleep(IDLE * 2)


async def test_with_waiting_only_that_time_counts(loop: Loop) -> None:
    """O10, T1: the consumer's own work adds nothing; waits add up until progress."""
    started = anyio.current_time()
    with pytest.raises(IdleTimeoutError):
        async with idle_guard(IDLE).monitor() as monitor:
            with monitor.waiting():
                await anyio.sleep(IDLE / 2)
            await anyio.sleep(IDLE * 10)
            with monitor.waiting():
                await anyio.sleep(IDLE)
    assert loop.took(anyio.current_time() - started, IDLE * 11)


async def test_a_message_within_waiting(loop: Loop) -> None:
    """O10: `saw` inside a wait resets it, and the wait goes on."""
    started = anyio.current_time()
    with pytest.raises(IdleTimeoutError):
        async with idle_guard(IDLE).monitor() as monitor:
            with monitor.waiting():
                await anyio.sleep(IDLE * 0.8)
                monitor.saw(message(say("a")))
                await anyio.sleep(IDLE * 2)
    assert loop.took(anyio.current_time() - started, IDLE * 1.8)


async def test_a_message_after_the_block(loop: Loop) -> None:
    """O7, O10: whoever drains what is left may still tell of it, and nothing is watched any more."""
    async with idle_guard(IDLE).monitor() as monitor:
        monitor.saw(message(say("a")))
    monitor.saw(message(say("b")))
    with monitor.waiting():
        monitor.saw(message(say("c")))
        assert not loops.current().timekeeper._heap


async def test_a_monitor_guards_one_block(loop: Loop) -> None:
    """O10: neither two at once nor one after another, which nothing would watch."""
    monitor = idle_guard(60).monitor()
    async with monitor:
        with pytest.raises(RuntimeError, match=r"make another with operator.monitor\(\)"):
            await monitor.__aenter__()
    with pytest.raises(RuntimeError, match="a monitor guards one block"):
        await monitor.__aenter__()


async def test_one_after_the_other(loop: Loop) -> None:
    """O1: what is bound to an operator serves the next block when the last is over, kept or not."""
    disconnect, activity = Disconnect(), Activity("turns")
    guard = idle_guard(IDLE, disconnect=disconnect, activity=activity)
    kept = []
    for _ in range(3):
        async with guard.monitor() as monitor:
            kept.append(monitor)
            assert activity.waiting_since is not None
        assert activity.waiting_since is None
    with pytest.raises(IdleTimeoutError):
        async with guard.monitor():
            await anyio.sleep_forever()
    assert activity.waiting_since is None


async def test_first_and_tools(loop: Loop) -> None:
    """O10: the other limits hold as everywhere."""
    with pytest.raises(FirstMessageTimeoutError):
        async with idle_guard(IDLE, first=30).monitor():
            await anyio.sleep(40)

    async with idle_guard(IDLE).monitor() as monitor:
        monitor.saw(message(tool_start("t-1", "Bash")))
        await anyio.sleep(IDLE * 5)
        monitor.saw(message(tool_end("t-1")))

    with pytest.raises(ToolTimeoutError):
        async with idle_guard(IDLE, tools=100).monitor() as monitor:
            monitor.saw(message(tool_start("t-1", "Bash")))
            await anyio.sleep(110)


async def test_total_strikes_outside_of_any_wait(loop: Loop) -> None:
    """O10, T1: `total` runs on through the consumer's work."""
    guard = idle_guard(IDLE, total=100)
    with pytest.raises(DeadlineExceededError):
        async with guard.monitor() as monitor:
            with monitor.waiting():
                pass
            await anyio.sleep(1000)


async def test_exit_grace_ends_the_block_normally(loop: Loop) -> None:
    """T14: the turn was a success, so nothing is raised; disconnect runs."""
    disconnect = Disconnect()
    started = anyio.current_time()
    guard = idle_guard(IDLE, exit_grace=5, disconnect=disconnect)
    async with guard.monitor() as monitor:
        monitor.saw(message(say("a")))
        monitor.saw(message(done()))
        await anyio.sleep(1000)
    assert loop.took(anyio.current_time() - started, 5)
    assert len(disconnect.calls) == 1


async def test_exit_grace_hides_no_error_of_the_body(loop: Loop) -> None:
    """T14: what the body raises while it unwinds still comes out."""
    with pytest.raises(ValueError, match="while unwinding"):
        async with idle_guard(IDLE, exit_grace=5).monitor() as monitor:
            monitor.saw(message(done()))
            try:
                await anyio.sleep(1000)
            finally:
                raise ValueError("while unwinding")


async def test_errors_of_the_body(loop: Loop) -> None:
    """O5: they come out as themselves, and nothing is torn down."""
    disconnect, failure = Disconnect(), ValueError("the body's")
    with pytest.raises(ValueError) as raised:
        async with idle_guard(IDLE, disconnect=disconnect).monitor() as monitor:
            with monitor.waiting():
                raise failure
    assert raised.value is failure
    assert not disconnect.calls
    assert not loops.current().timekeeper._heap


async def test_a_body_with_a_task_group(loop: Loop) -> None:
    """O5: every task of the body is cancelled, and one error comes out."""
    with pytest.raises(IdleTimeoutError):
        async with idle_guard(IDLE).monitor(), anyio.create_task_group() as tg:
            tg.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()


async def test_an_outer_scope(loop: Loop) -> None:
    """T7: the consumer's own limit ends the block quietly."""
    disconnect = Disconnect()
    with anyio.move_on_after(30) as scope:
        async with idle_guard(IDLE, disconnect=disconnect).monitor():
            await anyio.sleep(1000)
    assert scope.cancelled_caught
    assert not disconnect.calls


async def test_a_native_cancel_while_it_is_torn_down(native: Loop) -> None:
    """D6: it waits for the teardown and outranks the verdict."""
    disconnect = Disconnect(seconds=20)

    async def monitored() -> None:
        async with idle_guard(60, disconnect=disconnect).monitor():
            await asyncio.sleep(1000)

    loop = asyncio.get_running_loop()
    start = loop.time()
    task = asyncio.create_task(monitored())
    loop.call_at(start + 65, task.cancel)
    await asyncio.wait({task})
    assert task.cancelled()
    assert disconnect.finished == 1
    assert loop.time() - start == pytest.approx(80)


async def test_holds_pause_it(loop: Loop) -> None:
    """T6: an activity made before the block pauses its idle."""
    activity = Activity("issue-7")
    async with idle_guard(IDLE, activity=activity).monitor() as monitor:
        with activity.hold("a person is asked", allowance=3600):
            await anyio.sleep(IDLE * 10)
        assert monitor.activity is activity


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_modes(loop: Loop, mode: Any) -> None:
    """T11: `warn` tells and enforces nothing, `off` does nothing at all."""
    events = Events()
    async with idle_guard(IDLE, mode=mode, observer=events).monitor() as monitor:
        monitor.saw(message(say("a")))
        with monitor.waiting():
            await anyio.sleep(IDLE * 3)
    assert [event.enforced for event in events.of(TimedOut)] == [False] * (mode == "warn")
    assert bool(events) is (mode == "warn")
