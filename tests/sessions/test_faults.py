"""R2, D5, D6, O6, O7: bad upstreams under reconnect, left at every point in every way.

After each: no task, timer or descriptor is left, every connection was closed in the task that had
opened it, and there was never a second owner of a session.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from streamguard import IdleTimeoutError, idle_guard, reconnecting_resume, session
from streamguard.events import OwnerAbandoned
from streamguard.testing import (
    Script,
    done,
    fail,
    hang,
    opened,
    say,
    slow_cleanup,
    swallows_cancel,
)
from tests.sessions.backend import Backend
from tests.support import Events, Leftovers

IDLE = 60.0


class Upstream:
    """One way to misbehave: what is played, and what the client's disconnect does about it."""

    def __init__(self, kind: str, *steps: Any) -> None:
        script = Script(*steps)
        self.deaf = swallows_cancel(script)
        self.played = {
            "plain": script,
            "deaf": self.deaf,
            "slow": slow_cleanup(script, 3),
            "slow and shielded": slow_cleanup(script, 3, shielded=True),
            "exploding": Exploding(script),
        }[kind]


class ExplodedError(Exception):
    pass


class Exploding:
    """Raises when it is closed, or cancelled."""

    def __init__(self, source: Any) -> None:
        self._source = source

    async def __aiter__(self):
        async with aclosing(aiter(self._source)) as inner:
            try:
                async for message in inner:
                    yield message
            finally:
                raise ExplodedError


class DirectBackend(Backend):
    """Plays in the owner's own task, so that its pull is what the upstream makes of it."""

    upstream: Upstream

    def _connection(self, client, point):
        from streamguard import Connection

        number = len(self.points) - 1
        stream = self.scripts[min(number, len(self.scripts) - 1)]

        async def disconnect():
            await client.disconnect()
            self.upstream.deaf.release()

        return Connection(aiter(stream), disconnect=disconnect)


UPSTREAMS = ["plain", "deaf", "slow", "slow and shielded", "exploding"]
POINTS = ["opening", "streaming", "backoff", "teardown", "working"]
LEAVES = ["breaking", "failing", "cancelled", "cancelled twice"]


def the_backend(kind: str, point: str) -> tuple[DirectBackend, float]:
    """A backend that stays at `point` for long, and a time at which it is there."""
    if point == "opening":
        backend, at = _backend(kind, Script(hang())), 10.0

        async def opening(_point):
            await anyio.sleep(1000)

        backend.opening = opening
        return backend, at
    if point in {"streaming", "working"}:
        return _backend(kind, opened("s-1"), say("a"), hang()), 10.0
    if point == "backoff":
        lost = (opened("s-1"), say("a"), fail(ConnectionError("reset")))
        return _backend(kind, *lost), 0.5
    backend = _backend(kind, opened("s-1"), say("a"), hang())
    backend.client_options["disconnect_delay"] = 20
    return backend, IDLE + 15


def _backend(kind: str, *steps: Any) -> DirectBackend:
    upstream = Upstream(kind, *steps)
    backend = DirectBackend([upstream.played])
    backend.upstream = upstream
    return backend


@dataclass
class Ended:
    """How the consumer ended, and when."""

    error: BaseException | None = None
    at: float = -1.0


class LeftError(Exception):
    """What a failing consumer raises."""


async def consume(backend: Backend, leave: str, at: float, *, works: bool, ended: Ended) -> None:
    guard = idle_guard(IDLE, disconnect_timeout=30)
    start = anyio.current_time()
    try:
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            stays = leave in {"breaking", "failing"}
            with anyio.move_on_after(at if stays else None):
                async for _ in chat:
                    if works:
                        await anyio.sleep(1000)
            if leave == "failing":
                raise LeftError
    except BaseException as error:
        ended.error = error
        raise
    finally:
        ended.at = anyio.current_time() - start


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("leave", ["breaking", "failing"])
@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_a_consumer_that_leaves(loop, kind, point, leave):
    """O7, R2: by `break` or by an error of its own, which is what comes out."""
    backend, at = the_backend(kind, point)
    left, ended = Leftovers(), Ended()
    # What a close raises is told, where nothing goes before it.
    with suppress(LeftError, ExplodedError):
        await consume(backend, leave, at, works=point == "working", ended=ended)
    assert isinstance(ended.error, LeftError) == (leave == "failing")
    assert ended.at <= at + 60
    backend.check()
    left.check()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("leave", ["cancelled", "cancelled twice"])
@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_a_consumer_whose_scope_is_cancelled(loop, kind, point, leave):
    """D6, O7: by a scope, and by one around that; the teardown is waited for."""
    backend, at = the_backend(kind, point)
    left, ended = Leftovers(), Ended()
    with anyio.CancelScope() as outer, anyio.CancelScope() as inner:

        async def cancel():
            await anyio.sleep(at)
            inner.cancel()
            if leave == "cancelled twice":
                await anyio.sleep(0.5)
                outer.cancel()

        async with anyio.create_task_group() as tg:
            tg.start_soon(cancel)
            await consume(backend, leave, at, works=point == "working", ended=ended)
    assert inner.cancel_called
    assert ended.at <= at + 60
    backend.check()
    left.check()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("leave", ["cancelled", "cancelled twice"])
@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_a_consumer_whose_task_is_cancelled(native, kind, point, leave):
    """D6: natively. The second time it goes at once, and the teardown is seen through without it."""
    backend, at = the_backend(kind, point)
    left, ended = Leftovers(), Ended()
    task = asyncio.create_task(consume(backend, leave, at, works=point == "working", ended=ended))
    await asyncio.sleep(at)
    task.cancel()
    if leave == "cancelled twice":
        await asyncio.sleep(0.5)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended.at <= at + (0.6 if leave == "cancelled twice" else 60)
    await asyncio.sleep(120)  # what was left running detached
    backend.check()
    left.check()


@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_a_hang_is_resumed_whatever_the_upstream_does(loop, kind):
    """R2, R3, D5: once the old owner has ended, and not before."""
    upstream = Upstream(kind, opened("s-1"), say("a"), hang())
    backend = DirectBackend([upstream.played, Script(say("b"), done())])
    backend.upstream = upstream
    left = Leftovers()
    texts = []
    async with (
        session(backend.open, prompt="go") | idle_guard(IDLE) | reconnecting_resume() as chat
    ):
        async for message in chat:
            texts.append(getattr(message, "text", ""))
    assert texts == ["", "a", "b", ""]
    assert backend.tokens == [None, "s-1"]
    backend.check()
    left.check()


async def test_a_deaf_upstream_that_nothing_ends_lets_the_consumer_go(loop):
    """O6, D5: the owner is left behind and reported; the session is not resumed."""
    events = Events()
    deaf = swallows_cancel(Script(opened("s-1"), say("a"), hang()))
    backend = Backend([])
    opens = []

    class Held:
        async def __aenter__(self):
            opens.append(anyio.current_time())
            return deaf

        async def __aexit__(self, *_):
            opens.append("closed")

    start = anyio.current_time()
    guard = idle_guard(IDLE, observer=events, disconnect=lambda: None)
    async with session(lambda _point: Held()) | guard | reconnecting_resume() as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            async for _ in chat:
                pass
    assert anyio.current_time() - start <= IDLE + 11
    assert caught.value.gave_up == "unsafe"
    assert not caught.value.teardown.confirmed
    assert len(events.of(OwnerAbandoned)) == 1
    assert len(opens) == 1
    assert backend.owners == 0
    deaf.release()
    await anyio.sleep(1)
    assert opens[1:] == ["closed"]  # the owner closes, when it is let go at last


async def test_a_deaf_upstream_that_nothing_ends_lets_a_leaving_consumer_go(loop):
    """O6, O7: disconnect is tried, although there was no verdict: it is what ends a deaf stream."""
    events = Events()
    disconnects = []
    deaf = swallows_cancel(Script(say("a"), hang()))
    guard = idle_guard(
        IDLE, observer=events, disconnect=lambda: disconnects.append(anyio.current_time())
    )
    start = anyio.current_time()
    async with deaf | guard | reconnecting_resume(lambda _point: None) as chat:
        with anyio.move_on_after(10):
            async for _ in chat:
                pass
    assert [at - start for at in disconnects] == [pytest.approx(12.5, abs=0.2)]
    assert anyio.current_time() - start <= 15.2
    assert len(events.of(OwnerAbandoned)) == 1
    deaf.release()
    await anyio.sleep(1)
