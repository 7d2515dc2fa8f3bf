"""The command's output on its way to ours: unchanged, at once, and never more than fits.

Two ways. *Copied*: read, written, and given on to whoever must know what it says. *Spliced*: the
kernel moves it, and nobody reads it. Nothing here ever waits: where our reader is slow, the
command's output is left in its pipe, as it would be without us. Imports the standard library;
knows nothing of limits.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys

_PORTION = 1 << 16
# Of a blocking descriptor, poll promises no more than this.
_PAGE = 4096
_LARGE = 1 << 20
_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_SPLICE_FLAGS = 1 | 2  # MOVE | NONBLOCK
_MOVES = 64

IN = select.POLLIN
OUT = select.POLLOUT
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Output:
    """One command's output. `poll` is the loop's; `read_along` says whether bytes are wanted."""

    def __init__(self, source: int, sink: Sink, poll: select.poll, *, read_along: bool) -> None:
        os.set_blocking(source, False)
        self.source: int | None = source
        self.read_along = read_along
        self.passed = 0
        self.failure: OSError | None = None
        self._sink = sink
        self._poll = poll
        self._pending = b""
        self._can_splice = hasattr(os, "splice")
        self._portion = _PORTION
        self._is_blocked = False
        poll.register(source, IN)
        self._source_alone = select.poll()
        self._source_alone.register(source, IN)
        if sink.is_open:
            poll.register(sink.fd, 0)  # so that we hear when our reader goes
        else:
            self.close()

    @property
    def is_open(self) -> bool:
        """Whether anything may still come."""
        return self.source is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it is the command that we wait for, and not our own reader (T1)."""
        return not self._is_blocked

    def handle(self, fd: int, events: int) -> bytes | int:
        """What poll said of one of our two descriptors. The bytes that came, or how many."""
        if fd == self._sink.fd and self._sink.is_open:
            if events & _BROKEN:
                self._reader_is_gone()
            else:
                self._flush()
        elif fd == self.source:
            return self._copy() if self.read_along or not self._can_splice else self._splice()
        return 0

    def left(self) -> int:
        """How many bytes are in the pipe now."""
        if self.source is None:
            return 0
        import fcntl
        import termios

        told = fcntl.ioctl(self.source, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(told, sys.byteorder)

    def close(self) -> None:
        """No more of it: the command, if it still writes, gets a SIGPIPE."""
        if self.source is not None:
            self._unregister(self.source)
            os.close(self.source)
            self.source = None

    def finish(self) -> None:
        """Let go of our own end, too; what is pending is lost."""
        self.close()
        if self._sink.is_open:
            self._unregister(self._sink.fd)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def _copy(self) -> bytes:
        assert self.source is not None
        try:
            chunk = os.read(self.source, self._portion)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal ends
                raise
            chunk = b""
        if not chunk:
            self.close()
            return b""
        self.passed += len(chunk)
        if len(chunk) == self._portion:
            self._grow()
        self._pending = chunk
        if self._sink.at_once is None:
            self._flush()
        else:
            self._wait_for_reader()
        return chunk

    def has_more(self) -> bool:
        """Whether there is something to be read now, and room for it as far as is known."""
        return self.is_open and not self._is_blocked and bool(self._source_alone.poll(0))

    def _splice(self) -> int:
        """As much as comes without a pause: a turn of the loop costs more than the move."""
        moved = 0
        for _ in range(_MOVES):
            count = self._splice_once()
            moved += count
            if not count or not self.has_more():
                break
        return moved

    def _splice_once(self) -> int:
        assert self.source is not None
        try:
            count = os.splice(self.source, self._sink.fd, _LARGE, flags=_SPLICE_FLAGS)
        except BlockingIOError:
            self._wait_for_reader()
            return 0
        except OSError as error:
            if error.errno == errno.EPIPE:
                self._reader_is_gone()
            elif error.errno == errno.EIO:
                self.close()
            else:  # a file that was opened to append, for one
                self._can_splice = False
            return 0
        if not count:
            self.close()
        elif count >= self._portion:
            self._grow()
        self.passed += count
        return count

    def _flush(self) -> None:
        while self._pending:
            try:
                count = os.write(self._sink.fd, self._pending[: self._sink.at_once])
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.failure = error  # a full disk, for one
                self._reader_is_gone()
                return
            self._pending = self._pending[count:]
            if self._sink.at_once is not None:
                break  # before more is written, poll must say so
        if self._pending:
            self._wait_for_reader()
        elif self._is_blocked:
            self._is_blocked = False
            self._poll.modify(self._sink.fd, 0)
            if self.source is not None:
                self._poll.register(self.source, IN)

    def _wait_for_reader(self) -> None:
        if not self._is_blocked:
            self._is_blocked = True
            self._poll.modify(self._sink.fd, OUT)
            if self.source is not None:
                self._unregister(self.source)

    def _reader_is_gone(self) -> None:
        self._pending = b""
        self._is_blocked = False
        self._unregister(self._sink.fd)
        self._sink.is_open = False
        self.close()

    def _unregister(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            pass

    def _grow(self) -> None:
        """Much is coming: with larger pipes there are fewer turns to take."""
        if self._portion == _LARGE or self.source is None:
            return
        self._portion = _LARGE
        import fcntl

        for fd in (self.source, self._sink.fd):
            try:
                fcntl.fcntl(fd, _PIPE_SIZE, _LARGE)
            except OSError:
                pass  # no pipe, or more than this user may have


class Sink:
    """Our standard output, opened anew where that gives a description that cannot block.

    To set O_NONBLOCK on the one we were given would set it for everybody who shares it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.at_once: int | None = None
        self.is_open = False
        self._given = fd
        self._is_known = False

    def close(self) -> None:
        """As the command closed its output: our reader must see the end."""
        if self.is_open:
            self.is_open = False
            if self.fd != self._given:
                os.close(self.fd)
            os.close(self._given)
            os.open(os.devnull, os.O_RDWR)  # no pipe of ours may become descriptor 1

    def open(self) -> None:
        """Be ready to be written to; once, for all attempts."""
        if self._is_known:
            return
        self.is_open = self._is_known = True
        kind = os.fstat(self._given).st_mode
        if stat.S_ISREG(kind) or (stat.S_ISCHR(kind) and not os.isatty(self._given)):
            return  # these never make anybody wait
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self.fd = os.open(f"/proc/self/fd/{self._given}", flags)
        except OSError:
            self.at_once = _PAGE  # a socket, another user's terminal, no /proc
