"""Several trees as one, so that they end together: one grace, and one walk for all.

What is in two of them, as a backend adopted twice or beside its parent, is signalled once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamguard.process.identity import Handle
    from streamguard.process.members import Members
    from streamguard.process.table import Table


class Forest:
    """The members of all its trees."""

    def __init__(self, trees: Iterable[Members]) -> None:
        self._trees: Final = tuple(trees)

    def __repr__(self) -> str:
        pids = dict.fromkeys(str(tree.pid) for tree in self._trees)
        return f"the trees of processes {', '.join(pids)}"

    @property
    def living(self) -> tuple[Handle, ...]:
        """Who is not dead, each once."""
        return tuple(self._by_pid().values())

    @property
    def orphans(self) -> tuple[Handle, ...]:
        """Those of the living who are an orphan in a tree of theirs."""
        living = self._by_pid()
        pids = dict.fromkeys(handle.pid for tree in self._trees for handle in tree.orphans)
        return tuple(living[pid] for pid in pids if pid in living)

    def is_gone(self) -> bool | None:
        """Only a table can tell."""
        return None

    def update(self, table: Table, greet: Callable[[Handle], object] | None = None) -> None:
        """Find who has joined any of them."""
        for tree in self._trees:
            tree.update(table, greet)

    def send_to_group(self, number: int, table: Table) -> bool:
        """Send each tree's own group a signal; whether any was sent."""
        sent = [tree.send_to_group(number, table) for tree in self._trees]
        return any(sent)

    def close(self) -> None:
        """Let go of every handle in them."""
        for tree in self._trees:
            tree.close()

    def _by_pid(self) -> dict[int, Handle]:
        living: dict[int, Handle] = {}
        for tree in self._trees:
            for handle in tree.living:
                living.setdefault(handle.pid, handle)
        return living
