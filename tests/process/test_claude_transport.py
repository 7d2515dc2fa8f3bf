"""The real transport of claude-agent-sdk, with a CLI of ours that hangs in every way."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    IdleTimeoutError,
    ProcessExitedError,
    StreamTruncatedError,
    ToolTimeoutError,
    idle_guard,
)
from streamguard.events import DisconnectAbandoned, Interrupting, ProcessAdopted, TornDown
from streamguard.process import marked_env
from tests.process.backends import CHILDREN, PATIENCE, is_dead, is_stopped
from tests.support import Events, take

sdk = pytest.importorskip("claude_agent_sdk")

# The SDK's own habits, with or without a guard: a turn that ends leaves its inner generators to
# the collector, of which trio warns, and a close that is cut short its memory channels.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]

SHORT = 0.3
LONG = 10 * PATIENCE


@pytest.fixture
def cli(tmp_path):
    """Our CLI, as a command that the SDK can start: by exec, so its pid is the CLI's own."""
    path = tmp_path / "claude"
    script = shlex.join([sys.executable, "-I", "-S", str(CHILDREN / "fake_claude.py")])
    path.write_text(f'#!/bin/sh\nexec {script} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def connected(cli, backends):
    """A client that is connected to a CLI of its own, and is left as the test has left it."""

    @asynccontextmanager
    async def connect():
        options = sdk.ClaudeAgentOptions(cli_path=cli, env=marked_env(backends.env({})))
        client = sdk.ClaudeSDKClient(options=options)
        with anyio.fail_after(PATIENCE):
            await client.connect()
            yield client

    yield connect
    gc.collect()  # the SDK forgets the CLI's stdout unclosed, which is seen on trio alone


async def pid_of(client):
    """The CLI's pid, in public: what it answered when the client connected."""
    return (await client.get_server_info())["pid"]


def holds_a_tool(message):
    return any(type(block) is sdk.ToolUseBlock for block in message.content)


def kinds(taken):
    return [type(message).__name__ for message in taken.messages]


# -- a verdict leaves nothing --------------------------------------------------------------------

# What the CLI is told; the verdict; how long the SDK's own close may take.
HANGS = {
    "idle": ("init text", IdleTimeoutError, PATIENCE),
    "busy": ("init text tool", ToolTimeoutError, SHORT),
    "deaf": ("ignore init text", IdleTimeoutError, SHORT),
    "stopped": ("init text stop", IdleTimeoutError, SHORT),
    "stopped and busy": ("init text tool stop", ToolTimeoutError, SHORT),
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_hung_cli_is_really_gone(loop, backends, connected, hang):
    """D1, D2, D4, D5: the SDK's close first, within its bound; then the tree, tools and all."""
    prompt, expected, disconnect_timeout = HANGS[hang]
    events = Events()

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query(prompt)

            async def until_it_has_stopped(_):
                while "stop" in prompt and not is_stopped(pid):
                    await anyio.sleep(0.005)

            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                tools=SHORT,
                disconnect=client.disconnect,
                process=lambda: client._transport._process,
                disconnect_timeout=disconnect_timeout,
                kill_grace=SHORT if "ignore" in prompt else PATIENCE,
                observer=events,
            )
            stream = client.receive_response() | operator
            taken = await take(stream, on_message=until_it_has_stopped)
            assert backends.living() == set()
            assert is_dead(pid)
            return taken

    taken = loop.run(main)
    tool = ["AssistantMessage"] * ("tool" in prompt)
    assert kinds(taken) == ["SystemMessage", "AssistantMessage", *tool]
    assert type(taken.error) is expected
    teardown = taken.error.teardown
    assert teardown.confirmed
    assert teardown.survivors == ()
    assert len(events.of(DisconnectAbandoned)) == (disconnect_timeout == SHORT)
    assert ("KILL" in teardown.signals) == ("ignore" in prompt)


def test_a_patient_teardown_lets_the_sdk_do_what_it_can(loop, backends, connected):
    """D2: its own close takes up to 10 s, and leaves the tools. All at once, to wait for it once."""
    errors = {}

    async def one(hang):
        prompt, _, _ = HANGS[hang]
        async with connected() as client:
            await client.query(prompt)
            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                tools=SHORT,
                disconnect=client.disconnect,
                process=await pid_of(client),
            )
            taken = await take(client.receive_response() | operator)
            errors[hang] = taken.error

    async def main():
        async with anyio.create_task_group() as group:
            for hang in HANGS:
                group.start_soon(one, hang)
        assert backends.living() == set()

    loop.run(main)
    assert {hang: type(error) for hang, error in errors.items()} == {
        hang: expected for hang, (_, expected, _) in HANGS.items()
    }
    assert {error.teardown.disconnect for error in errors.values()} == {"returned"}
    assert {hang: error.teardown.tree for hang, error in errors.items()} == {
        hang: "terminated" if "busy" in hang else "exited" for hang in HANGS
    }


def test_the_clients_own_block_meets_no_disconnect_in_mid_close(loop, backends, cli, monkeypatch):
    """D2: an abandoned one returns when the CLI is dead, and the verdict is raised after that.

    Else two closes of the SDK's would be at it at once, and the later one would fail as a rule.
    """
    monkeypatch.setattr("streamguard._guard.teardown._LATE_RETURN", PATIENCE)

    async def main():
        options = sdk.ClaudeAgentOptions(cli_path=cli, env=marked_env(backends.env({})))
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query("ignore init text")
            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                disconnect=client.disconnect,
                process=await pid_of(client),
                disconnect_timeout=SHORT,
                kill_grace=SHORT,
            )
            async for _ in client.receive_response() | operator:
                pass

    with pytest.raises(IdleTimeoutError) as raised:
        loop.run(main)
    assert raised.value.teardown.disconnect == "abandoned"
    assert raised.value.teardown.confirmed
    assert backends.living() == set()
    del raised  # and with it what the SDK leaves to the collector
    gc.collect()


@pytest.mark.parametrize(("way", "form"), [("public", "hosted"), ("private", "bare")])
def test_either_way_to_the_pid(loop, backends, connected, way, form):
    """D4: what the CLI says of itself, and what the SDK's transport holds, are one process.

    All at its worst: deaf, with a tool; no grace, so that TERM is not even tried.
    """
    events = Events()

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query("ignore init text tool")
            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                tools=SHORT,
                disconnect=client.disconnect,
                process=pid if way == "public" else lambda: client._transport._process,
                disconnect_timeout=SHORT,
                kill_grace=0,
                observer=events,
            )
            taken = await take(client.receive_response() | operator, form)
            assert backends.living() == set()
            return pid, taken.error

    pid, error = loop.run(main)
    assert type(error) is ToolTimeoutError
    assert error.teardown.confirmed
    assert "TERM" not in error.teardown.signals
    assert [event.pid for event in events.of(ProcessAdopted)] == [pid]


@pytest.mark.parametrize("prompt", ["init text", "init text tool"])
def test_an_interrupt_brings_the_turns_end(loop, backends, connected, monkeypatch, prompt):
    """D1, T3: its result is no success: delivered, then the verdict is raised."""
    monkeypatch.setattr("streamguard._guard.attempt.INTERRUPTING", PATIENCE)

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query(prompt)
            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                tools=SHORT,
                interrupt=client.interrupt,
                disconnect=client.disconnect,
                process=pid,
                disconnect_timeout=PATIENCE,
                kill_grace=SHORT,
            )
            taken = await take(client.receive_response() | operator)
            assert backends.living() == set()
            return taken

    taken = loop.run(main)
    assert type(taken.error) is (ToolTimeoutError if "tool" in prompt else IdleTimeoutError)
    last = taken.messages[-1]
    assert (type(last), last.subtype) == (sdk.ResultMessage, "error_during_execution")
    assert taken.error.teardown.confirmed
    assert taken.error.teardown.disconnect == "returned"


def test_an_interrupt_that_is_not_answered(loop, backends, connected, monkeypatch):
    """D1: the SDK waits a minute for it, the guard does not."""
    monkeypatch.setattr("streamguard._guard.attempt.INTERRUPTING", SHORT)
    events = Events()

    async def main():
        async with connected() as client:
            await client.query("init text stop")
            operator = idle_guard(
                SHORT,
                first=PATIENCE,
                interrupt=client.interrupt,
                disconnect=client.disconnect,
                process=await pid_of(client),
                disconnect_timeout=SHORT,
                observer=events,
            )
            taken = await take(client.receive_response() | operator)
            assert backends.living() == set()
            return taken

    taken = loop.run(main)
    assert kinds(taken) == ["SystemMessage", "AssistantMessage"]
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.teardown.confirmed
    assert len(events.of(Interrupting)) == 1


# -- the CLI dies in mid-turn --------------------------------------------------------------------


def test_a_death_that_a_tool_hides_from_the_sdk(loop, backends, connected):
    """T10: the tool holds stdout, so the SDK reads on for ever; the pidfd has it at once."""

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query("init text hold")

            def kill(message):
                if type(message) is sdk.AssistantMessage and holds_a_tool(message):
                    os.kill(pid, signal.SIGKILL)

            operator = idle_guard(
                LONG,
                disconnect=client.disconnect,
                process=lambda: client._transport._process,
                disconnect_timeout=SHORT,
                kill_grace=SHORT,
            )
            taken = await take(client.receive_response() | operator, on_message=kill)
            assert backends.living() == set()
            return taken

    taken = loop.run(main)
    assert kinds(taken) == ["SystemMessage", "AssistantMessage", "AssistantMessage"]
    assert type(taken.error) is ProcessExitedError
    assert taken.error.verdict.exit == -signal.SIGKILL
    assert taken.error.teardown.confirmed


def test_an_exit_that_the_sdk_sees_is_the_sdks_to_tell(loop, backends, connected, monkeypatch):
    """T7: its own error comes while what the dead has left drains, and is no guess of ours.

    No verdict, so no teardown: the client stays its owner's, to be closed as ever.
    """
    monkeypatch.setattr("streamguard._watch.watch.DRAIN", PATIENCE)  # whatever the machine does
    events = Events()

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query("init text")
            operator = idle_guard(LONG, disconnect=client.disconnect, process=pid, observer=events)

            async def go_on(message):
                if type(message) is sdk.AssistantMessage:
                    await client.query("exit 3")

            taken = await take(client.receive_response() | operator, on_message=go_on)
            assert events.of(TornDown) == []
            assert backends.living() == set()
            await client.disconnect()
            return taken

    taken = loop.run(main)
    assert kinds(taken) == ["SystemMessage", "AssistantMessage"]
    assert type(taken.error) is sdk.ProcessError
    assert taken.error.exit_code == 3


def test_an_exit_that_looks_like_success(loop, backends, connected):
    """T10: the SDK's stream ends without an error; but no result has come."""

    async def main():
        async with connected() as client:
            pid = await pid_of(client)
            await client.query("init text")
            operator = idle_guard(LONG, disconnect=client.disconnect, process=pid)

            async def go_on(message):
                if type(message) is sdk.AssistantMessage:
                    await client.query("exit 0")

            taken = await take(client.receive_response() | operator, on_message=go_on)
            assert backends.living() == set()
            return taken

    taken = loop.run(main)
    assert kinds(taken) == ["SystemMessage", "AssistantMessage"]
    # Which of the two depends on who is first to hear of it.
    assert isinstance(taken.error, StreamTruncatedError | ProcessExitedError)
    assert taken.error.teardown.confirmed


# -- the control ---------------------------------------------------------------------------------


async def test_a_cli_that_works_is_left_alone(loop, backends, connected):
    """D1, T14: two turns, one client, no teardown; the CLI ends when its owner says so."""
    events = Events()
    async with connected() as client:
        pid = await pid_of(client)
        operator = idle_guard(LONG, disconnect=client.disconnect, process=pid, observer=events)
        for _ in range(2):
            await client.query("init text tool answer text result")
            taken = await take(client.receive_response() | operator)
            assert taken.error is None
            assert len(taken.messages) == 6
            assert taken.messages[-1].subtype == "success"
        assert backends.living() == {pid}
        await client.disconnect()
        assert backends.living() == set()
    assert events.of(TornDown) == []
