"""A scripted backend that keeps sessions, and knows who owns them.

Each attempt plays the next script (the last one repeats) in a `FakeClient`. A session is owned from
the moment its client is open until that client was closed or disconnected; a second owner in the
meantime is recorded, and `check()` fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamguard import Connection, ResumePoint
from streamguard.testing import FakeClient


@dataclass
class Backend:
    """`session(backend.open)`."""

    scripts: list[Any]
    opening: Any = None  # an async function of the point, before the client is there
    closing: Any = None  # and one before it is gone
    takes_prompts: bool = True
    hands: bool = True  # whether the connection says how the client is disconnected
    client_options: dict[str, Any] = field(default_factory=dict)

    points: list[ResumePoint] = field(default_factory=list)
    clients: list[FakeClient] = field(default_factory=list)
    owners: int = 0
    most_owners: int = 0
    opened: int = 0
    closed: int = 0
    tasks: list[tuple[Any, Any]] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, point: ResumePoint) -> AsyncIterator[Any]:
        self.points.append(point)
        number = len(self.points) - 1
        task = anyio.get_current_task().id
        if self.opening is not None:
            await self.opening(point)
        script = self.scripts[min(number, len(self.scripts) - 1)]
        scripts = script if isinstance(script, tuple) else (script,)
        client = _Client(self, *scripts, **self.client_options)
        self.clients.append(client)
        await client.connect()
        self.opened += 1
        try:
            yield self._connection(client, point)
        finally:
            if self.closing is not None:
                await self.closing(point)
            await client.disown()
            self.closed += 1
            self.tasks.append((task, anyio.get_current_task().id))

    def _connection(self, client: FakeClient, point: ResumePoint) -> Any:
        async def turn(prompt: str) -> AsyncIterator[Any]:
            await client.query(prompt, session_id=point.token)
            async with aclosing(client.receive_messages()) as messages:
                async for message in messages:
                    yield message

        source: Any = turn
        if not self.takes_prompts:
            source = turn(point.prompt or "")
        return Connection(source, client=client if self.hands else None)

    @property
    def prompts(self) -> list[str]:
        """What every client was asked, in order."""
        return [prompt for client in self.clients for prompt in client.prompts]

    @property
    def tokens(self) -> list[str | None]:
        return [point.token for point in self.points]

    def check(self) -> None:
        """Never two owners, none left, and every connection closed in the task that opened it."""
        assert self.most_owners <= 1, "two owners of one session at a time"
        assert self.owners == 0
        assert self.opened == self.closed
        assert all(opened == closed for opened, closed in self.tasks)


class _Client(FakeClient):
    """A client that owns the session until it is gone."""

    def __init__(self, backend: Backend, *scripts: AsyncIterable[Any], **options: Any) -> None:
        super().__init__(*scripts, **options)
        self._backend = backend
        self._owns = False

    async def connect(self, prompt: str | None = None) -> None:
        await super().connect(prompt)
        self._owns = True
        self._backend.owners += 1
        self._backend.most_owners = max(self._backend.most_owners, self._backend.owners)

    async def disconnect(self) -> None:
        await super().disconnect()
        self._gone()

    async def disown(self) -> None:
        """What leaving the client's block does: disconnect, unless that was done."""
        if not self.disconnect_called:
            await self.disconnect()
        await self._turn.aclose()
        self._gone()

    def _gone(self) -> None:
        if self._owns:
            self._owns = False
            self._backend.owners -= 1
