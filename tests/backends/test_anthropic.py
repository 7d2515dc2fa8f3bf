"""Anthropic, event by event, and the shapes that give them away."""

import pytest

from streamguard.backends import anthropic, find
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    TurnEnded,
    Usage,
    WorkFinished,
    WorkStarted,
)
from tests.backends.looks import as_model, kind_named, said_by
from tests.backends.reading import asked, came, empty_ends

PROGRESS = [Progress()]
NOTHING = []
USAGE = {"output_tokens": 5, "server_tool_use": {"web_search_requests": 1}, "service_tier": "x"}


def block(kind, **more):
    what = {"type": kind, **more}
    return {"type": "content_block_start", "index": 0, "content_block": what}


def delta(kind, **more):
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **more}}


def ended(reason, **more):
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **more}


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
START = {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 3}}}
EVENTS = {
    "the request was taken": (START, [Usage({"input_tokens": 3}, "call", "msg_1")]),
    "taken, without a count": ({"type": "message_start", "message": MESSAGE}, NOTHING),
    "a text begins, which may stay empty": (block("text", text=""), NOTHING),
    "a thought begins": (block("thinking", thinking="", signature=""), PROGRESS),
    "a word": (delta("text_delta", text="hi"), PROGRESS),
    "a thought": (delta("thinking_delta", thinking="hm"), PROGRESS),
    "input of a tool": (delta("input_json_delta", partial_json="{"), PROGRESS),
    "a block ends": ({"type": "content_block_stop", "index": 0}, NOTHING),
    "a server tool's input is whole, as the helper tells": (
        {
            "type": "content_block_stop",
            "index": 0,
            "content_block": {"type": "server_tool_use", "id": "srv_1", "name": "web_search"},
        },
        [WorkStarted("srv_1", "web_search", "server")],
    ),
    "a tool call, which the caller runs": (
        block("tool_use", id="toolu_1", name="Bash", input={}),
        PROGRESS,
    ),
    "a search": (
        block("server_tool_use", id="srv_1", name="web_search", input={}),
        [WorkStarted("srv_1", "web_search", "server")],
    ),
    "a search's result": (
        block("web_search_tool_result", tool_use_id="srv_1", content=[]),
        [WorkFinished("srv_1")],
    ),
    "a search's failure": (
        block("web_search_tool_result", tool_use_id="srv_1", content={"error_code": "x"}),
        [WorkFinished("srv_1", error=True)],
    ),
    "a call over MCP": (
        block("mcp_tool_use", id="mcp_1", name="roll", server_name="dice"),
        [WorkStarted("mcp_1", "roll", "server")],
    ),
    "its failure": (
        block("mcp_tool_result", tool_use_id="mcp_1", is_error=True),
        [WorkFinished("mcp_1", error=True)],
    ),
    "a server tool of a new kind is done": (
        block("gremlin_tool_result", tool_use_id="srv_2"),
        [WorkFinished("srv_2")],
    ),
    "the end": (
        ended("end_turn", usage=USAGE),
        [Usage({"output_tokens": 5}), TurnEnded("success", "end_turn")],
    ),
    "the end, to call tools": (
        ended("tool_use"),
        [TurnEnded("success", "tool_use", answered=True)],
    ),
    "a stop sequence": (ended("stop_sequence"), [TurnEnded("success", "stop_sequence")]),
    "a ceiling": (ended("max_tokens"), [TurnEnded("incomplete", "max_tokens")]),
    "a refusal": (ended("refusal"), [TurnEnded("incomplete", "refusal")]),
    "a pause of a long turn": (ended("pause_turn"), [TurnEnded("paused", "pause_turn")]),
    "the counts of the whole call": (
        ended("end_turn", usage={"input_tokens": 3, **USAGE}),
        [Usage({"input_tokens": 3, "output_tokens": 5}, "turn"), TurnEnded("success", "end_turn")],
    ),
    "counts alone": (ended(None, usage=USAGE), [Usage({"output_tokens": 5})]),
    "a delta of nothing": (ended(None), PROGRESS),
    "behind the end": ({"type": "message_stop"}, NOTHING),
    "the helper's last event": (
        {"type": "message_stop", "message": {**MESSAGE, "stop_reason": "end_turn"}},
        NOTHING,
    ),
    "what the helper makes of a delta": ({"type": "text", "text": "hi"}, PROGRESS),
    "a ping": ({"type": "ping"}, [Liveness()]),
    "an overload": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
        [Failed("server", detail="overloaded_error")],
    ),
    "a limit": (
        {"type": "error", "error": {"type": "rate_limit_error"}},
        [Failed("rate_limit", detail="rate_limit_error")],
    ),
    "an error of no kind": ({"type": "error"}, [Failed("unknown")]),
    "an event of a new kind": ({"type": "gremlins"}, PROGRESS),
}


@pytest.mark.parametrize("form", [lambda x: x, as_model], ids=["dict", "object"])
@pytest.mark.parametrize(("event", "signals"), list(EVENTS.values()), ids=list(EVENTS))
def test_what_an_event_says(event, signals, form):
    assert said_by(anthropic, form(event)) == signals


STOP = {"type": "content_block_stop", "index": 0}


@pytest.mark.parametrize(
    ("blocks", "is_empty"),
    [
        ((), True),
        ((block("text", text=""), STOP), True),
        ((block("text", text=""), delta("text_delta", text="hi"), STOP), False),
        ((block("tool_use", id="t", name="f", input={}), STOP), False),
    ],
    ids=["no block", "a blank block", "text", "a call"],
)
def test_a_success_that_is_empty_is_told_from_others(blocks, is_empty):
    assert list(empty_ends(anthropic, [START, *blocks, ended("end_turn")])) == [is_empty]


def test_what_a_server_tool_was_asked_and_what_came_of_it():
    """Its input is told when it is whole, and what differs each time is left out."""
    query = {"query": "q"}
    known = {"type": "server_tool_use", "id": "srv_1", "name": "web_search"}
    begun = block("server_tool_use", id="srv_1", name="web_search", input={})
    whole = {"type": "content_block_stop", "content_block": {**known, "input": query}}
    pages = [{"url": "a", "encrypted_content": "x"}, {"url": "b", "encrypted_content": "y"}]
    found = block("web_search_tool_result", tool_use_id="srv_1", content=pages)
    rolled = block("mcp_tool_result", tool_use_id="mcp_1", content=[{"text": "6"}])
    assert asked(said_by(anthropic, begun)) == {"srv_1": None}
    assert asked(said_by(anthropic, whole))["srv_1"] is query
    assert came(said_by(anthropic, found)) == {"srv_1": ("a", "b")}
    assert came(said_by(anthropic, rolled)) == {"mcp_1": [{"text": "6"}]}


@pytest.mark.parametrize(
    "name",
    [
        "RawMessageStartEvent",
        "RawContentBlockDeltaEvent",
        "BetaRawMessageDeltaEvent",
        "MessageStopEvent",
        "ParsedMessageStopEvent[~ResponseFormatT]",
        "ParsedBetaContentBlockStopEvent",
        "TextEvent",
        "BetaInputJsonEvent",
    ],
)
def test_the_events_of_the_package_are_known(name):
    assert find(kind_named(name, "anthropic.whatever")()).name == "anthropic"


@pytest.mark.parametrize(
    "name", ["ModelInfo", "MessageBatch", "BetaManagedAgentsDeltaEvent", "Message"]
)
def test_what_is_paged_through_is_no_turn_that_could_be_cut(name):
    """T10"""
    assert find(kind_named(name, "anthropic.types.beta")()) is None


@pytest.mark.parametrize(
    "line",
    [START, block("text"), delta("text_delta"), ended("end_turn", usage={})],
    ids=lambda line: line["type"],
)
def test_the_json_of_an_event_is_known_by_its_shape(line):
    found = find(line)
    assert (found.name, found.always_ends_turns) == ("anthropic", True)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "ping"},
        {"type": "message_stop"},
        {"type": "error", "error": {"type": "overloaded_error"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_start", "message": {"content": []}},
        {"type": "message_start", "message": "hi"},
        {"type": "message_delta", "delta": {"content": "hi"}},
        {"type": "content_block_delta", "delta": "hi", "index": 0},
        {"type": "message-start", "id": "m", "delta": {"message": {"role": "assistant"}}},
    ],
    ids=str,
)
def test_a_dict_of_another_making_stays_unknown(line):
    """S1: a wrong guess would be worse than Progress."""
    assert find(line) is None
