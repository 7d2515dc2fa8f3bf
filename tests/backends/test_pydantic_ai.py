"""pydantic-ai, event by event, as objects and as the dicts that they serialise to."""

from decimal import Decimal

import pytest
from hypothesis import given

from streamguard.backends import find, pydantic_ai
from streamguard.signals import (
    Failed,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)
from tests.backends.reading import PROGRESS, asked, came, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by


def said(message):
    return said_by(pydantic_ai, message)


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


class DeferredToolRequests(Thing):
    """What a run's output is that waits for its caller."""


def event(kind, **fields):
    cls = type("AnyEvent", (Thing,), {"__module__": "pydantic_ai.messages"})
    return cls(event_kind=kind, **fields)


def result(output="done", finish_reason="stop", provider=None, why=None, **usage):
    answer = Thing(
        finish_reason=finish_reason,
        provider_name=provider,
        provider_details=None if why is None else {"finish_reason": why},
    )
    state = Thing(usage=Thing(**usage), message_history=[answer])
    return event("agent_run_result", result=Thing(output=output, _state=state))


PART = Thing(tool_name="weather", args={"city": "x"}, tool_call_id="t1")
RETURNED = Thing(tool_name="weather", content="sunny", tool_call_id="t1", outcome="success")

EVENTS = {
    "a part": (event("part_start", index=0, part=PART), PROGRESS),
    "a token": (event("part_delta", index=0, delta=Thing(content_delta="x")), PROGRESS),
    "a call": (event("function_tool_call", part=PART), [WorkStarted("t1", "weather")]),
    "a call of an output function": (
        event("output_tool_call", part=PART),
        [WorkStarted("t1", "weather")],
    ),
    "a call without an id": (event("function_tool_call", part=Thing(tool_name="x")), PROGRESS),
    "a result": (event("function_tool_result", part=RETURNED), [WorkFinished("t1")]),
    "an output function's": (event("output_tool_result", part=RETURNED), [WorkFinished("t1")]),
    "a tool that is asked to retry": (
        event("function_tool_result", part=Thing(tool_call_id="t1", outcome="retried")),
        [WorkFinished("t1", error=True)],
    ),
    "the same in 1.x": (
        event("function_tool_result", result=Thing(tool_call_id="t1", part_kind="retry-prompt")),
        [WorkFinished("t1", error=True)],
    ),
    "a tool that is put off": (
        event("deferred_tool_requests", requests=Thing(calls=[], approvals=[PART])),
        [WorkFinished("t1"), Waiting("deferred_tools", "human")],
    ),
    "what was decided": (
        event("deferred_tool_results", results=Thing(calls={}, approvals={"t1": True})),
        [WaitEnded("deferred_tools"), WorkStarted("t1")],
    ),
    "the end": (
        result(input_tokens=3, requests=1, details={}),
        [
            Usage({"input_tokens": 3, "requests": 1, "calls": 1}, "turn"),
            TurnEnded(answered=True),
        ],
    ),
    "the end, and what it has cost": (
        result(cost=Decimal("0.5")),
        [Usage({"cost_usd": 0.5}, "turn"), TurnEnded(answered=True)],
    ),
    "an end without counts": (result(), [TurnEnded(answered=True)]),
    "an answer in a form": (result(Thing(a=1)), [TurnEnded(answered=True)]),
    "a blank for an answer": (result("\n"), [TurnEnded(answered=False)]),
    "no answer, which may be what was asked for": (result(None), [TurnEnded()]),
    "the end of a run that waits": (
        result(DeferredToolRequests(calls=[], approvals=[PART])),
        [TurnEnded("paused", "deferred_tool_requests")],
    ),
    "an answer that is too long": (
        result(finish_reason="length"),
        [TurnEnded("incomplete", "length")],
    ),
    "an answer that is whole": (
        result(provider="openai", why="stop"),
        [TurnEnded(answered=True)],
    ),
    "an answer that the provider has cut": (
        result(provider="openai"),
        [TurnEnded("incomplete", "no finish_reason")],
    ),
    "an answer of a provider that nobody knows": (
        result(provider="mine"),
        [TurnEnded(answered=True)],
    ),
    "the end of a spoken turn": (event("realtime_turn_complete"), [TurnEnded()]),
    "an error of a spoken session": (
        event("realtime_session_error", message="secret", type="server_error", code=None),
        [Failed("server", detail="server_error")],
    ),
    "a kind to come": (event("gremlins"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), EVENTS.values(), ids=EVENTS)
def test_an_event_says(message, signals):
    assert said(message) == signals


@pytest.mark.parametrize("message", [message for message, _ in EVENTS.values()], ids=EVENTS)
def test_every_event_is_known(message):
    """S1, T10: the same events come from streams that end without a result."""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("pydantic_ai", False)


def test_what_a_tool_was_asked_and_what_came_of_it():
    assert asked(said(event("function_tool_call", part=PART)))["t1"] is PART.args
    assert came(said(event("function_tool_result", part=RETURNED))) == {"t1": "sunny"}
    again = Thing(tool_call_id="t1", part_kind="retry-prompt", content="No such city.")
    assert came(said(event("function_tool_result", result=again))) == {"t1": "No such city."}


def test_a_dict_says_what_its_object_says():
    call = {"event_kind": "function_tool_call", "part": {"tool_name": "w", "tool_call_id": "t1"}}
    ended = {"event_kind": "agent_run_result", "result": {"output": "x", "usage": {"requests": 1}}}
    assert find(call).name == "pydantic_ai"
    assert said(call) == [WorkStarted("t1", "w")]
    assert said(ended) == [Usage({"requests": 1, "calls": 1}, "turn"), TurnEnded(answered=True)]


@pytest.mark.parametrize(
    "line",
    [{"event_kind": "part_start"}, {"event_kind": "sale", "part": 1}, {"event_kind": ["x"]}],
)
def test_a_dict_of_a_users_own_is_not_its(line):
    """S1"""
    assert find(line) is None


KEYS = [
    *("event_kind", "part", "result", "requests", "results", "calls", "approvals", "output"),
    *("tool_call_id", "tool_name", "outcome", "part_kind", "_state", "usage", "finish_reason"),
    *("message_history", "type", "code", "provider_name", "provider_details"),
]
WORDS = [*(message.event_kind for message, _ in EVENTS.values()), "t1", "failed", "x" * 300]


def _with_a_kind(value):
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return {"event_kind": value["type"], **value}
    return value


@given(garbage(KEYS, WORDS).map(_with_a_kind))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))
    assert is_found_or_not(find(message))
