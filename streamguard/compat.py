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
that another process has by now is never signalled. STREAMGUARD_MODE holds here, too. What the
log and an observer are told:

    watchdog.started     `ProcessAdopted`: the pid, and by what the process is known
    watchdog.activity    nothing for each; `watchdog.activity.last_progress` is the latest
    watchdog.timeout     `TimedOut`: `verdict.elapsed` is how long it was idle
    watchdog.killed      `ProcessKilled`: `signals` says whether TERM was enough
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import anyio

from streamguard.activity import Activity
from streamguard.errors import ConfigError, IdleTimeoutError, ProcessExitedError, seconds
from streamguard.events import logger
from streamguard.operators import idle_guard
from streamguard.process import ProcessTree

if TYPE_CHECKING:
    from streamguard.events import Observer
    from streamguard.knobs import Disconnect
    from streamguard.teardown import SupportsDisconnect


class SubprocessWatchdogTimeout(IdleTimeoutError):  # noqa: N818 - the name that programs know
    """The process was idle for too long, and was ended. `.teardown` says how."""


@dataclass(frozen=True)
class WatchdogConfig:
    """How long a process may be idle, and how it is ended. In seconds.

    `poll_interval_seconds` is taken and not needed: silence and death are noticed when they come.
    """

    timeout_seconds: float = 180.0
    poll_interval_seconds: float = 10.0
    kill_grace_seconds: float = 5.0


class SubprocessWatchdog:
    """Ends a process, and all that it started, when it has been idle for too long.

    It is adopted here and now, so that its pid cannot come to mean another process. Without a pid
    (None), `disconnect` is what ends the backend; with both, it runs before the process is ended.
    """

    def __init__(
        self,
        pid: int | None,
        config: WatchdogConfig | None = None,
        *,
        disconnect: Disconnect | None = None,
        observer: Observer | None = None,
    ) -> None:
        if pid is None and disconnect is None:
            raise ConfigError("there is nothing to end: pass the pid, or disconnect=")
        self.pid = pid
        self.config = config or WatchdogConfig()
        self.activity = Activity("backend" if pid is None else f"process {pid}")
        self._tree = None if pid is None else ProcessTree.adopt(pid)
        self._guard = idle_guard(
            self.config.timeout_seconds,
            process=self._tree,
            kill_grace=self.config.kill_grace_seconds,
            disconnect=disconnect,
            activity=self.activity,
            observer=observer,
        )
        self._waiting: anyio.CancelScope | None = None
        self._is_over = False

    @classmethod
    def for_client(
        cls,
        client: SupportsDisconnect,
        config: WatchdogConfig | None = None,
        *,
        observer: Observer | None = None,
    ) -> Self:
        """By the pid of the client's process; if that is not to be had, by its `disconnect`."""
        if (pid := get_pid_from_client(client)) is not None:
            return cls(pid, config, observer=observer)
        logger.warning("no pid of %s is known: disconnect is all there is", type(client).__name__)
        return cls(None, config, disconnect=client.disconnect, observer=observer)

    def notify_activity(self) -> None:
        """The process did something: its time begins anew. From any thread."""
        self.activity.touch()

    def stop(self) -> None:
        """Watch no longer: `monitor` returns, and the process is left alone."""
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()
        elif self._tree is not None:
            self._tree.close()

    async def monitor(self) -> None:
        """Watch, until `stop` is called or the process has ended by itself. Once.

        Raises SubprocessWatchdogTimeout when the process was idle for too long. It is dead by
        then, or `.teardown` says why that is not certain.
        """
        idle: IdleTimeoutError | None = None
        try:
            if not self._is_over:
                await self._watch()
        except ProcessExitedError:
            pass  # the guard saw it first
        except IdleTimeoutError as error:
            idle = error
        finally:
            if self._tree is not None:
                self._tree.close()
        self._is_over = True
        if idle is not None and idle.verdict is not None:
            said = f"{self.activity.name} was idle for {seconds(idle.verdict.elapsed)}"
            timeout = SubprocessWatchdogTimeout(said, verdict=idle.verdict, activity=self.activity)
            timeout.teardown = idle.teardown
            raise timeout from idle

    async def _watch(self) -> None:
        async with self._guard.monitor():
            with anyio.CancelScope() as self._waiting:
                await (anyio.sleep_forever() if self._tree is None else self._tree.wait_dead())


def get_pid_from_client(client: Any) -> int | None:
    """The pid of the process behind `client`; None if it cannot be told.

    A client of one's own says it with `get_subprocess_pid()`. claude-agent-sdk keeps it in
    private; its public way, `(await client.get_server_info())["pid"]`, is the CLI's to offer.
    """
    try:
        ask = getattr(client, "get_subprocess_pid", None)
        pid = client._transport._process.pid if ask is None else ask()
    except Exception:  # noqa: BLE001 - whatever it looks like inside, some day
        return None
    return pid if isinstance(pid, int) and pid > 0 else None
