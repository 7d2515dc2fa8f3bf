"""Lines with the time since the start, and on a terminal one below them that changes."""

from __future__ import annotations

import time
from typing import Final, TextIO

from streamguard._base.quoting import quoted

_WIDTH: Final = 100


class Screen:
    """What a demonstration writes. `has_status`: whether there is a line that changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self.has_status: Final = out.isatty()

    def say(self, text: str) -> None:
        """Write a line that stays."""
        at = f"{time.monotonic() - self._began:5.1f} s  " if text else ""
        self._write(f"{self._erased}{at}{quoted(text)}\n")

    def say_plain(self, text: str) -> None:
        """Write a line without the time."""
        self._write(f"{self._erased}{quoted(text)}\n")

    def status(self, text: str) -> None:
        """Let the line below say that, on a terminal."""
        if self.has_status:
            self._write(f"{self._erased}{quoted(text, _WIDTH)}")

    def no_status(self) -> None:
        """Take that line away."""
        self._write(self._erased)

    @property
    def _erased(self) -> str:
        return "\r\x1b[K" if self.has_status else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
