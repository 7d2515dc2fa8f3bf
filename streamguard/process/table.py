"""All processes of the system at one instant, and who of them belongs together.

Imports procfs; psutil where there is no /proc. Knows nothing of loops, and decides nothing.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from streamguard.process import procfs
from streamguard.process.identity import psutil_or_none
from streamguard.process.marks import bearers
from streamguard.process.procfs import Stat

# A look for the newborn is over when a pass took less than this, in seconds; and, because the
# loop stands still meanwhile, after so many pids (some 20 ms).
_INSTANT: Final = 0.001
_CHASE: Final = 2000


# Whom else no signal of this process may hit: their start times by pid. A helper's application
# and what that descends from.
spared: Final[dict[int, float]] = {}


class Table:
    """Every process by its pid.

    `is_complete` is False where the system tells us nothing: then it proves nobody's death.
    """

    def __init__(
        self,
        stats: Mapping[int, Stat],
        marks: Mapping[int, str] | None = None,
        *,
        is_complete: bool = True,
        newest: int = 0,
    ) -> None:
        self.stats: Final = stats
        self.is_complete: Final = is_complete
        self._marks: Final = marks or {}
        self._newest: Final = newest

    @cached_property
    def _children(self) -> Mapping[int, list[int]]:
        children: defaultdict[int, list[int]] = defaultdict(list)
        for stat in self.stats.values():
            children[stat.parent].append(stat.pid)
        return children

    @cached_property
    def untouchable(self) -> frozenset[int]:
        """What no signal of ours may ever hit, as this table shows it."""
        return untouchable(self.stats.get)

    def newborn(self, *, once: bool = False) -> Iterator[Stat]:
        """Who has come since the walk began, each as it is when it is asked for.

        Unless one pass is enough, the last one took less than an instant: who lived for longer
        cannot have come and gone unseen. Storms whose processes live for less than a walk takes
        are only caught here.
        """
        newest, left = self._newest, _CHASE
        while newest and left > 0:
            began = time.monotonic()
            before, newest = newest, procfs.newest_pid()
            for pid in procfs.born_since(before, newest)[:left]:
                if pid not in self.untouchable and (stat := procfs.read_stat(pid)) is not None:
                    yield stat
                left -= 1
            if once or time.monotonic() - began < _INSTANT:
                return

    def group(self, number: int) -> set[int]:
        """Who is in that process group."""
        return {stat.pid for stat in self.stats.values() if stat.group == number}

    def marked(self, mark: str) -> set[int]:
        """Who was started with that mark in the environment."""
        return {pid for pid, found in self._marks.items() if found == mark}

    def with_descendants(self, seeds: Iterable[int]) -> set[int]:
        """`seeds` and everybody below them, less the untouchable."""
        found: set[int] = set()
        left = list(seeds)
        while left:
            pid = left.pop()
            if pid not in found and pid not in self.untouchable:
                found.add(pid)
                left += self._children.get(pid, ())
        return found


def untouchable(stat_of: Callable[[int], Stat | None] | None = None) -> frozenset[int]:
    """What no signal of ours may ever hit: we, what we descend from, init and the kernel."""
    stat_of = stat_of or _anywhere()
    found = {0, 1, *_upwards(os.getpid(), stat_of)}
    for pid, started in spared.items():
        if (stat := stat_of(pid)) is not None and stat.started == started:
            found.add(pid)
    return frozenset(found | {os.getppid()})


def descends_from_us(pid: int) -> bool:
    """Whether this process has started `pid`, or what has started it; False if nobody can tell."""
    above = _upwards(pid, _anywhere())
    return pid > 1 and os.getpid() in list(above)[1:]


def _anywhere() -> Callable[[int], Stat | None]:
    """What tells of one process: /proc, or a whole table."""
    return procfs.read_stat if procfs.is_there() else read_table().stats.get


def _upwards(pid: int, stat_of: Callable[[int], Stat | None]) -> Iterator[int]:
    """`pid`, its parent, and so on, up to init: pids that change hands meanwhile can even make a ring."""
    seen = {0}
    while pid not in seen:
        seen.add(pid)
        yield pid
        stat = stat_of(pid)
        pid = 0 if stat is None else stat.parent


def lineage() -> dict[int, float]:
    """The untouchable with their start times, as a helper of ours will want to know them."""
    stat_of = _anywhere()
    return {pid: stat.started for pid in untouchable(stat_of) if (stat := stat_of(pid))}


def read_table() -> Table:
    """The processes now."""
    if procfs.is_there():
        newest = procfs.newest_pid()
        stats, marks = procfs.snapshot(with_marks=bearers.are_any)
        # Who is not shown is not gone, where we are not shown ourselves: /proc was taken away
        # meanwhile.
        return Table(stats, marks, is_complete=os.getpid() in stats, newest=newest)
    if (psutil := psutil_or_none()) is not None:
        found = map(_stat_of, psutil.process_iter(["ppid", "create_time"]))
        return Table({stat.pid: stat for stat in found if stat is not None})
    return Table({}, is_complete=False)


def _stat_of(process: Any) -> Stat | None:
    pid: int = process.pid
    try:
        group, session = os.getpgid(pid), os.getsid(pid)
    except OSError:
        return None
    parent, started = process.info["ppid"], process.info["create_time"]
    return Stat(pid, "?", parent or 0, group, session, 1, started or 0.0)
