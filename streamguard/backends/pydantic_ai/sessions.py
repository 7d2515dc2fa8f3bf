"""`pydantic_ai.session`: a conversation of an agent's, with its history in our hands.

A run that was given up hands over what it had come to: pydantic-ai marks what was cut, and tells the
model of a tool that was interrupted. The one module of this backend that knows sessions; imported
when one is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from streamguard._base.calling import checked
from streamguard.backends._fields import Fields, fields_of
from streamguard.errors import ConfigError
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by


@checked
def session(
    agent: Any, /, *, prompt: str | None = None, history: Sequence[Any] = (), **options: Any
) -> Session[Any]:
    """A conversation of an agent's that outlives its runs: pipe it through operators.

        chat = pydantic_ai.session(agent, prompt="Fix issue 7")
        async with chat | idle_guard(180) | reconnecting_resume() as messages: ...

    A run that hangs is cancelled, and the agent is asked to continue with its history. Results of
    tools and text that was cut short are in it, and a tool that was interrupted is told as such.

    Args:
        agent: An `Agent`.
        prompt: What is asked first.
        history: What was said before, as `message_history` of a run.
        options: All else for `agent.run_stream_events`: `deps=`, `usage_limits=`, ...
    """
    if not hasattr(agent, "run_stream_events"):
        raise ConfigError(
            f"pydantic_ai.session({agent!r}): pass an Agent, which has run_stream_events"
        )
    conversation = str(options.get("conversation_id") or uuid4())
    options["conversation_id"] = conversation
    said = list(history)

    async def turn(prompt: str) -> AsyncGenerator[Any, None]:
        nonlocal said
        heard: Any = None
        run = agent.run_stream_events(prompt, message_history=said or None, **options)
        try:
            async with run as events:
                async for event in events:
                    heard = events
                    yield event
        finally:
            # Once it is left: only then is what was cut marked as such. A prompt that was never
            # answered is sent again, so it is not kept.
            if heard is not None:
                said = list(heard.all_messages())
                last: Fields = fields_of(said[-1]) if said else {}
                if last.get("kind") == "response" and not last.get("parts"):
                    said.pop()  # an answer that was cut before its first word

    @asynccontextmanager
    async def opened(_point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        # There is nothing to connect to: the history is all that a run needs.
        yield Connection(turn)

    return opened_by(opened, prompt=prompt, point=ResumePoint(token=conversation))
