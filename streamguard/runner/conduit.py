"""The command's output on its way to ours: unchanged, at once, and never more than fits.

Two ways. *Copied*: read, written, and given on to whoever must know what it says. *Spliced*: the
kernel moves it, and nobody reads it. Nothing here waits for anybody: where our reader is slow, the
command's output is left in its pipe, as it would be without us. Imports the standard library;
knows nothing of limits.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time

from streamguard.runner import aside
from streamguard.runner.child import reserve_standard
from streamguard.runner.outbox import forget, is_ready

_PORTION = 1 << 16
_LARGE = 1 << 20
_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_SPLICE_FLAGS = 1 | 2  # MOVE | NONBLOCK
_MOVES = 64
# Where much comes, it may gather for so long, in seconds: to be woken for each write costs as much as
# the move, and more who read and write.
_NAP = 0.0003

IN = select.POLLIN
OUT = select.POLLOUT
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Output:
    """One command's output. `poll` is the loop's; `read_along` says whether bytes are wanted.

    `in_portions`: never many of them at a time, so that `hold` is in time for who writes them down.
    """

    def __init__(
        self,
        source: int,
        sink: Outlet,
        poll: select.poll,
        *,
        read_along: bool,
        in_portions: bool = False,
    ) -> None:
        os.set_blocking(source, False)
        self.source: int | None = source
        self.read_along = read_along
        self.passed = 0  # taken from the command
        self.lost = 0  # of these, and of what was left in its pipe: not passed on
        self.failure: OSError | None = None
        self._sink = sink
        self._poll = poll
        self._pending = b""
        self._can_splice = hasattr(os, "splice")
        self._portion = _PORTION
        self._largest = _PORTION if in_portions else _LARGE
        self._is_grown = False
        self._held: int | None = None
        self.is_blocked = False  # it is our own reader that we wait for, not the command (T1)
        self.is_held = False  # or who writes down what is passed on
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

    def handle(self, fd: int, events: int) -> bytes | int:
        """What poll said of one of our two descriptors. The bytes that came, or how many."""
        if fd == self._sink.fd and self._sink.is_open:
            if events & _BROKEN:
                self.failure = OSError(errno.EPIPE, os.strerror(errno.EPIPE))
                self._reader_is_gone()
            else:
                self._flush()
        elif fd == self.source:
            return self._copy() if self.read_along or not self._can_splice else self._splice()
        return 0

    def left(self) -> int:
        """How many bytes are in the pipe now."""
        if self.source is None or not any(came & IN for _, came in self._source_alone.poll(0)):
            return 0
        import fcntl
        import termios

        told = fcntl.ioctl(self.source, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(told, sys.byteorder)

    def close(self) -> None:
        """No more of it: the command, if it still writes, gets a SIGPIPE, or its terminal hangs up."""
        if self.source is not None:
            forget(self._poll, self.source)
            os.close(self.source)
            self.source = None

    def _has_ended(self) -> None:
        """Nobody can write to it any more, but who opens a terminal anew."""
        if self.source is not None and os.isatty(self.source):
            forget(self._poll, self.source)
            self._held, self.source = self.source, None  # to close it would hang up on the command
        else:
            self.close()

    def finish(self, owed: int | None = None) -> None:
        """Let go of our own end, too. Of `owed` bytes (default: all that came) the rest is lost."""
        self._lose(owed)
        self.close()
        if self._sink.is_open:
            forget(self._poll, self._sink.fd)

    def let_go(self) -> None:
        """The command is dead: its terminal may hang up."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def keeps_waiting(self) -> bool:
        """Whether it is not the command that we wait for, but the command that waits."""
        return self.is_blocked or self.is_held

    def hold(self, *, is_held: bool) -> None:
        """Leave in its pipe what comes, or go on."""
        if is_held is self.is_held:
            return
        self.is_held = is_held
        if self.source is not None and not self.is_blocked:
            if is_held:
                forget(self._poll, self.source)
            else:
                self._poll.register(self.source, IN)

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
            self._has_ended()
            return b""
        self.passed += len(chunk)
        if len(chunk) == self._portion:
            self._grow()
        self._pending = chunk
        self._flush()
        return chunk

    def has_more(self) -> bool:
        """Whether there is something to be read now, and room for it as far as is known."""
        return self.is_open and not self.keeps_waiting and bool(self._source_alone.poll(0))

    def _splice(self) -> int:
        """As much as comes without a pause: a turn of the loop costs more than the move."""
        moved = 0
        for _ in range(_MOVES):
            if count := self._splice_once():
                moved += count
            elif moved < _PORTION or not self._gathers():
                break
        self.passed += moved
        self._sink.given += moved
        return moved

    def _gathers(self) -> bool:
        """Whether more came while it had a moment to gather."""
        if self.is_blocked or not (self.is_open and self._can_splice):
            return False
        time.sleep(_NAP)
        return self.has_more()

    def _splice_once(self) -> int:
        if self.source is None:
            return 0
        try:
            count = os.splice(self.source, self._sink.fd, _LARGE, flags=_SPLICE_FLAGS)
        except BlockingIOError:
            if not self._sink.has_room():
                self._wait_for_reader()
            return 0
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ENOSPC, errno.EFBIG):
                self.failure = error
                self._reader_is_gone()
            elif error.errno == errno.EIO:
                self._has_ended()
            else:  # a file that was opened to append, for one
                self._can_splice = False
            return 0
        if not count:
            self._has_ended()
        elif count >= self._portion:
            self._grow()
        return count

    def _flush(self) -> None:
        while self._pending:
            try:
                count = os.write(self._sink.fd, self._pending)
            except BlockingIOError:
                break
            except OSError as error:
                self.failure = error  # a full disk, for one
                self._reader_is_gone()
                return
            self._pending = self._pending[count:]
            self._sink.given += count
        if self._pending:
            self._wait_for_reader()
        elif self.is_blocked:
            self.is_blocked = False
            self._poll.modify(self._sink.fd, 0)
            if self.source is not None and not self.is_held:
                self._poll.register(self.source, IN)

    def _wait_for_reader(self) -> None:
        if not self.is_blocked:
            self.is_blocked = True
            self._poll.modify(self._sink.fd, OUT)
            if self.source is not None:
                forget(self._poll, self.source)

    def _lose(self, owed: int | None = None) -> None:
        """Count what will not be passed on."""
        left = self.left()
        if owed is not None:  # what comes later is of those who outlive the command
            left = max(0, min(left, owed - self.passed))
        self.passed += left
        self.lost += len(self._pending) + left
        self._pending = b""

    def _reader_is_gone(self) -> None:
        if self._sink.pump is not None and self._sink.pump.failure is not None:
            self.failure = self._sink.pump.failure
        self._lose()
        self.is_blocked = False
        forget(self._poll, self._sink.fd)
        self._sink.is_open = False
        self.close()

    def _grow(self) -> None:
        """Much is coming: with larger pipes there are fewer turns to take."""
        if self._is_grown or self.source is None:
            return
        self._is_grown, self._portion = True, self._largest
        import fcntl

        for fd in (self.source, self._sink.fd):
            try:
                fcntl.fcntl(fd, _PIPE_SIZE, _LARGE)
            except OSError:
                pass  # no pipe, or more than this user may have


class Outlet:
    """Our standard output, written to without ever waiting.

    To set O_NONBLOCK on the description that we were given would set it for everybody who shares it.
    So it is opened anew where that gives another; what cannot be (a file whose disk may stand still,
    a socket, another user's terminal) is written to by a process of ours, through a pipe.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.given = 0  # bytes that were written to it
        self.is_open = False
        self.pump: Pump | None = None
        self._given = fd
        self._is_known = False

    def open(self) -> None:
        """Be ready to be written to; once, for all attempts."""
        if self._is_known:
            return
        self.is_open = self._is_known = True
        kind = os.fstat(self._given).st_mode
        if stat.S_ISCHR(kind) and not os.isatty(self._given):
            return  # these never make anybody wait
        if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            try:
                self.fd = os.open(f"/proc/self/fd/{self._given}", flags)
            except OSError:
                pass  # another user's terminal, no /proc
            else:
                return
        self.pump = Pump(self._given)
        self.fd = self.pump.fd

    @property
    def is_behind(self) -> bool:
        """Whether who writes on our behalf has something left, and goes on."""
        pump = self.pump
        return pump is not None and pump.written < self.given and pump.goes_on

    def has_room(self) -> bool:
        """Whether something can be written now."""
        return is_ready(self.fd, OUT)

    def close(self) -> None:
        """As the command closed its output: our reader must see the end."""
        if self.is_open:
            self.is_open = False
            if self.fd != self._given:
                os.close(self.fd)
            os.close(self._given)
            reserve_standard()  # no pipe of ours may become descriptor 1

    def finish(self) -> None:
        """Nothing more will be written to it."""
        self.close()
        if self.pump is not None:
            self.pump.close()


class Pump:
    """A process that writes to a descriptor what comes through a pipe, and shows how far it came."""

    def __init__(self, target: int) -> None:
        try:
            import mmap
        except ImportError as error:
            raise OSError(errno.EMFILE, "Too many open files") from error
        self._shown = mmap.mmap(-1, 16)
        reading, self.fd = os.pipe()
        self._pid = aside.fork(lambda: self._work(reading, target), (reading, target))
        os.close(reading)
        os.set_blocking(self.fd, False)

    @property
    def written(self) -> int:
        """How many bytes it has written."""
        return int.from_bytes(self._shown[:8], "little")

    @property
    def goes_on(self) -> bool:
        """Whether it has neither ended nor met with a failure."""
        return self.failure is None and not aside.has_ended(self._pid)

    @property
    def failure(self) -> OSError | None:
        """What kept it from writing on."""
        number = int.from_bytes(self._shown[8:], "little")
        return OSError(number, os.strerror(number)) if number else None

    def close(self) -> None:
        """It has had its time."""
        aside.dismiss(self._pid, 0.0)

    def _work(self, source: int, target: int) -> None:
        count = 0
        while chunk := os.read(source, _LARGE):
            while chunk:
                try:
                    written = os.write(target, chunk)
                except BlockingIOError:  # a description that somebody else has set so
                    is_ready(target, OUT, None)
                    continue
                except OSError as error:
                    self._shown[8:] = (error.errno or errno.EIO).to_bytes(8, "little")
                    return
                chunk = chunk[written:]
                count += written
                self._shown[:8] = count.to_bytes(8, "little")
