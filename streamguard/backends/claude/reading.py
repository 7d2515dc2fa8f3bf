"""Claude: what the messages of claude-agent-sdk and of `claude -p` say.

Reads the SDK's objects (by class name, the SDK is never imported) and the dict lines of
`--output-format stream-json` through one table, `_LINES`: an object is its fields under the
line type that it was parsed from. Pure and total: garbage is Progress, never an exception.

    message                                signals
    ─────────────────────────────────────  ─────────────────────────────────────────────────
    system/init                            SessionOpened
    assistant                              SessionOpened, Usage of its call, Progress
      with tool use                        SessionOpened, Usage, WorkStarted for each
      with an error                        SessionOpened, Failed
      with nothing in it                   SessionOpened, Usage
    user                                   Progress
      with tool results                    WorkFinished for each
    either, of a sub-agent                 WorkProgressed, and as above with `parent`; no SessionOpened
    stream_event                           Progress; its ping: Liveness
      message_delta of a call it names     Usage, Progress
      of a sub-agent                       WorkProgressed
    keep_alive, tool_progress              Liveness
    result                                 SessionOpened, Usage, Failed, TurnEnded (see outcome)
    conversation_reset                     SessionOpened, not resumable
    rate_limit_event                       Waiting until the reset, or WaitEnded
    auth_status                            Waiting, or WaitEnded (and Failed)
    system/api_retry                       Failed
    system/status compacting               Waiting; its end or a compact_boundary: WaitEnded
    system/session_state_changed           requires_action: Waiting; running, idle: WaitEnded
    system/task_started, _updated          WorkStarted, if it is in the background
    system/task_updated, _notification     WorkFinished, at a terminal status
    system/task_progress                   WorkProgressed
    system/hook_started, _response         WorkStarted, WorkFinished
    system/hook_progress                   WorkProgressed
    side channels (_SIDE_CHANNELS)         nothing: no progress, and they open no turn (T14)
    anything else                          Progress

A sub-agent is known by two names: of the tool call that began it, in which it is work in flight while the
call waits for it; and of the task (`task:ID`) that it is in the background. Its messages bear both, as far
as the CLI tells them; the one that is not in flight says nothing.

May import `signals`, `errors` and its helpers beside it, nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from streamguard.backends._anthropic_blocks import is_result, result_of
from streamguard.backends._fields import (
    LIVENESS,
    NOT_AT_A_GLANCE,
    NOTHING,
    PROGRESS,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    always,
    class_of_status,
    fields_of,
    number_in,
    numbers_in,
    opened,
    opened_and_progress,
    text_in,
    usage_in,
)
from streamguard.backends.claude.outcome import (
    class_of_word,
    failure_of,
    limit_over_at,
    outcome_of,
)
from streamguard.signals import (
    Failed,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkScope,
    WorkStarted,
)

# Every turn ends with a `result`. A disconnect, or a CLI that exits 0 in mid-turn, ends the
# stream without one and without an exception (T10).
ALWAYS_ENDS_TURNS = True

_RATE_LIMIT = "rate_limit"
_AUTH = "auth"
_COMPACTION = "compaction"
_SESSION_STATE = "session_state"
_SYNTHETIC = "<synthetic>"
_LAUNCHED = (
    "launched"  # what comes of work that goes on in the background: its id is a new one each time
)
_COUNTS_BY_MODEL = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
}


# The types of answers that were met: nearly always one. A look-up costs a third of what a name does.
_ANSWERS: set[type] = set()
_MOST_ANSWERS = 64


def read(message: Any) -> Said:
    """What one message says; None is Progress."""
    try:  # an answer of one text, of a session or of none
        if type(message) in _ANSWERS:
            fields = message.__dict__
            [block] = fields["content"]
            is_text = block.text.strip() and fields["error"] is None  # no other block has a text
            is_more = fields["parent_tool_use_id"] or fields.get("usage") is not None
            if is_text and not is_more and "message" not in fields:
                if not (token := fields.get("session_id")):
                    return None
                if type(token) is str:
                    return opened_and_progress(token)
    except NOT_AT_A_GLANCE:
        pass
    return _read(message)


def _read(message: object) -> Said:
    if isinstance(message, dict):
        line = cast("Fields", message)
        kind = line.get("type")
        handle = _LINES.get(kind) if isinstance(kind, str) else None
        return None if handle is None else handle(line)
    for cls in type(message).__mro__:  # task and hook messages are SystemMessages
        if (handle := _OBJECTS.get(cls.__name__)) is not None:
            if handle is _assistant and len(_ANSWERS) < _MOST_ANSWERS:
                _ANSWERS.add(type(message))
            return handle(fields_of(message))
    return None


# --- conversation -------------------------------------------------------------------------


def _assistant(fields: Fields) -> Said:
    message = (
        fields_of(fields.get("message")) or fields
    )  # a line wraps the API's, an object does not
    parent = fields.get("parent_tool_use_id")
    content = message.get("content")
    is_text = _is_text(content)
    done: Sequence[Signal] = NOTHING if is_text else _work(content, parent)
    if (error := fields.get("error")) is not None:
        detail, over_at = text_in(error) or "", limit_over_at(fields)
        done = [*done, Failed(class_of_word(error), detail=detail, resets_at=over_at)]
    has_said = is_text or bool(done) or not _is_empty(content)
    used = _used(message)
    if parent:
        return [*(_signs(parent, fields.get("agent_id")) if has_said else NOTHING), *used, *done]
    token = fields.get(
        "session_id"
    )  # a sub-agent's message may not name the one that can be resumed
    if not token or not isinstance(token, str):
        token = None
    if not used and not done:  # as most are
        if token is None:
            return None if has_said else NOTHING
        return opened_and_progress(token) if has_said else opened(token)
    session = () if token is None else (opened(token),)
    return [*session, *used, *(done or ((PROGRESS,) if has_said else NOTHING))]


def _is_text(content: object) -> bool:
    """Whether a line has one block of text, with something in it, as most have."""
    if not isinstance(content, list) or len(content) != 1:  # pyright: ignore[reportUnknownArgumentType]
        return False
    block = fields_of(content[0])  # pyright: ignore[reportUnknownArgumentType]
    text = block.get("text") if block.get("type") == "text" else None
    return isinstance(text, str) and text.strip() != ""


def _is_empty(content: object) -> bool:
    """Whether a message has no block, or blank text alone; some have a text in the place of blocks."""
    if not isinstance(content, list):
        return isinstance(content, str) and not content.strip()
    for block in content:  # pyright: ignore[reportUnknownVariableType]
        text = fields_of(block).get("text")  # pyright: ignore[reportUnknownArgumentType]
        if not isinstance(text, str) or text.strip():
            return False
    return True


def _used(message: Fields) -> tuple[Usage, ...]:
    """The counts of the call that a message is of: told with each of its blocks, under its id."""
    if (counts := message.get("usage")) is None:
        return ()
    call = message.get("id") or message.get("message_id")
    # What the CLI itself puts in the model's mouth was no call.
    return usage_in(counts, call=call) if call and message.get("model") != _SYNTHETIC else ()


@lru_cache(maxsize=256)
def _signs_of(parent: str, agent: str | None) -> tuple[Signal, ...]:
    task = (WorkProgressed(f"task:{agent}"),) if agent else ()
    return (WorkProgressed(parent), *task)


def _signs(parent: object, agent: object) -> tuple[Signal, ...]:
    """That a sub-agent is alive, in each of its names."""
    known = text_in(parent)
    return _signs_of(known, text_in(agent)) if known else ()


def _user(fields: Fields) -> Said:
    message = fields_of(fields.get("message")) or fields
    parent = fields.get("parent_tool_use_id")
    said = _work(message.get("content"), parent)
    beside = fields.get("tool_use_result")
    if isinstance(beside, dict) and len(said) == 1 and isinstance(ended := said[0], WorkFinished):
        outcome = _outcome(cast("Fields", beside), ended.outcome)
        said = [WorkFinished(ended.id, ended.error, outcome)]
    return [*_signs(parent, fields.get("agent_id")), *said] if parent else said or None


def _outcome(result: Fields, content: object) -> object:
    """What came of a tool, without what differs each time: ids, times, names of files of the CLI's."""
    if result.get("isAsync") is True or result.get("backgroundTaskId"):
        return _LAUNCHED
    if "stdout" in result:  # where it is long, `content` names the file that has it
        return result["stdout"], result.get("stderr")
    return result["content"] if "agentId" in result and "content" in result else content


def _work(content: object, parent: object) -> Sequence[Signal]:
    """The starts and ends of work among a message's content blocks."""
    said: Sequence[Signal] = NOTHING
    if isinstance(content, list):
        for block in content:  # pyright: ignore[reportUnknownVariableType]
            handle = _BLOCKS.get(type(block).__name__)  # pyright: ignore[reportUnknownArgumentType]
            if handle is None:
                continue
            if (signal := handle(fields_of(block), parent)) is not None:  # pyright: ignore[reportUnknownArgumentType]
                said = [*said, signal]
    return said


def _tool_use(block: Fields, parent: object, scope: WorkScope = "tool") -> Signal:
    id_, name = text_in(block.get("id")) or "", text_in(block.get("name")) or ""
    return WorkStarted(id_, name, scope, text_in(parent), input=block.get("input"))


def _server_tool_use(block: Fields, parent: object) -> Signal:
    return _tool_use(block, parent, "server")


def _parsed_server_tool_use(block: Fields, parent: object) -> Signal | None:
    # S4: of all server tools' results the SDK's parser keeps the advisor's alone, so an entry
    # for any other could never be closed. On the wire both ends are there.
    return _tool_use(block, parent, "server") if block.get("name") == "advisor" else None


def _tool_result(block: Fields, _parent: object) -> Signal:
    id_, failed = text_in(block.get("tool_use_id")) or "", block.get("is_error") is True
    return WorkFinished(id_, failed, block.get("content"))


def _server_tool_result(block: Fields, _parent: object) -> Signal:
    return result_of(block)


def _wire_block(block: Fields, parent: object) -> Signal | None:
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    handle = _WIRE_BLOCKS.get(kind)
    if handle is None and is_result(kind):
        handle = _server_tool_result
    return None if handle is None else handle(block, parent)


_BlockHandler: TypeAlias = Callable[[Fields, object], Signal | None]
_WIRE_BLOCKS: dict[str, _BlockHandler] = {
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _server_tool_use,
    "mcp_tool_use": _server_tool_use,
}
_BLOCKS: dict[str, _BlockHandler] = {  # by the name of the block's class
    "ToolUseBlock": _tool_use,
    "ToolResultBlock": _tool_result,
    "ServerToolUseBlock": _parsed_server_tool_use,
    "ServerToolResultBlock": _server_tool_result,
    "dict": _wire_block,
}


def _stream_event(fields: Fields) -> Said:
    event = fields_of(fields.get("event"))
    kind = event.get("type")
    # An API that sends nothing but pings looks busy for ever if they count as progress.
    if kind == "ping":
        return LIVENESS
    if parent := fields.get("parent_tool_use_id"):
        return _signs(parent, fields.get("agent_id")) or None
    # The last counts of a call take the place of its first ones, in the assistant's messages.
    counts = event.get("usage") if kind == "message_delta" else None
    is_whole = number_in(fields_of(counts).get("input_tokens")) is not None
    if is_whole and (call := text_in(fields.get("api_message_id"))):
        return (*usage_in(counts, call=call), PROGRESS)
    return None


# --- session and result -------------------------------------------------------------------


def _init(fields: Fields) -> Said:
    # Comes before the API was asked, so it is no progress and does not end `first` (S0).
    token = text_in(fields.get("session_id"))
    return SessionOpened(token, work_dir=text_in(fields.get("cwd"))) if token else NOTHING


def _conversation_reset(fields: Fields) -> Said:
    # `session_id` is the session that was left, `new_conversation_id` nobody's session: until
    # a later message names the new one there is nothing that could be resumed.
    token = text_in(fields.get("session_id"))
    return SessionOpened(token, resumable=False) if token else None


def _result(fields: Fields) -> Said:
    outcome = outcome_of(fields)
    said: list[Signal] = []
    # A failed start (`--resume` of an unknown id) names a session that never came to be;
    # of a session that did, `init` has told the token long ago.
    if outcome != "error" and (token := text_in(fields.get("session_id"))):
        said.append(opened(token))
    said += _spent(fields)
    failed = failure_of(fields) if outcome in {"error", "incomplete"} else None
    if failed is not None:
        said.append(failed)
    subtype = text_in(fields.get("subtype")) or ""
    retriable = failed is not None and failed.error_class in RETRIABLE
    more_expected = (number_in(fields.get("queued_turn_count")) or 0) > 0
    answered = _answered(fields) if outcome == "success" else None  # else it is an error's text
    said.append(TurnEnded(outcome, subtype, retriable, more_expected, answered))
    return said


def _spent(result: Fields) -> tuple[Usage, ...]:
    """The counts of a result: its `usage` is the turn's, without sub-agents.

    Its cost and its counts by model are the session's: of all turns, of sub-agents, and of what was
    before a resume (measured with 2.1.327). Of a turn that ended in a SIGKILL they tell nothing.
    """
    usage, cost = result.get("usage"), {"total_cost_usd": result.get("total_cost_usd")}
    by_model = fields_of(result.get("modelUsage") or result.get("model_usage"))
    models = [numbers_in(model) for model in by_model.values()]
    session = {
        name: sum(model.get(named, 0) for model in models)
        for name, named in _COUNTS_BY_MODEL.items()
        if any(named in model for model in models)
    }
    if session:
        return usage_in({**fields_of(usage), **session, **cost}, "session")
    return (*usage_in(usage, "turn"), *usage_in(cost, "session"))


def _answered(result: Fields) -> bool | None:
    said = result.get("result")
    if not isinstance(said, str):
        return None
    if said.strip() or result.get("structured_output") is not None:
        return True
    # A command of the CLI's own (/compact, /clear) asks no model, says nothing, and has done its work.
    return result.get("num_turns") == 0 and not result.get("terminal_reason")


# --- waits --------------------------------------------------------------------------------


def _rate_limit(fields: Fields) -> Said:
    info = fields_of(fields.get("rate_limit_info"))  # a line says resetsAt, an object resets_at
    overage = str(info.get("overage_status") or info.get("overageStatus"))
    # A rejected window that is paid for by the use is no wait.
    if info.get("status") != "rejected" or overage.startswith("allowed"):
        return WaitEnded(_RATE_LIMIT)
    until = number_in(info.get("resets_at") or info.get("resetsAt"))
    return Waiting(_RATE_LIMIT, "rate_limit", until)


def _auth_status(fields: Fields) -> Said:
    if fields.get("isAuthenticating") is True:
        return Waiting(_AUTH, "auth")
    ended = WaitEnded(_AUTH)
    return (ended, Failed("auth")) if fields.get("error") else ended


def _api_retry(fields: Fields) -> Said:
    # Failed, not Waiting: a pure reader has no clock to turn the relative delay into `until`,
    # and a wait without `until` that no message ends would blind `idle` for its allowance.
    # Nor is a wait needed, these pauses are below a minute. The delay is the CLI's own
    # backoff, not the server's word, so it is no `retry_after` for a later attempt of ours.
    status = number_in(fields.get("error_status"))
    error = text_in(fields.get("error")) or ""
    if status is None:  # no HTTP response came at all, unless `error` knows better
        error_class = class_of_word(error, otherwise="network")
    else:
        error_class = class_of_status(status)
    attempt = f"api_retry {fields.get('attempt')!s:.8}/{fields.get('max_retries')!s:.8}"
    return Failed(error_class, detail=", ".join(filter(None, (attempt, error))))


def _status(fields: Fields) -> Said:
    status = fields.get("status")
    if status == "compacting":  # said again every 30 s until it is done
        return Waiting(_COMPACTION, "compaction")
    if status == "requesting":  # the API is asked, so it has not answered: `first` goes on (S0)
        return NOTHING
    return WaitEnded(_COMPACTION)


def _session_state(fields: Fields) -> Said:
    # Seen only where state events were asked for. `idle` comes after the `result` that ended
    # the turn, and WaitEnded opens no new one (T14).
    if fields.get("state") == "requires_action":
        return Waiting(_SESSION_STATE, "human")
    return WaitEnded(_SESSION_STATE)


# --- tasks and hooks ----------------------------------------------------------------------

_FOREGROUND_TASKS = {"local_agent", "local_bash"}
_TERMINAL = {"completed", "failed", "stopped", "killed"}


def _task_started(fields: Fields) -> Said:
    # In the foreground the tool call that spawned it is in flight and covers it: a second
    # entry could be left open, as a Bash of more than 3 s starts a task and may not end it.
    # Housekeeping and watchers never end, and nobody waits for them.
    if fields.get("ambient") is True or fields.get("skip_transcript") is True:
        return NOTHING
    kind = text_in(fields.get("task_type"))
    background = fields.get("is_backgrounded")
    # Only those two kinds can run in the foreground; CLIs that do not say are older.
    if background is True or (background is None and kind and kind not in _FOREGROUND_TASKS):
        return _background_task(fields, kind or "")
    return None


def _task_updated(fields: Fields) -> Said:
    patch = fields_of(fields.get("patch"))
    if ended := _task_ended(fields, patch.get("status")):
        return ended
    # Work that was begun in the foreground may go on in the background, with no second start.
    return _background_task(fields, "") if patch.get("is_backgrounded") is True else NOTHING


def _task_notification(fields: Fields) -> Said:
    return _task_ended(fields, fields.get("status")) or NOTHING


def _background_task(fields: Fields, kind: str) -> Said:
    if not (id_ := text_in(fields.get("task_id"))):
        return None
    parent = text_in(fields.get("tool_use_id"))
    asked = fields.get("prompt") or fields.get("description")
    return WorkStarted(f"task:{id_}", kind, "task", parent, background=True, input=asked)


def _task_progress(fields: Fields) -> Said:
    # Told anew to somebody who came late; or a summary of a sub-agent's doings, by the clock.
    if fields.get("resent") is True or (fields.get("summary") and fields.get("subagent_type")):
        return NOTHING
    ids = (f"task:{text_in(fields.get('task_id')) or ''}", text_in(fields.get("tool_use_id")))
    return tuple(WorkProgressed(id_) for id_ in ids if id_ and id_ != "task:")


def _task_ended(fields: Fields, status: object) -> WorkFinished | None:
    # Either message may be the only one to tell the end, so both close; twice is harmless (S3).
    id_ = text_in(fields.get("task_id"))
    if not id_ or not isinstance(status, str) or status not in _TERMINAL:
        return None
    return WorkFinished(f"task:{id_}", status != "completed", fields.get("summary"))


def _hook_started(fields: Fields) -> Said:
    # A SessionEnd hook runs after the last turn and must not look like a new one (T14).
    if fields.get("hook_event") == "SessionEnd":
        return NOTHING
    if not (id_ := text_in(fields.get("hook_id"))):
        return None
    name = text_in(fields.get("hook_name")) or text_in(fields.get("hook_event")) or ""
    return WorkStarted(f"hook:{id_}", name, "hook")


def _hook_progress(fields: Fields) -> Said:
    # A hook that goes to the background is not waited for any more.
    if fields.get("backgrounded") is True:
        return _hook_ended(fields, error=False)
    # Told when its output has changed.
    return WorkProgressed(f"hook:{id_}") if (id_ := text_in(fields.get("hook_id"))) else None


def _hook_response(fields: Fields) -> Said:
    return _hook_ended(fields, error=fields.get("outcome") == "error")


def _hook_ended(fields: Fields, *, error: bool) -> Said:
    id_ = text_in(fields.get("hook_id"))
    return WorkFinished(f"hook:{id_}", error) if id_ else None


# --- the tables ---------------------------------------------------------------------------

# They come at any time, after a `result` too, and say nothing about the work in hand; what the CLI
# (2.1.327) itself takes for no part of the conversation. `background_tasks_changed` is the whole set
# of live tasks, foreground ones left out: the neutral vocabulary cannot say "these and no others",
# and the task_* messages tell each start and end.
_SIDE_CHANNELS = (
    *("away_summary", "background_tasks_changed", "code_change_published", "commands_changed"),
    *("control_request_progress", "dev_intent", "elicitation_complete", "feedback_draft_queued"),
    *("file_attachments_missing", "files_persisted", "instruction_size_warning", "mirror_error"),
    *("notification", "peer_message_hold", "per_turn_effort_changed", "permission_check_status"),
    *("post_turn_summary", "session_metadata", "session_title_changed", "shell_cwd"),
    *("stop_hook_summary", "task_summary", "turn_duration", "turn_preempted"),
    *("ui_focus", "ui_invalidate", "ui_log", "ui_notify", "ui_notify_cancel", "ui_panes"),
    *("ui_placed", "ui_scroll", "ui_status", "ui_toast", "vcs_state_changed"),
    "worker_shutting_down",
)
_SYSTEM: dict[str, Handler] = dict.fromkeys(_SIDE_CHANNELS, always(NOTHING)) | {
    "init": _init,
    "api_retry": _api_retry,
    "status": _status,
    "compact_boundary": always(WaitEnded(_COMPACTION)),
    "session_state_changed": _session_state,
    "task_started": _task_started,
    "task_progress": _task_progress,
    "task_updated": _task_updated,
    "task_notification": _task_notification,
    "hook_started": _hook_started,
    "hook_progress": _hook_progress,
    "hook_response": _hook_response,
}


def _system(fields: Fields) -> Said:
    subtype = fields.get("subtype")
    handle = _SYSTEM.get(subtype) if isinstance(subtype, str) else None
    return None if handle is None else handle(fields)


def _system_object(fields: Fields) -> Said:
    # `.data` is the line as it came, with keys that the class does not model.
    return _system({**fields, **fields_of(fields.get("data"))})


# Not here, so Progress: `control_request` (can_use_tool, hook_callback). Its answer goes the
# other way, so a wait could never be ended, and the tool call in question is in flight.
_LINES: dict[str, Handler] = {
    "assistant": _assistant,
    "user": _user,
    "stream_event": _stream_event,
    "result": _result,
    "system": _system,
    "rate_limit_event": _rate_limit,
    "auth_status": _auth_status,
    "conversation_reset": _conversation_reset,
    "keep_alive": always(LIVENESS),
    # From a timer beside the tool (every 30 s): it proves that the CLI lives, not that the tool gets
    # anywhere. The tool's own entry is what pauses `idle`.
    "tool_progress": always(LIVENESS),
    "active_goal": always(NOTHING),
    "autocompact_state": always(NOTHING),
    "command_lifecycle": always(NOTHING),
    "tool_use_summary": always(NOTHING),
    "prompt_suggestion": always(NOTHING),
    "transcript_mirror": always(NOTHING),
}
_OBJECTS: dict[str, Handler] = {
    "AssistantMessage": _assistant,
    "UserMessage": _user,
    "StreamEvent": _stream_event,
    "ResultMessage": _result,
    "SystemMessage": _system_object,
    "RateLimitEvent": _rate_limit,
    "ConversationResetMessage": _conversation_reset,
}
