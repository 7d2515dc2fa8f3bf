"""Ending a tree from a poll loop that has other things to do meanwhile.

The same algorithm as on an event loop, on a ground that suspends to whoever drives it: `step` goes
on as far as there is no need to wait; `due` and `awaited` say what is waited for then. To step too
early does no harm. Imports the standard library and the parts that need no loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from signal import SIGTERM
from typing import TYPE_CHECKING, Final

from streamguard.process.ending import Ending, unknown
from streamguard.process.table import Table, read_table

if TYPE_CHECKING:
    from streamguard.process.ending import Tree
    from streamguard.process.identity import Handle

# How often a process is looked at that has no descriptor to tell of its end, in seconds.
_LOOK: Final = 0.02


class _Wait:
    """What is waited for: an instant, or the last of some deaths before it."""

    def __init__(self, until: float, handles: Iterable[Handle] = ()) -> None:
        self.until = until
        self.handles = list(handles)

    def __await__(self) -> Generator[_Wait, None, None]:
        yield self


class Polled:
    """Suspends wherever the others wait."""

    def now(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    async def pause(self, bound: float) -> None:
        """Wait that long."""
        await _Wait(self.now() + bound)

    async def outwait(self, handles: Iterable[Handle], bound: float) -> None:
        """Wait until all are dead, or `bound` seconds are over."""
        wait = _Wait(self.now() + bound, (each for each in handles if not each.is_dead))
        if wait.handles and bound > 0:
            await wait

    async def table(self) -> Table:
        """The processes now; an incomplete table where they cannot be read."""
        try:
            return read_table()
        except OSError:
            return Table({}, is_complete=False)


class PolledEnding(Ending):
    """One run of it. `noted` is told each signal's name when it is first sent."""

    def __init__(
        self,
        tree: Tree,
        grace: float,
        *,
        first: int = SIGTERM,
        noted: Callable[[str], object] = lambda _: None,
        ground: Polled | None = None,
    ) -> None:
        super().__init__(tree, grace, 2 * grace + 5, ground or Polled(), unknown, first=first)
        self._noted = noted
        self._steps = self.run()
        self._wait: _Wait | None = None

    def step(self) -> None:
        """Go on until there is something to wait for, or it is over: then `termination` is there."""
        if self.termination is None:
            try:
                self._wait = self._steps.send(None)
            except StopIteration:
                self._wait = None

    @property
    def due(self) -> float:
        """When to step at the latest; inf if never."""
        if self._wait is None:
            return float("inf")
        if self._wait.handles and self.awaited is None:
            return min(self._wait.until, time.monotonic() + _LOOK)
        return self._wait.until

    @property
    def awaited(self) -> int | None:
        """A descriptor that is readable when it is worth a look whether to step."""
        handles = [] if self._wait is None else self._wait.handles
        return handles[-1].fileno() if handles else None

    def is_ready(self, now: float) -> bool:
        """Whether what is waited for has come."""
        if self._wait is None or now >= self._wait.until:
            return True
        handles = self._wait.handles
        if not handles:
            return False
        while handles and handles[-1].is_dead:
            handles.pop()
        return not handles

    def _note(self, number: int) -> None:
        known = len(self._signals)
        super()._note(number)
        if len(self._signals) > known:
            self._noted(self._signals[-1])
