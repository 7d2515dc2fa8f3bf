"""O7: nothing of a session keeps its consumer's frames, and what is in them."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    Backoff,
    IdleTimeoutError,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.signals import SessionOpened, TurnEnded
from streamguard.testing import Script, done, hang, opened, say
from tests.sessions.backend import Backend


class Local:
    """Something that a consumer has in its frame."""


async def _ends(chat):
    local = Local()
    async for _ in chat:
        pass
    return weakref.ref(local)


async def _leaves(chat):
    local, turn = Local(), aiter(chat)
    await anext(turn)
    await turn.aclose()
    async for _ in turn:
        pass
    return weakref.ref(local)


async def _fails(chat):
    local = Local()
    with pytest.raises(IdleTimeoutError):
        async for _ in chat.ask("again"):
            pass
    return weakref.ref(local)


@pytest.mark.parametrize(("consume", "ends"), [(_ends, True), (_leaves, True), (_fails, False)])
async def test_a_session_keeps_nothing_of_its_consumer(loop, consume, ends):
    """O7: whether its turn ended, was left or failed."""
    backend = Backend([Script(opened("s"), say("a"), done() if ends else hang())])
    value = session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume(retries=0)
    async with value as chat:
        kept = await consume(chat)
    del chat
    await anyio.sleep(0)
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("ends", [True, False])
async def test_a_turn_that_is_over_can_be_polled_for_ever(loop, ends):
    """O7: what each pull raises has the frames of that pull, and of no other."""
    backend = Backend([Script(opened("s"), say("a"), done() if ends else hang())])
    async with session(backend.open, prompt="go") | idle_guard(60) as chat:
        lengths = []
        for _ in range(9):
            try:
                while True:
                    await anext(aiter(chat))
            except (StopAsyncIteration, IdleTimeoutError) as error:
                lengths.append(_length(error.__traceback__))
    assert len(set(lengths[1:])) == 1


def _length(traceback):
    return 0 if traceback is None else 1 + _length(traceback.tb_next)


class LostError(ConnectionError):
    """What ends an attempt; an exception of Python's own has no weak references."""


async def test_an_attempt_keeps_nothing_of_those_before_it(loop):
    """O7: an error's traceback has its attempt, which was begun because of the error before."""
    lost, attempts = weakref.WeakSet(), itertools.count(1)

    @asynccontextmanager
    async def lose(_point):
        async def messages():
            yield SessionOpened("s")
            if next(attempts) < 20:
                lost.add(error := LostError())
                raise error
            yield TurnEnded()

        yield messages()

    policy = RetryPolicy(network=Backoff(20), max_in_a_row=20)
    guard = idle_guard(60).replace(read=lambda signal: signal)
    pipe = session(lose, prompt="go") | guard | reconnecting_resume(policy=policy)
    async with pipe as chat:
        async for _ in chat:
            pass
        gc.collect()
        assert chat.activity.attempt == 20
        assert len(lost) <= 1
