"""What the figures were measured on, and how quiet it was. Says nothing by which the machine could be found."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import streamguard

PEERS: Final = ("anyio", "trio", "uvloop", "aiostream")
# What others may use of this machine, in per cent, while we do nothing.
QUIET: Final = 5.0


def description() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "used by others, %": f"{used_by_others():.0f}",
        **{package: version(package) for package in PEERS},
        "streamguard": streamguard.__version__,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {platform.machine()}"
    return platform.processor() or platform.machine()


def used_by_others(seconds: float = 2.0) -> float:
    """The per cent of this machine's time that is used while we sleep; 0 where nobody counts it."""
    before = _ticks()
    time.sleep(seconds)
    idle, all_ = (now - then for now, then in zip(_ticks(), before, strict=True))
    return 100 * (1 - idle / all_) if all_ else 0.0


def _ticks() -> tuple[int, int]:
    """Of all cores since boot: idle, and in all."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0, 0
    ticks = [
        int(word) for word in line.split()[1:9]
    ]  # user nice system idle iowait irq softirq steal
    return ticks[3] + ticks[4], sum(ticks)
