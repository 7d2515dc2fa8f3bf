"""Death is what the process says itself: at once, on every loop, reaped or not."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import anyio.lowlevel
import pytest

from streamguard.process import ProcessTree, identity
from tests.process.backends import PATIENCE, comes_true, is_dead, settled_fds
from tests.process.conftest import RealLoop


async def test_a_process_that_exits_is_noticed(loop, backends):
    """D4: dead is what the pidfd says."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        assert not tree.is_dead
        assert tree.exit_status is None
        backend.kill()
        await tree.wait_dead()
        assert tree.is_dead
        assert tree.exit_status == -signal.SIGKILL


async def test_death_wakes_who_waits_without_being_looked_for(loop, backends, monkeypatch):
    """D4: p95 <= 5 ms. How fast it is, the benchmarks say; here, that nothing polls."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.wait_dead)
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(anyio, "sleep", None)
            backend.kill()


async def test_a_zombie_is_dead(loop, backends):
    """D4: a zombie is dead, though a signal still reaches it."""
    backend = backends.start("ready", "exit", "7")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        await tree.wait_dead()
        os.kill(backend.pid, 0)  # what a naive look would take for a sign of life
        assert tree.is_dead
        assert tree.exit_status == 7


def test_its_status_stays_for_its_owner_to_reap(loop, backends):
    """D4: never waitpid for somebody else's child."""
    backend = backends.start("ready", "exit", "7")

    async def main():
        with ProcessTree.adopt(backend.pid) as tree:
            await tree.wait_dead()
            ended = await tree.terminate()
        assert ended.exit == 7

    loop.run(main)
    assert os.waitpid(backend.pid, os.WNOHANG) == (backend.pid, 7 << 8)
    backend.returncode = 7


async def test_the_status_of_a_reaped_process_is_what_its_owner_says(loop, backends):
    """D4: the exit status, if it can be known without reaping."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        backend.terminate()
        backend.wait()
        assert (await tree.terminate()).exit == -signal.SIGTERM


async def test_the_kernel_keeps_the_status_of_a_process_that_was_reaped(loop, backends):
    """D4: for who holds a pidfd, from Linux 6.15; before that nobody but its owner knows."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend.pid) as tree:
        backend.terminate()
        backend.wait()
        told = identity._exit_from_kernel(tree._members.root._fd)
        assert told in (-signal.SIGTERM, None)
        assert (await tree.terminate()).exit == told


async def test_a_first_thread_that_ends_before_the_others_is_no_death(loop, backends):
    """D4: /proc shows such a process as a zombie, and it lives."""
    backend = backends.start("ready", "headless")
    assert comes_true(lambda: state_of(backend.pid) == "Z")
    with ProcessTree.adopt(backend) as tree:
        assert not tree.is_dead
        assert not is_dead(backend.pid)
        assert (await tree.terminate(grace=0)).confirmed
        assert tree.is_dead


async def test_it_is_noticed_while_a_grandchild_holds_the_pipe(loop, backends):
    """D4: a dead process does not mean the end of its stream, nor the reverse."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "exit", "0")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        await tree.wait_dead()
        os.set_blocking(backend.stdout.fileno(), False)
        assert backend.stdout.read() is None  # neither data nor an end


async def test_many_may_wait(loop, backends):
    """D4: one pidfd, any number of waiting tasks."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(tree.wait_dead)
            await anyio.wait_all_tasks_blocked()
            backend.kill()


def test_ending_and_dropping_it_disturbs_nobody_who_waits(loop, backends):
    """O7: uvloop aborts the whole program when a descriptor is closed that someone waits on."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        tree = ProcessTree.adopt(backend)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(tree.wait_dead)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(tree.terminate, 0.1)
            while tree._ending is None:
                await anyio.lowlevel.checkpoint()
            tree.close()
            del tree
            gc.collect()

    before = settled_fds()
    loop.run(main)
    assert backends.living() == set()
    assert settled_fds() == before


def test_a_native_cancel_at_the_instant_of_death_disturbs_nobody(backends):
    """O7: as above, with the cancel in each pass of the loop around the death."""

    async def main():
        for passes in range(6):
            backend = backends.popen(["sleep", "600"])
            with ProcessTree.adopt(backend) as tree:
                waits = [asyncio.ensure_future(tree.wait_dead()) for _ in range(3)]
                await asyncio.sleep(0)
                backend.kill()
                backend.wait()
                for _ in range(passes):
                    await asyncio.sleep(0)
                waits[0].cancel()
                tree.close()
                with anyio.fail_after(PATIENCE):
                    await asyncio.gather(*waits[1:])

    before = settled_fds()
    RealLoop("uvloop").run(main)
    assert settled_fds() == before


async def test_closing_disturbs_nobody_who_waits(loop, backends):
    """D4: `close` ends nothing, and takes no descriptor from under a waiting task."""
    backend = backends.start("ready", "hang")
    tree = ProcessTree.adopt(backend)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.wait_dead)
            await anyio.wait_all_tasks_blocked()
            tree.close()
            await anyio.wait_all_tasks_blocked()
            assert not is_dead(backend.pid)
            backend.kill()


async def test_a_death_wakes_nobody_else(loop, backends):
    """D4: not even who waits through a descriptor with the number of a wait that was given up."""
    first, second = backends.start("ready", "hang"), backends.start("ready", "hang")
    with ProcessTree.adopt(first) as tree, ProcessTree.adopt(second) as other:
        with anyio.move_on_after(0.01):
            await tree.wait_dead()
        with anyio.move_on_after(0.1) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other.wait_dead)
                await anyio.wait_all_tasks_blocked()
                first.kill()
                first.wait()  # reaped, it says more than a readiness that was asked for
        assert scope.cancelled_caught
        assert not other.is_dead


async def test_waking_up_proves_nothing(loop, backends, monkeypatch):
    """D4: dead is what the pidfd says, and not that a loop has woken us."""
    backend = backends.start("ready", "hang")
    monkeypatch.setattr(anyio, "wait_readable", lambda _: anyio.lowlevel.checkpoint())
    with ProcessTree.adopt(backend) as tree:
        with anyio.move_on_after(0.02) as scope:
            await tree.wait_dead()
        assert scope.cancelled_caught
        assert not tree.is_dead


async def test_a_wait_that_is_given_up_leaves_nothing(loop, backends):
    """O7: no descriptor, and the next wait works."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        before = settled_fds()
        for _ in range(10):
            with anyio.move_on_after(0.001):
                await tree.wait_dead()
        assert settled_fds() == before
        backend.kill()
        with anyio.fail_after(PATIENCE):
            await tree.wait_dead()


@pytest.mark.parametrize("kind", ["pid", "object"])
async def test_what_is_gone_already_is_dead(loop, backends, kind):
    """D4: adopting too late is no error, and signals nobody."""
    backend = backends.start("ready", "exit", "3")
    backend.wait()
    with ProcessTree.adopt(backend if kind == "object" else backend.pid) as tree:
        assert tree.is_dead
        await tree.wait_dead()
        ended = await tree.terminate()
    assert (ended.cause, ended.signals, ended.confirmed) == ("exited", (), True)
    assert ended.exit == (3 if kind == "object" else None)


def test_every_kind_of_process_object_can_be_adopted(loop, backends):
    """D4: asyncio's, anyio's and trio's own; subprocess's is what the other tests adopt."""

    async def main():
        started = [await anyio.open_process(["sleep", "600"], env=backends.env())]
        if loop.is_asyncio:
            import asyncio

            started.append(
                await asyncio.create_subprocess_exec("sleep", "600", env=backends.env())
            )
        else:
            import trio

            started.append(await trio.lowlevel.open_process(["sleep", "600"], env=backends.env()))
        for process in started:
            with ProcessTree.adopt(process) as tree:
                ended = await tree.terminate()
            assert (ended.cause, ended.exit) == ("terminated", -signal.SIGTERM)
            await process.wait()
        await started[0].aclose()

    loop.run(main)
    assert backends.living() == set()


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
