"""`Holding`: one session that a worker runs: its lease, and the scope in which its handler runs.

The same in every engine. It ends the handler with the lease, when somebody cancels the session, and when its worker drains;
what its engine hears of its beats goes to `heard`; `fate` says what becomes of it. It knows nothing of where sessions
are kept, and waits for nothing but the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

import anyio

from streamguard.fleet import fates
from streamguard.fleet.fleet_log import FleetLog
from streamguard.fleet.lease import Lease
from streamguard.fleet.store import Beat, Claimed

if TYPE_CHECKING:
    from streamguard.fleet.engine import Handler
    from streamguard.retry.policy import RetryPolicy

# How long a drain waits for a consumer that is at work on a message.
_PATIENCE: Final = 0.5


class Holding:
    """A session that this worker runs.

    `error`: what its handler has raised, or has done wrong. `was_cut`: it was cancelled, by us or from outside.
    `earlier`: of the same session, on this worker, and not over yet: there are never two owners.
    """

    def __init__(
        self, claimed: Claimed, ttl: float, sent: float, clock: Callable[[], float]
    ) -> None:
        self._scope = anyio.CancelScope()
        self.lease: Final = Lease(
            claimed, ttl, sent, clock=clock, cancel=self._scope.cancel, changed=self._mind
        )
        self.log: Final = FleetLog(self.lease)
        self.error: Exception | None = None
        self.was_cut = True  # unless it is found to have ended by itself
        self.earlier: list[Holding] = []
        self.is_over: Final = anyio.Event()
        self._is_cancelled = False
        self._patient_until = inf
        self.bare_beat: Final = Beat(key=claimed.key, token=claimed.token, owner=claimed.owner)

    @property
    def name(self) -> tuple[str, int]:
        """What it is known by on its worker."""
        return self.lease.key, self.lease.token

    async def run(self, handler: Handler) -> None:
        """Run the handler, as long as the lease is good."""
        self._mind()
        # The claim took too long to come, or it is not wanted any more: nothing is begun.
        if self.lease.is_over or self._scope.cancel_called:
            return
        with self._scope, self.log:
            try:
                for each in self.earlier:
                    await each.is_over.wait()
                self.earlier = []
                await handler(self.lease)
            except Exception as error:  # noqa: BLE001 - it becomes the session's fate
                self.error = self.error or error
            self.was_cut = False

    def fate(self, policy: RetryPolicy, *, limit: int) -> fates.Fate:
        """What becomes of it, now that its handler has ended. `limit`: of attempts without progress."""
        lease = self.lease
        if self.was_cut:
            return self._fate_of_cut()
        return fates.fate_of(
            self.error,
            policy,
            owner=lease.owner,
            is_gone=lease.is_gone,
            fruitless=1 if lease.progressed else lease.fruitless + 1,
            limit=limit,
        )

    def _fate_of_cut(self) -> fates.Fate:
        if self.lease.is_over:
            return fates.Lost()
        if not self.lease.is_gone:
            return fates.Parked(why=fates.NOT_GONE.format(owner=self.lease.owner))
        if self.error is not None:
            return fates.Parked(
                why=f"a mistake that no retry mends ({type(self.error).__name__}): the worker's log has it"
            )
        if self._is_cancelled:
            return fates.Cancelled()
        return fates.Back(delay=0.0, counts=False)

    def beat(self) -> Beat:
        """What is to be written now."""
        try:
            return self.lease.beat()
        except Exception as error:  # noqa: BLE001 - what the handler keeps cannot be written
            self.error = error
            self._scope.cancel()
            return self.bare_beat

    def last_beat(self) -> Beat:
        """What is written with the end."""
        try:
            return self.lease.beat()
        except Exception as error:  # noqa: BLE001 - as above
            self.error = self.error or error
            return self.bare_beat

    def heard(self, beat: Beat, sent: float, answer: str | None) -> None:
        """What was answered to that beat, which was sent then: "kept", "cancel", or None: it is lost."""
        if answer is None:
            self.lease.lose()
            return
        self.lease.renewed(sent)
        self.lease.saved(beat)
        if answer == "cancel" and not self._is_cancelled:
            self._is_cancelled = True
            self._scope.cancel()

    def drain(self) -> None:
        """End the handler when it waits for a message, or soon."""
        self._patient_until = min(self._patient_until, anyio.current_time() + _PATIENCE)
        self.lease.leave_at_pull()
        self._mind()

    def _mind(self) -> None:
        """See that the handler ends with the lease. A session does that itself, and has the rest of the ttl for it."""
        now = anyio.current_time()
        since, until = self.lease.term(now)
        is_in_time = self.lease.has_session and not self.lease.was_taken
        self._scope.deadline = min(
            since + self.lease.ttl if is_in_time else until, self._patient_until
        )
