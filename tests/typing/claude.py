"""Claude's sessions and taps as users write them: messages are the SDK's (R1, O3)."""

from __future__ import annotations

from typing import assert_type

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, Transport

from streamguard import (
    Activity,
    Chat,
    Connection,
    ResumePoint,
    Session,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import Client, claude
from streamguard.signals import Liveness, WorkStarted


async def conversation() -> None:
    session = claude.session(ClaudeAgentOptions(), prompt="Fix issue 7", tap=True)
    assert_type(session, Session[Message])
    async with session | idle_guard(180) | reconnecting_resume() as chat:
        assert_type(chat, Chat[Message])
        async for message in chat:
            assert_type(message, Message)
        turn = chat.ask("The tests still fail.")
        assert_type(await anext(turn), Message)
        await turn.aclose()
    claude.session(point=ResumePoint(token="t"), exclusive=False)
    claude.session("Fix issue 7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    claude.session(prompt=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def own_client() -> None:
    activity, options = Activity("issue-7"), ClaudeAgentOptions()
    transport = claude.tap(options, activity)
    assert_type(transport, Transport)
    client = ClaudeSDKClient(options, transport=transport)
    guard = idle_guard(180, client=client, activity=activity)
    async with client.receive_response() | guard as messages:
        async for message in messages:
            assert_type(message, Message)
    assert_type(claude.of_client(client), Client | None)
    Connection(client.receive_response(), client=client, outlives_interrupt=None)
    claude.tap(options, "issue-7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def beside_the_stream(activity: Activity, point: ResumePoint) -> None:
    activity.hear(Liveness(), WorkStarted("w", "search"))
    activity.hear("ping")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(point.activity, Activity | None)
