"""openai's own client and classes: streams that are well, hang, break, and are gone on from."""

from __future__ import annotations

from typing import get_args

import anyio
import pytest

from streamguard import (
    Activity,
    IdleTimeoutError,
    StreamInterruptedError,
    StreamTruncatedError,
    classify,
    events,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import find
from streamguard.backends import openai as backend
from streamguard.retry import retry_after
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    WorkStarted,
)
from tests.backends.looks import said_by
from tests.loopback.script import cut, end, error, pings, reset, rest, stall, status, text, tool
from tests.loopback.server import ModelServer
from tests.real.sdks import PATIENT, WINDOW, left, run, sdk, take, together

openai = sdk("openai")

APIS = ("responses", "chat")
HELLO = text("Hel", "lo")
# Before 3.0 it lets the HTTP library's own errors through.
_BROKEN = {"APIConnectionError", "ReadError", "RemoteProtocolError"}


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture(params=APIS)
def api(request):
    return request.param


def client(server, **more):
    url = f"{server.url}/v1"
    return openai.AsyncOpenAI(api_key="dummy", base_url=url, max_retries=0, **more)


async def opened(client, api, **more):
    """A stream of that API."""
    if api == "responses":
        return await client.responses.create(model="m", input="Hi", stream=True, **more)
    messages = [{"role": "user", "content": "Hi"}]
    options = {"stream_options": {"include_usage": True}, **more}
    return await client.chat.completions.create(
        model="m", messages=messages, stream=True, **options
    )


async def guarded(server, api, operator):
    """What comes of one guarded stream."""
    async with client(server) as openai_client:
        return await take(await opened(openai_client, api) | operator)


# --- the real classes -----------------------------------------------------------------------


def parsed(event):
    """An event as the client makes it of JSON."""
    from openai._models import construct_type
    from openai.types.responses import ResponseStreamEvent

    return construct_type(type_=ResponseStreamEvent, value=event)


def response(kind, **more):
    return {"type": f"response.{kind}", "sequence_number": 1, **more}


STATE = {"id": "resp_1", "object": "response", "background": True}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress", "action": None}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": ""}


@pytest.mark.parametrize(
    ("event", "signals"),
    [
        (response("created", response=STATE), [SessionOpened("resp_1")]),
        (response("queued", response=STATE), [SessionOpened("resp_1")]),
        (response("output_text.delta", delta="hi"), [Progress()]),
        (response("output_item.added", item=CALL), [Progress()]),
        (
            response("output_item.added", item=SEARCH),
            [WorkStarted("ws_1", "web_search", "server")],
        ),
        (response("web_search_call.completed", item_id="ws_1"), [Progress()]),
        (response("mcp_call.failed", item_id="mcp_1"), [Progress()]),
        (
            response("incomplete", response={**STATE, "incomplete_details": {"reason": "x"}}),
            [TurnEnded("incomplete", "x")],
        ),
        (
            response("failed", response={**STATE, "error": {"code": "server_error"}}),
            [
                Failed("server", detail="server_error"),
                TurnEnded("error", "server_error", retriable=True),
            ],
        ),
        (
            response("completed", response={**STATE, "store": False}),
            [TurnEnded("success", "completed")],
        ),
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "try again in 3s"},
            [Failed("rate_limit", 3, "rate_limit_exceeded")],
        ),
        # The client has no classes for these and takes another: the type field counts.
        ({"type": "keepalive", "sequence_number": 1}, [Liveness()]),
        (response("gremlins"), [Progress()]),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_what_the_clients_objects_say(event, signals):
    message = parsed(event)
    assert not isinstance(message, dict)
    assert find(message).read is backend.read
    assert said_by(backend, message) == signals


def test_every_event_of_a_response_is_known_and_nothing_else():
    """S1, T10: whatever the package calls a stream's event, and no page's item."""
    from openai.types import FileObject, Model, VectorStore
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent

    streamed = [*get_args(get_args(ResponseStreamEvent)[0]), ChatCompletionChunk]
    assert len(streamed) > 50
    assert [kind.__name__ for kind in streamed if not backend.is_message(kind)] == []
    others = (FileObject, Model, VectorStore, Response)
    assert not any(backend.is_message(kind) for kind in others)


def test_the_helpers_events_end_a_turn_once(server):
    """T14: what the chat helper makes of the last chunk comes behind it."""

    async def main():
        async with client(server) as openai_client:
            messages = [{"role": "user", "content": "Hi"}]
            manager = openai_client.chat.completions.stream(model="m", messages=messages)
            async with manager as stream:
                chat = await take(stream | idle_guard(PATIENT))
            async with openai_client.responses.stream(model="m", input="Hi") as stream:
                return chat, await take(stream | idle_guard(PATIENT))

    server.script(HELLO + tool("f", {"x": 1}), HELLO)
    for got in run(main):
        assert got.error is None
        ends = [each for message in got.messages for each in said_by(backend, message)]
        assert [each.outcome for each in ends if isinstance(each, TurnEnded)] == ["success"]
        assert isinstance(ends[-1], TurnEnded) or got.types[-1] != "response.completed"


# --- streams --------------------------------------------------------------------------------


def test_a_turn_that_goes_well_is_untouched(server, api):
    async def main():
        async with client(server) as openai_client:
            bare = await take(await opened(openai_client, api))
            activity = Activity("a")
            guard = idle_guard(PATIENT, activity=activity)
            return bare, await take(await opened(openai_client, api) | guard), activity

    answer = HELLO + tool("f", {"x": 1})
    server.script(answer, answer)
    bare, got, activity = run(main)
    assert (bare.error, got.error) == (None, None)
    assert [type(m) for m in got.messages] == [type(m) for m in bare.messages]
    assert activity.usage["total_tokens"] == 11


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_hang_is_noticed_and_the_connection_closed(server, loop):
    """Comments keep every other timeout from firing, and are no work; nor is a call that we run (S4)."""
    hangs = [HELLO | stall(after=3), HELLO | pings(after=3, every=0.2)]
    for path in APIS:
        asked_tool = tool("f", {"x": 1}) | stall(after=3)
        server.script(*hangs, asked_tool, when=lambda request, path=path: path in request.path)

    async def main():
        async with client(server) as openai_client:
            streams = [await opened(openai_client, api) for api in APIS for _ in range(3)]
            return await together(*(stream | idle_guard(WINDOW) for stream in streams))

    for number, got in enumerate(run(main, loop=loop)):
        assert isinstance(got.error, IdleTimeoutError)
        assert got.error.teardown.confirmed
        assert got.error.verdict.in_flight == ()
        assert len(got.messages) == 3
        assert got.seconds >= WINDOW
        assert left(server, number)


def test_a_pull_that_the_consumer_cancelled_has_finished_the_stream(server, api):
    """T8: it would end as if it were complete."""

    async def main():
        async with client(server) as openai_client:
            messages = aiter(await opened(openai_client, api) | idle_guard(PATIENT))
            for _ in range(3):
                await anext(messages)
            with anyio.move_on_after(0.2):
                await anext(messages)
            with pytest.raises(StreamInterruptedError):
                await anext(messages)

    server.script(HELLO | stall(after=3))
    run(main)
    assert left(server)


def test_a_stream_that_ends_too_early_is_no_success(server, api):
    """T10: the client just ends."""
    server.script(HELLO | end(after=3))
    got = run(guarded, server, api, idle_guard(PATIENT))
    assert isinstance(got.error, StreamTruncatedError)
    assert (len(got.messages), classify(got.error)) == (3, "network")


@pytest.mark.parametrize("fault", [cut(after=3), reset(after=3)], ids=["FIN", "RST"])
def test_a_connection_that_breaks_is_the_clients_own_error(server, api, fault):
    """T7: it goes its way, and its class is known."""
    server.script(HELLO | fault)
    got = run(guarded, server, api, idle_guard(PATIENT))
    assert type(got.error).__name__ in _BROKEN
    assert classify(got.error) == "network"


def test_an_error_inside_of_a_chat(server):
    server.script(HELLO | error(after=2, kind="rate_limit_exceeded"))
    got = run(guarded, server, "chat", idle_guard(PATIENT))
    assert isinstance(got.error, openai.APIError)
    assert classify(got.error) == "rate_limit"


def test_a_response_that_fails_ends_its_turn_and_says_why(server):
    server.script(HELLO | error(after=4, kind="server_error"))
    seen = []
    got = run(guarded, server, "responses", idle_guard(PATIENT, observer=seen.append))
    assert (got.error, got.types[-1]) == (None, "response.failed")
    ended = [event.outcome for event in seen if isinstance(event, events.TurnOver)]
    assert ended == ["error"]


def test_a_limit_on_requests_is_classified_with_its_pause(server, api):
    """P2"""

    async def main():
        async with client(server) as openai_client:
            await opened(openai_client, api)

    server.script(status(429, retry_after=7))
    with pytest.raises(openai.RateLimitError) as refused:
        run(main)
    assert (classify(refused.value), retry_after(refused.value)) == ("rate_limit", 7)


# --- sessions -------------------------------------------------------------------------------


def numbers(got):
    return [message.sequence_number for message in got.messages]


async def talked(server, *prompts, idle=PATIENT, **create):
    """What came for each prompt of a session, and where it stands then."""
    async with client(server) as openai_client:
        conversation = backend.session(openai_client, model="m", prompt=prompts[0], **create)
        resume = reconnecting_resume(backoff=(0,))
        async with conversation | idle_guard(idle) | resume as chat:
            said = [await take(chat)]
            said += [await take(chat.ask(prompt)) for prompt in prompts[1:]]
            return said, chat.point


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_background_response_is_gone_on_from_without_loss_or_double(server, loop):
    """R6: after a hang, and after the connection that followed it has broken, too."""
    server.script(text("a", "b", "c") | stall(after=6), rest() | reset(after=1))
    [got], point = run(talked, server, "Go", idle=WINDOW, loop=loop)
    assert got.error is None
    assert numbers(got) == list(range(11))
    begun, first, second = server.requests
    assert (begun.body["background"], begun.prompt) == (True, "Go")
    assert [r.query["starting_after"] for r in (first, second)] == ["5", "6"]
    assert [r.ended for r in server.requests] == ["left", "reset", "complete"]
    assert point.token == "resp_1"


def test_a_server_that_begins_the_replay_anew_is_not_delivered_twice(server):
    """R6: `starting_after` is not known everywhere."""
    server.script(text("a", "b") | stall(after=5))

    async def main():
        async with client(server) as openai_client:
            retrieve = openai_client.responses.retrieve

            async def forgetful(id_, *, starting_after, **more):
                return await retrieve(id_, **more)

            openai_client.responses.retrieve = forgetful
            conversation = backend.session(openai_client, model="m", prompt="Go")
            async with conversation | idle_guard(WINDOW) | reconnecting_resume() as chat:
                return await take(chat)

    got = run(main)
    assert (got.error, numbers(got)) == (None, list(range(10)))


def test_the_next_prompt_goes_on_from_the_response_before(server):
    server.script(HELLO, HELLO, HELLO)
    said, _ = run(talked, server, "One", "Two", "Three")
    assert [each.error for each in said] == [None] * 3
    chained = [request.body.get("previous_response_id") for request in server.requests]
    assert chained == [None, "resp_1", "resp_2"]
    assert [request.prompt for request in server.requests] == ["One", "Two", "Three"]


def test_what_never_began_is_asked_again_behind_the_response_before(server):
    server.script(HELLO, status(503), HELLO)
    said, _ = run(talked, server, "One", "Two")
    assert [each.error for each in said] == [None] * 2
    asked = [(r.prompt, r.body.get("previous_response_id")) for r in server.requests]
    assert asked == [("One", None), ("Two", "resp_1"), ("Two", "resp_1")]


def test_a_limit_on_requests_is_waited_out(server):
    server.script(status(429, retry_after=1), HELLO)
    [got], _ = run(talked, server, "Go")
    assert got.error is None
    assert got.seconds >= 1


def test_what_ran_in_the_foreground_is_not_asked_again_once_it_has_said_something(server):
    """R3: its connection was its life."""
    server.script(HELLO | stall(after=5))
    [got], _ = run(talked, server, "Go", idle=WINDOW, background=False)
    assert isinstance(got.error, IdleTimeoutError)
    assert got.error.gave_up == "unsafe"


def test_what_ran_in_the_foreground_and_said_nothing_is_asked_again(server):
    server.script(HELLO | stall(after=2), HELLO)
    [got], _ = run(talked, server, "Go", idle=WINDOW, background=False)
    assert got.error is None
    assert [request.method for request in server.requests] == ["POST", "POST"]


def test_another_process_listens_on_to_the_response_that_is_under_way(server):
    """R1: what is kept of a session is its point."""

    async def begin():
        async with client(server) as openai_client:
            resume = reconnecting_resume(dedupe_by=lambda event: event.sequence_number)
            conversation = backend.session(openai_client, model="m", prompt="Go")
            async with conversation | idle_guard(PATIENT) | resume as chat:
                async for event in chat:
                    if event.sequence_number == 4:
                        break
                return chat.point

    async def go_on(point):
        async with client(server) as openai_client:
            conversation = backend.session(openai_client, model="m", point=point)
            async with conversation | idle_guard(PATIENT) as chat:
                return await take(chat), await take(chat.ask("And now?"))

    server.script(text("a", "b", "c") | stall(after=5), HELLO)
    point = run(begin)
    assert (point.token, point.cursor) == ("resp_1", 4)
    first, second = run(go_on, point)
    assert (first.error, second.error) == (None, None)
    assert numbers(first) == list(range(5, 11))
    assert server.requests[-1].body["previous_response_id"] == "resp_1"


def test_another_process_asks_the_next_question(server):
    async def main(point):
        async with client(server) as openai_client:
            conversation = backend.session(openai_client, model="m", prompt="Two", point=point)
            async with conversation | idle_guard(PATIENT) as chat:
                return await take(chat)

    server.script(HELLO, HELLO)
    _, point = run(talked, server, "One")
    assert run(main, point).error is None
    assert server.requests[-1].body["previous_response_id"] == "resp_1"
    assert server.requests[-1].prompt == "Two"
