"""A store in SQL is what engines and breakers ask for."""

from __future__ import annotations

from typing import assert_type

from streamguard import CircuitBreaker
from streamguard.breaker import CircuitStore
from streamguard.fleet.addresses import store_at
from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.store import CheckpointStore

store = assert_type(store_at("fleet.db"), SqlStore)
sessions: CheckpointStore = store
circuits: CircuitStore = store.circuits
breaker = CircuitBreaker("api", store=store.circuits)
