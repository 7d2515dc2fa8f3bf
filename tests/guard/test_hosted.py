"""O5, O7: the hosted form. `total` and its scope, and nothing left behind, in either form."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from streamguard import DeadlineExceededError, IdleTimeoutError, idle_guard
from streamguard import _loops as loops
from streamguard._guard import teardown
from streamguard._guard.attempt import UNWINDING
from streamguard._loops import timekeeper
from streamguard.events import CutWithdrawn, StreamEnded, TimedOut, TornDown
from streamguard.testing import (
    Channel,
    Script,
    Tap,
    hang,
    holds_task_group,
    say,
    silence,
    slow_cleanup,
    swallows_cancel,
)
from streamguard.testing.messages import Said
from tests.conftest import Loop
from tests.support import Disconnect, Events, Leftovers, take

TOTAL = 100.0


def only_total(**knobs: Any) -> Any:
    return idle_guard(None, total=TOTAL, **knobs)


# -- O5: `total` and the block ---------------------------------------------------------------


async def test_total_strikes_while_the_consumer_works(loop: Loop) -> None:
    """O5: it cancels the block, and surfaces at the `async with` as itself."""
    disconnect, source, worked = Disconnect(), Tap(Script(say("a"), say("b"))), 0.0
    started = anyio.current_time()
    with pytest.raises(DeadlineExceededError) as raised:
        async with source | only_total(disconnect=disconnect) as messages:
            async for _ in messages:
                try:
                    await anyio.sleep(1000)
                finally:
                    worked = anyio.current_time() - started
    assert loop.took(worked, TOTAL)
    assert len(disconnect.calls) == 1
    assert source.closed
    assert raised.value.teardown is not None
    assert raised.value.teardown.confirmed
    await anyio.sleep(0)  # the block's cancel is over with the block


async def test_total_strikes_while_a_message_is_waited_for(loop: Loop) -> None:
    """O5: also then it is the block's, and comes out of it as one error."""
    events, inside = Events(), list[str]()
    started = anyio.current_time()
    with pytest.raises(DeadlineExceededError):
        async with Script(hang()) | only_total(observer=events) as messages:
            try:
                async for _ in messages:
                    pass
            except Exception as error:
                inside.append(repr(error))
    assert not inside
    assert loop.took(anyio.current_time() - started, TOTAL)
    for kind in (TimedOut, TornDown, StreamEnded):
        assert len(events.of(kind)) == 1


async def test_total_strikes_before_the_first_pull(loop: Loop) -> None:
    """T1: `total` runs from the block's entry."""
    with pytest.raises(DeadlineExceededError):
        async with Script(say("a")) | only_total():
            await anyio.sleep(1000)


async def test_bare_total_is_raised_at_the_next_pull(loop: Loop) -> None:
    """T1: bare, nothing can strike in between; overdue, nothing more is asked for."""
    source = Tap(Script(say("a"), say("b")))
    taken = await take(source | only_total(), "bare", lambda _: anyio.sleep(TOTAL * 2))
    assert isinstance(taken.error, DeadlineExceededError)
    assert source.pulls == 1
    assert loop.took(taken.elapsed, TOTAL * 2)


async def test_a_body_that_finishes_first(loop: Loop) -> None:
    """T3: a body that is done when the cancel would reach it has won."""
    events = Events()
    async with Script(say("a")) | only_total(observer=events) as messages:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(TOTAL + 0.4 * UNWINDING)
    assert messages.activity.status == "ended"
    assert len(events.of(CutWithdrawn)) == 1
    assert not events.of(TimedOut)


async def test_a_body_that_swallows_the_cancel_and_ends(loop: Loop) -> None:
    """T3: one that says it is done within the bound is done."""
    events = Events()
    async with Script(hang()) | only_total(observer=events):
        try:
            await anyio.sleep(1000)
        except anyio.get_cancelled_exc_class():
            pass
    assert len(events.of(CutWithdrawn)) == 1
    assert not events.of(TimedOut)


async def test_a_body_that_ignores_the_cancel_for_too_long(loop: Loop) -> None:
    """O5: after 5 s the verdict is final; the body cannot outlive it unnoticed."""
    events, disconnect = Events(), Disconnect()
    guard = only_total(observer=events, disconnect=disconnect)
    started = anyio.current_time()
    with pytest.raises(DeadlineExceededError):
        async with Script(hang()) | guard:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(TOTAL + 2 * UNWINDING)
    assert not events.of(CutWithdrawn)
    assert len(events.of(TimedOut)) == 1
    assert loop.took(disconnect.calls[0] - started, TOTAL + UNWINDING)


async def test_a_body_with_a_task_group_of_its_own(loop: Loop) -> None:
    """O5: the verdict comes out as itself, from around the body's group."""
    with pytest.raises(DeadlineExceededError):
        async with Script(say("a"), hang()) | only_total() as messages:
            async with anyio.create_task_group() as tg:
                tg.start_soon(anyio.sleep_forever)
                async for _ in messages:
                    pass


async def test_an_error_that_the_body_raises_while_it_unwinds(loop: Loop) -> None:
    """T7: what unwinds because of the verdict is its cause."""
    failure = ValueError("while cleaning up")
    with pytest.raises(DeadlineExceededError) as raised:
        async with Script(hang()) | only_total():
            try:
                await anyio.sleep_forever()
            finally:
                raise failure
    assert raised.value.__cause__ is failure


async def test_an_error_of_the_body_that_came_first(loop: Loop) -> None:
    """T7: a failure that has nothing to do with the cancel stays what it is."""
    failure, disconnect = ValueError("the body's own"), Disconnect()
    with pytest.raises(ValueError) as raised:
        async with Script(hang()) | only_total(disconnect=disconnect):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(TOTAL + 0.4 * UNWINDING)
            raise failure
    assert raised.value is failure
    assert not disconnect.calls


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), ExceptionGroup("g", [OSError()])], ids=repr
)
async def test_errors_of_the_body_come_out_as_themselves(loop: Loop, error: BaseException) -> None:
    """O5: one error is never wrapped in an ExceptionGroup of one."""
    source, disconnect = Tap(Script(say("a"), hang())), Disconnect()
    with pytest.raises(type(error)) as raised:
        async with source | idle_guard(60, disconnect=disconnect) as messages:
            async for _ in messages:
                raise error
    assert raised.value is error
    assert source.closed
    assert not disconnect.calls


async def test_idle_surfaces_at_the_async_for(loop: Loop) -> None:
    """O5: every limit but `total` cancels the pull; the body may catch it and go on."""
    async with Script(say("a"), hang()) | idle_guard(60) as messages:
        with pytest.raises(IdleTimeoutError):
            async for _ in messages:
                pass
        await anyio.sleep(5)  # the block's scope was not touched


async def test_the_source_is_closed_in_the_task_that_used_it(loop: Loop) -> None:
    """O5: leaving the block closes it there, at once."""
    source = Tap(slow_cleanup(Script(say("a"), hang()), 3))
    async with source | idle_guard(60) as messages:
        async for _ in messages:
            break
    assert source.closed_in == source.pulled_in


async def test_a_close_that_fails_on_leaving(loop: Loop) -> None:
    """O5: it comes out as itself after a good body, and does not hide what a bad one raised."""
    failure = ValueError("cannot close")

    class Source(Tap):
        async def aclose(self) -> None:
            raise failure

    with pytest.raises(ValueError) as raised:
        async with Source(Script()) | idle_guard(60):
            pass
    assert raised.value is failure
    with pytest.raises(KeyError):
        async with Source(Script()) | idle_guard(60):
            raise KeyError("the body's")


async def test_a_block_that_could_not_be_entered_can_be_tried_again(loop: Loop) -> None:
    """O1: a refused operator leaves the stream as it was."""
    disconnect = Disconnect()
    guard = idle_guard(60, disconnect=disconnect)
    second = Script(say("b")) | guard
    async with Script(say("a"), hang()) | guard as messages:
        await anext(messages)
        with pytest.raises(RuntimeError, match="guarding another stream"):
            await second.__aenter__()
    taken = await take(second, "hosted")
    assert taken.error is None
    assert len(taken.messages) == 1


async def test_off_is_the_source_itself(loop: Loop) -> None:
    """T11: nothing is limited, whether iterated or pulled by hand."""
    script = Script(silence(500), say("a"))
    async with script | idle_guard(60, total=100, mode="off") as messages:
        assert (await anext(messages)).text == "a"


# -- D6: outer cancels of a block that `total` has struck ------------------------------------


async def body(guarded: Any) -> None:
    async with guarded:
        await anyio.sleep_forever()


async def test_a_native_cancel_of_a_struck_block(native: Loop) -> None:
    """T9, D6: it outranks the verdict, and waits for the teardown."""
    for at in (100, 105):
        disconnect = Disconnect(seconds=20)
        guarded = Script(hang()) | idle_guard(None, total=100, disconnect=disconnect)
        loop = asyncio.get_running_loop()
        start = loop.time()
        task = asyncio.create_task(body(guarded))
        for _ in range(6):
            await asyncio.sleep(0)
        loop.call_at(start + at, task.cancel)
        await asyncio.wait({task})
        assert task.cancelled()
        if at == 105:
            assert disconnect.finished == 1
            assert loop.time() - start == pytest.approx(120)


async def test_two_native_cancels_of_a_struck_block(native: Loop) -> None:
    """D6: the second one leaves the teardown running, although the block's group hosts it."""
    disconnect = Disconnect(seconds=20)
    guarded = Script(hang()) | idle_guard(None, total=100, disconnect=disconnect)
    loop = asyncio.get_running_loop()
    start = loop.time()
    task = asyncio.create_task(body(guarded))
    loop.call_at(start + 105, task.cancel)
    loop.call_at(start + 107, task.cancel)
    await asyncio.wait({task})
    assert task.cancelled()
    assert loop.time() - start == pytest.approx(107)
    await asyncio.sleep(20)
    assert disconnect.finished == 1


async def test_a_body_that_has_swallowed_a_native_cancel(native: Loop) -> None:
    """T9: a count that the body left over is no cancel on its way; `total` strikes in time."""

    async def swallowing() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        task = asyncio.current_task()
        assert task is not None
        stream = Script(say("a"), say("b"), hang()) | idle_guard(None, total=100)
        with pytest.raises(DeadlineExceededError):
            async with stream as messages:
                await anext(messages)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(0)
                async for _ in messages:
                    pass
        assert task.cancelling() == 1
        return loop.time() - started

    assert await asyncio.create_task(swallowing()) == pytest.approx(100)


async def test_an_outer_scope_after_the_block_was_struck(loop: Loop) -> None:
    """T9: the first one wins: the verdict, even though the scope is cancelled, too."""
    finished = 0

    async def disconnect() -> None:
        nonlocal finished
        outer.cancel()
        await anyio.sleep(20)
        finished += 1

    with pytest.raises(DeadlineExceededError), anyio.CancelScope() as outer:
        await body(Script(hang()) | only_total(disconnect=disconnect))
    assert finished == 1


async def test_an_outer_scope_before_the_block_would_be_struck(loop: Loop) -> None:
    """T9: the first one wins: a body that unwinds already is not struck as well."""
    disconnect = Disconnect()

    async def unwinds_slowly() -> None:
        async with Script(hang()) | only_total(disconnect=disconnect):
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.5 * UNWINDING)

    with anyio.move_on_after(TOTAL - 0.2 * UNWINDING) as scope:
        await unwinds_slowly()
    assert scope.cancelled_caught
    assert not disconnect.calls


# -- O7: nothing is left ---------------------------------------------------------------------


def sleepers() -> list[Any]:
    """The timekeeper's entries on the running loop."""
    return loops.current().timekeeper._heap


async def leave_by_break(stream: Any, form: str) -> None:
    if form == "bare":
        async for _ in stream:
            break
        await stream.aclose()
    else:
        async with stream as messages:
            async for _ in messages:
                break


async def leave_by_error(stream: Any, form: str) -> None:
    def fail(_: Any) -> None:
        raise ValueError("the body's")

    taken = await take(stream, form, fail)
    assert isinstance(taken.error, ValueError)
    await stream.aclose()


async def leave_by_outer_cancel(stream: Any, form: str) -> None:
    with anyio.move_on_after(0.01):
        await take(stream, form)
    await stream.aclose()


async def leave_by_verdict(stream: Any, form: str) -> None:
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)


@pytest.mark.parametrize(
    "leave", [leave_by_break, leave_by_error, leave_by_outer_cancel, leave_by_verdict]
)
@pytest.mark.parametrize(
    "upstream", [lambda s: s, holds_task_group, Channel], ids=["plain", "group", "channel"]
)
async def test_nothing_is_left(loop: Loop, form: str, upstream: Any, leave: Any) -> None:
    """O7: no task, no timer, no descriptor, no pending finaliser, however a stream is left."""
    await anyio.sleep(0)
    before, disconnect = Leftovers(), Disconnect()
    guard = idle_guard(60, disconnect=disconnect)
    await leave(upstream(Script(say("a"), hang())) | guard, form)
    assert not sleepers()
    for _ in range(5):
        await anyio.sleep(1)
    gc.collect()
    before.check()
    if loop.name == "asyncio":
        running = asyncio.get_running_loop()
        assert not [t for t in vars(running)["_scheduled"] if not t.cancelled()]
        assert not running._asyncgens  # type: ignore[attr-defined]


async def test_control_a_timer_that_is_not_dropped_is_seen(
    loop: Loop, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O7: what `test_nothing_is_left` looks at shows what is left."""
    before = Leftovers()
    with monkeypatch.context() as patch:
        patch.setattr(timekeeper.Timekeeper, "drop", lambda *_: None)
        await leave_by_break(Script(say("a"), hang()) | idle_guard(60), form)
        with pytest.raises(AssertionError):
            before.check()
    await anyio.sleep(61)


async def test_control_a_disconnect_without_a_bound_is_a_task_that_is_left(
    loop: Loop, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O7: so it is with tasks."""
    released, ended = anyio.Event(), anyio.Event()

    async def disconnect() -> None:
        await released.wait()
        ended.set()

    before = Leftovers()
    monkeypatch.setattr(teardown.Bounded, "on_confirmed", lambda *_: None)
    guard = idle_guard(60, disconnect=disconnect, disconnect_timeout=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, Script(say("a"), hang()) | guard, form)
        await anyio.sleep(60 + 30)
        with pytest.raises(AssertionError):
            before.check()
        released.set()
        await ended.wait()


async def test_an_abandoned_bare_stream_is_gone_at_once(loop: Loop) -> None:
    """O7: a bare form's timer holds its stream weakly; what it has set ends with its time."""
    before = Leftovers()
    source = Channel(Script(say("a"), hang()))
    stream = source | idle_guard(60)
    async for _ in stream:
        break
    gone = weakref.ref(stream.activity), weakref.ref(aiter(stream))
    del stream, _
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    await source.aclose()
    await anyio.sleep(61)
    before.check()


async def test_many_short_streams_do_not_pile_up(loop: Loop) -> None:
    """O7: what is over is forgotten, although its deadline is far and another's alarm is first."""
    async with Script(hang()) | idle_guard(5_000) as first:
        async with anyio.create_task_group() as tg:
            tg.start_soon(_swallow_all, first)
            await anyio.sleep(0)
            for _ in range(1000):
                await take(Script(say("a"), silence(0), say("b")) | idle_guard(50_000))
            assert len(sleepers()) < 200
            tg.cancel_scope.cancel()


async def _swallow_all(messages: AsyncIterator[Any]) -> None:
    async for _ in messages:
        pass


async def test_a_run_that_ends_with_a_pull_outstanding(loop: Loop) -> None:
    """O7: a stream that is still waited for when the program ends makes no noise."""
    kept: list[Any] = []

    async def forgotten() -> None:
        kept.append(await take(Script(say("a"), hang()) | idle_guard(60)))

    async with anyio.create_task_group() as tg:
        tg.start_soon(forgotten)
        await anyio.sleep(1)
        tg.cancel_scope.cancel()
    assert not kept


async def test_a_deaf_pull_in_a_block_that_total_strikes(loop: Loop) -> None:
    """O5, O6: teardown starts beside it, frees it, and the verdict comes out once."""
    source = swallows_cancel(Script(say("a"), hang()))
    events = Events()

    class Shielded:
        def __aiter__(self) -> AsyncIterator[Any]:
            return self._play()

        async def _play(self) -> AsyncIterator[Any]:
            with anyio.CancelScope(shield=True):
                await source._released.wait()
            yield Said("too late")

    guard = only_total(disconnect=source.release, observer=events)
    with pytest.raises(DeadlineExceededError):
        async with Shielded() | guard as messages:
            async for _ in messages:
                pytest.fail("a message after the verdict")
    assert len(events.of(TornDown)) == 1
