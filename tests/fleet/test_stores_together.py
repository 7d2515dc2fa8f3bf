"""Many threads and processes at one store: each session is held by one, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from streamguard.fleet import statements
from streamguard.fleet.addresses import store_at
from tests.fleet.places import ServerPlace

ROOT = Path(__file__).parents[2]
PROCESSES = 3


def together(what: str, address: str, *who: str) -> list[str]:
    """What so many processes say that do the same at the same time."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fleet.children.worker", what, address, each],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for each in who
    ]
    try:
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        said = [worker.communicate(timeout=120)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * len(who)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return said


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "fleet.db")
    return ServerPlace(request.getfixturevalue("server"), stands_still=False).address


def test_each_session_is_claimed_by_one_of_many_processes(address):
    keys = [f"s{n}" for n in range(300)]
    with store_at(address) as store:
        for key in keys:
            store.submit(key, {})
        said = together("claim", address, *(f"p{n}" for n in range(PROCESSES)))
        claimed = Counter(key for line in said for key in line.split())
        assert claimed == Counter(keys)
        assert {row.status for row in store.live(all=True)} == {"done"}
        assert {row.attempt for row in store.live(all=True)} == {1}


def test_each_session_is_claimed_by_one_of_many_threads(address):
    with store_at(address) as store:
        keys = [f"s{n}" for n in range(100)]
        for key in keys:
            store.submit(key, {})
        claimed: list[str] = []

        def claim(owner: str) -> None:
            while claims := store.claim(owner, 1000, 1):
                claimed.extend(each.key for each in claims)

        threads = [threading.Thread(target=claim, args=(f"t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(claimed) == Counter(keys)


def wait_until_one_waits(place) -> None:
    """For a lock that somebody else has."""
    deadline = time.monotonic() + 30
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not place.execute(waiting):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("skips", [True, False])
def test_what_another_is_claiming_is_passed_over(server, monkeypatch, skips):
    """One claim is under way, in a transaction that is open. Without SKIP LOCKED both have the session."""
    import psycopg

    from streamguard.fleet.postgres_database import _translated

    place = ServerPlace(server, stands_still=False)
    slow = statements.CLAIM.replace("{SKIP}", "FOR UPDATE SKIP LOCKED")
    if not skips:
        monkeypatch.setattr(statements, "CLAIM", statements.CLAIM.replace("{SKIP}", ""))
    with place.store() as store, psycopg.connect(place.address) as somebody:
        store.submit("s", {})
        values = {"owner": "anna", "ttl": 1000.0, "limit": 1}
        assert len(somebody.execute(_translated(slow), values).fetchall()) == 1
        claims: list = []
        other = threading.Thread(target=lambda: claims.extend(store.claim("bert", 1000, 1)))
        other.start()
        if skips:
            other.join(30)
            assert not other.is_alive()
        else:
            wait_until_one_waits(place)
        somebody.commit()
        other.join(30)
        assert len(claims) == (0 if skips else 1)


def test_many_processes_change_one_circuit(address):
    with store_at(address) as store:
        together("count", address, *["100"] * PROCESSES)
        failures = store.circuits.update("c", lambda circuit, now: (circuit, circuit.failures))
        assert failures == 100 * PROCESSES


def test_many_processes_make_one_store(server, tmp_path):
    schema = "made_by_many"
    server.execute(f"CREATE SCHEMA {schema}")
    served = server.address(options=f"-c search_path={schema}")
    for address in (served, str(tmp_path / "new" / "fleet.db")):
        together("initialise", address, *["-"] * PROCESSES)
        with store_at(address) as store:
            assert store.submit("s", {})
