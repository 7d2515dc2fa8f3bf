"""google-genai itself, against a model server that misbehaves by script; in real time."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("google.genai", exc_type=ImportError)

from google import genai
from google.genai import errors, types

from streamguard import IdleTimeoutError, StreamTruncatedError, idle_guard
from streamguard.backends import find, google_genai
from streamguard.events import UnknownMessage
from streamguard.retry import ErrorClass, classify, retry_after
from tests.loopback.script import BEFORE_HEADERS, cut, end, error, reset, stall, status, text, tool
from tests.loopback.server import ModelServer
from tests.support import Events, take

IDLE = 2.0
LOOK = types.FunctionDeclaration(name="look", description="Look.")


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


def ask(server, guard, form="bare", **config):
    """One streamed answer, guarded, from a client of its own."""

    async def main():
        options = types.HttpOptions(base_url=server.url)
        client = genai.Client(api_key="none", http_options=options).aio
        async with client:
            stream = await client.models.generate_content_stream(
                model="gemini-x", contents="hi", config=types.GenerateContentConfig(**config)
            )
            return await take(stream | guard, form)

    return asyncio.run(main())


def told(server):
    server.until(lambda: server.requests[-1].ended)
    return server.requests[-1].ended


def test_a_normal_answer_is_untouched(server, form):
    server.script(text("it ", "is ", "sunny"))
    noticed = Events()
    taken = ask(server, idle_guard(60, observer=noticed), form)
    assert taken.error is None
    assert "".join(chunk.text for chunk in taken.messages) == "it is sunny"
    assert {find(chunk).name for chunk in taken.messages} == {"google_genai"}
    assert not noticed.of(UnknownMessage)


@pytest.mark.parametrize("after", [BEFORE_HEADERS, 2])
def test_a_server_that_falls_silent(server, after):
    """T2: the SDK itself has no limit at all."""
    server.script(text("it ", "is ", "sunny") | stall(after))
    taken = ask(server, idle_guard(IDLE))
    assert type(taken.error) is IdleTimeoutError
    assert IDLE <= taken.elapsed < 30
    assert taken.error.teardown.confirmed
    assert told(server) == "left"  # the request was closed with the stream


@pytest.mark.parametrize("fault", [end(after=2), cut(after=2)], ids=["end", "cut"])
def test_an_answer_that_is_cut_does_not_look_whole(server, fault, form):
    """T10: to the SDK it is a normal end."""
    server.script(text("it ", "is ", "sunny") | fault)
    taken = ask(server, idle_guard(60), form)
    assert len(taken.messages) == 2
    if isinstance(taken.error, StreamTruncatedError):
        assert taken.error.teardown.confirmed
    else:  # the connection's own error says it as well
        assert classify(taken.error) is ErrorClass.NETWORK


def test_a_connection_that_is_reset(server):
    """T7: the error is the transport's, and a network's."""
    server.script(text("it ", "is ", "sunny") | reset(after=2))
    taken = ask(server, idle_guard(60))
    assert classify(taken.error) is ErrorClass.NETWORK


def test_an_error_within_the_stream(server):
    server.script(text("it ", "is ") | error(after=1, kind="UNAVAILABLE"))
    taken = ask(server, idle_guard(60))
    assert isinstance(taken.error, errors.APIError)
    assert classify(taken.error) is ErrorClass.SERVER


def test_a_rate_limit_says_how_long(server):
    server.script(status(429, retry_after=7))
    taken = ask(server, idle_guard(60))
    assert isinstance(taken.error, errors.ClientError)
    assert classify(taken.error) is ErrorClass.RATE_LIMIT
    assert retry_after(taken.error) == 7


def test_a_call_that_the_caller_runs_holds_nothing_open(server):
    """S4: the stream ends with it."""
    server.script(text("I will look. ") + tool("look", {}))
    config = {"tools": [types.Tool(function_declarations=[LOOK])]}
    taken = ask(server, idle_guard(60), **config)
    assert taken.error is None
    assert taken.messages[-1].function_calls[0].name == "look"


def test_functions_that_the_sdk_calls_itself(server):
    """The answer after them is one stream with the one before, and its silence is a silence."""

    def look() -> str:
        """Look."""
        return "sunny"

    server.script(tool("look", {}), text("it ", "is ") | stall(after=0))
    guard = idle_guard(8, read=google_genai.read_automatic_functions)
    taken = ask(server, guard, tools=[look])
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.verdict.messages == 1
    assert len(server.requests) == 2
