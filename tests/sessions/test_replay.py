"""R6: across reconnects no message is lost and none delivered twice, for every kind of backend."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    IdleTimeoutError,
    ResumeDivergedError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import KeysRepeated, ReplayDropped
from streamguard.sessions.replay import Replay
from streamguard.signals import SessionOpened
from streamguard.testing import Script, done, fail, hang, message, opened, say
from tests.support import Events

ALL = [f"m{i}" for i in range(8)]
LOST = ConnectionError("reset")


class Server:
    """Has said `ALL`, and plays it from `start_of(point)` on; each attempt is cut after so many."""

    def __init__(self, cuts, start_of, *, token=None, how=None):
        self.cuts = list(cuts)
        self.start_of = start_of
        self.token = token
        self.how = how or fail(LOST)
        self.points = []

    @asynccontextmanager
    async def open(self, point):
        self.points.append(point)
        start = self.start_of(self, point)
        steps = [say(text) for text in ALL[start:]]
        if self.cuts:
            steps = [*steps[: self.cuts.pop(0)], self.how]
        else:
            steps.append(done())
        yield Script(*([opened(self.token)] if self.token else []), *steps)


async def texts(chat):
    return [each.text async for each in chat if hasattr(each, "text")]


def number_of(each):
    return int(each.text[1:]) if hasattr(each, "text") else None


@pytest.mark.parametrize("cut", range(9))
@pytest.mark.parametrize("how", [fail(LOST), hang()], ids=["lost", "hung"])
async def test_a_backend_that_keeps_the_session(loop, cut, how):
    """R6: by token; it goes on where it was, and there is nothing to drop."""
    told = []

    def start_of(server, point):
        told.append(point.delivered)
        return cut if point.token else 0

    server = Server([cut], start_of, token="s", how=how)
    async with session(server.open) | idle_guard(60) | reconnecting_resume() as chat:
        assert await texts(chat) == ALL
    assert told == [0, cut + 1]  # with the session's opening


@pytest.mark.parametrize("overlap", [0, 1, 3, 100])
@pytest.mark.parametrize("cuts", [(1,), (3,), (8,), (3, 5), (2, 0, 4)])
async def test_a_backend_that_goes_on_from_a_cursor(loop, cuts, overlap):
    """R6: ints grow; what comes again is dropped, however much of it."""

    def start_of(server, point):
        return 0 if point.cursor is None else max(0, point.cursor + 1 - overlap)

    server = Server(cuts, start_of)
    resume = reconnecting_resume(dedupe_by=number_of)
    async with session(server.open) | resume as chat:
        assert await texts(chat) == ALL
    assert len(server.points) == len(cuts) + 1


@pytest.mark.parametrize("cuts", [(1,), (3,), (8,), (3, 5), (2, 7, 8), (3, 1)])
async def test_a_backend_that_plays_all_of_it_again(loop, cuts):
    """R6: by key; a run without a token, of which much was delivered, is safe to open again."""
    events = Events()
    server = Server(cuts, lambda _server, _point: 0)
    resume = reconnecting_resume(dedupe_by=lambda each: getattr(each, "text", None))
    guard = idle_guard(60, observer=events)
    async with session(server.open) | guard | resume as chat:
        assert await texts(chat) == ALL
    dropped = [event.messages for event in events.of(ReplayDropped)]
    assert dropped[0] == min(cuts[0], (*cuts, 8)[1])


@pytest.mark.parametrize("key_of", [number_of, lambda each: getattr(each, "text", None)])
async def test_control_what_nobody_drops_is_delivered_twice(loop, monkeypatch, key_of):
    """R6: a backend that plays all of it again is heard again."""
    monkeypatch.setattr(Replay, "drops", lambda *_: False)
    server = Server((3,), lambda _server, _point: 0)
    async with session(server.open) | reconnecting_resume(dedupe_by=key_of) as chat:
        assert await texts(chat) == ALL[:3] + ALL


async def test_a_replay_is_no_progress(loop):
    """R5, R6: a backend that only plays again what it had said, and hangs, is given up."""
    server = Server([4] * 9, lambda _server, _point: 0, how=hang())
    resume = reconnecting_resume(dedupe_by=lambda each: getattr(each, "text", None))
    async with session(server.open) | idle_guard(60) | resume as chat:
        got = []
        with pytest.raises(IdleTimeoutError) as caught:
            async for each in chat:
                got.append(each.text)
    assert got == ALL[:4]
    assert caught.value.gave_up == "retries"
    assert len(server.points) == 3


async def test_a_replay_that_differs(loop):
    """R6: the backend has done its work anew; that is said, and nothing is tried again."""
    attempts = []

    @asynccontextmanager
    async def open_(point):
        attempts.append(point)
        said = ["a", "b", "c"] if point.attempt == 1 else ["a", "x", "c"]
        yield Script(*map(say, said), fail(LOST))

    resume = reconnecting_resume(dedupe_by=lambda each: each.text)
    async with session(open_) | resume as chat:
        got = []
        with pytest.raises(ResumeDivergedError, match="message 2 of this turn is now 'x'"):
            async for each in chat:
                got.append(each.text)
    assert got == ["a", "b", "c"]
    assert len(attempts) == 2


async def test_a_key_that_cannot_be_told_is_the_users_error(loop):
    """R6: it comes out as it is."""
    server = Server([3], lambda _server, _point: 0)
    async with session(server.open) | reconnecting_resume(dedupe_by=lambda each: each.id) as c:
        with pytest.raises(AttributeError):
            await texts(c)


async def test_every_turn_counts_anew(loop):
    """R6: many backends number the messages of each response from 0."""

    @asynccontextmanager
    async def open_(point):
        yield Script(*map(say, ALL[:3]), done())

    async with session(open_, prompt="a") | reconnecting_resume(dedupe_by=number_of) as chat:
        assert await texts(chat) == ALL[:3]
        assert await texts(chat.ask("b")) == ALL[:3]


async def test_a_type_that_nobody_reads_is_deduplicated_too(loop):
    """R6: such messages skip the reader, and must not skip this."""

    @asynccontextmanager
    async def open_(point):
        yield Script(*(message(str(i)) for i in range(50)), *[fail(LOST)] * (point.attempt < 3))

    async with session(open_) | reconnecting_resume(dedupe_by=str) as chat:
        assert [each async for each in chat] == [str(i) for i in range(50)]


# -- the rule alone ------------------------------------------------------------------------------


@given(
    st.lists(st.text("abc", max_size=4), max_size=30, unique=True),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_keys_are_matched_in_their_order(said, cuts):
    """R6: whatever the attempts came to, nothing is lost and nothing comes twice."""
    replay = Replay(lambda each: each)
    got: list[str] = []
    for cut in [*cuts, len(said)]:
        replay.begin()
        got.extend(each for each in said[:cut] if not replay.drops(each))
    assert got == said
    assert not replay.repeats


@given(st.lists(st.text("abc", max_size=4), min_size=1, max_size=12, unique=True), st.data())
def test_a_replay_may_begin_in_the_middle(said, data):
    """R6: a backend plays the end of it again, or nothing, and goes on."""
    start = data.draw(st.integers(0, len(said)))
    replay = Replay(lambda each: each)
    replay.begin()
    assert not any(map(replay.drops, said))
    replay.begin()
    assert all(map(replay.drops, said[start:]))
    assert not replay.drops("new")
    assert not replay.repeats


def test_what_comes_in_another_order_has_diverged():
    """R6: neither dropped nor delivered in silence."""
    for again in ("ac", "bdb", "dab", "da"):
        replay = Replay(lambda each: each)
        replay.begin()
        assert not any(map(replay.drops, "abc"))
        replay.begin()
        with pytest.raises(ResumeDivergedError, match="must be unique"):
            [replay.drops(each) for each in again]


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.integers(0, 12), max_size=2))
def test_a_key_that_comes_twice_in_one_attempt_is_no_replay(said, cuts):
    """R6: nothing of that attempt is lost, and that keys repeat is known."""
    replay = Replay(lambda each: each)
    replay.begin()
    assert not any(map(replay.drops, said))
    assert replay.repeats == (len(set(said)) < len(said))


@pytest.mark.parametrize("key", [str, int], ids=["text", "cursor"])
def test_a_key_that_comes_twice_while_a_replay_is_dropped(key):
    """R6: the second one is a new message, whatever had its key before."""
    replay = Replay(key)
    replay.begin()
    assert not any(map(replay.drops, "123"))
    replay.begin()
    assert [replay.drops(each) for each in "12322"] == [True] * 3 + [False] * 2
    assert replay.repeats


def test_keys_are_told_by_what_they_are():
    """R6: not by their hashes, of which -1 and -2 have the same."""
    assert hash(-1.0) == hash(-2.0)
    replay = Replay(lambda each: each)
    replay.begin()
    assert not any(map(replay.drops, [0.5, -1.0]))
    replay.begin()
    assert [replay.drops(0.5), replay.drops(-1.0), replay.drops(-2.0)] == [True, True, False]
    assert not replay.repeats


def test_a_replay_of_very_many_takes_no_time_to_speak_of():
    """R6"""
    replay = Replay(str)
    replay.begin()
    assert not any(replay.drops(each) for each in range(50_000))
    replay.begin()
    assert all(replay.drops(each) for each in range(50_000))
    assert not replay.drops("one more")


@pytest.mark.parametrize("cut", [3, 4])
@pytest.mark.parametrize("key_of", [lambda each: each.text, lambda each: len(each.text)])
async def test_a_session_whose_keys_repeat(loop, cut, key_of):
    """R6, R3: it loses no message: once it would have to drop some, it gives up, and says why."""
    events, said = Events(), ["a", "b", "a", "b", "cc"]

    @asynccontextmanager
    async def open_(point):
        rest = said[cut:] if point.attempt > 1 else said[:cut]
        yield Script(*map(say, rest), fail(LOST) if point.attempt == 1 else done())

    resume = reconnecting_resume(
        dedupe_by=lambda each: key_of(each) if hasattr(each, "text") else None
    )
    got = []
    async with session(open_) | idle_guard(60, observer=events) | resume as chat:
        with pytest.raises(ConnectionError) as caught:
            async for each in chat:
                got += [each.text] if hasattr(each, "text") else []
    assert caught.value.gave_up == "unsafe"
    assert "one key to several messages" in caught.value.__notes__[0]
    assert len(events.of(KeysRepeated)) == 1
    assert got == said[:cut]


async def test_keys_that_repeat_are_told_of_a_run_that_ends_well_too(loop):
    """R6: before the first failure makes it matter."""
    events = Events()

    @asynccontextmanager
    async def open_(_point):
        yield Script(say("a"), say("a"), done())

    resume = reconnecting_resume(dedupe_by=lambda each: getattr(each, "text", None))
    async with session(open_) | idle_guard(60, observer=events) | resume as chat:
        assert await texts(chat) == ["a", "a"]
    [told] = events.of(KeysRepeated)
    assert told.attempt == 1


@given(st.lists(st.integers(0, 40), max_size=6))
def test_cursors_of_any_start(starts):
    """R6"""
    replay = Replay(lambda each: each)
    got: list[int] = []
    for start in [0, *starts]:
        replay.begin()
        begin = min(start, len(got))
        got.extend(each for each in range(begin, begin + 10) if not replay.drops(each))
    assert got == list(range(len(got)))


def test_what_has_no_key_is_never_dropped():
    """R6: such as the session's opening, which every attempt tells."""
    replay = Replay(lambda _each: None)
    replay.begin()
    assert not replay.drops(SessionOpened("s"))
    replay.begin()
    assert not replay.drops(SessionOpened("s"))
    assert replay.cursor is None


def test_a_replay_that_differs_as_its_stream_is_cut(loop):
    """T3, R6: that is what ends it, and not a silence, after which it would be asked once more."""
    points = []

    @asynccontextmanager
    async def open_(point):
        points.append(point)

        async def stream():
            for key in ("a", "b") if len(points) == 1 else ("a",):
                yield key
            try:
                await anyio.sleep(1000)
            except anyio.get_cancelled_exc_class():
                if len(points) > 1:
                    yield "another"
                raise

        yield stream()

    async def main():
        resume = reconnecting_resume(dedupe_by=lambda key: key)
        async with session(open_, prompt="p") | idle_guard(10) | resume as chat:
            return [key async for key in chat]

    with pytest.raises(ResumeDivergedError):
        loop.run(main)
    assert len(points) == 2
