"""What people write today: a timeout around each step, the way its documentation shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import trio
from aiostream import pipe
from aiostream import stream as streams

IDLE = 180.0


async def with_wait_for(source: AsyncIterator[Any]) -> None:
    while True:
        try:
            await asyncio.wait_for(anext(source), IDLE)
        except StopAsyncIteration:
            return


async def with_asyncio_timeout(source: AsyncIterator[Any]) -> None:
    while True:
        try:
            async with asyncio.timeout(IDLE):
                await anext(source)
        except StopAsyncIteration:
            return


async def with_anyio_fail_after(source: AsyncIterator[Any]) -> None:
    while True:
        try:
            with anyio.fail_after(IDLE):
                await anext(source)
        except StopAsyncIteration:
            return


async def with_trio_fail_after(source: AsyncIterator[Any]) -> None:
    while True:
        try:
            with trio.fail_after(IDLE):
                await anext(source)
        except StopAsyncIteration:
            return


async def with_aiostream(source: AsyncIterator[Any]) -> None:
    async with (streams.iterate(source) | pipe.timeout(IDLE)).stream() as messages:
        async for _ in messages:
            pass


PEERS = {
    "asyncio": {
        "asyncio.wait_for": with_wait_for,
        "asyncio.timeout": with_asyncio_timeout,
        "anyio.fail_after": with_anyio_fail_after,
        "aiostream pipe.timeout": with_aiostream,
    },
    "trio": {
        "trio.fail_after": with_trio_fail_after,
        "anyio.fail_after": with_anyio_fail_after,
    },
}
PEERS["uvloop"] = PEERS["asyncio"]
