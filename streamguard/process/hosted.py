"""Ending a tree on an event loop, in a task of its own, waited for through cancellations (D6).

One walk through /proc serves all who ask for one in the same pass of the loop: 200 teardowns at
once cost as many walks as one. Imports anyio and the parts that need none; `blocking` is the same
for who has no loop.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import RunVar, checkpoint

from streamguard.process import table
from streamguard.process.ending import Ending

if TYPE_CHECKING:
    from streamguard.process.ending import Tree
    from streamguard.process.identity import Handle
    from streamguard.process.table import Table
    from streamguard.process.termination import Termination


class OnLoop:
    """Waits on the event loop that runs."""

    def now(self) -> float:
        """The loop's clock."""
        return anyio.current_time()

    async def pause(self, bound: float) -> None:
        """Wait that long."""
        await anyio.sleep(bound)

    async def outwait(self, handles: Iterable[Handle], bound: float) -> None:
        """Wait until all are dead, or `bound` seconds are over."""
        with anyio.move_on_after(bound):
            for handle in handles:
                await handle.wait_dead()

    async def table(self) -> Table:
        """The processes at an instant after this call; OSError if /proc cannot be read."""
        return await fresh_table()


class HostedEnding(Ending):
    """One run of it. `run` is given to a task; `outcome` waits for its end."""

    def __init__(
        self, tree: Tree, grace: float, budget: float, status: Callable[[], Awaitable[int | None]]
    ) -> None:
        super().__init__(tree, grace, budget, OnLoop(), status)
        self.is_over: Final = anyio.Event()

    async def run(self) -> None:
        """End the tree. Raises nothing but the loop's cancellation."""
        try:
            await super().run()
        finally:
            self.is_over.set()

    async def outcome(self) -> Termination:
        """Its result, waited for through one cancellation, which is raised afterwards (D6).

        A second one (asyncio only; scopes are shielded off) leaves it running on its own.
        """
        cancelled = anyio.get_cancelled_exc_class()
        kept: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while not self.is_over.is_set():
                try:
                    await self.is_over.wait()
                except cancelled as error:
                    if kept is not None:
                        raise
                    kept = error
        if kept is not None:
            raise kept
        assert self.termination is not None
        return self.termination


class _Walk:
    """A table that is about to be read, and who waits for it."""

    def __init__(self) -> None:
        self.is_over = anyio.Event()
        self.table: Table | None = None


_next_walk: RunVar[_Walk | None] = RunVar("streamguard_next_walk", None)


async def fresh_table() -> Table:
    """The processes at an instant after this call; OSError if /proc cannot be read just now."""
    walk = _next_walk.get()
    if walk is None:
        walk = _Walk()
        _next_walk.set(walk)
        try:
            await checkpoint()  # who asks in this pass joins
        finally:
            _next_walk.set(None)
            with suppress(OSError):
                walk.table = table.read_table()
            walk.is_over.set()
    else:
        await walk.is_over.wait()
    if walk.table is None:
        raise OSError(errno.EAGAIN, "the table of processes could not be read")
    return walk.table
