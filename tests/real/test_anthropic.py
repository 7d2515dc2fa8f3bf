"""anthropic's own client and classes: raw streams and the helper's, well, hanging and broken."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from streamguard import (
    Activity,
    IdleTimeoutError,
    StreamTruncatedError,
    classify,
    idle_guard,
)
from streamguard.backends import anthropic as backend
from streamguard.backends import find
from streamguard.retry import retry_after
from streamguard.signals import Liveness, Progress, TurnEnded, Usage, WorkFinished, WorkStarted
from tests.backends.looks import said_by
from tests.loopback.script import cut, end, error, pings, reset, stall, status, text, tool
from tests.loopback.server import ModelServer
from tests.real.sdks import PATIENT, WINDOW, left, run, sdk, take, together

anthropic = sdk("anthropic")

HELLO = text("Hel", "lo")
ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
# The broken connection of a raw stream is not wrapped: it is the HTTP library's own.
_BROKEN = {"ReadError", "RemoteProtocolError"}


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


def client(server):
    return anthropic.AsyncAnthropic(api_key="dummy", base_url=server.url, max_retries=0)


async def raw(anthropic_client, operator):
    return await take(await anthropic_client.messages.create(**ASKED, stream=True) | operator)


async def helped(anthropic_client, operator):
    async with anthropic_client.messages.stream(**ASKED) as stream:
        return await take(stream | operator)


@pytest.fixture(params=[raw, helped])
def form(request):
    return request.param


async def guarded(server, form, operator):
    """What comes of one guarded stream."""
    async with client(server) as anthropic_client:
        return await form(anthropic_client, operator)


# --- the real classes -----------------------------------------------------------------------


def parsed(event):
    """An event as the client makes it of JSON."""
    from anthropic._models import construct_type
    from anthropic.types import RawMessageStreamEvent

    return construct_type(type_=RawMessageStreamEvent, value=event)


def block(kind, **more):
    what = {"type": kind, **more}
    return {"type": "content_block_start", "index": 0, "content_block": what}


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
ENDED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}


@pytest.mark.parametrize(
    ("event", "signals"),
    [
        (
            {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 3}}},
            [Usage({"input_tokens": 3}, "call", "msg_1")],
        ),
        (block("tool_use", id="toolu_1", name="f", input={}), [Progress()]),
        (
            block("server_tool_use", id="srv_1", name="web_search", input={}),
            [WorkStarted("srv_1", "web_search", "server")],
        ),
        (
            block("web_search_tool_result", tool_use_id="srv_1", content=[]),
            [WorkFinished("srv_1")],
        ),
        (
            block(
                "web_search_tool_result",
                tool_use_id="srv_1",
                content={"type": "web_search_tool_result_error", "error_code": "unavailable"},
            ),
            [WorkFinished("srv_1", error=True)],
        ),
        (
            {**ENDED, "usage": {"output_tokens": 5}},
            [Usage({"output_tokens": 5}), TurnEnded("success", "end_turn")],
        ),
        ({"type": "message_stop"}, []),
        # The client has no class for it and takes another: the type field counts.
        ({"type": "ping"}, [Liveness()]),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_what_the_clients_objects_say(event, signals):
    message = parsed(event)
    assert not isinstance(message, dict)
    assert find(message).read is backend.read
    assert said_by(backend, message) == signals


def test_every_event_of_a_message_is_known_and_nothing_else():
    """S1, T10: raw, of the helper, and of the beta; no page's item."""
    from anthropic import types
    from anthropic.lib import streaming
    from anthropic.types import beta

    named = ("MessageStreamEvent", "ParsedMessageStreamEvent", "BetaMessageStreamEvent")
    helped = [getattr(streaming, name) for name in named if hasattr(streaming, name)]
    unions = [types.RawMessageStreamEvent, beta.BetaRawMessageStreamEvent, *helped]
    streamed = [kind for union in unions for kind in get_args(get_args(union)[0])]
    kinds = [getattr(kind, "__origin__", kind) for kind in streamed]
    assert len(kinds) > 20
    assert [kind.__name__ for kind in kinds if not backend.is_message(kind)] == []
    others = (types.Message, types.ModelInfo, types.messages.MessageBatch)
    assert not any(backend.is_message(kind) for kind in others)


# --- streams --------------------------------------------------------------------------------


def test_a_turn_that_goes_well_is_untouched(server, form):
    async def main():
        async with client(server) as anthropic_client:
            bare = await form(anthropic_client, idle_guard(PATIENT, mode="off"))
            activity = Activity("a")
            return (
                bare,
                await form(anthropic_client, idle_guard(PATIENT, activity=activity)),
                activity,
            )

    answer = HELLO + tool("f", {"x": 1})
    server.script(answer, answer)
    bare, got, activity = run(main)
    assert (bare.error, got.error) == (None, None)
    assert got.types == bare.types
    assert got.types[-1] == "message_stop"
    assert activity.usage["output_tokens"] == 1


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_hang_is_noticed_and_the_connection_closed(server, loop):
    """Pings keep every other timeout from firing, and are no work; nor is a call that we run (S4)."""
    hangs = [HELLO | stall(after=3), HELLO | pings(after=3, every=0.2)]
    server.script(*hangs, tool("f", {"x": 1}) | stall(after=3))

    async def main():
        async with client(server) as anthropic_client:
            create = anthropic_client.messages.create
            streams = [await create(**ASKED, stream=True) for _ in range(3)]
            return await together(*(stream | idle_guard(WINDOW) for stream in streams))

    for number, got in enumerate(run(main, loop=loop)):
        assert isinstance(got.error, IdleTimeoutError)
        assert got.error.teardown.confirmed
        assert got.error.verdict.in_flight == ()
        assert len(got.messages) == 3
        assert got.seconds >= WINDOW
        assert left(server, number)


def test_a_hang_of_the_helper_is_noticed_and_its_connection_closed(server):
    server.script(HELLO | stall(after=3))
    got = run(guarded, server, helped, idle_guard(WINDOW))
    assert isinstance(got.error, IdleTimeoutError)
    assert got.error.teardown.confirmed
    assert left(server)


def test_a_stream_that_ends_too_early_is_no_success(server, form):
    """T10: the client just ends."""
    server.script(HELLO | end(after=3))
    got = run(guarded, server, form, idle_guard(PATIENT))
    assert isinstance(got.error, StreamTruncatedError)
    assert classify(got.error) == "network"


def test_a_stream_that_ends_behind_its_reason_to_stop_has_ended(server, form):
    """T3: only `message_stop` is missing, which says nothing."""
    server.script(HELLO | end(after=6))
    got = run(guarded, server, form, idle_guard(PATIENT))
    assert (got.error, got.types[-1]) == (None, "message_delta")


@pytest.mark.parametrize("fault", [cut(after=3), reset(after=3)], ids=["FIN", "RST"])
def test_a_connection_that_breaks_is_the_clients_own_error(server, form, fault):
    """T7: it goes its way, and its class is known."""
    server.script(HELLO | fault)
    got = run(guarded, server, form, idle_guard(PATIENT))
    assert type(got.error).__name__ in _BROKEN
    assert classify(got.error) == "network"


@pytest.mark.parametrize(
    ("kind", "error_class"),
    [("overloaded_error", "server"), ("rate_limit_error", "rate_limit")],
)
def test_an_error_inside_of_a_stream(server, form, kind, error_class):
    """P1: its status is the stream's, 200."""
    server.script(HELLO | error(after=2, kind=kind))
    got = run(guarded, server, form, idle_guard(PATIENT))
    assert isinstance(got.error, anthropic.APIStatusError)
    assert classify(got.error) == error_class


def test_a_limit_on_requests_is_classified_with_its_pause(server, form):
    """P2"""
    server.script(status(429, retry_after=7))
    with pytest.raises(anthropic.RateLimitError) as refused:
        run(guarded, server, form, idle_guard(PATIENT))
    assert (classify(refused.value), retry_after(refused.value)) == ("rate_limit", 7)


def test_pings_that_are_seen_are_no_work_either(server):
    """S0: the client's parser drops them; its raw events show them."""

    async def events(stream):
        async for sse in stream.raw_events(stream.response):
            yield json.loads(sse.data)

    async def main():
        async with client(server) as anthropic_client:
            async with await anthropic_client.messages.create(**ASKED, stream=True) as stream:
                return await take(events(stream) | idle_guard(WINDOW))

    if not hasattr(anthropic.AsyncStream, "raw_events"):
        pytest.skip("this version has no raw events")
    server.script(HELLO | pings(after=3, every=0.2))
    got = run(main)
    assert isinstance(got.error, IdleTimeoutError)
    assert [message["type"] for message in got.messages[3:5]] == ["ping", "ping"]
