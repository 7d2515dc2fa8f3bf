"""A file that one program at a time has, and in which it says who it is.

`flock`, so that the kernel lets go of it with the program that has it, however that ends:

- A child that is forked and goes on without exec closes its copy at once; one that executes something
  has none. So nobody keeps it alive but who has taken it.
- Two takers in one program are two: the second is refused like any other.
- Who lets go of it removes the file. So who has got the lock looks whether the file is still the one
  that all others would find.
- What is written into it is read by others while it is written: it carries a checksum.

Standard library alone; knows nothing of programs or of what they do with it. Where there is no
`flock` (Windows, some file systems), taking raises an OSError.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from typing import Any, Final, Self

from streamguard._base.trusted import UntrustedError, distrust_of, odd_kind

_OPEN: Final = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_PEEK: Final = _OPEN & ~(os.O_RDWR | os.O_CREAT) | os.O_RDONLY
# How often a file may be removed between our opening and our locking it.
_TRIES: Final = 1000
# No text of ours comes near it, in bytes.
_LARGEST: Final = 1 << 16


class FileLock:
    """The lock on one file, taken."""

    def __init__(self, path: str, fd: int) -> None:
        self.path: Final = path
        self._fd: int | None = fd
        _taken.add(self)

    @classmethod
    def take(cls, path: str) -> Self | None:
        """The lock, if nobody has it; at once. The file is made if it is not there.

        Raises:
            OSError: If such a lock cannot be had there, or what is there is not to be trusted.
        """
        for _ in range(_TRIES):
            fd = os.open(path, _OPEN, 0o600)
            try:
                there = os.fstat(fd)
                if (why := odd_kind(there) or distrust_of(there)) is not None:
                    raise UntrustedError(why, path)
                if not _lock(fd):
                    return None
                if _is_at(path, there):
                    lock, fd = cls(path, fd), -1
                    return lock
            finally:
                if fd >= 0:
                    os.close(fd)
        raise BlockingIOError(f"{path} is removed each time that it is opened")

    @property
    def is_held(self) -> bool:
        """Whether it was neither let go, nor is this a fork of the program that has it."""
        return self._fd is not None

    def share(self) -> int:
        """A further descriptor of it, which forks keep: who has one has the lock until it is released.

        It is none of the standard ones.
        """
        if self._fd is None:
            raise OSError(errno.EBADF, "it was let go", self.path)
        fcntl = _fcntl()
        fd: int = fcntl.fcntl(self._fd, fcntl.F_DUPFD_CLOEXEC, 3)
        return fd

    def read(self) -> str | None:
        """What the last one who had it has written; None if that cannot be read, "" if nothing."""
        return "" if self._fd is None else _text_in(self._fd)

    def write(self, text: str) -> None:
        """Write that in its place. OSError if it cannot be written."""
        if self._fd is None:
            return
        said = text.encode()
        data = b"%s\n%s\n" % (_sum(said), said)
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def release(self, *, keep_file: bool = False) -> None:
        """Let go of it, and remove the file, unless the next one is to read it."""
        if self._fd is None:
            return
        if not keep_file:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            with suppress(OSError):
                os.unlink(self.path)
        _unlock(self._fd)  # a fork may not yet have closed its copy
        self.close()

    def close(self) -> None:
        """Close our copy of it, and no more."""
        _taken.discard(self)
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def peek(path: str) -> str | None:
    """What the one who has it has written; None if that cannot be read just now, "" if nothing."""
    try:
        fd = os.open(path, _PEEK)
    except OSError:
        return None
    try:
        return _text_in(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    fcntl = _fcntl()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(fd: int) -> None:
    fcntl = _fcntl()
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


def _fcntl() -> Any:
    try:
        import fcntl
    except ImportError as error:
        raise OSError(errno.ENOSYS, "this system has no flock") from error
    return fcntl


def _is_at(path: str, there: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)


def _text_in(fd: int) -> str | None:
    data = os.pread(fd, _LARGEST, 0)
    if not data:
        return ""
    claimed, _, rest = data.partition(b"\n")
    said = rest.partition(b"\n")[0]
    if claimed != _sum(said):
        return None
    return said.decode(errors="replace")


def _sum(said: bytes) -> bytes:
    return hashlib.sha256(said).hexdigest()[:16].encode()


_taken: Final[set[FileLock]] = set()


def _close_copies() -> None:
    for lock in tuple(_taken):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)
