"""LangGraph: what the chunks of `graph.astream(...)` and `astream_events(...)` say.

Reads every form a stream mode has: `payload`, `(mode, payload)` of a list of modes,
`(namespace, payload)` and `(namespace, mode, payload)` with `subgraphs=True`, the dicts of
`version="v2"`, and a server's `StreamPart(event, data)`. Nothing of LangGraph or LangChain is
imported. Pure and total: garbage is Progress, never an exception.

    mode                   chunk                          signals
    ─────────────────────  ─────────────────────────────  ───────────────────────────────────
    updates, values        an AI message with tool calls  WorkStarted for each; Usage
                           a tool's message               WorkFinished
    values                 a state that a person spoke    WaitEnded: idle anew, but no answer
                           last in, as the first one      of the model's yet (S0)
    tasks, debug           a task's start                 WorkStarted for each call that it is
                                                          given (of `nodes`: for itself)
                           a task's result                as updates; Failed; WorkFinished
    messages               a token                        Progress, Usage
                           of a tool call                 WorkStarted, of all calls of its step
                           of a later step                WorkFinished of that
    tools, astream_events  a tool's start, its end        WorkStarted, WorkFinished
                           what a tool puts out           WorkProgressed
                           a model's end                  Usage, Progress
                           any other start                nothing
    checkpoints, debug     a checkpoint                   SessionOpened(thread_id)
    any                    __interrupt__                  Waiting for a person
    of a server            metadata: the run's id         nothing
                           error                          Failed
    custom                 anything                       Progress

**A node is no work in flight**: the node that asks a model is a task like any other, and an
entry for it would hide the very hang that is looked for. `reader("build")` names the nodes
whose silence is work; it needs `tasks` (or `debug`) among the modes. With `subgraphs=True` what comes
from within such a node is its own sign of life, and the work that begins there is its own.

`messages` tells of a call, but not who runs it: a model that must answer in a form "calls" the
form. So its entry stands for the step and is closed by whatever a later step says (S4).

**No chunk is the last** (T10): a run ends with its iterator, and what fails it is raised. An
interrupt ends it as well, but only when the tasks beside it have come to their ends.

Counts are those of a message, under its id. A stream of tokens may have them in several chunks, of which
the last is taken.

May import `signals` and its helpers beside it; what `session` needs, when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, cast

from streamguard.backends._fields import (
    NOTHING,
    PROGRESS,
    Fields,
    Said,
    fields_of,
    finished,
    progressed,
    started,
    text_in,
    usage_in,
)
from streamguard.backends._langchain import calls_of, is_ai, is_langchains, work_in
from streamguard.retry import classes
from streamguard.signals import (
    SIGNALS,
    Failed,
    SessionOpened,
    Signal,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

ALWAYS_ENDS_TURNS = False  # the iterator's end is the only end there is

_INTERRUPT = "__interrupt__"
_WAITING = Waiting(_INTERRUPT, "human")
_SPOKEN_TO = WaitEnded(_INTERRUPT)
_MODES = {"values", "updates", "messages", "custom", "tasks", "checkpoints", "debug", "tools"}
_LISTS = (list, tuple)  # `list | tuple` would be made anew for each message
_SEVERAL = 32  # more dicts than that are no node's updates, but a state's own matter
_NO_NODES: frozenset[str] = frozenset()


def read(message: object) -> Said:
    """What one chunk says; None is Progress."""
    return _read(message, _NO_NODES)


def reader(*nodes: str) -> Callable[[object], Said]:
    """A reader for which the run of these nodes is work in flight: `read=reader("build")`.

    For nodes that are silent for long and ask no model. Needs `stream_mode=[..., "tasks"]`.
    """
    named = frozenset(nodes)

    def read_with_nodes(message: object) -> Said:
        return _read(message, named)

    return read_with_nodes


def _read(message: object, nodes: frozenset[str]) -> Said:
    if isinstance(message, dict):
        line = cast("Fields", message)
        mode = line.get("type")
        if "ns" in line and "data" in line and isinstance(mode, str) and mode in _MODES:
            said = _within(line["ns"], _payload(mode, line["data"], nodes), nodes)
            return _waiting(said) if line.get("interrupts") else said
        # A dict whose mode is not told, as a single stream mode yields it.
        for key, other, handle in _GUESSES:
            if key in line and other in line:
                return handle(line, nodes)
        return _state(line, nodes)
    if isinstance(message, tuple):
        return _tuple(message, nodes)  # pyright: ignore[reportUnknownArgumentType]
    return None


def _tuple(chunk: tuple[Any, ...], nodes: frozenset[str]) -> Said:
    if len(chunk) == 3:
        if isinstance(chunk[0], str):
            return _part(chunk[0], chunk[1], nodes)
        return _within(chunk[0], _payload(chunk[1], chunk[2], nodes), nodes)
    if len(chunk) != 2:
        return None
    first, second = chunk
    if isinstance(first, str):
        return _payload(first, second, nodes)
    if isinstance(first, tuple):
        return _within(cast("object", first), _read(second, nodes), nodes)
    return _message(fields_of(first), fields_of(second))


def _within(namespace: object, said: Said, nodes: frozenset[str]) -> Said:
    """What is said in a subgraph, which shows that the nodes around it are alive."""
    parts = (
        cast("list[object]", namespace) if nodes and isinstance(namespace, list | tuple) else ()
    )
    around = [_task_key(str(part).partition(":")[2]) for part in parts if _node_of(part) in nodes]
    if not around:
        return said
    told = [PROGRESS] if said is None else [said] if isinstance(said, SIGNALS) else list(said)
    return [
        *(WorkProgressed(id_) for id_ in around),
        *(replace(s, parent=around[-1]) if isinstance(s, WorkStarted) else s for s in told),
    ]


def _node_of(part: object) -> str:
    return str(part).partition(":")[0]


def _part(event: str, data: object, nodes: frozenset[str]) -> Said:
    """A server's part. A subgraph's has its namespace behind the mode: `updates|sub:1a`."""
    if event == "metadata":
        return NOTHING  # the run was accepted
    if event == "error":
        return _failure(fields_of(data).get("error"))
    return _payload(event.partition("|")[0], data, nodes)


def _payload(mode: object, payload: object, nodes: frozenset[str]) -> Said:
    """What the payload of a known mode says."""
    if mode == "messages":
        pair = cast("list[object]", payload) if isinstance(payload, _LISTS) else []
        return _message(fields_of(pair[0]), fields_of(pair[1])) if len(pair) == 2 else None
    handle = _HANDLERS.get(mode) if isinstance(mode, str) else None
    # A state may be an object: a dataclass, a model of pydantic's.
    return None if handle is None else handle(fields_of(payload), nodes)


def _waiting(said: Said) -> Said:
    # Not the turn's end: tasks beside the interrupted one go on, with their tools in flight.
    several = said if isinstance(said, list | tuple) else [said]
    return [*(cast("Signal", signal) for signal in several if signal is not None), _WAITING]


# --- states and updates -------------------------------------------------------------------


def _state(line: Fields, _nodes: frozenset[str]) -> Said:
    """Tool calls and their ends, among the messages of a state, or of nodes' updates to it."""
    said: list[Signal] = []
    for value in line.values():
        said.extend(_histories(value))
    return _waiting(said) if _INTERRUPT in line else said or None


def _histories(value: object) -> Iterable[Signal]:
    history = _listed(value)
    # A node's update, or several of them; none if it is a message, or anything else.
    updates = [
        cast("Fields", update)
        for update in history[-_SEVERAL:]
        if isinstance(update, dict) and not is_langchains(cast("object", update))
    ]
    if updates:
        for update in updates:
            for inner in update.values():
                yield from _history(inner)
        return
    # Else it is a state's own field. A person has the last word: the graph was asked, and has not answered yet.
    if history and fields_of(history[-1]).get("type") == "human":
        yield _SPOKEN_TO
    yield from _history(value)


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _history(value: object) -> Iterable[Signal]:
    history = _listed(value)
    last = history[-1] if history else None
    if type(last) is list:  # several writes of one task
        for write in history:
            yield from _history(write)
        return
    if not is_langchains(last):
        return
    yield from work_in(history)
    if usage := _used(fields_of(last)):
        yield PROGRESS
        yield from usage


def _used(message: Fields) -> tuple[Signal, ...]:
    counts = message.get("usage_metadata")
    return usage_in(counts, call=message.get("id")) if counts else ()


# --- tasks and checkpoints ----------------------------------------------------------------


def _debug(step: Fields, nodes: frozenset[str]) -> Said:
    payload = fields_of(step.get("payload"))
    return _checkpoint(payload, nodes) if "next" in payload else _task(payload, nodes)


def _task(task: Fields, nodes: frozenset[str]) -> Said:
    if "result" in task or "error" in task:
        return _task_result(task, nodes)
    id_, name = text_in(task.get("id")), text_in(task.get("name"))
    if id_ is not None and name is not None and name in nodes:
        return WorkStarted(_task_key(id_), name, "task")
    # It has begun, and done nothing yet. What it is given may be calls that are run anew, after a
    # resume that tells of their model's message no more.
    return [signal for signal in _given(task.get("input")) if isinstance(signal, WorkStarted)]


def _given(given: object) -> Iterable[Signal]:
    fields = fields_of(given)
    # One of several calls, each in a task of its own; or some of them.
    calls = [fields["tool_call"]] if "tool_call" in fields else given
    if isinstance(calls, list):
        return list(calls_of({"tool_calls": calls}))
    return [signal for value in fields.values() for signal in _history(value)]


def _task_result(task: Fields, nodes: frozenset[str]) -> Said:
    written = fields_of(task.get("result")).values()
    said = [signal for value in written for signal in _histories(value)]
    error = task.get("error")
    id_, name = text_in(task.get("id")), text_in(task.get("name"))
    if id_ is not None and name in nodes:
        said.append(WorkFinished(_task_key(id_), error is not None))
    if error is not None:
        said.append(_failure(error))
    return _waiting(said) if task.get("interrupts") else said or None


def _task_key(id_: str) -> str:
    return f"task:{id_}"


def _failure(error: object) -> Failed:
    # An exception here, its repr from a server: the name comes first in either.
    name = text_in(error) or type(error).__name__
    word = name.partition("(")[0][:80]
    return Failed(classes.class_of_name(word) or "unknown", detail=word)


def _checkpoint(checkpoint: Fields, _nodes: frozenset[str]) -> Said:
    # A checkpoint's id proves that somebody keeps it; a thread's id alone does not.
    where = fields_of(fields_of(checkpoint.get("config")).get("configurable"))
    thread = text_in(where.get("thread_id"))
    return SessionOpened(thread) if thread and where.get("checkpoint_id") else NOTHING


# --- tokens -------------------------------------------------------------------------------


def _message(message: Fields, metadata: Fields) -> Said:
    step = metadata.get("langgraph_step")
    if not isinstance(step, int):
        return None
    namespace = str(metadata.get("langgraph_checkpoint_ns")).rpartition("|")[0]
    if is_ai(message) and (call := next(calls_of(message), None)) is not None:
        # What it is asked comes piece by piece, and stands for all calls of the step: nobody can tell.
        return (*_earlier(namespace, step), WorkStarted(_step_key(namespace, step), call.name))
    said = (*_earlier(namespace, step), PROGRESS)
    usage = _used(message)
    return (*said, *usage) if usage else said


def _step_key(namespace: str, step: int) -> str:
    return f"calls:{namespace}:{step}"


@lru_cache(maxsize=256)  # asked for every token
def _earlier(namespace: str, step: int) -> tuple[Signal, ...]:
    """The calls of the two steps before are over: those of a model, or of a model before tools."""
    return tuple(WorkFinished(_step_key(namespace, step - back)) for back in (1, 2))


# --- tools' events ------------------------------------------------------------------------

_STARTS = {"tool-started", "on_tool_start"}
_ENDS = {"tool-finished": False, "tool-error": True, "on_tool_end": False, "on_tool_error": True}


def _event(line: Fields, _nodes: frozenset[str]) -> Said:
    event = line.get("event")
    id_ = text_in(line.get("tool_call_id")) or text_in(line.get("run_id"))
    if id_ is None or not isinstance(event, str):
        return None
    data = fields_of(line.get("data"))
    if event in _STARTS:
        name = text_in(line.get("tool_name")) or line.get("name")
        return started(id_, name, input=line.get("input", data.get("input")))
    if event in _ENDS:
        told = (line.get("output"), data.get("output"), line.get("message"), data.get("error"))
        output = next((each for each in told if each is not None), None)
        # A message has an id of its own, another one each time.
        outcome = fields_of(output).get("content", output) if is_langchains(output) else output
        return finished(id_, _ENDS[event], outcome)
    if event == "tool-output-delta":
        return progressed(id_)
    if event == "on_chat_model_end" and (usage := _used(fields_of(data.get("output")))):
        return (*usage, PROGRESS)
    return NOTHING if event.startswith("on_") and event.endswith("_start") else None


# --- the tables ---------------------------------------------------------------------------

_Handler: TypeAlias = Callable[[Fields, frozenset[str]], Said]
_HANDLERS: dict[str, _Handler] = {
    "values": _state,
    "updates": _state,
    "tasks": _task,
    "checkpoints": _checkpoint,
    "debug": _debug,
    "tools": _event,
}
_GUESSES: tuple[tuple[str, str, _Handler], ...] = (
    ("event", "run_id", _event),
    ("event", "tool_call_id", _event),
    ("payload", "step", _debug),
    ("triggers", "input", _task),
    ("interrupts", "result", _task),
    ("next", "config", _checkpoint),
)
