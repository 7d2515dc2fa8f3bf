"""T7, T9: timeouts and cancellations of others pass a scope untouched, and outrank it when outer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest
import trio

from streamguard import DeadlineExceededError, StreamTruncatedError, scope
from streamguard.testing import block_loop, run_virtual
from tests.conftest import Loop
from tests.scopes.support import names, witnessed

ASYNCIO = pytest.mark.parametrize("backend", ["asyncio", "uvloop"])


def cancelling() -> int:
    """How many cancels the current task has counted; trio counts none."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


# -- timeouts inside -----------------------------------------------------------------------------


async def test_a_timeout_inside_is_somebody_elses(loop: Loop):
    with witnessed() as told, pytest.raises(TimeoutError) as raised:
        async with scope("step", timeout=60):
            with anyio.fail_after(30):
                await anyio.sleep(1000)
    assert type(raised.value) is TimeoutError
    assert told == []
    assert cancelling() == 0


@pytest.mark.parametrize("kind", [TimeoutError, StreamTruncatedError])
async def test_a_verdict_inside_stays_one_when_the_scope_is_over_too(loop: Loop, kind):
    """T7: it was raised in time; that nobody looked until the scope's own was up renames nothing."""
    own = kind("the backend's")
    with witnessed() as told, pytest.raises(kind) as raised:
        async with scope("step", timeout=60):
            with anyio.CancelScope() as cancelled:
                cancelled.cancel()
                try:
                    await anyio.sleep(1)
                finally:
                    block_loop(90)
                    raise own  # with a cancellation as its context, as every timeout has
    assert raised.value is own
    assert told == []


def test_trios_own_timeout_stays_one():
    """trio's `TooSlowError` is no TimeoutError, and a timeout all the same."""

    async def main():
        with pytest.raises(trio.TooSlowError):
            async with scope("step", timeout=60):
                try:
                    with trio.fail_after(30):
                        await trio.sleep(1000)
                finally:
                    block_loop(90)

    run_virtual(main, backend="trio")


@ASYNCIO
def test_asyncio_timeout_inside(backend):
    async def main():
        with pytest.raises(TimeoutError) as raised:
            async with scope("step", timeout=5):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(5)
        assert type(raised.value) is TimeoutError
        assert cancelling() == 0

    run_virtual(main, backend=backend)


async def test_of_a_foreign_timeout_at_the_same_instant_the_outer_wins(loop: Loop):
    """As among anyio's own scopes."""
    with pytest.raises(DeadlineExceededError):
        async with scope("step", timeout=60):
            with anyio.fail_after(60):
                await anyio.sleep(1000)
    with pytest.raises(TimeoutError) as raised, anyio.fail_after(60):
        async with scope("step", timeout=60):
            await anyio.sleep(1000)
    assert type(raised.value) is TimeoutError


# -- timeouts and cancels outside ----------------------------------------------------------------


async def test_a_timeout_outside_passes(loop: Loop):
    with witnessed() as told:
        with pytest.raises(TimeoutError) as raised, anyio.fail_after(30):
            async with scope("flow", timeout=60):
                async with scope("step", timeout=60):
                    await anyio.sleep(1000)
        assert type(raised.value) is TimeoutError
        with anyio.move_on_after(30) as moved:
            async with scope("step", timeout=60):
                await anyio.sleep(1000)
    assert moved.cancelled_caught
    assert told == []
    assert cancelling() == 0


async def test_a_timeout_between_two_scopes_passes_the_outer(loop: Loop):
    async with scope("flow", timeout=600):
        with anyio.move_on_after(30) as moved:
            async with scope("step", timeout=300):
                await anyio.sleep(1000)
        assert moved.cancelled_caught


async def test_an_outer_cancel_during_the_cleanup_outranks(loop: Loop):
    """T9: the scope had fired, and is not heard of any more."""
    with witnessed() as told, anyio.move_on_after(65) as moved:
        async with scope("step", timeout=60):
            try:
                await anyio.sleep(1000)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(10)
    assert moved.cancelled_caught
    assert told == []
    assert cancelling() == 0


@ASYNCIO
def test_a_native_timeout_outside(backend):
    async def main():
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.01), scope("step", timeout=5):
                await asyncio.sleep(5)
        assert type(raised.value) is TimeoutError
        assert cancelling() == 0

    run_virtual(main, backend=backend)


@ASYNCIO
def test_a_native_cancel_outranks_the_scope_that_has_fired(backend):
    """T9: a task that is cancelled ends cancelled."""

    async def main():
        fired = asyncio.Event()

        async def work():
            async with scope("step", timeout=0.01):
                try:
                    await asyncio.sleep(5)
                finally:
                    fired.set()
                    with anyio.CancelScope(shield=True):
                        await asyncio.sleep(5)

        task = asyncio.create_task(work())
        await fired.wait()
        await asyncio.sleep(0)
        task.cancel("the caller's")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run_virtual(main, backend=backend)


def test_a_native_cancel_in_the_instant_of_the_deadline():
    """T9: both in one pass of the loop; the task's end is a cancellation."""

    async def main():
        async def work():
            async with scope("step", timeout=60):
                await asyncio.sleep(1000)

        task = asyncio.create_task(work())
        asyncio.get_running_loop().call_later(60, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled()

    run_virtual(main)


def test_a_task_that_is_being_cancelled_may_use_scopes():
    """The count of cancels that were there before is not taken for a new one."""

    async def main():
        async def work():
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                with pytest.raises(DeadlineExceededError):
                    async with scope("tool", timeout=60):
                        await asyncio.sleep(1000)
                return asyncio.current_task().cancelling()

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        assert await task == 1

    run_virtual(main)


# -- errors of the body --------------------------------------------------------------------------


class SdkError(Exception):
    """What some SDKs make of a cancellation."""


async def test_what_came_of_the_cut_is_raised_as_the_verdict(loop: Loop):
    """T7: whatever then unwinds is the cause, not the error."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("llm_call", timeout=60):
            try:
                await anyio.sleep(1000)
            except anyio.get_cancelled_exc_class():
                raise SdkError from None
    assert isinstance(raised.value.__cause__, SdkError)
    assert cancelling() == 0


async def test_an_error_of_the_bodys_own_stays_its_own(loop: Loop):
    """In time, or too late without having been cut: nothing was done to it."""
    for late in (0, 90):
        for error in (SdkError(), ExceptionGroup("both", [SdkError(), KeyError()])):
            with pytest.raises(type(error)) as raised:
                async with scope("llm_call", timeout=60):
                    block_loop(late)
                    raise error
            assert raised.value is error


async def test_a_body_that_swallows_the_cut_and_ends_is_done(loop: Loop):
    """T3: an end is an end."""
    with witnessed() as told:
        async with scope("llm_call", timeout=60):
            try:
                await anyio.sleep(1000)
            except anyio.get_cancelled_exc_class():
                partial = "what there is"
        assert partial
    assert told == []
    await anyio.sleep(0)
    assert cancelling() == 0


async def test_a_group_of_errors_from_tasks_that_were_cut(loop: Loop):
    """T7: tasks whose cleanup fails do not hide why there was a cleanup."""

    async def fails_late():
        try:
            await anyio.sleep(1000)
        finally:
            raise SdkError

    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", timeout=60):
            async with anyio.create_task_group() as group:
                group.start_soon(fails_late)
                group.start_soon(anyio.sleep, 1000)
    cause = raised.value.__cause__
    assert isinstance(cause, BaseExceptionGroup)  # on trio with the cancellation in it
    assert cause.split(SdkError)[0] is not None
    assert cancelling() == 0


async def test_a_group_of_errors_in_time_is_not_ours(loop: Loop):
    async def fails():
        await anyio.sleep(10)
        raise SdkError

    with pytest.raises(ExceptionGroup) as raised:
        async with scope("step", timeout=60):
            async with anyio.create_task_group() as group:
                group.start_soon(fails)
                group.start_soon(anyio.sleep, 1000)
    assert raised.group_contains(SdkError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_the_end_of_the_program_passes(loop: Loop, error):
    with pytest.raises(error):
        async with scope("step", timeout=60):
            try:
                await anyio.sleep(1000)
            finally:
                raise error


class Exit(BaseException):
    """As KeyboardInterrupt is one, but one that a loop does not take for its own."""


async def test_the_end_of_the_program_in_a_group_passes(loop: Loop):
    async def fails():
        try:
            await anyio.sleep(1000)
        finally:
            raise Exit

    with pytest.raises(BaseExceptionGroup) as raised:
        async with scope("step", timeout=60):
            async with anyio.create_task_group() as group:
                group.start_soon(fails)
                group.start_soon(anyio.sleep, 1000)
    assert raised.value.split(Exit)[1] is None
    assert cancelling() == 0


# -- generators ----------------------------------------------------------------------------------


def test_a_generator_that_yields_inside_of_a_scope(loop: Loop):
    """It works while one task consumes and closes it; the time of the consumer counts."""

    async def numbers():
        async with scope("llm_call", timeout=55):
            for number in range(1000):
                await anyio.sleep(10)
                yield number

    async def main():
        messages = numbers()
        assert [await anext(messages) for _ in range(3)] == [0, 1, 2]
        await messages.aclose()
        messages = numbers()
        seen = []
        with pytest.raises(DeadlineExceededError):
            async for number in messages:
                seen.append(number)
        assert seen == [0, 1, 2, 3, 4]

    loop.run(main)


@asynccontextmanager
async def beside(loop, function):
    """`function` in a bare task of the loop: one of anyio's own has a scope around it."""
    if loop.name == "trio":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(function)
            yield
    else:
        async with asyncio.TaskGroup() as group:
            group.create_task(function())
            yield


async def test_a_scope_that_is_left_in_another_task(loop: Loop):
    """The likely cause is said, and whoever has gone on under it is not struck."""

    async def holds():
        async with scope("step", "build", timeout=60):
            yield 1

    messages, opened, went_on = holds(), anyio.Event(), []

    async def opens():
        await anext(messages)
        opened.set()
        await anyio.sleep(100)
        went_on.append(True)

    async with beside(loop, opens):
        await opened.wait()
        with pytest.raises(RuntimeError) as raised:
            await messages.aclose()
    assert "step 'build' is left in another task" in str(raised.value)
    assert "aclosing" in str(raised.value)
    assert went_on


def test_a_scope_that_is_left_by_a_task_of_its_own():
    """One that has a scope inside of it: still it is the task that is wrong."""

    async def main():
        async def holds():
            async with scope("step", "build", timeout=60):
                yield 1

        async def closes():
            async with scope("tool", timeout=30):
                with pytest.raises(RuntimeError, match="step 'build' is left in another task"):
                    await messages.aclose()

        messages = holds()
        await anext(messages)
        await asyncio.create_task(closes())

    run_virtual(main)


async def test_scopes_of_generators_that_are_consumed_by_turns(loop: Loop):
    """Left in the order in which they were entered: that is no nesting."""

    async def holds(name):
        async with scope("step", name, timeout=60):
            yield name

    one, two, three = (holds(name) for name in ("one", "two", "three"))
    for messages in (one, two, three):
        await anext(messages)
    with pytest.raises(RuntimeError, match="step 'one' is left before step 'two'"):
        await one.aclose()
    await three.aclose()
    await two.aclose()
    await anyio.sleep(100)  # none of them strikes here


def test_a_scope_that_is_left_when_its_loop_is_gone():
    async def main():
        await step.__aenter__()

    step = scope("step", "build")
    run_virtual(main)
    with pytest.raises(RuntimeError, match="step 'build' is left in another task"):
        step.__aexit__(None, None, None).send(None)


async def test_names_in_a_timeout_that_surfaces_in_a_group(loop: Loop):
    """A task's own scope: the group is the user's, the verdict inside of it the scope's."""

    async def calls():
        async with scope("llm_call", "ask", timeout=30):
            await anyio.sleep(1000)

    with pytest.raises(ExceptionGroup) as raised:
        async with scope("step", "build", timeout=600):
            async with anyio.create_task_group() as group:
                group.start_soon(calls)
                group.start_soon(anyio.sleep, 1000)
    (error,) = raised.value.exceptions
    assert names(error) == (
        "llm_call 'ask'",
        "llm_call 'ask'",
        "step 'build' > llm_call 'ask'",
    )
