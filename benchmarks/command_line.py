"""What `streamguard run` costs: its start, each line, each byte, and while nothing happens.

Start and bytes are ratios of what was measured taking turns; each is the best of many, since
everything else on the machine only adds. A start is measured in CPU time, as `start` does.
"""

from __future__ import annotations

import json
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
            *_in_a_project_of_ours(Path(folder), rounds),
            *_bytes(Path(folder), "100 MB", 100, rounds // 2 + 1, hold=1.5),
            *(_bytes(Path(folder), "1 GB", 1000, 7 * gigabytes, hold=1.1) if gigabytes else ()),
            *_recorded(Path(folder), rounds // 4 + 1),
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
        lambda words: subprocess.run(words, cwd="/", check=True, stdout=subprocess.PIPE),
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
            hold=1.65,
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


def _in_a_project_of_ours(folder: Path, rounds: int) -> list[Figure]:
    """A project that only depends on us is asked for its configuration, and has none."""
    peaks: dict[str, list[float]] = {}
    places: dict[str, Path] = {}
    for name in ("anybody", "streamguard"):
        places[name] = folder / name
        places[name].mkdir()
        told = f'[project]\nname = "project"\nversion = "1"\ndependencies = ["{name}>=0.1"]\n'
        (places[name] / "pyproject.toml").write_text(told)

    def run(words: list[str]) -> None:
        name, *command = words
        ended = subprocess.Popen(command, cwd=places[name], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(ended.pid, 0)
        ended.returncode = os.waitstatus_to_exitcode(status)
        assert ended.returncode == 0
        peaks.setdefault(name, []).append(used.ru_maxrss / 1024)

    used = _race({name: [name, *_GUARDED, "true"] for name in places}, rounds, run, _children)
    ours, others = min(used["streamguard"]), min(used["anybody"])
    return [
        Figure(
            group="command line",
            loop="-",
            what="in a project that depends on streamguard, to any other's",
            value=ours / others,
            median=statistics.median(used["streamguard"]) / statistics.median(used["anybody"]),
            unit="x",
            hold=1.05,
        ),
        Figure(
            group="command line",
            loop="-",
            what="in a project that depends on streamguard, peak of memory added",
            value=min(peaks["streamguard"]) - min(peaks["anybody"]),
            unit="MB",
            hold=0.5,
        ),
    ]


def _recorded(folder: Path, rounds: int) -> list[Figure]:
    """What `--record` makes of lines that come as fast as can be: who writes them slows who says them."""
    figures: list[Figure] = []
    for what, length, megabytes in (
        ("80-byte", 80, 20),
        ("1 KB", 1024, 40),
        ("16 KB", 16384, 100),
    ):
        file, status, record = folder / "lines", folder / "status.json", folder / "record"
        file.write_bytes((b"word " * (length // 5 + 1))[: length - 1] + b"\n")
        file.write_bytes(file.read_bytes() * (megabytes * 1_000_000 // length))
        options = ["--idle", "15m", "--status-file", str(status)]

        def run(words: list[str]) -> None:
            shutil.rmtree(record, ignore_errors=True)  # noqa: B023 - it is called at once
            _piped(file, words)  # noqa: B023 - as above

        walls = _race(
            {
                "passed": [*_OURS, "run", *options, "--", "cat"],
                "recorded": [*_OURS, "run", *options, "--record", str(record), "--", "cat"],
            },
            rounds,
            run,
        )
        least = min(walls["recorded"])
        is_short = length < 1024
        figures += [
            Figure(
                group="command line",
                loop="-",
                what=f"--record, 20 MB of {what} lines",
                value=least * 20 / megabytes,
                unit="s",
                hold=1.0 if is_short else None,
            ),
            Figure(
                group="command line",
                loop="-",
                what=f"--record, {what} lines, to the same without",
                value=least / min(walls["passed"]),
                unit="x",
                hold=None if is_short else 1.1,
            ),
            Figure(
                group="command line",
                loop="-",
                what=f"--record, {what} lines, not recorded",
                value=json.loads(status.read_text())["not_recorded"],
                unit="lines",
                hold=0.0,
            ),
        ]
    return figures


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
