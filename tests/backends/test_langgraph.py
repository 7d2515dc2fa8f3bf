"""LangGraph, chunk by chunk: every stream mode, alone, among others, with namespaces, as v2."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.backends import find, langgraph, resolve
from streamguard.signals import (
    Failed,
    Progress,
    SessionOpened,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.backends.reading import (
    NOTHING,
    PROGRESS,
    asked,
    came,
    garbage,
    is_found_or_not,
    is_well_made,
)
from tests.backends.reading import said as said_by

WAITING = Waiting("__interrupt__", "human")
STARTED = [WorkStarted("t1", "weather")]
FINISHED = [WorkFinished("t1")]
TIMED_OUT = Failed("network", detail="TimeoutError")


def said(message):
    return said_by(langgraph, message)


def message(kind, module="langchain_core.messages", **fields):
    cls = type("AnyMessage", (), {"__module__": module, "__repr__": lambda _: kind})
    made = cls()
    vars(made).update(type=kind, content="x", **fields)
    return made


def call(id_="t1", name="weather"):
    return {"name": name, "args": {}, "id": id_, "type": "tool_call"}


HUMAN = message("human")
DICT_CALLS = {"type": "ai", "content": "x", "tool_calls": [call()]}
SPEAKS = message("ai", tool_calls=[], usage_metadata=None)
CALLS = message("ai", tool_calls=[call()], usage_metadata=None)
CALLS_TWO = message("ai", tool_calls=[call(), call("t2")], usage_metadata=None)
ANSWERS = message("tool", tool_call_id="t1", status="success")
FAILS = message("tool", tool_call_id="t1", status="error")
COUNTED = message("ai", tool_calls=[], usage_metadata={"input_tokens": 3, "details": {"x": 1}})
INTERRUPT = (message("interrupt", "langgraph.types", id="i1"),)

BUILDS = {"id": "x1", "name": "build", "input": {}, "triggers": ("a",)}
BUILT = {"id": "x1", "name": "build", "error": None, "result": {}, "interrupts": []}

PAYLOADS = {  # mode, payload, signals
    "the model calls": ("updates", {"agent": {"messages": [CALLS]}}, STARTED),
    "the tool answers": ("updates", {"tools": {"messages": [ANSWERS]}}, FINISHED),
    "the tool fails": (
        "updates",
        {"tools": {"messages": [FAILS]}},
        [WorkFinished("t1", error=True)],
    ),
    "several updates by one node": (
        "updates",
        {"tools": [{"messages": [ANSWERS]}, {"messages": [message("tool", tool_call_id="t2")]}]},
        [*FINISHED, WorkFinished("t2")],
    ),
    "one message, no list": ("updates", {"agent": {"answer": CALLS}}, STARTED),
    "the model speaks": ("updates", {"agent": {"messages": [SPEAKS]}}, PROGRESS),
    "and is counted": (
        "updates",
        {"agent": {"messages": [COUNTED]}},
        [Progress(), Usage({"input_tokens": 3})],
    ),
    "a call and its answer at once": (
        "updates",
        {"agent": {"messages": [CALLS, ANSWERS]}},
        FINISHED,
    ),
    "an interrupt": ("updates", {"__interrupt__": INTERRUPT}, [WAITING]),
    "a state, as it was asked": ("values", {"messages": [HUMAN]}, [WaitEnded("__interrupt__")]),
    "a state with a call": ("values", {"messages": [HUMAN, CALLS]}, STARTED),
    "a state with one answer of two": (
        "values",
        {"messages": [HUMAN, CALLS_TWO, ANSWERS]},
        [WorkFinished("t1"), WorkStarted("t2", "weather")],
    ),
    "a state in which nobody answered": (
        "values",
        {"messages": [HUMAN, CALLS, SPEAKS]},
        FINISHED,
    ),
    "a state with an interrupt": (
        "values",
        {"messages": [HUMAN, CALLS], "__interrupt__": INTERRUPT},
        [*STARTED, WAITING],
    ),
    "a task": (
        "tasks",
        {"id": "x1", "name": "agent", "input": {}, "triggers": ("a",)},
        NOTHING,
    ),
    "a task that is to answer calls": (
        "tasks",
        {"id": "x2", "name": "t", "input": {"messages": [CALLS_TWO, ANSWERS]}, "triggers": ()},
        [WorkStarted("t2", "weather")],
    ),
    "a task that is to answer one": (
        "tasks",
        {"id": "x2", "name": "t", "input": {"tool_call": call()}, "triggers": ("__pregel_push",)},
        STARTED,
    ),
    "a task that is to answer some": (
        "tasks",
        {"id": "x2", "name": "t", "input": [call(), call("t2")], "triggers": ()},
        [*STARTED, WorkStarted("t2", "weather")],
    ),
    "its result": (
        "tasks",
        {"id": "x1", "name": "a", "error": None, "result": {"m": [CALLS]}, "interrupts": []},
        STARTED,
    ),
    "its result, written in parts": (
        "tasks",
        {
            **BUILT,
            "result": {"messages": {"$writes": [[ANSWERS], [message("tool", tool_call_id="t2")]]}},
        },
        [*FINISHED, WorkFinished("t2")],
    ),
    "its error": (
        "tasks",
        {"id": "x1", "name": "a", "error": TimeoutError(), "result": {}, "interrupts": []},
        [TIMED_OUT],
    ),
    "its error, from a server": (
        "tasks",
        {"id": "x1", "name": "a", "error": "Oh('secret')", "result": {}, "interrupts": []},
        [Failed("unknown", detail="Oh")],
    ),
    "its interrupt": (
        "tasks",
        {"id": "x1", "name": "a", "error": None, "result": {}, "interrupts": [{"id": "i"}]},
        [WAITING],
    ),
    "a checkpoint": (
        "checkpoints",
        {
            "config": {"configurable": {"thread_id": "th", "checkpoint_id": "c"}},
            "parent_config": None,
            "values": {},
            "metadata": {},
            "next": ["a"],
            "tasks": [],
        },
        [SessionOpened("th")],
    ),
    "a checkpoint that nobody keeps": (
        "checkpoints",
        {
            "config": {"configurable": {"thread_id": "th"}},
            "parent_config": None,
            "values": {},
            "metadata": {},
            "next": [],
            "tasks": [],
        },
        NOTHING,
    ),
    "a tool": (
        "tools",
        {"event": "tool-started", "tool_call_id": "t1", "tool_name": "weather", "input": {}},
        STARTED,
    ),
    "what it writes": (
        "tools",
        {"event": "tool-output-delta", "tool_call_id": "t1", "delta": "x"},
        [WorkProgressed("t1")],
    ),
    "its end": ("tools", {"event": "tool-finished", "tool_call_id": "t1", "output": 1}, FINISHED),
    "its failure": (
        "tools",
        {"event": "tool-error", "tool_call_id": "t1", "message": "x"},
        [WorkFinished("t1", error=True)],
    ),
}
FORMS = {
    "alone": lambda _mode, payload: payload,
    "one of several modes": lambda mode, payload: (mode, payload),
    "of a subgraph": lambda _mode, payload: (("sub:1a",), payload),
    "of a subgraph, one of several": lambda mode, payload: ((), mode, payload),
    "v2": lambda mode, payload: {"type": mode, "ns": (), "data": payload},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("mode", "payload", "signals"), PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_says_the_same_in_every_form(mode, payload, signals, form):
    chunk = form(mode, payload)
    assert said(chunk) == signals
    assert find(chunk).name == "langgraph"


@pytest.mark.parametrize(("mode", "payload", "signals"), PAYLOADS.values(), ids=PAYLOADS)
def test_debug_says_what_is_in_it(mode, payload, signals):
    if mode in {"tasks", "checkpoints"}:
        chunk = {"step": 1, "timestamp": "now", "type": "task", "payload": payload}
        assert said(chunk) == said(("debug", chunk)) == signals
        assert find(chunk).name == "langgraph"


def test_a_state_may_be_an_object():
    """As with `version="v2"`, where the graph's schema is a dataclass or a model."""

    class State:
        def __init__(self, messages):
            self.messages = messages

    assert said({"type": "values", "ns": (), "data": State([HUMAN, CALLS])}) == STARTED


def test_messages_may_be_the_dicts_of_a_server():
    human = {"type": "human", "content": "hi"}
    answers = {"type": "tool", "content": "sunny", "tool_call_id": "t1", "status": "success"}
    assert said(("values", {"messages": [human]})) == [WaitEnded("__interrupt__")]
    assert said(("values", {"messages": [human, DICT_CALLS]})) == STARTED
    assert said(("updates", {"tools": {"messages": [answers]}})) == FINISHED


def test_v2_tells_the_interrupts_of_a_state_beside_it():
    chunk = {"type": "values", "ns": (), "data": {"messages": [CALLS]}, "interrupts": INTERRUPT}
    assert said(chunk) == [*STARTED, WAITING]


# --- a server's parts ---------------------------------------------------------------------


class StreamPart(NamedTuple):
    """As langgraph_sdk has it."""

    event: str
    data: dict
    id: str | None = None


StreamPart.__module__ = "langgraph_sdk.schema"


@pytest.mark.parametrize(
    ("part", "signals"),
    [
        (StreamPart("metadata", {"run_id": "r", "attempt": 1}), NOTHING),
        (StreamPart("updates", {"agent": {"messages": [DICT_CALLS]}}), STARTED),
        (StreamPart("updates|sub:1a", {"agent": {"messages": [DICT_CALLS]}}), STARTED),
        (StreamPart("messages/partial", [DICT_CALLS]), PROGRESS),
        (StreamPart("error", {"error": "TimeoutError", "message": "secret"}), [TIMED_OUT]),
        (StreamPart("end", None), PROGRESS),
    ],
    ids=lambda value: getattr(value, "event", None),
)
def test_a_part_says(part, signals):
    assert said(part) == signals
    assert find(part).name == "langgraph"


# --- tokens -------------------------------------------------------------------------------


def token(told, step, namespace="agent:1"):
    return (
        told,
        {"langgraph_step": step, "langgraph_node": "a", "langgraph_checkpoint_ns": namespace},
    )


def in_flight(*chunks):
    work = set()
    for chunk in chunks:
        for signal in said(chunk):
            if isinstance(signal, WorkStarted):
                work.add(signal.id)
            elif isinstance(signal, WorkFinished):
                work.discard(signal.id)
    return len(work)


CHUNK_CALLS = message("AIMessageChunk", tool_calls=[call()])
CHUNK_GOES_ON = message("AIMessageChunk", tool_calls=[{**call(), "id": None, "name": ""}])
CHUNK = message("AIMessageChunk", tool_calls=[], usage_metadata={"input_tokens": 3})
WHOLE_CALL = [token(CHUNK_CALLS, 1), token(CHUNK_GOES_ON, 1), token(CHUNK, 1)]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_token_is_known_in_every_form_and_is_progress(form):
    chunk = form("messages", token(CHUNK, 1))
    assert find(chunk).name == "langgraph"
    assert Progress() in said(chunk)
    assert Usage({"input_tokens": 3}) in said(chunk)


def test_a_call_is_in_flight_until_the_tool_has_answered():
    assert in_flight(*WHOLE_CALL) == 1
    assert in_flight(*WHOLE_CALL, token(ANSWERS, 2, "tools:2")) == 0


def test_a_call_that_nobody_runs_is_closed_by_the_next_step():
    """S4: a model that must answer in a form calls it, and no tool's message ever follows."""
    assert in_flight(*WHOLE_CALL, token(CHUNK, 2)) == 0


def test_calls_of_a_form_may_follow_one_another():
    """S4"""
    assert in_flight(*WHOLE_CALL, token(CHUNK_CALLS, 2)) == 1


def test_a_tool_whose_message_is_hidden_is_closed_by_the_model():
    """S4"""
    assert in_flight(*WHOLE_CALL, token(CHUNK, 3)) == 0


def test_what_a_tools_own_graph_says_does_not_close_it():
    assert in_flight(*WHOLE_CALL, token(CHUNK, 2, "tools:2|agent:3")) == 1


# --- nodes as work ------------------------------------------------------------------------


def test_nodes_that_are_named_are_work_from_their_start_to_their_result():
    read = langgraph.reader("build")
    assert read(("tasks", BUILDS)) == WorkStarted("task:x1", "build", "task")
    assert read(("tasks", BUILT)) == [WorkFinished("task:x1")]
    assert not read(("tasks", {**BUILDS, "name": "agent"}))
    assert resolve(read).always_ends_turns is False


def test_what_comes_from_within_a_node_that_is_named_is_its_own():
    """By the task's name in the namespace, of which there may be several."""
    read = langgraph.reader("build")
    sign = WorkProgressed("task:x1")
    within = ("build:x1",)
    assert read((within, "updates", {"agent": {"messages": [SPEAKS]}})) == [sign, Progress()]
    called = read((("sub:0", *within), {"agent": {"messages": [CALLS]}}))
    assert called == [sign, WorkStarted("t1", "weather", parent="task:x1")]
    assert asked(called) == {"t1": {}}
    v2 = {"type": "custom", "ns": within, "data": {}}
    assert read(v2) == [sign, Progress()]
    assert said(v2) == PROGRESS  # nobody has named it


# --- work's input and outcome -------------------------------------------------------------

CALLED = {"name": "weather", "args": {"city": "x"}, "id": "t1"}
TOLD_ASKED = {
    "the model's message": (
        "updates",
        {"agent": {"messages": [message("ai", tool_calls=[CALLED])]}},
    ),
    "a task's": ("tasks", {**BUILDS, "name": "tools", "input": [CALLED]}),
    "a tool's": (
        "tools",
        {"event": "tool-started", "tool_call_id": "t1", "tool_name": "w", "input": {"city": "x"}},
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("mode", "payload"), TOLD_ASKED.values(), ids=TOLD_ASKED)
def test_what_a_tool_was_asked(mode, payload, form):
    assert asked(said(form(mode, payload))) == {"t1": {"city": "x"}}


TOLD_CAME = {
    "the tool's message": ("updates", {"tools": {"messages": [ANSWERS]}}),
    "a tool's": ("tools", {"event": "tool-finished", "tool_call_id": "t1", "output": "x"}),
    "a tool's, in a message with an id of its own": (
        "tools",
        {"event": "tool-finished", "tool_call_id": "t1", "output": message("tool", id="m-7")},
    ),
    "a tool's failure": ("tools", {"event": "tool-error", "tool_call_id": "t1", "message": "x"}),
}


@pytest.mark.parametrize(("mode", "payload"), TOLD_CAME.values(), ids=TOLD_CAME)
def test_what_came_of_a_tool(mode, payload):
    assert came(said((mode, payload))) == {"t1": "x"}


def test_the_calls_of_a_step_are_one_of_which_nobody_tells_what_it_was_asked():
    assert list(asked(said(token(CHUNK_CALLS, 1))).values()) == [None]


def test_counts_are_those_of_a_message():
    """Told again in another mode they are the same."""
    counted = message("ai", tool_calls=[], usage_metadata={"input_tokens": 3}, id="m-1")
    counts = Usage({"input_tokens": 3}, "call", "m-1")
    assert said(("updates", {"agent": {"messages": [counted]}})) == [Progress(), counts]
    assert counts in said(("messages", token(counted, 1)))
    assert said({**event("on_chat_model_end"), "data": {"output": counted}}) == [
        counts,
        Progress(),
    ]


# --- astream_events -----------------------------------------------------------------------


def event(kind, name="weather"):
    plain = {"data": {}, "tags": [], "metadata": {}, "parent_ids": ["r0"]}
    return {"event": kind, "name": name, "run_id": "t1", **plain}


@pytest.mark.parametrize(
    ("kind", "signals"),
    [
        ("on_chain_start", NOTHING),
        ("on_chat_model_start", NOTHING),
        ("on_chat_model_stream", PROGRESS),
        ("on_tool_start", STARTED),
        ("on_tool_end", FINISHED),
        ("on_tool_error", [WorkFinished("t1", error=True)]),
        ("on_chain_end", PROGRESS),
    ],
)
def test_an_event_says(kind, signals):
    assert said(event(kind)) == signals
    assert find(event(kind)).name == "langgraph"


def test_an_event_of_a_tool_says_what_it_was_asked_and_what_came_of_it():
    begun = {**event("on_tool_start"), "data": {"input": {"city": "x"}}}
    over = {**event("on_tool_end"), "data": {"output": message("tool", id="m-7")}}
    assert asked(said(begun)) == {"t1": {"city": "x"}}
    assert came(said(over)) == {"t1": "x"}


# --- what is not LangGraph's --------------------------------------------------------------

OTHERS = [
    ("values", {}),
    ("updates", {"count": 3}),
    ("updates", "x"),
    ("messages", "hello"),
    ("messages", ("hello", {"node": "x"})),
    ("custom", {"percent": 3}),
    ("tasks", {"id": 1, "name": "x"}),
    ("hello", {"agent": {"messages": [CALLS]}}),
    ((), ()),
    ((), {"count": 3}),
    (("a", "b"), "updates", {}),
    (("a:1",), "hello", {}),
    ("text", {"langgraph": 1}),
    (1, 2, 3),
    (),
    {"agent": {"count": 3}},
    {"messages": [{"role": "user", "content": "hi"}]},
    {"messages": []},
    {"type": "updates", "ns": "x", "data": {}},
    {"type": "hello", "ns": (), "data": {}},
    {"id": 1, "name": "x", "input": {}},
    {"interrupts": [], "result": {}},
    {"event": "tool-started", "name": "x"},
    {"event": "on_sale", "run_id": "r"},
    {"payload": {}, "type": "task"},
]


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_a_tuple_or_dict_of_a_users_own_is_not_its(other):
    """S1: a wrong guess would be worse than Progress."""
    assert find(other) is None


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_and_named_it_is_progress_at_least(other):
    """S2: nothing opens the gate or ends a turn by accident."""
    assert said(other) in (PROGRESS, NOTHING)


def test_an_end_is_an_end():
    """T10"""
    assert resolve("langgraph").always_ends_turns is False


KEYS = [
    *("type", "ns", "data", "interrupts", "__interrupt__", "messages", "tool_calls", "id", "name"),
    *("tool_call_id", "status", "usage_metadata", "input", "triggers", "result", "error", "step"),
    *("config", "configurable", "thread_id", "checkpoint_id", "next", "payload", "event"),
    *("run_id", "langgraph_step", "langgraph_node", "langgraph_checkpoint_ns", "parent_ids"),
]
WORDS = [
    *("values", "updates", "messages", "tasks", "checkpoints", "debug", "tools", "custom"),
    *("ai", "tool", "human", "on_tool_start", "tool-started", "x" * 300),
]
ANYTHING = garbage(KEYS, WORDS)
TUPLES = st.tuples(ANYTHING, ANYTHING) | st.tuples(st.sampled_from(WORDS), ANYTHING)


@given(ANYTHING | TUPLES | st.tuples(st.just(()), st.sampled_from(WORDS), ANYTHING))
def test_no_message_makes_the_reader_raise(chunk):
    """S2"""
    assert all(is_well_made(signal) for signal in said(chunk))
    assert is_found_or_not(find(chunk))
