"""What runs on this machine are doing, for whoever wants to look (`streamguard top`).

One small file for each guarded run, in a folder of the user's own (0700):

    ${XDG_RUNTIME_DIR}/streamguard/PID-SERIAL.json    or, without that variable,
    ${TMPDIR:-/tmp}/streamguard-UID/PID-SERIAL.json

It is one JSON object, replaced as a whole (write, rename), at most once a second and at every
change of state, and removed at the end:

    version           1
    pid, started      the guarding process; `started` is field 22 of its /proc/PID/stat (0: unknown)
    written           when it was written, in seconds since the epoch
    boot              the same on the monotonic clock, for ages that a set clock does not change
    kind              "run", or "stream" for a stream guarded by the library
    name              the command, or the activity's name
    state             of a run "working" (a turn is open), "between turns" or "stopping"; of a stream
                      its activity's `status`
    child             the pid of what is guarded, or null
    attempt           from 1
    messages          how many were seen
    age               seconds since the run began, at `written`
    last_message_age  seconds since the last message, at `written`; null: none was seen
    last_signal       what that message said (`Progress`, `WorkStarted`, ...), or null
    in_flight         names of the work in flight
    limits            the limits in force, in seconds, by name
    session_id        the agent's session, or null

No prompt, no argument and no output is in it (E3). A file whose process is gone, or has another
start time, is stale: `read_all` passes it over and removes it. Standard library only.
"""

from __future__ import annotations

import json
import os
import stat
import time
from contextlib import suppress
from typing import Any, Final, Self, cast

from streamguard import trusted

VERSION: Final = 1
_MOST: Final = 1 << 20


class UnsafeFolderError(Exception):
    """The folder for these files belongs to somebody else, or is open to others."""


class Published:
    """One run's file."""

    _serial = 0

    def __init__(self, folder: str | None) -> None:
        self._started = _started(os.getpid()) or 0
        self._path: str | None = None
        if folder is not None:
            Published._serial += 1
            self._path = f"{folder}/{os.getpid()}-{Published._serial}.json"

    @classmethod
    def for_this_process(cls) -> Self:
        """A file of this process's; one that is never written, if there is no folder for it."""
        try:
            return cls(folder(create=True))
        except (OSError, UnsafeFolderError):
            return cls(None)

    @property
    def path(self) -> str | None:
        """Where it is; None: nowhere."""
        return self._path

    def write(self, **state: Any) -> None:
        """Say how it goes now. What goes wrong is nobody's concern: this is a courtesy."""
        if self._path is None:
            return
        told = {
            "version": VERSION,
            "pid": os.getpid(),
            "started": self._started,
            "written": time.time(),
            "boot": time.monotonic(),
            **state,
        }
        beside = f"{self._path}.new"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(told, file)
            os.replace(beside, self._path)
        except OSError:
            self._path = None  # the folder is gone, or the disk is full

    def remove(self) -> None:
        """It is over."""
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)


def folder(*, create: bool = False) -> str:
    """The user's own folder for these files. UnsafeFolderError if it is not only the user's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        path = f"{runtime}/streamguard"
    else:
        path = f"{os.environ.get('TMPDIR') or '/tmp'}/streamguard-{os.getuid()}"  # noqa: S108 - checked below
    if create:
        with suppress(FileExistsError):
            os.mkdir(path, mode=0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UnsafeFolderError(f"{path} is not a folder of this user's alone")
    return path


def read_all() -> list[dict[str, Any]]:
    """What all runs of this user say of themselves; stale files are removed."""
    try:
        home = folder()
        names = sorted(name for name in os.listdir(home) if name.endswith(".json"))
    except (OSError, UnsafeFolderError):
        return []
    found: list[dict[str, Any]] = []
    for name in names:
        with suppress(OSError, ValueError, RecursionError):
            path = f"{home}/{name}"
            said = json.loads(trusted.read(path, _MOST))
            if not isinstance(said, dict):
                continue
            told = cast("dict[str, Any]", said)
            if told.get("version") != VERSION:
                continue
            if _is_alive(told):
                found.append(told)
            else:
                os.unlink(path)
    return found


def _is_alive(told: dict[str, Any]) -> bool:
    pid, started = told.get("pid"), told.get("started")
    if not isinstance(pid, int):
        return False
    if not os.path.exists("/proc/self/stat"):
        # Only a signal can tell then, and it cannot tell one process from the next.
        return _takes_signals(pid)
    now = _started(pid)
    return now is not None and (not started or now == started)


def _started(pid: int) -> int | None:
    """When a process began, as its /proc/PID/stat has it; None if it is dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
