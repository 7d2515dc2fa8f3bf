"""openai-agents: what the events of `Runner.run_streamed(...).stream_events()` say.

    message                                 signals
    ──────────────────────────────────────  ─────────────────────────────────────────────
    raw_response_event                      as _openai_responses, but its response is one step
                                            of the run: no SessionOpened, no TurnEnded; with
                                            nothing in it, no Progress
    run_item tool_called                    WorkStarted, for a tool that runs in this process
    run_item tool_output                    WorkFinished
    agent_updated                           nothing: it comes before the model was asked
    anything else                           Progress

A tool that OpenAI runs is told as `tool_called` too, when it is done: no `tool_output` follows, so
it opens nothing there (S4); its start and end are in the raw events. `tool_output` has no flag for
an error. The end of a run is the end of the iterator and no message, so a `turn` lasts until then.

A verdict does not end a run by itself: `idle_guard(180, disconnect=result.cancel)` does. But a
stream that is left before its end would wait, when it is closed, for as long as its run takes. Nobody is
there any more to take what that brings, so `adapted` has the run cancelled first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from streamguard.backends import _openai_responses as responses
from streamguard.backends._fields import (
    NOT_AT_A_GLANCE,
    NOTHING,
    PROGRESS,
    Fields,
    Said,
    fields_of,
    finished,
    started,
    text_in,
)
from streamguard.signals import SessionOpened, Signal, TurnEnded, Usage

# `result.cancel()`, an approval that is asked for and a run that is done all just end it.
ALWAYS_ENDS_TURNS = False

_EVENTS = {"RawResponsesStreamEvent", "RunItemStreamEvent", "AgentUpdatedStreamEvent"}
# Run in this process, by the runner.
_LOCAL = {
    "function_call",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "apply_patch_call",
}
_ACCEPTED = ("response.created", "response.queued", "response.in_progress")
_ENDED = ("response.completed", "response.incomplete", "response.cancelled", "response.failed")


def is_message(kind: type) -> bool:
    """Whether it is one of the events; `agents` is the name of many a package."""
    return kind.__name__ in _EVENTS


def read(message: Any) -> Said:
    """What one message says; None is Progress."""
    if type(message) is not dict:
        try:  # an event of the API's that says nothing of its own
            is_raw = message.type == "raw_response_event"
            if is_raw and message.data.type not in responses.EVENTS:
                return None
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
    fields = fields_of(message)
    kind = fields.get("type")
    if kind == "raw_response_event":
        event = fields_of(fields.get("data"))
        kind = event.get("type")
        handle = responses.EVENTS.get(kind) if isinstance(kind, str) else None
        return None if handle is None else _raw(kind, handle(event))
    if kind == "run_item_stream_event":
        return _run_item(fields.get("name"), fields_of(fields.get("item")))
    return NOTHING if kind == "agent_updated_stream_event" else None


def _raw(kind: object, said: Said) -> Said:
    if kind in _ACCEPTED:
        return NOTHING
    if kind in _ENDED and isinstance(said, list):  # a step has ended, and the run goes on
        return _step_over(said)
    return said


def _step_over(said: list[Signal]) -> list[Signal]:
    kept: list[Signal] = []
    for signal in said:
        if isinstance(signal, Usage):
            # Other models than OpenAI's get one id for all their responses.
            call = "" if signal.call.startswith("__fake") else signal.call
            kept.append(Usage(signal.counts, "call", call))
        elif isinstance(signal, TurnEnded):
            kept += () if signal.answered is False else (PROGRESS,)
        elif not isinstance(signal, SessionOpened):
            kept.append(signal)
    return kept


def _run_item(name: object, item: Fields) -> Said:
    raw = fields_of(item.get("raw_item"))
    id_ = text_in(raw.get("call_id")) or raw.get("id")
    if name == "tool_called" and _is_local(raw):
        asked = next((raw[key] for key in _ASKED if raw.get(key) is not None), None)
        called = text_in(item.get("_resolved_tool_name")) or raw.get("name")
        return started(id_, called, input=asked)
    return finished(id_, outcome=item.get("output")) if name == "tool_output" else None


_ASKED = ("arguments", "input", "action", "actions", "operation")


def _is_local(raw: Fields) -> bool:
    kind = raw.get("type")
    if kind == "shell_call":  # in a container of OpenAI's, or here
        return fields_of(raw.get("environment")).get("type") == "local"
    return isinstance(kind, str) and kind in _LOCAL


def adapted(stream: Any) -> Any:
    """The events of a run, which ends with them; any other stream of the package as it is."""
    frame = getattr(stream, "ag_frame", None)
    if frame is None or frame.f_code.co_name != "stream_events":
        return stream
    # Two of its ways, which other packages called `agents` would hardly have, too.
    run = frame.f_locals.get("self")
    is_run = callable(getattr(run, "cancel", None)) and hasattr(run, "is_complete")
    return _Run(stream, run.cancel) if is_run else stream


class _Run(AsyncIterator[Any]):
    """The events of a run that is cancelled if they are left before their end."""

    def __init__(self, events: Any, cancel: Callable[[], object]) -> None:
        self._events = events
        self._cancel = cancel

    def __repr__(self) -> str:
        return repr(self._events)

    def __anext__(self) -> Any:
        return self._events.__anext__()

    async def aclose(self) -> None:
        try:
            if self._events.ag_frame is not None:  # it has not ended
                self._cancel()
        finally:
            await self._events.aclose()
