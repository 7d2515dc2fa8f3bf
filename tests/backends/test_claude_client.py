"""`client=`: what a guard takes from a ClaudeSDKClient, and from clients that nobody knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from importlib import metadata
from types import SimpleNamespace

import anyio
import pytest

from streamguard import (
    ConfigError,
    Connection,
    StreamTruncatedError,
    idle_guard,
    inflight_tool_gate,
)
from streamguard.backends import claude
from streamguard.backends.claude import client as claude_client
from streamguard.testing import FakeClient, call
from tests.support import take

sdk = pytest.importorskip("claude_agent_sdk")
from tests.backends.claude_cli import Clis  # noqa: E402 - it needs the SDK

# A turn that ends leaves the SDK's inner generator to the collector, of which trio warns.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")


def of(client, **knobs):
    return idle_guard(60, client=client, **knobs).plan


def other():
    """A handle that was written."""


# -- what is taken ---------------------------------------------------------------------------------


def test_everything_that_ends_a_client_is_taken_from_it():
    client = sdk.ClaudeSDKClient()
    plan = of(client)
    assert plan.disconnects == (client.disconnect,)
    assert [interrupt.handle for interrupt in plan.interrupts] == [client.interrupt]
    assert plan.process() is None  # it is not connected yet
    assert plan.expected.read is claude.read
    assert plan.backend is None  # its messages still speak for themselves


def test_what_is_written_goes_before_it():
    """T12: in one operator, in a pipe in either order, and by `replace`."""
    client = sdk.ClaudeSDKClient()
    written = {"interrupt": other, "process": lambda: None}
    plans = [
        of(client, **written),
        (idle_guard(60, client=client) | idle_guard(60, **written)).plan,
        (idle_guard(60, **written) | idle_guard(60, client=client)).plan,
        idle_guard(60, client=client).replace(**written).plan,
        idle_guard(60, **written).replace(client=client).plan,
        idle_guard(60).replace(**written, client=client).plan,
        idle_guard(60, client=sdk.ClaudeSDKClient(), **written).replace(client=client).plan,
    ]
    for plan in plans:
        assert plan.interrupts == (other,)
        assert plan.process is written["process"]
        assert plan.disconnects == (client.disconnect,)


def test_another_client_brings_its_own():
    """T12: and none leaves nothing of it behind."""
    client, second = sdk.ClaudeSDKClient(), sdk.ClaudeSDKClient()
    guard = idle_guard(60, client=client)
    assert guard.replace(client=second).plan == of(second)
    assert guard.replace(client=None).plan == idle_guard(60).plan
    assert guard.replace(client=FakeClient()).plan.interrupts == ()


def test_one_client_in_two_operators_is_one():
    """O2"""
    client = sdk.ClaudeSDKClient()
    both = idle_guard(60, client=client) | inflight_tool_gate() | idle_guard(60, client=client)
    assert both.plan.interrupts == of(client).interrupts
    assert both.plan.process == of(client).process
    with pytest.raises(ConfigError, match="client= was written twice"):
        idle_guard(60, client=client) | idle_guard(60, client=sdk.ClaudeSDKClient())


def test_a_client_of_nobody_known_is_disconnected_as_ever():
    client = FakeClient()
    plan = of(client)
    assert plan.disconnects == (client.disconnect,)
    assert (plan.interrupts, plan.process(), plan.expected) == ((), None, None)


def test_what_is_no_client_though_of_that_package():
    """Said as for any other object; its class is as little a client as its options are."""
    wrong = {"is a class": sdk.ClaudeSDKClient, "has no disconnect": sdk.ClaudeAgentOptions()}
    for said, thing in wrong.items():
        with pytest.raises(ConfigError, match=said):
            of(thing)


@pytest.mark.parametrize(
    ("given", "outlives"),
    [
        ({}, True),
        ({"outlives_interrupt": False}, False),
        ({"interrupt": other}, False),  # nobody knows what that one does
        ({"interrupt": other, "outlives_interrupt": True}, True),
    ],
)
def test_a_connection_knows_that_the_client_outlives_its_interrupt(given, outlives):
    """D1"""
    connection = Connection(lambda prompt: None, client=sdk.ClaudeSDKClient(), **given)
    assert connection.plan.outlives_interrupt is outlives
    assert Connection(lambda prompt: None, client=FakeClient()).plan.outlives_interrupt is False


def test_no_sdk_is_imported_for_it():
    """S1: the client is asked, not its package."""
    program = """
        import sys
        from streamguard import idle_guard

        class Client:
            __module__ = "claude_agent_sdk.client"
            async def disconnect(self): ...
            async def interrupt(self): ...

        plan = idle_guard(60, client=Client()).plan
        assert plan.interrupts and plan.process() is None
        print("claude_agent_sdk" in sys.modules)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


# -- an end without a word ---------------------------------------------------------------------------


async def made_of(messages):
    """What a user makes of a stream, and what may well be nothing."""
    async for message in messages:
        if isinstance(message, sdk.AssistantMessage):
            yield message


@pytest.mark.parametrize("whose", ["the client's", "the user's"])
async def test_an_end_without_any_message(loop, monkeypatch, whose):
    """T10: of the client's own stream it is no end; of what a user makes of it, nobody knows."""
    Clis([[lambda cli: call(cli._send.close)]]).install(monkeypatch)
    client = sdk.ClaudeSDKClient()
    await client.connect()
    await client.query("go")
    stream = client.receive_response()
    source = stream if whose == "the client's" else made_of(stream)
    taken = await take(source | idle_guard(60, client=client))
    assert taken.messages == []
    kind = StreamTruncatedError if whose == "the client's" else type(None)
    assert type(taken.error) is kind
    await client.disconnect()


async def test_a_session_of_claudes_that_says_nothing(loop, monkeypatch):
    """T10: its streams are Claude's own."""
    Clis([[lambda cli: call(cli._send.close)]]).install(monkeypatch)
    async with claude.session(prompt="go") | idle_guard(60) as chat:
        with pytest.raises(StreamTruncatedError):
            await anext(aiter(chat))


# -- the process --------------------------------------------------------------------------------------


def client_with(pid=None, process=None):
    """A client whose CLI says that it is `pid`, over a transport that holds `process`."""

    async def info():
        return {"commands": [], "pid": pid}

    return SimpleNamespace(
        get_server_info=info, _transport=SimpleNamespace(_process=process) if process else None
    )


@pytest.fixture
def child():
    """A process that we have started, and one that it has started."""
    script = "sleep 1000 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        grandchild = int(process.stdout.readline())
        yield SimpleNamespace(process=process, grandchild=grandchild)
        os.kill(grandchild, signal.SIGKILL)


def test_the_pid_that_the_cli_says(child):
    """D4: public first; the object that the transport holds for it knows how it ended, too."""
    assert claude_client.process_of(client_with(child.process.pid)) == child.process.pid
    assert claude_client.process_of(client_with(child.grandchild)) == child.grandchild
    held = client_with(child.process.pid, child.process)
    assert claude_client.process_of(held) is child.process


@pytest.mark.parametrize("pid", [None, "7", True, 0, 1, -5, 10**9, "us", "our parent"])
def test_a_pid_that_is_none_of_ours(child, pid):
    """D4: a wrapper's CLI may live on another machine, or in a container that counts anew."""
    pid = {"us": os.getpid(), "our parent": os.getppid()}.get(pid, pid)
    assert claude_client.process_of(client_with(pid)) is None
    assert claude_client.process_of(client_with(pid, child.process)) is child.process


async def that_waits():
    await anyio.sleep(1)
    return {"pid": 7}


async def that_raises():
    raise sdk.CLIConnectionError("Not connected")


@pytest.mark.parametrize("info", [None, 3, that_waits, that_raises, dict, lambda: 3])
def test_a_client_that_says_nothing_of_its_process(info):
    """D4: it is not known then, and nothing is raised."""
    assert claude_client.process_of(SimpleNamespace(get_server_info=info)) is None


# -- versions -------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch):
    """Says which version is installed; None if nobody knows."""

    def version_of(version):
        def said(name):
            assert name == "claude-agent-sdk"
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(metadata, "version", said)
        claude_client.installed.cache_clear()

    yield version_of
    monkeypatch.undo()
    claude_client.installed.cache_clear()


@pytest.mark.parametrize("version", ["0.2.110", "0.1.50", "0.2", "0.2.110.post1"])
def test_an_sdk_that_is_too_old_is_refused(installed, version):
    installed(version)
    with pytest.raises(ConfigError, match=r"client= needs claude-agent-sdk 0\.2\.111 or later"):
        of(sdk.ClaudeSDKClient())


@pytest.mark.parametrize("version", ["0.2.111", "0.2.184", "0.3.0rc1", "1.0", "main", None])
def test_any_other_will_do(installed, version):
    installed(version)
    assert of(sdk.ClaudeSDKClient()).interrupts
