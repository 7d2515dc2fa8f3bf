"""Many at once, and many one after another: nothing is left over, and walks are shared."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from streamguard.process import ProcessTree, marked_env, table
from tests.process.backends import PATIENCE, open_fds


def test_200_at_once(loop, backends, monkeypatch):
    """D4: all end; they share the walks through /proc that each alone would have made."""
    walks = []
    read_table = table.read_table
    monkeypatch.setattr(table, "read_table", lambda: walks.append(1) or read_table())
    started = [
        backends.popen(["sleep", "600"], env=marked_env(), close_fds=False) for _ in range(200)
    ]
    causes = []

    async def main():
        before = open_fds()

        async def guard(process):
            with ProcessTree.adopt(process) as tree:
                causes.append((await tree.terminate(grace=PATIENCE)).cause)

        with anyio.fail_after(3 * PATIENCE):
            async with anyio.create_task_group() as tasks:
                for process in started:
                    tasks.start_soon(guard, process)
        assert open_fds() == before

    loop.run(main)
    assert causes == ["terminated"] * 200
    assert backends.living() == set()
    assert len(walks) <= 200  # one before and two after each would be 600


@pytest.mark.timeout(120)
def test_cycles_leave_nothing(loop, backends):
    """Section 12: 1,000 cycles over the three loops: no descriptor, zombie, thread or task."""
    cycles, at_once = 340, 10

    async def main():
        async def cycle():
            process = await anyio.open_process(["sleep", "600"], stdout=None, stderr=None)
            with ProcessTree.adopt(process) as tree:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tree.wait_dead)
                    ended = await tree.terminate(grace=PATIENCE)
            assert (ended.cause, ended.exit) == ("terminated", -15)
            await process.aclose()

        async def some():
            async with anyio.create_task_group() as tasks:
                for _ in range(at_once):
                    tasks.start_soon(cycle)

        await some()  # what a loop opens once for all
        before = open_fds(), tasks_of(loop)
        for _ in range(cycles // at_once):
            await some()
        deadline = time.monotonic() + PATIENCE
        while (open_fds(), tasks_of(loop)) != before and time.monotonic() < deadline:
            await anyio.sleep(0.01)
        assert (open_fds(), tasks_of(loop)) == before

    threads = threading.active_count()
    loop.run(main)
    if loop.is_asyncio:  # trio keeps the threads that start its processes for some seconds
        assert threading.active_count() <= threads
    assert children_of_ours() == []


def tasks_of(loop):
    if loop.is_asyncio:
        import asyncio

        return len(asyncio.all_tasks())
    import trio

    return trio.lowlevel.current_statistics().tasks_living


def children_of_ours():
    import os

    return [stat for stat in table.read_table().stats.values() if stat.parent == os.getpid()]
