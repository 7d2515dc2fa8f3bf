"""docs/how-to/resilience.md stays true: each of its blocks of Python runs, and its tables are the code's."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import streamguard
from streamguard import CircuitBreaker, ErrorClass, RetryPolicy
from streamguard.retry import GaveUp, decide
from streamguard.testing import Script, run_virtual, say

DOCUMENT = (Path(__file__).parents[2] / "docs" / "how-to" / "resilience.md").read_text(
    encoding="utf-8"
)
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    _, _, after = DOCUMENT.partition(f"## {heading}\n")
    lines = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE).group().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_runs(block):
    """O8: what users copy works."""
    names = {name: getattr(streamguard, name) for name in streamguard.__all__}
    names |= {"stream": Script(say("a"), say("b")), "breaker": CircuitBreaker()}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    async def main():
        result = eval(compile(block, "docs/how-to/resilience.md", "exec", flags=flags), names)
        if inspect.iscoroutine(result):
            await result

    run_virtual(main)


def test_what_is_said_to_be_decided_is_decided():
    """R3: the comment below the example."""
    (block,) = [block for block in BLOCKS if "decide(" in block]
    code, _, said = block.partition("\n# ")
    names = {"ErrorClass": ErrorClass, "decide": decide}
    exec(code, names)
    decision = names["decision"]
    assert (decision.reason, decision.why) == ast.literal_eval(said)


def test_the_table_of_classes_is_the_policys():
    """P2: in the order of their severity, with their retries."""
    table = rows("What is retried")
    assert [row[0].strip("`") for row in table] == [*ErrorClass]
    policy = RetryPolicy()
    retries = [policy.backoff(error_class).retries for error_class in ErrorClass]
    assert [int(row[2].split(",")[0]) for row in table] == retries
    needs_a_person = [row[4] == "a person must look" for row in table]
    assert needs_a_person == [error_class.needs_a_person for error_class in ErrorClass]


def test_the_table_of_knobs_is_the_policys():
    """P2, R5, R9: names and defaults."""
    policy = RetryPolicy()
    for name, default, _ in rows("The policy"):
        value = None if default == "off" else float(default.removesuffix(" s"))
        assert value == getattr(policy, name.strip("`"))


def test_the_table_of_reasons_is_the_decisions():
    """R3"""
    said = {row[0].strip("`").strip('"') for row in rows("When we give up")}
    assert said == set(get_args(GaveUp))


def test_the_pauses_are_the_breakers():
    """P3: how they grow, and when it escalates."""
    breaker, pauses = CircuitBreaker(clock=lambda: 0.0), []
    while breaker.status != "escalated":
        breaker.restore({**breaker.snapshot(), "status": "closed", "pause_left": 0})
        breaker.try_acquire().failed()
        if breaker.status == "open":
            pauses.append(breaker.pause_left)
    first, *later = pauses
    assert f"for {first:g} s; {', '.join(f'{pause:g}' for pause in later)} s when" in DOCUMENT
    assert f"{sum(pauses) / 60:g} minutes after it first opened" in DOCUMENT
