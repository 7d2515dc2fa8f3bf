"""Backends that are processes, and work on whether anybody listens or not: none does once another owner has begun."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.fleet.acceptance.test_death import keys, taken_by

# What is to happen within parts of it is done by processes that a busy machine lets wait.
TTL = 4.0
MANY = 50_000


def lives(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


@pytest.mark.parametrize("faults", [[], ["no_deadline"]], ids=["", "control"])
def test_a_backend_that_is_a_process(yard, tmp_path, faults):
    """F2: it has done nothing more once another one had begun: its worker killed, stopped, or slow to close it."""
    black = tmp_path / "black"
    common = {"limit": 2, "faults": faults, "processes": True, "ttl": TTL}
    old = {
        "killed": yard.worker("killed", **common),
        "stopped": yard.worker("stopped", **common),
        "slow": yard.worker("slow", black=str(black), **common),
    }
    new = yard.worker("new", processes=True, ttl=TTL, faults=["eager"])
    held: dict[str, list[str]] = {}
    for name, worker in old.items():
        worker.go()
        yard.until(worker.is_up)
        held[name] = yard.submit(
            keys(2, name), kind="process", messages=MANY, every=0.005, closing=60.0
        )
        taken_by(yard, worker, held[name], 3)
    new.go()
    yard.until(new.is_up)
    black.touch()
    stopped = old["stopped"].stop()
    old["killed"].kill()
    sessions = [session for names in held.values() for session in names]
    taken_by(yard, new, sessions, 1)
    yard.until_after(stopped + 2 * TTL)
    truth = yard.truth()
    for name, worker in old.items():
        assert truth.sessions("began", pid=worker.pid) == set(held[name])
        assert truth.sessions("spawned", pid=worker.pid) == set(held[name])
    backends = [line["backend"] for line in truth.of("spawned") if line["token"] == 1]
    assert len(backends) == 6
    stale = truth.stale("emitted")
    assert truth.sessions("disconnecting") == set(held["slow"])
    if faults:
        # One that is killed is the sentinel's affair in any case.
        assert set(stale) == {*held["stopped"], *held["slow"]}
        assert any(map(lives, backends))
    else:
        assert not stale
        assert not any(map(lives, backends))
    assert not truth.stale("delivered")


@pytest.mark.parametrize("faults", [[], ["plain_cancel"]], ids=["", "control"])
def test_wherever_the_consumer_is_when_the_lease_is_lost(yard, tmp_path, faults):
    """F1: a verdict: the client is disconnected, the tree dead, and a line says why."""
    black = tmp_path / "black"
    worker = yard.worker("worker", black=str(black), faults=faults, processes=True, ttl=2 * TTL)
    worker.go()
    yard.until(worker.is_up)
    places = ["idle", "busy", "closing", "backoff", "between"]
    for where in places:
        yard.submit([where], kind="lost", where=where, messages=MANY, every=0.02)
    truth = yard.until(lambda truth: truth.sessions("delivered", seq=3) == set(places))
    backends = {line["session"]: line["backend"] for line in truth.of("spawned")}
    assert set(backends) == set(places)
    yard.until(lambda _: not lives(backends["backoff"]))
    assert {where for where in places if lives(backends[where])} == set(places) - {"backoff"}
    black.touch()
    truth = yard.until(lambda truth: truth.sessions("ended") == set(places))
    files = yard.evidence.rglob("timeouts.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    lost = {line["run_id"] for line in lines if line["limit"] == "lease"}
    disconnected = truth.sessions("disconnected")
    if faults:
        assert not lost
        assert not disconnected
        return
    assert lost == set(places)
    assert disconnected == {"idle", "busy", "between"}  # what has failed by itself is not asked
    errors = {line["error"] for line in truth.of("ended")}
    # On a busy machine what was left of the ttl may be over before a handler is: then its worker cuts it.
    assert errors - {"CancelledError", "Cancelled"} == {"LeaseLostError"}
    assert not any(map(lives, backends.values()))
    assert len(truth.of("opened")) == len(places)
