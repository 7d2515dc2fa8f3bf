"""litellm: chunks and events, and the end that it makes up."""

import enum
from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import StreamInterruptedError, StreamTruncatedError, idle_guard, session
from streamguard.backends import adapted, find, litellm
from streamguard.signals import Progress, TurnEnded, Usage
from tests.backends.looks import Model, kind_named, said_by

Chunk = kind_named("ModelResponseStream", "litellm.types.utils", Model)


def chunk(finish=None, usage=None, **delta):
    # As litellm has them: all of a choice and of its delta, and the usage, are extras.
    said = Model({"provider_specific_fields": None}, {"content": None, "role": None, **delta})
    choice = Model({}, {"finish_reason": finish, "delta": said})
    return Chunk({"choices": [choice]}, {"usage": usage} if usage else {})


def finish_of(message):
    return message.choices[0].__pydantic_extra__["finish_reason"]


class Kinds(str, enum.Enum):  # noqa: UP042 - a StrEnum has the hash of its text
    """As litellm names its events: a str, with the hash of another."""

    COMPLETED = "response.completed"
    DELTA = "response.output_text.delta"


def test_what_chunks_say():
    counts = Model({"total_tokens": 4, "completion_tokens_details": None})
    table = [
        (chunk(role="assistant", content=""), []),
        (chunk(content="hi"), [Progress()]),
        (chunk("stop"), [TurnEnded("success", "stop")]),
        (chunk(usage=counts), [Usage({"total_tokens": 4})]),
        (
            chunk(usage=Model({"prompt_tokens": 9}, {"cache_read_input_tokens": 4})),
            # It is part of the prompt, and not on top of it.
            [Usage({"prompt_tokens": 9, "cached_tokens": 4})],
        ),
        (Model({"type": Kinds.DELTA, "delta": "hi"}), [Progress()]),
        (Model({"type": Kinds.COMPLETED}), [TurnEnded("success", "completed")]),
        (Model({"type": "gremlins"}), [Progress()]),
    ]
    assert [said_by(litellm, message) for message, _ in table] == [said for _, said in table]


@pytest.mark.parametrize("name", ["ModelResponseStream", "OutputTextDeltaEvent"])
def test_its_messages_are_known(name):
    found = find(kind_named(name, "litellm.types.utils")())
    assert (found.name, found.always_ends_turns) == ("litellm", True)


def test_its_other_classes_are_not():
    assert find(kind_named("Usage", "litellm.types.utils")()) is None


# --- the end that it makes up ---------------------------------------------------------------


class CustomStreamWrapper:
    """litellm's stream: where its provider says no end, it says one."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)
        self.received_finish_reason = self.intermittent_finish_reason = None
        self.sent_last_chunk = False
        self.closed = False
        self.hangs = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._chunks:
            said = self._chunks.pop(0)
            if finish := finish_of(said):
                self.received_finish_reason, self.sent_last_chunk = finish, True
            return said
        if self.sent_last_chunk:
            raise StopAsyncIteration
        if self.hangs:
            self.hangs = False  # the cancel of a pull finishes the stream inside
            await anyio.sleep(3600)
        self.sent_last_chunk = True
        return chunk("stop")

    async def aclose(self):
        self.closed = True


CustomStreamWrapper.__module__ = "litellm.litellm_core_utils.streaming_handler"


async def taken(stream, got):
    async for message in stream:
        got.append(finish_of(message))


def test_a_stream_that_ends_as_its_provider_said_is_untouched(loop):
    got = []
    stream = CustomStreamWrapper(chunk(content="hi"), chunk("stop"), chunk(usage={"n": 1}))
    loop.run(taken, stream | idle_guard(180), got)
    assert got == [None, "stop", None]


def test_an_end_that_was_made_up_is_a_cut(loop):
    """T10: the provider's stream broke off, and litellm says "stop"."""
    got = []
    stream = CustomStreamWrapper(chunk(content="hi"))
    with pytest.raises(StreamTruncatedError):
        loop.run(taken, stream | idle_guard(180), got)
    assert got == [None]
    assert stream.closed


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_a_guard_that_only_looks_on_takes_nothing_out(loop, mode):
    """T11"""
    got = []
    loop.run(taken, CustomStreamWrapper(chunk(content="hi")) | idle_guard(180, mode=mode), got)
    assert got == [None, "stop"]


def test_an_end_that_was_made_up_is_a_cut_in_a_session_as_well(loop):
    @asynccontextmanager
    async def opened(_point):
        yield CustomStreamWrapper(chunk(content="hi"))

    async def ask(got):
        async with session(opened, prompt="Hi") | idle_guard(180) as chat:
            await taken(chat, got)

    got = []
    with pytest.raises(StreamTruncatedError):
        loop.run(ask, got)
    assert got == [None]


async def test_after_a_pull_that_the_consumer_cancelled_the_made_up_end_is_none(loop):
    """T8: it looked complete."""
    stream = CustomStreamWrapper(chunk(content="hi"))
    stream.hangs = True
    messages = aiter(stream | idle_guard(180))
    await anext(messages)
    with anyio.move_on_after(5):
        await anext(messages)
    with pytest.raises(StreamInterruptedError):
        await anext(messages)


class OlderStream(CustomStreamWrapper):
    """litellm's, as it was for long: there is no way to close it."""

    __module__ = CustomStreamWrapper.__module__
    aclose = None

    def __init__(self, *chunks, inner=None):
        super().__init__(*chunks)
        self.completion_stream = inner


class Inner:
    """The provider's stream in it."""

    closed = 0

    async def aclose(self):
        self.closed += 1


class OpenAIs(Inner):
    """As openai has it."""

    aclose = None

    async def close(self):
        self.closed += 1


class Requests(Inner):
    aclose = None

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("inner", [Inner, OpenAIs, Requests, lambda: None])
async def test_a_stream_that_cannot_be_closed_is_closed_inside(loop, form, inner, leaves):
    """O3, O7: whichever of both has a way to be closed."""
    provider = inner()
    stream = OlderStream(chunk(content="hi"), chunk("stop"), inner=provider)
    guarded, got = stream | idle_guard(180), []
    if leaves:
        async with guarded as messages:
            got.append(finish_of(await anext(messages)))
    elif form == "bare":
        await taken(guarded, got)
    else:
        async with guarded as messages:
            await taken(messages, got)
    assert got == ([None] if leaves else [None, "stop"])
    assert provider is None or provider.closed == 1


def test_other_streams_and_other_versions_are_left_alone():
    other = kind_named("OtherStream", "litellm")()
    assert adapted(other) is other
    mine = CustomStreamWrapper()
    mine.__class__ = kind_named("CustomStreamWrapper", "mine", CustomStreamWrapper)
    assert adapted(mine) is mine
