"""`google_adk.session`: a session of an ADK runner's, gone on with after a failure.

ADK keeps every event that is not partial; a tool call without a response is left out of what the
model is shown next. The one module of this backend that knows sessions; imported when one is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import Any

from streamguard._base.calling import checked
from streamguard.errors import ConfigError
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by


@checked
def session(
    runner: Any, /, *, user_id: str, session_id: str, prompt: str | None = None, **options: Any
) -> Session[Any]:
    """A session of a runner's that outlives its runs: pipe it through operators.

        chat = google_adk.session(runner, user_id="u", session_id="issue-7", prompt="Fix it")
        async with chat | idle_guard(180) | reconnecting_resume() as messages: ...

    A run that hangs is cancelled, and the agent is asked to continue in the same session, which is
    made if it is not there. It sees all that was complete: partial text and calls without a
    response are lost.

    Args:
        runner: A `Runner`, with any session service.
        user_id: Whose session it is.
        session_id: Its name in the session service.
        prompt: What is asked first.
        options: All else for `runner.run_async`: `run_config=`, `state_delta=`, ...
    """
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

    return opened_by(open_, prompt=prompt, point=ResumePoint(token=session_id))
