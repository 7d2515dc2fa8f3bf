"""Random runs against their naive model.

`python -m tests.runner.fuzz` takes as long, and as many seeds, as one likes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from tests.runner.fuzz import draws, explore, model
from tests.sizes import size

# Always the same: what a new seed finds must not fail a build.
SEED = size(dev="1", ci="ci")
RUNS, PARTS = size(dev=40, ci=96), 8
JOBS = size(dev=1, ci=2)

pytestmark = pytest.mark.timeout(size(dev=300, ci=3600))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_runs(part):
    tally = explore.explore(RUNS // PARTS, f"{SEED}{part}", jobs=JOBS)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.runs == RUNS // PARTS


CASES = explore.kept()


@pytest.mark.parametrize("name", CASES)
def test_a_kept_case(name):
    _, complaints = explore.try_one(CASES[name])
    assert not complaints


def test_the_draws_hold_every_kind_of_everything():
    """What a model never sees, it cannot judge."""
    scenarios = [draws.draw(Random(f"all:{i}")) for i in range(1500)]
    assert {each["out"] for each in scenarios} == set(draws.READERS)
    assert {each["err"] for each in scenarios} == {*draws.LISTENERS, "terminal"}
    assert {each["status"] for each in scenarios} == set(draws.STATUS)
    steps = {step[0] for each in scenarios for step in draws.every_step(each["steps"])}
    child = Path(explore.__file__).with_name("child.py").read_text()
    assert {f"do_{step}" for step in steps} == {
        line.split("(")[0].removeprefix("def ")
        for line in map(str.strip, child.splitlines())
        if line.startswith("def do_")
    }
    assert all(draws.is_valid(each) for each in scenarios)


# Guards with one fault each, in place of `run`: they take its words and do without their meaning.
LIARS = {
    # Becomes the command: there are no limits and nothing is ended.
    "hung survivors code status": "os.execvp(command[0], command)",
    # Ends at its limit, and says so, but sees to the command only.
    "survivors": (
        "p = subprocess.Popen(command)\n"
        "try: code = p.wait(0.5)\n"
        "except subprocess.TimeoutExpired: p.kill(); code = 124\n"
        "os._exit(code if code >= 0 else 128 - code)"
    ),
    # Loses what it should pass on, and says that all is well.
    "lost": "subprocess.run(command, stdout=subprocess.DEVNULL, timeout=5); os._exit(0)",
    "bytes": (
        "out = subprocess.run(command, stdout=subprocess.PIPE, timeout=5).stdout\n"
        "os.write(1, out[::-1])"
    ),
}


@pytest.mark.parametrize("kinds", LIARS)
def test_a_guard_that_is_at_fault_is_found_out(kinds, tmp_path):
    """The control of the model."""
    liar = tmp_path / "liar.py"
    liar.write_text(
        "import os, subprocess, sys\n"
        f"command = sys.argv[sys.argv.index('--') + 1:]\n{LIARS[kinds]}\n"
    )
    scenario = {
        "steps": [["out", 3], ["daemon", "a", [["hang"]]], ["hang"]],
        "options": {"idle": 0.3, "total": 0.6, "kill-after": 0.1},
        "out": "eager",
        "err": "read",
        "signals": [],
        "status": "plain",
        "company": False,
    }
    if kinds in ("lost", "bytes"):
        scenario["steps"] = [["out", 3], ["exit", 0]]
    world = explore.World([sys.executable, "-I", "-S", str(liar)])
    try:
        seen = world.run(scenario, patience=5)
    finally:
        world.close()
    found = {complaint.kind for complaint in model.judge(scenario, seen)}
    assert found & set(kinds.split())
