"""The sentinel's process: blocks until its application is gone, ends what that left, and exits.

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
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streamguard.process import blocking
from streamguard.process.identity import PidfdHandle, open_again
from streamguard.process.members import Members
from streamguard.process.sentinel import wire
from streamguard.process.sentinel.forest import Forest
from streamguard.process.table import spared

if TYPE_CHECKING:
    from streamguard.process.identity import Handle
    from streamguard.process.members import TreeFacts

# What asks a process to end, ends sessions, or is typed at a terminal. The application may survive
# it, so the helper must. It ends when its application does.
_NOT_FOR_US: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# A log that does not take a line may not keep the helper, in seconds.
_LOGGING: Final = 2


class _HeldTree(NamedTuple):
    kill_grace: float
    facts: TreeFacts
    root: Handle | None


class Helper:
    """What the application has said so far, and what follows from it."""

    def __init__(self, application: socket.socket) -> None:
        self._application = application
        self._held: dict[int, _HeldTree] = {}
        # Borne by two at once: it cannot tell them apart, nor later when one was released (D4).
        self._shared_marks: set[str] = set()

    def listen(self) -> bool:
        """Block until the application is gone; whether it said goodbye."""
        poll = select.poll()
        poll.register(self._application, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            # A dead application's last words are read first. Whoever else holds a copy of its end,
            # as a process does that it forked, keeps the socket open and says nothing.
            if self._application.fileno() not in ready:
                return False
            message = wire.receive(self._application)
            if message is None:
                return False
            if message.kind == wire.GOODBYE:
                return True
            if message.kind == wire.ADOPT:
                self._adopt(wire.unpack_adopted(message.body), message.fd)
            elif message.kind == wire.RELEASE:
                held = self._held.pop(wire.unpack_serial(message.body), None)
                if held is not None and held.root is not None:
                    held.root.close()
            elif message.kind == wire.HOST:
                spared.update(wire.unpack_host(message.body))
                if message.fd is not None:
                    poll.register(message.fd, select.POLLIN)

    def end_all(self) -> str:
        """End what is adopted, and say what became of it; "" if nothing is."""
        if not self._held:
            return ""
        trees: list[Members] = []
        for one in self._held.values():
            is_shared = one.facts.mark in self._shared_marks
            facts = one.facts._replace(mark=None) if is_shared else one.facts
            trees.append(Members.from_facts(facts, one.root))
        forest = Forest(trees)
        grace = max(one.kill_grace for one in self._held.values())
        return f"{forest!r}: {blocking.end(forest, grace, 2 * grace + 5)}"

    def _adopt(self, adopted: wire.Adopted, fd: int | None) -> None:
        facts = adopted.facts
        others = (held.facts for held in self._held.values() if held.facts.pid != facts.pid)
        if facts.mark is not None and any(other.mark == facts.mark for other in others):
            self._shared_marks.add(facts.mark)
        known = None if fd is None else PidfdHandle(facts.pid, fd)
        root = known or open_again(facts.pid, facts.started)
        self._held[adopted.serial] = _HeldTree(adopted.kill_grace, facts, root)


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
    helper = Helper(application)
    if not helper.listen() and (ended := helper.end_all()):
        _report(f"application {pid} is gone without a goodbye; {ended}")
    os._exit(0)


def _report(line: str) -> None:
    """Tell the system's log, if there is one: nobody else is left to be told."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(_LOGGING)
    syslog.openlog("streamguard", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_WARNING, line)
