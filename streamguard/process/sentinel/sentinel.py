"""Host death: what was adopted ends with this program, however that ends (D7).

    guard = sentinel()          # once, at the program's start
    guard.adopt(process)        # a pid, or any process object
    guard.renew(process, until) # with a deadline: it ends then, whatever this program does
    guard.release(process)      # it may live on

A SIGKILL, `os._exit` or a crash runs no `finally`: the backend lives on, works and costs. So a
small process of its own waits for the end of this one. While all is well it does nothing at all.
A deadline is for a program that is alive and does nothing any more: stopped, starved, or cut off from
who had lent it the work. Needs no event loop; knows nothing of streams.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import inf, isnan
from typing import Final, Self, cast

from streamguard._base import defaults
from streamguard._base.calling import checked
from streamguard._base.numbers import Seconds, wait
from streamguard.errors import ConfigError, StreamGuardError
from streamguard.process import Adoptable, ProcessTree
from streamguard.process.sentinel.client import HelperLink

logger = logging.getLogger("streamguard")

_link: Final = HelperLink()


class Sentinel:
    """What `sentinel` gives. All of a program's share one helper process.

    `close`, and leaving a `with` block normally, is the goodbye: the processes that are still adopted
    may live on. A block that is left by an exception is no goodbye: they stay adopted, and end with
    the program. You may call all methods from any thread and on any loop. They do not wait for
    adopted processes.
    """

    def __init__(self, kill_grace: float) -> None:
        self.kill_grace: Final = kill_grace
        self._serials: dict[int, list[int]] = {}
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The pid of the helper process; None if there is none just now."""
        return _link.pid

    def adopt(self, target: Adoptable, *, until: float | None = None) -> None:
        """From now on `target`, a pid or process object, and its tree end with this program.

        `until`: it is killed then at the latest, tree and all, unless you renew or release it before.
        In seconds of `time.clock_gettime(time.CLOCK_BOOTTIME)`, which goes on while the machine sleeps;
        without that clock, of `time.monotonic()`. A time that is over kills at once.

        ConfigError as for `ProcessTree.adopt`. A helper process that was killed is
        replaced, which is logged; StreamGuardError if it cannot be.
        """
        deadline = _deadline(until)
        with _link.lock:
            if self._is_closed:
                raise RuntimeError(
                    "this sentinel is closed: adopt before, or call sentinel() again"
                )
            if isinstance(target, ProcessTree):
                self._hold(target, deadline)
            else:
                with ProcessTree.adopt(target) as tree:
                    self._hold(tree, deadline)

    def renew(self, target: Adoptable, until: float | None) -> None:
        """Give `target` another deadline, earlier or later, or none any more.

        Nothing happens if it was not adopted, or its deadline has passed: then it is dead.
        StreamGuardError as for `adopt`.
        """
        deadline = _deadline(until)
        pid = target if isinstance(target, int) else target.pid
        with _link.lock:
            serials = self._serials.get(pid, ()) if pid is not None else ()
            _link.renew(dict.fromkeys(serials, deadline))

    def release(self, target: Adoptable) -> None:
        """`target` may live on; nothing happens if it was not adopted. Raises nothing."""
        pid = target if isinstance(target, int) else target.pid
        with _link.lock:
            for serial in self._serials.pop(pid, ()) if pid is not None else ():
                _link.drop(serial)

    def close(self) -> None:
        """Say goodbye: nothing that is still adopted will be ended. The last one ends the helper."""
        with _link.lock:
            self._is_closed = True
            _in_force.discard(self)
            for pid in tuple(self._serials) if _in_force else ():
                self.release(pid)
            self._serials.clear()
            if not _in_force:
                _link.close(keep=_kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"adopted {sorted(self._serials)}"
        return f"<Sentinel: {state}, helper process {self.pid}>"

    def _hold(self, tree: ProcessTree, until: float) -> None:
        if (serial := _hold(tree, self.kill_grace, until)) is not None:
            self._serials.setdefault(tree.pid, []).append(serial)


# Held strongly: one that nobody keeps is in force until the program ends.
_in_force: Final[set[Sentinel]] = set()
# What `hold` holds, by the link's numbers: no sentinel's goodbye is for these.
_kept: Final[set[int]] = set()


@checked
def sentinel(*, kill_grace: Seconds = defaults.KILL_GRACE) -> Sentinel:
    """End adopted processes, trees and all, when this program is gone without a goodbye.

    `kill_grace`: seconds between asking a process tree to end (TERM) and killing it. Starts one
    helper process, which takes tens of milliseconds, so call it at the program's start. Further calls
    cost nothing. StreamGuardError if the helper cannot be started.
    """
    guard = Sentinel(wait(kill_grace, "kill_grace"))
    with _link.lock:
        _link.start()
        _in_force.add(guard)
    return guard


class Held:
    """A tree that ends with this program, or at its deadline. Called, it is dropped.

    Of one that was gone already when it was to be held, nothing is held. Who forgets this object
    changes nothing: the deadline stays.
    """

    def __init__(self, serial: int | None = None) -> None:
        self.serial: Final = serial

    def renew(self, until: float | None) -> None:
        """As `Sentinel.renew`."""
        renew_all([self], until)

    def drop(self) -> None:
        """It may live on. What goes wrong is logged."""
        if self.serial is not None:
            with _link.lock:
                _kept.discard(self.serial)
                _link.drop(self.serial)

    def __call__(self) -> None:
        self.drop()


def start_helper() -> None:
    """Have the helper process running, so that `hold` has not to start it, which blocks for a moment."""
    _link.start()


def hold(tree: ProcessTree, kill_grace: float, until: float | None = None) -> Held:
    """Have `tree` end with this program and at a deadline, whether a sentinel is in force or not.

    For those who hold a lease: no goodbye of a sentinel lets go of it. StreamGuardError if nobody can be
    found to do it.
    """
    with _link.lock:
        serial = _hold(tree, kill_grace, _deadline(until))
        if serial is not None:
            _kept.add(serial)
    return Held(serial)


def renew_all(all_of_them: Iterable[Held], until: float | None) -> None:
    """The same deadline for many, in a few messages. StreamGuardError as for `hold`."""
    deadline = _deadline(until)
    serials = [held.serial for held in all_of_them if held.serial is not None]
    _link.renew(dict.fromkeys(serials, deadline))


def adopted(tree: ProcessTree, kill_grace: float, until: float | None = None) -> Held:
    """Have `tree` end with this program, if a sentinel is in force, until it is dropped.

    For those who guard a stream, which nothing may disturb: what goes wrong is logged.
    """
    if _in_force:
        try:
            return Held(_hold(tree, kill_grace, _deadline(until)))
        except StreamGuardError:
            logger.exception("process %d may outlive this program", tree.pid)
    return Held()


def _hold(tree: ProcessTree, kill_grace: float, until: float) -> int | None:
    tree.check_open()
    members = tree._members
    # Of one that was gone when it was adopted, nothing is known that could be ended.
    return None if members.root is None else _link.hold(members, kill_grace, until)


def _deadline(until: float | None) -> float:
    if until is None:
        return inf
    is_number = isinstance(cast("object", until), int | float) and not isinstance(until, bool)
    if not is_number or isnan(until):
        raise ConfigError(
            f"until={until!r}: use seconds of time.clock_gettime(time.CLOCK_BOOTTIME), such as "
            "that plus 30; None = no deadline"
        )
    return float(until)
