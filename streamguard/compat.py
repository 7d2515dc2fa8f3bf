"""`SubprocessWatchdog`: the watchdog of one process, beside a loop that tells it of each message.

    watchdog = SubprocessWatchdog(pid, WatchdogConfig(timeout_seconds=180))
    async with asyncio.TaskGroup() as tasks:  # or anyio's, or a trio nursery
        tasks.create_task(watchdog.monitor())
        try:
            async for message in client.receive_response():
                watchdog.notify_activity()
        finally:
            watchdog.stop()

For programs that are built like this already: a thin front over `idle_guard(...).monitor()` and
`ProcessTree`. New ones write `client.receive_response() | idle_guard(180, process=...)` and get
more: there a tool in flight is no silence, nor is a slow consumer.

A watchdog that polls with `kill(pid, 0)` keeps its names here and gets better means: the limit is
exact and nothing is polled, a zombie is dead, what the process had started ends with it, and a pid
that another process has by now is never signalled. The clock runs from construction, as there.
STREAMGUARD_MODE holds here, too.

What is told. Each line of the log has the event as a flat dict in `record.streamguard`, with the
name under `event`; an observer gets it as a dataclass of `streamguard.events.kinds`:

    watchdog.started     `WatchdogStarted`: pid, timeout_seconds, poll_interval_seconds,
                         kill_grace_seconds. "Watchdog started for PID 7, timeout=180.0s"
    watchdog.activity    in the log alone, at the level of debugging
    watchdog.timeout     `WatchdogTimeout`: pid, idle_seconds, timeout_seconds.
                         "Watchdog killing subprocess 7 after 180.0s idle"
    watchdog.killed      `WatchdogKilled`: pid, signals, exit, elapsed. "Subprocess 7 terminated
                         gracefully", or "required SIGKILL". Only of a process that is dead

An observer also gets what any guard tells (`TimedOut`, `ProcessKilled`, `TornDown`); of these verdicts
`guard` is "watchdog". `tracer=` takes what has `log_event(name, fields)`, such as a span, which is
called with `"watchdog_timeout"` and `{"pid": ..., "idle_seconds": ...}` when a process is to be ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

from streamguard import _loops as loops
from streamguard import events
from streamguard._base import defaults, quoting
from streamguard._base.calling import checked_class
from streamguard._guard.monitor import Monitor
from streamguard.activity import Activity
from streamguard.backends import _processes
from streamguard.errors import ConfigError, IdleTimeoutError, ProcessExitedError
from streamguard.events.teller import logger
from streamguard.operators import idle_guard
from streamguard.process import ProcessTree, check_adoptable

if TYPE_CHECKING:
    from streamguard._guard.knobs import Disconnect
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard.events.event import Event
    from streamguard.events.teller import Observer
    from streamguard.process import Adoptable


class SubprocessWatchdogTimeout(IdleTimeoutError):  # noqa: N818 - the name that programs know
    """The process was idle for too long, and was ended. `.teardown` says how."""


class SupportsLogEvent(Protocol):
    """A tracer, or a span of one, that takes events by name."""

    def log_event(self, name: str, fields: dict[str, Any], /) -> object:
        """Something happened."""
        ...


@dataclass(frozen=True)
class WatchdogConfig:
    """How long a process may be idle, and how it is ended. In seconds.

    `timeout_seconds`: how long it may be idle. `kill_grace_seconds`: between TERM and KILL.

    `poll_interval_seconds` is taken and not needed: silence and death are noticed when they come.
    """

    timeout_seconds: float = 180.0
    poll_interval_seconds: float = 10.0
    kill_grace_seconds: float = defaults.KILL_GRACE


@checked_class
class SubprocessWatchdog:
    """Ends a process, and all that it started, when it has been idle for too long.

    `pid` is a pid or a process object. It is adopted here and now, so that its pid cannot come to
    mean another process; from here on its time runs, too. Without one (None), `disconnect` is what
    ends the backend; with both, it runs before the process is ended.
    `config`: the times. `observer`, one or several, is called with each event. `tracer`: its `log_event` is told of the
    same by the names that the old watchdog used.
    """

    def __init__(
        self,
        pid: Adoptable | None,
        config: WatchdogConfig | None = None,
        *,
        disconnect: Disconnect | None = None,
        observer: Observer | Iterable[Observer] | None = None,
        tracer: SupportsLogEvent | None = None,
    ) -> None:
        if pid is None and disconnect is None:
            raise ConfigError("there is nothing to end: pass the pid, or disconnect=")
        self.pid = None if pid is None else check_adoptable(pid)
        self.config = config or WatchdogConfig()
        self.activity = Activity("backend" if pid is None else f"process {self.pid}")
        self._tree = None if pid is None else ProcessTree.adopt(pid)
        self._guard = idle_guard(
            self.config.timeout_seconds,
            process=self._tree,
            kill_grace=self.config.kill_grace_seconds,
            disconnect=disconnect,
            activity=self.activity,
            observer=observer,
        )
        self._observers = self._guard.plan.listeners
        self._tracer = tracer
        self._waiting: anyio.CancelScope | None = None
        self._loop: loops.Loop | None = None
        self._is_over = False
        self.activity.mark_prompt()

    @classmethod
    def for_client(
        cls,
        client: SupportsDisconnect,
        config: WatchdogConfig | None = None,
        *,
        observer: Observer | Iterable[Observer] | None = None,
        tracer: SupportsLogEvent | None = None,
    ) -> Self:
        """By the process of the client; if that is not to be had, by its `disconnect`."""
        if (process := _processes.live_process_of(client)) is not None:
            return cls(process, config, observer=observer, tracer=tracer)
        logger.warning(
            "Could not access subprocess PID of %s: the watchdog can only disconnect it",
            quoting.name(type(client).__name__),
        )
        disconnect = client.disconnect
        return cls(None, config, disconnect=disconnect, observer=observer, tracer=tracer)

    def notify_activity(self) -> None:
        """The process did something: its time begins anew. From any thread."""
        if self.activity.started is None:
            self.activity.mark_prompt()
        else:
            self.activity.touch()
        if logger.isEnabledFor(logging.DEBUG):
            loop = loops.current_or_none()
            now = time.monotonic() if loop is None else loop.clock()
            events.log(events.WatchdogActivity(activity=self.activity, at=now, pid=self.pid))

    def stop(self) -> None:
        """Watch no longer: `monitor` returns, and the process is left alone. From any thread."""
        self._is_over = True
        waiting, loop = self._waiting, self._loop
        if waiting is None or loop is None:
            if self._tree is not None:
                self._tree.close()
        elif loop.is_running_here():
            waiting.cancel()
        else:
            with suppress(RuntimeError):  # that loop is closed: nobody watches any more
                loop.submit(waiting.cancel)

    async def monitor(self) -> None:
        """Watch, until `stop` is called or the process has ended by itself. Once.

        Raises SubprocessWatchdogTimeout when the process was idle for too long. It is dead by
        then, or the error says that it is not.
        """
        timeout: SubprocessWatchdogTimeout | None = None
        idle: IdleTimeoutError | None = None
        try:
            if not self._is_over:
                await self._watch()
        except ProcessExitedError:
            pass  # the guard saw it first
        except IdleTimeoutError as error:
            idle, timeout = error, self._timeout_of(error)
        finally:
            if self._tree is not None:
                self._tree.close()
        self._is_over = True
        if timeout is not None:
            raise timeout from idle

    async def _watch(self) -> None:
        plan = self._guard.plan
        observers = (*plan.observers, self._tell_of)
        # The limits are the plan's without us: for us alone nobody is woken at half-time.
        watched = replace(plan, observers=observers, guard="watchdog")
        async with Monitor(watched, self._guard.limits, waits_since_prompt=True):
            self._loop = loops.current()
            with anyio.CancelScope() as self._waiting:
                await (anyio.sleep_forever() if self._tree is None else self._tree.wait_dead())

    def _timeout_of(self, idle: IdleTimeoutError) -> SubprocessWatchdogTimeout:
        elapsed = 0.0 if idle.verdict is None else idle.verdict.elapsed
        is_confirmed = idle.teardown is not None and idle.teardown.confirmed
        if self._tree is None:
            what = "disconnected" if is_confirmed else "NOT disconnected"
            said = f"Backend idle for {elapsed:.0f}s, {what}"
        elif not self._tree.is_dead:
            said = f"Subprocess {self.pid} idle for {elapsed:.0f}s, NOT killed"
        else:
            rest = "" if is_confirmed else ", but perhaps not all that it had started"
            said = f"Subprocess {self.pid} idle for {elapsed:.0f}s, killed{rest}"
        timeout = SubprocessWatchdogTimeout(said, verdict=idle.verdict, activity=self.activity)
        timeout.teardown = idle.teardown
        return timeout

    # -- telling -------------------------------------------------------------------------

    def _tell_of(self, event: Event) -> None:
        """What the guard tells, in a watchdog's terms."""
        match event:
            case events.StreamStarted():
                self._tell(
                    events.WatchdogStarted,
                    event.at,
                    timeout_seconds=self.config.timeout_seconds,
                    poll_interval_seconds=self.config.poll_interval_seconds,
                    kill_grace_seconds=self.config.kill_grace_seconds,
                )
            case events.TimedOut() if event.verdict.limit == "idle":
                elapsed = event.verdict.elapsed
                self._tell(
                    events.WatchdogTimeout,
                    event.at,
                    idle_seconds=elapsed,
                    timeout_seconds=self.config.timeout_seconds,
                    enforced=event.enforced,
                )
                if self._tracer is not None and event.enforced:
                    fields = {"pid": self.pid, "idle_seconds": elapsed}
                    self._tracer.log_event("watchdog_timeout", fields)
            case events.TornDown() if self._tree is not None and event.verdict.limit == "idle":
                if self._tree.is_dead:
                    ended = event.teardown
                    self._tell(
                        events.WatchdogKilled,
                        event.at,
                        signals=ended.signals,
                        exit=ended.exit,
                        elapsed=ended.elapsed,
                    )
            case _:
                pass

    def _tell(self, kind: Callable[..., Event], at: float, **facts: Any) -> None:
        event = kind(activity=self.activity, at=at, pid=self.pid, **facts)
        events.tell((events.log, *self._observers), event)


def get_pid_from_client(client: Any) -> int | None:
    """The pid of the process behind `client`; None if it cannot be told, or the process has ended.

    A client of one's own says it with `get_subprocess_pid()`. If it has no such method, or that
    raises or gives None, the pid is where the SDK that is known keeps it in private.
    """
    return _processes.pid_of(client)
