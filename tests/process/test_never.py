"""Whom no signal of ours may ever hit: us, what we come from, and everybody else."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from streamguard import ConfigError
from streamguard._base.variables import MARK
from streamguard.process import ProcessTree, marked_env, procfs
from streamguard.process.identity import PidfdHandle, StatHandle
from streamguard.process.table import Table
from tests.process.backends import CHILDREN, PATIENCE, is_dead, settled_fds

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def grandparent():
    return procfs.read_stat(os.getppid()).parent


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (0, "whole group"),
        (-5, "whole group"),
        (1, "init"),
        (os.getpid(), "this process"),
        (os.getppid(), "descends from"),
        (grandparent(), "pid"),
        (True, "no process"),
        (3.5, "no process"),
        ("12", "no process"),
        (SimpleNamespace(pid=None), "no pid yet"),
        (SimpleNamespace(pid=1), "init"),
    ],
    ids=[f"case{n}" for n in range(11)],  # a pid has no place in a name: workers must agree on it
)
def test_it_is_refused(target, says):
    """D4: never pid <= 1, self or an ancestor."""
    with pytest.raises(ConfigError, match=says) as raised:
        ProcessTree.adopt(target)
    assert isinstance(raised.value, ValueError)


def test_a_thread_is_refused():
    """D4: a signal to a thread's id would hit its whole process: here, us."""
    is_over, ids = threading.Event(), []
    thread = threading.Thread(
        target=lambda: (ids.append(threading.get_native_id()), is_over.wait())
    )
    thread.start()
    try:
        with pytest.raises(ConfigError, match="thread"):
            ProcessTree.adopt(ids[0])
    finally:
        is_over.set()
        thread.join()


def test_our_group_is_not_killed(loop, backends):
    """D4: never killpg on a group that is ours, which is where most backends are started."""
    bystander = backends.start("ready", "hang")
    backend = backends.start("ignore", "ready", "hang")
    assert os.getpgid(backend.pid) == os.getpgid(0)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert (await tree.terminate(grace=0.1)).cause == "killed"

    loop.run(main)
    assert backends.living() == {bystander.pid}


def test_a_group_that_we_have_joined_is_ours_whoever_leads_it(backends):
    """D4: also where the group has the backend's number."""
    told = subprocess.run(
        [sys.executable, CHILDREN / "joiner.py"],
        check=False,
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        process_group=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.stdout == b"killed True True\n"


def test_an_inherited_mark_is_nobodys_own(loop, backends, monkeypatch):
    """D4: an application that runs under a mark itself gives it to all that it starts."""
    monkeypatch.setenv(MARK, "of-our-own-guard")
    bystander = backends.start("ready", "hang")
    backend = backends.start("ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            await tree.terminate()

    loop.run(main)
    assert backends.living() == {bystander.pid}


def test_a_tool_is_ended_without_the_backend_that_started_it(loop, backends):
    """D4: the mark that it inherited is the backend's."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "hang", env=marked_env())
    (tool,) = backends.living() - {backend.pid}

    async def main():
        with ProcessTree.adopt(backend), ProcessTree.adopt(tool) as tree:
            await tree.terminate()

    loop.run(main)
    assert backends.living() == {backend.pid}


async def test_a_mark_that_two_backends_share_is_not_used(loop, backends):
    """D4: nothing of anyone else's is hit; the warning names the way out."""
    env = marked_env()
    ours, theirs = (
        backends.start("ready", "hang", env=env),
        backends.start("ready", "hang", env=env),
    )

    with ProcessTree.adopt(ours) as tree:
        with pytest.warns(RuntimeWarning, match="call marked_env"):
            other = ProcessTree.adopt(theirs)
        with other, warnings.catch_warnings():
            await tree.terminate()
    assert backends.living() == {theirs.pid}


def test_a_tree_that_was_dropped_holds_nothing(backends):
    """O7: neither a descriptor, nor the mark of what it stood for."""
    env = marked_env()
    started = [backends.start("ready", "hang", env=env) for _ in range(2)]
    before = settled_fds()
    for backend in started:
        with warnings.catch_warnings():  # were the one before still there, they would share it
            warnings.simplefilter("error")
            tree = ProcessTree.adopt(backend)
        del tree
        gc.collect()
    assert settled_fds() == before


async def test_a_mark_may_be_used_again_once_its_first_bearer_is_let_go(loop, backends):
    """D4: one set of options for one attempt after another."""
    env = marked_env()
    for _ in range(2):
        words = ("child", "detach", "orphan", "ready", "hang", ";", "ready", "hang")
        with ProcessTree.adopt(backends.start(*words, env=env)) as tree:
            assert (await tree.terminate(grace=0.1)).confirmed
        assert backends.living() == set()


def test_marked_env_keeps_what_it_is_given():
    """A fresh mark each time, beside ours or a given environment."""
    assert marked_env({"A": "1"}).keys() == {"A", MARK}
    assert marked_env().keys() == {*os.environ, MARK}
    assert marked_env({})[MARK] != marked_env({})[MARK]


def reuse(pid, **options):
    """A new child with that very pid; None where the system does not allow it."""
    for _ in range(50):
        with suppress(OSError):
            LAST_PID.write_text(str(pid - 1))
        child = subprocess.Popen(["sleep", "600"], **options)
        if child.pid == pid:
            return child
        child.kill()
        child.wait()
    return None


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="pids cannot be forced here")
@pytest.mark.parametrize("own_group", [True, False])
async def test_a_reused_pid_is_never_signalled(loop, backends, own_group):
    """D4: the pid is another's now, and the handle knows."""
    backend = backends.start("ready", "exit", "0", start_new_session=own_group)
    with ProcessTree.adopt(backend.pid) as tree:
        backend.wait()
        # With a group of its own, even that has the number of the first one's.
        stranger = reuse(backend.pid, process_group=0 if own_group else None)
        if stranger is None:
            pytest.skip("the pid was not given out again")
        try:
            ended = await tree.terminate(grace=0.1)
            assert (ended.cause, ended.signals) == ("exited", ())
            assert not is_dead(stranger.pid)
        finally:
            stranger.kill()
            stranger.wait()


def test_a_reused_pid_is_known_by_its_start(backends):
    """D4: without a pidfd, the pid alone is not the process."""
    stranger = backends.popen(["sleep", "600"])
    stat = procfs.read_stat(stranger.pid)
    handle = StatHandle(stranger.pid, stat.started - 1)
    assert handle.is_dead
    assert not handle.holds_pid()
    assert not handle.send(signal.SIGKILL)
    assert not is_dead(stranger.pid)


def test_control_a_process_that_is_known_by_its_number_alone_is_a_stranger(backends, monkeypatch):
    """D4: where the start is not compared, the signal hits whoever has the number now."""
    stranger = backends.popen(["sleep", "600"])
    handle = StatHandle(stranger.pid, procfs.read_stat(stranger.pid).started - 1)
    stat = procfs.read_stat
    forged = lambda pid: (now := stat(pid)) and now._replace(started=handle._started)  # noqa: E731
    monkeypatch.setattr(procfs, "read_stat", forged)
    assert not handle.is_dead
    assert handle.send(signal.SIGKILL)
    assert stranger.wait() == -signal.SIGKILL


def test_a_pid_that_changes_hands_between_table_and_handle_is_not_taken(backends):
    """D4: who was seen is looked at again through the handle."""
    root, stranger = backends.popen(["sleep", "600"]), backends.popen(["sleep", "600"])
    seen = procfs.read_stat(stranger.pid)._replace(parent=root.pid, started=1)
    with ProcessTree.adopt(root) as tree:
        tree._members.update(Table({stranger.pid: seen}))
        assert [handle.pid for handle in tree._members.living] == [root.pid]


def test_death_once_seen_is_final(backends):
    """D4: nothing is ever sent again."""
    backend = backends.start("ready", "hang")
    handle = PidfdHandle.open(backend.pid)
    backend.kill()
    backend.wait()
    assert handle.is_dead
    assert not handle.send(0)
    handle.close()
    assert handle.is_dead
    assert not handle.send(0)


def test_an_untouchable_is_no_member_even_if_all_the_signs_say_so(backends):
    """D4: the last line of defence is at the one place where members are found."""
    backend = backends.popen(["sleep", "600"])
    line = {os.getpid(), os.getppid()}
    ours = {pid: procfs.read_stat(pid)._replace(parent=backend.pid) for pid in line}
    with ProcessTree.adopt(backend) as tree:
        tree._members.update(Table({**ours, backend.pid: procfs.read_stat(backend.pid)}))
        assert [handle.pid for handle in tree._members.living] == [backend.pid]


def test_a_group_that_an_ancestor_of_ours_is_in_is_not_used(backends, monkeypatch):
    """D4: nobody of it is taken for a member, and it is not signalled."""
    backend = backends.start("ready", "hang", start_new_session=True)
    stats = {pid: procfs.read_stat(pid) for pid in (backend.pid, os.getpid(), os.getppid())}
    parent = stats[os.getppid()]._replace(group=backend.pid)
    with ProcessTree.adopt(backend) as tree:
        assert tree._members.send_to_group(0, Table(stats))
        assert not tree._members.send_to_group(0, Table({**stats, parent.pid: parent}))
        # We may have joined it since the table was read.
        monkeypatch.setattr(os, "getpgrp", lambda: backend.pid)
        assert not tree._members.send_to_group(0, Table(stats))


def test_nothing_is_signalled_that_was_only_adopted(loop, backends):
    """O7: adopting, looking, waiting and letting go end nothing."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "hang", env=marked_env())
    before = backends.living()

    async def main():
        with ProcessTree.adopt(backend) as tree:
            assert set(await tree.look()) == before
            with anyio.move_on_after(0.01):
                await tree.wait_dead()

    loop.run(main)
    assert backends.living() == before
