"""What each worker of `streamguard fleet demo` does for a session, as a user's handler would.

The agent's steps have numbers, which are the session's cursor: another worker has the agent begin after the last one that
was checkpointed. Every step that is delivered is a line in a file, for `fleet_show` to count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamguard import Connection, ResumePoint, idle_guard, reconnecting_resume, session
from streamguard.backends.claude.command import open_cli
from streamguard.demo import fleet_agent

if TYPE_CHECKING:
    from streamguard.fleet import Lease

DELIVERED: Final = "delivered.txt"
IDLE: Final = 1.5


async def work(lease: Lease) -> None:
    """Run one session, or what is left of it."""
    guard = idle_guard(IDLE) | reconnecting_resume(retries=0, dedupe_by=_step)
    async with session(_opener(lease), point=lease.resume_point()) | guard as chat:
        async for message in chat:
            if (step := _step(message)) is not None:
                _deliver(lease, step, message["pid"])


def _opener(lease: Lease) -> Any:
    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[dict[str, Any]], None]:
        done = point.cursor if isinstance(point.cursor, int) else 0
        words = {
            "--session": f"agent-{lease.key}",
            "--steps": lease.spec["steps"],
            "--from": done + 1,
            "--hang": lease.spec["hangs_at"] if lease.attempt == 1 else 0,
        }
        options = [str(word) for pair in words.items() for word in pair]
        command = [sys.executable, fleet_agent.__file__, *options]
        async with open_cli(command=command)(point) as connection:
            yield connection

    return opened


def _step(message: Mapping[str, Any]) -> int | None:
    return message.get("step")


def _deliver(lease: Lease, step: int, agent: int) -> None:
    """What is done with a message. Its line says who did it: the session, the step, the worker and its agent."""
    with (Path(str(lease.spec["folder"])) / DELIVERED).open("a", encoding="utf-8") as file:
        file.write(f"{lease.key} {step} {os.getpid()} {agent}\n")
