"""A terminated tree is gone: every case is proven by a walk for what the test itself has started."""

from __future__ import annotations

import asyncio
import os
import signal

import anyio.lowlevel
import pytest

from streamguard.process import ProcessTree, marked_env, table
from streamguard.process.ending import Ending
from tests.process.backends import PATIENCE, comes_true, is_dead, is_stopped, settled_fds


async def end(backend, **options):
    """Adopt, terminate and let go."""
    with ProcessTree.adopt(backend) as tree:
        return await tree.terminate(**options)


# What a backend does; the cause, signals and status that must come out.
ALONE = {
    "plain": (["ready", "hang"], "terminated", ("TERM", "CONT"), -15),
    "deaf to TERM": (["ignore", "ready", "hang"], "killed", ("TERM", "CONT", "STOP", "KILL"), -9),
    "stopped": (["ready", "stop"], "terminated", ("TERM", "CONT"), -15),
    "stopped and deaf": (
        ["ignore", "ready", "stop"],
        "killed",
        ("TERM", "CONT", "STOP", "KILL"),
        -9,
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_one_process(loop, backends, case):
    """D4: TERM and CONT, grace ended early by death, KILL."""
    words, cause, signals, status = ALONE[case]
    backend = backends.start(*words)
    if "stop" in words:
        assert comes_true(lambda: is_stopped(backend.pid))
    grace = 0.1 if cause == "killed" else 60.0

    async def main():
        with anyio.fail_after(PATIENCE):  # far less than 60: death ends the grace
            return await end(backend, grace=grace)

    ended = loop.run(main)
    assert (ended.cause, ended.exit) == (cause, status)
    if case == "plain" and ended.signals == ("TERM",):
        signals = ("TERM",)  # it was gone before CONT
    assert ended.signals == signals
    assert ended.confirmed
    assert ended.survivors == ()
    assert (ended.elapsed >= grace) == (cause == "killed")
    assert backends.living() == set()


def test_a_zombie_is_sent_nothing(loop, backends):
    """D4: what is dead needs no signal, reaped or not."""
    backend = backends.start("ready", "exit", "5")
    assert comes_true(lambda: is_dead(backend.pid))
    ended = loop.run(end, backend)
    assert (ended.cause, ended.signals, ended.exit) == ("exited", (), 5)


def test_no_grace_is_no_term(loop, backends):
    """D4: a grace of 0 kills at once."""
    backend = backends.start("ready", "hang")

    async def main():
        return await end(backend, grace=0)

    ended = loop.run(main)
    assert (ended.cause, ended.signals) == ("killed", ("STOP", "KILL"))
    assert backends.living() == set()


GRANDCHILDREN = {
    "in our group": ["child", "ready", "hang", ";", "ready", "hang"],
    "in a session of its own": ["child", "detach", "ready", "hang", ";", "ready", "hang"],
    "three deep": [
        *("child", "child", "detach", "child", "ready", "hang"),
        *(";", "ready", "hang"),
    ],
    "deaf": ["child", "ignore", "ready", "hang", ";", "ready", "hang"],
    "stopped": ["child", "ready", "stop", ";", "ready", "hang"],
}


@pytest.mark.parametrize("case", GRANDCHILDREN)
def test_descendants(loop, backends, case):
    """D4: everybody who descends from it, wherever they have put themselves."""
    backend = backends.start(*GRANDCHILDREN[case])
    assert len(backends.living()) >= 2

    async def main():
        return await end(backend, grace=0.1)

    assert loop.run(main).confirmed
    assert backends.living() == set()


# Orphans: their parent is gone, and with it all that /proc could tell of their descent.
ORPHANS = {
    "in its group": (["orphan", "ready", "hang"], {"start_new_session": True}, False),
    "in its group, deaf": (
        ["ignore", "orphan", "ready", "hang"],
        {"start_new_session": True},
        False,
    ),
    "marked, in our group": (["orphan", "ready", "hang"], {}, True),
    "marked, in a session of its own": (["detach", "orphan", "ready", "hang"], {}, True),
    "marked, both ways": (
        ["orphan", "detach", "orphan", "ready", "hang"],
        {"start_new_session": True},
        True,
    ),
}


@pytest.mark.parametrize("root_is", ["alive", "a zombie", "reaped"])
@pytest.mark.parametrize("case", ORPHANS)
def test_orphans(loop, backends, case, root_is):
    """D4: by the group that is the backend's own, and by the mark."""
    words, options, is_marked = ORPHANS[case]
    last = ["hang"] if root_is == "alive" else ["stop", "exit", "0"]
    env = marked_env() if is_marked else None
    backend = backends.start("child", *words, ";", "ready", *last, env=env, **options)

    async def main():
        with ProcessTree.adopt(backend) as tree:
            if root_is != "alive":
                assert comes_true(lambda: is_stopped(backend.pid))
                backend.send_signal(signal.SIGCONT)
                await tree.wait_dead()
            if root_is == "reaped":
                backend.wait()
            assert backends.living() - {backend.pid}
            return await tree.terminate(grace=0.1)

    assert loop.run(main).confirmed
    assert backends.living() == set()


@pytest.mark.parametrize("looks", [True, False], ids=["looked", "control"])
def test_who_was_noted_is_found_without_its_parent(loop, backends, looks):
    """D1: a disconnect ends the process alone; a look before it keeps the rest in sight."""
    backend = backends.start("child", "detach", "ready", "hang", ";", "ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            if looks:
                assert set(await tree.look()) == backends.living()
            backend.kill()
            await tree.wait_dead()
            await tree.terminate(grace=0.1)

    loop.run(main)
    # The control is the honest limit: unmarked, in its own session, orphaned, never looked at.
    assert len(backends.living()) == (0 if looks else 1)


def test_what_held_the_pipes_lets_them_go(loop, backends):
    """D4: with the tree gone, whoever reads its stdout or stderr sees the end."""
    words = ["child", "ignore", "detach", "ready", "hang", ";", "ready", "hang"]
    backend = backends.start(*words, stderr=-1)
    loop.run(lambda: end(backend, grace=0.1))
    assert backend.stdout.read() == b""
    assert backend.stderr.read() == b""


def test_a_backend_may_start_what_it_needs_to_shut_down(loop, backends):
    """D4: TERM goes to who was there; what a living parent starts later is left to it."""
    code = (
        "import os, signal, subprocess, sys\n"
        "def leave(*_):\n"
        "    helper = subprocess.run([sys.executable, '-Sc', 'import time; time.sleep(.4)'])\n"
        "    os.write(1, b'helper %d' % helper.returncode)\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "os.write(1, b'ready\\n')\n"
        "while True: signal.pause()\n"
    )
    import sys

    backend = backends.popen([sys.executable, "-Sc", code], stdout=-1)
    backend.stdout.readline()
    ended = loop.run(lambda: end(backend, grace=PATIENCE))
    assert (ended.cause, ended.exit) == ("terminated", 0)
    assert backend.stdout.read() == b"helper 0"


async def test_whoever_calls_it_again_gets_the_same_end(loop, backends):
    """D4: one termination at a time; later ones find nothing to do."""
    backend = backends.start("ignore", "ready", "hang")
    results = []

    async def call():
        results.append(await tree.terminate(grace=0.1))

    with ProcessTree.adopt(backend) as tree:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
        assert results[0] is results[1] is results[2] is tree.termination
        again = await tree.terminate()
    assert (again.cause, again.signals) == ("exited", ())


async def test_whoever_calls_it_again_may_shorten_the_grace(loop, backends):
    """D4: who has less time than the one before is not kept waiting; a longer grace changes nothing."""
    backend = backends.start("ignore", "ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.terminate, 600)
            await anyio.sleep(0.1)
            tasks.start_soon(tree.terminate, 900)
            assert (await tree.terminate(grace=0.1)).cause == "killed"
        assert tree.termination.elapsed < PATIENCE


def test_a_closed_tree_says_so(loop, backends):
    """O7: nothing is held after `close`, so nothing can be ended safely."""
    backend = backends.start("ready", "hang")

    async def main():
        tree = ProcessTree.adopt(backend)
        tree.close()
        tree.close()
        with pytest.raises(RuntimeError, match="is closed"):
            await tree.terminate()
        with pytest.raises(RuntimeError, match="is closed"):
            await tree.wait_dead()

    loop.run(main)
    assert backends.living() == {backend.pid}


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), True])
async def test_a_grace_that_is_none(loop, backends, grace):
    """T12: validated where it is written."""
    backend = backends.start("ready", "hang")
    with pytest.raises(ValueError, match="grace="):
        await end(backend, grace=grace)


def test_a_grace_is_within_the_budget(loop, backends):
    """D5: the budget is what it takes at most, whatever the grace."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        with anyio.fail_after(PATIENCE):
            return await end(backend, grace=600, budget=2)

    assert loop.run(main).cause == "killed"
    assert backends.living() == set()


@pytest.mark.parametrize("marked", [True, False], ids=["by its mark", "by its group"])
def test_who_was_born_since_the_walk_is_found(backends, marked):
    """D4: a storm is caught although its processes live for less than a walk takes."""
    words = ["child", "detach"] if marked else ["child"]
    options = {"env": marked_env()} if marked else {"start_new_session": True}
    backend = backends.run(
        "backend.py", "stop", *words, "orphan", "ready", "hang", ";", "hang", **options
    )
    assert comes_true(lambda: is_stopped(backend.pid))
    with ProcessTree.adopt(backend) as tree:
        walked = table.read_table()
        backend.send_signal(signal.SIGCONT)
        assert backend.stdout.readline() == b"ready\n"
        tree._members.update(walked)
        assert {handle.pid for handle in tree._members.living} == backends.living()


@pytest.fixture
def hold_kill(monkeypatch):
    """KILL waits until it is let go: so cancels fall between TERM and it, by order, not by time."""

    def hold():
        due, go = anyio.Event(), anyio.Event()
        kill = Ending._kill

        async def held(self):
            due.set()
            await go.wait()
            await kill(self)

        monkeypatch.setattr(Ending, "_kill", held)
        return due, go

    return hold


def test_a_scope_that_is_cancelled_waits_for_the_end(loop, backends, hold_kill):
    """D6: an outer cancel during teardown waits for its budget."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        due, go = hold_kill()
        with ProcessTree.adopt(backend) as tree:
            scope = anyio.CancelScope()

            async def end():
                with scope:
                    await tree.terminate(grace=0.05)
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end)
                await due.wait()
                scope.cancel()
                await anyio.wait_all_tasks_blocked()
                assert not tree.is_dead
                go.set()
            assert scope.cancelled_caught
            assert tree.termination is not None
            assert tree.termination.cause == "killed"

    loop.run(main)
    assert backends.living() == set()


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def run_native(request):
    """Native cancels exist on asyncio's loops only."""

    def run(main):
        options = {"use_uvloop": request.param}
        anyio.run(main, backend="asyncio", backend_options=options)

    return run


def test_a_native_cancel_waits_for_the_end(run_native, backends, hold_kill):
    """D6: one cancel does not come between TERM and KILL."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        due, go = hold_kill()
        with ProcessTree.adopt(backend) as tree:
            task = asyncio.ensure_future(tree.terminate(grace=0.05))
            await due.wait()
            task.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not task.done()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert tree.is_dead
            assert tree.termination.cause == "killed"

    run_native(main)
    assert backends.living() == set()


async def cancelled_twice(task):
    """Cancel natively; let it come to rest; and again."""
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_second_native_cancel_lets_it_run_on_its_own(run_native, backends, hold_kill):
    """D6: on asyncio a second one leaves it running detached, and `close` waits for that."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        due, go = hold_kill()
        before = settled_fds()
        with ProcessTree.adopt(backend) as tree:
            task = asyncio.ensure_future(tree.terminate(grace=0.05))
            await due.wait()
            await cancelled_twice(task)
            assert not tree.is_dead
            assert tree.termination is None
        go.set()
        with anyio.fail_after(PATIENCE):
            while tree.termination is None:
                await anyio.sleep(0.01)
        assert tree.termination.cause == "killed"
        assert settled_fds() == before

    run_native(main)
    assert backends.living() == set()


def test_a_loop_that_ends_first_kills_at_once(run_native, backends):
    """D6: nothing survives because our own loop was over before its grace was."""
    backend = backends.start("child", "ignore", "detach", "ready", "hang", ";", "ignore", "ready")
    trees = []

    async def main():
        with ProcessTree.adopt(backend) as tree:
            trees.append(tree)
            await cancelled_twice(asyncio.ensure_future(tree.terminate(grace=600)))

    run_native(main)
    assert comes_true(lambda: backends.living() == set())
    assert not trees[0].termination.confirmed  # nobody was left to see it


def test_a_survivor_is_named(loop, backends, monkeypatch):
    """D4: survivors are reported, within the budget."""
    from streamguard.process import identity

    # Nobody survives KILL but in the kernel's own hands; so here KILL gets lost on the way.
    send = identity.Handle.send
    monkeypatch.setattr(
        identity.Handle,
        "send",
        lambda self, number: number != signal.SIGKILL and send(self, number),
    )
    monkeypatch.setattr(identity.PidfdHandle, "send_to_group", lambda *_: False)
    backend = backends.start("ignore", "ready", "hang")
    ended = loop.run(lambda: end(backend, grace=0.1, budget=0.5))
    assert (ended.cause, ended.survivors, ended.exit) == ("survived", (backend.pid,), None)
    assert not ended.confirmed
    assert 0.5 <= ended.elapsed < 0.5 + PATIENCE
    assert f"still alive: {backend.pid}" in str(ended)
    os.kill(backend.pid, signal.SIGKILL)
