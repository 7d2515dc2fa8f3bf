"""Host death: what was adopted ends with this program, however that ends (D7).

    guard = sentinel()          # once, at the program's start
    guard.adopt(process)        # a pid, or any process object
    guard.release(process)      # it may live on

A SIGKILL, `os._exit` or a crash runs no `finally`: the backend lives on, works and costs. So a
small process of its own waits for the end of this one. While all is well it does nothing at all.
Needs no event loop; knows nothing of streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Self

from streamguard._base import defaults
from streamguard._base.numbers import Seconds, seconds
from streamguard.errors import StreamGuardError
from streamguard.process import Adoptable, ProcessTree
from streamguard.process.sentinel.client import HelperLink

logger = logging.getLogger("streamguard")

_link: Final = HelperLink()


class Sentinel:
    """What `sentinel` gives. All of a program's share one helper process.

    `close`, and leaving a `with` block normally, is the goodbye: whatever is still adopted may
    live on. Everything else is not, also a block that is left by an exception: what is adopted
    stays so, and ends with the program. All methods may be called from any thread and on any
    loop; none waits for what is adopted.
    """

    def __init__(self, kill_grace: float) -> None:
        self.kill_grace: Final = kill_grace
        self._serials: dict[int, list[int]] = {}
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The pid of the helper process; None if there is none just now."""
        return _link.pid

    def adopt(self, target: Adoptable) -> None:
        """From now on `target`, a pid or process object, and its tree end with this program.

        ConfigError as for `ProcessTree.adopt`. A helper process that somebody has ended is
        replaced, which is logged; StreamGuardError if it cannot be.
        """
        with _link.lock:
            if self._is_closed:
                raise RuntimeError(
                    "this sentinel is closed: adopt before, or call sentinel() anew"
                )
            if isinstance(target, ProcessTree):
                self._hold(target)
            else:
                with ProcessTree.adopt(target) as tree:
                    self._hold(tree)

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
                _link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"adopted {sorted(self._serials)}"
        return f"<Sentinel: {state}, helper process {self.pid}>"

    def _hold(self, tree: ProcessTree) -> None:
        if (serial := _hold(tree, self.kill_grace)) is not None:
            self._serials.setdefault(tree.pid, []).append(serial)


# Held strongly: one that nobody keeps is in force until the program ends.
_in_force: Final[set[Sentinel]] = set()


def sentinel(*, kill_grace: Seconds = defaults.KILL_GRACE) -> Sentinel:
    """Have what is adopted ended, tree and all, when this program is gone without a goodbye.

    `kill_grace`: seconds between asking a process tree to end (TERM) and killing it. Starts one
    helper process, which takes tens of milliseconds, so call it at the program's start; again, it
    costs nothing. StreamGuardError if the helper cannot be started.
    """
    # 0 is meant here: kill at once.
    guard = Sentinel(0.0 if kill_grace == 0 else seconds(kill_grace, "kill_grace"))
    with _link.lock:
        _link.start()
        _in_force.add(guard)
    return guard


def adopted(tree: ProcessTree, kill_grace: float) -> Callable[[], None]:
    """Have `tree` end with this program, if a sentinel is in force, until the result is called.

    For those who guard a stream, which nothing may disturb: what goes wrong is logged.
    """
    serial: int | None = None
    if _in_force:
        try:
            serial = _hold(tree, kill_grace)
        except StreamGuardError:
            logger.exception("process %d ends not with this program", tree.pid)
    return (lambda: None) if serial is None else partial(_link.drop, serial)


def _hold(tree: ProcessTree, kill_grace: float) -> int | None:
    tree.check_open()
    members = tree._members
    # Of one that was gone when it was adopted, nothing is known that could be ended.
    return None if members.root is None else _link.hold(members, kill_grace)
