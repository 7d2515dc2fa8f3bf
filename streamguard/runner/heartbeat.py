"""`--heartbeat`: a file that is renewed while the run is well, for probes that look at its time.

A process of ours writes it: a disk that stands still holds nobody up, it only lets the file grow old. The file
is replaced as a whole, and removed when we are gone, in whatever way. Where it cannot be replaced, as on a full
disk, its time alone is set, so that a run that is well does not look dead. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from streamguard._base import defaults
from streamguard.runner import aside
from streamguard.runner.status import meant, replace

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable

# What it takes, at most, that the file is gone, in seconds.
_LEAVING = 1.0


class Heartbeat:
    """The front's end of it."""

    every = defaults.HEARTBEAT

    def __init__(self, path: str, complain: Callable[[str], None]) -> None:
        self._path = path
        self._complain = complain
        self._pid: int | None = None
        self._beats = self._answers = -1
        self._is_told = False

    def beat(self) -> None:
        """Have the file renewed."""
        self._hear()
        if self._pid is None:
            self._start()
        try:
            if self._pid is not None:
                os.write(self._beats, b".")
        except BlockingIOError:  # it waits for its disk
            pass
        except OSError:  # it was killed: the next beat starts another
            self._let_go()

    def close(self) -> None:
        """The run is over: so is the file."""
        if self._pid is None:
            return
        os.close(self._beats)
        self._beats = -1
        aside.outwait(self._pid, _LEAVING)
        self._hear()
        self._let_go()

    def _start(self) -> None:
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            reading, self._beats, self._answers, telling = ends
            path, us = self._path, os.getpid()
            self._pid = aside.fork(
                lambda: _write(path, f"{us}\n".encode(), reading, telling), (reading, telling)
            )
        except OSError as error:
            for fd in ends:
                os.close(fd)
            self._beats = self._answers = -1
            self._tell(str(error.strerror))
            return
        os.close(reading)
        os.close(telling)
        os.set_blocking(self._beats, False)
        os.set_blocking(self._answers, False)

    def _hear(self) -> None:
        """What is wrong with the file, if anything is."""
        if self._answers < 0:
            return
        try:
            said = os.read(self._answers, 4096)
        except BlockingIOError:
            return
        if said:
            self._tell(said.decode(errors="replace").splitlines()[0])

    def _tell(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._complain(f"--heartbeat {self._path}: {why}")

    def _let_go(self) -> None:
        if self._pid is not None:
            aside.dismiss(self._pid, 0.0)
            self._pid = None
        for fd in (self._beats, self._answers):
            if fd >= 0:
                os.close(fd)
        self._beats = self._answers = -1


def _write(path: str, text: bytes, reading: int, telling: int) -> None:
    """Renew the file whenever we are told to, and remove it when nobody is left to tell us."""
    said, is_ours = "", False
    while os.read(reading, 4096):  # however many beats came meanwhile, they are one by now
        try:
            why = _renewed(path, text)
            is_ours = True
        except OSError as error:
            why = str(error.strerror)
        if why and why != said:
            os.write(telling, f"{why}\n".encode())
        said = why
    if is_ours:
        os.unlink(meant(path))


def _renewed(path: str, text: bytes) -> str:
    """Renew the file; what is wrong, if only its time could be set. OSError if not even that."""
    path = meant(path)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "it exists, and is not a file")
        is_there = True
    except FileNotFoundError:
        is_there = False
    try:
        replace(path, text, 0o644)
    except OSError as error:
        if not is_there:
            raise
        os.utime(path)
        return str(error.strerror)
    return ""
