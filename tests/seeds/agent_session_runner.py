"""mala's session runner under its own names, on streamguard's public API.

So that tests that were written for mala run here with their imports changed and nothing else. Where
mala had 130 lines of retries there is one line: `session(...) | idle_guard(...) | reconnecting_resume(...)`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from streamguard import (
    Activity,
    Connection,
    IdleTimeoutError,
    idle_guard,
    reconnecting_resume,
    session,
)

__all__ = [
    "AgentSessionConfig",
    "AgentSessionInput",
    "AgentSessionOutput",
    "AgentSessionRunner",
    "IdleTimeoutError",
    "SDKClientFactory",
    "SDKClientProtocol",
]


@runtime_checkable
class SDKClientProtocol(Protocol):
    """What mala asks of a client; `disconnect` is what its idle retry added."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *args: object) -> None: ...

    async def query(self, prompt: str, session_id: str | None = None) -> None: ...

    def receive_response(self) -> AsyncIterator[Any]: ...

    async def disconnect(self) -> None: ...


class SDKClientFactory(Protocol):
    """Gives a client for each attempt."""

    def create(self, options: object) -> SDKClientProtocol: ...


@dataclass(frozen=True)
class AgentSessionConfig:
    """mala's knobs, with mala's defaults."""

    timeout_seconds: float = 3600.0
    idle_timeout_seconds: float | None = 720.0
    max_idle_retries: int = 2
    idle_retry_backoff: tuple[float, ...] = (0.0, 5.0, 15.0)


@dataclass(frozen=True)
class AgentSessionInput:
    """What the session is about."""

    issue_id: str
    prompt: str


@dataclass
class AgentSessionOutput:
    """What came of it."""

    session_id: str | None = None
    messages: list[Any] = field(default_factory=list)


# What comes between two queries, such as waiting for the log, the gate and the review: what to ask
# next, or None when the session is done.
Phases = Callable[[AgentSessionOutput], Awaitable[str | None]]


async def _no_phases(_output: AgentSessionOutput) -> None:
    return None


class AgentSessionRunner:
    """Runs one session: query, messages, phases without a query, and again."""

    def __init__(
        self,
        config: AgentSessionConfig,
        *,
        sdk_client_factory: SDKClientFactory,
        phases: Phases = _no_phases,
    ) -> None:
        self.config = config
        self.sdk_client_factory = sdk_client_factory
        self.phases = phases

    async def run_session(self, input: AgentSessionInput) -> AgentSessionOutput:  # noqa: A002 - mala's
        config, output = self.config, AgentSessionOutput()
        activity = Activity(input.issue_id, issue_id=input.issue_id)
        total = config.timeout_seconds if config.timeout_seconds < math.inf else None
        guard = idle_guard(config.idle_timeout_seconds, total=total, activity=activity)
        resume = reconnecting_resume(
            retries=config.max_idle_retries,
            backoff=config.idle_retry_backoff,
            prompt="Continue on issue {issue_id}.",
        )
        async with session(self._open, prompt=input.prompt) | guard | resume as chat:
            turn = chat
            while True:
                async for message in turn:
                    output.messages.append(message)
                output.session_id = chat.point.token
                if (pending_query := await self.phases(output)) is None:
                    return output
                turn = chat.ask(pending_query)

    @asynccontextmanager
    async def _open(self, point: Any) -> AsyncIterator[Connection[Any]]:
        client = self.sdk_client_factory.create(None)

        async def turn(prompt: str) -> AsyncIterator[Any]:
            await client.query(prompt, session_id=point.token)
            async for message in client.receive_response():
                yield message

        async with client:
            yield Connection(turn, client=client)
