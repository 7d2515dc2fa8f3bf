"""Pipes through aiostream, in both directions, as users write them (O3). Checked, never run.

What aiostream's own operators give is `Stream[Any]` for mypy (aiostream pins an older one for it),
so there the message type ends at its first operator; for pyright it does not. `assert_type` holds
for both wherever the type is ours to keep.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import assert_type

from aiostream import pipe, stream, streamcontext
from aiostream.core import Stream, Streamer

from streamguard import Guarded, idle_guard, idle_timeout, inflight_tool_gate


class Message:
    text: str = ""


async def messages() -> AsyncGenerator[Message, None]:
    yield Message()


def text_of(message: Message, *_: Message) -> str:  # aiostream's `map` may give it several
    return message.text


def a_stream_pipes_into_operators(numbers: Stream[int]) -> None:
    assert_type(numbers | idle_guard(180), Guarded[int])
    assert_type(numbers | idle_timeout(60) | inflight_tool_gate(), Guarded[int])
    assert_type(stream.iterate(messages()) | idle_guard(180), Guarded[Message])
    assert_type(idle_guard(180)(numbers), Guarded[int])


def a_streamer_does_too(streamer: Streamer[int]) -> None:
    assert_type(streamer | idle_guard(180), Guarded[int])


async def a_guarded_stream_pipes_on_into_aiostream() -> None:
    guarded = messages() | idle_guard(180)
    texts: Stream[str] = guarded | pipe.map(text_of)
    async with texts.stream() as streamer:
        async for text in streamer:
            assert_type(text, str)
    first: Stream[Message] = guarded | pipe.take(1)
    again: Guarded[Message] = first | idle_guard(180)
    assert_type(again, Guarded[Message])


async def whatever_takes_an_async_iterable_takes_a_guarded_one(guarded: Guarded[int]) -> None:
    assert_type(stream.iterate(guarded), Stream[int])
    assert_type(stream.merge(guarded, guarded), Stream[int])
    async with streamcontext(guarded) as streamer:
        assert_type(streamer, Streamer[int])
        async for number in streamer:
            assert_type(number, int)


def doubled(numbers: Guarded[int]) -> AsyncIterator[int]:
    raise NotImplementedError


def any_callable_may_follow(guarded: Guarded[int]) -> None:
    assert_type(guarded | doubled, AsyncIterator[int])
    assert_type(guarded | doubled | idle_timeout(60), Guarded[int])


def mistakes(guarded: Guarded[str]) -> None:
    guarded | doubled  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    guarded | 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    idle_guard(180) | pipe.take(1)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
