"""The keeper: a process of ours that starts the command, and ends it and all that it started.

It is the command's parent, and whatever loses its parent below it falls to it: so it knows without
doubt whether anybody is left, and nothing that holds up the front (its reader, a disk, a terminal)
holds up an end. The front (`run`, the process that the user started) tells it what to do through a
pipe, one order on a line:

    send N       send the command and its group that signal, and say nothing of it
    pass N       the same, and continue it if it was stopped
    ask N G      the same, as a request to end, with a grace of G seconds; then all of the tree
    end N G      ask all of the tree to end
    kill         the grace is over
    bye          there is nothing left to do: go

The end of that pipe without a `bye` is the front's death: then the tree is ended (D7). What happens is
reported on another:

    pid P T      the command is about to run; T is when it started
    runs         it does
    failed E     it could not be executed: an error number
    broken E     no process could be had for it
    died S       it is dead, with that status; `?` if only its parent can know
    sent NAME    that signal was sent to somebody
    ended C N P... all that was to be ended is: how, how many of it were somebody else's, and who is left

Should a keeper be killed, the front starts another, which is not the command's parent and finds the
tree by what is known of it. What an end needs is imported when there is one. Standard library until then.
"""

from __future__ import annotations

import os
import select
import time

from streamguard.runner import aside, kernel
from streamguard.runner._signal import name_of, signal
from streamguard.runner.outbox import Outbox
from streamguard.runner.wakeups import note, wakeup_pipe

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamguard.process.identity import Handle
    from streamguard.process.polled import PolledEnding
    from streamguard.runner.child import Start
    from streamguard.runner.offspring import Household

_NEVER = float("inf")
_LONGEST_POLL = 1_000_000.0
# Where all that knows trees cannot be had, killing goes on for so long, with such pauses.
_KILLING = 5.0
_PAUSE = 0.02
# What `ps` shows. Whoever ends all that has our name means the front; we end when that is gone.
_NAME = "sguard-keeper"


class EndingPlan:
    """How a command is to be ended, for the keeper to know even when nobody can tell it."""

    def __init__(
        self,
        mark: str | None,
        *,
        signal: int,
        grace: float,
        leads_session: bool,
        holds: int | None = None,
    ) -> None:
        self.mark = mark  # None: the command and its group alone are ended, not its tree
        self.signal = signal
        self.grace = grace  # inf: never by KILL
        self.leads_session = leads_session
        self.holds = holds  # a descriptor to be kept open until nobody is left


class Known:
    """A command that a keeper has started who is gone.

    Its orphans fall to the front now, if `falls_to_front`; `spared` are processes of the front's own.
    """

    def __init__(
        self, pid: int, started: float, *, falls_to_front: bool, spared: Iterable[int]
    ) -> None:
        self.pid = pid
        self.started = started
        self.adopter = os.getpid() if falls_to_front else None
        self.spared = {each: started_at(each) for each in spared}


def fork(plan: EndingPlan, command: Start | Known, orders: int, reports: int) -> int:
    """The pid of a keeper, which reads `orders` and writes `reports`. OSError if there can be none."""
    keeper = Keeper(plan, orders, reports)

    def begin() -> list[int]:
        kernel.die_with_parent(signal.SIGCONT)  # who was stopped could not see to the end
        if isinstance(command, Known):
            keeper.take_over(command)
        else:
            keeper.start(command)
        return keeper.descriptors

    return aside.fork(
        keeper.keep, (orders, reports), own_session=plan.leads_session, outlives=None, before=begin
    )


class Keeper:
    """In its process: what it knows, and its loop."""

    def __init__(self, plan: EndingPlan, orders: int, reports: int) -> None:
        self._plan = plan
        self._orders = orders
        self._reports = Outbox(reports)
        self._said = b""
        self._pid = 0
        self._started = 0.0
        self._failure = ""  # an error number
        self._pidfd: int | None = None
        self._is_parent = True
        self._adopter: int | None = None
        self._spared: dict[int, float] = {}
        self._is_dead = False
        self._is_asked = False
        self._kill_at = _NEVER
        self._household: Household | None = None
        self._ending: PolledEnding | None = None
        self._watched: int | None = None
        self._is_alone = False  # the front is gone

    @property
    def descriptors(self) -> list[int]:
        """What it has opened for itself."""
        return [fd for fd in (self._pidfd, self._plan.holds) if fd is not None]

    # -- the command -----------------------------------------------------------------------

    def start(self, command: Start) -> None:
        """Start the command, before anything that it is to share is closed."""
        self._adopter = os.getpid() if kernel.adopt_orphans() else None
        try:
            told = command.fork(self._met)
        except OSError as error:
            self._is_dead = True
            self._report(f"broken {error.errno}")
            return
        # Until it is executed it may have no group that a signal could reach.
        with open(told, "rb", buffering=0) as pipe:
            self._failure = pipe.read().decode()
        self._report(f"failed {self._failure}" if self._failure else "runs")

    def _met(self, pid: int) -> None:
        self._pid = pid
        self._open()
        self._started = started_at(pid)
        self._report(f"pid {pid} {self._started}")

    def take_over(self, known: Known) -> None:
        """Go on with a command that was started by a keeper that is gone."""
        self._is_parent = False
        self._adopter, self._spared = known.adopter, known.spared
        self._pid, self._started = known.pid, known.started
        if self._started and started_at(self._pid) not in (0.0, self._started):
            self._has_died("?")
        else:
            self._open()

    def _open(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except ProcessLookupError:
            self._has_died("?")
        except (AttributeError, OSError):
            pass  # without one it is known by its start time

    # -- the loop --------------------------------------------------------------------------

    def keep(self) -> None:
        """Until the front says goodbye, or is gone and everything is ended."""
        if not self._is_parent:
            self._meet()
        kernel.be_called(_NAME)
        self._poll = select.poll()
        self._poll.register(self._orders, select.POLLIN)
        self._poll.register(wakeup_pipe(), select.POLLIN)
        signal.signal(signal.SIGCHLD, note)
        if not self._is_parent and self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)
        self._reports.attach(self._poll)
        self.has_children()  # it may have died before we could be told
        while not (self._is_alone and self._is_over):
            ready = self._poll.poll(self._milliseconds())
            for fd, _ in ready:
                if fd == self._orders:
                    self._hear()
                elif fd == self._reports.fd:
                    self._reports.flush()
                elif fd == self._pidfd:
                    self._poll.unregister(fd)
                    self._has_died("?")
                elif fd != self._watched:
                    os.read(fd, 4096)
            self.has_children()
            self._go_on(time.monotonic())
            self._watch()

    def _milliseconds(self) -> float | None:
        due = self._kill_at
        if self._ending is not None:
            due = min(due, self._ending.due)
        if due == _NEVER:
            return None
        return min(max(due - time.monotonic(), 0.0), _LONGEST_POLL) * 1e3

    @property
    def _is_over(self) -> bool:
        """Whether there is nothing left to do for who is alone."""
        if self._plan.mark is None:
            return self._is_dead or self._kill_at == _NEVER
        return self._ending is None and not self._is_asked

    def has_children(self) -> bool:
        """Take note of who has died. Whether anybody is left whose parent we are."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._pid and self._is_parent:
                self._has_died(str(status))

    def _has_died(self, status: str) -> None:
        if self._is_dead:
            return
        self._is_dead = True
        if not self._failure:
            self._report(f"died {status}")

    # -- what the front says ---------------------------------------------------------------

    def _hear(self) -> None:
        said = os.read(self._orders, 4096)
        if not said:
            self._poll.unregister(self._orders)
            self._front_is_gone()
            return
        *lines, self._said = (self._said + said).split(b"\n")
        for line in lines:
            self._obey(line.decode().split())

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["send", number]:
                self._deliver(int(number))
            case ["pass", number]:
                self._send(int(number))
            case ["ask" | "end" as order, number, grace]:
                self._ask(int(number), float(grace), all_of_it=order == "end")
            case ["kill"]:
                self._is_asked = True
                self._kill_at = time.monotonic()
            case _:  # bye
                os._exit(0)

    def _front_is_gone(self) -> None:
        self._is_alone = True
        plan = self._plan
        if plan.mark is None:
            self._ask(plan.signal, plan.grace, all_of_it=False)
        else:  # who was not to be killed as long as somebody waits has nobody left
            self._ask(plan.signal, 0.0 if plan.grace == _NEVER else plan.grace, all_of_it=True)

    def _ask(self, number: int, grace: float, *, all_of_it: bool) -> None:
        now = time.monotonic()
        self._is_asked = True
        self._kill_at = min(self._kill_at, now + grace)  # nothing that comes later prolongs it
        if not all_of_it or self._plan.mark is None:
            self._send(number)
        elif self._ending is None:
            self._end(number, self._kill_at - now)

    def _send(self, number: int) -> None:
        self._deliver(number)
        self._report(f"sent {name_of(number)}")
        if number not in (signal.SIGKILL, signal.SIGCONT):
            self._deliver(signal.SIGCONT)  # a stopped process would not see it

    def _deliver(self, number: int) -> None:
        if self._is_dead:  # its number may be another's by now
            return
        try:
            if self._plan.leads_session:
                os.killpg(self._pid, number)
            else:
                os.kill(self._pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    # -- the end ---------------------------------------------------------------------------

    def _go_on(self, now: float) -> None:
        if self._plan.mark is None:
            if now >= self._kill_at:
                self._kill_at = _NEVER
                self._send(signal.SIGKILL)
            return
        if now >= self._kill_at:
            self._kill_at = _NEVER
            if self._ending is None:
                self._end(signal.SIGTERM, 0.0)
            else:
                self._ending.hasten(0.0)
                self._step()
        elif self._ending is None:
            if self._is_asked and self._is_dead:
                self._end(signal.SIGTERM, self._kill_at - now)
        elif self._ending.is_ready(now):
            self._step()

    def _end(self, number: int, grace: float) -> None:
        """Begin to end all of the tree."""
        try:
            from streamguard.process.polled import PolledEnding

            self._ending = PolledEnding(
                self._household or self._meet(),
                grace,
                first=number,
                noted=lambda name: self._report(f"sent {name}"),
            )
        except Exception:  # noqa: BLE001 - our files are gone, or there is no memory
            self._kill()
        else:
            self._step()

    def _kill(self) -> None:
        """Kill whoever can be found by nothing but the system's calls."""
        self._report("sent KILL")
        self._deliver(signal.SIGKILL)
        until = time.monotonic() + _KILLING
        while (is_left := self.has_children()) and time.monotonic() < until:
            for pid in own_children():
                os.kill(pid, signal.SIGKILL)  # our own child, not reaped: the pid is its own
            select.poll().poll(_PAUSE * 1e3)
        is_proven = self._adopter == os.getpid() and not is_left
        self._has_ended("killed" if is_proven else "unproven")

    def _meet(self) -> Household:
        """Who is to be ended. Who takes over meets all at once: who starts them may be killed, too."""
        from streamguard.process import identity
        from streamguard.process.identity import PidfdHandle
        from streamguard.process.members import TreeFacts
        from streamguard.process.table import read_table, spared
        from streamguard.runner.offspring import Household

        plan = self._plan
        spared.update(self._spared)
        root: Handle | None = None
        if self._pidfd is not None:
            root = PidfdHandle(self._pid, os.dup(self._pidfd))
        elif not self._is_dead:
            root = identity.open_again(self._pid, self._started)
        session = self._pid if plan.leads_session else None
        facts = TreeFacts(self._pid, self._started, session, plan.mark)
        household = Household.of_keeper(facts, root, self._adopter, self.has_children)
        if not self._is_parent:
            try:
                household.update(read_table())
            except OSError:
                pass  # whoever can be found is found when it comes to an end
        self._household = household
        return household

    def _step(self) -> None:
        ending = self._ending
        assert ending is not None
        ending.step()
        if ending.termination is not None:
            self._has_ended(ending.termination.cause, *ending.termination.survivors)

    def _watch(self) -> None:
        """Hear of the death that is waited for, and of no other."""
        awaited = None if self._ending is None else self._ending.awaited
        if awaited == self._watched:
            return
        if self._watched is not None:
            self._poll.unregister(self._watched)
        if awaited is not None:
            self._poll.register(awaited, select.POLLIN)
        self._watched = awaited

    def _has_ended(self, cause: str, *left: int) -> None:
        self._ending, self._is_asked, self._kill_at = None, False, _NEVER
        met = 0 if self._household is None else len(self._household.elsewhere)
        self._report(" ".join(["ended", cause, str(met), *map(str, left)]))

    def _report(self, line: str) -> None:
        self._reports.put(line)


def started_at(pid: int) -> float:
    """When a process started, as /proc counts; 0 where nothing tells.

    `process.procfs` says the same, and is imported when there is an end: the start has no time for it.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return float(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0.0


def own_children() -> Iterator[int]:
    """The pids of our living children, asked for one by one, as far as pids were given out."""
    for pid in _given_out():
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            continue
        if ended is None:
            yield pid


def _given_out() -> Iterable[int]:
    us, largest = os.getpid(), 1 << 22  # what `pid_max` can be at most
    try:
        with open("/proc/sys/kernel/pid_max", "rb", buffering=0) as file:
            largest = int(file.read(32))
    except (OSError, ValueError):
        pass
    try:
        newest = os.fork()
    except OSError:
        return range(2, largest)
    if newest == 0:
        os._exit(0)
    os.waitpid(newest, 0)
    if us < newest:
        return range(us + 1, newest)
    return (*range(us + 1, largest), *range(2, newest))  # the numbers have begun anew
