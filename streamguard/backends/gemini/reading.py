"""Gemini: what the lines of `gemini --output-format stream-json` say.

    line                    signals
    ──────────────────────  ────────────────────────────────────────────
    init                    SessionOpened
    message of the user     nothing: the prompt, said back
    message of the model    Progress; with nothing in it: nothing
    tool_use, tool_result   WorkStarted, WorkFinished
    error                   Failed; of severity "warning": Progress
    result                  Usage, Failed if it is an error, TurnEnded
    anything else           Progress

Its retries are silent: a 429 is a silence of 17 s or more, and looks like any other (no line says
so). An account without credentials is no line at all, only an exit status (41) and stderr. Pure and
total: garbage is Progress, never an exception. `session` runs the CLI.

The counts of a `result` are those of the process: they begin anew with a resume (measured with 0.61.0).
"""

from __future__ import annotations

import re

from streamguard.backends._fields import (
    NOTHING,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    class_of_status,
    fields_of,
    said_by_type,
    text_in,
    usage_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    TurnEnded,
    WorkFinished,
    WorkStarted,
)

# The last line is a `result`, also of an error; a signal ends the CLI without one (T10).
ALWAYS_ENDS_TURNS = True

# The status in a text: a number (got status: 500), a word in brackets (Status: UNAVAILABLE), or
# the API's own JSON ("status":"UNAVAILABLE").
_STATUS = re.compile(
    r"\bstatus(?:: ?|\": ?\")(?:([45]\d\d)\b|([A-Z][A-Z_]{2,40})\b)", re.IGNORECASE
)
# What the names of its errors do not tell by themselves.
_CLASS_OF_KIND = {
    "FatalConfigError": "validation",
    "FatalInputError": "validation",
    "FatalSandboxError": "permanent",
    "FatalToolExecutionError": "permanent",
    "FatalTurnLimitedError": "permanent",  # the user's own limit: another attempt meets it again
    "FatalUntrustedWorkspaceError": "permanent",
    "FatalCancellationError": "never",
    "INVALID_STREAM": "server",
}
_OUTCOMES: dict[str, Outcome] = {
    "FatalCancellationError": "cancelled",
    "FatalTurnLimitedError": "incomplete",
}


def read(message: object) -> Said:
    """What one line says; None is Progress."""
    return said_by_type(_LINES, message)


def _init(line: Fields) -> Said:
    # Comes before the API was asked, so it is no progress and does not end `first` (S0).
    token = text_in(line.get("session_id"))
    return SessionOpened(token) if token else NOTHING


def _message(line: Fields) -> Said:
    is_empty = line.get("content", ...) in ("", None)
    return NOTHING if line.get("role") == "user" or is_empty else None


def _tool_use(line: Fields) -> Said:
    id_ = text_in(line.get("tool_id")) or ""
    return WorkStarted(id_, text_in(line.get("tool_name")) or "", input=line.get("parameters"))


def _tool_result(line: Fields) -> Said:
    id_ = text_in(line.get("tool_id")) or ""
    outcome = line.get("output")
    if outcome is None:
        outcome = fields_of(line.get("error")).get("message")
    return WorkFinished(id_, line.get("status") == "error", outcome)


def _error(line: Fields) -> Said:
    return None if line.get("severity") == "warning" else _failure_of(line)


def _result(line: Fields) -> Said:
    usage = usage_in(line.get("stats"), "process")
    if line.get("status") != "error":
        return (*usage, TurnEnded("success"))
    error = fields_of(line.get("error"))
    if not error:  # a line before has told it
        return (*usage, TurnEnded("error"))
    failed = _failure_of(error, text_in(error.get("type")) or "")
    outcome = _OUTCOMES.get(failed.detail, "error")
    return (*usage, failed, TurnEnded(outcome, failed.detail, failed.error_class in RETRIABLE))


def _failure_of(error: Fields, kind: str = "") -> Failed:
    # Its text may quote the conversation and stays out of evidence (E3).
    class_ = _CLASS_OF_KIND.get(kind) or _class_of_text(text_in(error.get("message")) or "")
    return Failed(class_ or classes.class_of_name(kind) or "unknown", detail=kind[:100])


def _class_of_text(text: str) -> str | None:
    if (status := _STATUS.search(text)) is not None:
        return class_of_status(int(status[1])) if status[1] else classes.class_of_word(status[2])
    if "stream ended without" in text:  # what becomes of an error in the midst of an answer, too
        return "server"
    words = ("fetch failed", "Error: terminated", "ECONN", "ETIMEDOUT")
    return "network" if any(word in text for word in words) else None


_LINES: dict[str, Handler] = {
    "init": _init,
    "message": _message,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "error": _error,
    "result": _result,
}
