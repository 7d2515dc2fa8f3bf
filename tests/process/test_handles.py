"""One process at the edges: what changes between a look and what follows it, forced at the seam."""

from __future__ import annotations

import errno
import os
import signal
from types import SimpleNamespace

import anyio
import pytest

from streamguard.process import ProcessTree, identity
from streamguard.process.identity import PidfdHandle, SignalHandle, StatHandle, UnavailableError
from tests.process.backends import PATIENCE, comes_true, is_dead


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.fixture
def gone(backends):
    """A process that was held while it lived, and has been reaped since."""
    backend = backends.start("ready", "hang")
    handles = [way.open(backend.pid) for way in (PidfdHandle, StatHandle, SignalHandle)]
    backend.kill()
    backend.wait()
    yield handles
    for handle in handles:
        handle.close()


def test_one_that_goes_between_the_look_and_the_signal_is_dead(gone, monkeypatch):
    """D4: the kernel says so, and then nothing is sent to its pid again."""
    monkeypatch.setattr(PidfdHandle, "_has_ended", lambda _: False)
    monkeypatch.setattr(StatHandle, "_has_ended", lambda _: False)
    monkeypatch.setattr(SignalHandle, "_has_ended", lambda _: False)
    for handle in gone:
        assert not handle.is_dead
        assert not handle.send(signal.SIGTERM)
        assert handle.is_dead


async def test_one_that_goes_between_the_look_and_the_wait_is_dead(loop, gone, monkeypatch):
    """D4: a pid that is its no longer is not waited for, whoever has it now."""
    monkeypatch.setattr(PidfdHandle, "_has_ended", lambda _: False)
    monkeypatch.setattr(os, "pidfd_open", lambda _, own=os.pidfd_open: own(os.getpid()))
    with anyio.fail_after(PATIENCE):
        await gone[0].wait_dead()
    assert gone[0].is_dead


def test_one_that_goes_while_it_is_opened_is_not_there(backends, monkeypatch):
    """D4: a pidfd of what was reaped is of nobody."""
    backend = backends.start("ready", "hang")
    monkeypatch.setattr(signal, "pidfd_send_signal", raising(ProcessLookupError(errno.ESRCH, "")))
    with pytest.raises(ProcessLookupError):
        PidfdHandle.open(backend.pid)


def test_one_that_its_owner_reaps_while_it_is_adopted_is_dead(backends):
    """D4: what has its pid then may be anybody."""
    bystander = backends.start("ready", "hang")
    told = iter([None, 7])

    class Process:
        pid = bystander.pid

        @property
        def returncode(self):
            return next(told, 7)

    with ProcessTree.adopt(Process()) as tree:
        assert tree.is_dead
        assert tree._members.living == ()


def test_one_that_is_not_ours_to_signal_survives(loop, backends, monkeypatch):
    """D5: another user's process is held, and named when it is left."""
    monkeypatch.setattr(signal, "pidfd_send_signal", raising(PermissionError(errno.EPERM, "")))
    backend = backends.start("ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert tree._members.root.proof == "pidfd"
            return await tree.terminate(grace=0.05, budget=0.2)

    ended = loop.run(main)
    assert (ended.cause, ended.signals, ended.survivors) == ("survived", (), (backend.pid,))


def test_the_last_resort_knows_who_is_not_ours_from_who_is_gone(gone, monkeypatch):
    """D4: EPERM is a sign of life."""
    with pytest.raises(ProcessLookupError):
        SignalHandle.open(gone[2].pid)
    monkeypatch.setattr(os, "kill", raising(PermissionError(errno.EPERM, "")))
    assert not SignalHandle.open(gone[2].pid).is_dead


async def test_a_wait_without_a_descriptor_looks_now_and_then(loop, backends, monkeypatch):
    """D4: EMFILE is no reason not to notice a death."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, anyio.fail_after(PATIENCE):
        monkeypatch.setattr(os, "pidfd_open", raising(OSError(errno.EMFILE, "")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.wait_dead)
            await anyio.wait_all_tasks_blocked()
            backend.kill()


def test_a_wait_that_has_nothing_left_to_look_with_says_so(loop, backends, monkeypatch):
    """O7: closed, and no descriptor of its own: it neither waits for ever nor claims a death."""
    backend = backends.start("ready", "hang")
    errors = []

    async def main():
        tree = ProcessTree.adopt(backend)
        monkeypatch.setattr(os, "pidfd_open", raising(OSError(errno.EMFILE, "")))

        async def wait():
            with pytest.raises(RuntimeError, match="is closed") as raised:
                await tree.wait_dead()
            errors.append(raised.value)

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                tree.close()

    loop.run(main)
    assert len(errors) == 1
    assert not is_dead(backend.pid)


def test_without_psutil_that_way_is_not_there(monkeypatch):
    """D4: it is an optional extra."""
    monkeypatch.setattr(identity, "import_module", raising(ImportError()))
    with pytest.raises(UnavailableError):
        identity.PsutilHandle.open(os.getpid())


def test_what_psutil_may_answer(monkeypatch):
    """D4: gone is dead; what it may not look at, lives; any other failure is no way to know."""

    class PsutilError(Exception):
        pass

    class NoSuchProcessError(PsutilError):
        pass

    class AccessDeniedError(PsutilError):
        pass

    psutil = SimpleNamespace(
        Error=PsutilError,
        NoSuchProcess=NoSuchProcessError,
        AccessDenied=AccessDeniedError,
        STATUS_ZOMBIE="zombie",
    )
    monkeypatch.setattr(identity, "import_module", lambda _: psutil)

    def dead(error):
        process = SimpleNamespace(is_running=lambda: True, status=raising(error))
        return identity.PsutilHandle(12, process).is_dead

    assert dead(NoSuchProcessError())
    assert not dead(AccessDeniedError())
    for error, expected in (
        (NoSuchProcessError(), ProcessLookupError),
        (AccessDeniedError(), UnavailableError),
    ):
        psutil.Process = raising(error)
        with pytest.raises(expected):
            identity.PsutilHandle.open(12)


def test_a_death_is_seen_by_whichever_way(gone, backends):
    """D4: reaped, or left as a zombie, which signal 0 alone takes for alive."""
    assert [handle.is_dead for handle in gone] == [True, True, True]
    zombie = backends.start("ready", "exit", "0")
    assert comes_true(lambda: is_dead(zombie.pid))
    handles = [way.open(zombie.pid) for way in (PidfdHandle, StatHandle, SignalHandle)]
    assert [handle.is_dead for handle in handles] == [True, True, False]
    for handle in handles:
        handle.close()
