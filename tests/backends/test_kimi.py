"""Kimi Code's CLI, line by line; the lines are as the CLI wrote them."""

import pytest
from hypothesis import given

from streamguard.backends import find, kimi, resolve
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    WorkFinished,
    WorkStarted,
)
from tests.backends.reading import NOTHING, PROGRESS, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by


def said(message):
    return said_by(kimi, message)


def call(id_, name, arguments="{}"):
    return {"type": "function", "id": id_, "function": {"name": name, "arguments": arguments}}


def meta(kind, **more):
    return {"role": "meta", "type": kind, **more}


def retrying(name, **more):
    asked = {"failed_attempt": 1, "next_attempt": 2, "max_attempts": 10, "delay_ms": 607.4}
    return meta("turn.step.retrying", **asked, error_name=name, error_message="quoted", **more)


VERSION = meta("system.version", version="2.1.0")
HINT = meta("session.resume_hint", session_id="session_1", command="kimi -r session_1")
LINES = {
    "its version": (VERSION, NOTHING),
    "what the model says": ({"role": "assistant", "content": "Done."}, PROGRESS),
    "tools": (
        {
            "role": "assistant",
            "content": "Hm.",
            "tool_calls": [call("1", "Bash"), call("2", "Read")],
        },
        [WorkStarted("1", "Bash"), WorkStarted("2", "Read")],
    ),
    "a sub-agent": (
        {"role": "assistant", "tool_calls": [call("1", "Agent")]},
        [WorkStarted("1", "Agent", "subagent")],
    ),
    "no tools": ({"role": "assistant", "tool_calls": []}, PROGRESS),
    "a tool's result": (
        {"role": "tool", "tool_call_id": "1", "content": "a b"},
        [WorkFinished("1")],
    ),
    "an error of the API": (
        retrying("APIProviderOverloadedError", status_code=529),
        [Failed("server", detail="APIProviderOverloadedError")],
    ),
    "a broken connection": (
        retrying("APIConnectionError"),
        [Failed("network", detail="APIConnectionError")],
    ),
    "an error to come": (retrying("Oddity"), [Failed("unknown", detail="Oddity")]),
    "how to resume it": (HINT, [SessionOpened("session_1"), TurnEnded("success")]),
    "how to resume it, without saying what": (
        meta("session.resume_hint"),
        [TurnEnded("success")],
    ),
    "a goal": ({"type": "goal.summary", "goalId": "g", "tokensUsed": 9}, PROGRESS),
    "a line to come": (meta("weather"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), LINES.values(), ids=LINES)
def test_a_line_says(message, signals):
    assert said(message) == signals


def test_what_was_asked_and_what_came_of_it_are_as_the_line_has_them():
    (begun,) = said({"role": "assistant", "tool_calls": [call("1", "Bash", '{"command": "ls"}')]})
    assert begun.input == '{"command": "ls"}'
    assert said({"role": "tool", "tool_call_id": "1", "content": "a b"})[0].outcome == "a b"


@pytest.mark.parametrize("message", [VERSION, HINT, retrying("x")])
def test_kimi_is_known_by_what_it_says_itself(message):
    """S1"""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("kimi", True)


@pytest.mark.parametrize("what", ["what the model says", "tools", "a tool's result"])
def test_a_chat_message_may_be_anybodys(what):
    """S1: it is nobody's alone; in a stream of kimi's it is kimi's."""
    assert find(LINES[what][0]) is None


def test_kimi_can_be_named():
    assert resolve("kimi") == resolve(kimi) == resolve(kimi.read)


KEYS = [
    *("role", "type", "content", "tool_calls", "tool_call_id", "id", "function", "name"),
    *("arguments", "session_id", "version", "status_code", "error_name", "failed_attempt"),
]
WORDS = [
    *("assistant", "tool", "meta", "system.version", "session.resume_hint", "turn.step.retrying"),
    *("Agent", "APIConnectionError"),
]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))
