"""T3, T9: the message of the very last moment is delivered, or is still in its source.

Each race sends one message around the deadline of a pull that waits for it: through every kind of
channel, relayed in every way that people write it, in every order that a loop can run it. None of
10,000 races on each loop may lose its message, and what was there in the deadline's own pass must
come out of the stream itself.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest
import trio

from streamguard import IdleTimeoutError, idle_guard
from streamguard._loops import _asyncio
from streamguard.testing import relayed, run_virtual
from streamguard.testing.relays import Relay
from tests.conftest import Loop
from tests.sizes import size

RACES = size(dev=1_000, ci=10_000)
IDLE = 1.0
RELAYS = ("directly", "create_task", "gather", "shield", "wait", "wait_for")
# When the message is sent: in the deadline's pass before or after it, or passes later.
ORDERS = ("before", "after", 1, 2, 3, 4, 5)
BY_THE_DEADLINE = ("before", "after")


def loses_by_itself(relay: str, order: Any) -> bool:
    """3.11's `wait_for` cancels its inner task unseen: what comes after our cancel is lost there.

    That is after the deadline and the verdict (T3); the standard library mended it in 3.12.
    """
    return sys.version_info < (3, 12) and relay == "wait_for" and order not in BY_THE_DEADLINE


class Pulls:
    """A channel, or what relays it, as a source that can only be pulled: nothing closes it."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __aiter__(self) -> Pulls:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._iterator)


class MemoryStream:
    """anyio's: what agent SDKs read."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Any](1)

    def send(self) -> None:
        self._send.send_nowait("the last message")

    async def __anext__(self) -> Any:
        return await self._receive.receive()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class Queue:
    """asyncio's."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def send(self) -> None:
        self._queue.put_nowait("the last message")

    async def __anext__(self) -> Any:
        return await self._queue.get()

    def close(self) -> None:
        pass


class PlainFuture:
    """Messages in a list, and a bare future that says when to look."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._more: asyncio.Future[None] | None = None

    def send(self) -> None:
        self._messages.append("the last message")
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def __anext__(self) -> Any:
        while not self._messages:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return self._messages.popleft()

    def close(self) -> None:
        pass


class Socket:
    """Bytes that the selector has to find first: a pass later than all others."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)

    def send(self) -> None:
        self._far.send(b"the last message")

    async def __anext__(self) -> Any:
        return (await asyncio.get_running_loop().sock_recv(self._near, 100)).decode()

    def close(self) -> None:
        self._near.close()
        self._far.close()


CHANNELS = (MemoryStream, Queue, PlainFuture, Socket)


class Keeps:
    """Pulls in a task that outlives a cancelled pull, and keeps its result until it is taken."""

    def __init__(self, source: Any, through: str) -> None:
        self._source = source
        self._through = through
        self._pull: asyncio.Task[Any] | None = None

    async def __anext__(self) -> Any:
        self._pull = self._pull or asyncio.create_task(anext(self._source))
        if self._through == "shield":
            message = await asyncio.shield(self._pull)
        else:
            await asyncio.wait({self._pull})
            message = self._pull.result()
        self._pull = None
        return message


def relaying(channel: Any, through: str) -> Pulls:
    if through == "directly":
        return Pulls(channel)
    if through in ("shield", "wait"):
        return Pulls(Keeps(Pulls(channel), through))
    return Pulls(aiter(relayed(Pulls(channel), cast("Relay", through))))


def ahead(passes: int, function: Callable[[], None]) -> None:
    """Call `function` so many passes of the loop later."""
    if passes:
        asyncio.get_running_loop().call_soon(ahead, passes - 1, function)
    else:
        function()


def send_around_the_deadline(order: Any, send: Callable[[], None]) -> None:
    """Timers of one instant run in the order in which they were set.

    The guard sets its own for the deadline when half of the window is gone.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + IDLE
    if order == "before":
        loop.call_at(deadline, send)
    elif order == "after":
        loop.call_at(deadline - IDLE / 4, loop.call_at, deadline, send)
    else:
        loop.call_at(deadline - IDLE / 4, loop.call_at, deadline, ahead, order, send)


async def raced(source: Any) -> tuple[str, Any]:
    """What came, and how: from the stream, or after a verdict from the source itself."""
    try:
        return "delivered", await anext(aiter(source | idle_guard(IDLE)))
    except IdleTimeoutError:
        with anyio.fail_after(IDLE):
            return "still in the source", await anext(source)


async def test_thousands_of_races_in_every_order(native: Loop) -> None:
    """T9: in every order, through every channel and relay, none of 10,000 messages is lost."""
    kinds = [
        kind
        for kind in itertools.product(CHANNELS, RELAYS, ORDERS)
        if not loses_by_itself(*kind[1:])
    ]
    outcomes: set[tuple[Any, str]] = set()

    for channel_type, relay, order in itertools.islice(itertools.cycle(kinds), RACES):
        channel: Any = channel_type()
        source = relaying(channel, relay)
        send_around_the_deadline(order, channel.send)
        how, message = await raced(source)
        channel.close()
        assert message == "the last message"
        # A socket's bytes are found a pass later: behind a relay that is one too many (T3).
        if order in BY_THE_DEADLINE and (channel_type is not Socket or relay == "directly"):
            assert how == "delivered", (channel_type, relay, order)
        outcomes.add((order, how))
    # The races are real ones: the deadline wins some, and loses others.
    assert (5, "still in the source") in outcomes
    assert (1, "delivered") in outcomes


async def test_control_a_cut_that_does_not_look_loses_messages(
    native: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: whoever is cancelled with an answer on its way to it never gets that answer."""
    monkeypatch.setattr(_asyncio, "_is_parked", lambda _: True)
    lost = 0
    for relay, order in itertools.product(RELAYS, BY_THE_DEADLINE):
        channel = Queue()
        send_around_the_deadline(order, channel.send)
        try:
            await raced(relaying(channel, relay))
        except TimeoutError:
            lost += 1
    assert lost


class Duck:
    """A future of somebody else's make: asyncio awaits whatever looks like one."""

    _asyncio_future_blocking = False
    _children = "not what a gather means by it"

    def __init__(self) -> None:
        self._inner = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __await__(self) -> Any:
        if not self._inner.done():
            self._asyncio_future_blocking = True
            yield self
        return self._inner.result()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_future_of_another_make(native: Loop, is_answered: bool) -> None:
    """T9: what it shows beyond asyncio's own protocol is not taken for a gather's."""

    class Source:
        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> Any:
            future = Duck()
            if is_answered:
                loop = asyncio.get_running_loop()
                loop.call_at(loop.time() + IDLE, future.set_result, "the last message")
            return await future

    if is_answered:
        assert await anext(aiter(Source() | idle_guard(IDLE))) == "the last message"
    else:
        with anyio.fail_after(IDLE * 2), pytest.raises(IdleTimeoutError):
            await anext(aiter(Source() | idle_guard(IDLE)))


@pytest.mark.parametrize("order", ORDERS)
async def test_nested_gathers(native: Loop, order: Any) -> None:
    """T9: a gather of gathers is parked only if everything in it that is open is."""
    channel = MemoryStream()

    class Source:
        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> Any:
            inner = asyncio.gather(anext(channel), asyncio.sleep(0))  # type: ignore[call-overload]
            return (await asyncio.gather(inner, asyncio.sleep(0, "done")))[0][0]

    source = Source()
    send_around_the_deadline(order, channel.send)
    how, message = await raced(source)
    channel.close()
    assert message == "the last message"
    if order in BY_THE_DEADLINE:
        assert how == "delivered"


class TrioSocket:
    """trio's own stream over a socket pair."""

    def __init__(self) -> None:
        near, self._far = socket.socketpair()
        self._near = trio.socket.from_stdlib_socket(near)

    def send(self) -> None:
        self._far.send(b"the last message")

    async def __anext__(self) -> Any:
        return (await self._near.recv(100)).decode()

    def close(self) -> None:
        self._near.close()
        self._far.close()


class TrioRelay:
    """A child task takes from the channel and hands on to the puller."""

    def __init__(self, channel: Any, nursery: trio.Nursery) -> None:
        self._send, self._receive = trio.open_memory_channel[Any](1)
        nursery.start_soon(self._feed, channel)

    async def _feed(self, channel: Any) -> None:
        await self._send.send(await anext(channel))

    async def __anext__(self) -> Any:
        return await self._receive.receive()


def test_thousands_of_races_on_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """T9: in whatever order trio runs the deadline's pass, none of 10,000 messages is lost."""
    # trio shuffles each pass on purpose; the seed makes the shuffle the same each time.
    monkeypatch.setattr("trio._core._run._r", random.Random(7))
    kinds = [*itertools.product((MemoryStream, TrioSocket), (False, True), (0, 0, 1, 2, 3, 4, 5))]
    outcomes: set[tuple[int, str]] = set()

    async def send_later(passes: int, send: Callable[[], None]) -> None:
        await trio.sleep(IDLE)
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        send()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for channel_type, is_relayed, passes in itertools.islice(
                itertools.cycle(kinds), RACES
            ):
                channel: Any = channel_type()
                source = Pulls(TrioRelay(channel, nursery) if is_relayed else channel)
                nursery.start_soon(send_later, passes, channel.send)
                how, message = await raced(source)
                channel.close()
                assert message == "the last message"
                if passes == 0:
                    assert how == "delivered", (channel_type, is_relayed)
                outcomes.add((passes, how))

    run_virtual(main, backend="trio")
    assert (5, "still in the source") in outcomes
    assert (1, "delivered") in outcomes


def test_thousands_of_races_in_real_time() -> None:
    """T9: in real time, where a loop decides the order itself, no message is lost either."""
    at_once = 250
    relays = [relay for relay in RELAYS if not loses_by_itself(relay, "at any time")]
    kinds = [*itertools.product((MemoryStream, Queue, PlainFuture), relays)]
    window = 0.004

    async def race(number: int) -> None:
        channel_type, relay = kinds[number % len(kinds)]
        channel: Any = channel_type()
        source = relaying(channel, relay)
        # uvloop counts milliseconds: some are sent before the deadline, some with and after it.
        asyncio.get_running_loop().call_later(window + (number % 4 - 1) / 1000, channel.send)
        try:
            message = await anext(aiter(source | idle_guard(window)))
        except IdleTimeoutError:
            message = await anext(source)
        channel.close()
        assert message == "the last message"

    async def main() -> None:
        for start in range(0, RACES, at_once):
            with anyio.fail_after(250):
                await asyncio.gather(*(race(start + i) for i in range(at_once)))

    anyio.run(main, backend="asyncio", backend_options={"use_uvloop": True})
