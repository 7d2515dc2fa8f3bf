"""The circuit breaker of a backend: spares it, and us, while it does not work.

circuit         the rules, as a state machine without clock, lock or wait
circuit_store   where circuits are kept: the interface, and the memory of this process
records         one circuit in a store that may fail, hang or be slow, and what is known of it here
breaker         `CircuitBreaker` and its permits: what the rules need of the world
circuit_events  what an observer is told
"""

from streamguard.breaker.breaker import CircuitBreaker, OnOpen, Permit
from streamguard.breaker.circuit import Circuit, Outcome, Rules, Snapshot, Status
from streamguard.breaker.circuit_events import (
    CircuitChanged,
    CircuitEvent,
    CircuitObserver,
    CircuitRefused,
    CircuitReported,
    CircuitStoreFailed,
    CircuitThrottled,
)
from streamguard.breaker.circuit_store import CircuitStore, MemoryStore

__all__ = [
    "Circuit",
    "CircuitBreaker",
    "CircuitChanged",
    "CircuitEvent",
    "CircuitObserver",
    "CircuitRefused",
    "CircuitReported",
    "CircuitStore",
    "CircuitStoreFailed",
    "CircuitThrottled",
    "MemoryStore",
    "OnOpen",
    "Outcome",
    "Permit",
    "Rules",
    "Snapshot",
    "Status",
]
