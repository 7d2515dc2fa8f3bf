"""The command's input: shared with us, typed into its terminal, or spooled for another attempt.

Shared is the rule, and nothing here is then done. `--stdin null` gives it nothing to read. With `--retries` what comes through a pipe is
kept, up to a bound, so that the next attempt can be given it again; a file is wound back. With
`--pty` what is typed goes to the command's terminal. Imports the standard library.
"""

from __future__ import annotations

import os
import select
import stat

from streamguard.runner.outbox import forget

_PORTION = 1 << 16
# Prompts are small. Whoever pipes more in than this gets no second attempt.
SPOOL = 16 * 1024 * 1024


class Input:
    """What a command was given as its standard input."""

    def __init__(self, fd: int) -> None:
        there = os.fstat(fd)
        self.file = (there.st_dev, there.st_ino)
        mode = there.st_mode
        is_open_ended = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self.what = ""  # a file ends, and so does /dev/null
        if is_open_ended:
            self.what = "a pipe that nobody closes"
        elif os.isatty(fd):
            self.what = "a terminal that nobody types at"


class Stdin:
    """Our standard input, for one attempt after the other."""

    def __init__(self, *, replays: bool, closed: bool, is_null: bool = False) -> None:
        self._is_null = is_null
        self.is_closed = closed and not is_null
        is_nothing = closed or is_null
        self._is_typed = not is_nothing and os.isatty(0)
        kind = 0 if is_nothing else os.fstat(0).st_mode
        self._offset = _offset() if replays and stat.S_ISREG(kind) else None
        pipes = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._kept: bytearray | None = bytearray() if replays and pipes else None
        self._spools = self._kept is not None
        self._source = 0
        self._has_ended = False
        self._poll: select.poll | None = None
        self._target: int | None = None
        self._pending = b""

    @property
    def can_be_replayed(self) -> bool:
        """Whether a further attempt would get all that this one got."""
        return not self._spools or self._kept is not None

    def for_child(self, *, is_resumed: bool) -> int | None:
        """What becomes the child's descriptor 0, to be closed here; None: it shares ours.

        Who takes up a session again has been told what was in it, and gets nothing.
        """
        if self._is_null or (is_resumed and (self._spools or self._offset is not None)):
            return os.open(os.devnull, os.O_RDONLY)
        if self._offset is not None:
            os.lseek(0, self._offset, os.SEEK_SET)
        if not self._spools:
            return None
        theirs, self._target = os.pipe()
        os.set_blocking(self._target, False)
        self._pending = bytes(self._kept or b"")
        return theirs

    def attach(self, poll: select.poll, terminal: int | None) -> None:
        """From now on pass on what comes, to the pipe or to the command's terminal."""
        self._poll = poll
        if self._spools:
            self._open()
            self._go_on()
        elif terminal is not None and self._is_typed:
            self._open()
            self._target = os.dup(terminal)  # its output is polled by the other number
            self._go_on()

    def handle(self, fd: int, events: int) -> None:
        """What poll said of one of our descriptors."""
        if fd == self._target:
            self._write() if events & select.POLLOUT else self._stop()
        elif fd == self._source:
            self._read()

    def detach(self) -> None:
        """The attempt is over."""
        self._stop()
        self._poll = None

    def _open(self) -> None:
        """Open it anew, so that whoever else reads it cannot make us wait for what he took."""
        if self._source == 0:
            try:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
                self._source = os.open("/proc/self/fd/0", flags)
            except OSError:
                pass  # a socket, another user's terminal, no /proc

    def _read(self) -> None:
        try:
            chunk = _take(self._source)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._has_ended = True
        elif self._kept is not None:
            self._kept += chunk
            if len(self._kept) > SPOOL:
                self._kept = None
        self._pending += chunk
        self._go_on()

    def _write(self) -> None:
        assert self._target is not None
        try:
            count = os.write(self._target, self._pending[:_PORTION])
        except BlockingIOError:
            count = 0
        except OSError:
            self._stop()  # the command has closed its input
            return
        self._pending = self._pending[count:]
        self._go_on()

    def _go_on(self) -> None:
        """Wait for room if something is pending, else for input, else that is the end."""
        if self._poll is None or self._target is None:
            return
        if self._pending:
            forget(self._poll, self._source)
            self._poll.register(self._target, select.POLLOUT)
        elif not self._has_ended:
            self._poll.register(self._target, 0)
            self._poll.register(self._source, select.POLLIN)
        else:
            self._stop()

    def _stop(self) -> None:
        if self._target is None:
            return
        if self._poll is not None:
            forget(self._poll, self._source)
            forget(self._poll, self._target)
        os.close(self._target)
        self._target = None
        self._pending = b""


def _take(fd: int) -> bytes:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return os.read(fd, _PORTION)
    import _socket

    shared = _socket.socket(fileno=os.dup(fd))
    try:
        return shared.recv(_PORTION, _socket.MSG_DONTWAIT)
    finally:
        shared.close()


def _offset() -> int | None:
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None
