"""Claude, message by message: the table that the module's docstring promises."""

import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.backends import claude, find
from streamguard.signals import (
    SIGNALS,
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.backends.reading import asked, came, is_well_made

PROGRESS = [Progress()]
NOTHING = []
OPENED = SessionOpened("s")
META = {"session_id": "s", "uuid": "u"}


def said(message):
    """The signals of a message, None being Progress."""
    signals = claude.read(message)
    if signals is None:
        return PROGRESS
    return [signals] if isinstance(signals, SIGNALS) else list(signals)


def assistant(*blocks, **more):
    message = {"role": "assistant", "id": "msg_1", "model": "m", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **META, **more}


def user(*blocks, **more):
    message = {"role": "user", "content": list(blocks)}
    return {"type": "user", "message": message, "parent_tool_use_id": None, **META, **more}


def system(subtype, **more):
    return {"type": "system", "subtype": subtype, **META, **more}


def result(subtype="success", **more):
    plain = {"is_error": False, "num_turns": 1, "duration_ms": 9, "duration_api_ms": 8}
    return {"type": "result", "subtype": subtype, **plain, **META, **more}


def event(kind, **more):
    return {"type": "stream_event", "event": {"type": kind}, **META, **more}


def limit(status, **more):
    return {"type": "rate_limit_event", "rate_limit_info": {"status": status, **more}, **META}


def task(subtype, **more):
    described = {"description": "d", "output_file": "f", "summary": "s", "usage": {}}
    return system(subtype, task_id="b1", **described, **more)


def hook(subtype, **more):
    return system(subtype, hook_id="h1", hook_name="PreToolUse:Bash", **more)


TEXT = {"type": "text", "text": "hello"}
BASH = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
BASH_ENDED = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
SEARCH_FAILED = {**SEARCHED, "content": {"error_code": "unavailable"}}
ADVISOR = {"type": "server_tool_use", "id": "srv_2", "name": "advisor", "input": {}}
ADVISED = {"type": "advisor_tool_result", "tool_use_id": "srv_2", "content": {"type": "x"}}

# What the lines say. Each line that the SDK parses is read as an object too, see below.
CONVERSATION = {
    "init": (system("init", tools=[]), [OPENED]),
    "text": (assistant(TEXT), [OPENED, Progress()]),
    "text of a sub-agent": (
        assistant(TEXT, parent_tool_use_id="toolu_0"),
        [WorkProgressed("toolu_0")],
    ),
    "the prompt of a sub-agent": (
        user(TEXT, parent_tool_use_id="toolu_0"),
        [WorkProgressed("toolu_0")],
    ),
    "nothing at all": (assistant(), [OPENED]),
    "a blank": (assistant({"type": "text", "text": " \n"}), [OPENED]),
    "a blank of a sub-agent": (
        assistant({"type": "text", "text": ""}, parent_tool_use_id="toolu_0"),
        NOTHING,
    ),
    "a thought": (
        assistant({"type": "thinking", "thinking": "hm", "signature": "x"}),
        [OPENED, Progress()],
    ),
    "a tool call": (assistant(BASH), [OPENED, WorkStarted("toolu_1", "Bash")]),
    "a sub-agent's tool call": (
        assistant(BASH, parent_tool_use_id="toolu_0"),
        [WorkProgressed("toolu_0"), WorkStarted("toolu_1", "Bash", parent="toolu_0")],
    ),
    "two tool calls": (
        assistant(TEXT, BASH, {**BASH, "id": "toolu_2"}),
        [OPENED, WorkStarted("toolu_1", "Bash"), WorkStarted("toolu_2", "Bash")],
    ),
    "an error": (
        assistant(TEXT, error="rate_limit"),
        [OPENED, Failed("rate_limit", detail="rate_limit")],
    ),
    "an error of a new kind": (
        assistant(TEXT, error="gremlins"),
        [OPENED, Failed("unknown", detail="gremlins")],
    ),
    "a prompt": (user(TEXT), PROGRESS),
    "a tool's result": (user(BASH_ENDED), [WorkFinished("toolu_1")]),
    "a tool's failure": (
        user({**BASH_ENDED, "is_error": True}),
        [WorkFinished("toolu_1", error=True)],
    ),
    "two results": (
        user(BASH_ENDED, {**BASH_ENDED, "tool_use_id": "toolu_2", "is_error": None}),
        [WorkFinished("toolu_1"), WorkFinished("toolu_2")],
    ),
    "the advisor": (assistant(ADVISOR), [OPENED, WorkStarted("srv_2", "advisor", "server")]),
    "the advisor's result": (assistant(ADVISED), [OPENED, WorkFinished("srv_2")]),
    "a token": (event("content_block_delta"), PROGRESS),
    "a ping": (event("ping"), [Liveness()]),
    "/clear": (
        {"type": "conversation_reset", "new_conversation_id": "c", **META},
        [SessionOpened("s", resumable=False)],
    ),
    "thinking": (system("thinking_tokens", estimated_tokens=7), PROGRESS),
    "a system message of a new kind": (system("gremlins"), PROGRESS),
}
MODELS = {
    "m": {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 4, "costUSD": 1},
    "n": {"inputTokens": 4, "outputTokens": 3, "costUSD": 1, "contextWindow": 200_000},
}
RESULTS = {
    "success": (
        result(terminal_reason="completed", usage={"input_tokens": 3, "service_tier": "standard"}),
        [OPENED, Usage({"input_tokens": 3}, "turn"), TurnEnded("success", "success")],
    ),
    "the cost": (
        result(total_cost_usd=0.5),
        [OPENED, Usage({"total_cost_usd": 0.5}, "session"), TurnEnded("success", "success")],
    ),
    "the counts of a turn, and those of its session": (
        result(usage={"input_tokens": 3, "output_tokens": 1}, modelUsage=MODELS, total_cost_usd=2),
        [
            OPENED,
            Usage(
                {
                    "input_tokens": 9,
                    "output_tokens": 5,
                    "cache_read_input_tokens": 4,
                    "total_cost_usd": 2,
                },
                "session",
            ),
            TurnEnded("success", "success"),
        ],
    ),
    "an answer": (
        result(result="Done.", terminal_reason="completed"),
        [OPENED, TurnEnded("success", "success", answered=True)],
    ),
    "an answer in a form": (
        result(result="", structured_output={"a": 1}, terminal_reason="completed"),
        [OPENED, TurnEnded("success", "success", answered=True)],
    ),
    "a success that has done nothing": (
        result(result=" \n", terminal_reason="completed"),
        [OPENED, TurnEnded("success", "success", answered=False)],
    ),
    "/compact, which says nothing": (
        result(result="", num_turns=0),
        [OPENED, TurnEnded("success", "success", answered=True)],
    ),
    "a refusal of the API, which calls itself success": (
        result(is_error=True, api_error_status=400, terminal_reason="api_error"),
        [
            Failed("validation", detail="success, api_error, HTTP 400"),
            TurnEnded("error", "success"),
        ],
    ),
    "an overload that outlasted all retries": (
        result(is_error=True, api_error_status=529, terminal_reason="api_error"),
        [
            Failed("server", detail="success, api_error, HTTP 529"),
            TurnEnded("error", "success", retriable=True),
        ],
    ),
    "no connection": (
        result(is_error=True, terminal_reason="api_error"),
        [Failed("network", detail="success, api_error"), TurnEnded("error", "success", True)],
    ),
    "a prompt that is too long": (
        result(is_error=True, terminal_reason="prompt_too_long"),
        [Failed("validation", detail="success, prompt_too_long"), TurnEnded("error", "success")],
    ),
    "a crash": (
        result("error_during_execution", is_error=True),
        [
            Failed("unknown", detail="error_during_execution"),
            TurnEnded("error", "error_during_execution"),
        ],
    ),
    "an interrupt": (
        result("error_during_execution", is_error=True, terminal_reason="aborted_streaming"),
        [OPENED, TurnEnded("cancelled", "error_during_execution")],
    ),
    "an interrupt that is no error": (
        result(terminal_reason="aborted_tools"),
        [OPENED, TurnEnded("cancelled", "success")],
    ),
    "the user's ceiling": (
        result("error_max_turns", is_error=True, terminal_reason="max_turns"),
        [
            OPENED,
            Failed("permanent", detail="error_max_turns, max_turns"),
            TurnEnded("incomplete", "error_max_turns"),
        ],
    ),
    "the user's budget": (
        result("error_max_budget_usd", is_error=True),
        [
            OPENED,
            Failed("permanent", detail="error_max_budget_usd"),
            TurnEnded("incomplete", "error_max_budget_usd"),
        ],
    ),
    "a tool call handed to the caller": (
        result(terminal_reason="tool_deferred"),
        [OPENED, TurnEnded("paused", "success")],
    ),
}
WAITS = {
    "a limit reached": (
        limit("rejected", resetsAt=1_800_000_000),
        [Waiting("rate_limit", "rate_limit", until=1_800_000_000)],
    ),
    "a limit reached, no reset told": (
        limit("rejected"),
        [Waiting("rate_limit", "rate_limit")],
    ),
    "a limit reached that is paid for": (
        limit("rejected", resetsAt=1_800_000_000, overageStatus="allowed_warning"),
        [WaitEnded("rate_limit")],
    ),
    "a limit near": (limit("allowed_warning"), [WaitEnded("rate_limit")]),
    "no limit": (limit("allowed"), [WaitEnded("rate_limit")]),
    "a retry": (
        system("api_retry", attempt=1, max_retries=10, error_status=529, error="overloaded"),
        [Failed("server", detail="api_retry 1/10, overloaded")],
    ),
    "a retry for want of a connection": (
        system("api_retry", attempt=2, max_retries=10, error_status=None, error="unknown"),
        [Failed("network", detail="api_retry 2/10, unknown")],
    ),
    "compaction": (system("status", status="compacting"), [Waiting("compaction", "compaction")]),
    "compaction's end": (
        system("status", status=None, compact_result="success"),
        [WaitEnded("compaction")],
    ),
    "compaction done": (system("compact_boundary"), [WaitEnded("compaction")]),
    "a request to the API": (system("status", status="requesting"), NOTHING),
    "a question to the human": (
        system("session_state_changed", state="requires_action"),
        [Waiting("session_state", "human")],
    ),
    "its answer": (
        system("session_state_changed", state="running"),
        [WaitEnded("session_state")],
    ),
    "nothing owed any more": (
        system("session_state_changed", state="idle"),
        [WaitEnded("session_state")],
    ),
}
TASK = WorkStarted("task:b1", "local_bash", "task", "toolu_1", background=True)
OF_BASH = {"task_type": "local_bash", "tool_use_id": "toolu_1"}
TASKS = {
    "a background task": (task("task_started", is_backgrounded=True, **OF_BASH), [TASK]),
    "a foreground task": (task("task_started", is_backgrounded=False, **OF_BASH), PROGRESS),
    "a task of an older CLI": (task("task_started", **OF_BASH), PROGRESS),
    "a task of a kind that is never in the foreground": (
        task("task_started", task_type="local_workflow"),
        [WorkStarted("task:b1", "local_workflow", "task", background=True)],
    ),
    "a watcher": (
        task("task_started", is_backgrounded=True, ambient=True, **OF_BASH),
        NOTHING,
    ),
    "housekeeping": (
        task("task_started", is_backgrounded=True, skip_transcript=True, **OF_BASH),
        NOTHING,
    ),
    "a task goes to the background": (
        task("task_updated", patch={"is_backgrounded": True}),
        [WorkStarted("task:b1", "", "task", background=True)],
    ),
    "a task pauses": (task("task_updated", patch={"status": "paused"}), NOTHING),
    "a task ends": (
        task("task_updated", patch={"status": "completed", "is_backgrounded": True}),
        [WorkFinished("task:b1")],
    ),
    "a task is killed": (
        task("task_updated", patch={"status": "killed"}),
        [WorkFinished("task:b1", error=True)],
    ),
    "a task's end is told": (
        task("task_notification", status="completed"),
        [WorkFinished("task:b1")],
    ),
    "a task's stop is told": (
        task("task_notification", status="stopped"),
        [WorkFinished("task:b1", error=True)],
    ),
    "a task goes on": (
        task("task_progress", tool_use_id="toolu_1"),
        [WorkProgressed("task:b1"), WorkProgressed("toolu_1")],
    ),
    "a task's summary, by the clock": (
        task("task_progress", subagent_type="Explore"),
        NOTHING,
    ),
    "a task's progress, told once more": (task("task_progress", resent=True), NOTHING),
    "the set of live tasks": (system("background_tasks_changed", tasks=[]), NOTHING),
    "a hook": (
        hook("hook_started", hook_event="PreToolUse"),
        [WorkStarted("hook:h1", "PreToolUse:Bash", "hook")],
    ),
    "a hook's end": (hook("hook_response", outcome="success"), [WorkFinished("hook:h1")]),
    "a hook's failure": (
        hook("hook_response", outcome="error"),
        [WorkFinished("hook:h1", error=True)],
    ),
    "a hook prints": (hook("hook_progress", stdout="x"), [WorkProgressed("hook:h1")]),
    "a hook goes to the background": (
        hook("hook_progress", backgrounded=True),
        [WorkFinished("hook:h1")],
    ),
    "a hook after the last turn": (hook("hook_started", hook_event="SessionEnd"), NOTHING),
    "the session's new title": (system("session_title_changed", title="t"), NOTHING),
}
BOTH_FORMS = {**CONVERSATION, **RESULTS, **WAITS, **TASKS}

# What only the wire shows: the SDK's parser drops these lines, or the keys that matter.
WIRE_ONLY = {
    "a sub-agent, by both its names": (
        assistant(TEXT, parent_tool_use_id="toolu_0", agent_id="b1"),
        [WorkProgressed("toolu_0"), WorkProgressed("task:b1")],
    ),
    "a sub-agent's token": (
        event("content_block_delta", parent_tool_use_id="toolu_0", agent_id="b1"),
        [WorkProgressed("toolu_0"), WorkProgressed("task:b1")],
    ),
    "the last counts of a call": (
        {
            **event("message_delta", parent_tool_use_id=None, api_message_id="msg_1"),
            "event": {"type": "message_delta", "usage": {"input_tokens": 3, "output_tokens": 5}},
        },
        [Usage({"input_tokens": 3, "output_tokens": 5}, "call", "msg_1"), Progress()],
    ),
    "the last counts of a call, in part": (
        {
            **event("message_delta", parent_tool_use_id=None, api_message_id="msg_1"),
            "event": {"type": "message_delta", "usage": {"output_tokens": 5}},
        },
        PROGRESS,
    ),
    "keep-alive": ({"type": "keep_alive"}, [Liveness()]),
    "a tool's heartbeat": (
        {"type": "tool_progress", "tool_use_id": "toolu_1-heartbeat-0", "heartbeat": True, **META},
        [Liveness()],
    ),
    "a login": (
        {"type": "auth_status", "isAuthenticating": True, "output": [], **META},
        [Waiting("auth", "auth")],
    ),
    "a login's end": (
        {"type": "auth_status", "isAuthenticating": False, "output": [], **META},
        [WaitEnded("auth")],
    ),
    "a login's failure": (
        {"type": "auth_status", "isAuthenticating": False, "error": "no", **META},
        [WaitEnded("auth"), Failed("auth")],
    ),
    "a question to the host": (
        {"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool"}},
        PROGRESS,
    ),
    "a summary of tools": ({"type": "tool_use_summary", "summary": "x", **META}, NOTHING),
    "more turns to come": (
        result(queued_turn_count=2),
        [OPENED, TurnEnded("success", "success", more_expected=True)],
    ),
    "no more turns to come": (
        result(queued_turn_count=0),
        [OPENED, TurnEnded("success", "success")],
    ),
    "a search by the server": (
        assistant(SEARCH),
        [OPENED, WorkStarted("srv_1", "web_search", "server")],
    ),
    "the search's result": (assistant(SEARCHED), [OPENED, WorkFinished("srv_1")]),
    "the search's failure": (
        assistant(SEARCH_FAILED),
        [OPENED, WorkFinished("srv_1", error=True)],
    ),
    "a goal": ({"type": "active_goal", **META}, NOTHING),
    "a command's life": ({"type": "command_lifecycle", "state": "started", **META}, NOTHING),
    "a line of a new type": ({"type": "gremlins", **META}, PROGRESS),
}


def table(rows):
    return pytest.mark.parametrize(("line", "signals"), list(rows.values()), ids=list(rows))


@table(BOTH_FORMS | WIRE_ONLY)
def test_what_a_line_says(line, signals):
    assert said(line) == signals


def used(id_, output, **more):
    """A message of a call of the model's, with its counts so far."""
    line = assistant(TEXT, **more)
    line["message"] |= {"id": id_, "usage": {"input_tokens": 3, "output_tokens": output}}
    return line


def test_each_block_of_a_call_tells_its_counts_under_its_id():
    """Told again they are the same call's; and what the CLI put there itself was no call."""
    counts = Usage({"input_tokens": 3, "output_tokens": 1}, "call", "msg_1")
    assert said(used("msg_1", 1)) == [OPENED, counts, Progress()]
    sub_agents = said(used("msg_1", 1, parent_tool_use_id="toolu_0"))
    assert sub_agents == [WorkProgressed("toolu_0"), counts]
    synthetic = used("u", 0)
    synthetic["message"]["model"] = "<synthetic>"
    assert said(synthetic) == [OPENED, Progress()]


def test_the_object_tells_the_counts_of_its_call_as_well(sdk):
    message = sdk.AssistantMessage(
        [sdk.TextBlock("hi")], "m", usage={"input_tokens": 3}, message_id="msg_1", session_id="s"
    )
    assert said(message) == [OPENED, Usage({"input_tokens": 3}, "call", "msg_1"), Progress()]


def test_what_a_tool_was_asked_is_the_very_object_of_its_message(sdk):
    assert asked(said(assistant(BASH)))["toolu_1"] is BASH["input"]
    block = sdk.ToolUseBlock("toolu_1", "Bash", {"command": "ls"})
    assert asked(said(sdk.AssistantMessage([block], "m")))["toolu_1"] is block.input
    assert asked(said(task("task_started", is_backgrounded=True, prompt="Count."))) == {
        "task:b1": "Count."
    }


OUTCOMES = {
    "text": (user(BASH_ENDED), "ok"),
    "text and more, of a shell": (
        user(BASH_ENDED, tool_use_result={"stdout": "ok", "stderr": "", "interrupted": False}),
        ("ok", ""),
    ),
    "a text so long that a file of the CLI's has it": (
        user(
            {**BASH_ENDED, "content": "saved to /a/toolu_1.txt"},
            tool_use_result={"stdout": "much", "stderr": "", "persistedOutputPath": "/a"},
        ),
        ("much", ""),
    ),
    "a failure": (user({**BASH_ENDED, "is_error": True}, tool_use_result="Error: ok"), "ok"),
    "a sub-agent's report, with its times": (
        user(
            BASH_ENDED, tool_use_result={"agentId": "b1", "content": ["hm"], "totalDurationMs": 9}
        ),
        ["hm"],
    ),
    "a command in the background, under a new id each time": (
        user(
            {**BASH_ENDED, "content": "running in background with ID: b1"},
            tool_use_result={"stdout": "", "stderr": "", "backgroundTaskId": "b1"},
        ),
        "launched",
    ),
    "a sub-agent in the background": (
        user(BASH_ENDED, tool_use_result={"isAsync": True, "agentId": "b1"}),
        "launched",
    ),
}


@pytest.mark.parametrize("form", ["line", "object"])
@pytest.mark.parametrize(("line", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_came_of_a_tool_is_without_what_differs_each_time(line, outcome, form):
    if form == "object":
        parser = pytest.importorskip("claude_agent_sdk._internal.message_parser")
        line = parser.parse_message(line)
    assert came(said(line)) == {"toolu_1": outcome}


def test_what_a_search_has_found_is_its_pages_not_how_they_are_encrypted():
    pages = [{"type": "web_search_result", "url": u, "encrypted_content": u * 2} for u in "ab"]
    assert came(said(assistant({**SEARCHED, "content": pages}))) == {"srv_1": ("a", "b")}


@pytest.mark.parametrize(
    "subtype", ["ui_status", "vcs_state_changed", "control_request_progress", "turn_preempted"]
)
def test_what_the_cli_says_of_other_things_is_no_progress(subtype):
    """S0, T14: it may come while the model hangs, and after the turn's end."""
    assert said(system(subtype)) == NOTHING


@table(BOTH_FORMS)
def test_the_object_that_the_sdk_makes_of_a_line_says_the_same(line, signals):
    """One table for both forms: a session is judged alike, whichever way it is watched.

    An older SDK drops the fields that it does not know yet; the rest still says what it says.
    """
    parser = pytest.importorskip("claude_agent_sdk._internal.message_parser")
    parsed = parser.parse_message(line)
    if parsed is None:
        pytest.skip("this SDK makes no object of such a line")
    if line["type"] == "result" and not hasattr(parsed, "terminal_reason"):
        known = {key: value for key, value in line.items() if key != "terminal_reason"}
        signals = said(known)
    assert said(parsed) == signals


# --- objects made by hand, so that the SDK's own classes are pinned and not its parser ------


@pytest.fixture
def sdk():
    return pytest.importorskip("claude_agent_sdk.types")


def test_objects_as_users_construct_them(sdk):
    tool = sdk.ToolUseBlock("toolu_1", "Bash", {})
    done = sdk.ToolResultBlock("toolu_1", "Exit code 3", is_error=True)
    told = sdk.RateLimitInfo("rejected", resets_at=1_800_000_000)
    table = [
        (sdk.SystemMessage("init", {"session_id": "s"}), [OPENED]),
        (sdk.AssistantMessage([sdk.TextBlock("hi")], "m"), PROGRESS),
        (
            sdk.AssistantMessage([tool], "m", session_id="s"),
            [OPENED, WorkStarted("toolu_1", "Bash")],
        ),
        (sdk.UserMessage("text"), PROGRESS),
        (sdk.UserMessage([done]), [WorkFinished("toolu_1", error=True)]),
        (sdk.StreamEvent("u", "s", {"type": "ping"}), [Liveness()]),
        (
            sdk.RateLimitEvent(told, "u", "s"),
            [Waiting("rate_limit", "rate_limit", 1_800_000_000)],
        ),
        (
            sdk.ResultMessage("success", 1, 1, False, 1, "s"),
            [OPENED, TurnEnded("success", "success")],
        ),
    ]
    assert [said(message) for message, _ in table] == [signals for _, signals in table]


def test_a_task_message_made_by_hand_needs_no_raw_data(sdk):
    message = sdk.TaskNotificationMessage(
        subtype="task_notification",
        data={},
        task_id="b1",
        status="failed",
        output_file="",
        summary="",
        uuid="u",
        session_id="s",
    )
    assert said(message) == [WorkFinished("task:b1", error=True)]


def test_a_server_tool_whose_result_the_parser_drops_opens_no_entry(sdk):
    """S4: it could never be closed."""
    block = sdk.ServerToolUseBlock("srv_1", "web_search", {})
    assert said(sdk.AssistantMessage([block], "m", session_id="s")) == [OPENED, Progress()]


def test_a_users_subclass_says_what_its_base_says(sdk):
    @dataclass
    class Mine(sdk.StreamEvent):
        note: str = ""

    assert said(Mine("u", "s", {"type": "ping"})) == [Liveness()]


def test_the_sdks_messages_are_found(sdk):
    backend = find(sdk.StreamEvent("u", "s", {}))
    assert (backend.read, backend.always_ends_turns) == (claude.read, True)


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (400, "validation"),
        (401, "auth"),
        (402, "permanent"),
        (403, "auth"),
        (404, "validation"),
        (408, "network"),
        (409, "network"),
        (413, "validation"),
        (422, "validation"),
        (429, "rate_limit"),
        (500, "server"),
        (529, "server"),
        (200, "unknown"),
    ],
)
def test_the_class_of_a_failed_turn_is_its_statuss(status, error_class):
    """P1"""
    line = result(is_error=True, api_error_status=status)
    assert [s.error_class for s in said(line) if isinstance(s, Failed)] == [error_class]


def test_the_text_of_a_failed_turn_stays_out_of_what_is_recorded():
    """E3: it may quote the conversation."""
    line = result(is_error=True, result="API Error: 400 my secret", errors=["my secret"])
    assert "secret" not in repr(said(line))


def test_a_failed_start_names_no_session_that_could_be_resumed():
    """The id in `No conversation found ...` belongs to a session that never came to be."""
    line = result("error_during_execution", is_error=True, num_turns=0)
    assert not any(isinstance(signal, SessionOpened) for signal in said(line))


# --- garbage ------------------------------------------------------------------------------

LINE_TYPES = sorted({line["type"] for line, _ in (BOTH_FORMS | WIRE_ONLY).values()})
SUBTYPES = sorted({line.get("subtype", "x") for line, _ in (BOTH_FORMS | WIRE_ONLY).values()})
BLOCK_TYPES = ["text", "tool_use", "tool_result", "server_tool_use", "web_search_tool_result"]
KEYS = sorted(
    {key for line, _ in (BOTH_FORMS | WIRE_ONLY).values() for key in line}
    | {"content", "id", "name", "tool_use_id", "is_error", "error_code", "resets_at", "data"}
    | {"resetsAt", "overage_status", "api_error_status", "queued_turn_count", "task_type"}
)
words = st.sampled_from([*LINE_TYPES, *SUBTYPES, *BLOCK_TYPES, "rejected", "compacting", "ping"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400)])
    | st.floats()
    | st.text(max_size=5)
    | words
)


def nested(children):
    return (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), children, max_size=6)
        | objects(children)
    )


def objects(children):
    names = st.sampled_from(
        [
            "AssistantMessage",
            "UserMessage",
            "SystemMessage",
            "ResultMessage",
            "StreamEvent",
            "RateLimitEvent",
            "ConversationResetMessage",
            "ToolUseBlock",
            "ToolResultBlock",
            "ServerToolUseBlock",
            "Gremlin",
        ]
    )
    attributes = st.dictionaries(st.sampled_from(KEYS), children, max_size=6)
    return st.builds(named_object, names, attributes)


def named_object(name, attributes):
    made = type(name, (), {})()
    vars(made).update(attributes)
    return made


junk = st.recursive(leaves, nested, max_leaves=12)
lines = st.fixed_dictionaries(
    {"type": st.sampled_from(LINE_TYPES)},
    optional={key: junk for key in KEYS if key not in {"type", "subtype"}}
    | {"subtype": st.sampled_from(SUBTYPES) | junk},
)


@given(junk | lines | objects(junk))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))


@given(junk | lines | objects(junk))
def test_no_message_makes_the_search_for_its_backend_raise(message):
    """S2"""
    assert find(message) is None or find(message).name == "claude"


@given(lines)
def test_the_reader_is_pure(line):
    """The same message says the same, and is left as it was."""
    before = repr(line)
    assert repr(said(line)) == repr(said(line))
    assert repr(line) == before


GARBAGE = {
    "a tool call without an id": (assistant({"type": "tool_use"}), [OPENED, WorkStarted("")]),
    "a tool call whose id is a number": (
        assistant({**BASH, "id": 7}),
        [OPENED, WorkStarted("", "Bash")],
    ),
    "a block whose type is a list": (assistant({"type": ["tool_use"]}), [OPENED, Progress()]),
    "a block that is none": (assistant(None, 3, "x", []), [OPENED, Progress()]),
    "a session that is a number": (assistant(TEXT, session_id=7), PROGRESS),
    "a result for no tool": (
        user({"type": "tool_result", "tool_use_id": None}),
        [WorkFinished("")],
    ),
    "no message at all": ({"type": "assistant", **META}, [OPENED, Progress()]),
    "content that is a number": ({"type": "user", "message": {"content": 7}}, PROGRESS),
    "an init that opens nothing": ({"type": "system", "subtype": "init"}, NOTHING),
    "an event that is a text": ({"type": "stream_event", "event": "ping"}, PROGRESS),
    "a task without an id": (system("task_started", is_backgrounded=True), PROGRESS),
    "the end of a task without an id": (system("task_notification", status="failed"), NOTHING),
    "a status that is a list": (task("task_notification", status=["failed"]), NOTHING),
    "a patch that is a list": (task("task_updated", patch=["status"]), NOTHING),
    "a hook without an id": (system("hook_started"), PROGRESS),
    "a limit that says nothing": ({"type": "rate_limit_event"}, [WaitEnded("rate_limit")]),
    "a reset beyond every float": (
        limit("rejected", resetsAt=10**400),
        [Waiting("rate_limit", "rate_limit")],
    ),
    "a reset that is no number": (
        limit("rejected", resetsAt=float("nan")),
        [Waiting("rate_limit", "rate_limit")],
    ),
    "counts that are none": (
        result(usage={"a": True, "b": "3", "c": float("inf")}, queued_turn_count="many"),
        [OPENED, TurnEnded("success", "success")],
    ),
    "a result that says nothing": ({"type": "result"}, [TurnEnded("success")]),
}


@table(GARBAGE)
def test_a_value_of_the_wrong_making_is_as_good_as_none(line, signals):
    """S2"""
    assert said(line) == signals


class Slotted:
    __slots__ = ()


@pytest.mark.parametrize(
    "message",
    [None, 0, "x", b"", [], (), object(), Slotted(), Slotted, sys],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_message_at_all_is_progress(message):
    """S1"""
    assert said(message) == PROGRESS
