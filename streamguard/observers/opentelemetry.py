"""Events as OpenTelemetry spans and metrics, by the names of its conventions for generative AI (`genai`).

    idle_guard(180, observer=OpenTelemetryObserver())

    invoke_agent coder                a session, with all its attempts
      └─ attempt 1                    verdict, teardown, retries: events of this span
           ├─ execute_tool Bash
           └─ execute_tool Task
                └─ execute_tool Read  a tool of that subagent

A stream that belongs to no session has no span for an attempt: its `invoke_agent` is the outermost, below
whatever span is current when it starts. What the conventions have no name for is below `streamguard.`. No
span outlives its stream: what is open when that ends, or is cancelled and dropped, is closed. Knows events
and the OpenTelemetry API.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary, finalize

from streamguard import events
from streamguard._base.calling import checked_class
from streamguard._base.distribution import install
from streamguard._version import __version__
from streamguard.errors import ConfigError, StreamGuardError
from streamguard.events.flat import fields_of, name_of
from streamguard.observers import genai
from streamguard.observers.bills import Bills

try:
    from opentelemetry import trace

    from streamguard.observers.instruments import Instruments
except ImportError as missing:
    raise ConfigError(
        f"OpenTelemetryObserver needs the OpenTelemetry API: {install('opentelemetry')}"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from streamguard.activity import Activity
    from streamguard.events.flat import AnyEvent

__all__ = ["OpenTelemetryObserver"]


class _Work(NamedTuple):
    """A piece of work's span, and whether it is a tool's, as far as the conventions go."""

    span: Span
    is_tool: bool


@dataclass(slots=True)
class _Spans:
    """What one stream, or session, has open, from the outermost span inwards."""

    agent: Span | None = None
    attempt: Span | None = None  # of a session
    work: dict[str, _Work] = field(default_factory=dict[str, _Work])
    began: float = 0.0
    tool_calls: int = 0
    provider: str = ""
    hollow: str = ""  # what its last stream was that ended well in name only
    bill: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def inner(self) -> Span | None:
        """The one whose events are the stream's."""
        return self.attempt or self.agent

    def around(self, id_: str | None) -> Span | None:
        """The one of that work, if it is open; else `inner`."""
        work = None if id_ is None else self.work.get(id_)
        return self.inner if work is None else work.span

    def charge(self, new: Mapping[str, float]) -> None:
        """So much more was used up."""
        for name, count in new.items():
            self.bill[name] = self.bill.get(name, 0.0) + count

    def end_attempt(self) -> None:
        """End the attempt's span, and those of what it still has in flight."""
        for work in reversed(self.work.values()):
            work.span.end()
        self.work.clear()
        if self.attempt is not None:
            self.attempt.end()
            self.attempt = None

    def end(self) -> None:
        """End them all."""
        self.end_attempt()
        if self.agent is not None:
            self.agent.end()
            self.agent = None


@checked_class
class OpenTelemetryObserver:
    """Make spans and metrics of events. One observer serves any number of streams.

    Args:
        tracer_provider: whose spans they are; default: the one set for the process.
        meter_provider: whose metrics they are; default: the one set for the process.
        provider: `gen_ai.provider.name`: who serves the model, as the conventions call it ("anthropic",
            "openai", "gcp.vertex_ai", ...). Default: what follows from the backend, if anything does.

    Raises:
        ConfigError: the OpenTelemetry API is not installed (raised by the import).
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        provider: str = "",
    ) -> None:
        self._tracer: Tracer = trace.get_tracer(
            "streamguard", __version__, tracer_provider, schema_url=genai.SCHEMA_URL
        )
        self._instruments = Instruments(meter_provider)
        self._provider = provider
        self._bills = Bills()
        self._spans: WeakKeyDictionary[Activity, _Spans] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, event: AnyEvent) -> None:
        """Open a span, close one, or add `event` to the one that it belongs to."""
        self._on(event)

    @singledispatchmethod
    def _on(self, event: AnyEvent) -> None:
        """Scopes and circuits belong to no stream: to the span that is current."""
        _add(trace.get_current_span(), event)

    @_on.register
    def _(self, event: events.Event) -> None:
        _add(self._of(event.activity).inner, event)

    # --- streams, sessions and attempts -------------------------------------------------------

    @_on.register
    def _(self, event: events.AttemptStarted) -> None:
        spans = self._of(event.activity)
        spans.end_attempt()
        if spans.agent is None:
            self._invoke(spans, event)
        spans.attempt = self._start(
            f"attempt {event.attempt}",
            event,
            spans.agent,
            {"streamguard.attempt": event.attempt, "streamguard.resumes": event.resumes},
        )

    @_on.register
    def _(self, event: events.AttemptEnded) -> None:
        spans, outcome = self._of(event.activity), str(event.outcome)
        if event.outcome == "completed":
            outcome = spans.hollow or outcome
        if spans.attempt is not None:
            self._conclude(spans.attempt, event, event.error, outcome)
            spans.attempt.set_attribute("streamguard.confirmed", event.confirmed)
        spans.end_attempt()
        if outcome != "failed":  # else it is retried, or given up
            self._over(spans, event, None, outcome)

    @_on.register
    def _(self, event: events.GaveUp) -> None:
        spans = self._of(event.activity)
        _add(spans.agent, event)
        self._over(spans, event, event.error, "failed")

    @_on.register
    def _(self, event: events.SessionOver) -> None:
        # Whoever cancels, or breaks, in the pause before a retry leaves nobody to say how it ended.
        self._over(self._of(event.activity), event, None, "left")

    @_on.register
    def _(self, event: events.StreamStarted) -> None:
        self._bills.begin(event.activity)
        spans = self._of(event.activity)
        if spans.attempt is None:  # else that is its span
            spans.end()
            self._invoke(spans, event)

    @_on.register
    def _(self, event: events.StreamEnded) -> None:
        spans = self._of(event.activity)
        spans.charge(self._bills.since(event.activity))
        spans.hollow = event.outcome if event.outcome in _HOLLOW else ""
        spans.provider = spans.provider or genai.PROVIDERS.get(event.activity.backend or "", "")
        if spans.attempt is None:
            self._over(spans, event, event.error, event.outcome)

    # --- what happens to them -----------------------------------------------------------------

    @_on.register
    def _(self, event: events.TimedOut) -> None:
        _add(self._of(event.activity).inner, event)
        name, verdict = event.activity.name, event.verdict
        self._instruments.verdict(name, verdict.limit, verdict.guard, enforced=event.enforced)

    @_on.register
    def _(self, event: events.Concern) -> None:
        spans = self._of(event.activity)
        about = event.id if isinstance(event, events.WorkQuiet) else None
        _add(spans.around(about), event)
        self._instruments.concern(event.activity.name, event.limit)

    # --- work ---------------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.WorkBegan) -> None:
        spans = self._of(event.activity)
        is_tool = event.scope != "hook"
        span = self._start(
            f"{genai.EXECUTE_TOOL if is_tool else 'hook'} {event.name}".rstrip(),
            event,
            spans.around(event.parent),
            {
                "streamguard.background": event.background,
                "streamguard.scope": event.scope,
                **(_tool(event) if is_tool else {}),
            },
        )
        if event.parent is None and event.scope not in _OF_OTHERS:
            spans.tool_calls += 1
        if (before := spans.work.pop(event.id, None)) is not None:
            before.span.end()
        spans.work[event.id] = _Work(span, is_tool)

    @_on.register
    def _(self, event: events.WorkOver) -> None:
        work = self._of(event.activity).work.pop(event.id, None)
        if work is None:
            return
        work.span.set_attribute("streamguard.outcome", event.outcome)
        if error := _WORK_ERRORS.get(event.outcome, ""):
            _fail(work.span, error)
        work.span.end()
        if work.is_tool:
            self._instruments.tool_over(event.activity.name, event.name, event.elapsed, error)

    # --- spans --------------------------------------------------------------------------------

    def _of(self, activity: Activity) -> _Spans:
        with self._lock:
            spans = self._spans.get(activity)
            if spans is None:
                spans = self._spans[activity] = _Spans()
                # A consumer that is cancelled, or breaks, may just drop its stream.
                finalize(activity, spans.end).atexit = False
            return spans

    def _invoke(self, spans: _Spans, event: events.Event) -> None:
        """An agent is set to work: the outermost span."""
        said: dict[str, AttributeValue] = {genai.OPERATION: genai.INVOKE_AGENT}
        if self._provider:
            said[genai.PROVIDER] = self._provider
        name = f"{genai.INVOKE_AGENT} {event.activity.name}".rstrip()
        spans.agent = self._start(name, event, None, said)
        spans.began, spans.tool_calls, spans.bill = event.at, 0, {}
        spans.provider = self._provider

    def _over(
        self, spans: _Spans, event: events.Event, error: BaseException | None, outcome: str
    ) -> None:
        """It has done its work, or not."""
        if spans.agent is not None:
            kind = self._conclude(spans.agent, event, error, outcome)
            spans.agent.set_attributes(
                {
                    _USED[name]: count if name == "cost" else int(count)
                    for name, count in spans.bill.items()
                    if name in _USED
                }
            )
            if spans.provider:
                spans.agent.set_attribute(genai.PROVIDER, spans.provider)
            self._instruments.used(event.activity.name, spans.bill, spans.provider)
            self._instruments.agent_over(
                event.activity.name, event.at - spans.began, kind, spans.tool_calls
            )
        spans.end()

    def _start(
        self,
        name: str,
        event: events.Event,
        within: Span | None,
        said: dict[str, AttributeValue],
    ) -> Span:
        # All that is known is said now: samplers see nothing that comes later.
        context: Context | None = None if within is None else trace.set_span_in_context(within)
        if event.activity.name:
            said = {**said, genai.AGENT: event.activity.name}
        return self._tracer.start_span(name, context, trace.SpanKind.INTERNAL, said)

    def _conclude(
        self, span: Span, event: events.Event, error: BaseException | None, outcome: str
    ) -> str:
        """Say how it ended; the kind of its error, if there is one."""
        span.set_attribute("streamguard.outcome", outcome)
        if (token := event.activity.token) is not None:
            span.set_attribute(genai.CONVERSATION, token)
        if error is None:
            return ""
        if isinstance(error, StreamGuardError) and error.verdict is not None:
            span.set_attribute("streamguard.limit", error.verdict.limit)
        kind = type(error).__name__  # its text may quote the conversation (E3)
        _fail(span, kind)
        return kind


# Work that is no call of a tool by this agent: what runs at the provider's, and hooks.
_OF_OTHERS: Final = frozenset({"server", "hook"})
# What an invocation has used up, as attributes.
_USED: Final = {
    "input": genai.INPUT_TOKENS,
    "output": genai.OUTPUT_TOKENS,
    "cost": "streamguard.cost",
    "calls": "streamguard.calls",
}
_HOLLOW: Final = frozenset({"empty", "abandoned"})
_WORK_ERRORS: Final = {"failed": genai.TOOL_ERROR, "dropped": "dropped"}


def _tool(event: events.WorkBegan) -> dict[str, AttributeValue]:
    """What the conventions say of a tool's call; of its arguments, nothing (E3)."""
    known = {
        genai.TOOL: event.name,
        genai.TOOL_CALL: event.id,
        genai.TOOL_TYPE: genai.EXTENSION if event.scope == "server" else "",
    }
    return {
        genai.OPERATION: genai.EXECUTE_TOOL,
        **{name: value for name, value in known.items() if value},
    }


def _fail(span: Span, kind: str) -> None:
    span.set_attribute(genai.ERROR, kind)
    span.set_status(trace.StatusCode.ERROR, kind)


def _add(span: Span | None, event: AnyEvent) -> None:
    if span is None:
        return
    attributes: dict[str, AttributeValue] = {
        f"streamguard.{name}": value if not isinstance(value, tuple) else tuple(map(str, value))
        for name, value in fields_of(event).items()
        if name not in {"event", "stream"}
    }
    span.add_event(f"streamguard.{name_of(event)}", attributes)
