"""Sessions as users write them: the message type comes through every pipe (R1, O3)."""

# pyright: reportUnusedExpression=false
# (a pipe that must not type is not used for anything)

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, assert_type

from streamguard import (
    Activity,
    Chat,
    CircuitBreaker,
    Connection,
    IdleTimeoutError,
    Operator,
    ResumePoint,
    RetryPolicy,
    Session,
    Turn,
    idle_guard,
    keep_alive,
    reconnecting_resume,
    session,
)


class Message:
    text: str = ""


class Client:
    async def query(self, prompt: str) -> None: ...
    async def disconnect(self) -> None: ...
    async def interrupt(self) -> None: ...
    def receive(self) -> AsyncIterator[Message]:
        raise NotImplementedError


@asynccontextmanager
async def open_stream(point: ResumePoint) -> AsyncGenerator[AsyncIterator[Message]]:
    assert_type(point.token, str | None)
    assert_type(point.prompt, str | None)
    yield Client().receive()


@asynccontextmanager
async def open_client(point: ResumePoint) -> AsyncGenerator[Connection[Message]]:
    client = Client()

    async def turn(prompt: str) -> AsyncGenerator[Message]:
        await client.query(prompt)
        async for message in client.receive():
            yield message

    connection = Connection(turn, client=client, interrupt=client.interrupt, process=point.attempt)
    assert_type(connection, Connection[Message])
    yield connection


async def stream() -> AsyncGenerator[Message]:
    yield Message()


async def a_session() -> None:
    async with (
        session(open_client, prompt="Fix it.") | idle_guard(180) | reconnecting_resume() as c
    ):
        assert_type(c, Chat[Message])
        async for message in c:
            assert_type(message, Message)
        async for message in c.ask("And now?"):
            assert_type(message, Message)
        assert_type(c.ask("More"), Turn[Message])
        assert_type(c.point, ResumePoint)
        assert_type(c.activity, Activity)


async def a_session_of_a_stream() -> None:
    async with session(open_stream) | (idle_guard(180) | reconnecting_resume()) as chat:
        assert_type(chat, Chat[Message])
    async with stream() | idle_guard(180) | reconnecting_resume(open_stream) as chat:
        assert_type(chat, Chat[Message])
    async with stream() | reconnecting_resume(open_stream) | idle_guard(180) as chat:
        assert_type(chat, Chat[Message])


async def kept_alive() -> None:
    async with stream() | idle_guard(180) | keep_alive(15, lambda: b": ping\n\n") as messages:
        async for message in messages:
            assert_type(message, Message | bytes)
    assert_type(session(open_client) | keep_alive(15, str), Session[Message | str])
    assert_type(session(open_client) | idle_guard(180), Session[Message])


def the_prompt(point: ResumePoint) -> str:
    return f"Go on after {point.reason}."


def knobs(breaker: CircuitBreaker, policy: RetryPolicy) -> Operator:
    reconnecting_resume(policy=policy, breaker=breaker, prompt=the_prompt)
    reconnecting_resume(retries=3, backoff=[0, 1], max_reconnects=10, dedupe_by=id)
    reconnecting_resume(fresh_if_unknown=True, wait_for_limit=6 * 3600)
    reconnecting_resume(wait_for_limit=timedelta(hours=6))
    return reconnecting_resume(resume_after_unconfirmed_teardown=True)


def giving_up(error: IdleTimeoutError) -> None:
    assert_type(error.gave_up, str | None)
    assert_type([each.attempt for each in error.attempts], list[int])


async def errors() -> None:
    async for _ in session(open_client):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        ...
    session(Client())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session(open_client, prompt=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session(open_client) | 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    reconnecting_resume(wait_for_limit=[6])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    reconnecting_resume(prompt=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    keep_alive(15, "ping")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def anything(source: Any) -> None:
    source | reconnecting_resume()
