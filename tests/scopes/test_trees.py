"""P4: random trees of scopes, ours and foreign, with cleanups, against the naive model."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from streamguard import DeadlineExceededError, scope
from streamguard.testing import run_virtual
from streamguard.testing.clocks import START
from tests.scopes.naive import CLEANUP, Ambiguous, Block, Cut, Foreign, Model, TimedOut, Wait
from tests.scopes.support import verdict_of
from tests.sizes import size

# Binary fractions add up exactly. Few different values, so that deadlines fall together; what is
# the loop's to choose, a foreign deadline or the end of a wait at that instant, is kept apart.
SECONDS = st.sampled_from([0.25, 0.75, 1.0, 2.5, 5.0, 7.25, 10.0, 20.0])
OF_A_WAIT = SECONDS.map(lambda seconds: seconds + 2**-7)
OF_A_FOREIGN_SCOPE = SECONDS.map(lambda seconds: seconds + 2**-12)


def blocks(children):
    items = st.lists(children, min_size=1, max_size=3).map(tuple)
    ours = st.builds(
        Block,
        name=st.just(""),
        timeout=SECONDS,
        items=items,
        cleanup=st.sampled_from([0.0, 0.0, 0.5, 3.0, CLEANUP + 5]),
        catches=st.booleans(),
    )
    return (
        ours | ours | st.builds(Foreign, name=st.just(""), timeout=OF_A_FOREIGN_SCOPE, items=items)
    )


def named(item, counter):
    """The same tree, each block with a name of its own."""
    if isinstance(item, Wait):
        return item
    name = f"{'s' if isinstance(item, Block) else 'f'}{next(counter)}"
    items = tuple(named(child, counter) for child in item.items)
    if isinstance(item, Foreign):
        return Foreign(name, item.timeout, items)
    return Block(name, item.timeout, items, item.cleanup, item.catches)


TREES = st.recursive(st.builds(Wait, OF_A_WAIT), blocks, max_leaves=12)


def expected(tree):
    model = Model(START)
    end = "done"
    try:
        model.run((tree,))
    except TimedOut:
        end = "timed out"
    except Cut:
        raise AssertionError("a cut that nobody asked for") from None
    return model.endings, model.now, end


async def perform(item, endings):
    """The same with real scopes."""
    match item:
        case Wait():
            await anyio.sleep(item.seconds)
        case Foreign():
            with anyio.move_on_after(item.timeout):
                for child in item.items:
                    await perform(child, endings)
        case Block():
            try:
                await perform_block(item, endings)
            except DeadlineExceededError as error:
                verdict = verdict_of(error)
                fired = verdict.fired.name if verdict.fired is not None else "None"
                now = anyio.current_time()
                endings.append(("timed out", item.name, now, fired, verdict.effective.name))
                if not item.catches:
                    raise
            except anyio.get_cancelled_exc_class():
                endings.append(("cut", item.name, anyio.current_time(), "", ""))
                raise
            else:
                endings.append(("done", item.name, anyio.current_time(), "", ""))


async def perform_block(block, endings):
    async with scope("tool", block.name, timeout=block.timeout) as entered:
        try:
            for child in block.items:
                await perform(child, endings)
        finally:
            if block.cleanup:
                async with entered.cleanup(CLEANUP):
                    await anyio.sleep(block.cleanup)


async def actual(tree):
    endings = []
    end = "done"
    try:
        await perform(tree, endings)
    except DeadlineExceededError:
        end = "timed out"
    now = anyio.current_time()
    await anyio.sleep(100)  # nothing is left to strike here
    return endings, now, end


def deep(*timeouts, cleanup=0.0):
    inner = Wait(100)
    for timeout in reversed(timeouts):
        inner = Block("", timeout, (inner,), cleanup)
    return inner


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@settings(max_examples=size(dev=40, ci=400), deadline=None)
@given(tree=TREES)
@example(deep(5.0, 5.0, 5.0))
@example(deep(20.0, 10.0, 5.0, cleanup=3.0))
@example(deep(10.0, 7.25, 5.0, cleanup=CLEANUP + 5))
@example(Block("", 2.5, (Wait(2.0), Block("", 5.0, (Wait(1),)), Wait(1))))
@example(Foreign("", 7.25, (Block("", 5.0, (Wait(20),), 3.0, catches=True), Wait(10))))
@example(Block("", 10.0, (Foreign("", 2.5, (Block("", 5.0, (Wait(20),), 3.0),)), Wait(20))))
def test_trees_of_scopes_end_as_the_model_says(backend, tree):
    """Which block ends how and when, who fired, who is effective; on every loop alike."""
    tree = named(tree, iter(range(1000)))
    try:
        model = expected(tree)
    except Ambiguous:
        assume(False)
    assert run_virtual(actual, tree, backend=backend) == model
