"""Observers: events as structlog entries, Prometheus metrics, OpenTelemetry spans.

structlogs      `StructlogObserver`, needs `streamguard[structlog]`
prometheus      `PrometheusObserver`, needs `streamguard[prometheus]`
opentelemetry   `OpenTelemetryObserver`, needs `streamguard[opentelemetry]`

The log of the standard library needs none: it is told by itself (`events.log`). Each observer takes
the events of streams, time scopes and circuit breakers alike. They know events and their fields, and
each its package; nothing of streamguard knows them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamguard.observers.opentelemetry import OpenTelemetryObserver
    from streamguard.observers.prometheus import PrometheusObserver
    from streamguard.observers.structlogs import StructlogObserver

_HOME_OF = {
    "OpenTelemetryObserver": "opentelemetry",
    "PrometheusObserver": "prometheus",
    "StructlogObserver": "structlogs",
}

__all__ = ["OpenTelemetryObserver", "PrometheusObserver", "StructlogObserver"]


def __getattr__(name: str) -> Any:
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
