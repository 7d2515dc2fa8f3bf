"""A fleet: what a lease costs each message, what stores and workers can do, and how soon another one goes on.

The cost per message is a race, as elsewhere. All else is measured with workers as processes, in real time, on each store that
there is: a file; a PostgreSQL server of the tests, if one is installed. Temporal's rows are in `fleet_temporal`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, Contestant, Laps, percentile, race, run
from benchmarks.sources import buffered, exhaust
from streamguard import ResumePoint, idle_guard, session
from streamguard._base.boottime import boottime
from streamguard.fleet import Beat, Checkpoint, Claimed, Lease, store_at
from streamguard.fleet.sql_store import SqlStore

ALONE = "session | idle_guard"
LEASED = "the same under a lease"
RENEWED = "the same, renewed and written down for each 1,000 messages"
HOLD = 1.15
TTL = 3.0
# Of those sessions that run for long: messages a second.
RATE = 10


def measure(rounds: int, n: int, sessions: int, seconds: float, most: int) -> list[Figure]:
    figures = _cost_of_a_lease(rounds, n)
    for name, place in PLACES.items():
        with place() as address:
            if address is None:
                continue
            figures += _store_alone(name, address, rounds)
            figures += _short_sessions(name, address, sessions)
            figures += _recovery(name, address, max(1, rounds // 15))
            figures += _many(name, address, seconds, most)
    return figures + _on_temporal(sessions, seconds, most)


def _on_temporal(sessions: int, seconds: float, most: int) -> list[Figure]:
    """As far as an engine of its own has the same rows; none if it is not installed: `[bench,temporal]`."""
    if find_spec("temporalio") is None:
        return []
    from benchmarks import fleet_temporal

    figures: list[Figure] = []

    def tell(what: str, value: float, unit: str, hold: float | None = None) -> None:
        figures.append(_figure("Temporal", what, value, unit, hold))

    fleet_temporal.measure(tell, min(sessions, 300), seconds, most)
    return figures


# -- places -----------------------------------------------------------------------------------


@contextmanager
def _file() -> Generator[str | None]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "fleet.db")


@contextmanager
def _server() -> Generator[str | None]:
    if find_spec("psycopg") is None:
        yield None
        return
    from tests.fleet.postgres import NoServerError, Server

    try:
        server = Server()
    except NoServerError:
        yield None
        return
    try:
        server.start()
        address = server.address()
        with store_at(address) as store:
            store.initialise()
        yield address
    finally:
        server.remove()


PLACES: Mapping[str, Any] = {"SQLite": _file, "PostgreSQL": _server}


def _figure(place: str, what: str, value: float, unit: str, hold: float | None = None) -> Figure:
    return Figure(
        group="fleet", loop="asyncio", what=f"{place}: {what}", value=value, unit=unit, hold=hold
    )


# -- per message ------------------------------------------------------------------------------


def _cost_of_a_lease(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        laps = run(loop, race, _contestants(), rounds, n // 4)
        figures += [
            Figure(
                group="fleet",
                loop=loop,
                what=f"{name}, a message",
                value=lap.best * 1e9,
                median=lap.median * 1e9,
                unit="ns",
            )
            for name, lap in laps.items()
        ]
        figures += [_ratio(loop, laps, name) for name in (LEASED, RENEWED)]
    return figures


def _ratio(loop: str, laps: Mapping[str, Laps], name: str) -> Figure:
    mine, alone = laps[name], laps[ALONE]
    return Figure(
        group="fleet",
        loop=loop,
        what=f"{name} / {ALONE}",
        value=mine.best / alone.best,
        median=statistics.median(
            mine / alone for mine, alone in zip(mine.values, alone.values, strict=True)
        ),
        unit="x",
        hold=HOLD,
    )


def _contestants() -> dict[str, Contestant]:
    async def alone(n: int) -> None:
        await _consume(ResumePoint(prompt="go"), n)

    async def leased(n: int) -> None:
        await _consume(_lease().resume_point(), n)

    async def renewed(n: int) -> None:
        lease = _lease()

        def beat() -> None:
            lease.saved(lease.beat())
            lease.renewed(boottime())

        await _consume(lease.resume_point(), n, each=beat)

    return {ALONE: alone, LEASED: leased, RENEWED: renewed}


def _lease() -> Lease:
    claimed = Claimed(
        key="s",
        token=1,
        owner="o",
        attempt=1,
        fruitless=0,
        spec={"prompt": "go"},
        checkpoint=Checkpoint(),
    )
    return Lease(claimed, 1e6, boottime())


async def _consume(point: ResumePoint, n: int, each: Callable[[], None] | None = None) -> None:
    class Opened:
        async def __aenter__(self) -> Any:
            return buffered(n)

        async def __aexit__(self, *_: object) -> None:
            pass

    async with session(lambda _: Opened(), point=point) | idle_guard(180) as chat:
        if each is None:
            await exhaust(aiter(chat))
            return
        left = 1000
        async for _ in chat:
            left -= 1
            if not left:
                left = 1000
                each()


# -- a store by itself ------------------------------------------------------------------------


def _store_alone(place: str, address: str, rounds: int) -> list[Figure]:
    """Beats of 300 sessions, each with a checkpoint; claims, one at a time."""
    with store_at(address) as store:
        claimed, each = _claimed(store, 300)
        point = {"version": 1, "prompt": "Fix issue 7", "token": "0" * 36, "delivered": 0}
        took: list[float] = []
        for number in range(max(5, rounds)):
            kept = Checkpoint(point={**point, "delivered": number}, delivered=number)
            beats = [
                Beat(key=c.key, token=c.token, owner=c.owner, checkpoint=kept, progressed=True)
                for c in claimed
            ]
            began = time.perf_counter()
            assert len(store.beat(beats, 1000)) == len(beats)
            took.append(time.perf_counter() - began)
        for one in claimed:
            store.finish(Beat(key=one.key, token=one.token, owner=one.owner))
    best = min(took)
    return [
        _figure(
            place, "300 leases renewed and checkpointed, p50", percentile(took, 50) * 1e3, "ms", 50
        ),
        _figure(place, "checkpoints", 300 / best, "a second"),
        _figure(place, "claims, one at a time", 1 / each, "a second"),
    ]


def _claimed(store: SqlStore, count: int) -> tuple[list[Claimed], float]:
    for number in range(count):
        store.submit(f"beat{number}", {"prompt": "go"})
    began = time.perf_counter()
    claimed = [one for _ in range(count) for one in store.claim("bench", 1000, 1)]
    return claimed, (time.perf_counter() - began) / count


# -- workers ----------------------------------------------------------------------------------


class _Worker:
    def __init__(self, address: str, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fleet_worker", address, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.heard()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def kill(self) -> float:
        at = boottime()
        self.process.kill()
        self.process.communicate()
        return at


def _submit(address: str, name: str, count: int, messages: int, every: float) -> None:
    with store_at(address) as store:
        for number in range(count):
            store.submit(f"{name}{number}", {"prompt": "go", "messages": messages, "every": every})


def _short_sessions(place: str, address: str, count: int) -> list[Figure]:
    """Sessions of three messages, by two workers."""
    figures: list[Figure] = []
    for claim in (2, 10):
        _submit(address, f"short{claim}-", count, 2, 0.0)
        engine = {"ttl": 15, "limit": 50, "claim": claim}
        workers = [_Worker(address, engine=engine) for _ in range(2)]
        for worker in workers:
            worker.go()
        said = [worker.heard() for worker in workers]
        for worker in workers:
            worker.process.communicate()
        assert sum(each["done"] for each in said) == count
        # Each goes home when it has found nothing for a while.
        rate = count / max(each["took"] for each in said)
        figures.append(
            _figure(place, f"sessions of 3 messages, 2 workers, claim={claim}", rate, "a second")
        )
    return figures


def _recovery(place: str, address: str, rounds: int) -> list[Figure]:
    """From a worker's SIGKILL until the last of its 40 sessions has begun elsewhere."""
    took: list[float] = []
    count = 40
    for number in range(rounds):
        engine = {"ttl": TTL, "flush": TTL / 8, "limit": 50, "claim": 10}
        old, new = (_Worker(address, engine=engine, tells=True) for _ in range(2))
        old.go()
        _submit(address, f"killed{number}-", count, 80, 1 / RATE)
        for _ in range(count):
            old.heard()
        new.go()
        time.sleep(2)
        killed = old.kill()
        took.append(max(new.heard()["at"] for _ in range(count)) - killed)
        while "done" not in new.heard():
            pass
        new.process.communicate()
    return [
        _figure(place, f"40 sessions go on after SIGKILL, ttl={TTL:g}", max(took), "s", TTL + 1)
    ]


def _many(place: str, address: str, seconds: float, most: int) -> list[Figure]:
    """One worker, with ever more sessions of ten messages a second."""
    figures: list[Figure] = []
    for count in (1, 100, 1000):
        if count > most:
            break
        # More than are ever needed: it is killed when it has been watched.
        _submit(address, f"many{count}-", count, 100_000, 1 / RATE)
        engine = {"ttl": 15, "limit": count, "claim": 50}
        worker = _Worker(address, engine=engine, watched=seconds, sessions=count)
        worker.go()
        said = worker.heard()
        worker.kill()
        with store_at(address) as store:
            for row in store.live():
                store.cancel(row.key, "over")
        time.sleep(0.1)
        many = f"{count} session{'s' * (count > 1)}"
        figures += [
            _figure(place, f"{many}, worker's CPU", said["cpu"] * 100, "% of a core"),
            _figure(place, f"{many}, messages", said["rate"], "a second"),
            _figure(place, f"{many}, false expiries", said["again"], "", 0),
            _figure(place, f"{many}, longest stall of its loop", said["late"] * 1e3, "ms"),
            _figure(place, f"{many}, memory (RSS)", said["memory"], "MB"),
        ]
    return figures
