"""The Python client of Codex's app-server: its real classes, and itself with the real binary.

The binary comes with the package (`pip install 'agent-streamguard[codex]'`). asyncio alone, in real time.
"""

import asyncio
import gc
import os
import signal
import warnings

import pytest

from streamguard import IdleTimeoutError, idle_guard, reconnecting_resume
from streamguard.backends import codex, find, of_client
from streamguard.process import ProcessTree, marked_env
from streamguard.signals import (
    Failed,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)
from tests.backends.reading import NOTHING, PROGRESS, said
from tests.loopback.script import stall, text, tool
from tests.loopback.server import ModelServer
from tests.process.backends import Backends, comes_true

openai_codex = pytest.importorskip("openai_codex", reason="pip install 'agent-streamguard[codex]'")

# The client leaves its process's pipes to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


# --- the package's classes ----------------------------------------------------------------


def notified(method, **params):
    """A notification as the client makes it of a line."""
    client = openai_codex.client.CodexClient()
    return client._coerce_notification(method, {"threadId": "t", "turnId": "u", **params})


def item(method, kind, **more):
    at = {"startedAtMs": 1} if method == "started" else {"completedAtMs": 1}
    return notified(f"item/{method}", item={"id": "i", "type": kind, **more}, **at)


def command(status):
    return {"command": "ls", "cwd": "/", "commandActions": [], "status": status}


def over(status, **more):
    return notified("turn/completed", turn={"id": "u", "status": status, "items": [], **more})


TOKENS = {
    "totalTokens": 22,
    "inputTokens": 20,
    "outputTokens": 2,
    "cachedInputTokens": 0,
    "reasoningOutputTokens": 0,
}
CASES = {
    "a turn": (
        notified("turn/started", turn={"id": "u", "status": "inProgress", "items": []}),
        [SessionOpened("t")],
    ),
    "a token": (notified("item/agentMessage/delta", itemId="i", delta="Hel"), PROGRESS),
    "a command": (
        item("started", "commandExecution", **command("inProgress")),
        [WorkStarted("i", "command_execution")],
    ),
    "its end": (
        item("completed", "commandExecution", **command("completed")),
        [WorkFinished("i", error=False)],
    ),
    "its failure": (
        item("completed", "commandExecution", **command("declined")),
        [WorkFinished("i", error=True)],
    ),
    "a tool of an MCP server": (
        item("started", "mcpToolCall", server="s", tool="read", status="inProgress", arguments={}),
        [WorkStarted("i", "read")],
    ),
    "a web search": (
        item("started", "webSearch", query="q"),
        [WorkStarted("i", "web_search", "server")],
    ),
    "a compaction": (item("started", "contextCompaction"), [Waiting("compaction", "compaction")]),
    "tokens used": (
        notified("thread/tokenUsage/updated", tokenUsage={"total": TOKENS, "last": TOKENS}),
        [
            Usage(
                {
                    "total_tokens": 22,
                    "input_tokens": 20,
                    "output_tokens": 2,
                    "cached_input_tokens": 0,
                    "reasoning_output_tokens": 0,
                    "cache_write_input_tokens": 0,
                },
                "session",
            )
        ],
    ),
    "success": (over("completed"), [TurnEnded("success", "completed")]),
    "an interrupt": (over("interrupted"), [TurnEnded("cancelled", "interrupted")]),
    "a failure": (
        over("failed", error={"message": "…", "codexErrorInfo": "serverOverloaded"}),
        [Failed("server"), TurnEnded("error", "failed", retriable=True)],
    ),
    "a reconnection": (
        notified(
            "error",
            error={
                "message": "Reconnecting... 1/5",
                "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": 502}},
            },
            willRetry=True,
        ),
        [Failed("server", detail="reconnecting 1/5")],
    ),
    "an approval that is waited for": (
        notified(
            "thread/status/changed",
            status={"type": "active", "activeFlags": ["waitingOnApproval"]},
        ),
        [Waiting("approval", "human")],
    ),
    "and its end": (
        notified("thread/status/changed", status={"type": "idle"}),
        [WaitEnded("approval")],
    ),
    "a limit that was reached": (
        notified(
            "account/rateLimits/updated",
            rateLimits={"rateLimitReachedType": "rate_limit_reached"},
        ),
        [Failed("rate_limit", detail="rate_limit_reached")],
    ),
    "a warning": (notified("warning", message="…"), NOTHING),
    "a notification that the package does not know": (notified("item/dreams/delta"), PROGRESS),
    "one that it cannot parse": (notified("turn/started", turn=7), [SessionOpened("t")]),
}


@pytest.mark.parametrize(("message", "signals"), CASES.values(), ids=CASES)
def test_a_notification_of_the_package_says(message, signals):
    assert find(message).name == "codex"
    assert said(codex, message) == signals


# --- the client itself --------------------------------------------------------------------


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.clear()


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture
def config(server, backends, tmp_path):
    """The app-server in a home of its own, with the model server for its model."""
    (tmp_path / "config.toml").write_text(f"""
model = "a-model"
model_provider = "loopback"
check_for_update_on_startup = false
sandbox_mode = "danger-full-access"
approval_policy = "never"

[analytics]
enabled = false

[model_providers.loopback]
name = "loopback"
base_url = "{server.url}/v1"
env_key = "LOOPBACK_KEY"
wire_api = "responses"
""")
    own = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path), "LOOPBACK_KEY": "dummy"}
    env = marked_env(backends.env({**own, "NO_PROXY": "127.0.0.1"}))
    return openai_codex.CodexConfig(env=env, cwd=str(tmp_path))


def run(main):
    asyncio.run(main())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def asked(server):
    """What the user said in the last request, without what the client adds."""
    told = server.requests[-1].history
    return [words for who, words in told if who == "user" and not words.startswith("<")]


def test_a_normal_turn_is_not_disturbed(config, server):
    server.script(tool("exec_command", {"cmd": "echo hi"}), text("Done."))

    async def main():
        async with openai_codex.AsyncCodex(config=config) as client:
            thread = await client.thread_start()
            turn = await thread.turn("Go")
            guarded = turn.stream() | idle_guard(60, client=turn)
            methods = [each.method async for each in guarded]
            assert methods[-1] == "turn/completed"
            assert guarded.activity.token == thread.id
            assert not guarded.activity.in_flight
        assert "item/agentMessage/delta" in methods

    run(main)


def test_a_client_gives_its_own_handles(config):
    async def main():
        async with openai_codex.AsyncCodex(config=config) as client:
            turn = type("AsyncTurnHandle", (), {"__module__": "openai_codex.api"})()
            turn._codex, turn.interrupt = client, None
            backend, handles = of_client(turn)
            assert backend.name == "codex"
            assert handles.disconnect == client.close
            pid = handles.process().pid
            assert of_client(client)[1].process().pid == pid
        assert of_client(client)[1].process() is None
        with ProcessTree.adopt(pid) as tree:
            assert tree.is_dead

    run(main)


def test_a_turn_that_hangs_is_interrupted_and_the_client_goes_on(config, server):
    """D1: what the interrupt brings is delivered, and the next turn has the history."""
    server.script(text("Hel", "lo") | stall(after=5), text("Again."))

    async def main():
        async with openai_codex.AsyncCodex(config=config) as client:
            thread = await client.thread_start()
            turn, got = await thread.turn("First"), []
            with pytest.raises(IdleTimeoutError):
                async for each in turn.stream() | idle_guard(4, first=60, client=turn):
                    got.append(each)
            assert got[-1].payload.turn.status.value == "interrupted"

    run(main)


def test_a_session_goes_on_with_the_same_client(config, server, backends, monkeypatch):
    """D1: an interrupt ends the turn, and costs no app-server."""
    server.script(text("Hello."), text("Hel", "lo") | stall(after=5), *[text("Again.")] * 9)
    made = []

    class Counted(openai_codex.AsyncCodex):
        def __init__(self, config):
            made.append(self)
            super().__init__(config)

    monkeypatch.setattr(openai_codex, "AsyncCodex", Counted)

    async def main():
        guard = idle_guard(4, first=60, kill_grace=2)
        resume = reconnecting_resume(retries=9, backoff=[0])
        async with codex.client_session(config, prompt="First") | guard | resume as chat:
            async for _ in chat:
                pass
            ends = [each async for each in chat.ask("Second") if each.method == "turn/completed"]
        statuses = [each.payload.turn.status.value for each in ends]
        assert (statuses[0], statuses[-1]) == ("interrupted", "completed")
        assert not backends.living()

    run(main)
    assert len(made) == 1
    assert asked(server)[:2] == ["First", "Second"]
    assert set(asked(server)[2:]) == {"Continue."}


def test_a_session_survives_an_app_server_that_is_stopped(config, server, backends):
    """D5, R3: it hears no interrupt and no close; it is ended, and a new one has the history."""
    server.script(text("Hello."), text("Hel", "lo") | stall(after=5), *[text("Again.")] * 9)

    async def main():
        guard = idle_guard(4, first=60, kill_grace=1, disconnect_timeout=5)
        resume = reconnecting_resume(retries=9, backoff=[0])
        async with codex.client_session(config, prompt="First") | guard | resume as chat:
            async for _ in chat:
                pass
            is_stopped = False
            async for each in chat.ask("Second"):
                if not is_stopped and each.method == "item/agentMessage/delta":
                    is_stopped = True
                    for pid in backends.living():
                        os.kill(pid, signal.SIGSTOP)
            assert each.payload.turn.status.value == "completed"
            assert chat.point.attempt > 1
        assert comes_true(lambda: not backends.living())

    run(main)
    assert asked(server)[:2] == ["First", "Second"]
    assert set(asked(server)[2:]) == {"Continue."}
