"""GitHub Copilot's command line, line by line; the lines are as the CLI wrote them."""

import pytest
from hypothesis import given

from streamguard.backends import copilot, find, resolve
from streamguard.signals import (
    Failed,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.backends.reading import NOTHING, PROGRESS, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by


def said(message):
    return said_by(copilot, message)


def line(type_, agent=None, **data):
    whose = {} if agent is None else {"agentId": agent}
    said = {"type": type_, "data": data, "id": "an-id", "timestamp": "2026-11-19T23:05:44.860Z"}
    return {**said, "parentId": "another", **whose}


def result(code, **more):
    usage = {"premiumRequests": 1, "sessionDurationMs": 326, "codeChanges": {"linesAdded": 0}}
    said = {"type": "result", "timestamp": "2026-11-19T23:05:45.003Z", "sessionId": "5c1e"}
    return {**said, "exitCode": code, "usage": usage, **more}


SHELL = {"toolCallId": "call_1", "toolName": "bash", "arguments": {"command": "ls"}}
DONE = {"toolCallId": "call_1", "success": True, "shellExecution": {"exitCode": 0}}
HI = {"content": "hi\n<shellId: 0 completed with exit code 0>"}
BEHIND = {"content": "<command started in background with shellId: one>"}
CALL = Usage({}, "call", "an-id")
COUNTS = Usage({"premiumRequests": 1, "sessionDurationMs": 326}, "process")
LIVES = [WorkProgressed("agent:a"), WorkProgressed("call_9")]
LINES = {
    "the session": (
        line("session.start", sessionId="5c1e", context={"cwd": "/repo"}),
        [SessionOpened("5c1e", work_dir="/repo")],
    ),
    "the prompt, said back": (line("user.message", content="Go"), NOTHING),
    "something from beside the turn": (line("session.tools_updated", model="m"), NOTHING),
    "that the model is asked": (line("model.call_start", turnId="0"), NOTHING),
    "that it is asked again": (line("assistant.turn_retry", reason="rate_limit"), NOTHING),
    "what the model says": (line("assistant.message_delta", deltaContent="Hel"), PROGRESS),
    "its answer": (line("model.call_finished", outcome="success"), [Progress(), CALL]),
    "that there was none": (line("model.call_finished", outcome="error"), NOTHING),
    "a tool": (line("tool.execution_start", **SHELL), [WorkStarted("call_1", "bash")]),
    "what it writes": (
        line("tool.execution_partial_result", toolCallId="call_1", partialOutput="hi"),
        [WorkProgressed("call_1")],
    ),
    "its result": (line("tool.execution_complete", **DONE, result=HI), [WorkFinished("call_1")]),
    "a command that failed": (
        line("tool.execution_complete", **{**DONE, "shellExecution": {"exitCode": 3}}, result=HI),
        [WorkFinished("call_1", error=True)],
    ),
    "a permission that nobody gave": (
        line("tool.execution_complete", **{**DONE, "success": False}, error={"code": "denied"}),
        [WorkFinished("call_1", error=True)],
    ),
    "a shell that goes on": (
        line("tool.execution_complete", **DONE, result=BEHIND),
        [
            WorkStarted("shell:one", "shell", "task", "call_1", background=True),
            WorkFinished("call_1"),
        ],
    ),
    "its end": (
        line("system.notification", kind={"type": "shell_completed", "shellId": "one"}),
        [WorkFinished("shell:one")],
    ),
    "its failure": (
        line(
            "system.notification",
            kind={"type": "shell_completed", "shellId": "one", "exitCode": 1},
        ),
        [WorkFinished("shell:one", error=True)],
    ),
    "another notification": (line("system.notification", kind={"type": "agent_idle"}), PROGRESS),
    "a sub-agent": (
        line("tool.execution_start", toolCallId="call_9", toolName="task", arguments={}),
        [WorkStarted("call_9", "task", "subagent")],
    ),
    "that it has begun": (
        line("subagent.started", agent="a", toolCallId="call_9", executionMode="sync"),
        [WorkProgressed("agent:a")],
    ),
    "that it has begun in the background": (
        line(
            "subagent.started",
            agent="a",
            toolCallId="call_9",
            agentName="explore",
            executionMode="background",
        ),
        [WorkStarted("agent:a", "explore", "subagent", "call_9", background=True)],
    ),
    "what it says": (
        line("assistant.message_delta", agent="a", deltaContent="x", parentToolCallId="call_9"),
        LIVES,
    ),
    "its tool": (
        line("tool.execution_start", agent="a", **SHELL, parentToolCallId="call_9"),
        [WorkStarted("call_1", "bash", parent="call_9"), *LIVES],
    ),
    "its tool's result": (
        line("tool.execution_complete", agent="a", **DONE, parentToolCallId="call_9"),
        [WorkFinished("call_1"), *LIVES],
    ),
    "its call of the model": (
        line("model.call_finished", agent="a", outcome="success"),
        [CALL, WorkProgressed("agent:a")],
    ),
    "its error, which its tool's end tells": (
        line("session.error", agent="a", errorType="query"),
        [WorkProgressed("agent:a")],
    ),
    "that it has ended": (
        line("subagent.completed", agent="a", toolCallId="call_9"),
        [WorkFinished("agent:a")],
    ),
    "that it has failed": (
        line("subagent.failed", agent="a", toolCallId="call_9"),
        [WorkFinished("agent:a", error=True)],
    ),
    "an error": (
        line("session.error", errorType="query", message="400 bad", statusCode=400),
        [Failed("validation", detail="query"), TurnEnded("error", "query")],
    ),
    "the result": (result(0), [SessionOpened("5c1e"), COUNTS, TurnEnded("success")]),
    "a failure": (result(1), [SessionOpened("5c1e"), COUNTS, TurnEnded("error", "exit 1")]),
    "a kind of line to come": (line("assistant.thought", content="hm"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), LINES.values(), ids=LINES)
def test_a_line_says(message, signals):
    assert said(message) == signals


def test_work_says_what_it_was_asked_and_what_came_of_it():
    (begun,) = said(line("tool.execution_start", **SHELL))
    (ended,) = said(line("tool.execution_complete", **DONE, result=HI))
    assert (begun.input, ended.outcome) == ({"command": "ls"}, "hi\nexit code 0")
    in_another_shell = {"content": HI["content"].replace("shellId: 0", "shellId: 1")}
    (again,) = said(line("tool.execution_complete", **DONE, result=in_another_shell))
    assert again.outcome == ended.outcome
    error = {"code": "denied", "message": "Permission denied"}
    (ended,) = said(line("tool.execution_complete", toolCallId="c", success=False, error=error))
    assert ended.outcome == "Permission denied"


FAILURES = {
    "rate_limit": {"statusCode": 429, "failureKind": "api"},
    "server": {"errorCode": "overloaded_error", "failureKind": "api"},
    "auth": {"statusCode": 401, "failureKind": "api"},
    "network": {"failureKind": "transport"},
    "unknown": {"failureKind": "api"},
}


@pytest.mark.parametrize(("class_", "data"), FAILURES.items())
def test_a_call_that_failed_names_its_class(class_, data):
    """P1"""
    assert said(line("model.call_failure", **data)) == [Failed(class_, detail=data["failureKind"])]


ERRORS = {
    ("authentication", 401): "auth",
    ("rate_limit", 429): "rate_limit",
    ("quota", 402): "permanent",
    ("query", 503): "server",
    ("query", None): "unknown",
}


@pytest.mark.parametrize(("error", "class_"), ERRORS.items())
def test_an_error_names_its_class(error, class_):
    """P1"""
    kind, status = error
    failed, ended = said(line("session.error", errorType=kind, statusCode=status))
    assert failed == Failed(class_, detail=kind)
    assert ended.retriable is (class_ in {"server", "rate_limit"})


@pytest.mark.parametrize("message", [each for each, _ in LINES.values()])
def test_copilot_is_known_by_its_lines(message):
    """S1"""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("copilot", True)


def test_the_line_that_its_session_puts_first_is_known_too():
    """S1"""
    said_first = {"type": "session.start", "data": {"sessionId": "5c1e"}}
    assert find(said_first).name == "copilot"
    assert said(said_first) == [SessionOpened("5c1e")]


def test_copilot_can_be_named():
    assert resolve("copilot") == resolve(copilot) == resolve(copilot.read)


KEYS = [
    *("type", "timestamp", "sessionId", "data", "agentId", "exitCode", "usage", "id", "parentId"),
    *("toolCallId", "toolName", "arguments", "result", "content", "error", "message", "success"),
    *("shellExecution", "kind", "shellId", "statusCode", "errorType", "failureKind", "outcome"),
    *("parentToolCallId", "context", "cwd", "executionMode", "agentName"),
]
WORDS = [
    *{each["type"] for each, _ in LINES.values()},
    "model.call_failure",
    "background",
    "query",
]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
