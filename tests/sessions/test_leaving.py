"""O6, O7, D1: leaving a session in its midst is as sure as a verdict, and soon over."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager, nullcontext

import anyio
import pytest

from streamguard import (
    Activity,
    Connection,
    DeadlineExceededError,
    IdleTimeoutError,
    StreamGuardError,
    idle_guard,
    keep_alive,
    live,
    reconnecting_resume,
    session,
)
from streamguard.events import AttemptEnded, OwnerAbandoned, StreamEnded, TimedOut
from streamguard.signals import SessionOpened, TurnEnded
from streamguard.testing import Script, done, fail, hang, opened, say
from tests.sessions.backend import Backend
from tests.support import Events, Leftovers


class Upstream:
    """A run that takes `closing` seconds to close, unless it is disconnected."""

    def __init__(self, closing, *steps, swallows=0):
        self.closing = closing
        self.steps = steps or (opened("s"), say("a"), hang())
        self.swallows = swallows
        self.ended = anyio.Event()
        self.points = []

    @asynccontextmanager
    async def open(self, point):
        self.points.append(point)
        ended = self.ended = anyio.Event()
        try:
            yield Connection(self._stream())
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(self.closing)
            finally:
                ended.set()

    async def _stream(self):
        messages = aiter(Script(*self.steps))
        try:
            async for message in messages:
                yield message
        except BaseException:
            for _ in range(self.swallows):
                try:
                    await anyio.sleep(1000)
                except anyio.get_cancelled_exc_class():
                    pass
            raise
        finally:
            await messages.aclose()


async def leave(chat, how):
    turn = aiter(chat)
    await anext(turn)
    if how == "in a pull":
        with anyio.move_on_after(10):
            while True:
                await anext(turn)
    elif how == "aclose":
        await turn.aclose()


@pytest.mark.parametrize("how", ["in a pull", "aclose", "break"])
@pytest.mark.parametrize(
    ("closing", "timeout", "bound"), [(0, None, 0), (3, None, 3), (20, None, 5), (20, 8, 8)]
)
async def test_leaving_takes_five_seconds_at_most(loop, how, closing, timeout, bound):
    """Or as long as a `disconnect_timeout` that was written says; the rest is the owner's."""
    left, told, upstream = Leftovers(), Events(), Upstream(closing)
    written = {} if timeout is None else {"disconnect_timeout": timeout}
    start = anyio.current_time()
    async with session(upstream.open) | idle_guard(60, observer=told, **written) as chat:
        await leave(chat, how)
    took = anyio.current_time() - start - (10 if how == "in a pull" else 0)
    assert loop.took(took, bound, slack=0.3)
    assert bool(told.of(OwnerAbandoned)) == (closing > bound)
    await anyio.sleep(30)
    assert upstream.ended.is_set()
    left.check()


async def test_what_was_disconnected_is_gone_sooner(loop):
    """D1: half of the bound is for going in peace, and then it is ended."""
    disconnects, ended = [], anyio.Event()

    async def stream():
        yield "a"
        try:
            await anyio.sleep(1000)
        finally:
            with anyio.CancelScope(shield=True):
                await ended.wait()  # as an SDK that waits for its run

    @asynccontextmanager
    async def open_(_point):
        def disconnect():
            disconnects.append(anyio.current_time())
            ended.set()

        yield Connection(stream(), disconnect=disconnect)

    told = Events()
    start = anyio.current_time()
    async with session(open_) | idle_guard(60, observer=told) as chat:
        await leave(chat, "in a pull")
    assert loop.took(anyio.current_time() - start, 12.5, slack=0.3)
    assert len(disconnects) == 1
    assert told.of(OwnerAbandoned) == []


@pytest.mark.parametrize("swallows", [1, 2, 4])
async def test_what_swallows_a_cancel_is_cancelled_again(loop, swallows):
    """O6: each second once it was left behind, until it unwinds."""
    left, upstream = Leftovers(), Upstream(0, swallows=swallows)
    start = anyio.current_time()
    async with session(upstream.open) | idle_guard(60) as chat:
        await leave(chat, "in a pull")
    assert anyio.current_time() - start <= 15.3
    await anyio.sleep(swallows + 1)
    assert upstream.ended.is_set()
    left.check()


async def test_the_next_prompt_waits_for_a_close_that_was_left_behind(loop):
    """D5: two owners would corrupt the session, and it need not be given up for a slow close."""
    upstream = Upstream(12)
    start = anyio.current_time()
    async with session(upstream.open, prompt="one") | idle_guard(60) as chat:
        await leave(chat, "aclose")
        assert loop.took(anyio.current_time() - start, 5, slack=0.3)
        first = upstream.ended
        upstream.steps, upstream.closing = (say("b"), done()), 0
        got = [each.text async for each in chat.ask("two") if hasattr(each, "text")]
        assert got == ["b"]
        assert first.is_set()
    assert loop.took(anyio.current_time() - start, 12, slack=0.3)
    assert upstream.points[1].token == "s"


async def test_a_connection_at_rest_has_its_own_time_to_close(loop):
    """O6: nothing is left unfinished, so nothing is in a hurry."""
    told, upstream = Events(), Upstream(20, say("a"), done())
    start = anyio.current_time()
    async with session(upstream.open) | idle_guard(60, observer=told) as chat:
        async for _ in chat:
            pass
    assert loop.took(anyio.current_time() - start, 20)
    assert told.of(OwnerAbandoned) == []


# -- how it ended, at once -------------------------------------------------------------------------


class OwnError(Exception):
    """The consumer's."""


async def _to_the_end(chat):
    async for _ in chat:
        pass


async def _break(chat):
    await anext(aiter(chat))


async def _raise(chat):
    await anext(aiter(chat))
    raise OwnError


WELL, HANGS = (say("a"), done()), (say("a"), hang())


@pytest.mark.parametrize("settled", ["in its block", "behind it"])
@pytest.mark.parametrize(
    ("steps", "consume", "outcome"),
    [
        (WELL, _to_the_end, "completed"),
        (HANGS, _break, "left"),
        (HANGS, _raise, "left"),
        ((say("a"), fail(OSError())), _to_the_end, "failed"),
        (HANGS, _to_the_end, "failed"),
    ],
)
async def test_what_is_told_of_an_end(loop, steps, consume, outcome, settled):
    """O8, E6: `live()`, the stream's end and the attempt's are true as soon as the block is left."""
    told, activity = Events(), Activity("issue-7")
    guard = idle_guard(60, activity=activity, observer=told)
    try:
        async with session(Backend([Script(*steps)]).open, prompt="go") | guard as chat:
            await consume(chat)
            if settled == "in its block" and outcome == "left":
                await aiter(chat).aclose()
                assert activity not in live()
    except (OwnError, OSError, IdleTimeoutError):
        pass
    assert activity not in live()
    assert [each.outcome for each in told.of(StreamEnded)] == [outcome]
    assert [each.outcome for each in told.of(AttemptEnded)] == [outcome]


async def test_what_is_told_of_a_cancellation(loop):
    """O8, E6: of a scope around the block."""
    told, activity = Events(), Activity("issue-7")
    guard = idle_guard(60, activity=activity, observer=told)
    with anyio.move_on_after(5):
        async with session(Backend([Script(*HANGS)]).open, prompt="go") | guard as chat:
            await _to_the_end(chat)
    assert activity not in live()
    assert [each.outcome for each in told.of(StreamEnded)] == ["cancelled"]
    assert [each.outcome for each in told.of(AttemptEnded)] == ["cancelled"]


async def test_what_is_told_of_a_native_cancellation(native):
    """O8, E6"""
    import asyncio

    told = Events()

    async def consume():
        guard = idle_guard(60, observer=told)
        async with session(Backend([Script(*HANGS)]).open, prompt="go") | guard as chat:
            await _to_the_end(chat)

    task = asyncio.create_task(consume())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [each.outcome for each in told.of(StreamEnded)] == ["cancelled"]
    assert [each.outcome for each in told.of(AttemptEnded)] == ["cancelled"]


# -- a disconnect that is still at work (D5) ---------------------------------------------------


class Disconnected:
    """A run that its disconnect ends at once, and which that goes on with for `seconds`."""

    def __init__(self, *steps, seconds):
        self.steps = steps
        self.seconds = seconds
        self.busy = 0
        self.points = []

    @asynccontextmanager
    async def open(self, point):
        assert not self.busy, "the disconnect of the one before is still at work"
        self.points.append(point)
        ended = anyio.Event()

        async def disconnect():
            self.busy += 1
            ended.set()
            await anyio.sleep(self.seconds)
            self.busy -= 1

        async def stream():
            async with aclosing(aiter(Script(*self.steps))) as messages:
                async for message in messages:
                    yield message
            while not ended.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await ended.wait()
                except anyio.get_cancelled_exc_class():
                    pass  # it hears of nothing but its disconnect

        yield Connection(stream(), disconnect=disconnect)


@pytest.mark.parametrize("seconds", [1, 4, 40])
def test_the_next_prompt_waits_for_a_disconnect_that_has_ended_the_stream_already(loop, seconds):
    """It ended the stream at once, and went on beside the next connection."""
    upstream = Disconnected(opened("s"), say("a"), seconds=seconds)
    told = Events()

    async def main():
        limits = idle_guard(60, disconnect_timeout=20, observer=told)
        async with session(upstream.open, prompt="p") | limits as chat:
            turn = aiter(chat)
            await anext(turn)
            await anext(turn)
            with anyio.move_on_after(1):
                await anext(turn)
            begun = anyio.current_time()
            await turn.aclose()
            left = anyio.current_time() - begun
            try:
                await anext(chat.ask("more"))
            except StreamGuardError as error:
                return left, error.gave_up
        return left, None

    left, gave_up = loop.run(main)
    assert loop.took(left, min(10 + seconds, 20), slack=0.2)
    # One that is abandoned has not returned: nobody knows what it is still at.
    assert gave_up == ("unsafe" if seconds == 40 else None)
    assert len(upstream.points) == (1 if seconds == 40 else 2)
    assert next(event.confirmed for event in told.of(AttemptEnded)) is (seconds != 40)


def test_a_disconnect_that_hangs_at_the_end_of_the_grace(loop):
    """The turn stays well, and the backend is not known to be gone all the same."""
    upstream = Disconnected(say("a"), done(), seconds=1000)
    told = Events()

    async def main():
        limits = idle_guard(60, exit_grace=2, disconnect_timeout=3, observer=told)
        async with session(upstream.open, prompt="p") | limits as chat:
            assert len([message async for message in chat]) == 2
            with pytest.raises(StreamGuardError, match="may still be alive") as caught:
                await anext(chat.ask("more"))
            assert caught.value.gave_up == "unsafe"

    loop.run(main)
    assert len(upstream.points) == 1
    (ended,) = told.of(AttemptEnded)
    assert (ended.outcome, ended.confirmed) == ("completed", False)


async def test_a_prompt_that_was_refused_stays_refused(loop):
    upstream = Disconnected(say("a"), done(), seconds=10)
    got = []
    limits = idle_guard(60, exit_grace=2, disconnect_timeout=3)
    async with session(upstream.open, prompt="p") | limits as chat:
        async for _ in chat:
            pass
        turn = chat.ask("more")
        for _ in range(2):
            try:
                await anext(turn)
            except StreamGuardError as error:
                got.append(error)
            await anyio.sleep(20)
    assert got[0] is got[1]


@pytest.mark.parametrize("how", ["left", "cancelled"])
async def test_a_stream_that_takes_its_cut_for_its_end(loop, how):
    """It ended because its consumer had gone, and nobody has got its end."""

    @asynccontextmanager
    async def open_(_point):
        async def stream():
            yield "a"
            ended = anyio.Event()
            try:
                with anyio.move_on_after(30):
                    await ended.wait()
            except anyio.get_cancelled_exc_class():
                pass

        yield stream()

    told = Events()

    async def consume():
        async with session(open_, prompt="p") | idle_guard(60, observer=told) as chat:
            turn = aiter(chat)
            await anext(turn)
            with anyio.move_on_after(1 if how == "left" else None):
                await anext(turn)
            await turn.aclose()

    with anyio.move_on_after(2):
        await consume()
    assert [event.outcome for event in told.of(StreamEnded)] == [how]
    assert [event.outcome for event in told.of(AttemptEnded)] == [how]


def test_who_leaves_a_turn_that_has_ended_in_its_grace(loop):
    """T14: the run stays a success; its two events say the same."""
    upstream = Upstream(0, say("a"), done(), hang(), swallows=9)
    told = Events()

    async def main():
        limits = idle_guard(60, exit_grace=2, observer=told)
        async with session(upstream.open, prompt="p") | limits as chat:
            with anyio.move_on_after(4):
                async for _ in chat:
                    pass

    loop.run(main)
    (ended,), (stream,) = told.of(AttemptEnded), told.of(StreamEnded)
    assert (ended.outcome, stream.outcome) == ("completed", "completed")


@pytest.mark.parametrize("total", [4.4, 17.7, 0.1, 1 / 3])
def test_total_strikes_a_busy_consumer_by_one_clock(loop, total):
    """Rounded in two ways, it left the block an instant before its attempt knew of any verdict."""
    disconnected = []
    told = Events()

    @asynccontextmanager
    async def open_(_point):
        yield Connection(Script(say("a"), hang()), disconnect=lambda: disconnected.append(1))

    limits = idle_guard(None, total=total, observer=told)

    async def main():
        async with session(open_, prompt="p") | limits as chat:
            async for _ in chat:
                await anyio.sleep(100)

    with pytest.raises(DeadlineExceededError):
        loop.run(main)
    assert disconnected == [1]
    assert [event.verdict.limit for event in told.of(TimedOut)] == ["total"]
    assert [event.outcome for event in told.of(AttemptEnded)] == ["failed"]


# -- a close that never ends -------------------------------------------------------------------


class NeverClosed:
    """Its stream fails, and its close hears nothing until it is let go."""

    def __init__(self, *steps):
        self.steps = steps
        self.let_go = anyio.Event()
        self.points = []

    @asynccontextmanager
    async def open(self, point):
        self.points.append(point)
        try:
            yield Script(*self.steps)
        finally:
            while not self.let_go.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await self.let_go.wait()
                except anyio.get_cancelled_exc_class():
                    pass


def test_a_failure_survives_a_close_that_never_ends(loop):
    """The turn ended as if it were complete, when its attempt had been left behind."""
    lost = ConnectionError("reset")
    upstream = NeverClosed(say("a"), fail(lost))
    told = Events()

    async def main():
        resume = reconnecting_resume()
        async with (
            session(upstream.open, prompt="p") | idle_guard(60, observer=told) | resume as chat
        ):
            try:
                with pytest.raises(ConnectionError) as caught:
                    async for _ in chat:
                        pass
            finally:
                upstream.let_go.set()
        return caught.value

    error = loop.run(main)
    assert error is lost
    assert error.gave_up == "unsafe"
    assert [event.outcome for event in told.of(AttemptEnded)] == ["failed"]
    assert [event.outcome for event in told.of(StreamEnded)] == ["failed"]


@pytest.mark.parametrize("how", ["keep_alive", "scope"])
def test_waiting_for_a_close_that_never_ends_is_not_begun_again_with_each_pull(loop, how):
    upstream = NeverClosed(say("a"), done())

    async def main():
        limits = idle_guard(60, disconnect_timeout=10)
        if how == "keep_alive":
            limits = limits | keep_alive(1, lambda: None)
        async with session(upstream.open, prompt="p") | limits as chat:
            try:
                turn = aiter(chat)
                while await anext(turn) is None:
                    pass
                await turn.aclose()
                begun = anyio.current_time()
                turn = chat.ask("more")
                with pytest.raises(StreamGuardError, match="may still be alive"):
                    while anyio.current_time() < begun + 100:
                        with anyio.move_on_after(1):
                            await anext(turn)
                return anyio.current_time() - begun
            finally:
                upstream.let_go.set()

    assert loop.run(main) <= 10.2


@pytest.mark.parametrize("resumes", [False, True])
async def test_total_strikes_once(loop, resumes):
    """A pull has raised it: who is at work on that error is not cut by another one."""
    handled = []

    @asynccontextmanager
    async def open_(_point):
        yield Script(say("a"), hang())

    operator = idle_guard(None, total=5)
    operator = operator | reconnecting_resume() if resumes else operator
    async with session(open_, prompt="p") | operator as chat:
        try:
            async for _ in chat:
                pass
        except DeadlineExceededError:
            await anyio.sleep(10)
            handled.append(True)
    assert handled == [True]


def test_a_turn_that_was_left_is_not_completed_by_total(loop):
    """Which came while its connection was closing, and surfaces at the block."""
    upstream = Upstream(3)
    told = Events()

    async def main():
        limits = idle_guard(None, total=5, observer=told)
        async with session(upstream.open, prompt="p") | limits as chat:
            turn = aiter(chat)
            await anext(turn)
            await anyio.sleep(4)
            await turn.aclose()
            await anyio.sleep(10)

    with pytest.raises(DeadlineExceededError):
        loop.run(main)
    assert [event.outcome for event in told.of(AttemptEnded)] == ["left"]
    assert [event.outcome for event in told.of(StreamEnded)] == ["left"]


async def test_a_body_that_ends_by_itself_after_total_has_struck_it(loop):
    """T3, T7: and what its stream had raised after the turn's end is none of that body's errors."""
    upstream = Upstream(0, say("a"), done(), fail(ConnectionError("reset")))
    async with session(upstream.open, prompt="go") | idle_guard(None, total=2) as chat:
        assert len([message async for message in chat]) == 2
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)


@pytest.mark.parametrize("disconnects", [True, False])
def test_a_clean_up_that_was_cut_short_is_no_ground_to_resume_on(loop, disconnects):
    """D5, R3: what it had to stop may still be at work; a disconnect that returned says that it is not."""
    points = []

    async def stream(point):
        try:
            yield "token"
            if point.attempt == 1:
                await anyio.sleep_forever()
            yield "done"
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60 if point.attempt == 1 else 0)

    def read(message):
        return SessionOpened("s") if message == "token" else TurnEnded()

    async def disconnect():
        pass

    @asynccontextmanager
    async def open_(point):
        points.append(point)
        yield Connection(stream(point), disconnect=disconnect if disconnects else None)

    async def main():
        operator = idle_guard(1, read=read) | reconnecting_resume()
        got = []
        with nullcontext() if disconnects else pytest.raises(IdleTimeoutError) as caught:
            async with session(open_, prompt="go") | operator as chat:
                got = [message async for message in chat]
        assert (len(points), got[-1:]) == ((2, ["done"]) if disconnects else (1, []))
        assert disconnects or caught.value.gave_up == "unsafe"

    loop.run(main)
