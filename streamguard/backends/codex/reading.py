"""Codex: what the lines of `codex exec --json` and the app-server's notifications say.

    exec line                     app-server                   signals
    ────────────────────────────  ───────────────────────────  ───────────────────────────────
    thread.started                thread/started               SessionOpened
    turn.started                  turn/started                 nothing; SessionOpened
    item.started of a tool        item/started                 WorkStarted
    item.updated of a tool        item/…/outputDelta, progress WorkProgressed
    item.completed of a tool      item/completed               WorkFinished
    a message with no text (yet), item/started, /completed     nothing: nobody has answered
    the prompt, said back
    item.completed of an error    warning, configWarning, …    nothing: it is a warning
    error                         error                        Failed: it goes on ("Reconnecting")
    turn.completed                turn/completed               Usage, TurnEnded
    turn.failed                   turn/completed, failed       Failed, TurnEnded
                                  thread/tokenUsage/updated    Usage
                                  account/rateLimits/updated   Failed, if a limit was reached
                                  thread/status/changed        Waiting for a person, or WaitEnded
                                  …/requestApproval            Waiting, until serverRequest/resolved
                                  item/… of a compaction       Waiting, WaitEnded
                                  hook/started, /completed     WorkStarted, WorkFinished
    anything else                 item/…/delta, …              Progress

Notifications are read as objects of the package `openai_codex` (never imported) and as dicts
`{"method": ..., "params": ...}`. Pure and total: garbage is Progress, never an exception.

Counts are the thread's, over turns and resumes (measured with 0.169.0, and 0.163.0 of the app-server).

A command that runs for more than 10 s may go on in the background without an `item.completed`:
its entry holds the gate until the turn's end, and no longer than the limit `tools` says (S4).
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from streamguard.backends._fields import (
    NOTHING,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    always,
    either,
    fields_of,
    finished,
    is_blank,
    numbers_in,
    progressed,
    started,
    text_in,
)
from streamguard.backends.codex.failures import failure_of
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkScope,
    WorkStarted,
)

# Every turn ends with `turn.completed` or `turn.failed` (`turn/completed`). A signal ends the
# CLI without one (T10).
ALWAYS_ENDS_TURNS = True

_APPROVAL = "approval"
_COMPACTION = "compaction"

# By the item's type, in one spelling for both kinds of stream.
_SCOPES: dict[str, WorkScope] = {
    "command_execution": "tool",
    "mcp_tool_call": "tool",
    "dynamic_tool_call": "tool",
    "file_change": "tool",
    "image_generation": "server",
    "web_search": "server",
    "sleep": "tool",
    "collab_tool_call": "subagent",
    "collab_agent_tool_call": "subagent",
}
_FAILED = {"failed", "declined"}
# What these are asked is told, at the latest, with their end; some are told with it alone.
_ASKED_LATE = {"web_search", "file_change"}


def read(message: object) -> Said:
    """What one line or notification says; None is Progress."""
    if isinstance(message, dict):
        line = cast("Fields", message)
        if isinstance(kind := line.get("type"), str):
            handle = _LINES.get(kind)
            return None if handle is None else handle(line)
        return _notification(line.get("method"), line.get("params"), line.get("id"))
    return _notification(getattr(message, "method", None), getattr(message, "payload", None))


def _notification(method: object, params: object, request: object = None) -> Said:
    if not isinstance(method, str):
        return None
    if (handle := _NOTIFICATIONS.get(method)) is None:
        if request is not None and method.endswith("/requestApproval"):
            return Waiting(f"request:{request!s:.100}", "human")
        return None
    # A notification that the package does not know wraps the fields once more.
    return handle(fields_of(params) or fields_of(getattr(params, "params", None)))


def _plain(value: object) -> str:
    """A word, be it a text or a member of an enumeration."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=256)  # of items' kinds and of counts there are a few dozen
def _snake(kind: str) -> str:
    """`commandExecution` as `command_execution`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind)


# --- threads and turns --------------------------------------------------------------------


def _thread_started(fields: Fields) -> Said:
    thread = fields_of(fields.get("thread")).get("id")
    token = text_in(either(fields, "thread_id")) or text_in(thread)
    return SessionOpened(token) if token else NOTHING


def _turn_completed(fields: Fields) -> Said:
    return (*_usage(fields.get("usage")), TurnEnded("success"))


def _turn_failed(fields: Fields) -> Said:
    return _failed_turn(failure_of(fields.get("error")))


def _failed_turn(failed: Failed) -> Said:
    return (failed, TurnEnded("error", "failed", failed.error_class in RETRIABLE))


_OUTCOMES: dict[str, Outcome] = {"completed": "success", "interrupted": "cancelled"}


def _turn_over(fields: Fields) -> Said:
    turn = fields_of(fields.get("turn"))
    status = _plain(turn.get("status"))
    if status == "failed":
        return _failed_turn(_failure_in(turn))
    outcome = _OUTCOMES.get(status, "incomplete")
    return TurnEnded(outcome, status, answered=True if _has_answer(turn.get("items")) else None)


def _has_answer(items: object) -> bool:
    # A summary: the last message. Where it is not loaded, that says nothing.
    several = cast("list[object]", items) if isinstance(items, list) else []
    return any(
        text_in(fields_of(getattr(item, "root", item)).get("text")) is not None for item in several
    )


def _failure_in(fields: Fields) -> Failed:
    error = fields.get("error")
    return failure_of(error, either(fields_of(error), "codex_error_info"))


def _error(fields: Fields) -> Said:
    # Not the end, though the CLI's own types call it unrecoverable: it reconnects, and what ends
    # the turn is said by `turn.failed`. No Waiting, as the pauses are below a minute.
    error = fields.get("error")
    return failure_of(fields) if error is None else _failure_in(fields)


def _token_usage(fields: Fields) -> Said:
    return _usage(fields_of(either(fields, "token_usage")).get("total")) or NOTHING


def _usage(counts: object) -> tuple[Signal, ...]:
    known = {_snake(name): number for name, number in numbers_in(counts).items()}
    return (Usage(known, "session"),) if known else ()


def _rate_limits(fields: Fields) -> Said:
    # Codex does not wait for the reset, it fails the turn; so there is nothing to hold.
    reached = either(fields_of(either(fields, "rate_limits")), "rate_limit_reached_type")
    return Failed("rate_limit", detail=_plain(reached)[:100]) if reached else NOTHING


# --- items --------------------------------------------------------------------------------


def _item_of(fields: Fields) -> tuple[str, str, Fields]:
    item = fields.get("item")
    inner = fields_of(getattr(item, "root", item))  # the package wraps a union in a root model
    return _snake(_plain(inner.get("type"))), text_in(inner.get("id")) or "", inner


def _item_started(fields: Fields) -> Said:
    kind, id_, item = _item_of(fields)
    if kind == "context_compaction":
        return Waiting(_COMPACTION, "compaction")
    if _says_nothing(kind, item):
        return NOTHING
    return _start(kind, id_, item)


def _item_updated(fields: Fields) -> Said:
    kind, id_, _ = _item_of(fields)
    return progressed(id_) if kind in _SCOPES else None


def _item_completed(fields: Fields) -> Said:
    kind, id_, item = _item_of(fields)
    if kind == "context_compaction":
        return WaitEnded(_COMPACTION)
    if kind == "error":  # a warning in truth; some come before the API was asked
        return NOTHING
    if _says_nothing(kind, item):
        return NOTHING
    ended = finished(id_, _plain(item.get("status")) in _FAILED, _outcome(kind, item))
    if ended is None or kind not in _SCOPES:
        return None
    begun = _start(kind, id_, item) if kind in _ASKED_LATE else None
    return ended if begun is None else (begun, ended)


def _says_nothing(kind: str, item: Fields) -> bool:
    """Whether it is the prompt, said back, or an answer that is empty, be it only so far."""
    return kind == "user_message" or (kind == "agent_message" and is_blank(item.get("text")))


def _start(kind: str, id_: str, item: Fields) -> WorkStarted | None:
    if (scope := _SCOPES.get(kind)) is None:
        return None
    name = _plain(item.get("tool"))[:100] or kind
    return started(id_, name, scope, input=_input(kind, item))


def _input(kind: str, item: Fields) -> object:
    """What such an item was asked; None where the item does not tell."""
    match kind:
        case "command_execution":
            return item.get("command")
        case "file_change":
            # `exec` has paths alone: two changes of one file look alike, and need not be.
            changes = item.get("changes")
            several = cast("list[object]", changes) if isinstance(changes, list) else []
            return several if any("diff" in fields_of(each) for each in several) else None
        case "mcp_tool_call" | "dynamic_tool_call":
            return item.get("arguments")
        case "web_search":
            return item.get("action") or item.get("query") or None
        case "collab_tool_call" | "collab_agent_tool_call":
            return item.get("prompt"), either(item, "receiver_thread_ids")
        case "sleep":
            return either(item, "duration_ms")
        case _:
            return None


def _outcome(kind: str, item: Fields) -> object:
    """What came of it, without how long it took."""
    match kind:
        case "command_execution":
            return either(item, "aggregated_output"), either(item, "exit_code")
        case "mcp_tool_call":
            return _content_of(item.get("result")) or _message_of(item.get("error"))
        case "dynamic_tool_call":
            return either(item, "content_items")
        case "file_change" | "sleep":
            return _plain(item.get("status")) or kind
        case "web_search":
            return item.get("results")
        case "collab_tool_call" | "collab_agent_tool_call":
            return either(item, "agents_states")
        case _:
            return None


def _content_of(result: object) -> object:
    fields = fields_of(result)
    return fields.get("content") or either(fields, "structured_content")


def _message_of(error: object) -> object:
    return fields_of(error).get("message") or error


def _item_goes_on(fields: Fields) -> Said:
    return progressed(either(fields, "item_id"))


# --- waits and hooks ----------------------------------------------------------------------


def _status_changed(fields: Fields) -> Said:
    status = fields.get("status")
    flags = either(fields_of(getattr(status, "root", status)), "active_flags")
    named = cast("list[object]", flags) if isinstance(flags, list) else []
    # waitingOnApproval, waitingOnUserInput
    waits = any(_plain(flag).startswith("waiting") for flag in named)
    return Waiting(_APPROVAL, "human") if waits else WaitEnded(_APPROVAL)


def _request_resolved(fields: Fields) -> Said:
    request = either(fields, "request_id")
    return WaitEnded(f"request:{getattr(request, 'root', request)!s:.100}")


def _hook_started(fields: Fields) -> Said:
    run = fields_of(fields.get("run"))
    # Nobody waits for one that runs beside the turn.
    if not (id_ := text_in(run.get("id"))) or _plain(either(run, "execution_mode")) == "async":
        return NOTHING
    return WorkStarted(f"hook:{id_}", _plain(either(run, "event_name")), "hook")


def _hook_completed(fields: Fields) -> Said:
    run = fields_of(fields.get("run"))
    id_ = text_in(run.get("id"))
    return WorkFinished(f"hook:{id_}", _plain(run.get("status")) in _FAILED) if id_ else NOTHING


# --- the tables ---------------------------------------------------------------------------

_LINES: dict[str, Handler] = {
    "thread.started": _thread_started,
    "turn.started": always(NOTHING),  # said before the API is asked: `first` goes on (S0)
    "turn.completed": _turn_completed,
    "turn.failed": _turn_failed,
    "item.started": _item_started,
    "item.updated": _item_updated,
    "item.completed": _item_completed,
    "error": _error,
}
# They come at any time, from beside the turn.
_SIDE_CHANNELS = (
    "account/updated",
    "app/list/updated",
    "configWarning",
    "deprecationNotice",
    "mcpServer/startupStatus/updated",
    "skills/changed",
    "thread/name/updated",
    "thread/settings/updated",
    "warning",
)
_NOTIFICATIONS: dict[str, Handler] = dict.fromkeys(_SIDE_CHANNELS, always(NOTHING)) | {
    "thread/started": _thread_started,
    "turn/started": _thread_started,  # names its thread, and is said before the API is asked
    "turn/completed": _turn_over,
    "item/started": _item_started,
    "item/completed": _item_completed,
    "item/commandExecution/outputDelta": _item_goes_on,
    "item/fileChange/outputDelta": _item_goes_on,
    "item/mcpToolCall/progress": _item_goes_on,
    "error": _error,
    "thread/tokenUsage/updated": _token_usage,
    "thread/status/changed": _status_changed,
    "account/rateLimits/updated": _rate_limits,
    "serverRequest/resolved": _request_resolved,
    "hook/started": _hook_started,
    "hook/completed": _hook_completed,
}
