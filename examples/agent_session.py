"""An agent works on an issue: gate, review, retries of both. Nothing in the session watches for hangs.

    python examples/agent_session.py            a scripted backend that hangs, and dies once
    python examples/agent_session.py --real     Claude, by claude-agent-sdk, in the current folder

The session says what is asked and what becomes of the answer. That silence is found, the client torn
down, another one opened and the conversation resumed is said in one line, where the chat is made.
The scripted backend takes about five seconds of real time.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import anyio

from streamguard import (
    Activity,
    Chat,
    Connection,
    ResumePoint,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.testing import (
    ClientFactory,
    FakeClient,
    Script,
    done,
    fail,
    hang,
    opened,
    say,
    silence,
    tool,
)

# -- the session: prompts, a gate, a review ------------------------------------------------------

Check = Callable[[], Awaitable[list[str]]]  # what is wrong; nothing if all is well


class Phase(Enum):
    WORK = auto()
    GATE = auto()
    REVIEW = auto()
    DONE = auto()
    FAILED = auto()


@dataclass
class AgentSession:
    """Works on one issue until gate and review have nothing to say, or have said it too often."""

    issue: str
    gate: Check
    review: Check
    max_rounds: int = 3
    log: list[str] = field(default_factory=list)

    async def run(self, chat: Chat[Any]) -> bool:
        pending: AsyncIterator[Any] | None = aiter(chat)
        phase, rounds = Phase.WORK, 0
        while phase not in (Phase.DONE, Phase.FAILED):
            match phase:
                case Phase.WORK if pending is not None:
                    async for message in pending:
                        self.note(f"  {message}")
                    pending, phase = None, Phase.GATE
                case Phase.GATE | Phase.REVIEW:
                    # No prompt is pending, so nothing is open to be sent or to be watched.
                    check = self.gate if phase is Phase.GATE else self.review
                    reasons = await check()
                    self.note(f"{phase.name.lower()}: {'; '.join(reasons) or 'passed'}")
                    if not reasons:
                        phase = Phase.REVIEW if phase is Phase.GATE else Phase.DONE
                    elif (rounds := rounds + 1) >= self.max_rounds:
                        phase = Phase.FAILED
                    else:
                        asked = f"The {phase.name.lower()} of {self.issue} says: "
                        pending, phase = chat.ask(asked + "; ".join(reasons)), Phase.WORK
                case _:
                    raise AssertionError(phase)
        return phase is Phase.DONE

    def note(self, line: str) -> None:
        self.log.append(line)
        print(line, flush=True)


async def work_on(issue: str, open_client: Any, gate: Check, review: Check, idle: float) -> bool:
    """All that there is to say about hangs."""
    guard = idle_guard(idle, activity=Activity(issue, issue=issue))
    resume = reconnecting_resume(prompt="Continue on {issue}.")
    work = AgentSession(issue, gate, review)
    async with session(open_client, prompt=f"Fix {issue}.") | guard | resume as chat:
        return await work.run(chat)


# -- a scripted backend ----------------------------------------------------------------------------


class Findings:
    """A check that finds less each time."""

    def __init__(self, *rounds: str) -> None:
        self._rounds = list(rounds)

    async def __call__(self) -> list[str]:
        await anyio.sleep(0.1)
        return [self._rounds.pop(0)] if self._rounds else []


def scripted(idle: float) -> Any:
    """Hangs in the first turn, loses its connection in the second, and works all the same."""
    clients = ClientFactory(
        FakeClient(Script(opened("session-7"), say("I will look at the tests."), hang())),
        FakeClient(
            Script(tool("Bash", 1.5 * idle), say("The tests pass."), done()),
            Script(say("I see."), fail(ConnectionError("reset by peer"))),
        ),
        FakeClient(
            Script(say("The lint is clean now."), done()),
            Script(silence(idle / 2), say("I have renamed it."), done()),
        ),
    )

    @asynccontextmanager
    async def open_scripted(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        how = f"resuming {point.token}" if point.is_resumed else "afresh"
        print(f"-- client {point.attempt}, {how}")
        async with clients(point) as client:

            async def turn(prompt: str) -> AsyncGenerator[Any, None]:
                print(f"> {prompt}")
                await client.query(prompt)
                async for message in client.receive_response():
                    yield message

            yield Connection(turn, client=client)

    return open_scripted


# -- Claude --------------------------------------------------------------------------------------


@asynccontextmanager
async def open_claude(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    options = ClaudeAgentOptions(resume=point.token, permission_mode="acceptEdits")
    async with ClaudeSDKClient(options) as client:

        async def turn(prompt: str) -> AsyncGenerator[Any, None]:
            await client.query(prompt)
            async for message in client.receive_response():
                yield message

        yield Connection(turn, client=client)  # interrupt and process come with it


async def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(description="An agent session that survives hangs.")
    parser.add_argument("--real", action="store_true", help="Claude instead of a script")
    parser.add_argument("--issue", default="issue-7")
    parser.add_argument("--idle", type=float, help="seconds of silence that end an attempt")
    options = parser.parse_args(arguments)
    idle = options.idle or (900.0 if options.real else 1.0)
    opener = open_claude if options.real else scripted(idle)
    gate, review = Findings("lint: 2 errors"), Findings("the name says nothing")
    try:
        is_done = await work_on(options.issue, opener, gate, review, idle)
    except StreamGuardError as error:
        print(f"gave up ({error.gave_up}): {error}")
        for attempted in error.attempts:
            print(f"  {attempted}")
        return 1
    print("done" if is_done else "not done: gate and review still find something")
    return 0 if is_done else 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="   log: %(message)s")
    sys.exit(anyio.run(main, *sys.argv[1:]))
