"""D1: before anything is torn down, the backend is asked to end its turn by itself.

The pull is still pending meanwhile: what the backend has left to say is delivered. Only a turn's
end with success takes the verdict back; whatever else follows, the sentence stands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any

import anyio
import pytest

from streamguard import IdleTimeoutError, idle_guard
from streamguard._guard.teardown import INTERRUPTING
from streamguard.events import CutWithdrawn, InterruptFailed, Interrupting, TimedOut
from streamguard.testing import Script, call, done, fail, hang, run_virtual, say, silence
from tests.support import Disconnect, Events, take

IDLE = 60.0


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """Both loops in virtual time: all of this is about when."""
    return str(request.param)


class Interruptible:
    """A backend that says `a`, hangs, and goes on with `answer` when it is interrupted."""

    def __init__(self, *answer: Any, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.calls = 0
        self._answer = Script(*answer) if answer else None
        self._seconds = seconds
        self._error = error
        self._heard = anyio.Event()

    async def interrupt(self) -> None:
        self.calls += 1
        await anyio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        self._heard.set()

    async def stream(self) -> AsyncIterator[Any]:
        yield say("a").message  # type: ignore[union-attr]
        await self._heard.wait()
        if self._answer is None:
            await anyio.sleep_forever()
            return
        async with aclosing(aiter(self._answer)) as answer:
            async for message in answer:
                yield message


def run(
    loop_name: str, form: str, client: Interruptible, **knobs: Any
) -> tuple[Any, Events, Disconnect]:
    """Take all that `client` says under a guard that interrupts."""
    events, disconnect = Events(), Disconnect()

    async def main() -> Any:
        operator = idle_guard(
            IDLE,
            interrupt=client.interrupt,
            disconnect=disconnect,
            observer=events,
            **knobs,
        )
        return await take(client.stream() | operator, form)

    return run_virtual(main, backend=loop_name), events, disconnect


def test_a_turn_that_ends_well_takes_the_verdict_back(backend: str, form: str) -> None:
    """D1, T3: the result that the interrupt brought is delivered, and nothing is torn down."""
    client = Interruptible(say("b"), silence(0.5), done())
    taken, events, disconnect = run(backend, form, client)
    assert taken.error is None
    assert [type(message).__name__ for message in taken.messages] == ["Said", "Said", "Ended"]
    assert taken.elapsed == IDLE + 0.5
    assert (client.calls, disconnect.calls) == (1, [])
    assert len(events.of(Interrupting)) == len(events.of(CutWithdrawn)) == 1
    assert events.of(TimedOut) == []


@pytest.mark.parametrize("outcome", ["cancelled", "error"])
def test_a_turn_that_ends_otherwise_is_delivered_and_the_verdict_stands(
    backend: str, form: str, outcome: Any
) -> None:
    """D1: Claude answers an interrupt with a result of its own, which is not the turn's."""
    client = Interruptible(say("partial"), done(outcome))
    taken, events, disconnect = run(backend, form, client)
    assert isinstance(taken.error, IdleTimeoutError)
    assert [type(message).__name__ for message in taken.messages] == ["Said", "Said", "Ended"]
    assert taken.elapsed == IDLE  # the end of the turn ends the waiting for it
    assert len(disconnect.calls) == 1
    assert [event.verdict.limit for event in events.of(TimedOut)] == ["idle"]
    assert taken.error.teardown is not None
    assert taken.error.teardown.confirmed


def test_an_interrupt_that_brings_nothing_is_bounded(backend: str, form: str) -> None:
    """D1: it returned, and no turn ended; the pull is cut when the bound is over."""
    taken, _, disconnect = run(backend, form, Interruptible())
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.elapsed == IDLE + INTERRUPTING
    assert len(disconnect.calls) == 1


def test_an_interrupt_that_hangs_is_bounded(backend: str, form: str) -> None:
    """D1: one was measured that never settled."""
    taken, _, disconnect = run(backend, form, Interruptible(seconds=1000))
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.elapsed == IDLE + INTERRUPTING
    assert len(disconnect.calls) == 1


def test_an_interrupt_that_raises_is_reported_and_ends_the_waiting(
    backend: str, form: str
) -> None:
    """D1, D3: it must not hide the verdict."""
    client = Interruptible(error=ConnectionError("gone"), seconds=1)
    taken, events, disconnect = run(backend, form, client)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.elapsed == IDLE + 1
    assert [str(event.error) for event in events.of(InterruptFailed)] == ["gone"]
    assert len(disconnect.calls) == 1


def test_what_the_turn_still_had_to_say_withdraws_nothing(backend: str, form: str) -> None:
    """T3: after an interrupt, only a turn's good end does; the rest is delivered all the same."""
    client = Interruptible(say("b"), silence(1), say("c"), hang())
    taken, events, _ = run(backend, form, client)
    assert isinstance(taken.error, IdleTimeoutError)
    assert [message.text for message in taken.messages] == ["a", "b", "c"]
    assert taken.elapsed == IDLE + INTERRUPTING
    assert events.of(CutWithdrawn) == []


@pytest.mark.parametrize("end", [(), (fail(ConnectionError("reset")),)])
def test_however_the_stream_ends_then_it_is_the_verdict(
    backend: str, form: str, end: tuple[Any, ...]
) -> None:
    """T7: an end that our interrupt brought about is not the stream's own."""
    taken, _, disconnect = run(backend, form, Interruptible(say("b"), *end))
    assert isinstance(taken.error, IdleTimeoutError)
    assert isinstance(taken.error.__cause__, ConnectionError if end else StopAsyncIteration)
    assert taken.elapsed == IDLE
    assert len(disconnect.calls) == 1


def test_a_slow_consumer_learns_of_it_at_its_next_pull(backend: str, form: str) -> None:
    """O5: the bound is over while nobody pulls. The teardown has begun without the consumer."""
    client = Interruptible(say("b"), say("c"))
    events, disconnect = Events(), Disconnect()
    at: list[float] = []

    async def dawdle(message: Any) -> None:
        if message.text == "b":
            await anyio.sleep(100)
            at.append(anyio.current_time())

    async def main() -> Any:
        operator = idle_guard(
            IDLE, interrupt=client.interrupt, disconnect=disconnect, observer=events
        )
        return await take(client.stream() | operator, form, dawdle)

    taken = run_virtual(main, backend=backend)
    assert isinstance(taken.error, IdleTimeoutError)
    assert [message.text for message in taken.messages] == ["a", "b"]
    assert taken.elapsed == IDLE + 100
    assert disconnect.calls == [at[0] - 100 + INTERRUPTING]


def test_a_consumer_that_leaves_after_all_is_not_stopped(backend: str, form: str) -> None:
    """T3: who does not ask any more gets no error, but the teardown goes on."""
    client = Interruptible(say("b"))
    disconnect = Disconnect()

    async def main() -> None:
        operator = idle_guard(IDLE, interrupt=client.interrupt, disconnect=disconnect)
        stream = client.stream() | operator
        if form == "bare":
            await leave(stream)
            await stream.aclose()
        else:
            async with stream as messages:
                await leave(messages)

    async def leave(messages: Any) -> None:
        async for message in messages:
            if message.text == "b":
                await anyio.sleep(100)
                break

    run_virtual(main, backend=backend)
    assert len(disconnect.calls) == 1


def test_a_cancellation_meanwhile_goes_its_way(backend: str, form: str) -> None:
    """T7, T9: nothing was cut yet, so it cannot be taken for ours. Nothing is torn down."""
    client = Interruptible(seconds=1000)
    events, disconnect = Events(), Disconnect()

    async def main() -> bool:
        operator = idle_guard(
            IDLE, interrupt=client.interrupt, disconnect=disconnect, observer=events
        )
        with anyio.move_on_after(IDLE + 2) as scope:
            await take(client.stream() | operator, form)
        await anyio.sleep(100)
        return scope.cancelled_caught

    assert run_virtual(main, backend=backend)
    assert client.calls == 1
    assert disconnect.calls == []
    assert events.of(TimedOut) == []


def test_nothing_is_interrupted_between_turns(backend: str, form: str) -> None:
    """T14: the turn has ended, and what is waited for is the end of the stream."""
    calls: list[str] = []

    async def main() -> Any:
        operator = idle_guard(IDLE, exit_grace=5, interrupt=lambda: calls.append("interrupt"))
        return await take(Script(say("a"), done(), hang()) | operator, form)

    taken = run_virtual(main, backend=backend)
    assert taken.error is None
    assert taken.elapsed == 5
    assert calls == []


def test_a_function_that_is_not_async_interrupts_as_well(backend: str, form: str) -> None:
    """D2 says it of disconnect; it holds for both."""
    heard: list[anyio.Event] = []

    def answer() -> None:
        heard[0].set()

    async def stream() -> AsyncIterator[Any]:
        heard.append(anyio.Event())
        await heard[0].wait()
        yield done().message  # type: ignore[union-attr]

    async def main() -> Any:
        return await take(stream() | idle_guard(IDLE, interrupt=answer), form)

    taken = run_virtual(main, backend=backend)
    assert taken.error is None
    assert len(taken.messages) == 1


def test_only_a_pull_that_waits_is_interrupted_for(backend: str) -> None:
    """`total` may strike while the consumer works: there is no turn's end to be read."""
    calls: list[str] = []

    async def main() -> Any:
        operator = idle_guard(None, total=10, interrupt=lambda: calls.append("interrupt"))
        return await take(
            Script(say("a"), say("b")) | operator, "hosted", lambda _: anyio.sleep(100)
        )

    taken = run_virtual(main, backend=backend)
    assert taken.error.verdict.limit == "total"
    assert calls == []


def test_a_monitor_interrupts_too(backend: str) -> None:
    """O10, D1: `saw` is how it learns of the turn's end."""
    heard: list[anyio.Event] = []

    async def main() -> bool:
        heard.append(anyio.Event())
        guard = idle_guard(IDLE, interrupt=heard[0].set)
        async with guard.monitor() as monitor:
            with monitor.waiting():
                await heard[0].wait()
            monitor.saw(done().message)  # type: ignore[union-attr]
        return True

    assert run_virtual(main, backend=backend)


@pytest.mark.parametrize("answer", [say("b"), done("error")], ids=["goes on", "ends badly"])
@pytest.mark.parametrize("marks", [True, False], ids=["waiting", "unmarked"])
def test_a_monitor_s_block_learns_of_a_verdict_that_stands(
    backend: str, answer: Any, marks: bool
) -> None:
    """O10: it has no next pull that could raise it, and must not wait for ever."""
    events, disconnect = Events(), Disconnect()

    async def main() -> None:
        heard = anyio.Event()
        guard = idle_guard(IDLE, interrupt=heard.set, disconnect=disconnect, observer=events)
        async with guard.monitor() as monitor:
            with monitor.waiting() if marks else nullcontext():
                await heard.wait()
            monitor.saw(answer.message)
            await anyio.sleep(2 * INTERRUPTING)  # the bound is over while nobody waits
            with monitor.waiting() if marks else nullcontext():
                await anyio.sleep_forever()

    with pytest.raises(IdleTimeoutError) as raised:
        run_virtual(main, backend=backend)
    assert raised.value.teardown is not None
    assert raised.value.teardown.confirmed
    assert len(disconnect.calls) == 1


def test_total_binds_a_block_that_has_not_heard_of_its_verdict(backend: str) -> None:
    """O5, D6: a consumer that works on for ever pulls no more; `total` stops it all the same."""
    client = Interruptible(say("b"))

    async def work(message: Any) -> None:
        if message.text == "b":
            await anyio.sleep_forever()

    async def main() -> Any:
        operator = idle_guard(IDLE, total=IDLE + 30, interrupt=client.interrupt)
        return await take(client.stream() | operator, "hosted", work)

    taken = run_virtual(main, backend=backend)
    assert isinstance(taken.error, IdleTimeoutError)
    assert taken.elapsed == IDLE + 30


def test_the_next_silence_is_interrupted_anew(backend: str, form: str) -> None:
    """A turn that was saved once may hang again later."""
    interrupts: list[str] = []
    ears: list[anyio.Event] = []

    def interrupt() -> None:
        interrupts.append("!")
        ears[-1].set()

    async def stream() -> AsyncIterator[Any]:
        for _ in range(2):
            ears.append(anyio.Event())
            yield say("a").message  # type: ignore[union-attr]
            await ears[-1].wait()
            yield done().message  # type: ignore[union-attr]

    async def main() -> Any:
        return await take(stream() | idle_guard(IDLE, interrupt=interrupt), form)

    taken = run_virtual(main, backend=backend)
    assert taken.error is None
    assert taken.elapsed == 2 * IDLE
    assert len(interrupts) == 2


def test_a_call_into_the_stream_may_interrupt(backend: str) -> None:
    """The interrupt runs in a task of its own, so it may use the client as anybody may."""
    seen: list[str] = []
    script = Script(say("a"), call(lambda: seen.append("played")), hang())

    async def interrupt() -> None:
        async for _ in Script(say("control"), done()):
            seen.append("control")

    async def main() -> Any:
        return await take(script | idle_guard(IDLE, interrupt=interrupt))

    taken = run_virtual(main, backend=backend)
    assert isinstance(taken.error, IdleTimeoutError)
    assert seen == ["played", "control", "control"]
