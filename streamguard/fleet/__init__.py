"""Guarded sessions on many machines: a session whose worker died or hung goes on elsewhere, and never has two owners.

    engine          what an engine does, whichever it is; the handler is the same on each
    local_engine    workers of its own, over a store
    temporal_engine the same on Temporal; its sessions, its calls and what it keeps are temporal_*
    fleet_worker    what all engines' workers do with a session that they hold
    holding         a session that is held, and the scope in which its handler runs
    lease           one session that a worker holds: its handler's view, and what its session obeys
    fates           what becomes of a session whose handler has ended
    fleet_log       its verdicts, as lines of the fleet's log
    calls           a store's methods from an event loop, each within a bound
    store           where sessions are kept: the interface
    addresses       which store an address means; sql_store is SQLite's and PostgreSQL's

Nothing of it is imported by the rest of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy

if TYPE_CHECKING:
    from streamguard.fleet.addresses import store_at
    from streamguard.fleet.engine import Engine, Handler
    from streamguard.fleet.lease import Lease
    from streamguard.fleet.local_engine import LocalEngine
    from streamguard.fleet.sql_store import SqlStore
    from streamguard.fleet.store import (
        Beat,
        Checkpoint,
        CheckpointStore,
        Claimed,
        Row,
        TimeoutsLog,
    )
    from streamguard.fleet.temporal_engine import TemporalEngine

__all__ = [
    "Beat",
    "Checkpoint",
    "CheckpointStore",
    "Claimed",
    "Engine",
    "Handler",
    "Lease",
    "LocalEngine",
    "Row",
    "SqlStore",
    "TemporalEngine",
    "TimeoutsLog",
    "store_at",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "addresses": ("store_at",),
        "engine": ("Engine", "Handler"),
        "lease": ("Lease",),
        "local_engine": ("LocalEngine",),
        "sql_store": ("SqlStore",),
        "store": ("Beat", "Checkpoint", "CheckpointStore", "Claimed", "Row", "TimeoutsLog"),
        "temporal_engine": ("TemporalEngine",),
    },
)
