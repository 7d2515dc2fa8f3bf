"""What `streamguard run` costs: its start, each line, each byte, and while nothing happens.

Start and bytes are ratios of what was measured taking turns; each is the best of many, since
everything else on the machine only adds. A start is measured in CPU time, as `start` does.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import streamguard
from benchmarks.figures import Figure

_ROOT = Path(streamguard.__file__).parents[1]
_MAIN = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from streamguard.cli import main; main()"
_PYTHON = [sys.executable, "-I", "-c"]
_OURS = [*_PYTHON, _MAIN]
_GUARDED = [*_OURS, "run", "--idle", "15m", "--"]
_MEGABYTE = 1 << 20
_LINE = "--line--"
# A line every 2 ms, each with the time at which it was written.
_TALKER = """
import sys, time
for _ in range(int(sys.argv[1])):
    time.sleep(0.002)
    sys.stdout.write(sys.argv[2].replace("--line--", str(time.monotonic_ns())) + "\\n")
    sys.stdout.flush()
"""
_TEXT = _LINE
_JSON = (
    '{"type":"assistant","session_id":"s","message":{"content":'
    f'[{{"type":"text","text":"{_LINE}"}}]}}}}'
)
_IDLE = 5.0


def measure(rounds: int, lines: int, gigabytes: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            *_start(rounds),
            *_bytes(Path(folder), "100 MB", 100, rounds // 2 + 1, hold=2.0),
            *(_bytes(Path(folder), "1 GB", 1000, 7 * gigabytes, hold=1.2) if gigabytes else ()),
            *_latency(lines),
            *_while_nothing_happens(),
        ]


def _start(rounds: int) -> list[Figure]:
    used = _race(
        {
            "nothing": [*_PYTHON, "pass"],
            "run": [*_GUARDED, "true"],
            "timeout": [*_OURS, "timeout", "10", "true"],
        },
        rounds,
        lambda words: subprocess.run(words, cwd="/", check=True),
        _children,
    )
    nothing = min(used["nothing"])
    return [
        Figure(
            group="command line",
            loop="-",
            what=f"streamguard {name} ... true, to `python -I -c pass`",
            value=min(used[name]) / nothing,
            median=statistics.median(used[name]) / statistics.median(used["nothing"]),
            unit="x",
            hold=2.0,
        )
        for name in ("run", "timeout")
    ] + [
        Figure(
            group="command line",
            loop="-",
            what="streamguard run ... true",
            value=min(used["run"]) * 1e3,
            median=statistics.median(used["run"]) * 1e3,
            unit="ms",
        )
    ]


def _bytes(folder: Path, size: str, megabytes: int, rounds: int, *, hold: float) -> list[Figure]:
    """`cat FILE | OURS cat | cat >/dev/null` against GNU timeout in our place."""
    if shutil.which("timeout") is None:
        return []
    file = folder / "data"
    block = os.urandom(_MEGABYTE)
    with file.open("wb") as out:
        for _ in range(megabytes):
            out.write(block)
    walls = _race(
        {
            "timeout": ["timeout", "1000", "cat"],
            "guarded": [*_GUARDED, "cat"],
            "pty": [*_OURS, "run", "--pty", "--idle", "15m", "--", "cat"],
        }
        if megabytes <= 100
        else {"timeout": ["timeout", "1000", "cat"], "guarded": [*_GUARDED, "cat"]},
        rounds,
        lambda words: _piped(file, words),
    )
    least = min(walls["timeout"])
    figures = [
        Figure(
            group="command line",
            loop="-",
            what=f"{size} through it, to `timeout cat`",
            value=min(walls["guarded"]) / least,
            median=statistics.median(walls["guarded"]) / statistics.median(walls["timeout"]),
            unit="x",
            hold=hold,
        )
    ]
    if "pty" in walls:
        figures.append(
            Figure(
                group="command line",
                loop="-",
                what=f"{size} through its terminal (--pty)",
                value=min(walls["pty"]) / least,
                unit="x",
            )
        )
    return figures


def _piped(file: Path, words: list[str]) -> None:
    with (
        subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as source,
        subprocess.Popen(words, stdin=source.stdout, stdout=subprocess.PIPE, cwd="/") as middle,
        subprocess.Popen(["cat"], stdin=middle.stdout, stdout=subprocess.DEVNULL) as last,
    ):
        assert source.stdout is not None
        assert middle.stdout is not None
        source.stdout.close()
        middle.stdout.close()
        assert [last.wait(), middle.wait()] == [0, 0]


def _latency(lines: int) -> list[Figure]:
    direct = _delays([], _TEXT, lines)
    figures: list[Figure] = []
    for what, line in (("a line of text", _TEXT), ("a JSON line that is read", _JSON)):
        delays = _delays(_GUARDED, line, lines)
        figures += [
            Figure(
                group="command line",
                loop="-",
                what=f"{what}, added, p50",
                value=statistics.median(delays) - statistics.median(direct),
                unit="us",
                hold=20.0 if line is _TEXT else None,
            ),
            Figure(
                group="command line",
                loop="-",
                what=f"{what}, added, p99",
                value=statistics.quantiles(delays, n=100)[98]
                - statistics.quantiles(direct, n=100)[98],
                unit="us",
            ),
        ]
    return figures


def _delays(before: list[str], line: str, lines: int) -> list[float]:
    """How long each line took to us, in microseconds; the first ones, at the start, left out."""
    words = [*before, sys.executable, "-I", "-c", _TALKER, str(lines + 100), line]
    delays: list[float] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/") as process:
        assert process.stdout is not None
        for said in process.stdout:
            now = time.monotonic_ns()
            digits = "".join(filter(str.isdigit, said.decode()))
            delays.append((now - int(digits)) / 1e3)
    return delays[100:]


def _while_nothing_happens() -> list[Figure]:
    with subprocess.Popen(
        [*_GUARDED, "sh", "-c", "echo out; exec sleep 600"], stdout=subprocess.PIPE, cwd="/"
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(2.0)  # its last note for others comes a second after the output
        before = _status(process.pid, "voluntary_ctxt_switches")
        time.sleep(_IDLE)
        wakeups = _status(process.pid, "voluntary_ctxt_switches") - before
        memory = _status(process.pid, "VmRSS") / 1024
        process.terminate()
    return [
        Figure(
            group="command line",
            loop="-",
            what=f"wakeups in {_IDLE:g} s of silence",
            value=wakeups,
            unit="wakeups",
            hold=0.0,
        ),
        Figure(
            group="command line",
            loop="-",
            what="memory (RSS)",
            value=memory,
            unit="MB",
            hold=15.0,
        ),
    ]


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _race(
    programs: dict[str, list[str]],
    rounds: int,
    run: Callable[[list[str]], object],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """What each took, taking turns, after one round that nobody counts."""
    took: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name, words in programs.items():
            began = clock()
            run(words)
            if number:
                took[name].append(clock() - began)
    return took


def _children() -> float:
    """CPU time of all that has ended, what they started included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
