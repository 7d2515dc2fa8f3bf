"""A command's standard error, passed on as it comes, and the last of it read along.

Some agents say there, and nowhere else, that they do not know a session. A process of ours passes it on,
so that nobody who does not read ours holds us up, and goes on for as long as somebody writes. Used for
attempts that resume a session, where `--fresh-if-unknown` was said. Imports the standard library.
"""

from __future__ import annotations

import mmap
import os

from streamguard.runner import aside
from streamguard.runner.outbox import write_all

# So much of it is kept, in bytes: what an agent says of a session is a line or two.
_KEPT = 16 * 1024
_PORTION = 1 << 16
# How long is waited for what a dead command has written, in seconds: others may hold its pipe.
_PATIENCE = 1.0
_SIZE = 8


class Complaints:
    """One attempt's. OSError if there can be no further process or descriptor."""

    def __init__(self) -> None:
        self._kept = mmap.mmap(-1, _SIZE + _KEPT)
        reading, self.theirs = os.pipe()
        try:
            self._pid = aside.fork(lambda: self._relay(reading), (2, reading), outlives=None)
        except OSError:
            os.close(self.theirs)
            raise
        finally:
            os.close(reading)

    def begun(self) -> None:
        """The command has its end."""
        os.close(self.theirs)

    def text(self) -> str:
        """The last of what the command wrote, which has ended."""
        aside.outwait(self._pid, _PATIENCE)
        size = int.from_bytes(self._kept[:_SIZE], "little")
        return self._kept[_SIZE : _SIZE + size].decode(errors="replace")

    def _relay(self, reading: int) -> None:
        last = b""
        while portion := os.read(reading, _PORTION):
            last = (last + portion)[-_KEPT:]
            self._kept[_SIZE : _SIZE + len(last)] = last
            self._kept[:_SIZE] = len(last).to_bytes(_SIZE, "little")
            write_all(2, portion)
