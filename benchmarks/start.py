"""What `import streamguard` costs: fresh interpreters, taking turns, the best of many."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from benchmarks.figures import Figure

_PROGRAMS = {
    "nothing": "pass",
    "anyio": "import anyio",
    "streamguard": "import streamguard",
    "streamguard and its first use": "from streamguard import idle_guard; idle_guard(180)",
}
_HOLD = 10.0


def measure(rounds: int) -> list[Figure]:
    times: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for name in [*_PROGRAMS] * 2:
        _milliseconds(_PROGRAMS[name])  # so that everything is compiled and cached
    for _ in range(rounds):
        for name, program in _PROGRAMS.items():
            times[name].append(_milliseconds(program))
    nothing = times.pop("nothing")
    figures = [
        Figure(
            group="start",
            loop="-",
            what=f"import {name}",
            value=min(values) - min(nothing),
            median=statistics.median(values) - statistics.median(nothing),
            unit="ms",
        )
        for name, values in times.items()
    ]
    figures.append(
        Figure(
            group="start",
            loop="-",
            what="import streamguard, above import anyio",
            value=min(times["streamguard"]) - min(times["anyio"]),
            unit="ms",
            hold=_HOLD,
        )
    )
    return figures


def _milliseconds(program: str) -> float:
    """The interpreter's whole life, in CPU time: others on the machine do not count."""
    before = _children()
    subprocess.run([sys.executable, "-I", "-c", program], check=True)
    return (_children() - before) * 1e3


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
