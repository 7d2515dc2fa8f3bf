"""Events as structlog entries, by the real structlog."""

from __future__ import annotations

import sys

import pytest
import structlog

from streamguard import Activity, ConfigError, IdleTimeoutError, idle_guard
from streamguard.breaker.circuit_events import CircuitChanged, CircuitRefused, CircuitReported
from streamguard.errors import Verdict
from streamguard.events import ScopeTimedOut
from streamguard.observers import StructlogObserver
from streamguard.testing import Script, hang, say

VERDICT = Verdict(limit="step", window=60.0, elapsed=60.5)


@pytest.fixture
def entries():
    with structlog.testing.capture_logs() as entries:
        yield entries


async def test_a_verdict_is_an_entry_with_its_fields(loop, entries):
    """E6: the name, the words, the numbers."""
    guard = idle_guard(60, activity=Activity("coder"), observer=StructlogObserver())
    with pytest.raises(IdleTimeoutError):
        async for _ in Script(say("a"), hang()) | guard:
            pass
    by_name = {entry["event"]: entry for entry in entries}
    entry = by_name["timed_out"]
    assert entry["log_level"] == "warning"
    assert (entry["stream"], entry["limit"], entry["window"]) == ("coder", "idle", 60)
    assert entry["message"].startswith("ending: idle for 60 s")
    assert by_name["torn_down"]["log_level"] == "info"
    assert by_name["stream_ended"]["error"] == "IdleTimeoutError"


def test_scopes_and_circuits_are_told_too(entries):
    """E6"""
    observer = StructlogObserver()
    observer(ScopeTimedOut(verdict=VERDICT))
    common = {"key": "api", "at": 0.0}
    observer(
        CircuitChanged(
            **common, before="closed", after="open", cause="3 failures", failures=3, generation=1
        )
    )
    observer(CircuitRefused(**common, status="open", retry_after=30.0))
    observer(CircuitReported(**common, outcome="success", counted=True, is_probe=False))
    assert [(e["event"], e["log_level"]) for e in entries] == [
        ("scope_timed_out", "warning"),
        ("circuit_changed", "warning"),
        ("circuit_refused", "warning"),
        ("circuit_reported", "debug"),
    ]


def test_without_structlog_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ConfigError, match=r"pip install 'agent-streamguard\[structlog\]'"):
        StructlogObserver()


def test_a_logger_of_ones_own_needs_no_structlog(monkeypatch):
    monkeypatch.setitem(sys.modules, "structlog", None)
    lines = []

    class Logger:
        def log(self, level, event, /, **fields):
            lines.append((level, event, fields))

    StructlogObserver(Logger())(ScopeTimedOut(verdict=VERDICT))
    assert lines[0][:2] == (30, "scope_timed_out")
