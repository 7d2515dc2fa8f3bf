"""Waiting for a thread from an event loop, also in a test's virtual time."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

# Clocks that are being held: by how many, and what they were set to.
_held: Final[WeakKeyDictionary[Any, tuple[int, float]]] = WeakKeyDictionary()


async def in_thread(function: Callable[[], object]) -> None:
    """Call `function` in a thread, and wait for that."""
    clock = _jumping_clock()
    if clock is None:
        # Of a limiter of its own: the program's threads may all be stuck.
        await anyio.to_thread.run_sync(function, limiter=anyio.CapacityLimiter(1))
        return
    with _held_back(clock):
        await anyio.to_thread.run_sync(function)


def _jumping_clock() -> Any:
    """Trio's clock for tests, which jumps on when every task waits, be it for a thread; or None.

    asyncio's and uvloop's clocks in `streamguard.testing` know of threads by themselves.
    """
    trio: Any = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_task():
        return None
    clock = trio.lowlevel.current_clock()
    return clock if hasattr(clock, "autojump_threshold") else None


@contextmanager
def _held_back(clock: Any) -> Generator[None, None, None]:
    holders, threshold = _held.get(clock, (0, clock.autojump_threshold))
    _held[clock] = (holders + 1, threshold)
    clock.autojump_threshold = math.inf
    try:
        yield
    finally:
        holders, threshold = _held.pop(clock)
        if holders > 1:
            _held[clock] = (holders - 1, threshold)
        else:
            clock.autojump_threshold = threshold
