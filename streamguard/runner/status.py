"""`--status-file`: how a run ended, as one JSON object, whole or not at all.

Written by a process of its own, for a moment at most: a pipe that nobody reads, or a disk that stands
still, keeps nobody. It is readable by us alone, for a session's id is in it. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

from streamguard.runner import aside
from streamguard.runner.outbox import write_all

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/")
_NOBODY = "nobody reads it"
_OVER = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def write(path: str, told: dict[str, Any], bound: float) -> str | None:
    """What is wrong, if it could not be written within `bound` seconds."""
    import json

    text = (json.dumps(told) + "\n").encode()

    def work() -> bytes:
        try:
            _write(path, text)
        except OSError as error:
            return (_NOBODY if error.errno == errno.ENXIO else str(error.strerror)).encode()
        return b"."

    try:  # it keeps all of our descriptors: one of them may be what `path` names
        said = aside.asked(work, bound, keep=None)
    except OSError as error:
        return error.strerror
    return None if said == b"." else said.decode() or f"it was not written in {bound:g} s"


def _write(path: str, text: bytes) -> None:
    if not path.startswith(_DESCRIPTORS):
        path = meant(path)
        try:
            is_file = stat.S_ISREG(os.lstat(path).st_mode)
        except FileNotFoundError:
            is_file = True
        if is_file:
            _replace_or_overwrite(path, text)
            return
    write_all(_opened(path), text)


def _replace_or_overwrite(path: str, text: bytes) -> None:
    """A file that is mounted by itself, as Kubernetes' termination log is, cannot be replaced."""
    try:
        replace(path, text)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        fd = os.open(path, _OVER)
        write_all(fd, text)


def meant(path: str) -> str:
    """Where a link leads that we, or root, have made: to replace the link is not what was asked."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return path
    if stat.S_ISLNK(found.st_mode):
        if found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it is a link that another user has made")
        return os.path.realpath(path)
    return path


def _opened(path: str) -> int:
    try:
        return os.open(path, _THERE)
    except OSError as error:
        name = os.path.basename(path)
        number = "2" if name == "stderr" else name
        is_socket = error.errno == errno.ENXIO and stat.S_ISSOCK(os.stat(path).st_mode)
        if not (is_socket and path.startswith(_DESCRIPTORS) and number.isdigit()):
            raise
        return int(number)  # it is ours, and no socket can be opened anew


def replace(path: str, text: bytes, mode: int = 0o600) -> None:
    """Make that the file's content, at one instant. OSError if it stays as it was."""
    beside = f"{path}.{os.urandom(6).hex()}"
    fd = os.open(beside, _NEW, mode)
    try:
        try:
            write_all(fd, text)
        finally:
            os.close(fd)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
