"""docs/how-to/testing.md stays true: each of its blocks of Python is a test file, and passes."""

from __future__ import annotations

import re
from pathlib import Path

from streamguard import testing

pytest_plugins = ["pytester"]

DOCUMENT = (Path(__file__).parents[2] / "docs" / "how-to" / "testing.md").read_text(
    encoding="utf-8"
)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, flags=re.DOTALL | re.MULTILINE)
PLUGINS = (
    "streamguard.testing.plugin",
    "pytest_asyncio.plugin",
    "pytest_trio.plugin",
    "anyio.pytest_plugin",
)


def test_every_example_passes(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(**{f"test_block_{n}": block for n, block in enumerate(BLOCKS)})
    options = [option for plugin in PLUGINS for option in ("-p", plugin)]
    result = pytester.runpytest_subprocess("-W", "error", *options)
    outcomes = result.parseoutcomes()
    written = sum(len(re.findall(r"^(async )?def test_", block, re.MULTILINE)) for block in BLOCKS)
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] >= written >= len(BLOCKS) > 0


def test_every_name_of_the_kit_is_shown():
    """What a test author is not told of is as good as not there."""
    unsaid = {"Message", "VirtualTime"}  # a base class, and what the fixture gives
    words = set(re.findall(r"\w+", DOCUMENT))
    assert set(testing.__all__) - unsaid <= words
