"""R2, D5, O7: a session that several tasks ask; what one of them leaves, the others do not go on with."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from streamguard import (
    Activity,
    CircuitBreaker,
    Connection,
    idle_guard,
    live,
    reconnecting_resume,
    session,
)
from streamguard.events import AttemptEnded, AttemptStarted
from streamguard.testing import Script, done, fail, hang, opened, say, silence
from tests.sessions.backend import Backend
from tests.support import Events, Leftovers

GOOD = Script(opened("s"), say("new"), done())


async def outcome_of(turn):
    """What a task that pulls `turn` gets: texts, then how it ended."""
    got = []
    try:
        async for message in turn:
            got.append(getattr(message, "text", "end"))
    except RuntimeError as error:
        got.append(str(error).split(":")[0])
    return got


WAYS = {
    # What the first turn is waiting for when another one is asked.
    "backoff": Script(fail(ConnectionError("gone"))),
    "way": Script(opened("s"), hang()),
}


@pytest.mark.parametrize("waits_for", WAYS)
def test_a_turn_that_waits_and_is_overtaken_begins_nothing(loop, waits_for):
    """Two turns were begun at once, each in a connection of its own, and one cut the other."""

    async def closing(_point):
        await anyio.sleep(3)  # so that an attempt waits for the one before

    backend = Backend([WAYS[waits_for], Script(opened("s"), say("new"), silence(5), done())])
    backend.closing = closing
    told = Events()
    got = {}

    async def main():
        resume = reconnecting_resume()
        async with (
            session(backend.open, prompt="old") | idle_guard(60, observer=told) | resume as chat
        ):

            async def pull(name, turn):
                got[name] = (await outcome_of(turn), anyio.current_time() - begun)

            begun = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                if (
                    waits_for == "way"
                ):  # there is a connection, and the first of two waits for its end
                    first = aiter(chat)
                    await anext(first)
                    await anyio.sleep(0)
                    begun = anyio.current_time()
                    tasks.start_soon(pull, "old", chat.ask("old again"))
                else:
                    tasks.start_soon(pull, "old", aiter(chat))
                await anyio.sleep(0.5)
                if waits_for == "backoff":
                    await anyio.sleep(3)
                tasks.start_soon(pull, "new", chat.ask("new"))

    loop.run(main)
    overtaken, at = got["old"]
    assert overtaken == ["this turn was left before its end, and another prompt was asked since"]
    assert at < 4  # at once, not when its wait is over
    assert got["new"][0][-2:] == ["new", "end"]
    assert backend.prompts[-1] == "new"
    assert len(backend.points) == 2
    assert [event.attempt for event in told.of(AttemptStarted)] == [1, 2]
    assert [event.attempt for event in told.of(AttemptEnded)] == [1, 2]
    backend.check()


def test_a_block_that_is_left_while_another_task_waits_begins_nothing_more(loop):
    """The attempt began when the block was gone, and its connection stayed open for ever."""
    backend = Backend([Script(opened("s"), hang()), GOOD])

    async def closing(_point):
        await anyio.sleep(3)

    backend.closing = closing
    activity = Activity("left")
    got = []

    async def main():
        leftovers = Leftovers()
        async with anyio.create_task_group() as tasks:
            async with session(backend.open, prompt="p") | idle_guard(
                60, activity=activity
            ) as chat:
                await anext(aiter(chat))

                async def pull():
                    got.extend(await outcome_of(chat.ask("more")))

                tasks.start_soon(pull)
                await anyio.sleep(1)
        await anyio.sleep(30)
        assert activity not in live()
        leftovers.check()

    loop.run(main)
    assert got == ["the session's block was left"]
    assert len(backend.points) == 1
    backend.check()


async def test_a_backoff_ends_with_the_block(loop):
    backend = Backend([Script(fail(ConnectionError("gone")))])
    got = []
    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        resume = reconnecting_resume(backoff=(0,))
        async with session(backend.open, prompt="p") | idle_guard(60) | resume as chat:

            async def pull():
                got.extend(await outcome_of(chat))

            tasks.start_soon(pull)
            await anyio.sleep(0.5)
    assert loop.took((anyio.current_time() - begun), 0.5)
    assert got == ["the session's block was left"]
    assert len(backend.points) == 1


class SlowBreaker(CircuitBreaker):
    """One that answers when it wants to, whoever is cancelled in the meantime."""

    async def acquire(self, **knobs):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(2)
        return await super().acquire(**knobs)


async def test_a_permit_that_comes_for_a_turn_that_was_left_is_given_back(loop):
    """It would keep the probe's place until its lease is over."""
    backend = Backend([GOOD])
    breaker = SlowBreaker("b", open_after=1, pause=10, clock=anyio.current_time)
    breaker.try_acquire().failed()
    await anyio.sleep(10)
    resume = reconnecting_resume(breaker=breaker)
    async with anyio.create_task_group() as tasks:
        async with session(backend.open, prompt="p") | idle_guard(60) | resume as chat:
            tasks.start_soon(outcome_of, aiter(chat))
            await anyio.sleep(1)
    breaker.try_acquire().released()  # it refuses if there is a probe
    assert not backend.points


def test_a_turn_that_was_overtaken_brings_nothing_more(loop):
    """What its stream says when it is cut came after the error."""

    @asynccontextmanager
    async def open_(_point):
        async def stream():
            try:
                yield "a"
                await anyio.sleep(1000)
            except anyio.get_cancelled_exc_class():
                yield "flushed"
                raise

        yield stream()

    async def main():
        async with session(open_, prompt="p") | idle_guard(60) as chat:
            turn = aiter(chat)
            await anext(turn)
            got = []
            async with anyio.create_task_group() as tasks:

                async def pull():
                    for _ in range(3):
                        got.extend(await outcome_of(turn))
                        await anyio.sleep(1)

                tasks.start_soon(pull)
                await anyio.sleep(1)
                await anext(chat.ask("more"))
            return got

    assert set(loop.run(main)) == {
        "this turn was left before its end, and another prompt was asked since"
    }


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_prompt_that_comes_as_the_turn_before_it_ends(loop, asks_first):
    """They waited at one slot: the one that was over switched the other's asking off, for ever."""

    @asynccontextmanager
    async def open_(_point):
        async def turn(prompt):
            yield f"{prompt} begins"
            await anyio.sleep(2)
            yield f"{prompt} goes on"

        yield Connection(turn)

    async def main(passes):
        got = {"first": [], "more": []}
        async with session(open_, prompt="first") | idle_guard(60) as chat:

            async def pull(name, turn):
                try:
                    async for message in turn:
                        got[name].append(message)
                        if message == "first goes on" and not asks_first:
                            again.set()
                except RuntimeError as error:
                    got[name].append(str(error).split(",")[0])

            async def ask():
                if asks_first:
                    await anyio.sleep(2)
                else:
                    await again.wait()
                for _ in range(passes):
                    await anyio.lowlevel.checkpoint()
                await pull("more", chat.ask("more"))

            again = anyio.Event()
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask)
                    tasks.start_soon(pull, "first", aiter(chat))
        return got

    for passes in range(20):
        got = loop.run(main, passes)
        assert got["more"] == ["more begins", "more goes on"]
        assert set(got["first"]) <= {
            "first begins",
            "first goes on",
            "this turn was left before its end",
        }
