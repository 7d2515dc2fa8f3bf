"""A network between workers and a server that can go silent, in one direction or in both, and come back.

What is on its way meanwhile waits, as TCP's does: nothing is refused, nothing ends, and when the way is open again all
of it arrives.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Partition:
    """Listens on a port of this machine, in the test's loop, and passes on what comes."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._tasks: set[asyncio.Task[None]] = set()
        self.held_back = {"up": 0, "down": 0}
        """How many bytes had to wait."""
        self.heal()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, directions: str = "both") -> None:
        for direction in ("up", "down"):
            if directions in (direction, "both"):
                self._open[direction].clear()

    def heal(self) -> None:
        for is_open in self._open.values():
            is_open.set()

    async def _accept(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        far, send = await asyncio.open_connection("127.0.0.1", self._far)
        for source, sink, direction in ((near, send, "up"), (far, answer, "down")):
            task = asyncio.ensure_future(self._pass_on(source, sink, direction))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str
    ) -> None:
        try:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    if not self._open[direction].is_set():
                        self.held_back[direction] += len(data)
                        await self._open[direction].wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()
