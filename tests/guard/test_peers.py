"""What the peers' own tests show of their time operators, shown of ours.

The scenarios are theirs (Kotlin's `Flow.timeout`, tokio-stream's `timeout`, Pekko's stream timeouts,
Reactor's and RxJava's `timeout`), the words and the code are not. Each test names the peer, what it
does there, and our rule; where ours differs it says so.
"""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import pytest

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    idle_guard,
    idle_timeout,
)
from streamguard.events import TimedOut
from streamguard.testing import (
    Channel,
    Script,
    fail,
    hang,
    message,
    relayed,
    say,
    silence,
    slow_cleanup,
)
from tests.support import Disconnect, Events, take

WORDS = [message("a"), message("b"), message("c")]


# --- Kotlin: kotlinx.coroutines, TimeoutTest


def test_kotlin_an_upstream_s_own_timeout_error_is_not_ours(loop, form):
    """T7 (testUpstreamErrorTimeoutException): the source's TimeoutError passes, the same object."""
    own = TimeoutError("the upstream's")
    stream = Script(message("a"), silence(60), fail(own)) | idle_guard(180)
    taken = loop.run(take, stream, form)
    assert taken.messages == ["a"]
    assert taken.error is own
    assert loop.took(taken.elapsed, 60)


def test_kotlin_an_upstream_that_was_cancelled_inside_is_not_timed_out(loop, form):
    """T7 (testUpstreamErrorCancellationException): a cancellation that the source met is no verdict."""
    if loop.name == "trio":
        pytest.skip("only asyncio hands on the cancellation of an inner task")
    events = Events()

    async def upstream():
        yield "a"
        inner = asyncio.create_task(anyio.sleep_forever())
        asyncio.get_running_loop().call_later(60, inner.cancel)
        await inner

    async def main():
        seen = []
        stream = upstream() | idle_guard(180, observer=events)
        with pytest.raises(asyncio.CancelledError):
            if form == "hosted":
                async with stream as messages:
                    async for word in messages:
                        seen.append(word)
            else:
                async for word in stream:
                    seen.append(word)
        assert seen == ["a"]
        assert asyncio.current_task().cancelling() == 0

    loop.run(main)
    assert not events.of(TimedOut)


def test_kotlin_what_the_upstream_raises_while_unwinding_is_the_verdict_s_cause(loop, form):
    """T7 (testUpstreamExceptionsTakingPriority): there it takes the verdict's place; not here.

    Who handles `IdleTimeoutError` must get it, however badly the source takes its end.
    """
    mishap = OSError("while closing")

    async def upstream():
        try:
            yield "a"
            await anyio.sleep_forever()
        finally:
            raise mishap

    taken = loop.run(take, upstream() | idle_guard(180), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.__cause__ is mishap


def test_kotlin_an_upstream_that_raises_before_the_limit_has_priority(loop, form):
    """T7 (testUpstreamError): an error that came in time is the stream's end."""
    stream = Script(*WORDS, fail(OSError("gone"))) | idle_guard(180)
    taken = loop.run(take, stream, form)
    assert taken.messages == ["a", "b", "c"]
    assert type(taken.error) is OSError


def test_kotlin_a_downstream_error_is_downstream_s(loop, form):
    """T7 (testDownstreamError): what the body raises comes out, and nothing is torn down."""
    disconnect = Disconnect()

    def refuse(_):
        raise KeyError("downstream")

    stream = Script(*WORDS, hang()) | idle_guard(180, disconnect=disconnect)
    taken = loop.run(take, stream, form, refuse)
    assert type(taken.error) is KeyError
    assert taken.messages == ["a"]
    assert disconnect.calls == []


def test_kotlin_an_upstream_in_another_context(loop, form):
    """T9 (testUpstreamTimeoutIsolatedContext): the silence of a source that a child task feeds."""
    source = relayed(Script(*WORDS, hang()), "task_group")
    taken = loop.run(take, source | idle_guard(180), form)
    assert taken.messages == ["a", "b", "c"]
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown.confirmed
    assert loop.took(taken.elapsed, 180)


def test_kotlin_less_than_no_time_is_a_mistake():
    """T12 (testImmediateTimeout): there 0 times out at once; here it is no limit, and less is refused where written."""
    with pytest.raises(ConfigError, match="idle="):
        idle_timeout(-1)
    assert idle_timeout(0).limits.idle is None


async def test_kotlin_a_channel_that_closes_in_time(loop, form):
    """T7 (testClosing): a producer that ends before the limit ends the stream, normally."""
    send, receive = anyio.create_memory_object_stream[str](1)

    async def produce():
        with send:
            await send.send("a")
            await anyio.sleep(100)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        taken = await take(receive | idle_guard(180), form)
    assert (taken.messages, taken.error) == (["a"], None)
    assert loop.took(taken.elapsed, 100)


def test_kotlin_delaying_downstream_does_not_trigger(loop, form):
    """T1 (documented at `timeout`): however long each message is handled, nobody was kept waiting."""

    async def handle(_):
        await anyio.sleep(200)

    stream = Script(*WORDS) | idle_guard(90)
    taken = loop.run(take, stream, form, handle)
    assert (taken.messages, taken.error) == (["a", "b", "c"], None)
    assert loop.took(taken.elapsed, 600)


def test_kotlin_a_slow_first_message_counts_as_any(loop, form):
    """T1 (testDelayedFirst): without `first`, the first message has no more time than others."""
    stream = Script(silence(200), *WORDS) | idle_guard(180)
    taken = loop.run(take, stream, form)
    assert taken.messages == []
    assert type(taken.error) is IdleTimeoutError
    assert not taken.error.verdict.first_seen


# --- tokio: tokio-stream, stream_timeout.rs


def test_tokio_messages_in_time_pass_one_by_one(loop, form):
    """T1 (basic_usage): each gap is measured by itself; the sum of them may be any."""
    gaps = [part for word in WORDS for part in (silence(100), word)]
    taken = loop.run(take, Script(*gaps) | idle_guard(180), form)
    assert (taken.messages, taken.error) == (["a", "b", "c"], None)
    assert loop.took(taken.elapsed, 300)


async def test_tokio_one_verdict_however_often_one_asks(loop, form):
    """T8 (return_elapsed_errors_only_once): there the next pull waits on; here it is over.

    What both avoid is a new error for each further wait: it is one verdict, told once.
    """
    events = Events()
    stream = Script(*WORDS, hang()) | idle_guard(180, observer=events)
    async with contextlib.AsyncExitStack() as stack:
        messages = await stack.enter_async_context(stream) if form == "hosted" else stream
        iterator = aiter(messages)
        for _ in WORDS:
            await anext(iterator)
        errors = []
        for _ in range(3):
            with pytest.raises(IdleTimeoutError) as caught:
                await anext(iterator)
            errors.append(caught.value)
    assert errors[0] is errors[1] is errors[2]
    assert len(events.of(TimedOut)) == 1


def test_tokio_to_wait_on_after_a_limit_is_mode_warn(loop, form):
    """T11 (return_elapsed_errors_only_once): told once per silence, and the item still comes."""
    events = Events()
    gaps = [part for word in WORDS[:2] for part in (silence(500), word)]
    stream = Script(*gaps) | idle_guard(180, mode="warn", observer=events)
    taken = loop.run(take, stream, form)
    assert (taken.messages, taken.error) == (["a", "b"], None)
    assert [event.enforced for event in events.of(TimedOut)] == [False, False]


def test_tokio_no_timeouts(loop, form):
    """T1 (no_timeouts): what is ready costs no time, and no limit is ever looked at."""
    events = Events()
    script = Script(*(message(i) for i in range(1000)))
    taken = loop.run(take, script | idle_guard(180, observer=events), form)
    assert taken.messages == list(range(1000))
    assert not events.of(TimedOut)


# --- Pekko: TimeoutsSpec


@pytest.mark.parametrize("limit", ["first", "idle", "turn", "total"])
def test_pekko_elements_pass_unmodified(loop, form, limit):
    """T1 ("pass through elements unmodified"): each limit alone changes nothing of a stream."""
    objects = [object() for _ in range(5)]
    knobs = {limit: 180} if limit != "idle" else {}
    idle = 180 if limit == "idle" else None
    stream = Script(*map(message, objects)) | idle_guard(idle, **knobs)
    taken = loop.run(take, stream, form)
    assert taken.messages == objects


def test_pekko_no_initial_element_in_time(loop, form):
    """T1 ("fail if no initial element passes until timeout"): `first`, a verdict of its own."""
    stream = Script(hang()) | idle_guard(None, first=60)
    taken = loop.run(take, stream, form)
    assert type(taken.error) is FirstMessageTimeoutError
    assert loop.took(taken.elapsed, 60)


def test_pekko_the_initial_limit_is_for_the_initial_element_only(loop, form):
    """T1 ("pass through elements unmodified", initialTimeout): later gaps may be longer."""
    stream = Script(message("a"), silence(200), message("b")) | idle_guard(None, first=60)
    taken = loop.run(take, stream, form)
    assert (taken.messages, taken.error) == (["a", "b"], None)


def test_pekko_not_completed_in_time(loop, form):
    """T1 ("fail if not completed until timeout"): `total` counts whatever passes in between."""
    gaps = [part for word in WORDS * 3 for part in (silence(50), word)]
    stream = Script(*gaps, hang()) | idle_guard(180, total=220)
    taken = loop.run(take, stream, form)
    assert type(taken.error) is DeadlineExceededError
    assert taken.messages == ["a", "b", "c", "a"]
    assert loop.took(taken.elapsed, 220)


def test_pekko_time_between_elements_too_large(loop, form):
    """T1 ("fail if time between elements is too large"): exact, without a tick to wait for."""
    stream = Script(message("a"), silence(100), message("b"), hang())
    taken = loop.run(take, stream | idle_guard(180), form)
    assert taken.messages == ["a", "b"]
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 280)


def test_pekko_not_before_the_window_has_passed_since_the_start(loop, form):
    """T2 ("not fail before timeout elapses from stream start"): never early, not even the first."""
    stream = Script(silence(150), message("a")) | idle_guard(180)
    taken = loop.run(take, stream, form)
    assert (taken.messages, taken.error) == (["a"], None)


async def test_pekko_what_was_built_long_ago_starts_with_its_first_pull(loop):
    """T1 (materialisation there, the first pull here): a pipe that lies about is not silent."""
    stream = Script(silence(100), message("a")) | idle_guard(180)
    await anyio.sleep(300)
    assert (await take(stream)).messages == ["a"]


def test_pekko_a_consumer_less_frequent_than_the_limit(loop, form):
    """T1 ("not throw if publisher is less frequent than timeout"): only kept waiting counts.

    A slow consumer and a source that answers within the window alternate for ever.
    """

    async def handle(_):
        await anyio.sleep(100)

    gaps = [part for word in WORDS for part in (silence(50), word)]
    taken = loop.run(take, Script(*gaps) | idle_guard(90), form, handle)
    assert (taken.messages, taken.error) == (["a", "b", "c"], None)


def test_pekko_a_stream_that_was_cut_cancels_its_upstream(loop, form):
    """O6 (every timeout "cancels upstream"): the source unwinds before the error is raised."""
    log = []

    async def upstream():
        try:
            yield "a"
            await anyio.sleep_forever()
        finally:
            log.append("closed")

    taken = loop.run(take, upstream() | idle_guard(180), form, lambda _: None)
    assert isinstance(taken.error, IdleTimeoutError)
    assert log == ["closed"]


# --- Reactor: FluxTimeoutTest


def test_reactor_an_old_limit_has_no_effect(loop, form):
    """T1 (oldTimeoutHasNoEffect): the instant at which an earlier wait would have ended is nothing."""
    parts = [silence(150), message("a"), silence(150), message("b"), hang()]
    taken = loop.run(take, Script(*parts) | idle_guard(180), form)
    assert taken.messages == ["a", "b"]
    assert loop.took(taken.elapsed, 480)


async def test_reactor_an_old_limit_has_no_effect_after_completion(loop, form):
    """O7 (oldTimeoutCompleteHasNoEffect): past its end a stream gives no verdict any more."""
    events, disconnect = Events(), Disconnect()
    guard = idle_guard(180, observer=events, disconnect=disconnect)
    taken = await take(Script(silence(150), message("a")) | guard, form)
    await anyio.sleep(400)
    assert (taken.messages, taken.error) == (["a"], None)
    assert not events.of(TimedOut)
    assert disconnect.calls == []


async def test_reactor_an_old_limit_has_no_effect_after_an_error(loop, form):
    """O7 (oldTimeoutErrorHasNoEffect): nor past an error of its own."""
    events = Events()
    script = Script(silence(150), fail(OSError("gone")))
    taken = await take(script | idle_guard(180, observer=events), form)
    await anyio.sleep(400)
    assert type(taken.error) is OSError
    assert not events.of(TimedOut)


def test_reactor_the_message_names_the_stream_and_the_limit(form):
    """T7 (timeoutDurationMessageWithName): whose silence, how long, which limit, what was seen."""
    from streamguard.testing import run_virtual

    named = idle_guard(180, activity=Activity("issue-7"))
    taken = run_virtual(take, Script(message("a"), hang()) | named, form)
    said = str(taken.error)
    assert "'issue-7' idle for 180 s" in said
    assert "limit idle=180" in said
    assert "1 message seen" in said


# --- RxJava: FlowableTimeoutTests


@pytest.mark.parametrize("sender", ["before", "after"])
def test_rxjava_a_message_at_the_very_instant_of_the_limit(loop, form, sender):
    """T3 (onNextOnTimeoutRace): there either may win, but never both or none; here the message does.

    `sender` is whose timer was set first: the producer's or the watch's.
    """

    async def main():
        send, receive = anyio.create_memory_object_stream[str](1)
        events = Events()

        async def produce():
            if sender == "after":
                await anyio.wait_all_tasks_blocked()
            await anyio.sleep_until(started + 180)
            send.send_nowait("just in time")

        started = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            if sender == "before":
                await anyio.wait_all_tasks_blocked()
            taken = await take(receive | idle_guard(180, observer=events), form)
        with send:
            return taken, events

    taken, events = loop.run(main)
    assert taken.messages == ["just in time"]
    # The wait for a second message then has its own window.
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.elapsed == 360
    assert len(events.of(TimedOut)) == 1


def test_rxjava_whoever_wins_the_race_nothing_is_lost_or_doubled(loop, form):
    """T3 (onNextOnTimeoutRace): each round has one outcome, and an undelivered message is still there."""
    window = 20

    async def round_of(offset):
        send, receive = anyio.create_memory_object_stream[str](1)

        async def produce():
            await anyio.sleep(max(0.0, window + offset))
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                send.send_nowait("message")
                sent.append("message")

        sent: list[str] = []
        kept = receive.clone()
        with send, kept:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                taken = await take(receive | idle_timeout(window), form)
            left = kept.statistics().current_buffer_used
        assert isinstance(taken.error, IdleTimeoutError)
        assert len(taken.messages) + left == len(sent) == 1
        return len(taken.messages)

    async def main():
        return [await round_of(offset / 4) for offset in range(-12, 13, 2)]

    assert loop.run(main) == [1] * 7 + [0] * 6  # at the tie, the message


def test_rxjava_a_source_that_is_slow_to_unwind_keeps_the_verdict(loop, form):
    """T7 (dispose on timeout): the time that a cancelled source takes is not a second silence."""
    source = slow_cleanup(Script(message("a"), hang()), 3, shielded=True)
    taken = loop.run(take, source | idle_guard(180), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.error.verdict.elapsed, 180)
    assert loop.took(taken.elapsed, 183)


async def test_rxjava_a_second_subscriber_has_a_time_of_its_own(loop):
    """O1 (independent subscriptions): two consumers of one operator do not share a clock."""
    guard, results = idle_guard(180), {}

    async def consume(name, delay):
        await anyio.sleep(delay)
        results[name] = await take(Channel(Script(say(name), hang())) | guard)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume, "early", 0)
        tasks.start_soon(consume, "late", 100)
    assert all(loop.took(taken.elapsed, 180) for taken in results.values())
