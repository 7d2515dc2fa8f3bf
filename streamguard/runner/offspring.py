"""Everything that the command ever started, as its keeper sees it.

Whoever loses its parent below the keeper becomes the keeper's own child (Linux). So all of the tree
descends from the keeper, whatever it did to its group, session and environment; and when the keeper
has no child left, nobody is left: the kernel says so, no table of processes is needed. Only who was started by
somebody else on its behalf, as a container's engine does, is known by nothing but the mark.

Loaded when an end begins, with the package's `process`. Knows nothing of time and of output.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamguard.process import identity
from streamguard.process.members import Members
from streamguard.process.table import spared
from streamguard.runner.keeper import own_children

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from streamguard.process.identity import Handle
    from streamguard.process.members import TreeFacts
    from streamguard.process.procfs import Stat
    from streamguard.process.table import Table


class Household(Members):
    """The tree of the root, with all that fell to `adopter` when it lost its parent.

    `has_children` reaps who is dead and says whether we have a child left, if the adopter is us.
    """

    def __init__(self, pid: int, root: Handle | None) -> None:
        super().__init__(pid, root)
        self._adopter: int | None = None
        self._has_children: Callable[[], bool] | None = None
        self.elsewhere: set[int] = set()  # who bears the mark, and was started by somebody else

    @classmethod
    def of_keeper(
        cls,
        facts: TreeFacts,
        root: Handle | None,
        adopter: int | None,
        has_children: Callable[[], bool],
    ) -> Self:
        """The household of the keeper that this process is."""
        household = cls.from_facts(facts, root)
        household._adopter = adopter
        household._has_children = has_children if adopter == os.getpid() else None
        return household

    def is_gone(self) -> bool | None:
        """Whether the keeper has no child left."""
        return None if self._has_children is None else not self._has_children()

    def update(self, table: Table, greet: Callable[[Handle], object] | None = None) -> None:
        """Find who has joined; where the system shows nobody, by asking for our own children."""
        super().update(table, greet)
        if (table.is_complete and self.living) or self.is_gone() is not False:
            return
        for pid in own_children():
            if pid not in self._living:
                handle = identity.open_handle(pid)
                self._living[pid], self._parents[pid] = handle, os.getpid()
                if greet is not None:
                    greet(handle)

    def _found(self, table: Table, mark: str | None, *, has_group: bool) -> set[int]:
        found = super()._found(table, mark, has_group=has_group)
        fallen = [pid for pid, stat in table.stats.items() if self._fell_to_us(stat)]
        below = table.with_descendants(fallen)
        if mark is not None and self._adopter is not None:
            self.elsewhere |= (table.marked(mark) & found) - below
        return found | below

    def _has_child(self, stat: Stat) -> bool:
        return self._fell_to_us(stat) or super()._has_child(stat)

    def _fell_to_us(self, stat: Stat) -> bool:
        return stat.parent == self._adopter and stat.pid not in spared
