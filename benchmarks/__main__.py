"""`python -m benchmarks`: measure, print, and save as JSON.

python -m benchmarks                    every row on this Python, saved in benchmarks/results
python -m benchmarks --pythons          every row on every Python, and the page of figures: twenty minutes
python -m benchmarks --quick            a look, in a minute or two; not saved
python -m benchmarks --rows message     some rows only; not saved
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

from benchmarks import (
    command_line,
    fleet,
    growth,
    hand_over,
    host_death,
    idle_streams,
    lateness,
    machine,
    per_message,
    processes,
    progress,
    pythons,
    readers,
    recording,
    report,
    start,
    tables,
    unheard,
    verdicts,
    wakeups,
)
from benchmarks.figures import Figure

FULL = {
    "rounds": 15,
    "messages": 20_000,
    "streams": 10_000,
    "most": 100_000,
    "verdicts": 200,
    "repeats": 3,
    "deaths": 100,
    "longest_look": 2,
    "watched": 5,
    "trees": 3,
    "gigabytes": 1,
    "growth": 3,
    "sizes_left_out": 0,
}
QUICK = {
    "rounds": 5,
    "messages": 2_000,
    "streams": 1_000,
    "most": 10_000,
    "verdicts": 20,
    "repeats": 1,
    "deaths": 20,
    "longest_look": 1,
    "watched": 1,
    "trees": 1,
    "gigabytes": 0,
    "growth": 1,
    "sizes_left_out": 1,
}


def _rows(settings: dict[str, int]) -> dict[str, Callable[[], list[Figure]]]:
    s = settings
    return {
        "start": lambda: start.measure(s["rounds"]),
        "message": lambda: per_message.measure(s["rounds"], s["messages"]),
        "unheard": lambda: unheard.measure(s["rounds"], s["messages"] // 40),
        "progress": lambda: progress.measure(s["rounds"], s["messages"]),
        "readers": lambda: readers.measure(s["rounds"], s["messages"]),
        "hand-over": lambda: hand_over.measure(s["rounds"], s["messages"]),
        "recording": lambda: recording.measure(s["rounds"] // 5, s["messages"] // 5),
        "growth": lambda: growth.measure(s["growth"], s["sizes_left_out"]),
        "idle": lambda: idle_streams.measure(s["streams"], s["most"], s["repeats"]),
        "wakeups": lambda: wakeups.measure(s["repeats"]),
        "process": lambda: processes.measure(s["deaths"], (0.1, s["longest_look"]), s["trees"]),
        "lateness": lambda: lateness.measure(s["streams"], s["verdicts"], s["repeats"]),
        "verdict": lambda: verdicts.measure(s["rounds"] // 3),
        "cli": lambda: command_line.measure(s["rounds"], s["messages"] // 10, s["gigabytes"]),
        "host-death": lambda: host_death.measure(s["rounds"], s["messages"] // 10),
        "fleet": lambda: fleet.measure(
            s["rounds"], s["messages"], s["messages"] // 10, s["watched"], s["streams"] // 10
        ),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure streamguard."
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    parser.add_argument("--rows", nargs="+", choices=_rows(FULL), help="only these: not saved")
    parser.add_argument(
        "--pythons",
        nargs="*",
        choices=tables.PYTHONS,
        help="on each of them, all if none is named, and write the page of figures",
    )
    parser.add_argument("--busy", action="store_true", help="even if the machine is not quiet")
    parser.add_argument("--no-save", action="store_true", help="print only")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    others = machine.used_by_others()
    if others > machine.QUIET:
        print(_NOISE.format(others), file=sys.stderr)
        if arguments.pythons is not None and not arguments.busy:
            return 2
    is_saved = not (arguments.no_save or arguments.quick or arguments.rows)
    if arguments.pythons is None:
        return _measure_here(arguments, is_saved=is_saved)
    words = [word for word in sys.argv[1:] if word not in {"--pythons", *tables.PYTHONS}]
    versions = arguments.pythons or tables.PYTHONS
    failed = pythons.run(versions, words)
    if is_saved:
        # By one of those environments: it can draw.
        drawing = [pythons.environment(versions[-1]), "-m", "benchmarks.page"]
        failed += subprocess.run(drawing, cwd=pythons.ROOT, check=False).returncode != 0
    return min(failed, 1)


def _measure_here(arguments: argparse.Namespace, *, is_saved: bool) -> int:
    # 10,000 verdicts are 10,000 warnings: what is measured is the guard, not a terminal.
    logging.getLogger("streamguard").setLevel(logging.CRITICAL)
    settings = QUICK if arguments.quick else FULL
    described = machine.description()
    print("\n".join(f"{key:18} {value}" for key, value in described.items()))
    figures: list[Figure] = []
    failed: list[str] = []
    for name, measure in _rows(settings).items():
        if arguments.rows and name not in arguments.rows:
            continue
        began = time.monotonic()
        try:
            rows = measure()
        except Exception:  # minutes of other rows are not lost with one that fails
            traceback.print_exc()
            failed.append(name)
            continue
        print(f"{report.table(rows)}\n  ({name}: {time.monotonic() - began:.0f} s)", flush=True)
        figures += rows
    print(f"\n{report.summary(figures)}")
    if failed:
        print(f"FAILED, so that nothing is saved: {', '.join(failed)}")
    elif is_saved:
        print(f"saved {report.save(described, settings, figures).name}")
    return int(bool(failed))


_NOISE = """\
WARNING: others use {:.0f} % of this machine, so that these figures are a look and no figures.
Times are CPU time and minima, but lateness, lines, starts and deaths are real time. Wait until it is quiet, or say --busy.
"""


if __name__ == "__main__":
    sys.exit(main())
