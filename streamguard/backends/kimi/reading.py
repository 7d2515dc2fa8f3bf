"""Kimi Code: what the lines of `kimi -p ... --output-format stream-json` say.

    line                             signals
    ───────────────────────────────  ───────────────────────────────────────
    meta, system.version             nothing
    assistant                        Progress
      with tool calls                WorkStarted for each
    tool                             WorkFinished
    meta, turn.step.retrying         Failed
    meta, session.resume_hint        SessionOpened, TurnEnded
    anything else                    Progress

The message that calls tools is written when the first of them has ended: until then a tool is a silence. A
turn that fails has no line at all, only an exit status and stderr. Pure and total: garbage is Progress,
never an exception.
"""

from __future__ import annotations

from typing import cast

from streamguard.backends._fields import (
    NOTHING,
    Fields,
    Handler,
    Said,
    class_of_status,
    fields_of,
    number_in,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    SessionOpened,
    Signal,
    TurnEnded,
    WorkFinished,
    WorkScope,
    WorkStarted,
)

# The hint how to resume comes after a turn that ended well, and after no other (T10).
ALWAYS_ENDS_TURNS = True

_SUBAGENTS = {"Agent", "AgentSwarm"}


def read(message: object) -> Said:
    """What one line says; None is Progress."""
    line = cast("Fields", message) if isinstance(message, dict) else fields_of(message)
    role = line.get("role")
    handle = _LINES.get(role) if isinstance(role, str) else None
    return None if handle is None else handle(line)


def _assistant(line: Fields) -> Said:
    calls = line.get("tool_calls")
    if not isinstance(calls, list):
        return None
    return [_started(fields_of(call)) for call in cast("list[object]", calls)] or None


def _started(call: Fields) -> Signal:
    function = fields_of(call.get("function"))
    id_, name = text_in(call.get("id")) or "", text_in(function.get("name")) or ""
    scope: WorkScope = "subagent" if name in _SUBAGENTS else "tool"
    return WorkStarted(id_, name, scope, input=function.get("arguments"))


def _tool(line: Fields) -> Said:
    # It does not tell whether the tool failed.
    id_ = text_in(line.get("tool_call_id")) or ""
    return WorkFinished(id_, outcome=line.get("content"))


def _meta(line: Fields) -> Said:
    match line.get("type"):
        case "system.version":  # comes before the API was asked, so it does not end `first` (S0)
            return NOTHING
        case "turn.step.retrying":
            return _retrying(line)
        case "session.resume_hint":
            token = text_in(line.get("session_id"))
            opened = (SessionOpened(token),) if token else NOTHING
            return (*opened, TurnEnded("success"))
        case _:
            return None


def _retrying(line: Fields) -> Said:
    # The pause is its own, not the server's word, so it is no `retry_after`. Its text may quote the
    # conversation and stays out of evidence (E3).
    status, name = number_in(line.get("status_code")), text_in(line.get("error_name")) or ""
    class_ = classes.class_of_name(name) if status is None else class_of_status(status)
    return Failed(class_ or "unknown", detail=name[:100])


_LINES: dict[str, Handler] = {"assistant": _assistant, "tool": _tool, "meta": _meta}
