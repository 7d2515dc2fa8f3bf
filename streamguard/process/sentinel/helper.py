"""The sentinel's process: blocks until its application is gone, ends what that left, and exits.

What has a deadline is ended when that has come, whatever the application does then: it may be stopped, or
cut off from who had lent it the work. All that it said until then is heard first, and what it says
meanwhile is heard as ever.

Started by `client` as a fresh interpreter with the standard library alone. All it needs is imported
at the start: when the application is gone, so may be the files. It has no descriptor of the
application's but one end of a socket, no terminal, no child, and nothing to do until then.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import struct
import syslog
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from streamguard._base.boottime import boottime
from streamguard.process.identity import PidfdHandle, open_again
from streamguard.process.members import Members
from streamguard.process.sentinel import wire
from streamguard.process.sentinel.endings import Endings
from streamguard.process.sentinel.forest import Forest
from streamguard.process.table import spared

if TYPE_CHECKING:
    from streamguard.process.identity import Handle
    from streamguard.process.termination import Termination

# What asks a process to end, ends sessions, or is typed at a terminal. The application may survive
# it, so the helper must. It ends when its application does.
_NOT_FOR_US: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# How long it sleeps at most while there are deadlines, in seconds: what polls does not notice that
# the machine sleeps meanwhile.
_LOOK: Final = 1.0
# More messages than a socket holds of the shortest, so that all that was said is heard; yet not for ever.
_MOST_QUEUED: Final = 1 << 14
# Before what has survived is killed again, in seconds.
_AGAIN: Final = 1.0
# A log that does not take a line may not keep the helper, in seconds.
_LOGGING: Final = 2


class _HeldTree:
    """One tree that is adopted. `is_overdue`: its deadline has passed, and nothing takes that back."""

    def __init__(self, adopted: wire.Adopted, root: Handle | None) -> None:
        self.kill_grace: Final = adopted.kill_grace
        self.until = adopted.until
        self.facts: Final = adopted.facts
        self.is_overdue = False
        self._root: Final = root
        self._members: Members | None = None

    def members(self, *, has_shared_mark: bool) -> Members:
        """Who belongs to it, as far as that was found."""
        if self._members is None:
            facts = self.facts._replace(mark=None) if has_shared_mark else self.facts
            self._members = Members.from_facts(facts, self._root)
        return self._members

    def close(self) -> None:
        """Give back what is held."""
        if self._members is not None:
            self._members.close()
        elif self._root is not None:
            self._root.close()


class Helper:
    """What the application has said so far, and what follows from it.

    `tell` is told what became of trees whose deadline has passed.
    """

    def __init__(
        self, application: socket.socket, tell: Callable[[str], object] = lambda _: None
    ) -> None:
        self._application = application
        self._host: int | None = None
        self._tell = tell
        self._held: dict[int, _HeldTree] = {}
        self._endings = Endings()
        # Borne by two at once: it cannot tell them apart, nor later when one was released (D4).
        self._shared_marks: set[str] = set()

    def listen(self) -> bool:
        """Block until the application is gone; whether it said goodbye.

        Of what is held then, only what is overdue is held on after a goodbye.
        """
        hearing = self._application.fileno()
        while True:
            ready = self._wait(hearing, *(() if self._host is None else (self._host,)))
            heard_at = boottime()
            # A dead application's last words are read first. Whoever else holds a copy of its end,
            # as a process does that it forked, keeps the socket open and says nothing.
            if hearing in ready:
                if (said_goodbye := self._hear()) is not None:
                    return said_goodbye
            elif self._host in ready:
                return False
            self._end_overdue(heard_at)

    def end_all(self) -> str:
        """End what is held, and say what became of it; "" if nothing is.

        What has a deadline is not asked any longer than until then.
        """
        asked = [held for held in self._held.values() if not held.is_overdue]
        overdue = [held for held in self._held.values() if held.is_overdue]
        grace = max((held.kill_grace for held in asked), default=0.0)
        came_to: list[str] = []
        wanted = 0
        for each, its_grace in (asked, grace), (overdue, 0.0):
            if each:
                forest = self._forest(each)
                self._endings.begin(forest, its_grace, partial(_note, came_to, forest))
                wanted += 1
        while len(came_to) < wanted:
            self._wait()
            self._end_overdue(boottime())
        return "; ".join(came_to)

    def _wait(self, *hearing: int) -> set[int]:
        """Wait until one of those has something to say, or there is something to do."""
        poll = select.poll()
        for fd in hearing:
            poll.register(fd, select.POLLIN)
        left = self._endings.watch(poll)
        first = min((each.until for each in self._held.values()), default=inf)
        if first < inf:
            left = min(left, first - boottime(), _LOOK)
        return {fd for fd, _ in poll.poll(None if left == inf else max(left, 0.0) * 1e3)}

    def _hear(self) -> bool | None:
        """Take all that was said; None unless it was the last: then, whether it was a goodbye."""
        poll = select.poll()
        poll.register(self._application, select.POLLIN)
        for _ in range(_MOST_QUEUED):
            message = wire.receive(self._application)
            if message is None:
                return False
            if message.kind == wire.GOODBYE:
                self._spare_what_is_not_overdue()
                return True
            self._take(message)
            if not poll.poll(0):
                break
        return None

    def _take(self, message: wire.WireMessage) -> None:
        if message.kind == wire.ADOPT:
            self._adopt(wire.unpack_adopted(message.body), message.fd)
        elif message.kind == wire.RENEW:
            for serial, until in wire.unpack_renewals(message.body).items():
                self._renew(serial, until)
        elif message.kind == wire.RELEASE:
            self._release(wire.unpack_serial(message.body))
        elif message.kind == wire.HOST:
            spared.update(wire.unpack_host(message.body))
            self._host = message.fd

    def _adopt(self, adopted: wire.Adopted, fd: int | None) -> None:
        facts = adopted.facts
        others = (held.facts for held in self._held.values() if held.facts.pid != facts.pid)
        if facts.mark is not None and any(other.mark == facts.mark for other in others):
            self._shared_marks.add(facts.mark)
        known = None if fd is None else PidfdHandle(facts.pid, fd)
        root = known or open_again(facts.pid, facts.started)
        self._held[adopted.serial] = _HeldTree(adopted, root)

    def _renew(self, serial: int, until: float) -> None:
        held = self._held.get(serial)
        if held is not None and not held.is_overdue:
            held.until = until

    def _release(self, serial: int) -> None:
        held = self._held.get(serial)
        if held is not None and not held.is_overdue:  # else it is being ended
            del self._held[serial]
            held.close()

    def _spare_what_is_not_overdue(self) -> None:
        for serial in tuple(self._held):
            self._release(serial)

    # -- deadlines -------------------------------------------------------------------------

    def _end_overdue(self, now: float) -> None:
        """Kill what is due, all of it at once, and go on with what is being ended."""
        if due := {key: held for key, held in self._held.items() if held.until <= now}:
            for held in due.values():
                held.is_overdue, held.until = True, inf
            forest = self._forest(due.values())
            self._endings.begin(forest, 0, partial(self._has_ended, forest, tuple(due)))
        self._endings.step()

    def _has_ended(self, forest: Forest, serials: Iterable[int], ended: Termination) -> None:
        self._tell(f"{forest!r}, past the deadline: {ended}")
        for serial in serials:
            if ended.survivors:
                self._held[serial].until = boottime() + _AGAIN
            else:
                self._held.pop(serial).close()

    def _forest(self, held: Iterable[_HeldTree]) -> Forest:
        return Forest(map(self._members_of, held))

    def _members_of(self, held: _HeldTree) -> Members:
        return held.members(has_shared_mark=held.facts.mark in self._shared_marks)


def _note(came_to: list[str], forest: Forest, ended: Termination) -> None:
    came_to.append(f"{forest!r}: {ended}")


def main(fd: int, pid: int) -> None:
    """Be the helper of the application `pid`, which holds the other end of the socket `fd`."""
    if os.fork():
        os._exit(0)  # so that the helper is nobody's child, and nobody has to reap it
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    # Standard error was kept until now, for what a failing start has to say.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    os.close(null)
    # One for each process that is adopted.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    application = socket.socket(fileno=fd)
    application.send(struct.pack("=i", os.getpid()))
    log = _Log()
    helper = Helper(application, lambda line: log.put(f"application {pid} is alive; {line}"))
    parted = "has said goodbye" if helper.listen() else "is gone without a goodbye"
    if ended := helper.end_all():
        _report(f"application {pid} {parted}; {ended}")
    os._exit(0)


class _Log:
    """The system's log, while there is still something to do: one that takes no line keeps nobody."""

    def __init__(self) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._is_begun = False

    def put(self, line: str) -> None:
        self._lines.put(line)
        if not self._is_begun:
            self._is_begun = True
            with suppress(RuntimeError):  # no thread can be had
                threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        while True:
            _log(self._lines.get())


def _report(line: str) -> None:
    """Tell the system's log, if there is one: nobody else is left to be told."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(_LOGGING)
    _log(line)


def _log(line: str) -> None:
    syslog.openlog("streamguard", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_WARNING, line)
