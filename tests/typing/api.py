"""The public API as users write it. Checked, never run.

Lines marked with two ignores must be errors, for mypy and for pyright each.
"""

# pyright: reportUnusedExpression=false
# (a pipe that must not type is not used for anything)

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from datetime import timedelta
from typing import assert_type

import anyio.abc

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    FirstMessageTimeoutError,
    Guarded,
    IdleTimeoutError,
    LivenessTimeoutError,
    Operator,
    StreamGuardError,
    StreamTimeoutError,
    StreamTruncatedError,
    SupportsDisconnect,
    Teardown,
    ToolTimeoutError,
    TurnTimeoutError,
    Verdict,
    activity_stamp,
    exit_code_for,
    idle_guard,
    idle_timeout,
    inflight_tool_gate,
    live,
)
from streamguard.process import ProcessTree


class Message:
    """What some backend yields."""

    text: str = ""


async def generator() -> AsyncGenerator[Message, None]:
    yield Message()


def iterator() -> AsyncIterator[int]:
    raise NotImplementedError


class Client:
    """A backend's client whose `disconnect` is a coroutine function."""

    async def disconnect(self) -> None: ...

    def receive(self) -> AsyncIterator[Message]:
        raise NotImplementedError


class SyncClient:
    """Not a `client=`, since its `disconnect` is a plain method; good for `disconnect=`."""

    def disconnect(self) -> None: ...


class NoClient:
    """Something that cannot be disconnected."""


# --- operators infer the message type through any chain (O1, O3)


async def bare_iteration(client: Client) -> None:
    async for message in client.receive() | idle_guard(180, disconnect=client.disconnect):
        assert_type(message, Message)


def one_operator() -> None:
    assert_type(generator() | idle_guard(180), Guarded[Message])
    assert_type(iterator() | idle_timeout(60), Guarded[int])
    assert_type(idle_guard(180)(generator()), Guarded[Message])


def chains() -> None:
    guarded = generator() | idle_timeout(60) | inflight_tool_gate() | activity_stamp(Activity())
    assert_type(guarded, Guarded[Message])
    combined = idle_timeout(timedelta(minutes=3)) | inflight_tool_gate({"Bash": 600, "Task": None})
    assert_type(combined, Operator)
    assert_type(iterator() | combined, Guarded[int])
    assert_type(combined.replace(idle=60), Operator)


async def block(client: Client) -> None:
    async with client.receive() | idle_guard(180, client=client) as messages:
        async for message in messages:
            assert_type(message, Message)


async def guarded_is_generic_and_can_be_closed(guarded: Guarded[Message]) -> None:
    assert_type(guarded.activity, Activity)
    assert_type([message.text async for message in guarded], list[str])
    await guarded.aclose()


# --- knobs


def every_knob(client: Client, activity: Activity) -> None:
    idle_guard(
        timedelta(minutes=3),
        first=300,
        liveness=45.5,
        tools={"Bash": 600, "Task": None},
        turn=3600,
        exit_grace=10,
        total=timedelta(hours=2),
        client=client,
        disconnect_timeout=30,
        kill_grace=5,
        activity=activity,
        read="auto",
        mode="warn",
    )
    idle_guard()
    idle_guard(None, first=None, tools=None)
    idle_guard("tokens")
    idle_guard("15m", first="1h30m", tools={"Bash": "10m"}, total=0, kill_grace="500ms")
    idle_timeout("90s").replace("off")
    idle_guard("claude-print", first=30)
    idle_guard(idle=180) | idle_timeout(idle=60)
    idle_guard("multica", idle=60)
    idle_guard("claude-print", idle=None)
    assert_type(idle_guard(180).replace("multica", idle=60), Operator)
    idle_guard(180, disconnect=lambda: None)


def whatever_can_be_disconnected_is_a_client(client: Client, sync: SyncClient) -> None:
    supports: SupportsDisconnect = client
    idle_guard(180, client=supports)
    idle_guard(180, disconnect=client.disconnect)
    idle_guard(180, disconnect=sync.disconnect)


# --- the backend's process (D4)


def a_process_is_a_pid_an_object_or_a_function(
    popen: subprocess.Popen[bytes],
    started: asyncio.subprocess.Process,
    opened: anyio.abc.Process,
    client: Client,
) -> None:
    idle_guard(180, process=4711)
    idle_guard(180, process=popen, kill_grace=0)
    idle_guard(180, process=started)
    idle_guard(180, process=opened, interrupt=client.disconnect)
    idle_guard(180, process=lambda: popen if popen.poll() is None else None)
    idle_guard(180, process=ProcessTree.adopt(popen), interrupt=popen.terminate)


async def wrong_process() -> int:
    return 4711


def what_is_no_process() -> None:
    idle_guard(180, process="claude")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, process=wrong_process)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def what_a_teardown_says(teardown: Teardown) -> None:
    assert_type(teardown.confirmed, bool)
    assert_type(teardown.signals, tuple[str, ...])
    assert_type(teardown.exit, int | None)
    assert_type(teardown.survivors, tuple[int, ...])


# --- the live state (O8, T6)


async def activity_is_readable_and_can_be_held(human: Awaitable[bool]) -> None:
    activity = Activity("issue-7", repository="streamguard")
    with activity.hold("permission prompt", allowance=600):
        assert_type(await human, bool)
    activity.touch()
    activity.mark_prompt()
    assert_type(activity.name, str)
    assert_type(activity.messages, int)
    assert_type(live(), list[Activity])


def seen(activity: Activity) -> None: ...


def stamps_go_into_an_activity_or_a_function() -> None:
    activity_stamp(Activity(), every=5)
    activity_stamp(seen, every=timedelta(seconds=5))


# --- errors say what was decided (T7) and what was done (D5)


def error_attributes(error: StreamGuardError) -> None:
    assert_type(error.verdict, Verdict | None)
    assert_type(error.activity, Activity | None)
    assert_type(error.teardown, Teardown | None)
    assert_type(error.gave_up, str | None)
    assert_type(exit_code_for(error), int)


def handle_timeout(error: TimeoutError) -> None: ...


def timeouts_are_timeout_errors_and_the_others_are_not() -> None:
    handle_timeout(StreamTimeoutError())
    handle_timeout(IdleTimeoutError())
    handle_timeout(FirstMessageTimeoutError())
    handle_timeout(LivenessTimeoutError())
    handle_timeout(ToolTimeoutError())
    handle_timeout(TurnTimeoutError())
    handle_timeout(DeadlineExceededError())
    handle_timeout(StreamTruncatedError())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    handle_timeout(ConfigError())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- what must not type (O1, O3)


def mistakes(client: NoClient, sync: SyncClient) -> None:
    [1] | idle_guard(180)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    generator | idle_guard(180)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    idle_guard(180) | 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    idle_guard(180, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, client=sync)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(["fast"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, mode="strict")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, idel=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    live().append(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
