"""ACP with the package's own classes, and a real agent in a process of its own, on asyncio."""

import asyncio
import json
import logging
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamguard import Activity, IdleTimeoutError, idle_guard, reconnecting_resume
from streamguard.backends import acp as backend
from streamguard.backends import find
from streamguard.events import HoldBegan, Reconnected
from streamguard.process import marked_env
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkStarted,
)
from tests.backends.reading import NOTHING, PROGRESS, said
from tests.process.backends import Backends
from tests.support import Events

acp = pytest.importorskip("acp", reason="pip install 'agent-streamguard[acp]'")
schema = acp.schema

AGENT = (sys.executable, str(Path(__file__).parent / "acp_agent.py"))


# --- the package's classes ----------------------------------------------------------------


def ended(reason, **more):
    return acp.PromptResponse(stop_reason=reason, **more)


def notification(update):
    return acp.session_notification("s-1", update)


PERMISSION = {"session_id": "s-1", "options": []}
COUNTS = {"total_tokens": 3, "input_tokens": 2, "output_tokens": 1}
CASES = {
    "a token": (acp.update_agent_message_text("Hel"), PROGRESS),
    "a thought": (acp.update_agent_thought_text("Hm."), PROGRESS),
    "a plan": (acp.update_plan([acp.plan_entry("test")]), PROGRESS),
    "a tool": (
        acp.start_tool_call("call-1", "Run ls", kind="execute", status="pending"),
        [WorkStarted("call-1", "execute")],
    ),
    "news of it": (acp.update_tool_call("call-1", status="in_progress"), PROGRESS),
    "its end": (
        acp.update_tool_call("call-1", status="completed"),
        [WorkFinished("call-1", error=False)],
    ),
    "its failure": (
        acp.update_tool_call("call-1", status="failed"),
        [WorkFinished("call-1", error=True)],
    ),
    "all of it, in a notification": (
        notification(acp.start_tool_call("call-1", "Run ls", kind="execute")),
        [WorkStarted("call-1", "execute")],
    ),
    "the user's words": (acp.update_user_message_text("Go"), NOTHING),
    "a mode": (
        schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id="m"),
        NOTHING,
    ),
    "the context": (
        schema.UsageUpdate(session_update="usage_update", used=1, size=9),
        [Usage({"context_used": 1, "context_size": 9}, "session")],
    ),
    "a session": (acp.NewSessionResponse(session_id="s-1"), [SessionOpened("s-1")]),
    "a request": (
        acp.RequestPermissionRequest(
            tool_call=schema.ToolCallUpdate(tool_call_id="call-1"), **PERMISSION
        ),
        [Waiting("permission:call-1", "human")],
    ),
    "an end": (
        ended("end_turn", usage=schema.Usage(**COUNTS)),
        [Usage(COUNTS, "session"), TurnEnded("success", "end_turn")],
    ),
    "a limit": (ended("max_turn_requests"), [TurnEnded("incomplete", "max_turn_requests")]),
    "a cancellation": (ended("cancelled"), [TurnEnded("cancelled", "cancelled")]),
    "a refusal": (
        ended("refusal"),
        [Failed("permanent", detail="refusal"), TurnEnded("error", "refusal")],
    ),
}


@pytest.mark.parametrize(("message", "signals"), CASES.values(), ids=CASES)
def test_an_object_of_the_package_says(message, signals):
    assert find(message).name == "acp"
    assert said(backend, message) == signals


# --- a real agent -------------------------------------------------------------------------


class Client:
    """A user's client: it answers when it is let."""

    def __init__(self):
        self.updates = []
        self.answers = asyncio.Event()
        self.is_asked = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, session_id, tool_call, options, **_):
        self.is_asked.set()
        await self.answers.wait()
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return acp.RequestPermissionResponse(outcome=outcome)


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.clear()


@pytest.fixture
def agent(tmp_path, backends):
    """Opens a real agent: gives its bridge, its connection and its session's id."""

    @asynccontextmanager
    async def opened(client):
        bridge = backend.Bridge(client)
        command = acp.spawn_agent_process(
            bridge, *AGENT, env=marked_env(backends.env()), transport_kwargs={"stderr": None}
        )
        async with command as (connection, process):
            await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])

            def prompt(text):
                return bridge.prompt(connection, new.session_id, text, process=process)

            prompt.connection = connection
            yield prompt

    return opened


def texts(messages):
    updates = [each for each in messages if isinstance(each, schema.AgentMessageChunk)]
    return [each.content.text for each in updates]


def test_a_turn_is_a_stream_that_ends_with_the_answer(agent):
    async def main():
        client = Client()
        async with agent(client) as prompt:
            got = [each async for each in prompt("tool flood") | idle_guard(60)]
        assert got[0] == SessionOpened("s-1")
        assert isinstance(got[1], schema.ToolCallStart)
        assert texts(got) == [str(number) for number in range(2000)]
        assert got[-1].stop_reason == "end_turn"
        assert len(client.updates) == 2002

    asyncio.run(main())


def test_a_slow_consumer_loses_nothing_and_each_turn_gets_its_own(agent):
    """What comes while nobody asks waits in the buffer, in its order."""

    async def main():
        async with agent(Client()) as prompt:
            async with prompt("flood") | idle_guard(60) as messages:
                async for _ in messages:
                    break
                await asyncio.sleep(0)
                rest = [each async for each in messages]
            assert texts(rest) == [str(number) for number in range(2000)]
            (*_, said_) = texts([each async for each in prompt("recall") | idle_guard(60)])
            assert json.loads(said_) == ["flood", "recall"]

    asyncio.run(main())


def test_a_cancelled_pull_loses_nothing(agent):
    async def main():
        client = Client()
        async with agent(client) as prompt:
            turn = prompt("ask")
            assert [await anext(turn), type(await anext(turn))] == [
                SessionOpened("s-1"),
                backend.PermissionAsked,
            ]
            pull = asyncio.create_task(anext(turn))
            await asyncio.sleep(0)
            pull.cancel()
            client.answers.set()
            rest = [each async for each in turn]
            assert isinstance(rest[0], backend.PermissionAnswered)
            assert texts(rest) == ["selected"]

    asyncio.run(main())


def test_a_person_who_is_asked_pauses_idle(agent):
    """An answer that comes after the window: a hold, and no silence."""

    async def main():
        client, events = Client(), Events()
        activity = Activity("acp")

        async def answer():
            await client.is_asked.wait()
            while activity.status != "held":
                await asyncio.sleep(0.01)
            await asyncio.sleep(5)
            client.answers.set()

        async with agent(client) as prompt, asyncio.TaskGroup() as group:
            group.create_task(answer())
            guard = idle_guard(4, first=60, activity=activity, observer=events)
            got = [each async for each in prompt("ask") | guard]
        assert texts(got) == ["selected"]
        assert [each.reason for each in events.of(HoldBegan)] == ["human"]

    asyncio.run(main())


def test_a_turn_that_hangs_is_cancelled_and_its_answer_delivered(agent):
    """D1: `session/cancel` as the interrupt; what it brings is delivered."""

    async def main():
        async with agent(Client()) as prompt:
            turn, got = prompt("hang"), []
            with pytest.raises(IdleTimeoutError):
                guard = idle_guard(1, interrupt=turn.interrupt, client=prompt.connection)
                async for each in turn | guard:
                    got.append(each)
            assert got[-1].stop_reason == "cancelled"

    asyncio.run(main())


def test_an_error_is_raised_when_all_that_came_before_it_was_taken(agent, caplog):
    async def main():
        got = []
        async with agent(Client()) as prompt:
            with pytest.raises(acp.RequestError):
                async for each in prompt("tool fail") | idle_guard(60):
                    got.append(type(each).__name__)
        assert got == ["SessionOpened", "ToolCallStart", "ToolCallProgress"]

    caplog.set_level(logging.CRITICAL)
    asyncio.run(main())


def test_two_turns_of_one_session_at_once_are_refused(agent):
    async def main():
        async with agent(Client()) as prompt:
            first = prompt("hang")
            await anext(first)
            with pytest.raises(RuntimeError, match="has a turn under way"):
                await anext(prompt("tool"))
            await first.aclose()
            got = [each async for each in prompt("tool")]
            assert got[-1].stop_reason == "end_turn"

    asyncio.run(main())


def test_a_deaf_agent_is_ended_with_its_tool_and_its_session_loaded(tmp_path, backends):
    """D5, R3: cancel is only asked for; the process tree is what ends it."""

    async def main():
        events = Events()
        guard = idle_guard(4, first=60, kill_grace=1, observer=events)
        client = Client()
        session = backend.session(
            client, *AGENT, prompt="tool deaf", cwd=tmp_path, env=backends.env()
        )
        resume = reconnecting_resume(prompt="recall", retries=9, backoff=[0])
        async with session | guard | resume as chat:
            got = [each async for each in chat]
            assert json.loads(texts(got)[-1])[:2] == ["tool deaf", "recall"]
            (*_, again) = texts([each async for each in chat.ask("recall")])
            assert json.loads(again)[0] == "tool deaf"
        assert events.of(Reconnected)
        assert not backends.living()

    asyncio.run(main())


def test_an_agent_that_obeys_a_cancel_goes_on_as_it_is(tmp_path, backends):
    """The next prompt goes to the same process."""

    async def main():
        session = backend.session(
            Client(), *AGENT, prompt="tool hang", cwd=tmp_path, env=backends.env()
        )
        resume = reconnecting_resume(prompt="recall", retries=9, backoff=[0])
        pids = set()
        async with session | idle_guard(4, first=60) | resume as chat:
            async for each in chat:
                pids |= backends.living()
                last = each
        assert last.stop_reason == "end_turn"
        assert len(pids) == 1
        assert not backends.living()

    asyncio.run(main())
