"""What tests share: taking all messages of a stream in either form, and witnesses."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import trio

from streamguard import _loops as loops
from streamguard import live
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


class Leftovers:
    """What is there of a stream after it, and was not there before: tasks, timers, descriptors.

    Only what is new counts: what an earlier test has left behind goes when Python's collector
    comes round to it, which may be in the midst of this one.
    """

    def __init__(self) -> None:
        self._tasks, self._files, self._live = living_tasks(), open_files(), live()

    def check(self) -> None:
        """That nothing new is there, but for what the collector takes."""
        assert not loops.current().timekeeper._heap
        if self._new():
            gc.collect()
        assert not self._new()
        assert living_tasks() == self._tasks

    def _new(self) -> list[Any]:
        return [each for each in live() if each not in self._live] + [*open_files() - self._files]


def living_tasks() -> int:
    """How many tasks the running loop has."""
    if trio.lowlevel.in_trio_task():
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


def open_files() -> set[tuple[str, str]]:
    """This process's descriptors, each with what it stands for: a number is used again."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that reads this folder
            found.add((link.name, str(link.readlink())))
    return found
