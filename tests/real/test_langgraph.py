"""LangGraph itself, with a model that follows a script: its streams, guarded, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph.graph", exc_type=ImportError)

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, interrupt
from langgraph_sdk.schema import StreamPart

from streamguard import (
    IdleTimeoutError,
    StreamInterruptedError,
    ToolTimeoutError,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import find, langgraph
from streamguard.events import UnknownMessage
from tests.support import Events, take

MODES = ["updates", "values", "messages", "tasks", "debug", ["updates", "messages", "tasks"]]
THREAD = {"configurable": {"thread_id": "issue-7"}}
HI = {"messages": [("user", "hi")]}


class Scripted(BaseChatModel):
    """Each call takes the next step of the script: a text, tool calls by name, or a hang."""

    script: list[Any]
    asked: list[Any]

    @property
    def _llm_type(self):
        return "scripted"

    def _generate(self, *args, **kwargs):
        raise NotImplementedError

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        whole = None
        async for chunk in self._astream(messages):
            whole = chunk.message if whole is None else whole + chunk.message
        message = AIMessage(whole.content, tool_calls=whole.tool_calls, id=whole.id)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, tools, **kwargs):
        return self

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked.append(list(messages))
        step = self.script.pop(0)
        if step is HANG:
            await asyncio.sleep(1_000_000)
        if isinstance(step, str):
            chunks = [AIMessageChunk(word) for word in step.split()]
        else:
            chunks = [_call(index, name) for index, name in enumerate(step)]
        for chunk in chunks:
            yield ChatGenerationChunk(message=chunk)


HANG = object()


def _call(index, name):
    call = {"name": name, "args": "{}", "id": f"call_{index}", "index": index}
    return AIMessageChunk("", tool_call_chunks=[{**call, "type": "tool_call_chunk"}])


class World:
    """An agent with tools, and what became of them."""

    def __init__(self, *script, ready_made=False):
        self.seen = Counter()
        self.model = Scripted(script=list(script), asked=[])
        seen = self.seen

        @tool
        async def look() -> str:
            """Look."""
            seen["look"] += 1
            return "sunny"

        @tool
        async def build() -> str:
            """Build, for ten minutes."""
            seen["build"] += 1
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                seen["build cancelled"] += 1
                raise
            return "built"

        @tool
        async def ask() -> str:
            """Ask a person."""
            return str(interrupt("may I?"))

        @tool
        async def ask_and_build() -> str:
            """Ask a person, then build."""
            answer = interrupt("may I?")
            seen[f"told {answer}"] += 1
            await asyncio.sleep(600 if seen["told yes"] == 1 else 0)
            return "built"

        @tool
        async def note(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
            """Change the state."""
            answer = ToolMessage("noted", tool_call_id=tool_call_id)
            return Command(update={"messages": [answer]})

        async def agent(state):
            try:
                return {"messages": [await self.model.ainvoke(state["messages"])]}
            except asyncio.CancelledError:
                seen["model cancelled"] += 1
                raise

        tools = [look, build, ask, ask_and_build, note]
        if ready_made:
            self.graph = create_react_agent(self.model, tools, checkpointer=InMemorySaver())
            return
        graph = StateGraph(MessagesState)
        graph.add_node("agent", agent)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        self.graph = graph.compile(checkpointer=InMemorySaver())

    def stream(self, mode, **options):
        return self.graph.astream(HI, THREAD, stream_mode=mode, **options)


@pytest.fixture(params=MODES, ids=str)
def mode(request):
    return request.param


def last_texts(messages):
    return [(type(each), each.content) for each in messages]


# -- guarded streams -------------------------------------------------------------------------


async def test_a_normal_run_is_untouched(native, form, mode):
    alone = [chunk async for chunk in World(["look"], "it is sunny").stream(mode)]
    events = Events()
    stream = World(["look"], "it is sunny").stream(mode)
    taken = await take(stream | idle_guard(60, observer=events), form)
    assert taken.error is None
    assert len(taken.messages) == len(alone)
    assert not events.of(UnknownMessage)


async def test_a_model_that_hangs_within_its_node(native, mode):
    """A node is no work in flight: the silence of the model in it is silence."""
    world = World(["look"], HANG)
    taken = await take(world.stream(mode) | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)
    assert taken.error.verdict.in_flight == ()
    assert taken.error.teardown.confirmed
    assert world.seen["model cancelled"] == 1


@pytest.mark.parametrize("options", [{}, {"subgraphs": True}, {"version": "v2"}], ids=str)
async def test_a_tool_may_take_its_time_and_the_silence_after_it_may_not(native, mode, options):
    """T5"""
    world = World(["look", "build"], HANG)
    taken = await take(world.stream(mode, **options) | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 600 + 60)
    assert world.seen == {"look": 1, "build": 1, "model cancelled": 1}


@pytest.mark.filterwarnings("ignore:create_react_agent")  # it has moved, to another package
async def test_the_agent_that_comes_with_it(native, mode):
    """Each of its tool calls is a task of its own."""
    world = World(["build", "look"], HANG, ready_made=True)
    taken = await take(world.stream(mode) | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    # Tokens alone do not tell how many answers are still to come: the first one counts as all.
    assert native.took(taken.elapsed, (600 if mode != "messages" else 0) + 60)


@pytest.mark.parametrize("source", ["tools", "astream_events"])
async def test_tools_that_are_told_themselves(native, source):
    world = World(["build"], HANG)
    if source == "tools":
        stream = world.stream(["tools", "custom"])
    else:
        stream = world.graph.astream_events(HI, THREAD, version="v2")
    taken = await take(stream | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 600 + 60)


async def test_a_tool_that_takes_too_long_is_cancelled(native, mode):
    """T5: by its allowance, and by its name."""
    world = World(["build"])
    taken = await take(world.stream(mode) | idle_guard(60, tools={"build": 100}))
    assert type(taken.error) is ToolTimeoutError
    assert taken.error.verdict.work == "build"
    assert native.took(taken.elapsed, 100)
    assert world.seen["build cancelled"] == 1


async def test_an_interrupt_ends_the_stream_and_is_no_failure(native, form, mode):
    taken = await take(World(["ask"]).stream(mode) | idle_guard(60), form)
    assert taken.error is None


async def test_a_hang_beside_an_interrupt_is_found_when_the_wait_has_lapsed(native):
    """T6: which of the two keeps the stream open is not told, so it is an hour later."""

    async def ask(_state):
        interrupt("may I?")

    async def hang(_state):
        await asyncio.sleep(1_000_000)

    graph = StateGraph(MessagesState)
    for node in (ask, hang):
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    stream = graph.compile(checkpointer=InMemorySaver()).astream(HI, THREAD)
    taken = await take(stream | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 3600 + 60)


async def test_tools_that_change_the_state(native, mode):
    """One node's update may then be several."""
    taken = await take(World(["note", "note"], HANG).stream(mode) | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)
    assert taken.error.verdict.in_flight == ()


async def test_a_pull_that_the_consumer_gave_up_does_not_make_it_look_complete(native):
    """T8: the cancel has ended the generator, and the run with it."""
    world = World(["build"], "never said")
    guarded = aiter(world.stream("updates") | idle_guard(60))
    await anext(guarded)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await anext(guarded)
    with pytest.raises(StreamInterruptedError):
        await anext(guarded)
    assert world.seen["build cancelled"] == 1


async def test_a_node_that_is_named_as_work(native):
    async def build(_state):
        await asyncio.sleep(600)
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("build", build)
    graph.add_edge(START, "build")

    def stream():
        return graph.compile().astream(HI, stream_mode=["updates", "tasks"])

    taken = await take(stream() | idle_guard(60, read=langgraph.reader("build")))
    assert taken.error is None
    taken = await take(stream() | idle_guard(60))
    assert native.took(taken.elapsed, 60)


async def test_a_slow_first_token_has_the_time_of_first(native, mode):
    """S0: that a task began, or what the user said, is no answer."""
    taken = await take(World(HANG).stream(mode) | idle_guard(60, first=300))
    assert native.took(taken.elapsed, 300)


async def test_what_fails_in_a_node_is_raised_as_itself(native, mode):
    """T7"""
    taken = await take(World().stream(mode) | idle_guard(60))
    assert type(taken.error) is IndexError


async def test_every_chunk_is_known_in_every_mode(native):
    """S1: by its insides alone."""
    world = World(["look"], "it is sunny")
    modes = ["updates", "values", "messages", "tasks", "checkpoints", "debug", "tools"]
    for stream in (world.stream(modes), world.graph.astream_events(HI, THREAD, version="v2")):
        world.model.script[:] = [["look"], "it is sunny"]
        assert {find(chunk).name async for chunk in stream} == {"langgraph"}


def test_a_server_s_parts_are_known_by_their_type():
    """S1: they are tuples, of a class."""
    part = StreamPart("updates", {"agent": {"messages": [AIMessage("x").model_dump()]}})
    assert find(part).name == "langgraph"
    assert langgraph.read(StreamPart("metadata", {"run_id": "r"})) == ()


# -- sessions --------------------------------------------------------------------------------


async def chat_of(world, *prompts, **options):
    """What the session's turns came to, and how long they took."""
    session = langgraph.session(world.graph, THREAD, prompt=prompts[0], **options)
    chunks = []
    async with session | idle_guard(60) | reconnecting_resume(backoff=(0,)) as chat:
        for turn in (chat, *(chat.ask(prompt) for prompt in prompts[1:])):
            chunks.append([chunk async for chunk in turn])
    return chunks


async def test_a_session_goes_on_from_the_last_checkpoint(native):
    """R1: nothing that had ended runs again, and the history is there."""
    world = World(["look"], HANG, "it is sunny", "bye")
    await chat_of(world, "hi", "thanks")
    assert world.seen["look"] == 1
    asked = [last_texts(messages) for messages in world.model.asked]
    first = [(HumanMessage, "hi"), (AIMessage, ""), (ToolMessage, "sunny")]
    assert asked[1] == asked[2] == first
    assert asked[3] == [*first, (AIMessage, "itissunny"), (HumanMessage, "thanks")]


async def test_a_session_whose_first_answer_hangs_asks_once(native):
    world = World(HANG, "hello")
    await chat_of(world, "hi")
    assert [last_texts(messages) for messages in world.model.asked] == 2 * [[(HumanMessage, "hi")]]


async def test_a_tool_that_was_under_way_begins_anew(native):
    world = World(["build"], "done")
    session = langgraph.session(world.graph, THREAD, prompt="hi")
    guard = idle_guard(60, tools={"build": 599}) | reconnecting_resume(retries=1, backoff=(0,))
    with pytest.raises(ToolTimeoutError) as caught:
        async with session | guard as chat:
            async for _ in chat:
                pass
    assert caught.value.gave_up == "retries"
    assert world.seen["build"] == world.seen["build cancelled"] == 2


async def test_what_is_asked_at_an_interrupt_is_the_answer_to_it(native):
    world = World(["ask"], "then I do")
    await chat_of(world, "hi", "yes")
    assert last_texts(world.model.asked[-1])[-1] == (ToolMessage, "yes")


async def test_what_was_answered_is_not_asked_again_after_a_hang(native):
    world = World(["ask_and_build"], "done")
    session = langgraph.session(world.graph, THREAD, prompt="hi")
    guard = idle_guard(60, tools=100) | reconnecting_resume(backoff=(0,))
    async with session | guard as chat:
        for turn in (chat, chat.ask("yes")):
            async for _ in turn:
                pass
    assert world.seen["told yes"] == 2
    assert last_texts(world.model.asked[-1])[-1] == (ToolMessage, "built")


async def test_a_prompt_may_be_any_input(native):
    world = World("hello")
    given = {"inputs": lambda prompt: {"messages": [("system", prompt)]}}
    chunks = await chat_of(world, "hi", stream_mode="values", **given)
    assert chunks[0][0]["messages"][0].type == "system"
