"""Circuits in a database, so that the breakers of many processes share one: a `CircuitStore`.

A circuit is a row with a version, and is replaced only where the version is still that which was read: of two that
change one circuit at the same time the slower reads again. So no lock is held while we think, or while a
network is black, and reading a circuit writes nothing. Each change bears a mark of its own, which tells after
a connection broke in the middle whether it was made.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from streamguard.breaker.circuit import Circuit
from streamguard.breaker.circuit_store import Listeners
from streamguard.errors import StoreError
from streamguard.fleet.stored_texts import checked_name

if TYPE_CHECKING:
    from streamguard.fleet.database import Database

T = TypeVar("T")

_READ: Final = """
SELECT clock.now, c.version, c.writer, c.circuit FROM (SELECT streamguard_now() AS now) AS clock
LEFT JOIN streamguard_circuits AS c ON c.key = :key
"""
_INSERT: Final = """
INSERT INTO streamguard_circuits (key, version, writer, circuit) VALUES (:key, 1, :writer, :circuit)
ON CONFLICT (key) DO NOTHING
RETURNING version
"""
_REPLACE: Final = """
UPDATE streamguard_circuits SET version = version + 1, writer = :writer, circuit = :circuit
WHERE key = :key AND version = :version
RETURNING version
"""
_MOST_TRIES: Final = 100
_LONGEST_PAUSE: Final = 0.01


class _Read(NamedTuple):
    now: float
    version: int
    writer: str
    circuit: Circuit


class SqlCircuits:
    """The circuits of a store. What another process did is told here when it is read here."""

    blocks = True

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._listeners = Listeners()
        self._seen: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<SqlCircuits: {self._database.place}>"

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        """See `CircuitStore`."""
        checked_name("key", key)
        for tries in range(_MOST_TRIES):
            if tries:
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.0005 * tries)))  # noqa: S311 - so that two do not go on in step
            read = self._read(key)
            after, answer = change(read.circuit, read.now)
            if after == read.circuit:
                self._saw(key, read.version)
                return answer
            if self._replace(key, read.version, after):
                self._saw(key, read.version + 1)
                return answer
        raise StoreError(
            f"{self._database.place}: others have changed this circuit {_MOST_TRIES} times while it "
            "was to be changed. Try again"
        )

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """See `CircuitStore`."""
        return self._listeners.add(key, changed)

    def _read(self, key: str) -> _Read:
        with self._database.use("read") as run:
            [(now, version, writer, circuit)] = run(_READ, key=key)
        if version is None:
            return _Read(now, 0, "", Circuit())
        return _Read(now, version, writer, Circuit.from_json(json.loads(circuit)))

    def _replace(self, key: str, version: int, circuit: Circuit) -> bool:
        writer = uuid.uuid4().hex
        values: dict[str, Any] = {"writer": writer, "circuit": json.dumps(circuit.as_json())}
        try:
            with self._database.use("write") as run:
                if version:
                    return bool(run(_REPLACE, key=key, version=version, **values))
                return bool(run(_INSERT, key=key, **values))
        except StoreError:
            if self._read(key).writer == writer:  # it was made, and its answer was lost
                return True
            raise

    def _saw(self, key: str, version: int) -> None:
        if self._seen.get(key, 0) != version:
            self._seen[key] = version
            self._listeners.tell(key)
