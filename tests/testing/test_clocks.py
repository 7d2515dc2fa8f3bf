"""Virtual time is exact, never early, and gives way to everything that is real."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import os
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest
import trio

from streamguard.testing import clocks, trio_deadlock
from streamguard.testing.clocks import (
    START,
    DeadlockError,
    block_loop,
    run_virtual,
    virtual_clock,
    virtual_options,
)
from streamguard.testing.jumping import JumpingLoop

every = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
# Both are asyncio's, with their own ways to find out that nothing can run.
asyncios = pytest.mark.parametrize("backend", ["asyncio", "uvloop"])


@pytest.fixture(autouse=True)
def _quick_deadlocks(monkeypatch):
    """A deadlock is certain in these tests sooner than in a user's."""
    monkeypatch.setattr(clocks, "UNANNOUNCED_THREADS", 0.1)


def factory(backend):
    return virtual_options(backend)["loop_factory"]


@every
def test_a_day_of_sleep_takes_no_time_and_is_exact(backend):
    async def main():
        began = anyio.current_time()
        await anyio.sleep(86_400)
        await anyio.sleep(0.25)
        return began, anyio.current_time()

    real = time.monotonic()
    assert run_virtual(main, backend=backend) == (START, START + 86_400.25)
    assert time.monotonic() - real < 50


@every
def test_arguments_are_passed_and_errors_come_out(backend):
    async def main(value):
        raise LookupError(value)

    with pytest.raises(LookupError, match="gone"):
        run_virtual(main, "gone", backend=backend)


@every
def test_sleepers_wake_in_order_of_their_time(backend):
    woken = []

    async def sleeper(seconds):
        await anyio.sleep(seconds)
        woken.append((seconds, anyio.current_time() - START))

    async def main():
        async with anyio.create_task_group() as tg:
            for seconds in (3.5, 1, 7200, 2):
                tg.start_soon(sleeper, seconds)

    run_virtual(main, backend=backend)
    assert woken == [(1, 1), (2, 2), (3.5, 3.5), (7200, 7200)]


@every
def test_a_scope_fires_exactly_at_its_deadline(backend):
    async def main():
        with anyio.move_on_after(180):
            await anyio.sleep_forever()
        return anyio.current_time()

    assert run_virtual(main, backend=backend) == START + 180


@asyncios
def test_a_timer_never_runs_early_and_far_times_do_not_spin(backend):
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        for when in (START + 1 / 3, math.nextafter(START + 1 / 3, math.inf), 1e12, 1e12 + 0.001):
            loop.call_at(when, lambda when=when: seen.append((when, loop.time())))
        await asyncio.sleep(2e12)
        return seen

    seen = run_virtual(main, backend=backend)
    assert len(seen) == 4
    assert all(at == when for when, at in seen)


@every
def test_a_blocked_loop_finds_its_timers_late(backend):
    late = []

    async def sleeper():
        await anyio.sleep(10)
        late.append(anyio.current_time() - START)

    async def main():
        async with anyio.create_task_group() as tg:
            tg.start_soon(sleeper)
            await anyio.sleep(1)
            block_loop(30)
            assert anyio.current_time() - START == 31
            assert late == []

    run_virtual(main, backend=backend)
    assert late == [31]


@every
def test_in_real_time_a_block_really_blocks(backend):
    async def main():
        began = anyio.current_time()
        block_loop(0.02)
        return anyio.current_time() - began

    options = {"use_uvloop": True} if backend == "uvloop" else {}
    name = "trio" if backend == "trio" else "asyncio"
    # uvloop's own time is counted in whole milliseconds.
    assert anyio.run(main, backend=name, backend_options=options) > 0.018


@asyncios
@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_time_does_not_advance_by_nonsense(backend, seconds):
    async def main():
        asyncio.get_running_loop().advance(seconds)

    with pytest.raises(ValueError, match="cannot advance"):
        run_virtual(main, backend=backend)


@asyncios
def test_a_job_in_the_executor_holds_the_clock(backend):
    async def main():
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            await asyncio.to_thread(time.sleep, 0.05)
        async with asyncio.timeout(5):
            await loop.run_in_executor(None, time.sleep, 0.05)
        return loop.time()

    assert run_virtual(main, backend=backend) == START


@asyncios
def test_a_thread_that_ends_while_the_loop_looks_lets_no_time_pass(backend, monkeypatch):
    """Between the loop's look at what is ready and its question whether a thread still works."""
    genuine = JumpingLoop._anyio_worker_busy

    def ask_late(loop):
        time.sleep(0.03)
        return genuine(loop)

    monkeypatch.setattr(JumpingLoop, "_anyio_worker_busy", ask_late)

    async def main():
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1000)
            await anyio.to_thread.run_sync(time.sleep, 0.02)
            elapsed = anyio.current_time() - began
            group.cancel_scope.cancel()
        return elapsed

    assert run_virtual(main, backend=backend) == 0


@asyncios
def test_a_worker_thread_of_anyio_holds_the_clock(backend):
    async def main():
        with anyio.fail_after(5):
            await anyio.to_thread.run_sync(time.sleep, 0.05)
        held = anyio.current_time()
        await anyio.sleep(60)
        return held, anyio.current_time()

    assert run_virtual(main, backend=backend) == (START, START + 60)


@asyncios
def test_a_job_given_up_does_not_hold_the_clock(backend):
    release = threading.Event()

    async def main():
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, release.wait, 10)
        loop.call_soon(job.cancel)
        with pytest.raises(asyncio.CancelledError):
            await job
        await asyncio.sleep(60)
        release.set()
        return loop.time()

    assert run_virtual(main, backend=backend) == START + 60


@asyncios
def test_the_end_of_the_executor_is_not_hurried_into_a_warning(backend):
    async def main():
        job = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.05)
        await asyncio.sleep(0)
        job.cancel()

    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("warnings.warn", lambda *args, **_: said.append(args))
        with asyncio.Runner(loop_factory=factory(backend)) as runner:
            runner.run(main())
    assert said == []


@asyncios
def test_a_ready_socket_is_served_before_the_clock_jumps(backend):
    async def main():
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            loop = asyncio.get_running_loop()
            loop.call_soon(right.send, b"x")
            async with asyncio.timeout(1):
                await loop.sock_recv(left, 1)
            return loop.time()

    assert run_virtual(main, backend=backend) == START


@asyncios
def test_a_silent_socket_does_not_hold_the_clock(backend):
    async def main():
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            loop = asyncio.get_running_loop()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await loop.sock_recv(left, 1)
            return loop.time()

    assert run_virtual(main, backend=backend) == START + 30


@asyncios
def test_io_grace_gives_the_outside_real_time_before_a_jump(backend):
    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('hello')", stdout=subprocess.PIPE
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        return out.strip(), asyncio.get_running_loop().time()

    graceful = functools.partial(factory(backend), io_grace=30)
    with asyncio.Runner(loop_factory=graceful) as runner:
        assert runner.run(main()) == (b"hello", START)


@asyncios
def test_a_living_process_is_no_deadlock(backend):
    async def main():
        code = "import time; time.sleep(0.3)"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await process.wait()

    assert run_virtual(main, backend=backend) == 0


@asyncios
def test_a_call_from_a_foreign_thread_is_waited_for_and_served(backend, monkeypatch):
    monkeypatch.setattr(clocks, "UNANNOUNCED_THREADS", 30)

    async def main():
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        thread = threading.Timer(0.05, lambda: loop.call_soon_threadsafe(called.set))
        thread.start()
        await called.wait()
        thread.join()
        return called.is_set()

    assert run_virtual(main, backend=backend)


def test_on_trio_a_long_run_is_no_long_silence(monkeypatch):
    monkeypatch.setattr(clocks, "UNANNOUNCED_THREADS", 30)
    worked = 0

    def monotonic():
        return time.monotonic() + worked

    monkeypatch.setattr(trio_deadlock, "time", SimpleNamespace(monotonic=monotonic))

    async def main():
        nonlocal worked
        await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        worked = 60  # seconds, of somebody's code
        called = trio.Event()
        token = trio.lowlevel.current_trio_token()
        thread = threading.Timer(0.05, lambda: token.run_sync_soon(called.set))
        thread.start()
        await called.wait()
        thread.join()
        return trio.current_time()

    assert run_virtual(main, backend="trio") == START + 1


def test_on_trio_what_waits_for_a_thread_or_a_socket_is_no_deadlock():
    async def main():
        await trio.to_thread.run_sync(time.sleep, 0.3)
        left, right = trio.socket.socketpair()
        with left, right:
            thread = threading.Timer(0.3, lambda: os.write(right.fileno(), b"x"))
            thread.start()
            await left.recv(1)
            thread.join()
        return trio.current_time()

    assert run_virtual(main, backend="trio") == START


@every
@pytest.mark.parametrize(
    "wait", [anyio.sleep_forever, lambda: anyio.Event().wait(), lambda: anyio.sleep(math.inf)]
)
def test_a_deadlock_is_an_error_that_names_the_waiting(backend, wait):
    async def stuck_here():
        await wait()

    async def main():
        async with anyio.create_task_group() as tg:
            tg.start_soon(stuck_here, name="the stuck one")

    with pytest.raises(DeadlockError, match=r"Waiting at 1000:(.|\n)*the stuck one"):
        run_virtual(main, backend=backend)


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="curio"):
        virtual_options("curio")


def test_the_clock_of_trio_serves_trio_run():
    async def main():
        await trio.sleep(3600)
        return trio.current_time()

    assert trio.run(main, clock=virtual_clock()) == START + 3600


def test_trio_is_imported_only_when_it_is_asked_for():
    code = (
        "import sys, anyio; from streamguard.testing import clocks;"
        "clocks.run_virtual(anyio.sleep, 60); assert 'trio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@asyncios
def test_looking_up_a_name_holds_the_clock(backend):
    async def main():
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            found = await loop.getaddrinfo("localhost", 80)
        async with asyncio.timeout(5):
            named = await loop.getnameinfo(("127.0.0.1", 80))
        return bool(found and named), loop.time()

    assert run_virtual(main, backend=backend) == (True, START)


@asyncios
def test_a_chain_of_protocols_is_served_before_the_clock_jumps(backend):
    """What one protocol hands on to the next goes through no task, and through many passes."""

    class Relay(asyncio.Protocol):
        def __init__(self, onward):
            self.onward = onward

        def data_received(self, data):
            self.onward.write(data)

    async def main():
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(6)]
        transports = []
        # What comes in at the far end of one pair goes out at the near end of the next.
        for (_, far), (near, _) in itertools.pairwise(pairs):
            onward, _ = await loop.create_connection(asyncio.Protocol, sock=near)
            relay, _ = await loop.create_connection(functools.partial(Relay, onward), sock=far)
            transports += [onward, relay]
        try:
            with pairs[0][0] as first, pairs[-1][1] as last:
                last.setblocking(False)
                first.send(b"x")
                async with asyncio.timeout(1):
                    assert await loop.sock_recv(last, 1) == b"x"
        finally:
            for transport in transports:
                transport.close()
        await asyncio.sleep(0.1)
        return loop.time() - 0.1

    assert run_virtual(main, backend=backend) == pytest.approx(START, abs=1e-6)


@asyncios
def test_a_chain_of_closings_is_over_before_the_clock_jumps(backend):
    """A transport's end is told in a pass of its own, which asks nobody to schedule anything."""

    class ClosesOnward(asyncio.Protocol):
        def __init__(self, onward):
            self.onward = onward

        def connection_lost(self, exc):
            self.onward()

    async def main():
        loop = asyncio.get_running_loop()
        closed = loop.create_future()
        close, kept = functools.partial(closed.set_result, "closed"), []
        for _ in range(3):
            near, far = socket.socketpair()
            kept.append(far)
            protocol = functools.partial(ClosesOnward, close)
            transport, _ = await loop.create_connection(protocol, sock=near)
            close = transport.close
        loop.call_later(1, close)
        async with asyncio.timeout(1.5):
            assert await closed == "closed"
        for far in kept:
            far.close()
        return loop.time()

    assert run_virtual(main, backend=backend) == START + 1


@asyncios
@pytest.mark.parametrize("blocks_in", ["a task", "a timer"])
def test_a_blocked_loop_asks_the_outside_before_its_late_timers(backend, blocks_in):
    """T4: what came while the loop was blocked is found before the time that was up meanwhile."""

    async def main():
        left, right = socket.socketpair()
        with left, right:
            loop, seen = asyncio.get_running_loop(), []

            def block():
                right.send(b"x")
                block_loop(30)

            loop.add_reader(left, lambda: seen.append(left.recv(1)))
            loop.call_later(10, seen.append, "late")
            if blocks_in == "a timer":
                loop.call_later(1, block)
            else:
                await asyncio.sleep(1)
                block()
            await asyncio.sleep(60)
            loop.remove_reader(left)
            return seen

    assert run_virtual(main, backend=backend) == [b"x", "late"]


@asyncios
def test_a_thread_that_called_in_time_leaves_no_suspicion_behind(backend):
    async def main():
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        thread = threading.Timer(0.01, lambda: loop.call_soon_threadsafe(called.set))
        thread.start()
        await called.wait()
        thread.join()
        await asyncio.to_thread(time.sleep, 2 * clocks.UNANNOUNCED_THREADS)
        return loop.time()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "UNANNOUNCED_THREADS", 0.5)
        assert run_virtual(main, backend=backend) == START


def test_a_loop_on_uvloop_that_waits_for_the_outside_sleeps_in_earnest():
    async def main():
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            thread = threading.Timer(0.5, lambda: right.send(b"x"))
            thread.start()
            began = time.thread_time()
            await asyncio.get_running_loop().sock_recv(left, 1)
            thread.join()
            return time.thread_time() - began

    assert run_virtual(main, backend="uvloop") < 0.1


def test_a_failing_timer_on_uvloop_is_reported_and_the_others_run():
    async def main():
        loop = asyncio.get_running_loop()
        told, ran = [], []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        loop.call_later(1, lambda: 1 / 0)
        loop.call_later(1, ran.append, "the next")
        loop.call_later(1, ran.append, "never").cancel()
        await asyncio.sleep(1)
        return [type(error) for error in told], ran

    assert run_virtual(main, backend="uvloop") == ([ZeroDivisionError], ["the next"])


def test_an_interrupt_in_a_timer_on_uvloop_comes_out_and_keeps_the_other_timers():
    def interrupt():
        raise KeyboardInterrupt

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(1, interrupt)
        await asyncio.sleep(2)
        return loop.time()

    with asyncio.Runner(loop_factory=factory("uvloop")) as runner:
        sleeping = runner.get_loop().create_task(main())
        with pytest.raises(KeyboardInterrupt):
            runner.get_loop().run_until_complete(sleeping)
        assert runner.get_loop().run_until_complete(sleeping) == START + 2


def test_uvloop_is_imported_only_when_it_is_asked_for():
    code = (
        "import sys, anyio; from streamguard.testing import clocks;"
        "clocks.run_virtual(anyio.sleep, 60); assert 'uvloop' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
