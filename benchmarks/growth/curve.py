"""A curve: what one unit costs at ever larger sizes of something, and the law that it must keep.

A unit is a stream that is started, a message, a hold: never all of them. So where a whole is linear in what there is of it, its
cost for each is the same at each size; and a message that looks at all that is in flight costs more, the more there is.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from benchmarks.figures import Figure
from benchmarks.race import run

# Linear: what all of it costs, to a power of its size. Of a square, caches and noise are far.
STEEPEST: Final = 1.1
# Constant: what one costs at the largest size, in that at the smallest.
MOST: Final = 2.0

# Of a lap that is longer, one is enough: what disturbs it is shorter (seconds).
LONG: Final = 2.0

Law: TypeAlias = Literal["linear", "constant"]
# Seconds for one unit, by what was done, where there are so many.
Lap: TypeAlias = Callable[[int], Awaitable[Mapping[str, float]]]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Something of which there may be much, and a lap that times what is done with it."""

    grows: str
    sizes: tuple[int, ...]
    lap: Lap
    law: Law
    loops: tuple[str, ...] = ("asyncio",)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of the plot."""

    grows: str
    what: str
    loop: str
    law: Law
    points: tuple[tuple[int, float], ...]  # size, seconds for one unit

    @property
    def slope(self) -> float:
        """The power of the size with which the whole grows, over the last two decades."""
        last = self.points[-1][0]
        logs = [(math.log(n), math.log(n * cost)) for n, cost in self.points if n * 100 >= last]
        middle = sum(x for x, _ in logs) / len(logs)
        return sum((x - middle) * y for x, y in logs) / sum((x - middle) ** 2 for x, _ in logs)

    @property
    def ratio(self) -> float:
        """How much more one costs at the largest size than at the smallest."""
        return self.points[-1][1] / self.points[0][1]

    def law_kept(self) -> Figure:
        """What must hold, with all points."""
        is_linear = self.law == "linear"
        return Figure(
            group="growth",
            loop=self.loop,
            what=f"{self.grows}, {self.points[0][0]:,} to {self.points[-1][0]:,}: {self.what}",
            value=self.slope if is_linear else self.ratio,
            unit="power" if is_linear else "x",
            hold=STEEPEST if is_linear else MOST,
            curve=tuple((n, cost * 1e6) for n, cost in self.points),
        )

    def at_most(self) -> Figure:
        """What one costs where there is most of it."""
        size, cost = self.points[-1]
        return Figure(
            group="at the largest size",
            loop=self.loop,
            what=f"{self.grows}, {size:,}: {self.what}",
            value=cost * 1e6,
            unit="us",
        )


def measured(row: Growth, loop: str, rounds: int, left_out: int) -> list[Curve]:
    """The best of `rounds` laps at each size, the sizes taking turns."""
    sizes = row.sizes[: len(row.sizes) - left_out]
    best: dict[str, dict[int, float]] = {}
    took = dict.fromkeys(sizes, 0.0)
    run(loop, row.lap, sizes[0])  # warm up: imports, caches, specialised bytecode
    for size in [*sizes] * rounds:
        if took[size] > LONG:
            continue
        began = time.process_time()
        for what, cost in run(loop, row.lap, size).items():
            costs = best.setdefault(what, {})
            costs[size] = min(cost, costs.get(size, math.inf))
        took[size] += time.process_time() - began
    return [
        Curve(grows=row.grows, what=what, loop=loop, law=row.law, points=tuple(costs.items()))
        for what, costs in best.items()
    ]


class Watch:
    """How long a block took, for each of so many."""

    seconds: float = math.nan


@contextmanager
def timed(units: int) -> Generator[Watch]:
    """CPU time of the block, for each of `units`; the collector waits until it is over."""
    watch = Watch()
    gc.collect(0)
    gc.disable()
    began = time.process_time()
    try:
        yield watch
    finally:
        watch.seconds = (time.process_time() - began) / units
        gc.enable()
