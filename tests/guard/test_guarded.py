"""Guarded streams over every make of source, stepped in every way that people do it (O3, O4, T8)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamguard import (
    Guarded,
    GuardedIterator,
    IdleTimeoutError,
    StreamInterruptedError,
    activity_stamp,
    idle_guard,
    idle_timeout,
)
from streamguard.testing import (
    Channel,
    Script,
    done,
    hang,
    holds_task_group,
    run_virtual,
    say,
    silence,
)
from tests.support import Disconnect, Events, take

# --- sources of every make: 1, 2, and then what `then` says


class Upstream:
    """What all makes share: what is asked of the source and done to it is in `log`."""

    def __init__(self, then: str) -> None:
        self.log: list[str] = []
        self._then = then
        self._given = 0

    async def give(self) -> int:
        self.log.append("asked")
        await checkpoint()
        self._given += 1
        if self._given <= 2:
            return self._given
        if self._then == "hang":
            await anyio.sleep_forever()
        if self._then == "error":
            raise OSError("connection lost")
        raise StopAsyncIteration


class WithAsyncNext(Upstream):
    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self.give()


class WithAclose(WithAsyncNext):
    async def aclose(self):
        await checkpoint()
        self.log.append("aclose")


class WithClose(WithAsyncNext):
    async def close(self):
        await checkpoint()
        self.log.append("close")


class WithSyncClose(WithAsyncNext):
    def close(self):
        self.log.append("close")


class WithBoth(WithAclose, WithClose):
    pass


class WithAwaitable(WithAclose):
    """`__anext__` gives an object that can only be awaited."""

    class Next:
        def __init__(self, coroutine):
            self._coroutine = coroutine

        def __await__(self):
            return self._coroutine.__await__()

    def __anext__(self):
        return self.Next(self.give())


class WithFuture(WithAclose):
    """`__anext__` gives a task of its own."""

    def __anext__(self):
        return asyncio.ensure_future(self.give())


class AsManager(WithAclose):
    async def __aenter__(self):
        await checkpoint()
        self.log.append("enter")
        return self

    async def __aexit__(self, *exc):
        await checkpoint()
        self.log.append(f"leave {exc == (None, None, None)}")


class LikeAnSdk(Upstream):
    """Iterated through a generator; what must be closed is the stream itself."""

    async def __aiter__(self):
        try:
            while True:
                try:
                    message = await self.give()
                except StopAsyncIteration:
                    return
                yield message
        finally:
            self.log.append("generator closed")

    async def __anext__(self):
        raise AssertionError("SDKs have it; `async for` asks the generator")

    async def close(self):
        await checkpoint()
        self.log.append("close")


def generator(then):
    upstream = Upstream(then)

    async def play():
        try:
            while True:
                try:
                    message = await upstream.give()
                except StopAsyncIteration:
                    return
                yield message
        finally:
            upstream.log.append("closed")

    return play(), upstream.log


def of_class(kind):
    def make(then):
        source = kind(then)
        return source, source.log

    return make


# How it is made, and what is in its log when it is over, apart from "asked".
MAKES = {
    "generator": (generator, ["closed"]),
    "async next": (of_class(WithAsyncNext), []),
    "aclose": (of_class(WithAclose), ["aclose"]),
    "close": (of_class(WithClose), ["close"]),
    "sync close": (of_class(WithSyncClose), ["close"]),
    "aclose and close": (of_class(WithBoth), ["aclose"]),
    "awaitable": (of_class(WithAwaitable), ["aclose"]),
    "future": (of_class(WithFuture), ["aclose"]),
    "manager": (of_class(AsManager), ["enter", "leave True"]),
    "sdk stream": (of_class(LikeAnSdk), ["generator closed", "close"]),
}


@pytest.fixture(params=MAKES)
def make(request, loop):
    if request.param == "future" and loop.name == "trio":
        pytest.skip("futures are asyncio's")
    return MAKES[request.param]


def done_to(log):
    return [entry for entry in log if entry != "asked"]


async def test_messages_and_the_end_come_through(loop, form, make):
    """O3: every make of source gives its messages, and is closed and left once at its end."""
    new, closing = make
    source, log = new("end")
    taken = await take(source | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([1, 2], None)
    assert done_to(log) == closing


async def test_silence_is_found_and_the_source_closed(loop, form, make):
    """O3: every make of source can hang; the verdict leaves it closed once, which is confirmed."""
    new, closing = make
    source, log = new("hang")
    taken = await take(source | idle_guard(180), form)
    assert taken.messages == [1, 2]
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 180)
    assert taken.error.teardown.confirmed
    assert done_to(log) == closing


async def test_the_source_s_own_error_is_not_touched(loop, form, make):
    """T7: what the source raises comes out as the very same object."""
    new, _ = make
    source, _log = new("error")
    taken = await take(source | idle_guard(180), form)
    assert taken.messages == [1, 2]
    assert type(taken.error) is OSError
    assert taken.error.__cause__ is None


async def test_a_verdict_is_final_and_the_source_is_left_alone(loop, form, make):
    """T8: whoever goes on pulling gets the same verdict; the source is not asked again."""
    new, _ = make
    source, log = new("hang")
    guarded = source | idle_guard(180)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        with pytest.raises(IdleTimeoutError) as first:
            while True:
                await anext(iterator)
        before = list(log)
        for again in (iterator, aiter(messages)) if form == "hosted" else (iterator,):
            with pytest.raises(IdleTimeoutError) as second:
                await anext(again)
            assert second.value is first.value
        assert log == before
        with contextlib.suppress(IdleTimeoutError):
            await guarded.aclose()
        assert done_to(log) == done_to(before)


async def test_aclose_closes_at_once_and_only_once(loop, make):
    """O7: after a `break`, `aclose()` closes the source; a second one has nothing to do."""
    new, closing = make
    source, log = new("hang")
    guarded = source | idle_guard(180)
    async for message in guarded:
        assert message == 1
        break
    assert done_to(log) in ([], ["enter"])
    await guarded.aclose()
    assert done_to(log) == closing
    await guarded.aclose()
    assert done_to(log) == closing


async def test_leaving_the_block_closes_at_once(loop, make):
    """O7: `async with` closes the source itself, even if nothing was ever asked."""
    new, closing = make
    source, log = new("hang")
    async with source | idle_guard(180) as messages:
        assert await anext(messages) == 1
    assert done_to(log) == closing


async def test_two_pulls_at_once_are_refused(loop, form, make):
    """T8: a message would go to either; the first pull is not disturbed."""
    new, _ = make
    source, _log = new("hang")
    guarded = source | idle_guard(180)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        assert [await anext(iterator), await anext(iterator)] == [1, 2]
        outcomes = []

        async def pull():
            with pytest.raises(IdleTimeoutError):
                await anext(iterator)
            outcomes.append("verdict")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pull)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="two pulls at once"):
                await anext(iterator)
            with pytest.raises(RuntimeError, match="while a pull is under way"):
                await iterator.aclose()
        assert outcomes == ["verdict"]


# --- more makes: channels and readers of the libraries themselves


async def test_anyio_memory_streams(loop, form):
    """O3: a receiving end is a source; its verdict closes it, its items come first."""
    send, receive = anyio.create_memory_object_stream[int](5)
    send.send_nowait(1)
    send.send_nowait(2)
    with send:
        taken = await take(receive | idle_guard(180), form)
        assert taken.messages == [1, 2]
        assert isinstance(taken.error, IdleTimeoutError)
        with pytest.raises(anyio.ClosedResourceError):
            receive.receive_nowait()


async def test_anyio_memory_streams_end(loop, form):
    """O3: the sender's end is a normal end."""
    send, receive = anyio.create_memory_object_stream[int](5)
    with send:
        send.send_nowait(1)
    taken = await take(receive | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([1], None)


def test_stream_reader_lines(loop, form):
    """O3: an `asyncio.StreamReader` gives lines; it has nothing to close."""
    if loop.name == "trio":
        pytest.skip("asyncio's own")

    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(b"one\ntwo\n")
        taken = await take(reader | idle_guard(180), form)
        assert taken.messages == [b"one\n", b"two\n"]
        assert isinstance(taken.error, IdleTimeoutError)
        assert loop.took(taken.elapsed, 180)
        ending = asyncio.StreamReader()
        ending.feed_data(b"last")
        ending.feed_eof()
        assert (await take(ending | idle_guard(180), form)).messages == [b"last"]

    loop.run(main)


def test_trio_channels(loop, form):
    """O3: a `trio.MemoryReceiveChannel` is a source, closed after the verdict."""
    if loop.name != "trio":
        pytest.skip("trio's own")
    import trio

    async def main():
        send, receive = trio.open_memory_channel(5)
        send.send_nowait(1)
        taken = await take(receive | idle_guard(180), form)
        assert taken.messages == [1]
        assert isinstance(taken.error, IdleTimeoutError)
        with pytest.raises(trio.ClosedResourceError):
            receive.receive_nowait()
        await send.aclose()

    loop.run(main)


async def test_a_manager_that_its_owner_has_entered_is_not_entered_again(loop, form):
    """O3: an owner who entered the source also leaves it."""

    class Once(AsManager):
        async def __aenter__(self):
            if "enter" in self.log:
                raise RuntimeError("entered already")
            return await super().__aenter__()

    async with Once("end") as source:
        taken = await take(source | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([1, 2], None)
    assert source.log.count("enter") == source.log.count("leave True") == 1


@pytest.mark.parametrize("error", [RuntimeError("no connection"), OSError("no connection")])
async def test_a_manager_that_cannot_be_entered_says_so(loop, form, error):
    """O3: only a source that somebody may have entered is asked all the same."""

    class Failing(WithAsyncNext):
        async def __aenter__(self):
            raise error

        async def __aexit__(self, *_):
            self.log.append("left")

    class Fresh:
        def __init__(self):
            self.iterator = Failing("end")

        def __aiter__(self):
            return self.iterator

    source = Fresh()
    taken = await take(source | idle_guard(180), form)
    assert taken.error is error
    assert source.iterator.log == []


async def test_a_manager_whose_entering_hangs_is_silent(loop, form):
    """O3: entering is part of the first pull, so `idle` bounds it; what was not entered is not left."""

    class Slow(AsManager):
        async def __aenter__(self):
            await anyio.sleep_forever()

    source = Slow("end")
    taken = await take(source | idle_guard(180), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 180)
    assert source.log == ["aclose"]


async def test_a_class_that_refuses_to_be_entered_is_just_iterated(loop, form):
    """O3: `__aexit__ = None` is Python's way to say that something is no context manager."""

    class Refusing(WithAclose):
        __aexit__ = None

        async def __aenter__(self):
            raise TypeError("not a context manager")

    source = Refusing("end")
    taken = await take(source | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([1, 2], None)


async def test_an_attribute_called_close_need_not_be_a_method(loop, form):
    """O3: an SDK's `close` may be a flag."""

    class Flag(WithAsyncNext):
        aclose = None
        close = False

    taken = await take(Flag("end") | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([1, 2], None)


# --- iterating again (O3, T8)


async def test_a_repeatable_source_is_guarded_anew_each_time(loop):
    """O3: what can be iterated again can be guarded again: new time, new activity, new end."""
    guarded = Script(say("a"), hang()) | idle_guard(180)
    ends = [await take(guarded) for _ in range(3)]
    assert {len(taken.messages) for taken in ends} == {1}
    assert all(isinstance(taken.error, IdleTimeoutError) for taken in ends)
    assert all(loop.took(taken.elapsed, 180) for taken in ends)
    assert len({id(taken.error.activity) for taken in ends}) == 3
    hosted = [await take(guarded, "hosted") for _ in range(2)]
    assert all(isinstance(taken.error, IdleTimeoutError) for taken in hosted)


async def test_two_iterations_of_a_repeatable_source_are_two(loop):
    """O3: `aiter` gives a new iterator each time, also before either is asked (aiostream's zip)."""
    guarded = Script(say("a"), say("b")) | idle_guard(180)
    one, two, three = (aiter(guarded) for _ in range(3))
    assert one is not two
    assert [await anext(one), await anext(two)] == [await anext(three)] * 2
    for iterator in (one, two, three):
        await iterator.aclose()


@pytest.mark.filterwarnings(
    "ignore::streamguard.StreamGuardWarning"
)  # it says so: see test_combinations
@pytest.mark.parametrize("end", ["end", "hang"])
async def test_a_source_that_can_be_used_once_remembers_how_it_ended(loop, end):
    """T8: a generator that ended, ended; one with a verdict has the same verdict again."""
    guarded = generator(end)[0] | idle_guard(180)
    first, second = await take(guarded), await take(guarded)
    assert first.messages == [1, 2]
    assert second.messages == []
    assert second.error is first.error
    assert loop.took(second.elapsed, 0)


async def test_an_iteration_goes_on_after_a_break(loop):
    """O4: a generator has one iteration, in as many loops as the consumer likes."""
    guarded = generator("end")[0] | idle_guard(180)
    seen = []
    async for message in guarded:
        seen.append(message)
        break
    async for message in guarded:
        seen.append(message)
    assert seen == [1, 2]


async def test_a_generator_that_raised_is_over(loop, form):
    """T7: after its own error a generator ends, as it does without a guard."""
    guarded = generator("error")[0] | idle_guard(180)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        with pytest.raises(OSError, match="connection lost"):
            while True:
                await anext(iterator)
        with pytest.raises(StopAsyncIteration):
            await anext(iterator)


class Stumbling(WithAclose):
    """Raises once in between, and goes on: a line that could not be parsed."""

    async def give(self):
        self.log.append("asked")
        await checkpoint()
        self._given += 1
        if self._given == 2:
            raise ValueError("not JSON")
        if self._given == 4:
            await anyio.sleep_forever()
        return self._given


async def test_a_source_that_goes_on_after_its_error_is_still_guarded(loop, form):
    """T7: the error is the source's; who goes on pulling still has the limit."""
    guarded = Stumbling("hang") | idle_guard(180)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        assert await anext(iterator) == 1
        with pytest.raises(ValueError, match="not JSON"):
            await anext(iterator)
        assert await anext(iterator) == 3
        with pytest.raises(IdleTimeoutError):
            await anext(iterator)


async def test_aclose_before_the_first_pull_closes_an_open_source(loop):
    """O7: an SDK's stream is open before anything is asked of it."""
    source = WithAclose("end")
    await (source | idle_guard(180)).aclose()
    assert source.log == ["aclose"]
    source = WithAclose("end")
    iterator = aiter(source | idle_guard(180))
    await iterator.aclose()
    assert source.log == ["aclose"]
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_a_block_in_which_nothing_is_asked_closes_the_source(loop):
    """O5: leaving the block closes the source, whatever was done in it."""
    source = WithAclose("end")
    async with source | idle_guard(180):
        pass
    assert source.log == ["aclose"]


async def test_switched_off_the_block_still_closes_the_source(loop, monkeypatch):
    """T11: the kill switch takes the limits away, not the closing that the code relies on."""
    monkeypatch.setenv("STREAMGUARD_MODE", "off")
    source = WithAclose("end")
    async with source | idle_guard(180) as messages:
        async for message in messages:
            assert message == 1
            break
    assert source.log == ["asked", "aclose"]


async def test_switched_off_iterating_is_iterating_the_source(loop):
    """T11: in mode "off" nothing of ours lies between."""
    source = generator("end")[0]
    assert aiter(source | idle_guard(180, mode="off")) is source


# --- the consumer's own cancellation (T8)


async def test_a_channel_goes_on_after_the_consumer_s_own_timeout(loop, form):
    """T8: a source that survives a cancelled pull loses nothing, and time goes on adding up."""
    send, receive = anyio.create_memory_object_stream[str](1)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(send)
        stream = receive | idle_guard(180)
        messages = await stack.enter_async_context(stream) if form == "hosted" else stream
        iterator = aiter(messages)
        for _ in range(2):
            with anyio.move_on_after(20):
                await anext(iterator)
                raise AssertionError("nothing was sent")
        send.send_nowait("a")
        assert await anext(iterator) == "a"
        started = anyio.current_time()
        with pytest.raises(IdleTimeoutError):
            with anyio.move_on_after(100):
                await anext(iterator)
            await anext(iterator)
        assert loop.took(anyio.current_time() - started, 180)


async def test_a_generator_that_the_consumer_cut_does_not_look_complete(loop, form):
    """T8: the cancel finished it, so its end is no end; no teardown, for nobody hung."""
    disconnect = Disconnect()
    guarded = generator("hang")[0] | idle_guard(180, disconnect=disconnect)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        assert [await anext(iterator), await anext(iterator)] == [1, 2]
        with anyio.move_on_after(60):
            await anext(iterator)
        for _ in range(2):
            with pytest.raises(StreamInterruptedError, match="your own scope or timeout"):
                await anext(iterator)
    assert disconnect.calls == []


async def test_after_the_turn_s_end_a_cut_generator_is_complete(loop, form):
    """T8: what had said that it was done has nothing more to give."""
    guarded = aiter(Script(say("a"), done(), hang())) | idle_guard(180)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(guarded) if form == "hosted" else guarded
        iterator = aiter(messages)
        await anext(iterator)
        await anext(iterator)
        with anyio.move_on_after(60):
            await anext(iterator)
        with pytest.raises(StopAsyncIteration):
            await anext(iterator)


async def test_a_message_after_the_cut_makes_a_later_end_an_end(loop):
    """T8: a source that went on was not finished by the cancel."""
    channel = Channel(Script(silence(100), say("a")))
    iterator = aiter(channel | idle_guard(180))
    with anyio.move_on_after(60):
        await anext(iterator)
    assert (await anext(iterator)).text == "a"
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


@pytest.mark.parametrize("kind", ["timeout", "wait_for"])
def test_asyncio_s_own_timeouts_around_a_pull(loop, form, kind):
    """T7: an outer `asyncio.timeout` or `wait_for` is the consumer's, and a channel goes on."""
    if loop.name == "trio":
        pytest.skip("asyncio's own")

    async def main():
        channel = Channel(Script(say("a"), silence(100), say("b")))
        async with contextlib.AsyncExitStack() as stack:
            stream = channel | idle_guard(180)
            messages = await stack.enter_async_context(stream) if form == "hosted" else stream
            iterator = aiter(messages)
            await anext(iterator)
            with pytest.raises(TimeoutError) as caught:
                if kind == "wait_for":
                    await asyncio.wait_for(anext(iterator), 60)
                else:
                    async with asyncio.timeout(60):
                        await anext(iterator)
            assert type(caught.value) is TimeoutError
            assert (await anext(iterator)).text == "b"
            assert asyncio.current_task().cancelling() == 0

    loop.run(main)


async def test_a_task_that_is_cancelled_ends_as_cancelled(loop, form):
    """T7: the caller's cancellation passes through, and leaves the source closed or closable."""
    source, log = generator("hang")
    outcomes = []

    async def consume():
        try:
            await take(source | idle_guard(180), form)
        except anyio.get_cancelled_exc_class():
            outcomes.append("cancelled")
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert outcomes == ["cancelled"]
    assert done_to(log) == ["closed"]


async def test_the_consumer_s_own_scopes_may_stay_open_between_messages(loop):
    """O4: nothing of ours is open across a `yield` to the consumer, so scopes may interleave."""
    iterator = aiter(Script(say("a"), say("b"), hang()) | idle_guard(180))
    scope = anyio.CancelScope()
    await anext(iterator)
    scope.__enter__()
    await anext(iterator)
    scope.__exit__(None, None, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, 1)
        with pytest.raises(IdleTimeoutError):
            await anext(iterator)


# --- guards within guards (T7)


async def relay(stream):
    """A user's generator between two guards."""
    async for message in stream:
        yield message


async def relay_in_a_block(stream):
    async with stream as messages:
        async for message in messages:
            yield message


RELAYS = pytest.mark.parametrize("between", [relay, relay_in_a_block])


@RELAYS
@pytest.mark.parametrize("first", ["inner", "outer", "both"])
async def test_of_nested_guards_one_decides(loop, form, between, first):
    """T7: whichever limit comes first gives the verdict, once, and only its disconnect is called."""
    windows = {"inner": (60, 180), "outer": (180, 60), "both": (60, 60)}[first]
    inner, outer = Disconnect(), Disconnect()
    events = Events()
    stream = Script(say("a"), hang()) | idle_guard(windows[0], disconnect=inner, observer=events)
    guarded = between(stream) | idle_guard(windows[1], disconnect=outer)
    taken = await take(guarded, form)
    assert len(taken.messages) == 1
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 60)
    assert taken.error.teardown.confirmed
    calls = (len(inner.calls), len(outer.calls))
    if first == "both":
        assert sorted(calls) == [0, 1]
    else:
        assert calls == ((1, 0) if first == "inner" else (0, 1))


async def test_a_block_s_messages_can_be_guarded_again(loop):
    """O3: what `async with` gives is an async iterator like any other."""
    async with Script(say("a"), hang()) | idle_guard(180) as messages:
        taken = await take(messages | idle_timeout(60))
        assert isinstance(taken.error, IdleTimeoutError)
        assert taken.error.verdict.window == 60
        assert loop.took(taken.elapsed, 60)


# --- stepped in every way that people do it (O4, T9)


def test_a_guarded_stream_goes_through_the_user_s_generators(loop, form):
    """O4: map, filter and chunk it in async generators; the verdict comes through them."""

    async def texts(stream):
        async for message in stream:
            yield message.text

    async def upper(stream):
        async for text in texts(stream):
            yield text.upper()

    async def main():
        stream = Script(say("a"), say("b"), hang()) | idle_guard(180)
        seen = []
        with pytest.raises(IdleTimeoutError):
            if form == "hosted":
                async with stream as messages:
                    async for text in upper(messages):
                        seen.append(text)
            else:
                async for text in upper(stream):
                    seen.append(text)
        assert seen == ["A", "B"]

    loop.run(main)


async def test_each_step_in_a_task_of_its_own(loop, form):
    """T9: the task is read at each pull, so the limit holds in whichever task pulls now."""
    seen = []

    async def step(iterator):
        try:
            seen.append((await anext(iterator)).text)
        except IdleTimeoutError as error:
            seen.append(type(error))

    script = Script(say("a"), silence(100), say("b"), hang())
    async with contextlib.AsyncExitStack() as stack:
        stream = script | idle_guard(180)
        messages = await stack.enter_async_context(stream) if form == "hosted" else stream
        iterator = aiter(messages)
        started = anyio.current_time()
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(step, iterator)
        assert seen == ["a", "b", IdleTimeoutError]
        assert loop.took(anyio.current_time() - started, 280)


def test_create_task_takes_a_step_as_it_is(loop, form):
    """T9: `__anext__()` gives a coroutine, which `asyncio.create_task` wants."""
    if loop.name == "trio":
        pytest.skip("asyncio's own")

    async def main():
        script = Script(say("a"), silence(60), say("b"), hang())
        async with contextlib.AsyncExitStack() as stack:
            stream = script | idle_guard(180)
            messages = await stack.enter_async_context(stream) if form == "hosted" else stream
            iterator = aiter(messages)
            pull = asyncio.create_task(iterator.__anext__())
            assert (await pull).text == "a"
            pull = asyncio.create_task(iterator.__anext__())
            finished, _ = await asyncio.wait({pull}, timeout=10)
            assert not finished  # looked at, and not disturbed
            assert (await pull).text == "b"
            pull = asyncio.create_task(iterator.__anext__())
            with pytest.raises(IdleTimeoutError):
                await pull
            assert not pull.cancelled()

    loop.run(main)


async def test_anext_with_a_default(loop, form):
    """O4: the builtin's two forms work; the default stands for the end, not for a verdict."""
    async with contextlib.AsyncExitStack() as stack:
        stream = Script(say("a")) | idle_guard(180)
        messages = await stack.enter_async_context(stream) if form == "hosted" else stream
        iterator = aiter(messages)
        assert (await anext(iterator, None)).text == "a"
        assert await anext(iterator, None) is None
    with pytest.raises(IdleTimeoutError):
        await anext(aiter(Script(hang()) | idle_guard(180)), None)


def test_a_stream_may_move_to_another_thread_s_loop():
    """T9: a source that belongs to no loop may be stepped by another one; time goes on there.

    The task that pulled last is running meanwhile, which must not look as if it pulled again.
    """
    outcome = []

    async def rest(iterator):
        seen = []
        started = anyio.current_time()
        with contextlib.suppress(IdleTimeoutError, TimeoutError):
            async with asyncio.timeout(30):
                while True:
                    seen.append((await anext(iterator)).text)
        outcome.append((seen, anyio.current_time() - started))

    async def main():
        iterator = aiter(Script(say("a"), say("b"), hang()) | idle_guard(0.05))
        assert (await anext(iterator)).text == "a"
        thread = threading.Thread(target=lambda: asyncio.run(rest(iterator)))
        thread.start()
        thread.join()

    asyncio.run(main())
    ((seen, elapsed),) = outcome
    assert seen == ["b"]
    assert 0.049 <= elapsed < 30


def test_one_guarded_stream_after_another_loop_has_ended():
    """T9: an operator and its streams belong to no loop; each run has its own time."""
    guard = idle_guard(0.02)
    for backend in ("asyncio", "trio", "asyncio"):
        taken = anyio.run(take, Script(say("a"), hang()) | guard, backend=backend)
        assert isinstance(taken.error, IdleTimeoutError)


async def test_a_source_that_holds_a_task_group_open(loop, form):
    """O4: no scope of ours nests inside the ones that the source has open between messages."""
    stream = holds_task_group(Script(say("a"), say("b"), hang())) | idle_guard(180)
    taken = await take(stream, form)
    assert len(taken.messages) == 2
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 180)


# --- the shape of the result (O3)


def test_what_a_guarded_stream_offers():
    """O3: an iterator with `aclose` and, since it has no `asend`, without `athrow`."""
    guarded = generator("end")[0] | idle_guard(180)
    iterator = aiter(guarded)
    assert isinstance(guarded, Guarded)
    assert isinstance(iterator, GuardedIterator)
    assert aiter(iterator) is iterator
    assert callable(iterator.aclose)
    assert not hasattr(iterator, "athrow")
    assert not hasattr(iterator, "asend")
    assert guarded.activity is iterator.activity


async def test_a_block_cannot_be_entered_twice_at_once(loop):
    """O5: the second `async with` says what to do instead."""
    guarded = Script(say("a")) | idle_guard(180)
    async with guarded:
        with pytest.raises(RuntimeError, match="in a block already"):
            async with guarded:
                raise AssertionError("unreachable")


async def test_inside_of_its_block_the_guarded_stream_is_the_block_s(loop):
    """O5: iterating the Guarded instead of what `as` gave means the same iteration."""
    guarded = Script(say("a"), say("b")) | idle_guard(180)
    async with guarded as messages:
        assert (await anext(messages)).text == "a"
        assert [message.text async for message in guarded] == ["b"]


async def test_stamps_see_every_message(loop, form):
    """O8: a function is called with the activity for each message, however messages come."""
    counts = []
    stamp = activity_stamp(lambda activity: counts.append(activity.messages))
    source, _ = generator("end")
    assert (await take(source | stamp, form)).messages == [1, 2]
    assert counts == [1, 2]


async def test_dropping_a_stream_leaves_nothing_behind(loop):
    """O7: a stream that was broken off and forgotten is gone, though its deadline is far away."""
    import gc
    import weakref

    source = WithAsyncNext("hang")
    iterator = aiter(source | idle_guard(180))
    assert await anext(iterator) == 1
    ghost = weakref.ref(iterator)
    del iterator
    if sys.implementation.name != "cpython":
        gc.collect()
    assert ghost() is None


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts references")
async def test_a_stream_that_has_ended_needs_no_collector(loop, form):
    """O7: neither it nor its source waits for the collector when nobody has it any more."""
    import gc
    import weakref

    source = WithAsyncNext("end")
    ghost = weakref.ref(source)
    gc.disable()
    try:
        taken = await take(source | idle_guard(180), form)
        del source
        assert taken.messages == [1, 2]
        assert ghost() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("gives", [7, None, [1], (m for m in "ab")], ids=lambda it: str(type(it)))
async def test_a_source_that_gives_nothing_to_await(loop, form, gives):
    """O1: `def __anext__` for `async def` is a mistake, and is no stream of None without end."""

    class Source:
        def __aiter__(self):
            return self

        def __anext__(self):
            return gives

    def leave(_message):
        raise EOFError

    taken = await take(Source() | idle_guard(180), form, leave)
    assert isinstance(taken.error, TypeError)
    assert str(taken.error).endswith(f"returned is of the type {type(gives).__name__}")


def test_steps_that_cannot_be_sent_into(form):
    """O1: `__await__` may give any iterator, such as one that can be thrown into at most."""

    class Steps:
        def __init__(self, coroutine):
            self._steps = coroutine.__await__()

        def __iter__(self):
            return self

        def __next__(self):
            return next(self._steps)

        def throw(self, *error):
            return self._steps.throw(*error)

    class Answer:
        def __await__(self):
            return Steps(asyncio.sleep(1, "answer"))

    class Source:
        left = 3

        def __aiter__(self):
            return self

        def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return Answer()

    async def main():
        taken = await take(Source() | idle_guard(180), form)
        assert taken.error is None
        assert taken.messages == ["answer"] * 3

    run_virtual(main)


async def test_partials_and_methods_make_sources_too(loop):
    """O1: what counts is what is piped, not how it was made."""

    async def count(start):
        yield start

    make = functools.partial(count, 7)
    assert (await take(make() | idle_guard(180))).messages == [7]


async def test_a_verdict_leaves_nothing_for_the_collector(loop):
    """O7: of 10,000 at one instant, the collector would take more time than all else."""

    async def consume():
        with contextlib.suppress(IdleTimeoutError):
            async for _ in Script(hang()) | idle_guard(60):
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
        gc.collect()
        ours = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert ours.isdisjoint({"Attempt", "GuardedIterator", "Watch", "IdleTimeoutError"}), ours
