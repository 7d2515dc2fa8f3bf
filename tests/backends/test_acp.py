"""ACP, message by message, as lines on the wire; the real classes are in tests/real/test_acp.py."""

import pytest
from hypothesis import given

from streamguard.backends import acp, find, resolve
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.backends.reading import (
    NOTHING,
    PROGRESS,
    asked,
    came,
    garbage,
    is_found_or_not,
    is_well_made,
)
from tests.backends.reading import said as said_by


def said(message):
    return said_by(acp, message)


def notified(kind, /, **more):
    update = {"sessionUpdate": kind, **more}
    params = {"sessionId": "s1", "update": update}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def answered(**result):
    return {"jsonrpc": "2.0", "id": 2, "result": result}


CALL = {"toolCallId": "call_1", "title": "Run rm -rf build", "kind": "execute"}
MESSAGES = {
    "a token": (notified("agent_message_chunk", content={"type": "text"}), PROGRESS),
    "a thought": (notified("agent_thought_chunk", content={"type": "text"}), PROGRESS),
    "a plan": (notified("plan", entries=[]), PROGRESS),
    "a tool, by its kind": (
        notified("tool_call", **CALL, status="pending"),
        [WorkStarted("call_1", "execute")],
    ),
    "a tool without a status": (notified("tool_call", **CALL), [WorkStarted("call_1", "execute")]),
    "a tool that is told when it is over": (
        notified("tool_call", **CALL, status="completed"),
        [WorkFinished("call_1", error=False)],
    ),
    "news of it": (notified("tool_call_update", toolCallId="call_1", title="t"), PROGRESS),
    "its beginning": (
        notified("tool_call_update", toolCallId="call_1", status="in_progress"),
        PROGRESS,
    ),
    "what it puts out": (
        notified("tool_call_update", toolCallId="call_1", content=[{"type": "content"}]),
        [WorkProgressed("call_1")],
    ),
    "its input": (
        notified("tool_call_update", toolCallId="call_1", kind="read", rawInput={"a": 1}),
        [WorkStarted("call_1", "read")],
    ),
    "its input and its end": (
        notified("tool_call_update", toolCallId="call_1", rawInput=[1], status="completed"),
        [WorkStarted("call_1"), WorkFinished("call_1")],
    ),
    "news of nobody knows what": (notified("tool_call_update", title="t"), PROGRESS),
    "a sub-agent's tool": (
        notified("tool_call", **CALL, _meta={"claudeCode": {"parentToolUseId": "call_0"}}),
        [WorkStarted("call_1", "execute", parent="call_0")],
    ),
    "an empty chunk": (
        notified("agent_message_chunk", content={"type": "text", "text": ""}),
        NOTHING,
    ),
    "its end": (
        notified("tool_call_update", toolCallId="call_1", status="completed"),
        [WorkFinished("call_1", error=False)],
    ),
    "its failure": (
        notified("tool_call_update", toolCallId="call_1", status="failed"),
        [WorkFinished("call_1", error=True)],
    ),
    "how full the context is": (
        notified("usage_update", used=10, size=100),
        [Usage({"context_used": 10, "context_size": 100}, "session")],
    ),
    "what the session has cost": (
        notified("usage_update", used=10, cost={"amount": 0.5, "currency": "USD"}),
        [Usage({"context_used": 10, "total_cost_usd": 0.5}, "session")],
    ),
    "what it has cost in another currency": (
        notified("usage_update", used=10, cost={"amount": 0.5, "currency": "EUR"}),
        [Usage({"context_used": 10}, "session")],
    ),
    "the user's words, replayed": (notified("user_message_chunk", content={}), NOTHING),
    "commands that are there": (
        notified("available_commands_update", availableCommands=[]),
        NOTHING,
    ),
    "an update to come": (notified("dream", content={}), PROGRESS),
    "a session": (answered(sessionId="s1"), [SessionOpened("s1")]),
    "a prompt's end": (answered(stopReason="end_turn"), [TurnEnded("success", "end_turn")]),
    "a prompt's end that counts": (
        answered(stopReason="end_turn", usage={"totalTokens": 3}),
        [
            Usage({"totalTokens": 3, "total_tokens": 3}, "session"),
            TurnEnded("success", "end_turn"),
        ],
    ),
    "a limit": (answered(stopReason="max_tokens"), [TurnEnded("incomplete", "max_tokens")]),
    "a cancellation": (answered(stopReason="cancelled"), [TurnEnded("cancelled", "cancelled")]),
    "a refusal": (
        answered(stopReason="refusal"),
        [Failed("permanent", detail="refusal"), TurnEnded("error", "refusal")],
    ),
    "an error": (
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "Internal error"}},
        [Failed("server", detail="JSON-RPC error -32603")],
    ),
    "a person who is asked": (
        {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "session/request_permission",
            "params": {"sessionId": "s1", "toolCall": CALL, "options": []},
        },
        [Waiting("permission:call_1", "human")],
    ),
}


@pytest.mark.parametrize(("message", "signals"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_says(message, signals):
    assert said(message) == signals


def test_an_update_says_the_same_however_it_is_wrapped():
    message = MESSAGES["a tool, by its kind"][0]
    params = message["params"]
    assert said(message) == said(params) == said(params["update"])
    assert find(message) == find(params) == find(params["update"]) == resolve("acp")


SHOWN = {"type": "content", "content": {"type": "text", "text": "2"}}
TERMINAL = {"type": "terminal", "terminalId": "t-1"}
ASKED = {
    "its raw input": ({"rawInput": {"a": 1}, "title": "t"}, {"a": 1}),
    "the model is still writing it": ({"rawInput": {}, "kind": "edit", "title": "Edit"}, None),
    "a title that quotes the command": (
        {"title": "ls", "kind": "execute", "content": [TERMINAL]},
        ("ls", None, None),
    ),
    "a title that does not tell one edit from another": ({"title": "Edit", "kind": "edit"}, None),
    "what is shown of an edit": (
        {"title": "Edit", "kind": "edit", "content": [SHOWN]},
        ("Edit", None, [SHOWN]),
    ),
}


@pytest.mark.parametrize(("update", "input_"), ASKED.values(), ids=ASKED)
def test_what_a_tool_was_asked(update, input_):
    assert asked(said(notified("tool_call", toolCallId="call_1", **update))) == {"call_1": input_}


CAME = {
    "its raw output": ({"rawOutput": {"a": 1}, "content": [SHOWN]}, {"a": 1}),
    "what is shown": ({"content": [SHOWN, TERMINAL]}, [SHOWN]),
    "a terminal, another one each time": ({"content": [TERMINAL]}, None),
}


@pytest.mark.parametrize(("update", "outcome"), CAME.values(), ids=CAME)
def test_what_came_of_a_tool(update, outcome):
    over = notified("tool_call_update", toolCallId="call_1", status="completed", **update)
    assert came(said(over)) == {"call_1": outcome}


def test_no_title_of_a_tool_gets_into_evidence():
    """E3: it quotes the command."""
    (work,) = said(notified("tool_call", **CALL))
    assert "rm" not in repr(work)


def test_a_stream_of_updates_alone_may_simply_end():
    """T10: a prompt's end is an answer, and no update."""
    assert not resolve("acp").always_ends_turns


KEYS = [
    *("jsonrpc", "method", "params", "result", "error", "code", "update", "sessionUpdate"),
    *("session_update", "sessionId", "session_id", "stopReason", "stop_reason", "toolCallId"),
    *("status", "kind", "used", "size", "usage", "toolCall", "tool_call", "options"),
]
WORDS = ["tool_call", "tool_call_update", "usage_update", "completed", "failed", "end_turn", "2.0"]


@given(garbage(KEYS, [*WORDS, "session/update", "refusal"]))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, [*WORDS, "session/update", "refusal"]))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
