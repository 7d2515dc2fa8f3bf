"""pydantic-ai: what the events of `agent.run_stream_events()` say.

Reads the events (by `event_kind`, the SDK is never imported) as objects and as dicts. Pure and
total: garbage is Progress, never an exception.

    event_kind                        signals
    ────────────────────────────────  ───────────────────────────────────────────────────────
    part_start, part_delta, part_end  Progress
    function_tool_call                WorkStarted (output_tool_call as well: it may run code)
    function_tool_result              WorkFinished; retried, failed or denied: error
    deferred_tool_requests            WorkFinished for each call, Waiting for a person
    deferred_tool_results             WaitEnded, WorkStarted for each approved call
    agent_run_result                  Usage, TurnEnded; asks for approval: paused; too long, or
                                      cut short by the provider: incomplete
    realtime_turn_complete            TurnEnded
    realtime_session_error            Failed
    anything else                     Progress

A run's last event is `agent_run_result`, else an exception is raised. But the same events come
from `node.stream()` and to event handlers, which end without one: so an end is an end (T10).
A provider's stream that is cut early is a whole answer to pydantic-ai: the turn is incomplete
here, if the provider is one that always says why it has finished, and no error is made of it.

There is no token in any event: the history is in the caller's hands (see `session`).

May import `signals` and its helpers beside it; what `session` needs, when it is called.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from streamguard.backends._fields import (
    Fields,
    Handler,
    Said,
    always,
    fields_of,
    finished,
    is_blank,
    numbers_in,
    started,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Signal,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)

ALWAYS_ENDS_TURNS = False  # see above: not of every stream that these events come in

_DEFERRED = "deferred_tools"
# Providers whose every answer says why it has finished, as they have worded it themselves: what
# pydantic-ai makes of it may be made up.
_TELL_WHY = {"anthropic", "google", "openai"}
_FAILED_OUTCOMES = {"retried", "failed", "denied"}


def read(message: object) -> Said:
    """What one event says; None is Progress."""
    fields = fields_of(message)
    kind = fields.get("event_kind")
    handle = _EVENTS.get(kind) if isinstance(kind, str) else None
    return None if handle is None else handle(fields)


# --- tools --------------------------------------------------------------------------------


def _tool_call(event: Fields) -> Said:
    part = fields_of(event.get("part"))
    return started(part.get("tool_call_id"), part.get("tool_name"), input=part.get("args"))


def _tool_result(event: Fields) -> Said:
    # Called `result` before 2.0, where a failure is a part of another class.
    part = fields_of(event.get("part", event.get("result")))
    outcome = part.get("outcome")
    if isinstance(outcome, str):
        failed = outcome in _FAILED_OUTCOMES
    else:
        failed = part.get("part_kind") == "retry-prompt"
    return finished(part.get("tool_call_id"), failed, part.get("content"))


def _deferred(event: Fields) -> Said:
    # None of these calls runs until somebody has answered: another handler in this run, or the
    # caller after it. Left open, their entries would wait for a tool's allowance (S4).
    requests = fields_of(event.get("requests"))
    said: list[Signal] = [
        WorkFinished(id_)
        for calls in (requests.get("calls"), requests.get("approvals"))
        for call in (cast("list[object]", calls) if isinstance(calls, list) else [])
        if (id_ := text_in(fields_of(call).get("tool_call_id")))
    ]
    return [*said, Waiting(_DEFERRED, "human")]


def _answered(event: Fields) -> Said:
    approvals = fields_of(fields_of(event.get("results")).get("approvals"))
    return [WaitEnded(_DEFERRED), *(WorkStarted(id_) for id_ in approvals if text_in(id_))]


# --- the end ------------------------------------------------------------------------------


def _run_result(event: Fields) -> Said:
    result = fields_of(event.get("result"))
    state = fields_of(result.get("_state"))
    spent = state.get("usage")
    usage = _used(result.get("usage") if spent is None else spent)
    return (*usage, _ended(result.get("output"), state.get("message_history")))


def _used(spent: object) -> tuple[Usage, ...]:
    """The counts of the run, which is a turn: input with what the cache has of it, calls, cost."""
    counts = numbers_in(spent)
    if (calls := counts.get("requests")) is not None:
        counts["calls"] = calls
    if isinstance(cost := fields_of(spent).get("cost"), Decimal) and cost.is_finite():
        counts["cost_usd"] = float(cost)
    return (Usage(counts, "turn"),) if counts else ()


def _ended(output: object, history: object) -> TurnEnded:
    if type(output).__name__ == "DeferredToolRequests":
        return TurnEnded("paused", "deferred_tool_requests")
    last = cast("list[object]", history)[-1] if isinstance(history, list) and history else None
    answer = fields_of(last)
    if answer.get("finish_reason") == "length":
        return TurnEnded("incomplete", "length")
    if _was_cut(answer):
        return TurnEnded("incomplete", "no finish_reason")
    # No output at all may be what was asked for.
    return TurnEnded(answered=None if output is None else not is_blank(output))


def _was_cut(message: Fields) -> bool:
    """Whether a model's answer has ended without the word by which its provider ends each."""
    provider, details = message.get("provider_name"), fields_of(message.get("provider_details"))
    return isinstance(provider, str) and provider in _TELL_WHY and not details.get("finish_reason")


def _session_error(event: Fields) -> Said:
    told = text_in(event.get("code")) or text_in(event.get("type")) or ""
    return Failed(classes.class_of_word(told) or "unknown", detail=told[:80])


_EVENTS: dict[str, Handler] = {
    "function_tool_call": _tool_call,
    "output_tool_call": _tool_call,
    "function_tool_result": _tool_result,
    "output_tool_result": _tool_result,
    "deferred_tool_requests": _deferred,
    "deferred_tool_results": _answered,
    "agent_run_result": _run_result,
    "realtime_turn_complete": always(TurnEnded()),
    "realtime_session_error": _session_error,
}
