"""ACP, the agent client protocol: what an agent's updates say.

    message                                     signals
    ──────────────────────────────────────────  ──────────────────────────────────────────
    NewSessionResponse                          SessionOpened
    agent_message_chunk, agent_thought_chunk,
    plan, plan_update                           Progress
    … with no text                              nothing
    tool_call                                   WorkStarted
    tool_call_update                            Progress; completed, failed: WorkFinished
      with what the call puts out               WorkProgressed
      with its input                            WorkStarted once more, before these
    usage_update                                Usage: the context; the session's cost
    user_message_chunk, …_mode_update, …        nothing: said beside the work, or a replay
    RequestPermissionRequest                    Waiting for a person
    PromptResponse                              Usage, TurnEnded (and Failed)
    anything else                               Progress

Reads the objects of the package `acp` (never imported), notifications and updates as dicts, and
JSON-RPC lines. Pure and total: garbage is Progress, never an exception.

What a tool was asked is its raw input. Some agents give none: then it is what they show of the call, where
that tells one call from another. The counts of an answer are the session's, as the protocol has it.
"""

from __future__ import annotations

from typing import Any, cast

from streamguard.backends._fields import (
    NOT_AT_A_GLANCE,
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
    progressed,
    started,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkStarted,
)

# A prompt's end is an answer, not an update: a stream made of updates alone ends without one.
ALWAYS_ENDS_TURNS = False

_CHUNKS = {"agent_message_chunk", "agent_thought_chunk"}


def read(message: Any) -> Said:
    """What one update, notification or answer says; None is Progress."""
    if type(message) is not dict:
        try:  # some text of an answer, or of thoughts, alone or in a notification
            update = message.update if "update" in message.__dict__ else message
            if update.session_update in _CHUNKS and getattr(update.content, "text", None) != "":
                return None
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
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


def _chunk(update: Fields) -> Said:
    content = fields_of(update.get("content"))
    return NOTHING if content.get("type") == "text" and content.get("text") == "" else None


def _tool_call(update: Fields) -> Said:
    return _ended(update) or _started(update)


def _tool_call_update(update: Fields) -> Said:
    said: list[Signal | None] = [_ended(update)]
    if (again := _started(update)) is not None and again.input is not None:
        said.insert(0, again)
    # That it has begun, or another title, is no sign of its own.
    if said[-1] is None and (_shown(update) or either(update, "raw_output")) is not None:
        said[-1] = progressed(either(update, "tool_call_id"))
    return [signal for signal in said if signal is not None] or None


def _started(update: Fields) -> WorkStarted | None:
    # The kind and not the title, which may quote the command (E3).
    parent = fields_of(_meta(update).get("claudeCode")).get("parentToolUseId")
    id_, kind = either(update, "tool_call_id"), update.get("kind")
    return started(id_, kind, parent=parent, input=_asked(update))


def _meta(update: Fields) -> Fields:
    return fields_of(update.get("field_meta") or update.get("_meta"))


# What the title alone tells, as it quotes the command, or names the file.
_TOLD_BY_TITLE = {"read", "search", "execute", "fetch"}


def _asked(update: Fields) -> object:
    # Empty as long as the model is still writing it.
    raw = either(update, "raw_input") or None
    if raw is not None or update.get("title") is None:
        return raw
    shown, kind = _shown(update), update.get("kind")
    if shown is None and not (isinstance(kind, str) and kind in _TOLD_BY_TITLE):
        return None
    return update.get("title"), update.get("locations"), shown


def _shown(update: Fields) -> object:
    """The content that is not a terminal's, whose id is a new one each time; None without any."""
    content = update.get("content")
    several = cast("list[object]", content) if isinstance(content, list) else []
    return [each for each in several if fields_of(each).get("type") != "terminal"] or None


def _ended(update: Fields) -> WorkFinished | None:
    status = update.get("status")
    if status not in ("completed", "failed"):
        return None
    raw = either(update, "raw_output")
    outcome = _shown(update) if raw is None else raw
    return finished(either(update, "tool_call_id"), status == "failed", outcome)


def _usage_update(update: Fields) -> Said:
    known = {f"context_{name}": number for name, number in numbers_in(update).items()}
    cost = fields_of(update.get("cost"))
    amount = number_in(cost.get("amount"))
    # How full the context is, is nobody's spending: it is told as it is, and adds up to nothing.
    if amount is not None and cost.get("currency") == "USD":
        known["total_cost_usd"] = amount
    return Usage(known, "session") if known else NOTHING


# The names that the protocol has for them, as every other backend has them. Thoughts are told beside the
# output, and what the cache has beside the input.
_COUNTS = {
    "totalTokens": "total_tokens",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
}


def _spent(usage: object) -> tuple[Signal, ...]:
    counts = numbers_in(usage)
    plain = {_COUNTS[name]: count for name, count in counts.items() if name in _COUNTS}
    return (Usage({**counts, **plain}, "session"),) if counts else ()


_OUTCOMES: dict[object, Outcome] = {
    "end_turn": "success",
    "max_tokens": "incomplete",
    "max_turn_requests": "incomplete",
    "cancelled": "cancelled",
}


def _prompt_over(fields: Fields, reason: object) -> Said:
    said = _spent(fields.get("usage"))
    word = reason if isinstance(reason, str) else ""
    if word == "refusal":  # the agent's own judgement: asked again, it says so again
        return (*said, Failed("permanent", detail="refusal"), TurnEnded("error", "refusal"))
    return (*said, TurnEnded(_OUTCOMES.get(word, "incomplete"), word[:100]))


_UPDATES: dict[str, Handler] = {
    **dict.fromkeys(_CHUNKS, _chunk),
    "tool_call": _tool_call,
    "tool_call_update": _tool_call_update,
    "usage_update": _usage_update,
    "user_message_chunk": always(NOTHING),
    "available_commands_update": always(NOTHING),
    "config_option_update": always(NOTHING),
    "current_mode_update": always(NOTHING),
    "session_info_update": always(NOTHING),
}
