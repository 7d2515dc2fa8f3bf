"""A source that lets other tasks do its pulling, in each way that people write it.

Imports anyio, and asyncio for what only asyncio has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from streamguard.testing.iterating import close, iterating
from streamguard.testing.misbehaving import MisbehavingSource

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

Relay: TypeAlias = Literal["create_task", "gather", "shield", "wait", "wait_for", "task_group"]
_END = object()
_ENOUGH = 1e6  # seconds for wait_for: a limit that is there and never fires


def relayed(
    source: AsyncIterable[Any], through: Relay = "create_task"
) -> RelayedSource | MisbehavingSource:
    """Pulls `source` in inner tasks; after a cancelled pull the next one can go on or is over.

    `through` says how: `create_task`, `gather` and `wait_for` pass a cancellation on,
    and with it the inner source ends. `shield` and `wait` keep the inner pull, and the next one takes
    its result. All these are asyncio's own. `task_group` (a child that feeds a memory channel, held
    open while it yields) runs on trio too, and raises what fails in an ExceptionGroup.
    """
    if through == "task_group":
        return MisbehavingSource(f"relayed({source!r}, {through!r})", lambda: _task_group(source))
    return RelayedSource(source, through)


@dataclass(frozen=True)
class RelayedSource:
    """What `relayed` gives for asyncio's own ways."""

    source: AsyncIterable[Any]
    through: Relay

    def __aiter__(self) -> _Relayed:
        return _Relayed(aiter(self.source), self.through)


class _Relayed:
    def __init__(self, inner: AsyncIterator[Any], through: Relay) -> None:
        self._inner = inner
        self._through = through
        self._kept: asyncio.Task[Any] | None = None

    def __aiter__(self) -> _Relayed:
        return self

    async def __anext__(self) -> Any:
        match self._through:
            case "create_task":
                message = await asyncio.create_task(self._next())
            case "gather":
                (message,) = await asyncio.gather(self._next())
            case "wait_for":
                message = await asyncio.wait_for(self._next(), _ENOUGH)
            case _:
                message = await self._pull_and_keep()
        if message is _END:
            raise StopAsyncIteration
        return message

    async def _pull_and_keep(self) -> Any:
        task = self._kept = self._kept or asyncio.create_task(self._next())
        # Kept until its result is taken: it may be done before a cancelled pull has unwound.
        if self._through == "shield":
            with suppress(Exception):  # it is raised below
                await asyncio.shield(task)
        else:
            await asyncio.wait({task})
        self._kept = None
        return task.result()

    async def _next(self) -> Any:
        return await anext(self._inner, _END)  # a task cannot raise StopAsyncIteration

    async def aclose(self) -> None:
        if self._kept is not None:
            self._kept.cancel()
            await asyncio.wait({self._kept})
        await close(self._inner)


async def _task_group(source: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    send, receive = anyio.create_memory_object_stream[Any](0)

    async def feed() -> None:
        async with send, iterating(source) as messages:
            async for message in messages:
                await send.send(message)

    async with anyio.create_task_group() as tg, receive:
        tg.start_soon(feed)
        async for message in receive:
            yield message
        tg.cancel_scope.cancel()
