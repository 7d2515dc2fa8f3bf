"""A /proc whose numbers are another pid namespace's: it tells of strangers, so nothing of it is believed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from streamguard.process import ProcessTree, blocking, identity, procfs, table
from streamguard.process.identity import PidfdHandle, SignalHandle, StatHandle
from streamguard.process.members import Members, TreeFacts
from streamguard.process.table import read_table
from tests.process.backends import CHILDREN, PATIENCE, comes_true

UNSHARE = shutil.which("unshare")


def unshared(*words, options=()):
    """What a command says as the first process of a new pid namespace, in which /proc is the old one."""
    assert UNSHARE is not None
    done = subprocess.run(
        [UNSHARE, "--pid", "--fork", "--kill-child", *options, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def why_not():
    if UNSHARE is None:
        return "no unshare here"
    try:
        unshared("true")
        unshared("sh", "-c", "echo 5000 > /proc/sys/kernel/ns_last_pid")
    except AssertionError:
        return "no pid namespace may be made here, or no pid be chosen in it"
    return ""


@pytest.fixture(scope="module")
def namespaces():
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def family(backends):
    """The numbers of a process here and of its child, to which those in the namespace are given."""
    parent = backends.start("child", "ready", "hang", ";", "ready", "hang")
    assert comes_true(lambda: len(backends.living()) == 2)
    (child,) = backends.living() - {parent.pid}
    return parent.pid, child


@pytest.mark.parametrize(
    "how", ["PidfdHandle", "StatHandle", "PsutilHandle", "SignalHandle", "blocking"]
)
def test_nothing_of_strangers_is_ended(namespaces, family, backends, how):
    """D4: nor is the end of a tree claimed, which nobody can know there (D5)."""
    told = json.loads(unshared(sys.executable, CHILDREN / "namespaced.py", *family, how))
    assert told["stranger"] is None
    assert told["root"] == -signal.SIGTERM
    assert not told["is_there"]
    assert not told["confirmed"]
    # By a bare signal a zombie is alive.
    expected = "unproven" if how in ("PidfdHandle", "blocking") else "survived"
    assert told["cause"] == expected
    assert backends.living() == set(family)


def said(namespaced_python, options=()):
    script = (
        f"from streamguard.process import procfs, table, identity; import os; {namespaced_python}"
    )
    return unshared(sys.executable, "-c", script, options=options).strip()


def test_its_own_proc_is_believed(namespaces):
    shown = "print(procfs.is_there(), sorted(table.read_table().stats))"
    assert said(shown, options=["--mount-proc"]) == "True [1]"
    assert said(shown) == "False []"


def test_the_same_number_in_both_is_no_proof(namespaces):
    """A process whose number here is the one that it has there."""
    program = """
last = int(os.readlink("/proc/self"))
for _ in range(500):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file: file.write(str(last))
    r, w = os.pipe()
    if not os.fork():
        there, here = int(os.readlink("/proc/self")), os.getpid()
        os.write(w, f"{there} {here == there} {procfs.is_there()}".encode()); os._exit(0)
    os.wait()
    there, same, is_there = os.read(r, 100).decode().split()
    os.close(r), os.close(w)
    last = int(there)
    if same == "True": break
print(same, is_there)
"""
    script = f"from streamguard.process import procfs\nimport os\n{program}"
    assert unshared(sys.executable, "-c", script).split() == ["True", "False"]


# -- the same, where no namespace can be made ----------------------------------------------------


@pytest.fixture
def foreign(monkeypatch):
    """/proc as a namespace below its own sees it."""
    monkeypatch.setattr(procfs, "_is_ours", {})
    read = procfs._read

    def reads(path):
        status = read(path)
        if path == "/proc/self/status":
            return status.replace(b"\nNSpid:\t", b"\nNSpid:\t4711\t")
        return status

    monkeypatch.setattr(procfs, "_read", reads)


def test_two_numbers_are_another_namespaces(foreign, backends):
    """D4: all that it would say is None, and psutil, which would say the same, is not asked."""
    backend = backends.start("ready", "hang")
    assert not procfs.is_there()
    assert procfs.read_stat(backend.pid) is procfs.read_mark(backend.pid) is None
    assert not procfs.is_thread(backend.pid)
    assert identity.psutil_or_none() is None
    assert (dict(read_table().stats), read_table().is_complete) == ({}, False)
    assert isinstance(identity.open_handle(backend.pid), PidfdHandle)


def test_an_old_kernel_says_no_number(monkeypatch):
    """Before Linux 4.1: then /proc/self is all there is to go by."""
    monkeypatch.setattr(procfs, "_is_ours", {})
    monkeypatch.setattr(procfs, "_read", lambda _: b"Name:\tpython\nTgid:\t7\n")
    assert procfs.is_there()


@pytest.mark.parametrize("link", ["", "1", OSError()])
def test_where_self_is_another_or_nobody_there_is_no_proc(monkeypatch, link):
    def readlink(_):
        if isinstance(link, OSError):
            raise link
        return link

    monkeypatch.setattr(procfs.os, "readlink", readlink)
    assert not procfs.is_there()


# -- what is not shown is not gone ---------------------------------------------------------------


def test_a_proc_that_is_taken_away_proves_no_death(backends, monkeypatch):
    """D4: of a process that was known by it, which is not signalled any more, nor called dead."""
    backend = backends.start("ready", "hang")
    handle = StatHandle.open(backend.pid)
    monkeypatch.setattr(procfs.os, "readlink", lambda _: "nobody")
    assert not handle.is_dead
    assert not handle.send(signal.SIGTERM)
    assert not handle.is_dead
    monkeypatch.undo()
    assert handle.send(signal.SIGTERM)
    assert comes_true(lambda: handle.is_dead)


def test_a_tree_that_loses_its_proc_is_not_proven_dead(loop, backends, monkeypatch):
    """D5."""
    monkeypatch.setattr(identity, "WAYS", (StatHandle, SignalHandle))
    backend = backends.start("ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            monkeypatch.setattr(procfs.os, "readlink", lambda _: "nobody")
            return await tree.terminate(grace=0.1, budget=0.5)

    ended = loop.run(main)
    assert (ended.cause, ended.survivors, ended.confirmed) == ("survived", (backend.pid,), False)
    monkeypatch.undo()
    assert backends.living() == {backend.pid}


def test_a_table_without_ourselves_is_not_complete(monkeypatch):
    """It was taken away while it was read."""
    monkeypatch.setattr(procfs, "snapshot", lambda **_: ({}, {}))
    assert not table.read_table().is_complete


def test_a_group_without_a_table_is_nobodys(backends):
    """D4: that nobody of another session is seen in it is no proof there, if its leader was reaped."""
    backend = backends.start("ready", "hang", start_new_session=True)
    with ProcessTree.adopt(backend) as tree:
        members = tree._members
        backend.kill()
        backend.wait()
        members.root.leads_group = lambda: None  # before Linux 6.9
        assert not members._has_group(table.Table({}, is_complete=False))


def test_who_cannot_be_seen_ends_with_its_group(backends, monkeypatch):
    """D4: where there is no table, as far as the group is known to be the tree's own."""
    words = ["child", "ignore", "ready", "hang", ";", "ready", "hang"]
    backend = backends.start(*words, start_new_session=True)
    root = identity.open_handle(backend.pid)
    if root.leads_group() is None:
        pytest.skip("before Linux 6.9 a pidfd signals no group")
    members = Members.from_facts(TreeFacts(backend.pid, 0.0, backend.pid, None), root)
    with monkeypatch.context() as patch:
        patch.setattr(procfs, "is_there", lambda: False)
        ended = blocking.end(members, 5, 15)
    members.close()
    assert (ended.cause, ended.signals[0], ended.signals[-1]) == ("unproven", "TERM", "KILL")
    assert comes_true(lambda: backends.living() == set())


def test_a_descriptor_that_is_none_any_more_is_no_death(backends):
    """D4: somebody has closed it under us, as `os.closerange` does."""
    backend = backends.start("ready", "hang")
    handle = PidfdHandle.open(backend.pid)
    os.close(handle.fileno())
    assert not handle.is_dead
    handle._fd = None


def test_a_process_that_is_hidden_is_not_gone(backends, monkeypatch):
    """D4: as hidepid= hides those of other users."""
    backend = backends.start("ready", "hang")
    handle = StatHandle.open(backend.pid)
    monkeypatch.setattr(procfs, "read_stat", lambda _: None)
    assert not handle.is_dead
    with pytest.raises(identity.UnavailableError):
        StatHandle.open(backend.pid)
    backend.kill()
    backend.wait()
    assert handle.is_dead
    with pytest.raises(ProcessLookupError):
        StatHandle.open(backend.pid)
