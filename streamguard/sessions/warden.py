"""`Warden`: sees that an owner ends, and leaves it behind if nothing ends it (O6).

One for each owner, in a task of its own, from when the owner is to end: its consumer has left, its
verdict is decided, or its stream has failed. Knows teardown and bounds.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

import anyio

from streamguard._base.numbers import Default
from streamguard._guard.teardown import LEAVING, UNWINDING, TearingDown
from streamguard._loops import Cut

if TYPE_CHECKING:
    from streamguard._guard.attempt import Attempt
    from streamguard._loops import Loop
    from streamguard.sessions.owner import Owner

# Between looks at a pull that cannot be cut yet.
_LOOK: Final = 0.1
# Between the cancels of a pull that was left behind, and still goes on.
_AGAIN: Final = 1.0


class Warden:
    """What ends an owner that does not end by itself.

    `is_deaf`: its pull was cancelled, and has not unwound. `is_left`: its consumer has left a turn
    that had not ended, and does not wait as long as for a verdict's teardown.
    """

    def __init__(
        self, owner: Owner[Any], attempt: Attempt, loop: Loop, *, is_deaf: bool, is_left: bool
    ) -> None:
        self._owner = owner
        self._attempt = attempt
        self._loop = loop
        self._is_deaf = is_deaf
        self._is_left = is_left

    async def see_off(self) -> None:
        """See that the owner ends, or is left behind; and then that it ends after all."""
        owner = self._owner
        try:
            await (self._see_the_left_off() if self._is_left else self._see_the_failed_off())
        finally:
            try:
                if not owner.released.is_set():
                    owner.abandon()
            finally:
                owner.seen_off.set()
        while not owner.gone.is_set():
            if self._attempt.pull is not None:
                self._attempt.pull.cut(force=True)
            await _within(_AGAIN, owner.gone)

    async def _see_the_left_off(self) -> None:
        """All of it within one bound: first in peace, then by what ends it for sure."""
        bound = self._owner.link.plan.disconnect_timeout
        if isinstance(bound, Default):
            bound = min(bound, LEAVING)
        by = self._loop.clock() + bound
        with anyio.move_on_after(bound / 2):
            await self._cut_pull()
            await self._owner.released.wait()
        if not self._owner.released.is_set():
            self._begin_to_tear_down(within=bound / 2)
            await _within(by - self._loop.clock(), self._owner.released)

    async def _see_the_failed_off(self) -> None:
        owner, attempt = self._owner, self._attempt
        if owner.is_pulling and attempt.verdict is None:
            with anyio.move_on_after(UNWINDING):
                await self._cut_pull()
        if self._is_deaf or not await _within(UNWINDING, owner.unwound):
            if (tearing_down := self._begin_to_tear_down()) is not None:
                await tearing_down.finish()
            else:
                assert attempt.tearing_down is not None
                await attempt.tearing_down.finish()
            if not await _within(UNWINDING, owner.unwound):
                return
        # The source, then the connection; both are cut when they take too long.
        plan = owner.link.plan
        await _within(
            3 * plan.disconnect_timeout + 4 * (plan.kill_grace + UNWINDING), owner.released
        )

    async def _cut_pull(self) -> None:
        """Cancel the pull, as soon as that loses nothing."""
        owner, attempt = self._owner, self._attempt
        while owner.is_pulling and not owner.unwound.is_set() and attempt.verdict is None:
            if attempt.pull is not None and attempt.pull.cut() is Cut.SENT:
                return
            await _within(_LOOK, owner.unwound)

    def _begin_to_tear_down(self, within: float = inf) -> TearingDown | None:
        """What ends a deaf stream (O6); None if its verdict has begun it.

        `within`: the seconds in which a process is to be dead, unless more was written for its end.
        """
        attempt, plan = self._attempt, self._owner.link.plan
        if attempt.verdict is not None:
            return None
        disconnect_timeout, kill_grace = plan.disconnect_timeout, plan.kill_grace
        if attempt.supervision is not None:
            disconnect_timeout = min(disconnect_timeout, within / 2)
            if isinstance(kill_grace, Default):
                kill_grace = min(kill_grace, within / 4)
        tearing_down = TearingDown(
            attempt.teller,
            self._loop,
            attempt.supervision,
            disconnects=plan.disconnects,
            disconnect_timeout=disconnect_timeout,
            kill_grace=kill_grace,
        )
        tearing_down.start(self._loop.spawn)
        self._owner.tearing_down = tearing_down
        return tearing_down


async def _within(bound: float, event: anyio.Event) -> bool:
    with anyio.move_on_after(bound):
        await event.wait()
    return event.is_set()
