"""Who belongs to one tree: a handle for each, opened before anything is signalled.

A process belongs if it descends from one that does; if it is in the group that the root leads;
or if it bears the root's mark. Whoever was once found stays found, also without its parent.
Knows handles and tables; nothing of time, and decides no signal.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from streamguard.process import identity, procfs
from streamguard.process.marks import bearers, own_mark
from streamguard.process.procfs import Stat, read_stat

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamguard.process.identity import Handle
    from streamguard.process.table import Table


class TreeFacts(NamedTuple):
    """What only a living root could tell of itself: enough for another process to go on from.

    `started` is 0 where nothing tells it; `session` is None unless it leads its group.
    """

    pid: int
    started: float
    session: int | None
    mark: str | None


class Members:
    """The living processes of a tree, as of the last look."""

    def __init__(self, pid: int, root: Handle | None) -> None:
        self.pid: Final = pid
        self.root: Final = root
        self._living: dict[int, Handle] = {pid: root} if root is not None else {}
        self._parents: dict[int, int] = {}
        self._mark: str | None = None
        self._session: int | None = None  # of the group that the root leads, once it does
        self._leads_group = False
        self._started = 0.0
        self._is_handed_over = False

    @classmethod
    def from_facts(cls, facts: TreeFacts, root: Handle | None) -> Self:
        """The tree of a root that was seen by somebody else."""
        members = cls(facts.pid, root)
        members._started = facts.started
        members._is_handed_over = True
        if facts.session is not None:
            members._leads_group, members._session = True, facts.session
        if facts.mark is not None:
            members._claim(facts.mark)
        return members

    @property
    def facts(self) -> TreeFacts:
        """What is known of the root, for another process."""
        return TreeFacts(self.pid, self._started, self._session, self._mark)

    def __repr__(self) -> str:
        return f"the tree of process {self.pid}"

    @property
    def living(self) -> tuple[Handle, ...]:
        """Who is not dead, the root first."""
        for pid in [pid for pid, handle in self._living.items() if handle.is_dead]:
            self._forget(pid)
        return tuple(self._living.values())

    @property
    def orphans(self) -> tuple[Handle, ...]:
        """Those of the living whose parent is none of them."""
        living = {handle.pid: handle for handle in self.living}
        return tuple(h for pid, h in living.items() if self._parents.get(pid) not in living)

    def note_root(self, stat: Stat | None) -> None:
        """Learn what only the root can tell, as long as it can."""
        if stat is None or self.root is None or not self.root.holds_pid():
            return
        self._started = stat.started
        if stat.group == self.pid:
            self._leads_group, self._session = True, stat.session
        if self._mark is None and not self._is_handed_over:  # then it is known not to be its own
            mark = own_mark(stat)
            if mark is not None:
                self._claim(mark)

    def is_gone(self) -> bool | None:
        """Only a table can tell."""
        return None

    def update(self, table: Table, greet: Callable[[Handle], object] | None = None) -> None:
        """Find who has joined, as `table` shows it and since then.

        `greet` is called with each of them the moment it is held. Then the newborn are followed
        until they are caught up with, as they are for the proof that nobody is left.
        """
        self.note_root(table.stats.get(self.pid))
        has_group = self._has_group(table)
        mark = None if self._mark is None or bearers.share(self._mark) else self._mark
        for pid in self._found(table, mark, has_group=has_group):
            if pid in self._living:
                self._parents[pid] = table.stats[pid].parent
            else:
                self._welcome(table.stats[pid], greet)
        for stat in table.newborn(once=greet is None and bool(self._living)):
            if stat.pid not in self._living and (
                self._has_child(stat)
                or (has_group and stat.group == self.pid)
                or (mark is not None and procfs.read_mark(stat.pid) == mark)
            ):
                self._welcome(stat, greet)

    def _found(self, table: Table, mark: str | None, *, has_group: bool) -> set[int]:
        """Who belongs, as `table` shows it."""
        seeds = {handle.pid for handle in self.living if handle.holds_pid()}
        if has_group:
            seeds |= table.group(self.pid)
        if mark is not None:
            seeds |= table.marked(mark)
        return table.with_descendants(seeds) & table.stats.keys()

    def _has_child(self, stat: Stat) -> bool:
        parent = self._living.get(stat.parent)
        return parent is not None and parent.holds_pid()

    def _welcome(self, seen: Stat, greet: Callable[[Handle], object] | None) -> None:
        """Hold on to a process that was seen to belong, unless that is over already."""
        if seen.is_dead:
            return
        try:
            handle = identity.open_handle(seen.pid)
        except ProcessLookupError:
            return
        # The pid may have changed hands since it was seen.
        now = read_stat(seen.pid)
        if handle.is_dead or (now is not None and now.started != seen.started):
            handle.close()
            return
        self._living[seen.pid] = handle
        self._parents[seen.pid] = seen.parent
        if greet is not None:
            greet(handle)

    def send_to_group(self, number: int, table: Table) -> bool:
        """Send all of the root's group a signal at one instant, which no fork can outrun."""
        if self.root is None or not self._has_group(table):
            return False
        if self.root.send_to_group(number):
            return True
        if not self.root.holds_pid():  # without a pidfd, only that proves whose number it is
            return False
        with suppress(OSError):
            os.killpg(self.pid, number)
            return True
        return False

    def close(self) -> None:
        """Let go of every handle."""
        for pid in list(self._living):
            self._forget(pid)
        if self.root is not None:
            self.root.close()
        if self._mark is not None:
            bearers.release(self._mark, self)
            self._mark = None

    def _has_group(self, table: Table) -> bool:
        """Whether the group numbered as the root is the root's own, and none of it is ours."""
        if self.root is None or not self._leads_group or os.getpgrp() == self.pid:
            return False
        group = table.group(self.pid)
        if group & table.untouchable:
            return False
        is_led = self.root.leads_group()
        if is_led is not None:
            return is_led
        if self.root.holds_pid():
            return True
        # It was reaped, and the kernel cannot say whose group this is by now. A stranger's would
        # have a leader that took the pid, or be in another session.
        return (
            table.is_complete
            and self.pid not in table.stats
            and all(table.stats[pid].session == self._session for pid in group)
        )

    def _claim(self, mark: str) -> None:
        self._mark = mark
        bearers.claim(mark, self)

    def _forget(self, pid: int) -> None:
        handle = self._living.pop(pid)
        self._parents.pop(pid, None)
        if handle is not self.root:
            handle.close()
