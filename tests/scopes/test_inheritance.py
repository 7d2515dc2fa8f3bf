"""Scopes in tasks, threads and other loops: inherited as context variables are, capped all the same."""

from __future__ import annotations

import asyncio
import contextvars
import math

import anyio
import anyio.to_thread
import pytest
import trio

from streamguard import DeadlineExceededError, scope
from streamguard._scopes import scopes
from streamguard.limits import current, path, remaining
from streamguard.testing import run_virtual
from tests.conftest import Loop
from tests.scopes.support import names, verdict_of, witnessed


def labels() -> list[str]:
    return [str(each) for each in path()]


# -- tasks of a group ----------------------------------------------------------------------------


async def test_a_task_of_a_group_lies_in_the_scope_around_it(loop: Loop):
    seen = []

    async def child(name):
        async with scope("llm_call", name, timeout=60):
            seen.append(labels())

    async with scope("flow", "deploy", timeout=600):
        async with anyio.create_task_group() as group:
            group.start_soon(child, "a")
            group.start_soon(child, "b")
    assert sorted(seen) == [
        ["flow 'deploy'", "llm_call 'a'"],
        ["flow 'deploy'", "llm_call 'b'"],
    ]


async def test_when_the_flow_is_over_all_active_steps_terminate(loop: Loop):
    """S2-03: and one verdict says so, not one for each."""
    ended = []

    async def step(name):
        try:
            async with scope("step", name, timeout=300):
                await anyio.sleep(1000)
        finally:
            ended.append(name)

    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            async with anyio.create_task_group() as group:
                group.start_soon(step, "a")
                group.start_soon(step, "b")
    assert sorted(ended) == ["a", "b"]
    assert str(verdict_of(raised.value).effective) == "flow"
    assert str(verdict_of(raised.value).fired) in ("step 'a'", "step 'b'")
    assert [event.verdict for event in told] == [raised.value.verdict]


@pytest.mark.parametrize(
    ("early_cleans_up_for", "late_cleans_up_for"), [(40, 0), (40, 30)], ids=["last", "first"]
)
async def test_the_first_to_expire_is_named_whoever_is_the_last_to_end(
    loop: Loop, early_cleans_up_for, late_cleans_up_for
):
    """6.3: one task's call is over early and cleans up for long; then the flow ends all."""

    async def calls(name, timeout, cleans_up_for):
        async with scope("llm_call", name, timeout=timeout):
            try:
                await anyio.sleep(1000)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(cleans_up_for)

    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            async with anyio.create_task_group() as group:
                group.start_soon(calls, "early", 30, early_cleans_up_for)
                group.start_soon(calls, "late", 100, late_cleans_up_for)
    assert names(raised.value) == ("llm_call 'early'", "flow", "flow > llm_call 'early'")


async def test_a_task_that_outlives_the_scope_in_which_it_was_begun(loop: Loop):
    """Begun in a step, by a group around it: when the step is over, it is the flow's."""
    seen = []

    async def child():
        seen.append(labels())
        await step_is_over.wait()
        seen.append(labels())
        assert loop.took(600 - remaining(), 0, slack=1000)

    step_is_over = anyio.Event()
    async with scope("flow", timeout=600):
        async with anyio.create_task_group() as group:
            async with scope("step", timeout=60):
                group.start_soon(child)
                await anyio.sleep(1)
            step_is_over.set()
    assert seen == [["flow", "step"], ["flow"]]


# -- bare asyncio tasks --------------------------------------------------------------------------


@pytest.mark.parametrize("gathers", [True, False], ids=["gather", "TaskGroup"])
def test_asyncios_own_children_are_capped_and_named_alike(gathers):
    """No cancel scope of anyio's reaches them; the flow is effective all the same."""

    async def main():
        async def step(name):
            async with scope("step", name, timeout=300):
                await asyncio.sleep(1000)

        with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
            async with scope("flow", timeout=60):
                if gathers:
                    await asyncio.gather(step("a"), step("b"))
                else:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(step("a"))
                        group.create_task(step("b"))
        assert asyncio.get_running_loop().time() == 1060
        assert str(verdict_of(raised.value).effective) == "flow"
        assert str(verdict_of(raised.value).fired) in ("step 'a'", "step 'b'")
        assert {event.verdict for event in told} == {raised.value.verdict}
        assert asyncio.current_task().cancelling() == 0

    run_virtual(main)


def test_a_detached_task_is_capped_while_its_scope_is_open():
    """It was begun for the flow; whose limit it was is said even when the flow is long done."""

    async def main():
        async def later():
            async with scope("tool", timeout=300):
                await asyncio.sleep(1000)

        async with scope("flow", "deploy", timeout=60):
            task = asyncio.create_task(later())
            await asyncio.sleep(10)
        with pytest.raises(DeadlineExceededError) as raised:
            await task
        assert asyncio.get_running_loop().time() == 1060
        assert names(raised.value) == ("tool", "flow 'deploy'", "flow 'deploy' > tool")

    run_virtual(main)


def test_a_detached_task_is_free_when_its_scope_is_over():
    async def main():
        async def later():
            await asyncio.sleep(30)
            assert (current(), remaining()) == (None, math.inf)
            async with scope("tool", timeout=300) as tool:
                assert tool.remaining() == 300

        async with scope("flow", timeout=60):
            task = asyncio.create_task(later())
            await asyncio.sleep(10)
        await task

    run_virtual(main)


def test_a_task_with_a_context_of_its_own_is_free():
    """How a service that many flows share is begun within one of them."""

    async def main():
        async def service():
            assert current() is None
            async with scope("flow", timeout=300) as flow:
                assert flow.remaining() == 300

        async with scope("llm_call", timeout=60):
            await asyncio.create_task(service(), context=contextvars.Context())

    run_virtual(main)


def test_a_system_task_of_trios_is_free():
    """trio gives those the context of the run, not that of whoever begins them."""

    async def main():
        seen, done = [], trio.Event()

        async def service():
            seen.append(current())
            done.set()

        async with scope("flow", timeout=60):
            trio.lowlevel.spawn_system_task(service)
            await done.wait()
        assert seen == [None]

    run_virtual(main, backend="trio")


# -- shields -------------------------------------------------------------------------------------


async def test_a_shield_does_not_lift_the_cap(loop: Loop):
    """The deadline was fixed on entry; anyio's own effective deadline knows nothing in a shield."""
    inside = []
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            with anyio.CancelScope(shield=True):
                try:
                    async with scope("step", timeout=300):
                        await anyio.sleep(1000)
                except DeadlineExceededError as error:
                    inside.append(error)
            await anyio.sleep(1000)
    assert names(inside[0]) == names(raised.value) == ("step", "flow", "flow > step")
    assert [event.verdict for event in told] == [raised.value.verdict]


# -- threads and other loops ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_thread_may_ask_what_is_left(backend):
    async def main():
        async with scope("tool", "compile", timeout=60):
            named, left = await anyio.to_thread.run_sync(lambda: (labels(), remaining()))
        assert named == ["tool 'compile'"]
        assert 0 < left < 60

    anyio.run(main, backend=backend)


@pytest.mark.real
@pytest.mark.parametrize(("outer", "inner"), [("asyncio", "trio"), ("trio", "asyncio")])
def test_a_loop_in_a_thread_of_another_keeps_to_its_time(outer, inner, monkeypatch):
    """Two clocks that have nothing in common: what is left counts."""
    monkeypatch.setattr(scopes, "MIN_ATTEMPT", 0.001)  # however long the thread takes to start

    async def inside():
        with pytest.raises(DeadlineExceededError) as raised:
            async with scope("tool", timeout=300) as tool:
                assert 0 < tool.remaining() <= 5
                await anyio.sleep(300)
        return raised.value

    async def main():
        async with scope("flow", "deploy", timeout=60):
            async with scope("step", timeout=5):
                with anyio.CancelScope(shield=True):
                    error = await anyio.to_thread.run_sync(
                        lambda: anyio.run(inside, backend=inner)
                    )
                assert names(error) == ("tool", "step", "flow 'deploy' > step > tool")
                # Who wants to tell the step that it is over must wait for something.
                await anyio.sleep(60)

    with pytest.raises(DeadlineExceededError) as raised:
        anyio.run(main, backend=outer)
    assert str(verdict_of(raised.value).effective) == "step"


def test_two_loops_and_too_little_left():
    """Deadlines of two clocks cannot be compared: the nearest scope is what is named."""

    async def inside():
        async with scope("step", timeout=0.9):
            with pytest.raises(DeadlineExceededError) as raised:
                async with scope("llm_call"):
                    pass
        return names(raised.value)

    async def main():
        async with scope("flow", timeout=60):
            return await anyio.to_thread.run_sync(lambda: anyio.run(inside, backend="trio"))

    assert anyio.run(main) == ("None", "step", "flow > step > llm_call")


def test_one_function_on_two_loops_at_once():
    """Nothing is shared: each run has scopes of its own."""

    async def main():
        async with scope("flow", timeout=60):
            with pytest.raises(DeadlineExceededError) as raised:
                async with scope("step", timeout=0.01):
                    await anyio.sleep(60)
        return names(raised.value)

    async def both():
        found = []

        async def one(backend):
            found.append(
                await anyio.to_thread.run_sync(
                    contextvars.Context().run, lambda: anyio.run(main, backend=backend)
                )
            )

        async with anyio.create_task_group() as group:
            group.start_soon(one, "asyncio")
            group.start_soon(one, "trio")
        assert found == [("step", "step", "flow > step")] * 2

    anyio.run(both)
