"""Two workers, three sessions, one SIGKILL: `streamguard fleet demo`.

The workers are processes of the very command that users start, over a SQLite file. One session hangs at first; of
the two workers that one is killed which runs another, in the midst of it. What is told is what the store says, and what
was delivered is counted in a file to which both workers write.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import anyio
import anyio.abc

from streamguard import sentinel
from streamguard._base.quoting import in_shell
from streamguard.demo.fleet_handler import DELIVERED, IDLE
from streamguard.demo.screen import Screen
from streamguard.fleet import Row, SqlStore, store_at
from streamguard.process import ProcessTree

if TYPE_CHECKING:
    from streamguard.fleet.store import JSON

TTL: Final = 3.0
FLUSH: Final = 0.5
# How many steps each session has; the second hangs at its third step.
SESSIONS: Final = {"login-test": 24, "changelog": 16, "search-page": 20}
HANGING: Final = "changelog"
VICTIM: Final = "login-test"
_HANGS_AT: Final = 3
_KILLED_AFTER: Final = 5  # steps of it
_LOOK_EVERY: Final = 0.1
# On a machine that is so slow, something else is wrong.
_PATIENCE: Final = 120.0
_HANDLER: Final = "streamguard.demo.fleet_handler:work"


async def show_fleet(folder: Path, out: TextIO | None = None) -> int:
    """Run the demonstration in `folder`; 0 if all came as it should."""
    screen = Screen(out or sys.stdout)
    place = str(folder / "fleet.db")
    screen.say(f"Three sessions are queued in a file, {place}")
    with store_at(place) as store, sentinel(kill_grace=0.5) as ends_with_us:
        for key, steps in SESSIONS.items():
            hangs_at = _HANGS_AT if key == HANGING else 0
            work: dict[str, JSON] = {"steps": steps, "hangs_at": hangs_at, "folder": str(folder)}
            store.submit(key, {"prompt": f"Do {key}", **work})
        async with _worker("A", place, folder) as first, _worker("B", place, folder) as second:
            for worker in (first, second):
                ends_with_us.adopt(worker.process.pid)
                screen.say(f"Worker {worker.name} is process {worker.process.pid}")
            incident = _FleetIncident(screen, store, folder, (first, second))
            with anyio.move_on_after(_PATIENCE):
                await incident.run()
            screen.no_status()
            for worker in incident.left:
                worker.process.send_signal(signal.SIGTERM)
                await worker.process.wait()
    return await _sum_fleet_up(incident, place, screen)


@dataclass
class _Worker:
    name: str
    process: anyio.abc.Process


@asynccontextmanager
async def _worker(name: str, place: str, folder: Path) -> AsyncGenerator[_Worker, None]:
    """A worker, as a user would start it. None is left."""
    command = [sys.executable, "-m", "streamguard", "fleet", "serve", _HANDLER]
    knobs = ["--store", place, "--ttl", str(TTL), "--flush", str(FLUSH), "--limit", "2"]
    with (folder / f"worker-{name}.log").open("wb") as log:
        process = await anyio.open_process(
            [*command, *knobs], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
    try:
        yield _Worker(name, process)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@dataclass
class _FleetIncident:
    """What has been seen of it, by looking at the store again and again."""

    screen: Screen
    store: SqlStore
    folder: Path
    workers: tuple[_Worker, ...]
    killed: _Worker | None = None
    killed_at: float = 0.0
    agents: set[int] = field(default_factory=set[int])
    went_on: bool = False
    _rows: dict[str, Row] = field(default_factory=dict[str, Row])
    _attempts: dict[str, str] = field(default_factory=dict[str, str])
    _logged: int = 0

    @property
    def left(self) -> list[_Worker]:
        """Those that are still there."""
        return [worker for worker in self.workers if worker.process.returncode is None]

    @property
    def is_over(self) -> bool:
        """Whether every session has come to an end."""
        return bool(self._rows) and all(
            row.status not in ("waiting", "running") for row in self._rows.values()
        )

    async def run(self) -> None:
        """Look, tell what is new, and kill a worker when it is time."""
        while not self.is_over:
            self._look()
            if self.killed is None and (worker := self._to_kill()) is not None:
                await self._kill(worker)
            await anyio.sleep(_LOOK_EVERY)

    def _look(self) -> None:
        rows, lines = self.store.live(all=True), list(self.store.timeouts())
        for line in lines[self._logged :]:
            self.screen.say(
                f"  {line['session']} was silent for {IDLE:g} s: caught. Its agent was ended, and the session is queued again"
            )
        self._logged = len(lines)
        for row in rows:
            self._tell(row)
            self._rows[row.key] = row
        shown = (
            f"{key} {'#' * (row.delivered * 10 // (SESSIONS[key] + 2)):.<10}"
            for key, row in self._rows.items()
        )
        self.screen.status("   ".join(shown))

    def _tell(self, row: Row) -> None:
        before = self._rows.get(row.key)
        was_held_by = before.owner if before is not None else ""
        if row.status == "running" and row.owner and row.owner != self._attempts.get(row.key):
            worker = self._name(row.owner)
            earlier = self._attempts.get(row.key)
            self._attempts[row.key] = row.owner
            if earlier is None:
                self.screen.say(f"  {row.key} begins on worker {worker}")
            else:
                self._tell_going_on(row, earlier, worker)
        elif row.status == "running" and before is not None and row.attempt > before.attempt:
            self.screen.say(
                f"  {row.key} goes on where it was, after {row.delivered} messages, on worker {self._name(row.owner)} again"
            )
        elif row.status != "running" and was_held_by and row.status != "waiting":
            self.screen.say(f"  {row.key} is {row.status}: {row.delivered} messages in all")

    def _tell_going_on(self, row: Row, earlier: str, worker: str) -> None:
        text = (
            f"  {row.key} goes on where it was, after {row.delivered} messages, on worker {worker}"
        )
        if self.killed is not None and self._name(earlier) == self.killed.name:
            self.went_on = True
            text += f", {time.monotonic() - self.killed_at:.1f} s after the kill"
        self.screen.say(text)

    def _name(self, owner: str) -> str:
        pid = owner.split(":")[1]
        return next(
            (worker.name for worker in self.workers if str(worker.process.pid) == pid), "?"
        )

    def _to_kill(self) -> _Worker | None:
        """The worker of the session that is to change hands, once it is in the midst of it."""
        row = self._rows.get(VICTIM)
        is_midway = row is not None and row.status == "running" and row.delivered > _KILLED_AFTER
        if row is None or not is_midway or not self._logged:
            return None
        return next(
            (worker for worker in self.workers if worker.name == self._name(row.owner)), None
        )

    async def _kill(self, worker: _Worker) -> None:
        process = worker.process
        self.agents = {
            agent for _, _, pid, agent in delivered_in(self.folder) if pid == process.pid
        }
        process.send_signal(signal.SIGKILL)
        self.killed, self.killed_at = worker, time.monotonic()
        await process.wait()
        self.screen.say("")
        self.screen.say(
            f"KILLED: worker {worker.name}, process {process.pid}, by SIGKILL. Its lease ends {TTL:g} s after its last sign of life"
        )
        gone = await self._until_gone()
        self.screen.say(
            f"  still alive of its agents, processes {_shown(self.agents)}: {_shown(gone)}"
        )
        self.screen.say("")

    async def _until_gone(self) -> set[int]:
        """Those of the killed worker's agents that outlive it."""
        alive = set(self.agents)
        with anyio.move_on_after(TTL):
            while alive:
                alive = {pid for pid in alive if not _is_dead(pid)}
                await anyio.sleep(0.05)
        return alive


def _is_dead(pid: int) -> bool:
    with ProcessTree.adopt(pid) as tree:
        return tree.is_dead


def _shown(pids: set[int]) -> str:
    return ", ".join(map(str, sorted(pids))) or "none"


def delivered_in(folder: Path) -> list[tuple[str, int, int, int]]:
    """What the workers have delivered: session, step, worker, agent."""
    file = folder / DELIVERED
    if not file.exists():
        return []
    whole = file.read_text("utf-8").rpartition("\n")[0].splitlines()
    return [
        (key, int(step), int(worker), int(agent))
        for key, step, worker, agent in map(str.split, whole)
    ]


async def _sum_fleet_up(incident: _FleetIncident, place: str, screen: Screen) -> int:
    came = Counter((key, step) for key, step, _, _ in delivered_in(incident.folder))
    wanted = {(key, step) for key, steps in SESSIONS.items() for step in range(1, steps + 1)}
    missing, twice = wanted - came.keys(), sum(n > 1 for n in came.values())
    left = {pid for pid in incident.agents if not _is_dead(pid)}
    screen.say("")
    screen.say(
        f"Of {len(wanted)} steps {len(missing) or 'none'} are missing, and {twice or 'none'} came twice. What came after the last "
        f"checkpoint may come again; one is written every {FLUSH:g} s"
    )
    for words in (["list", "--all"], ["log"]):
        screen.say("")
        await _run(["fleet", *words, "--store", place], screen)
    screen.say("")
    screen.say(f"The store, the workers' logs and what they delivered: {incident.folder}")
    screen.say(f"They stay until you remove them: rm -r {in_shell(str(incident.folder))}")
    is_well = incident.is_over and incident.went_on and not missing and not left
    return 0 if is_well else 1


async def _run(words: Sequence[str], screen: Screen) -> None:
    """Run a command as a user would, and show what it says."""
    screen.say(f"$ streamguard {' '.join(words)}")
    done = await anyio.run_process([sys.executable, "-m", "streamguard", *words], check=False)
    for line in (done.stdout + done.stderr).decode().splitlines():
        screen.say_plain(line)
