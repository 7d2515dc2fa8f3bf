"""multica's idle watchdog (S4): its six tests by their names and windows, in Python.

They were written in Go (S4-19). Windows, backends, order of messages and assertions are theirs; time
is virtual, so "within five windows" is "after exactly one" here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.seeds.daemon import Config, Daemon, Message, Result, Session

MS = 0.001


@dataclass
class ScriptedBackend:
    """A run: what `play` sends, and the result that it gives, if it gives one."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    given: list[Result] = field(default_factory=list)

    async def execute(self, tasks: Any, prompt: str) -> Session:
        send, receive = anyio.create_memory_object_stream[Message](4)
        scope = anyio.CancelScope()

        async def running() -> None:
            async with send:
                with scope:
                    try:
                        await self.play(send)
                    except anyio.get_cancelled_exc_class():
                        self.give(Result("aborted", error="context canceled"))
                        raise

        async def result() -> Result:
            await self.ended.wait()
            return self.given[0]

        tasks.start_soon(running)
        return Session(receive, result, scope.cancel)

    def give(self, result: Result) -> None:
        self.given.append(result)
        self.ended.set()

    async def play(self, send: Any) -> None:
        raise NotImplementedError


@dataclass
class IdleWatchdogBackend(ScriptedBackend):
    """The hang: one message to mark activity, or none, then silence for ever."""

    emit_one: bool = True

    async def play(self, send: Any) -> None:
        if self.emit_one:
            await send.send(Message("text", content="hello"))
        await anyio.sleep_forever()


@dataclass
class FakeBackend(ScriptedBackend):
    """Completes at once, with a normal result."""

    async def play(self, _send: Any) -> None:
        self.give(Result("completed", output="done"))


@dataclass
class LongToolCallBackend(ScriptedBackend):
    """A legitimate long tool call: `tool_use`, silence past the window, `tool_result`, the end."""

    tool_silence: float = 0.0

    async def play(self, send: Any) -> None:
        await send.send(Message("tool_use", tool="Bash", call_id="call-1"))
        await anyio.sleep(self.tool_silence)
        await send.send(Message("tool_result", tool="Bash", call_id="call-1", content="installed"))
        await send.send(Message("text", content="done"))
        self.give(Result("completed", output="done"))


@dataclass
class TailIdleAfterToolBackend(ScriptedBackend):
    """A tool call completes, and then the backend is silent without ever finishing."""

    async def play(self, send: Any) -> None:
        await send.send(Message("tool_use", tool="Bash", call_id="c1"))
        await send.send(Message("tool_result", tool="Bash", call_id="c1", content="ok"))
        await anyio.sleep_forever()


def drain(loop: Any, daemon: Daemon, backend: Any, **options: Any) -> tuple[Result, float]:
    """What `execute_and_drain` returns, and after how long."""

    async def main() -> tuple[Result, float]:
        started = anyio.current_time()
        result = await daemon.execute_and_drain(backend(), "p", "t-idle", **options)
        return result, anyio.current_time() - started

    return loop.run(main)


def of_window(window: float) -> Daemon:
    return Daemon(Config(agent_idle_watchdog=window))


def test_execute_and_drain_idle_watchdog_fires_on_inactivity(loop: Any) -> None:
    daemon = of_window(50 * MS)
    result, elapsed = drain(loop, daemon, IdleWatchdogBackend)
    assert result.status == "idle_watchdog"
    assert "idle for" in result.error
    assert elapsed <= 5 * daemon.cfg.agent_idle_watchdog
    assert loop.took(elapsed, 50 * MS)


def test_execute_and_drain_idle_watchdog_fires_when_no_message_ever_arrives(loop: Any) -> None:
    """S4-05"""
    result, elapsed = drain(loop, of_window(50 * MS), lambda: IdleWatchdogBackend(emit_one=False))
    assert result.status == "idle_watchdog"
    assert loop.took(elapsed, 50 * MS)


async def test_execute_and_drain_idle_watchdog_disabled_when_zero(loop: Any) -> None:
    """S4-01: the parent's cancel ends it after 80 ms, and it is called `cancelled` (S4-11)."""
    daemon = of_window(0)
    with anyio.move_on_after(80 * MS) as parent:
        await daemon.execute_and_drain(IdleWatchdogBackend(), "p", "t-idle-off")
    assert parent.cancelled_caught
    assert daemon.statuses == ["cancelled"]


def test_execute_and_drain_idle_watchdog_happy_path_does_not_fire(loop: Any) -> None:
    daemon = of_window(200 * MS)
    result, _ = drain(loop, daemon, FakeBackend)
    assert (result.status, result.output) == ("completed", "done")
    assert daemon.statuses == ["completed"]


def test_execute_and_drain_idle_watchdog_does_not_fire_during_in_flight_tool_call(
    loop: Any,
) -> None:
    """S4-06, S4-07: a tool that is silent for four windows."""
    backend = lambda: LongToolCallBackend(tool_silence=200 * MS)  # noqa: E731 - as short as Go's
    result, elapsed = drain(loop, of_window(50 * MS), backend)
    assert result.status == "completed"
    assert loop.took(elapsed, 200 * MS)


def test_execute_and_drain_idle_watchdog_fires_after_tool_result_if_backend_stays_silent(
    loop: Any,
) -> None:
    """Exactly one window later, not earlier."""
    result, elapsed = drain(loop, of_window(50 * MS), TailIdleAfterToolBackend)
    assert result.status == "idle_watchdog"
    assert loop.took(elapsed, 50 * MS)


@dataclass
class AnonymousToolBackend(ScriptedBackend):
    """A backend without ids: two tools, one after the other, then silence."""

    async def play(self, send: Any) -> None:
        for _ in range(2):
            await send.send(Message("tool_use", tool="Bash"))
            await anyio.sleep(200 * MS)
            await send.send(Message("tool_result", tool="Bash"))
        await anyio.sleep_forever()


def test_tools_without_ids_pause_the_watchdog_too(loop: Any) -> None:
    """S4-06: the seed's gate needs no ids, and neither does this one."""
    result, elapsed = drain(loop, of_window(50 * MS), AnonymousToolBackend)
    assert result.status == "idle_watchdog"
    assert loop.took(elapsed, 450 * MS)


# -- the statuses (S4-15) ------------------------------------------------------------------------


class FailingBackend(ScriptedBackend):
    """Its messages break off with an error."""

    async def execute(self, tasks: Any, prompt: str) -> Session:
        session = await super().execute(tasks, prompt)
        messages = session.messages

        async def breaking() -> Any:
            async with messages:
                yield Message("status", session_id="sess-1")
                raise ConnectionError("the subprocess was killed")

        session.messages = breaking()
        return session

    async def play(self, _send: Any) -> None:
        await anyio.sleep_forever()


def test_a_run_that_was_aborted_is_called_so(loop: Any) -> None:
    daemon = of_window(50 * MS)
    with pytest.raises(ExceptionGroup) as raised:
        drain(loop, daemon, FailingBackend)
    assert raised.group_contains(ConnectionError)
    assert daemon.statuses == ["aborted"]


def test_a_run_that_takes_too_long_is_called_a_timeout(loop: Any) -> None:
    daemon = of_window(200 * MS)
    result, elapsed = drain(
        loop, daemon, lambda: LongToolCallBackend(tool_silence=10), timeout=1.0
    )
    assert result.status == "timeout"
    assert loop.took(elapsed, 1.0)


@dataclass
class RevealingBackend(ScriptedBackend):
    """Says which session it is, and hangs."""

    async def play(self, send: Any) -> None:
        await send.send(Message("status", session_id="sess-1"))
        await anyio.sleep_forever()


def test_what_was_stopped_keeps_its_session(loop: Any) -> None:
    """S4-14, S4-18: known as soon as it is revealed, and kept with the result."""
    result, _ = drain(loop, of_window(50 * MS), RevealingBackend)
    assert (result.status, result.session_id) == ("idle_watchdog", "sess-1")


def test_the_late_result_of_the_killed_run_does_not_hide_the_verdict(loop: Any) -> None:
    """S4-12: ended by the watchdog, the backend reports `aborted`; the run is `idle_watchdog`."""
    backends: list[Any] = []

    def backend() -> Any:
        backends.append(IdleWatchdogBackend())
        return backends[-1]

    result, _ = drain(loop, of_window(50 * MS), backend)
    assert [each.status for each in backends[0].given] == ["aborted"]
    assert result.status == "idle_watchdog"
