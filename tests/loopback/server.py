"""A model server on 127.0.0.1 that answers, and misbehaves, by script.

    with ModelServer() as server:
        server.script(tool("Bash", {"command": "ls"}), text("Done.") | stall(after=3))
        ...  # point a client or a CLI at server.url (OpenAI's: server.url + "/v1")
        assert server.requests[-1].history == [("user", "Go"), ...]

Each request to a model takes the next answer of the script; one that comes when the script is over
gets HTTP 400, is in `unscripted` and makes leaving the block fail. It speaks Anthropic's Messages, OpenAI's
Responses (background ones too) and Chat Completions, and Gemini's generateContent, each streaming
or not, and runs in a thread of its own, so that any loop, SDK or subprocess can be its client.

What waits here waits for the test or for the client, never for time: `release()` lets all stalls
go on, a client that leaves ends its own, and `until(condition)` waits for what is to come.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import h11

from tests.loopback import anthropic_api, chat_api, gemini_api, responses_api
from tests.loopback.answers import Answer, Over
from tests.loopback.script import Reply, rest, status, text
from tests.loopback.wire import Wire

APIS = (anthropic_api, responses_api, chat_api, gemini_api)
PATIENCE = 60.0  # for what should take no time, in seconds


@dataclass(eq=False)
class Request:
    """One request, as it came, and what became of its answer."""

    number: int
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]
    api: Any = None
    kind: str | None = None
    reply: Reply | None = None
    ended: str = ""
    """How its answer ended: "complete", "left" (by the client), "cut", "reset"; "" is not yet."""
    stalled: bool = False

    def __repr__(self) -> str:
        return f"<{self.number}: {self.method} {self.path} {self.ended or 'open'}>"

    @property
    def history(self) -> list[tuple[str, str]]:
        """The conversation that it carries, as (role, text), in the same words for each API."""
        return self.api.history(self.body)

    @property
    def prompt(self) -> str:
        """The last that it says."""
        return self.history[-1][1]

    @property
    def offers_tools(self) -> bool:
        return bool(self.body.get("tools"))


@dataclass(eq=False)
class _Script:
    replies: list[Reply]
    forever: Reply | None
    when: Callable[[Request], bool]

    def next(self) -> Reply | None:
        return self.replies.pop(0) if self.replies else self.forever


class ModelServer:
    """The server; leaving its block ends all, stalled or not.

    `aside` says which requests are none of the script's (a CLI asks for titles, or whether the
    model is up): they are answered with a short text, and are kept in `asides`.
    """

    def __init__(self, *, aside: Callable[[Request], bool] = lambda _: False) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.asides: list[Request] = []
        self.unscripted: list[Request] = []
        self.others: list[Request] = []  # for what is not here (404), and counts of tokens
        self._aside = aside
        self._failure: BaseException | None = None
        self._scripts: list[_Script] = []
        self._stored: dict[str, list[bytes]] = {}
        self._changed = threading.Condition()
        self._count = 0

    # -- for the test ----------------------------------------------------------------------------

    def script(
        self,
        *replies: Reply,
        forever: Reply | None = None,
        when: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        """Answer the next requests (of those for which `when` holds) with `replies`, in order.

        Then with `forever`, if it is given. Scripts are tried in the order in which they came.
        """
        with self._changed:
            self._scripts.append(_Script(list(replies), forever, when))

    @property
    def stalled(self) -> list[Request]:
        """The requests whose answers are held at this moment."""
        return [request for request in self.requests if request.stalled]

    def release(self) -> None:
        """Let all that are held now go on."""
        self._loop.call_soon_threadsafe(self._let_go)

    def until(self, condition: Callable[[], Any], patience: float = PATIENCE) -> None:
        """Wait until `condition` holds; it is asked at each change here."""
        with self._changed:
            if not self._changed.wait_for(condition, patience):
                raise TimeoutError(f"after {patience:g} s still not so: {self.requests}")

    # -- its life --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="model server")
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._leave.set_result, None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if kind is None and self.unscripted:
            raise AssertionError(f"requests that the script does not answer: {self.unscripted}")

    def _run(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve(ready))
        except BaseException as failure:
            self._failure = failure
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = self._loop.create_future()
        self._released = self._loop.create_future()
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def connected(wire: Wire) -> None:
                tasks.add(task := group.create_task(self._talk(wire)))
                task.add_done_callback(tasks.discard)

            listening = await self._loop.create_server(lambda: Wire(connected), "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            ready.set()
            await self._leave
            listening.close()
            for task in tasks:
                task.cancel()

    def _let_go(self) -> None:
        released, self._released = self._released, self._loop.create_future()
        released.set_result(None)

    def _change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- one connection --------------------------------------------------------------------------

    async def _talk(self, wire: Wire) -> None:
        try:
            while (request := await self._receive(wire)) is not None:
                self._route(request)
                self._change()
                try:
                    await Answer(self, wire, request).send()
                finally:
                    request.stalled = False
                    self._change()
                if wire.http.our_state is not h11.DONE or wire.http.their_state is not h11.DONE:
                    return
                wire.http.start_next_cycle()
        except Over:
            pass
        except asyncio.CancelledError:
            wire.abort()
            raise
        finally:
            wire.close()

    async def _receive(self, wire: Wire) -> Request | None:
        head, body = None, b""
        while True:
            match await wire.next_event():
                case h11.Request() as head:
                    if wire.http.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        wire.send(go_on)
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    return self._request(head, body)
                case _:  # closed, or no HTTP
                    return None

    def _request(self, head: h11.Request, body: bytes) -> Request:
        self._count += 1
        method, address = head.method.decode(), head.target.decode()
        # A client that takes this server for its proxy names a host.
        target = urlsplit(f"//{address}" if method == "CONNECT" else address)
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Request(
            self._count,
            method,
            target.path or target.netloc,
            dict(parse_qsl(target.query)),
            headers,
            json.loads(body) if body else {},
        )

    def _route(self, request: Request) -> None:
        """Find what answers `request`, and note it."""
        for api in APIS:
            if kind := api.kind_of(request.method, request.path):
                request.api, request.kind = api, kind
        match request.kind:
            case "model" if self._aside(request):
                request.reply = text("An aside.")
                self.asides.append(request)
            case "model":
                self._take_reply(request)
            case "retrieve":
                self._take_rest(request)
            case _:
                self.others.append(request)

    def _take_reply(self, request: Request) -> None:
        self.requests.append(request)
        with self._changed:
            for script in self._scripts:
                if script.when(request) and (reply := script.next()):
                    request.reply = reply
                    return
        self.unscripted.append(request)
        request.reply = status(400)

    def _take_rest(self, request: Request) -> None:
        self.requests.append(request)
        request.reply = rest()
        for script in self._scripts:
            if script.replies and script.replies[0].is_rest:
                request.reply = script.next()
                return

    # -- what answers need -----------------------------------------------------------------------

    def frames(self, request: Request) -> list[bytes]:
        """All events of the answer to `request`, in order."""
        if request.kind == "retrieve":
            stored = self._stored[request.api.id_in(request.path)]
            return stored[request.api.starting_after(request) :]
        said = request.api.events(request.reply, request)
        if request.api is responses_api:
            self._stored[f"resp_{request.number}"] = said
        return said

    def has_stored(self, request: Request) -> bool:
        return request.api.id_in(request.path) in self._stored

    async def hold(self, wire: Wire, request: Request, every: float, ping: bytes) -> None:
        """Until the test lets go; the client's leaving ends the answer. Pings meanwhile."""
        request.stalled = True
        self._change()
        released = self._released
        while not released.done():
            ways = {released, wire.gone}
            await asyncio.wait(ways, timeout=every or None, return_when="FIRST_COMPLETED")
            if wire.gone.done():
                request.ended = "left"
                raise Over
            if every and not released.done():
                wire.send(h11.Data(data=ping))
        request.stalled = False
        self._change()
