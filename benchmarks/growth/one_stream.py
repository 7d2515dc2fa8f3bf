"""What one stream may have much of: work in flight, holds, announced waits, types that nobody knows.

Each lap makes so many of them and then times messages, beginnings and ends among them.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.growth.curve import Growth, timed
from benchmarks.sources import MESSAGE
from streamguard import idle_guard
from streamguard.signals import Progress, Usage, WaitEnded, Waiting, WorkFinished, WorkStarted

_TIMES = 40  # as often is each thing done at each size


def _read(message: Any) -> Any:
    """What is no signal is plain progress."""
    return message if message is not MESSAGE else None


_GUARD = idle_guard(180).replace(read=_read)


async def _said(messages: Iterable[Any]) -> AsyncIterator[Any]:
    for message in messages:
        yield message


async def _pulled(stream: AsyncIterator[Any], times: int) -> float:
    with timed(times) as watch:
        for _ in range(times):
            await anext(stream)
    return watch.seconds


def _started(first: int, count: int) -> list[WorkStarted]:
    return [WorkStarted(f"t{number}", "Bash") for number in range(first, first + count)]


async def _in_flight(n: int) -> Mapping[str, float]:
    ended = [WorkFinished(f"t{number}") for number in range(n, n + _TIMES)]
    stream = aiter(
        _said(
            [
                *_started(0, n),
                *([Progress()] * _TIMES),
                *_started(n, _TIMES),
                *ended,
                *([MESSAGE] * _TIMES),
            ]
        )
        | _GUARD
    )
    for _ in range(n):
        await anext(stream)
    return {
        what: await _pulled(stream, _TIMES)
        for what in ("a Progress", "a start", "an end", "a plain message")
    }


async def _holds(n: int) -> Mapping[str, float]:
    stream = _said(itertools.repeat(MESSAGE)) | _GUARD
    messages = aiter(stream)
    await anext(messages)
    with ExitStack() as held:
        for _ in range(n):
            held.enter_context(stream.activity.hold("asked"))
        with timed(_TIMES) as holding:
            for _ in range(_TIMES):
                with stream.activity.hold("asked"):
                    pass
        message = await _pulled(messages, _TIMES)
    return {"a hold, begun and ended": holding.seconds, "a plain message": message}


async def _waits(n: int) -> Mapping[str, float]:
    stream = aiter(
        _said(
            [
                *(Waiting(f"w{number}", "approval") for number in range(n + _TIMES)),
                *(WaitEnded(f"w{number}") for number in range(n, n + _TIMES)),
            ]
        )
        | _GUARD
    )
    for _ in range(n):
        await anext(stream)
    return {what: await _pulled(stream, _TIMES) for what in ("one announced", "one ended")}


async def _unknown_types(n: int) -> Mapping[str, float]:
    kinds = [type(f"Unknown{number}", (), {}) for number in range(n + _TIMES)]
    stream = aiter(_said(kind() for kind in kinds) | idle_guard(180))
    for _ in range(n):
        await anext(stream)
    return {"the first message of one more": await _pulled(stream, _TIMES)}


async def _calls(n: int) -> Mapping[str, float]:
    told = (Usage({"input_tokens": 1000.0}, call=str(number)) for number in range(n + _TIMES))
    stream = aiter(_said(told) | _GUARD)
    for _ in range(n):
        await anext(stream)
    return {"the usage of one more": await _pulled(stream, _TIMES)}


ROWS = (
    Growth(grows="in flight", sizes=(1, 10, 100, 1_000, 10_000), lap=_in_flight, law="constant"),
    Growth(grows="holds", sizes=(1, 10, 100, 1_000, 5_000), lap=_holds, law="constant"),
    Growth(grows="announced waits", sizes=(1, 10, 100, 1_000, 10_000), lap=_waits, law="constant"),
    Growth(
        grows="unknown types", sizes=(10, 100, 1_000, 4_000), lap=_unknown_types, law="constant"
    ),
    Growth(grows="calls of the model", sizes=(10, 100, 1_000, 10_000), lap=_calls, law="constant"),
)
