"""Every way of knowing a process, forced at the one seam where it is chosen."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio.lowlevel
import anyio.to_thread
import pytest

from streamguard.process import ProcessTree, ending, identity, marked_env, procfs, table
from streamguard.process.identity import (
    WAYS,
    Handle,
    PidfdHandle,
    PsutilHandle,
    SignalHandle,
    StatHandle,
    UnavailableError,
)
from streamguard.process.table import Table
from tests.process.backends import CHILDREN, PATIENCE, comes_true, is_dead

without_psutil = pytest.mark.skipif(identity.psutil_or_none() is None, reason="needs psutil")
SEEING = [PidfdHandle, StatHandle, pytest.param(PsutilHandle, marks=without_psutil)]


def named(way):
    return way.proof if isinstance(way, type) else None


@pytest.fixture(params=SEEING, ids=named)
def way(request, monkeypatch):
    """Each way that sees a zombie for what it is."""
    monkeypatch.setattr(identity, "WAYS", (request.param,))
    return request.param


def test_the_best_comes_first():
    """D4: a pidfd, where there is one."""
    assert list(WAYS) == [PidfdHandle, StatHandle, PsutilHandle, SignalHandle]
    assert identity.open_handle(os.getpid()).proof == "pidfd"


def test_a_tree_ends(loop, backends, way):
    """D4: also without a pidfd: a grandchild in its own session, an orphan in the group."""
    words = ["child", "detach", "ready", "hang", ";", "child", "orphan", "ready", "hang", ";"]
    backend = backends.start(*words, "ignore", "ready", "hang", start_new_session=True)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert tree._members.root.proof == way.proof
            return await tree.terminate(grace=0.1)

    ended = loop.run(main)
    assert (ended.cause, ended.exit) == ("killed", -signal.SIGKILL)
    assert backends.living() == set()


def test_an_orphan_is_found_after_its_leader_was_reaped(loop, backends, way):
    """D4: by the group and its session, which must be what they were."""
    words = ["child", "orphan", "ready", "hang", ";", "ready", "exit", "0"]
    backend = backends.start(*words, start_new_session=True)

    async def main():
        with ProcessTree.adopt(backend.pid) as tree:
            await tree.wait_dead()
            backend.wait()
            assert (await tree.terminate(grace=0.1)).confirmed

    loop.run(main)
    assert backends.living() == set()


async def test_a_zombie_is_dead_and_keeps_its_status(loop, backends, way):
    """D4: seen in /proc, or told by psutil."""
    backend = backends.start("ready", "exit", "4")
    with ProcessTree.adopt(backend.pid) as tree, anyio.fail_after(PATIENCE):
        await tree.wait_dead()
        ended = await tree.terminate()
    assert (ended.cause, ended.exit) == ("exited", 4)


def test_a_process_without_its_first_thread_lives(backends, way):
    """D4: the state of a zombie, with threads left."""
    if way is PsutilHandle:
        pytest.skip("psutil cannot tell, and this is a matter of Linux alone")
    backend = backends.start("ready", "headless")
    assert comes_true(lambda: procfs.read_stat(backend.pid).state == "Z")
    handle = way.open(backend.pid)
    assert not handle.is_dead
    handle.close()


def test_what_is_not_there_is_not_opened(backends, way):
    """D4: by its name, so that the next way is not tried."""
    backend = backends.start("ready", "exit", "0")
    backend.wait()
    with pytest.raises(ProcessLookupError):
        identity.open_handle(backend.pid)


def test_death_is_final(backends, way):
    """D4: also where it had to be looked for."""
    backend = backends.start("ready", "hang")
    handle = way.open(backend.pid)
    assert handle.send(0)
    backend.kill()
    backend.wait()
    assert not handle.send(0)
    assert handle.is_dead
    assert not handle.holds_pid()
    handle.close()


async def test_the_last_resort_takes_a_zombie_for_alive(loop, backends, monkeypatch):
    """D4: a documented weakness; the owner's object, where there is one, knows better."""
    monkeypatch.setattr(identity, "WAYS", (SignalHandle,))
    backend = backends.start("ready", "exit", "0")
    assert comes_true(lambda: is_dead(backend.pid))

    with ProcessTree.adopt(backend.pid) as tree, anyio.fail_after(PATIENCE):
        assert not tree.is_dead
        backend.wait()
        await tree.wait_dead()
        assert tree.is_dead


async def test_the_last_resort_ends_a_process(loop, backends, monkeypatch):
    """D4: kill(0) and kill; its owner reaps, as it would."""
    monkeypatch.setattr(identity, "WAYS", (SignalHandle,))
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, backend.wait)
            ended = await tree.terminate()
    assert (ended.cause, ended.exit) == ("terminated", -signal.SIGTERM)


def test_ways_that_are_unavailable_are_passed_over(backends, monkeypatch):
    """D4: an old kernel, a sandbox, a limit: the next best, without a word."""

    class Never(Handle):
        proof = "none"

        @classmethod
        def open(cls, pid):
            raise UnavailableError

    monkeypatch.setattr(identity, "WAYS", (Never, StatHandle))
    assert identity.open_handle(os.getpid()).proof == "start time"
    monkeypatch.setattr(identity, "WAYS", (Never,))
    with pytest.raises(ProcessLookupError):
        identity.open_handle(os.getpid())


@pytest.mark.parametrize(
    "refusal", [PermissionError(), OSError(38, "ENOSYS"), OSError(24, "EMFILE")], ids=repr
)
def test_a_kernel_that_refuses_pidfds(backends, monkeypatch, refusal):
    """D4: seccomp, an old kernel, no descriptor left."""

    def refuse(*_):
        raise refusal

    backend = backends.start("ready", "hang")
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with ProcessTree.adopt(backend) as tree:
        assert repr(tree) == f"<ProcessTree of pid {backend.pid}: alive, start time>"


def test_a_kernel_that_opens_pidfds_but_takes_no_signals_through_them(backends, monkeypatch):
    """D4: a sandbox may know the one call and not the other."""

    def refuse(*_):
        raise OSError(38, "ENOSYS")

    backend = backends.start("ready", "hang")
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with ProcessTree.adopt(backend) as tree:
        assert tree._members.root.proof == "start time"


def test_a_kernel_that_knows_no_groups_through_pidfds(loop, backends, monkeypatch):
    """D4: before Linux 6.9 the group is proven by its leader, or by session and number."""
    send = signal.pidfd_send_signal

    def before_6_9(fd, number, info=None, flags=0):
        if flags:
            raise OSError(22, "EINVAL")
        return send(fd, number, info)

    monkeypatch.setattr(signal, "pidfd_send_signal", before_6_9)
    words = ["child", "ignore", "orphan", "ready", "hang", ";", "ready", "hang"]
    backend = backends.start(*words, start_new_session=True)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert (await tree.terminate(grace=0.1)).cause == "killed"

    loop.run(main)
    assert backends.living() == set()


def test_without_a_table_nothing_is_proven(loop, backends, monkeypatch):
    """D5: neither /proc nor psutil: the process is ended, its tree is not known to be."""
    monkeypatch.setattr(table, "read_table", lambda: Table({}, is_complete=False))
    backend = backends.start("ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            return await tree.terminate()

    ended = loop.run(main)
    assert (ended.cause, ended.confirmed, ended.survivors) == ("unproven", False, ())
    assert backends.living() == set()


@without_psutil
def test_the_table_of_psutil_shows_the_tree(loop, backends, monkeypatch):
    """D4: as on macOS, where it has not been run."""
    monkeypatch.setattr(procfs, "is_there", lambda: False)
    monkeypatch.setattr(identity, "_IS_LINUX", False)
    monkeypatch.setattr(identity, "WAYS", WAYS[1:])
    words = ["child", "detach", "ready", "hang", ";", "ignore", "ready", "hang"]
    backend = backends.start(*words)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert tree._members.root.proof == "psutil"
            return await tree.terminate(grace=0.1)

    assert loop.run(main).cause == "killed"
    assert backends.living() == set()


@contextmanager
def no_descriptor_to_spare():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


async def some_passes():
    """Let the other tasks look about, in vain; not for so long that they give up."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("grace", [0.1, 1e-9], ids=["a grace", "a grace that is over at once"])
def test_without_a_descriptor_to_spare_what_is_known_is_ended(loop, backends, caplog, grace):
    """D4: EMFILE during teardown: it goes on with whom it knows, and claims no more."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree, no_descriptor_to_spare():
            return await tree.terminate(grace=grace, budget=0.5)

    ended = loop.run(main)
    assert (ended.cause, ended.survivors) == ("unproven", ())
    assert backends.living() == set()
    assert not caplog.records


def test_the_first_end_of_a_program_needs_no_descriptor_either(loop):
    """D4: nothing can be imported then, so all that an end needs has been when it adopts."""
    told = subprocess.run(
        [sys.executable, CHILDREN / "scarce.py", loop.name],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (told.stdout, told.stderr) == (f"unproven {-signal.SIGTERM}\n", "")


def test_what_cannot_be_told_for_another_is_not_signalled(loop, backends, monkeypatch):
    """D4: without pidfds and with nothing to look at /proc with, a pid is only a number."""
    monkeypatch.setattr(identity, "WAYS", (StatHandle,))
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree, no_descriptor_to_spare():
            return await tree.terminate(grace=0.1, budget=0.5)

    ended = loop.run(main)
    assert (ended.cause, ended.signals, ended.survivors) == ("survived", (), (backend.pid,))
    assert backends.living() == {backend.pid}


@pytest.mark.parametrize("way", [PidfdHandle, StatHandle], ids=named)
def test_once_there_are_descriptors_again_the_end_is_proven(loop, backends, monkeypatch, way):
    """D4: repeated until nothing is left or the budget is spent."""
    monkeypatch.setattr(identity, "WAYS", (way,))
    backend = backends.start("child", "detach", "ready", "hang", ";", "ignore", "ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            async with anyio.create_task_group() as tasks:
                with no_descriptor_to_spare():
                    tasks.start_soon(tree.terminate, 0)
                    await some_passes()
            return tree.termination

    assert loop.run(main).cause == "killed"
    assert backends.living() == set()


def test_once_there_are_descriptors_again_an_empty_tree_is_proven_to_be(loop, backends):
    """D5: none known to live is not enough, until it could be looked for them."""
    backend = backends.start("ready", "exit", "0")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            await tree.wait_dead()
            async with anyio.create_task_group() as tasks:
                with no_descriptor_to_spare():
                    tasks.start_soon(tree.terminate)
                    await some_passes()
            return tree.termination

    assert loop.run(main).cause == "exited"


def test_who_cannot_be_held_ends_with_its_group(loop, backends, monkeypatch):
    """D4: the group is signalled as one, whoever of it is known."""
    words = ["child", "ignore", "orphan", "ready", "hang", ";", "ignore", "ready", "hang"]
    backend = backends.start(*words, start_new_session=True)

    def only_the_root(pid, own=identity.open_handle):
        if pid != backend.pid:
            raise ProcessLookupError
        return own(pid)

    monkeypatch.setattr(identity, "open_handle", only_the_root)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            return await tree.terminate(grace=0)

    assert loop.run(main).cause == "killed"
    assert comes_true(lambda: backends.living() == set())


def test_what_goes_wrong_inside_still_ends_the_process(loop, backends, monkeypatch, caplog):
    """D4: a fault of ours is logged, and the tree is killed all the same."""

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(ending.Ending, "_end", fail)
    backend = backends.start("ignore", "ready", "hang", env=marked_env())

    async def main():
        with ProcessTree.adopt(backend) as tree:
            return await tree.terminate()

    assert not loop.run(main).confirmed
    assert comes_true(lambda: backends.living() == set())
    assert "ZeroDivisionError" in caplog.text


assert sys.platform == "linux", "these tests read /proc"
