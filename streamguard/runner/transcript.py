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
import stat
import time

from streamguard.runner import aside

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    # By what the file is known again that was searched, where to go on, and whether within a line.
    Searched: TypeAlias = tuple[tuple[Any, bytes], int, bool] | None

# How long a look may take, in seconds; and of that the search for a JSON line.
_BOUND = 1.0
_SEARCHING = 0.5
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# By how much of its beginning and end earlier content is known again: what it held before the
# attempt, and what a look has searched. An answer with it fits into a pipe.
_KEPT = 16 * 1024
_KNOWN = 512
_PORTION = 1 << 17
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
        found = _ask(lambda: _found(path, keeps=_KEPT))
        self._before: tuple[int, bytes, bytes] = (0, b"", b"")
        if found:
            self._before = (found["size"], found["head"], found["end"])
        self._searched: Searched = None
        self._known = _identity(found)
        self._looked = time.monotonic()
        self._offset = time.time() - self._looked

    def look(self, json_by: float | None = None) -> Seen:
        """What has come since the last look; with `json_by`, whether a JSON line came until then."""
        wants_json = json_by is not None
        try:
            found = _ask(
                lambda: _found(self.path, self._before, self._searched, wants_json=wants_json)
            )
        except TranscriptError as error:
            self._say_once(str(error))
            return Seen()
        since, self._looked = self._looked, time.monotonic()
        offset, self._offset = self._offset, time.time() - self._looked
        was_set = abs(self._offset - offset) > _SET
        if not found:
            self._say_once("there is no such file yet")
        if not found or not found["size"]:
            return Seen()
        if wants_json:
            self._searched = found["searched"]
            if found["json_end"] is None and not found["is_whole"]:
                self._say_once(f"no JSON line was found in it in {_BOUND:g} s, and there is more")
        changed = found["at"] - (found["wall"] - found["mtime"])
        has_json = found["json_end"] is not None
        if has_json and json_by is not None and not was_set and found["json_end"] == found["size"]:
            # Its last byte was written at that time, unless it is the time of another clock.
            has_json = not json_by < changed <= self._looked
        if _identity(found) == self._known:
            return Seen(has_json=has_json)
        self._known = _identity(found)
        return Seen(self._looked if was_set else _when(found, since), has_json=has_json)

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(f"--transcript {self.path}: {text}")


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

    def answer() -> bytes:
        try:
            told: dict[str, Any] | str = work()
        except TranscriptError as error:
            told = str(error)
        except OSError as error:
            told = f"it cannot be read: {error.strerror}"
        return marshal.dumps(told)

    try:
        came = aside.asked(answer, _BOUND)
    except OSError as error:
        raise TranscriptError(str(error.strerror)) from None
    if not came:
        raise TranscriptError(f"it could not be looked at in {_BOUND:g} s")
    told = marshal.loads(came)  # noqa: S302 - our own process
    if isinstance(told, str):
        raise TranscriptError(told)
    found: dict[str, Any] = told
    return found


def _found(
    path: str,
    before: tuple[int, bytes, bytes] = (0, b"", b""),
    searched: Searched = None,
    *,
    keeps: int = 0,
    wants_json: bool = False,
) -> dict[str, Any]:
    """What the file is like now; empty if there is none.

    `before`: its size, beginning and end at the start of the attempt. `keeps`: so many bytes of its
    beginning and end are told. `searched`: where an earlier look got to.
    """
    by = time.monotonic() + _SEARCHING
    try:
        _check(os.stat(path))
        fd = os.open(path, _OPEN)
    except FileNotFoundError:
        return {}
    try:
        found = os.fstat(fd)
        _check(found)
        size = found.st_size
        told: dict[str, Any] = {
            "at": time.monotonic(),
            "wall": time.time(),
            "file": (found.st_dev, found.st_ino),
            "size": size,
            "mtime": found.st_mtime,
            "ctime": found.st_ctime,
            "json_end": None,
        }
        if keeps:
            told["head"] = os.pread(fd, keeps, 0)
            told["end"] = os.pread(fd, keeps, max(0, size - keeps))
        if wants_json:
            start, is_within = _old(fd, size, *before), False
            if searched is not None and searched[0] == (told["file"], _known_by(fd, searched[1])):
                start, is_within = max((start, False), searched[1:])
            told |= _search(fd, start, size, by, is_within=is_within)
            at, is_within = told["searched"]
            told["searched"] = ((told["file"], _known_by(fd, at)), at, is_within)
        return told
    finally:
        os.close(fd)


def _known_by(fd: int, at: int) -> bytes:
    """By what it is known again that what stands before `at` is what stood there."""
    return os.pread(fd, min(_KNOWN, at), 0) + os.pread(fd, min(_KNOWN, at), max(0, at - _KNOWN))


def _old(fd: int, size: int, size_before: int, head: bytes, end: bytes) -> int:
    """How much of the file was there before: all of it, or what an earlier content was cut to."""
    if size >= size_before and end == os.pread(fd, len(end), size_before - len(end)):
        return size_before
    now = os.pread(fd, _KEPT, 0)
    if size == len(now) and (now in head or now in end):
        is_old = size
    else:
        is_old = _common(now, head)
        at = end.find(now[:1])
        while 0 <= at < len(end) - is_old:
            if now.startswith(end[at:]):
                is_old = len(end) - at
            at = end.find(now[:1], at + 1)
    return now.rfind(b"\n", 0, is_old) + 1  # a line that has changed is new


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise TranscriptError(f"it is {kind}; name the file that the command writes")


def _common(a: bytes, b: bytes) -> int:
    """How much of their beginnings is the same."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(a), len(b)))


def _search(fd: int, at: int, size: int, by: float, *, is_within: bool) -> dict[str, Any]:
    """Look for a line that is a JSON object, from `at` to `size`, until the time `by`.

    `json_end`: where the first one ends. `searched`: where to go on, which is the beginning of a line,
    or the midst of one that is too long to be any. `is_whole`: whether `size` was reached.
    """
    from streamguard._base.defaults import LONGEST_LINE
    from streamguard.runner.json_lines import object_in

    begun = bytearray()  # a line, from `at` on
    while (read := at + len(begun)) < size and time.monotonic() < by:
        portion = os.pread(fd, min(_PORTION, size - read), read)
        if not portion:
            break
        whole, newline, begins = portion.rpartition(b"\n")
        if newline:
            for line in (bytes(begun) + whole).split(b"\n"):
                end = at + len(line) + 1
                if not is_within and len(line) <= LONGEST_LINE and object_in(line) is not None:
                    return {"json_end": end, "searched": (at, False), "is_whole": True}
                at, is_within = end, False
            begun.clear()
        begun += begins
        if is_within or len(begun) > LONGEST_LINE:
            at, is_within = at + len(begun), True
            begun.clear()
    return {"json_end": None, "searched": (at, is_within), "is_whole": read >= size}
