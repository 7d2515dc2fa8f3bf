"""The events of OpenAI's Responses API, as `openai`, openai-agents and litellm carry them.

    created, queued, in_progress      SessionOpened, resumable if the response runs in background
    output_item.added                 WorkStarted, for a tool that the server runs itself
    output_item.done                  the same once more, with its input; WorkFinished
    ..._call.completed, .failed       Progress: the item that is done comes behind it, and tells more
    completed                         SessionOpened (a stored response can be gone on from),
                                      Usage, TurnEnded
    incomplete, cancelled             Usage, TurnEnded
    failed                            Failed, Usage, TurnEnded
    error                             Failed; the stream ends with it, without a TurnEnded
    keepalive                         Liveness
    anything else                     Progress

Function calls open no work: the caller runs them, and their results go another way (S4).

A response's counts are those of one call of the model, under the response's id. It answers if its output has
anything but thoughts and blank text; where its output is left out, what came in the stream tells.
"""

from __future__ import annotations

from typing import cast

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
    is_blank,
    opened,
    started,
    text_in,
    usage_in,
)
from streamguard.backends._openai_errors import failed
from streamguard.signals import Signal, TurnEnded, Usage, WorkFinished, WorkStarted

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
    said: list[Signal] = [*_used(response)]
    # `previous_response_id` goes on from a whole response, wherever it was run.
    is_stored = response.get("store") is not False
    if is_stored and (token := text_in(response.get("id"))):
        said.append(opened(token))
    said.append(TurnEnded("success", "completed", answered=_answered(response.get("output"))))
    return said


def _used(response: Fields) -> tuple[Usage, ...]:
    return usage_in(response.get("usage"), call=response.get("id"))


def _answered(output: object) -> bool | None:
    items = cast("list[object]", output) if isinstance(output, list) else []
    return any(map(_says_something, items)) if items else None


def _says_something(item: object) -> bool:
    fields = fields_of(item)
    if fields.get("type") != "message":
        return fields.get("type") != "reasoning"
    content = fields.get("content")
    parts = cast("list[object]", content) if isinstance(content, list) else []
    said = [fields_of(part) for part in parts]
    return any(not is_blank(part.get("text")) or part.get("refusal") for part in said)


def _incomplete(event: Fields) -> Said:
    response = fields_of(event.get("response"))
    reason = text_in(fields_of(response.get("incomplete_details")).get("reason"))
    return [*_used(response), TurnEnded("incomplete", reason or "incomplete")]


def _cancelled(event: Fields) -> Said:
    return [*_used(fields_of(event.get("response"))), TurnEnded("cancelled", "cancelled")]


def _failed(event: Fields) -> Said:
    response = fields_of(event.get("response"))
    what = failed(response.get("error"))
    ended = TurnEnded("error", what.detail or "failed", what.error_class in RETRIABLE)
    return [what, *_used(response), ended]


def _error(event: Fields) -> Said:
    # Flat in the documentation and in the SDK's class, nested where the server is in a hurry.
    body = fields_of(event.get("error"))
    return failed(body or {**event, "type": None})


# --- tools that the server runs -----------------------------------------------------------


def _item_added(event: Fields) -> Said:
    return _start(fields_of(event.get("item")))


def _start(item: Fields) -> WorkStarted | None:
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in _HOSTED:
        return None
    name = text_in(item.get("name")) or kind.removesuffix("_call")
    asked = next((item[key] for key in _ASKED if item.get(key)), None)
    return started(item.get("id"), name, "server", input=asked)


# Under these names, depending on the tool, and none before it is known.
_ASKED = ("arguments", "queries", "code", "action")
_CAME = ("output", "results", "outputs", "error")


def _item_done(event: Fields) -> Said:
    item = fields_of(event.get("item"))
    if (begun := _start(item)) is None:
        return None
    outcome = next((item[key] for key in _CAME if item.get(key) is not None), None)
    has_failed = bool(item.get("error")) or item.get("status") == "failed"
    ended = WorkFinished(begun.id, has_failed, outcome)
    return (begun, ended) if begun.input is not None else ended


EVENTS: dict[str, Handler] = {
    "response.created": _accepted,
    "response.queued": _accepted,
    "response.in_progress": _accepted,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.completed": _completed,
    "response.incomplete": _incomplete,
    "response.cancelled": _cancelled,
    "response.failed": _failed,
    "error": _error,
    "keepalive": always(LIVENESS),
    "ping": always(LIVENESS),
}
