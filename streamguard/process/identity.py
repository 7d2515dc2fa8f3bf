"""One process, known so that no other is ever taken for it (D4).

`open_handle(pid)` gives the best that the system has, tried in the order of `WAYS`:

    PidfdHandle   Linux >= 5.3. A file descriptor that *is* the process: proof, and no polling
    StatHandle    /proc without pidfds: polled; the pid together with its start time
    PsutilHandle  neither, but psutil is installed (macOS; tested on Linux only): polled
    SignalHandle  nothing at all: `kill(pid, 0)`. It takes a zombie for alive, and it cannot tell
                  a pid that was given to another process from the one that was meant

Imports procfs; anyio where a loop waits, psutil only if it comes to that. Knows nothing of trees.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamguard.process import procfs

if TYPE_CHECKING:
    from streamguard.process.procfs import Stat

# How often a process is looked at that cannot tell of its end itself, in seconds.
_FIRST_LOOK: Final = 0.01
_LAST_LOOK: Final = 0.5

_IS_LINUX: Final[bool] = sys.platform == "linux"
# From <linux/pidfd.h>, whose numbers are the same on every architecture.
_TO_PROCESS_GROUP: Final = 1 << 2  # Linux >= 6.9
_GET_INFO: Final = 0xC040FF0B
_INFO_SIZE: Final = 64
_INFO_EXIT: Final = 1 << 3  # Linux >= 6.15


class UnavailableError(Exception):
    """This system, or this process's limits, do not allow that way of knowing a process."""


class Handle:
    """One process. Its death is final: once seen, nothing is ever sent to its pid again."""

    proof: ClassVar[str]

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._is_dead = False

    @classmethod
    def open(cls, pid: int) -> Handle:
        """`pid`'s process. ProcessLookupError if there is none, UnavailableError if no such way."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        """Whether there is anything left to look with."""
        return True

    @property
    def is_dead(self) -> bool:
        """Whether it is known to have ended; whether anybody has reaped it does not matter."""
        if not self._is_dead:
            with suppress(OSError):  # nothing to look with, for now: no descriptor left
                self._is_dead = self._has_ended()
        return self._is_dead

    def holds_pid(self) -> bool:
        """Whether the pid is proven to be this process's still: it lives, or waits to be reaped."""
        raise NotImplementedError

    def send(self, number: int) -> bool:
        """Send it a signal; False if it is dead, not ours to signal, or not proven to be it."""
        if self.is_dead:
            return False
        try:
            self._send(number)
        except ProcessLookupError:
            self._is_dead = True
            return False
        except OSError:
            return False
        return True

    def leads_group(self) -> bool | None:
        """Whether the group with its pid as number is its own and not empty; None: cannot tell."""
        return None

    def send_to_group(self, number: int) -> bool:
        """Send its group a signal, all of it at one instant; False if that is not possible."""
        del number
        return False

    async def wait_dead(self) -> None:
        """Return when it is dead, or when there is nothing left to look with."""
        import anyio

        pause = _FIRST_LOOK
        while not self.is_dead and self.is_open:
            await anyio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK)

    def outwait(self, bound: float) -> None:
        """Block until it is dead, but for `bound` seconds at most: for who has no loop."""
        deadline = time.monotonic() + bound
        pause = _FIRST_LOOK
        while not self.is_dead and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LAST_LOOK)

    def fileno(self) -> int | None:
        """A descriptor that is the process; None if it is not known by one."""
        return None

    def exit_status(self) -> int | None:
        """As `Popen.returncode` says it; None if it lives, or cannot be known without reaping."""
        return _peek(os.P_PID, self.pid) if self.holds_pid() else None

    def close(self) -> None:
        """Let go of what the handle holds. What was seen until then stays known."""

    def _has_ended(self) -> bool:
        raise NotImplementedError

    def _send(self, number: int) -> None:
        os.kill(self.pid, number)


class PidfdHandle(Handle):
    """The process itself, by a file descriptor."""

    proof = "pidfd"

    def __init__(self, pid: int, fd: int) -> None:
        super().__init__(pid)
        self._fd: int | None = fd

    @classmethod
    def open(cls, pid: int) -> Handle:
        if not hasattr(os, "pidfd_open"):
            raise UnavailableError
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError as error:
            # An old kernel, a sandbox, or no file descriptor left.
            raise UnavailableError from error
        handle = cls(pid, fd)
        try:
            signal.pidfd_send_signal(fd, 0)
        except PermissionError:
            pass
        except OSError as error:
            handle.close()
            if error.errno == errno.ESRCH:
                raise
            raise UnavailableError from error
        return handle

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def holds_pid(self) -> bool:
        return self._reaches(0)

    def leads_group(self) -> bool | None:
        # The number of a group cannot be given to another while it has members, and this asks the
        # group that the process itself had, whoever has the number by now.
        try:
            return self._reaches(_TO_PROCESS_GROUP)
        except OSError:
            return None

    def send_to_group(self, number: int) -> bool:
        if self._fd is None:
            return False
        try:
            signal.pidfd_send_signal(self._fd, number, None, _TO_PROCESS_GROUP)
        except OSError:
            return False
        return True

    async def wait_dead(self) -> None:
        if self._fd is None or self.is_dead:
            return
        import anyio

        try:
            # One of its own for each that waits: a loop takes one waiter for a descriptor, and
            # `close` must not take it from under one. No duplicate: trio leaves it to `close` to
            # end a registration with epoll, which lasts as long as any duplicate is open, and then
            # wakes whoever waits for another process through the same number.
            fd = os.pidfd_open(self.pid)
        except OSError:
            await super().wait_dead()
            return
        try:
            # Held by this process until now, the pid cannot have been another's a moment ago.
            if self.holds_pid():
                while not _is_readable(fd):
                    await anyio.wait_readable(fd)
        finally:
            os.close(fd)
        self._is_dead = True

    def outwait(self, bound: float) -> None:
        if self._fd is not None and bound > 0:
            _is_readable(self._fd, bound)

    def fileno(self) -> int | None:
        return self._fd

    def exit_status(self) -> int | None:
        if self._fd is None:
            return None
        status = _peek(os.P_PIDFD, self._fd)
        return _exit_from_kernel(self._fd) if status is None else status

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _has_ended(self) -> bool:
        return self._fd is not None and _is_readable(self._fd)

    def _send(self, number: int) -> None:
        if self._fd is None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._fd, number)

    def _reaches(self, flags: int) -> bool:
        if self._fd is None:
            return False
        try:
            signal.pidfd_send_signal(self._fd, 0, None, flags)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class StatHandle(Handle):
    """A pid and when its process started, looked at again before each signal.

    The start time counts in 1/100 s, so it is proof only as long as pids are not used up in less.
    """

    proof = "start time"

    def __init__(self, pid: int, started: float) -> None:
        super().__init__(pid)
        self._started = started

    @classmethod
    def open(cls, pid: int) -> Handle:
        if not procfs.is_there():
            raise UnavailableError
        stat = procfs.read_stat(pid)
        if stat is None:
            if takes_signals(pid):  # it is hidden from us: hidepid=
                raise UnavailableError
            raise ProcessLookupError
        return cls(pid, stat.started)

    def holds_pid(self) -> bool:
        try:
            return self._stat() is not None
        except OSError:
            return False

    def _has_ended(self) -> bool:
        stat = self._stat()
        return stat is None or stat.is_dead

    def _send(self, number: int) -> None:
        if self._stat() is None:
            raise ProcessLookupError
        super()._send(number)

    def _stat(self) -> Stat | None:
        """What it shows now; None if the pid is not its own any more. OSError if nothing tells."""
        stat = procfs.read_stat(self.pid)
        if stat is None and (not procfs.is_there() or takes_signals(self.pid)):
            raise OSError(errno.ENOENT, "/proc does not tell of it any more")
        return stat if stat is not None and stat.started == self._started else None


class PsutilHandle(Handle):
    """psutil's pid and start time, for systems without /proc."""

    proof = "psutil"

    def __init__(self, pid: int, process: Any) -> None:
        super().__init__(pid)
        self._process = process

    @classmethod
    def open(cls, pid: int) -> Handle:
        psutil = psutil_or_none()
        if psutil is None:
            raise UnavailableError
        try:
            return cls(pid, psutil.Process(pid))
        except psutil.NoSuchProcess:
            raise ProcessLookupError from None
        except psutil.Error as error:
            raise UnavailableError from error

    def holds_pid(self) -> bool:
        return bool(self._process.is_running())  # which is so for a zombie, too

    def _has_ended(self) -> bool:
        psutil = psutil_or_none()
        try:
            return not self.holds_pid() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


class SignalHandle(Handle):
    """A bare pid: the last resort, with the two weaknesses that the module's docstring names."""

    proof = "signal 0"

    @classmethod
    def open(cls, pid: int) -> Handle:
        handle = cls(pid)
        if handle.is_dead:
            raise ProcessLookupError
        return handle

    def holds_pid(self) -> bool:
        return takes_signals(self.pid)

    def _has_ended(self) -> bool:
        return not self.holds_pid()


# The one seam at which a way is chosen, best first.
WAYS: tuple[type[Handle], ...] = (PidfdHandle, StatHandle, PsutilHandle, SignalHandle)


def open_handle(pid: int) -> Handle:
    """The process that has this pid now; ProcessLookupError if there is none."""
    for way in WAYS:
        with suppress(UnavailableError):
            return way.open(pid)
    raise ProcessLookupError


def open_again(pid: int, started: float) -> Handle | None:
    """The process that had this pid and start time, by the best way; None if it is gone."""
    with suppress(ProcessLookupError):
        handle = open_handle(pid)
        stat = procfs.read_stat(pid)
        if stat is None or stat.started == started:
            return handle  # without a /proc there is no start time, and nothing better to go by
        handle.close()
    return None


def psutil_or_none() -> Any:
    """The module psutil, an optional extra, or None.

    On Linux it says what /proc says, so it knows nothing where that is missing or not ours.
    """
    if _IS_LINUX and not procfs.is_there():
        return None
    try:
        return import_module("psutil")
    except ImportError:
        return None


def takes_signals(pid: int) -> bool:
    """Whether anybody has that pid, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_readable(fd: int, bound: float = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    # What else it may say is that the descriptor is none any more: that is nobody's death.
    return any(told & select.POLLIN for _, told in poll.poll(bound * 1e3))


def _peek(kind: int, ident: int) -> int | None:
    """The exit status of a child of ours that nobody has reaped; it stays as it is (WNOWAIT)."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return None
    try:
        told = os.waitid(kind, ident, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        return None  # no child of ours, or reaped by who owns it
    if told is None:
        return None
    return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status


def _exit_from_kernel(fd: int) -> int | None:
    """The exit status of any process that was reaped, as newer kernels keep it for a pidfd."""
    told = bytearray(_INFO_SIZE)
    struct.pack_into("=Q", told, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(fd, _GET_INFO, told)
    except OSError:
        return None
    if not struct.unpack_from("=Q", told, 0)[0] & _INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("=i", told, 60)[0])
