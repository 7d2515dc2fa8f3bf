"""litellm's own client and classes: streams that are well, hang, break, and claim to have ended."""

from __future__ import annotations

import anyio
import pytest

from streamguard import (
    Activity,
    IdleTimeoutError,
    StreamInterruptedError,
    StreamTruncatedError,
    classify,
    idle_guard,
)
from streamguard.backends import adapted, find
from streamguard.backends import litellm as backend
from streamguard.retry import retry_after
from streamguard.signals import TurnEnded
from tests.backends.looks import said_by
from tests.loopback.script import end, error, pings, reset, stall, status, text, tool
from tests.loopback.server import ModelServer
from tests.real.sdks import PATIENT, WINDOW, left, run, sdk, take, together

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)

HELLO = text("Hel", "lo")


@pytest.fixture(scope="module")
def litellm():
    with pytest.MonkeyPatch.context() as patch:
        for what in ("MODEL_COST_MAP", "ANTHROPIC_BETA_HEADERS", "AUTOROUTER_PRESETS"):
            patch.setenv(f"LITELLM_LOCAL_{what}", "True")  # else it asks the network for them
        yield sdk("litellm")


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture
def opened(litellm, server):
    """Opens a stream: of OpenAI's chats, or of Anthropic's messages as litellm tells them."""

    async def open_(model="openai/m", **more):
        urls = {"openai/m": f"{server.url}/v1", "anthropic/m": server.url}
        messages = [{"role": "user", "content": "Hi"}]
        return await litellm.acompletion(
            model=model,
            messages=messages,
            stream=True,
            api_key="dummy",
            base_url=urls[model],
            max_retries=0,
            **more,
        )

    return open_


@pytest.fixture(params=["openai/m", "anthropic/m"])
def model(request):
    return request.param


def finishes(got):
    return [c.finish_reason for m in got.messages for c in m.choices if c.finish_reason]


def test_a_turn_that_goes_well_is_untouched(server, opened, model):
    async def main():
        usage = {"stream_options": {"include_usage": True}}
        bare = await take(await opened(model, **usage))
        activity = Activity("a")
        guard = idle_guard(PATIENT, activity=activity)
        return bare, await take(await opened(model, **usage) | guard), activity

    answer = HELLO + tool("f", {"x": 1})
    server.script(answer, answer)
    bare, got, activity = run(main)
    assert (bare.error, got.error) == (None, None)
    deltas = [[m.choices[0].delta.content for m in each.messages] for each in (bare, got)]
    assert deltas[0] == deltas[1]
    assert finishes(got) == ["tool_calls"]
    assert {find(message).name for message in got.messages} == {"litellm"}
    assert activity.usage["total_tokens"] == 11


def test_a_hang_is_noticed_and_the_connection_closed(server, opened):
    """Its own `timeout` is 6000 s, and comments and pings keep it from firing."""
    hangs = [HELLO | stall(after=3), HELLO | pings(after=3, every=0.2)]
    for path in ("chat", "messages"):
        server.script(*hangs, when=lambda request, path=path: path in request.path)

    async def main():
        models = ["openai/m", "openai/m", "anthropic/m", "anthropic/m"]
        streams = [await opened(model) for model in models]
        return await together(*(stream | idle_guard(WINDOW) for stream in streams))

    for number, got in enumerate(run(main)):
        assert isinstance(got.error, IdleTimeoutError)
        assert got.error.teardown.confirmed
        assert got.seconds >= WINDOW
        assert finishes(got) == []
        assert left(server, number)


def test_a_stream_that_ends_too_early_is_no_success(server, opened, model):
    """T10: litellm says "stop" where its provider said nothing."""

    async def main():
        return await take(await opened(model)), await take(
            await opened(model) | idle_guard(PATIENT)
        )

    server.script(HELLO | end(after=3), HELLO | end(after=3))
    bare, got = run(main)
    assert (bare.error, finishes(bare)) == (None, ["stop"])
    assert isinstance(got.error, StreamTruncatedError)
    assert finishes(got) == []


def test_behind_a_router_a_cut_cannot_be_told(server, litellm):
    """Its streams have the state of nobody: the made-up end looks like any other."""
    params = {"model": "openai/m", "api_key": "dummy", "api_base": f"{server.url}/v1"}
    router = litellm.Router(
        model_list=[{"model_name": "m", "litellm_params": params}], num_retries=0
    )

    async def main():
        messages = [{"role": "user", "content": "Hi"}]
        stream = await router.acompletion(model="m", messages=messages, stream=True)
        return await take(stream | idle_guard(PATIENT))

    server.script(HELLO | end(after=3))
    got = run(main)
    assert (got.error, finishes(got)) == (None, ["stop"])


def test_a_pull_that_the_consumer_cancelled_does_not_complete_the_stream(server, opened):
    """T8: the next chunk would have said "stop"."""

    async def main():
        messages = aiter(await opened() | idle_guard(PATIENT))
        for _ in range(3):
            await anext(messages)
        with anyio.move_on_after(0.2):
            await anext(messages)
        with pytest.raises(StreamInterruptedError):
            await anext(messages)

    server.script(HELLO | stall(after=3))
    run(main)


def test_a_connection_that_breaks_is_litellms_own_error(server, opened, litellm):
    """T7"""

    async def main():
        return await take(await opened() | idle_guard(PATIENT))

    server.script(HELLO | reset(after=3))
    got = run(main)
    assert isinstance(got.error, litellm.exceptions.MidStreamFallbackError)
    assert classify(got.error) in {"network", "server"}


@pytest.mark.parametrize(
    ("model", "kind", "error_class"),
    [
        ("openai/m", "rate_limit_exceeded", "rate_limit"),
        ("anthropic/m", "overloaded_error", "server"),
    ],
)
def test_an_error_inside_of_a_stream(server, opened, model, kind, error_class):
    async def main():
        return await take(await opened(model) | idle_guard(PATIENT))

    server.script(HELLO | error(after=2, kind=kind))
    got = run(main)
    assert got.error is not None
    assert classify(got.error) == error_class


def test_a_limit_on_requests_is_classified_with_its_pause(server, opened, model, litellm):
    """P2"""
    server.script(status(429, retry_after=7))
    with pytest.raises(litellm.RateLimitError) as refused:
        run(opened, model)
    assert (classify(refused.value), retry_after(refused.value)) == ("rate_limit", 7)


def test_what_it_makes_of_responses(server, litellm):
    """Its events have classes, and types, of their own."""
    sdk("mcp")  # without which it speaks no responses

    async def main():
        stream = await litellm.aresponses(
            model="openai/m",
            input="Hi",
            stream=True,
            api_key="dummy",
            api_base=f"{server.url}/v1",
            max_retries=0,
        )
        return await take(stream | idle_guard(PATIENT))

    server.script(HELLO)
    got = run(main)
    assert got.error is None
    assert {find(message).name for message in got.messages} == {"litellm"}
    ends = [s for m in got.messages for s in said_by(backend, m) if isinstance(s, TurnEnded)]
    assert ends == [TurnEnded("success", "completed", answered=True)]


def test_the_streams_state_that_tells_a_made_up_end_is_there(litellm):
    """If litellm renames it, this fails before its users' cuts look complete."""
    wrapper = litellm.CustomStreamWrapper
    stream = wrapper.__new__(wrapper)
    assert adapted(stream) is not stream
