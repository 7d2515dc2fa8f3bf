"""`TemporalEngine`: a fleet on Temporal: each session is one of its Standalone Activities. No workflow code.

Temporal has the queue, unique keys, the time of the next attempt, cancel, pause, the list and its UI. What it does not have is
here: a lease that the worker itself knows to be over (F2). So a handler begins once a heartbeat of its attempt
was answered, and not before; each beat is awaited, and its answer renews the lease; every end is written with the attempt's
token. Temporal's own activity function does nothing but wait: it holds the worker's slot. `temporal_sessions` is for
whoever asks, `temporal_task` writes, `temporal_record` says what. asyncio alone, as Temporal's client is.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from streamguard._base import quoting
from streamguard._base.boottime import boottime
from streamguard.errors import ConfigError, StoreError
from streamguard.events.teller import logger
from streamguard.fleet import fates
from streamguard.fleet.calls import Calls
from streamguard.fleet.fleet_worker import FleetWorker
from streamguard.fleet.holding import Holding
from streamguard.fleet.lease import put_off_ends
from streamguard.fleet.temporal_record import SessionRecord
from streamguard.fleet.temporal_sessions import ACTIVITY_TYPE, TemporalSessions, check_loop
from streamguard.fleet.temporal_task import TemporalTask
from streamguard.retry.decision import DEFAULT_POLICY

if TYPE_CHECKING:
    from temporalio.activity import Info
    from temporalio.client import Client
    from temporalio.worker import Worker

    from streamguard._base.numbers import Seconds
    from streamguard.fleet.engine import Handler
    from streamguard.fleet.store import JSON, Beat, Row, TimeoutsLog
    from streamguard.fleet.temporal_task import Answer
    from streamguard.retry.policy import RetryPolicy

# Threads of Temporal's library are at work a moment longer, and abort a program that ends meanwhile (its issue 300).
_SETTLES: Final = 0.1
# How long Temporal's worker may take to end once it has nothing left.
_LIBRARY_ENDS: Final = 10.0
_A_DAY: Final = timedelta(days=1)


class TemporalEngine(FleetWorker):
    """A worker on Temporal, and the way to submit sessions there.

    Args:
        client: A `temporalio.client.Client`. Its data converter is for all that is kept. With a payload
            codec, specs and checkpoints are encrypted before they leave.

        task_queue: Which of Temporal's queues has the sessions.

        ttl: Seconds after which a worker that is not heard of has lost a session that was submitted here.

        flush: Seconds between beats: so much may come twice when a worker is killed.

        limit: How many sessions this worker runs at once.

        attempts_without_progress: After so many in a row a session is parked for a person.

        policy: How long to wait before a session that failed is tried again, and whether at all.

        log: Where lines of timeouts are kept, such as `store_at(...)`: Temporal has no place for them.

        clock: What leases are measured with here; for tests.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = "streamguard",
        ttl: Seconds = 15.0,
        flush: Seconds = 1.0,
        limit: int = 50,
        attempts_without_progress: int = 3,
        policy: RetryPolicy = DEFAULT_POLICY,
        log: TimeoutsLog | None = None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        super().__init__(
            ttl=ttl,
            flush=flush,
            limit=limit,
            attempts_without_progress=attempts_without_progress,
            policy=policy,
            clock=clock,
        )
        self._sessions = TemporalSessions(client, task_queue, self.ttl)
        self.client = client
        self.task_queue = task_queue
        self.log = log
        self._log_calls = Calls(log, self.ttl / 3) if log is not None else None
        self._tasks: dict[Holding, TemporalTask] = {}
        self._slots: set[asyncio.Future[None]] = set()
        self._drained = asyncio.Event()

    def __repr__(self) -> str:
        where = f"{self.client.namespace}/{self.task_queue}"
        return f"<TemporalEngine on {quoting.name(where)}, {len(self._held)} sessions>"

    # -- for whoever asks ------------------------------------------------------------------

    async def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already, as long as Temporal retains what is over."""
        return await self._sessions.submit(key, spec)

    async def cancel(self, key: str, why: str = "") -> bool:
        """End a session, on whichever worker it is. False if there is none to end."""
        return await self._sessions.cancel(key, why)

    async def release(self, key: str) -> bool:
        """Let a parked session go on, from its checkpoint. False if it is not parked."""
        return await self._sessions.release(key)

    async def sessions(self) -> list[Row]:
        """What is not over yet. Temporal's list may be some seconds behind."""
        return await self._sessions.live()

    async def show(self, key: str) -> Row | None:
        """One session, also one that is over; None if the key is not known."""
        return await self._sessions.show(key)

    # -- a worker --------------------------------------------------------------------------

    async def serve(self, handler: Handler, *, drain_on: Iterable[signal.Signals] = ()) -> None:
        """Run sessions, until `drain` is called or this is cancelled.

        `drain_on`: signals that drain it, such as `[signal.SIGTERM]`. StoreError if Temporal cannot be reached, has no
        such namespace or is too old: nothing is tried again before it has worked once.
        """
        check_loop()
        await self._sessions.check_server()
        self._announce()
        await self._prepare()
        self._is_draining, self._drained = False, asyncio.Event()
        worker = self._worker(handler)
        async with anyio.create_task_group() as signals:
            if wanted := tuple(drain_on):
                signals.start_soon(self._drain_on, wanted)
            await self._work(worker)
            signals.cancel_scope.cancel()

    def drain(self) -> None:
        """Take no further session, hand on those that run, and let `serve` return."""
        super().drain()
        self._drained.set()

    def _worker(self, handler: Handler) -> Worker:
        from temporalio.worker import Worker

        try:
            return Worker(
                self.client,
                task_queue=self.task_queue,
                activities=[self._activity(handler)],
                identity=self.owner,
                max_concurrent_activities=self.limit,
                # We end the sessions ourselves. Cancels that its library sends at a shutdown can make that hang.
                graceful_shutdown_timeout=_A_DAY,
            )
        except RuntimeError as error:
            if "multiple workers" not in str(error):
                raise
            raise ConfigError(
                f"this client serves {quoting.name(repr(self.task_queue))} already: give each engine of a process a client of "
                "its own, or have one engine with a higher limit"
            ) from None

    async def _work(self, worker: Worker) -> None:
        """Have Temporal's worker run until we drain, and until all that it has begun is handed on."""
        working = asyncio.ensure_future(worker.run())
        drained = asyncio.ensure_future(self._drained.wait())
        try:
            await asyncio.wait({working, drained}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.drain()
            with anyio.CancelScope(shield=True):
                await self._end(working, worker)
                await drained
        if not working.cancelled() and (error := working.exception()) is not None:
            raise StoreError(
                f"Temporal's worker has failed ({type(error.__cause__ or error).__name__}): the log of temporalio has it"
            ) from error

    async def _end(self, working: asyncio.Future[None], worker: Worker) -> None:
        ending = asyncio.ensure_future(worker.shutdown())
        while not ending.done():
            patience = None if self._slots else _LIBRARY_ENDS
            done, _ = await asyncio.wait(
                {ending, *self._slots}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and not self._slots:
                logger.warning(
                    "fleet: Temporal's worker has nothing left, and does not end within %g s: left as it is",
                    _LIBRARY_ENDS,
                )
                ending.cancel()
                working.cancel()
        await asyncio.wait({working, ending})
        await asyncio.sleep(_SETTLES)

    def _activity(self, handler: Handler) -> Callable[..., Awaitable[None]]:
        from temporalio import activity

        # Each session has a task of its own: Temporal's is cancelled whenever its library thinks fit.
        async def hold_slot(spec: Any, carried: Any) -> None:
            info = activity.info()
            session = asyncio.ensure_future(self._session(info, spec, carried, handler))
            self._slots.add(session)
            session.add_done_callback(self._slots.discard)
            while not session.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({session})
            if not session.cancelled() and (error := session.exception()) is not None:
                logger.error(
                    "fleet: session %r: a fault of ours", info.activity_id, exc_info=error
                )
            activity.raise_complete_async()

        return activity.defn(name=ACTIVITY_TYPE)(hold_slot)

    # -- one session -----------------------------------------------------------------------

    async def _session(self, info: Info, spec: Any, carried: Any, handler: Handler) -> None:
        key, ttl = info.activity_id, self._ttl_of(info)
        task = self._task(info, ttl / 3)
        try:
            record = SessionRecord.from_json(next(iter(info.heartbeat_details), carried))
            task.record = record.taken()
            claimed = task.record.claimed(key, self.owner, spec)
            holding = Holding(claimed, ttl, self._clock(), self._clock)
            began = await self._first_beat(task, holding)
        except ConfigError as error:
            logger.error("fleet: session %r cannot be begun here: %s", key, error)
            await task.put_off("it cannot be read", ttl)
            return
        except StoreError as error:
            self._complain(error)
            return
        if began:
            await self._run_beating(task, holding, handler)

    def _ttl_of(self, info: Info) -> float:
        """As whoever has submitted it has set it, for that is what Temporal goes by."""
        said = info.heartbeat_timeout
        return self.ttl if said is None else said.total_seconds()

    def _task(self, info: Info, bound: float) -> TemporalTask:
        from temporalio.converter import ActivitySerializationContext

        context = ActivitySerializationContext(
            namespace=self.client.namespace,
            activity_id=info.activity_id,
            activity_type=info.activity_type,
            activity_task_queue=info.task_queue,
            workflow_id=None,
            workflow_type=None,
            is_local=False,
        )
        handle = self.client.get_async_activity_handle(task_token=info.task_token)
        return TemporalTask(handle.with_context(context), SessionRecord(), bound)

    async def _first_beat(self, task: TemporalTask, holding: Holding) -> bool:
        """Whether the attempt is ours. It may be one that was sent to us long ago."""
        sent = self._clock()
        answer = await task.beat(holding.bare_beat)
        if answer is None:
            logger.info("fleet: session %r was begun by another meanwhile", holding.lease.key)
            return False
        self._heard(holding, holding.bare_beat, sent, answer)
        return True

    async def _run_beating(self, task: TemporalTask, holding: Holding, handler: Handler) -> None:
        self._tasks[holding] = task
        try:
            async with anyio.create_task_group() as beats:
                beats.start_soon(self._beat_for_ever, holding)
                await self._run(holding, handler)
                beats.cancel_scope.cancel()
        finally:
            del self._tasks[holding]

    async def _beat_for_ever(self, holding: Holding) -> None:
        while not holding.lease.is_over:
            await anyio.sleep(min(self.flush, holding.lease.ttl / 3))
            await self._beat(holding)
            await self._log_of(holding)

    async def _beat(self, holding: Holding) -> None:
        beat, sent = holding.beat(), self._clock()
        try:
            answer = await self._tasks[holding].beat(beat)
        except StoreError as error:
            self._complain(error)
            return
        self._is_answered()
        self._heard(holding, beat, sent, answer)

    def _heard(self, holding: Holding, beat: Beat, sent: float, answer: Answer | None) -> None:
        if answer == "pause":  # it goes on when somebody lets it
            holding.drain()
            answer = "kept"
        holding.heard(beat, sent, answer)
        put_off_ends([holding.lease])

    async def _write(self, holding: Holding, fate: fates.Fate) -> fates.Fate:
        task, beat, is_kept = self._tasks[holding], holding.last_beat(), False
        match fate:
            case fates.Finished():
                is_kept = await task.finish(beat)
            case fates.Cancelled():
                is_kept = await task.report_cancelled()
            case fates.Back(delay=delay, counts=counts, why=why):
                is_kept = await task.give_back(beat, delay, counts=counts, why=why)
            case fates.Parked(why=why):
                is_kept = await task.park(beat, why)
            case fates.Lost():
                # If it is still ours, nobody need wait for its ttl.
                if holding.lease.is_gone:
                    await task.give_back(beat, 0.0, counts=False)
        return fate if is_kept else fates.Lost()

    async def _write_line(self, holding: Holding, line: Mapping[str, Any]) -> None:
        if self._log_calls is not None and self.log is not None:
            await self._log_calls(partial(self.log.note_timeout, holding.lease.key, line))
