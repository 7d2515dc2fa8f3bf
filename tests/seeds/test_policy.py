"""S2: the timeouts of seed 002, its numbers, its examples and their settlements, by their ids."""

from __future__ import annotations

import json

import anyio
import pytest

from streamguard import ConfigError, DeadlineExceededError, exit_code_for, scope
from streamguard.limits import BUDGETS
from streamguard.specs import FlowSpec
from streamguard.testing import run_virtual
from tests.conftest import Loop
from tests.scopes.support import names, verdict_of

MINUTE = 60.0


def test_s2_01_scopes_and_hard_limits():
    in_minutes = {kind: (b.timeout / 60, b.hard / 60) for kind, b in BUDGETS.items()}
    assert in_minutes == {"step": (10, 15), "flow": (30, 45), "llm_call": (2, 3), "tool": (5, 10)}


def test_s2_02_the_table_in_milliseconds():
    """The policy's own `TIMEOUTS`, as the `timeouts:` of a spec: they are the defaults."""
    timeouts = {"step": 600_000, "flow": 1_800_000, "llm_call": 120_000, "tool": 300_000}
    spec = FlowSpec.of({"timeouts": timeouts})
    assert {kind: spec.scope(kind).timeout for kind in timeouts} == {
        kind: scope(kind).timeout for kind in timeouts
    }


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize(
    ("kinds", "timeouts", "ends_at", "effective"),
    [
        (("flow", "step", "llm_call"), (30, 10, 2), 2, "llm_call"),
        (("flow", "step", "tool"), (30, 10, 5), 5, "tool"),
        (("flow", "step", "tool"), (30, 4, 5), 4, "step"),  # current call and tools terminate
        (("flow", "step", "tool"), (3, 10, 5), 3, "flow"),  # all active steps terminate
    ],
)
def test_s2_03_timeouts_cascade_inward(backend, kinds, timeouts, ends_at, effective):
    async def nested(kinds, timeouts):
        if not kinds:
            await anyio.sleep(1000 * MINUTE)
        async with scope(kinds[0], timeout=timeouts[0] * MINUTE):
            await nested(kinds[1:], timeouts[1:])

    async def main():
        started = anyio.current_time()
        with pytest.raises(DeadlineExceededError) as raised:
            await nested(kinds, timeouts)
        assert anyio.current_time() - started == pytest.approx(ends_at * MINUTE)
        assert names(raised.value)[:2] == (kinds[-1], effective)

    run_virtual(main, backend=backend)


async def test_s2_03_the_example_of_the_cap(loop: Loop):
    """ "Remaining flow time: 5 minutes. Step timeout: 10 minutes. Effective: 5 minutes (capped)"."""
    async with scope("flow"):
        await anyio.sleep(25 * MINUTE)
        async with scope("step") as step:
            assert step.timeout == 10 * MINUTE
            assert step.remaining() == 5 * MINUTE


async def test_s2_04_a_call_that_timed_out_may_be_retried_and_a_flow_that_did_may_not(loop: Loop):
    """ "Request cancelled, retry or fail": the effective scope says which."""
    attempts = []
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=5 * MINUTE):
            while True:
                try:
                    async with scope("llm_call"):
                        attempts.append(anyio.current_time() - 1000)
                        await anyio.sleep(1000 * MINUTE)
                except DeadlineExceededError as error:
                    if verdict_of(error).limit != "llm_call":
                        raise
    assert attempts == [0, 120, 240]
    assert str(verdict_of(raised.value).effective) == "flow"


async def test_s2_11_the_timeout_event_can_be_written_from_the_verdict(loop: Loop):
    """{timestamp ISO8601, scope, timeout_ms, elapsed_ms}, and what the log wants beside it."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", "build"), scope("step", "step-3"), scope("llm_call"):
            await anyio.sleep(1000 * MINUTE)
    verdict = verdict_of(raised.value)
    event = {
        "timestamp": verdict.when.isoformat(),
        "scope": verdict.limit,
        "timeout_ms": round(verdict.window * 1000),
        "elapsed_ms": round(verdict.elapsed * 1000),
    }
    assert (event["scope"], event["timeout_ms"], event["elapsed_ms"]) == (
        "llm_call",
        120_000,
        120_000,
    )
    assert {each.kind: each.name for each in verdict.scope} == {
        "flow": "build",
        "step": "step-3",
        "llm_call": "",
    }
    assert json.loads(json.dumps(event)) == event


PER_FLOW = """\
timeouts:
  step: 900000     # 15 minutes for complex flows
  llm_call: 180000 # 3 minutes for complex prompts
"""
PER_STEP = """\
steps:
  - id: heavy-analysis
    timeout_override: 1200000  # 20 minutes for this step
"""


def load(tmp_path, text):
    (tmp_path / "flow.yaml").write_text(text, encoding="utf-8")
    return FlowSpec.load(tmp_path / "flow.yaml")


def test_s2_19_per_flow_overrides(tmp_path):
    """The policy's example, word for word: both go up to their hard limits and not past them."""
    spec = load(tmp_path, PER_FLOW)
    assert spec.scope("step").timeout == 15 * MINUTE
    assert spec.scope("llm_call").timeout == 3 * MINUTE
    assert spec.scope("tool").timeout == 5 * MINUTE


def test_s2_19_k17_the_per_step_example_is_an_error_unless_the_hard_limit_is_raised(tmp_path):
    """The policy contradicts itself: 20 minutes, with a hard limit of 15."""
    with pytest.raises(ConfigError, match=r"step 'heavy-analysis': 1200000 ms .* 900000 ms") as e:
        load(tmp_path, PER_STEP)
    assert exit_code_for(e.value) == 2
    for raised in (
        PER_STEP + "    hard_limit_override: 1200000\n",
        "hard_limits:\n  step: 1200000\n" + PER_STEP,
    ):
        spec = load(tmp_path, raised)
        assert spec.scope("step", "heavy-analysis").timeout == 20 * MINUTE
        assert spec.scope("step", "another").timeout == 10 * MINUTE


async def test_s2_20_a_timeout_is_told_whatever_happens_next(loop: Loop):
    """ "Always capture state on timeout": whoever retries still leaves a trace."""
    from tests.scopes.support import witnessed

    with witnessed() as told:
        async with scope("step"):
            with pytest.raises(DeadlineExceededError):
                async with scope("llm_call"):
                    await anyio.sleep(1000 * MINUTE)
    assert [event.verdict.limit for event in told] == ["llm_call"]
