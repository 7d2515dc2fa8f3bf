"""ADK, event by event: objects as the runner yields them, and lines as its server sends them."""

import pytest
from hypothesis import given

from streamguard.backends import find, google_adk
from streamguard.signals import (
    Failed,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)
from tests.backends.reading import asked, came, empty_ends, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by

OPENED = SessionOpened("e-1")


def said(message):
    return said_by(google_adk, message)


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


def event(*parts, author="helper", **fields):
    """As the runner yields it: every field is there, and most are None."""
    absent = ("error_code", "partial", "usage_metadata", "long_running_tool_ids", "branch")
    cls = type("Event", (Thing,), {"__module__": "google.adk.events.event"})
    content = Thing(parts=list(parts), role="model") if parts else None
    given_ = dict.fromkeys(absent) | {"turn_complete": None, "interrupted": None} | fields
    return cls(invocation_id="e-1", author=author, content=content, **given_)


def call(id_="fc1", name="weather"):
    made = Thing(id=id_, name=name, args={}) if id_ is not None else Thing(id=None, name=name)
    return Thing(text=None, function_call=made, function_response=None)


def response(id_="fc1", **result):
    made = Thing(id=id_, name="weather", response=result)
    return Thing(text=None, function_call=None, function_response=made)


TEXT = Thing(text="sun", function_call=None, function_response=None)
ANSWERED = [OPENED, WorkFinished("fc1"), WaitEnded("fc1")]


def line(*parts, **fields):
    """As the server sends it."""
    content = {"parts": list(parts), "role": "model"}
    return {"invocationId": "e-1", "author": "helper", "id": "1", "content": content, **fields}


EVENTS = {
    "text": (event(TEXT), [OPENED, Progress()]),
    "a token": (event(TEXT, partial=True), [OPENED, Progress()]),
    "a state's change": (event(), [OPENED, Progress()]),
    "what the user said": (event(TEXT, author="user"), [OPENED]),
    "a call": (event(TEXT, call()), [OPENED, WorkStarted("fc1", "weather")]),
    "two calls": (
        event(call(), call("fc2")),
        [OPENED, WorkStarted("fc1", "weather"), WorkStarted("fc2", "weather")],
    ),
    "a call that comes again": (event(call("fc0"), partial=True), [OPENED, Progress()]),
    "the whole of it": (event(call(), partial=False), [OPENED, WorkStarted("fc1", "weather")]),
    "a sub-agent's call": (
        event(call(), branch="root.helper"),
        [OPENED, WorkStarted("fc1", "weather", parent="root.helper")],
    ),
    "a call without an id": (event(call(None)), [OPENED, Progress()]),
    "a response": (event(response(w="sunny")), ANSWERED),
    "an error for a response": (
        event(response(error="no such city")),
        [OPENED, WorkFinished("fc1", error=True), WaitEnded("fc1")],
    ),
    "a long-running tool": (
        event(call(), long_running_tool_ids={"fc1"}),
        [OPENED, Waiting("fc1", "human")],
    ),
    "a request to confirm": (
        event(call(name="adk_request_confirmation"), long_running_tool_ids={"fc1"}),
        [OPENED, Waiting("fc1", "human")],
    ),
    "a request for credentials": (
        event(call(name="adk_request_credential"), long_running_tool_ids={"fc1"}),
        [OPENED, Waiting("fc1", "auth")],
    ),
    "counts": (
        event(TEXT, usage_metadata=Thing(total_token_count=5, cache_tokens_details=None)),
        [OPENED, Usage({"total_token_count": 5, "total_tokens": 5}), Progress()],
    ),
    "counts of a call so far, told again with its end": (
        event(TEXT, partial=True, usage_metadata=Thing(total_token_count=5)),
        [OPENED, Progress()],
    ),
    "a refusal": (
        event(error_code="SAFETY"),
        [OPENED, Progress(), Failed("validation", detail="SAFETY")],
    ),
    "a rate limit": (
        event(error_code="RESOURCE_EXHAUSTED"),
        [OPENED, Progress(), Failed("rate_limit", detail="RESOURCE_EXHAUSTED")],
    ),
    "a status": (event(error_code="503"), [OPENED, Progress(), Failed("server", detail="503")]),
    "a tool's exception": (
        event(error_code="ZeroDivisionError"),
        [OPENED, Progress(), Failed("unknown", detail="ZeroDivisionError")],
    ),
    "the end of a live turn": (
        event(turn_complete=True),
        [OPENED, TurnEnded("success", "turn_complete")],
    ),
    "the end of a live turn, with what it says": (
        event(TEXT, turn_complete=True),
        [OPENED, Progress(), TurnEnded("success", "turn_complete")],
    ),
    "a live turn that goes on": (
        event(turn_complete=True, interaction_status=Thing(value="IN_PROGRESS")),
        [OPENED, Progress()],
    ),
    "a live turn that was cut": (
        event(turn_complete=True, interrupted=True),
        [OPENED, TurnEnded("cancelled", "turn_complete")],
    ),
    "a line": (line({"text": "x"}), [OPENED, Progress()]),
    "a line's call": (
        line({"functionCall": {"id": "fc1", "name": "weather"}}, longRunningToolIds=[]),
        [OPENED, WorkStarted("fc1", "weather")],
    ),
    "a line's long-running call": (
        line({"functionCall": {"id": "fc1", "name": "ask"}}, longRunningToolIds=["fc1"]),
        [OPENED, Waiting("fc1", "human")],
    ),
    "a line's response": (
        line({"functionResponse": {"id": "fc1", "response": {"w": 1}}}),
        ANSWERED,
    ),
    "a line's error": (
        line(errorCode="429", usageMetadata={"totalTokenCount": 5}),
        [
            OPENED,
            Usage({"totalTokenCount": 5, "total_tokens": 5}, "call", "1"),
            Progress(),
            Failed("rate_limit", detail="429"),
        ],
    ),
}


@pytest.mark.parametrize(("message", "signals"), EVENTS.values(), ids=EVENTS)
def test_an_event_says(message, signals):
    assert said(message) == signals


def test_what_a_tool_was_asked_and_what_came_of_it():
    args, answer = {"city": "x"}, {"w": "sunny"}
    begun = line({"functionCall": {"id": "fc1", "name": "weather", "args": args}})
    over = line({"functionResponse": {"id": "fc1", "response": answer}})
    assert asked(said(begun))["fc1"] is args
    assert came(said(over))["fc1"] is answer
    assert asked(said(event(call()))) == {"fc1": {}}


def test_a_live_turn_that_says_nothing_is_told_from_others():
    end = event(turn_complete=True)
    assert list(empty_ends(google_adk, [end, event(TEXT), end])) == [True, False]


@pytest.mark.parametrize("message", [message for message, _ in EVENTS.values()], ids=EVENTS)
def test_every_event_is_known(message):
    """S1, T10: a run ends with its iterator alone."""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("google_adk", False)


@pytest.mark.parametrize(
    "other",
    [
        {"author": "Ada", "id": 3, "title": "Notes"},
        {"invocationId": "i", "id": 3},
        {"invocation_id": None, "author": "a", "id": 1},
        type("Event", (), {"__module__": "google.cloud.audit"})(),
        type("Event", (), {"__module__": "google"})(),
    ],
)
def test_what_is_not_its(other):
    """S1: `google` belongs to many."""
    assert find(other) is None


KEYS = [
    *("invocation_id", "invocationId", "author", "content", "parts", "function_call", "id"),
    *("functionResponse", "response", "error", "name", "long_running_tool_ids", "partial"),
    *("error_code", "usage_metadata", "turn_complete", "interaction_status", "value", "branch"),
]
WORDS = ["user", "fc1", "adk_request_credential", "SAFETY", "429", "x" * 300]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))
    assert is_found_or_not(find(message))
