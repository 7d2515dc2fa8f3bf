"""The events of OpenAI's Responses API, as `openai`, openai-agents and litellm carry them.

    created, queued, in_progress      SessionOpened, resumable if the response runs in background
    output_item.added                 WorkStarted, for a tool that the server runs itself
    output_item.done, ..._call.completed, .failed     WorkFinished, for such a tool
    completed                         SessionOpened (a stored response can be gone on from),
                                      Usage, TurnEnded
    incomplete, cancelled             Usage, TurnEnded
    failed                            Failed, Usage, TurnEnded
    error                             Failed; the stream ends with it, without a TurnEnded
    keepalive                         Liveness
    anything else                     Progress

Function calls open no work: the caller runs them, and their results go another way (S4).
"""

from __future__ import annotations

from streamguard.backends._fields import (
    LIVENESS,
    NOTHING,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    all_fields_of,
    always,
    fields_of,
    finished,
    opened,
    started,
    text_in,
    usage_in,
)
from streamguard.backends._openai_errors import failed
from streamguard.signals import Signal, TurnEnded

# Run by the server, with both ends in the stream. Shells and tool searches may be run by either
# side, which their items do not always tell, so they are none of these.
_HOSTED = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
}


# --- the response -------------------------------------------------------------------------


def _accepted(event: Fields) -> Said:
    # The API has taken the request, which is no progress and does not end `first` (S0). What
    # runs in the foreground ends with its connection, so its id resumes nothing.
    response = fields_of(event.get("response"))
    token = text_in(response.get("id"))
    return opened(token, resumable=response.get("background") is True) if token else NOTHING


def _completed(event: Fields) -> Said:
    response = all_fields_of(event.get("response"))
    said: list[Signal] = [*usage_in(response.get("usage"))]
    # `previous_response_id` goes on from a whole response, wherever it was run.
    is_stored = response.get("store") is not False
    if is_stored and (token := text_in(response.get("id"))):
        said.append(opened(token))
    said.append(TurnEnded("success", "completed"))
    return said


def _incomplete(event: Fields) -> Said:
    response = fields_of(event.get("response"))
    reason = text_in(fields_of(response.get("incomplete_details")).get("reason"))
    return [*usage_in(response.get("usage")), TurnEnded("incomplete", reason or "incomplete")]


def _cancelled(event: Fields) -> Said:
    usage = fields_of(event.get("response")).get("usage")
    return [*usage_in(usage), TurnEnded("cancelled", "cancelled")]


def _failed(event: Fields) -> Said:
    response = fields_of(event.get("response"))
    what = failed(response.get("error"))
    ended = TurnEnded("error", what.detail or "failed", what.error_class in RETRIABLE)
    return [what, *usage_in(response.get("usage")), ended]


def _error(event: Fields) -> Said:
    # Flat in the documentation and in the SDK's class, nested where the server is in a hurry.
    body = fields_of(event.get("error"))
    return failed(body or {**event, "type": None})


# --- tools that the server runs -----------------------------------------------------------


def _item_added(event: Fields) -> Said:
    item = fields_of(event.get("item"))
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in _HOSTED:
        return None
    name = text_in(item.get("name")) or kind.removesuffix("_call")
    return started(item.get("id"), name, "server")


def _item_done(event: Fields) -> Said:
    item = fields_of(event.get("item"))
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in _HOSTED:
        return None
    return finished(item.get("id"), item.get("error") or item.get("status") == "failed")


def _call_over(event: Fields) -> Said:
    return finished(event.get("item_id"), event["type"].endswith(".failed"))


EVENTS: dict[str, Handler] = {
    "response.created": _accepted,
    "response.queued": _accepted,
    "response.in_progress": _accepted,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    **{f"response.{tool}.completed": _call_over for tool in _HOSTED},
    **{f"response.{tool}.failed": _call_over for tool in _HOSTED},
    "response.completed": _completed,
    "response.incomplete": _incomplete,
    "response.cancelled": _cancelled,
    "response.failed": _failed,
    "error": _error,
    "keepalive": always(LIVENESS),
    "ping": always(LIVENESS),
}
