"""openai-agents, event by event: its own run's tools, and the responses inside of it."""

import anyio
import pytest

from streamguard import idle_guard
from streamguard.backends import adapted, find, openai_agents
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    Usage,
    WorkFinished,
    WorkStarted,
)
from tests.backends.looks import as_model, kind_named, said_by
from tests.backends.reading import asked, came
from tests.support import take

PROGRESS = [Progress()]
NOTHING = []


def raw(kind, **more):
    return {"type": "raw_response_event", "data": {"type": kind, **more}}


def ran(name, /, **raw_item):
    return {"type": "run_item_stream_event", "name": name, "item": {"raw_item": raw_item}}


STATE = {"id": "resp_1", "usage": {"input_tokens": 3}}
SEARCH = {"type": "web_search_call", "id": "ws_1"}
SHELL = {"type": "shell_call", "call_id": "call_1"}
EVENTS = {
    "the run begins": ({"type": "agent_updated_stream_event", "new_agent": {}}, NOTHING),
    "the model is asked": (raw("response.created", response=STATE), NOTHING),
    "it begins": (raw("response.in_progress", response=STATE), NOTHING),
    "a word": (raw("response.output_text.delta", delta="hi"), PROGRESS),
    "a step ends, not the run": (
        raw("response.completed", response=STATE),
        [Usage({"input_tokens": 3}, "call", "resp_1"), Progress()],
    ),
    "a step in which nothing was said": (
        raw("response.completed", response={**STATE, "output": [{"type": "reasoning"}]}),
        [Usage({"input_tokens": 3}, "call", "resp_1")],
    ),
    "a step of another's model, all of which have one id": (
        raw("response.completed", response={**STATE, "id": "__fake_id__"}),
        [Usage({"input_tokens": 3}), Progress()],
    ),
    "a step meets a ceiling": (raw("response.incomplete", response={}), PROGRESS),
    "a step fails": (
        raw("response.failed", response={"error": {"code": "server_error"}}),
        [Failed("server", detail="server_error"), Progress()],
    ),
    "an error": (raw("error", code="server_error"), [Failed("server", detail="server_error")]),
    "a keep-alive": (raw("keepalive"), [Liveness()]),
    "a tool that OpenAI runs": (
        raw("response.output_item.added", item=SEARCH),
        [WorkStarted("ws_1", "web_search", "server")],
    ),
    "its end": (raw("response.output_item.done", item=SEARCH), [WorkFinished("ws_1")]),
    "its end, told once more": (ran("tool_called", **SEARCH), PROGRESS),
    "a function is asked for": (
        raw("response.output_item.added", item={"type": "function_call", "id": "fc_1"}),
        PROGRESS,
    ),
    "a function is called": (
        ran("tool_called", type="function_call", call_id="call_1", id="fc_1", name="f"),
        [WorkStarted("call_1", "f")],
    ),
    "it has returned": (
        ran("tool_output", type="function_call_output", call_id="call_1", output="x"),
        [WorkFinished("call_1")],
    ),
    "a shell here": (
        ran("tool_called", **SHELL, environment={"type": "local"}),
        [WorkStarted("call_1", "")],
    ),
    "a shell of OpenAI's": (
        ran("tool_called", **SHELL, environment={"type": "container_reference"}),
        PROGRESS,
    ),
    "a handoff": (ran("handoff_requested", type="function_call", call_id="call_2"), PROGRESS),
    "a message": (ran("message_output_created", type="message"), PROGRESS),
    "a call without an id": (ran("tool_called", type="function_call"), PROGRESS),
    "an event of a new kind": ({"type": "gremlins"}, PROGRESS),
}


@pytest.mark.parametrize("form", [lambda x: x, as_model], ids=["dict", "object"])
@pytest.mark.parametrize(("event", "signals"), list(EVENTS.values()), ids=list(EVENTS))
def test_what_an_event_says(event, signals, form):
    assert said_by(openai_agents, form(event)) == signals


def test_what_a_tool_was_asked_and_what_came_of_it():
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'}
    assert asked(said_by(openai_agents, ran("tool_called", **call))) == {"call_1": '{"a": 1}'}
    shell = ran("tool_called", **SHELL, action={"commands": ["ls"]}, environment={"type": "local"})
    assert asked(said_by(openai_agents, shell)) == {"call_1": {"commands": ["ls"]}}
    over = ran("tool_output", type="function_call_output", call_id="call_1", output="x")
    over["item"]["output"] = {"x": 1}
    assert came(said_by(openai_agents, over)) == {"call_1": {"x": 1}}


def test_a_tool_whose_name_only_the_sdk_knows():
    item = {"raw_item": {"type": "apply_patch_call", "call_id": "c"}, "_resolved_tool_name": "p"}
    event = {"type": "run_item_stream_event", "name": "tool_called", "item": item}
    assert said_by(openai_agents, event) == [WorkStarted("c", "p")]


def test_its_events_are_known_and_just_end():
    """T10: a run has no last event."""
    found = find(kind_named("RunItemStreamEvent", "agents.stream_events")())
    assert (found.name, found.always_ends_turns) == ("openai_agents", False)


def test_somebody_elses_package_of_that_name_is_not_taken_for_it():
    """S1: `agents` is what many call theirs."""
    assert find(kind_named("StreamEvent", "agents.messages")()) is None


# --- a run that is left -------------------------------------------------------------------------

# As the package has it: whoever closes the events of a run waits until the run is over.
_RUN = """
import anyio

class Run:
    def __init__(self):
        self.over = anyio.Event()
        self.is_complete = False
        self.cancels = 0

    def cancel(self):
        self.cancels += 1
        self.is_complete = True
        self.over.set()

    async def stream_events(self):
        try:
            for number in range(3):
                yield number
        finally:
            with anyio.move_on_after(600):
                await self.over.wait()

    async def others(self):
        for number in range(3):
            yield number
"""


@pytest.fixture
def new_run():
    """The class of a run; the package need not be there."""
    namespace = {"__name__": "agents.result"}
    exec(_RUN, namespace)
    return namespace["Run"]


@pytest.mark.parametrize("how", ["block", "aclose", "unasked"])
async def test_a_run_that_is_left_is_cancelled(loop, new_run, how):
    """Leaving early does not wait for the run, and the run is gone."""
    run, started = new_run(), anyio.current_time()
    guarded = run.stream_events() | idle_guard(60)
    if how == "block":
        async with guarded as events:
            assert await anext(events) == 0
    else:
        if how == "aclose":
            assert await anext(aiter(guarded)) == 0
        await guarded.aclose()
    assert run.cancels == 1
    assert loop.took(anyio.current_time() - started, 0)


async def test_a_run_that_ends_by_itself_is_not_cancelled(loop, form, new_run):
    """What it still does at its end, such as saving its session, is waited for."""
    run = new_run()
    async with anyio.create_task_group() as tasks:

        async def save():
            await anyio.sleep(20)
            run.over.set()

        tasks.start_soon(save)
        taken = await take(run.stream_events() | idle_guard(60), form)
    assert taken.messages == [0, 1, 2]
    assert run.cancels == 0
    assert loop.took(taken.elapsed, 20)


async def test_only_the_events_of_a_run_are_taken_for_them(loop, new_run):
    """`agents` is the name of many a package, and a user's generator is the user's."""

    async def stream_events():
        yield 1

    run = new_run()
    del run.is_complete  # so it is somebody else's
    for stream in (run.others(), run.stream_events(), stream_events()):
        assert adapted(stream) is stream
