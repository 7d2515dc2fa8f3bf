"""opencode's command line, line by line; the lines are as the CLI and our tap in it wrote them."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given

from streamguard.backends import find, opencode, resolve
from streamguard.backends.opencode.tap_plugin import PLUGIN, VARIABLE
from streamguard.errors import ConfigError
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
from tests.backends.reading import NOTHING, PROGRESS, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by


def said(message):
    return said_by(opencode, message)


def line(kind, **more):
    return {"type": kind, "timestamp": 1795129542745, "sessionID": "ses_1", **more}


def tool(status="completed", exit_=0, **more):
    metadata = {"output": "hi\n", "exit": exit_}
    state = {"status": status, "input": {"command": "ls"}, "output": "hi\n", "metadata": metadata}
    part = {"type": "tool", "tool": "bash", "callID": "call_1", "state": {**state, **more}}
    return line("tool_use", part=part)


def step_finish(reason):
    tokens = {
        "total": 11,
        "input": 4,
        "output": 1,
        "reasoning": 0,
        "cache": {"write": 2, "read": 4},
    }
    return line(
        "step_finish", part={"id": "prt_1", "reason": reason, "tokens": tokens, "cost": 0.5}
    )


def error(name, **data):
    return line("error", error={"name": name, "data": data})


COUNTS = {
    "total_tokens": 11,
    "input_tokens": 4,
    "output_tokens": 1,
    "reasoning_tokens": 0,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 2,
    "total_cost_usd": 0.5,
}
USAGE = Usage(COUNTS, "call", "prt_1")
SESSION = SessionOpened("ses_1")
IN_A_TASK = {"sessionID": "ses_2", "parent": "call_9"}
LINES = {
    "a step's beginning": (line("step_start", part={"type": "step-start"}), [SESSION]),
    "what the model says": (line("text", part={"type": "text", "text": "Hi"}), PROGRESS),
    "what it thinks": (line("reasoning", part={"type": "reasoning", "text": "Hm"}), PROGRESS),
    "a text with nothing in it": (line("text", part={"type": "text", "text": " "}), NOTHING),
    "a tool": (tool(), [WorkStarted("call_1", "bash"), WorkFinished("call_1")]),
    "a command that failed": (
        tool(exit_=3),
        [WorkStarted("call_1", "bash"), WorkFinished("call_1", error=True)],
    ),
    "a tool that failed": (
        tool(status="error", error="File not found"),
        [WorkStarted("call_1", "bash"), WorkFinished("call_1", error=True)],
    ),
    "a permission that nobody gave": (
        tool(status="error", error="The user rejected permission to use this specific tool call."),
        [
            WorkStarted("call_1", "bash"),
            WorkFinished("call_1", error=True),
            TurnEnded("incomplete", "permission"),
        ],
    ),
    "a step that wants tools": (step_finish("tool-calls"), [USAGE]),
    "the last step": (step_finish("stop"), [USAGE, TurnEnded("success", "stop")]),
    "an answer that was cut off": (
        step_finish("length"),
        [USAGE, TurnEnded("incomplete", "length")],
    ),
    "an error": (
        error("APIError", message="bad", statusCode=400, isRetryable=False),
        [SESSION, Failed("validation", detail="APIError"), TurnEnded("error", "APIError")],
    ),
    "an error after which another attempt may do better": (
        error("APIError", message="slow down", statusCode=429),
        [
            SESSION,
            Failed("rate_limit", detail="APIError"),
            TurnEnded("error", "APIError", retriable=True),
        ],
    ),
    "a cancellation": (
        error("MessageAbortedError", message="Aborted"),
        [
            SESSION,
            Failed("never", detail="MessageAbortedError"),
            TurnEnded("cancelled", "MessageAbortedError"),
        ],
    ),
    "a context that is full, which it makes shorter itself": (
        error("ContextOverflowError", message="too long"),
        [SESSION, Failed("validation", detail="ContextOverflowError")],
    ),
    "the session": (
        line("tap.session", directory="/repo"),
        [SessionOpened("ses_1", work_dir="/repo")],
    ),
    "a tool that begins": (
        line("tap.tool_start", callID="call_1", tool="bash", input={"command": "ls"}),
        [WorkStarted("call_1", "bash")],
    ),
    "a sub-agent": (
        line("tap.tool_start", callID="call_9", tool="task", input={}),
        [WorkStarted("call_9", "task", "subagent")],
    ),
    "a sub-agent's tool": (
        line("tap.tool_start", **IN_A_TASK, callID="ses_2/call_1", tool="bash", input={}),
        [WorkStarted("ses_2/call_1", "bash", parent="call_9")],
    ),
    "its end": (
        line("tap.tool_end", **IN_A_TASK, callID="ses_2/call_1", status="completed", outcome="x"),
        [WorkFinished("ses_2/call_1"), WorkProgressed("call_9")],
    ),
    "that the model is at it": (line("tap.alive"), PROGRESS),
    "that a tool is": (line("tap.alive", callID="call_1"), [WorkProgressed("call_1")]),
    "that a sub-agent is": (line("tap.alive", **IN_A_TASK), [WorkProgressed("call_9")]),
    "what a sub-agent's step took": (
        {**step_finish("stop"), "type": "tap.step_finish", **IN_A_TASK},
        [USAGE, WorkProgressed("call_9")],
    ),
    "a retry": (
        line("tap.retry", attempt=1, message="Too Many Requests", next=1795129548848),
        [Failed("rate_limit", detail="retry"), Waiting("retry", "retry", 1795129548.848)],
    ),
    "another retry of the same": (
        line("tap.retry", attempt=2, message="Too Many Requests", next=1795129548848),
        [Waiting("retry", "retry", 1795129548.848)],
    ),
    "a sub-agent's retry": (
        line("tap.retry", **IN_A_TASK, attempt=1, message="", next=1),
        [WorkProgressed("call_9")],
    ),
    "a sub-agent's error": (line("tap.error", **IN_A_TASK, error={}), [WorkProgressed("call_9")]),
    "a kind of line to come": (line("tap.thought"), PROGRESS),
}


@pytest.mark.parametrize(("message", "signals"), LINES.values(), ids=LINES)
def test_a_line_says(message, signals):
    assert said(message) == signals


def test_work_says_what_it_was_asked_and_what_came_of_it():
    begun, ended = said(tool())
    assert (begun.input, ended.outcome) == ({"command": "ls"}, "hi\n")
    _, ended = said(tool(status="error", error="File not found"))
    assert ended.outcome == "File not found"
    of_sessions = [f'<task id="ses_{each * 26}">Three.</task>' for each in "ab"]
    outcomes = {said(tool(output=each))[1].outcome for each in of_sessions}
    assert outcomes == {'<task id="">Three.</task>'}
    (begun,) = said(line("tap.tool_start", callID="c", tool="bash", input={"command": "ls"}))
    assert begun.input == {"command": "ls"}
    ended, _ = said(
        line("tap.tool_end", **IN_A_TASK, callID="c", status="completed", outcome="three")
    )
    assert ended.outcome == "three"


FAILURES = {
    ("ProviderAuthError", "no key"): "auth",
    ("UnknownError", "Cannot connect to API: the socket was closed"): "network",
    ("UnknownError", "Model not found"): "unknown",
    ("MessageOutputLengthError", ""): "permanent",
}


@pytest.mark.parametrize(("failure", "class_"), FAILURES.items())
def test_an_error_names_its_class(failure, class_):
    """P1"""
    name, message = failure
    _, failed, ended = said(error(name, message=message))
    assert failed == Failed(class_, detail=name)
    assert ended.retriable is (class_ == "network")


@pytest.mark.parametrize("message", [each for each, _ in LINES.values()])
def test_opencode_is_known_by_its_lines(message):
    """S1"""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("opencode", True)


def test_opencode_can_be_named():
    assert resolve("opencode") == resolve(opencode) == resolve(opencode.read)


KEYS = [
    *("type", "timestamp", "sessionID", "part", "error", "name", "data", "message", "next"),
    *(
        "callID",
        "tool",
        "state",
        "status",
        "metadata",
        "exit",
        "tokens",
        "cost",
        "cache",
        "parent",
    ),
    *("attempt", "reason", "directory", "statusCode", "id", "outcome", "input"),
]
WORDS = [*{each["type"] for each, _ in LINES.values()}, "completed", "tool-calls", "stop"]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert is_found_or_not(find(message))


def test_a_line_without_what_it_needs_says_little():
    assert said({"type": "step_start"}) == NOTHING
    assert said({"type": "tool_use"}) == said({"type": "tap.tool_start"}) == PROGRESS


# --- the tap ---------------------------------------------------------------------------------


def plugins_in(env):
    return json.loads(env[VARIABLE])["plugin"]


def test_the_tap_is_added_to_what_opencode_is_configured_with():
    given_ = {"PATH": "/bin", VARIABLE: '{"model": "a/b", "plugin": ["theirs"]}'}
    env = opencode.tapped(given_)
    assert env["PATH"] == "/bin"
    assert json.loads(env[VARIABLE])["model"] == "a/b"
    assert plugins_in(env) == ["theirs", PLUGIN.as_uri()]
    assert opencode.tapped(env) == env
    assert plugins_in(opencode.tapped({})) == [PLUGIN.as_uri()]
    assert given_[VARIABLE] == '{"model": "a/b", "plugin": ["theirs"]}'


def test_without_an_environment_it_is_this_processs_own(monkeypatch):
    monkeypatch.setenv("STREAMGUARD_TEST_VARIABLE", "kept")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert opencode.tapped()["STREAMGUARD_TEST_VARIABLE"] == "kept"
    assert VARIABLE not in os.environ


@pytest.mark.parametrize("content", ["{ // a comment\n}", "[]", '{"plugin": 1}', "null"])
def test_a_configuration_that_cannot_be_added_to_is_refused(content):
    with pytest.raises(ConfigError, match="OPENCODE_CONFIG"):
        opencode.tapped({VARIABLE: content})


def test_what_others_must_set_is_printed():
    command = [sys.executable, "-m", "streamguard.backends.opencode"]
    env = {**os.environ, VARIABLE: '{"model": "a/b"}'}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"model": "a/b", "plugin": [PLUGIN.as_uri()]}


# What a host would tell the tap, in the words of opencode's own events; and how it is asked.
HOST = """
import { Tap } from "%s";
process.argv.push(...%s);
const hooks = await Tap({});
const tell = (type, properties) => hooks.event?.({ event: { type, properties } });
const part = (sessionID, more) => tell("message.part.updated", { part: { sessionID, ...more } });
const call = (sessionID, callID, state) => part(sessionID, { type: "tool", tool: "task", callID, state });
await tell("session.created", { info: { id: "ses_1" } });
await tell("session.status", { sessionID: "ses_1", status: { type: "busy" } });
await tell("session.status", { sessionID: "ses_1", status: { type: "busy" } });
await tell("session.status", { sessionID: "ses_1", status: { type: "retry", attempt: 1, message: "m", next: 5 } });
for (let i = 0; i < 1000; i++) await tell("message.part.delta", { sessionID: "ses_1" });
await call("ses_1", "c", { status: "pending" });
await call("ses_1", "c", { status: "running", input: { a: 1 } });
await tell("session.created", { info: { id: "ses_2", parentID: "ses_1" } });
await call("ses_1", "c", { status: "running", input: { a: 1 }, metadata: { sessionId: "ses_2" } });
await tell("session.status", { sessionID: "ses_2", status: { type: "busy" } });
await call("ses_2", "c", { status: "running", input: { b: 2 } });
await call("ses_2", "c", { status: "completed", output: "x".repeat(9000) });
await part("ses_2", { type: "step-finish", tokens: { total: 3 } });
await tell("session.error", { sessionID: "ses_2", error: {} });
await call("ses_1", "c", { status: "completed", output: "y" });
await tell("session.error", { sessionID: "ses_1", error: {} });
await tell("message.part.updated", {});
await tell("message.part.updated", { part: null });
await tell("of.a.later.version", null);
"""


def tapped_lines(tmp_path, *words):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: .ci/tools installs it")
    program = tmp_path / "host.mjs"
    program.write_text(HOST % (PLUGIN.as_uri(), json.dumps(words)))
    done = subprocess.run([node, program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_tap_says_what_opencode_keeps_to_itself(tmp_path):
    """B1, T5: whose each is; what comes often is said once in a second; and nothing makes it raise."""
    lines = tapped_lines(tmp_path, "run", "--format", "json", "Go")
    told = [
        (each["type"], each["sessionID"], each.get("callID"), each.get("parent")) for each in lines
    ]
    assert told == [
        ("tap.session", "ses_1", None, None),
        ("tap.retry", "ses_1", None, None),
        ("tap.alive", "ses_1", None, None),
        ("tap.tool_start", "ses_1", "c", None),
        ("tap.alive", "ses_1", "c", None),
        ("tap.tool_start", "ses_2", "ses_2/c", "c"),
        ("tap.tool_end", "ses_2", "ses_2/c", "c"),
        ("tap.step_finish", "ses_2", None, "c"),
        ("tap.error", "ses_2", None, "c"),
    ]
    assert {find(each).name for each in lines} == {"opencode"}
    assert [each["input"] for each in lines if "input" in each] == [{"a": 1}, {"b": 2}]
    assert [len(each["outcome"]) for each in lines if "outcome" in each] == [4000]


@pytest.mark.parametrize("words", [(), ("serve",), ("run", "--format", "default"), ("run", "Go")])
def test_the_tap_says_nothing_where_no_lines_are_asked_for(tmp_path, words):
    assert tapped_lines(tmp_path, *words) == []
