"""The watch against a naive model of the same rules, over random attempts.

`STREAMGUARD_MODEL_STEPS=1000000 pytest tests/watch/test_watch_model.py -o timeout=0` for a long
run; a failure names the seed, and `STREAMGUARD_MODEL_SEED` repeats it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamguard._watch.watch import Limits, Watch
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.sizes import size
from tests.watch.driver import TICK, Trio, waiting_until

STEPS = int(os.environ.get("STREAMGUARD_MODEL_STEPS") or size(dev=12_000, ci=40_000))
SEED = int(os.environ.get("STREAMGUARD_MODEL_SEED") or 1)
STEPS_PER_ATTEMPT = 60

LIMITS = {"idle", "first", "liveness", "tools", "turn", "exit_grace", "total", "exited", "quiet"}
LIMITS |= {"after_sleep"}
IDS = ["a", "b", "c", ""]
NAMES = ["", "Bash", "Read", "Task"]


class Chance:
    """What a random attempt is made of; `random.Random` and hypothesis' own both serve."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def window(self, *seconds):
        return self.source.choice([None, *seconds])

    def limits(self) -> Limits:
        choice = self.source.choice
        return Limits(
            idle=self.window(0.25, 1.0, 5.0, 5.0, 10.0),
            first=self.window(0.5, 5.0, 12.0),
            liveness=self.window(0.25, 3.0, 8.0),
            gate=choice([True, True, False]),
            tools=self.window(2.0, 20.0, 7200.0),
            tools_by_name=choice([{}, {"Bash": 1.0}, {"Bash": None, "Read": 9.0}]),
            turn=self.window(None, 6.0, 30.0, 300.0),
            exit_grace=self.window(0.5, 5.0),
            total=self.window(None, 20.0, 60.0, 600.0),
            after_sleep=self.window(0.25, 2.0, 2.0, 30.0),
            quiet=self.window(None, 1.0, 4.0),
            quiet_by_name=choice([{}, {}, {"Task": 2.0}, {"Bash": None, "Read": 3.0}]),
            repeats=choice([None, 2, 3]),
            ceilings=choice([{}, {"calls": 1}, {"calls": 1}]),
            end_on=choice(
                [frozenset(), frozenset({"quiet", "repeats"}), frozenset({"calls", "empty"})]
            ),
        )

    def work(self, id_: str, **more) -> WorkStarted:
        choice = self.source.choice
        parent, asked = choice([None, None, *IDS]), choice([None, "x", "x", {"y": 1}])
        return WorkStarted(id_, choice(NAMES), parent=parent, input=asked, **more)

    def end(self, id_: str) -> WorkFinished:
        choice = self.source.choice
        return WorkFinished(id_, choice([False, False, True]), choice([None, "ok", "ok", "no"]))

    def prompt(self, trio: Trio) -> None:
        """A turn that begins, and is waited for."""
        trio.mark_prompt()
        trio.ask()
        for _ in range(2):  # at half-time, and at the end
            self.judge_at_deadline(trio)

    def sub_agent(self, trio: Trio) -> None:
        """One that speaks, and then may not."""
        trio.message([WorkStarted("a", "Task"), WorkProgressed("a")])
        trio.ask()
        self.judge_at_deadline(trio)

    def loops(self, trio: Trio) -> None:
        """The same work, or a cycle, a few times, with something else between."""
        ids = self.source.choice(["a", "ab", "abc", "abcd"])
        ended = WorkFinished("", outcome="ok")
        for _ in range(self.source.choice([2, 3, 4, 9])):
            for id_ in ids:
                trio.message([WorkStarted(id_, "Bash", input=id_)])
                trio.message([replace(ended, id=id_)])
            if self.source.random() < 0.1:
                trio.message(self.signals(trio.now))

    def signal(self, now: float):
        id_ = self.source.choice(IDS)
        return self.source.choice(
            [
                Progress,
                Liveness,
                Liveness,
                TurnEnded,
                *[lambda: Usage({"tokens": 1.0})] * 3,
                lambda: SessionOpened(id_),
                lambda: self.work(id_),
                lambda: self.work(id_, background=True),
                lambda: self.work(id_, scope="hook"),
                lambda: WorkProgressed(id_),
                lambda: WorkProgressed(id_),
                lambda: self.end(id_),
                lambda: self.end(id_),
                lambda: waiting_until(
                    id_,
                    now,
                    self.source.choice([None, -40, 0, 8, 33]),
                    aware=self.source.choice([True, False]),
                ),
                lambda: WaitEnded(id_),
                lambda: TurnEnded(answered=self.source.choice([True, False])),
                lambda: TurnEnded(more_expected=self.source.choice([True, False, False])),
                Failed,
            ]
        )()

    def signals(self, now: float):
        if self.source.random() < 0.4:
            return [Progress()]
        return [self.signal(now) for _ in range(self.source.choice([1, 1, 1, 2, 3, 0]))]

    def step(self, trio: Trio) -> str:
        """One fact, one question or some time."""
        source = self.source
        acts = {
            "begin": (1, trio.begin),
            "ask": (10, trio.ask),
            "give up": (2, trio.give_up),
            "message": (8, lambda: trio.message(self.signals(trio.now))),
            "exchange": (8, lambda: self.exchange(trio)),
            "a prompt": (1.5, lambda: self.prompt(trio)),
            "a sub-agent": (2, lambda: self.sub_agent(trio)),
            "loops": (1, lambda: self.loops(trio)),
            "announce again": (2, lambda: self.announce_again(trio)),
            "overheard": (2, lambda: trio.overheard(self.signals(trio.now))),
            "hold": (3, lambda: trio.hold(source.choice([1, 2]), self.hold_end(trio.now))),
            "release": (3, lambda: trio.release(source.choice([1, 2]))),
            "touch": (1, trio.touch),
            "exited": (0.5, trio.exited),
            "woke": (1, trio.woke),
            "sleep": (2, lambda: self.sleep(trio)),
            "mark_prompt": (1, trio.mark_prompt),
            "judge": (6, trio.judge),
            "judge and mute": (3, lambda: (trio.judge(), trio.mute())),
            "wait": (6, lambda: trio.wait(source.choice([0, 1, 2, 3, 8, 20, 41]))),
            "until the deadline": (6, lambda: trio.wait_for_deadline(self.lateness())),
            "judge there": (10, lambda: self.judge_at_deadline(trio)),
        }
        weights = [weight for weight, _ in acts.values()]
        (name,) = source.choices(list(acts), weights)
        acts[name][1]()
        return name

    def exchange(self, trio: Trio) -> None:
        """A plain message, as most are, and a wait for the next, which may get long."""
        trio.message([Progress()])
        trio.ask()
        if self.source.random() < 0.5:
            self.judge_at_deadline(trio)

    def sleep(self, trio: Trio) -> None:
        """The machine sleeps while a message is waited for."""
        trio.ask()
        trio.woke()
        if self.source.random() < 0.5:
            self.judge_at_deadline(trio)

    def announce_again(self, trio: Trio) -> None:
        """The same waits, over and over, for a minute or for hours."""
        apart = self.source.choice([0, 8, 240, 240, 12_000])
        for _ in range(self.source.choice([1, 2, 5])):
            ticks = self.source.choice([None, None, None, 16, 40_000])
            again = waiting_until(self.source.choice("aab"), trio.now, ticks, aware=False)
            trio.message([again])
            trio.ask()
            trio.judge()
            trio.wait(apart)

    def lateness(self) -> int:
        return self.source.choice([-1, 0, 0, 0, 1, 2, 3, 16])

    def hold_end(self, now: float) -> float:
        return now + self.source.choice([-8, 0, 4, 12, 60, 28_800, float("inf")]) * TICK

    def judge_at_deadline(self, trio: Trio) -> None:
        trio.wait_for_deadline(self.lateness())
        trio.judge()
        if self.source.random() < 0.3:
            trio.mute()


class Attempt(RuleBasedStateMachine):
    """Hypothesis chooses, and shrinks what fails to the fewest facts."""

    @initialize(source=st.randoms(use_true_random=False))
    def start(self, source):
        self.chance = Chance(source)
        self.trio = Trio(self.chance.limits())
        self.trio.begin()

    @rule()
    def step(self):
        self.chance.step(self.trio)

    @invariant()
    def all_agree(self):
        if hasattr(self, "trio"):
            self.trio.compare()


TestAttempt = Attempt.TestCase
TestAttempt.settings = settings(
    max_examples=size(dev=10, ci=60),
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_random_attempts_agree_with_the_model():
    """T1, T2, T4, T5, T6, T14, S0, S3, B5: whatever happens, in whatever order."""
    happened = random_attempts()
    # A driver that no longer gets somewhere would compare nothing there.
    assert {"shortcut ask", "shortcut message"} < happened.keys()
    shown = {"repeats", "calls", "empty"}
    assert {kind.removeprefix("due ") for kind in happened if kind[:4] == "due "} == LIMITS | shown
    assert {kind[8:] for kind in happened if kind[:8] == "stalled "} == LIMITS - {"total"}
    assert {kind[5:] for kind in happened if kind[:5] == "half "} == {"idle", "first"}
    assert "found quiet" in happened
    assert {kind[5:] for kind in happened if kind[:5] == "told "} == shown
    assert {kind[7:] for kind in happened if kind[:7] == "struck "} == shown


def random_attempts() -> Counter[str]:
    """What happened in them; the watch agreed with the model all along."""
    happened: Counter[str] = Counter()
    for number in range(STEPS // STEPS_PER_ATTEMPT + 1):
        chance = Chance(random.Random(SEED * 1_000_003 + number))
        trio = Trio(chance.limits())
        history = [repr(trio.slow.limits)]
        try:
            for _ in range(STEPS_PER_ATTEMPT):
                history.append(f"{trio.now:g} {chance.step(trio)}")
                trio.compare()
                if trio.slow.struck is not None:
                    happened[f"struck {trio.slow.struck.limit}"] += 1
        except AssertionError as error:
            error.add_note(f"attempt {number} of seed {SEED}:\n" + "\n".join(history))
            error.add_note("\n".join(map(repr, trio.naive.facts)))
            raise
        happened += trio.happened
        happened += Counter(f"told {found.limit}" for found in trio.slow.found)
    return happened


def _outlives_a_message(watch: Watch, *args: Any, **kwargs: Any) -> None:
    woken = watch._awake
    SEE(watch, *args, **kwargs)
    if watch.turn_open:
        watch._awake = woken


def _spares_no_work(watch: Watch, now: float) -> bool:
    is_woken = WOKE(watch, now)
    if not is_woken and watch.waiting_since is not None and watch.turn_open:
        watch._awake = 0.0
    return is_woken


SEE, WOKE = Watch.see, Watch.woke


@pytest.mark.parametrize(
    ("fact", "fault"),
    [
        ("woke", lambda _watch, _now: False),
        ("woke", _spares_no_work),
        ("see", _outlives_a_message),
    ],
)
def test_the_model_finds_what_forgets_that_the_machine_slept(monkeypatch, fact, fault):
    """B5, the control: a watch that hears of no wake, spares no work, or takes no message as a sign."""
    monkeypatch.setattr(Watch, fact, fault)
    with pytest.raises(AssertionError):
        random_attempts()
