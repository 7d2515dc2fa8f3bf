"""Claude's streams through `idle_guard`: JSON lines, the SDK's objects, and the SDK's own client."""

from __future__ import annotations

import json
import time

import anyio
import pytest

from streamguard import (
    IdleTimeoutError,
    StreamTruncatedError,
    ToolTimeoutError,
    activity_stamp,
    idle_guard,
)
from streamguard.events import UnknownMessage
from streamguard.testing import (
    Channel,
    Script,
    hang,
    message,
    pings,
    repeat,
    run_virtual,
    silence,
)
from tests.support import Disconnect, Events, take

parser = pytest.importorskip("claude_agent_sdk._internal.message_parser")
sdk = pytest.importorskip("claude_agent_sdk")

META = {"session_id": "sess-1", "uuid": "u"}


# -- what the CLI writes -------------------------------------------------------------------------


def init():
    return {"type": "system", "subtype": "init", **META}


def assistant(*blocks, parent=None):
    content = {"role": "assistant", "id": "m", "model": "claude", "content": list(blocks)}
    return {"type": "assistant", "message": content, "parent_tool_use_id": parent, **META}


def text(words="..."):
    return {"type": "text", "text": words}


def use(id_, name="Bash"):
    return {"type": "tool_use", "id": id_, "name": name, "input": {}}


def user(*blocks):
    content = {"role": "user", "content": list(blocks)}
    return {"type": "user", "message": content, "parent_tool_use_id": None, **META}


def answer(id_):
    return {"type": "tool_result", "tool_use_id": id_, "content": "ok"}


def result(**more):
    plain = {"subtype": "success", "is_error": False, "num_turns": 1, "duration_ms": 9}
    return {"type": "result", **plain, "duration_api_ms": 8, **META, **more}


def stream_ping():
    return {"type": "stream_event", "event": {"type": "ping"}, "parent_tool_use_id": None, **META}


def rate_limit(resets_at):
    info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    return {"type": "rate_limit_event", "rate_limit_info": info, **META}


def task(subtype, **more):
    return {"type": "system", "subtype": subtype, "task_id": "b1", **more, **META}


@pytest.fixture(params=["lines", "objects"])
def say(request):
    """A step that yields one line, as the CLI writes it or as the SDK parses it."""
    if request.param == "lines":
        return message
    return lambda line: message(parser.parse_message(line))


# -- tools ---------------------------------------------------------------------------------------


async def test_a_tool_pauses_idle_until_its_result(loop, form, say):
    """T5: ten minutes of Bash are no silence; the silence after it is."""
    events = Events()
    source = Script(
        *(say(init()), say(assistant(text(), use("t1"))), silence(600)),
        *(say(user(answer("t1"))), hang()),
    )
    taken = await take(source | idle_guard(60, observer=events), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 600 + 60)
    assert taken.error.verdict.in_flight == ()
    assert taken.error.verdict.token == "sess-1"
    assert not events.of(UnknownMessage)


async def test_parallel_tools_and_those_of_a_sub_agent(loop, form, say):
    """S3: the sub-agent's own tools nest within its entry, and the last result counts."""
    inner = {"parent": "agent"}
    wait = silence(50)
    source = Script(
        *(say(assistant(use("agent", "Task"), use("t1"))), wait),
        *(say(assistant(use("t2"), **inner)), wait, say(user(answer("t1"))), wait, wait),
        *(say(user(answer("t2"))), wait, wait, say(user(answer("agent"))), hang()),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 6 * 50 + 60)


async def test_a_tool_that_never_returns(loop, form, say):
    """T5: has its allowance by its name."""
    guard = idle_guard(60, tools={"WebFetch": 100})
    taken = await take(Script(say(assistant(use("t1", "WebFetch"))), hang()) | guard, form)
    assert type(taken.error) is ToolTimeoutError
    assert taken.error.verdict.work == "WebFetch"
    assert loop.took(taken.elapsed, 100)


async def test_an_api_that_only_pings(loop, form, say):
    """T1: pings among partial messages are no progress."""
    ticking = repeat(silence(10), say(stream_ping()))
    taken = await take(Script(say(assistant(text())), ticking) | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_rate_limit_is_waited_for_until_it_resets(backend, form, say, monkeypatch):
    """T6: the CLI waits in silence, and says until when."""
    noon = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: noon)

    async def main():
        source = Script(say(assistant(text())), say(rate_limit(int(noon) + 5000)), hang())
        taken = await take(source | idle_guard(60), form)
        assert type(taken.error) is IdleTimeoutError
        assert taken.elapsed == pytest.approx(5000 + 60)

    run_virtual(main, backend=backend)


# -- the turn's end ------------------------------------------------------------------------------


async def test_the_result_ends_the_turn(loop, form, say):
    """T14: nothing is owed after it; a process that never leaves is sent away, and all is well."""
    disconnect = Disconnect()
    source = Script(say(init()), say(assistant(text())), say(result()), hang())
    guard = idle_guard(60, exit_grace=200, disconnect=disconnect)
    taken = await take(source | guard, form)
    assert taken.error is None
    assert len(taken.messages) == 3
    assert loop.took(taken.elapsed, 200)
    assert len(disconnect.calls) == 1


async def test_an_end_after_the_result_is_an_end(loop, form, say):
    """T10: and nothing is disconnected, since the client is its owner's (D1)."""
    disconnect = Disconnect()
    source = Script(say(init()), say(assistant(text())), say(result()))
    taken = await take(source | idle_guard(60, disconnect=disconnect), form)
    assert taken.error is None
    assert disconnect.calls == []


async def test_a_stream_that_ends_without_its_result_is_truncated(loop, form, say):
    """T10: a CLI that exits in mid-turn ends its stream without a word; with all of a verdict."""
    disconnect, events = Disconnect(seconds=2), Events()
    source = Script(
        *(say(init()), say(assistant(text(), use("t1"))), silence(5)),
    )
    guard = idle_guard(60, disconnect=disconnect, observer=events)
    taken = await take(source | guard, form)
    error = taken.error
    assert type(error) is StreamTruncatedError
    assert len(taken.messages) == 2
    assert loop.took(taken.elapsed, 5 + 2)
    assert disconnect.finished == 1
    assert error.teardown.confirmed
    assert (error.verdict.limit, error.verdict.window) == ("truncated", None)
    assert (error.verdict.token, error.verdict.in_flight) == ("sess-1", ("Bash",))
    assert "ended before its turn did" in str(error)
    assert str(error).endswith("disconnect returned")


async def test_a_second_turn_can_be_truncated_too(loop, form, say):
    """T10, T14: what counts is whether a turn was open."""
    once = (say(init()), say(assistant(text())), say(result()))
    twice = Script(*once, silence(500), *once)
    assert (await take(twice | idle_guard(60), form)).error is None
    cut = Script(*once, silence(500), say(init()), say(assistant(text())))
    taken = await take(cut | idle_guard(60), form)
    assert type(taken.error) is StreamTruncatedError


async def test_background_work_that_outlives_the_turn(loop, form, say):
    """T14: its end wakes Claude for another turn, so nobody is sent away before."""
    source = Script(
        *(say(init()), say(assistant(use("t1"))), say(user(answer("t1")))),
        say(task("task_started", tool_use_id="t1", description="make", is_backgrounded=True)),
        *(say(result()), silence(500)),
        say(task("task_notification", status="completed", output_file="", summary="")),
        *(say(assistant(text("done"))), say(result()), hang()),
    )
    taken = await take(source | idle_guard(60, exit_grace=30), form)
    assert taken.error is None
    assert len(taken.messages) == 8
    assert loop.took(taken.elapsed, 500 + 30)


async def test_lines_that_only_the_wire_has(loop, form):
    """T1, S1: `keep_alive` and `tool_progress` show that the CLI lives, and no more."""
    source = Script(
        *(message({"type": "keep_alive"}), message(init()), message(assistant(text()))),
        repeat(silence(10), message({"type": "keep_alive"})),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.verdict.last_signal == "Liveness"
    assert loop.took(taken.elapsed, 60)


# -- the SDK's own client ------------------------------------------------------------------------


class ScriptedTransport(sdk.Transport):
    """The CLI's end of the SDK's control protocol: plays a script once it gets a prompt."""

    def __init__(self, script):
        self._script = Channel(script)
        self._send, self._receive = anyio.create_memory_object_stream(100)
        self.closed = 0

    async def connect(self):
        pass

    def is_ready(self):
        return not self.closed

    async def write(self, data):
        line = json.loads(data)
        if line["type"] == "control_request":
            response = {"subtype": "success", "request_id": line["request_id"], "response": {}}
            await self._send.send({"type": "control_response", "response": response})
        elif line["type"] == "user":
            self._send.close()

    async def read_messages(self):
        with self._receive:
            async for line in self._receive:
                yield line
        async for line in self._script:
            yield line

    async def close(self):
        self.closed += 1
        await self._script.aclose()

    async def end_input(self):
        pass


def client_of(*steps):
    """The SDK's client over a scripted CLI."""
    transport = ScriptedTransport(Script(*steps))
    return sdk.ClaudeSDKClient(transport=transport), transport


async def test_the_sdks_client_that_hangs(loop, form):
    """T7, D1: found, disconnected for real, and the end that follows is the verdict."""
    client, transport = client_of(message(init()), message(assistant(text())), hang())
    await client.connect()
    await client.query("Fix issue 7")
    guard = idle_guard(60, client=client)
    taken = await take(client.receive_response() | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert [type(m) for m in taken.messages] == [sdk.SystemMessage, sdk.AssistantMessage]
    assert taken.error.verdict.token == "sess-1"
    assert taken.error.teardown.confirmed
    assert transport.closed


# `receive_response()` returns at the result and leaves its inner generators to the collector,
# of which trio warns: the SDK's own habit, with or without a guard.
@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_the_sdks_client_that_answers(loop, form):
    """T14, D1: a turn that ends is left alone, and its client stays its owner's."""
    client, transport = client_of(
        *(message(init()), message(assistant(use("t1"))), silence(500)),
        *(message(user(answer("t1"))), message(assistant(text())), message(result())),
    )
    beats = []
    async with client:
        await client.query("Fix issue 7")
        guard = idle_guard(60, client=client) | activity_stamp(beats.append)
        taken = await take(client.receive_response() | guard, form)
        assert taken.error is None
        assert type(taken.messages[-1]) is sdk.ResultMessage
        assert len(beats) == len(taken.messages) == 5
        assert not transport.closed
    assert transport.closed


async def test_the_sdks_client_whose_cli_exits_in_mid_turn(loop, form):
    """T10: the SDK ends its stream in silence, with no exception of its own."""
    client, transport = client_of(message(init()), message(assistant(text())))
    await client.connect()
    await client.query("Fix issue 7")
    guard = idle_guard(60, client=client)
    taken = await take(client.receive_response() | guard, form)
    assert type(taken.error) is StreamTruncatedError
    assert taken.error.teardown.confirmed
    assert transport.closed


async def test_the_sdks_query_function(loop, form):
    """O3: `query(...)` is a generator, and its stream needs no client."""
    transport = ScriptedTransport(Script(message(init()), message(assistant(text())), pings(500)))

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "Fix issue 7"}}

    messages = sdk.query(prompt=prompts(), transport=transport)
    taken = await take(messages | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert len(taken.messages) == 2
    assert transport.closed
