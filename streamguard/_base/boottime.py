"""The clock of deadlines that a second process keeps: it goes on while the machine sleeps.

CLOCK_BOOTTIME, the same for all processes of a machine. A lease ends for the world around it also while
this machine sleeps; CLOCK_MONOTONIC would stand still meanwhile. Where there is none (macOS), the monotonic clock.
Imports nothing of the package.
"""

from __future__ import annotations

import time
from typing import Final

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds since the machine was started, those in which it slept included."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
