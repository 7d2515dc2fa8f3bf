"""Kimi Code as an ACP agent: what its lines cannot tell, a tool while it runs and the session, it tells here.

What else holds for its lines is in test_clis and test_run_cli. Real time, asyncio alone (as the package `acp`).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from streamguard import (
    Activity,
    IdleTimeoutError,
    ToolTimeoutError,
    idle_guard,
    json_lines,
    reconnecting_resume,
)
from streamguard.backends import acp as backend
from streamguard.process import marked_env
from streamguard.signals import SIGNALS, TurnEnded, WorkStarted
from tests.loopback.script import pings, stall, text
from tests.process.backends import PATIENCE
from tests.real.clis import FOREVER
from tests.support import take

acp = pytest.importorskip("acp", reason="pip install 'agent-streamguard[acp]'")

WINDOW = 4.0
LONG = 6.0  # where a verdict would be a false one


class Client:
    """A user's client that allows what it is asked."""

    async def session_update(self, session_id, update, **_):
        pass

    async def request_permission(self, session_id, tool_call, options, **_):
        (once, *_) = [each.option_id for each in options if each.kind == "allow_once"]
        chosen = acp.schema.AllowedOutcome(outcome="selected", option_id=once)
        return acp.RequestPermissionResponse(outcome=chosen)


@pytest.fixture
def cli(start_cli):
    return start_cli("kimi")


@pytest.fixture
def talk(cli, backends):
    """Its session, as users open it."""

    def talk(prompt="Begin."):
        command, env = str(cli.executable), cli.env(backends.env({}))
        return backend.session(Client(), command, "acp", prompt=prompt, cwd=cli.home, env=env)

    return talk


def guard(idle=WINDOW, **more):
    return idle_guard(idle, first=2 * PATIENCE, kill_grace=1, **more)


def collected(session, on_message=None):
    """All its messages, and the error that ended them."""
    messages = []

    async def main():
        try:
            async with session as chat:
                async for message in chat:
                    messages.append(message)
                    if on_message is not None:
                        await on_message(message)
        except Exception as error:
            return error

    return messages, anyio.run(main)


def signals(messages):
    said = []
    for message in messages:
        signal = backend.read(message)
        said += [signal] if isinstance(signal, SIGNALS) else list(signal or ())
    return said


def outcomes(messages):
    return [each.outcome for each in signals(messages) if isinstance(each, TurnEnded)]


def test_a_normal_run_is_left_alone(talk, cli, server, backends):
    """D1, T14: and nothing else is called."""
    server.script(text("I look. ") + cli.shell("echo it is here"), text("Done."))
    messages, error = collected(talk() | guard(idle=PATIENCE))
    assert error is None
    assert outcomes(messages) == ["success"]
    assert "it is here" in server.requests[1].prompt
    assert [each.path for each in server.others if each.method == "CONNECT"] == []
    assert backends.living() == set()


@pytest.mark.parametrize("where", ["in mid-answer", "before the first byte"])
def test_a_hang_is_found_at_the_window(talk, cli, server, backends, where):
    """T2, D4"""
    hang = stall() if where == "before the first byte" else stall(after=cli.midway)
    server.script(cli.shell("echo it is here"), text("I ", "think.") | hang)
    _, error = collected(talk() | guard())
    assert type(error) is IdleTimeoutError
    assert error.verdict.elapsed >= WINDOW
    assert backends.living() == set()


def test_a_long_tool_is_no_hang(talk, cli, server):
    """T5"""
    server.script(cli.shell(f"timeout {LONG + 1} {FOREVER}; echo at last"), text("Done."))
    messages, error = collected(talk() | guard(idle=LONG))
    assert error is None
    assert outcomes(messages) == ["success"]
    assert "at last" in server.requests[1].prompt


def test_pings_are_no_work(talk, cli, server, backends):
    """T1"""
    server.script(cli.shell("echo it is here"), text("I ", "think.") | pings(after=cli.midway))
    _, error = collected(talk() | guard())
    assert type(error) is IdleTimeoutError
    assert backends.living() == set()


def leaves_an_orphan(cli, orphan):
    return cli.shell(f"setsid {FOREVER} & echo $! >{orphan}; {FOREVER}")


def test_a_teardown_takes_the_tools_along(talk, cli, server, backends):
    """D4: of an agent that is deaf to a cancel; the tool that runs, and one in a session of its own."""
    orphan = cli.home / "orphan"
    server.script(leaves_an_orphan(cli, orphan), forever=text("Ended."))

    async def until_it_runs_and_is_deaf(message):
        if any(isinstance(each, WorkStarted) for each in signals([message])):
            with anyio.fail_after(PATIENCE):
                while not orphan.exists():
                    await anyio.sleep(0.05)
            for pid in backends.living():
                if Path(f"/proc/{pid}/exe").readlink().name == "node":
                    os.kill(pid, signal.SIGSTOP)

    session = talk() | guard(idle=3 * PATIENCE, tools=WINDOW)
    _, error = collected(session, until_it_runs_and_is_deaf)
    assert isinstance(error, ToolTimeoutError)
    assert error.teardown.confirmed
    assert backends.living() == set()


def test_in_its_lines_a_tool_is_a_silence_and_is_ended_too(cli, server, backends):
    """D4: the window is all that there is, and nothing is left."""
    orphan, activity = cli.home / "orphan", Activity("kimi")
    server.script(
        cli.shell("echo one"), leaves_an_orphan(cli, orphan), forever=text("It has ended.")
    )

    async def until_it_runs():
        with anyio.fail_after(2 * PATIENCE):
            while not orphan.exists():
                activity.touch()
                await anyio.sleep(0.1)

    async def main():
        stream = json_lines(cli.start("Begin.", env=marked_env({})))
        async with anyio.create_task_group() as group:
            group.start_soon(until_it_runs)
            taken = await take(stream | guard(activity=activity))
            group.cancel_scope.cancel()
        return taken

    taken = anyio.run(main)
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.teardown.confirmed
    assert orphan.exists()
    assert backends.living() == set()


def test_a_hung_session_is_resumed_with_its_history(talk, cli, server, backends):
    """R3, D5"""
    server.script(
        text("I begin. ") + cli.shell("echo the first result"),
        text("I ", "think.") | stall(after=cli.midway),
        forever=text("All is done."),
    )
    resume = reconnecting_resume(retries=9, backoff=[0])
    messages, error = collected(talk("Find it.") | guard() | resume)
    assert error is None
    assert outcomes(messages)[-1] == "success"
    assert backends.living() == set()
    history = " ".join(said for _, said in server.requests[-1].history)
    for said in ("Find it.", "I begin.", "the first result", "Continue."):
        assert said in history
