"""`openai.session` without the SDK, in virtual time: a client that plays what a test wrote."""

import anyio
import pytest

from streamguard import (
    ConfigError,
    IdleTimeoutError,
    ResumePoint,
    StreamTruncatedError,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import openai
from tests.support import take

HANG, CUT = "hang", "cut"


class Responses:
    """What `client.responses` does: a stream for each request, as far as it was written to go."""

    def __init__(self, *ways, knows_starting_after=True):
        self.ways = list(ways)
        self.asked = []
        self.closed = 0
        self.knows_starting_after = knows_starting_after
        self._count = 0

    async def create(self, **asked):
        self._count += 1
        self.asked.append(asked)
        return Stream(self, f"resp_{self._count}", asked["background"], 0)

    async def retrieve(self, id_, *, starting_after=-1, **asked):
        self.asked.append({"id": id_, "starting_after": starting_after, **asked})
        return Stream(self, id_, True, starting_after + 1 if self.knows_starting_after else 0)


class Stream:
    def __init__(self, responses, id_, background, start):
        self._responses = responses
        self._events = self._play(id_, background, start, responses.ways.pop(0))

    async def _play(self, id_, background, start, way):
        *pieces, end = way
        state = {"id": id_, "background": background}
        events = [{"type": "response.created", "response": state}]
        events += [{"type": "response.output_text.delta", "delta": piece} for piece in pieces]
        if end not in (HANG, CUT):
            pieces = [*pieces, end]
            events.append({"type": "response.output_text.delta", "delta": end})
            events.append({"type": "response.completed", "response": state})
        for number, event in enumerate(events):
            if number >= start:
                yield {**event, "sequence_number": number}
        if end == HANG:
            await anyio.sleep_forever()

    def __aiter__(self):
        return self

    def __anext__(self):
        return self._events.__anext__()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._responses.closed += 1
        await self._events.aclose()


class Client:
    def __init__(self, *ways, **more):
        self.responses = Responses(*ways, **more)


async def talk(client, *prompts, point=None, resume=None, **create):
    conversation = openai.session(client, prompt=prompts[0], point=point, model="m", **create)
    resume = resume or reconnecting_resume(backoff=(0,))
    async with conversation | idle_guard(180) | resume as chat:
        first = await take(chat)
        return [first, *[await take(chat.ask(prompt)) for prompt in prompts[1:]]], chat.point


def numbers(taken):
    return [message["sequence_number"] for message in taken.messages]


def text(taken):
    return "".join(message.get("delta", "") for message in taken.messages)


def test_a_response_is_followed_over_as_many_connections_as_it_takes(loop):
    """R6: each event once, in order, and the response is begun once."""
    whole = ["a", "b", "c", "d"]
    client = Client([*whole[:2], HANG], [*whole[:3], CUT], whole)
    [got], _ = loop.run(talk, client, "Go")
    assert (got.error, text(got), numbers(got)) == (None, "abcd", list(range(6)))
    begun, *gone_on = client.responses.asked
    assert begun == {"input": "Go", "model": "m", "background": True, "stream": True}
    assert [each["starting_after"] for each in gone_on] == [2, 3]
    assert client.responses.closed == 3


def test_a_server_that_tells_all_of_it_again_is_seen_through(loop):
    client = Client(["a", "b", HANG], ["a", "b", "c"], knows_starting_after=False)
    [got], _ = loop.run(talk, client, "Go")
    assert (got.error, text(got), numbers(got)) == (None, "abc", list(range(5)))


def test_prompts_are_chained(loop):
    client = Client(["a"], ["b"], ["c"])
    said, point = loop.run(talk, client, "One", "Two", "Three")
    assert [text(each) for each in said] == ["a", "b", "c"]
    chained = [asked.get("previous_response_id") for asked in client.responses.asked]
    assert chained == [None, "resp_1", "resp_2"]
    assert point.token == "resp_3"


def test_a_turn_that_was_left_is_not_gone_on_with(loop):
    """The next prompt is another response, behind the last one that was whole."""
    client = Client(["a"], ["b", HANG], ["c"])

    async def main():
        conversation = openai.session(client, prompt="One", model="m")
        async with conversation | idle_guard(180) | reconnecting_resume() as chat:
            await take(chat)
            async for _ in chat.ask("Two"):
                break
            return await take(chat.ask("Three"))

    assert text(loop.run(main)) == "c"
    last = client.responses.asked[-1]
    assert (last["input"], last["previous_response_id"]) == ("Three", "resp_1")


def test_a_conversation_of_openais_has_its_history_itself(loop):
    client = Client(["a"], ["b"])
    loop.run(lambda: talk(client, "One", "Two", conversation="conv_1"))
    assert not any("previous_response_id" in asked for asked in client.responses.asked)


def test_the_first_prompt_may_have_a_response_before_it(loop):
    client = Client(["a"], ["b"])
    loop.run(lambda: talk(client, "One", "Two", previous_response_id="resp_0"))
    chained = [asked["previous_response_id"] for asked in client.responses.asked]
    assert chained == ["resp_0", "resp_1"]


async def test_a_kept_point_is_listened_on_from(loop):
    client = Client(["a", "b", "c"])
    point = ResumePoint(token="resp_7", cursor=2)
    async with openai.session(client, point=point, model="m") | idle_guard(180) as chat:
        got = await take(chat)
    assert (numbers(got), text(got)) == ([3, 4], "c")
    assert client.responses.asked[0]["id"] == "resp_7"


def test_a_kept_point_with_a_prompt_is_gone_on_behind(loop):
    client = Client(["a"])
    loop.run(lambda: talk(client, "Next", point=ResumePoint(token="resp_7", cursor=2)))
    [asked] = client.responses.asked
    assert (asked["input"], asked["previous_response_id"]) == ("Next", "resp_7")


def test_what_ran_in_the_foreground_is_over_with_its_connection(loop):
    """R3: what it has said cannot be taken back."""
    client = Client(["a", HANG])
    [got], _ = loop.run(lambda: talk(client, "Go", background=False))
    assert isinstance(got.error, IdleTimeoutError)
    assert got.error.gave_up == "unsafe"


def test_without_retries_a_cut_is_told(loop):
    client = Client(["a", CUT])

    async def main():
        async with openai.session(client, prompt="Go", model="m") | idle_guard(180) as chat:
            return await take(chat)

    assert isinstance(loop.run(main).error, StreamTruncatedError)


@pytest.mark.parametrize(
    ("client", "more", "why"),
    [
        (Client(), {"input": "x"}, r"session\(input=...\): each prompt is the input"),
        (Client(), {"stream": False}, r"session\(stream=...\)"),
        (object(), {}, "pass the client itself"),
    ],
)
def test_what_cannot_work_is_said_at_once(client, more, why):
    """T12"""
    with pytest.raises(ConfigError, match=why):
        openai.session(client, prompt="Go", **more)
