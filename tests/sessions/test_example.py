"""examples/agent_session.py does what it says, and has no watchdog code in its session."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "agent_session.py"


@pytest.fixture
def example(monkeypatch):
    spec = importlib.util.spec_from_file_location("agent_session", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "agent_session", module)
    spec.loader.exec_module(module)
    return module


def test_the_scripted_session(loop, example, capsys):
    """S0: a hang, a lost connection, a gate and a review that are not content, and a good end."""
    assert loop.run(example.main) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    asked = [line for line in lines if line.startswith(("--", ">"))]
    assert asked == [
        "-- client 1, afresh",
        "> Fix issue-7.",
        "-- client 2, resuming session-7",
        "> Continue on issue-7.",
        "> The gate of issue-7 says: lint: 2 errors",
        "-- client 3, resuming session-7",
        "> Continue on issue-7.",
        "> The review of issue-7 says: the name says nothing",
    ]
    assert [line for line in lines if line.startswith(("gate", "review"))] == [
        "gate: lint: 2 errors",
        "gate: passed",
        "review: the name says nothing",
        "gate: passed",
        "review: passed",
    ]
    assert lines[-1] == "done"


def test_giving_up_is_told_with_all_attempts(loop, example, capsys, monkeypatch):
    """R3: what a person reads when nothing helped."""
    dead = example.FakeClient(example.Script(example.opened("s"), example.hang()))
    monkeypatch.setattr(example, "ClientFactory", lambda *_: lambda _point: dead)
    assert loop.run(example.main) == 1
    lines = capsys.readouterr().out.splitlines()
    told = [line.strip() for line in lines if line.startswith(("gave up", "  attempt"))]
    assert told[0].startswith("gave up (retries): stream 'issue-7' idle for 1 s")
    assert [line.split(":")[0] for line in told[1:]] == [
        f"attempt {number} (1 message in 1 s)" for number in (1, 2, 3)
    ]


def test_the_session_has_no_watchdog_code(example):
    """S0: it names neither time nor teardown nor attempts."""
    source = inspect.getsource(example.AgentSession)
    for word in ("idle", "timeout", "sleep", "retry", "disconnect", "resume", "except", "token"):
        assert word not in source, word
