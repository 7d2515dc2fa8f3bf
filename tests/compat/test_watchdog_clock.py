"""S1-04: the clock of a `SubprocessWatchdog` runs from its construction. In virtual time."""

from __future__ import annotations

import anyio
import pytest

from streamguard.compat import SubprocessWatchdog, SubprocessWatchdogTimeout, WatchdogConfig
from streamguard.events import HalfTime, LoopStalled
from tests.support import Disconnect, Events

THREE_MINUTES = WatchdogConfig(timeout_seconds=180)


def watchdog_of(**options):
    return SubprocessWatchdog(None, THREE_MINUTES, disconnect=Disconnect(), **options)


async def fired_after(watchdog, began):
    """When its timeout came, counted from `began`."""
    with pytest.raises(SubprocessWatchdogTimeout) as raised:
        await watchdog.monitor()
    return anyio.current_time() - began, raised.value


@pytest.mark.parametrize("before", [0, 0.5, 100, 179])
async def test_the_time_before_monitor_counts_s1_04(loop, before):
    began, watchdog = anyio.current_time(), watchdog_of()
    await anyio.sleep(before)
    elapsed, error = await fired_after(watchdog, began)
    assert loop.took(elapsed, 180)
    assert loop.took(error.verdict.elapsed, 180)
    assert str(error).startswith("Backend idle for 180s, disconnected")


async def test_it_was_over_before_monitor_began_s1_04(loop):
    """It fires at once, and nobody says that the loop did not run."""
    events = Events()
    watchdog = watchdog_of(observer=events)
    await anyio.sleep(500)
    began = anyio.current_time()
    elapsed, _ = await fired_after(watchdog, began)
    assert loop.took(elapsed, 0)
    assert events.of(LoopStalled) == []


async def test_activity_before_monitor_begins_the_clock_anew_s1_04(loop):
    watchdog = watchdog_of()
    await anyio.sleep(100)
    began = anyio.current_time()
    watchdog.notify_activity()
    await anyio.sleep(100)
    elapsed, _ = await fired_after(watchdog, began)
    assert loop.took(elapsed, 180)


async def test_activity_begins_the_clock_anew_s1_27(loop):
    """Ten times within the limit, then no more."""
    watchdog = watchdog_of()
    last: list[float] = []

    async def keep_alive():
        for _ in range(10):
            await anyio.sleep(170)
            watchdog.notify_activity()
        last.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_alive)
        with pytest.raises(SubprocessWatchdogTimeout):
            await watchdog.monitor()
    assert loop.took(anyio.current_time() - last[0], 180)


async def test_a_stop_in_time_is_no_timeout_s1_13(loop):
    watchdog = watchdog_of()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.monitor)
        await anyio.sleep(179)
        watchdog.stop()
    assert watchdog.activity.status == "ended"


@pytest.mark.parametrize("observes", [True, False])
def test_half_time_is_told_only_to_who_observes_s1_10(loop, caplog, observes):
    caplog.set_level("DEBUG", "streamguard")
    events = Events()

    async def main():
        watchdog = watchdog_of(**({"observer": events} if observes else {}))
        await fired_after(watchdog, anyio.current_time())

    loop.run(main)
    told = [record.streamguard["event"] for record in caplog.records]
    assert ("half_time" in told) is observes
    assert len(events.of(HalfTime)) == observes
    assert "watchdog.timeout" in told
    assert "watchdog.killed" not in told  # there was no process


def test_mode_warn_ends_nothing_and_says_so(loop, caplog, monkeypatch):
    """T11, S1-19: told once; no tracer hears of a process that was not ended."""
    monkeypatch.setenv("STREAMGUARD_MODE", "warn")
    disconnect = Disconnect()

    async def main():
        watchdog = SubprocessWatchdog(None, THREE_MINUTES, disconnect=disconnect)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.monitor)
            await anyio.sleep(1000)
            watchdog.stop()

    loop.run(main)
    assert "Watchdog would be disconnecting the backend after 180" in caplog.text
    assert disconnect.calls == []
