"""The real CLIs under a guard, on a server that misbehaves.

Real time: WINDOW is as long as a busy machine needs, and `first` is longer, since a CLI's start is.
"""

from __future__ import annotations

import anyio
import pytest

from streamguard import (
    IdleTimeoutError,
    ToolTimeoutError,
    idle_guard,
    json_lines,
    reconnecting_resume,
)
from streamguard.backends import find
from streamguard.events import TornDown
from streamguard.process import marked_env
from streamguard.signals import SIGNALS, Liveness, TurnEnded, WorkStarted
from tests.loopback.script import pings, stall, text
from tests.process.backends import PATIENCE
from tests.real.clis import CLIS, FOREVER
from tests.support import Events, take

# Those whose lines tell a tool while it runs. (tests/real/test_kimi.py has what holds for kimi.)
TELL_TOOLS = [name for name, cli in CLIS.items() if cli.tells_tools]
telling = pytest.mark.parametrize("cli", TELL_TOOLS, indirect=True)
WINDOW = 4.0
LONG = 6.0  # where a verdict would be a false one
GRACE = 1.0


def run(main, backend="asyncio"):
    return anyio.run(main, backend=backend)


def guard(idle=WINDOW, **more):
    return idle_guard(idle, first=2 * PATIENCE, kill_grace=GRACE, **more)


def guarded(cli, operator, prompt="Begin."):
    """A stream of a CLI's lines: what users pipe, and how they are told to start it."""
    return json_lines(cli.start(prompt, env=marked_env({}))) | operator


def signals(messages):
    """What the lines say, by the reader that is found for them."""
    said = []
    for message in messages:
        if (backend := find(message)) is not None:
            signal = backend.read(message)
            said += [signal] if isinstance(signal, SIGNALS) else list(signal or ())
    return said


def outcomes(messages):
    return [each.outcome for each in signals(messages) if isinstance(each, TurnEnded)]


def test_a_normal_run_is_left_alone(cli, server, backends):
    """D1, T14: and the server, which is every proxy, sees that nothing else is called."""
    server.script(text("I look. ") + cli.shell("echo it is here"), text("Done."))
    events = Events()

    async def main():
        process = cli.start("Begin.")
        taken = await take(json_lines(process) | guard(idle=PATIENCE, observer=events))
        return taken, process.wait(PATIENCE)

    taken, status = run(main)
    assert taken.error is None
    assert outcomes(taken.messages) == ["success"]
    assert events.of(TornDown) == []
    assert status == 0
    assert backends.living() == set()
    assert "it is here" in server.requests[1].prompt
    assert [each.path for each in server.others if each.method == "CONNECT"] == []


@pytest.mark.parametrize(
    ("backend", "where"), [("asyncio", "in mid-answer"), ("trio", "before the first byte")]
)
def test_a_hang_is_found_at_the_window(cli, server, backends, backend, where):
    """T2, D4: and nothing is left of it."""
    hang = stall() if where == "before the first byte" else stall(after=cli.midway)
    server.script(cli.shell("echo it is here"), text("I ", "think.") | hang)

    async def main():
        return await take(guarded(cli, guard()))

    taken = run(main, backend)
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.verdict.elapsed >= WINDOW
    assert taken.error.teardown.confirmed
    assert backends.living() == set()


@telling
def test_a_long_tool_is_no_hang(cli, server):
    """T5: it takes longer than the window."""
    server.script(cli.shell(f"timeout {LONG + 1} {FOREVER}; echo at last"), text("Done."))

    async def main():
        return await take(guarded(cli, guard(idle=LONG)))

    taken = run(main)
    assert taken.error is None
    assert outcomes(taken.messages) == ["success"]
    assert taken.elapsed > LONG + 1
    assert "at last" in server.requests[1].prompt


def test_pings_are_no_work(cli, server, backends):
    """T1."""
    cli.partials = shows_pings = cli.name == "claude"  # one in 10 s
    server.script(cli.shell("echo it is here"), text("I ", "think.") | pings(after=cli.midway))

    async def main():
        return await take(guarded(cli, guard(idle=15 if shows_pings else WINDOW)))

    taken = run(main)
    assert type(taken.error) is IdleTimeoutError
    assert any(isinstance(each, Liveness) for each in signals(taken.messages)) == shows_pings
    assert backends.living() == set()


@telling
def test_a_teardown_takes_the_tools_along(cli, server, backends):
    """D4: the one that runs, and one that has left for a session of its own."""
    orphan = cli.home / "orphan"
    server.script(
        cli.shell(f"setsid {FOREVER} & echo $! >{orphan}; {FOREVER}"), forever=text("Ended.")
    )

    async def until_it_runs(message):
        if any(isinstance(each, WorkStarted) for each in signals([message])):
            while not orphan.exists():
                await anyio.sleep(0.05)

    async def main():
        stream = guarded(cli, guard(idle=3 * PATIENCE, tools=WINDOW))
        return await take(stream, on_message=until_it_runs)

    taken = run(main)
    assert isinstance(taken.error, ToolTimeoutError)
    assert taken.error.teardown.confirmed
    assert backends.living() == set()


@telling
def test_a_hung_session_is_resumed_with_its_history(cli, server, backends):
    """R3, D5: the first process is dead before the second asks, and that knows all that was said."""
    server.script(
        text("I begin. ") + cli.shell("echo the first result"),
        text("I ", "think.") | stall(after=cli.midway),
        forever=text("All is done."),
    )

    async def main():
        talk = cli.session("Find it.", env=backends.env({}))
        # More retries than one, should the machine be so busy that another window is over.
        async with talk | guard() | reconnecting_resume(retries=9, backoff=[0]) as chat:
            return [message async for message in chat]

    messages = run(main)
    assert outcomes(messages) == ["success"]
    assert backends.living() == set()
    assert "left" in [each.ended for each in server.requests]
    history = " ".join(said for _, said in server.requests[-1].history)
    for said in ("Find it.", "I begin.", "the first result", "Continue."):
        assert said in history
