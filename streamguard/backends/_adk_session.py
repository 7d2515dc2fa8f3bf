"""`google_adk.session`: a session of an ADK runner's, gone on with after a failure.

ADK keeps every event that is not partial; a tool call without a response is left out of what the
model is shown next. The one module of this backend that knows sessions; imported when one is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamguard.errors import ConfigError
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import Session, session

if TYPE_CHECKING:
    from streamguard.backends._fields import Fields


def open_session(
    runner: Any, user_id: str, session_id: str, prompt: str | None, options: Fields
) -> Session[Any]:
    """The session that `google_adk.session` promises."""
    if not hasattr(runner, "run_async") or not hasattr(runner, "session_service"):
        raise ConfigError(
            f"google_adk.session({runner!r}): pass a Runner, which has run_async and "
            "session_service"
        )

    async def turn(prompt: str) -> AsyncGenerator[Any, None]:
        types: Any = import_module("google.genai.types")
        named = {"user_id": user_id, "session_id": session_id}
        where = {**named, "app_name": runner.app_name}
        if await runner.session_service.get_session(**where) is None:
            await runner.session_service.create_session(**where)
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        # `async for` alone would leave the run to the collector.
        async with aclosing(runner.run_async(**named, new_message=message, **options)) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def open_(_point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        yield Connection(turn)

    return session(open_, prompt=prompt, point=ResumePoint(token=session_id))
