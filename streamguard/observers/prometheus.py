"""Events as Prometheus metrics: counters, gauges and histograms with bounded labels.

    observer = PrometheusObserver(streams=["planner", "coder"], tools=["Bash"])
    idle_guard(180, observer=observer)

No label can take more values than were named beforehand: a stream, tool or circuit that was not is
"other", and so is an error class, a limit or a reason that streamguard does not know. Knows events
and prometheus_client, which it imports when an observer is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final, get_args
from weakref import WeakKeyDictionary, finalize

from streamguard import events
from streamguard._base.calling import checked_class
from streamguard._base.distribution import install
from streamguard.breaker import circuit
from streamguard.breaker import circuit_events as circuits
from streamguard.errors import ConfigError, DisconnectOutcome, Guard, Limit, StreamTimeoutError
from streamguard.observers.bills import Bills
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

# By name: what kind it is, what it says, its labels, and the buckets of a histogram.
_METRICS: Final[Mapping[str, tuple[Any, ...]]] = {
    "streams": ("Gauge", "Guarded streams that are open.", ("stream",)),
    "streams_ended": ("Counter", "Guarded streams that ended.", ("stream", "outcome")),
    "timeouts": (
        "Counter",
        "Verdicts: a limit ended a stream.",
        ("stream", "limit", "enforced", "guard"),
    ),
    "concerns": ("Counter", "What a person may want to look at.", ("stream", "limit")),
    "timeouts_withdrawn": ("Counter", "Messages that came at the last instant.", ("stream",)),
    "timeout_lateness_seconds": (
        "Histogram",
        "How long after its deadline a verdict was noticed.",
        (),
        _SHORT,
    ),
    "tokens": ("Counter", "Tokens used.", ("stream", "type")),
    "cost_usd": ("Counter", "What it cost, as the backends say, in US dollars.", ("stream",)),
    "model_calls": ("Counter", "Calls of the model.", ("stream",)),
    "loop_stalls": ("Counter", "Deadlines put off because the event loop did not run.", ()),
    "teardowns": ("Counter", "Teardowns that are over.", ("confirmed", "disconnect")),
    "teardown_seconds": ("Histogram", "How long a teardown took.", (), _SHORT),
    "processes_ended": ("Counter", "Process trees that had to be ended.", ("signal",)),
    "process_survivors": ("Counter", "Processes that outlived a teardown.", ()),
    "attempts": ("Counter", "Attempts of sessions that ended.", ("stream", "outcome")),
    "retries": ("Counter", "Retries that were scheduled.", ("stream", "error_class")),
    "reconnects": ("Counter", "Attempts that connected again.", ("stream",)),
    "gave_up": ("Counter", "Sessions that were given up.", ("stream", "reason")),
    "work_seconds": ("Histogram", "How long work was in flight.", ("tool", "outcome"), _LONG),
    "work_in_flight": ("Gauge", "Work in flight now.", ("tool",)),
    "holds": ("Gauge", "Holds in force now.", ("reason",)),
    "unknown_message_types": ("Counter", "Types that no reader knows.", ()),
    "scope_timeouts": ("Counter", "Time scopes whose time was up.", ("kind",)),
    "cleanups_cut": ("Counter", "Cleanups that outlived their budget.", ()),
    "circuit": ("Gauge", "1 at the status in force.", ("key", "status")),
    "circuit_refusals": ("Counter", "Permits refused.", ("key", "status")),
}


@checked_class
class PrometheusObserver:
    """Count events in metrics of `registry` (default: prometheus_client's own).

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
        self._metrics: dict[str, Any] = {}
        self._open: WeakKeyDictionary[Activity, finalize[[], Activity]] = WeakKeyDictionary()
        self._bills = Bills()
        self._held: WeakKeyDictionary[Activity, set[str]] = WeakKeyDictionary()
        try:
            self._make(registry, namespace)
        except ImportError as error:
            raise ConfigError(
                f"PrometheusObserver needs prometheus_client: {install('prometheus')}"
            ) from error
        except ValueError as error:  # prometheus_client's word for a duplicate, or a bad name
            raise ConfigError(
                f"the metrics cannot be registered: {error}. Make one PrometheusObserver and share "
                "it, or give each its own registry= or namespace="
            ) from error

    def _make(self, registry: CollectorRegistry | None, namespace: str) -> None:
        import prometheus_client

        home = prometheus_client.REGISTRY if registry is None else registry
        for name, (kind, text, labels, *buckets) in _METRICS.items():
            make: Any = getattr(prometheus_client, kind)
            options: dict[str, Any] = {"buckets": buckets[0]} if buckets else {}
            try:
                self._metrics[name] = make(
                    name, text, labels, namespace=namespace, registry=home, **options
                )
            except ValueError:
                for earlier in self._metrics.values():  # all of them or none
                    home.unregister(earlier)
                raise

    def _of(self, name: str, *labels: str) -> Any:
        metric = self._metrics[name]
        return metric.labels(*labels) if labels else metric

    def __call__(self, event: AnyEvent) -> None:
        """Count `event`."""
        self._on(event)

    def _stream(self, event: events.Event) -> str:
        # A number that nobody has chosen is no label.
        name = event.activity.name or event.activity.backend
        return name if name in self._streams else OTHER

    def _tool(self, name: str) -> str:
        return name if name in self._tools else OTHER

    @singledispatchmethod
    def _on(self, event: object) -> None:
        """Nothing to count."""

    # --- streams ------------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.StreamStarted) -> None:
        self._bills.begin(event.activity)
        live = self._of("streams", self._stream(event))
        with self._lock:
            if event.activity in self._open:
                return  # a stream that goes on after it had ended
            # One that its consumer dropped without a word is told of by nobody.
            self._open[event.activity] = finalize(event.activity, live.dec)
        live.inc()

    @_on.register
    def _(self, event: events.TurnOver) -> None:
        self._pay(event)

    def _pay(self, event: events.Event) -> None:
        """Count what was used up since this was done last."""
        new, stream = self._bills.since(event.activity), self._stream(event)
        for name, count in new.items():
            match name:
                case "cost":
                    self._of("cost_usd", stream).inc(count)
                case "calls":
                    self._of("model_calls", stream).inc(count)
                case kind:
                    self._of("tokens", stream, kind).inc(count)

    @_on.register
    def _(self, event: events.StreamEnded) -> None:
        self._pay(event)
        with self._lock:
            end = self._open.pop(event.activity, None)
        if end is not None:
            end()
        is_timeout = isinstance(event.error, StreamTimeoutError)
        outcome = "timeout" if is_timeout else event.outcome
        self._of("streams_ended", self._stream(event), outcome).inc()

    @_on.register
    def _(self, event: events.TimedOut) -> None:
        limit, enforced = _known(event.verdict.limit, _LIMITS), _yes(event.enforced)
        guard = _known(event.verdict.guard, _GUARDS)
        self._of("timeouts", self._stream(event), limit, enforced, guard).inc()
        self._of("timeout_lateness_seconds").observe(event.verdict.lateness)

    @_on.register
    def _(self, event: events.Concern) -> None:
        limit = _known(event.limit, _LIMITS)
        self._of("concerns", self._stream(event), limit).inc()

    @_on.register
    def _(self, event: events.CutWithdrawn) -> None:
        self._of("timeouts_withdrawn", self._stream(event)).inc()

    @_on.register
    def _(self, _event: events.LoopStalled) -> None:
        self._of("loop_stalls").inc()

    @_on.register
    def _(self, _event: events.UnknownMessage) -> None:
        self._of("unknown_message_types").inc()

    # --- work and holds -----------------------------------------------------------------------

    @_on.register
    def _(self, event: events.WorkBegan) -> None:
        self._of("work_in_flight", self._tool(event.name)).inc()

    @_on.register
    def _(self, event: events.WorkOver) -> None:
        self._pay(event)  # a turn may last for hours
        tool = self._tool(event.name)
        self._of("work_in_flight", tool).dec()
        self._of("work_seconds", tool, event.outcome).observe(event.elapsed)

    @_on.register
    def _(self, event: events.HoldBegan) -> None:
        with self._lock:
            held = self._held.setdefault(event.activity, set())
            if event.id in held:
                return  # it was prolonged
            held.add(event.id)
        self._of("holds", _known(event.reason, _HOLDS)).inc()

    @_on.register
    def _(self, event: events.HoldOver) -> None:
        with self._lock:
            held = self._held.get(event.activity, set())
            if event.id not in held:
                return
            held.discard(event.id)
        self._of("holds", _known(event.reason, _HOLDS)).dec()

    # --- teardown -----------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.TornDown) -> None:
        teardown = event.teardown
        how = _known(teardown.disconnect, _DISCONNECTS)
        self._of("teardowns", _yes(teardown.confirmed), how).inc()
        self._of("teardown_seconds").observe(teardown.elapsed)

    @_on.register
    def _(self, event: events.ProcessKilled) -> None:
        hardest = "KILL" if "KILL" in event.signals else "TERM"
        self._of("processes_ended", hardest).inc()

    @_on.register
    def _(self, event: events.ProcessSurvived) -> None:
        self._of("process_survivors").inc(max(1, len(event.survivors)))

    # --- sessions -----------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.AttemptEnded) -> None:
        self._of("attempts", self._stream(event), event.outcome).inc()

    @_on.register
    def _(self, event: events.RetryScheduled) -> None:
        self._of("retries", self._stream(event), _known(event.error_class, _CLASSES)).inc()

    @_on.register
    def _(self, event: events.Reconnected) -> None:
        self._of("reconnects", self._stream(event)).inc()

    @_on.register
    def _(self, event: events.GaveUp) -> None:
        self._of("gave_up", self._stream(event), _known(event.reason, _GAVE_UP)).inc()

    # --- time scopes and circuits -------------------------------------------------------------

    @_on.register
    def _(self, event: events.ScopeTimedOut) -> None:
        self._of("scope_timeouts", _known(event.verdict.limit, _LIMITS)).inc()

    @_on.register
    def _(self, _event: events.CleanupCut) -> None:
        self._of("cleanups_cut").inc()

    @_on.register
    def _(self, event: circuits.CircuitChanged) -> None:
        key = _known(event.key, self._circuits)
        for status in _STATUSES:
            self._of("circuit", key, status).set(status == event.after)

    @_on.register
    def _(self, event: circuits.CircuitRefused) -> None:
        self._of("circuit_refusals", _known(event.key, self._circuits), event.status).inc()


def _known(value: str, values: frozenset[str]) -> str:
    return value if value in values else OTHER


def _yes(value: bool) -> str:
    return "yes" if value else "no"
