"""Each misbehaviour shows exactly the harm it is named after, and heals when it should."""

from __future__ import annotations

import asyncio
import functools
import gc

import anyio
import pytest

from streamguard.testing import (
    Channel,
    DeadlockError,
    Script,
    Tap,
    clocks,
    fail,
    hang,
    holds_scope,
    holds_task_group,
    own_fail_after,
    relayed,
    run_virtual,
    say,
    silence,
    slow_cleanup,
    swallows_cancel,
)
from streamguard.testing.messages import Said

X, Y = Said("x"), Said("y")
SIMPLE = Script(say("x"), silence(10), say("y"))
RELAYS = ["create_task", "gather", "shield", "wait", "wait_for"]
RUNS = {
    "asyncio": run_virtual,
    "uvloop": functools.partial(run_virtual, backend="uvloop"),
    "trio": functools.partial(run_virtual, backend="trio"),
}


@pytest.fixture(params=RUNS)
def run(request):
    """Runs an async function everywhere, in virtual time."""
    return RUNS[request.param]


async def collect(source):
    return [message async for message in source]


async def pull_cancelled(iterator, after=0.01):
    """Cancel a pull; give what it yields all the same, or None."""
    with anyio.move_on_after(after):
        return await anext(iterator)
    return None


WRAPPERS = {
    "swallows_cancel": swallows_cancel,
    "slow_cleanup": lambda source: slow_cleanup(source, 0.01),
    "holds_task_group": holds_task_group,
    "holds_scope": holds_scope,
    "own_fail_after": lambda source: own_fail_after(source, 60),
    "relayed": lambda source: relayed(source, "task_group"),
    "Tap": Tap,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_undisturbed_every_source_passes_on_what_it_wraps_again_and_again(run, wrap):
    source = wrap(Script(say("x"), silence(0.01), say("y")))

    async def main():
        return await collect(source), await collect(source)

    assert run(main) == ([X, Y], [X, Y])


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_failure_inside_comes_out(run, wrap):
    source = wrap(Script(say("x"), fail(LookupError("gone"))))

    async def main():
        seen = []
        try:
            async for message in source:
                seen.append(message)
        except* LookupError:
            seen.append("failed")
        return seen

    assert run(main) == [X, "failed"]


def test_a_deaf_source_hangs_on_until_released(run):
    source = swallows_cancel(Script(say("x"), hang()))
    freed = []

    async def main():
        async with anyio.create_task_group() as tg:
            iterator = aiter(source)
            await anext(iterator)

            async def pull():
                with anyio.move_on_after(0.01):
                    with pytest.raises(StopAsyncIteration):
                        await anext(iterator)
                    freed.append(True)

            tg.start_soon(pull)
            await anyio.sleep(0.1)
            assert freed == []
            source.release()

    run(main)
    assert freed == [True]
    assert source.cancels == 1


def test_a_deaf_source_is_deaf_to_raw_cancels_as_well():
    source = swallows_cancel(Script(hang()))

    async def main():
        task = asyncio.create_task(collect(source))
        for _ in range(3):
            await asyncio.sleep(1)
            task.cancel()
        await asyncio.sleep(1)
        assert not task.done()
        source.release()
        return await task

    assert run_virtual(main) == []
    assert source.cancels == 3


@pytest.mark.parametrize(("then", "last"), [("yield", Said("z")), ("end", None)])
def test_a_swallowed_cancel_can_yield_or_end(run, then, last):
    source = swallows_cancel(Script(say("x"), hang()), then, message=Said("z"))

    async def main():
        iterator = aiter(source)
        await anext(iterator)
        with anyio.move_on_after(0.01) as scope:
            if last is None:
                with pytest.raises(StopAsyncIteration):
                    await anext(iterator)
            else:
                assert await anext(iterator) == last
        assert scope.cancel_called
        assert not scope.cancelled_caught
        assert await collect(iterator) == []

    run(main)
    assert source.cancels == 1


@pytest.mark.parametrize("shielded", [True, False])
def test_cleanup_is_slow_and_a_shield_keeps_it_whole(run, shielded):
    source = slow_cleanup(Script(say("x"), hang()), 0.5, shielded=shielded)

    async def main():
        began = anyio.current_time()
        with anyio.move_on_after(0.01):
            await collect(source)
        return anyio.current_time() - began > 0.49

    assert run(main) is shielded


def test_closing_waits_for_the_slow_cleanup(run):
    async def main():
        iterator = aiter(slow_cleanup(Script(say("x"), hang()), 0.0625))
        await anext(iterator)
        began = anyio.current_time()
        await iterator.aclose()
        return anyio.current_time() - began

    assert run(main) > 0.06


@pytest.mark.parametrize("holds", [holds_task_group, holds_scope])
def test_a_scope_around_one_pull_breaks_what_holds_a_scope_open(holds):
    """What these are for: the naive per-pull timeout dies of them."""

    async def main():
        iterator = aiter(holds(Script(say("x"), hang())))
        with anyio.fail_after(5):
            await anext(iterator)

    with pytest.raises(RuntimeError, match="cancel scope"):
        run_virtual(main)


def test_a_held_task_group_has_a_living_child():
    async def main():
        iterator = aiter(holds_task_group(Script(say("x"))))
        await anext(iterator)
        during = len(asyncio.all_tasks())
        await collect(iterator)
        return during, len(asyncio.all_tasks())

    assert run_virtual(main) == (2, 1)


@pytest.mark.parametrize("holds", [holds_task_group, holds_scope])
def test_what_holds_a_scope_can_be_cancelled_as_a_whole(run, holds):
    async def main():
        seen = []
        with anyio.move_on_after(0.05):
            async for message in holds(Script(say("x"), hang())):
                seen.append(message)
        return seen

    assert run(main) == [X]


def test_a_held_scope_can_have_a_limit_of_its_own(run):
    async def main():
        with pytest.raises(TimeoutError):
            await collect(holds_scope(Script(say("x"), hang()), 0.01))

    run(main)


def test_its_own_timeout_comes_from_inside_the_pull(run):
    async def main():
        iterator = aiter(own_fail_after(Script(say("x"), hang()), 0.01))
        with anyio.fail_after(30) as outer:
            assert await anext(iterator) == X
            with pytest.raises(TimeoutError):
                await anext(iterator)
        return outer.cancel_called

    assert run(main) is False


@pytest.mark.parametrize("through", RELAYS)
def test_a_relay_pulls_in_other_tasks_and_passes_on_everything(through):
    tap = Tap(SIMPLE)

    async def main():
        own = anyio.get_current_task().id
        return await collect(relayed(tap, through)), own

    seen, own = run_virtual(main)
    assert seen == [X, Y]
    assert tap.ended
    # From 3.12 on, wait_for awaits in the caller's task.
    assert own not in tap.pulled_in or through == "wait_for"


@pytest.mark.parametrize("through", RELAYS)
def test_a_relay_passes_on_a_failure_and_then_goes_on_to_the_end(through):
    async def main():
        iterator = aiter(relayed(Script(fail(LookupError("gone"))), through))
        with pytest.raises(LookupError):
            await anext(iterator)
        return await collect(iterator)

    assert run_virtual(main) == []


@pytest.mark.parametrize("through", RELAYS)
def test_a_cancelled_relay_ends_its_pull_or_keeps_it(through):
    async def main():
        iterator = aiter(relayed(SIMPLE, through))
        await anext(iterator)
        assert await pull_cancelled(iterator, after=1) is None
        return await collect(iterator)

    assert run_virtual(main) == ([Y] if through in {"shield", "wait"} else [])


@pytest.mark.parametrize("through", RELAYS)
def test_closing_a_relay_leaves_no_task(through):
    tap = Tap(SIMPLE)

    async def main():
        iterator = aiter(relayed(tap, through))
        await anext(iterator)
        await pull_cancelled(iterator, after=1)
        await iterator.aclose()
        return len(asyncio.all_tasks())

    assert run_virtual(main) == 1
    assert tap.closed == 1


def test_a_channel_loses_nothing_to_a_cancelled_pull(run):
    async def main():
        channel = Channel(Script(say("x"), silence(0.05), say("y")))
        assert await anext(channel) == X
        assert await pull_cancelled(channel) is None
        return await collect(channel)

    assert run(main) == [Y]


def test_a_channel_ends_normally_when_told_and_delivers_what_has_arrived(run):
    async def main():
        channel = Channel(Script(say("x"), say("y"), hang()))
        channel.start()
        await anyio.sleep(0.01)
        channel.end()
        return await collect(channel), await collect(channel)

    assert run(main) == ([X, Y], [])


def test_a_channel_can_be_ended_before_it_began(run):
    tap = Tap(Script(say("x")))

    async def main():
        channel = Channel(tap)
        channel.end()
        return await collect(channel)

    assert run(main) == []
    assert tap.pulls == 0


def test_a_channel_passes_a_failure_on_once(run):
    async def main():
        channel = Channel(Script(say("x"), fail(LookupError("gone"))))
        assert await anext(channel) == X
        with pytest.raises(LookupError):
            await anext(channel)
        return await collect(channel)

    assert run(main) == []


def test_a_closed_channel_stops_its_source(run):
    tap = Tap(Script(say("x"), hang()))

    async def main():
        channel = Channel(tap)
        await anext(channel)
        await channel.aclose()
        await anyio.sleep(0.01)
        return await collect(channel)

    assert run(main) == []
    assert tap.closed == 1


def test_a_channel_holds_back_a_source_that_runs_too_far_ahead(run):
    tap = Tap(Script(*[say("x")] * 10))

    async def main():
        channel = Channel(tap, buffer=2)
        await anext(channel)
        await anyio.sleep(0.01)
        ahead = len(tap.delivered)
        return ahead, len(await collect(channel))

    ahead, rest = run(main)
    assert ahead <= 1 + 2 + 1
    assert rest == 9


def test_another_script_can_take_a_channel_over(run):
    async def main():
        channel = Channel(Script(say("x"), hang()))
        assert await anext(channel) == X
        channel.play_instead(Script(say("y")))
        return await collect(channel)

    assert run(main) == [Y]


def test_nothing_takes_over_a_channel_that_has_ended(run):
    async def main():
        channel = Channel(Script(say("x")))
        seen = await collect(channel)
        channel.play_instead(Script(say("y")))
        return seen, await collect(channel)

    assert run(main) == ([X], [])


def test_a_channel_that_is_just_dropped_is_silent(run):
    async def main():
        channel = Channel(Script(say("x"), say("y")))
        await anext(channel)
        del channel
        Channel(Script(say("x")))
        await anyio.sleep(0.01)

    run(main)  # warnings are errors


def test_a_player_outlives_the_channel_that_was_dropped(caplog):
    async def main():
        channel = Channel(Script(say("x"), hang()))
        await anext(channel)
        del channel
        await asyncio.sleep(1)
        gc.collect()
        return [task.get_name() for task in asyncio.all_tasks()]

    assert "testing.Channel" in run_virtual(main)
    assert "destroyed" not in caplog.text


def test_a_tap_sees_what_is_done_to_a_source(run):
    tap = Tap(Script(say("x"), silence(30)))

    async def main():
        iterator = aiter(tap)
        await anext(iterator)
        await pull_cancelled(iterator)
        await iterator.aclose()
        return {anyio.get_current_task().id}

    here = run(main)
    assert (tap.pulls, tap.cancelled, tap.closed, tap.ended) == (2, 1, 1, False)
    assert tap.delivered == [X]
    assert tap.pulled_in == tap.closed_in == here


def test_a_deaf_source_that_nobody_releases_is_a_deadlock_not_a_hang(monkeypatch):
    monkeypatch.setattr(clocks, "UNANNOUNCED_THREADS", 0.05)
    source = swallows_cancel(Script(hang()))

    async def main():
        with anyio.move_on_after(5):
            await collect(source)

    with pytest.raises(DeadlockError, match=r"collect|main"):
        run_virtual(main)
