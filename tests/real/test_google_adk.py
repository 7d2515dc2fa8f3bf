"""ADK itself, with a model that follows a script: its runs, guarded, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types

from streamguard import (
    IdleTimeoutError,
    StreamInterruptedError,
    ToolTimeoutError,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import find, google_adk
from streamguard.events import UnknownMessage
from streamguard.signals import Failed, Waiting
from tests.support import Events, take

# What ADK says of features that are experimental, or on their way out, is ADK's.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

HANG = object()
WHERE = {"user_id": "ada", "session_id": "issue-7"}
STREAMED = {"run_config": RunConfig(streaming_mode=StreamingMode.SSE)}


class Scripted(BaseLlm):
    """Each call takes the next step of the script: responses, and hangs."""

    script: list[Any]
    asked: list[Any]

    async def generate_content_async(self, llm_request, stream=False):
        self.asked.append([_said(part) for each in llm_request.contents for part in each.parts])
        for response in self.script.pop(0):
            if response is HANG:
                await asyncio.sleep(1_000_000)
            yield response


def _said(part):
    if part.function_call:
        return f"call {part.function_call.name}"
    return f"response {part.function_response.response}" if part.function_response else part.text


def text(words, **fields):
    content = types.Content(role="model", parts=[types.Part(text=words)])
    return LlmResponse(content=content, **fields)


def call(*names, **fields):
    """Without ids, as most models give them: ADK makes its own."""
    calls = [types.FunctionCall(name=name, args={}) for name in names]
    parts = [types.Part(function_call=each) for each in calls]
    return LlmResponse(content=types.Content(role="model", parts=parts), **fields)


class World:
    """An agent with tools, and what became of them."""

    def __init__(self, *script):
        self.seen = Counter()
        self.model = Scripted(model="scripted", script=list(script), asked=[])
        seen = self.seen

        async def look() -> dict[str, str]:
            """Look."""
            seen["look"] += 1
            return {"weather": "sunny"}

        async def build() -> dict[str, str]:
            """Build, for ten minutes."""
            seen["build"] += 1
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                seen["build cancelled"] += 1
                raise
            return {"result": "built"}

        async def approve() -> dict[str, str]:
            """Ask a person."""
            return {"status": "pending"}

        async def delete() -> dict[str, str]:
            """Delete everything."""
            return {}

        async def fall() -> dict[str, str]:
            """Fall over."""
            raise ZeroDivisionError

        tools = [
            *(look, build, fall, LongRunningFunctionTool(approve)),
            FunctionTool(delete, require_confirmation=True),
        ]
        self.agent = LlmAgent(name="helper", model=self.model, tools=tools)
        self.runner = InMemoryRunner(agent=self.agent, app_name="app")

    async def stream(self, **options):
        await self.runner.session_service.create_session(app_name="app", **WHERE)
        message = types.Content(role="user", parts=[types.Part(text="hi")])
        return self.runner.run_async(new_message=message, **WHERE, **options)

    async def guarded(self, guard, form="bare", **options):
        return await take(await self.stream(**options) | guard, form)


@pytest.fixture(autouse=True)
def quiet():
    """ADK logs the errors of tools, with their tracebacks."""
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)


# -- guarded runs ----------------------------------------------------------------------------


async def test_a_normal_run_is_untouched(native, form):
    script = [call("look")], [text("it is sunny")]
    alone = [_said(event.content.parts[0]) async for event in await World(*script).stream()]
    noticed = Events()
    taken = await World(*script).guarded(idle_guard(60, observer=noticed), form)
    assert taken.error is None
    assert [_said(event.content.parts[0]) for event in taken.messages] == alone
    assert len(alone) == 3
    assert not noticed.of(UnknownMessage)


@pytest.mark.parametrize("step", [[HANG], [text("half", partial=True), HANG]], ids=["no", "half"])
async def test_a_model_that_hangs(native, step):
    taken = await World([call("look")], step).guarded(idle_guard(60), **STREAMED)
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)
    assert taken.error.teardown.confirmed
    assert taken.error.verdict.token == taken.messages[0].invocation_id


async def test_a_tool_may_take_its_time_and_the_silence_after_it_may_not(native):
    """T5"""
    world = World([call("look", "build")], [HANG])
    taken = await world.guarded(idle_guard(60))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 600 + 60)
    assert taken.error.verdict.in_flight == ()


async def test_a_call_that_is_told_twice_with_two_ids_does_not_disarm_the_gate(native):
    """S4: partial first, then final, and each has an id of its own."""
    world = World([call("build", partial=True), call("build", partial=False)], [HANG])
    taken = await world.guarded(idle_guard(60), **STREAMED)
    partial, final = (event.content.parts[0].function_call.id for event in taken.messages[:2])
    assert partial != final
    assert native.took(taken.elapsed, 600 + 60)


async def test_a_tool_that_takes_too_long_is_cancelled(native):
    """T5"""
    world = World([call("build")])
    taken = await world.guarded(idle_guard(60, tools={"build": 100}))
    assert type(taken.error) is ToolTimeoutError
    assert taken.error.verdict.work == "build"
    assert world.seen["build cancelled"] == 1


async def test_a_long_running_tool_is_a_wait_until_it_has_said_so_much(native):
    """S4: nobody promises more of it in this run, and what the model does then is its own."""
    taken = await World([call("approve")], [HANG]).guarded(idle_guard(60))
    assert any(isinstance(signal, Waiting) for signal in google_adk.read(taken.messages[0]))
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)


async def test_a_call_that_wants_a_persons_word_ends_the_run(native, form):
    taken = await World([call("delete")]).guarded(idle_guard(60), form)
    assert taken.error is None
    said = [signal for event in taken.messages for signal in google_adk.read(event)]
    assert [signal.reason for signal in said if isinstance(signal, Waiting)] == ["human"]


async def test_agents_beside_one_another(native):
    """One that has said its last word does not make the other's silence an end."""
    world, other = World([text("done")]), World([HANG])
    world.agent.name, other.agent.name = "one", "other"
    agents = [world.agent, other.agent]
    world.runner = InMemoryRunner(
        agent=ParallelAgent(name="both", sub_agents=agents), app_name="app"
    )
    taken = await world.guarded(idle_guard(60))
    assert [event.author for event in taken.messages] == ["one"]
    assert type(taken.error) is IdleTimeoutError
    assert native.took(taken.elapsed, 60)


async def test_what_the_user_said_is_no_answer(native):
    """S0: `first` goes on until the agent has spoken."""
    guard = idle_guard(60, first=300)
    taken = await World([HANG]).guarded(guard, yield_user_message=True)
    assert len(taken.messages) == 1
    assert native.took(taken.elapsed, 300)


async def test_a_pull_that_the_consumer_gave_up_does_not_make_it_look_complete(native):
    """T8: the cancel has ended the generator, and the run with it."""
    world = World([call("build")], [text("never said")])
    guarded = aiter(await world.stream() | idle_guard(60))
    await anext(guarded)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await anext(guarded)
    with pytest.raises(StreamInterruptedError):
        await anext(guarded)
    assert world.seen["build cancelled"] == 1


async def test_what_a_tool_raises_is_raised_as_itself(native):
    """T7: after an event that says so."""
    taken = await World([call("fall")]).guarded(idle_guard(60))
    assert type(taken.error) is ZeroDivisionError
    said = google_adk.read(taken.messages[-1])
    assert Failed("unknown", detail="ZeroDivisionError") in said


async def test_an_answer_that_was_refused(native):
    refused = LlmResponse(error_code="SAFETY", finish_reason=types.FinishReason.SAFETY)
    taken = await World([refused]).guarded(idle_guard(60))
    assert Failed("validation", detail="SAFETY") in google_adk.read(taken.messages[-1])


async def test_an_event_says_the_same_as_the_line_that_the_server_sends(native):
    script = [call("look", "approve")], [text("x", usage_metadata={"total_token_count": 5})]
    async for event in await World(*script).stream():
        line = event.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert find(event) == find(line)
        said = [
            str(signal).replace("totalTokenCount", "total_token_count")
            for signal in google_adk.read(line)
        ]
        assert said == [str(signal) for signal in google_adk.read(event)]


# -- sessions --------------------------------------------------------------------------------


async def chat_of(world, guard, *prompts, **options):
    session = google_adk.session(world.runner, prompt=prompts[0], **WHERE, **options)
    async with session | guard | reconnecting_resume(backoff=(0,)) as chat:
        for turn in (chat, *(chat.ask(prompt) for prompt in prompts[1:])):
            async for _ in turn:
                pass


async def test_a_session_goes_on_with_what_was_complete(native):
    """R1: what a tool gave is there, and it does not run again; partial text is lost."""
    half = [text("half", partial=True), HANG]
    world = World([call("look")], half, [text("done")], [text("bye")])
    await chat_of(world, idle_guard(60), "hi", "thanks", **STREAMED)
    assert world.seen["look"] == 1
    looked = ["hi", "call look", "response {'weather': 'sunny'}"]
    assert world.model.asked[1:] == [
        looked,
        [*looked, "Continue."],
        [*looked, "Continue.", "done", "thanks"],
    ]


async def test_a_call_that_was_cut_is_left_out(native):
    """ADK shows the model no call without a response."""
    world = World([call("build")], [text("done")])
    await chat_of(world, idle_guard(60, tools={"build": 100}), "hi")
    assert world.seen["build cancelled"] == 1
    assert world.model.asked[1] == ["hi", "Continue."]


async def test_a_prompt_that_was_never_answered_is_sent_again(native):
    """ADK keeps it, so it stands in the session twice."""
    world = World([HANG], [text("hello")])
    await chat_of(world, idle_guard(60), "hi")
    assert world.model.asked == [["hi"], ["hi", "hi"]]
