"""docs/how-to/progress.md stays true: its Python runs, its defaults are the code's, its errors exist."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

import streamguard
from streamguard import IdleTimeoutError
from streamguard._base import defaults
from streamguard._guard.knobs import ENDABLE
from streamguard.errors import ERRORS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "progress.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_block_is_a_guard():
    scope: dict = {}
    exec(BLOCKS[0], scope)
    limits = scope["guard"].limits
    assert (limits.quiet, limits.repeats, limits.ceilings) == (300, 20, {"cost": 5.0})
    assert limits.end_on == {"repeats", "cost"}


async def test_the_second_block_guards_a_call(loop):
    """Progress notifications keep it alive; without them it is ended after 60 s."""
    scope: dict = {}
    exec(BLOCKS[1], scope)

    class Server:
        def __init__(self, notes):
            self.notes = notes

        async def call_tool(self, name, arguments, *, progress_callback):
            for _ in range(self.notes):
                await anyio.sleep(50)
                await progress_callback(1, 2)
            await anyio.sleep(50 if self.notes else 100)
            return name, arguments

    assert await scope["search"](Server(5), "cats") == ("search", {"query": "cats"})
    with pytest.raises(IdleTimeoutError):
        await scope["search"](Server(0), "cats")


def test_its_table_is_the_codes():
    rows = dict(re.findall(r"^\| (.+?) \|.*\| `(\w+)` \|$", PAGE, re.MULTILINE))
    told = {name: error for names, error in rows.items() for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: ERRORS[name].__name__ for name in ENDABLE}
    assert all(hasattr(streamguard, error) for error in told.values())
    assert f"| {defaults.QUIET:g} s |" in PAGE
    assert f"| {defaults.REPEATS} |" in PAGE
