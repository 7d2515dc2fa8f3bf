"""docs/how-to/backends/claude.md stays true: every block of Python in it is run here, over scripted CLIs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamguard.testing import hang, run_virtual

sdk = pytest.importorskip("claude_agent_sdk")
from tests.backends.claude_cli import Clis, init, result, text  # noqa: E402 - it needs the SDK

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "backends" / "claude.md"
ANSWER = [init(), text("done"), result()]


@pytest.fixture
def page():
    """What the page's blocks define, one after another."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(DOCS), "exec"), names)
    return names


def test_the_session(page, monkeypatch, capsys):
    clis = Clis([[init(), text("hm"), hang()], ANSWER, ANSWER]).install(monkeypatch)
    run_virtual(page["fix"])
    assert clis.prompts == ["Fix issue 7", "Continue.", "The tests still fail."]
    assert len(clis.started) == 1
    assert capsys.readouterr().out.count("'done'") == 2


@pytest.mark.parametrize("name", ["one_turn", "tapped"])
def test_a_client_of_ones_own(page, name, monkeypatch, capsys):
    clis = Clis([ANSWER]).install(monkeypatch)
    run_virtual(page[name], sdk.ClaudeAgentOptions())
    assert clis.prompts == ["Fix issue 7"]
    assert clis.living == []
    assert "'done'" in capsys.readouterr().out
