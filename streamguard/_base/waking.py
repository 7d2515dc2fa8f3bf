"""That this machine has slept: how long in all, and a descriptor that tells of it when it wakes.

CLOCK_MONOTONIC stands still while the machine sleeps, CLOCK_BOOTTIME goes on: what they differ by is the
sleep. A timer that is cancelled when the clock is set is readable then, and a resume sets the clock: so whoever polls
anyway hears of it without waking up to look. Linux; elsewhere nothing is told, and nobody has slept.
Imports `boottime`.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from contextlib import suppress

from streamguard._base.boottime import boottime

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

# Less is no sleep: two clocks are not read at one instant, and no connection is lost by it.
LEAST = 1.0
_FAR = 1 << 33  # seconds of the epoch: in the year 2242
_ABSOLUTE = 1
_CANCEL_ON_SET = 2


def slept() -> float:
    """Seconds that this machine has slept since it was started."""
    return boottime() - time.monotonic()


class Sleeps:
    """Counts the sleeps of this machine for one who looks now and then."""

    def __init__(self) -> None:
        self._before = slept()

    def news(self) -> float:
        """Seconds slept since the last look; 0.0 if that is no sleep."""
        now = slept()
        length, self._before = now - self._before, now
        return length if length >= LEAST else 0.0


class WakeTimer:
    """Readable when the clock was set, as it is when the machine wakes. OSError where there is none."""

    def __init__(self) -> None:
        self._fd = -1
        fd = _create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _set(fd, _ABSOLUTE | _CANCEL_ON_SET)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def fileno(self) -> int:
        """Its descriptor."""
        return self._fd

    def read(self) -> None:
        """It was readable: from here on it waits for the next time."""
        with suppress(OSError):  # "cancelled" is all that it has to say, or nothing
            os.read(self._fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # with a loop that was closed while somebody waited


def wake_timer() -> WakeTimer | None:
    """A `WakeTimer`; None where there is none: a sleep is noticed at the next wakeup then."""
    if sys.platform != "linux":
        return None
    try:
        return WakeTimer()
    except (OSError, ImportError):
        return None


if sys.version_info >= (3, 13) and hasattr(os, "timerfd_create"):

    def _create(clock: int, flags: int) -> int:
        return os.timerfd_create(clock, flags=flags)

    def _set(fd: int, flags: int) -> None:
        os.timerfd_settime(fd, flags=flags, initial=_FAR)

else:

    def _create(clock: int, flags: int) -> int:
        return _call("timerfd_create", clock, flags)

    def _set(fd: int, flags: int) -> None:
        _call("timerfd_settime", fd, flags, struct.pack("@llll", 0, 0, _FAR, 0), 0)

    def _call(name: str, *arguments: int | bytes) -> int:
        if sys.platform != "linux" or sys.maxsize < _FAR:
            raise OSError(f"no {name} here")
        # What `ctypes` is made of: all of it would be a quarter of what a command's start takes.
        import _ctypes

        ourselves: Any = None
        address = _ctypes.dlsym(_ctypes.dlopen(ourselves, 0), name)
        result: int = _ctypes.call_function(address, arguments)
        if result < 0:
            raise OSError(f"{name} failed")
        return result
