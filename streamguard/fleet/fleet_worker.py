"""`FleetWorker`: what a worker does with a session that it holds, whichever engine it is of.

It runs the handler, and when that has ended it has the log's last lines written, decides the session's fate and has that
written, also while everything around it is being cancelled. It drains. How sessions come here, and how beats, lines
and ends are written, is each engine's own.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from streamguard._base.numbers import Seconds, check_count, seconds
from streamguard.errors import ConfigError, StoreError, StreamGuardError
from streamguard.events.teller import logger
from streamguard.fleet import fates
from streamguard.fleet.lease import FENCE, KILL
from streamguard.process.sentinel.sentinel import start_helper

if TYPE_CHECKING:
    from streamguard.evidence.receipts import FinalAction
    from streamguard.fleet.engine import Handler
    from streamguard.fleet.holding import Holding
    from streamguard.retry.policy import RetryPolicy


class FleetWorker(ABC):
    """The part that all engines share. `owner` names this worker: where it runs, and a nonce."""

    def __init__(
        self,
        *,
        ttl: Seconds,
        flush: Seconds,
        limit: int,
        attempts_without_progress: int,
        policy: RetryPolicy,
        clock: Callable[[], float],
    ) -> None:
        ttl, flush = seconds(ttl, "ttl"), seconds(flush, "flush")
        check_count("limit", limit, least=1)
        check_count("attempts_without_progress", attempts_without_progress, least=1)
        if flush > ttl / 3:
            raise ConfigError(
                f"flush={flush:g}, ttl={ttl:g}: a lease must survive a beat that is lost, so let flush be a third of ttl, or less"
            )
        self.ttl, self.flush, self.limit = ttl, flush, limit
        self.attempts_without_progress = attempts_without_progress
        self.policy = policy
        self.owner: Final = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._clock = clock
        # Of one key there may be two for a moment: one that is lost and has not ended, and the next claim.
        self._held: dict[tuple[str, int], Holding] = {}
        self._is_draining = False
        self._complained = ""

    def drain(self) -> None:
        """Take no further session, hand on those that run, and let `serve` return."""
        self._is_draining = True
        for holding in tuple(self._held.values()):
            holding.drain()

    # -- each engine's own -----------------------------------------------------------------

    async def _is_confirmed(self, holding: Holding) -> bool:  # noqa: ARG002 - of what is overridden
        """Whether its handler may begin: those who keep it know that we have it."""
        return True

    @abstractmethod
    async def _write(self, holding: Holding, fate: fates.Fate) -> fates.Fate:
        """Write what has become of it; what it is now, which a cancel may have changed."""

    @abstractmethod
    async def _write_line(self, holding: Holding, line: Mapping[str, Any]) -> None:
        """Write a line of the fleet's log."""

    # -- one session -----------------------------------------------------------------------

    def _hold(self, holding: Holding) -> None:
        if holding.name not in self._held:
            key = holding.lease.key
            holding.earlier = [each for each in self._held.values() if each.lease.key == key]
            self._held[holding.name] = holding

    async def _run(self, holding: Holding, handler: Handler) -> None:
        """Run a session that is held, to its end here."""
        self._hold(holding)
        if self._is_draining:  # it was claimed meanwhile
            holding.drain()
        sentence = fates.fate_before(holding.lease.fruitless, self.attempts_without_progress)
        try:
            if sentence is None and await self._is_confirmed(holding):
                await holding.run(handler)
        finally:
            # Also while everything is being cancelled: what is held is given back within a bound.
            with anyio.CancelScope(shield=True):
                try:
                    await self._conclude(holding, sentence)
                except StoreError as away:
                    self._complain(away)
                    logger.warning(
                        "fleet: what became of session %r could not be written; others may claim it in %g s",
                        holding.lease.key,
                        holding.lease.ttl,
                    )
                finally:
                    self._held.pop(holding.name, None)
                    holding.is_over.set()

    async def _conclude(self, holding: Holding, fate: fates.Fate | None) -> None:
        if fate is None:
            fate = holding.fate(self.policy, limit=self.attempts_without_progress)
        await self._log_of(holding, fates.action_of(fate))  # fenced, so before it is let go of
        _tell(holding, await self._write(holding, fate))

    async def _log_of(self, holding: Holding, at_last: FinalAction | None = None) -> None:
        lines = holding.log.decided(at_last)
        while lines:
            try:
                await self._write_line(holding, lines[0])
            except StoreError as error:
                self._complain(error)
                holding.log.again(lines)
                return
            del lines[0]

    async def _prepare(self) -> None:
        """Have ready what ends the backends of a worker that is stopped or killed: to start it takes a moment."""
        try:
            await anyio.to_thread.run_sync(start_helper)
        except StreamGuardError:
            logger.exception("fleet: backends may outlive this worker")

    # -- what it says ----------------------------------------------------------------------

    def _announce(self) -> None:
        logger.info(
            "fleet: worker %s serves up to %d sessions; a lease is good for %g s, and a backend that is left has %g s to "
            "close before it is killed",
            self.owner,
            self.limit,
            FENCE * self.ttl,
            (KILL - FENCE) * self.ttl,
        )

    def _is_answered(self) -> None:
        """The store, or server, has answered: an outage is over."""
        if self._complained:
            logger.info("fleet: it answers again")
        self._complained = ""

    def _complain(self, error: StoreError) -> None:
        """Once for each outage."""
        if str(error) != self._complained:
            logger.warning("fleet: %s", error)
        self._complained = str(error)

    async def _drain_on(self, signals: tuple[signal.Signals, ...]) -> None:
        with anyio.open_signal_receiver(*signals) as received:
            async for number in received:
                logger.info("fleet: %s: handing on %d sessions", number.name, len(self._held))
                self.drain()


def _tell(holding: Holding, fate: fates.Fate) -> None:
    key, error = holding.lease.key, holding.error
    match fate:
        case fates.Parked(why=why):
            logger.error("fleet: session %r is parked: %s", key, why, exc_info=error)
        case fates.Lost():
            logger.warning("fleet: session %r has gone to another worker, or will", key)
        case fates.Back(delay=delay, counts=True, why=why):
            logger.warning(
                "fleet: session %r goes on in %.3g s, with whoever is free (%s)",
                key,
                delay,
                why,
                # Of a hang, or what else is ours, the session's own log has all that is known.
                exc_info=None if isinstance(error, StreamGuardError) else error,
            )
        case _:
            pass
