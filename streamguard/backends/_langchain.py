"""LangChain's messages: which tools they call, and which calls they answer.

Reads `langchain_core` messages as objects, and as the dicts of a server. Knows `signals` and
`_fields`; helps `langgraph` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from streamguard.backends._fields import Fields, fields_of, text_in
from streamguard.signals import Signal, WorkFinished, WorkStarted

# Tuples, as a `type` of unknown making may have no hash.
_AI = ("ai", "AIMessageChunk")
_TOOL = ("tool", "ToolMessageChunk")
_ROOT = "langchain_core"
_TAIL = 64  # as many of a history as one round of tools can have


def is_langchains(thing: object) -> bool:
    """Whether it is a message: an object, by its root package, or a dict as a server sends it."""
    if isinstance(thing, dict):
        fields = fields_of(cast("object", thing))
        return isinstance(fields.get("type"), str) and "content" in fields
    return str(type(thing).__module__).partition(".")[0] == _ROOT


def is_ai(message: Fields) -> bool:
    """Whether a model said it."""
    return message.get("type") in _AI


def calls_of(message: Fields) -> Iterator[WorkStarted]:
    """Each tool call of a message, as work that begins. Later chunks of a call have no id."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in cast("list[object]", calls):
            fields = fields_of(call)
            if id_ := text_in(fields.get("id")):
                yield WorkStarted(id_, text_in(fields.get("name")) or "", input=fields.get("args"))


def work_in(history: list[object]) -> list[Signal]:
    """What is in flight after `history`: calls that nothing in it answers, and ends of others.

    A state names the same call again with each step, so this is idempotent (S3).
    """
    opened: dict[str, WorkStarted] = {}
    closed: dict[str, WorkFinished] = {}
    for message in history[-_TAIL:]:
        fields = fields_of(message)
        if is_ai(fields):
            # The model has gone on without them, so nobody is at work on earlier calls (S4).
            closed |= {id_: WorkFinished(id_) for id_ in opened}
            opened = {call.id: call for call in calls_of(fields)}
        elif fields.get("type") in _TOOL and (id_ := text_in(fields.get("tool_call_id"))):
            opened.pop(id_, None)
            closed[id_] = WorkFinished(id_, fields.get("status") == "error", fields.get("content"))
    return [*closed.values(), *(call for id_, call in opened.items() if id_ not in closed)]
