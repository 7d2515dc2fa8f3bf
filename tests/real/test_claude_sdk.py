"""claude-agent-sdk with its own CLI against the model server: the ladder, and what is no hang.

In real time. Only hangs are short; whatever answers may take its time on a busy machine, and where it
took too long after all, a session goes on and comes to the same end.
"""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, idle_guard, reconnecting_resume
from streamguard.backends import claude
from streamguard.events import Interrupting, ProcessAdopted, ProcessKilled, TimedOut
from tests.loopback.script import pings, stall, text, tool
from tests.process.backends import PATIENCE
from tests.real.sdks import PATIENT, run, sdk, take
from tests.support import Events

sdk = sdk("claude_agent_sdk")

pytestmark = [
    # What the SDK leaves to the collector, with or without a guard.
    pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]

WINDOW = 3.0  # of a hang
# Of what is none, and how long that is silent. Wide, so that a busy CLI is no hang either.
WIDE, SILENT = 6.0, 9.0
LOOPS = ["asyncio", "trio"]


@pytest.fixture
def options_for(start_cli, backends):
    """Options of a client that knows nothing of this machine, and whose processes are marked."""
    cli = start_cli("claude")
    env = backends.env(cli.env())

    def options(**more):
        plain = {"permission_mode": "bypassPermissions", "include_partial_messages": True}
        return sdk.ClaudeAgentOptions(
            env=env, cwd=cli.home, setting_sources=[], **{**plain, **more}
        )

    return options


def shell(command):
    return tool("Bash", {"command": command, "description": "a test's command"})


def results(messages):
    return [each.subtype for each in messages if isinstance(each, sdk.ResultMessage)]


def conversation(request):
    """What the model was told, without what the CLI says of itself."""
    return [(role, said.rpartition("\n")[2].strip()) for role, said in request.history]


async def all_of(turn):
    return [message async for message in turn]


# -- nothing is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_session_that_goes_well(loop, server, backends, options_for):
    """O9: two turns and a tool in one client, with a tap; nothing of it is left."""
    server.script(text("I look. ") + shell("echo looked"), text("Done."), text("More."))
    events = Events()

    async def main():
        session = claude.session(options_for(), prompt="One", tap=True)
        async with session | idle_guard(PATIENT, observer=events) | reconnecting_resume() as chat:
            assert results(await all_of(chat)) == ["success"]
            assert results(await all_of(chat.ask("Two"))) == ["success"]
            assert len(backends.living()) == 1

    run(main, loop=loop)
    assert events.of(TimedOut) == events.of(Interrupting) == []
    assert len({event.pid for event in events.of(ProcessAdopted)}) == 1
    assert [role for role, _ in server.requests[-1].history if role != "system"] == [
        *("user", "assistant", "user", "assistant", "user")
    ]
    assert backends.living() == set()


def test_a_long_tool_is_left_alone(server, backends, options_for, tmp_path):
    """T5: it is silent for longer than the window, and then the turn goes on."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    server.script(shell(f"cat {fifo}"), forever=text("Done."))
    events = Events()

    async def main():
        guard = idle_guard(WIDE, first=PATIENT, observer=events)

        async def feed():
            file = await opened_by_a_reader(fifo)
            await anyio.sleep(SILENT)
            os.write(file, b"fed")
            os.close(file)

        async with anyio.create_task_group() as group:
            group.start_soon(feed)
            async with claude.session(options_for(), prompt="One") | guard as chat:
                assert results(await all_of(chat)) == ["success"]

    run(main)
    assert events.of(TimedOut) == []
    assert "fed" in server.requests[-1].prompt
    assert backends.living() == set()


async def opened_by_a_reader(fifo):
    """The writing end, as soon as somebody reads."""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await anyio.sleep(0.01)


@pytest.mark.parametrize(("loop", "way"), [("asyncio", "session"), ("trio", "tap")])
def test_a_human_who_takes_longer_than_the_window(loop, way, server, backends, options_for):
    """T6: by the session, which holds while the callback runs, and by a tap on one's own client."""
    server.script(shell("touch it"), forever=text("Done."))
    events = Events()

    async def permit(name, given, context):
        await anyio.sleep(SILENT)
        return sdk.PermissionResultAllow()

    async def main():
        activity = Activity("issue-7")
        # The permission alone is shown: no tool is known to be in flight.
        guard = idle_guard(WIDE, first=PATIENT, activity=activity, observer=events, read=_plain)
        options = options_for(permission_mode="default", can_use_tool=permit)
        if way == "session":
            async with claude.session(options, prompt="One") | guard as chat:
                return await all_of(chat)
        client = sdk.ClaudeSDKClient(options, transport=claude.tap(options, activity))
        async with client:
            await client.query("One")
            return await all_of(client.receive_response() | guard)

    assert results(run(main, loop=loop)) == ["success"]
    assert events.of(TimedOut) == []
    assert "[result" in server.requests[-1].prompt
    assert backends.living() == set()


def _plain(message):
    """A reader that knows no tools."""
    said = claude.read(message)
    kept = (said,) if not isinstance(said, list | tuple) else said
    return [
        each for each in kept if each is not None and "Work" not in type(each).__name__
    ] or None


# -- hangs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hang_is_interrupted_and_the_same_client_goes_on(loop, server, backends, options_for):
    """D1: the partial text is kept, and reaches the model with the next request."""
    server.script(text("Hello", " there") | stall(after=3), forever=text("Done."))
    events = Events()

    async def main():
        guard = idle_guard(WINDOW, first=PATIENT, observer=events)
        resume = reconnecting_resume(retries=20, backoff=[0])
        async with claude.session(options_for(), prompt="One") | guard | resume as chat:
            assert results(await all_of(chat))[-1] == "success"
            assert len(backends.living()) == 1

    run(main, loop=loop)
    assert events.of(TimedOut)[0].verdict.limit == "idle"
    assert len(events.of(TimedOut)) == len(events.of(Interrupting))
    assert len({event.pid for event in events.of(ProcessAdopted)}) == 1
    assert server.requests[0].ended == "left"
    told = [(role, said) for role, said in conversation(server.requests[-1]) if role != "system"]
    assert told[:3] == [("user", "One"), ("assistant", "Hello"), ("user", "Continue.")]
    assert "[Request interrupted by user]" in str(server.requests[-1].history)
    assert backends.living() == set()


@pytest.fixture
def impatient(monkeypatch):
    """An interrupt is not waited for as long as it might be."""
    monkeypatch.setattr("streamguard._guard.attempt.INTERRUPTING", 1.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("loop", LOOPS)
def test_one_that_is_deaf_to_interrupts_is_replaced(loop, server, backends, options_for, tmp_path):
    """D1, D4, R3: the CLI stopped, with a tool: all of it is ended, and the session is resumed."""
    server.script(shell("echo begun; tail -f /dev/null"), forever=text("Done."))
    events = Events()

    async def main():
        guard = idle_guard(
            PATIENT, tools=WINDOW, disconnect_timeout=3, kill_grace=0.5, observer=events
        )
        resume = reconnecting_resume(retries=20, backoff=[0])
        async with claude.session(options_for(), prompt="One") | guard | resume as chat:
            messages = []
            async for message in chat:
                messages.append(message)
                if _has_tool(message) and len(server.requests) == 1:
                    [adopted] = {event.pid for event in events.of(ProcessAdopted)}
                    with anyio.fail_after(PATIENCE):
                        # It runs, and is in the history that the CLI keeps.
                        while len(backends.living()) < 2 or not _is_kept(tmp_path, "echo begun"):
                            await anyio.sleep(0.01)
                    os.kill(adopted, signal.SIGSTOP)
            assert results(messages) == ["success"]
            assert backends.living() == {events.of(ProcessAdopted)[-1].pid}

    run(main, loop=loop)
    assert events.of(TimedOut)[0].verdict.limit == "tools"
    assert events.of(ProcessKilled)[0].signals
    assert len({event.pid for event in events.of(ProcessAdopted)}) >= 2
    told = conversation(server.requests[-1])
    assert ("user", "One") in told
    assert told[-1] == ("user", "Continue.")
    assert "[call" in str(server.requests[-1].history)
    assert backends.living() == set()


def _is_kept(home, words):
    return any(
        words in file.read_text() for file in home.glob("claude/.claude/projects/*/*.jsonl")
    )


def _has_tool(message):
    return isinstance(message, sdk.AssistantMessage) and any(
        isinstance(block, sdk.ToolUseBlock) for block in message.content
    )


def test_pings_are_no_work(server, backends, options_for):
    """S0: an API that only pings is as silent as one that hangs; with a client of one's own."""
    server.script(text("Hello", " there") | pings(after=3), forever=text("Done."))
    window = 15.0  # the CLI hands on a ping every 10 s

    async def main():
        client = sdk.ClaudeSDKClient(options_for())
        await client.connect()
        await client.query("One")
        guard = idle_guard(window, first=PATIENT, client=client)
        return await take(client.receive_response() | guard)

    got = run(main)
    events = [each.event["type"] for each in got.messages if isinstance(each, sdk.StreamEvent)]
    assert "ping" in events
    assert type(got.error) is IdleTimeoutError
    assert got.error.verdict.last_message_age < window <= got.error.verdict.elapsed
    assert got.error.teardown.confirmed
    assert results(got.messages) == ["error_during_execution"]  # the interrupt's
    assert backends.living() == set()
