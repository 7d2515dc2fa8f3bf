"""Ending a tree: TERM and CONT, a grace that death ends early, then KILL until nothing is left.

It runs in a task of its own, so that no cancellation of the caller cuts it short between TERM
and KILL (D6); and where the loop itself ends first, what is left is killed at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import TYPE_CHECKING, Final

import anyio

from streamguard.process.table import Table, fresh_table, read_table
from streamguard.process.termination import Cause, Termination

if TYPE_CHECKING:
    from streamguard.process.identity import Handle
    from streamguard.process.members import Members

logger = logging.getLogger("streamguard")

# How long deaths are waited for before the next look for who has joined, in seconds.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 0.25
# Looks in a row that must find a tree empty: one walk through /proc can miss a process that
# forks and ends while the walk goes by.
_PROOFS: Final = 2
# Rounds of stopping until nobody new is found. A storm can only grow while it is not stopped.
_FREEZES: Final = 10


class Ending:
    """One run of it. `run` is given to a task; `outcome` waits for its end."""

    def __init__(
        self,
        members: Members,
        grace: float,
        budget: float,
        status: Callable[[], Awaitable[int | None]],
    ) -> None:
        self.termination: Termination | None = None
        self.is_over: Final = anyio.Event()
        self._members = members
        self._grace = grace
        self._budget = budget
        self._status = status
        self._began = anyio.current_time()
        self._signals: list[str] = []
        self._stopped: set[Handle] = set()
        self._table: Table | None = None

    async def run(self) -> None:
        """End the tree. Raises nothing but the loop's cancellation."""
        try:
            await self._end()
            self.termination = await self._result()
        except Exception:
            logger.exception("ending the tree of process %d failed", self._members.pid)
        finally:
            if self.termination is None:
                self._kill_at_once()
                self.termination = self._judged(None)
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

    async def _end(self) -> None:
        deadline = self._began + self._budget
        if await self._is_empty():
            return
        if self._grace > 0 and await self._empties_when_asked(self._began + self._grace):
            return
        rounds = 0
        while not await self._is_empty():
            left = deadline - anyio.current_time()
            if left <= 0 and rounds > 0:  # one at least, however long the looks before it took
                return
            await self._kill()
            rounds += 1
            await self._outwait(min(_LAST_LOOK, max(left, _FIRST_LOOK)))

    async def _empties_when_asked(self, until: float) -> bool:
        """Whether everybody ends by `until`, having been sent TERM and CONT."""
        asked: set[Handle] = set()
        pause = 0.0  # who was forked meanwhile is best found before its parent ends
        while True:
            # Later, only those who have no parent to end them: what a backend starts in order to
            # shut down is its own affair.
            self._ask_to_end(self._members.orphans if asked else self._members.living, asked)
            await self._outwait(min(pause, until - anyio.current_time()))
            if await self._is_empty():
                return True
            if anyio.current_time() >= until:
                return False
            pause = min(max(2 * pause, _FIRST_LOOK), _LAST_LOOK)

    def _ask_to_end(self, handles: Iterable[Handle], asked: set[Handle]) -> None:
        for handle in handles:
            if handle not in asked:
                asked.add(handle)
                self._send(handle, SIGTERM)
                self._send(handle, SIGCONT)  # a stopped process would not see it

    async def _kill(self) -> None:
        """Kill everybody who is found, stopped first: they would fork on between two looks."""
        for handle in self._members.living:
            self._stop(handle)
        for _ in range(_FREEZES):
            known = len(self._stopped)
            self._send_to_group(SIGSTOP)
            await self._look(self._stop)
            if len(self._stopped) == known:
                break
        self._send_to_group(SIGKILL)
        for handle in self._members.living:
            self._send(handle, SIGKILL)

    def _stop(self, handle: Handle) -> None:
        """Stop one process, and at once whom it has forked meanwhile.

        A table is many milliseconds old when it is done. But a stopped parent neither forks nor
        lets go of a child, and following children takes less time than forking them.
        """
        left = [handle]
        while left:
            parent = left.pop()
            self._send(parent, SIGSTOP)
            self._stopped.add(parent)
            left += self._members.take_children(parent.pid)

    def _kill_at_once(self) -> None:
        """What can still be done when nothing can be waited for any more."""
        for _ in range(_FREEZES):
            with suppress(OSError):
                self._members.update(read_table())
            if not (living := self._members.living):
                return
            for handle in living:
                self._send(handle, SIGKILL)

    def _send(self, handle: Handle, number: Signals) -> None:
        if handle.send(number):
            self._note(number)

    def _send_to_group(self, number: Signals) -> None:
        if self._table is not None and self._members.send_to_group(number, self._table):
            self._note(number)

    def _note(self, number: Signals) -> None:
        name = number.name.removeprefix("SIG")
        if name not in self._signals:
            self._signals.append(name)

    async def _outwait(self, bound: float) -> None:
        """Wait until all who are known are dead, or `bound` seconds are over."""
        if self._table is None:  # the last look failed: not before it may have become possible
            await anyio.sleep(bound)
        with anyio.move_on_after(bound):
            for handle in self._members.living:
                await handle.wait_dead()

    async def _look(self, greet: Callable[[Handle], object] | None = None) -> None:
        """Find who has joined, and `greet` each. Where that fails for now, who was known stays known."""
        self._table = None
        with suppress(OSError):  # no file descriptor left, for one
            table = await fresh_table()
            self._members.update(table, greet)
            self._table = table

    async def _is_empty(self) -> bool:
        """Whether nobody is left, and that for certain."""
        for _ in range(_PROOFS):
            await self._look()
            if self._members.living or self._table is None:
                return False
        return True

    async def _result(self) -> Termination:
        return self._judged(await self._status())

    def _judged(self, status: int | None) -> Termination:
        survivors = tuple(handle.pid for handle in self._members.living)
        return Termination(
            cause=self._cause(any_left=bool(survivors)),
            signals=tuple(self._signals),
            elapsed=anyio.current_time() - self._began,
            exit=status,
            survivors=survivors,
        )

    def _cause(self, *, any_left: bool) -> Cause:
        if any_left:
            return "survived"
        if self._table is None or not self._table.is_complete:
            return "unproven"
        if "KILL" in self._signals:
            return "killed"
        return "terminated" if self._signals else "exited"
