"""An event as flat fields: of every kind of event, and with nothing of what a stream carried."""

from __future__ import annotations

import dataclasses
import logging

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, Teardown, events, idle_guard, scope
from streamguard.breaker import circuit_events as circuits
from streamguard.errors import DeadlineExceededError, ScopeName, Verdict
from streamguard.events.flat import fields_of, name_of
from streamguard.testing import Script, hang, say
from tests.support import Events

SECRET = "sk-not-for-logs"
VERDICT = Verdict(
    limit="idle",
    window=60.0,
    elapsed=60.5,
    name="coder",
    scope=(ScopeName("step", "build"),),
    effective=ScopeName("step", "build"),
    in_flight=("Bash",),
    labels={"issue": 7, "who": object()},
)
VALUES = {
    "activity": Activity("coder"),
    "verdict": VERDICT,
    "teardown": Teardown(confirmed=True, signals=("TERM",), survivors=(7, 8)),
    "error": ConnectionError(SECRET),
    "signals": ("TERM",),
    "survivors": (7, 8),
    "names": ("Bash",),
    "work": ("task",),
}


def every_kind():
    bases = events.Event, events.ScopeEvent, circuits.CircuitEvent
    return [kind for base in bases for kind in below(base)]


def below(base):
    return [kind for child in base.__subclasses__() for kind in (child, *below(child))]


def made(kind):
    """An event of that kind, with something in each field."""
    return kind(**{field.name: VALUES.get(field.name, 3) for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_every_event_is_flat_and_quotes_nothing(kind):
    """E3, E6: names, numbers and texts of our own."""
    told = fields_of(made(kind))
    assert told["event"] == name_of(made(kind))
    for value in told.values():
        assert isinstance(value, str | int | float | bool | tuple)
    assert SECRET not in repr(told)


def test_a_verdicts_fields():
    """E6: what a dashboard or a search asks for."""
    told = fields_of(
        events.TimedOut(activity=Activity("coder"), at=1.5, verdict=VERDICT, enforced=True)
    )
    assert told == {
        "event": "timed_out",
        "stream": "coder",
        "at": 1.5,
        "enforced": True,
        "limit": "idle",
        "guard": "idle_guard",
        "window": 60.0,
        "elapsed": 60.5,
        "lateness": 0.0,
        "messages": 0,
        "in_flight": ("Bash",),
        "scope": "step 'build'",
        "effective_scope": "step 'build'",
        "label.issue": 7,
        "label.who": "object",
    }


def test_a_teardowns_fields():
    """D5: whether the backend is gone, and how."""
    told = fields_of(made(events.TornDown))
    assert told["teardown.confirmed"] is True
    assert told["teardown.signals"] == ("TERM",)
    assert told["teardown.survivors"] == (7, 8)
    assert "teardown.exit" not in told  # nobody knows it


def test_log_records_carry_the_fields(loop, caplog):
    """E6: one line for a person, and the same facts for a program."""

    async def main():
        with pytest.raises(IdleTimeoutError):
            async for _ in Script(say("a"), hang()) | idle_guard(60, activity=Activity("coder")):
                pass

    with caplog.at_level(logging.DEBUG, "streamguard"):
        loop.run(main)
    told = {record.streamguard["event"]: record for record in caplog.records}
    line = told["timed_out"]
    assert line.getMessage().startswith("coder: ending: idle for 60 s")
    assert line.streamguard["limit"] == "idle"
    assert "torn_down" in told
    assert all(record.streamguard["stream"] == "coder" for record in caplog.records)


def test_what_no_handler_wants_is_not_prepared(loop, caplog, monkeypatch):
    """E6: a quiet log costs nothing."""

    def fail(event):
        raise AssertionError(event)

    monkeypatch.setattr("streamguard.events.flat.fields_of", fail)

    async def main():
        with pytest.raises(IdleTimeoutError):
            async for _ in Script(hang()) | idle_guard(60):
                pass

    with caplog.at_level(logging.CRITICAL, "streamguard"):
        loop.run(main)


def test_a_scopes_verdict_is_logged_with_its_fields(loop, caplog):
    """E6, P4: also where no stream is."""

    async def main():
        with pytest.raises(DeadlineExceededError):
            async with scope("step", "build", timeout=60):
                await anyio.sleep(120)

    loop.run(main)
    (line,) = [r for r in caplog.records if hasattr(r, "streamguard")]
    assert line.streamguard["event"] == "scope_timed_out"
    assert line.streamguard["scope"] == "step 'build'"


async def test_observers_get_what_the_log_gets(loop):
    """E6"""
    told = Events()
    with pytest.raises(IdleTimeoutError):
        async for _ in Script(hang()) | idle_guard(60, observer=told):
            pass
    assert [name_of(event) for event in told][-3:] == ["timed_out", "torn_down", "stream_ended"]
