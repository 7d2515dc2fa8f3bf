"""P3: the breaker against a naive model of the same rules, exhaustively and at random.

`STREAMGUARD_BREAKER_DEPTH=4 STREAMGUARD_BREAKER_WALKS=20000 pytest
tests/breaker/test_breaker_model.py -o timeout=0` for the large run; a failure names what was done.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import pytest

from streamguard import CircuitBreaker, CircuitEscalatedError, CircuitOpenError, ErrorClass
from streamguard.breaker import CircuitChanged, CircuitReported, Outcome, Rules
from tests.breaker.breaker_naive import Naive
from tests.sizes import size

DEPTH = int(os.environ.get("STREAMGUARD_BREAKER_DEPTH") or size(dev=2, ci=3))
WALKS = int(os.environ.get("STREAMGUARD_BREAKER_WALKS") or size(dev=60, ci=300))
SEED = int(os.environ.get("STREAMGUARD_BREAKER_SEED") or 1)
STEPS_PER_WALK = 80


def same(first: float, second: float) -> bool:
    return first == second or abs(first - second) < 1e-6  # inf - inf is no number


class Pair:
    """A breaker and the model, told the same and compared after each step."""

    def __init__(self, **knobs: float) -> None:
        self.now = 1000.0
        self.events: list = []
        self.breaker = CircuitBreaker(
            "k", clock=lambda: self.now, observer=self.events.append, **knobs
        )
        self.naive = Naive(**{name: math.inf if v is None else v for name, v in knobs.items()})
        self.rules = self.breaker._rules
        self.permits: dict[int, object] = {}
        self.asked = 0
        self.kept = None
        self.did: list[str] = []
        self.seen: Counter[str] = Counter()
        self.before = self.breaker.circuit

    # -- what may be done ------------------------------------------------------------------

    def do(self, step: str, *, compare: bool = True) -> None:
        """One step by name, such as "ask" or "failure -1"; skipped where it makes no sense."""
        self.did.append(f"{self.now:g} {step}")
        self.before = self.breaker.circuit
        name, _, argument = step.partition(" ")
        if name in REPORTS:
            self.report(name, int(argument))
        elif name == "wait":
            self.now += float(argument)
        else:
            getattr(self, name)()
        if compare:
            self.compare()

    def ask(self) -> None:
        number = self.asked = self.asked + 1
        wait = self.naive.wait(self.naive.live(self.now))
        self.naive.happened(self.now, "asked", number)
        if wait > 0:
            with pytest.raises(CircuitOpenError) as refused:
                self.breaker.try_acquire()
            assert same(refused.value.retry_after, wait)
            escalated = self.before.status == "escalated"
            assert isinstance(refused.value, CircuitEscalatedError) == escalated
            assert self.breaker.circuit == self.before, "a refusal changes nothing"
            self.seen[f"refused {self.before.status}"] += 1
        else:
            permit = self.breaker.try_acquire()
            assert permit.is_probe == self.naive.live(self.now).tickets[number].is_probe
            self.permits[number] = permit
            self.seen["probe" if permit.is_probe else "attempt"] += 1

    def report(self, kind: str, which: int) -> None:
        numbers = [*self.permits]
        if not -len(numbers) <= which < len(numbers):
            return
        number = numbers[which]
        self.naive.happened(self.now, kind, (number, 40.0) if kind == "limited" else number)
        self.events.clear()
        REPORTS[kind](self.permits[number])
        counted = self.naive.live(self.now).counted
        told = [event for event in self.events if isinstance(event, CircuitReported)]
        if kind != "progress":
            assert [event.counted for event in told] == ([] if counted is None else [counted])
            self.seen[f"{kind} {counted}"] += 1

    def throttle(self) -> None:
        self.naive.happened(self.now, "throttle", 40.0)
        self.breaker.throttle(40.0)

    def isolate(self) -> None:
        self.naive.happened(self.now, "isolate")
        self.breaker.isolate()

    def reset(self) -> None:
        self.naive.happened(self.now, "reset")
        self.breaker.reset()

    def keep(self) -> None:
        self.naive.happened(self.now, "keep")
        self.kept = self.breaker.snapshot()
        assert self.kept == pytest.approx(self.naive.live(self.now).kept)

    def restore(self) -> None:
        if self.kept is not None:
            self.naive.happened(self.now, "restore", self.kept)
            self.breaker.restore(self.kept)

    def wait_out(self) -> None:
        """Exactly until somebody may try."""
        if (wait := self.breaker.retry_after) < math.inf:
            self.now += wait

    # -- what must hold --------------------------------------------------------------------

    def compare(self) -> None:
        world, circuit = self.naive.live(self.now), self.breaker.circuit
        assert circuit.status == world.era.status
        assert circuit.failures == world.failures
        wait = self.breaker.retry_after
        assert same(wait, self.naive.wait(world))
        assert circuit.generation == len(world.eras)
        self.seen[f"is {circuit.status}"] += 1
        self.invariants(circuit, wait)

    def invariants(self, circuit, wait) -> None:
        """What must hold whatever the model says."""
        before, knobs = self.before, self.rules
        assert circuit.generation >= before.generation
        last = self.did[-1].split()[1]
        if circuit.status != before.status:
            assert circuit.generation > before.generation
            if before.status in {"escalated", "isolated"}:
                assert last in {"reset", "restore", "isolate"}, "a person's doing"
            if (before.status, circuit.status) == ("half_open", "closed"):
                assert last in {"success", "progress", "reset", "restore"}
            if (before.status, circuit.status) == ("open", "closed"):
                assert last in {"reset", "restore"}, "only by way of a probe"
        most = math.inf if knobs.escalate_after is None else knobs.escalate_after
        assert circuit.failures < knobs.open_after + most
        assert self.naive.pause <= knobs.pause_after(circuit.failures) <= 300
        live = [end for _, end in circuit.leases if end > self.now]
        assert len(live) <= knobs.probes
        assert not live or circuit.status == "half_open"
        # Never stuck: once the time is up that it names itself, somebody may try.
        if wait == math.inf:
            assert circuit.status in {"escalated", "isolated"}
        else:
            assert knobs.wait(circuit, self.now + wait + 1e-6) == 0


REPORTS: dict[str, Callable] = {
    "progress": lambda permit: permit.progressed(),
    "success": lambda permit: permit.succeeded(),
    "failure": lambda permit: permit.failed(ErrorClass.IDLE),
    "neutral": lambda permit: permit.released(),
    "refusal": lambda permit: permit.failed(ErrorClass.AUTH),
    "limited": lambda permit: permit.failed(ErrorClass.RATE_LIMIT, retry_after=40.0),
}


@pytest.fixture(autouse=True)
def _without_log_lines(caplog):
    caplog.set_level(logging.CRITICAL + 1, "streamguard")


# -- every sequence ------------------------------------------------------------------------------

QUICK = {"open_after": 2, "pause": 30.0, "escalate_after": 3, "probe_lease": 45.0}
# An attempt of the first hour is kept under way, to report when its time is long gone.
BEGUN = ["ask"]
OPEN = [*BEGUN, "ask", "failure -1", "ask", "failure -1"]
HALF_OPEN = [*OPEN, "wait 30", "ask"]
PREFIXES = {
    "from the beginning": [],
    "from open": OPEN,
    "from half open": HALF_OPEN,
    "on probation": [*HALF_OPEN, "progress -1", "ask"],
    "from one before the end": [*HALF_OPEN, "failure -1", "wait 60", "ask"],
}
STEPS = [
    *("ask", "wait 29", "wait 30", "wait 45", "throttle", "isolate", "reset", "wait_out"),
    *(f"{kind} {which}" for kind in ("progress", "success", "failure") for which in (-1, 0)),
    *(f"{kind} -1" for kind in ("neutral", "refusal", "limited")),
]


@pytest.mark.timeout(max(300, 17**DEPTH // 100))
@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_sequence_of_steps_agrees_with_the_model(prefix):
    """P3: 17 steps in any order, from each state, however little sense it makes."""
    sequences = 0
    for steps in itertools.product(STEPS, repeat=DEPTH):
        pair = Pair(**QUICK)
        try:
            for step in PREFIXES[prefix]:
                pair.do(step, compare=not sequences)  # it is the same each time
            for step in steps:
                pair.do(step)
        except AssertionError as error:
            error.add_note("\n".join(pair.did))
            raise
        sequences += 1
    assert sequences == len(STEPS) ** DEPTH


# -- long walks at random ------------------------------------------------------------------------


def knobs_of(chance: random.Random) -> dict[str, float]:
    open_after = chance.choice([1, 2, 3, 3])
    return {
        "open_after": open_after,
        "pause": chance.choice([0.5, 30.0, 30.0]),
        "escalate_after": chance.choice([None, 1, 2, 3, 5]),
        "pause_growth": chance.choice([1, 1.5, 2, 2, 4]),
        "longest_pause": chance.choice([1, 100, 300]),
        "reset_after": chance.choice([1, 1, 1, 2, 3]),
        "probes": chance.choice([1, 1, 1, 2, 3]),
        "probe_lease": chance.choice([10.0, 45.0, 300.0]),
    }


def step_of(chance: random.Random) -> str:
    which = chance.choice([-1, -1, -1, -2, -3, 0, 1])
    (step,) = chance.choices(
        [
            *("ask", f"failure {which}", f"success {which}", f"progress {which}"),
            *(f"neutral {which}", f"limited {which}", f"refusal {which}"),
            *(f"wait {chance.choice([0, 0.5, 1, 10, 29, 30, 45, 300])}", "wait_out"),
            *("throttle", "isolate", "reset", "keep", "restore"),
        ],
        [30, 20, 6, 8, 4, 2, 1, 10, 15, 1, 0.3, 2, 2, 0.5],
    )
    return step


def test_long_walks_at_random_agree_with_the_model():
    """P3: whatever the knobs, with many attempts under way at once."""
    seen: Counter[str] = Counter()
    for number in range(WALKS):
        chance = random.Random(SEED * 1_000_003 + number)
        knobs = knobs_of(chance)
        pair = Pair(**knobs)
        try:
            for _ in range(STEPS_PER_WALK):
                pair.do(step_of(chance))
        except AssertionError as error:
            error.add_note(f"walk {number} of seed {SEED}, {knobs}:\n" + "\n".join(pair.did))
            raise
        seen += pair.seen
    # A walk that no longer gets somewhere would compare nothing there.
    statuses = {"closed", "open", "half_open", "escalated", "isolated"}
    assert {status for status in statuses if seen[f"is {status}"]} == statuses
    assert {status for status in statuses if seen[f"refused {status}"]} == statuses
    for report in ("success", "failure", "neutral", "refusal", "limited"):
        assert seen[f"{report} True"]
        assert seen[f"{report} False"]
        assert seen[f"{report} None"]
    assert seen["probe"]
    assert seen["attempt"]


class Rash(Rules):
    """Any number of probes, as four Python breakers do it."""

    def wait(self, circuit, now):
        return 0.0 if circuit.status == "half_open" else super().wait(circuit, now)


class Forgetful(Rules):
    """Late outcomes count, as in seed 002."""

    def _counts(self, circuit, generation):
        return True


class Lenient(Rules):
    """An attempt that says nothing closes the circuit, as with Polly and cockatiel."""

    def ended(self, circuit, now, holder, generation, outcome):
        outcome = Outcome.SUCCESS if outcome is Outcome.NEUTRAL else outcome
        return super().ended(circuit, now, holder, generation, outcome)


@pytest.mark.parametrize("rules", [Rash, Forgetful, Lenient])
def test_the_model_would_notice(rules):
    """P3: a check that cannot fail checks nothing. What others do wrong does fail it."""

    def walk(number):
        chance = random.Random(number)
        pair = Pair(**QUICK)
        pair.breaker._rules = rules(**asdict(pair.rules))
        for _ in range(STEPS_PER_WALK):
            pair.do(step_of(chance))

    with pytest.raises((AssertionError, CircuitOpenError)):
        for number in range(20):
            walk(number)


def test_events_tell_each_transition_once():
    """P3: in order, each with where it came from."""
    pair = Pair(**QUICK)
    for step in [*HALF_OPEN, "progress -1", "success -1", "isolate", "reset"]:
        pair.events.clear() if step == "reset" else None
        pair.do(step)
    (changed,) = [event for event in pair.events if isinstance(event, CircuitChanged)]
    assert (changed.before, changed.after, changed.cause) == (
        "isolated",
        "closed",
        "reset by hand",
    )
    assert changed.generation == pair.breaker.circuit.generation
