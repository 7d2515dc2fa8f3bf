"""Streams to be guarded: ready messages, messages that must be waited for, and silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio


class Message:
    """A message of no known backend: plain progress."""


MESSAGE = Message()


def lines() -> tuple[Any, Any]:
    """A message of `claude ... --output-format stream-json`, parsed, and the last one."""
    text = {"type": "text", "text": "And so it goes on."}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    said = {"type": "assistant", "message": message, "session_id": "s", "uuid": "u"}
    last = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}
    return said, last


async def buffered(n: int) -> AsyncIterator[Any]:
    """`n` messages that are ready when they are asked for."""
    for _ in range(n):
        yield MESSAGE


async def turn(n: int, said: Any, last: Any) -> AsyncIterator[Any]:
    """A turn of `n` messages, ready when asked for, with its end."""
    for _ in range(n - 1):
        yield said
    yield last


async def waited_asyncio(n: int) -> AsyncIterator[Any]:
    """`n` messages, each brought by a future: one pass of the loop per message."""
    loop = asyncio.get_running_loop()
    for _ in range(n):
        future = loop.create_future()
        loop.call_soon(future.set_result, MESSAGE)
        yield await future


async def waited_trio(n: int) -> AsyncIterator[Any]:
    """`n` messages, each after one pass of the loop."""
    for _ in range(n):
        await trio.lowlevel.checkpoint()
        yield MESSAGE


def waited(loop: str) -> Callable[[int], AsyncIterator[Any]]:
    return waited_trio if loop == "trio" else waited_asyncio


async def _never_asyncio() -> AsyncIterator[Any]:
    yield await asyncio.get_running_loop().create_future()


async def _never_trio() -> AsyncIterator[Any]:
    await trio.sleep_forever()
    yield MESSAGE  # type: ignore[unreachable]  # what makes it a generator


def silent(loop: str) -> AsyncIterator[Any]:
    """A stream that hangs: parked on a future (asyncio) or asleep for ever (trio)."""
    return _never_trio() if loop == "trio" else _never_asyncio()


class Hop:
    """One bare pass-through coroutine around a stream: the least that any wrapper costs."""

    def __init__(self, source: AsyncIterator[Any]) -> None:
        self._ask: Callable[[], Awaitable[Any]] = source.__anext__

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return await self._ask()


async def exhaust(stream: AsyncIterator[Any]) -> None:
    """Consume `stream` with nothing else to do."""
    async for _ in stream:
        pass
