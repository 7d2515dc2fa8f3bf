"""Files from elsewhere: opened once, without waiting, and looked at before they are believed.

As sshd and git do with theirs. A file is trusted if only we and root can have written it:

- It and the folder it lies in belong to us or to root, who could do all of it anyway.
- Not everybody may write to them. A sticky folder, such as /tmp, may be written to by all: there
  nobody can replace what is another's. But anybody could give a file of ours a second name, so
  there it must have only one.
- No group may write to the file but one that its owner is alone in: of the owner's name, without
  other members, as useradd makes it for each user. The folder's group does not matter: it can put
  other files there, but none that belong to us.
- A link to it passes the same examination, and so does each further link that it leads to.

Whatever it is, it is a regular file of bounded size, and opening it waits for nothing: a pipe would
make us wait for its writer. So who runs as root is never ruled by other users' files.

Knows nothing of what is in the files. Standard library only, and cheap to import: `streamguard run`
does so at its start.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

if sys.platform == "win32":
    from streamguard._base.posix import not_here

    raise not_here("files that can be trusted (configuration, report, top, fleet)")

_ROOT: Final = 0
_MOST_LINKS: Final = 8
# A folder that we may pass through need not be one that we may list.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class UntrustedError(OSError):
    """What is found in a file's place is not to be believed; `strerror` says why."""

    def __init__(self, why: str, path: str | None = None) -> None:
        super().__init__(errno.EPERM, why, path)


class FileFound:
    """A file as it was found, and why it is not to be believed (None: it is).

    `data`: what is in it, None if it was not read.
    """

    def __init__(self, path: str, data: bytes | None, distrust: str | None) -> None:
        self.path = path
        self.data = data
        self.distrust = distrust


def read(path: str, most: int) -> bytes:
    """What is in a trusted file of at most `most` bytes. UntrustedError; FileNotFoundError."""
    found = look(path, most)
    if found.data is None or found.distrust is not None:
        raise UntrustedError(found.distrust or "", path)
    return found.data


def read_named(path: str, most: int) -> bytes:
    """The same of a file that the user has named: whoever it belongs to, and links are followed."""
    fd = os.open(path, _READ)
    try:
        data, odd = _content(fd, os.fstat(fd), most)
    finally:
        os.close(fd)
    if data is None:
        raise UntrustedError(odd or "", path)
    return data


def look(path: str, most: int) -> FileFound:
    """A file, trusted or not. What is no regular file, or too large, is not read.

    Raises:
        OSError: as far as one can see, nothing is there.
    """
    place, distrust = path, None
    for _ in range(_MOST_LINKS):
        try:
            found = _look(place, most)
        except OSError as error:
            if place == path:
                raise
            return FileFound(
                path, None, f"it is a link to what cannot be opened: {error.strerror}"
            )
        distrust = distrust or found.distrust
        if found.link is None:
            return FileFound(path, found.data, distrust)
        place = os.path.join(os.path.dirname(place), found.link)
    return FileFound(path, None, "it is a link that leads from one to the next")


class _Step(FileFound):
    """What is in one place; `link`: where it leads to, if it is a link."""

    link: str | None = None


def _look(place: str, most: int) -> _Step:
    folder, name = os.path.split(place)
    folder_fd = os.open(folder or ".", _FOLDER)
    try:
        around = os.fstat(folder_fd)
        try:
            fd = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder_fd)
        except OSError as error:
            there = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            why = distrust_of(there, around)
            if stat.S_ISLNK(there.st_mode):
                step = _Step(place, None, why)
                step.link = os.readlink(name, dir_fd=folder_fd)
                return step
            why = why or f"it cannot be read: {error.strerror}"
            return _Step(place, None, odd_kind(there) or why)
    finally:
        os.close(folder_fd)
    there = os.fstat(fd)
    try:
        data, odd = _content(fd, there, most)
    except OSError as error:  # a disk that fails
        data, odd = None, f"it cannot be read: {error.strerror}"
    finally:
        os.close(fd)
    return _Step(place, data, odd or distrust_of(there, around))


def distrust_of(there: os.stat_result, around: os.stat_result | None = None) -> str | None:
    """Why others can have written what is `there`, in the folder `around`; None if they cannot."""
    why = _distrust(there, "it")
    if why is None and around is not None:
        why = _distrust(around, "its folder")
        if why is None and around.st_mode & stat.S_IWOTH and _has_second_name(there):
            why = "it has a second name (a hard link), in a folder that everybody may write to"
    return why


def odd_kind(there: os.stat_result) -> str | None:
    """What it is, if it is no regular file."""
    if stat.S_ISREG(there.st_mode):
        return None
    kind = next((name for is_one, name in _KINDS if is_one(there.st_mode)), "a device")
    return f"it is {kind}, and no regular file"


def _distrust(there: os.stat_result, what: str) -> str | None:
    if there.st_uid not in (_ROOT, os.geteuid()):
        return f"{what} belongs to another user (uid {there.st_uid})"
    is_folder = stat.S_ISDIR(there.st_mode)
    if stat.S_ISLNK(there.st_mode) or (is_folder and there.st_mode & stat.S_ISVTX):
        return None  # nobody can write to a link
    if there.st_mode & stat.S_IWOTH:
        return f"everybody may write to {what}"
    is_shared = there.st_mode & stat.S_IWGRP and not is_folder
    if is_shared and not _is_alone_in(there.st_uid, there.st_gid):
        return f"a group may write to {what} (gid {there.st_gid})"
    return None


def _is_alone_in(user: int, group: int) -> bool:
    """Whether a group is the user's own: of the same name, and nobody else is in it."""
    import grp
    import pwd

    try:
        known = grp.getgrgid(group)
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # one has no name, as in many containers
        return user == group
    return known.gr_name == name and all(member == name for member in known.gr_mem)


def _has_second_name(there: os.stat_result) -> bool:
    return stat.S_ISREG(there.st_mode) and there.st_nlink > 1


def _content(fd: int, there: os.stat_result, most: int) -> tuple[bytes | None, str | None]:
    if (odd := odd_kind(there)) is not None:
        return None, odd
    parts: list[bytes] = []
    left = most + 1 if there.st_size <= most else 0  # it may grow, or not tell its size
    while left and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return (b"".join(parts), None) if left else (None, f"it is larger than {most >> 20} MB")
