"""Sessions of Codex: of `codex exec --json`, and of the app-server's Python client.

The package `openai_codex` is imported by a client's session alone. asyncio alone, as that is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

from streamguard._base.calling import checked
from streamguard.backends.command_line import CommandLine
from streamguard.sessions.points import Connection, Opener, ResumePoint
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by

_EXEC: Final = CommandLine("codex", "exec", "--json", resume="resume", last=("-",))

session = _EXEC.session
open_exec = _EXEC.open


@checked
def client_session(
    config: Any = None,
    *,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    thread: Mapping[str, Any] | None = None,
    exclusive: bool = True,
) -> Session[Any]:
    """A session of the app-server: a turn that hangs is interrupted, and the same client goes on.

    Where the interrupt is not heard, the client is closed, the process ended, and a new client
    resumes the thread.

    Args:
        config: The package's `CodexConfig`.

        prompt: What is asked first.

        point: Where an earlier session stood (`chat.point`), to go on from there.

        thread: Options for `thread_start` and `thread_resume`, such as `{"cwd": ...}`.

        exclusive: Whether no two programs may be in one thread at once (`SessionHeldError`).
    """
    opening = open_client(config, thread=thread)
    # One history for both: the command line resumes the app-server's threads.
    name = "codex" if exclusive else None
    return opened_by(opening, prompt=prompt, point=point, exclusive=name)


@checked
def open_client(config: Any = None, *, thread: Mapping[str, Any] | None = None) -> Opener[Any]:
    """`open` for `streamguard.session` and `reconnecting_resume`; see `client_session`."""
    options = dict(thread or {})

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
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
