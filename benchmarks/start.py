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
# What nobody has asked for is not even imported.
_OFF = (
    "streamguard.breaker",
    "streamguard.cli",
    "streamguard.configuration",
    "streamguard.evidence",
    "streamguard.fleet",
    "streamguard.observers",
    "streamguard.process.sentinel.client",
    "streamguard.process.sentinel.helper",
    "streamguard.runner",
    "streamguard.top",
)
_GUARDED = """
import sys, anyio
from streamguard import Connection, idle_guard, reconnecting_resume, session
from contextlib import asynccontextmanager

async def stream():
    yield "a"

@asynccontextmanager
async def connect(point):
    yield Connection(stream())

async def main():
    async for _ in stream() | idle_guard(180):
        pass
    async with session(connect, prompt="x") | idle_guard(180) | reconnecting_resume() as chat:
        async for _ in chat:
            pass

anyio.run(main)
print(*sys.modules, sep="\\n")
"""


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
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", _GUARDED], check=True, capture_output=True, text=True
    ).stdout.split()
    figures.append(
        Figure(
            group="start",
            loop="-",
            what="modules of what is off, in a program with a guarded session",
            value=sum(name.startswith(_OFF) for name in loaded),
            unit="modules",
            hold=0,
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
