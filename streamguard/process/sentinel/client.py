"""An application's end of its helper: started when it is needed, told in short messages.

The helper is nobody's child: what starts it ends at once and is reaped here, so that no
`waitpid(-1)`, child watcher or SIGCHLD handler of the application ever sees it. Where it falls to
the application all the same, which then is init of its container or a subreaper, it is reaped
when it has ended. Knows processes and messages; nothing of streams, and of loops only that none is needed.
"""

from __future__ import annotations

import itertools
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamguard.errors import StreamGuardError
from streamguard.process import procfs
from streamguard.process.identity import open_again
from streamguard.process.sentinel import wire
from streamguard.process.table import lineage

if TYPE_CHECKING:
    from streamguard.process.members import Members
    from streamguard.process.procfs import Stat

logger = logging.getLogger("streamguard")

# How long a helper may take to start on a busy machine, to take a message when it has fallen
# behind, and to leave, in seconds.
_STARTING: Final = 30.0
_TAKING: Final = 2.0
_LEAVING: Final = 2.0

_PID: Final = struct.Struct("=i")
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from streamguard.process.sentinel.helper import main; main(*map(int, sys.argv[2:4]))"
)


class HelperLink:
    """To the one helper of this process. Safe for threads; after a fork it is a new one's."""

    def __init__(self) -> None:
        self._held: dict[int, wire.Adopted] = {}
        self._serials = itertools.count(1)
        self.lock = threading.RLock()  # a signal handler may release what is just being adopted
        self._fd: int | None = None
        self._pid: int | None = None
        self._helper: Stat | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    @property
    def pid(self) -> int | None:
        """The helper's; None if none was started, or it was told goodbye."""
        return self._pid

    def start(self) -> None:
        """Make sure that there was a helper started. StreamGuardError if that is not possible."""
        with self.lock:
            if self._fd is None:
                self._launch()

    def hold(self, members: Members, kill_grace: float, until: float = inf) -> int:
        """From now on end those when this process is gone, or `until` has come.

        The number is for `renew` and `drop`. StreamGuardError if nobody can be found to do it.
        """
        root = members.root
        with self.lock:
            serial = next(self._serials)
            adopted = wire.Adopted(serial, kill_grace, until, members.facts)
            self._held[serial] = adopted
            try:
                if self._fd is None:
                    self._launch()
                else:
                    fd = None if root is None else root.fileno()
                    self._tell(wire.ADOPT, wire.pack_adopted(adopted), fd)
            except BaseException:
                del self._held[serial]
                raise
        return serial

    def renew(self, untils: Mapping[int, float]) -> None:
        """Those have other deadlines now, by number; who is not held any more has none.

        StreamGuardError if nobody can be found to see to it.
        """
        with self.lock:
            known = {serial: until for serial, until in untils.items() if serial in self._held}
            for serial, until in known.items():
                self._held[serial] = self._held[serial]._replace(until=until)
            if self._fd is None and known:
                self._launch()  # who could not be replaced before
            else:
                for body in wire.pack_renewals(known):
                    self._tell(wire.RENEW, body)

    def drop(self, serial: int) -> None:
        """Those may live on. What goes wrong is logged: this is called where nothing may raise."""
        with self.lock:
            if self._held.pop(serial, None) is None or self._fd is None:
                return
            try:
                self._tell(wire.RELEASE, wire.pack_serial(serial))
            except StreamGuardError:
                logger.exception("a process could not be released from its sentinel")

    def close(self, keep: Collection[int] = ()) -> None:
        """All that is held may live on, but for what is to be kept: that is held on.

        Without any, say goodbye to the helper, and wait until it is gone.
        """
        with self.lock:
            if any(serial in self._held for serial in keep):
                for serial in self._held.keys() - set(keep):
                    self.drop(serial)
                return
            self._held.clear()
            if self._fd is None:
                return
            try:
                wire.send(self._fd, wire.GOODBYE)
            except ConnectionError:
                pass  # it is gone already
            except OSError:
                self._kill_helper()  # it cannot be told, and must not draw its own conclusion
            self._let_go()

    def _tell(self, kind: bytes, body: bytes, rider: int | None = None) -> None:
        assert self._fd is not None
        try:
            _send(self._fd, kind, body, rider)
        except ConnectionError:
            self._replace("was ended by somebody")
        except BlockingIOError:
            self._replace("was stopped, or starves: it took no message")

    def _replace(self, why: str) -> None:
        """The helper could not be told: start another, who adopts all anew."""
        gone = self.pid
        self._kill_helper()
        self._let_go()
        logger.warning("the sentinel's helper (process %s) %s", gone, why)
        if self._held:
            self._launch()
            logger.warning("process %s took over, with %d adopted", self.pid, len(self._held))

    def _launch(self) -> None:
        """Start a helper and tell it all that it is to know."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                starter = _start(theirs)
            try:
                _tell_host(ours)
                helper = _met(ours)
            except BaseException:
                starter.kill()
                raise
            finally:
                status = starter.wait()
            if helper is None:
                raise _not_started(f"it ended with status {status}")
            self._helper = procfs.read_stat(helper)
            self._pid = helper
            self._fd = ours.detach()
        try:
            for adopted in tuple(self._held.values()):  # a finaliser may drop one meanwhile
                facts = adopted.facts
                root = open_again(facts.pid, facts.started)
                try:
                    rider = None if root is None else root.fileno()
                    _send(self._fd, wire.ADOPT, wire.pack_adopted(adopted), rider)
                finally:
                    if root is not None:
                        root.close()
        except BaseException:
            self._kill_helper()
            self._let_go()
            raise

    def _kill_helper(self) -> None:
        """Before the socket is closed: a helper takes that for our end, if it has heard no goodbye."""
        if self._pid is None:
            return
        handle = open_again(self._pid, 0.0 if self._helper is None else self._helper.started)
        if handle is not None:
            handle.send(signal.SIGKILL)
            handle.close()

    def _let_go(self) -> None:
        if self._fd is not None:
            has_left = _is_ready(self._fd, 0, _LEAVING)  # the other end is closed
            os.close(self._fd)
            if has_left and self._helper is not None:
                _reap(self._helper)
        self._forget()

    def _forget(self) -> None:
        self._fd = self._pid = self._helper = None

    def _after_fork(self) -> None:
        # The helper is the other's, and so is what it adopted. Nobody else can hold the lock here.
        self.lock = threading.RLock()
        self._held.clear()
        if self._fd is not None:
            os.close(self._fd)
        self._forget()


def _start(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """The process that will fork the helper, in a session of its own: no Ctrl-C is for it."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise _not_started("this program does not know the Python that it runs on")
    home = str(Path(__file__).parents[3])
    fd, pid = theirs.fileno(), os.getpid()
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, home, str(fd), str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            pass_fds=(fd,),
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(str(error)) from error


def _not_started(why: str) -> StreamGuardError:
    return StreamGuardError(
        f"the sentinel's helper could not be started: {why}. It needs an interpreter at "
        f"sys.executable ({sys.executable!r}) that has the standard library; if that has said "
        "anything, it is on standard error"
    )


def _tell_host(ours: socket.socket) -> None:
    """Who we are, for a helper that shall know of our death also where its socket stays open."""
    ourselves: int | None = None
    with suppress(AttributeError, OSError):  # no pidfds on this system
        ourselves = os.pidfd_open(os.getpid())
    try:
        with suppress(ConnectionError):  # said better when it is met
            _send(ours.fileno(), wire.HOST, wire.pack_host(lineage()), ourselves)
    finally:
        if ourselves is not None:
            os.close(ourselves)


def _met(ours: socket.socket) -> int | None:
    """The pid of the helper, once it listens; None if it never will."""
    ours.settimeout(_STARTING)
    try:
        said = ours.recv(_PID.size)
    except ConnectionError:
        return None
    except TimeoutError:
        raise _not_started(f"it was not ready within {_STARTING:g} s") from None
    return int(_PID.unpack(said)[0]) if said else None


def _send(fd: int, kind: bytes, body: bytes, rider: int | None) -> None:
    try:
        wire.send(fd, kind, body, rider)
    except BlockingIOError:
        _is_ready(fd, select.POLLOUT, _TAKING)  # it has fallen behind
        wire.send(fd, kind, body, rider)
    except ConnectionError:
        raise
    except OSError:
        if rider is None:
            raise
        wire.send(fd, kind, body)  # too many are on their way: known by its start time, then


def _is_ready(fd: int, events: int, bound: float) -> bool:
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(bound * 1e3))


def _reap(helper: Stat) -> None:
    """Where it became our child, as that of a container's init does, nobody else will."""
    now = procfs.read_stat(helper.pid)
    if now is not None and now.started == helper.started and now.parent == os.getpid():
        with suppress(ChildProcessError):
            os.waitpid(helper.pid, 0)
