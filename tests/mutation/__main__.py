"""Show mutants of the code that decides to the tests.

    python -m tests.mutation                            # every module, every mutant that has no outcome yet: a night
    python -m tests.mutation _guard/teardown retry      # these modules, or rooms
    python -m tests.mutation --sample 15                # some, drawn by the text of the modules: minutes
    python -m tests.mutation --map                      # first, for speed: which test runs which line
    python -m tests.mutation --record                   # write record.json from what is known

It exits with 1 if a mutant was noticed by no test and is not in accounted.toml. It needs Linux and root, for it puts
the mutated file over the real one in a mount namespace of its own; nothing on the disk changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.mutation import accounted, mapping, record
from tests.mutation.decisions import MODULES, rooms_of
from tests.mutation.forks import Forks, Seen, can_isolate
from tests.mutation.mapping import Map
from tests.mutation.mutants import ROOT, Mutant, file_of, mutants_of
from tests.mutation.record import Row

_BUDGET: Final = 60.0  # seconds of tests for one mutant, unless said


def main() -> int:
    options = _arguments()
    if options.map:
        return mapping.make()
    modules = [each for each in MODULES if _is_meant(each, options.modules)]
    if not modules:
        print(f"mutation: no module is called so; there are: {' '.join(MODULES)}", file=sys.stderr)
        return 2
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    explained = accounted.read()
    if options.record:
        made = record.write(mutants, explained, _commit())
        print(sum((Counter(each) for each in made["counts"].values()), Counter()))
        return 0
    chosen = _chosen(mutants, explained, options)
    if options.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    if not chosen:
        print("mutation: nothing is left to do")
        return 0
    if not can_isolate():
        print("mutation: mount namespaces are needed: run it on Linux as root", file=sys.stderr)
        return 2
    _run(chosen, options)
    return _summed_up(chosen, explained)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("modules", nargs="*", help="such as _guard/teardown, or retry; all of them, unless said")
    add("--sample", type=int, metavar="N", help="so many, instead of all")
    add("--seed", help="which sample; unless said, the text of the modules")
    add("--only", metavar="REGEX", help="those whose name matches")
    add("--again", action="store_true", help="those, too, that have an outcome already")
    add("--budget", type=float, default=_BUDGET, help="seconds of tests for one (default: 60)")
    add("--jobs", type=int, default=2, help="how many at once (default: 2)")
    add("--list", action="store_true", help="name them, and run nothing")
    add("--map", action="store_true", help="find out which test runs which line: ten minutes")
    add("--record", action="store_true", help="write record.json from the outcomes that are known")
    return parser.parse_args()


def _is_meant(module: str, said: Sequence[str]) -> bool:
    return not said or any(f"{module}/".startswith(f"{each.rstrip('/')}/") for each in said)


def _chosen(
    mutants: list[Mutant], explained: accounted.Accounted, options: argparse.Namespace
) -> list[Mutant]:
    known = {} if options.again or options.sample else record.latest(mutants)
    chosen = [
        mutant
        for mutant in mutants
        if mutant.name not in explained
        and (not options.only or re.search(options.only, mutant.name))
        and getattr(known.get(mutant.key), "outcome", "") != "noticed"
    ]
    if options.sample:
        seed = options.seed or _digest_of({mutant.module for mutant in mutants})
        chosen = random.Random(seed).sample(chosen, min(options.sample, len(chosen)))
        print(f"mutation: {len(chosen)} of {len(mutants)} mutants, seed {seed}", flush=True)
    return chosen


def _digest_of(modules: set[str]) -> str:
    texts = b"".join(file_of(module).read_bytes() for module in sorted(modules))
    return hashlib.sha256(texts).hexdigest()[:8]


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _run(chosen: list[Mutant], options: argparse.Namespace) -> None:
    """Each job is a pytest of its own, with its share of the mutants."""
    jobs = max(1, min(options.jobs, len(chosen)))
    pids = []
    for number in range(jobs):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _work(chosen[number::jobs], options.budget)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    if any(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids):
        print("mutation: a job broke off", file=sys.stderr)


def _work(chosen: list[Mutant], budget: float) -> int:
    modules = sorted({mutant.module for mutant in chosen})
    known, first = Map(), record.noticers()
    files = {test.partition("::")[0] for m in chosen for test in known.running(m)}
    files |= {first[m.key].partition("::")[0] for m in chosen if m.key in first}
    rooms = {room for module in modules for room in rooms_of(module)}
    inside = tuple(f"{room}/" for room in rooms if not room.endswith(".py"))
    paths = [*rooms, *(f for f in files if not f.startswith(inside) and (ROOT / f).exists())]
    done: list[int] = []

    class Plugin:
        def pytest_configure(self) -> None:
            _hush_hypothesis()

        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            audience = _Audience(Forks(session, modules), known, first, budget)
            for mutant in chosen:
                audience.judge(mutant)
            done.append(1)
            return True

    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.setdefault("STREAMGUARD_TESTS", "dev")
    sys.dont_write_bytecode = True
    _say.to = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # pytest's own dots
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    pytest.main([*words, *sorted(set(paths))], plugins=[Plugin()])
    return 0 if done else 1


def _hush_hypothesis() -> None:
    """A failure is enough, it need not be the smallest, and none is kept for the next mutant."""
    from hypothesis import HealthCheck, Phase, settings

    phases = [Phase.explicit, Phase.generate]
    all_ = list(HealthCheck)
    settings.register_profile(
        "mutation", phases=phases, database=None, suppress_health_check=all_, deadline=None
    )
    settings.load_profile("mutation")


class _Say:
    to: Any = sys.stdout

    def __call__(self, text: str) -> None:
        print(text, file=self.to, flush=True)


_say = _Say()


class _Audience:
    """The tests that a mutant is shown to, and in which order."""

    def __init__(self, forks: Forks, known: Map, first: dict[str, str], budget: float) -> None:
        self._forks, self._map, self._first, self._budget = forks, known, first, budget
        self._tests = forks.tests
        self._sound: set[str] = set()
        self._failing = set(known.failing)
        self._keen: Counter[str] = Counter()  # how many each has noticed

    def judge(self, mutant: Mutant) -> None:
        began = time.monotonic()
        tests = self._chosen(mutant)
        seen = Seen("survived", None, 0)
        left = tests
        while left:
            seen = self._forks.show(mutant, left, self._patience)
            if seen.outcome == "survived" or seen.test is None or self._is_proof(mutant, seen):
                break
            left = left[left.index(seen.test) + 1 :]
            seen = Seen("survived", None, 0)
        outcome = "noticed" if seen.noticed else seen.outcome
        if seen.noticed and seen.test:
            self._keen[seen.test] += 1
        took = round(time.monotonic() - began, 1)
        by = seen.test if seen.noticed else None
        record.add(Row(mutant.name, mutant.key, mutant.around, outcome, by, len(tests), took))
        if not seen.noticed:
            _say(f"{outcome.upper()} {mutant.name}  ({len(tests)} tests, {took} s)")

    def _is_proof(self, mutant: Mutant, seen: Seen) -> bool:
        """Whether it was the mutant: the test passes without it; and what took too long does so again."""
        test = seen.test
        assert test is not None
        if (
            seen.outcome != "failed"
            and not self._forks.show(mutant, [test], lambda test: 2 * self._patience(test)).noticed
        ):
            return False
        if test not in self._sound and test not in self._failing:
            passes = self._forks.show(None, [test], self._patience).outcome == "survived"
            (self._sound if passes else self._failing).add(test)
        return test in self._sound

    def _patience(self, test: str) -> float:
        return max(15.0, 6 * self._map.took(test) + 10)

    def _chosen(self, mutant: Mutant) -> list[str]:
        running = self._map.running(mutant)
        own = tuple(rooms_of(mutant.module))
        known = [
            test
            for test in self._tests
            if test not in self._failing and (test in running if running else test.startswith(own))
        ]
        first = self._first.get(mutant.key)
        seen: Counter[str] = Counter()

        def rank(test: str) -> tuple[Any, ...]:
            took = self._map.took(test)
            keen = -self._keen[test] / (took + 0.05)
            other_loop = ("trio" in test or "uvloop" in test) != mutant.module.endswith("_trio")
            return test != first, keen, not test.startswith(own), other_loop, took

        known.sort(key=rank)
        # One case of each test, then another of each: what differs notices most.
        turn: dict[str, int] = {}
        for test in known:
            function = test.partition("[")[0]
            turn[test] = 0 if self._keen[test] or test == first else seen[function]
            seen[function] += 1
        known.sort(key=turn.__getitem__)
        return self._within_budget(known)

    def _within_budget(self, tests: list[str]) -> list[str]:
        left, within = self._budget, []
        for test in tests:
            took = self._map.took(test)
            if took <= left or not within:
                within.append(test)
                left -= took
        return within


def _summed_up(chosen: list[Mutant], explained: accounted.Accounted) -> int:
    known = record.latest(chosen)
    outcomes = Counter(getattr(known.get(mutant.key), "outcome", "unknown") for mutant in chosen)
    survivors = [m for m in chosen if getattr(known.get(m.key), "outcome", "") != "noticed"]
    print(f"mutation: {outcomes['noticed']} of {len(chosen)} noticed")
    for mutant in survivors:
        print(f"  not noticed: {mutant.name}")
    if survivors:
        print(f"Write a test that notices, or say in {accounted.FILE.name} why none can.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
