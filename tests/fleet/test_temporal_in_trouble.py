"""F2, F3, F5 on a real Temporal server: workers that are killed, stopped and cut off; a server that is killed.

Each with its controls: workers that lack one thing, and of which the test must find that they do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("temporalio")
from temporalio.converter import DataConverter

from streamguard.errors import StoreError
from tests.fleet.partition import Partition
from tests.fleet.sealed import Sealed
from tests.fleet.temporal_kinds import KINDS, Truth

pytestmark = pytest.mark.asyncio

TTL, FLUSH = 2.0, 0.25
PACE = 10  # messages a second
# How long one is watched that should do nothing.
WATCHED = 1.5
ROOT = Path(__file__).parents[2]
WORKER = "tests.fleet.children.temporal_worker"


class World:
    """Queues of sessions, one for each kind of worker, and the truth about them."""

    def __init__(self, temporal, client, folder: Path) -> None:
        self.temporal, self.client = temporal, client
        self.truth_path = folder / "truth"
        self.truth = Truth(self.truth_path)
        self._stderr = (folder / "stderr").open("ab")
        self._id = f"{os.getpid()}-{id(self)}"
        self.keys: dict[str, list[str]] = {}
        self.prompt = "go"

    def queue(self, name: str) -> str:
        return f"{name}-{self._id}"

    def worker(self, name: str, kind: str = "sound", client=None, limit: int = 50):
        knobs = {"task_queue": self.queue(name), "ttl": TTL, "flush": FLUSH, "limit": limit}
        return KINDS[kind](client or self.client, **knobs)

    async def submit(self, name: str, count: int) -> list[str]:
        keys = self.keys.setdefault(name, [])
        more = [f"{name}-{n}-{self._id}" for n in range(len(keys), len(keys) + count)]
        for key in more:
            assert await self.worker(name).submit(key, {"prompt": self.prompt})
        keys += more
        return more

    async def until(self, true, within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while not true():
                await asyncio.sleep(0.05)

    def all_deliver(self, who: str, names, least: int = 1) -> bool:
        """Whether `who` has delivered some messages of each of their sessions."""
        lines = self.truth.lines()
        seen = Counter(line.key for line in lines if line.who == who and line.number >= 0)
        return all(seen[key] >= least for name in names for key in self.keys[name])

    async def until_done(self, name: str) -> None:
        worker = self.worker(name)
        for key in self.keys[name]:
            async with asyncio.timeout(60):
                while not await self._is_done(worker, key):
                    await asyncio.sleep(0.1)

    async def _is_done(self, worker, key: str) -> bool:
        with suppress(StoreError):  # the server may be away
            return (await worker.show(key)).status == "done"
        return False

    def old_after_new(self, name: str, old: str, new: str) -> int:
        """How many messages the old owner has delivered once the new one had begun."""
        began = self.truth.begun(new)
        return sum(
            line.at > began[key]
            for key in self.keys[name]
            for line in self.truth.delivered(key, by=old)
        )

    def doubles(self, name: str) -> list[int]:
        """Of each session, what was delivered twice. All of it was delivered."""
        found = []
        for key in self.keys[name]:
            numbers = [line.number for line in self.truth.delivered(key)]
            assert set(numbers) == set(range(max(numbers) + 1)), f"a gap in {key}"
            found.append(len(numbers) - len(set(numbers)))
        return found

    @asynccontextmanager
    async def child(self, count: int, kinds: dict[str, str]):
        """A process with a worker for each queue, of the kind that is named."""
        queues = [f"{kind}={self.queue(name)}" for name, kind in kinds.items()]
        words = [self.temporal.address, str(self.truth_path), str(TTL), str(count), *queues]
        process = subprocess.Popen(
            # What the SDK itself warns of when it wakes is not ours, and names a token.
            [sys.executable, "-W", "ignore:Cannot find activity", "-m", WORKER, *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        try:
            assert await asyncio.to_thread(process.stdout.readline) == b"here\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            process.stdout.close()

    def figure(self, name: str, value: object) -> None:
        """What was measured, for `pytest -rP`."""
        logging.getLogger("figures").warning("%s: %s", name, value)

    def close(self) -> None:
        self._stderr.close()

    def stderr(self) -> str:
        return (self.truth_path.parent / "stderr").read_text()


@pytest_asyncio.fixture
async def world(temporal, tmp_path):
    world = World(temporal, await temporal.client(), tmp_path)
    yield world
    world.close()


@asynccontextmanager
async def serving(*served):
    """Workers with their handlers, until the block is left."""
    tasks = [asyncio.ensure_future(worker.serve(handler)) for worker, handler in served]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def test_a_worker_that_is_killed(world):
    """F3: others go on from the checkpoint. Control: one that keeps none."""
    names, count = ("sound", "forgetful"), 45
    for name in names:
        await world.submit(name, 5)
    async with world.child(count, {name: name for name in names}) as child:
        await world.until(lambda: world.all_deliver("child", names, least=20))
        child.kill()
        killed = time.monotonic()
    handler = world.truth.handler("heir", count)
    async with serving(*((world.worker(name, name), handler) for name in names)):
        for name in names:
            await world.until_done(name)
    began = world.truth.begun("heir")
    recovery = [began[key] - killed for key in world.keys["sound"]]
    doubles, before = world.doubles("sound"), world.doubles("forgetful")
    world.figure("recovery", [round(seconds, 2) for seconds in recovery])
    world.figure("doubles", doubles)
    assert max(recovery) < 10 * TTL
    assert max(doubles) <= 6 * FLUSH * PACE
    for key, double in zip(world.keys["forgetful"], before, strict=True):
        assert double == len(world.truth.delivered(key, by="child")) > 6 * FLUSH * PACE


async def test_a_worker_that_is_stopped_and_goes_on(world):
    """F2: it delivers nothing more, and begins nothing that it was sent meanwhile.

    Controls: without the fence, and without the first heartbeat. What they do late is a race with their server's
    cancellation, so that another round may be needed to see both.
    """
    delivered = begun = 0
    for number in range(4):
        late = await late_of_one_that_was_stopped(world, number)
        world.figure(f"late {number}", late)
        assert late["sound"] == (0, 0)
        delivered, begun = delivered + late["unfenced"][0], begun + late["unproven"][1]
        if delivered and begun:
            break
    assert delivered
    assert begun
    assert "task_token" not in world.stderr()


async def late_of_one_that_was_stopped(world, number: int) -> dict[str, tuple[int, int]]:
    """How many messages of what it had it delivered late, and how many sessions it began late, by its fault."""
    kinds = {f"{kind}-{number}": kind for kind in ("sound", "unfenced", "unproven")}
    for name in kinds:
        await world.submit(name, 3)
    async with world.child(1000, kinds) as child:
        await world.until(lambda: world.all_deliver("child", kinds))
        child.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        held = {name: list(world.keys[name]) for name in kinds}
        for name in kinds:
            await world.submit(name, 3)  # sent to who asked for work before it was stopped
        await asyncio.sleep(TTL / 4)
        handler = world.truth.handler("heir", 1000)
        async with serving(*((world.worker(name), handler) for name in kinds)):
            await world.until(lambda: world.all_deliver("heir", kinds))
            assert time.monotonic() - stopped > TTL
            child.send_signal(signal.SIGCONT)
            woke = time.monotonic()
            await asyncio.sleep(WATCHED)
            lines = world.truth.lines()
    late = [line for line in lines if line.who == "child" and line.at > woke]
    return {
        kind: (
            sum(line.number >= 0 and line.key in held[name] for line in late),
            sum(line.number == -1 and line.key in world.keys[name] for line in late),
        )
        for name, kind in kinds.items()
    }


async def test_a_worker_that_is_cut_off(world):
    """F2: in each direction, it stops before another begins, and after the way is open again does nothing.

    Controls: without the fence, and with Temporal's own heartbeats.
    """
    ways = {
        "both": "sound",
        "up": "sound",
        "down": "sound",
        "unfenced": "unfenced",
        "cursory": "cursory",
    }
    async with asyncio.TaskGroup() as group:
        for name in ways:
            group.create_task(world.submit(name, 2))
    old, new = world.truth.handler("old", 1000), world.truth.handler("new", 1000)
    partitions = {name: Partition(world.temporal.port) for name in ways}
    try:
        for partition in partitions.values():
            await partition.__aenter__()
        workers = [
            # No more than they hold: a worker that asked for more would be sent what it cannot get.
            world.worker(
                name, kind, await world.temporal.client(partitions[name].address), limit=2
            )
            for name, kind in ways.items()
        ]
        async with serving(*((worker, old) for worker in workers)):
            await world.until(lambda: world.all_deliver("old", ways))
            cut = time.monotonic()
            for name, partition in partitions.items():
                partition.cut(name if name in ("up", "down") else "both")
            async with serving(*((world.worker(name), new) for name in ways)):
                await world.until(lambda: world.all_deliver("new", ways))
                await asyncio.sleep(WATCHED)
                lasted = time.monotonic() - cut
                for partition in partitions.values():
                    partition.heal()
                await asyncio.sleep(WATCHED)
    finally:
        for partition in partitions.values():
            await partition.__aexit__()
    assert lasted > TTL
    assert all(sum(partition.held_back.values()) > 0 for partition in partitions.values())
    late = {name: world.old_after_new(name, "old", "new") for name in ways}
    world.figure("late", late)
    assert late["both"] == late["up"] == late["down"] == 0
    assert late["unfenced"] >= 1
    assert late["cursory"] >= 1


async def test_sigterm_hands_on_at_once(world):
    """F5: a deploy costs no attempt and no double."""
    await world.submit("sound", 5)
    async with world.child(80, {"sound": "sound"}) as child:
        await world.until(lambda: world.all_deliver("child", ["sound"]))
        child.terminate()
        asked = time.monotonic()
        assert await asyncio.to_thread(child.wait, 30) == 0
    last = max(line.at for line in world.truth.lines()) - asked
    worker = world.worker("sound")
    async with serving((worker, world.truth.handler("heir", 80))):
        await world.until_done("sound")
    began = world.truth.begun("heir")
    world.figure("handed on", [round(began[k] - asked, 2) for k in world.keys["sound"]])
    assert last < 5
    assert world.doubles("sound") == [0] * 5
    assert {(await worker.show(key)).attempt for key in world.keys["sound"]} == {1}
    assert "task_token" not in world.stderr()


async def test_a_server_that_is_killed_and_started_again(temporal_servers, tmp_path):
    """F3: all sessions come to their end; and with a codec the server's file holds no word of a prompt or a token.

    Control: without the codec it does.
    """
    server, count = temporal_servers(file=True), 40
    plain = await server.client()
    sealed = await server.client(
        data_converter=replace(DataConverter.default, payload_codec=Sealed(b"key"))
    )
    worlds = {
        word: World(server, client, folder)
        for word, client in (("hush", plain), ("quiet", sealed))
        if (folder := tmp_path / word).mkdir() is None
    }
    workers = []
    for word, world in worlds.items():
        world.prompt = f"{word}-prompt"
        await world.submit("sound", 4)
        workers.append((world.worker("sound"), world.truth.handler("w", count, token=word)))
    async with serving(*workers):
        for world in worlds.values():
            await world.until(lambda world=world: world.all_deliver("w", ["sound"], least=10))
        server.kill()
        await asyncio.sleep(TTL)  # no lease outlives that
        server.start()
        again = time.monotonic()
        for world in worlds.values():
            await world.until_done("sound")
    for word, world in worlds.items():
        world.figure(f"done after a new start ({word})", round(time.monotonic() - again, 2))
        world.figure("doubles", world.doubles("sound"))
        world.close()
    kept = b"".join(path.read_bytes() for path in server.file.parent.glob("temporal.db*"))
    assert b"hush-prompt" in kept
    assert b"token-hush" in kept
    assert b"quiet-prompt" not in kept
    assert b"token-quiet" not in kept
    server.kill()
