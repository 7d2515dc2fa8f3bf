"""Awaitables stepped by hand: what they come to, where they wait, what is thrown into them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import coroutine
from typing import Any

import pytest

from streamguard._loops import Parking, Steps, by_hand, steps_of, taken
from streamguard._loops._asyncio import AsyncioParking


@coroutine
def trap(value: str) -> Generator[str, Any, Any]:
    """Suspend with `value`, as a future does with itself."""
    return (yield value)


async def ready() -> str:
    return "ready"


async def waits(*traps: str) -> list[Any]:
    return [await trap(each) for each in traps]


class Waiting:
    """An awaitable whose `__await__` gives a bare iterator: no send, no throw."""

    def __init__(self, *traps: str) -> None:
        self._traps = traps

    def __await__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self._traps)


def never() -> Parking:
    raise AssertionError("it should not have waited")


class Place(AsyncioParking):
    """A parking that notes when it is used."""

    def __init__(self) -> None:
        loop = asyncio.new_event_loop()
        super().__init__(loop)
        loop.close()
        self.seen: list[str] = []

    def park(self) -> None:
        super().park()
        self.seen.append("park")

    def unpark(self) -> None:
        if self._waits:
            self.seen.append("unpark")
        super().unpark()


def by_loop(awaitable: Any) -> tuple[list[Any], Any]:
    """Run `awaitable` as a loop does: the traps, each answered with itself, and the result."""
    traps: list[Any] = []
    steps, sent = steps_of(awaitable), None
    try:
        while True:
            sent = steps.send(sent)
            traps.append(sent)
    except StopIteration as stop:
        return traps, stop.value


# -- taken ---------------------------------------------------------------------------------------


def test_what_is_ready_is_taken_without_a_word():
    """T1: nobody is kept waiting, so nobody is told."""
    assert by_loop(taken(steps_of(ready()), never)) == ([], "ready")


def test_what_waits_is_handed_over_with_its_trap():
    """T1: where the steps have suspended, with the rest still to come."""
    place = Place()
    traps, answers = by_loop(taken(steps_of(waits("first", "second", "third")), lambda: place))
    assert traps == answers == ["first", "second", "third"]
    assert place.seen == ["park", "unpark"] * 3


def test_a_failure_before_anything_waits_is_the_steps_own():
    """T7: as `await` would raise it."""

    async def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        by_loop(taken(steps_of(fails()), never))


def test_an_async_generator_s_steps_are_what_it_gives():
    """O3: the most common source, without a detour."""

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await trap("wait")
        yield 2

    source = numbers()
    assert by_loop(taken(anext(source), never)) == ([], 1)  # type: ignore[arg-type]
    assert by_loop(taken(anext(source), Place)) == (["wait"], 2)  # type: ignore[arg-type]
    with pytest.raises(StopAsyncIteration):
        by_loop(taken(anext(source), never))  # type: ignore[arg-type]


# -- by_hand -------------------------------------------------------------------------------------


def test_by_hand_makes_a_coroutine_function():
    """T9: what `asyncio.create_task` and a task group take."""

    kept = 100

    @by_hand
    def example(first: int, second: int = 20, *, third: int = 3) -> Generator[Any, Any, int]:
        """Adds."""
        yield from asyncio.sleep(0).__await__()
        return kept + first + second + third

    assert inspect.iscoroutinefunction(example)
    assert (example.__name__, example.__doc__) == ("example", "Adds.")
    assert asyncio.run(example(0)) == 123
    assert asyncio.run(example(1, 2, third=4)) == 107


def test_a_coroutine_made_by_hand_that_is_forgotten_is_told_of():
    """T9: it is a coroutine in this, too."""

    @by_hand
    def example() -> Generator[Any, Any, None]:
        yield

    with pytest.warns(RuntimeWarning, match="never awaited"):
        example()


# -- steps_of ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: waits("a"), lambda: trap("a"), lambda: Waiting("a")],
    ids=["async", "yield", "bare"],
)
def test_steps_can_be_sent_and_thrown_into_whatever_they_are(make: Callable[[], Awaitable[Any]]):
    """T9: a cancel is thrown into what waits."""
    steps = steps_of(make())
    assert steps.send(None) == "a"
    with pytest.raises(KeyError):
        steps.throw(KeyError())
    steps = steps_of(make())
    assert steps.send(None) == "a"
    steps.close()


# -- what waits ----------------------------------------------------------------------------------


def carried_on(awaitable: Any) -> tuple[Steps, Place]:
    """`awaitable`, to be stepped as a loop does, and where it waits."""
    place = Place()
    return taken(steps_of(awaitable), lambda: place).__await__(), place


def test_what_is_thrown_at_the_first_wait_reaches_the_steps():
    """T9: a future that failed, and a cancel, come as a throw."""
    caught: list[str] = []

    async def catches() -> str:
        for each in ("first", "second"):
            try:
                await trap(each)
            except KeyError as error:
                caught.append(f"{each} {error}")
        return "done"

    steps, place = carried_on(catches())
    assert steps.send(None) == "first"
    assert steps.throw(KeyError("a")) == "second"  # caught, and waits on
    with pytest.raises(StopIteration) as stopped:
        steps.throw(KeyError("b"))
    assert stopped.value.value == "done"
    assert caught == ["first 'a'", "second 'b'"]
    assert place.seen == ["park", "unpark"] * 2


def test_what_the_steps_make_of_a_throw_comes_out():
    """T7: unrenamed."""

    async def renames() -> None:
        try:
            await trap("a")
        except KeyError:
            raise ValueError("renamed") from None

    steps, place = carried_on(renames())
    steps.send(None)
    with pytest.raises(ValueError, match="renamed"):
        steps.throw(KeyError())
    assert place.seen == ["park", "unpark"]


def test_closing_a_wait_closes_the_steps():
    """O7: also at the first one, which is not the steps' own to give."""
    closed: list[str] = []

    async def tidies() -> None:
        try:
            await trap("a")
            await trap("b")
        finally:
            closed.append("closed")

    for passes in (1, 2):
        steps, place = carried_on(tidies())
        for _ in range(passes):
            steps.send(None)
        steps.close()
        assert place.seen == [
            "park",
            "unpark",
        ]  # asyncio's, which says nothing: all of it is one wait
    assert closed == ["closed", "closed"]
