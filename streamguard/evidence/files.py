"""The files of a run: appended to, replaced and read so that a crash at any point does no harm (E2).

- A line is appended by one write, to a file opened for appending, so that several processes can
  write one file. A line that was torn (a crash, a full disk) is ended by who writes next.
- A document is written beside its place, synced, and renamed into it.
- Files that grow are rotated: renamed, in place of an older one, by one process alone.

Everything is opened relative to the folder it is in, and no link is followed below the run's own
folder (E3). Nothing is written to what somebody else has prepared, and nothing of it is believed
(`trusted`): it would be theirs to read, or to say. Nothing is kept open in between. Knows nothing of
what is written.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from streamguard._base.posix import not_here

    raise not_here("evidence on disk")

import errno
import fcntl
import hashlib
import itertools
import json
import math
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from streamguard._base.defaults import LONGEST_LINE
from streamguard._base.trusted import UntrustedError, distrust_of, odd_kind

_LONGEST_NAME: Final = 100
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe or a device in a file's place must not make us wait.
_FILE: Final = _NO_LINK | os.O_NONBLOCK
_STALE: Final = 60.0
_A_WRITE: Final = 0.005
# Far more than is ever written, but for the whole of a file, which is four times its cap.
_LARGEST_DOCUMENT: Final = 16 << 20
_LOOKED_AT: Final = 256 << 10
_MOST_OF_LINES: Final = 256 << 20
_numbers: Final = itertools.count()
_encode: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def name_of(text: str) -> str:
    """`text` as the name of a file or folder: itself if that is safe, else unlike any other's."""
    safe = "".join(c if c.isalnum() or c in "-_.#" else "_" for c in text).lstrip(".")
    safe = safe.encode("utf-8", "replace")[:_LONGEST_NAME].decode("utf-8", "ignore")
    if safe == text and safe:
        return safe
    told_apart = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe or 'unnamed'}-{told_apart}"


def rotated(name: str) -> str:
    """What `name` is called when a newer one is in its place."""
    stem, dot, ending = name.rpartition(".")
    return f"{stem}.1{dot}{ending}"


def as_line(value: object) -> bytes:
    """`value` as one line of JSON; text that is no valid Unicode is escaped."""
    return _encode(value).encode("utf-8", "backslashreplace") + b"\n"


class Appended(NamedTuple):
    """Where lines were appended: to which file, by its inode, and where in it the last of them ends."""

    file: int
    end: int


class Folder:
    """A folder of a run, made (0700) when something is first written to it.

    A folder or file on the way that others have prepared, or may write to, is an UntrustedError. That
    a group may write to a folder is no harm: what it puts there is not ours, and so not written to.
    `is_anybodys`: the user has named this very place, whoever it belongs to.
    """

    def __init__(self, run: Path, *names: str, is_anybodys: bool = False) -> None:
        self._run = run
        self._names = names
        self._is_checked = not is_anybodys
        self._halves: list[str] = []  # what was found of replacements, whosever they are
        self._looked_for_halves = -math.inf
        self.path = run.joinpath(*names)

    def append(
        self,
        name: str,
        lines: Iterable[bytes],
        *,
        cap: int,
        header: bytes = b"",
        known: int | None = None,
        mark: bytes = b"",
        sync: bool = False,
    ) -> Appended:
        """Append `lines`, one write each, to a file that is rotated when it has `cap` bytes.

        `header` goes before the first of them in a file that is not the one `known` (by its inode);
        `mark` in one whose earlier part was rotated away by this call.
        """
        with self._opened() as folder:
            fd = self._open_to_append(name, folder)
            try:
                if is_new := os.fstat(fd).st_size >= cap and _rotate(fd, name, folder):
                    os.close(fd)
                    fd = -1
                    fd = self._open_to_append(name, folder)
                inode = os.fstat(fd).st_ino
                _end_torn_line(fd)
                if header and inode != known:
                    _write(fd, header)
                if mark and is_new:
                    _write(fd, mark)
                for line in lines:
                    _write(fd, line)
                end = os.lseek(fd, 0, os.SEEK_CUR)
                if sync:
                    os.fsync(fd)
            finally:
                if fd >= 0:
                    os.close(fd)
        return Appended(inode, end)

    def amend(self, name: str, before: bytes, after: bytes, *, end: int = 0) -> None:
        """Let a line that was appended be another one of the same length, where it still is.

        Only the bytes that differ are written, so that who reads it meanwhile reads a line. It is looked
        for where it ended when it was appended, and everywhere else only if it is not there.
        """
        others = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        first, last = others[0], others[-1]
        with self._opened() as folder:
            for each in (name, rotated(name)):
                with suppress(FileNotFoundError):
                    fd = self._open(each, folder, os.O_RDWR)
                    try:
                        if (at := _found(fd, before, end)) >= 0:
                            os.pwrite(fd, after[first : last + 1], at + first)
                            os.fsync(fd)
                            return
                    finally:
                        os.close(fd)

    def replace(self, name: str, data: bytes) -> None:
        """Let the file be `data`: after a crash it is what it was, or this."""
        with self._opened() as folder:
            self._drop_stale(name, folder)
            temporary = f".{name}.{os.getpid()}-{next(_numbers)}.tmp"
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=folder
            )
            try:
                try:
                    _write(fd, data)
                    os.fsync(fd)
                finally:
                    os.close(fd)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def _drop_stale(self, name: str, folder: int) -> None:
        """Remove what crashes have left of earlier replacements of that file."""
        now = time.monotonic()
        if now - self._looked_for_halves >= _STALE:  # not for each of the many that a run replaces
            self._looked_for_halves = now
            self._halves = [each for each in os.listdir(folder) if each.endswith(".tmp")]
        for half in self._halves:
            if half.startswith(f".{name}."):
                with suppress(OSError):
                    if time.time() - os.stat(half, dir_fd=folder).st_mtime > _STALE:
                        os.unlink(half, dir_fd=folder)

    @contextmanager
    def _opened(self) -> Generator[int, None, None]:
        self._run.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check(os.lstat(self._run), f"the run's folder, {self._run}")
        fd = os.open(self._run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check(os.fstat(fd), f"the run's folder, {self._run}")
            for name in self._names:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=fd)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=fd)
                os.close(fd)
                fd = inner
                self._check(os.fstat(fd), f"the folder {name}")
            yield fd
        finally:
            os.close(fd)

    def _open_to_append(self, name: str, folder: int) -> int:
        return self._open(name, folder, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def _open(self, name: str, folder: int, how: int) -> int:
        fd = os.open(name, how | _FILE, 0o600, dir_fd=folder)
        there = os.fstat(fd)
        try:
            _check_kind(there, name)
            self._check(there, f"the file {name}", os.fstat(folder))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(
        self, there: os.stat_result, what: str, around: os.stat_result | None = None
    ) -> None:
        if self._is_checked and (why := distrust_of(there, around)) is not None:
            raise UntrustedError(
                f"{what}: {why}. Make it this user's alone, or record into another folder",
                os.fspath(self.path),
            )


def _check_kind(there: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)


def _rotate(fd: int, name: str, folder: int) -> bool:
    """Rename the file, unless another process does so now; whether it is to be opened anew."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    # Who holds the lock of what is there now, is the one to rename it.
    with suppress(FileNotFoundError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(fd).st_ino:
            os.replace(name, rotated(name), src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _end_torn_line(fd: int) -> None:
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        time.sleep(_A_WRITE)  # another process may be in the midst of writing it
        before, size = size, os.fstat(fd).st_size
        if size == before:
            _write(fd, b"\n")
            return


def _found(fd: int, line: bytes, end: int) -> int:
    """Where that line begins; -1 if it is not there. What was written last is looked at first."""
    expected = end - len(line)
    if expected >= 0 and os.pread(fd, len(line), expected) == line:
        return expected
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _LOOKED_AT)
        at = os.pread(fd, end - start + len(line) - 1, start).rfind(line)
        if at >= 0:
            return start + at
        end = start
    return -1


def _write(fd: int, data: bytes) -> None:
    """All of it: in one write, unless the system takes less, and then most likely fails."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


# -- reading -------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of lines, its rotated part first; torn lines are passed over.

    An UntrustedError for what others can have written.
    """
    for part in (path.with_name(rotated(path.name)), path):
        try:
            file = open_to_read(part)
        except FileNotFoundError:
            continue
        with file:
            for line in lines_of(file):
                if (value := _parsed(line)) is not None:
                    yield value


def read_document(path: Path, *, is_anybodys: bool = False) -> dict[str, Any] | None:
    """The object in a file; None if there is none. UntrustedError as `read_lines`."""
    try:
        file = open_to_read(path, is_anybodys=is_anybodys)
    except FileNotFoundError:
        return None
    with file:
        data = file.read(_LARGEST_DOCUMENT + 1)
    if len(data) > _LARGEST_DOCUMENT:
        raise UntrustedError(f"it is larger than {_LARGEST_DOCUMENT >> 20} MB", os.fspath(path))
    return _parsed(data)


def open_to_read(path: Path, *, is_anybodys: bool = False) -> BinaryIO:
    """A regular file, opened without waiting. `is_anybodys`: a person reads it, and nothing obeys."""
    fd = os.open(path, os.O_RDONLY | (os.O_NONBLOCK | os.O_CLOEXEC if is_anybodys else _FILE))
    there = os.fstat(fd)
    why = odd_kind(there)
    if why is None and not is_anybodys:
        why = distrust_of(there, path.parent.stat())
    if why is not None:
        os.close(fd)
        raise UntrustedError(why, os.fspath(path))
    return os.fdopen(fd, "rb")


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, as far as it is of any use; of a line that is too long, its beginning."""
    is_rest = False
    while file.tell() < _MOST_OF_LINES and (line := file.readline(LONGEST_LINE)):
        if not is_rest:
            yield line
        is_rest = not line.endswith(b"\n")


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
