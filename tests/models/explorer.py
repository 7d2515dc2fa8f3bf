"""What every explorer shares: seeds, runs in virtual time, shrinking, cases that are kept.

A *subject* draws schedules, plain JSON values, and runs one on the loop that is running, against
its naive model; what it finds wrong are complaints. The explorer feeds it, many schedules on one
loop, sees to it that each ends and leaves nothing behind, and makes what fails small.

    python -m tests.models --minutes 5                  everything
    python -m tests.models --form block --loop trio --schedules 20000 --seed 7
    python -m tests.models --again block trio 7:4711    one schedule once more
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import importlib
import json
import logging
import math
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol

import anyio
import anyio.lowlevel
import pytest

from streamguard import _loops as loops
from streamguard import live
from streamguard.testing import VirtualLoop, run_virtual
from tests.support import living_tasks, open_files

LOOPS = ("asyncio", "uvloop", "trio")
CASES = Path(__file__).parent / "cases"
# How many schedules share a loop: making one costs more than running a schedule.
BATCH = 200
# Real seconds: a loop that is busy for so long in virtual time will be busy for ever.
STUCK = 20.0

Schedule = dict[str, Any]


class Complaint(NamedTuple):
    """What is wrong, as a word that shrinking holds on to, and in full."""

    kind: str
    detail: str


class Subject(Protocol):
    """What is explored."""

    name: str
    # Virtual seconds that no schedule takes: what is not over by then hangs.
    limit: float
    # For each key of a schedule the value that asks least, which shrinking tries first; together
    # a schedule in which some limit is reached.
    simplest: Mapping[str, Any]

    def draw(self, random: Random) -> Schedule:
        """A schedule. All that is random about it comes from `random`."""
        ...

    def is_valid(self, schedule: Schedule) -> bool:
        """Whether a schedule that was made smaller can still be run."""
        ...

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """Run it on this loop, against the model."""
        ...


class Witness:
    """Put one into a frame that must not be kept: all of them must be gone after a batch."""

    alive: ClassVar[weakref.WeakSet[Witness]] = weakref.WeakSet()

    def __init__(self) -> None:
        Witness.alive.add(self)


class Stuck(KeyboardInterrupt):
    """The loop is busy and time stands still. No event loop lets a mere Exception through."""


@dataclass
class Mismatch:
    """A schedule on which library and model disagree."""

    subject: str
    loop: str
    seed: str
    schedule: Schedule
    complaints: list[Complaint]

    def __str__(self) -> str:
        said = "\n".join(f"    {c.kind}: {c.detail}" for c in self.complaints)
        return (
            f"{self.subject} on {self.loop}, seed {self.seed}\n{said}\n"
            f"    schedule: {json.dumps(self.schedule)}\n"
            f"    again: python -m tests.models --again {self.subject} {self.loop} {self.seed}"
        )

    @property
    def kinds(self) -> set[str]:
        return {complaint.kind for complaint in self.complaints}


@dataclass
class Tally:
    """How many schedules were seen, and what was wrong."""

    seen: int = 0
    seconds: float = 0.0
    mismatches: list[Mismatch] = field(default_factory=list)


def seeded(seed: str) -> Random:
    return Random(seed)


# -- running ------------------------------------------------------------------------------


def run_on(loop: str, main: Callable[[], Any]) -> Any:
    """As a program would: `asyncio.run` in its plain form, and `anyio.run` for the others."""
    if loop == "asyncio":
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())
    return run_virtual(main, backend=loop)


class _Heard(logging.Handler):
    """What the library logs when something of its own fails."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "raised when its deadline came" in record.msg:
            error = record.exc_info[1] if record.exc_info else None
            where = "".join(traceback.format_exception(error)[-4:])
            self.failures.append(f"{record.getMessage()}: {where}")


@contextmanager
def listening() -> Generator[_Heard, None, None]:
    """Hear the library's log, and nobody else does: writing it costs more than a schedule."""
    logger, heard = logging.getLogger("streamguard"), _Heard()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(heard)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    others = logging.getLogger("asyncio")
    others_level = others.level
    others.setLevel(logging.CRITICAL + 1)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)
        logger.propagate = propagate
        others.setLevel(others_level)


@contextmanager
def _not_stuck(seconds: float) -> Generator[Callable[[], None], None, None]:
    """Raise `Stuck` if what this yields is not called for so many real seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def on_alarm(*_: object) -> None:
        raise Stuck(f"the loop ran for {seconds:g} s and virtual time stood still")

    before = signal.signal(signal.SIGALRM, on_alarm)
    left = signal.setitimer(signal.ITIMER_REAL, seconds)[0]
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # pytest-timeout's
            signal.setitimer(signal.ITIMER_REAL, left)


async def passes(count: int = 12) -> None:
    """Let whatever is ready run."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def _observe(subject: Subject, schedule: Schedule, heard: _Heard) -> list[Complaint]:
    """Run one schedule; complain of what hangs and of what is left."""
    tasks, before = living_tasks(), live()
    heard.failures.clear()
    failed: list[str] = []
    if loops.current().cancelled is asyncio.CancelledError:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failed.append(_in_short(context))
        )
    complaints: list[Complaint] = []
    # At a whole second: a tie is one only where what is added up is exact, whatever ran before.
    await anyio.sleep_until(math.ceil(anyio.current_time()))
    with anyio.move_on_after(subject.limit) as scope:
        try:
            complaints = await subject.run(copy.deepcopy(schedule))
        except Exception:
            complaints = [Complaint("crash", traceback.format_exc())]
    if scope.cancelled_caught:
        return [Complaint("hung", f"not over after {subject.limit:g} virtual seconds")]
    await passes()
    complaints += [Complaint("timekeeper", each) for each in heard.failures[:1]]
    complaints += [Complaint("loop", each) for each in failed[:1]]
    if (left := living_tasks() - tasks) != 0:
        complaints.append(Complaint("tasks", f"{left} left: {_tasks_now()}"))
    if timers_left():
        complaints.append(Complaint("timers", f"{timers_left()} left in the timekeeper"))
    if kept := [activity for activity in live() if activity not in before]:
        complaints.append(Complaint("live", f"still live: {kept}"))
    return complaints


def _tasks_now() -> list[str]:
    """The names of all tasks of the running loop."""
    if loops.current().cancelled is asyncio.CancelledError:
        return [task.get_name() + repr(task.get_coro()) for task in asyncio.all_tasks()]
    import trio

    root: Any = trio.lowlevel.current_root_task()
    found, waiting = [], [root]
    while waiting:
        task = waiting.pop()
        found.append(task.name)
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def _in_short(context: dict[str, Any]) -> str:
    """What a loop says of what nobody caught; where, if that is known."""
    error = context.get("exception")
    where = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
    return f"{context.get('message')}: {error!r} {where}"


def timers_left() -> int:
    """How many entries the running loop's timekeeper has; forgotten ones keep its alarm, too."""
    return len(loops.current().timekeeper._heap)


_begun: set[str] = set()


def try_all(
    subject: Subject, loop: str, numbered: Iterable[tuple[str, Schedule]]
) -> Generator[tuple[str, Schedule, list[Complaint]], None, None]:
    """Run schedules, many on one loop; after one that fails, on a new one."""
    pending = list(numbered)
    while pending:
        done: list[tuple[str, Schedule, list[Complaint]]] = []
        yield from _some(subject, loop, pending[:BATCH], done)
        pending = pending[len(done) :]


def _some(
    subject: Subject,
    loop: str,
    some: Sequence[tuple[str, Schedule]],
    done: list[tuple[str, Schedule, list[Complaint]]],
) -> list[tuple[str, Schedule, list[Complaint]]]:
    if loop not in _begun:
        _begun.add(loop)
        run_on(loop, passes)  # the first of a process opens what the others use again
    files = open_files()
    with listening() as heard, _not_stuck(STUCK) as alive, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        async def main() -> None:
            # A loop's first guarded stream starts what all of them share.
            await _observe(subject, dict(subject.simplest), heard)
            for seed, schedule in some:
                alive()
                complaints = await _observe(subject, schedule, heard)
                done.append((seed, schedule, complaints))
                if complaints:
                    return

        problem: Complaint | None = None
        try:
            run_on(loop, main)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not isinstance(error, Stuck):
                raise
            problem = Complaint("run", "".join(traceback.format_exception(error)[-12:]))
    gc.collect()
    if problem is None and (left := len(Witness.alive)):
        problem = Complaint("frames", f"{left} frames of {len(done)} schedules are kept")
    if problem is None and (new := open_files() - files):
        problem = Complaint("files", f"left open: {sorted(new)}")
    Witness.alive.clear()
    if problem is not None:
        if len(done) == len(some) or (done and done[-1][2]):
            done[-1][2].append(problem)
        else:
            done.append((*some[len(done)], [problem]))
    return done


def try_one(subject: Subject, loop: str, schedule: Schedule, seed: str = "") -> list[Complaint]:
    """The complaints about one schedule, on a loop of its own."""
    [(_, _, complaints)] = try_all(subject, loop, [(seed, schedule)])
    return complaints


# -- exploring ----------------------------------------------------------------------------


def explore(
    subject: Subject,
    loop: str,
    *,
    seed: str = "1",
    schedules: float = math.inf,
    seconds: float = math.inf,
    first: int = 0,
    failures: int = 5,
    shrinks: bool = True,
) -> Tally:
    """Run schedules until enough are seen, the time is over, or enough have failed."""
    tally, began, shrunken = Tally(), time.monotonic(), list[set[str]]()
    while tally.seen < schedules and tally.seconds < seconds:
        size = int(min(BATCH, schedules - tally.seen))
        names = [f"{seed}:{first + tally.seen + i}" for i in range(size)]
        drawn = [(name, subject.draw(seeded(name))) for name in names]
        for name, schedule, complaints in try_all(subject, loop, drawn):
            tally.seen += 1
            if not complaints:
                continue
            mismatch = Mismatch(subject.name, loop, name, schedule, complaints)
            if shrinks and mismatch.kinds not in shrunken:  # one of each kind, since it takes time
                shrunken.append(mismatch.kinds)
                mismatch = shrunk(subject, mismatch)
            tally.mismatches.append(mismatch)
            if len(tally.mismatches) >= failures:
                break
        tally.seconds = time.monotonic() - began
        if len(tally.mismatches) >= failures:
            break
    return tally


def shrunk(subject: Subject, mismatch: Mismatch, tries: int = 400) -> Mismatch:
    """The smallest schedule found on which the same is wrong."""
    best, kinds = mismatch, mismatch.kinds
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in simpler(subject, best.schedule):
            tries -= 1
            if tries <= 0:
                break
            if not subject.is_valid(candidate):
                continue
            complaints = try_one(subject, best.loop, candidate)
            if kinds & {complaint.kind for complaint in complaints}:
                best = Mismatch(best.subject, best.loop, best.seed, candidate, complaints)
                progress = True
                break
    return best


def simpler(subject: Subject, schedule: Schedule) -> Generator[Schedule, None, None]:
    """Schedules that ask less: keys at their simplest, shorter lists, smaller numbers."""
    for key, least in subject.simplest.items():
        if schedule.get(key) != least:
            yield {**schedule, key: copy.deepcopy(least)}
    for path, value in _parts(schedule):
        if isinstance(value, list) and value and all(isinstance(v, list | dict) for v in value):
            for i in reversed(range(len(value))):
                yield _with(schedule, path, value[:i] + value[i + 1 :])
    for path, value in _parts(schedule):
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            for less in (0, 1, value / 2, math.floor(value)):
                if less < value and (less == int(less) or less * 8 == int(less * 8)):
                    yield _with(schedule, path, type(value)(less))


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Generator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, part in items:
        yield from _parts(part, (*path, key))


def _with(schedule: Schedule, path: tuple[Any, ...], value: Any) -> Schedule:
    changed: Any = copy.deepcopy(schedule)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


# -- cases that are kept ------------------------------------------------------------------


def kept(subjects: Iterable[Subject]) -> list[Any]:
    """What once failed, as a test's parameters: each subject with each of its schedules."""
    cases = [(file.stem, json.loads(file.read_text())) for file in sorted(CASES.glob("*.json"))]
    return [
        pytest.param(subject, case["schedule"], id=f"{subject.name}-{name}")
        for subject in subjects
        for name, case in cases
        if subject.name in case["subjects"]
    ]


def keep(mismatch: Mismatch, folder: Path = CASES) -> Path:
    """Write a case down."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = "-".join(sorted(mismatch.kinds))
    seed = mismatch.seed.replace(":", "-")
    file = folder / f"{mismatch.subject}-{mismatch.loop}-{kinds}-{seed}.json"
    case = {
        "subjects": [mismatch.subject],
        "found": f"{mismatch.loop}, seed {mismatch.seed}",
        "wrong": [f"{c.kind}: {c.detail}" for c in mismatch.complaints],
        "schedule": mismatch.schedule,
    }
    file.write_text(json.dumps(case, indent=1) + "\n")
    return file


# -- the command --------------------------------------------------------------------------


def subjects() -> dict[str, Subject]:
    """Every subject of this folder's modules, by name."""
    found: dict[str, Subject] = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if not file.stem.startswith(("test_", "_")):
            module = importlib.import_module(f"tests.models.{file.stem}")
            found |= {subject.name: subject for subject in getattr(module, "SUBJECTS", ())}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--schedules", type=int, help="of each form and loop")
    parser.add_argument("--form", action="append", help="all, if none is named")
    parser.add_argument("--loop", action="append", choices=LOOPS)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--failures", type=int, default=5, help="stop a form and loop after these")
    parser.add_argument(
        "--keep", action="store_true", help="write what fails to tests/models/cases"
    )
    parser.add_argument("--again", nargs=3, metavar=("FORM", "LOOP", "SEED"))
    given = parser.parse_args(arguments)
    known = subjects()
    if given.again:
        form, loop, seed = given.again
        schedule = known[form].draw(seeded(seed))
        complaints = try_one(known[form], loop, schedule, seed)
        print(Mismatch(form, loop, seed, schedule, complaints))
        return 1 if complaints else 0
    pairs = [(f, loop) for f in given.form or known for loop in given.loop or LOOPS]
    seconds = given.hours * 3600 + given.minutes * 60 + given.seconds
    schedules = given.schedules or (math.inf if seconds else 1000)
    return _report(known, pairs, given, schedules, seconds / len(pairs) or math.inf)


def _report(
    known: Mapping[str, Subject],
    pairs: Sequence[tuple[str, str]],
    given: argparse.Namespace,
    schedules: float,
    seconds: float,
) -> int:
    wrong = seen = 0
    for form, loop in pairs:
        tally = explore(
            known[form],
            loop,
            seed=given.seed,
            schedules=schedules,
            seconds=seconds,
            failures=given.failures,
        )
        seen += tally.seen
        wrong += len(tally.mismatches)
        rate = tally.seen / max(tally.seconds, 1e-9)
        print(
            f"{form:10} {loop:8} {tally.seen:8,} schedules, {len(tally.mismatches)} wrong"
            f" ({rate:,.0f}/s, seed {given.seed})",
            flush=True,
        )
        for mismatch in tally.mismatches:
            print(mismatch, flush=True)
            if given.keep:
                with suppress(OSError):
                    print(f"    kept: {keep(mismatch)}")
    print(f"{seen:,} schedules, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
