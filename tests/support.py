"""What tests share: taking all messages of a stream in either form, and witnesses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamguard.events import Event


@dataclass
class Taken:
    """What a consumer got of a stream."""

    messages: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    elapsed: float = 0.0


async def take(
    stream: Any, form: str = "bare", on_message: Callable[[Any], Any] | None = None
) -> Taken:
    """Iterate `stream` to its end, bare or hosted; an Exception it raises is kept."""
    taken = Taken()
    started = anyio.current_time()

    async def consume(messages: AsyncIterator[Any]) -> None:
        async for message in messages:
            taken.messages.append(message)
            if on_message is not None and (result := on_message(message)) is not None:
                await result

    try:
        if form == "bare":
            await consume(stream)
        else:
            async with stream as messages:
                await consume(messages)
    except Exception as error:
        taken.error = error
    taken.elapsed = anyio.current_time() - started
    return taken


class Events(list[Event]):
    """An observer that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


@dataclass
class Disconnect:
    """A disconnect callback that counts its calls, and takes its time or raises."""

    seconds: float = 0.0
    error: BaseException | None = None
    calls: list[float] = field(default_factory=list)
    finished: int = 0

    async def __call__(self) -> None:
        self.calls.append(anyio.current_time())
        if self.seconds:
            await anyio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.finished += 1
