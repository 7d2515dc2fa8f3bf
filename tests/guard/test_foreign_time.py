"""T7, T8, D6: what is not ours comes out as itself, and our cancel is undone exactly once.

Timeouts of the upstream, of the consumer and of libraries between them, failing siblings, native
cancels around every one of our steps, and Ctrl-C.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
import trio

from streamguard import IdleTimeoutError, StreamInterruptedError, idle_guard
from streamguard._guard.attempt import UNWINDING
from streamguard._loops import _asyncio
from streamguard.events import CutWithdrawn, TimedOut, TornDown
from streamguard.testing import (
    Channel,
    Script,
    fail,
    hang,
    holds_scope,
    holds_task_group,
    own_fail_after,
    run_virtual,
    say,
    silence,
    slow_cleanup,
    swallows_cancel,
)
from streamguard.testing.messages import Said
from tests.conftest import Loop
from tests.support import Disconnect, Events, take


def cancelling() -> int:
    """How many cancels the current task has counted; trio counts none."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


async def iterate(stream: Any, form: str) -> None:
    """All of `stream`, in either form; whatever it raises comes out."""
    if form == "bare":
        async for _ in stream:
            pass
    else:
        async with stream as messages:
            async for _ in messages:
                pass


# -- the upstream's own time -----------------------------------------------------------------


async def test_the_upstreams_own_timeout_error(loop: Loop, form: str) -> None:
    """T7: a TimeoutError of the stream itself is neither renamed nor torn down."""
    own, disconnect = TimeoutError("the backend's"), Disconnect()
    stream = Script(say("a"), fail(own)) | idle_guard(60, disconnect=disconnect)
    taken = await take(stream, form)
    assert taken.error is own
    assert not disconnect.calls


async def test_a_fail_after_inside_each_pull(loop: Loop, form: str) -> None:
    """T7: as httpcore does it. The shorter limit is raised, as what it is."""
    source = own_fail_after(Script(say("a"), hang()), 30)
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is TimeoutError
    assert loop.took(taken.elapsed, 30)

    source = own_fail_after(Script(say("a"), hang()), 60)
    taken = await take(source | idle_guard(30), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 30)
    assert cancelling() == 0


async def test_both_limits_in_one_instant(loop: Loop, form: str) -> None:
    """T7: when the upstream's limit and ours fall together, one of the two comes out, unmixed."""
    source = own_fail_after(Script(hang()), 30)
    taken = await take(source | idle_guard(30), form)
    assert type(taken.error) in (TimeoutError, IdleTimeoutError)
    assert cancelling() == 0
    await anyio.sleep(0)  # nothing of either is left to strike here


@pytest.mark.parametrize("upstream", [holds_scope, holds_task_group])
async def test_a_scope_held_open_while_yielding(
    loop: Loop, form: str, upstream: Callable[[Any], Any]
) -> None:
    """O6: such upstreams are cut, closed and told apart, in either form."""
    disconnect = Disconnect()
    source = upstream(Script(say("a"), silence(30), say("b"), hang()))
    taken = await take(source | idle_guard(60, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError), repr(taken.error)
    assert len(taken.messages) == 2
    assert loop.took(taken.elapsed, 90)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed
    assert cancelling() == 0


@pytest.mark.parametrize("upstream", [holds_scope, holds_task_group])
async def test_a_scope_held_open_and_left_in_mid_stream(
    loop: Loop, upstream: Callable[[Any], Any]
) -> None:
    """O6: leaving a block closes the source first: its scopes lie within the block's."""
    async with upstream(Script(say("a"), hang())) | idle_guard(60) as messages:
        async for _ in messages:
            break
    with pytest.raises(ValueError, match="the body's"):
        async with upstream(Script(say("a"), hang())) | idle_guard(60) as messages:
            async for _ in messages:
                raise ValueError("the body's")


# -- the consumer's time ---------------------------------------------------------------------


async def test_a_scope_of_the_consumer_around_the_loop(loop: Loop, form: str) -> None:
    """T7: `move_on_after` around everything ends it quietly, and nothing is torn down."""
    disconnect, events = Disconnect(), Events()
    guard = idle_guard(60, disconnect=disconnect, observer=events)
    with anyio.move_on_after(30) as scope:
        await iterate(Script(say("a"), hang()) | guard, form)
    assert scope.cancelled_caught
    assert not disconnect.calls
    assert not events.of(TimedOut)
    assert cancelling() == 0


async def test_a_scope_of_the_consumer_around_its_body(loop: Loop, form: str) -> None:
    """T7: a limit on the consumer's own work is its own, and the stream goes on after it."""

    async def work(_: Any) -> None:
        with anyio.move_on_after(10):
            await anyio.sleep(1000)

    stream = Script(say("a"), say("b")) | idle_guard(60)
    taken = await take(stream, form, work)
    assert taken.error is None
    assert len(taken.messages) == 2
    assert loop.took(taken.elapsed, 20)


async def test_asyncio_timeout_around_the_loop(native: Loop, form: str) -> None:
    """T7: asyncio's own scope gives its own TimeoutError, even in the deadline's instant."""
    for seconds in (30, 60):
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(seconds):
                await iterate(Script(hang()) | idle_guard(60), form)
        if seconds < 60:
            assert type(raised.value) is TimeoutError
        assert cancelling() == 0


async def test_a_pull_that_the_consumer_cancelled(loop: Loop) -> None:
    """T8: a channel goes on after it; a generator was finished, and must not look complete."""
    channel = Channel(Script(say("a"), silence(30), say("b")))
    guarded = aiter(channel | idle_guard(60))
    assert (await anext(guarded)).text == "a"
    with anyio.move_on_after(10):
        await anext(guarded)
    assert (await anext(guarded)).text == "b"
    with pytest.raises(StopAsyncIteration):
        await anext(guarded)

    guarded = aiter(aiter(Script(say("a"), hang())) | idle_guard(60))
    await anext(guarded)
    with anyio.move_on_after(10):
        await anext(guarded)
    with pytest.raises(StreamInterruptedError):
        await anext(guarded)


async def test_a_pull_cancelled_within_a_group(loop: Loop) -> None:
    """T8: an upstream's nursery wraps the cancellation; the end after it is an interruption too."""

    async def upstream() -> AsyncIterator[Any]:
        yield Said("a")
        async with anyio.create_task_group() as tg:
            tg.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()

    guarded = aiter(upstream() | idle_guard(60))
    await anext(guarded)
    with anyio.move_on_after(10):
        await anext(guarded)
    with pytest.raises(StreamInterruptedError):
        await anext(guarded)


def test_a_native_trio_group_of_cancellations_is_one() -> None:
    """T8: `Cancelled` inside an ExceptionGroup is a cancellation, ours or the consumer's."""

    async def main() -> None:
        async def upstream() -> AsyncIterator[Any]:
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                raise BaseExceptionGroup("as nurseries do", [cancelled]) from None
            yield

        with pytest.raises(IdleTimeoutError):
            await anext(aiter(upstream() | idle_guard(60)))

        guarded = aiter(upstream() | idle_guard(60))
        with trio.move_on_after(10) as scope:
            await anext(guarded)
        assert scope.cancelled_caught
        with pytest.raises(StreamInterruptedError):
            await anext(guarded)

    run_virtual(main, backend="trio")


async def test_the_failure_of_a_sibling(loop: Loop, form: str) -> None:
    """T7: a task group's failure cancels the consumer, and is what comes out of the group."""
    disconnect, failure = Disconnect(), ValueError("the sibling's")

    async def sibling() -> None:
        await anyio.sleep(30)
        raise failure

    with pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as tg:
            tg.start_soon(sibling)
            await iterate(Script(hang()) | idle_guard(60, disconnect=disconnect), form)
    assert raised.value.exceptions == (failure,)
    assert not disconnect.calls


# -- native cancels of asyncio ---------------------------------------------------------------


async def cancelled_at(
    stream: Any, form: str, *instants: float, passes: int = 0
) -> asyncio.Task[None]:
    """The task that iterates `stream`, after native cancels at each of `instants`."""
    task = asyncio.create_task(iterate(stream, form))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()

    def after(left: int) -> None:
        if left:
            loop.call_soon(after, left - 1)
        else:
            task.cancel("the consumer's own")

    start = loop.time()
    for instant in instants:
        loop.call_at(start + instant, after, passes)
    await asyncio.wait({task})
    return task


@pytest.mark.parametrize("passes", range(8))
@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_native_cancel_around_the_deadline(native: Loop, form: str, passes: int) -> None:
    """T9: in every pass from the deadline on, until the verdict is out, a native cancel wins."""
    stream = slow_cleanup(Script(hang()), 1) | idle_guard(60)
    task = await cancelled_at(stream, form, 60, passes=passes)
    assert task.cancelled()
    assert task.cancelling() == 1


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_native_cancel_while_the_cut_pull_unwinds(native: Loop, form: str) -> None:
    """T9: it outranks the verdict, which is withdrawn before anything was torn down."""
    events, disconnect = Events(), Disconnect()
    guard = idle_guard(60, observer=events, disconnect=disconnect)
    stream = slow_cleanup(Script(hang()), 4) | guard
    task = await cancelled_at(stream, form, 62)
    assert task.cancelled()
    assert task.cancelling() == 1
    assert len(events.of(CutWithdrawn)) == 1
    assert not events.of(TimedOut)
    assert not disconnect.calls


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_control_a_verdict_that_nothing_outranks_swallows_a_cancel(
    native: Loop, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: who cancelled the task gets our error instead, and a group or timeout around it breaks."""
    monkeypatch.setattr(_asyncio, "_is_overruled", lambda *_: False)
    task = await cancelled_at(slow_cleanup(Script(hang()), 4) | idle_guard(60), form, 62)
    assert not task.cancelled()
    assert isinstance(task.exception(), IdleTimeoutError)


async def test_an_outer_scope_while_the_cut_pull_unwinds(loop: Loop, form: str) -> None:
    """T9: against a scope of anyio or trio the first one wins, and that was the verdict."""
    stream = slow_cleanup(Script(hang()), 0.8 * UNWINDING) | idle_guard(60)
    with pytest.raises(IdleTimeoutError):
        with anyio.move_on_after(60 + 0.4 * UNWINDING):
            await iterate(stream, form)
    assert cancelling() == 0


async def test_an_outer_scope_before_the_limit(loop: Loop, form: str) -> None:
    """T9: against a scope the first one wins: what unwinds for it already is not cut as well."""
    events = Events()
    source = slow_cleanup(Script(hang()), 0.8 * UNWINDING, shielded=True)
    idle = 60 + 0.4 * UNWINDING
    with anyio.move_on_after(60) as scope:
        await iterate(source | idle_guard(idle, observer=events), form)
    assert scope.cancelled_caught
    assert not events.of(TimedOut)
    assert not events.of(CutWithdrawn)
    assert cancelling() == 0


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_native_cancel_while_the_source_is_closed(native: Loop, form: str) -> None:
    """D6: the close is given up, the disconnect is waited for, and the cancel comes out."""
    disconnect = Disconnect(seconds=20)

    class Source:
        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> Any:
            await asyncio.sleep(1000)

        async def aclose(self) -> None:
            await asyncio.sleep(10)

    loop = asyncio.get_running_loop()
    start = loop.time()
    task = await cancelled_at(Source() | idle_guard(60, disconnect=disconnect), form, 65)
    assert task.cancelled()
    assert disconnect.finished == 1
    assert loop.time() - start == pytest.approx(80)


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_native_cancel_during_teardown(native: Loop, form: str) -> None:
    """D6: one outer cancel waits for the teardown's end, and is what comes out."""
    disconnect = Disconnect(seconds=20)
    loop = asyncio.get_running_loop()
    start = loop.time()
    task = await cancelled_at(Script(hang()) | idle_guard(60, disconnect=disconnect), form, 65)
    assert task.cancelled()
    assert disconnect.finished == 1
    assert loop.time() - start == pytest.approx(80)


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_two_native_cancels_during_teardown(native: Loop, form: str) -> None:
    """D6: a second one leaves the teardown running detached; it still ends by itself."""
    disconnect = Disconnect(seconds=20)
    loop = asyncio.get_running_loop()
    start = loop.time()
    task = await cancelled_at(Script(hang()) | idle_guard(60, disconnect=disconnect), form, 65, 70)
    assert task.cancelled()
    assert loop.time() - start == pytest.approx(70)
    assert disconnect.finished == 0
    await asyncio.sleep(11)
    assert disconnect.finished == 1


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_two_native_cancels_of_a_deaf_pull(native: Loop, form: str) -> None:
    """D6: the cancel that ends a deaf pull is the first, one during its teardown the second."""
    disconnect = Disconnect(seconds=30)

    async def hears_the_second() -> AsyncIterator[Any]:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(1000)
        yield

    loop = asyncio.get_running_loop()
    start = loop.time()
    stream = hears_the_second() | idle_guard(60, disconnect=disconnect)
    task = await cancelled_at(stream, form, 70, 75)
    assert task.cancelled()
    assert loop.time() - start == pytest.approx(75)


@pytest.mark.parametrize(("cancels", "takes"), [((105,), 120), ((105, 110), 110)])
async def test_native_cancels_while_an_overdue_pull_is_torn_down(
    native: Loop, cancels: tuple[float, ...], takes: float
) -> None:
    """D6: also where `total` was spent before anything was asked for."""
    disconnect, events = Disconnect(seconds=20), Events()
    guard = idle_guard(None, total=50, disconnect=disconnect, observer=events)

    async def consume() -> None:
        async for _ in Script(say("a"), say("b")) | guard:
            await asyncio.sleep(100)

    loop = asyncio.get_running_loop()
    start = loop.time()
    task = asyncio.create_task(consume())
    for instant in cancels:
        loop.call_at(start + instant, task.cancel)
    await asyncio.wait({task})
    assert task.cancelled()
    assert loop.time() - start == pytest.approx(takes)
    assert len(events.of(TornDown)) == 1
    await asyncio.sleep(20)
    assert disconnect.finished == 1


def test_a_task_that_was_cancelled_before(loop: Loop, form: str) -> None:
    """T9: a task that goes on with a cancel counted is guarded as any other, its count kept."""

    async def main() -> None:
        async def cancelled_and_going_on() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            with pytest.raises(IdleTimeoutError):
                await iterate(Script(say("a"), hang()) | idle_guard(60), form)
            assert task.cancelling() == 1

        await asyncio.create_task(cancelled_and_going_on())

    if loop.name != "trio":
        loop.run(main)


@pytest.mark.parametrize("then", ["yield", "end"])
async def test_our_cancel_is_undone_however_the_pull_takes_it(
    loop: Loop, form: str, then: Any
) -> None:
    """T9: the count is the same after as before, on every exit."""
    await take(swallows_cancel(Script(hang()), then) | idle_guard(60), form)
    assert cancelling() == 0
    await anyio.sleep(0)


async def test_a_stray_cancelled_error_of_the_upstream(native: Loop) -> None:
    """T7: an upstream that awaits a task it has cancelled raises CancelledError; it is passed on."""

    async def upstream() -> AsyncIterator[Any]:
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        task.cancel()
        await task
        yield

    disconnect = Disconnect()
    with pytest.raises(asyncio.CancelledError):
        await anext(aiter(upstream() | idle_guard(60, disconnect=disconnect)))
    assert cancelling() == 0
    assert not disconnect.calls


# -- the end of the program ------------------------------------------------------------------


async def test_keyboard_interrupt_in_a_pull(loop: Loop, form: str) -> None:
    """T7: Ctrl-C comes out as itself, from a quiet pull and from one that unwinds after our cut."""
    disconnect = Disconnect()
    guard = idle_guard(60, disconnect=disconnect)

    async def unwinds_with_ctrl_c() -> AsyncIterator[Any]:
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyboardInterrupt
        yield

    for source in (Script(fail(KeyboardInterrupt)), unwinds_with_ctrl_c()):
        with pytest.raises(KeyboardInterrupt):
            await iterate(source | guard, form)
    assert not disconnect.calls
    assert cancelling() == 0
