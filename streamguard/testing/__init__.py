"""Test guarded streams, and code around them: scripted backends in virtual time.

    from streamguard.testing import Script, hang, run_virtual, say, tool

    async def watch():
        async for message in Script(say("x"), tool("Bash", 3600), hang()) | idle_guard(180):
            ...

    def test_silence_is_found():
        with pytest.raises(IdleTimeoutError):
            run_virtual(watch)  # an hour and three minutes, in milliseconds

Scripts and their steps are in `script`, what they yield in `messages`, sources that behave
badly in `misbehaving` and `relays`, one that can be pulled again in `channel`, clients in
`clients`, a witness in `tap`, virtual time in `clocks` and, for uvloop, `uvloop_clock`. The pytest
plugin gives `virtual_time`.
May import anyio and `streamguard.signals`; nothing of streamguard imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy

if TYPE_CHECKING:
    from streamguard.testing.channel import Channel
    from streamguard.testing.clients import ClientFactory, FakeClient
    from streamguard.testing.clocks import (
        DeadlockError,
        VirtualLoop,
        block_loop,
        run_virtual,
        virtual_clock,
        virtual_options,
    )
    from streamguard.testing.messages import Message
    from streamguard.testing.misbehaving import (
        holds_scope,
        holds_task_group,
        own_fail_after,
        slow_cleanup,
        swallows_cancel,
    )
    from streamguard.testing.plugin import VirtualTime
    from streamguard.testing.relays import relayed
    from streamguard.testing.script import (
        Script,
        block,
        call,
        done,
        fail,
        failed,
        hang,
        message,
        opened,
        ping,
        pings,
        repeat,
        say,
        silence,
        tool,
        tool_end,
        tool_progress,
        tool_start,
        usage,
        wait_ended,
        waiting,
    )
    from streamguard.testing.tap import Tap

__all__ = [
    "Channel",
    "ClientFactory",
    "DeadlockError",
    "FakeClient",
    "Message",
    "Script",
    "Tap",
    "VirtualLoop",
    "VirtualTime",
    "block",
    "block_loop",
    "call",
    "done",
    "fail",
    "failed",
    "hang",
    "holds_scope",
    "holds_task_group",
    "message",
    "opened",
    "own_fail_after",
    "ping",
    "pings",
    "relayed",
    "repeat",
    "run_virtual",
    "say",
    "silence",
    "slow_cleanup",
    "swallows_cancel",
    "tool",
    "tool_end",
    "tool_progress",
    "tool_start",
    "usage",
    "virtual_clock",
    "virtual_options",
    "wait_ended",
    "waiting",
]

# Where each name lives. Imported at first use: pytest loads `plugin`, and with it this
# package, in every run, and should not pay for anyio there.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "channel": ("Channel",),
        "clients": ("ClientFactory", "FakeClient"),
        "clocks": (
            *("DeadlockError", "VirtualLoop", "block_loop"),
            *("run_virtual", "virtual_clock", "virtual_options"),
        ),
        "messages": ("Message",),
        "misbehaving": (
            *("holds_scope", "holds_task_group", "own_fail_after"),
            *("slow_cleanup", "swallows_cancel"),
        ),
        "plugin": ("VirtualTime",),
        "relays": ("relayed",),
        "script": (
            *("Script", "block", "call", "done", "fail", "failed", "hang", "message", "opened"),
            *("ping", "pings", "repeat", "say", "silence", "tool", "tool_end", "tool_progress"),
            *("tool_start", "usage", "wait_ended", "waiting"),
        ),
        "tap": ("Tap",),
    },
)
