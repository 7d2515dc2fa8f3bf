"""T3, T8, O6: upstreams that do not hear a cancel, or take their time, each end as promised."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from streamguard import IdleTimeoutError, idle_guard
from streamguard._guard.attempt import UNWINDING
from streamguard.events import CutWithdrawn, PullDeaf, TimedOut, TornDown
from streamguard.testing import Script, block_loop, done, hang, say, slow_cleanup, swallows_cancel
from streamguard.testing.messages import Said
from tests.conftest import Loop
from tests.support import Disconnect, Events, take


async def test_swallowed_and_hung_on_teardown_frees_the_caller(loop: Loop, form: str) -> None:
    """O6: after 5 s teardown starts in its own task, and what it ends frees the caller."""
    source = swallows_cancel(Script(say("a"), hang()), "hang")
    events, called = Events(), list[float]()

    def disconnect() -> None:
        called.append(anyio.current_time())
        source.release()

    started = anyio.current_time()
    guard = idle_guard(60, disconnect=disconnect, observer=events)
    taken = await take(source | guard, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed
    assert loop.took(called[0] - started, 60 + UNWINDING)
    assert loop.took(taken.elapsed, 60 + UNWINDING)
    assert source.cancels == 1
    assert [type(e) for e in events.of((PullDeaf, TimedOut, TornDown))] == [
        PullDeaf,
        TimedOut,
        TornDown,
    ]


async def test_swallowed_and_yielded_is_delivered(loop: Loop, form: str) -> None:
    """T3: a message that the cut pull still yields withdraws the verdict; the stream goes on."""
    events, disconnect = Events(), Disconnect()
    source = swallows_cancel(Script(say("a"), hang()), "yield")
    taken = await take(source | idle_guard(60, disconnect=disconnect, observer=events), form)
    assert taken.error is None
    assert [m.text for m in taken.messages] == ["a", "after the cancel"]
    assert loop.took(taken.elapsed, 60)
    assert not disconnect.calls
    assert len(events.of(CutWithdrawn)) == 1
    assert not events.of(TimedOut)


async def test_swallowed_and_ended_is_the_verdict(loop: Loop, form: str) -> None:
    """T7: a normal end because of our cancel is raised as the verdict, the end as its cause."""
    disconnect = Disconnect()
    source = swallows_cancel(Script(say("a"), hang()), "end")
    taken = await take(source | idle_guard(60, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert isinstance(taken.error.__cause__, StopAsyncIteration)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed
    assert loop.took(taken.elapsed, 60)
    assert len(disconnect.calls) == 1


async def test_swallowed_and_then_a_finished_turn(loop: Loop, form: str) -> None:
    """T3: a watchdog never turns a finished turn into a failed one."""
    source = swallows_cancel(Script(say("a"), hang()), "yield", message=done().message)
    taken = await take(source | idle_guard(60), form)
    assert taken.error is None
    assert len(taken.messages) == 2


@pytest.mark.parametrize("shielded", [False, True], ids=["open", "shielded"])
async def test_ten_seconds_of_cleanup(loop: Loop, form: str, shielded: bool) -> None:
    """O6: slow cleanup is waited for; after 5 s the teardown runs beside it, and then it is cut."""
    source = slow_cleanup(Script(say("a"), hang()), 2 * UNWINDING, shielded=shielded)
    disconnect = Disconnect()
    started = anyio.current_time()
    taken = await take(source | idle_guard(60, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(disconnect.calls[0] - started, 60 + UNWINDING)
    assert loop.took(taken.elapsed, 60 + UNWINDING + 1)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed


async def test_quick_cleanup_comes_before_disconnect(loop: Loop, form: str) -> None:
    """D1: a pull that unwinds within its bound is over before disconnect begins."""
    took = UNWINDING / 2
    source = slow_cleanup(Script(hang()), took)
    disconnect = Disconnect()
    started = anyio.current_time()
    taken = await take(source | idle_guard(60, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(disconnect.calls[0] - started, 60 + took)


async def test_a_message_that_comes_too_late(loop: Loop, form: str) -> None:
    """T3: once disconnect has begun the verdict is final; what the pull then yields is not taken."""

    async def deaf() -> Any:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2 * UNWINDING)
        yield Said("too late")
        yield Said("never asked for")

    taken = await take(deaf() | idle_guard(60), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.messages == []


async def test_after_a_verdict_the_pull_is_never_asked_again(loop: Loop) -> None:
    """T8: the attempt is over; whoever asks again gets the same error, and the source no pull."""
    pulls = 0

    class Channel:
        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            nonlocal pulls
            pulls += 1
            await anyio.sleep_forever()

    stream = aiter(Channel() | idle_guard(60))
    with pytest.raises(IdleTimeoutError) as first:
        await anext(stream)
    with pytest.raises(IdleTimeoutError) as second:
        await anext(stream)
    assert second.value is first.value
    assert pulls == 1


async def test_a_pull_that_is_never_parked(loop: Loop, form: str) -> None:
    """T9: one that spins is no place for a cancel; after 5 s it is torn down as a deaf one."""
    over = False

    async def spinning() -> Any:
        while not over:
            await anyio.lowlevel.checkpoint()
            block_loop(0.01)  # virtual clocks stand still while anything can run
        yield Said("over")

    def disconnect() -> None:
        nonlocal over
        over = True

    events = Events()
    guard = idle_guard(60, disconnect=disconnect, observer=events)
    taken = await take(spinning() | guard, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert len(events.of(PullDeaf)) == 1
    assert loop.took(taken.elapsed, 60 + UNWINDING, slack=1)


async def test_a_spinning_pull_that_hears_a_cancel_is_freed_by_it(native: Loop) -> None:
    """O6: nothing more can be lost when the verdict is final, so even a spinning pull is cut."""

    async def spinning() -> Any:
        while True:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            block_loop(0.01)
        yield

    started = anyio.current_time()
    with pytest.raises(IdleTimeoutError):
        await anext(aiter(spinning() | idle_guard(60)))
    assert native.took(anyio.current_time() - started, 60 + UNWINDING, slack=1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("passes", range(6))
async def test_a_pull_that_waits_again(loop: Loop, form: str, passes: int) -> None:
    """T9: one that had its answer just then, and waits for more, is cut a moment later."""
    first = anyio.Event()

    async def answer() -> None:
        await anyio.sleep(60)
        for _ in range(passes):
            await anyio.lowlevel.checkpoint()
        first.set()

    async def waits_twice() -> Any:
        await first.wait()
        await anyio.sleep_forever()
        yield

    events = Events()
    async with anyio.create_task_group() as tg:
        tg.start_soon(answer)
        taken = await take(waits_twice() | idle_guard(60, observer=events), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 60, slack=0.1)
    assert not events.of(PullDeaf)
