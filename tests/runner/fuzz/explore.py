"""Many random runs: in several processes, what fails made small, cases that are kept.

python -m tests.runner.fuzz --runs 5000 --seed 7 --jobs 4     says what it has seen of each dimension
python -m tests.runner.fuzz --hours 2 --keep                  writes what fails to tests/runner/fuzz/cases
python -m tests.runner.fuzz --again 7:113                     one run once more
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.runner.fuzz import draws, model
from tests.runner.fuzz.draws import Scenario
from tests.runner.fuzz.model import Complaint, Facts
from tests.runner.fuzz.world import Seen, World

CASES = Path(__file__).parent / "cases"
# How many runs a worker makes before it is asked for what it has seen.
_BATCH = 10


class Mismatch(NamedTuple):
    """A run of which something is wrong."""

    seed: str
    scenario: Scenario
    complaints: list[Complaint]

    @property
    def kinds(self) -> set[str]:
        return {complaint.kind for complaint in self.complaints}

    def __str__(self) -> str:
        said = "\n".join(f"    {kind}: {detail}" for kind, detail in self.complaints)
        again = f"python -m tests.runner.fuzz --again {self.seed}"
        return f"seed {self.seed}\n{said}\n    scenario: {json.dumps(self.scenario)}\n    again: {again}"


class Tally:
    """What was seen."""

    def __init__(self) -> None:
        self.runs = 0
        self.busy = 0.0
        self.counts: dict[str, Counter[str]] = {}
        self.mismatches: list[Mismatch] = []

    def count(self, dimension: str, value: object) -> None:
        self.counts.setdefault(dimension, Counter())[str(value)] += 1

    def saw(self, scenario: Scenario, seen: Seen) -> None:
        """Count it in each dimension."""
        self.runs += 1
        self.busy += seen.seconds
        for name in ("out", "err", "status"):
            self.count(name, scenario[name])
        self.count("signals", " ".join(name for _, name in scenario["signals"]) or "none")
        self.count("of them sent", " ".join(seen.sent) or "none")
        for name in scenario["options"]:
            self.count("option", name)
        for step in draws.every_step(scenario["steps"]):
            self.count("step", step[0])
        self.count("exit", exit_class(scenario, seen))
        if seen.told is not None:
            self.count("limit", seen.told.get("limit"))
            self.count("attempts", seen.told.get("attempts"))
        self.count("left alive", "somebody" if seen.left else "nobody")

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.busy += other.busy
        self.mismatches += other.mismatches
        for dimension, counter in other.counts.items():
            self.counts.setdefault(dimension, Counter()).update(counter)

    def __str__(self) -> str:
        lines = [
            f"{name:13}" + ", ".join(f"{value} {count}" for value, count in counter.most_common())
            for name, counter in self.counts.items()
        ]
        kinds = Counter(kind for mismatch in self.mismatches for kind in sorted(mismatch.kinds))
        wrong = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        lines.append(f"{self.runs} runs, {len(self.mismatches)} wrong{': ' * bool(wrong)}{wrong}")
        return "\n".join(lines)


def exit_class(scenario: Scenario, seen: Seen) -> str:
    """A word for how it ended."""
    facts, code = Facts(scenario, seen), seen.code
    if code is None:
        return "did not end"
    if facts.was_killed:
        return "killed by KILL"
    if facts.own == code:
        return "own 0" if code == 0 else "own code" if code > 0 else "own signal"
    if code in (124, 125, 137, 141, -13):
        return str(code)
    if code < 0:
        return "a signal passed on"
    return "status preserved" if "preserve-status" in scenario["options"] else "other"


def try_one(
    scenario: Scenario, world: World | None = None, **options: Any
) -> tuple[Seen, list[Complaint]]:
    """One run, and what is wrong with it."""
    given = world or World()
    try:
        seen = given.run(scenario, **options)
        return seen, model.judge(scenario, seen)
    finally:
        if world is None:
            given.close()


def drawn(seed: str, leave_out: Sequence[str] = ()) -> Scenario:
    """The scenario of a seed, without what is left out of it."""
    return draws.without(draws.draw(Random(seed)), leave_out)


def _batch(
    seeds: Sequence[str], program: list[str] | None = None, leave_out: Sequence[str] = ()
) -> Tally:
    """In a worker."""
    tally, world = Tally(), World(program)
    try:
        for seed in seeds:
            scenario = drawn(seed, leave_out)
            seen, complaints = try_one(scenario, world)
            tally.saw(scenario, seen)
            if complaints:
                tally.mismatches.append(Mismatch(seed, scenario, complaints))
    finally:
        world.close()
    return tally


def explore(
    runs: float,
    seed: str = "1",
    *,
    jobs: int = 1,
    seconds: float = float("inf"),
    failures: float = float("inf"),
    program: list[str] | None = None,
    leave_out: Sequence[str] = (),
) -> Tally:
    """Runs until there are enough of them, the time is over, or enough have failed."""
    tally, began = Tally(), time.monotonic()
    numbers = itertools.count()

    def batches() -> Generator[list[str], None, None]:
        given = 0
        while (
            given < runs
            and time.monotonic() - began < seconds
            and len(tally.mismatches) < failures
        ):
            size = int(min(_BATCH, runs - given))
            given += size
            yield [f"{seed}:{next(numbers)}" for _ in range(size)]

    if jobs == 1:
        for batch in batches():
            tally.add(_batch(batch, program, leave_out))
        return tally
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting: set[Future[Tally]] = set()
        for batch in batches():
            waiting.add(pool.submit(_batch, batch, program, leave_out))
            if len(waiting) >= jobs + 1:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in done:
                    tally.add(each.result())
        for each in waiting:
            tally.add(each.result())
    return tally


def shrunk(mismatch: Mismatch, tries: int = 60) -> Mismatch:
    """The smallest scenario found of which the same is wrong. Time is in it: each gets two chances."""
    best, world = mismatch, World()
    try:
        progress = True
        while progress and tries > 0:
            progress = False
            for candidate in draws.simpler(best.scenario):
                if tries <= 0 or not draws.is_valid(candidate):
                    continue
                for _ in range(2):
                    tries -= 1
                    _, complaints = try_one(candidate, world, patience=15.0)
                    if best.kinds & {complaint.kind for complaint in complaints}:
                        best = Mismatch(best.seed, candidate, complaints)
                        progress = True
                        break
                if progress:
                    break
    finally:
        world.close()
    return best


# -- cases that are kept ---------------------------------------------------------------------


def kept() -> dict[str, Scenario]:
    """What once failed, by name."""
    cases = {file.stem: json.loads(file.read_text()) for file in sorted(CASES.glob("*.json"))}
    return {name: case["scenario"] for name, case in cases.items()}


def keep(mismatch: Mismatch, folder: Path = CASES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    name = "-".join([*sorted(mismatch.kinds), *mismatch.seed.split(":")])
    file = folder / f"{name}.json"
    case = {
        "found": f"seed {mismatch.seed}",
        "wrong": [f"{c.kind}: {c.detail}" for c in mismatch.complaints],
        "scenario": mismatch.scenario,
    }
    file.write_text(json.dumps(case, indent=1) + "\n")
    return file


# -- the command -----------------------------------------------------------------------------


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runner.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--failures", type=int, default=1_000_000, help="stop after so many")
    parser.add_argument("--show", type=int, default=12, help="how many to make small and show")
    parser.add_argument(
        "--leave-out", default="", metavar="WORD,...", help="readers, listeners, options, signals"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write them to tests/runner/fuzz/cases"
    )
    parser.add_argument("--again", metavar="SEED", help="one run once more")
    given = parser.parse_args(arguments)
    leave_out = given.leave_out.split(",")
    if given.again:
        scenario = drawn(given.again, leave_out)
        seen, complaints = try_one(scenario)
        _say(seen._replace(out=(seen.out or b"")[-200:]))
        _say(Mismatch(given.again, scenario, complaints))
        return 1 if complaints else 0
    began = time.monotonic()
    seconds = float("inf") if given.hours is None else given.hours * 3600
    runs = given.runs or (1000 if given.hours is None else float("inf"))
    tally = explore(
        runs,
        given.seed,
        jobs=given.jobs,
        seconds=seconds,
        failures=given.failures,
        leave_out=leave_out,
    )
    took = time.monotonic() - began
    _say(tally)
    _say(f"{took:.0f} s, {took / max(tally.runs, 1):.2f} s for each with {given.jobs} jobs")
    shown: list[set[str]] = []
    for mismatch in tally.mismatches:
        if mismatch.kinds in shown or len(shown) >= given.show:
            continue  # one of each kind, since it takes time
        shown.append(mismatch.kinds)
        small = shrunk(mismatch)
        _say(f"\n{small}")
        if given.keep:
            _say(f"    kept: {keep(small)}")
    return 1 if tally.mismatches else 0
