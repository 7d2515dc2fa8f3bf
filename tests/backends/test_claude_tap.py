"""`claude.tap`: what the SDK hides of the CLI's lines reaches the guard; by script, in virtual time."""

from __future__ import annotations

import json

import anyio
import pytest

from streamguard import Activity, ConfigError, IdleTimeoutError, LivenessTimeoutError, idle_guard
from streamguard.backends import claude
from streamguard.backends.claude.taps import LineTap
from streamguard.signals import WorkProgressed
from streamguard.testing import call, hang, message, repeat, silence
from tests.support import take

sdk = pytest.importorskip("claude_agent_sdk")
from tests.backends.claude_cli import (  # noqa: E402 - it needs the SDK
    IS_RECENT,
    Clis,
    init,
    line,
    permission,
    request,
    result,
    says,
    text,
    tool_result,
    tool_use,
    until_answered,
)

# A turn that ends leaves the SDK's inner generator to the collector, of which trio warns.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")

HEARTBEAT = line("tool_progress", tool_use_id="toolu_1", tool_name="Bash", heartbeat=True)


@pytest.fixture
def turn(monkeypatch):
    """Runs one turn of a client that the user has made, with or without a tap."""

    async def taken(*steps, is_tapped=True, options=None, **knobs):
        Clis([list(steps)]).install(monkeypatch)
        activity = Activity("issue-7")
        options = options or sdk.ClaudeAgentOptions()
        transport = claude.tap(options, activity) if is_tapped else None
        client = sdk.ClaudeSDKClient(options, transport=transport)
        await client.connect()
        try:
            await client.query("go")
            guard = idle_guard(60, client=client, activity=activity, **knobs)
            return await take(client.receive_response() | guard)
        finally:
            await client.disconnect()

    return taken


# -- what is heard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_tapped", [True, False])
async def test_heartbeats_show_that_the_cli_lives(loop, turn, is_tapped):
    """T5: when they stop in mid-tool, that is known long before the tool's own limit."""
    steps = [init(), tool_use(), repeat(silence(30), HEARTBEAT, times=3), hang()]
    taken = await turn(*steps, is_tapped=is_tapped, liveness=100, tools=1000)
    assert loop.took(taken.elapsed, 190 if is_tapped else 1000)
    assert isinstance(taken.error, LivenessTimeoutError) is is_tapped
    assert [type(each).__name__ for each in taken.messages][:2] == [
        "SystemMessage",
        "AssistantMessage",
    ]


async def test_heartbeats_are_no_work(loop, turn):
    """S0: a tool that only beats is as late as one that says nothing; and so is the model."""
    beating = repeat(silence(30), HEARTBEAT)
    taken = await turn(init(), tool_use(), beating, tools=300)
    assert loop.took(taken.elapsed, 300)
    taken = await turn(init(), text(), repeat(silence(30), line("keep_alive")))
    assert loop.took(taken.elapsed, 60)


WAITS = {
    "requires_action": (
        line(
            "system", subtype="session_state_changed", state="requires_action", sdk_host_only=True
        ),
        line("system", subtype="session_state_changed", state="running", sdk_host_only=True),
    ),
    "auth": (
        line("auth_status", isAuthenticating=True, output=[]),
        line("auth_status", isAuthenticating=False, output=[]),
    ),
    "a server tool": (
        tool_use("srv_1", "web_search", "server_tool_use"),
        says({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
    ),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("is_tapped", [True, False])
def test_what_keeps_the_cli_waiting(loop, turn, wait, is_tapped):
    """S4, T6: both ends are on the wire, of what the messages show half or not at all."""
    if wait == "requires_action" and not (is_tapped or IS_RECENT):
        pytest.skip("this SDK shows it among its messages")
    begins, ends = WAITS[wait]

    async def main():
        steps = [init(), text(), begins, silence(500), ends, silence(50), text(), result()]
        taken = await turn(*steps, is_tapped=is_tapped)
        if is_tapped:
            assert taken.error is None
            assert loop.took(taken.elapsed, 550)
        else:
            assert type(taken.error) is IdleTimeoutError

    loop.run(main)


async def allowed(tool, given, context):
    await anyio.sleep(500)
    return sdk.PermissionResultAllow()


@pytest.mark.parametrize("is_tapped", [True, False])
async def test_a_permission_that_is_asked_for(loop, turn, is_tapped):
    """T6: the callback is as the user wrote it; the window is a fresh one when it has answered."""
    options = sdk.ClaudeAgentOptions(can_use_tool=allowed)
    steps = [init(), text(), permission(), until_answered(), hang()]
    taken = await turn(*steps, is_tapped=is_tapped, options=options)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 560 if is_tapped else 60)


async def test_a_permission_that_the_cli_takes_back(loop, turn):
    """T6: nobody waits for it any more."""
    options = sdk.ClaudeAgentOptions(can_use_tool=allowed)
    cancelled = message({"type": "control_cancel_request", "request_id": "r1"})
    steps = [init(), text(), permission(), silence(100), cancelled, hang()]
    taken = await turn(*steps, options=options)
    assert loop.took(taken.elapsed, 160)


async def test_a_tool_of_ours_is_none_of_its_waits(loop, turn):
    """S4: a call into an MCP server in this process is in flight, and held by nothing else."""
    asked = request("mcp_message", server_name="none", message={"id": 1})
    taken = await turn(init(), tool_use(), asked, silence(500), tool_result(), hang())
    assert loop.took(taken.elapsed, 560)
    taken = await turn(init(), text(), asked, hang())
    assert loop.took(taken.elapsed, 60)


# -- what goes its way -------------------------------------------------------------------------------------


ASKED = {"type": "control_request", "request_id": "r1", "request": {"subtype": "can_use_tool"}}
ODD = [
    {"type": "control_request"},
    {"type": "control_request", "request_id": 7, "request": {"subtype": "can_use_tool"}},
    {"type": "control_request", "request_id": "r2", "request": {"subtype": ["odd"]}},
    {"type": "control_cancel_request"},
    {"type": ["odd"]},
    {"type": "assistant", "message": 3},
    {},
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_lines_are_none_of_its_business(odd, caplog):
    """S2"""
    activity = Activity()
    LineTap(activity).came(odd)
    assert not activity._holds
    assert caplog.text == ""


def test_a_tap_that_fails_disturbs_nobody(loop, turn, monkeypatch, caplog):
    """S2: the lines are the session's."""

    def broken(*_):
        raise RuntimeError("broken")

    async def main():
        monkeypatch.setattr(Activity, "hear", broken)
        taken = await turn(init(), HEARTBEAT, text(), result())
        assert len(taken.messages) == 3

    loop.run(main)
    assert "the tap could not read one of Claude's lines" in caplog.text


def test_a_sub_agent_in_the_background_is_heard_by_the_name_of_its_task():
    """The SDK's message has the call that began it, which is over; all else comes with the message."""
    heard = []
    tap = LineTap(type("Heard", (), {"hear": lambda _, *signals: heard.extend(signals)})())
    of_agent = {"parent_tool_use_id": "toolu_0", "agent_id": "b1", "session_id": "s"}
    for kind, block in (
        ("assistant", {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}),
        ("user", {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}),
    ):
        tap.came({"type": kind, "message": {"content": [block]}, **of_agent})
    assert heard == [WorkProgressed("task:b1")] * 2


def test_what_was_never_answered_ends_with_the_lines():
    """T6: a client that is disconnected holds nothing any more."""
    activity = Activity()
    tap = LineTap(activity)
    for asked in (ASKED, {**ASKED, "request_id": "r2"}, ASKED):
        tap.came(asked)
    assert len(activity._holds or ()) == 2
    tap.over()
    assert not activity._holds


@pytest.mark.parametrize("ends", ["the lines", "the client"])
async def test_a_client_that_is_gone_waits_for_nothing(loop, monkeypatch, ends):
    """T6"""
    activity = Activity()
    rest = [hang()] if ends == "the client" else [lambda cli: call(cli._send.close)]
    Clis([[init(), request("gremlins"), *rest]]).install(monkeypatch)
    monkeypatch.setattr(sdk._internal.query.Query, "_spawn_control_request_handler", ignored)
    client = sdk.ClaudeSDKClient(transport=claude.tap(None, activity))
    await client.connect()
    await client.query("go")
    await anyio.sleep(1)
    assert bool(activity._holds) is (ends == "the client")
    await client.disconnect()
    assert not activity._holds


def ignored(*_):
    """In the place of the SDK, which would have answered."""


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        ({"type": "control_response", "response": {"request_id": "r1"}}, True),
        ({"type": "control_response", "response": {"request_id": "r2"}}, False),
        ({"type": "control_response", "response": None}, False),
        ({"type": "user", "message": {"content": '"control_response"'}}, False),
    ],
)
def test_only_the_answer_to_a_request_ends_its_wait(written, ends):
    """T6"""
    activity = Activity()
    tap = LineTap(activity)
    tap.came(ASKED)
    tap.went(json.dumps(written) + "\n")
    tap.went('"control_response" is no JSON')
    tap.went(
        '{"control_response": ' + "[" * 100_000
    )  # nor is what is nested deeper than can be read
    assert bool(activity._holds) is not ends


# -- made by the user ---------------------------------------------------------------------------------------


def test_the_cli_is_told_to_ask_the_sdk(monkeypatch):
    """What the SDK does with options for a transport of its own."""
    Clis([]).install(monkeypatch)
    asking = claude.tap(sdk.ClaudeAgentOptions(can_use_tool=allowed), Activity())
    assert asking.options.permission_prompt_tool_name == "stdio"
    assert claude.tap(None, Activity()).options == sdk.ClaudeAgentOptions()


def test_it_is_the_sdks_own_transport():
    """Its process, its close and its reaper."""
    from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

    transport = claude.tap(None, Activity())
    assert isinstance(transport, SubprocessCLITransport)
    assert claude.of_client(sdk.ClaudeSDKClient(transport=transport)).process() is None


def test_what_cannot_be_tapped():
    """T12"""
    with pytest.raises(ConfigError, match="pass the Activity"):
        claude.tap(None, "issue-7")
    with pytest.raises(ConfigError, match="session_store"):
        claude.tap(sdk.ClaudeAgentOptions(session_store=object()), Activity())
