"""Pipes for which nobody waits; `Outbox`: lines into one, of which none is lost.

What the pipe does not take now waits, each line once: a storm of orders or reports is as long as it has
different ones. Standard library only.
"""

from __future__ import annotations

import os
import select


def is_ready(fd: int, events: int, bound: float | None = 0.0) -> bool:
    """Whether poll has something to say of it, within `bound` seconds (None: whenever that is)."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(None if bound is None else max(0.0, bound) * 1e3))


def forget(poll: select.poll, fd: int) -> None:
    """Let `poll` look at it no more, if it does."""
    try:
        poll.unregister(fd)
    except KeyError:
        pass


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, and wait for room, whoever has set the descriptor not to."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            is_ready(fd, select.POLLOUT, None)


class Outbox:
    """The writing end of a pipe. Its owner's poll says when `flush` has something to do."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._waiting: list[bytes] = []
        self._poll: select.poll | None = None
        self._is_polled = False

    def attach(self, poll: select.poll) -> None:
        """From here on it is that poll which tells."""
        self._poll = poll
        self.flush()

    def put(self, line: str) -> None:
        """Write it, now or as soon as there is room."""
        said = f"{line}\n".encode()
        if said not in self._waiting:
            self._waiting.append(said)
        self.flush()

    def flush(self) -> None:
        """Write what there is room for."""
        try:
            while self._waiting:
                os.write(self.fd, self._waiting[0])  # a line is written whole, or not at all
                del self._waiting[0]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more: who needs to know hears it from the other pipe
            self._waiting.clear()
        self._watch()

    def close(self) -> None:
        """What waits is not needed any more."""
        self._waiting.clear()
        self._watch()
        os.close(self.fd)

    def _watch(self) -> None:
        if self._poll is not None and bool(self._waiting) is not self._is_polled:
            self._is_polled = not self._is_polled
            if self._is_polled:
                self._poll.register(self.fd, select.POLLOUT)
            else:
                self._poll.unregister(self.fd)
