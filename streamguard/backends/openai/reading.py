"""OpenAI: what the streams of `openai` say, and how a background response is gone on from.

Responses (`responses.create(stream=True)`, `responses.stream()`), chat completions
(`chat.completions.create(stream=True)`, `.stream()`), and the JSON of their events.

    message                                signals
    ─────────────────────────────────────  ───────────────────────────────────────────────
    an event of a response                 see _openai_responses
    a chunk of a chat completion           see _openai_chat
    a helper's event around a chunk        as its chunk; what it makes of it besides: nothing
    anything else                          Progress

Comments in the stream (SSE keep-alives) are swallowed by the client, so they never count as work.
`session` opens, and opens again, a conversation of background responses.
"""

from __future__ import annotations

from typing import Any

from streamguard.backends import _openai_responses as responses
from streamguard.backends._fields import (
    NOT_AT_A_GLANCE,
    NOTHING,
    Fields,
    Handler,
    Said,
    always,
    fields_of,
)
from streamguard.backends._openai_chat import said_by_chunk

# A response ends with completed, failed or incomplete, a chat with a finish_reason. A connection
# that is cut ends both without, and without an exception (T10).
ALWAYS_ENDS_TURNS = True

_CHUNKS = {"ChatCompletionChunk", "ChunkEvent", "Completion"}
_HELPERS = (
    *("ContentDeltaEvent", "ContentDoneEvent", "RefusalDeltaEvent", "RefusalDoneEvent"),
    *("FunctionToolCallArguments", "LogprobsContent", "LogprobsRefusal"),
)


def is_message(kind: type) -> bool:
    """Whether instances of a class of the package are messages of these streams.

    Pages of files and models are iterated as well, and have no turns that could end.
    """
    name = kind.__name__.removeprefix("Beta")
    is_event = name.startswith("Response") and name.partition("[")[0].endswith("Event")
    return is_event or name in _CHUNKS or name.startswith(_HELPERS)


def read(message: Any) -> Said:
    """What one message says; None is Progress."""
    if type(message) is not dict:
        try:  # an event that says nothing of its own; a chunk's text, for one answer that goes on
            if "type" in message.__dict__:
                if message.type not in _EVENTS:
                    return None
            else:
                [choice] = message.choices
                goes_on = choice.finish_reason is None and not message.usage
                if goes_on and choice.delta.content:
                    return None
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
    fields = fields_of(message)
    kind = fields.get("type")
    if kind is None:
        return said_by_chunk(message)
    handle = _EVENTS.get(kind) if isinstance(kind, str) else None
    return None if handle is None else handle(fields)


def _chunk(event: Fields) -> Said:
    return said_by_chunk(event.get("chunk"))


# What the chat helper makes of a chunk comes right behind it, even behind the last one.
_DERIVED = (
    *("content.delta", "content.done", "refusal.delta", "refusal.done"),
    *("tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"),
    *("logprobs.content.delta", "logprobs.content.done"),
    *("logprobs.refusal.delta", "logprobs.refusal.done"),
)
_EVENTS: dict[str, Handler] = {
    **responses.EVENTS,
    "chunk": _chunk,
    **dict.fromkeys(_DERIVED, always(NOTHING)),
}
