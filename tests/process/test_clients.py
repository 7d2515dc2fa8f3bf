"""S1-14: the process behind a client, of whatever make, is found, watched and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from streamguard import ConfigError, Connection, IdleTimeoutError, idle_guard, session
from streamguard._watch.watch import DRAIN
from streamguard.backends._processes import live_process_of, pid_of, process_of
from streamguard.compat import SubprocessWatchdog
from streamguard.events import ProcessAdopted, ProcessUnknown
from streamguard.signals import Progress, TurnEnded
from tests.process.backends import PATIENCE, is_dead
from tests.support import Events

IDLE = 0.2


class Client:
    """A client of nobody's SDK, whose `disconnect` returns and does nothing."""

    def __init__(self):
        self.calls = []

    async def disconnect(self):
        self.calls.append("disconnect")

    async def messages(self):
        yield "hello"
        await anyio.sleep_forever()


class Telling(Client):
    """It says its pid in the way of the protocol."""

    def __init__(self, process):
        super().__init__()
        self._child = process

    def get_subprocess_pid(self):
        return None if self._child is None else self._child.pid


class TellingInTime(Telling):
    """The same, async; it has nothing to wait for."""

    async def get_subprocess_pid(self):
        return self._child.pid


class Keeping(Client):
    """It keeps its process to itself, as the clients of a known SDK do."""

    def __init__(self, process):
        super().__init__()
        self._transport = SimpleNamespace(_process=process)


class Protocol(Keeping):
    """It has the protocol's method, and that does not work."""

    def __init__(self, process, answer):
        super().__init__(process)
        self._answer = answer

    def get_subprocess_pid(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def refusing(error):
    return lambda process: Protocol(process, error)


CLIENTS = {
    "says it": Telling,
    "says it, async": TellingInTime,
    "keeps it": Keeping,
    "has none to say": refusing(None),
    "AttributeError": refusing(AttributeError("_process")),
    "NotImplementedError": refusing(NotImplementedError()),
    "another error": refusing(RuntimeError("not connected")),
}


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def client_of(request):
    return request.param


async def take(stream):
    with anyio.fail_after(PATIENCE), pytest.raises(IdleTimeoutError) as raised:
        async for _ in stream:
            pass
    return raised.value


# -- a guard --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_a_disconnect_that_does_nothing_does_not_confirm_the_end_s1_14(
    loop, backends, client_of, form
):
    """S1-14, D5: the child behind the client is found, ended and proven dead."""
    backend = backends.start("child", "ready", "hang", ";", "ready", "hang")
    client, events = client_of(backend), Events()

    async def main():
        guarded = client.messages() | idle_guard(IDLE, client=client, observer=events)
        if form == "bare":
            return await take(guarded)
        async with guarded as messages:
            return await take(messages)

    teardown = loop.run(main).teardown
    assert client.calls == ["disconnect"]
    assert teardown.confirmed
    assert teardown.tree == "terminated"
    assert teardown.signals[0] == "TERM"
    assert backends.living() == set()
    assert [event.pid for event in events.of(ProcessAdopted)] == [backend.pid]


def test_a_process_that_comes_late_is_found_s1_14(loop, backends):
    """S1-14: the client starts it when it is asked; it is looked for until then."""
    client = Telling(None)

    async def messages():
        client._child = backends.start("ready", "hang")
        yield "hello"
        await anyio.sleep_forever()

    async def main():
        return await take(messages() | idle_guard(IDLE, client=client))

    assert loop.run(main).teardown.tree == "terminated"
    assert backends.living() == set()


def test_a_session_ends_the_process_of_its_client_s1_14(loop, backends):
    """S1-14, R3: of each attempt the connection's own."""
    started = []

    class Opened:
        def __init__(self, point):
            self.client = Keeping(backends.start("ready", "hang"))
            started.append(self.client._transport._process)

        async def __aenter__(self):
            return Connection(lambda prompt: self.client.messages(), client=self.client)

        async def __aexit__(self, *error):
            pass

    async def main():
        async with session(Opened, prompt="go") | idle_guard(IDLE) as chat:
            return await take(chat)

    error = loop.run(main)
    assert error.teardown.confirmed
    assert error.teardown.tree == "terminated"
    assert [is_dead(process.pid) for process in started] == [True]


def test_a_client_may_start_a_process_for_each_turn_s1_14(loop, backends):
    """S1-14: one of an earlier turn, that is over, is not taken for this turn's."""
    client, pids = Keeping(None), []

    async def turn(prompt):
        client._transport._process = process = backends.start("ready", "hang")
        pids.append(process.pid)
        yield Progress()
        await anyio.lowlevel.checkpoint()
        if prompt == "hang":
            await anyio.sleep_forever()
        yield TurnEnded()
        process.kill()
        process.wait()

    @asynccontextmanager
    async def opened(point):
        yield Connection(turn, client=client)

    async def main():
        async with session(opened, prompt="one") | idle_guard(IDLE) as chat:
            with anyio.fail_after(PATIENCE):
                assert len([message async for message in chat]) == 2
                assert len([message async for message in chat.ask("two")]) == 2
                return await take(chat.ask("hang"))

    error = loop.run(main)
    assert len(pids) == 3  # not of three numbers: tests beside this have pids given out again
    assert error.teardown.tree == "terminated"
    assert backends.living() == set()


async def test_a_client_without_a_process_works_as_ever_s1_14(loop):
    """S1-14: nobody asked for one, so nobody is told that there is none."""
    client, events = Client(), Events()
    guard = idle_guard(IDLE, client=client, observer=events)
    teardown = (await take(client.messages() | guard)).teardown
    assert (teardown.confirmed, teardown.disconnect, teardown.tree) == (True, "returned", None)
    assert events.of(ProcessUnknown) == []


def test_a_process_that_is_written_goes_before_it_s1_14(backends):
    """S1-14, T12: in one operator, and in a pipe in either order."""
    child, written = backends.start("ready", "hang"), backends.start("ready", "hang")
    client = Keeping(child)
    for guard in (
        idle_guard(60, client=client, process=written),
        idle_guard(60, client=client) | idle_guard(60, process=written),
        idle_guard(60, process=written) | idle_guard(60, client=client),
        idle_guard(60, process=written).replace(client=client),
    ):
        assert guard.plan.process is written
    assert idle_guard(60, client=client).replace(process=None).plan.process is None
    assert idle_guard(60, client=client).replace(client=None).plan.process is None
    assert idle_guard(60, client=client).replace(client=Client()).plan.process() is None


def test_two_clients_in_one_pipe_are_both_disconnected_s1_14(backends):
    """T12: callbacks add up; the process of one of them is not all there is to end."""
    clients = [Keeping(backends.start("ready", "hang")) for _ in range(2)]
    guards = [idle_guard(60, client=client) for client in clients]
    plan = (guards[0] | guards[1]).plan
    assert plan.disconnects == tuple(client.disconnect for client in clients)
    assert plan.process is None
    assert (guards[0] | guards[0]).plan.process() is clients[0]._transport._process


def test_the_process_that_the_source_reads_goes_before_it_s1_14(loop, backends):
    """S1-14: `guarded_process` is known, what a client may have is not."""
    read, other = backends.start("ready", "hang"), backends.start("ready", "hang")

    class Source:
        guarded_process = read

        def __init__(self):
            self.client = Keeping(other)

        def __aiter__(self):
            return self.client.messages()

    async def main():
        source = Source()
        return await take(source | idle_guard(IDLE, client=source.client))

    assert loop.run(main).teardown.confirmed
    assert is_dead(read.pid)
    assert not is_dead(other.pid)


# -- finding it -----------------------------------------------------------------------------------


def test_the_object_of_a_process_goes_before_its_pid_s1_14(backends):
    """D4: it knows how it ended."""
    child = backends.start("ready", "hang")
    client = Telling(child)
    assert process_of(client) == child.pid
    client._process = child
    assert process_of(client) is child


def test_what_codex_keeps_is_found_s1_14(backends):
    child = backends.start("ready", "hang")
    codex = SimpleNamespace(_client=SimpleNamespace(_sync=SimpleNamespace(_proc=child)))
    for client in (codex, SimpleNamespace(_codex=codex)):
        assert process_of(client) is child
    assert process_of(SimpleNamespace(_client=SimpleNamespace(_proc=child))) is child


@pytest.mark.parametrize("tells", [True, False])
def test_one_that_has_ended_leaves_no_pid_s1_14(backends, tells):
    """S1-14, D4: its pid may be another's by now."""
    child = backends.popen(["true"])
    child.wait()
    client = Keeping(child)
    if tells:
        client.get_subprocess_pid = lambda: child.pid
    assert pid_of(client) is None
    assert live_process_of(client) is None


def test_a_pid_that_another_process_has_by_now_is_not_adopted_s1_14():
    """S1-14, D4: of a bare number nobody knows whose it is, unless we have started that process."""
    stranger = os.getppid()
    for pid in (stranger, os.getpid(), 1, 10**9):
        client = Client()
        client.get_subprocess_pid = lambda pid=pid: pid
        assert live_process_of(client) is None


def test_a_zombie_is_not_adopted_s1_14():
    """A client may start a process for each turn, and look after the last one later."""
    with subprocess.Popen(["sleep", "1000"]) as child:
        client = Keeping(child)
        assert live_process_of(client) is child
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert live_process_of(client) is None


@pytest.mark.parametrize("said", [None, "12345", 0, -1, True, object(), 7.0])
def test_what_is_no_pid_s1_14(said):
    client = Client()
    client.get_subprocess_pid = lambda: said
    assert process_of(client) is None


def test_a_client_whose_inside_raises_s1_14():
    class Odd(Client):
        @property
        def _transport(self):
            raise RuntimeError("not connected")

    assert process_of(Odd()) is None


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
@pytest.mark.parametrize("when", ["at once", "later"])
async def test_what_a_clients_inside_raises_is_nobodys_error_s1_14(loop, error, when):
    """What looks like a cancellation is some future's result: nobody was cancelled."""

    class Odd(Client):
        asked = 0

        def get_subprocess_pid(self):
            self.asked += 1
            if when == "at once" or self.asked > 1:
                raise error

    client = Odd()

    assert (
        await take(client.messages() | idle_guard(IDLE, client=client))
    ).verdict.limit == "idle"
    assert client.calls == ["disconnect"]


def test_a_client_may_replace_its_process_in_mid_stream_s1_14(loop, backends):
    """That a process is dead which was only guessed to be the backend's says nothing of the stream."""
    client = Keeping(backends.start("ready", "hang"))

    def replace():
        earlier = client._transport._process
        client._transport._process = backends.start("ready", "hang")
        earlier.kill()
        earlier.wait()

    async def goes_on():
        yield "one"
        replace()
        await anyio.sleep(2 * DRAIN)
        yield "two"

    async def hangs():
        yield "one"
        replace()
        await anyio.sleep_forever()

    async def main():
        guard = idle_guard(PATIENCE, client=client)
        assert [message async for message in goes_on() | guard] == ["one", "two"]
        return await take(hangs() | guard.replace(idle=IDLE))

    teardown = loop.run(main).teardown
    assert (teardown.confirmed, teardown.tree) == (True, "terminated")
    assert backends.living() == set()


async def test_a_launcher_that_has_ended_is_no_failure_s1_14(loop, backends):
    """A stream that came to its end came to its end."""
    client = Keeping(backends.start("ready", "hang"))

    async def messages():
        yield "one"
        client._transport._process.kill()
        client._transport._process.wait()
        yield "two"

    guarded = messages() | idle_guard(IDLE, client=client)
    assert [message async for message in guarded] == ["one", "two"]


def test_a_watchdog_ends_no_stranger_s1_14(backends):
    """A pid that this program has not started is not a client's to name."""
    stranger = subprocess.Popen(
        ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, text=True
    )
    pid = int(stranger.communicate()[0])  # its parent is gone

    class Wrong(Client):
        def get_subprocess_pid(self):
            return pid

    try:
        watchdog = SubprocessWatchdog.for_client(Wrong())
        assert watchdog.pid is None
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_client_that_answers_once_is_asked_once_s1_14():
    class Once(Client):
        answers = iter((os.getppid(), None))

        def get_subprocess_pid(self):
            return next(self.answers)

    assert SubprocessWatchdog.for_client(Once()).pid is None


def test_what_is_no_client_is_refused_as_ever():
    with pytest.raises(ConfigError, match=r"has no disconnect\(\)"):
        idle_guard(60, client=object())
