"""`--transcript FILE`: what the command writes to a file, as evidence that it goes on.

Nothing polls. The file is looked at when a silence is about to be judged, and the time of its last
change says since when nothing has come. What it held before the attempt does not count, also where
it is replaced by a file that begins with the same.

A disk may stand still and a name may lead anywhere, so each look is taken by a process of its own,
for a moment at most. Only regular files are opened. Imports the standard library.
"""

from __future__ import annotations

import marshal
import os
import select
import stat
import time

from streamguard.runner import aside

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# How long a look may take, in seconds.
_BOUND = 1.0
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# By how much of its end earlier content is known again. With it an answer is one write to a pipe.
_END = 1024
_MOST = 4096
_PORTION = 1 << 20
# A file's clock may be one tick behind ours.
_TICK = 0.02
# Where the wall clock was set meanwhile, the times of files say nothing.
_SET = 1.0


class TranscriptError(Exception):
    """The file cannot be looked at; the text says why."""


class Seen:
    """What a look has found: `last` is when something last came, None if nothing did.

    `has_json`: a JSON object is among it, as a line that was whole in time.
    """

    def __init__(self, last: float | None = None, *, has_json: bool = False) -> None:
        self.last = last
        self.has_json = has_json


class Transcript:
    """What comes to a file from now on. TranscriptError if it is none that can be looked at."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self.path = path
        self._say = say
        self._told: set[str] = set()
        if not os.path.isabs(path):
            raise TranscriptError(
                "it is no absolute path, and the folder that we are in was removed"
            )
        found = _ask(lambda: _found(path))
        self._before: tuple[int, bytes] = (found["size"], found["end"]) if found else (0, b"")
        self._known = _identity(found)
        self._looked = time.monotonic()
        self._offset = time.time() - self._looked

    def look(self, json_by: float | None = None) -> Seen:
        """What has come since the last look; with `json_by`, whether a JSON line came until then."""
        size, end = self._before
        try:
            found = _ask(lambda: _found(self.path, size, end, wants_json=json_by is not None))
        except TranscriptError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._say(f"--transcript {self.path}: {error}")
            return Seen()
        since, self._looked = self._looked, time.monotonic()
        offset, self._offset = self._offset, time.time() - self._looked
        was_set = abs(self._offset - offset) > _SET
        if not found or not found["size"]:
            return Seen()
        changed = found["at"] - (found["wall"] - found["mtime"])
        has_json = found["json_end"] is not None
        if has_json and json_by is not None and not was_set and found["json_end"] == found["size"]:
            # Its last byte was written at that time, unless it is the time of another clock.
            has_json = not json_by < changed <= self._looked
        if _identity(found) == self._known:
            return Seen(has_json=has_json)
        self._known = _identity(found)
        return Seen(self._looked if was_set else _when(found, since), has_json=has_json)


def _when(found: dict[str, Any], since: float) -> float:
    """When it last changed, if its times can be right, else now: what came, came meanwhile.

    A file that was moved there has the time of its own last change, and that of the move.
    """
    now: float = found["at"]
    for time_of in ("mtime", "ctime"):
        at: float = now - (found["wall"] - found[time_of])
        if since - _TICK <= at <= now + _TICK:
            return max(since, min(at, now))
    return now


def _identity(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(found.get(name) for name in ("file", "size", "mtime"))


def _ask(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` finds, done by a process that may not come back."""
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise TranscriptError(str(error.strerror)) from None

    def answer() -> None:
        try:
            told: dict[str, Any] | str = work()
        except TranscriptError as error:
            told = str(error)
        except OSError as error:
            told = f"it cannot be read: {error.strerror}"
        os.write(writing, marshal.dumps(told))

    try:
        pid = aside.fork(answer, (writing,))
    except OSError as error:
        os.close(reading)
        raise TranscriptError(str(error.strerror)) from None
    finally:
        os.close(writing)
    came = b""
    try:
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        came = os.read(reading, _MOST) if poll.poll(_BOUND * 1e3) else b""
    finally:
        os.close(reading)
        aside.dismiss(pid, 0.0 if not came else 0.1)
    if not came:
        raise TranscriptError(f"it could not be looked at in {_BOUND:g} s")
    told = marshal.loads(came)  # noqa: S302 - our own process
    if isinstance(told, str):
        raise TranscriptError(told)
    found: dict[str, Any] = told
    return found


def _found(
    path: str, size_before: int = 0, end_before: bytes = b"", *, wants_json: bool = False
) -> dict[str, Any]:
    """What the file is like now; empty if there is none."""
    try:
        _check(os.stat(path))
        fd = os.open(path, _OPEN)
    except FileNotFoundError:
        return {}
    try:
        found = os.fstat(fd)
        _check(found)
        size = found.st_size
        goes_on = size >= size_before and end_before == os.pread(
            fd, len(end_before), size_before - len(end_before)
        )
        start = size_before if goes_on else 0
        return {
            "at": time.monotonic(),
            "wall": time.time(),
            "file": (found.st_dev, found.st_ino),
            "size": size,
            "mtime": found.st_mtime,
            "ctime": found.st_ctime,
            "end": os.pread(fd, _END, max(0, size - _END)),
            "json_end": _end_of_json(fd, start, size) if wants_json else None,
        }
    finally:
        os.close(fd)


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise TranscriptError(f"it is {kind}; name the file that the command writes")


def _end_of_json(fd: int, start: int, size: int) -> int | None:
    """Where the first line ends that is a JSON object, from `start` on; None if there is none."""
    from streamguard.runner.lines import MAX_LINE, object_in

    line, at = bytearray(), start
    while at < size and at - start < MAX_LINE:
        portion = os.pread(fd, min(_PORTION, size - at), at)
        if not portion:
            return None
        at += len(portion)
        line += portion
        while (end := line.find(b"\n")) >= 0:
            if object_in(bytes(line[:end])) is not None:
                return at - (len(line) - end - 1)
            del line[: end + 1]
    return None
