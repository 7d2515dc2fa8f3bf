"""Ending a tree: TERM and CONT, a grace that death ends early, then KILL until nothing is left.

Written once for who has an event loop (`hosted`), for who has none (`blocking`), and for the poll
loop of `streamguard run`: all waiting is done by a `Ground`. Where it is cut short, as by a loop that ends first, what is left is killed
at once. Imports no loop, and of the package nothing that does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import TYPE_CHECKING, Final, TypeAlias

from streamguard.process.table import Table, read_table
from streamguard.process.termination import Termination

if TYPE_CHECKING:
    from streamguard.errors import Cause
    from streamguard.process.blocking import Blocked
    from streamguard.process.hosted import OnLoop
    from streamguard.process.identity import Handle
    from streamguard.process.members import Members
    from streamguard.process.polled import Polled
    from streamguard.process.sentinel.forest import Forest

    # Where an ending waits: each keeps a deadline on a clock of its own.
    Ground: TypeAlias = OnLoop | Blocked | Polled
    # Whom an ending ends: the members of one tree, or of several at once.
    Tree: TypeAlias = Members | Forest

# How long deaths are waited for before the next look for who has joined, in seconds.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 0.25
# Looks in a row that must find a tree empty: one walk through /proc can miss a process that
# forks and ends while the walk goes by.
_PROOFS: Final = 2
# Rounds of stopping until nobody new is found. A storm can only grow while it is not stopped.
_FREEZES: Final = 10
# How long a table that cannot be read is waited for before the first signal, at most.
_SURVEY: Final = 2.5


class Ending:
    """One run of it: `run` once, then read `termination`."""

    def __init__(
        self,
        tree: Tree,
        grace: float,
        budget: float,
        ground: Ground,
        status: Callable[[], Awaitable[int | None]],
        *,
        first: int = SIGTERM,
    ) -> None:
        self.termination: Termination | None = None
        self._members = tree
        self._grace = grace
        self._budget = budget
        self._ground = ground
        self._status = status
        self._first = first
        self._began = ground.now()
        self._grace_ends = float("inf")
        self._signals: list[str] = []
        self._table: Table | None = None
        self._is_gone: bool | None = None

    def hasten(self, grace: float) -> None:
        """Let the grace be over in so many seconds, if it is not sooner."""
        self._grace_ends = min(self._grace_ends, self._ground.now() + grace)

    async def run(self) -> None:
        """End the tree. Raises nothing but what cuts it short."""
        try:
            await self._end()
            if self._table is not None and not self._table.is_complete:
                self._send_to_group(SIGKILL)  # whom nobody can see, it still reaches
            self.termination = self._judged(await self._status())
        except Exception:
            import logging  # far more than all the rest, and never needed

            logging.getLogger("streamguard").exception("ending %r failed", self._members)
        finally:
            if self.termination is None:
                self._kill_at_once()
                self.termination = self._judged(None)

    async def _end(self) -> None:
        deadline = self._began + self._budget
        if await self._is_empty():
            return
        # Know the tree before the first signal, which may part it; or have tried for so long.
        until = self._began + min(self._budget / 2, _SURVEY)
        while self._table is None and self._ground.now() < until:
            await self._ground.pause(_FIRST_LOOK)
            await self._look()
        now = self._ground.now()
        self.hasten(min(self._grace, (deadline - now) / 2))  # the rest is for KILL to work
        if self._grace > 0 and await self._empties_when_asked():
            return
        rounds = 0
        while not await self._is_empty():
            left = deadline - self._ground.now()
            if left <= 0 and rounds > 0:  # one at least, however long the looks before it took
                return
            await self._kill()
            rounds += 1
            await self._outwait(min(_LAST_LOOK, max(left, _FIRST_LOOK)))

    async def _empties_when_asked(self) -> bool:
        """Whether everybody ends within the grace, having been sent the first signal and CONT."""
        asked: set[Handle] = set()
        pause = 0.0  # who was forked meanwhile is best found before its parent ends
        while True:
            # Later, only those who have no parent to end them: what a backend starts in order to
            # shut down is its own affair.
            for handle in self._members.orphans if asked else self._members.living:
                if handle not in asked:
                    asked.add(handle)
                    self._send(handle, self._first)
                    self._send(handle, SIGCONT)  # a stopped process would not see it
            await self._outwait(min(pause, self._grace_ends - self._ground.now()))
            if await self._is_empty():
                return True
            if self._ground.now() >= self._grace_ends:
                return False
            pause = min(max(2 * pause, _FIRST_LOOK), _LAST_LOOK)

    async def _kill(self) -> None:
        """Kill everybody who is found, stopped first: they would fork on between two looks."""
        stopped: set[Handle] = set()

        def stop(handle: Handle) -> None:
            # A stopped parent neither forks nor lets go of a child, so the next look finds those.
            self._send(handle, SIGSTOP)
            stopped.add(handle)

        for handle in self._members.living:
            stop(handle)
        for _ in range(_FREEZES):
            known = len(stopped)
            self._send_to_group(SIGSTOP)
            await self._look(stop)
            if len(stopped) == known:
                break
        self._send_to_group(SIGKILL)
        for handle in self._members.living:
            self._send(handle, SIGKILL)

    def _kill_at_once(self) -> None:
        """What can still be done when nothing can be waited for any more. It proves nothing."""
        self._table = None
        for _ in range(_FREEZES):
            with suppress(OSError):
                self._members.update(read_table())
            if not (living := self._members.living):
                return
            for handle in living:
                self._send(handle, SIGKILL)

    def _send(self, handle: Handle, number: int) -> None:
        if handle.send(number):
            self._note(number)

    def _send_to_group(self, number: int) -> None:
        if self._table is not None and self._members.send_to_group(number, self._table):
            self._note(number)

    def _note(self, number: int) -> None:
        name = signal_name(number)
        if name not in self._signals:
            self._signals.append(name)

    async def _outwait(self, bound: float) -> None:
        """Wait until all who are known are dead, or `bound` seconds, which may be none, are over."""
        bound = max(bound, 0.0)
        if self._table is None:  # the last look failed: not before it may have become possible
            await self._ground.pause(bound)
        await self._ground.outwait(self._members.living, bound)

    async def _look(self, greet: Callable[[Handle], object] | None = None) -> None:
        """Find who has joined, and `greet` each. Where that fails for now, who was known stays known."""
        self._table = None
        with suppress(OSError):  # no file descriptor left, for one
            table = await self._ground.table()
            self._members.update(table, greet)
            self._table = table

    async def _is_empty(self) -> bool:
        """Whether nobody is left, and that for certain."""
        self._is_gone = gone = self._members.is_gone()
        for _ in range(1 if gone else _PROOFS):
            await self._look()
            if self._members.living or (self._table is None and not gone):
                return False
        return gone is not False

    def _judged(self, status: int | None) -> Termination:
        survivors = tuple(handle.pid for handle in self._members.living)
        return Termination(
            cause=self._cause(any_left=bool(survivors)),
            signals=tuple(self._signals),
            elapsed=self._ground.now() - self._began,
            exit=status,
            survivors=survivors,
        )

    def _cause(self, *, any_left: bool) -> Cause:
        if any_left:
            return "survived"
        is_shown = self._table is not None and self._table.is_complete
        if not (is_shown if self._is_gone is None else self._is_gone):
            return "unproven"
        if "KILL" in self._signals:
            return "killed"
        return "terminated" if self._signals else "exited"


async def unknown() -> int | None:
    """The exit status of a process, for who does not know it: that is its owner's to say."""
    return None


def signal_name(number: int) -> str:
    """`TERM` for 15; the number where there is no name."""
    try:
        return Signals(number).name.removeprefix("SIG")
    except ValueError:  # a real-time signal
        return str(number)
