"""Events as OpenTelemetry spans: one for a session, for each attempt, and for each piece of work.

    idle_guard(180, observer=OpenTelemetryObserver())

    session coder                     invoke_agent of all its attempts
      └─ attempt 1                    verdict, teardown, retries: events of this span
           ├─ execute_tool Bash
           └─ execute_tool Read

A stream that belongs to no session has no session span: its attempt is the outermost, below whatever
span is current when it starts. Names follow the conventions for generative AI where these have one:
`gen_ai.operation.name`, `gen_ai.agent.name`, `gen_ai.conversation.id`, `gen_ai.tool.name`,
`gen_ai.tool.call.id`, `error.type`; all else is below `streamguard.`. No span outlives its stream: what is
open when that ends, or is cancelled and dropped, is closed. Knows events and the OpenTelemetry API.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, finalize

from streamguard import events
from streamguard.errors import ConfigError
from streamguard.events.flat import fields_of, name_of

try:
    from opentelemetry import trace
except ImportError as missing:
    raise ConfigError(
        "OpenTelemetryObserver needs the OpenTelemetry API: pip install 'streamguard[opentelemetry]'"
    ) from missing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from streamguard.activity import Activity
    from streamguard.events.flat import AnyEvent

__all__ = ["OpenTelemetryObserver"]


@dataclass(slots=True)
class _Spans:
    """The spans that one stream has open, from the outermost inwards."""

    session: Span | None = None
    attempt: Span | None = None
    work: dict[str, Span] = field(default_factory=dict["str", "Span"])

    def end_attempt(self) -> None:
        """End the attempt's span, and those of what it still has in flight."""
        for span in self.work.values():
            span.end()
        self.work.clear()
        if self.attempt is not None:
            self.attempt.end()
            self.attempt = None

    def end(self) -> None:
        """End them all."""
        self.end_attempt()
        if self.session is not None:
            self.session.end()
            self.session = None


class OpenTelemetryObserver:
    """Opens and closes spans by what it is told. One observer serves any number of streams.

    Args:
        tracer_provider: whose spans they are; default: the one set for the process.

    Raises:
        ConfigError: the OpenTelemetry API is not installed (raised by the import).
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = trace.get_tracer("streamguard", tracer_provider=tracer_provider)
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
        spans = self._of(event.activity)
        span = spans.attempt or spans.session
        if span is not None:
            _add(span, event)

    # --- sessions and attempts ----------------------------------------------------------------

    @_on.register
    def _(self, event: events.AttemptStarted) -> None:
        spans = self._of(event.activity)
        spans.end_attempt()
        if spans.session is None:
            spans.session = self._start(f"session {event.activity.name}".rstrip(), event)
            spans.session.set_attribute("gen_ai.operation.name", "invoke_agent")
        spans.attempt = self._start(f"attempt {event.attempt}", event, within=spans.session)
        spans.attempt.set_attributes(
            {"streamguard.attempt": event.attempt, "streamguard.resumes": event.resumes}
        )

    @_on.register
    def _(self, event: events.AttemptEnded) -> None:
        spans = self._of(event.activity)
        if spans.attempt is not None:
            self._conclude(spans.attempt, event, event.error)
            spans.attempt.set_attributes(
                {"streamguard.outcome": event.outcome, "streamguard.confirmed": event.confirmed}
            )
        spans.end_attempt()
        if event.outcome != "failed":  # else it is retried, or given up
            spans.end()

    @_on.register
    def _(self, event: events.GaveUp) -> None:
        spans = self._of(event.activity)
        if spans.session is not None:
            _add(spans.session, event)
            self._conclude(spans.session, event, event.error)
        spans.end()

    @_on.register
    def _(self, event: events.StreamStarted) -> None:
        spans = self._of(event.activity)
        if spans.session is not None:
            return  # the attempt has its span
        spans.end()
        spans.attempt = self._start(f"invoke_agent {event.activity.name}".rstrip(), event)
        spans.attempt.set_attribute("gen_ai.operation.name", "invoke_agent")

    @_on.register
    def _(self, event: events.StreamEnded) -> None:
        spans = self._of(event.activity)
        if spans.session is None:
            if spans.attempt is not None:
                self._conclude(spans.attempt, event, event.error)
            spans.end()

    # --- work ---------------------------------------------------------------------------------

    @_on.register
    def _(self, event: events.WorkBegan) -> None:
        spans = self._of(event.activity)
        span = self._start(f"execute_tool {event.name}".rstrip(), event, within=spans.attempt)
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.call.id": event.id,
                "streamguard.background": event.background,
            }
        )
        if (before := spans.work.pop(event.id, None)) is not None:
            before.end()
        spans.work[event.id] = span

    @_on.register
    def _(self, event: events.WorkOver) -> None:
        if (span := self._of(event.activity).work.pop(event.id, None)) is not None:
            span.set_attribute("streamguard.outcome", event.outcome)
            if event.outcome != "finished":
                span.set_attribute("error.type", event.outcome)
                span.set_status(trace.StatusCode.ERROR, event.outcome)
            span.end()

    # --- spans --------------------------------------------------------------------------------

    def _of(self, activity: Activity) -> _Spans:
        with self._lock:
            spans = self._spans.get(activity)
            if spans is None:
                spans = self._spans[activity] = _Spans()
                # A consumer that is cancelled, or breaks, may just drop its stream.
                finalize(activity, spans.end).atexit = False
            return spans

    def _start(self, name: str, event: events.Event, within: Span | None = None) -> Span:
        context: Context | None = None if within is None else trace.set_span_in_context(within)
        span = self._tracer.start_span(name, context)
        if event.activity.name:
            span.set_attribute("gen_ai.agent.name", event.activity.name)
        return span

    def _conclude(self, span: Span, event: events.Event, error: BaseException | None) -> None:
        if (token := event.activity.token) is not None:
            span.set_attribute("gen_ai.conversation.id", token)
        if error is not None:
            kind = type(error).__name__  # its text may quote the conversation (E3)
            span.set_attribute("error.type", kind)
            span.set_status(trace.StatusCode.ERROR, kind)


def _add(span: Span, event: AnyEvent) -> None:
    attributes: dict[str, AttributeValue] = {
        f"streamguard.{name}": value if not isinstance(value, tuple) else tuple(map(str, value))
        for name, value in fields_of(event).items()
        if name not in {"event", "stream"}
    }
    span.add_event(f"streamguard.{name_of(event)}", attributes)
