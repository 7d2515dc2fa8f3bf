"""What the tests of real SDKs share: the SDK or a skip, a loop in real time, and what came.

Windows are real seconds, and only their lower bound is asserted to the point: a busy machine may
be late. What a test waits for is an event: the server says that a client has left.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest

WINDOW = 2.0
"""Of `idle`, where a hang is to be noticed; the model server answers within milliseconds."""
PATIENT = 60.0
"""Of `idle`, where nothing is to be noticed."""


def sdk(name: str) -> Any:
    """The package, or a skip; under STREAMGUARD_REAL=1 one that is missing is a failure."""
    real = os.environ.get("STREAMGUARD_REAL", "")
    if real == "0":
        pytest.skip("STREAMGUARD_REAL=0", allow_module_level=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some warn when they are imported: not our business
        if real == "1":
            return importlib.import_module(name)
        return pytest.importorskip(name, exc_type=ImportError)


def run(main: Any, *args: Any, loop: str = "asyncio", **more: Any) -> Any:
    """Run `main` in real time."""
    return anyio.run(partial(main, **more), *args, backend=loop)


@dataclass
class Got:
    """What a consumer got of a stream."""

    messages: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0

    @property
    def types(self) -> list[str]:
        return [message.type for message in self.messages]


async def take(stream: Any) -> Got:
    """All that comes of `stream`, and how it ended."""
    got, started = Got(), time.monotonic()
    try:
        async for message in stream:
            got.messages.append(message)
    except Exception as error:
        got.error = error
    got.seconds = time.monotonic() - started
    return got


async def together(*streams: Any) -> list[Got]:
    """What comes of each of several streams at once."""
    all_ = [Got() for _ in streams]

    async def fill(number: int) -> None:
        all_[number] = await take(streams[number])

    async with anyio.create_task_group() as tasks:
        for number in range(len(streams)):
            tasks.start_soon(fill, number)
    return all_


def left(server: Any, number: int = 0) -> bool:
    """Whether the client has hung up on a request; waits for it."""
    server.until(lambda: server.requests[number].ended == "left")
    return True
