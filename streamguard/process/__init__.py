"""One process and its tree: adopted early, known to be dead, ended for certain.

    with ProcessTree.adopt(process) as tree:    # a pid, or any process object
        await tree.wait_dead()                  # the process; a zombie is dead
        ended = await tree.terminate(grace=5)   # it and all that it ever started
        assert ended.confirmed, ended.survivors

Who belongs to a tree: members.py. How a process is known: identity.py. Imports errors and its own
parts, of which only `hosted` needs an event loop: whoever has none (the sentinel, a command line)
can import the rest for the price of the standard library. Knows nothing of streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

if sys.platform == "win32":
    from streamguard._base.posix import not_here

    raise not_here("watching and ending processes")

from streamguard._base import defaults
from streamguard._base.variables import MARK
from streamguard.errors import Cause, ConfigError
from streamguard.process import identity, procfs
from streamguard.process.marks import marked_env
from streamguard.process.members import Members
from streamguard.process.table import untouchable
from streamguard.process.termination import Termination

if TYPE_CHECKING:
    from streamguard._base.numbers import Seconds
    from streamguard.process.hosted import HostedEnding
    from streamguard.process.look import Look

# How long the owner of a dead process is given to say its exit status, in seconds.
_STATUS_GRACE: Final = 0.1
# How long a tree may take to be killed where that blocks, in seconds.
_KILLING: Final = 1.0


class SupportsPid(Protocol):
    """A process object: of subprocess, asyncio, anyio or trio, or anything else with a `.pid`."""

    @property
    def pid(self) -> int | None:
        """Its process id."""
        ...


Adoptable: TypeAlias = int | SupportsPid


class ProcessTree:
    """A process and all that descends from it, is in its own group, or bears its mark.

    Adopt it as soon as it runs: from then on its pid cannot be mistaken for another's. A tree is
    never reaped here: the program that started the process does that. `close` (or a `with`
    block) gives back what it holds and ends nothing.
    """

    def __init__(self, target: Adoptable, members: Members) -> None:
        self._target = target
        self._members = members
        self._ending: HostedEnding | None = None
        self._is_closed = False
        self._users: set[object] = set()

    @classmethod
    def adopt(cls, target: Adoptable) -> Self:
        """The tree of `target`: a pid, or a process object. A process that is gone already is dead.

        ConfigError (a ValueError) if it is no process, or one that our signals must never
        hit: pid 1, this process, and its ancestors.
        """
        pid = check_adoptable(target)
        _import_what_an_end_needs()
        root: identity.Handle | None = None
        if _returncode(target) is None:
            with suppress(ProcessLookupError):
                root = identity.open_handle(pid)
        if root is not None and _returncode(target) is not None:
            # It was reaped before it could be held: the pid may be another's already.
            root.close()
            root = None
        members = Members(pid, root)
        procfs.settle(pid)
        members.note_root(procfs.read_stat(pid))
        return cls(target, members)

    @property
    def pid(self) -> int:
        """The pid of the process that was adopted."""
        return self._members.pid

    @property
    def proof(self) -> str:
        """How the process is known: "pidfd", or what stands in for it; "gone" without."""
        return "gone" if self._members.root is None else self._members.root.proof

    @property
    def is_dead(self) -> bool:
        """Whether the process itself has ended. A zombie has; what it started may live on."""
        root = self._members.root
        return root is None or root.is_dead or _returncode(self._target) is not None

    @property
    def exit_status(self) -> int | None:
        """As `Popen.returncode` says it; None while it lives, or if only reaping could tell."""
        status = _returncode(self._target)
        if status is None and self._members.root is not None and self.is_dead:
            status = self._members.root.exit_status()
        return status

    @property
    def termination(self) -> Termination | None:
        """The result of the last `terminate`, also if its caller was cancelled. None: none is over."""
        return None if self._ending is None else self._ending.termination

    async def wait_dead(self) -> None:
        """Return when the process itself is dead. Any number of tasks may wait."""
        if self._members.root is not None and not self.is_dead:
            self.check_open()
            await self._members.root.wait_dead()
            if not self.is_dead:  # it was closed, with no descriptor left to wait with otherwise
                self.check_open()

    async def look(self) -> tuple[int, ...]:
        """Note which processes belong to the tree now, and give their pids.

        A process that was noted is found again when its parent is gone. So look before other code, such
        as a client's disconnect, ends the process.
        """
        from streamguard.process.hosted import fresh_table

        with suppress(OSError):
            self._members.update(await fresh_table())
        return tuple(handle.pid for handle in self._members.living)

    def look_at_vitals(self) -> Look:
        """An object that tells how it and its tree are: see `Look.take`. Use one for each reader."""
        from streamguard.process.look import Look

        return Look(self.pid, self._pids)

    def _pids(self) -> tuple[int, ...]:
        """Who is known to belong, and cannot have become another."""
        return tuple(handle.pid for handle in self._members.living if handle.holds_pid())

    async def terminate(
        self, grace: Seconds = defaults.KILL_GRACE, *, budget: Seconds | None = None
    ) -> Termination:
        """End the process and its tree: TERM and CONT, `grace` seconds, KILL until nothing is left.

        Takes at most `budget` seconds (2 x grace + 5), of which the grace at most half. It ends as
        soon as all are dead; a grace of 0 kills at once. What is left then is in `survivors`. A second call
        meanwhile waits for the same end. A cancellation waits for it, too; a second one (asyncio
        only) leaves it running on its own, and `termination` has the result.
        """
        from streamguard._base.numbers import wait  # the command needs it not

        grace = wait(grace, "grace")
        budget = 2 * grace + 5 if budget is None else wait(budget, "budget")
        self.check_open()
        if self._ending is None or self._ending.is_over.is_set():
            from streamguard import _loops as loops
            from streamguard.process.hosted import HostedEnding

            self._ending = HostedEnding(self._members, grace, budget, self.status_when_known)
            loops.current().spawn(self._run)
        else:
            self._ending.hasten(grace)
        return await self._ending.outcome()

    def kill(self) -> None:
        """Kill the process and its tree when you cannot wait: in a loop that ends.

        Blocks for a second at most. A `terminate` that is under way goes on by itself.
        """
        self.check_open()
        if self._ending is None:
            from streamguard.process import blocking

            blocking.end(self._members, 0, _KILLING)

    def close(self) -> None:
        """Give back what it holds. If other code uses it now, such as a guard, that happens afterwards."""
        self._is_closed = True
        self._give_back_unless_used()

    def keep(self) -> Callable[[], None]:
        """Use it, until the result is called, even if its owner closes it meanwhile."""
        self.check_open()
        user = object()
        self._users.add(user)

        def give_back() -> None:
            self._users.discard(user)
            self._give_back_unless_used()

        return give_back

    def check_open(self) -> None:
        """RuntimeError if it is closed and not in use any more."""
        if self._is_closed and not self._users:
            raise RuntimeError(f"the tree of pid {self.pid} is closed: close it when it is over")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "alive"
        return f"<ProcessTree of pid {self.pid}: {state}, {self.proof}>"

    async def _run(self) -> None:
        assert self._ending is not None
        try:
            await self._ending.run()
        finally:
            self._give_back_unless_used()

    def _give_back_unless_used(self) -> None:
        is_ending = self._ending is not None and not self._ending.is_over.is_set()
        if self._is_closed and not self._users and not is_ending:
            self._members.close()

    async def status_when_known(self) -> int | None:
        """`exit_status`, waiting for a moment until its owner knows it; None as long as it lives."""
        import anyio

        # Its owner may have reaped it and be about to note how it ended.
        with anyio.move_on_after(_STATUS_GRACE if hasattr(self._target, "returncode") else 0):
            while self.is_dead and self.exit_status is None:  # noqa: ASYNC110 - nothing tells
                await anyio.sleep(_STATUS_GRACE / 10)
        return self.exit_status


def check_adoptable(target: Any) -> int:
    """The pid of `target`; a ConfigError for what must not, or cannot, be ended."""
    pid = target if isinstance(target, int) else getattr(target, "pid", target)
    if pid is None:
        raise ConfigError(f"{target!r} has no pid yet: start it before it is adopted")
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise ConfigError(f"{target!r} is no process: pass a pid, or an object with a .pid")
    if pid <= 0:
        raise ConfigError(
            f"pid {pid} is no process: a signal to it would reach a whole group, or every process"
        )
    if pid > procfs.LARGEST_PID:
        raise ConfigError(f"pid {pid} is no process: it is larger than any pid")
    if pid in untouchable():
        raise ConfigError(
            f"pid {pid} is this process, one that it descends from, or init: ending it would end "
            "us. Pass the pid of the backend itself"
        )
    if procfs.is_thread(pid):
        raise ConfigError(
            f"{pid} is a thread, not a process: a signal would reach its whole process"
        )
    return pid


def _import_what_an_end_needs() -> None:
    """Now, on the loop that runs, if one does: without a file descriptor nothing is imported."""
    if not {"asyncio", "trio"} & sys.modules.keys():
        return  # no loop can run, and who has none must not pay for one
    from streamguard import _loops as loops

    if loops.current_or_none() is not None:
        # `terminate` reads its words with it.
        from streamguard._base import numbers  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from streamguard.process import hosted

        hosted.OnLoop().now()  # anyio imports its part for that loop


def _returncode(target: Any) -> int | None:
    """What the owner of a process object knows of its end; reading that never reaps for us."""
    status = None if isinstance(target, int) else getattr(target, "returncode", None)
    return status if isinstance(status, int) else None


__all__ = [
    "MARK",
    "Adoptable",
    "Cause",
    "ProcessTree",
    "SupportsPid",
    "Termination",
    "check_adoptable",
    "marked_env",
]
