"""The process behind one attempt: found, adopted, watched for its death, let go.

Adopted as early as it is known, so that its pid cannot come to mean another process, and watched
in a task of its own that holds nobody back and keeps nobody alive. Ending it is the teardown's
business. Knows process trees and the loop; nothing of streams, limits or verdicts.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import anyio

from streamguard import events
from streamguard.errors import ENDS_THE_PROGRAM, ConfigError

if TYPE_CHECKING:
    from streamguard._base.vitals import Vitals
    from streamguard._loops import Detached, Loop
    from streamguard.events.teller import Teller
    from streamguard.process import Adoptable, ProcessTree
    from streamguard.process.look import Look

    Target: TypeAlias = Adoptable | ProcessTree
    Process: TypeAlias = Target | Callable[[], Target | None]


class Supervision:
    """What `process=` names, once it can be named.

    `died` is called when it is dead, and must not raise. It and the teller are held weakly: nothing
    here keeps an attempt (O7).
    """

    __slots__ = (
        "__weakref__",
        "_died",
        "_is_told",
        "_kill_grace",
        "_let_go",
        "_look",
        "_loop",
        "_process",
        "_teller",
        "is_guess",
        "tree",
    )

    def __init__(
        self,
        process: Process,
        kill_grace: float,
        loop: Loop,
        teller: Teller,
        died: Callable[[], None],
        *,
        is_guess: bool = False,
    ) -> None:
        self.tree: ProcessTree | None = None
        self._process = process
        self._kill_grace = kill_grace
        self._teller = weakref.ref(teller)
        self._died = weakref.WeakMethod(died)
        self._loop = loop
        self.is_guess = is_guess  # nobody has asked for it, so its lack is no news
        self._is_told = False
        self._look: Look | None = None
        self._let_go: weakref.finalize[..., Supervision] | None = None

    def seek(self) -> None:
        """Adopt the process, unless it was or cannot be named yet.

        ConfigError for what must not, or cannot, be ended, and for a function whose result wants
        to be awaited; RuntimeError for a tree that is closed. Of a guess, neither.
        A callable that raises is reported.
        """
        if self.is_guess:
            self.seek_again()
        else:
            self._adopt()

    def _adopt(self) -> None:
        if self.tree is not None or (target := self._named()) is None:
            return
        from streamguard.process import ProcessTree
        from streamguard.process.sentinel.sentinel import adopted

        if isinstance(target, ProcessTree):
            tree, let_go = target, target.keep()
        else:
            tree = ProcessTree.adopt(target)
            let_go = tree.close
        self.tree = tree
        watching = self._loop.spawn(partial(_watch, tree, self._died), name="process watch")
        # An attempt that is only forgotten must not leave a task and a descriptor behind (O7).
        closing = (adopted(tree, self._kill_grace), let_go)  # a sentinel, if one is in force (D7)
        self._let_go = weakref.finalize(self, _let_go, self._loop, watching, closing)
        self._let_go.atexit = False
        if (teller := self._teller()) is not None:
            if teller.is_heard:
                self._look = tree.look_at_vitals()
                self._look.note(self._loop.clock())
            teller.tell(events.ProcessAdopted, pid=tree.pid, proof=tree.proof)

    def seek_again(self) -> None:
        """As `seek`, in the middle of a stream or teardown, which nothing may disturb."""
        try:
            self._adopt()
        except Exception as error:  # noqa: BLE001 - it is reported
            self._report_unknown(error)

    def vitals(self) -> Vitals | None:
        """How the processes are, for whoever is told of it; None if nobody is, or there are none."""
        teller = self._teller()
        if self.tree is None or teller is None or not teller.is_heard:
            return None
        if self._look is None:
            self._look = self.tree.look_at_vitals()
        return self._look.take(self._loop.clock())

    async def look(self) -> None:
        """Before a teardown: who belongs to the tree is best seen while its root is there.

        A process that could not be named until now is sought once more, and reported if in vain; so is
        a guessed one that is dead, since its client may have begun another.
        """
        if self.is_guess and self.tree is not None and self.tree.is_dead:
            self.release()
            self.tree = self._look = None
        self.seek_again()
        if self.tree is None:
            self._report_unknown(None)
        else:
            await self.tree.look()

    async def is_dead_within(self, bound: float) -> bool:
        """Whether the process is dead, or dies within so many seconds; then its status is known.

        The end of a guessed one says nothing of the stream.
        """
        if self.tree is None or self.is_guess:
            return False
        with anyio.move_on_after(bound):
            await self.tree.wait_dead()
        if self.tree.is_dead:
            await self.tree.status_when_known()
        return self.tree.is_dead

    @property
    def exit_status(self) -> int | None:
        """As `Popen.returncode`; None if it lives or cannot be known."""
        return None if self.tree is None else self.tree.exit_status

    def release(self) -> None:
        """Watch no longer, and give back what is held; this ends nothing."""
        if self._let_go is not None:
            self._let_go()

    def _named(self) -> Target | None:
        process = self._process
        if not callable(process) or hasattr(process, "pid"):
            return cast("Target", process)
        try:
            target = process()
        except ENDS_THE_PROGRAM:
            raise
        except BaseException as error:  # noqa: BLE001 - an SDK's inside may look otherwise one day
            self._report_unknown(error)
            return None
        _refuse_unawaited(target, process)
        return target

    def _report_unknown(self, error: BaseException | None) -> None:
        if self.is_guess or self._is_told:
            return
        if (teller := self._teller()) is not None:
            self._is_told = True
            teller.tell(events.ProcessUnknown, error=error)


def wants_await(target: object) -> bool:
    """Whether a function for `process=` gave what is no process yet."""
    return inspect.isawaitable(target) and not hasattr(target, "pid")


def _refuse_unawaited(target: object, process: object) -> None:
    if not wants_await(target):
        return
    if inspect.iscoroutine(target):
        target.close()  # or Python would also warn that it was never awaited
    raise ConfigError(
        f"process={process!r} gave a coroutine, and nothing is awaited there: give it a plain "
        "function, or await the pid before and pass that"
    )


async def _watch(tree: ProcessTree, died: weakref.WeakMethod[Callable[[], None]]) -> None:
    await tree.wait_dead()
    if (tell := died()) is not None:
        tell()


def _let_go(loop: Loop, watching: Detached, closing: Iterable[Callable[[], None]]) -> None:
    for close in closing:
        close()  # the watch waits on a descriptor of its own
    if loop.is_running_here():
        watching.cancel()
    else:
        with suppress(RuntimeError):  # that loop is closed, and the watch with it
            loop.submit(watching.cancel)
