"""The tests of seed 001, tasks 7 and 8 (S1-27): as they are written there, with other imports.

`from src.pipeline...` is `from streamguard.compat` and `tests.compat.mala` here; and the mark that
runs an async test is said for all, where its program says it in its configuration.
"""

import asyncio
import subprocess
from pathlib import Path

import pytest

from streamguard.compat import SubprocessWatchdog, SubprocessWatchdogTimeout, WatchdogConfig
from tests.compat.mala import (
    AgentSessionConfig,
    AgentSessionInput,
    AgentSessionRunner,
    AssistantMessage,
    FakeSDKClientFactory,
    TextBlock,
)

pytestmark = pytest.mark.anyio


@pytest.mark.unit
async def test_watchdog_kills_idle_subprocess():
    """Watchdog kills a subprocess that stops producing output."""
    # Spawn a real subprocess that sleeps forever
    proc = subprocess.Popen(["sleep", "3600"])

    try:
        watchdog = SubprocessWatchdog(
            proc.pid,
            WatchdogConfig(timeout_seconds=0.5, poll_interval_seconds=0.1),
        )

        with pytest.raises(SubprocessWatchdogTimeout):
            await watchdog.monitor()

        # Verify process was killed
        assert proc.poll() is not None  # Process has exited
    finally:
        # Cleanup in case test failed
        proc.kill()
        proc.wait()


@pytest.mark.unit
async def test_watchdog_resets_on_activity():
    """Watchdog timer resets when activity is notified."""
    proc = subprocess.Popen(["sleep", "3600"])

    try:
        watchdog = SubprocessWatchdog(
            proc.pid,
            WatchdogConfig(timeout_seconds=0.5, poll_interval_seconds=0.1),
        )

        # Keep notifying activity
        async def keep_alive():
            for _ in range(10):
                await asyncio.sleep(0.1)
                watchdog.notify_activity()
            watchdog.stop()

        # Both tasks run - watchdog should not timeout
        await asyncio.gather(watchdog.monitor(), keep_alive())

        # Process should still be alive (we stopped watchdog, not killed process)
        assert proc.poll() is None
    finally:
        proc.kill()
        proc.wait()


@pytest.mark.unit
async def test_watchdog_handles_already_dead_process():
    """Watchdog exits gracefully if process is already dead."""
    proc = subprocess.Popen(["true"])  # Exits immediately
    proc.wait()  # Wait for it to exit

    watchdog = SubprocessWatchdog(
        proc.pid,
        WatchdogConfig(timeout_seconds=1.0, poll_interval_seconds=0.1),
    )

    # Should exit without raising
    await watchdog.monitor()


@pytest.mark.unit
def test_get_pid_from_client_with_fake():
    """Test PID extraction from fake client."""

    class FakeClient:
        def get_subprocess_pid(self) -> int | None:
            return 12345

    from tests.compat.mala import _get_pid_from_client

    assert _get_pid_from_client(FakeClient()) == 12345


@pytest.mark.unit
def test_get_pid_from_client_returns_none_when_unavailable():
    """Test PID extraction returns None for clients without PID access."""

    class FakeClient:
        pass

    from tests.compat.mala import _get_pid_from_client

    assert _get_pid_from_client(FakeClient()) is None


class HangingSDKClient:
    """Fake SDK client that simulates a stuck subprocess."""

    def __init__(self):
        # Spawn a real subprocess that sleeps
        self._proc = subprocess.Popen(["sleep", "3600"])

    def get_subprocess_pid(self) -> int:
        return self._proc.pid

    async def __aenter__(self):
        return self

    async def __aexit__(self, *args):
        self._proc.kill()
        self._proc.wait()

    async def query(self, prompt: str) -> None:
        pass

    async def receive_response(self):
        # Yield one message then hang forever
        yield AssistantMessage(content=[TextBlock(text="Starting...")])
        await asyncio.sleep(float("inf"))  # Simulate stuck


@pytest.mark.integration
async def test_watchdog_kills_stuck_session():
    """Verify watchdog kills session when subprocess is stuck."""
    config = AgentSessionConfig(
        repo_path=Path("/tmp"),
        timeout_seconds=300,
        watchdog_enabled=True,
        watchdog_timeout_seconds=1.0,  # Short timeout for test
        watchdog_poll_interval=0.1,
    )

    factory = FakeSDKClientFactory(HangingSDKClient)
    runner = AgentSessionRunner(config, sdk_client_factory=factory)

    input = AgentSessionInput(issue_id="test-1", prompt="test")  # noqa: A001 - its name

    with pytest.raises(SubprocessWatchdogTimeout):
        await runner.run_session(input)

    # Verify the subprocess was killed
    assert factory.last_client._proc.poll() is not None
