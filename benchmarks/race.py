"""Races: contestants take turns, round by round, so that a busy moment hits them all.

Knows nothing of what it times. Times are CPU time of this process, because what is compared is work,
and other processes on the machine must not count. The collector waits until a lap is over.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

LOOPS = ("asyncio", "uvloop", "trio")

# Runs once through its course; the argument is how many messages.
Contestant: TypeAlias = Callable[[int], Awaitable[object]]


@dataclass(frozen=True)
class Laps:
    """What one contestant took, in seconds per message, one value for each round."""

    values: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def noise(self) -> float:
        """How far the median lies above the minimum: 0.05 is 5 %."""
        return self.median / self.best - 1


def run(loop: str, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run `main` on the loop of that name, in real time."""
    if loop == "uvloop":
        options = {"use_uvloop": True}
        return anyio.run(main, *args, backend="asyncio", backend_options=options)
    return anyio.run(main, *args, backend=loop)


async def race(contestants: Mapping[str, Contestant], rounds: int, n: int) -> dict[str, Laps]:
    """Let every contestant run `rounds` laps of `n` messages, interleaved."""
    laps: dict[str, list[float]] = {name: [] for name in contestants}
    for contestant in contestants.values():
        await contestant(n)  # warm up: imports, caches, specialised bytecode
    for number in range(rounds):
        for name in _rotated(contestants, number):
            laps[name].append(await _lap(contestants[name], n))
    return {name: Laps(tuple(values)) for name, values in laps.items()}


async def _lap(contestant: Contestant, n: int) -> float:
    gc.collect(0)
    gc.disable()
    try:
        started = time.process_time()
        await contestant(n)
        # Timers that were cancelled without a pass of the loop are swept up in the next one: it
        # belongs to who left them, not to the first neighbour that waits.
        await anyio.sleep(0)
        return (time.process_time() - started) / n
    finally:
        gc.enable()


def _rotated(names: Iterable[str], by: int) -> list[str]:
    """Nobody always runs after the same neighbour."""
    line = list(names)
    by %= len(line)
    return line[by:] + line[:by]


def percentile(values: Iterable[float], p: float) -> float:
    """The smallest value that at least `p` percent do not exceed."""
    line = sorted(values)
    return line[max(0, -(-len(line) * p // 100).__int__() - 1)]
