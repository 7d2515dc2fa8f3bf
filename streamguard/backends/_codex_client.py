"""The Python client of Codex's app-server: what it can be ended with, and its session.

The package `openai_codex` is imported by the session alone; a client that exists is asked by duck
typing. Its streams cannot be cancelled: a thread waits in them until the app-server is closed, and
`close()` ends that. asyncio alone, as the package itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamguard.backends import Client, _processes

if TYPE_CHECKING:
    from streamguard.sessions.points import Connection, Opener, ResumePoint
    from streamguard.sessions.session import Session


def of_client(client: Any) -> Client | None:
    """The handles of an `AsyncCodex`, of its threads, and of an `AsyncTurnHandle`; else None.

    A turn's handle can be interrupted; `close()` ends the app-server and with it every turn.
    """
    if isinstance(client, type):
        return None
    codex = getattr(client, "_codex", client)
    close, interrupt = getattr(codex, "close", None), getattr(client, "interrupt", None)
    if not callable(close):
        return None
    return Client(
        disconnect=close,
        interrupt=interrupt if callable(interrupt) else None,
        process=partial(_processes.process_of, client),
        outlives_interrupt=True,
    )


def client_session(
    config: Any = None,
    *,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    thread: Mapping[str, Any] | None = None,
) -> Session[Any]:
    """A session of the app-server: a turn that hangs is interrupted, and the same client goes on.

    Where the interrupt is not heard, the client is closed, the process ended, and a new client
    resumes the thread.

    Args:
        config: The package's `CodexConfig`.

        prompt: What is asked first.

        point: Where an earlier session stood (`chat.point`), to go on from there.

        thread: Options for `thread_start` and `thread_resume`, such as `{"cwd": ...}`.
    """
    from streamguard.sessions.session import session

    return session(open_client(config, thread=thread), prompt=prompt, point=point)


def open_client(config: Any = None, *, thread: Mapping[str, Any] | None = None) -> Opener[Any]:
    """`open` for `streamguard.session` and `reconnecting_resume`; see `client_session`."""
    options = dict(thread or {})

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        from streamguard.sessions.points import Connection

        # Not installed with us, so no checker knows it.
        package: Any = import_module("openai_codex")
        under_way: list[Any] = []

        async def turn(prompt: str) -> AsyncGenerator[Any, None]:
            under_way[:] = [await opened_thread.turn(prompt)]
            async for notification in under_way[0].stream():
                yield notification

        async def interrupt() -> None:
            for handle in under_way:
                await handle.interrupt()

        async with package.AsyncCodex(config=config) as codex:
            if point.token is None:
                opened_thread = await codex.thread_start(**options)
            else:
                opened_thread = await codex.thread_resume(point.token, **options)
            yield Connection(turn, client=codex, interrupt=interrupt, outlives_interrupt=True)

    return opened
