"""Guards the hanging agent and shows what happens: the whole integration, in a program.

On a terminal a line at the bottom tells what is waited for; elsewhere there are plain lines only.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO, cast

import anyio

from streamguard import Activity, Recorder, events, idle_guard, reconnecting_resume, session
from streamguard._base.durations import in_words
from streamguard._base.quoting import in_shell
from streamguard.backends.claude.command import open_cli
from streamguard.demo import agent
from streamguard.demo.screen import Screen
from streamguard.errors import StreamGuardError
from streamguard.evidence.report import page, read_run
from streamguard.process import ProcessTree

IDLE: Final = 2.0
KILL_GRACE: Final = 1.0
_PROMPT: Final = "Fix the failing login test."
_FRAMES_PER_SECOND: Final = 10


async def show(folder: Path, out: TextIO | None = None) -> int:
    """Run the demonstration, with its records in `folder`; 0 if all came as it should."""
    logging.getLogger("streamguard").setLevel(logging.CRITICAL)  # it is all shown here
    screen = _Screen(out or sys.stdout)
    activity = Activity("demo")
    incident = _Incident(screen)
    open_ = open_cli(command=[sys.executable, agent.__file__])
    recorder = Recorder(folder, flow="demo", step="login-test", agent="demo-agent")
    guard = idle_guard(IDLE, kill_grace=KILL_GRACE, activity=activity, observer=incident)

    screen.say(f"An agent is asked: {_PROMPT}")
    screen.say(
        f"It may be silent for {in_words(IDLE)}. While one of its tools runs, it may be silent for longer."
    )
    screen.say("")
    guarded = session(open_, prompt=_PROMPT) | guard | reconnecting_resume(backoff=(0.5,))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(screen.keep_status, activity)
        try:
            async with recorder, guarded as chat:
                async for message in chat:
                    incident.read(message)
        except StreamGuardError as error:
            screen.say(f"It was not to end like this: {error}")
        tasks.cancel_scope.cancel()
    return await _sum_up(incident, folder, screen)


async def _sum_up(incident: _Incident, folder: Path, screen: _Screen) -> int:
    screen.say("")
    left = incident.left()
    gone = ", ".join(map(str, sorted(incident.pids)))
    screen.say(f"Still alive of its processes {gone}: {', '.join(map(str, left)) or 'none'}.")
    report = folder / "report.html"
    drawn = await anyio.to_thread.run_sync(lambda: page(read_run(folder)))
    report.write_text(drawn, encoding="utf-8")
    screen.say(f"The report, for a person: {report}")
    screen.say(f"The record, for a program: {folder / 'demo' / 'timeouts.jsonl'}")
    screen.say(f"These files stay until you remove them: rm -r {in_shell(str(folder))}")
    return 0 if incident.was_caught and incident.went_on and not left else 1


class _Incident:
    """What has been seen of it. Called with each event, and with each message."""

    def __init__(self, screen: _Screen) -> None:
        self._screen = screen
        self.pids: set[int] = set()
        self.was_caught = False
        self.went_on = False

    def __call__(self, event: events.Event) -> None:
        """Show what a person would want to know."""
        say = self._screen.say
        match event:
            case events.ProcessAdopted():
                self.pids.add(event.pid)
            case events.WorkBegan():
                say(f"  {event.name} runs: silence does not count now")
            case events.WorkOver():
                say(f"  {event.name} is done, after {in_words(event.elapsed)}")
            case events.TimedOut():
                self.was_caught = True
                say(f"  CAUGHT: {event.verdict.reason}")
            case events.ProcessKilled():
                sent = ", ".join(event.signals)
                say(
                    f"  the agent and all that it started were ended in {in_words(event.elapsed)} ({sent})"
                )
            case events.RetryScheduled():
                say(f"  {event.why}")
            case events.Reconnected():
                self.went_on = event.resumes
                say("  connected again: the session goes on")
            case _:
                pass

    def read(self, message: Any) -> None:
        """Show what the agent said, and note the processes that it named."""
        if not isinstance(message, dict) or message.get("type") != "assistant":  # pyright: ignore[reportUnknownMemberType]
            return
        line = cast("Mapping[str, Any]", message)
        for block in line["message"]["content"]:
            if isinstance(text := block.get("text"), str):
                self._screen.say(f"> {text}")
                self.pids.update(map(int, re.findall(r"process (\d+)", text)))

    def left(self) -> list[int]:
        """Those of its processes that are still there."""
        alive: list[int] = []
        for pid in sorted(self.pids):
            with ProcessTree.adopt(pid) as tree:
                if not tree.is_dead:
                    alive.append(pid)
        return alive


class _Screen(Screen):
    """On a terminal a line at the bottom says what the stream is doing."""

    async def keep_status(self, activity: Activity) -> None:
        """Show what the stream is doing, until cancelled."""
        if not self.has_status:
            return
        try:
            while True:
                since = activity.waiting_since
                idle = 0.0 if since is None else anyio.current_time() - since
                full = min(int(idle / IDLE * 20), 20)
                bar = "#" * full + "." * (20 - full)
                self.status(f"[{bar}] {activity.status}, silent for {idle:.1f} s")
                await anyio.sleep(1 / _FRAMES_PER_SECOND)
        finally:
            self.no_status()
