"""A worker that the store is not to be reached from: it ends its sessions before another begins them.

The network is a proxy that accepts and acknowledges all, and passes nothing on; for a file, which has no network, it is
a store that does not answer.
"""

from __future__ import annotations

import time

import pytest

from tests.fleet.acceptance.test_death import COUNT, keys, taken_by
from tests.fleet.acceptance.truth import boottime
from tests.fleet.acceptance.yard import SLACK, TTL

WAYS = {"both": {"up", "down"}, "up": {"up"}, "down": {"down"}}


def cut_off(yard, cut, heal, faults, sessions: int = COUNT, **config):
    """One worker has all sessions and is cut off until another has them; the truth when it is back."""
    old, new = yard.worker("old", faults=faults, **config), yard.worker("new")
    old.go()
    yard.until(old.is_up)
    names = yard.submit(keys(sessions), kind="steady", messages=400)
    taken_by(yard, old, names)
    new.go()
    yard.until(new.is_up)
    cut()
    began = yard.truth().lines[-1]["at"]
    taken_by(yard, new, names, 1)
    yard.until_after(began + 1.5 * TTL)
    at_cut = yard.truth()
    heal()
    truth = yard.until(lambda truth: len(truth.of("ended", pid=old.pid)) == sessions)
    assert truth.sessions("began", pid=old.pid) == set(names)
    assert at_cut.sessions("began", pid=new.pid) == set(names)
    return truth, set(names)


def check(truth, names, faults) -> None:
    stale = truth.stale("delivered") + truth.stale("opened")
    if (
        faults
    ):  # it held on to all of them, the cut outlived the lease, and they were somebody else's
        assert set(stale) == names
    else:
        assert not stale


@pytest.mark.parametrize(
    ("way", "faults"),
    [("both", []), ("up", []), ("down", []), ("both", ["no_fence"])],
    ids=["both", "up", "down", "both-control"],
)
def test_a_silent_network(served_yard, way, faults):
    """F2: not one delivery by the old owner after the new one began."""
    proxy = served_yard.proxy()

    def cut() -> None:
        proxy.black = frozenset(WAYS[way])

    def heal() -> None:
        proxy.is_black = False

    truth, names = cut_off(
        served_yard, cut, heal, faults, address=served_yard.through(proxy), loop="trio"
    )
    check(truth, names, faults)


@pytest.mark.parametrize("faults", [[], ["no_fence"]], ids=["", "control"])
def test_a_silent_file(tmp_path, file_yard, faults):
    """F2: the same where the store is a file."""
    black = tmp_path / "black"
    truth, names = cut_off(file_yard, black.touch, black.unlink, faults, black=str(black))
    check(truth, names, faults)


@pytest.mark.parametrize("faults", [[], ["no_shutdown"]], ids=["", "control"])
def test_connections_that_are_black_for_ever(served_yard, faults):
    """F2: what waits in them is cut, and beats go another way as soon as there is one."""
    yard, ttl = served_yard, 3.0
    proxy = yard.proxy()
    worker = yard.worker("worker", address=yard.through(proxy), ttl=ttl, faults=faults)
    worker.go()
    yard.until(worker.is_up)
    names = yard.submit(keys(), kind="steady", messages=1000)
    taken_by(yard, worker, names)
    # A worker has two threads for its beats. With the fault each black beat takes one for good; on a busy machine none may
    # be under way when the network goes black, so that another round is needed.
    for _ in range(8 if faults else 2):
        proxy.is_black = True
        yard.until_after(boottime() + 0.8)  # a beat is under way
        proxy.forsake()
        began = boottime()

        def beats_again(truth, began=began) -> bool:
            return any(beat["sent"] > began for beat in truth.of("beat"))

        if faults:
            if not beats_again(yard.until_after(began + 2 * ttl)):
                return  # this is the harm
            continue
        truth = yard.until(beats_again)
        sent = min(beat["sent"] for beat in truth.of("beat") if beat["sent"] > began)
        assert sent - began < ttl + SLACK
    assert not faults, "the worker beats on, with nothing that frees its threads"


@pytest.mark.parametrize("faults", [[], ["on_the_loop"]], ids=["", "control"])
def test_a_store_that_is_blocked_for_two_seconds(yard, faults):
    """F1: the sessions of a worker do not wait for its store."""
    worker = yard.worker("worker", ttl=15.0, ticks=True, faults=faults)
    worker.go()
    yard.until(worker.is_up)
    names = yard.submit(keys(3), kind="steady", messages=1000)
    taken_by(yard, worker, names, 3)
    with blocked(yard):
        began = yard.truth().lines[-1]["at"]
        time.sleep(2)
    ended = began + 2
    truth = yard.until(lambda truth: any(line["began"] > ended for line in truth.of("ticked")))
    late = [line["late"] for line in truth.of("ticked") if line["began"] + 0.5 >= began]
    if faults:
        assert max(late) > 1.5
    else:
        assert max(late) < 1.5  # the rest is what a busy machine adds
        delivered = [line["at"] for line in truth.of("delivered")]
        assert sum(began + 0.5 < at < ended for at in delivered) >= len(names)


class blocked:  # noqa: N801 - a context manager, as contextlib's are
    """Nobody can write to the store."""

    def __init__(self, yard) -> None:
        self._yard = yard

    def __enter__(self) -> None:
        if self._yard.place == "sqlite":
            import sqlite3

            self._connection = sqlite3.connect(
                self._yard.address, isolation_level=None, timeout=30
            )
            self._connection.execute("BEGIN EXCLUSIVE")
        else:
            import psycopg

            self._connection = psycopg.connect(self._yard.address)
            self._connection.execute("LOCK TABLE streamguard_sessions")

    def __exit__(self, *_: object) -> None:
        self._connection.rollback()
        self._connection.close()
