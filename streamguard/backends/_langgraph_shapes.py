"""Is this dict or tuple a chunk of LangGraph's? They are plain ones, so their insides decide (S1).

Claimed are only those that nobody else makes: the keys that a mode's payload must have, the
metadata beside a token, or a message of LangChain's inside. A state or an update without any
(`{"count": 3}`), a `custom` payload, and such a pair with its mode, may be a user's own: they
stay unknown until another chunk of the stream gives it away, or `read="langgraph"` says it.
Helps `_shapes` alone; imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

_MODES = {"values", "updates", "messages", "custom", "tasks", "checkpoints", "debug", "tools"}
# By the key that gives a payload away, the others that it must have.
_KEYS = {
    "triggers": {"id", "name", "input"},  # a task's start
    "interrupts": {"id", "name", "error", "result"},  # its result
    "parent_config": {"config", "values", "metadata", "next", "tasks"},  # a checkpoint
    "payload": {"step", "timestamp", "type"},  # either, in debug mode
    "parent_ids": {"event", "name", "run_id", "metadata"},  # astream_events
}
_TOOL_EVENTS = {"tool-started", "tool-finished", "tool-error", "tool-output-delta"}
_PACKAGES = {"langchain_core", "langgraph"}
_A_FEW = 8  # fields of a state that are looked at


def is_dict_of_theirs(line: Mapping[object, object]) -> bool:
    """Whether it is a chunk of one stream mode, or of `version="v2"`."""
    if "ns" in line and "data" in line:
        return isinstance(line["ns"], list | tuple) and _is_mode(line.get("type"))
    if "tool_call_id" in line and isinstance(event := line.get("event"), str):
        return event in _TOOL_EVENTS
    for key, others in _KEYS.items():
        if key in line:
            return others <= line.keys() or _is_state(line)
    return _is_state(line)


def is_tuple_of_theirs(chunk: tuple[Any, ...]) -> bool:
    """Whether it is a token with its metadata, or a payload with its mode, its namespace."""
    if len(chunk) == 3:
        return _is_namespace(chunk[0]) and _is_mode(chunk[1])
    if len(chunk) != 2:
        return False
    first, second = chunk
    if isinstance(first, str):
        return first in _MODES and _is_payload(second)
    if isinstance(first, tuple):
        return _is_namespace(cast("object", first)) and _is_payload(second)
    return _is_metadata(second)


def _is_payload(payload: object) -> bool:
    if isinstance(payload, dict):
        return is_dict_of_theirs(cast("dict[object, object]", payload))
    pair = cast("tuple[object, ...]", payload) if isinstance(payload, tuple) else ()
    return len(pair) == 2 and _is_metadata(pair[1])


def _is_metadata(metadata: object) -> bool:
    return isinstance(metadata, dict) and "langgraph_node" in metadata


def _is_mode(mode: object) -> bool:
    return isinstance(mode, str) and mode in _MODES


def _is_namespace(namespace: object) -> bool:
    """Whether it is `()` of the graph itself, or `("node:task", ...)` of one within."""
    return isinstance(namespace, tuple) and all(
        isinstance(part, str) and ":" in part for part in cast("tuple[object, ...]", namespace)
    )


def _is_state(line: Mapping[object, object]) -> bool:
    """Whether LangChain's messages, or an interrupt of LangGraph's, are among the values."""
    for value in islice(line.values(), _A_FEW):
        first = _first(value)
        if isinstance(first, dict):  # a node's update, or the first of several
            update = cast("dict[object, object]", first)
            if any(_is_theirs(_first(inner)) for inner in islice(update.values(), _A_FEW)):
                return True
        elif _is_theirs(first):
            return True
    return False


def _first(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    several = cast("Sequence[object]", value)
    return several[0] if several else None


def _is_theirs(thing: object) -> bool:
    return str(type(thing).__module__).partition(".")[0] in _PACKAGES
