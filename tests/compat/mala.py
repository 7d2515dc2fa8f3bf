"""The program that the tests of `test_seed_001` are of: as little of it as they need.

Its runner is put together as its plan has it: a client, a message loop, a watchdog beside it in an
`asyncio.TaskGroup`, and the one error taken out of the group. Only the watchdog is ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from streamguard.compat import (
    SubprocessWatchdog,
    SubprocessWatchdogTimeout,
    WatchdogConfig,
    get_pid_from_client,
)

_get_pid_from_client = get_pid_from_client


@dataclass
class TextBlock:
    text: str


@dataclass
class AssistantMessage:
    content: list[TextBlock] = field(default_factory=list)


@dataclass
class AgentSessionConfig:
    repo_path: Path
    timeout_seconds: float
    watchdog_enabled: bool = True
    watchdog_timeout_seconds: float = 180.0
    watchdog_poll_interval: float = 10.0
    watchdog_kill_grace_seconds: float = 5.0


@dataclass
class AgentSessionInput:
    issue_id: str
    prompt: str


class FakeSDKClientFactory:
    def __init__(self, make):
        self._make = make
        self.last_client = None

    def create(self):
        self.last_client = self._make()
        return self.last_client


class AgentSessionRunner:
    def __init__(self, config, sdk_client_factory):
        self.config = config
        self._factory = sdk_client_factory

    async def run_session(self, session_input):
        """Every message of a session; SubprocessWatchdogTimeout if its process is stuck."""
        seen = []
        async with asyncio.timeout(self.config.timeout_seconds), self._factory.create() as client:
            await client.query(session_input.prompt)
            pid = _get_pid_from_client(client)
            if not (pid and self.config.watchdog_enabled):
                return [message async for message in client.receive_response()]
            watchdog = SubprocessWatchdog(
                pid,
                WatchdogConfig(
                    timeout_seconds=self.config.watchdog_timeout_seconds,
                    poll_interval_seconds=self.config.watchdog_poll_interval,
                    kill_grace_seconds=self.config.watchdog_kill_grace_seconds,
                ),
            )
            try:
                async with asyncio.TaskGroup() as tg:
                    tg.create_task(watchdog.monitor())
                    try:
                        async for message in client.receive_response():
                            watchdog.notify_activity()
                            seen.append(message)
                    finally:
                        watchdog.stop()
            except* SubprocessWatchdogTimeout as eg:
                raise eg.exceptions[0] from None
        return seen
