"""What `OpenTelemetryObserver` measures: the histograms of the conventions, and two counters of streamguard's own.

No attribute takes more values than `NAMES`: of streams and tools the first so many are told apart, all others are
"other", for a model or a program may choose any name. Knows the names of the conventions and the OpenTelemetry API.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from opentelemetry import metrics

from streamguard._version import __version__
from streamguard.observers import genai

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import Counter, Histogram, MeterProvider

NAMES: Final = 100
OTHER: Final = "other"

# By name: what it counts.
COUNTERS: Final = {
    "streamguard.verdicts": "Limits that ended a stream, or would have.",
    "streamguard.concerns": "What a person may want to look at while nothing is ended.",
    "streamguard.cost": "What it cost, as the backends say.",
}
_UNITS: Final = {"streamguard.cost": "{USD}"}


class Instruments:
    """One for each metric, made once."""

    def __init__(self, meter_provider: MeterProvider | None) -> None:
        meter = metrics.get_meter(
            "streamguard", __version__, meter_provider=meter_provider, schema_url=genai.SCHEMA_URL
        )
        self._histograms: dict[str, Histogram] = {
            name: meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=bounds
            )
            for name, (unit, text, bounds) in genai.HISTOGRAMS.items()
        }
        self._counters: dict[str, Counter] = {
            name: meter.create_counter(name, _UNITS.get(name, "1"), text)
            for name, text in COUNTERS.items()
        }
        self._agents, self._tools = _Few(), _Few()

    def agent_over(self, agent: str, seconds: float, error: str, tool_calls: int) -> None:
        """An agent has done its work, or failed at it."""
        attributes = self._of(agent)
        self._histograms[genai.TOOL_CALLS].record(tool_calls, attributes)
        self._histograms[genai.AGENT_DURATION].record(seconds, _with_error(attributes, error))

    def used(self, agent: str, bill: Mapping[str, float], provider: str) -> None:
        """So much was used up by one invocation."""
        attributes = self._of(agent)
        about = {genai.OPERATION: genai.INVOKE_AGENT, **attributes}
        if provider:
            about[genai.PROVIDER] = provider
        for kind in ("input", "output"):
            if kind in bill:
                told = {**about, genai.TOKEN_TYPE: kind}
                self._histograms[genai.TOKENS].record(int(bill[kind]), told)
        if "calls" in bill:
            self._histograms[genai.INFERENCE_CALLS].record(int(bill["calls"]), attributes)
        if "cost" in bill:
            self._counters["streamguard.cost"].add(bill["cost"], attributes)

    def tool_over(self, agent: str, tool: str, seconds: float, error: str) -> None:
        """A tool has done its work, or failed at it."""
        attributes = {genai.TOOL: self._tools.known(tool), **self._of(agent)}
        self._histograms[genai.TOOL_DURATION].record(seconds, _with_error(attributes, error))

    def verdict(self, agent: str, limit: str, guard: str, *, enforced: bool) -> None:
        """A limit was reached, as that guard has found."""
        attributes: dict[str, str | bool] = {
            **self._of(agent),
            "streamguard.limit": limit,
            "streamguard.guard": guard,
            "streamguard.enforced": enforced,
        }
        self._counters["streamguard.verdicts"].add(1, attributes)

    def concern(self, agent: str, limit: str) -> None:
        """Something may be wrong."""
        attributes = {**self._of(agent), "streamguard.limit": limit}
        self._counters["streamguard.concerns"].add(1, attributes)

    def _of(self, agent: str) -> dict[str, str]:
        return {genai.AGENT: self._agents.known(agent)} if agent else {}


def _with_error(attributes: dict[str, str], error: str) -> dict[str, str]:
    return {**attributes, genai.ERROR: error} if error else attributes


class _Few:
    """The first few names that came."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def known(self, name: str) -> str:
        """`name`, or that it is another one."""
        if name in self._names:
            return name
        with self._lock:
            if len(self._names) >= NAMES:
                return OTHER
            self._names.add(name)
        return name
