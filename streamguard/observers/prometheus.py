"""Events as Prometheus metrics: counters, gauges and histograms with bounded labels.

    observer = PrometheusObserver(streams=["planner", "coder"], tools=["Bash"])
    idle_guard(180, observer=observer)

No label can take more values than were named beforehand: a stream, tool or circuit that was not is
"other", and so is an error class, a limit or a reason that streamguard does not know. Knows events
and prometheus_client, which it imports when an observer is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final, get_args
from weakref import WeakKeyDictionary, finalize

from streamguard import events
from streamguard.breaker import circuit
from streamguard.breaker import circuit_events as circuits
from streamguard.errors import ConfigError, DisconnectOutcome, Guard, Limit, StreamTimeoutError
from streamguard.retry.classes import ErrorClass
from streamguard.retry.decision import GaveUp
from streamguard.signals import WaitReason

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streamguard.activity import Activity
    from streamguard.events.flat import AnyEvent

__all__ = ["PrometheusObserver"]

OTHER: Final = "other"
_LIMITS: Final = frozenset(get_args(Limit))
_GUARDS: Final = frozenset(get_args(Guard))
_CLASSES: Final = frozenset(kind.value for kind in ErrorClass)
_HOLDS: Final = frozenset((*get_args(WaitReason), "held"))
_GAVE_UP: Final = frozenset(get_args(GaveUp))
_STATUSES: Final = get_args(circuit.Status)
_DISCONNECTS: Final = frozenset(get_args(DisconnectOutcome))
# From a quick tool to one that works for two hours, which is the default allowance.
_LONG: Final = (0.1, 1, 5, 15, 60, 180, 600, 1800, 7200)
_SHORT: Final = (0.01, 0.05, 0.25, 1, 5, 10, 30, 60)


class PrometheusObserver:
    """Counts what it is told in metrics of `registry` (default: prometheus_client's own).

    One observer serves any number of streams and threads; make one per registry.

    Args:
        registry: where the metrics are registered.
        streams: names of activities that may be label values; all others are "other".
        tools: names of tools that may be.
        circuits: keys of circuit breakers that may be.
        namespace: what every metric's name begins with.

    Raises:
        ConfigError: prometheus_client is not installed, or `registry` has these metrics already.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        streams: Iterable[str] = (),
        tools: Iterable[str] = (),
        circuits: Iterable[str] = (),
        namespace: str = "streamguard",
    ) -> None:
        self._streams, self._tools = frozenset(streams), frozenset(tools)
        self._circuits = frozenset(circuits)
        self._lock = threading.Lock()
        self._open: WeakKeyDictionary[Activity, finalize[[], Activity]] = WeakKeyDictionary()
        self._held: WeakKeyDictionary[Activity, set[str]] = WeakKeyDictionary()
        try:
            self._make(registry, namespace)
        except ImportError as error:
            raise ConfigError(
                "PrometheusObserver needs prometheus_client: pip install 'streamguard[prometheus]'"
            ) from error
        except ValueError as error:  # prometheus_client's word for a duplicate, or a bad name
            raise ConfigError(
                f"the metrics cannot be registered: {error}. Make one PrometheusObserver and share "
                "it, or give each its own registry= or namespace="
            ) from error

    def _make(self, registry: CollectorRegistry | None, namespace: str) -> None:
        # prometheus_client's own types leave these parameters open.
        import prometheus_client

        home = prometheus_client.REGISTRY if registry is None else registry
        made: list[Any] = []

        def metric(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            try:
                made.append(
                    kind(name, text, labels, namespace=namespace, registry=home, **options)
                )
            except ValueError:
                for earlier in made:  # all of them or none
                    home.unregister(earlier)
                raise
            return made[-1]

        counter, gauge = prometheus_client.Counter, prometheus_client.Gauge
        histogram = prometheus_client.Histogram
        self._live = metric(gauge, "streams", "Guarded streams that are open.", "stream")
        self._ended = metric(
            counter, "streams_ended", "Guarded streams that ended.", "stream", "outcome"
        )
        self._timeouts = metric(
            counter,
            "timeouts",
            "Verdicts: a limit ended a stream.",
            "stream",
            "limit",
            "enforced",
            "guard",
        )
        self._withdrawn = metric(
            counter, "timeouts_withdrawn", "Messages that came at the last instant.", "stream"
        )
        self._lateness = metric(
            histogram,
            "timeout_lateness_seconds",
            "How long after its deadline a verdict was noticed.",
            buckets=_SHORT,
        )
        self._stalls = metric(
            counter, "loop_stalls", "Deadlines put off because the event loop did not run."
        )
        self._teardowns = metric(
            counter, "teardowns", "Teardowns that are over.", "confirmed", "disconnect"
        )
        self._teardown_seconds = metric(
            histogram, "teardown_seconds", "How long a teardown took.", buckets=_SHORT
        )
        self._kills = metric(
            counter, "processes_ended", "Process trees that had to be ended.", "signal"
        )
        self._survivors = metric(
            counter, "process_survivors", "Processes that outlived a teardown."
        )
        self._attempts = metric(
            counter, "attempts", "Attempts of sessions that ended.", "stream", "outcome"
        )
        self._retries = metric(
            counter, "retries", "Retries that were scheduled.", "stream", "error_class"
        )
        self._reconnects = metric(
            counter, "reconnects", "Attempts that connected again.", "stream"
        )
        self._gave_up = metric(
            counter, "gave_up", "Sessions that were given up.", "stream", "reason"
        )
        self._work = metric(
            histogram,
            "work_seconds",
            "How long work was in flight.",
            "tool",
            "outcome",
            buckets=_LONG,
        )
        self._in_flight = metric(gauge, "work_in_flight", "Work in flight now.", "tool")
        self._holds = metric(gauge, "holds", "Holds in force now.", "reason")
        self._unknown = metric(counter, "unknown_message_types", "Types that no reader knows.")
        self._scopes = metric(counter, "scope_timeouts", "Time scopes whose time was up.", "kind")
        self._cleanups = metric(counter, "cleanups_cut", "Cleanups that outlived their budget.")
        self._circuit = metric(gauge, "circuit", "1 at the status in force.", "key", "status")
        self._refused = metric(counter, "circuit_refusals", "Permits refused.", "key", "status")

    def __call__(self, event: AnyEvent) -> None:
        """Count `event`."""
        self._on(event)

    def _stream(self, event: events.Event) -> str:
        name = event.activity.name
        return name if name in self._streams else OTHER

    def _tool(self, name: str) -> str:
        return name if name in self._tools else OTHER

    @singledispatchmethod
    def _on(self, event: object) -> None:
        """Nothing to count."""

    # --- streams ------------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.StreamStarted) -> None:
        live = self._live.labels(self._stream(event))
        with self._lock:
            if event.activity in self._open:
                return  # a stream that goes on after it had ended
            # One that its consumer dropped without a word is told of by nobody.
            self._open[event.activity] = finalize(event.activity, live.dec)
        live.inc()

    @_on.register
    def _(self, event: events.StreamEnded) -> None:
        with self._lock:
            end = self._open.pop(event.activity, None)
        if end is not None:
            end()
        self._ended.labels(self._stream(event), _outcome(event)).inc()

    @_on.register
    def _(self, event: events.TimedOut) -> None:
        limit, enforced = _known(event.verdict.limit, _LIMITS), _yes(event.enforced)
        guard = _known(event.verdict.guard, _GUARDS)
        self._timeouts.labels(self._stream(event), limit, enforced, guard).inc()
        self._lateness.observe(event.verdict.lateness)

    @_on.register
    def _(self, event: events.CutWithdrawn) -> None:
        self._withdrawn.labels(self._stream(event)).inc()

    @_on.register
    def _(self, _event: events.LoopStalled) -> None:
        self._stalls.inc()

    @_on.register
    def _(self, _event: events.UnknownMessage) -> None:
        self._unknown.inc()

    # --- work and holds -----------------------------------------------------------------------

    @_on.register
    def _(self, event: events.WorkBegan) -> None:
        self._in_flight.labels(self._tool(event.name)).inc()

    @_on.register
    def _(self, event: events.WorkOver) -> None:
        tool = self._tool(event.name)
        self._in_flight.labels(tool).dec()
        self._work.labels(tool, event.outcome).observe(event.elapsed)

    @_on.register
    def _(self, event: events.HoldBegan) -> None:
        with self._lock:
            held = self._held.setdefault(event.activity, set())
            if event.id in held:
                return  # it was prolonged
            held.add(event.id)
        self._holds.labels(_known(event.reason, _HOLDS)).inc()

    @_on.register
    def _(self, event: events.HoldOver) -> None:
        with self._lock:
            held = self._held.get(event.activity, set())
            if event.id not in held:
                return
            held.discard(event.id)
        self._holds.labels(_known(event.reason, _HOLDS)).dec()

    # --- teardown -----------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.TornDown) -> None:
        teardown = event.teardown
        how = _known(teardown.disconnect, _DISCONNECTS)
        self._teardowns.labels(_yes(teardown.confirmed), how).inc()
        self._teardown_seconds.observe(teardown.elapsed)

    @_on.register
    def _(self, event: events.ProcessKilled) -> None:
        hardest = "KILL" if "KILL" in event.signals else "TERM"
        self._kills.labels(hardest).inc()

    @_on.register
    def _(self, event: events.ProcessSurvived) -> None:
        self._survivors.inc(max(1, len(event.survivors)))

    # --- sessions -----------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.AttemptEnded) -> None:
        self._attempts.labels(self._stream(event), event.outcome).inc()

    @_on.register
    def _(self, event: events.RetryScheduled) -> None:
        self._retries.labels(self._stream(event), _known(event.error_class, _CLASSES)).inc()

    @_on.register
    def _(self, event: events.Reconnected) -> None:
        self._reconnects.labels(self._stream(event)).inc()

    @_on.register
    def _(self, event: events.GaveUp) -> None:
        self._gave_up.labels(self._stream(event), _known(event.reason, _GAVE_UP)).inc()

    # --- time scopes and circuits -------------------------------------------------------------

    @_on.register
    def _(self, event: events.ScopeTimedOut) -> None:
        self._scopes.labels(_known(event.verdict.limit, _LIMITS)).inc()

    @_on.register
    def _(self, _event: events.CleanupCut) -> None:
        self._cleanups.inc()

    @_on.register
    def _(self, event: circuits.CircuitChanged) -> None:
        key = _known(event.key, self._circuits)
        for status in _STATUSES:
            self._circuit.labels(key, status).set(status == event.after)

    @_on.register
    def _(self, event: circuits.CircuitRefused) -> None:
        self._refused.labels(_known(event.key, self._circuits), event.status).inc()


def _outcome(event: events.StreamEnded) -> str:
    return "timeout" if isinstance(event.error, StreamTimeoutError) else event.outcome


def _known(value: str, values: frozenset[str]) -> str:
    return value if value in values else OTHER


def _yes(value: bool) -> str:
    return "yes" if value else "no"
