"""Codex, line by line and notification by notification; every exec line is as the CLI wrote it."""

import pytest
from hypothesis import given

from streamguard.backends import codex, find, resolve
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
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
    return said_by(codex, message)


def started(kind, id_="item_1", **more):
    return {"type": "item.started", "item": {"id": id_, "type": kind, **more}}


def completed(kind, id_="item_1", **more):
    return {"type": "item.completed", "item": {"id": id_, "type": kind, **more}}


def failing(message):
    return {"type": "turn.failed", "error": {"message": message}}


COMMAND = {"command": "/bin/bash -lc 'echo hi'", "aggregated_output": "", "exit_code": None}
USAGE = {"input_tokens": 20, "cached_input_tokens": 0, "output_tokens": 2}

LINES = {
    "the thread": (
        {"type": "thread.started", "thread_id": "01a1"},
        [SessionOpened("01a1")],
    ),
    "a turn that begins": ({"type": "turn.started"}, NOTHING),
    "a command": (
        started("command_execution", **COMMAND, status="in_progress"),
        [WorkStarted("item_1", "command_execution")],
    ),
    "its end": (
        completed("command_execution", **COMMAND, status="completed"),
        [WorkFinished("item_1", error=False)],
    ),
    "its failure": (
        completed("command_execution", **COMMAND, status="failed"),
        [WorkFinished("item_1", error=True)],
    ),
    "a command that was refused": (
        completed("command_execution", **COMMAND, status="declined"),
        [WorkFinished("item_1", error=True)],
    ),
    "a tool of an MCP server, by its name": (
        started("mcp_tool_call", server="files", tool="read", status="in_progress"),
        [WorkStarted("item_1", "read")],
    ),
    "its result": (
        completed("mcp_tool_call", server="files", tool="read", status="completed"),
        [WorkFinished("item_1", error=False)],
    ),
    "a web search": (
        started("web_search", query="q"),
        [WorkStarted("item_1", "web_search", "server")],
    ),
    "a web search that only ends": (
        completed("web_search", query="q"),
        [WorkStarted("item_1", "web_search", "server"), WorkFinished("item_1", error=False)],
    ),
    "a change of files": (
        completed("file_change", changes=[], status="completed"),
        [WorkStarted("item_1", "file_change"), WorkFinished("item_1", error=False)],
    ),
    "a command that goes on": (
        {**completed("command_execution", **COMMAND), "type": "item.updated"},
        [WorkProgressed("item_1")],
    ),
    "another agent": (
        started("collab_tool_call", tool="spawn_agent"),
        [WorkStarted("item_1", "spawn_agent", "subagent")],
    ),
    "what the model says": (completed("agent_message", text="Done."), PROGRESS),
    "an answer that is none": (completed("agent_message", text=""), NOTHING),
    "what it thinks": (completed("reasoning", text="Hm."), PROGRESS),
    "a list of things to do": (
        {"type": "item.updated", "item": {"id": "item_1", "type": "todo_list", "items": []}},
        PROGRESS,
    ),
    "a warning, said before the API was asked": (
        completed("error", message="Model metadata for `m` not found."),
        NOTHING,
    ),
    "a turn's end": (
        {"type": "turn.completed", "usage": USAGE},
        [Usage({n: float(count) for n, count in USAGE.items()}, "session"), TurnEnded("success")],
    ),
    "a kind of line to come": ({"type": "thread.archived"}, PROGRESS),
}


@pytest.mark.parametrize(("line", "signals"), LINES.values(), ids=LINES)
def test_an_exec_line_says(line, signals):
    assert said(line) == signals


BUSY = "We’re currently experiencing high demand, which may cause temporary errors."  # noqa: RUF001
IDLE = "stream disconnected before completion: idle timeout waiting for SSE"
CUT = "stream disconnected before completion: Transport error: network error: error decoding …"
LIMIT = "exceeded retry limit, last status: 429 Too Many Requests"
KEY = "unexpected status 401 Unauthorized: scripted: server_error, url: http://127.0.0.1:1/v1"
BODY = '{"error": {"type": "server_error", "message": "scripted"}}'
SPENT = "You've hit your usage limit. Upgrade to Pro, or try again in 3 days 4 hours."
FAILURES = {
    BUSY: "server",
    IDLE: "network",
    CUT: "network",
    LIMIT: "rate_limit",
    KEY: "auth",
    BODY: "validation",
    SPENT: "permanent",
    "unexpected status 502 Bad Gateway: …": "server",
    "Quota exceeded. Check your plan and billing details.": "permanent",
    "Codex ran out of room in the model's context window.": "validation",
    "error sending request for url (http://127.0.0.1:1/v1/responses)": "network",
    "something else": "unknown",
}


@pytest.mark.parametrize(("message", "class_"), FAILURES.items())
def test_a_failed_turn_names_its_class(message, class_):
    """P1: Codex tells its failures in prose."""
    retriable = class_ in {"server", "network", "rate_limit"}
    ended = TurnEnded("error", "failed", retriable)
    assert said(failing(message)) == [Failed(class_), ended]


@pytest.mark.parametrize(("message", "class_"), FAILURES.items())
def test_a_reconnection_is_no_end(message, class_):
    """`error` is not terminal: five of them may come before the turn goes on."""
    line = {"type": "error", "message": f"Reconnecting... 2/5 ({message})"}
    expected = "validation" if class_ == "validation" else class_
    (signal,) = said(line)
    assert isinstance(signal, Failed)
    assert signal.detail == "reconnecting 2/5"
    if message != BODY:  # a 400 is never retried, so its body never stands there
        assert signal.error_class == expected


DIFF = [{"path": "a.py", "kind": {"type": "update"}, "diff": "+1"}]
RESULT = {"content": [{"type": "text", "text": "6"}], "structured_content": None}
ASKED = {
    "a command": ("command_execution", {"command": "ls"}, "ls"),
    "a change of a file, of which nobody tells what it is": (
        "file_change",
        {"changes": [{"path": "a.py", "kind": "update"}]},
        None,
    ),
    "a change of a file, with it": ("fileChange", {"changes": DIFF}, DIFF),
    "a call over MCP": ("mcp_tool_call", {"tool": "roll", "arguments": {"n": 6}}, {"n": 6}),
    "a client's tool": ("dynamicToolCall", {"tool": "roll", "arguments": [6]}, [6]),
    "a search": ("web_search", {"query": "q"}, "q"),
    "a search, by what it did": ("webSearch", {"query": "q", "action": {"x": 1}}, {"x": 1}),
    "a search that does not tell yet": ("web_search", {"query": ""}, None),
    "another agent": (
        "collabAgentToolCall",
        {"tool": "wait", "prompt": None, "receiverThreadIds": ["t"]},
        (None, ["t"]),
    ),
    "an image": ("image_generation", {}, None),
}


@pytest.mark.parametrize(("kind", "more", "input_"), ASKED.values(), ids=ASKED)
def test_what_an_item_was_asked(kind, more, input_):
    assert asked(said(started(kind, **more))) == {"item_1": input_}


CAME = {
    "a command": (
        "command_execution",
        {"aggregated_output": "no", "exit_code": 3, "durationMs": 5},
        ("no", 3),
    ),
    "a command, to the app-server": (
        "commandExecution",
        {"aggregatedOutput": "no", "exitCode": 3, "durationMs": 5, "processId": "7"},
        ("no", 3),
    ),
    "a change of a file": ("file_change", {"changes": [], "status": "completed"}, "completed"),
    "a call over MCP": ("mcp_tool_call", {"result": RESULT}, RESULT["content"]),
    "its failure": ("mcp_tool_call", {"result": None, "error": {"message": "no"}}, "no"),
    "a client's tool": ("dynamicToolCall", {"contentItems": [1], "durationMs": 5}, [1]),
    "agents that are waited for": (
        "collab_tool_call",
        {"agents_states": {"t": {"status": "running"}}},
        {"t": {"status": "running"}},
    ),
    "a search": ("web_search", {"query": "q"}, None),
}


@pytest.mark.parametrize(("kind", "more", "outcome"), CAME.values(), ids=CAME)
def test_what_came_of_an_item_is_without_how_long_it_took(kind, more, outcome):
    assert came(said(completed(kind, **more))) == {"item_1": outcome}


def test_what_an_item_was_asked_is_told_with_its_end_where_it_was_not_before():
    assert asked(said(completed("web_search", query="q"))) == {"item_1": "q"}


def test_no_text_of_an_error_gets_into_evidence():
    """E3"""
    (failed, _) = said(failing(KEY))
    assert failed.detail == ""


# --- the app-server's notifications -------------------------------------------------------


def notified(method, **params):
    return {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}


def item(method, kind, **more):
    return notified(f"item/{method}", item={"id": "i", "type": kind, **more})


def over(status, **more):
    return notified("turn/completed", turn={"id": "u", "status": status, "items": [], **more})


def broken(info, message="…", *, retry=True):
    error = {"message": message, "codexErrorInfo": info}
    return notified("error", error=error, willRetry=retry)


TOKENS = {"totalTokens": 22, "inputTokens": 20, "outputTokens": 2}
NOTIFICATIONS = {
    "a thread": (
        {"method": "thread/started", "params": {"thread": {"id": "t"}}},
        [SessionOpened("t")],
    ),
    "a turn, which names its thread": (
        notified("turn/started", turn={"id": "u", "status": "inProgress"}),
        [SessionOpened("t")],
    ),
    "a token": (notified("item/agentMessage/delta", itemId="i", delta="Hel"), PROGRESS),
    "a command": (
        item("started", "commandExecution", command="ls", status="inProgress"),
        [WorkStarted("i", "command_execution")],
    ),
    "its output": (
        notified("item/commandExecution/outputDelta", itemId="i", delta="x"),
        [WorkProgressed("i")],
    ),
    "an MCP tool's progress": (
        notified("item/mcpToolCall/progress", itemId="i", message="half"),
        [WorkProgressed("i")],
    ),
    "output of nobody knows what": (
        notified("item/commandExecution/outputDelta", delta="x"),
        PROGRESS,
    ),
    "its end": (
        item("completed", "commandExecution", command="ls", status="completed"),
        [WorkFinished("i", error=False)],
    ),
    "a tool of an MCP server": (
        item("started", "mcpToolCall", server="s", tool="read", status="inProgress"),
        [WorkStarted("i", "read")],
    ),
    "its failure": (
        item("completed", "mcpToolCall", server="s", tool="read", status="failed"),
        [WorkFinished("i", error=True)],
    ),
    "a web search": (
        item("started", "webSearch", query="q"),
        [WorkStarted("i", "web_search", "server")],
    ),
    "another agent": (
        item("started", "collabAgentToolCall", tool="spawnAgent"),
        [WorkStarted("i", "spawnAgent", "subagent")],
    ),
    "the prompt, said back": (item("started", "userMessage", content=[]), NOTHING),
    "an answer that begins, and may stay empty": (
        item("started", "agentMessage", text=""),
        NOTHING,
    ),
    "an empty answer": (item("completed", "agentMessage", text=""), NOTHING),
    "the model's words": (item("completed", "agentMessage", text="Hi."), PROGRESS),
    "a compaction": (item("started", "contextCompaction"), [Waiting("compaction", "compaction")]),
    "its end too": (item("completed", "contextCompaction"), [WaitEnded("compaction")]),
    "tokens used": (
        notified("thread/tokenUsage/updated", tokenUsage={"total": TOKENS, "last": {}}),
        [Usage({"total_tokens": 22, "input_tokens": 20, "output_tokens": 2}, "session")],
    ),
    "success": (over("completed"), [TurnEnded("success", "completed")]),
    "success with an answer": (
        over("completed", items=[{"type": "agentMessage", "id": "m", "text": "Hi."}]),
        [TurnEnded("success", "completed", answered=True)],
    ),
    "an interrupt": (over("interrupted"), [TurnEnded("cancelled", "interrupted")]),
    "a failure": (
        over("failed", error={"message": "…", "codexErrorInfo": "serverOverloaded"}),
        [Failed("server"), TurnEnded("error", "failed", retriable=True)],
    ),
    "a reconnection": (
        broken({"responseStreamDisconnected": {"httpStatusCode": None}}, "Reconnecting... 1/5"),
        [Failed("network", detail="reconnecting 1/5")],
    ),
    "a status": (broken({"httpConnectionFailed": {"httpStatusCode": 503}}), [Failed("server")]),
    "a wrong key": (broken("unauthorized", retry=False), [Failed("auth")]),
    "an account's limit": (broken("usageLimitExceeded"), [Failed("permanent")]),
    "too many requests": (broken("rateLimitExceeded"), [Failed("rate_limit")]),
    "a kind of error to come": (broken("sunspots", "timed out"), [Failed("network")]),
    "a rate limit in sight": (
        {"method": "account/rateLimits/updated", "params": {"rateLimits": {"primary": {}}}},
        NOTHING,
    ),
    "a rate limit that was reached": (
        {
            "method": "account/rateLimits/updated",
            "params": {"rateLimits": {"rateLimitReachedType": "rate_limit_reached"}},
        },
        [Failed("rate_limit", detail="rate_limit_reached")],
    ),
    "a person who is asked": (
        notified(
            "thread/status/changed",
            status={"type": "active", "activeFlags": ["waitingOnApproval"]},
        ),
        [Waiting("approval", "human")],
    ),
    "and has answered": (
        notified("thread/status/changed", status={"type": "active", "activeFlags": []}),
        [WaitEnded("approval")],
    ),
    "a request for approval": (
        {**notified("item/commandExecution/requestApproval", itemId="i"), "id": 7},
        [Waiting("request:7", "human")],
    ),
    "its resolution": (
        notified("serverRequest/resolved", requestId=7),
        [WaitEnded("request:7")],
    ),
    "a hook": (
        notified("hook/started", run={"id": "h", "eventName": "preToolUse"}),
        [WorkStarted("hook:h", "preToolUse", "hook")],
    ),
    "a hook that nobody waits for": (
        notified("hook/started", run={"id": "h", "executionMode": "async"}),
        NOTHING,
    ),
    "a hook's end": (
        notified("hook/completed", run={"id": "h", "status": "failed"}),
        [WorkFinished("hook:h", error=True)],
    ),
    "a warning": (notified("warning", message="…"), NOTHING),
    "a server that starts": (notified("mcpServer/startupStatus/updated", name="s"), NOTHING),
    "a kind of notification to come": (notified("item/dreams/delta"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), NOTIFICATIONS.values(), ids=NOTIFICATIONS)
def test_a_notification_says(message, signals):
    assert said(message) == signals


@pytest.mark.parametrize(
    "line",
    [line for line, _ in LINES.values() if line["type"] != "thread.archived"]
    + [failing(IDLE), NOTIFICATIONS["a token"][0], NOTIFICATIONS["success"][0]],
    ids=lambda line: line.get("type") or line["method"],
)
def test_codex_is_known_by_its_lines(line):
    """S1"""
    backend = find(line)
    assert (backend.name, backend.always_ends_turns) == ("codex", True)


def test_a_line_that_anybody_could_have_written_decides_nothing():
    """S1: an `error` comes later than `thread.started`, which has decided."""
    assert find({"type": "error", "message": "Reconnecting... 1/5"}) is None


def test_codex_can_be_named():
    assert resolve("codex") == resolve(codex) == resolve(codex.read)


KEYS = [
    *("type", "item", "id", "status", "error", "message", "usage", "thread_id", "thread", "turn"),
    *("threadId", "params", "payload", "method", "root", "value", "run", "tokenUsage", "total"),
    *("codexErrorInfo", "httpStatusCode", "rateLimits", "rateLimitReachedType", "activeFlags"),
    *("tool", "requestId", "executionMode", "eventName"),
]
WORDS = [
    *(line["type"] for line, _ in LINES.values()),
    *(message["method"] for message, _ in NOTIFICATIONS.values()),
    *("turn.failed", "failed", "completed", "command_execution", "commandExecution"),
    *("contextCompaction", "error", "serverOverloaded", "waitingOnApproval"),
]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
