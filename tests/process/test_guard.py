"""A guard and a real process: adopted early, its death noticed, its tree ended with the teardown."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing

import anyio
import pytest
import trio

from streamguard import (
    ConfigError,
    IdleTimeoutError,
    ProcessExitedError,
    StreamTruncatedError,
    exit_code_for,
    idle_guard,
    lines,
)
from streamguard._watch.watch import DRAIN
from streamguard.backends import Backend
from streamguard.events import (
    ProcessAdopted,
    ProcessExited,
    ProcessKilled,
    ProcessSurvived,
    ProcessUnknown,
    TimedOut,
    TornDown,
)
from streamguard.process import ProcessTree, marked_env
from streamguard.signals import Progress, TurnEnded
from tests.process.backends import PATIENCE, comes_true, is_dead, settled_fds
from tests.support import Events

IDLE = 0.2
RESULT = "result"


def read(message):
    """The lines of a backend whose turns end with `result`."""
    return TurnEnded() if message == RESULT else Progress()


KNOWN = Backend("test", read, always_ends_turns=True)


async def silence():
    """A stream that never says anything, whatever happens to the process."""
    await anyio.sleep_forever()
    yield


async def says(*messages):
    """A stream that says something and then nothing more."""
    for message in messages:
        yield message
    await anyio.sleep_forever()


async def take(stream):
    """What comes of `stream`, within patience: messages and error."""
    messages, error = [], None
    with anyio.fail_after(PATIENCE):
        try:
            async for message in stream:
                messages.append(message)
        except Exception as raised:
            error = raised
    return messages, error


# -- teardown ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_a_verdict_ends_the_tree(loop, backends, form):
    """D1, D4, D5: disconnect first, then the tree; proven dead, which alone suffices."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "hang")
    order, events = [], Events()

    async def main():
        operator = idle_guard(
            IDLE,
            process=backend,
            disconnect=lambda: order.append(is_dead(backend.pid)),
            observer=events,
        )
        if form == "bare":
            return await take(silence() | operator)
        async with silence() | operator as messages:
            return await take(messages)

    _, error = loop.run(main)
    assert isinstance(error, IdleTimeoutError)
    assert order == [False]
    teardown = error.teardown
    assert teardown.confirmed
    assert teardown.tree == "terminated"
    assert teardown.signals[0] == "TERM"
    assert teardown.exit == -signal.SIGTERM
    assert teardown.survivors == ()
    assert "process tree terminated (TERM" in str(error)
    assert exit_code_for(error) == 124
    assert backends.living() == set()
    kinds = [type(event) for event in events]
    wanted = [ProcessAdopted, TimedOut, ProcessKilled, TornDown]
    assert [kind for kind in kinds if kind in wanted] == wanted


def test_one_that_is_deaf_is_killed_after_the_grace(loop, backends):
    """D4: `kill_grace`; the exit code says that KILL was needed."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        return await take(silence() | idle_guard(IDLE, process=backend.pid, kill_grace=0.2))

    _, error = loop.run(main)
    assert error.teardown.confirmed
    assert "KILL" in error.teardown.signals
    assert exit_code_for(error) == 137
    assert backends.living() == set()


def test_no_grace_at_all(loop, backends):
    """`kill_grace=0` kills at once."""
    backend = backends.start("ignore", "ready", "hang")

    async def main():
        return await take(silence() | idle_guard(IDLE, process=backend.pid, kill_grace=0))

    _, error = loop.run(main)
    assert "TERM" not in error.teardown.signals
    assert backends.living() == set()


def test_a_disconnect_that_hangs_is_left_and_the_process_reaped_by_pid(loop, backends):
    """D2, D5: a dead tree is what confirms, whatever became of the disconnect."""
    backend = backends.start("ready", "hang")

    async def main():
        operator = idle_guard(
            IDLE, process=backend, disconnect=anyio.sleep_forever, disconnect_timeout=0.2
        )
        return await take(silence() | operator)

    _, error = loop.run(main)
    assert error.teardown.disconnect == "abandoned"
    assert error.teardown.confirmed
    assert backends.living() == set()


async def test_a_disconnect_that_hung_on_the_process_is_heard(loop, backends, monkeypatch):
    """D2: it was abandoned, but whoever closes the client next must not meet it in mid-close."""
    monkeypatch.setattr("streamguard._guard.teardown._LATE_RETURN", PATIENCE)
    backend = backends.start("ignore", "ready", "hang")
    returned = []

    async def disconnect():
        while not is_dead(backend.pid):
            await anyio.sleep(0.01)
        await anyio.sleep(0.2)
        returned.append(True)

    operator = idle_guard(
        IDLE, process=backend, kill_grace=0, disconnect=disconnect, disconnect_timeout=0.2
    )
    (_, error), returned_in_time = await take(silence() | operator), list(returned)
    assert error.teardown.confirmed
    assert returned_in_time


def test_a_disconnect_that_ends_the_root_does_not_hide_its_children(loop, backends):
    """D4: who belongs to the tree is seen before anything ends it."""
    backend = backends.start("child", "detach", "ready", "hang", ";", "ready", "hang")

    async def main():
        operator = idle_guard(IDLE, process=backend, disconnect=backend.kill)
        return await take(silence() | operator)

    _, error = loop.run(main)
    assert error.teardown.confirmed
    assert backends.living() == set()


def test_a_process_that_is_only_known_later(loop, backends):
    """Fallback B of seed 001: None at first; adopted when its first message has come."""
    backend = backends.start("ready", "hang")
    known_after = []
    events = Events()

    async def stream():
        known_after.append(backend)
        yield "a"
        await anyio.sleep_forever()

    async def main():
        operator = idle_guard(
            IDLE, process=lambda: known_after[0] if known_after else None, observer=events
        )
        return await take(stream() | operator)

    _, error = loop.run(main)
    assert error.teardown.confirmed
    assert len(events.of(ProcessAdopted)) == 1
    assert events.of(ProcessUnknown) == []
    assert backends.living() == set()


@pytest.mark.parametrize("why", ["none", "raises"])
async def test_a_process_that_is_never_known(loop, why):
    """Fallback B: the disconnect is all there is, and it is said once."""
    events = Events()

    def process():
        if why == "raises":
            raise AttributeError("_process")

    operator = idle_guard(IDLE, process=process, disconnect=lambda: None, observer=events)
    _, error = await take(says("a") | operator)
    assert error.teardown.confirmed
    assert error.teardown.tree is None
    (event,) = events.of(ProcessUnknown)
    assert (event.error is None) == (why == "none")


async def test_what_must_not_be_ended_is_refused_at_the_first_pull(loop):
    """D4: a function may give what could not be checked where it was written."""
    _, error = await take(silence() | idle_guard(IDLE, process=os.getpid))
    assert "is this process, one that it descends from" in str(error)


async def test_a_process_that_would_have_to_be_awaited_is_refused(loop):
    """D4: where that cannot be seen before; and nothing is left that was never awaited."""

    async def pid():
        return os.getpid()

    def process():
        return pid()

    _, error = await take(silence() | idle_guard(IDLE, process=process))
    assert type(error) is ConfigError
    assert "gave a coroutine, and nothing is awaited there" in str(error)


def test_a_process_that_can_be_awaited_is_one_all_the_same(loop, backends):
    """D4: some process objects are their own end's future."""
    backend = backends.start("ready", "hang")

    class Process:
        pid = backend.pid

        def __await__(self):
            raise AssertionError

    def process():
        return Process()

    async def main():
        return await take(silence() | idle_guard(IDLE, process=process))

    _, error = loop.run(main)
    assert error.teardown.confirmed
    assert backends.living() == set()


def test_a_tree_that_is_handed_in_stays_its_owners(loop, backends):
    """Whoever has adopted it already is asked; its end is theirs, too."""
    backend = backends.start("ready", "hang")

    async def main():
        with ProcessTree.adopt(backend) as tree:
            _, error = await take(silence() | idle_guard(IDLE, process=tree))
            assert tree.termination is not None
            assert tree.is_dead
            return error

    assert loop.run(main).teardown.confirmed
    assert backends.living() == set()


def test_a_tree_that_its_owner_has_closed(loop, backends):
    """D4: it cannot be watched any more, which is said at the first pull."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        operator = idle_guard(60, process=tree)

    async def main():
        return await take(silence() | operator)

    _, error = loop.run(main)
    assert isinstance(error, RuntimeError)
    assert "is closed" in str(error)


def test_a_tree_that_its_owner_closes_too_early(loop, backends):
    """D4: the guard that has it goes on with it, and gives it back at its own end."""
    backend = backends.start("ready", "hang")
    tree = ProcessTree.adopt(backend)

    async def stream():
        tree.close()
        await anyio.sleep_forever()
        yield

    async def main():
        return await take(stream() | idle_guard(IDLE, process=tree))

    _, error = loop.run(main)
    assert error.teardown.confirmed
    assert backends.living() == set()
    with pytest.raises(RuntimeError, match="is closed"):
        tree.kill()


def test_a_survivor_is_reported(loop, backends, monkeypatch):
    """D4, D5: what cannot be signalled is named, and nothing is confirmed."""
    backend = backends.start("ready", "hang")
    events = Events()
    monkeypatch.setattr("streamguard.process.identity.Handle.send", lambda *_: False)
    monkeypatch.setattr("streamguard.process.identity.Handle.send_to_group", lambda *_: False)
    monkeypatch.setattr("streamguard.process.identity.PidfdHandle.send_to_group", lambda *_: False)

    async def main():
        operator = idle_guard(IDLE, process=backend, kill_grace=0, observer=events)
        return await take(silence() | operator)

    _, error = loop.run(main)
    assert not error.teardown.confirmed
    assert error.teardown.survivors == (backend.pid,)
    assert f"STILL ALIVE: {backend.pid}" in str(error)
    assert [event.survivors for event in events.of(ProcessSurvived)] == [(backend.pid,)]


def test_a_normal_end_leaves_the_process_alone(loop, backends):
    """D1: disconnect and tree are for verdicts. The process stays its owner's."""
    backend = backends.start("ready", "hang")

    async def stream():
        yield "a"

    async def main():
        return await take(stream() | idle_guard(IDLE, process=backend))

    assert loop.run(main) == (["a"], None)
    assert not is_dead(backend.pid)


# -- the process dies under its stream -----------------------------------------------------------


@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_a_death_ends_a_stream_that_a_grandchild_holds_open(loop, backends, form):
    """T10: noticed through the pidfd, drained, and named with its exit status.

    Nobody had seen the grandchild, and its parent is gone: it is found by its mark.
    """
    words = ("child", "detach", "ready", "hang", ";", "ready", "hang")
    backend = backends.start(*words, env=marked_env())
    events = Events()

    async def stream():
        yield "a"
        os.kill(backend.pid, signal.SIGKILL)
        await anyio.sleep_forever()

    async def main():
        operator = idle_guard(60, process=backend, observer=events)
        if form == "bare":
            return await take(stream() | operator)
        async with stream() | operator as messages:
            return await take(messages)

    messages, error = loop.run(main)
    assert messages == ["a"]
    assert isinstance(error, ProcessExitedError)
    assert error.verdict.exit == -signal.SIGKILL
    assert "lost its process (exit status -9)" in str(error)
    assert error.teardown.confirmed
    assert len(events.of(ProcessExited)) == 1
    assert backends.living() == set()


async def test_what_the_dead_has_left_is_delivered_first(loop, backends):
    """T3, T10: the pipe still holds messages; a slow consumer loses none of them."""
    backend = backends.start("ready", "hang")

    async def stream():
        os.kill(backend.pid, signal.SIGKILL)
        for number in range(5):
            await anyio.sleep(0.2)
            yield number
        await anyio.sleep_forever()

    messages = []
    with anyio.fail_after(PATIENCE), pytest.raises(ProcessExitedError):
        async for message in stream() | idle_guard(60, process=backend):
            messages.append(message)
            await anyio.sleep(0.1)
    assert messages == list(range(5))


async def test_a_death_after_the_turns_end_is_a_normal_end(loop, backends):
    """T3: completed wins."""
    backend = backends.start("ready", "hang")
    disconnects = []

    async def stream():
        yield RESULT
        os.kill(backend.pid, signal.SIGKILL)
        await anyio.sleep_forever()

    operator = idle_guard(
        60, process=backend, read=KNOWN, disconnect=lambda: disconnects.append(1)
    )
    assert await take(stream() | operator) == ([RESULT], None)
    assert disconnects == [1]  # the stream had to be ended


async def test_a_process_that_ends_with_0_under_an_unknown_backend(loop, backends):
    """T10: nobody knows whether its turn had ended; the status says that all was well."""
    backend = backends.popen(["true"])
    assert await take(says("a") | idle_guard(60, process=backend)) == (["a"], None)


async def test_a_process_that_ends_with_0_before_its_turn_does(loop, backends):
    """T10: a known backend would have said so."""
    backend = backends.popen(["true"])
    messages, error = await take(says("a") | idle_guard(60, process=backend, read=KNOWN))
    assert messages == ["a"]
    assert isinstance(error, ProcessExitedError)
    assert error.verdict.exit == 0


@pytest.mark.parametrize(
    ("status", "expected"), [(0, StreamTruncatedError), (3, ProcessExitedError)]
)
async def test_an_end_without_a_turns_end(loop, backends, status, expected):
    """T10: the stream ends by itself; a failed process is the better reason."""
    backend = backends.popen(["sh", "-c", f"exit {status}"])
    assert comes_true(lambda: is_dead(backend.pid))

    async def stream():
        yield "a"

    messages, error = await take(stream() | idle_guard(60, process=backend, read=KNOWN))
    assert messages == ["a"]
    assert type(error) is expected
    assert isinstance(error.__cause__, StopAsyncIteration)


async def test_an_unknown_backend_whose_process_failed(loop, backends):
    """T10: only an end with 0 is a normal one."""
    backend = backends.popen(["sh", "-c", "exit 3"])
    assert comes_true(lambda: is_dead(backend.pid))

    async def stream():
        yield "a"

    _, error = await take(stream() | idle_guard(60, process=backend))
    assert isinstance(error, ProcessExitedError)
    assert error.verdict.exit == 3


def test_a_streams_own_error_goes_its_way(loop, backends):
    """T7: a transport that notices the death itself."""
    backend = backends.popen(["sh", "-c", "exit 3"])

    async def stream():
        yield "a"
        raise ConnectionError("the transport's")

    async def main():
        return await take(stream() | idle_guard(60, process=backend))

    _, error = loop.run(main)
    assert type(error) is ConnectionError


def test_a_source_that_goes_on_with_another_process(loop, backends):
    """T10: after an error of its own it has begun anew, and who died before is of no account."""
    processes = [backends.start("ready", "hang")]
    events = Events()

    class Stream:
        pulls = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.pulls += 1
            if self.pulls == 1:
                processes[-1].kill()
                while not events.of(ProcessExited):
                    await anyio.sleep(0.01)
                processes.append(backends.start("ready", "hang"))
                raise ConnectionError
            if self.pulls == 2:
                await anyio.sleep(2 * DRAIN)
                return "a"
            await anyio.sleep_forever()
            return None

    async def main():
        stream = Stream() | idle_guard(5, process=lambda: processes[-1], observer=events)
        return [await take(stream), await take(stream)]

    (_, first), (messages, second) = loop.run(main)
    assert isinstance(first, ConnectionError)
    assert messages == ["a"]
    assert isinstance(second, IdleTimeoutError)
    assert second.teardown.confirmed
    assert second.teardown.exit == -signal.SIGTERM
    assert [event.pid for event in events.of(ProcessAdopted)] == [p.pid for p in processes]
    assert backends.living() == set()


async def test_a_death_under_an_interrupt_ends_the_waiting_for_it(loop, backends, monkeypatch):
    """D1: who has died ends no turn, so the bound is not waited for."""
    monkeypatch.setattr("streamguard._guard.attempt.INTERRUPTING", 10 * PATIENCE)
    backend = backends.start("ready", "hang")

    async def interrupt():
        backend.kill()
        await anyio.sleep_forever()

    messages, error = await take(
        says("a") | idle_guard(IDLE, process=backend, interrupt=interrupt)
    )
    assert messages == ["a"]
    assert isinstance(error, IdleTimeoutError)
    assert error.teardown.confirmed


async def test_mode_warn_only_tells(loop, backends):
    """T11: the verdict is an event, and the stream goes on as it would."""
    backend = backends.popen(["sh", "-c", "exit 3"])
    events = Events()

    async def stream():
        yield "a"
        await anyio.sleep(1.5)
        yield "b"

    assert await take(
        stream() | idle_guard(60, process=backend, mode="warn", observer=events)
    ) == (["a", "b"], None)
    assert [(e.verdict.limit, e.enforced) for e in events.of(TimedOut)] == [("exited", False)]


def test_a_process_that_never_leaves_after_its_turn(loop, backends):
    """T3, T14: `exit_grace`, then the tree is ended, and the run stays a success."""
    backend = backends.start("ignore", "ready", "hang")
    events = Events()

    async def main():
        operator = idle_guard(
            60, exit_grace=0.2, kill_grace=0.2, process=backend, read=KNOWN, observer=events
        )
        return await take(says("a", RESULT) | operator)

    assert loop.run(main) == (["a", RESULT], None)
    assert backends.living() == set()
    (torn_down,) = events.of(TornDown)
    assert torn_down.teardown.confirmed
    assert torn_down.teardown.tree == "killed"


def test_a_monitor_has_it_too(loop, backends):
    """O10"""
    backend = backends.start("ready", "hang")

    async def main():
        with anyio.fail_after(PATIENCE):
            async with idle_guard(60, process=backend).monitor() as monitor:
                monitor.saw("a")
                os.kill(backend.pid, signal.SIGKILL)
                with monitor.waiting():
                    await anyio.sleep_forever()

    with pytest.raises(ProcessExitedError):
        loop.run(main)


# -- nothing is left -----------------------------------------------------------------------------


def watchers(loop):
    """The tasks that watch processes; trio's are in a nursery of the run's own."""
    if loop.is_asyncio:
        names = [task.get_name() for task in asyncio.all_tasks()]
    else:
        nurseries = trio.lowlevel.current_root_task().child_nurseries
        names = [task.name for nursery in nurseries for task in nursery.child_tasks]
    return [name for name in names if "process watch" in name]


@pytest.mark.parametrize("how", ["end", "break", "forgotten", "error", "verdict"])
def test_nothing_of_ours_is_left(loop, backends, how):
    """O7: no task, no descriptor, however a stream is left; the process lives but for a verdict."""
    backend = backends.start("ready", "hang")

    class Stream:
        """No generator: a forgotten one is its loop's business, and a warning on trio."""

        messages = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.messages += 1
            if self.messages == 1:
                return "a"
            if how == "error":
                raise ConnectionError
            if how == "end":
                raise StopAsyncIteration
            await anyio.sleep_forever()
            return None

    async def use():
        guarded = Stream() | idle_guard(IDLE if how == "verdict" else 60, process=backend)
        if how in ("break", "forgotten"):
            async for _ in guarded:
                break
            if how == "break":
                await guarded.aclose()
        else:
            await take(guarded)

    async def main():
        before = settled_fds()
        await use()
        with anyio.fail_after(PATIENCE):
            while settled_fds() > before or watchers(loop):
                await anyio.sleep(0.01)

    loop.run(main)
    assert is_dead(backend.pid) == (how == "verdict")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("during", ["disconnect", "the tree's end"])
@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_native_cancels_during_a_teardown(backends, form, during, times):
    """D6: one waits for the budget; a second leaves the teardown running on its own."""
    backend = backends.start("ignore", "ready", "hang")

    async def consume(operator):
        if form == "bare":
            return await take(silence() | operator)
        async with silence() | operator as messages:
            return await take(messages)

    async def main():
        events, may_return = Events(), asyncio.Event()

        def let_it_end():
            if during == "disconnect":
                may_return.set()
            else:
                backend.kill()

        operator = idle_guard(IDLE, process=backend, kill_grace=10 * PATIENCE, observer=events)
        if during == "disconnect":
            operator = operator.replace(kill_grace=0, disconnect=may_return.wait)
        task = asyncio.create_task(consume(operator))
        while not events.of(TimedOut):
            await asyncio.sleep(0.01)
        for _ in range(times):
            await asyncio.sleep(0.1)
            task.cancel()
        if times == 1:
            await asyncio.sleep(0.1)
            assert not task.done()
            let_it_end()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_dead(backend.pid) == (times == 1)
        let_it_end()
        while not events.of(ProcessKilled):
            await asyncio.sleep(0.01)
        assert backends.living() == set()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_two_hundred_at_once(loop, backends):
    """Each has its own process; none is left, none waits for another."""
    count = 200
    started = [backends.popen(["sleep", "1000"]) for _ in range(count)]
    errors = []

    async def one(process):
        _, error = await take(silence() | idle_guard(IDLE, process=process))
        errors.append(error)

    async def main():
        async with anyio.create_task_group() as group:
            for process in started:
                group.start_soon(one, process)

    loop.run(main)
    assert len(errors) == count
    assert all(error.teardown.confirmed for error in errors)
    assert backends.living() == set()


# -- host death (D7) -----------------------------------------------------------------------------

HOST = """
import subprocess, sys
import anyio
from streamguard import idle_guard, sentinel

async def silence():
    print("ready", backend.pid, flush=True)
    await anyio.sleep_forever()
    yield

async def main():
    async for _ in silence() | idle_guard(1000, process=backend, kill_grace=0.2):
        pass

if sys.argv[1] == "sentinel":
    sentinel()
backend = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.parametrize("kind", ["sentinel", "control"])
def test_a_guarded_process_ends_with_its_program_if_a_sentinel_is_in_force(loop, backends, kind):
    """D7: nobody adopts by hand. The control shows that it would live on."""
    name = "trio" if loop.name == "trio" else "asyncio"
    host = backends.popen([sys.executable, "-c", HOST, kind, name], stdout=subprocess.PIPE)
    word, pid = host.stdout.readline().split()
    assert word == b"ready"
    host.kill()
    host.wait()
    if kind == "sentinel":
        assert comes_true(lambda: is_dead(int(pid)))
    else:
        assert not is_dead(int(pid))


# -- an impatient user ---------------------------------------------------------------------------

IMPATIENT = """
import signal, subprocess, sys
import anyio
from streamguard import _loops as loops
from streamguard import idle_guard
from streamguard.events import TimedOut

async def silence():
    await anyio.sleep_forever()
    yield

def observe(event):
    if isinstance(event, TimedOut):
        loops.current().spawn(press_twice)

async def press_twice():
    for _ in range(2):
        await anyio.sleep(0.1)
        signal.raise_signal(signal.SIGINT)
    await anyio.sleep_forever()

async def use(operator):
    if sys.argv[1] == "bare":
        async for _ in silence() | operator:
            pass
    else:
        async with silence() | operator as messages:
            async for _ in messages:
                pass

if __name__ == "__main__":
    backend = subprocess.Popen(["sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000"])
    where = {"disconnect": {"disconnect": lambda: anyio.sleep(1000)}, "tree": {}}[sys.argv[2]]
    operator = idle_guard(0.5, process=backend, observer=observe, kill_grace=1000, **where)
    options = {"use_uvloop": True} if sys.argv[3] == "uvloop" else {}
    loop = "trio" if sys.argv[3] == "trio" else "asyncio"
    anyio.run(use, operator, backend=loop, backend_options=options)
"""


@pytest.mark.parametrize("where", ["disconnect", "tree"])
@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_a_program_that_is_interrupted_twice_leaves_nothing(loop, backends, tmp_path, form, where):
    """D4, D6: the loop ends before the teardown does, and what cannot be waited for is killed."""
    said = tmp_path / "said"
    with said.open("wb") as stderr:
        command = [sys.executable, "-c", IMPATIENT, form, where, loop.name]
        program = backends.popen(command, stderr=stderr)
        program.wait(PATIENCE)
    assert said.read_text().splitlines()[-1] == "KeyboardInterrupt"
    assert backends.living() == set()


# -- a backend's own lines -----------------------------------------------------------------------

SILENT = """
import sys, time
print("ready", flush=True)
time.sleep(1000)
"""


def test_the_silent_child(loop, backends):
    """S3-15: a child that says nothing is found, and all of it is gone."""
    child = backends.popen(
        [sys.executable, "-I", "-S", "-c", SILENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    began = time.monotonic()

    async def main():
        return await take(lines(child) | idle_guard(1, process=child))

    messages, error = loop.run(main)
    assert messages == ["ready"]
    assert isinstance(error, IdleTimeoutError)
    assert error.teardown.confirmed
    assert time.monotonic() - began >= 1
    assert backends.living() == set()


def test_a_child_that_leaves_its_pipe_to_another(loop, backends):
    """T10: it exits, a grandchild holds stdout, and the lines that it left are delivered."""
    script = "sleep 1000 & echo a; read go; echo b; exit 3"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = backends.popen(["sh", "-c", script], env=marked_env(), **pipes)

    async def main():
        return await take(answered(lines(child)) | idle_guard(60, process=child))

    async def answered(source):
        async with aclosing(aiter(source)) as said:
            async for line in said:
                if line == "a":
                    child.stdin.close()  # by now it was adopted
                yield line

    messages, error = loop.run(main)
    assert messages == ["a", "b"]
    assert isinstance(error, ProcessExitedError)
    assert error.verdict.exit == 3
    assert backends.living() == set()


def test_a_guard_around_a_processs_lines_has_the_process(loop, backends):
    """D4: the stream knows whose it is; nobody has to say it twice. Its last words are kept."""
    script = "echo a; echo trouble >&2; sleep 1000"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = backends.popen(["sh", "-c", script], **pipes)

    async def main():
        return await take(lines(child) | idle_guard(IDLE))

    messages, error = loop.run(main)
    assert messages == ["a"]
    assert isinstance(error, IdleTimeoutError)
    assert error.teardown.tree == "terminated"
    assert (error.tail.stdout, error.tail.stderr) == ("a\n", "trouble\n")
    assert "trouble" not in str(error)
    assert backends.living() == set()


@pytest.mark.parametrize("given", ["claude -p hello", None, 4711])
def test_lines_of_what_is_no_process(given):
    """One clear error, where it was written."""
    with pytest.raises(ConfigError, match="is no process: start it first, with stdout=PIPE"):
        lines(given)
