"""Everything that the command ever started: found, asked to end, ended (D4).

Loaded when it is needed. On Linux we are a subreaper, so whoever lost its parent is our child:
what belongs to the tree is then known without doubt. Uses `process`; knows nothing of output.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamguard.process import blocking, identity, procfs
from streamguard.process.identity import PidfdHandle
from streamguard.process.members import Facts, Members
from streamguard.process.table import read_table, spared
from streamguard.runner._signal import name_of, signal

if TYPE_CHECKING:
    from streamguard.process.identity import Handle
    from streamguard.process.procfs import Stat
    from streamguard.process.table import Table
    from streamguard.process.termination import Termination
    from streamguard.runner.child import Child

# How long killing may take: a storm of forks needs some rounds.
_KILLING = 5.0


class Household(Members):
    """A tree whose orphans are ours."""

    adopts = False

    def _found(self, table: Table, mark: str | None, *, has_group: bool) -> set[int]:
        found = super()._found(table, mark, has_group=has_group)
        if self.adopts:
            orphans = [pid for pid, stat in table.stats.items() if self._is_ours(stat)]
            found |= table.with_descendants(orphans)
        return found

    def _has_child(self, stat: Stat) -> bool:
        return super()._has_child(stat) or (self.adopts and self._is_ours(stat))

    def _is_ours(self, stat: Stat) -> bool:
        return stat.parent == os.getpid() and stat.pid not in spared


class Tree:
    """The tree of one child."""

    def __init__(
        self, child: Child, *, mark: str, leads_session: bool, adopts_orphans: bool
    ) -> None:
        root = _handle_of(child)
        stat = procfs.read_stat(child.pid)
        started = 0.0 if stat is None or child.is_dead else stat.started
        session = child.pid if leads_session else None
        self.members = Household.from_facts(Facts(child.pid, started, session, mark), root)
        self.members.adopts = adopts_orphans
        self._asked: set[Handle] = set()

    def living(self) -> tuple[Handle, ...]:
        """Who is not dead, as two looks in a row show it: one can miss a newborn."""
        for _ in range(2):
            try:
                self.members.update(read_table())
            except OSError:
                pass  # no descriptor left: who was known stays known
            if living := self.members.living:
                return living
        return ()

    def ask(self, number: int) -> list[str]:
        """Send all a signal, and after the first time those who have nobody else to do it."""
        living = self.living()
        sent: list[str] = []
        for handle in self.members.orphans if self._asked else living:
            if handle not in self._asked:
                self._asked.add(handle)
                # A stopped process would not see it.
                sent += [name_of(each) for each in (number, signal.SIGCONT) if handle.send(each)]
        return list(dict.fromkeys(sent))

    def kill(self) -> Termination:
        """Kill all, until none is left or it has taken too long."""
        return blocking.end(self.members, 0, _KILLING)

    def close(self) -> None:
        """Let go of what is held."""
        self.members.close()


def _handle_of(child: Child) -> Handle | None:
    if child.pidfd is not None:
        return PidfdHandle(child.pid, os.dup(child.pidfd))
    return None if child.is_dead else identity.open_handle(child.pid)
