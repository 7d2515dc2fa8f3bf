"""Circuits in a store: breakers of many processes share one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamguard import CircuitBreaker, CircuitOpenError, ConfigError
from streamguard.breaker import Circuit, CircuitStore, MemoryStore
from streamguard.errors import StoreError
from streamguard.fleet import sql_circuits
from tests.fleet.places import MIDNIGHT


def failed(circuit, now):
    return replace(circuit, failures=circuit.failures + 1), now


def read(circuits, key="c"):
    return circuits.update(key, lambda circuit, now: (circuit, circuit))


def test_it_is_a_circuit_store_that_blocks(store):
    circuits: CircuitStore = store.circuits
    assert circuits.blocks
    assert read(circuits) == Circuit()


def test_a_circuit_comes_back_as_it_was_in_the_stores_time(place, store):
    circuit = Circuit(
        status="half_open",
        failures=3,
        generation=7,
        opened_at=1.5,
        not_before=MIDNIGHT,
        leases=(("anna\x00", 2.5),),
        cause="why\ud800",
    )
    assert store.circuits.update("c", lambda _, now: (circuit, now)) == MIDNIGHT
    place.advance(3.5)
    assert store.circuits.update("c", lambda old, now: (old, now)) == MIDNIGHT + 3.5
    assert read(place.store().circuits) == circuit
    assert read(store.circuits, "another") == Circuit()


def test_of_two_at_the_same_time_the_slower_reads_again(place, store):
    other = place.store().circuits
    seen = []

    def slow(circuit, now):
        seen.append(circuit.failures)
        if len(seen) < 3:
            other.update("c", failed)
        return failed(circuit, now)

    store.circuits.update("c", slow)
    assert seen == [0, 1, 2]
    assert read(other).failures == 3


def test_without_the_version_one_of_them_would_be_lost(place, store, monkeypatch):
    """The control of the one above."""
    monkeypatch.setattr(
        sql_circuits, "_REPLACE", sql_circuits._REPLACE.replace(" AND version = :version", "")
    )
    other = place.store().circuits
    other.update("c", failed)

    def slow(circuit, now):
        other.update("c", failed)
        return failed(circuit, now)

    with pytest.raises((AssertionError, StoreError)):
        store.circuits.update("c", slow)
        assert read(other).failures == 3


def test_who_is_never_the_first_gives_up(place, store, monkeypatch):
    monkeypatch.setattr(sql_circuits, "_LONGEST_PAUSE", 0)
    other = place.store().circuits

    def unlucky(circuit, now):
        other.update("c", failed)
        return failed(circuit, now)

    with pytest.raises(StoreError, match="others have changed this circuit 100 times"):
        store.circuits.update("c", unlucky)


def test_reading_writes_nothing(place, store):
    store.circuits.update("c", failed)
    before = place.execute("SELECT version FROM streamguard_circuits")
    read(store.circuits)
    assert place.execute("SELECT version FROM streamguard_circuits") == before


def test_a_change_whose_answer_was_lost_is_made_once(store, monkeypatch):
    """The connection breaks after the write: the circuit's mark tells that it was made."""
    database = store._database
    use = database.use

    class Broken:
        def __init__(self, lane):
            self._lane, self._using = lane, use(lane)

        def __enter__(self):
            return self._using.__enter__()

        def __exit__(self, *error):
            self._using.__exit__(*error)
            if self._lane == "write":
                raise StoreError("the connection was lost")

    monkeypatch.setattr(database, "use", Broken)
    assert store.circuits.update("c", failed) == MIDNIGHT
    assert read(store.circuits).failures == 1


def test_a_change_that_was_not_made_is_an_error(place, store, monkeypatch):
    read(store.circuits)
    place.execute("DROP TABLE streamguard_circuits")
    with pytest.raises(StoreError):
        store.circuits.update("c", failed)


def test_a_listener_hears_what_comes_to_be_known_here(place, store):
    other = place.store().circuits
    heard = []
    unlisten = store.circuits.listen("c", lambda: heard.append("c"))
    store.circuits.update("c", failed)
    store.circuits.update("another", failed)
    read(store.circuits)
    assert heard == ["c"]
    other.update("c", failed)
    assert heard == ["c"]
    read(store.circuits)
    assert heard == ["c", "c"]
    unlisten()
    store.circuits.update("c", failed)
    assert heard == ["c", "c"]


def test_what_is_no_circuit_is_told(place, store):
    store.circuits.update("c", failed)
    place.execute("UPDATE streamguard_circuits SET circuit = '{}'")
    with pytest.raises(ConfigError, match="no circuit"):
        read(store.circuits)


def test_breakers_at_one_store_are_one_breaker(place):
    """A failure here opens it there; one of them may probe when the pause is over; its success is everybody's."""
    breakers = [
        CircuitBreaker("api", open_after=2, pause=10, store=place.store().circuits)
        for _ in range(3)
    ]
    for breaker in breakers[:2]:
        breaker.try_acquire().failed()
    for breaker in breakers:
        with pytest.raises(CircuitOpenError):
            breaker.try_acquire()
    place.advance(11)
    probe = breakers[2].try_acquire()
    with pytest.raises(CircuitOpenError):
        breakers[0].try_acquire()
    probe.succeeded()
    for breaker in breakers:
        breaker.try_acquire().succeeded()


def test_a_naive_store_answers_the_same(place, store):
    """Random changes: what is in memory and what is in a database is the same circuit."""
    import random

    memory = MemoryStore(lambda: place.now)
    draw = random.Random(7)
    for _ in range(100):
        seed = draw.random()

        def change(circuit, now, seed=seed):
            one = random.Random(seed)
            if one.random() < 0.3:
                return circuit, now
            return replace(circuit, generation=circuit.generation + 1, opened_at=now), seed

        key = draw.choice("ab")
        assert store.circuits.update(key, change) == memory.update(key, change)
        assert read(store.circuits, key) == read(memory, key)
