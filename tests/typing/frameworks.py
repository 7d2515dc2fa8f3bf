"""Sessions of agent frameworks as users write them."""

from __future__ import annotations

from typing import Any, assert_type

from streamguard import Session, idle_guard, reconnecting_resume
from streamguard.backends import google_adk, google_genai, langgraph, pydantic_ai


async def of_a_graph(graph: Any) -> None:
    config = {"configurable": {"thread_id": "7"}}
    chat = langgraph.session(graph, config, prompt="Fix it", stream_mode="values")
    assert_type(chat, Session[Any])
    langgraph.session(graph, config, inputs=lambda prompt: {"question": prompt})
    async with chat | idle_guard(180) | reconnecting_resume() as messages:
        async for _ in messages.ask("yes"):
            pass


def of_a_runner(runner: Any) -> None:
    assert_type(
        google_adk.session(runner, user_id="u", session_id="s", prompt="Fix it", state_delta={}),
        Session[Any],
    )
    google_adk.session(runner, "u", "s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def of_an_agent(agent: Any) -> None:
    assert_type(pydantic_ai.session(agent, prompt="Fix it", history=[], deps=1), Session[Any])


def readers() -> None:
    idle_guard(180, read=langgraph.reader("build", "deploy"))
    idle_guard(180, read=google_genai.read_automatic_functions)
    langgraph.reader(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
