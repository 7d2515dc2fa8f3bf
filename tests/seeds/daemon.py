"""multica's daemon under its own names, on streamguard's public API.

`Daemon.execute_and_drain` is what was `executeAndDrain` with `runIdleWatchdog` beside it: an
`idle_guard` around the messages. `status_of` shows how its five statuses are told apart (S4-15).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import anyio

from streamguard import Activity, IdleTimeoutError, StreamGuardError, idle_guard
from streamguard.errors import StreamTimeoutError
from streamguard.events import Event, StreamEnded
from streamguard.signals import Progress, SessionOpened, Signal, WorkFinished, WorkStarted

Status: TypeAlias = Literal["completed", "aborted", "cancelled", "timeout", "idle_watchdog"]

_BY_OUTCOME: dict[str, Status] = {
    "completed": "completed",
    "failed": "aborted",
    "cancelled": "cancelled",
    "left": "aborted",
}


@dataclass(frozen=True)
class Message:
    """What a backend sends."""

    type: Literal["text", "status", "tool_use", "tool_result"]
    content: str = ""
    tool: str = ""
    call_id: str = ""
    session_id: str = ""


@dataclass
class Result:
    """How a run ended."""

    status: str
    output: str = ""
    error: str = ""
    session_id: str = ""


@dataclass
class Session:
    """One run of a backend: its messages, its result, and what ends it."""

    messages: AsyncIterator[Message]
    result: Callable[[], Any]  # an async function
    cancel: Callable[[], None]


class Backend(Protocol):
    """Starts a run in `tasks`."""

    async def execute(self, tasks: anyio.abc.TaskGroup, prompt: str) -> Session: ...


def read(message: Message) -> Signal:
    """What one message says to the guard."""
    match message:
        case Message(type="tool_use"):
            return WorkStarted(message.call_id, message.tool)
        case Message(type="tool_result"):
            return WorkFinished(message.call_id)
        case Message(type="status", session_id=token) if token:
            return SessionOpened(token)
        case _:
            return Progress()


def status_of(ended: StreamEnded) -> Status:
    """multica's status for how a stream ended."""
    match ended.error:
        case IdleTimeoutError():
            return "idle_watchdog"
        case StreamTimeoutError():
            return "timeout"
        case _:
            return _BY_OUTCOME[ended.outcome]


@dataclass
class Config:
    """`agent_idle_watchdog`: seconds; 0 is off, as in MULTICA_AGENT_IDLE_WATCHDOG."""

    agent_idle_watchdog: float = 0.0


@dataclass
class Daemon:
    """Runs backends. `statuses` has how each run ended, in order."""

    cfg: Config = field(default_factory=Config)
    statuses: list[Status] = field(default_factory=list)

    async def execute_and_drain(
        self, backend: Backend, prompt: str, task_id: str, *, timeout: float | None = None
    ) -> Result:
        activity = Activity(task_id)
        async with anyio.create_task_group() as tasks:
            session = await backend.execute(tasks, prompt)
            guard = idle_guard(
                self.cfg.agent_idle_watchdog or None,
                total=timeout,
                disconnect=session.cancel,
                activity=activity,
                read=read,
                observer=self._note,
            )
            try:
                async with session.messages | guard as messages:
                    async for _ in messages:
                        pass
                result: Result = await session.result()
            except StreamGuardError as error:
                token = activity.token or ""
                return Result(self.statuses[-1], error=str(error), session_id=token)
            finally:
                session.cancel()
            return result

    def _note(self, event: Event) -> None:
        if isinstance(event, StreamEnded):
            self.statuses.append(status_of(event))
