"""D1 to D6: what happens after a verdict, in which order, within which bounds."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import trio

from streamguard import IdleTimeoutError, idle_guard
from streamguard._guard import attempt as attempt_module
from streamguard.events import (
    DisconnectAbandoned,
    DisconnectFailed,
    StreamEnded,
    TimedOut,
    TornDown,
)
from streamguard.testing import (
    FakeClient,
    Script,
    Tap,
    block_loop,
    hang,
    holds_task_group,
    opened,
    run_virtual,
    say,
    slow_cleanup,
    swallows_cancel,
)
from streamguard.testing.messages import Said
from tests.conftest import Loop
from tests.support import Disconnect, Events, take

IDLE = 60.0


def silent(source: Any, **knobs: Any) -> Any:
    return source | idle_guard(IDLE, **knobs)


def hanging() -> Script:
    return Script(say("a"), hang())


# -- D1: order -------------------------------------------------------------------------------


async def test_the_order_of_events(loop: Loop, form: str) -> None:
    """D1: the pull is cancelled, then comes the verdict with its token, disconnect, the error."""
    order: list[str] = []
    kinds = (TimedOut, TornDown, StreamEnded)

    async def backend() -> AsyncIterator[Any]:
        yield opened("s-1").message  # type: ignore[union-attr]
        try:
            await anyio.sleep_forever()
        finally:
            order.append("unwound")

    def observe(event: Any) -> None:
        if isinstance(event, kinds):
            order.append(type(event).__name__)

    def disconnect() -> None:
        order.append("disconnect")

    taken = await take(silent(backend(), disconnect=disconnect, observer=observe), form)
    assert order == ["unwound", "TimedOut", "disconnect", "TornDown", "StreamEnded"]
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.verdict is not None
    assert taken.error.verdict.token == "s-1"


async def test_no_disconnect_on_a_normal_end(loop: Loop, form: str) -> None:
    """D1: disconnect is for verdicts; the client stays its owner's."""
    disconnect, source = Disconnect(), Tap(Script(say("a")))
    taken = await take(silent(source, disconnect=disconnect), form)
    assert taken.error is None
    assert not disconnect.calls
    assert source.closed


async def test_a_close_that_hangs_as_long_as_its_run(loop: Loop, form: str) -> None:
    """D1: disconnect does not wait for it; it is what ends it."""
    over = anyio.Event()

    class Run:
        def __aiter__(self) -> Run:
            return self

        async def __anext__(self) -> Any:
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            await over.wait()

    taken = await take(silent(Run(), disconnect=over.set), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed
    assert loop.took(taken.elapsed, IDLE)


async def test_a_close_that_hangs_is_bounded(loop: Loop, form: str) -> None:
    """D1: a close is bounded as disconnect is, also when nothing ends it."""

    class Run:
        closed = 0

        def __aiter__(self) -> Run:
            return self

        async def __anext__(self) -> Any:
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            Run.closed += 1
            await anyio.sleep_forever()

    stream = silent(Run(), disconnect_timeout=20)
    with pytest.raises(IdleTimeoutError) as raised:
        started = anyio.current_time()
        await anext(aiter(stream))
    assert loop.took(anyio.current_time() - started, IDLE + 20)
    assert raised.value.teardown is not None
    assert not raised.value.teardown.confirmed


# -- D2, D3: disconnect ----------------------------------------------------------------------


async def test_disconnect_runs_in_a_task_of_its_own(loop: Loop, form: str) -> None:
    """D2: neither the consumer's task nor one that the consumer's cancel can reach."""
    tasks: list[int] = []

    async def disconnect() -> None:
        tasks.append(anyio.get_current_task().id)
        await anyio.sleep(0)

    def at_once() -> None:
        tasks.append(anyio.get_current_task().id)

    for given in (disconnect, at_once):
        await take(silent(hanging(), disconnect=given), form)
    assert len(tasks) == 2
    assert anyio.get_current_task().id not in tasks


async def test_disconnect_is_shielded_from_an_outer_cancel(loop: Loop, form: str) -> None:
    """D2, D6: a scope that strikes during teardown waits for it, and is still the scope's."""
    finished: list[float] = []

    async def disconnect() -> None:
        outer.cancel()
        await anyio.sleep(20)
        finished.append(anyio.current_time() - started)

    started = anyio.current_time()
    with anyio.CancelScope() as outer:
        await take(silent(hanging(), disconnect=disconnect), form)
        await anyio.sleep(1000)
    assert loop.took(finished[0], IDLE + 20)
    assert loop.took(anyio.current_time() - started, IDLE + 20)


@pytest.mark.parametrize("stubborn", [False, True], ids=["hangs", "swallows cancels"])
async def test_disconnect_is_bounded_and_abandoned(loop: Loop, form: str, stubborn: bool) -> None:
    """D2: after its bound it is abandoned and reported; what it raises late is consumed."""
    events, late = Events(), anyio.Event()

    async def disconnect() -> None:
        if stubborn:
            with anyio.CancelScope(shield=True):
                await late.wait()
        else:
            await late.wait()
        raise ValueError("late")

    taken = await take(
        silent(
            hanging(),
            disconnect=disconnect,
            disconnect_timeout=30,
            observer=events,
        ),
        form,
    )
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, IDLE + 30)
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "abandoned"
    assert not taken.error.teardown.confirmed
    (abandoned,) = events.of(DisconnectAbandoned)
    assert abandoned.bound == 30
    late.set()
    with anyio.fail_after(1000):
        while not events.of(DisconnectFailed):
            await anyio.sleep(1)
    assert taken.error.teardown.disconnect == "abandoned"


@pytest.mark.parametrize("blocked", [10.0, 100.0], ids=["within", "past"])
async def test_a_disconnect_that_only_waits_for_the_loop(
    loop: Loop, form: str, blocked: float
) -> None:
    """D2, T4: time in which the loop did not run is none that it took."""
    events = Events()

    async def disconnect() -> None:
        await anyio.sleep(5)
        block_loop(blocked)
        for _ in range(3):
            await anyio.sleep(0.1)

    stream = silent(hanging(), disconnect=disconnect, disconnect_timeout=30, observer=events)
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "returned"
    assert not events.of(DisconnectAbandoned)


async def test_a_loop_that_is_blocked_again_and_again_is_waited_for_once(loop: Loop) -> None:
    """D2: it is a bound."""

    async def disconnect() -> None:
        while True:
            block_loop(40)
            await anyio.sleep(0.5)

    taken = await take(silent(hanging(), disconnect=disconnect, disconnect_timeout=30))
    assert taken.error.teardown.disconnect == "abandoned"


async def test_the_default_bound_is_thirty_seconds(native: Loop) -> None:
    """D2: a shielded SDK close takes 10 to 20 s to escalate."""
    taken = await take(Script(hang()) | idle_guard(60, disconnect=anyio.sleep_forever))
    assert taken.elapsed == pytest.approx(90)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_disconnect_that_raises(loop: Loop, form: str, kind: str) -> None:
    """D3: it is reported, and does not hide the verdict."""
    events, failure = Events(), ValueError("no connection")

    def sync() -> None:
        raise failure

    disconnect: Any = sync if kind == "sync" else Disconnect(error=failure)
    taken = await take(silent(hanging(), disconnect=disconnect, observer=events), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "raised"
    assert not taken.error.teardown.confirmed
    assert [event.error for event in events.of(DisconnectFailed)] == [failure]


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), GeneratorExit(), BaseExceptionGroup("closing", [GeneratorExit()])],
    ids=repr,
)
async def test_a_disconnect_that_would_end_the_program(loop: Loop, form: str, error: Any) -> None:
    """D3: also what is no Exception stays in the disconnect's task."""
    taken = await take(silent(hanging(), disconnect=Disconnect(error=error)), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "raised"


@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_a_program_that_exits_during_a_teardown_is_not_held_up(native: Loop, form: str) -> None:
    """D6: asyncio then cancels every task once, ours too: nobody may wait for them for ever."""

    async def main() -> None:
        async def leave() -> None:
            raise SystemExit(7)

        leaving: list[asyncio.Task[None]] = []

        async def disconnect() -> None:
            leaving.append(asyncio.create_task(leave()))
            await asyncio.sleep(10)

        await take(silent(hanging(), disconnect=disconnect), form)

    with pytest.raises(SystemExit):
        native.run(main)


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_a_disconnect_that_ends_in_a_stray_cancelled_error(native: Loop, form: str) -> None:
    """D2: a close that awaits the task it has cancelled ends so; it is a failure, no cancel."""
    events = Events()

    async def disconnect() -> None:
        reader = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        reader.cancel()
        await reader

    stream = Script(hang()) | idle_guard(60, disconnect=disconnect, observer=events)
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "raised"
    (failed,) = events.of(DisconnectFailed)
    assert isinstance(failed.error, asyncio.CancelledError)


async def test_a_disconnect_that_fails_does_not_keep_the_next_from_running(loop: Loop) -> None:
    """D3: each callback is called, in the order in which they were written."""
    first, second = Disconnect(error=ValueError()), Disconnect()
    guard = idle_guard(IDLE, disconnect=first) | idle_guard(IDLE, disconnect=second)
    taken = await take(hanging() | guard)
    assert isinstance(taken.error, IdleTimeoutError)
    assert second.finished == 1
    assert taken.error.teardown is not None
    assert taken.error.teardown.disconnect == "raised"


# -- D5: confirmed ---------------------------------------------------------------------------


@pytest.mark.parametrize("disconnects", [True, False])
async def test_a_clean_up_that_was_cut_short_proves_nothing(
    loop: Loop, form: str, disconnects: bool
):
    """D5: a pull that comes free only when it is cancelled again has left something undone."""

    async def source():
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)  # say, until the backend has stopped

    knobs: dict[str, Any] = {"disconnect": Disconnect()} if disconnects else {}
    taken = await take(source() | idle_guard(1, **knobs), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed is disconnects


@pytest.mark.parametrize("disconnects", [True, False])
async def test_a_monitor_has_no_source_that_it_could_have_closed(loop: Loop, disconnects: bool):
    """D5: so without a disconnect, nothing was ended."""
    knobs: dict[str, Any] = {"disconnect": Disconnect()} if disconnects else {}
    with pytest.raises(IdleTimeoutError) as caught:
        async with idle_guard(1, **knobs).monitor() as monitor:
            with monitor.waiting():
                await anyio.sleep_forever()
    assert caught.value.teardown is not None
    assert caught.value.teardown.confirmed is disconnects


@pytest.mark.parametrize("bound", [1, 3])
async def test_a_close_that_shields_off_its_consumers_cancel_is_bounded(loop: Loop, bound: int):
    """D1, O6: also where somebody else's cancel is on its way already."""

    async def source():
        try:
            while True:
                yield 1
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)

    began = anyio.current_time()
    with anyio.CancelScope() as scope:
        async with source() | idle_guard(60, disconnect_timeout=bound) as messages:
            async for _ in messages:
                scope.cancel()
                await anyio.sleep(1)
    assert bound <= anyio.current_time() - began < bound + 0.2


@pytest.mark.parametrize("closes", ["well", "badly", "in a group"])
@pytest.mark.parametrize("disconnects", ["not at all", "well", "badly", "never"])
async def test_what_is_confirmed(loop: Loop, form: str, closes: str, disconnects: str) -> None:
    """D5: pull unwound, source closed and disconnect returned; else not."""

    class Source:
        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> Any:
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            if closes == "badly":
                raise ValueError("cannot close")
            if closes == "in a group":
                raise BaseExceptionGroup("as task groups do", [GeneratorExit()])

    knobs: dict[str, Any] = {
        "not at all": {},
        "well": {"disconnect": Disconnect()},
        "badly": {"disconnect": Disconnect(error=ValueError())},
        "never": {"disconnect": anyio.sleep_forever},
    }[disconnects]
    taken = await take(silent(Source(), disconnect_timeout=30, **knobs), form)
    assert isinstance(taken.error, IdleTimeoutError), repr(taken.error)
    assert taken.error.teardown is not None
    confirmed = closes != "badly" and disconnects in ("not at all", "well")
    assert taken.error.teardown.confirmed is confirmed
    assert loop.took(taken.elapsed, IDLE + 30 * (disconnects == "never"))


async def test_a_transport_error_while_unwinding_is_the_cause(loop: Loop, form: str) -> None:
    """T7: whatever unwinds is raised as the verdict, with the rest as its cause."""
    lost = ConnectionError("lost")

    async def backend() -> AsyncIterator[Any]:
        yield Said("a")
        try:
            await anyio.sleep_forever()
        finally:
            raise lost

    taken = await take(silent(backend()), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.error.__cause__ is lost


async def test_every_event_is_told_once(loop: Loop, form: str) -> None:
    """D5: one verdict, one teardown, one end, whatever the consumer does next."""
    events = Events()
    stream = silent(hanging(), observer=events)
    await take(stream, form)
    await stream.aclose()
    for kind in (TimedOut, TornDown, StreamEnded):
        assert len(events.of(kind)) == 1, kind


# -- around it -------------------------------------------------------------------------------


def test_disconnect_sees_the_context_of_its_stream(loop: Loop, form: str) -> None:
    """D2: also when the timekeeper starts it, woken in nobody's context or in another's."""
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")

    async def main() -> None:
        seen: list[str] = []
        observed: set[str] = set()

        async def consume(name: str, idle: float) -> None:
            whose.set(name)
            source = swallows_cancel(Script(hang()))

            def disconnect() -> None:
                seen.append(whose.get())
                source.release()

            def observe(_: Any) -> None:
                observed.add(whose.get())

            guard = idle_guard(idle, disconnect=disconnect, observer=observe)
            await take(source | guard, form)

        async with anyio.create_task_group() as tg:
            tg.start_soon(consume, "first", IDLE)
            tg.start_soon(consume, "second", IDLE + 1)
        assert seen == ["first", "second"]
        assert observed == {"first", "second"}

    loop.run(main)


async def test_aclose_while_a_verdict_is_torn_down(loop: Loop) -> None:
    """O6: closing from another task in mid-pull is refused, and disturbs no verdict."""
    disconnect = Disconnect(seconds=20)
    stream = silent(hanging(), disconnect=disconnect)

    async def close() -> None:
        await anyio.sleep(IDLE + 10)
        with pytest.raises(RuntimeError, match="pull is under way"):
            await stream.aclose()

    async with anyio.create_task_group() as tg:
        tg.start_soon(close)
        taken = await take(stream)
    assert isinstance(taken.error, IdleTimeoutError)
    assert disconnect.finished == 1


async def test_a_stream_closed_from_another_task(loop: Loop) -> None:
    """O6: between two pulls it ends the stream for whoever pulls next."""
    source = Tap(Script(say("a"), say("b")))
    stream = silent(source)
    messages = aiter(stream)
    await anext(messages)
    async with anyio.create_task_group() as tg:
        tg.start_soon(stream.aclose)
    with pytest.raises(StopAsyncIteration):
        await anext(messages)
    assert source.pulls == 1


async def test_a_client_that_ends_its_stream(loop: Loop, form: str) -> None:
    """T7: a normal end because we disconnected is raised as the verdict."""
    client = FakeClient(hanging())
    await client.connect("go")
    taken = await take(silent(client.receive_response(), client=client), form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert client.disconnected
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed


def test_eager_tasks() -> None:
    """T9: in eager tasks (3.12) pulls and disconnects work as in others; uvloop knows not all."""
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("3.12 and later")

    async def fails() -> None:
        raise ConnectionError("no such turn")

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        disconnect = Disconnect(seconds=5)
        for source in (hanging(), swallows_cancel(hanging(), "end"), holds_task_group(hanging())):
            for form in ("bare", "hosted"):
                taken = await asyncio.create_task(
                    take(source | idle_guard(60, disconnect=disconnect), form)
                )
                assert isinstance(taken.error, IdleTimeoutError)
                assert taken.elapsed == pytest.approx(65)
        # An interrupt that fails at once is waited for no longer.
        taken = await take(hanging() | idle_guard(60, interrupt=fails, disconnect=disconnect))
        assert taken.elapsed == pytest.approx(65)
        # A pull that is a task of its own, started eagerly.
        pull = asyncio.create_task(anext(aiter(hanging() | idle_guard(60))))  # type: ignore[arg-type]
        assert (await pull).text == "a"

    run_virtual(main)


def test_one_failing_sleeper_stops_neither_others_nor_the_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """T4: it is logged and asked again; on trio it must not end the run."""
    judge = attempt_module.Attempt._judges
    failures = iter([ValueError("a bug of ours"), ValueError("again")])

    def failing(attempt: Any, now: float) -> Any:
        if attempt.activity.name == "failing" and (error := next(failures, None)):
            raise error
        return judge(attempt, now)

    monkeypatch.setattr(attempt_module.Attempt, "_judges", failing)

    async def main() -> None:
        from streamguard import Activity

        ends: dict[str, float] = {}

        async def consume(name: str) -> None:
            taken = await take(silent(hanging(), activity=Activity(name)))
            assert isinstance(taken.error, IdleTimeoutError)
            ends[name] = taken.elapsed

        async with anyio.create_task_group() as tg:
            tg.start_soon(consume, "failing")
            tg.start_soon(consume, "sound")
        assert loop.took(ends["sound"], IDLE)
        assert ends["failing"] >= IDLE

    loop.run(main)
    assert caplog.text.count("it will be asked again") == 2


def test_a_pull_that_is_closed_by_hand_leaves_its_task_alone(loop: Loop) -> None:
    """O7: nobody waits there any more, so nothing may be cancelled or told."""

    async def main() -> None:
        events = Events()
        messages = aiter(silent(hanging(), observer=events))
        await anext(messages)
        pull = messages.__anext__()
        pull.send(None)  # type: ignore[attr-defined]
        pull.close()  # type: ignore[attr-defined]
        await anyio.sleep(IDLE * 3)
        assert not events.of(TimedOut)

    if loop.name == "trio":
        # A trap that is not passed on to trio leaves the task's own state as it was.
        pytest.skip("trio cannot be stepped by hand")
    loop.run(main)


def test_a_trio_pull_is_closed_inside_out() -> None:
    """O7: a coroutine that is closed leaves our scope first, then the upstream's."""

    async def main() -> None:
        left: list[str] = []

        class Upstream:
            def __aiter__(self) -> Upstream:
                return self

            async def __anext__(self) -> Any:
                with trio.CancelScope():
                    try:
                        await trio.sleep_forever()
                    finally:
                        left.append("upstream")

        async def stepped() -> None:
            pull = aiter(Upstream() | idle_guard(60)).__anext__()
            pull.send(None)  # type: ignore[attr-defined]
            pull.close()  # type: ignore[attr-defined]
            await trio.sleep(1)

        with trio.fail_after(10):
            await stepped()
        assert left == ["upstream"]

    run_virtual(main, backend="trio")


@pytest.mark.parametrize(("knobs", "took"), [({}, 5), ({"disconnect_timeout": 30}, 10)])
async def test_slow_cleanup_of_a_stream_that_is_left(loop: Loop, knobs, took) -> None:
    """D1: `aclose()` in the midst closes the source, and waits for 5 s unless more was written."""
    stream = slow_cleanup(Script(say("a"), hang()), 10) | idle_guard(60, **knobs)
    async for _ in stream:
        break
    started = anyio.current_time()
    await stream.aclose()
    assert loop.took(anyio.current_time() - started, took)
