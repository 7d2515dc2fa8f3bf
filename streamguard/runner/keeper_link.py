"""The front's end of its keeper: what is ordered, what was reported, and another keeper if one is lost.

Nothing here waits, but for the command's pid at the start. Knows the keeper's lines (keeper.py); nothing
of limits and output.
"""

from __future__ import annotations

import errno
import os
import select
import time

from streamguard.runner import aside, keeper
from streamguard.runner._signal import signal
from streamguard.runner.child import CannotRunError
from streamguard.runner.keeper import Known
from streamguard.runner.outbox import Outbox, is_ready

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamguard.runner.child import Start
    from streamguard.runner.keeper import EndingPlan
    from streamguard.runner.result import Result

_NEVER = float("inf")
# What a keeper may take, beside the grace, to end a tree and say so: its own budget, and some more
# on a machine that is busy.
_ENDING = 12.0
# What may pass without a word of the command's being executed.
_EXECUTING = 0.5
# How long after the command's death its keeper may say nothing of it.
_TELLING = 2.0
# Without a keeper: looks for what has fallen to us, and the pause after each, in seconds.
_ROUNDS = 50
_PAUSE = 0.02
# It was told to go, and has nothing left to do.
_LEAVING = 2.0
# Who kills one keeper after the other will not be stopped by a further one.
_MOST_KEEPERS = 3


class KeeperLink:
    """To the keeper of one command; what it reports is noted in `outcome`."""

    def __init__(
        self,
        plan: EndingPlan,
        start: Start,
        outcome: Result,
        poll: select.poll,
        *,
        adopts_orphans: bool,
        sent: Callable[[str], None],
        lost: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._command = start.command[0]
        self._outcome = outcome
        self._poll = poll
        self._adopts_orphans = adopts_orphans
        self._sent = sent
        self._lost = lost
        self._started = 0.0
        self.runs = False  # the command does, as far as that was said
        self._said = b""
        self._order = ""  # what a further keeper would have to be told
        self._kill_at = _NEVER
        self._end_by = _NEVER
        self._told_by = _NEVER
        self._pidfd = -1
        self._keepers = 0
        self.pid: int | None = None  # of the keeper; None: there is none any more
        self.fd = -1
        self.began: float | None = None  # when an end was first asked for, by whomever
        self.has_ended = False  # what was to be ended is, as far as that was possible
        self._fork(start)
        while not outcome.pid:  # at once: it is said before the command is executed
            self._read()
        until = time.monotonic() + _EXECUTING
        while not self.runs and (left := until - time.monotonic()) > 0:
            if not is_ready(self.fd, select.POLLIN, left):
                break  # a file system that stands still, for one: limits count from here on
            self._read()

    def due(self) -> float:
        """When `pursue` has something to do; inf if never."""
        return min(self._end_by, self._told_by)

    @property
    def tree(self) -> tuple[int, float, int | None, str | None]:
        """By what the command and all that it starts are found, as `process.members.TreeFacts` has it."""
        pid = self._outcome.pid
        return pid, self._started, pid if self._plan.leads_session else None, self._plan.mark

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What it needs to be open."""
        fds = (self.fd, self._orders.fd, self._pidfd)
        return tuple(fd for fd in fds if fd >= 0)

    @property
    def ends_by(self) -> float:
        """When all that was to be ended is, or has proven not to be; inf as long as nobody is."""
        return self._kill_at + _ENDING

    # -- orders ----------------------------------------------------------------------------

    def ask_command(self, number: int, now: float) -> None:
        """Send the command, and its group if it has one, a signal that asks for an end."""
        self._ask("ask", number, now)

    def ask_tree(self, number: int, now: float) -> None:
        """Send everything that the command ever started a signal; in GNU's way, its group."""
        self._ask("end", number, now)

    def hurry(self, now: float) -> None:
        """The grace is over: kill."""
        self._begin(now)
        self._expect(now)
        self._order = "kill"
        self._tell("kill")

    def pass_on(self, number: int) -> None:
        """Send the command, and its group, a signal that does not ask for an end."""
        self._tell(f"pass {number}")

    def deliver(self, number: int) -> None:
        """Send the command, and its group, a signal; nothing is said or noted of it."""
        self._tell(f"send {number}")

    def pursue(self, now: float) -> None:
        """Do what is due: who does not answer any more is replaced."""
        is_late = now >= self._told_by and not self._outcome.is_dead
        if now >= self._told_by:
            self._told_by = _NEVER
        if now >= self._end_by and not self.has_ended:
            self._end_by = _NEVER
            is_late = True
        if is_late and self.pid is not None:
            self._signal(signal.SIGKILL)
            self._replace("does not answer")

    def close(self) -> None:
        """Let the keeper go, and wait until it has."""
        if self.pid is not None:
            self._tell("bye")
        self._let_go()
        self._forget_pidfd()

    def _ask(self, order: str, number: int, now: float) -> None:
        self._begin(now)
        if self._kill_at == _NEVER:
            self._expect(now + self._plan.grace)
        self._order = f"{order} {number}"
        self._tell(f"{self._order} {self._plan.grace}")

    def _begin(self, now: float) -> None:
        if self.began is None:
            self.began = now
        if self.pid is None and not self.has_ended:  # the last one was lost when all seemed done
            self._take_over()

    def _expect(self, kill_at: float) -> None:
        self._kill_at = min(self._kill_at, kill_at)
        if self._plan.mark is not None:
            self._end_by = self.ends_by

    def _tell(self, order: str) -> None:
        if self.pid is not None:
            self._orders.put(order)
            self._signal(signal.SIGCONT)  # whoever stopped it

    def _signal(self, number: int) -> None:
        """Send the keeper a signal, if nobody has reaped it: its pid may be another's then."""
        if self.pid in aside.running:
            os.kill(self.pid, number)

    # -- reports ---------------------------------------------------------------------------

    def handle(self, fd: int) -> bool:
        """Whether it is ours that is ready; then it is seen to."""
        if fd == self.fd:
            self._read()
        elif fd == self._orders.fd:
            self._orders.flush()
        elif fd == self._pidfd:
            self._forget_pidfd()  # the command is dead: its keeper will say so
            if not self._outcome.is_dead and self.pid is not None:
                self._signal(signal.SIGCONT)
                self._told_by = time.monotonic() + _TELLING
        else:
            return False
        return True

    def command_was_reaped(self, status: int) -> None:
        """The command fell to us, and has ended."""
        if self._outcome.status is None:
            self._outcome.status = status
            self._outcome.is_dead = True
            self._outcome.survivors = ()

    def _read(self) -> None:
        try:
            said = os.read(self.fd, 4096)
        except BlockingIOError:
            return
        if not said:
            self._replace("was killed")
            return
        *lines, self._said = (self._said + said).split(b"\n")
        for line in lines:
            self._note(line.decode().split())

    def _note(self, words: list[str]) -> None:
        outcome = self._outcome
        match words:
            case ["pid", pid, started]:
                outcome.pid, self._started = int(pid), float(started)
                self._watch(int(pid))
            case ["runs"]:
                self.runs = True
            case ["failed", number]:
                self.close()
                raise CannotRunError(self._command, int(number))
            case ["broken", number]:
                self.close()
                raise OSError(int(number), os.strerror(int(number)))
            case ["died", status]:
                if status != "?":
                    outcome.status = int(status)
                outcome.is_dead = True
            case ["sent", name]:
                self._sent(name)
                if name not in outcome.signals:
                    outcome.signals.append(name)
            case ["ended", cause, met, *left]:
                outcome.elsewhere = int(met)
                outcome.survivors = tuple(map(int, left))
                outcome.is_unproven = cause == "unproven"
                self.has_ended = True
                self._end_by = _NEVER
            case _:
                raise AssertionError(words)

    # -- keepers ---------------------------------------------------------------------------

    def _fork(self, command: Start | Known) -> None:
        theirs, orders = os.pipe()
        try:
            self.fd, reports = os.pipe()
        except OSError:
            os.close(theirs)
            os.close(orders)
            raise
        try:
            self.pid = keeper.fork(self._plan, command, theirs, reports)
        except OSError:
            os.close(orders)
            os.close(self.fd)
            raise
        finally:
            os.close(theirs)
            os.close(reports)
        self._keepers += 1
        self._orders = Outbox(orders)
        self._orders.attach(self._poll)
        self._poll.register(self.fd, select.POLLIN)

    def _replace(self, why: str) -> None:
        """The keeper is lost: another goes on, if there is anything left to do."""
        gone = self.pid
        self._let_go()
        if not self._outcome.pid:  # nor will the command be executed
            raise ChildProcessError(
                errno.ECHILD, f"its keeper (process {gone}) {why} at the start"
            )
        if self._outcome.is_dead and (self.has_ended or self.began is None):
            return
        # Said first: who says it must be known to whoever takes over, or would be taken for one of
        # the command's.
        self._lost(f"the keeper (process {gone}) {why}; another takes its place")
        self._take_over()

    def _take_over(self) -> None:
        try:
            if self._keepers >= _MOST_KEEPERS:
                raise ChildProcessError
            self._fork(
                Known(
                    self._outcome.pid,
                    self._started,
                    falls_to_front=self._adopts_orphans,
                    spared=aside.running,
                )
            )
        except OSError:
            self._give_up()
            self._lost("nobody can take its place")
            return
        if self._order:
            now = time.monotonic()
            self._end_by = max(self._kill_at, now) + _ENDING if self._end_by != _NEVER else _NEVER
            left = max(self._kill_at - now, 0.0)
            self._tell(self._order if self._order == "kill" else f"{self._order} {left}")

    def _give_up(self) -> None:
        """Nothing more can be done, and nothing more can be known."""
        outcome = self._outcome
        self.began = self.began or time.monotonic()
        self.has_ended = outcome.is_unproven = True
        self._end_by = _NEVER
        if self._kill_what_fell_to_us():
            outcome.signals.append("KILL")
        if not outcome.is_dead:
            outcome.survivors = (outcome.pid,)

    def _kill_what_fell_to_us(self) -> bool:
        """What can still be done when there is no keeper, and can be none: whether it was anything."""
        was_any = False
        for _ in range(_ROUNDS if self._adopts_orphans else 0):
            fallen = [pid for pid in keeper.own_children() if pid not in aside.running]
            for pid in fallen:
                os.kill(pid, signal.SIGKILL)  # our own child, not reaped: the pid is its own
            if not fallen:
                break
            was_any = True
            select.poll().poll(_PAUSE * 1e3)
        return was_any

    def _watch(self, pid: int) -> None:
        """Hear of the command's death ourselves: its keeper may have been stopped."""
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return
        self._poll.register(self._pidfd, select.POLLIN)

    def _forget_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _let_go(self) -> None:
        if self.pid is None:
            return
        self._poll.unregister(self.fd)
        self._orders.close()
        pid, self.pid = self.pid, None
        aside.dismiss(pid, _LEAVING)
        os.close(self.fd)
