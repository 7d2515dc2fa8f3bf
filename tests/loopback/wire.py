"""One connection: HTTP without a meaning, and whether the client is still there."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import h11


class Wire(asyncio.Protocol):
    """A client's connection. `gone` is done when it is no more."""

    def __init__(self, connected: Callable[[Wire], None]) -> None:
        self.http = h11.Connection(h11.SERVER)
        self.gone = asyncio.get_running_loop().create_future()
        self._connected = connected
        self._arrived = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        self.http.receive_data(data)
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._arrived.set()

    async def next_event(self) -> Any:
        """What the client sends next; None if it has left, or speaks no HTTP."""
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                if self.gone.done():
                    return None
                self._arrived.clear()
                await self._arrived.wait()
        except h11.RemoteProtocolError:
            return None
        return event

    def send(self, event: Any) -> None:
        data = self.http.send(event)
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def reset(self) -> None:
        linger_not = struct.pack("ii", 1, 0)
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        self.abort()

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()
