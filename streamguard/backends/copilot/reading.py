"""GitHub Copilot's CLI: what the lines of `copilot -p ... --output-format json` say.

    line                              signals
    ────────────────────────────────  ────────────────────────────────────────────────────────
    session.start, session.resume     SessionOpened
    user.message, model.call_start,   nothing: the model is about to be asked
      assistant.turn_start, …
    session.…                         nothing: from beside the turn
    tool.execution_start              WorkStarted
    tool.execution_partial_result     WorkProgressed
    tool.execution_complete           WorkFinished; of a shell that goes on in the background
                                      WorkStarted, until system.notification
    subagent.started, .completed      WorkStarted, WorkFinished, if it is in the background
    a sub-agent's line                WorkProgressed
    model.call_finished               Usage: one call more; nothing where it failed
    model.call_failure                Failed: it asks again
    session.error                     Failed, TurnEnded
    result                            SessionOpened, Usage, TurnEnded
    anything else                     Progress

A turn of Copilot's is one answer of the model; one of ours ends with `result`, since background
work makes it go on by itself. Its lines tell no tokens. Pure and total: garbage is Progress, never an
exception. `session` runs the CLI, and says the session's id, which its lines tell only at their end.
"""

from __future__ import annotations

import re
from typing import cast

from streamguard.backends._fields import (
    NOTHING,
    PROGRESS,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    always,
    class_of_status,
    class_of_words,
    fields_of,
    number_in,
    numbers_in,
    text_in,
)
from streamguard.signals import (
    Failed,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    WorkFinished,
    WorkProgressed,
    WorkScope,
    WorkStarted,
)

# The last line is a `result`, also of an error; a signal ends the CLI without one (T10).
ALWAYS_ENDS_TURNS = True

_SUBAGENT = "task"  # the tool that runs one
_IN_BACKGROUND = re.compile(r"<command started in background with shellId: ([^>]{1,100})>")
# Which shell it was, one after the other; and what its exit code says besides.
_SHELL_ENDED = re.compile(r"<shellId: [^>]{1,100} completed with exit code (-?\d{1,10})>")
_CLASS_OF_KIND = {
    "authentication": "auth",
    "authorization": "auth",
    "context_limit": "validation",
    "quota": "permanent",
    "rate_limit": "rate_limit",
}


def read(message: object) -> Said:
    """What one line says; None is Progress."""
    line = cast("Fields", message) if isinstance(message, dict) else fields_of(message)
    kind = line.get("type")
    if not isinstance(kind, str):
        return None
    if text_in(line.get("agentId")) is not None:
        handle = _OF_SUBAGENTS.get(kind)
        return _life_of(line) if handle is None else handle(line)
    handle = _LINES.get(kind)
    if handle is None:
        return NOTHING if kind.startswith("session.") else None
    return handle(line)


def _data(line: Fields) -> Fields:
    return fields_of(line.get("data"))


# --- sessions and turns --------------------------------------------------------------------


def _opened(line: Fields) -> Said:
    data = _data(line)
    token = text_in(data.get("sessionId"))
    folder = text_in(fields_of(data.get("context")).get("cwd"))
    return SessionOpened(token, work_dir=folder) if token else NOTHING


def _result(line: Fields) -> Said:
    token = text_in(line.get("sessionId"))
    counts = numbers_in(line.get("usage"))
    code = number_in(line.get("exitCode"))
    return (
        *((SessionOpened(token),) if token else ()),
        *((Usage(counts, "process"),) if counts else ()),
        TurnEnded("success")
        if code == 0
        else TurnEnded("error", "" if code is None else f"exit {code:g}"),
    )


def _called(line: Fields) -> Said:
    if _data(line).get("outcome") != "success":
        return NOTHING  # `model.call_failure` has told it
    return (PROGRESS, *_one_call(line))


def _one_call(line: Fields) -> tuple[Signal, ...]:
    return (Usage({}, call=text_in(line.get("id")) or ""),)


# --- failures ------------------------------------------------------------------------------


def _call_failed(line: Fields) -> Said:
    data = _data(line)
    if data.get("failureKind") == "transport":
        return Failed("network", detail="transport")
    class_ = _class_in(data) or class_of_words(data.get("errorCode"), data.get("errorType"))
    return Failed(class_, detail=(text_in(data.get("failureKind")) or "")[:100])


def _error(line: Fields) -> Said:
    # Its text may quote the conversation and stays out of evidence (E3).
    data = _data(line)
    kind = text_in(data.get("errorType")) or ""
    failed = Failed(_CLASS_OF_KIND.get(kind) or _class_in(data) or "unknown", detail=kind[:100])
    # Said when it has given up. Should the process stay without its result, that is no hang.
    return (failed, TurnEnded("error", failed.detail, failed.error_class in RETRIABLE))


def _class_in(data: Fields) -> str | None:
    status = number_in(data.get("statusCode"))
    return None if status is None else class_of_status(status)


# --- work ----------------------------------------------------------------------------------


def _tool_started(line: Fields) -> Said:
    data = _data(line)
    if (id_ := text_in(data.get("toolCallId"))) is None:
        return None
    name = text_in(data.get("toolName")) or ""
    scope: WorkScope = "subagent" if name == _SUBAGENT else "tool"
    parent = text_in(data.get("parentToolCallId"))
    return (WorkStarted(id_, name, scope, parent, input=data.get("arguments")), *_life_of(line))


def _tool_progressed(line: Fields) -> Said:
    id_ = text_in(_data(line).get("toolCallId"))
    return None if id_ is None else (WorkProgressed(id_), *_life_of(line))


def _tool_completed(line: Fields) -> Said:
    data = _data(line)
    if (id_ := text_in(data.get("toolCallId"))) is None:
        return None
    said = text_in(fields_of(data.get("result")).get("content"))
    failed = data.get("success") is False
    outcome = fields_of(data.get("error")).get("message") if failed else _lasting(said)
    code = number_in(fields_of(data.get("shellExecution")).get("exitCode"))
    ended = WorkFinished(id_, error=failed or bool(code), outcome=outcome)
    if said is not None and (shell := _IN_BACKGROUND.search(said[:1000])) is not None:
        begun = WorkStarted(f"shell:{shell[1]}", "shell", "task", id_, background=True)
        return (begun, ended, *_life_of(line))
    return (ended, *_life_of(line))


def _lasting(outcome: str | None) -> str | None:
    """What came of it, without which shell it was."""
    return None if outcome is None else _SHELL_ENDED.sub(r"exit code \1", outcome)


def _notified(line: Fields) -> Said:
    """Something in the background has ended; that a sub-agent has, its own line says."""
    kind = fields_of(_data(line).get("kind"))
    id_ = text_in(kind.get("shellId"))
    if id_ is None or kind.get("type") != "shell_completed":
        return None
    return WorkFinished(f"shell:{id_}", error=bool(number_in(kind.get("exitCode"))))


# --- sub-agents ----------------------------------------------------------------------------
# In the foreground one is the tool call that began it; in the background that is over at once.


def _agent_started(line: Fields) -> Said:
    data = _data(line)
    if data.get("executionMode") != "background":
        return _life_of(line)
    name = text_in(data.get("agentName")) or ""
    parent = text_in(data.get("toolCallId"))
    return WorkStarted(_agent_of(line), name, "subagent", parent, background=True)


def _agent_ended(line: Fields) -> Said:
    return WorkFinished(_agent_of(line), error=line.get("type") == "subagent.failed")


def _agent_called(line: Fields) -> Said:
    return (*_one_call(line), *_life_of(line))


def _life_of(line: Fields) -> tuple[Signal, ...]:
    """That the sub-agent whose line this is lives; nothing for a line of the session's own."""
    if text_in(line.get("agentId")) is None:
        return ()
    parent = text_in(_data(line).get("parentToolCallId"))
    own = WorkProgressed(_agent_of(line))
    return (own,) if parent is None else (own, WorkProgressed(parent))


def _agent_of(line: Fields) -> str:
    return f"agent:{line.get('agentId')}"


# --- the tables ----------------------------------------------------------------------------

_TOOLS: dict[str, Handler] = {
    "tool.execution_start": _tool_started,
    "tool.execution_partial_result": _tool_progressed,
    "tool.execution_complete": _tool_completed,
}
_LINES: dict[str, Handler] = _TOOLS | {
    "session.start": _opened,
    "session.resume": _opened,
    "session.error": _error,
    # Said before the API is asked, or while it is not (S0).
    "user.message": always(NOTHING),
    "assistant.turn_start": always(NOTHING),
    "assistant.turn_retry": always(NOTHING),
    "assistant.message_start": always(NOTHING),
    "assistant.idle": always(NOTHING),
    "model.call_start": always(NOTHING),
    "model.call_failure": _call_failed,
    "model.call_finished": _called,
    "model.call_final_result": always(NOTHING),
    "system.notification": _notified,
    "result": _result,
}
_OF_SUBAGENTS: dict[str, Handler] = _TOOLS | {
    "subagent.started": _agent_started,
    "subagent.completed": _agent_ended,
    "subagent.failed": _agent_ended,
    "model.call_finished": _agent_called,
}
