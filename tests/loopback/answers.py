"""How one request is answered: the way through a reply and its faults, on the server's loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import h11

from tests.loopback.script import BEFORE_HEADERS, Fault, Reply
from tests.loopback.wire import Wire


class Over(Exception):  # noqa: N818 - no error
    """The connection is."""


class Answer:
    """Sending the answer to one request, with all that goes wrong in it."""

    def __init__(self, server: Any, wire: Wire, request: Any) -> None:
        self._server, self._wire, self._request = server, wire, request
        self._reply = request.reply or Reply()

    async def send(self) -> None:
        request, api = self._request, self._request.api
        await self._faults_at(BEFORE_HEADERS)
        match request.kind:
            case None:
                self._json(404, {"error": {"type": "not_found", "message": request.path}})
            case "count":
                self._json(200, api.count(request))
            case "retrieve" | "cancel" if not self._server.has_stored(request):
                self._json(404, api.error_body(404))
            case "cancel":
                self._json(200, {"id": api.id_in(request.path), "status": "cancelled"})
            case _ if self._reply.status != 200:
                body = api.error_body(self._reply.status)
                self._json(self._reply.status, body, self._reply.headers)
            case _ if api.wants_stream(request):
                await self._stream(self._server.frames(request), "text/event-stream")
            case "retrieve":
                self._json(200, _stored_whole(self._server.frames(request)))
            case _:
                whole = json.dumps(api.whole(self._reply, request)).encode()
                await self._stream([whole], "application/json")

    def _json(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        sized = {"content-type": "application/json", "content-length": str(len(data))}
        self._head(code, sized | (headers or {}))
        if self._request.method != "HEAD":
            self._wire.send(h11.Data(data=data))
        self._finish()

    def _finish(self, how: str = "complete") -> None:
        self._request.ended = how  # first, since the client may be quick to look
        if how == "complete":
            self._wire.send(h11.EndOfMessage())
        elif how == "reset":
            self._wire.reset()
        if how != "complete":
            raise Over

    def _head(self, code: int, headers: dict[str, str]) -> None:
        named = {"request-id": f"req_{self._request.number}", **headers}
        self._wire.send(h11.Response(status_code=code, headers=list(named.items())))

    async def _stream(self, frames: list[bytes], content_type: str) -> None:
        self._head(200, {"content-type": content_type, "transfer-encoding": "chunked"})
        for position, frame in enumerate(frames):
            if await self._faults_at(position):
                return
            await self._drip()
            self._wire.send(h11.Data(data=frame))
        behind = {fault.after for fault in self._reply.faults if fault.after >= len(frames)}
        for position in sorted(behind):
            if await self._faults_at(position):
                return
        self._finish()

    async def _drip(self) -> None:
        for fault in self._reply.faults:
            if fault.kind == "drip":
                await asyncio.wait({self._wire.gone}, timeout=fault.every)
        if self._wire.gone.done():
            self._finish("left")

    async def _faults_at(self, position: int) -> bool:
        """Let go wrong what goes wrong here; whether that was the end of the body."""
        for fault in self._reply.at(position):
            if await self._go_wrong(fault):
                return True
        return False

    async def _go_wrong(self, fault: Fault) -> bool:
        wire, request = self._wire, self._request
        match fault.kind:
            case "stall" | "pings":
                ping = b"" if request.api is None else request.api.PING
                await self._server.hold(wire, request, fault.every, ping)
                return False
            case "reset" | "cut":
                self._finish(fault.kind)
            case "error":
                wire.send(h11.Data(data=request.api.error_event(fault.error, request)))
                self._finish()
            case "end":
                self._finish()
            case _:
                return False
        return True


def _stored_whole(frames: Iterable[bytes]) -> Any:
    """A response as its last event has it."""
    *_, last = frames
    return json.loads(last.partition(b"data: ")[2])["response"]
