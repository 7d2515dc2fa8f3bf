"""Let sessions out into the weather.

    python -m tests.weather --for 2m                      # asyncio, uvloop and trio side by side
    python -m tests.weather --seed 7 --for 1h --summary weather.json --plot weather.svg
    python -m tests.weather --again 7:trio:311 --times 5  # one session, alone

It exits with 1 if a message was lost or came twice, a verdict was false, a hang was missed, a process lived on, or a
gauge grew. `--sure` tries each such session again, alone, before it says so: on a machine that others use.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamguard._base import durations
from tests.weather import gauges, plot

ROOT = Path(__file__).parents[2]
LOOPS = ("asyncio", "uvloop", "trio")
# A station that says nothing for so long hangs.
_SILENCE = 180.0


def main() -> int:
    options = _arguments()
    seed = options.seed or str(random.randrange(10**6))
    with _somewhere(options.keep) as keep, _full_disk(keep) as full:
        common = {"keep": str(keep), "full": full, "numbers": [], "width": options.width}
        if options.again:
            seed, loop, number = options.again.split(":")
            numbers = [int(number)] * options.times
            station = {**common, "loop": loop, "numbers": numbers, "width": 1, "seconds": 1e9}
            found = _watch([{**station, "seed": seed}])
        else:
            print(f"weather: seed {seed}, {durations.in_words(options.seconds)}", flush=True)
            found = _watch(
                [
                    {**common, "seed": seed, "loop": loop, "seconds": options.seconds}
                    for loop in LOOPS
                ]
            )
        return _summed_up(found, seed, options, {**common, "width": 1, "seconds": 1e9})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.weather",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--for", dest="seconds", type=durations.parsed, default=120.0, metavar="TIME")
    add("--seed", help="unless said, another one each time")
    add("--width", type=int, default=4, help="sessions side by side on each loop (default: 4)")
    add("--again", metavar="SEED:LOOP:N", help="one session, alone")
    add("--times", type=int, default=1, help="how often, with --again")
    add("--sure", type=int, default=0, metavar="N", help="try what failed N times, alone")
    add("--keep", type=Path, help="a folder for what the sessions wrote that failed")
    add("--summary", type=Path, metavar="FILE", help="what was seen, as JSON")
    add("--plot", type=Path, metavar="FILE", help="the gauges over time, as SVG")
    return parser.parse_args()


@contextlib.contextmanager
def _somewhere(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(
        prefix="streamguard-weather-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _full_disk(keep: Path) -> Iterator[str]:
    """A disk with no room; "" where none can be mounted."""
    disk = keep / "full"
    disk.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        yield ""
        return
    try:
        yield str(disk)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def _watch(stations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that they say."""
    found: list[dict[str, Any]] = []
    processes = []
    for config in stations:
        words = [sys.executable, "-m", "tests.weather.station", json.dumps(config)]
        processes.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE))
    import selectors

    with selectors.DefaultSelector() as selector:
        for process, config in zip(processes, stations, strict=True):
            selector.register(process.stdout, selectors.EVENT_READ, (process, config["loop"]))
        while selector.get_map():
            ready = selector.select(_SILENCE)
            if not ready:
                for key in list(selector.get_map().values()):
                    process, loop = key.data
                    process.kill()
                    what = f"the station said nothing for {_SILENCE:g} s"
                    found.append({"kind": "complaint", "loop": loop, "name": "", "what": what})
                break
            for key, _ in ready:
                process, loop = key.data
                if line := process.stdout.readline():
                    found.append(json.loads(line))
                    if found[-1]["kind"] == "complaint":
                        print(f"  {found[-1]['name']}: {found[-1]['what']}", flush=True)
                    continue
                selector.unregister(process.stdout)
                if process.wait():
                    what = f"the station ended with {process.returncode}"
                    found.append({"kind": "complaint", "loop": loop, "name": "", "what": what})
                    print(f"  {loop}: {what}")
    return found


def _summed_up(
    found: list[dict[str, Any]], seed: str, options: argparse.Namespace, alone: dict[str, Any]
) -> int:
    over = [each for each in found if each["kind"] == "session"]
    complaints = [each for each in found if each["kind"] == "complaint"]
    readings: dict[str, list[gauges.Reading]] = {}
    for each in found:
        if each["kind"] == "reading":
            facts = {key: value for key, value in each.items() if key not in ("kind", "loop")}
            readings.setdefault(each["loop"], []).append(gauges.Reading(**facts))
    for loop, taken in readings.items():
        for what in gauges.growth(taken):
            complaints.append({"kind": "complaint", "loop": loop, "name": "", "what": what})
    if options.sure:
        complaints = [
            each for each in complaints if not each["name"] or _is_so(each, options, alone)
        ]
    counts = Counter(sessions=len(over))
    for each in over:
        for name in ("messages", "reconnects", "verdicts", "processes", "blocked"):
            counts[name] += each[name]
    print(f"weather: {', '.join(f'{number:,} {name}' for name, number in counts.items())}")
    for each in complaints:
        print(f"wrong: {each['name'] or each['loop']}: {each['what']}")
        if each["name"]:
            print(f"  again: python -m tests.weather --again {each['name']}")
    summary = {
        "seed": seed,
        "seconds": options.seconds,
        "commit": _commit(),
        "made": time.strftime("%Y-%m-%d", time.gmtime()),
        "counts": dict(counts),
        "complaints": complaints,
    }
    if options.summary:
        data = {loop: [each.as_data() for each in taken] for loop, taken in readings.items()}
        options.summary.write_text(json.dumps({**summary, "readings": data}, indent=1) + "\n")
    if options.plot:
        options.plot.write_text(plot.drawn(readings))
    print(f"weather: {'nothing' if not complaints else len(complaints)} wrong, seed {seed}")
    return 1 if complaints else 0


def _is_so(complaint: dict[str, Any], options: argparse.Namespace, alone: dict[str, Any]) -> bool:
    """Whether it fails alone, too."""
    seed, loop, number = complaint["name"].split(":")
    numbers = [int(number)] * options.sure
    again = _watch([{**alone, "seed": seed, "loop": loop, "numbers": numbers}])
    return any(each["kind"] == "complaint" for each in again)


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
