"""D4, D5: a session whose backend is a real process, which alone proves that it is gone.

In real time. Only the first attempt hangs, and it does so for ever; a machine so busy that a later one
is late only costs another retry.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from streamguard import (
    Activity,
    Connection,
    IdleTimeoutError,
    idle_guard,
    lines,
    reconnecting_resume,
    session,
)
from streamguard import _loops as loops
from streamguard._guard.teardown import TearingDown
from streamguard.events import OwnerAbandoned
from streamguard.events.teller import Teller
from streamguard.process import ProcessTree, hosted
from streamguard.signals import Liveness, Progress, SessionOpened
from streamguard.testing import Script, done, hang, opened, say, swallows_cancel
from tests.process.backends import comes_true
from tests.support import Events, open_files

SAYS = "echo s-{attempt}; echo a; {then}"


@pytest.mark.parametrize("kind", ["plain", "deaf"])
@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_process_that_hangs_is_ended_and_its_session_goes_on(loop_name, kind):
    """D5: with a stream that nothing ends, too: the proof is that the process is dead."""

    async def lines(process):
        yield SessionOpened("s-1")
        async for chunk in process.stdout:
            yield chunk.decode()

    async def main():
        processes = []

        @asynccontextmanager
        async def open_(point):
            then = "sleep 1000" if point.attempt == 1 else "exit 0"
            command = ["/bin/sh", "-c", SAYS.format(attempt=point.attempt, then=then)]
            async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
                processes.append(process)
                stream = lines(process)
                if kind == "deaf" and point.attempt == 1:
                    stream = swallows_cancel(stream)
                    deaf.append(stream)
                yield Connection(stream, process=process)

        deaf = []
        events = Events()
        before = open_files()
        guard = idle_guard(2, observer=events, kill_grace=1, read=_read)
        resume = reconnecting_resume(retries=20, backoff=[0])
        async with session(open_, prompt="go") | guard | resume as chat:
            got = [each async for each in chat if isinstance(each, str)]
        assert "s-1" in "".join(got)
        assert f"s-{len(processes)}" in "".join(got)
        assert len(processes) >= 2
        assert processes[0].returncode not in (None, 0)
        for stream in deaf:
            stream.release()
        with anyio.fail_after(30):
            while open_files() - before and loop_name == "asyncio":
                await anyio.sleep(0.05)
        assert not [each for each in processes if _lives(each.pid)]

    def _read(message):
        return message if isinstance(message, SessionOpened) else Progress()

    def _lives(pid):
        try:
            with ProcessTree.adopt(pid) as tree:
                return not tree.is_dead
        except ProcessLookupError:
            return False

    anyio.run(main, backend=loop_name)


def beside_a_sleeper(processes, *steps):
    """A connection whose process knows nothing of what it says."""
    processes.append(subprocess.Popen(["sleep", "1000"]))
    return Connection(Script(*steps), process=processes[-1])


@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_connection_that_does_not_close_leaves_no_process(loop_name):
    """D5: after a good end, too: what it was to end within its bound is ended."""

    async def main():
        processes = []

        @asynccontextmanager
        async def open_(point):
            yield beside_a_sleeper(processes, say("a"), done())
            await anyio.sleep_forever()

        guard = idle_guard(60, disconnect_timeout=0.2, kill_grace=1)
        async with session(open_, prompt="go") | guard as chat:
            assert len([each async for each in chat]) == 2
            assert processes[0].poll() is None
        assert processes[0].wait(30) < 0

    anyio.run(main, backend=loop_name)


@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_turn_that_is_left_leaves_nobody_at_work_on_the_session(loop_name):
    """D5: its connection closes in peace, and its process works on: so the next would be a second owner."""

    async def main():
        processes = []

        @asynccontextmanager
        async def open_(point):
            yield beside_a_sleeper(processes, opened("s-1"), say("a"), hang())

        async with session(open_) | idle_guard(60, kill_grace=1) as chat:
            for prompt in ("one", "two"):
                turn = chat.ask(prompt)
                await anext(turn)
                assert processes[-1].poll() is None
                await turn.aclose()
                assert processes[-1].poll() is not None
        assert len(processes) == 2

    anyio.run(main, backend=loop_name)


@pytest.mark.parametrize("closes", ["in peace", "never"])
@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_process_that_is_deaf_is_dead_when_its_turn_was_left(loop_name, closes):
    """D4: though its disconnect hangs, and TERM is not heard; all within the five seconds."""

    async def main():
        told, processes = Events(), []

        @asynccontextmanager
        async def open_(point):
            command = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True)"
            process = subprocess.Popen(
                [sys.executable, "-ISc", f"{command}; time.sleep(1000)"], stdout=subprocess.PIPE
            )
            with process.stdout as said:
                said.readline()
            processes.append(process)
            yield Connection(
                Script(say("a"), hang()), process=process, disconnect=anyio.sleep_forever
            )
            if closes == "never":
                await anyio.sleep_forever()
            await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)

        async with session(open_, prompt="go") | idle_guard(60, observer=told) as chat:
            await anext(aiter(chat))
            left = anyio.current_time()
        assert anyio.current_time() - left < 5.5
        assert processes[0].poll() == -9
        assert bool(told.of(OwnerAbandoned)) == (closes == "never")

    anyio.run(main, backend=loop_name)


# It writes until nobody reads; a child of its own is in a session of its own, as tools of agents are.
WRITES = "setsid sleep 1000 & echo child $!; while echo ping; do sleep 0.05; done"


@pytest.mark.parametrize("how", ["verdict", "left"])
@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_who_belongs_to_a_process_is_seen_before_anything_ends_it(loop_name, how, monkeypatch):
    """D4: closing its stream ends it, and an orphan that has left its group cannot be found."""

    async def slowly():
        await anyio.sleep(0.3)
        return await table()

    table = hosted.fresh_table
    monkeypatch.setattr(hosted, "fresh_table", slowly)
    pids = []

    @asynccontextmanager
    async def open_(point):
        async with await anyio.open_process(["/bin/sh", "-c", WRITES]) as process:
            yield Connection(lines(process), process=process)

    async def main():
        guard = idle_guard(0.5 if how == "verdict" else 60, kill_grace=1, read=read)
        with suppress(IdleTimeoutError):
            async with session(open_) | guard as chat:
                async for line in chat:
                    pids.extend(int(word) for word in line.split() if word.isdigit())
                    if pids and how == "left":
                        break

    def read(line):
        return Liveness() if "ping" in line else Progress()

    anyio.run(main, backend=loop_name)
    assert pids
    assert comes_true(lambda: not is_alive(pids[0]))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Supervised:
    """What a teardown needs of a supervision."""

    def __init__(self, tree):
        self.tree = tree

    async def look(self):
        await self.tree.look()


@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_tree_that_is_closed_meanwhile_is_ended_all_the_same(loop_name):
    """D4: a session that ends lets go of its tree; a teardown that is at work on it does not."""

    async def main():
        process = subprocess.Popen(["sleep", "1000"])
        supervised = Supervised(ProcessTree.adopt(process))
        tearing_down = TearingDown(
            Teller(Activity(), ()),
            loops.current(),
            supervised,
            disconnects=(lambda: anyio.sleep(0.1),),
            disconnect_timeout=5,
            kill_grace=1,
        )
        tearing_down.start(loops.current().spawn)
        supervised.tree.close()
        await tearing_down.finish()
        assert tearing_down.termination.confirmed
        assert process.wait(30) < 0

    anyio.run(main, backend=loop_name)
