"""`guarded_call`: limits, teardown and errors for a single await (B7)."""

from __future__ import annotations

import asyncio
import types

import anyio
import pytest

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    IdleTimeoutError,
    guarded_call,
    idle_guard,
)
from streamguard.events import StreamEnded, TimedOut
from tests.support import Disconnect, Events


async def answer(after=1.0, result=42):
    await anyio.sleep(after)
    return result


async def test_it_gives_what_is_awaited(loop):
    """B7"""
    events = Events()
    assert await guarded_call(answer(59), 60, observer=events) == 42
    assert [event.outcome for event in events.of(StreamEnded)] == ["completed"]


@pytest.mark.parametrize("result", [None, [], StopAsyncIteration, 0])
async def test_any_result_is_one(loop, result):
    """B7"""
    assert await guarded_call(answer(1, result), 60) is result


async def test_a_coroutine_made_of_a_generator_is_awaited(loop):
    """B7: whatever `await` takes."""

    @types.coroutine
    def old():
        return (yield from answer().__await__())

    assert await guarded_call(old(), 60) == 42


async def test_a_call_that_hangs_is_ended(loop):
    """B7: cancelled, disconnected, and raised as any hang is."""
    disconnect, was_cancelled = Disconnect(), []

    async def hang():
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            was_cancelled.append(type(error))
            raise

    began = anyio.current_time()
    with pytest.raises(IdleTimeoutError) as caught:
        await guarded_call(hang(), 60, disconnect=disconnect)
    assert anyio.current_time() - began == 60
    assert was_cancelled == [anyio.get_cancelled_exc_class()]
    assert len(disconnect.calls) == 1
    assert caught.value.teardown.confirmed


async def test_signs_of_progress_keep_it_alive_and_total_bounds_it(loop):
    """B7: a progress notification is `touch()`."""
    activity = Activity("search")

    async def slow():
        for _ in range(100):
            await anyio.sleep(50)
            activity.touch()

    began = anyio.current_time()
    with pytest.raises(DeadlineExceededError, match="stream 'search' was not done in"):
        await guarded_call(slow(), 60, total=600, activity=activity)
    assert anyio.current_time() - began == 600


async def test_its_own_error_passes_through(loop):
    """B7, T7"""
    own = TimeoutError("its own")

    async def fails():
        raise own

    with pytest.raises(TimeoutError) as caught:
        await guarded_call(fails(), 60)
    assert caught.value is own


async def test_somebody_elses_cancel_passes_through(loop):
    """B7, T7"""
    with anyio.move_on_after(5) as scope:
        await guarded_call(answer(60), 30)
    assert scope.cancelled_caught


async def test_an_operator_will_do(loop):
    """B7"""
    events = Events()
    guard = idle_guard(60, observer=events)
    assert await guarded_call(answer(), guard) == 42
    with pytest.raises(IdleTimeoutError):
        await guarded_call(answer(), guard, idle=0.5)
    assert len(events.of(TimedOut)) == 1


async def test_in_mode_off_it_is_the_await_itself(loop):
    """T11"""
    assert await guarded_call(answer(100), 60, mode="off") == 42


async def test_a_result_at_the_deadline_wins(loop):
    """T3"""
    assert await guarded_call(answer(60), None, total=60) == 42


async def test_many_at_once(loop):
    """B7"""
    async with anyio.create_task_group() as group:
        for n in range(100):
            group.start_soon(guarded_call, answer(n / 10), 60)


def test_a_future_will_do():
    """B7"""

    async def main():
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 7)
        assert await guarded_call(future, 5) == 7
        task = asyncio.create_task(answer(0, 8))
        assert await guarded_call(task, 5) == 8

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((answer, 60), TypeError, "cannot be awaited: call the function"),
        ((None, -1), ConfigError, "idle=-1"),
        ((None, 5, {"read": print}), ConfigError, "leave read= out"),
        ((None, idle_guard(5), {"idel": 3}), ConfigError, "did you mean 'idle'?"),
    ],
)
def test_mistakes_are_said_at_once(arguments, error, said):
    """B7, T12: and no coroutine is left unawaited, which would be a warning."""

    async def main():
        made, guard, *knobs = arguments
        made = made or answer()
        with pytest.raises(error) as caught:
            await guarded_call(made, guard, **(knobs[0] if knobs else {}))
        assert said in str(caught.value)

    asyncio.run(main())
