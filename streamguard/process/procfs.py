"""What /proc says of a process: its line of `stat`, its thread group, its environment's mark.

Linux. Every function answers None for a process that is gone or not ours to read, and for every
process where /proc is not there, or not ours (`is_there`): None alone proves no death. OSError only
where nothing can be read just now: no file descriptor is left, for one.
Knows no handles, trees or signals. Imports nothing of the package.
"""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from streamguard._base.variables import MARK

# What a `pid_t` can hold. Asking the system for more is an OverflowError.
LARGEST_PID: Final = 2**31 - 1
_MARK_PREFIX: Final = f"{MARK}=".encode()
_BLOCK: Final = 1 << 16
_PAGE: Final = 1 << 12
# Only who has no environment at all, or hides it, costs all of these looks.
_SETTLING_LOOKS: Final = 10
_SETTLING_PAUSE: Final = 0.0003


class Stat(NamedTuple):
    """One process at one instant. `started` and `pid` together name it, as well as /proc can."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started: float

    @property
    def is_dead(self) -> bool:
        """Whether it has ended: a zombie is dead.

        A leading thread that has ended before the others is shown as a zombie as well, but with
        threads left: that process lives.
        """
        return self.state in "ZX" and self.threads <= 1


def is_there() -> bool:
    """Whether this system has a /proc, and one whose numbers are those that signals go by.

    In a pid namespace that still shows another's /proc, as after `unshare -pf`, they are not: what
    it says there of a pid of ours, it says of a stranger.
    """
    pid = os.getpid()
    try:
        if os.readlink("/proc/self") != str(pid):  # noqa: PTH115 - it is asked often
            return False
    except OSError:
        return False
    # Two namespaces can have the same number for us, so the number alone is no proof.
    if (is_ours := _is_ours.get(pid)) is None:
        is_ours = _is_ours[pid] = _knows_us_by_one_number()
    return is_ours


_is_ours: Final[dict[int, bool]] = {}


def _knows_us_by_one_number() -> bool:
    """Whether we are in the namespace that /proc tells of, and not in one below it."""
    status = _read("/proc/self/status")
    if status is None:
        return False
    numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0]  # nothing before Linux 4.1
    return len(numbers.split()) <= 1


def snapshot(*, with_marks: bool) -> tuple[dict[int, Stat], dict[int, str]]:
    """All processes that we can see, and the marks of the living, by pid: for who knows that it is there."""
    stats: dict[int, Stat] = {}
    marks: dict[int, str] = {}
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no Path for each pid
    # The newest first: they are the ones that may be gone before a walk comes to them.
    for pid in reversed(pids):
        if (stat := _stat_of(pid)) is None:
            continue
        stats[pid] = stat
        if with_marks and not stat.is_dead and (mark := _mark_of(pid)) is not None:
            marks[pid] = mark
    return stats, marks


def newest_pid() -> int:
    """The pid that was given out last; 0 if the kernel does not tell."""
    fields = (_read("/proc/loadavg") or b"").split()
    return int(fields[4]) if len(fields) > 4 else 0


def born_since(pid: int, newest: int) -> range:
    """The pids given out after `pid` and up to `newest`, the newest first."""
    since = pid if pid <= newest else 0  # the numbers have begun anew
    return range(newest, since, -1)


def read_stat(pid: int) -> Stat | None:
    """What /proc/PID/stat says now."""
    return _stat_of(pid) if is_there() else None


def _stat_of(pid: int) -> Stat | None:
    line = _read(f"/proc/{pid}/stat")
    if line is None:
        return None
    # The name in parentheses may hold anything, parentheses and spaces too.
    fields = line.rpartition(b")")[2].split()
    return Stat(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        started=int(fields[19]),
    )


def is_thread(pid: int) -> bool:
    """Whether `pid` is a thread that leads no process: a signal to it hits its whole process."""
    status = _read(f"/proc/{pid}/status") if is_there() else None
    if status is None:
        return False
    leader = status.partition(b"\nTgid:")[2].split(maxsplit=1)
    return bool(leader) and int(leader[0]) != pid


def read_mark(pid: int) -> str | None:
    """The mark that a process was started with; of its environment nothing else is kept (E3)."""
    return _mark_of(pid) if is_there() else None


def _mark_of(pid: int) -> str | None:
    environment = _read(f"/proc/{pid}/environ")
    for entry in (environment or b"").split(b"\0"):
        if entry.startswith(_MARK_PREFIX):
            return os.fsdecode(entry[len(_MARK_PREFIX) :])
    return None


def settle(pid: int) -> None:
    """Wait, for 3 ms at most, until a process that was just started shows its environment.

    Who starts a program hears that its exec went well an instant before that is there to be read.
    """
    for _ in range(_SETTLING_LOOKS):
        stat = read_stat(pid)
        if stat is None or stat.is_dead or _read(f"/proc/{pid}/environ") is not None:
            return
        time.sleep(_SETTLING_PAUSE)


def _read(path: str) -> bytes | None:
    # Plain calls: a table is made of some hundred files, and `open` costs three times as much.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        parts = [os.read(fd, _BLOCK)]
        while len(parts[-1]) >= _PAGE:  # it gives a page at most, and less only at the end
            parts.append(os.read(fd, _BLOCK))
    except (ProcessLookupError, PermissionError):
        return None
    finally:
        os.close(fd)
    return b"".join(parts) or None
