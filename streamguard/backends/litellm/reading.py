"""litellm: what the chunks of `acompletion(stream=True)` and the events of `aresponses` say.

    message                        signals
    ─────────────────────────────  ────────────────────────────────────
    a chunk                        see _openai_chat
    an event of a response         see _openai_responses

litellm makes up an end: when the provider's stream was cut, or a pull was cancelled, its next chunk
says `finish_reason="stop"`, and looks as one that was sent. Its stream knows better, so `adapted`
takes such a chunk out of it, and the guard sees the stream for what it is: cut (T10), or
interrupted (T8).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

from streamguard.backends import _openai_responses as responses
from streamguard.backends._fields import NOT_AT_A_GLANCE, Said, fields_of
from streamguard.backends._openai_chat import said_by_chunk

# A chunk with a finish_reason, once `adapted` has seen to it that it is the provider's.
ALWAYS_ENDS_TURNS = True

_CLOSES = ("aclose", "close")
_CHUNKS = {"ModelResponseStream", "TextCompletionResponse"}


def is_message(kind: type) -> bool:
    """Whether instances of a class of the package are messages of these streams."""
    return kind.__name__.endswith("Event") or kind.__name__ in _CHUNKS


def read(message: Any) -> Said:
    """What one message says; None is Progress."""
    if type(message) is not dict:
        try:  # a chunk's text, for one answer that goes on
            fields = message.__dict__
            if "type" not in fields and not fields.get("usage"):
                # It declares no fields, so that all of a choice and of its delta are extras. What it
                # tells beside text is in none of these chunks.
                [choice] = fields["choices"]
                said = choice.__dict__ or choice.__pydantic_extra__
                delta = said["delta"]
                text = delta.__dict__.get("content") or delta.__pydantic_extra__["content"]
                if text and said["finish_reason"] is None:
                    return None
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
    fields = fields_of(message)
    kind = fields.get("type")
    if kind is None:
        return said_by_chunk(message)
    # litellm's types are members of an enum of strings, whose hash is that of their names.
    handle = responses.EVENTS.get(str.__str__(kind)) if isinstance(kind, str) else None
    return None if handle is None else handle(fields)


def adapted(stream: Any) -> Any:
    """`stream` without an end that litellm has made up; any other stream of litellm's as it is."""
    names = [kind.__name__ for kind in type(stream).__mro__]
    return _Honest(stream) if "CustomStreamWrapper" in names else stream


class _Honest(AsyncIterator[Any]):
    """A stream that just ends where its provider said no end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __repr__(self) -> str:
        return repr(self._stream)

    async def __anext__(self) -> Any:
        chunk = await self._stream.__anext__()
        if self._has_made_up_its_end():
            raise StopAsyncIteration
        return chunk

    def _has_made_up_its_end(self) -> bool:
        state = fields_of(self._stream)
        reasons = ("received_finish_reason", "intermittent_finish_reason")
        told = [state.get(name, "") for name in reasons]  # without these, another litellm
        return state.get("sent_last_chunk") is True and told == [None, None]

    async def aclose(self) -> None:
        # Up to 1.80 it could not be closed, and its provider's stream inside can.
        inner = fields_of(self._stream).get("completion_stream")
        closers = [getattr(each, name, None) for each in (self._stream, inner) for name in _CLOSES]
        close = next((close for close in closers if callable(close)), None)
        closed = close() if close is not None else None
        if inspect.isawaitable(closed):
            await closed
