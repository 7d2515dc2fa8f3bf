"""What a sentinel costs while all is well, and how soon it acts when its application is gone."""

from __future__ import annotations

import os
import select
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.race import percentile
from streamguard import sentinel
from streamguard.process import ProcessTree
from streamguard.process.sentinel.sentinel import Sentinel, adopted

_IDLE = 2.0
_LAPS = 5
_OFF = 1.0  # us, of the milliseconds that a process takes to start
# An application that leaves a backend.
_APPLICATION = """
import os, subprocess, sys
from streamguard import sentinel
guard = sentinel(kill_grace=1)
backend = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
guard.adopt(backend)
print(backend.pid, flush=True)
sys.stdin.read()
"""


def measure(rounds: int, cycles: int) -> list[Figure]:
    off = _off(cycles)
    starts = [_start() for _ in range(rounds)]
    deaths = [_death() for _ in range(rounds)]
    return [
        *off,
        _figure("start, in a program that has the module", starts, "ms"),
        *_while_all_is_well(cycles),
        _figure("the application's SIGKILL to its backend's death", deaths, "ms"),
        Figure(
            group="host death",
            loop="-",
            what="the same, p95",
            value=percentile(deaths, 95),
            unit="ms",
        ),
    ]


def _figure(what: str, values: list[float], unit: str) -> Figure:
    middle = statistics.median(values)
    return Figure(
        group="host death", loop="-", what=what, value=min(values), median=middle, unit=unit
    )


def _start() -> float:
    began = time.perf_counter()
    guard = sentinel()
    took = time.perf_counter() - began
    guard.close()
    return took * 1e3


def _off(cycles: int) -> list[Figure]:
    """What a guard asks for each of its processes, where no sentinel is in force."""
    with subprocess.Popen(["sleep", "600"]) as backend, ProcessTree.adopt(backend) as tree:
        laps: list[float] = []
        for _ in range(_LAPS):
            began = time.process_time()
            for _ in range(cycles):
                adopted(tree, 5.0)()
            laps.append((time.process_time() - began) / cycles * 1e6)
        backend.kill()
    return [replace(_figure("off: adopt a tree, and release it", laps, "us"), hold=_OFF)]


def _while_all_is_well(cycles: int) -> list[Figure]:
    with sentinel() as guard, subprocess.Popen(["sleep", "600"]) as backend:
        guard.adopt(backend)
        adopting: list[float] = []
        releasing: list[float] = []
        told: list[float] = []
        with ProcessTree.adopt(backend) as tree:
            for _ in range(cycles):
                began = time.perf_counter()
                guard.adopt(backend)
                had = time.perf_counter()
                guard.release(backend)
                adopting.append((had - began) * 1e6)
                releasing.append((time.perf_counter() - had) * 1e6)
                began = time.perf_counter()
                let_go = adopted(tree, 5.0)
                told.append((time.perf_counter() - began) * 1e6)
                let_go()
        figures = [
            _figure("adopt a process", adopting, "us"),
            _figure("adopt a tree that is held already", told, "us"),
            _figure("release", releasing, "us"),
            *_of_the_helper(guard),
        ]
        backend.kill()
    return figures


def _of_the_helper(guard: Sentinel) -> list[Figure]:
    time.sleep(0.5)  # until it has taken all that it was told
    before = _spent(guard)
    time.sleep(_IDLE)
    after = _spent(guard)
    rolled = Path(f"/proc/{guard.pid}/smaps_rollup").read_text().splitlines()
    memory = {line.split()[0]: int(line.split()[1]) / 1e3 for line in rolled[1:]}
    return [
        Figure(group="host death", loop="-", what=what, value=value, unit=unit, hold=hold)
        for what, value, unit, hold in (
            (f"the helper's wakeups in {_IDLE:g} s", after[0] - before[0], "", 0),
            (f"its CPU time in {_IDLE:g} s", (after[1] - before[1]) * 1e3, "ms", 0),
            ("its memory, shared pages too (RSS)", memory["Rss:"], "MB", None),
            ("its memory, of its own", memory["Private_Dirty:"], "MB", None),
        )
    ]


def _spent(guard: Sentinel) -> tuple[float, float]:
    """Its wakeups, and its CPU time in seconds, as the scheduler counts them."""
    status = Path(f"/proc/{guard.pid}/status").read_text()
    used = Path(f"/proc/{guard.pid}/schedstat").read_text().split()[0]
    return float(status.split("\nvoluntary_ctxt_switches:")[1].split()[0]), int(used) / 1e9


def _death() -> float:
    application = subprocess.Popen(
        [sys.executable, "-c", _APPLICATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with application:
        assert application.stdin is not None
        assert application.stdout is not None
        backend = os.pidfd_open(int(application.stdout.readline()))
        try:
            poll = select.poll()
            poll.register(backend, select.POLLIN)
            began = time.perf_counter()
            application.send_signal(signal.SIGKILL)
            assert poll.poll(30_000), "the backend lives on"
            return (time.perf_counter() - began) * 1e3
        finally:
            os.close(backend)
