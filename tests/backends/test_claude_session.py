"""`claude.session()`: the ladder, and what waits for us; by script, over three loops."""

from __future__ import annotations

import sys
from importlib import metadata

import anyio
import pytest

from streamguard import (
    ConfigError,
    IdleTimeoutError,
    ResumePoint,
    idle_guard,
    reconnecting_resume,
)
from streamguard.backends import claude
from streamguard.backends.claude import client as claude_client
from streamguard.events import Interrupting, Reconnected
from streamguard.testing import hang, silence
from tests.support import Events, Leftovers

sdk = pytest.importorskip("claude_agent_sdk")
from tests.backends.claude_cli import (  # noqa: E402 - it needs the SDK
    IS_RECENT,
    SESSION,
    Clis,
    init,
    permission,
    request,
    result,
    text,
    tool_result,
    tool_use,
    until_answered,
)

# A turn that ends leaves the SDK's inner generator to the collector, of which trio warns.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")


@pytest.fixture
def clis(monkeypatch):
    return lambda *turns, **options: Clis(*turns, **options).install(monkeypatch)


async def words(messages):
    """The texts of assistant messages, and the subtypes of results."""
    said = []
    async for message in messages:
        if isinstance(message, sdk.AssistantMessage):
            said += [block.text for block in message.content if isinstance(block, sdk.TextBlock)]
        elif isinstance(message, sdk.ResultMessage):
            said.append(message.subtype)
    return said


ANSWERED = [init(), text("done"), result()]
HUNG = [init(), text("hm"), hang()]


# -- the ladder ----------------------------------------------------------------------------------------


async def test_turns_that_go_well(loop, clis):
    """R1: one client, as the options say; it is left when the block is."""
    started = clis([ANSWERED, [init(), text("more"), result()]])
    left = Leftovers()
    options = sdk.ClaudeAgentOptions(model="m", continue_conversation=True)
    async with claude.session(options, prompt="one") | idle_guard(60) as chat:
        assert started.started == []  # nothing is started that is not asked
        assert await words(chat) == ["done", "success"]
        assert await words(chat.ask("two")) == ["more", "success"]
        assert chat.point.token == SESSION
        assert len(started.living) == 1
    assert started.living == []
    assert started.options == [options]
    left.check()
    assert started.prompts == ["one", "two"]


@pytest.mark.parametrize("tap", [False, True])
async def test_a_hang_is_interrupted_and_the_client_goes_on(loop, clis, tap):
    """D1: at the window; what it says to that is delivered, and the session goes on in it."""
    started = clis([HUNG, ANSWERED])
    events = Events()
    guard = idle_guard(60, observer=events)
    start = anyio.current_time()
    async with claude.session(prompt="one", tap=tap) | guard | reconnecting_resume() as chat:
        said = await words(chat)
    assert said == ["hm", "error_during_execution", "done", "success"]
    assert loop.took(anyio.current_time() - start, 60)
    assert started.prompts == ["one", "Continue."]
    assert len(started.started) == 1
    assert len(events.of(Interrupting)) == len(events.of(Reconnected)) == 1


async def test_one_that_is_deaf_to_it_is_replaced(loop, clis):
    """D1, R3: disconnected after 5 s, and resumed by its token, with no way of the first attempt's."""
    started = clis([HUNG], [ANSWERED], deaf=[1])
    options = sdk.ClaudeAgentOptions(resume="old", fork_session=True)
    guard = idle_guard(60)
    start = anyio.current_time()
    async with claude.session(options, prompt="one") | guard | reconnecting_resume() as chat:
        assert await words(chat) == ["hm", "done", "success"]
        assert len(started.living) == 1
    assert loop.took(anyio.current_time() - start, 65)
    assert started.living == []
    first, second = started.options
    assert first == options
    assert second == sdk.ClaudeAgentOptions(resume=SESSION)
    assert started.prompts == ["one", "Continue."]


async def test_a_cli_that_does_not_even_greet(loop, clis):
    """R2: its start is part of the first pull; there is nothing to resume, so it starts afresh."""
    started = clis([ANSWERED], mute=[1], deaf=[1])
    guard = idle_guard(20)
    async with claude.session(prompt="one") | guard | reconnecting_resume() as chat:
        assert await words(chat) == ["done", "success"]
    assert [options.resume for options in started.options] == [None, None]
    assert started.living == []
    assert started.prompts == ["one"]


async def test_without_a_resume_the_verdict_is_raised_and_nothing_is_left(loop, clis):
    """D1: the next prompt finds the client that the interrupt has spared."""
    started = clis([HUNG, ANSWERED])
    async with claude.session(prompt="one") | idle_guard(60) as chat:
        with pytest.raises(IdleTimeoutError):
            await words(chat)
        assert await words(chat.ask("two")) == ["done", "success"]
    assert started.living == []
    assert len(started.started) == 1


async def test_a_kept_token_is_resumed(loop, clis):
    """R1: also where the options would have begun otherwise."""
    started = clis([ANSWERED])
    options = sdk.ClaudeAgentOptions(session_id="fixed", continue_conversation=True)
    point = ResumePoint(token="t")
    async with claude.session(options, prompt="go", point=point) as chat:
        await words(chat)
    assert started.options == [sdk.ClaudeAgentOptions(resume="t")]


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_modes(loop, clis, mode):
    """T11: nothing is interrupted."""
    started = clis([[init(), silence(500), text("late"), result()]])
    async with claude.session(prompt="one") | idle_guard(60, mode=mode) as chat:
        assert await words(chat) == ["late", "success"]
    assert len(started.started) == 1


# -- what waits for us ---------------------------------------------------------------------------------


async def allowed(tool, given, context):
    await anyio.sleep(500)
    return sdk.PermissionResultAllow()


async def hooked(given, tool_use_id, context):
    await anyio.sleep(500)
    return {}


WAITS = {
    "permission": (permission(), {"can_use_tool": allowed}),
    "hook": (
        request("hook_callback", callback_id="hook_0", input={}, tool_use_id=None),
        {"hooks": {"Stop": [sdk.HookMatcher(hooks=[hooked])]}},
    ),
}


@pytest.mark.parametrize("wait", WAITS)
async def test_what_waits_for_a_human_is_no_hang(loop, clis, wait):
    """T6: without a tool in flight, too; and the window is a fresh one afterwards."""
    asked, given = WAITS[wait]
    started = clis([[init(), text("may I?"), asked, until_answered(), *HUNG[1:]], ANSWERED])
    options = sdk.ClaudeAgentOptions(**given)
    start = anyio.current_time()
    async with claude.session(options, prompt="one") | idle_guard(60) as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await words(chat)
    assert loop.took(anyio.current_time() - start, 560)
    assert loop.took(caught.value.verdict.elapsed, 60)
    assert options == sdk.ClaudeAgentOptions(**given)  # it is the user's
    assert len(started.started) == 1


async def test_a_tool_takes_its_time(loop, clis):
    """T5: nothing is interrupted while it runs."""
    started = clis([[init(), tool_use(), silence(5000), tool_result(), *ANSWERED[1:]]])
    async with claude.session(prompt="one") | idle_guard(60) as chat:
        assert await words(chat) == ["done", "success"]
    assert len(started.started) == 1


# -- whose result it is ----------------------------------------------------------------------------------

INJECTED = {"origin": {"kind": "task-notification"}, "user_message_uuids": None}
OTHERS = {"user_message_uuid": "another", "user_message_uuids": ["another"]}


@pytest.mark.skipif(not IS_RECENT, reason="this SDK does not say whose a result is")
@pytest.mark.parametrize("other", [INJECTED, OTHERS], ids=["nobody's", "another's"])
async def test_a_result_of_another_turn_does_not_end_this_one(loop, clis, other):
    """Background work wakes the session by itself: that turn's end is no answer."""
    clis([[init(), text("woken"), result(**other), silence(30), *ANSWERED], ANSWERED])
    async with claude.session(prompt="one") | idle_guard(60) as chat:
        assert await words(chat) == ["woken", "success", "done", "success"]
        assert await words(chat.ask("two")) == ["done", "success"]


@pytest.mark.skipif(not IS_RECENT, reason="this SDK does not say whose a result is")
async def test_a_hang_after_the_result_of_another_turn_is_found(loop, clis):
    """T14: what was asked is still owed, so the time between turns it is not."""
    clis([[init(), text("woken"), result(**INJECTED), hang()]])
    start = anyio.current_time()
    async with claude.session(prompt="one") | idle_guard(60) as chat:
        with pytest.raises(IdleTimeoutError):
            await words(chat)
    assert loop.took(anyio.current_time() - start, 60)


@pytest.mark.parametrize("origin", [None, {"kind": "human"}])
async def test_older_clis_do_not_say_which_prompt_was_answered(loop, clis, origin):
    """The first result is the answer then."""
    turn = [init(), text("done"), result(origin=origin), hang()]
    clis([turn, turn], names_prompts=False)
    async with claude.session(prompt="one") | idle_guard(60) as chat:
        assert await words(chat) == ["done", "success"]
        assert await words(chat.ask("two")) == ["done", "success"]


# -- written wrongly ------------------------------------------------------------------------------------


async def test_no_prompt_starts_no_cli(loop, clis):
    """R1"""
    started = clis([ANSWERED])
    async with claude.session() | idle_guard(60) as chat:
        with pytest.raises(TypeError, match="no prompt to send"):
            await words(chat)
        assert await words(chat.ask("one")) == ["done", "success"]
    assert len(started.started) == 1


def test_what_cannot_be_a_session():
    """T12: said where it is written."""
    with pytest.raises(ConfigError, match="pass ClaudeAgentOptions"):
        claude.session("Fix issue 7")
    with pytest.raises(TypeError, match="a prompt is a string"):
        claude.session(prompt=7)
    options = sdk.ClaudeAgentOptions(session_store=object())
    with pytest.raises(ConfigError, match="session_store"):
        claude.session(options, tap=True)
    claude.session(options)


def test_an_sdk_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ConfigError, match=r"pip install 'agent-streamguard\[claude\]'"):
        claude.session(prompt="one")


def test_an_sdk_that_is_too_old(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _name: "0.2.90")
    claude_client.installed.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"claude.session\(\) needs .* 0\.2\.111"):
            claude.session(prompt="one")
    finally:
        monkeypatch.undo()
        claude_client.installed.cache_clear()


def test_of_one_session_there_is_one_owner_unasked():
    """D5: what `resume` names, too, before the CLI says so; a fork of it is another one."""
    options = sdk.ClaudeAgentOptions(resume="t")
    forked = sdk.ClaudeAgentOptions(resume="t", fork_session=True)
    made = claude.session(options)
    assert made._opening.exclusive == "claude"
    assert made._opening.start.token == "t"
    assert claude.session(sdk.ClaudeAgentOptions())._opening.start.token is None
    assert claude.session(forked)._opening.start.token is None
    assert claude.session(options, exclusive=False)._opening.exclusive is None
