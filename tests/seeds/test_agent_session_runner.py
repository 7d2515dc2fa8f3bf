"""mala's idle retry (S0): its seven cases, with its own doubles, names, limits and messages.

The doubles (S0-30) are those of its plan to the letter; what the plan says in words only (a client
that hangs, one that is slow) is filled in. Only the imports are streamguard's. In place of a mocked
`asyncio.sleep` (S0-32) the clock is virtual, so the delays are those that were really waited for.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, Self

import pytest

from streamguard import ToolTimeoutError
from tests.seeds.agent_session_runner import (
    AgentSessionConfig,
    AgentSessionInput,
    AgentSessionRunner,
    IdleTimeoutError,
    SDKClientProtocol,
)

sdk = pytest.importorskip("claude_agent_sdk")
from claude_agent_sdk import (  # noqa: E402 - where the SDK is installed
    AssistantMessage,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

# -- the doubles ---------------------------------------------------------------------------------


class FakeSDKClient:
    def __init__(self, *messages: Any) -> None:
        self.messages = messages
        self.queries: list[tuple[str, str | None]] = []
        self.disconnect_called = False
        self.disconnect_delay: float = 0  # For testing timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        pass

    async def query(self, prompt: str, session_id: str | None = None) -> None:
        self.queries.append((prompt, session_id))

    async def receive_response(self) -> Any:
        for message in self.messages:
            yield message

    async def disconnect(self) -> None:
        """Disconnect the fake client."""
        if self.disconnect_delay > 0:
            await asyncio.sleep(self.disconnect_delay)
        self.disconnect_called = True


class HangingSDKClient(FakeSDKClient):
    # Inherits disconnect() from FakeSDKClient

    async def receive_response(self) -> Any:
        for message in self.messages:
            yield message
        await asyncio.Event().wait()


class SlowSDKClient(FakeSDKClient):
    # Inherits disconnect() from FakeSDKClient

    delay = 0.009

    async def receive_response(self) -> Any:
        for message in self.messages:
            await asyncio.sleep(self.delay)
            yield message


class SequencedSDKClientFactory:
    """Factory that returns different clients per create() call."""

    def __init__(self, clients: list[FakeSDKClient]):
        self.clients = clients
        self.create_calls: list[Any] = []
        self._index = 0

    def create(self, options: object) -> SDKClientProtocol:
        self.create_calls.append(options)
        client = self.clients[min(self._index, len(self.clients) - 1)]
        self._index += 1
        return client


# -- the session ---------------------------------------------------------------------------------

PROMPT = "Fix it."
RESUME_PROMPT = "Continue on issue test-1."


def init(session_id: str) -> SystemMessage:
    """How Claude reveals a session, long before the result."""
    return SystemMessage(subtype="init", data={"session_id": session_id})


def said(text: str) -> AssistantMessage:
    return AssistantMessage(content=[TextBlock(text=text)], model="fake")


def tool_call(id_: str) -> AssistantMessage:
    return AssistantMessage(
        content=[ToolUseBlock(id=id_, name="mcp__git__push", input={})], model="fake"
    )


def results(*ids: str) -> UserMessage:
    return UserMessage(content=[ToolResultBlock(tool_use_id=id_, content="ok") for id_ in ids])


def result(session_id: str) -> ResultMessage:
    return ResultMessage(
        subtype="success",
        duration_ms=1,
        duration_api_ms=1,
        is_error=False,
        num_turns=1,
        session_id=session_id,
    )


def runner_of(*clients: FakeSDKClient, **options: Any) -> AgentSessionRunner:
    """A runner with an idle timeout of 0.01 s (S0-32), and the phases given."""
    phases = {"phases": options.pop("phases")} if "phases" in options else {}
    config = AgentSessionConfig(**{"idle_timeout_seconds": 0.01, **options})
    factory = SequencedSDKClientFactory(list(clients))
    return AgentSessionRunner(config, sdk_client_factory=factory, **phases)


def run(loop: Any, runner: AgentSessionRunner) -> Any:
    async def main() -> Any:
        return await runner.run_session(AgentSessionInput(issue_id="test-1", prompt=PROMPT))

    return loop.run(main)


# -- the seven cases (S0-31) ---------------------------------------------------------------------


def test_idle_timeout_retries_and_recovers(native: Any) -> None:
    """S0-31.1: it reveals a session and hangs; the next client goes on with the resume prompt."""
    hanging = HangingSDKClient(init("sess-1"), said("Starting..."))
    success = FakeSDKClient(said("Done."), result("sess-1"))
    output = run(native, runner_of(hanging, success))
    assert hanging.disconnect_called
    assert hanging.queries == [(PROMPT, None)]
    assert success.queries == [(RESUME_PROMPT, "sess-1")]
    assert output.session_id == "sess-1"


def test_idle_timeout_gives_up_after_max_retries(native: Any) -> None:
    """S0-31.2: three attempts, and no client is left behind."""
    clients = [HangingSDKClient(init("sess-1"), said("Starting...")) for _ in range(4)]
    runner = runner_of(*clients)
    with pytest.raises(IdleTimeoutError) as raised:
        run(native, runner)
    assert len(runner.sdk_client_factory.create_calls) == 3
    assert [client.disconnect_called for client in clients] == [True, True, True, False]
    assert raised.value.gave_up == "retries"


@pytest.mark.parametrize("max_idle_retries", [0, 2])
def test_idle_timeout_always_disconnects_even_on_final_failure(
    native: Any, max_idle_retries: int
) -> None:
    """S0-31.3: with no retry left, and with none allowed (S0-11)."""
    clients = [HangingSDKClient() for _ in range(max_idle_retries + 1)]
    with pytest.raises(IdleTimeoutError):
        run(native, runner_of(*clients, max_idle_retries=max_idle_retries))
    assert all(client.disconnect_called for client in clients)


def test_idle_timeout_first_turn_no_side_effects_starts_fresh(native: Any) -> None:
    """S0-31.4: nothing came at all, so the original prompt is asked, not the resume prompt."""
    success = FakeSDKClient(said("Done."), result("sess-1"))
    run(native, runner_of(HangingSDKClient(), success))
    assert success.queries == [(PROMPT, None)]


def test_idle_timeout_first_turn_with_tool_calls_fails_fast(native: Any) -> None:
    """S0-31.5: tools were called, and no session is known."""
    hanging = HangingSDKClient(tool_call("t-1"), tool_call("t-2"), results("t-1", "t-2"))
    runner = runner_of(hanging, FakeSDKClient())
    with pytest.raises(IdleTimeoutError) as raised:
        run(native, runner)
    assert "2 tool calls occurred without session context" in str(raised.value.__notes__)
    assert raised.value.gave_up == "unsafe"
    assert hanging.disconnect_called
    assert len(runner.sdk_client_factory.create_calls) == 1


def test_tool_calls_without_results_are_in_flight_and_end_by_their_own_limit(native: Any) -> None:
    """S0-31, T5: mala counted that as idle. Here a tool that runs is no silence, for two hours."""
    hanging = HangingSDKClient(tool_call("t-1"))
    runner = runner_of(hanging, FakeSDKClient(), timeout_seconds=3 * 3600)
    with pytest.raises(ToolTimeoutError) as raised:
        run(native, runner)
    assert raised.value.gave_up == "unsafe"
    assert raised.value.verdict.elapsed == pytest.approx(7200)


def test_idle_timeout_non_query_phases_skip_query_block(native: Any) -> None:
    """S0-31.6: as long as no query is pending, no client is made and nothing is sent."""
    client = FakeSDKClient(init("sess-1"), result("sess-1"))
    seen = []

    async def phases(_output: Any) -> None:
        await asyncio.sleep(1)  # the log is waited for, a hundred idle timeouts long
        seen.append((len(runner.sdk_client_factory.create_calls), list(client.queries)))

    runner = runner_of(client, phases=phases)
    run(native, runner)
    assert seen == [(1, [(PROMPT, None)])]
    assert not client.disconnect_called


def test_idle_timeout_backoff_delays(native: Any) -> None:
    """S0-31.7, S0-12: 0 s before retry 1, 5 s before retry 2."""
    created = []

    class Factory(SequencedSDKClientFactory):
        def create(self, options: object) -> SDKClientProtocol:
            created.append(asyncio.get_running_loop().time())
            return super().create(options)

    runner = runner_of()
    runner.sdk_client_factory = Factory([HangingSDKClient(init("sess-1")) for _ in range(3)])
    with pytest.raises(IdleTimeoutError):
        run(native, runner)
    delays = [after - before - 0.01 for before, after in pairwise(created)]
    assert delays == pytest.approx([0.0, 5.0], abs=1e-3)


# -- the doubles, as its plan wants them verified ------------------------------------------------


def test_the_doubles_conform_to_the_protocol() -> None:
    """S0-07, S0-30: "Protocol conformance check passes"."""
    for double in (FakeSDKClient, HangingSDKClient, SlowSDKClient):
        assert isinstance(double(), SDKClientProtocol)


def test_a_client_that_is_slow_but_within_the_timeout_is_left_alone(native: Any) -> None:
    slow = SlowSDKClient(*[said("x")] * 10, result("sess-1"))
    run(native, runner_of(slow))
    assert not slow.disconnect_called


def test_a_disconnect_that_takes_longer_than_its_bound_ends_the_session(native: Any) -> None:
    """S0-33: mala went on at once, beside a client that may be alive. This does not (D5)."""
    hanging = HangingSDKClient(init("sess-1"))
    hanging.disconnect_delay = 100.0
    runner = runner_of(hanging, FakeSDKClient(result("sess-1")))
    with pytest.raises(IdleTimeoutError) as raised:
        run(native, runner)
    assert raised.value.gave_up == "unsafe"
    assert raised.value.teardown.disconnect == "abandoned"
    assert len(runner.sdk_client_factory.create_calls) == 1
