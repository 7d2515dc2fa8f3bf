"""The mark of a tree: a variable in its environment, by which its processes are found again.

A process that left its group with `setsid` and lost its parent is related to nothing any more;
what it still has is the environment that it inherited. Imports nothing of the package but procfs.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from streamguard._base.variables import MARK
from streamguard.process.procfs import Stat, read_mark

if TYPE_CHECKING:
    from streamguard.process.members import Members


def marked_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """`env` (default: our own environment) with a fresh mark: start one process with it.

    `ClaudeAgentOptions(env=marked_env({}))`, `Popen(..., env=marked_env())`. A process that clears its
    environment escapes the mark. All others that this process ever starts are found by it.
    """
    return {**(os.environ if env is None else env), MARK: os.urandom(16).hex()}


def own_mark(stat: Stat) -> str | None:
    """The mark of a process, if it is its own: one that we or its parent also bear is not."""
    mark = read_mark(stat.pid)
    if mark in (None, os.environ.get(MARK), read_mark(os.getpid()), read_mark(stat.parent)):
        return None
    return mark


class Bearers:
    """Which adopted processes bear which mark, so that nobody takes another's for his own.

    They are held weakly: a tree that was dropped unclosed bears nothing any more (O7).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, WeakSet[Members]] = {}

    def claim(self, mark: str, bearer: Members) -> None:
        """`bearer` has been adopted, and bears `mark`."""
        with self._lock:
            self._of = {mark: bearers for mark, bearers in self._of.items() if bearers}
            self._of.setdefault(mark, WeakSet()).add(bearer)
            pids = self._pids(mark)
        if len(pids) == 2:
            warnings.warn(
                f"processes {pids} were started with the same mark, so it "
                "cannot tell them apart and is not used: call marked_env() for each process",
                RuntimeWarning,
                stacklevel=2,
            )

    def release(self, mark: str, bearer: Members) -> None:
        """It is adopted no longer."""
        with self._lock:
            self._of[mark].discard(bearer)

    @property
    def are_any(self) -> bool:
        """Whether anybody bears a mark, so that it is worth reading them."""
        with self._lock:
            return any(self._of.values())

    def share(self, mark: str) -> bool:
        """Whether more than one adopted process bears `mark`."""
        with self._lock:
            return len(self._pids(mark)) > 1

    def _pids(self, mark: str) -> list[int]:
        return sorted({bearer.pid for bearer in self._of.get(mark, ())})


bearers: Final = Bearers()
