"""Qwen Code: what the lines of `qwen --output-format stream-json` say.

    line                                   signals
    ─────────────────────────────────────  ─────────────────────────────────────────────────
    system/init                            SessionOpened
    assistant                              Progress
      with tool use                        WorkStarted for each
      with counts                          Usage of that call
    user                                   Progress
      with tool results                    WorkFinished for each
    either, of a sub-agent                 WorkProgressed of the sub-agent, and as above
    stream_event                           Progress; goal_state: nothing
      tool_progress                        WorkProgressed if an MCP server sent it, else Liveness
    system/retry, model_fallback           Failed
    system/task_started                    WorkStarted in the background
    system/task_notification               WorkFinished at a terminal status, else WorkProgressed
    system/session_start, session_end      nothing
    result                                 Usage of the session, Failed, TurnEnded
    anything else                          Progress

They imitate Claude's, and are read apart from them: what a system line has to say stands in `data`,
counts come with each call of the model, a failure is told in words alone. Pure and total: garbage is
Progress, never an exception.
"""

from __future__ import annotations

import re
from typing import cast

from streamguard.backends._fields import (
    LIVENESS,
    NOTHING,
    PROGRESS,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    always,
    class_of_status,
    fields_of,
    is_blank,
    number_in,
    numbers_in,
    said_by_type,
    text_in,
    usage_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    Signal,
    TurnEnded,
    WorkFinished,
    WorkProgressed,
    WorkScope,
    WorkStarted,
)

# The last line is a `result`. A limit of the user's own (turns, calls, time) and a signal end the CLI
# without one, and with an exit status that says so (T10).
ALWAYS_ENDS_TURNS = True

# The tool that is a sub-agent: it speaks for itself, by lines whose parent it is.
_SUBAGENT = "agent"
_TERMINAL = {"completed", "failed", "cancelled"}

# A failure in words: `[API Error: 400 ...]`, or the API's own word `(Status: UNAVAILABLE)`.
_STATUS = re.compile(r"API Error: ([45]\d\d)\b|\(Status: ([A-Z][A-Z_]{2,40})\)")
_CANCELLED = "Operation cancelled"
_LOOPS = "Loop detection halted"
_NETWORK = (
    *("Connection error", "fetch failed", "terminated", "ECONN", "ETIMEDOUT", "timed out"),
    "No stream activity",
)


def read(message: object) -> Said:
    """What one line says; None is Progress."""
    return said_by_type(_LINES, message)


# --- conversation -------------------------------------------------------------------------


def _message(line: Fields) -> Said:
    parent = text_in(line.get("parent_tool_use_id"))
    message = fields_of(line.get("message"))
    said: list[Signal] = [] if parent is None else [WorkProgressed(parent)]
    content = message.get("content")
    if isinstance(content, list):
        for block in cast("list[object]", content):
            if (signal := _block(fields_of(block), parent)) is not None:
                said = [*said, signal]
    # Of a message in several lines the last one counts; the others, and a sub-agent's, say 0.
    usage = message.get("usage")
    if usage is not None and any(numbers_in(usage).values()):
        return [*(said or (PROGRESS,)), *usage_in(usage, "call", line.get("uuid"))]
    return said or None


def _block(block: Fields, parent: str | None) -> Signal | None:
    match block.get("type"):
        case "tool_use":
            id_, name = text_in(block.get("id")) or "", text_in(block.get("name")) or ""
            scope: WorkScope = "subagent" if name == _SUBAGENT else "tool"
            return WorkStarted(id_, name, scope, parent, input=block.get("input"))
        case "tool_result":
            id_, failed = text_in(block.get("tool_use_id")) or "", block.get("is_error") is True
            return WorkFinished(id_, failed, outcome=block.get("content"))
        case _:
            return None


def _stream_event(line: Fields) -> Said:
    event = fields_of(line.get("event"))
    match event.get("type"):
        case "goal_state":  # what it is to do, said before the API was asked
            return NOTHING
        case "tool_progress":
            # An MCP server's own notes are its work; a shell's come from a timer beside it.
            id_ = text_in(event.get("tool_use_id"))
            is_its_own = fields_of(event.get("content")).get("type") == "mcp_tool_progress"
            return WorkProgressed(id_) if id_ and is_its_own else LIVENESS
        case _:
            return None


# --- the system's lines -------------------------------------------------------------------


def _system(line: Fields) -> Said:
    subtype = line.get("subtype")
    if subtype == "init":
        # Comes before the API was asked, so it is no progress and does not end `first` (S0).
        token = text_in(line.get("session_id"))
        return SessionOpened(token, work_dir=text_in(line.get("cwd"))) if token else NOTHING
    handle = _SYSTEM.get(subtype) if isinstance(subtype, str) else None
    return None if handle is None else handle(fields_of(line.get("data")))


def _retry(data: Fields) -> Said:
    # It names no reason. What it asks again after is an answer that broke off, or a busy API.
    attempt, most = number_in(data.get("attempt")), number_in(data.get("maxRetries"))
    counted = f" {attempt:g}/{most:g}" if attempt is not None and most is not None else ""
    return Failed("server", detail=f"retry{counted}")


def _model_fallback(data: Fields) -> Said:
    status = number_in(data.get("statusCode"))
    class_ = "unknown" if status is None else class_of_status(status)
    return Failed(class_, detail="model_fallback")


def _task_started(data: Fields) -> Said:
    if not (id_ := text_in(data.get("task_id"))):
        return None
    kind, parent = text_in(data.get("subagent_type")), text_in(data.get("tool_use_id"))
    scope: WorkScope = "task" if kind is None else "subagent"
    asked = data.get("description")
    return WorkStarted(f"task:{id_}", kind or "", scope, parent, background=True, input=asked)


def _task_notification(data: Fields) -> Said:
    if not (id_ := text_in(data.get("task_id"))):
        return None
    status = data.get("status")
    if isinstance(status, str) and status in _TERMINAL:
        return WorkFinished(f"task:{id_}", error=status != "completed")
    return WorkProgressed(f"task:{id_}")


# --- the result ---------------------------------------------------------------------------


def _result(line: Fields) -> Said:
    # Its counts go on over resumes.
    usage = usage_in(line.get("usage"), "session")
    subtype = text_in(line.get("subtype")) or ""
    if line.get("is_error") is not True and not subtype.startswith("error"):
        answered = not is_blank(line["result"]) if "result" in line else None
        return (*usage, TurnEnded("success", subtype, answered=answered))
    text = text_in(fields_of(line.get("error")).get("message")) or ""
    outcome, class_ = _outcome_of(text)
    # The text may quote the conversation and stays out of evidence (E3).
    failed = Failed(class_, detail=subtype[:100])
    return (*usage, failed, TurnEnded(outcome, subtype, class_ in RETRIABLE))


def _outcome_of(text: str) -> tuple[Outcome, str]:
    """How a turn ended that failed, and of which class its error is (P1)."""
    if text.startswith(_CANCELLED):
        return "cancelled", "never"
    if text.startswith(_LOOPS):  # its own guard: another attempt meets it again
        return "incomplete", "permanent"
    if (status := _STATUS.search(text)) is not None:
        if status[1]:
            return "error", class_of_status(int(status[1]))
        return "error", classes.class_of_word(status[2]) or "unknown"
    is_network = any(word in text for word in _NETWORK)
    return "error", "network" if is_network else "unknown"


_SYSTEM: dict[str, Handler] = {
    "retry": _retry,
    "model_fallback": _model_fallback,
    "task_started": _task_started,
    "task_notification": _task_notification,
    "session_start": always(NOTHING),
    "session_end": always(NOTHING),
}
_LINES: dict[str, Handler] = {
    "assistant": _message,
    "user": _message,
    "stream_event": _stream_event,
    "system": _system,
    "result": _result,
}
