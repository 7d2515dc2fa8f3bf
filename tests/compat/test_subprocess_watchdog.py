"""`streamguard.compat`: what a program with a watchdog of its own would test, and what it gains.

What such a program does test, word for word, is in `test_seed_001`; the clock, in virtual time, in
`test_watchdog_clock`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import streamguard
from streamguard import ConfigError, IdleTimeoutError, idle_guard
from streamguard.compat import (
    SubprocessWatchdog,
    SubprocessWatchdogTimeout,
    WatchdogConfig,
    get_pid_from_client,
)
from streamguard.events import (
    ProcessKilled,
    TimedOut,
    WatchdogEvent,
    WatchdogKilled,
    WatchdogStarted,
    WatchdogTimeout,
)
from streamguard.process.identity import PidfdHandle
from tests.process.backends import PATIENCE
from tests.support import Events

SHORT = WatchdogConfig(timeout_seconds=0.5, poll_interval_seconds=0.1)


@pytest.fixture
def run(loop):
    """Runs an async function on the loop, but not for ever."""

    def run(main, *args):
        async def bounded():
            with anyio.fail_after(PATIENCE):
                return await main(*args)

        return loop.run(bounded)

    return run


@pytest.fixture
def sleeper(backends):
    """A process that says nothing and does nothing."""
    return backends.popen(["sleep", "3600"])


# -- the process ---------------------------------------------------------------------------------


def test_watchdog_kills_idle_subprocess(run, sleeper):
    watchdog = SubprocessWatchdog(sleeper.pid, SHORT)
    with pytest.raises(
        SubprocessWatchdogTimeout, match=f"^Subprocess {sleeper.pid} idle for [01]s, killed\\. T"
    ):
        run(watchdog.monitor)
    assert sleeper.poll() is not None


def test_watchdog_handles_already_dead_process(run, backends):
    process = backends.popen(["true"])
    process.wait()
    watchdog = SubprocessWatchdog(
        process.pid, WatchdogConfig(timeout_seconds=1.0, poll_interval_seconds=0.1)
    )
    run(watchdog.monitor)


def test_a_process_that_ends_by_itself_ends_the_watch(run, sleeper):
    """It exits, and no idle limit is waited for; nor is anything else of it ended."""
    watchdog = SubprocessWatchdog(sleeper.pid)

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            await anyio.lowlevel.checkpoint()
            sleeper.kill()

    run(main)


def test_it_is_asked_first_and_killed_after_the_grace(run, backends):
    backend = backends.start("ignore", "ready", "hang")
    events = Events()
    config = WatchdogConfig(timeout_seconds=0.2, kill_grace_seconds=0.2)
    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        run(SubprocessWatchdog(backend.pid, config, observer=events).monitor)
    (killed,) = events.of(ProcessKilled)
    assert killed.signals == raised.value.teardown.signals
    assert killed.signals[0] == "TERM"
    assert killed.signals[-1] == "KILL"
    assert backends.living() == set()


def test_what_the_process_had_started_ends_with_it(run, backends):
    backend = backends.start("child", "ignore", "detach", "ready", "hang", ";", "ready", "hang")
    config = WatchdogConfig(timeout_seconds=0.2, kill_grace_seconds=0.2)
    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        run(SubprocessWatchdog(backend.pid, config).monitor)
    assert raised.value.teardown.confirmed
    assert backends.living() == set()


def lines_of(caplog, *events):
    """What the log has of these events: level, words and fields."""
    return [
        (record.levelname, record.getMessage(), record.streamguard)
        for record in caplog.records
        if getattr(record, "streamguard", {}).get("event") in events
    ]


def test_what_is_told(run, sleeper, caplog):
    """S1-09, S1-10: the lines as the seed words them, and the same as flat dicts."""
    caplog.set_level("DEBUG", "streamguard")
    pid, events = sleeper.pid, Events()
    watchdog = SubprocessWatchdog(pid, SHORT, observer=events)
    watchdog.notify_activity()
    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        run(watchdog.monitor)
    activity, started, timeout, killed = lines_of(
        caplog, "watchdog.started", "watchdog.activity", "watchdog.timeout", "watchdog.killed"
    )
    assert started[:2] == ("INFO", f"Watchdog started for PID {pid}, timeout=0.5s")
    assert activity[0] == "DEBUG"
    assert timeout[:2] == ("WARNING", f"Watchdog killing subprocess {pid} after 0.5s idle")
    assert killed[:2] == ("INFO", f"Subprocess {pid} terminated gracefully")
    config = {"timeout_seconds": 0.5, "poll_interval_seconds": 0.1, "kill_grace_seconds": 5.0}
    assert {"event": "watchdog.started", "pid": pid, **config}.items() <= started[2].items()
    assert timeout[2]["pid"] == pid
    assert timeout[2]["idle_seconds"] >= 0.5
    assert killed[2]["signals"][0] == "TERM"
    kinds = [type(event) for event in events if isinstance(event, WatchdogEvent)]
    assert kinds == [WatchdogStarted, WatchdogTimeout, WatchdogKilled]
    assert isinstance(raised.value, IdleTimeoutError)
    assert raised.value.verdict is events.of(TimedOut)[0].verdict


def test_what_is_told_of_one_that_had_to_be_killed(run, backends, caplog):
    """S1-09, S1-10: TERM is told from KILL."""
    caplog.set_level("INFO", "streamguard")
    backend = backends.start("ignore", "ready", "hang")
    config = WatchdogConfig(timeout_seconds=0.2, kill_grace_seconds=0.2)
    with pytest.raises(SubprocessWatchdogTimeout):
        run(SubprocessWatchdog(backend.pid, config).monitor)
    ((level, text, fields),) = lines_of(caplog, "watchdog.killed")
    assert (level, text) == ("WARNING", f"Subprocess {backend.pid} required SIGKILL")
    assert "KILL" in fields["signals"]


def test_one_that_cannot_be_killed_is_not_called_killed(run, sleeper, caplog, monkeypatch):
    """S1-02, D5: neither the error nor the log says what is not so."""
    caplog.set_level("INFO", "streamguard")
    monkeypatch.setattr(PidfdHandle, "send", lambda self, number: True)
    monkeypatch.setattr(PidfdHandle, "send_to_group", lambda self, number: True)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    config = WatchdogConfig(timeout_seconds=0.2, kill_grace_seconds=0.05)
    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        run(SubprocessWatchdog(sleeper.pid, config).monitor)
    monkeypatch.undo()
    assert sleeper.poll() is None
    assert str(raised.value).startswith(f"Subprocess {sleeper.pid} idle for 0s, NOT killed")
    assert not raised.value.teardown.confirmed
    assert lines_of(caplog, "watchdog.killed") == []


class Span:
    """A tracer's span, as the seed's program has it."""

    def __init__(self, error=None):
        self.told = []
        self.error = error

    def log_event(self, name, fields):
        self.told.append((name, fields))
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, ValueError("the tracer's own")])
def test_a_tracer_is_told_in_one_event(run, sleeper, error):
    """S1-11: pid and idle time together; E6: what it raises disturbs nobody."""
    span = Span(error)
    client = HangingSDKClient(sleeper)
    with pytest.raises(SubprocessWatchdogTimeout):
        run(SubprocessWatchdog.for_client(client, SHORT, tracer=span).monitor)
    ((name, fields),) = span.told
    assert name == "watchdog_timeout"
    assert fields.keys() == {"pid", "idle_seconds"}
    assert fields["pid"] == sleeper.pid
    assert fields["idle_seconds"] >= 0.5


def test_its_verdicts_are_told_from_those_of_an_idle_limit(run, sleeper, caplog):
    """S1-28: both are `limit="idle"`; `guard` says whose."""
    prometheus = pytest.importorskip("prometheus_client")
    from streamguard.observers import PrometheusObserver

    registry = prometheus.CollectorRegistry()
    observer = PrometheusObserver(registry)

    async def silence():
        await anyio.sleep_forever()
        yield

    async def main():
        async for _ in silence() | idle_guard(0.1, observer=observer):
            pass

    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        run(SubprocessWatchdog(sleeper.pid, SHORT, observer=observer).monitor)
    with pytest.raises(IdleTimeoutError) as fired:
        run(main)
    assert (raised.value.verdict.guard, fired.value.verdict.guard) == ("watchdog", "idle_guard")
    for guard in ("watchdog", "idle_guard"):
        labels = {"stream": "other", "limit": "idle", "enforced": "yes", "guard": guard}
        assert registry.get_sample_value("streamguard_timeouts_total", labels) == 1
    told = [fields["guard"] for _, _, fields in lines_of(caplog, "timed_out")]
    assert told == ["watchdog", "idle_guard"]


# -- stopping ------------------------------------------------------------------------------------


def test_stopped_before_it_began(run, sleeper):
    watchdog = SubprocessWatchdog(sleeper.pid, SHORT)
    watchdog.stop()
    run(watchdog.monitor)
    run(watchdog.monitor)
    watchdog.notify_activity()
    assert sleeper.poll() is None


def test_a_monitor_that_was_cancelled_is_not_taken_for_one_that_watches(run, sleeper):
    """Nobody is ended by the cancel; and once means once."""
    watchdog = SubprocessWatchdog(sleeper.pid)

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await watchdog.monitor()

    with pytest.raises(RuntimeError, match="is closed"):
        run(main)
    assert sleeper.poll() is None


def test_activity_may_be_told_from_a_thread(run, sleeper):
    watchdog = SubprocessWatchdog(sleeper.pid)

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            await anyio.to_thread.run_sync(watchdog.notify_activity)
            while watchdog.activity.last_progress is None:
                await anyio.sleep(0.01)
            watchdog.stop()

    run(main)


def test_it_may_be_stopped_from_a_thread(run, sleeper):
    """S1-03: there it is a flag that is set."""
    watchdog = SubprocessWatchdog(sleeper.pid)

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            while watchdog.activity.started is None:
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(watchdog.stop)

    run(main)
    assert sleeper.poll() is None


def test_the_kill_switch(run, sleeper, monkeypatch):
    """`STREAMGUARD_MODE=off` stands in for a program's own variable; deaths are noticed."""
    monkeypatch.setenv("STREAMGUARD_MODE", "off")
    watchdog = SubprocessWatchdog(sleeper.pid, WatchdogConfig(timeout_seconds=0.1))

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            await anyio.sleep(0.5)
            assert sleeper.poll() is None
            os.kill(sleeper.pid, signal.SIGKILL)

    run(main)


# -- the pid of a client -------------------------------------------------------------------------


@pytest.mark.parametrize("what", [None, "12345", 0, -1, NotImplementedError()])
def test_what_is_no_pid(what):
    class FakeClient:
        def get_subprocess_pid(self):
            if isinstance(what, Exception):
                raise what
            return what

    assert get_pid_from_client(FakeClient()) is None


def test_a_client_that_keeps_its_process_to_itself():
    @dataclass
    class Part:
        pid: int = 12345

    client = Part()
    client._transport = Part()
    client._transport._process = Part()
    assert get_pid_from_client(client) == 12345
    client._transport = None
    assert get_pid_from_client(client) is None


# -- whole sessions ------------------------------------------------------------------------------


@dataclass
class TextBlock:
    text: str


@dataclass
class AssistantMessage:
    content: list[TextBlock] = field(default_factory=list)


class HangingSDKClient:
    """A client whose process is stuck: one message, and nothing more for ever."""

    def __init__(self, process, *, tells_pid=True):
        self._proc = process
        self._ended = anyio.Event()
        if tells_pid:
            self.get_subprocess_pid = lambda: process.pid

    async def disconnect(self):
        self._proc.kill()
        self._ended.set()

    async def receive_response(self):
        yield AssistantMessage(content=[TextBlock(text="Starting...")])
        await self._ended.wait()


async def session(client, config, seen):
    """A message loop with a watchdog beside it, as the program has it."""
    watchdog = SubprocessWatchdog.for_client(client, config)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            try:
                async for message in client.receive_response():
                    watchdog.notify_activity()
                    seen.append(message)
            finally:
                watchdog.stop()
    except* SubprocessWatchdogTimeout as group:
        raise group.exceptions[0] from None


async def session_of_asyncio(client, config, seen):
    """The same in asyncio's own group, which cancels its tasks natively."""
    watchdog = SubprocessWatchdog.for_client(client, config)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watchdog.monitor())
            try:
                async for message in client.receive_response():
                    watchdog.notify_activity()
                    seen.append(message)
            finally:
                watchdog.stop()
    except* SubprocessWatchdogTimeout as group:
        raise group.exceptions[0] from None


@pytest.fixture(params=[session, session_of_asyncio])
def run_session(request, loop):
    if request.param is session_of_asyncio and not loop.is_asyncio:
        pytest.skip("asyncio's own")
    return request.param


def test_watchdog_kills_stuck_session(run, run_session, sleeper):
    config = WatchdogConfig(timeout_seconds=1.0, poll_interval_seconds=0.1)
    seen = []

    async def main():
        await run_session(HangingSDKClient(sleeper), config, seen)

    with pytest.raises(SubprocessWatchdogTimeout):
        run(main)
    assert len(seen) == 1
    assert sleeper.poll() is not None


def test_a_client_without_a_pid_is_disconnected(run, run_session, sleeper, caplog):
    """The fallback: silence still ends the backend, by the one means there is."""
    seen = []

    async def main():
        await run_session(HangingSDKClient(sleeper, tells_pid=False), SHORT, seen)

    with pytest.raises(
        SubprocessWatchdogTimeout, match=r"^Backend idle for \d+s, disconnected\. T"
    ) as raised:
        run(main)
    assert raised.value.teardown.disconnect == "returned"
    assert (
        "Could not access subprocess PID of HangingSDKClient: the watchdog can only" in caplog.text
    )
    sleeper.wait(PATIENCE)


def test_a_session_that_ends_well_or_fails_stops_the_watch(run, run_session, sleeper):
    """A normal end, and an error of the loop's own: the process is the client's to end."""

    class Client(HangingSDKClient):
        def __init__(self, process, error):
            super().__init__(process)
            self.error = error

        async def receive_response(self):
            yield AssistantMessage()
            if self.error is not None:
                raise self.error

    async def main(error):
        await run_session(Client(sleeper, error), WatchdogConfig(), [])

    run(main, None)
    with pytest.raises(ExceptionGroup) as raised:
        run(main, ConnectionError("the client's own"))
    assert raised.group_contains(ConnectionError)
    assert sleeper.poll() is None


# -- the rest ------------------------------------------------------------------------------------


def test_who_has_neither_pid_nor_disconnect():
    with pytest.raises(ConfigError, match="nothing to end"):
        SubprocessWatchdog(None)


def test_who_must_not_be_ended():
    with pytest.raises(ConfigError, match="is this process"):
        SubprocessWatchdog(os.getpid())


def test_the_defaults_and_that_the_root_knows_nothing_of_it():
    assert WatchdogConfig() == WatchdogConfig(180.0, 10.0, 5.0)
    assert not any("Watchdog" in name for name in dir(streamguard))
    assert "streamguard.compat" in sys.modules
