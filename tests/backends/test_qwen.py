"""Qwen Code's CLI, line by line; the lines are as the CLI wrote them."""

import json
from pathlib import Path

import pytest
from hypothesis import given

from streamguard.backends import find, qwen, resolve
from streamguard.signals import (
    Failed,
    Liveness,
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

RECORDED = Path(__file__).parents[1] / "real" / "recorded"
COUNTS = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 0, "total_tokens": 11}
NO_COUNTS = {"input_tokens": 0, "output_tokens": 0}
SHELL = {
    "type": "tool_use",
    "id": "call_1",
    "name": "run_shell_command",
    "input": {"command": "ls"},
}
DONE = {"type": "tool_result", "tool_use_id": "call_1", "is_error": False, "content": "a b"}


def said(message):
    return said_by(qwen, message)


def line(kind, subtype=None, **more):
    named = {"type": kind, "uuid": "u-1", "session_id": "s-1", "parent_tool_use_id": None}
    return {**named, **({} if subtype is None else {"subtype": subtype}), **more}


def assistant(*blocks, usage=NO_COUNTS, parent=None):
    message = {"id": "u-1", "role": "assistant", "content": list(blocks), "usage": usage}
    return line("assistant", message=message, parent_tool_use_id=parent)


def user(*blocks, parent=None):
    message = {"role": "user", "content": list(blocks)}
    return line("user", message=message, parent_tool_use_id=parent)


def system(subtype, **data):
    return line("system", subtype, data=data)


def event(**fields):
    return line("stream_event", event=fields)


def result(subtype="success", *, is_error=False, **more):
    return line("result", subtype, is_error=is_error, permission_denials=[], usage=COUNTS, **more)


def failed(text):
    return result("error_during_execution", is_error=True, error={"message": text})


SPENT = Usage(COUNTS, "session")
TASK = {"task_id": "t-1", "tool_use_id": "call_1"}
LINES = {
    "the session": (
        line("system", "init", cwd="/repo", qwen_code_version="0.24.4"),
        [SessionOpened("s-1", work_dir="/repo")],
    ),
    "what it is to do": (event(type="goal_state", goal_state={"v": 2}), NOTHING),
    "a text": (assistant({"type": "text", "text": "Hel"}), PROGRESS),
    "the end of a call": (
        assistant({"type": "text", "text": "lo"}, usage=COUNTS),
        [Progress(), Usage(COUNTS, "call", "u-1")],
    ),
    "a tool": (
        assistant(SHELL, usage=COUNTS),
        [WorkStarted("call_1", "run_shell_command"), Usage(COUNTS, "call", "u-1")],
    ),
    "its result": (user(DONE), [WorkFinished("call_1")]),
    "its failure": (user({**DONE, "is_error": True}), [WorkFinished("call_1", error=True)]),
    "a sub-agent": (
        assistant({"type": "tool_use", "id": "call_2", "name": "agent", "input": {}}),
        [WorkStarted("call_2", "agent", "subagent")],
    ),
    "what a sub-agent says": (
        assistant({"type": "text", "text": "Hm."}, parent="call_2"),
        [WorkProgressed("call_2")],
    ),
    "a tool of a sub-agent": (
        assistant(SHELL, parent="call_2"),
        [
            WorkProgressed("call_2"),
            WorkStarted("call_1", "run_shell_command", parent="call_2"),
        ],
    ),
    "its result for the sub-agent": (
        user(DONE, parent="call_2"),
        [WorkProgressed("call_2"), WorkFinished("call_1")],
    ),
    "a token": (event(type="content_block_delta", index=0, delta={}), PROGRESS),
    "a shell's heartbeat": (
        event(type="tool_progress", tool_use_id="call_1", content={"type": "shell_progress"}),
        [Liveness()],
    ),
    "an MCP server's note": (
        event(type="tool_progress", tool_use_id="call_1", content={"type": "mcp_tool_progress"}),
        [WorkProgressed("call_1")],
    ),
    "a stream that broke": (
        system("retry", reason="retry", discardedToolCalls=0),
        [Failed("server", detail="retry")],
    ),
    "a busy API": (
        system("retry", reason="retry", attempt=1, maxRetries=10, delayMs=60000),
        [Failed("server", detail="retry 1/10")],
    ),
    "another model": (
        system("model_fallback", fromModel="a", toModel="b", statusCode=429),
        [Failed("rate_limit", detail="model_fallback")],
    ),
    "an agent in the background": (
        system("task_started", **TASK, subagent_type="general-purpose"),
        [WorkStarted("task:t-1", "general-purpose", "subagent", "call_1", background=True)],
    ),
    "a monitor": (
        system("task_started", **TASK),
        [WorkStarted("task:t-1", "", "task", "call_1", background=True)],
    ),
    "its news": (
        system("task_notification", **TASK, status="running"),
        [WorkProgressed("task:t-1")],
    ),
    "its end": (
        system("task_notification", **TASK, status="completed"),
        [WorkFinished("task:t-1")],
    ),
    "its failed end": (
        system("task_notification", **TASK, status="failed"),
        [WorkFinished("task:t-1", error=True)],
    ),
    "a goodbye": (system("session_end"), NOTHING),
    "a system line to come": (system("weather", rain=True), PROGRESS),
    "a result": (result(result="Done."), [SPENT, TurnEnded("success", "success", answered=True)]),
    "an empty result": (
        result(result=""),
        [SPENT, TurnEnded("success", "success", answered=False)],
    ),
    "a failure": (
        failed("[API Error: 400 bad]"),
        [
            SPENT,
            Failed("validation", detail="error_during_execution"),
            TurnEnded("error", "error_during_execution"),
        ],
    ),
    "a kind of line to come": (line("thought"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), LINES.values(), ids=LINES)
def test_a_line_says(message, signals):
    assert said(message) == signals


def test_what_was_asked_and_what_came_of_it_are_as_the_line_has_them():
    assert said(assistant(SHELL))[0].input == {"command": "ls"}
    assert said(user(DONE))[0].outcome == "a b"


def test_only_a_success_says_whether_it_is_an_answer():
    answers = [said(each)[-1].answered for each in (result(result="x"), result(result=""))]
    assert answers == [True, False]
    assert said(result())[-1].answered is None
    assert said(failed("x"))[-1].answered is None


FAILURES = {
    "[API Error: 503 busy]": ("error", "server"),
    "[API Error: 401 scripted: authentication_error]": ("error", "auth"),
    "[API Error: slow down (Status: RESOURCE_EXHAUSTED)]": ("error", "rate_limit"),
    "[API Error: Connection error. (cause: fetch failed)]": ("error", "network"),
    "[API Error: Request timed out.]": ("error", "network"),
    "[API Error: No stream activity for 240000ms after 1 chunks]": ("error", "network"),
    "Operation cancelled.": ("cancelled", "never"),
    "Loop detection halted the run (consecutive_identical_tool_calls: ...)": (
        "incomplete",
        "permanent",
    ),
    "something else": ("error", "unknown"),
}


@pytest.mark.parametrize(("text", "expected"), FAILURES.items())
def test_a_failed_result_names_its_class(text, expected):
    """P1"""
    _, failure, ended = said(failed(text))
    assert (ended.outcome, failure.error_class) == expected
    assert ended.retriable is (expected[1] in {"server", "network", "rate_limit"})


OWN = ["the session", "what it is to do", "a text", "a busy API", "a result", "a failure"]


@pytest.mark.parametrize("what", OWN)
def test_qwen_is_known_by_its_lines(what):
    """S1: although they imitate another's."""
    backend = find(LINES[what][0])
    assert (backend.name, backend.always_ends_turns) == ("qwen", True)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("claude-*.jsonl")), ids=lambda p: p.stem)
def test_no_line_of_claudes_is_taken_for_qwens(path):
    """S1"""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert {find(each).name for each in lines} == {"claude"}


def test_qwen_can_be_named():
    assert resolve("qwen") == resolve(qwen) == resolve(qwen.read)


KEYS = [
    *("type", "subtype", "uuid", "session_id", "parent_tool_use_id", "message", "id", "content"),
    *("usage", "event", "data", "task_id", "status", "result", "is_error", "error", "name"),
    *("tool_use_id", "input", "permission_denials", "statusCode", "attempt", "maxRetries"),
]
WORDS = [
    *("system", "assistant", "user", "stream_event", "result", "init", "retry", "model_fallback"),
    *("task_started", "task_notification", "tool_use", "tool_result", "tool_progress", "agent"),
    *("goal_state", "mcp_tool_progress", "completed", "success"),
]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
