"""Ending a tree without an event loop: for a process that has nothing else to do meanwhile.

The same algorithm as on a loop, given a ground that blocks where that one waits. Imports the
standard library and the parts that need no loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamguard.process.ending import Ending, unknown
from streamguard.process.table import Table, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamguard.process.ending import Tree
    from streamguard.process.identity import Handle
    from streamguard.process.termination import Termination


class Blocked:
    """Waits by blocking; its coroutines never suspend."""

    def now(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    async def pause(self, bound: float) -> None:
        """Sleep that long."""
        time.sleep(max(bound, 0))  # noqa: ASYNC251 - blocking is what it is for

    async def outwait(self, handles: Iterable[Handle], bound: float) -> None:
        """Block until all are dead, or `bound` seconds are over."""
        deadline = time.monotonic() + bound
        for handle in handles:
            handle.outwait(deadline - time.monotonic())

    async def table(self) -> Table:
        """The processes now."""
        return read_table()


def end(tree: Tree, grace: float, budget: float) -> Termination:
    """End the processes of `tree`, as `ProcessTree.terminate` does, and return when it is done."""
    ending = Ending(tree, grace, budget, Blocked(), unknown)
    steps = ending.run()
    try:
        steps.send(None)
    except StopIteration:
        assert ending.termination is not None
        return ending.termination
    finally:
        steps.close()
    raise AssertionError("a ground that blocks has suspended")
