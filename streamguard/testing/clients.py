"""Clients of a scripted backend: they connect, are asked, stream, and disconnect badly.

`FakeClient` has the shape and the habits of an agent SDK's client: a detached task reads the
backend, a cancelled pull loses nothing, and `disconnect()` ends a hanging stream *normally*,
without a terminal message. Imports anyio and the rest of this package.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import anyio

from streamguard.testing.channel import Channel
from streamguard.testing.messages import ends_turn
from streamguard.testing.script import Script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterator
    from typing import Self


class FakeClient:
    """A client whose every turn plays the next of `scripts`; the last one repeats.

    `disconnect()` takes `disconnect_delay` seconds (against all cancellation if
    `disconnect_shielded`), and then hangs (`disconnect_hangs`), raises `disconnect_error`, or
    ends the stream (not with `ends_stream=False`). `interrupt()` plays `on_interrupt` in place
    of the turn's rest. Connecting again starts from the first script.

    Recorded, in order: `calls` (names), `prompts`, and whether `disconnect_called` and
    `disconnected` (it came back).
    """

    def __init__(
        self,
        *scripts: AsyncIterable[Any],
        disconnect_delay: float = 0,
        disconnect_error: BaseException | None = None,
        disconnect_hangs: bool = False,
        disconnect_shielded: bool = False,
        ends_stream: bool = True,
        on_interrupt: AsyncIterable[Any] | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.prompts: list[str] = []
        self.session_id: str | None = None
        self.disconnected = False
        self._scripts = scripts or (Script(),)
        self._disconnect_delay = disconnect_delay
        self._disconnect_error = disconnect_error
        self._disconnect_hangs = disconnect_hangs
        self._disconnect_shielded = disconnect_shielded
        self._ends_stream = ends_stream
        self._on_interrupt = on_interrupt
        self._reset()

    @property
    def disconnect_called(self) -> bool:
        """Whether `disconnect` was called, however it went."""
        return "disconnect" in self.calls

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, _kind: object, _error: object, _trace: object, /) -> None:
        try:
            if not self._disconnecting:
                await self.disconnect()
        finally:
            await self._turn.aclose()  # nobody will take what is left

    async def connect(self, prompt: str | None = None) -> None:
        """Start a new connection, with the first turn if there is a prompt."""
        self.calls.append("connect")
        self._reset()
        if prompt is not None:
            self._ask(prompt)

    async def query(self, prompt: str, session_id: str | None = None) -> None:
        """Send a prompt: the next script begins to play."""
        self.calls.append("query")
        self.session_id = session_id
        self._ask(prompt)

    def receive_response(self) -> AsyncGenerator[Any, None]:
        """The current turn's messages, up to the one that ends it."""
        self.calls.append("receive_response")
        return self._receive(until_turn_ends=True)

    def receive_messages(self) -> AsyncGenerator[Any, None]:
        """The current turn's messages and what comes after its end, without end if so scripted."""
        self.calls.append("receive_messages")
        return self._receive(until_turn_ends=False)

    async def interrupt(self) -> None:
        """Ask the backend to stop: `on_interrupt` takes over, if there is one."""
        self.calls.append("interrupt")
        if self._on_interrupt is not None:
            self._turn.play_instead(self._on_interrupt)

    async def disconnect(self) -> None:
        """End the connection, as well or as badly as this client was made to."""
        self.calls.append("disconnect")
        self._disconnecting = True
        with anyio.CancelScope(shield=self._disconnect_shielded):
            await anyio.sleep(self._disconnect_delay)
            if self._disconnect_hangs:
                await anyio.sleep_forever()
        if self._disconnect_error is not None:
            raise self._disconnect_error
        if self._ends_stream:
            self._turn.end()
        self.disconnected = True

    def _reset(self) -> None:
        self.session_id = None
        self.disconnected = False
        self._disconnecting = False
        self._turns: Iterator[AsyncIterable[Any]] = itertools.chain(
            self._scripts, itertools.repeat(self._scripts[-1])
        )
        self._turn = Channel(next(self._turns))
        self._asked = False

    def _ask(self, prompt: str) -> None:
        self.prompts.append(prompt)
        if self._asked:
            self._turn = Channel(next(self._turns))
        self._asked = True
        self._turn.start()

    async def _receive(self, *, until_turn_ends: bool) -> AsyncGenerator[Any, None]:
        async for message in self._turn:
            yield message
            if until_turn_ends and ends_turn(message):
                return


class ClientFactory:
    """Gives another client per attempt; the last one repeats.

    `create_calls` holds the arguments of each call, `created` the clients given.
    """

    def __init__(self, *clients: FakeClient) -> None:
        if not clients:
            raise ValueError("a ClientFactory needs at least one client to give")
        self.create_calls: list[tuple[Any, ...]] = []
        self.created: list[FakeClient] = []
        self._clients = clients

    def __call__(self, *args: Any) -> FakeClient:
        client = self._clients[min(len(self.created), len(self._clients) - 1)]
        self.create_calls.append(args)
        self.created.append(client)
        return client
