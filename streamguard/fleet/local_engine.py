"""`LocalEngine`: workers of its own, over a store: SQLite on one machine, PostgreSQL on many.

Any number of processes may `serve` at once. Each has a *claimer*, which takes sessions one or two at a time so that
all workers get some; one *beater*, which renews all leases and writes all checkpoints in one call; and a task for each
session. Who has not been heard of for `ttl` seconds has lost its sessions: others claim them. It notices that by
itself, before (F2). What becomes of a session in the end is decided in `fates`.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import anyio.lowlevel

from streamguard import _loops as loops
from streamguard._base.boottime import boottime
from streamguard._base.numbers import check_count, check_number
from streamguard.errors import ConfigError, StoreError
from streamguard.events.teller import logger
from streamguard.fleet import fates
from streamguard.fleet.calls import Calls
from streamguard.fleet.fleet_log import FleetLog
from streamguard.fleet.lease import FENCE, KILL, Lease
from streamguard.fleet.store import JSON, Beat, CheckpointStore, Claimed, Row
from streamguard.retry.decision import DEFAULT_POLICY

if TYPE_CHECKING:
    from streamguard.fleet.engine import Handler
    from streamguard.retry.policy import RetryPolicy

# Between looks for a session, where there was none; some of it at random, so that workers do not come as one.
_IDLE: Final = 0.5
# How long a drain waits for a consumer that is at work on a message.
_PATIENCE: Final = 0.5


class LocalEngine:
    """A worker over a store.

    Args:
        store: Where the sessions are; see `store_at`.

        ttl: Seconds after which a worker that is not heard of has lost its sessions.

        flush: Seconds between beats: as much as is delivered twice at most when a worker is killed.

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
        ttl: float = 15.0,
        flush: float = 1.0,
        limit: int = 50,
        claim: int = 2,
        attempts_without_progress: int = 3,
        policy: RetryPolicy = DEFAULT_POLICY,
        clock: Callable[[], float] = boottime,
    ) -> None:
        check_number("ttl", ttl, positive=True)
        check_number("flush", flush, positive=True)
        for name, count in (("limit", limit), ("claim", claim)):
            check_count(name, count, least=1)
        check_count("attempts_without_progress", attempts_without_progress, least=1)
        if flush > ttl / 3:
            raise ConfigError(
                f"flush={flush:g}, ttl={ttl:g}: a lease must survive a beat that is lost, so let flush be a third of ttl, or less"
            )
        self.store = store
        self._clock = clock
        self.ttl, self.flush = ttl, flush
        self.limit, self.claim = limit, claim
        self.attempts_without_progress = attempts_without_progress
        self.policy = policy
        self.owner: Final = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._calls = Calls(store, ttl / 3)
        # Of one key there may be two for a moment: one that is lost and has not ended, and the next claim.
        self._held: dict[tuple[str, int], _Holding] = {}
        self._is_draining = False
        self._wake = anyio.Event()
        self._complained = ""

    def __repr__(self) -> str:
        return f"<LocalEngine on {self.store!r}, {len(self._held)} sessions>"

    # -- for whoever asks ------------------------------------------------------------------

    async def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already."""
        is_new = await self._calls(partial(self.store.submit, key, spec))
        self._wake.set()
        return is_new

    async def cancel(self, key: str, why: str = "") -> bool:
        """Have a session end, wherever it is. False if there is none to end."""
        return await self._calls(partial(self.store.cancel, key, why))

    async def release(self, key: str) -> bool:
        """Let a parked session be claimed again. False if it is not parked."""
        return await self._calls(partial(self.store.release, key))

    async def sessions(self) -> list[Row]:
        """What is not over yet."""
        return await self._calls(self.store.live)

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
        logger.info(
            "fleet: worker %s serves up to %d sessions; a lease is good for %g s, and a backend that is left has %g s to "
            "close before it is killed",
            self.owner,
            self.limit,
            FENCE * self.ttl,
            (KILL - FENCE) * self.ttl,
        )
        self._is_draining = False
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
        self._is_draining = True
        self._wake.set()
        for holding in tuple(self._held.values()):
            holding.drain()

    async def _drain_on(self, signals: tuple[signal.Signals, ...]) -> None:
        with anyio.open_signal_receiver(*signals) as received:
            async for number in received:
                logger.info("fleet: %s: handing on %d sessions", number.name, len(self._held))
                self.drain()

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
                await anyio.lowlevel.checkpoint()
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
        self._complained = ""
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
        earlier = [each for each in self._held.values() if each.lease.key == claimed.key]
        holding = _Holding(claimed, self.ttl, sent, self._clock, earlier)
        self._held[claimed.key, claimed.token] = holding
        if self._is_draining:  # it was claimed meanwhile
            holding.drain()
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
        self._complained = ""
        for beat in beats:
            if (holding := self._held.get((beat.key, beat.token))) is not None:
                holding.heard(beat, sent, kept.get(beat.key))
        for holding in holdings:
            await self._log_of(holding)

    async def _log_of(self, holding: _Holding, *, is_last: bool = False) -> None:
        beat = holding.bare_beat
        for line in holding.log.decided(is_last=is_last):
            try:
                await self._calls(partial(self.store.log_timeout, beat, line))
            except StoreError as error:
                self._complain(error)
                holding.log.again(line)
                return

    # -- one session -----------------------------------------------------------------------

    async def _run(self, holding: _Holding, handler: Handler) -> None:
        try:
            if self._fate_of_claim(holding) is None:
                await holding.run(handler)
        finally:
            # Also while everything is being cancelled: what is held is given back within a bound.
            with anyio.CancelScope(shield=True):
                try:
                    await self._conclude(holding)
                except StoreError as away:
                    self._complain(away)
                    logger.warning(
                        "fleet: what became of session %r could not be written; others may claim it in %g s",
                        holding.lease.key,
                        self.ttl,
                    )
                finally:
                    del self._held[holding.lease.key, holding.lease.token]
                    holding.is_over.set()
                    self._wake.set()

    def _fate_of_claim(self, holding: _Holding) -> fates.Parked | None:
        return fates.fate_of_claim(holding.lease.fruitless, self.attempts_without_progress)

    async def _conclude(self, holding: _Holding) -> None:
        await self._log_of(holding, is_last=True)
        lease, error = holding.lease, holding.error
        fate: fates.Fate
        if (refused := self._fate_of_claim(holding)) is not None:
            fate = refused
        elif holding.was_cut:
            fate = holding.fate_of_cut(self.owner)
        else:
            fate = fates.fate_of(
                error,
                self.policy,
                owner=self.owner,
                is_gone=lease.is_gone,
                fruitless=1 if lease.progressed else lease.fruitless + 1,
                limit=self.attempts_without_progress,
            )
        await self._write(lease, holding.last_beat(), fate)
        _tell(lease, fate, error)

    async def _write(self, lease: Lease, beat: Beat, fate: fates.Fate) -> None:
        store = self.store
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
                if lease.is_gone:
                    await self._calls(partial(store.give_back, beat, 0.0, counts=False))

    def _complain(self, error: StoreError) -> None:
        """Once for each outage."""
        if str(error) != self._complained:
            logger.warning("fleet: %s", error)
        self._complained = str(error)


def _tell(lease: Lease, fate: fates.Fate, error: BaseException | None) -> None:
    match fate:
        case fates.Parked(why=why):
            logger.error("fleet: session %r is parked: %s", lease.key, why, exc_info=error)
        case fates.Lost():
            logger.warning("fleet: session %r has gone to another worker, or will", lease.key)
        case fates.Back(delay=delay, counts=True, why=why):
            logger.warning(
                "fleet: session %r goes on in %.3g s, with whoever is free (%s)",
                lease.key,
                delay,
                why,
                exc_info=error,
            )
        case _:
            pass


class _Holding:
    """A session that this worker runs: its lease, and the scope in which its handler runs.

    `error`: what its handler has raised, or has done wrong. `was_cut`: it was cancelled, by us or from outside.
    `earlier`: of the same session, here, and not over yet: there are never two owners.
    """

    def __init__(
        self,
        claimed: Claimed,
        ttl: float,
        sent: float,
        clock: Callable[[], float],
        earlier: Sequence[_Holding] = (),
    ) -> None:
        self._scope = anyio.CancelScope()
        self._earlier = earlier
        self.is_over: Final = anyio.Event()
        self.lease: Final = Lease(
            claimed, ttl, sent, clock=clock, cancel=self._scope.cancel, changed=self._mind
        )
        self.log: Final = FleetLog(self.lease)
        self.error: Exception | None = None
        self.was_cut = False
        self._is_cancelled = False
        self._patient_until = inf
        self.bare_beat: Final = Beat(key=claimed.key, token=claimed.token, owner=claimed.owner)

    async def run(self, handler: Handler) -> None:
        """Run the handler, as long as the lease is good."""
        self._mind()
        self.was_cut = True  # unless it is found to have ended by itself
        with self._scope, self.log:
            try:
                for each in self._earlier:
                    await each.is_over.wait()
                self._earlier = ()
                await handler(self.lease)
            except Exception as error:  # noqa: BLE001 - it becomes the session's fate
                self.error = self.error or error
            self.was_cut = False

    def fate_of_cut(self, owner: str) -> fates.Fate:
        """What becomes of it where its handler was cancelled."""
        if self.lease.is_over:
            return fates.Lost()
        if not self.lease.is_gone:
            return fates.Parked(why=fates.NOT_GONE.format(owner=owner))
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
        """What the store has said to that beat."""
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
