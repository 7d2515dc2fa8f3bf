"""ACP, the agent client protocol: what an agent's updates say.

    message                                     signals
    ──────────────────────────────────────────  ──────────────────────────────────────────
    NewSessionResponse                          SessionOpened
    agent_message_chunk, agent_thought_chunk,
    plan, plan_update                           Progress
    tool_call                                   WorkStarted
    tool_call_update                            Progress; completed, failed: WorkFinished
    usage_update                                Usage
    user_message_chunk, …_mode_update, …        nothing: said beside the work, or a replay
    RequestPermissionRequest                    Waiting for a person
    PromptResponse                              Usage, TurnEnded (and Failed)
    anything else                               Progress

Reads the objects of the package `acp` (never imported), notifications and updates as dicts, and
JSON-RPC lines. Pure and total: garbage is Progress, never an exception.
"""

from __future__ import annotations

from streamguard.backends._fields import (
    NOTHING,
    Fields,
    Handler,
    Said,
    always,
    either,
    fields_of,
    finished,
    number_in,
    numbers_in,
    started,
    text_in,
    usage_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
)

# A prompt's end is an answer, not an update: a stream made of updates alone ends without one.
ALWAYS_ENDS_TURNS = False


def read(message: object) -> Said:
    """What one update, notification or answer says; None is Progress."""
    fields = fields_of(message)
    if "jsonrpc" in fields:
        if "error" in fields:
            return _refused(fields_of(fields["error"]))
        fields = fields_of(fields.get("result") or fields.get("params"))
    update = fields_of(fields.get("update")) or fields
    kind = update.get("session_update") or update.get("sessionUpdate")
    if kind is not None:
        handle = _UPDATES.get(kind) if isinstance(kind, str) else None
        return None if handle is None else handle(update)
    if (reason := either(fields, "stop_reason")) is not None:
        return _prompt_over(fields, reason)
    if (call := either(fields, "tool_call")) is not None and "options" in fields:
        return Waiting(permission_id(call), "human")
    token = text_in(either(fields, "session_id"))
    return SessionOpened(token) if token and "update" not in fields else None


def _refused(error: Fields) -> Said:
    code = number_in(error.get("code"))
    class_ = classes.class_of_code(int(code)) if code is not None else None
    return Failed(class_ or "unknown", detail=f"JSON-RPC error {code:g}" if code else "")


def permission_id(tool_call: object) -> str:
    """The name of the wait for a person's answer about that call."""
    call = fields_of(tool_call)
    return f"permission:{either(call, 'tool_call_id')!s:.100}"


def _tool_call(update: Fields) -> Said:
    # The kind and not the title, which may quote the command (E3).
    return _ended(update) or started(either(update, "tool_call_id"), update.get("kind"))


def _ended(update: Fields) -> WorkFinished | None:
    status = update.get("status")
    if status not in ("completed", "failed"):
        return None
    return finished(either(update, "tool_call_id"), status == "failed")


def _usage_update(update: Fields) -> Said:
    known = {f"context_{name}": number for name, number in numbers_in(update).items()}
    return Usage(known) if known else NOTHING


_OUTCOMES: dict[object, Outcome] = {
    "end_turn": "success",
    "max_tokens": "incomplete",
    "max_turn_requests": "incomplete",
    "cancelled": "cancelled",
}


def _prompt_over(fields: Fields, reason: object) -> Said:
    said = usage_in(fields.get("usage"))
    word = reason if isinstance(reason, str) else ""
    if word == "refusal":  # the agent's own judgement: asked again, it says so again
        return (*said, Failed("permanent", detail="refusal"), TurnEnded("error", "refusal"))
    return (*said, TurnEnded(_OUTCOMES.get(word, "incomplete"), word[:100]))


_UPDATES: dict[str, Handler] = {
    "tool_call": _tool_call,
    "tool_call_update": _ended,
    "usage_update": _usage_update,
    "user_message_chunk": always(NOTHING),
    "available_commands_update": always(NOTHING),
    "config_option_update": always(NOTHING),
    "current_mode_update": always(NOTHING),
    "session_info_update": always(NOTHING),
}
