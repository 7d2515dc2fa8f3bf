"""openai-agents' own runner: runs that are well, hang in the model and in a tool, and break."""

from __future__ import annotations

import time
from typing import get_args

import anyio
import pytest

from streamguard import IdleTimeoutError, ToolTimeoutError, classify, idle_guard
from streamguard.backends import find
from streamguard.backends import openai_agents as backend
from streamguard.events import WorkBegan, WorkOver
from streamguard.retry import retry_after
from streamguard.signals import WorkFinished, WorkStarted
from tests.backends.looks import said_by
from tests.loopback.script import end, error, pings, stall, status, text, tool
from tests.loopback.server import ModelServer
from tests.real.sdks import PATIENT, WINDOW, left, run, sdk, take

agents = sdk("agents")
openai = sdk("openai")

HELLO = text("Hel", "lo")


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


class Runs:
    """Runs of an agent with a tool `look`, which does what the test says."""

    def __init__(self, server, api="responses"):
        self._server, self._api = server, api
        self.result = None
        self.look = self._look

    async def _look(self):
        return "looked"

    async def __call__(self, guard=None, how=None):
        """What comes of a guarded run, or of what `how` does with its events."""
        agents.set_tracing_disabled(True)
        url = f"{self._server.url}/v1"
        async with openai.AsyncOpenAI(api_key="dummy", base_url=url, max_retries=0) as client:
            kinds = {
                "responses": agents.OpenAIResponsesModel,
                "chat": agents.OpenAIChatCompletionsModel,
            }
            model = kinds[self._api](model="m", openai_client=client)

            async def look() -> str:
                return await self.look()

            agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(look)])
            self.result = agents.Runner.run_streamed(agent, "Hi")
            events = self.result.stream_events()
            return await (how(events) if how else take(events | guard(self.result)))


def patient(result):
    return idle_guard(PATIENT, disconnect=result.cancel)


def impatient(result):
    return idle_guard(WINDOW, disconnect=result.cancel)


def said(got):
    return [signal for message in got.messages for signal in said_by(backend, message)]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_run_with_a_tool_is_untouched(server, api):
    server.script(text("Let me look. ") + tool("look", {}, id="call_1"), HELLO)
    runs = Runs(server, api)
    seen = []
    got = run(runs, lambda r: patient(r) | idle_guard(None, observer=seen.append))
    assert got.error is None
    assert runs.result.final_output == "Hello"
    assert {find(message).name for message in got.messages} == {"openai_agents"}
    work = [each for each in said(got) if isinstance(each, WorkStarted | WorkFinished)]
    assert work == [WorkStarted("call_1", "look"), WorkFinished("call_1")]
    assert [type(e) for e in seen if isinstance(e, WorkBegan | WorkOver)] == [WorkBegan, WorkOver]
    assert server.requests[1].prompt == "[result call_1 looked]"


@pytest.mark.parametrize(
    "fault", [stall(after=4), pings(after=4, every=0.2)], ids=["silence", "comments"]
)
def test_a_hang_of_the_model_is_noticed_and_its_connection_closed(server, fault):
    server.script(HELLO | fault)
    runs = Runs(server)
    got = run(runs, impatient)
    assert isinstance(got.error, IdleTimeoutError)
    assert got.seconds >= WINDOW
    assert got.error.teardown.confirmed
    assert left(server)
    assert runs.result.is_complete


@pytest.mark.parametrize("what", ["model", "tool"])
@pytest.mark.parametrize("form", ["block", "aclose"])
def test_a_run_that_is_left_early_is_gone(server, form, what):
    """Nobody waits for it, and neither its request nor its tool goes on."""
    server.script(HELLO | stall(after=4) if what == "model" else tool("look", {}))
    runs, told, begun = Runs(server), [], anyio.Event()

    async def look():
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            told.append("ended")

    async def until_it_hangs(events):
        async for event in events:
            if event.type == "raw_response_event" and what == "model":
                break
            if getattr(event, "name", "") == "tool_called":
                await begun.wait()
                break
        return time.monotonic()

    async def leave(stream):
        guarded = stream | idle_guard(PATIENT)
        if form == "block":
            async with guarded as events:
                left_at = await until_it_hangs(events)
        else:
            left_at = await until_it_hangs(guarded)
            await guarded.aclose()
        return time.monotonic() - left_at

    runs.look = look
    assert run(runs, how=leave) < 5
    assert runs.result.is_complete
    assert told == ([] if what == "model" else ["ended"])
    assert what == "tool" or left(server)


def test_a_tool_that_runs_for_long_is_not_taken_for_a_hang(server):
    """T5: it runs in this process, and both of its ends are told."""
    server.script(tool("look", {}), HELLO)
    runs = Runs(server)

    async def long():
        await anyio.sleep(WINDOW * 1.5)
        return "at last"

    runs.look = long
    got = run(runs, impatient)
    assert got.error is None
    assert runs.result.final_output == "Hello"


def test_a_tool_that_hangs_is_ended_with_the_run(server):
    """T5: not for ever."""
    server.script(tool("look", {}))
    runs = Runs(server)
    ended = []

    async def hang():
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("tool")

    runs.look = hang
    got = run(runs, lambda r: idle_guard(PATIENT, tools={"look": WINDOW}, disconnect=r.cancel))
    assert isinstance(got.error, ToolTimeoutError)
    assert got.error.verdict.work == "look"
    assert got.error.teardown.confirmed
    assert ended == ["tool"]


def test_a_response_that_ends_too_early_is_the_runners_own_error(server):
    """T7"""
    server.script(HELLO | end(after=5))
    got = run(Runs(server), patient)
    assert isinstance(got.error, agents.exceptions.ModelBehaviorError)


def test_a_chat_that_ends_too_early_cannot_be_told(server):
    """The runner makes a whole response of it before anybody sees it; Responses are told apart."""
    server.script(HELLO | end(after=2))
    runs = Runs(server, "chat")
    got = run(runs, patient)
    assert (got.error, runs.result.final_output) == (None, "Hel")


def test_an_error_inside_of_a_response(server):
    server.script(HELLO | error(after=4, kind="server_error"))
    got = run(Runs(server), patient)
    assert isinstance(got.error, agents.exceptions.AgentsException)


def test_a_limit_on_requests_is_classified_with_its_pause(server):
    """P2"""
    server.script(status(429, retry_after=7))
    got = run(Runs(server), patient)
    assert isinstance(got.error, openai.RateLimitError)
    assert (classify(got.error), retry_after(got.error)) == ("rate_limit", 7)


# --- the real classes -----------------------------------------------------------------------


def called(raw):
    item = agents.items.ToolCallItem(raw_item=raw, agent=agents.Agent(name="a"))
    return agents.stream_events.RunItemStreamEvent(name="tool_called", item=item)


def test_a_tool_that_openai_has_run_opens_nothing():
    """S4: it is told as called when it is done, and no output follows."""
    from openai.types import responses

    search = responses.ResponseFunctionWebSearch.model_construct(
        id="ws_1", type="web_search_call", status="completed", action=None
    )
    function = responses.ResponseFunctionToolCall(
        id="fc_1", call_id="call_1", name="f", arguments="", type="function_call"
    )
    assert not any(isinstance(each, WorkStarted) for each in said_by(backend, called(search)))
    assert said_by(backend, called(function)) == [WorkStarted("call_1", "f")]


def test_every_event_of_a_run_is_known():
    kinds = get_args(agents.StreamEvent)
    assert len(kinds) == 3
    assert all(backend.is_message(kind) for kind in kinds)
