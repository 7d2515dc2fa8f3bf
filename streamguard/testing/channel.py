"""A source that can be pulled again: a detached task plays into a buffer.

Real clients read their backend this way: the backend goes on while the consumer works, and a
cancelled pull loses nothing. Imports anyio; trio only while it runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from streamguard.testing.clocks import running_trio
from streamguard.testing.iterating import iterating

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    _Stream = MemoryObjectSendStream[Any] | MemoryObjectReceiveStream[Any]

BUFFER = 100
_detached: set[asyncio.Task[None]] = set()


class Channel:
    """An async iterator over `source` whose cancelled pull loses nothing.

    It starts with its first pull (or `start()`), and runs ahead of its consumer by up to `buffer`
    messages. `end()` ends it as a vanished backend would: what has arrived is still
    delivered, then the stream ends normally.
    """

    def __init__(self, source: AsyncIterable[Any], *, buffer: int = BUFFER) -> None:
        self._source = source
        self._send, self._receive = anyio.create_memory_object_stream[Any](buffer)
        # Whoever just drops a channel gets no warning about the streams inside. Not by `__del__`: where
        # a channel is in a cycle, with an error's traceback say, theirs may be called before ours.
        self._streams: list[_Stream] = [self._send, self._receive]
        weakref.finalize(self, _close_all, self._streams).atexit = False
        self._player: anyio.CancelScope | None = None  # None until there is one to cancel
        self._ended = False
        self._errors: list[Exception] = []

    def start(self) -> None:
        """Let the source begin to play, in a task of its own."""
        if self._player is None and not self._ended:
            self._spawn_player()

    def play_instead(self, source: AsyncIterable[Any]) -> None:
        """Let `source` take over from now on; without effect once the stream has ended."""
        if self._ended or not self._send.statistics().open_send_streams:
            return
        self._source = source
        if interrupted := self._player:
            self._send = self._send.clone()  # the player closes its own
            self._streams.append(self._send)
            interrupted.cancel()
        self._spawn_player()

    def end(self) -> None:
        """End the stream normally, from any task of the loop."""
        self._ended = True
        if self._player is not None:
            self._player.cancel()
        self._send.close()

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> Any:
        self.start()
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            if self._errors:
                raise self._errors.pop() from None
            raise StopAsyncIteration from None
        except anyio.ClosedResourceError:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Stop the source and forget what has not been taken."""
        self.end()
        self._receive.close()

    def _spawn_player(self) -> None:
        self._player = anyio.CancelScope()
        # A partial of a function, not a method: a player must not keep its channel alive.
        play = partial(_play, self._source, self._send, self._player, self._errors)
        if trio := running_trio():
            context = contextvars.copy_context()
            trio.lowlevel.spawn_system_task(play, name="testing.Channel", context=context)
            return
        task = asyncio.create_task(play(), name="testing.Channel")
        _detached.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(_detached.discard)


def _close_all(streams: list[_Stream]) -> None:
    for stream in streams:
        stream.close()


async def _play(
    source: AsyncIterable[Any],
    send: MemoryObjectSendStream[Any],
    scope: anyio.CancelScope,
    errors: list[Exception],
) -> None:
    with send, scope:
        try:
            async with iterating(source) as messages:
                async for message in messages:
                    await send.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody listens any more
        except Exception as error:  # noqa: BLE001 - it is the consumer's: raised at its pull
            errors.append(error)
