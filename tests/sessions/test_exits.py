"""R2, O6, O7: whatever comes out of a stream, its connection or an observer, nobody hangs.

The consumer gets it, and what was open is closed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from streamguard import events, idle_guard, reconnecting_resume, session
from streamguard.testing import Script, done, fail, hang, say, swallows_cancel
from tests.support import Events, Leftovers


class OddError(BaseException):
    """Neither an Exception nor one of Python's own."""


EXITS = [GeneratorExit, KeyboardInterrupt, SystemExit, OddError]
WHERE = ["opening", "first", "later", "sending", "closing the stream", "closing the connection"]


class Upstream:
    """Raises `error` at one place."""

    def __init__(self, where, error):
        self.where, self.error = where, error
        self.opened = self.closed = 0

    def at(self, where):
        if self.where == where:
            raise self.error

    def __aiter__(self):
        return self._messages()

    async def _messages(self):
        await anyio.sleep(1)
        self.at("first")
        yield "a"
        await anyio.sleep(1)
        self.at("later")
        yield "b"

    def stream(self):
        return _Closing(self._messages(), self) if "stream" in self.where else self

    @asynccontextmanager
    async def open(self, _point):
        self.at("opening")
        self.opened += 1
        try:
            if self.where == "sending":

                async def send(_prompt):
                    self.at("sending")

                from streamguard import Connection

                yield Connection(send)
            else:
                yield self.stream()
        finally:
            self.closed += 1
            self.at("closing the connection")


class _Closing:
    """A stream whose close raises."""

    def __init__(self, inner, upstream):
        self._inner, self._upstream = inner, upstream

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await anext(self._inner)

    async def aclose(self):
        await self._inner.aclose()
        self._upstream.at("closing the stream")


@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("where", WHERE)
async def test_what_comes_out_of_a_stream_reaches_its_consumer(loop, where, error):
    """R2: and what was open is closed. A bare GeneratorExit would end the consumer's own generator."""
    left = Leftovers()
    upstream = Upstream(where, error("odd"))
    value = session(upstream.open, prompt="go") | idle_guard(60, total=600)
    expected = RuntimeError if error is GeneratorExit else error
    with anyio.fail_after(30), pytest.raises(expected) as caught:
        async with value | reconnecting_resume() as chat:
            async for _ in chat:
                pass
    if error is GeneratorExit:
        assert caught.value.__cause__ is upstream.error
        assert "raised GeneratorExit" in str(caught.value)
    else:
        assert caught.value is upstream.error
    assert upstream.opened == upstream.closed
    left.check()


@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("where", ["closing the stream", "closing the connection"])
async def test_what_comes_out_of_a_close_after_the_consumer_has_left(loop, where, error):
    """R2, O7: it comes out of the block."""
    left = Leftovers()
    upstream = Upstream(where, error("odd"))
    expected = RuntimeError if error is GeneratorExit else error
    with anyio.fail_after(30), pytest.raises(expected):
        async with session(upstream.open, prompt="go") | idle_guard(60) as chat:
            await anext(aiter(chat))
    assert upstream.opened == upstream.closed == 1
    left.check()


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("error", [*EXITS, ValueError])
async def test_what_came_out_of_a_stream_whose_connection_never_closes(loop, error, resumes):
    """O6, T7: its owner is left behind, and its consumer gets what ended the stream."""
    over = anyio.Event()
    seen = Events()

    @asynccontextmanager
    async def open_(_point):
        try:
            yield Script(say("a"), fail(error("odd")))
        finally:
            with anyio.CancelScope(shield=True):
                while not over.is_set():
                    with suppress(anyio.get_cancelled_exc_class()):
                        await over.wait()

    guard = idle_guard(60, disconnect_timeout=2, observer=seen)
    operator = guard | reconnecting_resume() if resumes else guard
    try:
        with pytest.raises(RuntimeError if error is GeneratorExit else error):
            async with session(open_, prompt="go") | operator as chat:
                async for _ in chat:
                    pass
    finally:
        over.set()
    assert seen.of(events.OwnerAbandoned)
    assert [ended.outcome for ended in seen.of(events.AttemptEnded)] == ["failed"]
    assert [ended.outcome for ended in seen.of(events.StreamEnded)] == ["failed"]
    await anyio.sleep(10)


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("kind", [events.AttemptEnded, events.StreamEnded, events.CloseFailed])
async def test_an_observer_that_ends_the_program(loop, kind, leaves):
    """O6, E6: by a session's consumer, and not in a task that nobody waits for."""
    left = Leftovers()

    def observer(event):
        if isinstance(event, kind):
            raise SystemExit(3)

    @asynccontextmanager
    async def open_(_point):
        try:
            yield Script(say("a"), done() if kind is not events.CloseFailed else fail(OSError()))
        finally:
            if kind is events.CloseFailed:
                raise ValueError

    value = session(open_, prompt="go") | idle_guard(60, observer=observer)
    if kind is events.CloseFailed and leaves:
        return  # there is no failure before it
    with anyio.fail_after(30), pytest.raises(SystemExit):
        async with value as chat:
            async for _ in chat:
                if leaves:
                    break
    left.check()


async def test_an_observer_that_ends_the_program_when_an_owner_is_left_behind(loop):
    """O6: the consumer is free all the same."""
    deaf = swallows_cancel(Script(say("a"), hang()))

    def observer(event):
        if isinstance(event, events.OwnerAbandoned):
            raise SystemExit(3)

    @asynccontextmanager
    async def open_(_point):
        yield deaf

    with anyio.fail_after(60), pytest.raises(SystemExit):
        async with session(open_) | idle_guard(600, observer=observer) as chat:
            with anyio.move_on_after(5):
                async for _ in chat:
                    pass
    deaf.release()
    await anyio.sleep(1)
