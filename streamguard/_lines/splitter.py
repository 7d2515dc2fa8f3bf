r"""`Splitter`: bytes in any portions in, lines out; no input or output of its own.

Only `\n` ends a line, and a `\r` before it belongs to the ending: what `splitlines` also takes
for an end (U+2028, form feeds, a lone `\r`) stands inside of JSON strings and progress bars.
Imports nothing of the package.
"""

from __future__ import annotations

from collections import deque


class Splitter:
    """Whole lines wait in `ready`; None stands for one of more than `max_line` bytes.

    A line's length is that of all before its newline. Never more than `max_line` bytes of an
    unfinished line are kept: what gets longer is announced at once, and passed over.
    """

    def __init__(self, max_line: int) -> None:
        self.ready: deque[bytes | None] = deque()
        self.max_line = max_line
        self._partial = bytearray()
        self._is_passing_over = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        *whole, last = chunk.split(b"\n")
        if whole and (self._partial or self._is_passing_over):
            self._extend(whole.pop(0))
            if not self._is_passing_over:
                self.ready.append(bytes(self._partial).removesuffix(b"\r"))
                self._partial = bytearray()
            self._is_passing_over = False
        for line in whole:
            self.ready.append(line.removesuffix(b"\r") if len(line) <= self.max_line else None)
        if last:
            self._extend(last)

    def end(self) -> None:
        """There are no more bytes: what has no newline is a line, too."""
        if self._partial:
            self.ready.append(bytes(self._partial))
        self._partial = bytearray()

    def _extend(self, part: bytes) -> None:
        if self._is_passing_over:
            return
        if len(self._partial) + len(part) > self.max_line:
            self._is_passing_over = True
            self._partial = bytearray()  # a new one: `clear` would keep the memory
            self.ready.append(None)
        else:
            self._partial += part
