"""Anthropic: what the events of the Messages API say, raw, from the helper, or as JSON.

    message                                signals
    ─────────────────────────────────────  ────────────────────────────────────────────────
    message_start                          Usage: the request was taken, which is no progress
    content_block_start, of a server tool  WorkStarted
      of a server tool's result            WorkFinished
      of a text with nothing in it yet     nothing: an answer may stay empty
    content_block_stop                     nothing; of the helper, for a server tool: WorkStarted
                                           once more, with its input
    message_delta with a stop_reason       Usage, TurnEnded
    message_stop                           nothing: it comes behind the end, without the reason
    ping                                   Liveness (the SDK swallows it; raw_events do not)
    error                                  Failed; the stream ends with it, without a TurnEnded
    anything else                          Progress

A tool that the caller runs opens nothing: its result goes another way (S4). A message's id resumes
nothing, so there is no SessionOpened. The SDK's streams have `close()`, which the guard calls.

The counts of `message_delta` are those of the whole call, which it does not name: they stand for the turn.
(Some servers tell the output alone there, which is added; it looks like another call's.)
"""

from __future__ import annotations

import re

from streamguard.backends._anthropic_blocks import is_result, result_of
from streamguard.backends._fields import (
    LIVENESS,
    NOTHING,
    Fields,
    Handler,
    Said,
    always,
    class_of_words,
    fields_of,
    is_blank,
    number_in,
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
_SERVER_TOOLS = {"server_tool_use", "mcp_tool_use"}
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
    message = fields_of(event.get("message"))
    return usage_in(message.get("usage"), call=message.get("id"))


def _block_start(event: Fields) -> Said:
    block = fields_of(event.get("content_block"))
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    if kind == "text" and is_blank(block.get("text")):
        return NOTHING
    if kind in _SERVER_TOOLS:
        return _server_tool(block)
    if is_result(kind):
        ended = result_of(block)
        return ended if ended.id else None
    return None


def _block_stop(event: Fields) -> Said:
    block = fields_of(event.get("content_block"))  # whole by now, where the helper tells it
    kind = block.get("type")
    known = isinstance(kind, str) and kind in _SERVER_TOOLS
    return (_server_tool(block) or NOTHING) if known else NOTHING


def _server_tool(block: Fields) -> Said:
    # Its input comes piece by piece behind the start, where it is empty.
    asked = block.get("input") or None
    return started(block.get("id"), block.get("name"), "server", input=asked)


def _message_delta(event: Fields) -> Said:
    counts = event.get("usage")
    # Of a server that tells the output alone, they belong to what the start has told.
    is_whole = number_in(fields_of(counts).get("input_tokens")) is not None
    said: list[Signal] = [*usage_in(counts, "turn" if is_whole else "call")]
    if reason := text_in(fields_of(event.get("delta")).get("stop_reason")):
        answered = True if reason == "tool_use" else None
        outcome = _OUTCOMES.get(reason, "success")
        said.append(TurnEnded(outcome, reason, answered=answered))
    return said or None


def _error(event: Fields) -> Said:
    # Its message may quote the request and stays out of evidence (E3).
    kind = text_in(fields_of(event.get("error")).get("type")) or ""
    return Failed(class_of_words(kind), detail=kind)


_EVENTS: dict[str, Handler] = {
    "message_start": _message_start,
    "content_block_start": _block_start,
    "content_block_stop": _block_stop,
    "message_delta": _message_delta,
    "message_stop": always(NOTHING),
    "ping": always(LIVENESS),
    "error": _error,
}
