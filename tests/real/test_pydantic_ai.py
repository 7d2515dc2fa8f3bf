"""pydantic-ai itself, with a model that follows a script: its streams, guarded, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

pytest.importorskip("pydantic_ai", exc_type=ImportError)

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunCancelled
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from streamguard import (
    IdleTimeoutError,
    ToolTimeoutError,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import find, pydantic_ai
from streamguard.events import UnknownMessage
from streamguard.signals import TurnEnded, WorkFinished
from tests.loopback.script import drip, end, text
from tests.loopback.server import ModelServer
from tests.support import Events, take

HANG = object()


class World:
    """An agent with tools, whose model follows a script: a text, tool calls, texts and hangs."""

    def __init__(self, *script, **options):
        self.script = list(script)
        self.seen = Counter()
        self.asked = []
        self.agent = Agent(FunctionModel(stream_function=self._model), **options)
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(self.build)
        self.agent.tool_plain(self.stumble)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    async def _model(self, messages, info):
        self.asked.append([type(part).__name__ for each in messages for part in each.parts])
        for step in self.script.pop(0):
            if step is HANG:
                try:
                    await asyncio.sleep(1_000_000)
                except asyncio.CancelledError:
                    self.seen["model cancelled"] += 1
                    raise
            elif step.startswith("call "):
                name = step.removeprefix("call ")
                yield {0: DeltaToolCall(name=name, json_args="{}", tool_call_id=f"id of {name}")}
            else:
                yield step

    async def look(self) -> str:
        self.seen["look"] += 1
        return "sunny"

    async def build(self) -> str:
        self.seen["build"] += 1
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.seen["build cancelled"] += 1
            raise
        return "built"

    async def stumble(self) -> str:
        raise ModelRetry("not so")

    async def delete(self) -> str:
        await asyncio.sleep(600)
        return "gone"

    async def guarded(self, guard, form="bare", **options):
        async with self.agent.run_stream_events("hi", **options) as events:
            return await take(events | guard, form)


def kinds(messages):
    return [message.event_kind for message in messages]


# -- guarded streams -------------------------------------------------------------------------


async def test_a_normal_run_is_untouched(native, form):
    async with World(["call look"], ["it ", "is"]).agent.run_stream_events("hi") as events:
        alone = kinds([event async for event in events])
    noticed = Events()
    world = World(["call look"], ["it ", "is"])
    taken = await world.guarded(idle_guard(60, observer=noticed), form)
    assert taken.error is None
    assert kinds(taken.messages) == alone
    assert taken.messages[-1].result.output == "it is"
    assert not noticed.of(UnknownMessage)


@pytest.mark.parametrize("step", [[HANG], ["par", "tial", HANG]], ids=["no word", "half a word"])
async def test_a_model_that_hangs(native, step):
    world = World(["call look"], step)
    taken = await world.guarded(idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)
    assert taken.error.teardown.confirmed
    assert world.seen["model cancelled"] == 1


async def test_a_tool_may_take_its_time_and_the_silence_after_it_may_not(native):
    """T5"""
    world = World(["call build"], [HANG])
    taken = await world.guarded(idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 600 + 60)
    assert taken.error.verdict.in_flight == ()


async def test_a_tool_that_takes_too_long_is_cancelled(native):
    """T5, D1: closing the stream cancels the run, and with it the tool."""
    world = World(["call build"])
    taken = await world.guarded(idle_guard(60, tools={"build": 100}))
    assert type(taken.error) is ToolTimeoutError
    assert taken.error.verdict.work == "build"
    assert taken.error.teardown.confirmed
    assert world.seen["build cancelled"] == 1


async def test_a_tool_that_is_asked_to_retry_has_failed_and_ended(native):
    taken = await World(["call stumble"], ["oh"]).guarded(idle_guard(60))
    [result] = [each for each in taken.messages if each.event_kind == "function_tool_result"]
    assert pydantic_ai.read(result) == WorkFinished("id of stumble", error=True)


async def test_a_run_that_waits_for_a_person_is_paused(native):
    """S4: what was put off is not in flight."""
    world = World(["call delete"], output_type=[str, DeferredToolRequests])
    taken = await world.guarded(idle_guard(60))
    assert taken.error is None
    said = pydantic_ai.read(taken.messages[-1])
    assert said[-1] == TurnEnded("paused", "deferred_tool_requests")


async def test_what_was_approved_may_take_its_time(native):
    world = World(["call delete"], [HANG], output_type=[str, DeferredToolRequests])
    before = (await world.guarded(idle_guard(60))).messages[-1].result.all_messages()
    given = {"deferred_tool_results": DeferredToolResults(approvals={"id of delete": True})}
    async with world.agent.run_stream_events(message_history=before, **given) as events:
        taken = await take(events | idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 600 + 60)


async def test_a_person_who_is_asked_within_the_run(native):
    """T6: is waited for; what is approved then may take its time, too."""

    async def decide(_context, requests):
        await asyncio.sleep(1000)
        return requests.build_results(approve_all=True)

    world = World(["call delete"], [HANG], capabilities=[HandleDeferredToolCalls(decide)])
    taken = await world.guarded(idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 1000 + 600 + 60)


async def test_events_that_a_node_streams_end_without_a_result(native):
    """T10: so an end is no cut here."""
    async with Agent(TestModel()).iter("hi") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    taken = await take(events | idle_guard(60))
                    assert taken.error is None
                    assert taken.messages


async def test_a_cancel_by_its_own_handle_goes_its_way(native):
    """T7"""
    async with World([HANG]).agent.run_stream_events("hi") as events:
        asyncio.get_running_loop().call_later(10, events.cancel)
        taken = await take(events | idle_guard(60))
    assert type(taken.error) is RunCancelled


async def test_a_pull_that_the_consumer_gave_up_costs_nothing(native):
    """T8: this iterator goes on after a cancelled pull, unlike a generator."""
    async with World(["call build"], ["built"]).agent.run_stream_events("hi") as events:
        guarded = aiter(events | idle_guard(60))
        first = [await anext(guarded) for _ in range(3)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await anext(guarded)
        rest = [event async for event in guarded]
    assert kinds(first)[-1] == "function_tool_call"
    assert kinds(rest)[0] == "function_tool_result"
    assert kinds(rest)[-1] == "agent_run_result"


async def test_every_event_is_known(native):
    """S1"""
    async with World(["call look"], ["x"]).agent.run_stream_events("hi") as events:
        assert {find(event).name async for event in events} == {"pydantic_ai"}


# -- providers -------------------------------------------------------------------------------


def model_of(provider, server):
    """A model of that provider's, whose API is the model server."""
    if provider == "openai":
        models = pytest.importorskip("pydantic_ai.models.openai", exc_type=ImportError)
        url = server.url + "/v1"
        own = pytest.importorskip("pydantic_ai.providers.openai").OpenAIProvider
        return models.OpenAIChatModel("gpt-x", provider=own(base_url=url, api_key="none"))
    if provider == "anthropic":
        models = pytest.importorskip("pydantic_ai.models.anthropic", exc_type=ImportError)
        own = pytest.importorskip("pydantic_ai.providers.anthropic").AnthropicProvider
        return models.AnthropicModel("c", provider=own(base_url=server.url, api_key="none"))
    models = pytest.importorskip("pydantic_ai.models.google", exc_type=ImportError)
    own = pytest.importorskip("pydantic_ai.providers.google").GoogleProvider
    return models.GoogleModel("gemini-x", provider=own(base_url=server.url, api_key="none"))


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
@pytest.mark.parametrize(
    ("fault", "ended"),
    [
        (drip(0), TurnEnded(answered=True)),
        (end(after=3), TurnEnded("incomplete", "no finish_reason")),
    ],
    ids=["whole", "cut"],
)
def test_an_answer_that_the_provider_has_cut_is_incomplete(provider, fault, ended):
    """T10: to pydantic-ai it is a whole one, and the run a success."""

    async def main(model):
        async with Agent(model) as agent, agent.run_stream_events("hi") as events:
            return await take(events | idle_guard(60))

    with ModelServer() as server:
        server.script(text("it ", "is ", "very ", "sunny") | fault)
        taken = asyncio.run(main(model_of(provider, server)))
    assert taken.error is None
    assert pydantic_ai.read(taken.messages[-1])[-1] == ended


# -- sessions --------------------------------------------------------------------------------


async def chat_of(world, *prompts, **options):
    session = pydantic_ai.session(world.agent, prompt=prompts[0], **options)
    async with session | idle_guard(60) | reconnecting_resume(backoff=(0,)) as chat:
        for turn in (chat, *(chat.ask(prompt) for prompt in prompts[1:])):
            async for _ in turn:
                pass


async def test_a_session_goes_on_with_its_history(native):
    """R1: what a tool gave is there, and it does not run again."""
    world = World(["call look"], ["par", "tial", HANG], ["done"], ["bye"])
    await chat_of(world, "hi", "thanks")
    assert world.seen["look"] == 1
    looked = ["UserPromptPart", "ToolCallPart", "ToolReturnPart"]
    assert world.asked[1] == looked
    told = [*looked, "TextPart", "UserPromptPart"]
    assert world.asked[2:] == [told, [*told, "TextPart", "UserPromptPart"]]


async def test_a_tool_that_was_under_way_is_told_to_the_model_and_does_not_run_again(native):
    world = World(["call build"], ["done"])
    session = pydantic_ai.session(world.agent, prompt="hi")
    guard = idle_guard(60, tools={"build": 100}) | reconnecting_resume(backoff=(0,))
    async with session | guard as chat:
        events = [event async for event in chat]
    assert events[-1].result.output == "done"
    assert world.seen == {"build": 1, "build cancelled": 1}
    assert world.asked[1] == [
        *("UserPromptPart", "ToolCallPart"),
        *("ToolReturnPart", "UserPromptPart"),
    ]


async def test_a_first_word_that_never_came_is_asked_for_once_more(native):
    world = World([HANG], ["hello"])
    await chat_of(world, "hi")
    assert world.asked == 2 * [["UserPromptPart"]]


async def test_a_conversation_may_have_a_history_and_a_name(native):
    world = World(["one"], ["two"])
    async with world.agent.run_stream_events("hi") as events:
        before = [event async for event in events][-1].result.all_messages()
    await chat_of(world, "and", history=before, conversation_id="c1")
    assert world.asked[1] == ["UserPromptPart", "TextPart", "UserPromptPart"]
