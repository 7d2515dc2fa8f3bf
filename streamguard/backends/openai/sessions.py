"""`openai.session`: responses that run in background, followed over as many connections as needed.

The position in a response is the number of its last event that was delivered. It moves when the
next event is asked for: a session asks for none before the one before it was taken, so what was on
its way when a connection was given up is fetched again.

The one module of this backend that knows sessions; imported when one is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from streamguard._base.calling import checked
from streamguard.backends._fields import Fields, fields_of, text_in
from streamguard.errors import ConfigError
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by

if TYPE_CHECKING:
    from streamguard.sessions.points import ResumePoint


@checked
def session(
    client: Any,
    /,
    *,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    background: bool = True,
    **create: Any,
) -> Session[Any]:
    """A conversation of responses that outlive their connection: pipe it through operators.

        chat = openai.session(client, model="gpt-5", prompt="Fix issue 7")
        async with chat | idle_guard(180) | reconnecting_resume() as messages: ...

    Each prompt is one response, chained to the one before. When its stream hangs or breaks, it is
    fetched again from the last event that was delivered: nothing is lost, said twice or begun
    anew. What has run in the foreground is asked anew, if nothing of it was delivered.

    Args:
        client: An `AsyncOpenAI`.
        prompt: What is asked first. Without one, and with `point`, the response that was under
            way there is listened to.
        point: Where an earlier session stood (`chat.point`).
        background: Whether responses run on without us. False costs the resume.
        create: All else for `client.responses.create`: `model=`, `tools=`, ...
    """
    create["background"] = background
    if not hasattr(getattr(client, "responses", None), "retrieve"):
        raise ConfigError(
            f"openai.session({client!r}): pass the client itself, an AsyncOpenAI(...), which has "
            "responses.create and responses.retrieve"
        )
    if ours := create.keys() & {"input", "stream"}:
        raise ConfigError(
            f"openai.session({', '.join(sorted(ours))}=...): each prompt is the input of one "
            "streamed response, so say prompt=, and chat.ask(...) for what follows"
        )
    conversation = _Conversation(client, create)
    if point is not None:
        conversation.take_up(point, listens=prompt is None)
    return opened_by(conversation.open, prompt=prompt, point=point)


class _Conversation:
    """Which response is under way, how far it was followed, and which one came before it."""

    def __init__(self, client: Any, create: Fields) -> None:
        self._responses = client.responses
        self._create = {**create}
        self._previous = self._create.pop("previous_response_id", None)
        self._under_way: str | None = None
        self._position: int | None = None
        self._listens = False

    def take_up(self, point: ResumePoint, *, listens: bool) -> None:
        """Go on where an earlier session has stood: with its response, or behind it."""
        if not listens:
            self._previous = point.token
            return
        self._under_way, self._listens = point.token, True
        self._position = point.cursor if isinstance(point.cursor, int) else None

    @asynccontextmanager
    async def open(self, point: ResumePoint) -> AsyncGenerator[AsyncIterable[Any], None]:
        """One connection: to the response that is under way, else to a new one."""
        if point.reason is None and not self._listens:
            self._under_way = None  # another prompt; what the one before it has left, it has left
        self._listens = False
        if self._under_way is None:
            stream = await self._begin(point)
        else:
            after = {} if self._position is None else {"starting_after": self._position}
            stream = await self._responses.retrieve(self._under_way, stream=True, **after)
        async with stream:
            yield self._followed(stream)

    async def _begin(self, point: ResumePoint) -> Any:
        self._position = None
        asked: dict[str, Any] = {**self._create, "input": point.prompt, "stream": True}
        # A `conversation` has the history itself, and the API takes only one of the two.
        if self._previous is not None and asked.get("conversation") is None:
            asked["previous_response_id"] = self._previous
        return await self._responses.create(**asked)

    async def _followed(self, stream: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
        start = self._position
        async for event in stream:
            fields = fields_of(event)
            number = fields.get("sequence_number")
            if isinstance(number, int):
                if start is not None and number <= start:
                    continue  # a server that ignores `starting_after` tells all of it again
                kind, response = fields.get("type"), fields_of(fields.get("response"))
                if kind == "response.created" and response.get("background") is True:
                    self._under_way = text_in(response.get("id"))
                elif kind == "response.completed":
                    self._previous = text_in(response.get("id"))
            yield event
            if isinstance(number, int):
                self._position = number
