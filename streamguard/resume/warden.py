"""`Warden`: sees that an owner ends, and leaves it behind if nothing ends it (O6).

One for each owner, in a task of its own, from when the owner is to end: its consumer has left, its
verdict is decided, or its stream has failed. Knows teardown and bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from streamguard.loops import Cut
from streamguard.teardown import UNWINDING, TearingDown

if TYPE_CHECKING:
    from streamguard.attempt import Attempt
    from streamguard.loops import Loop
    from streamguard.resume.owner import Owner

# Between looks at a pull that cannot be cut yet.
_LOOK: Final = 0.1


class Warden:
    """What ends an owner that does not end by itself. `is_deaf`: its pull was cut in vain."""

    def __init__(self, owner: Owner[Any], attempt: Attempt, loop: Loop, *, is_deaf: bool) -> None:
        self._owner = owner
        self._attempt = attempt
        self._loop = loop
        self._is_deaf = is_deaf

    async def see_off(self) -> None:
        """Return when the owner has ended, or was left behind."""
        try:
            await self._see_that_it_ends()
        finally:
            try:
                if not self._owner.released.is_set():  # seeing to it has failed
                    self._owner.abandon()
            finally:
                self._owner.seen_off.set()

    async def _see_that_it_ends(self) -> None:
        owner, attempt = self._owner, self._attempt
        if owner.is_pulling and attempt.verdict is None:
            await self._cut_pull()
        if self._is_deaf or not await _within(UNWINDING, owner.unwound):
            await self._tear_down()
            if not await _within(UNWINDING, owner.unwound):
                owner.abandon()
                return
        # The source, then the connection; both are cut when they take too long.
        plan = owner.link.plan
        bound = 3 * plan.disconnect_timeout + 4 * (plan.kill_grace + UNWINDING)
        if not await _within(bound, owner.released):
            owner.abandon()

    async def _cut_pull(self) -> None:
        """Cancel the pull, as soon as that loses nothing; for as long as unwinding may take."""
        owner, attempt = self._owner, self._attempt
        with anyio.move_on_after(UNWINDING):
            while not owner.unwound.is_set() and attempt.verdict is None:
                if attempt.pull is not None and attempt.pull.cut() is Cut.SENT:
                    return
                await _within(_LOOK, owner.unwound)

    async def _tear_down(self) -> None:
        """What ends a deaf stream (O6)."""
        attempt, plan = self._attempt, self._owner.link.plan
        if attempt.verdict is not None:
            await attempt.torn_down()
            return
        tearing_down = TearingDown(
            attempt,
            self._loop,
            disconnects=plan.disconnects,
            disconnect_timeout=plan.disconnect_timeout,
            supervision=attempt._supervision,
            kill_grace=plan.kill_grace,
        )
        tearing_down.start(self._loop.spawn)
        await tearing_down.finish()


async def _within(bound: float, event: anyio.Event) -> bool:
    with anyio.move_on_after(bound):
        await event.wait()
    return event.is_set()
