"""6.3: cleanup after the fire has its own budget, and what overruns is the sum of the cleanups."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import anyio
import pytest

from streamguard import ConfigError, DeadlineExceededError, scope
from streamguard.events import CleanupCut, ScopeTimedOut
from streamguard.limits import CLEANUP, current, path, remaining
from streamguard.testing import run_virtual
from tests.conftest import Loop
from tests.scopes.support import names, witnessed


async def test_cleanup_after_the_fire_has_time(loop: Loop):
    started, cleaned = anyio.current_time(), []
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", timeout=60) as step:
            try:
                await anyio.sleep(1000)
            finally:
                async with step.cleanup(30) as cleanup:
                    await anyio.sleep(20)
                    cleaned.append(True)
                assert not cleanup.was_cut
    assert cleaned
    assert loop.took(anyio.current_time() - started, 80)
    assert names(raised.value) == ("step", "step", "step")
    assert [type(event) for event in told] == [ScopeTimedOut]


async def test_a_cleanup_that_takes_too_long_is_cut_and_told(loop: Loop):
    """ "On overrun abandon, emit cleanup_timeout": the verdict stays what it was."""
    started = anyio.current_time()
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", "build", timeout=60) as step:
            try:
                await anyio.sleep(1000)
            finally:
                async with step.cleanup(30) as cleanup:
                    await anyio.sleep(1000)
                assert cleanup.was_cut
    assert loop.took(anyio.current_time() - started, 90)
    assert names(raised.value) == ("step 'build'",) * 3
    cut, timed_out = told
    assert isinstance(cut, CleanupCut)
    assert (cut.verdict.limit, cut.verdict.window) == ("cleanup", 30)
    assert str(cut.verdict.reason).startswith("step 'build' > cleanup was not done in")
    assert isinstance(timed_out, ScopeTimedOut)


async def test_by_default_there_are_ten_seconds(loop: Loop):
    async with scope("tool") as tool:
        async with tool.cleanup() as cleanup:
            assert cleanup.timeout == cleanup.remaining() == CLEANUP == 10
            assert (cleanup.kind, cleanup.spec) == ("cleanup", None)


async def test_every_scope_has_its_cleanup(loop: Loop):
    """Overrun is the sum of what the cleanups may take, from the inside out."""
    started = anyio.current_time()

    async def nested(*kinds):
        async with scope(kinds[0], timeout=60) as entered:
            try:
                if kinds[1:]:
                    await nested(*kinds[1:])
                await anyio.sleep(1000)
            finally:
                async with entered.cleanup(10):
                    await anyio.sleep(1000)

    with pytest.raises(DeadlineExceededError) as raised:
        await nested("flow", "step", "llm_call")
    assert loop.took(anyio.current_time() - started, 90)
    assert names(raised.value) == ("llm_call", "flow", "flow > step > llm_call")


async def test_a_cleanup_is_shielded_from_foreign_scopes(loop: Loop):
    with anyio.move_on_after(30):
        async with scope("tool", timeout=60) as tool:
            try:
                await anyio.sleep(1000)
            finally:
                async with tool.cleanup(10) as cleanup:
                    await anyio.sleep(5)
                assert not cleanup.was_cut


async def test_within_a_cleanup_scopes_have_its_time_and_not_the_spent_one(loop: Loop):
    """Also less than what is otherwise needed to begin: it is now or never."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", "build", timeout=60) as step:
            try:
                await anyio.sleep(1000)
            finally:
                async with step.cleanup(10) as cleanup:
                    async with scope("tool", "git", timeout=300):
                        assert 9 < remaining() <= 10
                        assert " > ".join(map(str, path())) == (
                            "step 'build' > cleanup > tool 'git'"
                        )
                        await anyio.sleep(9.5)
                    async with scope("flow", "a whole one", timeout=300):
                        await anyio.sleep(1000)
                assert cleanup.was_cut
    assert names(raised.value) == ("step 'build'",) * 3


async def test_a_limit_of_its_own_within_a_cleanup(loop: Loop):
    async with scope("step", timeout=60) as step:
        async with step.cleanup(30) as cleanup:
            with pytest.raises(DeadlineExceededError) as raised:
                async with scope("tool", timeout=10):
                    await anyio.sleep(1000)
        assert names(raised.value) == ("tool", "tool", "step > cleanup > tool")
        assert not cleanup.was_cut


def test_bare_tasks_in_a_cleanup_that_is_cut():
    """What a scope inside of it says of the cleanup's time is the cleanup's to swallow."""

    async def main():
        async def tool():
            async with scope("tool", timeout=300):
                await asyncio.sleep(1000)

        with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
            async with scope("step", timeout=60) as step:
                try:
                    await asyncio.sleep(1000)
                finally:
                    async with step.cleanup(10) as cleanup:
                        await asyncio.gather(tool(), tool())
                    assert cleanup.was_cut
        assert asyncio.get_running_loop().time() == 1070
        assert names(raised.value) == ("step", "step", "step")
        assert [type(event) for event in told] == [CleanupCut, ScopeTimedOut]

    run_virtual(main)


async def test_a_scope_behind_a_shield_in_a_cleanup_that_is_cut(loop: Loop):
    """Its error is the cleanup's verdict, and not for whoever waits for the cleanup."""
    with witnessed() as told:
        async with scope("step", timeout=60) as step:
            async with step.cleanup(10) as cleanup:
                with anyio.CancelScope(shield=True):
                    async with scope("tool", timeout=300):
                        await anyio.sleep(1000)
            assert cleanup.was_cut
            assert loop.took(60 - step.remaining(), 10)
    (event,) = told
    assert str(event.verdict.fired) == "tool"
    assert event.verdict.limit == "cleanup"


async def test_an_error_of_the_cleanups_own_is_raised(loop: Loop):
    """In time it is nothing that could be taken for a cut."""
    with pytest.raises(KeyError):
        async with scope("step", timeout=60) as step:
            async with step.cleanup(10):
                raise KeyError
    assert current() is None


def test_a_native_cancel_comes_through_a_cleanup():
    """anyio's shields are against scopes; a task that is cancelled ends cancelled."""

    async def main():
        async def work():
            async with scope("step", timeout=60) as step:
                async with step.cleanup(10):
                    await asyncio.sleep(1000)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert asyncio.get_running_loop().time() == 1001

    run_virtual(main)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "soon"])
def test_a_cleanup_is_always_bounded(seconds):
    with pytest.raises(ConfigError, match="timeout="):
        scope("step").cleanup(seconds)


def test_a_cleanup_takes_seconds_or_a_timedelta():
    assert scope("step").cleanup(20).timeout == 20
    assert scope("step").cleanup("20s").timeout == 20
    assert scope("step").cleanup(timedelta(seconds=5)).timeout == 5
    assert scope("step").cleanup(None).timeout == CLEANUP


async def test_a_cleanup_is_entered_once(loop: Loop):
    async with scope("step") as step:
        cleanup = step.cleanup()
        async with cleanup:
            pass
        with pytest.raises(RuntimeError, match="cleanup was entered before"):
            async with cleanup:
                pass
