"""A conversation of OpenAI's responses as users write it."""

from __future__ import annotations

from typing import Any, assert_type

from streamguard import ResumePoint, Session, idle_guard, reconnecting_resume
from streamguard.backends import anthropic, litellm, openai, openai_agents


async def of_responses(client: Any, kept: ResumePoint) -> None:
    chat = openai.session(client, model="gpt-5", prompt="Fix it", tools=[{"type": "web_search"}])
    assert_type(chat, Session[Any])
    async with chat | idle_guard(180) | reconnecting_resume() as messages:
        async for _ in messages.ask("And the tests?"):
            pass
        kept = messages.point
    openai.session(client, model="gpt-5", point=kept, background=False)
    openai.session(client, "Fix it")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    openai.session(client, point="resp_1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def readers() -> None:
    for backend in (anthropic, litellm, openai, openai_agents):
        idle_guard(180, read=backend)
    idle_guard(180, read=openai.read)
