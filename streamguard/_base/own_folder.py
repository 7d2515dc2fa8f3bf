"""A folder that is the user's alone: made with mode 0700, and looked at before anything is put into it.

What lies in it nobody else can have put there, read, or taken away. Knows nothing of what that is. Imports
quoting alone: `streamguard run` does so at its start.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from streamguard._base.quoting import quoted


class UnsafeFolderError(Exception):
    """The folder for our files belongs to somebody else, or is open to others."""


def own_folder(path: str, *, create: bool = False) -> str:
    """`path`, if it is a folder of this user's alone.

    Raises:
        UnsafeFolderError: If it is not.
        OSError: If it is not there, and cannot be made.
    """
    if create:
        with suppress(FileExistsError):
            os.mkdir(path, mode=0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UnsafeFolderError(f"{quoted(path)} is not a folder of this user's alone")
    return path
