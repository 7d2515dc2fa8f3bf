"""Anthropic: what the events of the Messages API say, raw, from the helper, or as JSON.

    message                                signals
    ─────────────────────────────────────  ────────────────────────────────────────────────
    message_start                          Usage: the request was taken, which is no progress
    content_block_start, of a server tool  WorkStarted
      of a server tool's result            WorkFinished
    message_delta with a stop_reason       Usage, TurnEnded
    message_stop                           nothing: it comes behind the end, without the reason
    ping                                   Liveness (the SDK swallows it; raw_events do not)
    error                                  Failed; the stream ends with it, without a TurnEnded
    anything else                          Progress

A tool that the caller runs opens nothing: its result goes another way (S4). A message's id resumes
nothing, so there is no SessionOpened. The SDK's streams have `close()`, which the guard calls.
"""

from __future__ import annotations

import re

from streamguard.backends._fields import (
    LIVENESS,
    NOTHING,
    Fields,
    Handler,
    Said,
    always,
    class_of_words,
    fields_of,
    finished,
    started,
    text_in,
    usage_in,
)
from streamguard.signals import Failed, Outcome, Signal, TurnEnded

# A message ends with a stop_reason; a stream that is cut well-formed ends without, and without an
# exception (T10).
ALWAYS_ENDS_TURNS = True

_OUTCOMES: dict[str, Outcome] = {
    "max_tokens": "incomplete",
    "model_context_window_exceeded": "incomplete",
    "refusal": "incomplete",
    "pause_turn": "paused",
    "compaction": "paused",
}
_MESSAGES = re.compile(
    r"(Parsed)?(Beta)?(Raw)?"
    r"((Message|ContentBlock)(Start|Delta|Stop)"
    r"|Text|Citation|Thinking|Signature|InputJson|Compaction)Event"
)


def is_message(kind: type) -> bool:
    """Whether instances of a class of the package are events of a message.

    Pages of models and the events of managed sessions have no turns that end like these.
    """
    return _MESSAGES.match(kind.__name__) is not None


def read(message: object) -> Said:
    """What one message says; None is Progress."""
    fields = fields_of(message)
    kind = fields.get("type")
    handle = _EVENTS.get(kind) if isinstance(kind, str) else None
    return None if handle is None else handle(fields)


def _message_start(event: Fields) -> Said:
    return usage_in(fields_of(event.get("message")).get("usage"))


def _block_start(event: Fields) -> Said:
    block = fields_of(event.get("content_block"))
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    if kind in {"server_tool_use", "mcp_tool_use"}:
        return started(block.get("id"), block.get("name"), "server")
    if kind.endswith("_tool_result"):  # of any server tool, also to come
        failed = block.get("is_error") is True or "error_code" in fields_of(block.get("content"))
        return finished(block.get("tool_use_id"), failed)
    return None


def _message_delta(event: Fields) -> Said:
    said: list[Signal] = [*usage_in(event.get("usage"))]
    if reason := text_in(fields_of(event.get("delta")).get("stop_reason")):
        said.append(TurnEnded(_OUTCOMES.get(reason, "success"), reason))
    return said or None


def _error(event: Fields) -> Said:
    # Its message may quote the request and stays out of evidence (E3).
    kind = text_in(fields_of(event.get("error")).get("type")) or ""
    return Failed(class_of_words(kind), detail=kind)


_EVENTS: dict[str, Handler] = {
    "message_start": _message_start,
    "content_block_start": _block_start,
    "message_delta": _message_delta,
    "message_stop": always(NOTHING),
    "ping": always(LIVENESS),
    "error": _error,
}
