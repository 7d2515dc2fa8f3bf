"""The modules that decide, each with the rooms of tests that are its own: those run first, and for a sample alone."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutants import ROOT

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "_watch": ("watch", "guard", "models"),
    "_loops": ("loops", "guard", "models"),
    "_guard": ("guard", "models", "sessions", "watch", "loops", "test_activity.py"),
    "_scopes": ("scopes", "models"),
    "retry": ("retry", "sessions", "breaker"),
    "breaker": ("breaker", "models", "sessions"),
    "sessions": ("sessions", "models", "fleet", "retry", "breaker"),
    "process": ("process",),
    "evidence": ("evidence", "report"),
    "runner": ("runner",),
    "fleet": ("fleet", "models"),
}

MODULES: Final = (
    *("_watch/ends", "_watch/watch", "_watch/windows", "_watch/in_flight", "_watch/repetition"),
    *("_loops/__init__", "_loops/_asyncio", "_loops/_trio", "_loops/steps", "_loops/timekeeper"),
    *("_guard/attempt", "_guard/guarded", "_guard/monitor", "_guard/plan", "_guard/supervision"),
    *("_guard/teardown", "_guard/way"),
    "_scopes/scopes",
    *("retry/classes", "retry/classification", "retry/decision", "retry/policy", "retry/pushback"),
    *("breaker/breaker", "breaker/circuit", "breaker/records", "breaker/circuit_store"),
    *("sessions/block_clock", "sessions/ledger", "sessions/opened", "sessions/owner"),
    *("sessions/replay", "sessions/session", "sessions/tenure", "sessions/turns"),
    *("process/ending", "process/identity"),
    "evidence/resuming",
    "runner/judge",
    *("fleet/fates", "fleet/holding", "fleet/lease", "fleet/pool"),
)


def rooms_of(module: str) -> list[str]:
    """The folders, and files, of its own tests."""
    found = [f"tests/{room}" for room in ROOMS[module.partition("/")[0]]]
    return [room for room in found if (ROOT / room).exists()]
