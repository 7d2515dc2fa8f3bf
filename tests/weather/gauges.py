"""What a process has, over time: it must not grow with the sessions that are over."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
# By how much each may be more at the end than after the first fifth, when all is warm.
_MAY_GROW: Final = {"memory": 12.0, "descriptors": 12, "threads": 4, "tasks": 15, "processes": 8}


@dataclass(frozen=True)
class Reading:
    at: float
    sessions: int
    memory: float  # MB
    descriptors: int
    threads: int
    tasks: int
    processes: int

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def read(at: float, sessions: int, tasks: int) -> Reading:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6
    return Reading(
        at=round(at, 1),
        sessions=sessions,
        memory=round(resident, 1),
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        tasks=tasks,
        processes=_children(),
    )


def _children() -> int:
    folders = Path("/proc/self/task").iterdir()
    return sum(len(_words(folder / "children")) for folder in folders)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # the thread is over
        return []


def growth(readings: Sequence[Reading]) -> list[str]:
    """What is more at the end than it may be."""
    fifth = len(readings) // 5
    if fifth < 3:
        return []
    early, late = readings[fifth : 2 * fifth], readings[-fifth:]
    found = []
    for name, more in _MAY_GROW.items():
        before = median(getattr(each, name) for each in early)
        after = median(getattr(each, name) for each in late)
        if after > before + more:
            found.append(f"{name} grew from {before:g} to {after:g}")
    return found
