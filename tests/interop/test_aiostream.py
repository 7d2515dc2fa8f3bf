"""aiostream: its streams into our operators, our streams into its operators (O3).

aiostream runs on asyncio alone, so everything here does. Time is virtual, and warnings are
errors: a streamer that is not entered would warn at every item.
"""

from __future__ import annotations

import asyncio
import functools

import anyio
import pytest
from aiostream import pipe, stream, streamcontext

from streamguard import IdleTimeoutError, idle_guard, idle_timeout, inflight_tool_gate
from streamguard.events import StreamEnded
from streamguard.testing import Script, done, fail, hang, run_virtual, say, silence, tool
from tests.support import Disconnect, Events, take


def run(function):
    """Runs an async test on asyncio in virtual time."""

    @functools.wraps(function)
    def test(*args, **kwargs):
        async def main():
            await function(*args, **kwargs)
            # Nothing of ours, and nothing that aiostream steps for us, is left.
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtual(main)

    return test


def now():
    return asyncio.get_running_loop().time()


class Numbers:
    """Repeatable: 0, 1, 2, with `pause` before each, and then `then`; knows what is open."""

    def __init__(self, pause: float = 0.0, then: str = "end") -> None:
        self.pause = pause
        self.then = then
        self.open = 0

    async def __aiter__(self):
        self.open += 1
        try:
            for i in range(3):
                await asyncio.sleep(self.pause)
                yield i
            if self.then == "hang":
                await anyio.sleep_forever()
            elif self.then == "error":
                raise OSError("connection lost")
        finally:
            self.open -= 1


HANGING = Script(say("a"), say("b"), hang())


# --- aiostream's streams into our operators


@pytest.mark.parametrize("form", ["bare", "hosted"])
@run
async def test_a_stream_pipes_into_an_operator(form):
    """O3: `aiostream_stream | op` is guarded, entered and left, without a warning per item."""
    source = Numbers(pause=100, then="hang")
    guarded = stream.iterate(source) | pipe.map(str) | idle_guard(180)
    started = now()
    taken = await take(guarded, form)
    assert taken.messages == ["0", "1", "2"]
    assert type(taken.error) is IdleTimeoutError
    assert now() - started == 480
    assert taken.error.teardown.confirmed
    assert source.open == 0


@pytest.mark.parametrize("form", ["bare", "hosted"])
@run
async def test_a_stream_s_end_and_error_come_through(form):
    """T7: aiostream's own ends are not touched."""
    taken = await take(stream.range(3) | idle_guard(180), form)
    assert (taken.messages, taken.error) == ([0, 1, 2], None)
    taken = await take(stream.iterate(Numbers(then="error")) | idle_guard(180), form)
    assert taken.messages == [0, 1, 2]
    assert type(taken.error) is OSError


@pytest.mark.parametrize("form", ["bare", "hosted"])
@run
async def test_aiostream_s_own_timeout_is_its_own(form):
    """T7: a tighter `pipe.timeout` upstream ends the stream with its own bare TimeoutError."""
    stricter = stream.iterate(HANGING) | pipe.timeout(60) | idle_guard(180)
    taken = await take(stricter, form)
    assert type(taken.error) is TimeoutError
    assert taken.elapsed == 60


@run
async def test_a_stream_stays_repeatable_behind_an_operator():
    """O3: each iteration is a new one, as it is for aiostream's own streams."""
    source = Numbers()
    guarded = stream.iterate(source) | idle_guard(180)
    for _ in range(2):
        assert [item async for item in guarded] == [0, 1, 2]
    assert source.open == 0
    for _ in range(2):
        async with stream.iterate(source) | idle_guard(180) as messages:
            assert [item async for item in messages] == [0, 1, 2]
    assert source.open == 0


@run
async def test_each_block_of_a_repeatable_stream_iterates_anew():
    """O3: after a bare iteration, or another block, `async with` begins a new one."""
    guarded = stream.iterate(Numbers()) | idle_guard(180)
    assert [item async for item in guarded] == [0, 1, 2]
    for _ in range(2):
        async with guarded as messages:
            assert [item async for item in messages] == [0, 1, 2]


@run
async def test_a_streamer_that_was_never_entered_is_entered():
    """O3: what `stream()` gives is a context manager not yet entered."""
    source = Numbers()
    streamer = stream.iterate(source).stream()
    assert [item async for item in streamer | idle_guard(180)] == [0, 1, 2]
    assert source.open == 0
    with pytest.raises(RuntimeError, match="closed"):
        await streamer.__aenter__()


@pytest.mark.parametrize("then", ["end", "hang"])
@pytest.mark.parametrize("form", ["bare", "hosted"])
@run
async def test_a_streamer_that_its_owner_entered_stays_its_owner_s(form, then):
    """O3: entered once, by the owner, whose block ends without a complaint."""
    source = Numbers(then=then)
    async with stream.iterate(source).stream() as streamer:
        taken = await take(streamer | idle_guard(180), form)
    assert taken.messages == [0, 1, 2]
    assert type(taken.error) is (IdleTimeoutError if then == "hang" else type(None))
    assert source.open == 0


@run
async def test_breaking_off_leaves_a_streamer_to_be_closed():
    """O7: `aclose()` and the block both leave the streamer that we entered."""
    source = Numbers()
    guarded = stream.iterate(source) | idle_guard(180)
    async for _ in guarded:
        break
    assert source.open == 1
    await guarded.aclose()
    assert source.open == 0
    async with stream.iterate(source) | idle_guard(180) as messages:
        async for _ in messages:
            break
    assert source.open == 0


# --- our streams into aiostream's operators


@run
async def test_a_guarded_stream_pipes_on_into_aiostream():
    """O3: `agen | op | pipe.map(...)`, and a verdict keeps its type through the pipe."""
    disconnect = Disconnect()
    piped = (
        HANGING
        | idle_guard(180, disconnect=disconnect)
        | pipe.map(lambda message: message.text)
        | pipe.map(str.upper)
    )
    seen = []
    started = now()
    with pytest.raises(IdleTimeoutError) as caught:
        async with piped.stream() as streamer:
            async for text in streamer:
                seen.append(text)
    assert seen == ["A", "B"]
    assert now() - started == 180
    assert caught.value.verdict.messages == 2
    assert caught.value.teardown.confirmed
    assert disconnect.finished == 1


@run
async def test_what_aiostream_makes_of_a_guarded_stream_is_repeatable():
    """O3: awaited twice, it gives the same twice; and a list of all is the same list."""
    piped = Numbers() | idle_guard(180) | pipe.map(lambda item: item * 10)
    assert await piped == 20
    assert await piped == 20
    collected = Numbers() | idle_guard(180) | pipe.list()
    assert await collected == await collected == [0, 1, 2]


@run
async def test_an_operator_between_aiostream_s_own():
    """O3: ours may stand anywhere in the pipe, also more than once."""
    source = Numbers(pause=100)
    piped = (
        stream.iterate(source)
        | pipe.skip(1)
        | idle_timeout(250)
        | inflight_tool_gate()
        | pipe.map(str)
        | idle_timeout(300)
        | pipe.list()
    )
    assert await piped == ["1", "2"]
    assert source.open == 0


@run
async def test_the_filtered_part_of_a_silence_is_silence():
    """T1: where an operator stands decides what counts: behind a filter only what passes does."""
    steady = stream.iterate(Numbers(pause=100)) | pipe.filter(lambda item: item == 2)
    taken = await take(steady | idle_timeout(180))
    assert type(taken.error) is IdleTimeoutError
    in_front = stream.iterate(Numbers(pause=100)) | idle_timeout(180)
    assert await (in_front | pipe.filter(lambda item: item == 2) | pipe.list()) == [2]


@run
async def test_taking_only_a_few_closes_the_source():
    """O7: aiostream closes what it broke off, and we hand that on."""
    source = Numbers(then="hang")
    assert await (source | idle_guard(180) | pipe.take(2) | pipe.list()) == [0, 1]
    assert source.open == 0


@run
async def test_a_gate_sees_tools_through_aiostream():
    """S3: messages that pass through an operator unchanged still speak for themselves."""
    script = Script(say("a"), tool("Bash", 600), done())
    assert len(await (stream.iterate(script) | idle_guard(180) | pipe.list())) == 4
    assert len(await (stream.iterate(script) | pipe.delay(1) | idle_guard(180) | pipe.list())) == 4


# --- inside of operators that step in fresh tasks


@run
async def test_a_verdict_inside_merge():
    """T9: merge steps each stream in tasks of its own; the silent one gives its verdict."""
    disconnect = Disconnect()
    lively = stream.count(interval=50) | idle_guard(180)
    silent = HANGING | idle_guard(180, disconnect=disconnect)
    seen = []
    started = now()
    with pytest.raises(IdleTimeoutError) as caught:
        async with stream.merge(lively, silent).stream() as streamer:
            async for item in streamer:
                seen.append(item)
    assert now() - started == 180
    assert caught.value.verdict.messages == 2
    assert caught.value.teardown.confirmed
    assert [item for item in seen if isinstance(item, int)] == [0, 1, 2, 3]
    assert disconnect.finished == 1


@run
async def test_merge_of_guarded_streams_that_end():
    """T9: nothing is lost or left over where every pull has its own task."""
    one, two = Numbers(pause=100), Numbers(pause=70)
    merged = stream.merge(one | idle_guard(180), two | idle_guard(180))
    assert sorted(await (merged | pipe.list())) == [0, 0, 1, 1, 2, 2]
    assert one.open == two.open == 0


@run
async def test_a_guard_around_merge():
    """T3: around a merge, any of its streams is progress."""
    lively, silent = Numbers(pause=100), Numbers(pause=150, then="hang")
    taken = await take(stream.merge(lively, silent) | idle_guard(180))
    assert len(taken.messages) == 6
    assert type(taken.error) is IdleTimeoutError
    assert taken.elapsed == 450 + 180
    assert lively.open == silent.open == 0


@run
async def test_a_verdict_inside_flatmap():
    """T9: each inner stream is guarded by itself, and by the one operator that was made once."""
    guard = idle_guard(180)

    def of(i):
        return Numbers(pause=10 * i, then="hang" if i == 3 else "end") | guard

    piped = stream.iterate([1, 2, 3]) | pipe.flatmap(of)
    seen = []
    with pytest.raises(IdleTimeoutError):
        async with piped.stream() as streamer:
            async for item in streamer:
                seen.append(item)
    assert sorted(seen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@run
async def test_a_verdict_inside_concatmap():
    """T9: one after the other, too."""
    piped = stream.iterate([HANGING]) | pipe.concatmap(lambda script: script | idle_guard(180))
    started = now()
    with pytest.raises(IdleTimeoutError):
        await piped
    assert now() - started == 180


@run
async def test_zip_of_guarded_streams():
    """T9: zip pulls all at once; the verdict of one ends them all."""
    lively, silent = Numbers(), Numbers(then="hang")
    zipped = stream.zip(lively | idle_guard(180), silent | idle_guard(180))
    assert await (zipped | pipe.take(3) | pipe.list()) == [(0, 0), (1, 1), (2, 2)]
    endless = stream.count() | idle_guard(180)
    seen = []
    with pytest.raises(IdleTimeoutError):
        async with stream.zip(endless, silent | idle_guard(180)).stream() as streamer:
            async for item in streamer:
                seen.append(item)
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert lively.open == silent.open == 0


@run
async def test_zip_of_one_guarded_stream_with_itself():
    """O3: a repeatable stream may be in one pipe twice."""
    guarded = Numbers() | idle_guard(180)
    assert await (stream.zip(guarded, guarded) | pipe.list()) == [(0, 0), (1, 1), (2, 2)]


@run
async def test_switchmap_closes_the_stream_that_it_leaves():
    """T7: switching away is the consumer's cancel, not a verdict."""
    disconnect, sources = Disconnect(), []

    def of(i):
        source = Numbers(pause=40, then="hang" if i == 1 else "end")
        sources.append(source)
        return source | idle_guard(180, disconnect=disconnect)

    piped = stream.range(2, interval=100) | pipe.switchmap(of)
    seen = []
    with pytest.raises(IdleTimeoutError):
        async with piped.stream() as streamer:
            async for item in streamer:
                seen.append(item)
    assert seen == [0, 1, 0, 1, 2]
    assert [source.open for source in sources] == [0, 0]
    assert disconnect.finished == 1


@run
async def test_an_outer_timeout_of_aiostream_is_the_consumer_s():
    """T7: `op | pipe.timeout(60)` ends with aiostream's TimeoutError, and we tear nothing down."""
    disconnect = Disconnect()
    piped = HANGING | idle_guard(180, disconnect=disconnect) | pipe.timeout(60)
    with pytest.raises(TimeoutError) as caught:
        await piped
    assert type(caught.value) is TimeoutError
    assert disconnect.calls == []


@run
async def test_at_the_same_time_there_is_one_error():
    """T7: whichever of both limits is first, exactly one error comes, in time."""
    piped = HANGING | idle_guard(60) | pipe.timeout(60)
    started = now()
    with pytest.raises(TimeoutError):
        await piped
    assert now() - started == 60


@pytest.mark.parametrize("error", [ValueError("bad line"), OSError("gone"), TimeoutError()])
@run
async def test_an_error_keeps_its_type_and_identity_through_both(error):
    """T7: source, our operator, aiostream's operator, consumer: one and the same object."""
    piped = Script(say("a"), fail(error)) | idle_guard(180) | pipe.map(lambda m: m.text)
    with pytest.raises(type(error)) as caught:
        await piped
    assert caught.value is error


@run
async def test_slow_operators_downstream_are_the_consumer_s_time():
    """T1: what an operator behind us does with a message is not the backend's silence."""

    async def slowly(item):
        await asyncio.sleep(1000)
        return item

    piped = Numbers(pause=100) | idle_guard(180) | pipe.map(slowly, task_limit=1) | pipe.list()
    assert await piped == [0, 1, 2]


@run
async def test_streamcontext_takes_a_guarded_stream():
    """O3: whatever aiostream does to an async iterable it can do to a guarded one."""
    source = Numbers()
    async with streamcontext(source | idle_guard(180)) as streamer:
        async for item in streamer:
            assert item == 0
            break
    assert source.open == 0
    added = stream.just(7) + (Numbers() | idle_guard(180))
    assert await (added | pipe.list()) == [7, 0, 1, 2]
    chained = stream.chain(Numbers() | idle_guard(180), Numbers() | idle_guard(180))
    assert await (chained | pipe.list()) == [0, 1, 2, 0, 1, 2]


@run
async def test_an_exception_in_the_consumer_s_body_leaves_nothing():
    """O7: aiostream hands the body's exception down; our source is closed."""
    source = Numbers(then="hang")
    with pytest.raises(KeyError):
        async with (source | idle_guard(180) | pipe.map(str)).stream() as streamer:
            async for _ in streamer:
                raise KeyError("body")
    assert source.open == 0


@run
async def test_a_silence_between_items_starts_anew():
    """T1: 150 s of silence three times are three times 150 s."""
    script = Script(say("a"), silence(150), say("b"), silence(150), say("c"))
    assert len(await (stream.iterate(script) | idle_guard(180) | pipe.list())) == 3


@pytest.mark.parametrize("leaves", [True, False], ids=["left early", "to its end"])
@run
async def test_what_a_stream_in_a_pipe_came_to(leaves):
    """O8: aiostream closes what is left early, which is no end of the stream's own."""
    events = Events()
    source = Numbers(then="hang" if leaves else "end")
    piped = source | idle_guard(180, observer=events) | pipe.map(str)
    async with piped.stream() as streamer:
        async for item in streamer:
            if leaves and item == "2":
                break
    outcomes = [event.outcome for event in events.of(StreamEnded)]
    assert outcomes == ["left" if leaves else "completed"]
