"""openai-agents, event by event: its own run's tools, and the responses inside of it."""

import pytest

from streamguard.backends import find, openai_agents
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    Usage,
    WorkFinished,
    WorkStarted,
)
from tests.backends.looks import as_model, kind_named, said_by

PROGRESS = [Progress()]
NOTHING = []


def raw(kind, **more):
    return {"type": "raw_response_event", "data": {"type": kind, **more}}


def ran(name, /, **raw_item):
    return {"type": "run_item_stream_event", "name": name, "item": {"raw_item": raw_item}}


STATE = {"id": "resp_1", "usage": {"input_tokens": 3}}
SEARCH = {"type": "web_search_call", "id": "ws_1"}
SHELL = {"type": "shell_call", "call_id": "call_1"}
EVENTS = {
    "the run begins": ({"type": "agent_updated_stream_event", "new_agent": {}}, NOTHING),
    "the model is asked": (raw("response.created", response=STATE), NOTHING),
    "it begins": (raw("response.in_progress", response=STATE), NOTHING),
    "a word": (raw("response.output_text.delta", delta="hi"), PROGRESS),
    "a step ends, not the run": (
        raw("response.completed", response=STATE),
        [Usage({"input_tokens": 3}), Progress()],
    ),
    "a step meets a ceiling": (raw("response.incomplete", response={}), PROGRESS),
    "a step fails": (
        raw("response.failed", response={"error": {"code": "server_error"}}),
        [Failed("server", detail="server_error"), Progress()],
    ),
    "an error": (raw("error", code="server_error"), [Failed("server", detail="server_error")]),
    "a keep-alive": (raw("keepalive"), [Liveness()]),
    "a tool that OpenAI runs": (
        raw("response.output_item.added", item=SEARCH),
        [WorkStarted("ws_1", "web_search", "server")],
    ),
    "its end": (raw("response.output_item.done", item=SEARCH), [WorkFinished("ws_1")]),
    "its end, told once more": (ran("tool_called", **SEARCH), PROGRESS),
    "a function is asked for": (
        raw("response.output_item.added", item={"type": "function_call", "id": "fc_1"}),
        PROGRESS,
    ),
    "a function is called": (
        ran("tool_called", type="function_call", call_id="call_1", id="fc_1", name="f"),
        [WorkStarted("call_1", "f")],
    ),
    "it has returned": (
        ran("tool_output", type="function_call_output", call_id="call_1", output="x"),
        [WorkFinished("call_1")],
    ),
    "a shell here": (
        ran("tool_called", **SHELL, environment={"type": "local"}),
        [WorkStarted("call_1", "")],
    ),
    "a shell of OpenAI's": (
        ran("tool_called", **SHELL, environment={"type": "container_reference"}),
        PROGRESS,
    ),
    "a handoff": (ran("handoff_requested", type="function_call", call_id="call_2"), PROGRESS),
    "a message": (ran("message_output_created", type="message"), PROGRESS),
    "a call without an id": (ran("tool_called", type="function_call"), PROGRESS),
    "an event of a new kind": ({"type": "gremlins"}, PROGRESS),
}


@pytest.mark.parametrize("form", [lambda x: x, as_model], ids=["dict", "object"])
@pytest.mark.parametrize(("event", "signals"), list(EVENTS.values()), ids=list(EVENTS))
def test_what_an_event_says(event, signals, form):
    assert said_by(openai_agents, form(event)) == signals


def test_a_tool_whose_name_only_the_sdk_knows():
    item = {"raw_item": {"type": "apply_patch_call", "call_id": "c"}, "_resolved_tool_name": "p"}
    event = {"type": "run_item_stream_event", "name": "tool_called", "item": item}
    assert said_by(openai_agents, event) == [WorkStarted("c", "p")]


def test_its_events_are_known_and_just_end():
    """T10: a run has no last event."""
    found = find(kind_named("RunItemStreamEvent", "agents.stream_events")())
    assert (found.name, found.always_ends_turns) == ("openai_agents", False)


def test_somebody_elses_package_of_that_name_is_not_taken_for_it():
    """S1: `agents` is what many call theirs."""
    assert find(kind_named("StreamEvent", "agents.messages")()) is None
