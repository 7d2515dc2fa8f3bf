"""`LocalEngine`: workers of its own, over a store: SQLite on one machine, PostgreSQL on many.

Any number of processes may `serve` at once. Each has a *claimer*, which takes sessions one or two at a time so that
all workers get some; one *beater*, which renews all leases and writes all checkpoints in one call; and a task for each
session. Who has not been heard of for `ttl` seconds has lost its sessions: others claim them. It notices that by
itself, before (F2). What becomes of a session in the end is decided in `fates`.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc

from streamguard import _loops as loops
from streamguard._base.boottime import boottime
from streamguard._base.numbers import Seconds, check_count
from streamguard.errors import StoreError
from streamguard.fleet import fates
from streamguard.fleet.calls import Calls
from streamguard.fleet.fleet_worker import FleetWorker
from streamguard.fleet.holding import Holding
from streamguard.fleet.lease import put_off_ends
from streamguard.fleet.store import JSON, CheckpointStore, Claimed, Row
from streamguard.retry.decision import DEFAULT_POLICY

if TYPE_CHECKING:
    from streamguard.fleet.engine import Handler
    from streamguard.retry.policy import RetryPolicy

# Between looks for a session, where there was none; some of it at random, so that workers do not come as one.
_IDLE: Final = 0.5
# Between claims, where there is more and we have some already: the others are to get some of it.
_MANNERS: Final = 0.02


class LocalEngine(FleetWorker):
    """A worker over a store.

    Args:
        store: Where the sessions are; see `store_at`.

        ttl: Seconds after which a worker that is not heard of has lost its sessions.

        flush: Seconds between beats: so much may come twice when a worker is killed.

        limit: How many sessions this worker runs at once.

        claim: How many it takes at a time.

        attempts_without_progress: After so many in a row a session is parked for a person.

        policy: How long to wait before a session that failed is tried again, and whether at all.

        clock: What leases are measured with here; for tests.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        ttl: Seconds = 15.0,
        flush: Seconds = 1.0,
        limit: int = 50,
        claim: int = 2,
        attempts_without_progress: int = 3,
        policy: RetryPolicy = DEFAULT_POLICY,
        clock: Callable[[], float] = boottime,
    ) -> None:
        check_count("claim", claim, least=1)
        super().__init__(
            ttl=ttl,
            flush=flush,
            limit=limit,
            attempts_without_progress=attempts_without_progress,
            policy=policy,
            clock=clock,
        )
        self.store = store
        self.claim = claim
        self._calls = Calls(store, self.ttl / 3)
        self._wake = anyio.Event()

    def __repr__(self) -> str:
        return f"<LocalEngine on {self.store!r}, {len(self._held)} sessions>"

    # -- for whoever asks ------------------------------------------------------------------

    async def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already."""
        is_new = await self._calls(partial(self.store.submit, key, spec))
        self._wake.set()
        return is_new

    async def cancel(self, key: str, why: str = "") -> bool:
        """End a session, on whichever worker it is. False if there is none to end."""
        return await self._calls(partial(self.store.cancel, key, why))

    async def release(self, key: str) -> bool:
        """Let a parked session be claimed again. False if it is not parked."""
        return await self._calls(partial(self.store.release, key))

    async def sessions(self) -> list[Row]:
        """What is not over yet."""
        return await self._calls(self.store.live)

    async def show(self, key: str) -> Row | None:
        """One session, also one that is over; None if the key is not known."""
        return await self._calls(partial(self.store.show, key))

    # -- a worker --------------------------------------------------------------------------

    async def serve(
        self,
        handler: Handler,
        *,
        drain_on: Iterable[signal.Signals] = (),
        until_idle: bool = False,
    ) -> None:
        """Run sessions, until `drain` is called or this is cancelled.

        `drain_on`: signals that drain it, such as `[signal.SIGTERM]`. `until_idle`: return when nothing is left
        that could be claimed now or later.
        """
        self._announce()
        self._is_draining = False
        if self.store.blocks:
            await self._prepare()
        async with anyio.create_task_group() as beats:
            beats.start_soon(self._beat_for_ever)
            try:
                async with anyio.create_task_group() as sessions:
                    if signals := tuple(drain_on):
                        beats.start_soon(self._drain_on, signals)
                    try:
                        await self._claim_until_drained(handler, sessions, until_idle=until_idle)
                    except loops.current().cancelled:
                        self.drain()
                        raise
            finally:
                beats.cancel_scope.cancel()

    def drain(self) -> None:
        """Take no further session, hand on those that run, and let `serve` return."""
        super().drain()
        self._wake.set()

    # -- claiming --------------------------------------------------------------------------

    async def _claim_until_drained(
        self, handler: Handler, sessions: anyio.abc.TaskGroup, *, until_idle: bool
    ) -> None:
        while not self._is_draining:
            room = min(self.claim, self.limit - len(self._held))
            claimed, sent = await self._claimed(room) if room > 0 else ([], 0.0)
            for each in claimed:
                self._begin(each, sent, handler, sessions)
            if claimed and len(claimed) == room:
                await anyio.sleep(_MANNERS if len(self._held) > 2 * self.claim else 0)
                continue
            if until_idle and not claimed and not self._held and not await self._is_awaited():
                return
            self._wake = anyio.Event()
            with anyio.move_on_after(_IDLE * (0.75 + random.random() / 2)):  # noqa: S311 - no secret
                await self._wake.wait()

    async def _claimed(self, room: int) -> tuple[list[Claimed], float]:
        sent, claimed = self._clock(), list[Claimed]()
        # What is claimed must be known: nobody else gets it until its ttl is over.
        with anyio.CancelScope(shield=True):
            try:
                claimed = await self._calls(partial(self.store.claim, self.owner, self.ttl, room))
            except StoreError as error:
                self._complain(error)
                return [], sent
        self._is_answered()
        return claimed, sent

    async def _is_awaited(self) -> bool:
        try:
            return any(row.status in ("waiting", "running") for row in await self.sessions())
        except StoreError as error:
            self._complain(error)
            return True

    def _begin(
        self, claimed: Claimed, sent: float, handler: Handler, group: anyio.abc.TaskGroup
    ) -> None:
        holding = Holding(claimed, self.ttl, sent, self._clock)
        self._hold(holding)
        group.start_soon(self._run, holding, handler, name=f"fleet session {claimed.key!r}")

    # -- beating ---------------------------------------------------------------------------

    async def _beat_for_ever(self) -> None:
        while True:
            await anyio.sleep(self.flush)
            await self._beat()

    async def _beat(self) -> None:
        holdings = [holding for holding in self._held.values() if not holding.lease.is_over]
        beats = [holding.beat() for holding in holdings]
        if not beats:
            return
        sent = self._clock()
        try:
            kept = await self._calls(partial(self.store.beat, beats, self.ttl), urgent=True)
        except StoreError as error:
            self._complain(error)
            return
        self._is_answered()
        for beat in beats:
            if (holding := self._held.get((beat.key, beat.token))) is not None:
                holding.heard(beat, sent, kept.get(beat.key))
        put_off_ends(holding.lease for holding in holdings)
        for holding in holdings:
            await self._log_of(holding)

    # -- one session -----------------------------------------------------------------------

    async def _run(self, holding: Holding, handler: Handler) -> None:
        try:
            await super()._run(holding, handler)
        finally:
            self._wake.set()

    async def _is_confirmed(self, holding: Holding) -> bool:
        """A first beat before a further attempt: what kills its workers at once is to be known from claims not heard of."""
        if holding.lease.attempt == 1:
            return True
        beat, sent = holding.bare_beat, self._clock()
        try:
            kept = await self._calls(partial(self.store.beat, [beat], self.ttl), urgent=True)
        except StoreError as error:
            self._complain(error)
            return False
        holding.heard(beat, sent, kept.get(beat.key))
        return beat.key in kept

    async def _write_line(self, holding: Holding, line: Mapping[str, Any]) -> None:
        await self._calls(partial(self.store.log_timeout, holding.bare_beat, line))

    async def _write(self, holding: Holding, fate: fates.Fate) -> fates.Fate:
        store, beat = self.store, holding.last_beat()
        match fate:
            case fates.Finished():
                await self._calls(partial(store.finish, beat))
            case fates.Cancelled():
                await self._calls(partial(store.finish, beat, cancelled=True))
            case fates.Back(delay=delay, counts=counts, why=why):
                await self._calls(partial(store.give_back, beat, delay, counts=counts, why=why))
            case fates.Parked(why=why):
                await self._calls(partial(store.park, beat, why))
            case fates.Lost():
                # If it is still ours, nobody need wait for its ttl.
                if holding.lease.is_gone:
                    await self._calls(partial(store.give_back, beat, 0.0, counts=False))
        return fate
