"""`TemporalTask`: one attempt at a session, as Temporal knows it: its beats, and its ends.

All of it goes through the attempt's task token, which fences it: once the attempt is over for the server, each of these is
told so. All of it is awaited. `activity.heartbeat` is not: it returns before anything is sent, so it proves nothing, and
what it sends later would undo a newer checkpoint. An end carries the last record, so that no beat need come before it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from streamguard.fleet.temporal_calls import NotThereError, bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from temporalio.client import AsyncActivityHandle

    from streamguard.fleet.store import Beat
    from streamguard.fleet.temporal_record import SessionRecord

Answer: TypeAlias = Literal["kept", "cancel", "pause"]

# The types of the failures that Temporal shows.
GIVEN_BACK: Final = "GivenBack"
PARKED: Final = "Parked"


class TemporalTask:
    """One attempt. `record`: what the server has of it."""

    def __init__(self, handle: AsyncActivityHandle, record: SessionRecord, bound: float) -> None:
        self._handle = handle
        self.record = record
        self._bound = bound

    async def beat(self, beat: Beat) -> Answer | None:
        """Renew it, with where the session stands; None: it is lost. StoreError if that is not known."""
        from temporalio.client import AsyncActivityCancelledError

        record = self.record.beaten(beat)
        answer: Answer = "kept"
        call = self._handle.heartbeat(record.as_json(), rpc_timeout=self._rpc_timeout)
        try:
            await bounded(call, self._bound)
        except NotThereError:
            return None
        except AsyncActivityCancelledError as error:
            # It was kept all the same. A pause, and a reset, arrive as a cancel.
            asked = error.details is None or error.details.cancel_requested
            answer = "cancel" if asked else "pause"
        self.record = record
        return answer

    async def finish(self, beat: Beat) -> bool:
        """The session is done. False: it was lost before; so it is with all ends."""
        delivered = self.record.beaten(beat).checkpoint.delivered
        return await self._end(
            self._handle.complete({"delivered": delivered}, rpc_timeout=self._rpc_timeout)
        )

    async def report_cancelled(self) -> bool:
        """It has ended, as somebody had asked."""
        return await self._end(self._handle.report_cancellation(rpc_timeout=self._rpc_timeout))

    async def give_back(self, beat: Beat, delay: float, *, counts: bool, why: str = "") -> bool:
        """Another attempt begins after `delay` seconds, unless a cancel was asked for."""
        from temporalio.exceptions import ApplicationError

        error = ApplicationError(why, type=GIVEN_BACK, next_retry_delay=timedelta(seconds=delay))
        return await self._fail(error, self.record.beaten(beat).given_back(counts=counts))

    async def park(self, beat: Beat, why: str) -> bool:
        """No other attempt begins: for Temporal it has failed for good."""
        from temporalio.exceptions import ApplicationError

        error = ApplicationError(why, type=PARKED, non_retryable=True)
        return await self._fail(error, self.record.beaten(beat).given_back())

    async def put_off(self, why: str, delay: float) -> bool:
        """It cannot be begun here: another worker may try, and finds it as it was."""
        from temporalio.exceptions import ApplicationError

        error = ApplicationError(why, type=GIVEN_BACK, next_retry_delay=timedelta(seconds=delay))
        return await self._end(self._handle.fail(error, rpc_timeout=self._rpc_timeout))

    async def _fail(self, error: Exception, record: SessionRecord) -> bool:
        call = self._handle.fail(
            error, last_heartbeat_details=[record.as_json()], rpc_timeout=self._rpc_timeout
        )
        return await self._end(call)

    async def _end(self, call: Awaitable[None]) -> bool:
        try:
            await bounded(call, self._bound)
        except NotThereError:
            return False
        return True

    @property
    def _rpc_timeout(self) -> timedelta:
        return timedelta(seconds=self._bound)
