"""Push to pull: what an ACP agent pushes into its client, as one stream for each prompt.

    agent ──session/update──> Bridge ──buffer──> Turn ──pull──> you
      └─session/request_permission─> your client, between PermissionAsked and PermissionAnswered

The buffer has no bound, and cannot have one: the package's connection starts a task for each update
and reads on, so that a callback which waits for room would keep the same updates in those tasks, and
hold up the answers to other requests. What bounds it is the turn. A pull that is cancelled loses
nothing. asyncio alone, as the package itself; knows nothing of guards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from streamguard._base import quoting
from streamguard.backends._fields import fields_of
from streamguard.backends.acp.reading import permission_id
from streamguard.signals import SessionOpened, Signal, WaitEnded, Waiting

# How long an agent that does not read may hold up the word that its turn was left.
_FAREWELL: Final = 1.0


@dataclass(frozen=True)
class PermissionAsked:
    """The agent waits for a person: a message of the turn, and a wait to its guard."""

    id: str
    request: Mapping[str, Any]

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What it means to a guard."""
        return (Waiting(self.id, "human"),)


@dataclass(frozen=True)
class PermissionAnswered:
    """The person has answered, and the agent may go on."""

    id: str

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What it means to a guard."""
        return (WaitEnded(self.id),)


class Bridge:
    """Your client, for a connection whose prompts are to be iterated: give it in its place.

    What it has is called as ever, its `session_update` too if there is one. `prompt` gives the
    stream of a turn.
    """

    def __init__(self, client: object) -> None:
        self._client = client
        self._turns: dict[str, Turn] = {}
        if hasattr(client, "create_elicitation"):
            self.create_elicitation = self._elicit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def prompt(
        self,
        connection: Any,
        session_id: str,
        prompt: str | Sequence[Any],
        *,
        resumable: bool = True,
        process: Any = None,
    ) -> Turn:
        """The stream of one turn: a SessionOpened, the session's updates, and the PromptResponse.

        Args:
            connection: The `ClientSideConnection` that was given this bridge as its client.

            session_id: Of a session that it has opened or loaded.

            prompt: A text, or content blocks. It is sent when the first message is asked for.

            resumable: Whether the agent can open this session again later.

            process: The agent's process: a guard around the turn supervises it.
        """
        return Turn(self, connection, session_id, prompt, resumable=resumable, process=process)

    # -- what the connection calls -----------------------------------------------------------

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        """An update: it goes into its session's turn. One that belongs to none is your client's."""
        self._tell(session_id, update)
        if (theirs := getattr(self._client, "session_update", None)) is not None:
            await theirs(session_id=session_id, update=update, **more)

    async def request_permission(self, session_id: str, tool_call: Any, **more: Any) -> Any:
        """A request for permission: your client answers it, and the turn says that it waits."""
        client: Any = self._client
        request = {"session_id": session_id, "tool_call": tool_call, **more}
        return await self._asked(
            session_id, permission_id(tool_call), request, client.request_permission
        )

    async def _elicit(self, **request: Any) -> Any:
        client: Any = self._client
        mode = fields_of(request.get("mode"))
        session_id = str(mode.get("session_id"))
        return await self._asked(
            session_id, f"elicitation:{id(request):x}", request, client.create_elicitation
        )

    async def _asked(self, session_id: str, id_: str, request: Mapping[str, Any], ask: Any) -> Any:
        self._tell(session_id, PermissionAsked(id_, request))
        try:
            return await ask(**request)
        finally:
            self._tell(session_id, PermissionAnswered(id_))

    def _tell(self, session_id: str, message: object) -> None:
        if (turn := self._turns.get(session_id)) is not None:
            turn.put(message)

    def enter(self, session_id: str, turn: Turn) -> None:
        """From here on that session's updates are `turn`'s."""
        if session_id in self._turns:
            raise RuntimeError(
                f"session {quoting.name(session_id)} has a turn under way: iterate it to its end, or aclose() it, "
                "before the next prompt"
            )
        self._turns[session_id] = turn

    def leave(self, session_id: str, turn: Turn) -> None:
        """`turn` is over."""
        if self._turns.get(session_id) is turn:
            del self._turns[session_id]


class Turn(AsyncIterator[Any]):
    """One prompt's messages. Its end is the agent's answer, which is the last of them.

    An answer that is an error, or a connection that is closed, is raised when all that came
    before it has been taken.
    """

    def __init__(
        self,
        bridge: Bridge,
        connection: Any,
        session_id: str,
        prompt: str | Sequence[Any],
        *,
        resumable: bool,
        process: Any,
    ) -> None:
        self._bridge = bridge
        self._connection = connection
        self._session_id = session_id
        self._prompt = prompt
        self._process = process
        self._came: deque[object] = deque([SessionOpened(session_id, resumable)])
        self._news = asyncio.Event()
        self._answer: asyncio.Task[Any] | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<acp.Turn of session {self._session_id}>"

    @property
    def guarded_process(self) -> Any:
        """The agent's process, if it was given: what a guard watches, and ends on a verdict."""
        return self._process

    def put(self, message: object) -> None:
        """A message has come."""
        self._came.append(message)
        self._news.set()

    async def __anext__(self) -> Any:
        if self._answer is None and not self._is_over:
            self._bridge.enter(self._session_id, self)
            self._answer = asyncio.create_task(self._ask(), name="streamguard: an ACP prompt")
            self._answer.add_done_callback(self._answered)
        while not self._came:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._came.popleft()
        if isinstance(message, _Raised):
            raise message.error
        return message

    async def _ask(self) -> Any:
        prompt = self._prompt
        if isinstance(prompt, str):
            prompt = [acp_package().text_block(prompt)]
        return await self._connection.prompt(session_id=self._session_id, prompt=list(prompt))

    def _answered(self, answer: asyncio.Task[Any]) -> None:
        self._bridge.leave(self._session_id, self)
        error = None if answer.cancelled() else answer.exception()
        if not self._is_over and not answer.cancelled():
            self.put(answer.result() if error is None else _Raised(error))
        self._is_over = True
        self._news.set()

    async def interrupt(self) -> None:
        """Ask the agent to cancel the turn (`session/cancel`): its answer is then "cancelled"."""
        await self._connection.cancel(session_id=self._session_id)

    async def disconnect(self) -> None:
        """Close the connection; the process stays whose it is."""
        await self._connection.close()

    async def aclose(self) -> None:
        """Leave the turn. An agent that is still at it is told to stop."""
        answer, self._is_over = self._answer, True
        self._came.clear()
        self._news.set()
        if answer is None or answer.done():
            return
        try:
            # It may be gone, or closed, or deaf. What it still says must not be the next turn's.
            with suppress(Exception):
                async with asyncio.timeout(_FAREWELL):
                    await asyncio.sleep(0)  # a prompt of just now goes out before its cancellation
                    await self.interrupt()
                    await asyncio.wait({answer})
        finally:
            answer.cancel()
            self._bridge.leave(self._session_id, self)


@dataclass(frozen=True)
class _Raised:
    error: BaseException


def acp_package() -> Any:
    """The package `acp`."""
    # Not installed with us, so no checker knows it.
    return import_module("acp")
