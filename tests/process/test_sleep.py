"""B5 where time is real: the descriptor that tells of a wake, and processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import anyio
import pytest

from streamguard import IdleTimeoutError, idle_guard
from streamguard import _loops as loops
from streamguard._base import waking
from streamguard._loops import _asyncio, _trio
from tests.process.backends import PATIENCE, open_fds
from tests.process.test_guard import KNOWN, says, take

NIGHT = 28_800.0
LONG = 600.0
AFTER = 0.2


class Wake:
    """In the place of the timer: readable when the test says that the machine has woken."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        return self._reading

    def come(self) -> None:
        os.write(self._writing, b".")

    def read(self) -> None:
        os.read(self._reading, 8)

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def machine(monkeypatch):
    """Its wake timers, as they are made, and how long it has slept."""
    made: list[Wake] = []
    slept = [0.0]

    def make() -> Wake:
        made.append(Wake())
        return made[-1]

    for module in (_asyncio, _trio):
        monkeypatch.setattr(module, "wake_timer", make)
    monkeypatch.setattr(waking, "slept", lambda: slept[0])
    return made, slept


async def night_over(machine, *, is_asleep=True):
    made, slept = machine
    while not made:
        await anyio.sleep(0.005)
    await anyio.sleep(0.05)
    slept[0] += NIGHT if is_asleep else 0.0
    made[-1].come()


@pytest.mark.skipif(sys.platform != "linux", reason="a timer that tells of it is Linux's")
def test_b5_a_timer_that_waits_for_the_clock_to_be_set():
    """It waits, costs a descriptor, and gives that back."""
    before = open_fds()
    timer = waking.WakeTimer()
    assert open_fds() > before
    timer.read()  # nothing has come: it says so at once
    timer.close()
    timer.close()
    assert open_fds() == before


def test_b5_on_this_machine_a_moment_is_no_sleep():
    sleeps = waking.Sleeps()
    time.sleep(0.01)
    assert sleeps.news() == 0.0


def test_b5_the_loop_hears_of_the_wake_at_once(loop, machine):
    """B5: 600 s are left of the window, and nobody would have woken up before."""

    async def main():
        before = open_fds()
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(night_over, machine)
            messages, error = await take(says("one") | idle_guard(LONG, after_sleep=AFTER))
        assert messages == ["one"]
        assert type(error) is IdleTimeoutError
        assert error.verdict.limit == "after_sleep"
        assert error.verdict.elapsed >= AFTER
        assert time.monotonic() - began < PATIENCE
        await anyio.sleep(0.05)  # trio's timekeeper is a task, which has to come to its end
        assert open_fds() == before

    loop.run(main)


def test_b5_a_clock_that_is_only_set_is_no_sleep(loop, machine):
    """The control: the descriptor is readable then, too."""

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: night_over(machine, is_asleep=False))
            with anyio.move_on_after(1.0) as patience:
                await take(says("one") | idle_guard(LONG, after_sleep=AFTER))
        assert patience.cancelled_caught

    loop.run(main)


def test_b5_no_descriptor_is_held_where_nobody_waits(loop, machine):
    async def main():
        before = open_fds()
        for _ in range(20):
            async with says("one") | idle_guard(LONG) as stream:
                async for _message in stream:
                    break
        await anyio.sleep(0.05)
        assert open_fds() == before

    loop.run(main)


def test_b5_with_it_off_no_descriptor_is_made(loop, machine):
    made, _ = machine

    async def main():
        guard = idle_guard(LONG, after_sleep=None)
        async with says("one") | guard as stream:
            async for _message in stream:
                break
        async with says("one") | idle_guard(None, total=LONG) as stream:
            async for _message in stream:
                break

    loop.run(main)
    assert made == []


def test_b5_one_timer_serves_all_streams_of_a_loop(loop, machine):
    made, _ = machine

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(take, says("one") | idle_guard(LONG))
            await anyio.sleep(0.2)
            tasks.cancel_scope.cancel()

    loop.run(main)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("knobs", "ends"),
    [({}, False), ({"after_sleep": AFTER}, True), ({"after_sleep": AFTER, "read": KNOWN}, True)],
)
def test_b5_a_process_that_nobody_understands_is_left_alone(loop, backends, machine, knobs, ends):
    """Its silence may be a build. Who writes the limit says that it is none; a known one tells its work."""
    process = backends.popen(["sleep", "600"], stdout=subprocess.DEVNULL)

    async def main():
        guard = idle_guard(LONG, process=process, kill_grace=0, **knobs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(night_over, machine)
            with anyio.move_on_after(1.5 if not ends else PATIENCE) as patience:
                _, error = await take(says("one") | guard)
                assert error.verdict.limit == "after_sleep"
        assert patience.cancelled_caught is not ends

    loop.run(main)


def test_b5_the_default_holds_for_a_process_that_is_understood(loop, backends, monkeypatch):
    process = backends.popen(["sleep", "600"])
    slept = [0.0]
    monkeypatch.setattr(waking, "slept", lambda: slept[0])

    async def main():
        guard = idle_guard(LONG, process=process, kill_grace=0, read=KNOWN)
        async with says("one") | guard as stream:
            async with anyio.create_task_group() as tasks:

                async def pull():
                    async for _message in stream:
                        pass

                tasks.start_soon(pull)
                await anyio.sleep(0.1)
                slept[0] += NIGHT
                keeper = loops.current().timekeeper
                keeper.look_for_sleep()
                nearest = min(entry[0] for entry in keeper._heap)
                assert nearest - loops.current().clock() <= 30
                tasks.cancel_scope.cancel()

    loop.run(main)
