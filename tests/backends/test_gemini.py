"""Gemini's CLI, line by line; the lines are as the CLI wrote them."""

import pytest
from hypothesis import given

from streamguard.backends import find, gemini, resolve
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    Usage,
    WorkFinished,
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

STATS = {"total_tokens": 11, "input_tokens": 10, "duration_ms": 5, "models": {"m": {}}}
COUNTS = {"total_tokens": 11, "input_tokens": 10, "duration_ms": 5}


def said(message):
    return said_by(gemini, message)


def line(kind, **more):
    return {"type": kind, "timestamp": "2026-11-18T18:55:00.000Z", **more}


def failed(kind, message=""):
    return line("result", status="error", error={"type": kind, "message": message}, stats=STATS)


SHELL = {"tool_id": "run_shell_command__fc2", "tool_name": "run_shell_command"}
LINES = {
    "the session": (
        line("init", session_id="5c1e", model="gemini-2.5-pro"),
        [SessionOpened("5c1e")],
    ),
    "the prompt, said back": (line("message", role="user", content="Go"), NOTHING),
    "what the model says": (
        line("message", role="assistant", content="Hel", delta=True),
        PROGRESS,
    ),
    "nothing": (line("message", role="assistant", content="", delta=True), NOTHING),
    "a tool": (
        line("tool_use", **SHELL, parameters={"command": "ls"}),
        [WorkStarted("run_shell_command__fc2", "run_shell_command")],
    ),
    "its result": (
        line("tool_result", tool_id="run_shell_command__fc2", status="success", output="hi"),
        [WorkFinished("run_shell_command__fc2", error=False)],
    ),
    "its failure": (
        line("tool_result", tool_id="run_shell_command__fc2", status="error", error={}),
        [WorkFinished("run_shell_command__fc2", error=True)],
    ),
    "a warning": (
        line("error", severity="warning", message="Loop detected, stopping execution"),
        PROGRESS,
    ),
    "an error": (
        line("error", severity="error", message="Maximum session turns exceeded"),
        [Failed("unknown")],
    ),
    "a result": (
        line("result", status="success", stats=STATS),
        [Usage(COUNTS, "process"), TurnEnded("success")],
    ),
    "a failure": (
        failed("Error", "[API Error: no such model (Status: NOT_FOUND)]"),
        [
            Usage(COUNTS, "process"),
            Failed("validation", detail="Error"),
            TurnEnded("error", "Error"),
        ],
    ),
    "a failure that a line before has told": (
        line("result", status="error", stats=STATS),
        [Usage(COUNTS, "process"), TurnEnded("error")],
    ),
    "the user's own limit": (
        failed("FatalTurnLimitedError"),
        [
            Usage(COUNTS, "process"),
            Failed("permanent", detail="FatalTurnLimitedError"),
            TurnEnded("incomplete", "FatalTurnLimitedError"),
        ],
    ),
    "a cancellation": (
        failed("FatalCancellationError", "Operation cancelled."),
        [
            Usage(COUNTS, "process"),
            Failed("never", detail="FatalCancellationError"),
            TurnEnded("cancelled", "FatalCancellationError"),
        ],
    ),
    "a kind of line to come": (line("thought", content="hm"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), LINES.values(), ids=LINES)
def test_a_line_says(message, signals):
    assert said(message) == signals


def test_what_a_tool_was_asked_and_what_came_of_it():
    parameters = {"command": "ls"}
    assert asked(said(line("tool_use", **SHELL, parameters=parameters))) == {
        SHELL["tool_id"]: parameters
    }
    over = {"tool_id": "t", "status": "success"}
    assert came(said(line("tool_result", **over, output="hi"))) == {"t": "hi"}
    assert came(said(line("tool_result", **over, error={"message": "no"}))) == {"t": "no"}
    assert came(said(line("tool_result", **over))) == {"t": None}


FAILURES = {
    ("ApiError", "got status: 503 Service Unavailable. {…}"): "server",
    ("Error", "[API Error: busy (Status: UNAVAILABLE)]"): "server",
    ("Error", "[API Error: slow down (Status: RESOURCE_EXHAUSTED)]"): "rate_limit",
    ("unknown", '[API Error: {"error":{"code":400,"status":"INVALID_ARGUMENT"}}]'): "validation",
    ("Error", "[API Error: bad key (Status: UNAUTHENTICATED)]"): "auth",
    ("FatalAuthenticationError", ""): "auth",
    ("FatalConfigError", ""): "validation",
    ("INVALID_STREAM", "The model returned an empty response."): "server",
    ("TypeError", "exception TypeError: fetch failed sending request"): "network",
    ("Error", "Model stream ended without a finish reason."): "server",
    ("unknown", "[API Error: terminated]"): "network",
    ("Error", "something else"): "unknown",
}


@pytest.mark.parametrize(("error", "class_"), FAILURES.items())
def test_a_failed_result_names_its_class(error, class_):
    """P1"""
    _, failure, ended = said(failed(*error))
    assert failure == Failed(class_, detail=error[0])
    assert ended.retriable is (class_ in {"server", "network", "rate_limit"})


@pytest.mark.parametrize(
    "message", [each for each, _ in LINES.values() if each["type"] != "thought"]
)
def test_gemini_is_known_by_its_lines(message):
    """S1"""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("gemini", True)


def test_gemini_can_be_named():
    assert resolve("gemini") == resolve(gemini) == resolve(gemini.read)


KEYS = [
    *("type", "timestamp", "session_id", "model", "role", "content", "tool_id", "tool_name"),
    *("status", "error", "stats", "severity", "message"),
]
WORDS = ["init", "message", "tool_use", "tool_result", "error", "result", "warning", "success"]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
