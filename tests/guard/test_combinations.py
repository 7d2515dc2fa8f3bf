"""What two things at once may do: each of these was missed by tests of single rules."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any

import anyio
import pytest
import trio

from streamguard import (
    Activity,
    DeadlineExceededError,
    IdleTimeoutError,
    StreamGuardWarning,
    TurnTimeoutError,
    idle_guard,
    live,
)
from streamguard import _loops as loops
from streamguard.events import HalfTime, StreamEnded, StreamStarted, TimedOut
from streamguard.signals import TurnEnded
from streamguard.testing import Script, hang
from streamguard.testing.messages import Ended, Said
from tests.conftest import Loop
from tests.support import Disconnect, Events, take

NEVER = 3600.0


# trio says so of a generator that nobody closes, and here nobody does, on purpose.
unclosed = pytest.mark.filterwarnings(
    "ignore:Async generator", "ignore::pytest.PytestUnraisableExceptionWarning"
)


async def said(*messages: Any, then: float = NEVER):
    for message in messages:
        yield message
    await anyio.sleep(then)


async def unharmed(seconds: float = 3.0) -> None:
    """What comes after a guarded stream: nothing of it may reach here."""
    await anyio.sleep(seconds)
    if not trio.lowlevel.in_trio_task():
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


# -- an alarm that goes off while nobody waits -------------------------------------------------


@pytest.mark.parametrize("form", ["bare", "hosted"])
@pytest.mark.parametrize("work", [0.5, 1.0, 1.2, 3.0])
async def test_silence_is_seen_after_an_alarm_in_the_consumers_time(
    loop: Loop, form: str, work: float
):
    """T1, T2: also beside a `total`, whose alarm is far away and stays set."""
    slow = Disconnect(seconds=work)
    taken = await take(said(1) | idle_guard(1, total=60), form, lambda _: slow())
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, work + 1)


@pytest.mark.parametrize(("ready", "elapsed"), [(0, 3.0), (1, 3.0)])
async def test_a_turn_is_over_before_the_total_that_has_set_the_alarm(
    loop: Loop, ready: float, elapsed: float
):
    """T2: the alarm of a block's `total` covers no `turn`, and nothing else may come before it."""

    async def source():
        yield 1  # found ready: so far nothing has waited, and only the block has set an alarm
        await anyio.sleep(ready)
        yield 2
        await anyio.sleep(NEVER)

    taken = await take(source() | idle_guard(None, turn=3, total=60), "hosted")
    assert isinstance(taken.error, TurnTimeoutError)
    assert loop.took(taken.elapsed, elapsed)


async def test_a_turn_that_begins_before_the_last_ones_grace_is_over_has_its_limit(loop: Loop):
    """T2, T14: the alarm of the grace covers the messages, but not the turn that they begin."""

    async def source():
        yield TurnEnded()
        await anyio.sleep(1)
        yield 1
        await anyio.sleep(NEVER)

    taken = await take(source() | idle_guard(None, turn=2, exit_grace=60), "bare")
    assert isinstance(taken.error, TurnTimeoutError)
    assert loop.took(taken.elapsed, 3)


def test_a_message_that_withdraws_a_verdict_leaves_the_block_its_total(loop: Loop):
    """T1, T3: the consumer may work on for ever, but not beyond `total`."""

    async def source():
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            yield "after all"

    async def main() -> None:
        with pytest.raises(DeadlineExceededError):
            async with source() | idle_guard(1, total=5) as messages:
                async for _ in messages:
                    await anyio.sleep(NEVER)
        assert loop.took(anyio.current_time() - began, 5)

    async def timed() -> None:
        nonlocal began
        began = anyio.current_time()
        await main()

    began = 0.0
    loop.run(timed)


async def test_total_of_a_block_ends_a_flood(loop: Loop):
    """T1: a message in each pass of the loop puts nothing off."""

    async def flood():
        while True:
            await anyio.lowlevel.checkpoint()
            yield "more"

    count = 0
    with pytest.raises(DeadlineExceededError):
        async with flood() | idle_guard(None, total=1) as messages:
            async for _ in messages:
                count += 1
                if count > 100:
                    await anyio.sleep(0.01 if count < 300 else 0)
                assert count < 10_000


# -- who was dropped is not called any more ----------------------------------------------------


async def test_a_close_that_ends_with_its_bound_cancels_nothing_after_it(loop: Loop):
    """T9, O7: the bound's timer and the close's own go off at one instant."""

    class Source:
        count = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.count += 1
            if self.count > 1:
                raise StopAsyncIteration
            return 1

        async def aclose(self):
            with anyio.move_on_after(0.5):
                await anyio.sleep(NEVER)

    for _ in range(20):
        async for _ in Source() | idle_guard(180, disconnect_timeout=0.5):
            pass
        await unharmed(0.3)


@pytest.mark.parametrize("order", ["timeout first", "total first"])
async def test_a_block_that_is_left_at_totals_instant(
    loop: Loop, order: str, caplog: pytest.LogCaptureFixture
):
    """O5, O7: leaving it, the consumer is beyond our reach, and its attempt is not asked again."""
    for number in range(20):
        outer = anyio.move_on_after(0.5 - (order == "timeout first") * 1e-9 * (number % 2))
        with pytest.warns(StreamGuardWarning):
            operator = idle_guard(180, total=0.5)
        with suppress(DeadlineExceededError):
            async with said(1) | operator as messages:
                async for _ in messages:
                    with outer:
                        await anyio.sleep(NEVER)
                    break
        await unharmed(0.2)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("passes", range(6))
@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_a_message_just_after_the_interrupts_end(native: Loop, passes: int, how: str):
    """D1, T3, T9: it is delivered, and the verdict comes with the next pull, not into the body."""
    worked: list[int] = []
    running, arrived = asyncio.get_running_loop(), asyncio.Event()

    def arrive(left: int = passes) -> None:
        if left:
            running.call_soon(arrive, left - 1)
        else:
            arrived.set()

    async def source():
        yield 1
        await arrived.wait()
        yield 2
        await anyio.sleep(NEVER)

    async def interrupt() -> None:
        if how == "raises":
            arrive()
            raise ConnectionError("the pipe is gone")
        running.call_at(running.time() + 5, arrive)
        await anyio.sleep(NEVER)

    with pytest.raises(IdleTimeoutError):
        async for message in source() | idle_guard(0.2, interrupt=interrupt):
            if message == 2:
                await unharmed(1)
                worked.append(2)
    await unharmed()
    assert worked in ([2], [])  # a message that is later than the cut comes too late


# -- sources that do not take a cancel as one --------------------------------------------------


async def flushes(how: str):
    yield "a"
    if how == "except":
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            yield "partial"
            raise
    elif how == "finally":
        try:
            await anyio.sleep(NEVER)
        finally:
            yield "partial"
    else:
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            for number in range(3):
                yield number
            raise


@pytest.mark.parametrize("how", ["except", "finally", "several"])
async def test_a_source_that_flushes_when_it_is_cancelled(loop: Loop, form: str, how: str):
    """T3, T7, O6: what it flushes is delivered, and the cancel that follows is the verdict."""
    disconnect = Disconnect()

    async def child() -> None:
        taken = await take(flushes(how) | idle_guard(0.2, disconnect=disconnect), form)
        assert taken.messages == ["a", *(range(3) if how == "several" else ["partial"])]
        assert isinstance(taken.error, IdleTimeoutError)
        await unharmed()

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    assert disconnect.finished == 1


@pytest.mark.parametrize("outcome", ["success", "cancelled"])
def test_a_turn_that_a_flush_has_ended(loop: Loop, form: str, outcome: Any):
    """T3: one that ended well stays so, though the cancel that follows is ours."""
    disconnect = Disconnect()

    async def source():
        yield Said("a")
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            yield Said("the rest")
            yield Ended(outcome)
            raise

    async def main() -> None:
        taken = await take(source() | idle_guard(0.2, disconnect=disconnect), form)
        assert taken.messages == [Said("a"), Said("the rest"), Ended(outcome)]
        await unharmed()
        return taken.error

    error = loop.run(main)
    if outcome == "success":
        assert error is None
        assert not disconnect.calls
    else:
        assert isinstance(error, IdleTimeoutError)
        assert disconnect.finished == 1


async def test_a_cancellation_of_somebody_elses_after_a_flush_stays_theirs(loop: Loop, form: str):
    """T7: our own is only what nobody else has sent."""

    async def source():
        yield "a"
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            yield "partial"
        await anyio.sleep(NEVER)

    disconnect = Disconnect()
    with anyio.move_on_after(1.5) as outer:
        await take(source() | idle_guard(1, disconnect=disconnect), form)
    assert outer.cancelled_caught
    assert disconnect.calls == []
    await unharmed()


@pytest.mark.parametrize("limit", ["idle", "total"])
@pytest.mark.parametrize("close", [0.0, 1.0, 2.0, NEVER])
@pytest.mark.parametrize("deaf", [5.5, 8.0])
async def test_a_pull_that_was_deaf_brings_the_verdict_out_of_its_block(
    loop: Loop, deaf: float, close: float, limit: str
):
    """O5, O6, T7: it closes its source, and then raises; and a block that is struck does."""

    class Deaf:
        def __aiter__(self):
            return self

        async def __anext__(self):
            try:
                await anyio.sleep(NEVER)
            finally:
                with anyio.CancelScope(shield=True):
                    until = anyio.current_time() + deaf
                    while anyio.current_time() < until:
                        with suppress(asyncio.CancelledError):
                            await anyio.sleep_until(until)

        async def aclose(self):
            await anyio.sleep(close)

    disconnect = Disconnect()
    limits: dict[str, Any] = {"idle": {"idle": 1}, "total": {"idle": None, "total": 1}}[limit]
    guard = idle_guard(**limits, disconnect=disconnect, disconnect_timeout=4)
    taken = await take(Deaf() | guard, "hosted")
    assert taken.error.verdict.limit == limit
    assert disconnect.finished == 1
    await unharmed()


def test_total_does_not_strike_a_block_that_is_being_told_of_another_verdict(loop: Loop):
    """O5, T7: decided while nobody asked; `total` is due while the next pull waits for the close."""
    turn_is_over = anyio.Event()

    async def source():
        try:
            yield "a"
            await turn_is_over.wait()
            yield "b"
            await anyio.sleep(NEVER)
        finally:
            await anyio.sleep(3)

    async def interrupt() -> None:
        turn_is_over.set()  # but that is no end of the turn
        await anyio.sleep(NEVER)

    async def main() -> None:
        guard = idle_guard(1, total=8, interrupt=interrupt)
        taken: list[str] = []
        with pytest.raises(IdleTimeoutError):
            async with source() | guard as messages:
                async for message in messages:
                    taken.append(message)
                    if message == "b":
                        await anyio.sleep(5.5)  # the interrupt's bound passes, with nobody asking
        assert taken == ["a", "b"]
        await unharmed()

    loop.run(main)


class Refuses:
    """A source that makes an error of its own of a cancellation, and takes its time to close."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            raise OSError("the pipe is gone") from None

    async def aclose(self):
        await anyio.sleep(1)


async def test_what_a_source_makes_of_the_cancel_of_its_block(loop: Loop):
    """O5, T7: `total` has struck the block, so it is what the block raises."""
    disconnect = Disconnect()
    taken = await take(Refuses() | idle_guard(None, total=1, disconnect=disconnect), "hosted")
    assert isinstance(taken.error, DeadlineExceededError)
    assert disconnect.finished == 1
    await unharmed()


async def test_a_body_that_fails_by_itself_in_a_struck_block(loop: Loop):
    """T3, T7: its error is its own, though the close of its source is cut short."""
    with pytest.raises(ValueError, match="own"):
        async with Refuses() | idle_guard(None, total=1):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
            raise ValueError("own")
    await unharmed()


def test_a_cancel_while_a_stream_is_closed_whose_verdict_nobody_took(native: Loop):
    """D6, O7: it waits for the teardown, and the stream has ended all the same."""
    turn_is_over = asyncio.Event()

    async def source():
        yield "a"
        await turn_is_over.wait()
        yield "b"
        await anyio.sleep(NEVER)

    def interrupt() -> None:
        turn_is_over.set()
        raise ConnectionError

    async def main() -> None:
        activity = Activity()
        guard = idle_guard(
            1, interrupt=interrupt, disconnect=lambda: anyio.sleep(2), activity=activity
        )
        stream = source() | guard

        async def consume() -> None:
            async for message in stream:
                if message == "b":
                    break
            await anyio.sleep(1)
            await stream.aclose()

        task = asyncio.create_task(consume())
        await asyncio.sleep(2.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert activity not in live()

    native.run(main)


@pytest.mark.filterwarnings("ignore::streamguard.StreamGuardWarning")
@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_turn_is_overdue_before_total_and_before_any_silence(loop: Loop, form: str):
    """T1, T2: an alarm that is set already covers only what it comes before."""
    taken = await take(said("a") | idle_guard(20, turn=3, total=5), form)
    assert isinstance(taken.error, TurnTimeoutError)
    assert loop.took(taken.elapsed, 3)


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_a_pull_that_swallows_cancels_comes_free(loop: Loop, form: str, count: int):
    """O6: after the teardown it is cancelled again each second; the count is undone."""

    async def source():
        yield 1
        for _ in range(count):
            try:
                await anyio.sleep(NEVER)
            except anyio.get_cancelled_exc_class():
                pass
        await anyio.sleep(NEVER)

    disconnect = Disconnect()
    taken = await take(source() | idle_guard(1, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 1 + 5 + count)
    assert disconnect.finished == 1
    await unharmed()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("end", ["normal", "verdict", "left"])
def test_a_close_that_swallows_cancels_comes_free(loop: Loop, form: str, count: int, end: str):
    """D1, O6: past its bound it is cancelled again each second, also on a normal end."""

    class Source:
        pulls = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.pulls += 1
            if self.pulls == 1:
                return 1
            if end == "normal":
                raise StopAsyncIteration
            return await anyio.sleep(NEVER)

        async def aclose(self):
            for _ in range(count):
                try:
                    await anyio.sleep(NEVER)
                except anyio.get_cancelled_exc_class():
                    pass
            await anyio.sleep(NEVER)

    async def main() -> None:
        guarded = Source() | idle_guard(1, disconnect_timeout=2)
        began = anyio.current_time()
        if end != "left":
            taken = await take(guarded, form)
            assert isinstance(taken.error, IdleTimeoutError if end == "verdict" else type(None))
        elif form == "bare":
            async for _ in guarded:
                break
            await guarded.aclose()
        else:
            async with guarded as messages:
                async for _ in messages:
                    break
        assert loop.took(anyio.current_time() - began, (end == "verdict") + 2 + count)
        await unharmed()

    loop.run(main)


# -- who ends the program ----------------------------------------------------------------------


def exits_at(kind: type) -> Any:
    def observer(event: object) -> None:
        if isinstance(event, kind):
            raise SystemExit(3)

    return observer


@pytest.mark.parametrize("kind", [HalfTime, TimedOut])
def test_an_observer_that_ends_the_program_from_a_timer(loop: Loop, form: str, kind: type):
    """O7: the program ends with its SystemExit, on trio without an internal error."""

    async def main() -> None:
        await take(said(1) | idle_guard(10, observer=exits_at(kind), mode="enforce"), form)

    with pytest.raises(SystemExit):
        try:
            loop.run(main)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


@pytest.mark.parametrize("idle", [20, 10], ids=["later", "at the same instant"])
def test_the_other_guards_of_the_loop_stay_on_watch(native: Loop, idle: float):
    """O7: whoever ends the program from a timer ends it for nobody else's timer."""
    found: list[BaseException | None] = []

    async def other() -> None:
        found.append((await take(said(1) | idle_guard(idle))).error)

    async def main() -> None:
        running = asyncio.get_running_loop()
        guarded = asyncio.create_task(take(said(1) | idle_guard(20, observer=exits_at(HalfTime))))
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        keeper = loops.current().timekeeper
        assert len(keeper._heap) == 2
        await asyncio.sleep(9)
        ring, rang = keeper.ring, []

        def caught() -> None:
            try:
                ring()
            except SystemExit:
                rang.append(running.time())

        keeper.ring = caught
        await task
        guarded.cancel()
        assert len(rang) == 1

    native.run(main)
    assert [type(error) for error in found] == [IdleTimeoutError]


# -- one thing, two streams ----------------------------------------------------------------------


async def test_a_disconnect_on_two_streams_at_once_is_noticed(loop: Loop):
    """O1: also if the first is between two pulls."""
    guard = idle_guard(60, disconnect=Disconnect())
    first, second = said(1, 2) | guard, said(1, 2) | guard
    first_messages, second_messages = aiter(first), aiter(second)
    assert await anext(first_messages) == 1
    with pytest.raises(RuntimeError, match="guarding another stream right now"):
        await anext(second_messages)
    assert await anext(first_messages) == 2
    await first.aclose()
    third = said(1) | guard
    assert await anext(aiter(third)) == 1
    await third.aclose()


@unclosed
async def test_turn_after_turn_is_no_use_at_once(loop: Loop):
    """O1: a stream that was broken out of, ended, failed or cancelled has let go."""
    guard = idle_guard(60, disconnect=Disconnect())
    async for _ in said(1) | guard:
        break
    await take(said(1, then=0) | guard)
    with anyio.move_on_after(1):
        await take(said(1) | guard)
    stream = said(1) | guard
    with anyio.move_on_after(1):
        await take(stream)
    assert isinstance((await take(said(1) | guard)).error, IdleTimeoutError)


# -- what is told of an end ------------------------------------------------------------------------


async def _left(stream: Any, form: str, how: str) -> None:
    """Consume `stream` and leave it, one way or another."""

    async def consume(messages: Any) -> None:
        async for _ in messages:
            if how == "broken out of":
                break
            if how == "left by an error":
                raise KeyError("the consumer's own")

    async def all_of_it() -> None:
        if form == "bare":
            await consume(stream)
        else:
            async with stream as messages:
                await consume(messages)

    if how == "cancelled":
        with anyio.move_on_after(1):
            await all_of_it()
    else:
        with suppress(KeyError, OSError, IdleTimeoutError):
            await all_of_it()


@unclosed
@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("broken out of", "left"),
        ("left by an error", "left"),
        ("cancelled", "cancelled"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("timed out", "failed"),
    ],
)
async def test_what_a_stream_came_to_is_told_at_once(
    loop: Loop, form: str, how: str, outcome: str
):
    """O7, O8: the event, `live()` and the status, without the collector's help."""

    async def source():
        yield 1
        if how == "failed":
            raise OSError("the stream's own")
        if how != "completed":
            await anyio.sleep(NEVER)

    activity, events = Activity("it"), Events()
    stream = source() | idle_guard(10, activity=activity, observer=events)
    gc.disable()
    try:
        if how in ("broken out of", "left by an error") and form == "bare":
            holder = [stream]
            del stream
            await _left(holder.pop(), form, how)
        else:
            await _left(stream, form, how)
        assert [event.outcome for event in events.of(StreamEnded)] == [outcome]
        assert activity not in live()
        assert activity.status == "ended"
    finally:
        gc.enable()


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after a message"])
@pytest.mark.parametrize("closes", ["the stream", "the iteration"])
async def test_who_closes_an_unfinished_stream_has_left_it(
    loop: Loop, form: str, closes: str, begun: bool
):
    """O7, O8: a close in the midst is no end of the stream's own, here or to who comes later."""
    activity, events = Activity("it"), Events()
    stream = said(1) | idle_guard(10, activity=activity, observer=events)

    async def leave(messages: Any) -> None:
        if begun:
            await anext(messages)
        await (messages if closes == "the iteration" else stream).aclose()
        assert activity not in live()

    if form == "bare":
        await leave(aiter(stream))
    else:
        async with stream as messages:
            await leave(messages)
    # A bare stream that nobody has asked for anything has not begun.
    outcomes = ["left"] if begun or form == "hosted" else []
    assert [event.outcome for event in events.of(StreamEnded)] == outcomes
    with pytest.warns(StreamGuardWarning, match="or after it was closed"):
        assert (await take(stream)).messages == []


async def test_a_channel_goes_on_after_its_consumer_was_cancelled(loop: Loop):
    """T1, T8, O8: it has ended and begins again, and its silence is added up all the same."""
    activity, events = Activity(), Events()
    send, receive = anyio.create_memory_object_stream[int](1)
    messages = aiter(receive | idle_guard(10, activity=activity, observer=events))
    for _ in range(3):
        with anyio.move_on_after(2):
            await anext(messages)
        assert activity not in live()
    await send.send(1)
    assert await anext(messages) == 1
    began = anyio.current_time()
    with anyio.move_on_after(4):
        await anext(messages)
    with pytest.raises(IdleTimeoutError):
        await anext(messages)
    assert loop.took(anyio.current_time() - began, 10)
    assert len(events.of(StreamStarted)) == len(events.of(StreamEnded)) == 5
    send.close()


async def test_a_stream_that_has_ended_in_its_block_is_live_no_more(loop: Loop):
    """O8: the block may be open for long after it; `total` still binds it."""
    activity, events = Activity("it"), Events()
    guard = idle_guard(10, activity=activity, observer=events, total=100)
    async with said(1, then=0) | guard as messages:
        async for _ in messages:
            pass
        assert activity not in live()
        assert [event.outcome for event in events.of(StreamEnded)] == ["completed"]
        await anyio.sleep(20)
    assert len(events.of(StreamEnded)) == 1


# -- what is kept, and what is closed ------------------------------------------------------------


async def test_pulls_after_the_end_keep_nothing(loop: Loop):
    """O7: what is raised again does not grow."""
    messages = aiter(said(1, then=0) | idle_guard(10))
    assert await anext(messages) == 1

    class Local:
        pass

    async def ask() -> weakref.ref[Any]:
        local = Local()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        return weakref.ref(local)

    asked = [await ask() for _ in range(5)]
    gc.collect()
    assert [each() for each in asked] == [None] * 5


async def test_a_verdict_that_is_raised_again_does_not_grow(loop: Loop):
    """O7: each pull after it raises the same error, as it was."""
    messages = aiter(Script(hang()) | idle_guard(10))
    depths = []
    for _ in range(5):
        with pytest.raises(IdleTimeoutError) as caught:
            await anext(messages)
        traceback, depth = caught.value.__traceback__, 0
        while traceback is not None:
            traceback, depth = traceback.tb_next, depth + 1
        depths.append(depth)
    assert len(set(depths[1:])) == 1


class Repeatable:
    """An owner that can be iterated as often as one likes, until it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def __aiter__(self):
        yield 1
        yield 2

    async def aclose(self):
        self.closed += 1


async def test_who_can_be_iterated_anew_stays_open_after_an_iteration(loop: Loop, form: str):
    """D1, O3: a normal end closes the iteration; its owner is closed when it is left early."""
    owner = Repeatable()
    guarded = owner | idle_guard(10)
    assert (await take(guarded, form)).messages == [1, 2]
    assert owner.closed == 0
    guarded = owner | idle_guard(10)
    async for _ in guarded:
        break
    await guarded.aclose()
    assert owner.closed == 1


async def test_an_end_that_is_iterated_again_says_so(loop: Loop):
    """It gives nothing more, as Python has it, but not in silence: the line that did it is named."""
    guarded = said("a", then=0) | idle_guard(10)
    assert (await take(guarded)).messages == ["a"]
    with pytest.warns(StreamGuardWarning, match="is iterated again after its end") as told:
        again = [message async for message in guarded]
    assert (again, [each.filename for each in told]) == ([], [__file__])


async def test_a_block_is_left_while_another_task_pulls(loop: Loop):
    """T9, O5: its pull was cut for a verdict, and takes that for no cancellation of its own."""

    async def source():
        yield 1
        try:
            await anyio.sleep(NEVER)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)

    outcomes: list[BaseException | None] = []

    async def pull(messages: Any) -> None:
        try:
            await anext(messages)
        except BaseException as error:
            outcomes.append(error)
        await unharmed()

    async with anyio.create_task_group() as group:
        with suppress(RuntimeError):  # Python's own: the generator is running
            async with source() | idle_guard(1) as messages:
                await anext(messages)
                group.start_soon(pull, messages)
                await anyio.sleep(1.5)
    assert [type(error) for error in outcomes] == [IdleTimeoutError]


@pytest.mark.parametrize("swallows", ["pull", "close"])
async def test_a_cancellation_of_somebody_elses_that_is_swallowed(
    loop: Loop, form: str, swallows: str
):
    """O6, T9: it does not keep ours away for ever, and goes on when all is over."""

    class Source:
        def __aiter__(self):
            return self

        async def deaf(self) -> None:
            try:
                await anyio.sleep(NEVER)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(NEVER)

        async def __anext__(self):
            await (self.deaf() if swallows == "pull" else anyio.sleep(NEVER))

        async def aclose(self):
            if swallows == "close":
                await self.deaf()

    began = anyio.current_time()
    with anyio.move_on_after(1.5) as outer:
        await take(Source() | idle_guard(1, disconnect_timeout=2), form)
    assert anyio.current_time() - began <= 1 + 5 + 3
    await unharmed()
    assert outer.cancel_called


# -- a verdict that must come out ----------------------------------------------------------------


class SlowToClose:
    """It waits as it is told to, and takes its time to close."""

    def __init__(self, wait: Callable[[], Awaitable[Any]], seconds: float) -> None:
        self.wait, self.seconds = wait, seconds

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self.wait()

    async def aclose(self):
        await anyio.sleep(self.seconds)


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("seconds", [0.5, 1.0, 3.0])
async def test_a_pull_that_was_deaf_is_not_cut_in_its_close(
    loop: Loop, form: str, cancels: int, seconds: float
):
    """O5, O6: the alarm for its next cancel is not one for the block, and no hang ends well."""

    async def deaf() -> None:
        for _ in range(cancels):
            with suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep(NEVER)
        await anyio.sleep(NEVER)

    disconnect = Disconnect()
    taken = await take(SlowToClose(deaf, seconds) | idle_guard(1, disconnect=disconnect), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed
    assert loop.took(taken.elapsed, 1 + 5 + cancels + seconds)
    assert disconnect.finished == 1
    await unharmed()


async def test_total_does_not_cut_a_pull_that_is_raising_another_verdict(loop: Loop):
    """O5: it was decided in the consumer's time; `total` comes when it is being closed."""
    more = anyio.Event()

    async def wait() -> str:
        await next(waits, anyio.Event()).wait()
        return "more"

    async def interrupt() -> None:
        await anyio.sleep(0.5)
        more.set()
        raise ConnectionError

    first = anyio.Event()
    waits = iter([first, more])
    first.set()
    source = SlowToClose(wait, 2)
    guard = idle_guard(1, total=3, interrupt=interrupt, disconnect=Disconnect())
    worked = Disconnect(seconds=0.5)
    taken = await take(source | guard, "hosted", lambda _: worked())
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 0.5 + 1 + 0.5 + 0.5 + 2)
    await unharmed()


async def test_total_comes_out_of_a_pull_that_was_deaf_to_it(loop: Loop):
    """O5, O6: though the close of its source meets the cut of the block."""

    async def deaf() -> None:
        try:
            await anyio.sleep(NEVER)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(6)

    disconnect = Disconnect()
    guard = idle_guard(None, total=1, disconnect=disconnect)
    taken = await take(SlowToClose(deaf, 1) | guard, "hosted")
    assert isinstance(taken.error, DeadlineExceededError)
    assert disconnect.finished == 1
    await unharmed()


@pytest.mark.parametrize("answer", ["an end", "an error"])
@pytest.mark.parametrize("kept_waiting", [True, False])
async def test_what_a_pull_makes_of_the_cut_of_its_block_is_the_verdict(
    loop: Loop, answer: str, kept_waiting: bool
):
    """O5, T7: a hang does not end well, nor as the transport's error, because `total` ended it."""

    async def source():
        if not kept_waiting:
            await anyio.sleep(1)
            yield 1
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class():
            if answer == "an error":
                raise ConnectionError from None
        if answer == "never":
            yield 2

    disconnect, events = Disconnect(), Events()
    guard = idle_guard(None, total=1, disconnect=disconnect, observer=events)
    taken = await take(source() | guard, "hosted")
    assert isinstance(taken.error, DeadlineExceededError)
    assert loop.took(taken.elapsed, 1)
    assert disconnect.finished == 1
    assert [event.outcome for event in events.of(StreamEnded)] == ["failed"]
    await unharmed()


@pytest.mark.parametrize("marks", [True, False])
async def test_a_monitored_wait_that_ends_normally_when_it_is_cut_was_a_hang(
    loop: Loop, marks: bool
):
    """O10, T7: many a source catches its cancellation and just ends."""

    async def source():
        yield 1
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(NEVER)

    disconnect = Disconnect()
    with pytest.raises(IdleTimeoutError):
        async with idle_guard(1, disconnect=disconnect).monitor() as monitor:
            messages = source()
            while True:
                with monitor.waiting() if marks else nullcontext():
                    message = await anext(messages, None)
                if message is None:
                    break
                monitor.saw(message)
    assert disconnect.finished == 1
    await unharmed()


async def test_a_native_cancel_outranks_a_total_that_was_due_in_its_unwinding(native: Loop):
    """T9: within the cancelled block the pull cannot tell the two apart."""

    async def slow():
        try:
            await asyncio.sleep(NEVER)
            yield
        finally:
            await asyncio.sleep(60)

    async def consume() -> None:
        async with slow() | idle_guard(None, total=1) as messages:
            async for _ in messages:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert task.cancelling() == 1


@pytest.mark.parametrize("form", ["hosted", "monitored"])
async def test_a_native_cancel_just_after_the_cut_of_a_block_outranks_it(native: Loop, form: str):
    """T9: what the block's own scope has counted by then is not taken for a swallowed cancel."""

    async def flushes():
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            yield 1
            asyncio.get_running_loop().call_soon(tasks[0].cancel)
            raise

    async def consume() -> None:
        if form == "hosted":
            async with flushes() | idle_guard(None, total=1) as messages:
                async for _ in messages:
                    pass
        else:
            async with idle_guard(1).monitor() as monitor:
                source = flushes()
                while True:
                    with monitor.waiting():
                        message = await anext(source)
                    monitor.saw(message)

    tasks: list[asyncio.Task[None]] = []

    tasks.append(asyncio.create_task(consume()))
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert tasks[0].cancelling() == 1


@pytest.mark.parametrize("late", range(8))
async def test_a_native_cancel_as_a_teardown_ends_is_not_lost(native: Loop, form: str, late: int):
    """T9: nor as the group is left, which takes a pass or two more."""
    loop = asyncio.get_running_loop()
    guard = idle_guard(1, disconnect=Disconnect(seconds=60), disconnect_timeout=2)
    is_over = False

    async def consume() -> None:
        nonlocal is_over
        try:
            taken = await take(Pipe() | guard, form)
        finally:
            is_over = True
        assert taken.error is not None
        raise taken.error

    task = asyncio.create_task(consume())

    def cancel(passes: int) -> None:
        if passes:
            loop.call_soon(cancel, passes - 1)
        elif not is_over:
            task.cancel()

    loop.call_at(loop.time() + 3, cancel, late)
    await asyncio.wait([task])
    assert task.cancelled() == (task.cancelling() > 0)


async def test_a_monitor_raises_although_a_cancel_was_swallowed_before(native: Loop):
    """T9, O10: what was swallowed before the latest wait is nobody's any more."""

    async def consume() -> None:
        async with idle_guard(1).monitor() as monitor:
            with monitor.waiting(), suppress(asyncio.CancelledError):
                await asyncio.sleep(NEVER)
            with monitor.waiting():
                await asyncio.sleep(NEVER)

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.5)
    task.cancel()
    began = asyncio.get_running_loop().time()
    await asyncio.wait([task])
    assert isinstance(task.exception(), IdleTimeoutError)
    # Who waits once more has heard nothing in between.
    assert native.took(asyncio.get_running_loop().time() - began, 0.5)


async def test_a_source_that_says_generator_exit_when_it_is_cut_leaves_no_count(native: Loop):
    """T9: our cancel is undone on this exit, too."""

    class Source:
        def __aiter__(self):
            return self

        async def __anext__(self):
            try:
                await asyncio.sleep(NEVER)
            finally:
                raise GeneratorExit

    with pytest.raises(GeneratorExit):
        async for _ in Source() | idle_guard(1):
            pass
    await unharmed()


async def test_a_grace_that_is_over_is_no_failure_of_a_monitored_turn(loop: Loop):
    """T3, T7: what the transport says to our cancel fails no turn that has ended."""
    disconnect = Disconnect()
    async with idle_guard(None, exit_grace=1, disconnect=disconnect).monitor() as monitor:
        monitor.saw(TurnEnded())
        with monitor.waiting():
            try:
                await anyio.sleep(NEVER)
            finally:
                raise ConnectionError
    assert disconnect.finished == 1
    await unharmed()


# -- what is said by hand while nobody pulls -----------------------------------------------------


class Pipe:
    """A channel: a cancelled pull loses nothing. Here nothing ever comes."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        await anyio.sleep(NEVER)


async def patient(stream: Any, seconds: float, between: Callable[[], Any] = lambda: None) -> None:
    """Pull in scopes of its own, again and again."""
    for _ in range(40):
        with anyio.move_on_after(seconds):
            await anext(stream)
        if (pause := between()) is not None:
            await pause


async def test_a_hold_that_has_lapsed_is_not_begun_again_by_the_next_pull(loop: Loop):
    """T6, T8: its end gave a fresh window, once."""
    activity, began = Activity(), anyio.current_time()
    stream = aiter(Pipe() | idle_guard(3, activity=activity))
    activity.hold("permission", allowance=1.5).__enter__()
    with pytest.raises(IdleTimeoutError):
        await patient(stream, 1)
    assert loop.took(anyio.current_time() - began, 1.5 + 3)


@pytest.mark.parametrize(
    ("said", "elapsed"), [("touch", 5.75), ("release", 5.75), ("nothing", 4.0)]
)
async def test_what_is_said_between_two_pulls_counts(loop: Loop, said: str, elapsed: float):
    """T6, T8: also where the pull before was cancelled by the consumer's own scope."""
    activity, began = Activity(), anyio.current_time()
    stream = aiter(Pipe() | idle_guard(3, activity=activity))
    hold = activity.hold("permission", allowance=60)
    steps = iter([said])

    async def pause() -> None:
        await anyio.sleep(0.5)
        match next(steps, "nothing"):
            case "touch":
                activity.touch()
            case "release":
                hold.__exit__(None, None, None)
            case _:
                pass

    if said == "release":
        hold.__enter__()
    with pytest.raises(IdleTimeoutError):
        await patient(stream, 1.25, pause)
    assert loop.took(anyio.current_time() - began, elapsed)


@unclosed
def test_an_interrupt_that_still_runs_keeps_no_abandoned_stream(loop: Loop):
    """D1, O7: though the source keeps an exception that leads back to the stream."""

    async def source():
        yield 1
        try:
            await anyio.sleep(NEVER)
        except anyio.get_cancelled_exc_class() as error:
            kept = error
            yield 2
            del kept

    async def consume(guard: Any) -> None:
        with anyio.move_on_after(1.5):
            async for _ in source() | guard:
                await anyio.sleep(0.25)  # the second time it is cancelled here

    async def main() -> None:
        disconnect, interrupt = Disconnect(), Disconnect(seconds=NEVER)
        activity = Activity("abandoned")
        await consume(idle_guard(1, interrupt=interrupt, disconnect=disconnect, activity=activity))
        assert interrupt.calls
        for _ in range(3):
            gc.collect()
            await anyio.sleep(0.01)
        assert activity not in live()
        await anyio.sleep(10)
        assert not disconnect.calls

    loop.run(main)
