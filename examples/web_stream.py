"""A guarded session behind a web framework's streaming response: Server-Sent Events to a browser.

    python -m pip install starlette uvicorn
    python examples/web_stream.py        then: curl -N "http://127.0.0.1:8000/?prompt=hello"

Three things are worth copying:

- `keep_alive` says something in each silence, be it work, teardown or backoff, so that neither the
  browser nor a proxy hangs up, and so that a browser which has gone away is noticed at all;
- `aclosing`: when the browser goes away, a framework cancels the response, and nobody closes the
  generator that feeds it. Here it is closed at once, and with it the session and its client;
- errors become an event: the response's status was sent long ago.

FastAPI's StreamingResponse is Starlette's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from streamguard import (
    Connection,
    ResumePoint,
    StreamGuardError,
    idle_guard,
    keep_alive,
    reconnecting_resume,
    session,
)
from streamguard.testing import FakeClient, Script, done, opened, say, silence

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)

PING = b": ping\n\n"  # a comment, which browsers pass over


class EventStream(StreamingResponse):
    """A response that closes what feeds it, however the request ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


async def events(open_client: Any, prompt: str, *, every: float) -> AsyncGenerator[bytes, None]:
    guard = idle_guard(180, exit_grace=30)
    guarded = session(open_client, prompt=prompt) | guard | reconnecting_resume()
    try:
        async with guarded | keep_alive(every, lambda: PING) as chat:
            async for message in chat:
                yield message if message is PING else event("message", repr(message))
    except StreamGuardError as error:
        yield event("error", str(error))
    except Exception:  # the backend's own error, after its retries; its text may be private
        logger.exception("the agent failed")
        yield event("error", "the agent failed")


def event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def app_with(open_client: Any, *, every: float = 15) -> Starlette:
    async def endpoint(request: Request) -> EventStream:
        prompt = request.query_params.get("prompt", "")
        body = events(open_client, prompt, every=every)
        return EventStream(body, media_type="text/event-stream")

    return Starlette(routes=[Route("/", endpoint)])


@asynccontextmanager
async def open_scripted(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
    script = Script(opened("s-1"), say("Let me think."), silence(40), say("Done."), done())
    async with FakeClient(script) as client:

        async def turn(prompt: str) -> AsyncGenerator[Any, None]:
            await client.query(prompt, session_id=point.token)
            async for message in client.receive_response():
                yield message

        yield Connection(turn, client=client)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app_with(open_scripted), port=8000)
