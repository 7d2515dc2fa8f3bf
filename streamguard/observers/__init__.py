"""Observers: events as structlog entries, Prometheus metrics, OpenTelemetry spans.

structlogs      `StructlogObserver`, needs `agent-streamguard[structlog]`
prometheus      `PrometheusObserver`, needs `agent-streamguard[prometheus]`
opentelemetry   `OpenTelemetryObserver`, needs `agent-streamguard[opentelemetry]`

The log of the standard library needs none: it is told by itself (`events.log`). Each observer takes
the events of streams, time scopes and circuit breakers alike. They know events and their fields, and
each its package; nothing of streamguard knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy

if TYPE_CHECKING:
    from streamguard.observers.opentelemetry import OpenTelemetryObserver
    from streamguard.observers.prometheus import PrometheusObserver
    from streamguard.observers.structlogs import StructlogObserver

__all__ = ["OpenTelemetryObserver", "PrometheusObserver", "StructlogObserver"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "opentelemetry": ("OpenTelemetryObserver",),
        "prometheus": ("PrometheusObserver",),
        "structlogs": ("StructlogObserver",),
    },
)
