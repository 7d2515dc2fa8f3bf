"""The same ending without an event loop, in a process that imports none."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import streamguard
from streamguard.process import ProcessTree, blocking, identity, marked_env, procfs
from streamguard.process.identity import PidfdHandle, StatHandle
from streamguard.process.members import Members
from streamguard.process.sentinel.forest import Forest
from tests.process.backends import PATIENCE

ROOT = Path(streamguard.__file__).parents[1]


@pytest.fixture(params=[PidfdHandle, StatHandle], ids=lambda way: way.proof)
def way(request, monkeypatch):
    monkeypatch.setattr(identity, "WAYS", (request.param,))


def members_of(backend):
    members = Members(backend.pid, identity.open_handle(backend.pid))
    procfs.settle(backend.pid)
    members.note_root(procfs.read_stat(backend.pid))
    return members


def end(backend, **options):
    members = members_of(backend)
    try:
        return blocking.end(members, **options)
    finally:
        members.close()


TREES = {
    "plain": ["ready", "hang"],
    "with a child that hears": ["child", "ready", "hang", ";", "ready", "hang"],
    "with an orphan that bears the mark": [
        *("child", "detach", "orphan", "ready", "hang"),
        *(";", "ready", "hang"),
    ],
}


def test_a_tree_is_killed_where_no_loop_is_left(backends, way):
    """D4: deaf or not, nobody is asked; a tree that was let go kills nobody."""
    backend = backends.start(
        *("child", "ignore", "detach", "ready", "hang", ";", "ignore", "ready", "hang"),
    )
    with ProcessTree.adopt(backend) as tree:
        tree.kill()
        assert backends.living() == set()
    with pytest.raises(RuntimeError, match="is closed"):
        tree.kill()


@pytest.mark.parametrize("case", TREES)
def test_who_hears_is_asked_and_its_death_ends_the_grace(backends, way, case):
    """D4: as on a loop."""
    backend = backends.start(*TREES[case], env=marked_env())
    began = time.monotonic()
    ended = end(backend, grace=60.0, budget=125.0)
    assert time.monotonic() - began < PATIENCE
    assert (ended.cause, ended.confirmed) == ("terminated", True)
    assert backends.living() == set()


def test_who_is_deaf_is_killed(backends, way):
    """D4: TERM and CONT, the whole grace, then STOP and KILL."""
    words = ["child", "ignore", "detach", "ready", "hang", ";", "ignore", "ready", "hang"]
    backend = backends.start(*words)
    ended = end(backend, grace=0.3, budget=5.6)
    assert (ended.cause, ended.signals) == ("killed", ("TERM", "CONT", "STOP", "KILL"))
    assert ended.elapsed >= 0.3
    assert backends.living() == set()


def test_a_survivor_is_named_when_the_budget_is_spent(backends, monkeypatch):
    """D4: bounded, as on a loop."""
    monkeypatch.setattr(identity.Handle, "send", lambda *_: False)
    monkeypatch.setattr(PidfdHandle, "send_to_group", lambda *_: False)
    backend = backends.start("ready", "hang")
    ended = end(backend, grace=0.1, budget=0.3)
    assert (ended.cause, ended.survivors) == ("survived", (backend.pid,))


def test_who_is_in_several_trees_is_asked_once(backends, monkeypatch):
    """D4: a backend that is adopted beside its parent, and one that is adopted twice."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "hang")
    (child,) = backends.living() - {backend.pid}
    asked = []
    send = identity.Handle.send

    def noting(handle, number):
        if number == signal.SIGTERM:
            asked.append(handle.pid)
        return send(handle, number)

    monkeypatch.setattr(identity.Handle, "send", noting)
    trees = [members_of(SimpleNamespace(pid=pid)) for pid in (child, backend.pid, backend.pid)]
    forest = Forest(trees)
    assert str(child) in repr(forest)
    assert blocking.end(forest, grace=60.0, budget=125.0).cause == "terminated"
    for tree in trees:
        tree.close()
    assert sorted(asked) == sorted([child, backend.pid])
    assert backends.living() == set()


def test_it_needs_the_standard_library_alone():
    """Cost: a helper or a command line pays for no loop and no logging."""
    code = (
        "import sys\n"
        f"sys.path.append({str(ROOT)!r})\n"
        "import streamguard.process.blocking\n"
        "print(*sorted({'anyio', 'asyncio', 'logging', 'socket', 'uuid'} & set(sys.modules)))"
    )
    told = subprocess.check_output([sys.executable, "-I", "-S", "-c", code], text=True)
    assert told == "\n"
