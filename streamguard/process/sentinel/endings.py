"""Ends of trees that go on side by side, in a poll loop that listens to somebody meanwhile.

Each is the one algorithm of `ending`, suspended where that waits: a tree that is slow to die keeps nobody
from hearing, and no other tree from its own end. Knows trees, polls and how long to wait; nothing of who
is ended, or why.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streamguard.process.polled import Polled, PolledEnding
from streamguard.process.table import Table, read_table

if TYPE_CHECKING:
    from streamguard.process.sentinel.forest import Forest
    from streamguard.process.termination import Termination


class Patient(Polled):
    """A table that cannot be read just now is waited for: there is nothing else to do."""

    async def table(self) -> Table:
        """The processes now; OSError if they cannot be read."""
        return read_table()


class Endings:
    """Those that are under way."""

    def __init__(self) -> None:
        self._under_way: Final[list[tuple[PolledEnding, Callable[[Termination], object]]]] = []

    def begin(self, forest: Forest, grace: float, over: Callable[[Termination], object]) -> None:
        """One more. Its first signals go out with the next `step`; `over` is told what it came to."""
        self._under_way.append((PolledEnding(forest, grace, ground=Patient()), over))

    def watch(self, poll: select.poll) -> float:
        """Have `poll` tell when it is worth a `step`; the seconds until it is in any case."""
        now = time.monotonic()
        left = float("inf")
        for ending, _ in self._under_way:
            if (awaited := ending.awaited) is not None:
                poll.register(awaited, select.POLLIN)
            left = min(left, 0.0 if ending.is_ready(now) else ending.due - now)
        return max(left, 0.0)

    def step(self) -> None:
        """Go on with each as far as it goes."""
        for under_way in tuple(self._under_way):
            ending, over = under_way
            if ending.is_ready(time.monotonic()):
                ending.step()
            if ending.termination is not None:
                self._under_way.remove(under_way)
                over(ending.termination)
