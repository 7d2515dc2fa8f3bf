"""What runs on this machine are doing, for whoever wants to look (`streamguard top`).

One small file for each guarded run, in a folder of the user's own (0700):

    ${XDG_RUNTIME_DIR}/streamguard/PID-SERIAL.json    or, without that variable,
    ${TMPDIR:-/tmp}/streamguard-UID/PID-SERIAL.json

It is one JSON object, replaced as a whole (write, rename) when something has changed, at most once a
second and at every change of state, and removed at the end:

    version           1
    pid, started      the guarding process; `started` is field 22 of its /proc/PID/stat (0: unknown)
    written           when it was written, in seconds since the epoch
    boot              the same on the monotonic clock, for ages that a set clock does not change
    kind              "run", or "stream" for a stream guarded by the library
    name              the command, or what the stream is called (`Activity.display_name`)
    state             of a run "working" (a turn is open), "between turns", "stopping", or until when it waits for a
                      usage limit; of a stream its activity's `status`
    backend           whose messages come (`claude`, `codex`, ...), or null while nobody knows
    child             the pid of what is guarded, or null
    attempt           from 1
    messages          how many were seen
    age               seconds since the run began, at `written`
    last_message_age  seconds since the last message, at `written`; null: none was seen
    last_signal       what that message said (`Progress`, `WorkStarted`, ...), or null
    in_flight         names of the work in flight
    concern           the limit of the latest concern (quiet, repeats, tokens, ...), or null
    limits            the limits in force, in seconds, by name
    session_id        the agent's session, or null

No prompt, no argument and no output is in it (E3). A file whose process is gone, or has another
start time, is stale: `read_all` passes it over and removes it, and what such a process was writing
when it died. Imports procfs.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self, cast

from streamguard._base import trusted
from streamguard._base.own_folder import UnsafeFolderError, own_folder

VERSION: Final = 1
# No file of ours comes near it, in bytes.
LARGEST: Final = 1 << 20
_LONGEST_VALUE: Final = LARGEST // 16

# No number that means anything is larger, be it an instant or a count.
_MOST: Final = 1e15


_NEW: Final = ".new"
_BESIDE: Final = f".json{_NEW}"
_LEFT: Final = 3600.0
# Nothing that lies there in its place is followed, or waited for.
_ANEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Published:
    """One run's file."""

    _serial = 0

    def __init__(self, folder: str | None, started: float | None = None) -> None:
        self._started = _started() if started is None else started
        self._path: str | None = None
        if folder is not None:
            Published._serial += 1
            self._path = f"{folder}/{os.getpid()}-{Published._serial}.json"

    @classmethod
    def for_this_process(cls, started: float | None = None) -> Self:
        """A file of this process's; one that is never written, if there is no folder for it.

        Who knows when it `started`, as procfs says it, need not import what does.
        """
        try:
            return cls(folder(create=True), started)
        except (OSError, UnsafeFolderError):
            return cls(None, started)

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
        text = json.dumps(told)
        if len(text) > _LONGEST_VALUE:
            text = json.dumps(_bounded(told))
        beside = f"{self._path}{_NEW}"
        try:
            fd = os.open(beside, _ANEW, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(beside, self._path)
        except OSError:
            self._path = None  # the folder is gone, or the disk is full

    def remove(self) -> None:
        """It is over."""
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)


def _bounded(told: dict[str, Any]) -> dict[str, Any]:
    """Without what would make nobody read it: a backend may name its session, or its work, at any length."""
    return {
        name: value
        for name, value in told.items()
        if not isinstance(value, str | list) or len(json.dumps(value)) <= _LONGEST_VALUE
    }


def folder(*, create: bool = False) -> str:
    """The user's own folder for these files. UnsafeFolderError if it is not only the user's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        path = f"{runtime}/streamguard"
    else:
        path = f"{os.environ.get('TMPDIR') or '/tmp'}/streamguard-{os.getuid()}"  # noqa: S108 - checked below
    return own_folder(path, create=create)


def read_all() -> list[dict[str, Any]]:
    """What all runs of this user say of themselves; stale files are removed.

    What is no file of this kind is passed over, whatever it is: a link, a pipe, a folder, somebody
    else's, one of more than 1 MiB, no JSON. Of a field with another type than it should have
    nothing is told.
    """
    try:
        home = folder()
        there = sorted(os.listdir(home))
    except (OSError, UnsafeFolderError):
        return []
    from streamguard.process import procfs

    is_alive = functools.cache(_is_alive)  # a program may have many
    found: list[dict[str, Any]] = []
    for name in there:
        if name.endswith(_BESIDE):
            _remove_if_left(f"{home}/{name}")
        if not name.endswith(".json"):
            continue
        path = f"{home}/{name}"
        with suppress(OSError, ValueError, RecursionError):
            told = _believable(json.loads(trusted.read(path, LARGEST)))
            if told.get("version") != VERSION or "pid" not in told:
                continue
            if is_alive(told["pid"], told.get("started", 0)):
                found.append(told)
            elif procfs.is_there():  # without it we may only be in another namespace
                os.unlink(path)
    return found


def _remove_if_left(path: str) -> None:
    """Remove what nobody has gone on with for so long: its process was killed while it wrote."""
    with suppress(OSError):
        if abs(time.time() - os.lstat(path).st_mtime) > _LEFT:
            os.unlink(path)


def _believable(said: object) -> dict[str, Any]:
    """The fields that are what they should be."""
    if not isinstance(said, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - as what is no JSON
    told = cast("dict[str, object]", said)
    return {
        field: told[field]
        for field, is_right in _FIELDS.items()
        if field in told and is_right(told[field])
    }


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    # `bool` is an int; and comparing with an int of any size raises nothing, as its float would.
    return type(value) in (int, float) and -_MOST < cast("float", value) < _MOST


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_pid(value: object) -> bool:
    from streamguard.process.procfs import LARGEST_PID

    return _is_count(value) and 0 < cast("int", value) <= LARGEST_PID


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[object]", value)))


def _are_limits(value: object) -> bool:
    return isinstance(value, dict) and all(
        limit is None or _is_number(limit) for limit in cast("dict[str, object]", value).values()
    )


def _or_null(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_right(value)


_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "version": _is_count,
    "pid": _is_pid,
    "started": _is_number,
    "written": _is_number,
    "boot": _is_number,
    "kind": _is_text,
    "name": _is_text,
    "state": _is_text,
    "backend": _or_null(_is_text),
    "child": _or_null(_is_pid),
    "attempt": _is_count,
    "messages": _is_count,
    "age": _is_number,
    "last_message_age": _or_null(_is_number),
    "last_signal": _or_null(_is_text),
    "in_flight": _are_texts,
    "concern": _or_null(_is_text),
    "limits": _are_limits,
    "session_id": _or_null(_is_text),
}


def _is_alive(pid: int, started: float) -> bool:
    from streamguard.process import identity, procfs

    if not procfs.is_there():
        # Only a signal can tell then, and it cannot tell one process from the next.
        return identity.takes_signals(pid)
    now = procfs.read_stat(pid)
    return now is not None and not now.is_dead and (not started or now.started == started)


def _started() -> float:
    from streamguard.process import procfs

    with suppress(OSError):
        ours = procfs.read_stat(os.getpid())
        return 0.0 if ours is None else ours.started
    return 0.0
