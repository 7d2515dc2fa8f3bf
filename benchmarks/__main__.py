"""`python -m benchmarks`: measure, print, and save as JSON and as a plot.

python -m benchmarks                    every row, saved in benchmarks/results
python -m benchmarks --quick --no-save  a look, in under a minute
python -m benchmarks --rows message     some rows only
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

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
    plot,
    processes,
    progress,
    readers,
    recording,
    report,
    start,
    wakeups,
)
from benchmarks.figures import Figure

FULL = {
    "rounds": 30,
    "messages": 20_000,
    "streams": 10_000,
    "most": 100_000,
    "verdicts": 200,
    "repeats": 3,
    "deaths": 100,
    "longest_look": 10,
    "trees": 5,
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
        "progress": lambda: progress.measure(s["rounds"], s["messages"]),
        "readers": lambda: readers.measure(s["rounds"], s["messages"]),
        "hand-over": lambda: hand_over.measure(s["rounds"], s["messages"]),
        "recording": lambda: recording.measure(s["rounds"] // 5, s["messages"] // 5),
        "growth": lambda: growth.measure(s["growth"], s["sizes_left_out"]),
        "idle": lambda: idle_streams.measure(s["streams"], s["most"], s["repeats"]),
        "wakeups": lambda: wakeups.measure(s["repeats"]),
        "process": lambda: processes.measure(s["deaths"], (0.1, s["longest_look"]), s["trees"]),
        "lateness": lambda: lateness.measure(s["streams"], s["verdicts"], s["repeats"]),
        "cli": lambda: command_line.measure(s["rounds"], s["messages"] // 10, s["gigabytes"]),
        "host-death": lambda: host_death.measure(s["rounds"], s["messages"] // 10),
        "fleet": lambda: fleet.measure(
            s["rounds"], s["messages"], s["messages"] // 10, s["longest_look"], s["streams"] // 10
        ),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure streamguard."
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    parser.add_argument("--rows", nargs="+", choices=_rows(FULL), help="only these rows")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="where to save")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    # 10,000 verdicts are 10,000 warnings: what is measured is the guard, not a terminal.
    logging.getLogger("streamguard").setLevel(logging.CRITICAL)
    settings = QUICK if arguments.quick else FULL
    described = machine.description()
    print("\n".join(f"{key:12} {value}" for key, value in described.items()))
    figures: list[Figure] = []
    for name, measure in _rows(settings).items():
        if not arguments.rows or name in arguments.rows:
            rows = measure()
            print(report.table(rows), flush=True)
            figures += rows
    print(f"\n{report.summary(figures)}")
    if not arguments.no_save:
        path = arguments.results / f"{report.stem(described)}.json"
        report.save(described, settings, figures, path)
        plot.draw(described, figures, path.with_suffix(".svg"))
        print(f"saved {path.name} and {path.with_suffix('.svg').name}")


if __name__ == "__main__":
    main()
