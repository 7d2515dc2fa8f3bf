"""`streamguard.compat` types as its users write it. Checked, never run."""

from __future__ import annotations

import asyncio
from typing import assert_type

from claude_agent_sdk import ClaudeSDKClient

from streamguard import Activity, Teardown
from streamguard.compat import (
    SubprocessWatchdog,
    SubprocessWatchdogTimeout,
    WatchdogConfig,
    get_pid_from_client,
)


async def beside_a_loop(client: ClaudeSDKClient) -> None:
    watchdog = SubprocessWatchdog.for_client(client, WatchdogConfig(timeout_seconds=60))
    assert_type(watchdog, SubprocessWatchdog)
    assert_type(watchdog.activity, Activity)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watchdog.monitor())
            async for _ in client.receive_response():
                watchdog.notify_activity()
            watchdog.stop()
    except* SubprocessWatchdogTimeout as group:
        for error in group.exceptions:
            if isinstance(error, SubprocessWatchdogTimeout):
                assert_type(error.teardown, Teardown | None)


def by_hand(client: ClaudeSDKClient) -> SubprocessWatchdog:
    pid = get_pid_from_client(client)
    assert_type(pid, int | None)
    SubprocessWatchdog("4711")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return SubprocessWatchdog(pid, disconnect=client.disconnect, observer=print)
