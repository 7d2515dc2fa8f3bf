"""Many at once, and many one after another: nothing is left over, and walks are shared."""

from __future__ import annotations

import os
import threading

import anyio
import anyio.lowlevel
import pytest

from streamguard.process import ProcessTree, hosted, marked_env, table
from streamguard.process.identity import PidfdHandle
from tests.process.backends import PATIENCE, comes_true, settled_fds


async def test_who_asks_in_one_pass_of_the_loop_shares_the_walk(loop, monkeypatch):
    """D4: 200 teardowns at once cost as many walks through /proc as one."""
    walks = []
    read_table = table.read_table
    monkeypatch.setattr(table, "read_table", lambda: walks.append(1) or read_table())

    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(hosted.fresh_table)
    assert len(walks) == 2


def test_200_at_once(loop, backends):
    """D4: all end, and nothing is left."""
    started = [
        backends.popen(["sleep", "600"], env=marked_env(), close_fds=False) for _ in range(200)
    ]
    causes = []

    async def main():
        before = settled_fds()

        async def guard(process):
            with ProcessTree.adopt(process) as tree:
                causes.append((await tree.terminate(grace=PATIENCE)).cause)

        async with anyio.create_task_group() as tasks:
            for process in started:
                tasks.start_soon(guard, process)
        assert settled_fds() == before

    loop.run(main)
    assert causes == ["terminated"] * 200
    assert backends.living() == set()


# A leak shows in the first few. For what is promised, 1,000 cycles: set it to 1000, and allow some minutes.
CYCLES = int(os.environ.get("STREAMGUARD_TEST_CYCLES", "60"))


@pytest.mark.timeout(max(60, CYCLES))
def test_cycles_leave_nothing(loop, backends):
    """Cost: no descriptor, zombie, thread or task."""
    at_once = 10

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
        before = settled_fds(), tasks_of(loop)
        for _ in range(CYCLES // at_once):
            await some()
        with anyio.fail_after(PATIENCE):
            while (settled_fds(), tasks_of(loop)) != before:
                await anyio.sleep(0.01)

    threads, children = threading.active_count(), children_of_ours()
    loop.run(main)
    # trio keeps the threads that start its processes for some seconds.
    kept = 0 if loop.is_asyncio else at_once
    assert comes_true(lambda: threading.active_count() <= threads + kept)
    assert children_of_ours() == children


def tasks_of(loop):
    if loop.is_asyncio:
        import asyncio

        return len(asyncio.all_tasks())
    import trio

    return trio.lowlevel.current_statistics().tasks_living


def children_of_ours():
    """Zombies are some, too."""
    return {pid for pid, stat in table.read_table().stats.items() if stat.parent == os.getpid()}


async def test_control_a_handle_that_is_not_closed_is_a_descriptor_that_is_left(
    loop, backends, monkeypatch
):
    """Cost: what counts descriptors here sees one."""
    before, kept = settled_fds(), []

    def forget_to_close(handle):
        kept.append(handle)

    with monkeypatch.context() as patch:
        patch.setattr(PidfdHandle, "close", forget_to_close)
        with ProcessTree.adopt(backends.popen(["sleep", "600"])) as tree:
            await tree.terminate(grace=PATIENCE)
        assert settled_fds() > before
    for handle in kept:
        handle.close()
