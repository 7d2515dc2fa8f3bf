"""`TemporalSessions`: a fleet's sessions in Temporal, for whoever asks: queued, ended, let go on, listed.

Each is a Standalone Activity, whose id is the session's key. What is over stays known for as long as the namespace
retains it, and so long its key is taken. A session that is parked has failed, for Temporal; to release it is to begin it
once more, with the record that its last worker has left. Knows nothing of workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from streamguard import _loops as loops
from streamguard._base import quoting
from streamguard._base.distribution import install
from streamguard.errors import ConfigError, StoreError
from streamguard.fleet.stored_texts import checked_name, json_of
from streamguard.fleet.temporal_calls import NEEDED, NotThereError, bounded
from streamguard.fleet.temporal_record import SessionRecord
from streamguard.fleet.temporal_rows import UNSAID, is_open, row_of

if TYPE_CHECKING:
    from temporalio.client import ActivityExecutionDescription, ActivityHandle, Client

    from streamguard.fleet.store import JSON, Row

T = TypeVar("T")

# What Temporal calls each session.
ACTIVITY_TYPE: Final = "streamguard-session"
# The first whose descriptions can be asked for what they hold.
_OLDEST_SDK: Final = (1, 33)
# How long a call may take that no lease depends on.
_BOUND: Final = 10.0
# How many sessions are asked after at once, where all are listed.
_ASKED_AT_ONCE: Final = 16
_YEARS: Final = timedelta(days=3650)
_A_DAY: Final = timedelta(days=1)
_OVER: Final = ("Completed", "Canceled", "Terminated")


class TemporalSessions:
    """The sessions of one task queue. `ttl`: of those that are submitted here."""

    def __init__(self, client: Client, task_queue: str, ttl: float) -> None:
        _check_client(client)
        checked_name("task_queue", task_queue)
        if any(c in task_queue for c in "'\"\\`"):
            raise ConfigError(
                f"task_queue={quoting.name(repr(task_queue))}: use a name without quotes and backslashes"
            )
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl

    async def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already."""
        check_loop()
        checked_name("key", key)
        json_of(spec, "the spec", key)
        return await self._start(key, spec, None)

    async def cancel(self, key: str, why: str = "") -> bool:
        """End a session, on whichever worker it is. False if there is none to end."""
        check_loop()
        if (activity := await self._look_up(key)) is None:
            return False
        if not is_open(activity):
            if (await row_of(activity)).status != "parked":
                return False
            # What is over cannot be cancelled: it is begun again, for later, and cancelled before that.
            if not await self._start_again(activity, delay=_A_DAY):
                return False
        try:
            await self._ask(self._handle(key).cancel(reason=why or UNSAID))
        except NotThereError:
            return False
        return True

    async def release(self, key: str) -> bool:
        """Let a parked session go on, from its checkpoint. False if it is not parked."""
        check_loop()
        activity = await self._look_up(key)
        if activity is None or (await row_of(activity)).status != "parked":
            return False
        return await self._start_again(activity)

    async def live(self) -> list[Row]:
        """What is not over yet, as far as Temporal's list has it."""
        check_loop()
        rows: dict[str, Row] = {}
        limiter = anyio.CapacityLimiter(_ASKED_AT_ONCE)

        async def ask(key: str) -> None:
            async with limiter:
                row = await self.show(key)
            if row is not None and row.status in ("waiting", "running", "parked"):
                rows[key] = row

        keys = [key async for key in self._keys()]
        async with anyio.create_task_group() as group:
            for key in dict.fromkeys(keys):
                group.start_soon(ask, key)
        return sorted(rows.values(), key=lambda row: (-row.age, row.key))

    async def show(self, key: str) -> Row | None:
        """One session, also one that is over; None if the key is not known."""
        check_loop()
        activity = await self._look_up(key)
        return None if activity is None else await row_of(activity)

    async def check_server(self) -> None:
        """StoreError unless Temporal can be reached, has the namespace, and knows Standalone Activities."""
        check_loop()
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        said = await self._ask(self._client.workflow_service.describe_namespace(request))
        if not said.namespace_info.capabilities.standalone_activities:
            raise StoreError(f"Temporal: {NEEDED}")

    async def _keys(self) -> AsyncIterator[str]:
        """Those of all sessions that may not be over. Released ones come twice."""
        over = " AND ".join(f"ExecutionStatus != '{status}'" for status in _OVER)
        query = f"TaskQueue = '{self._task_queue}' AND ActivityType = '{ACTIVITY_TYPE}' AND {over}"
        found = self._client.list_activities(query)
        while found.current_page is None or found.next_page_token is not None:
            await self._ask(found.fetch_next_page())
            for activity in found.current_page or ():
                yield activity.activity_id

    async def _look_up(self, key: str) -> ActivityExecutionDescription | None:
        checked_name("key", key)
        try:
            return await self._ask(
                self._handle(key).describe(
                    include_input=True,
                    include_outcome=True,
                    include_heartbeat_details=True,
                    include_last_failure=True,
                )
            )
        except NotThereError:
            return None

    async def _start_again(
        self, activity: ActivityExecutionDescription, *, delay: timedelta | None = None
    ) -> bool:
        said: list[Any] = await activity.heartbeat_details() or [None]
        given: list[Any] = await activity.input() or [{}]
        if said == [None]:  # nobody has begun it
            said = given[1:]
        record = SessionRecord.from_json(said[0] if said else None).released()
        return await self._start(activity.activity_id, given[0], record, delay=delay)

    async def _start(
        self,
        key: str,
        spec: Mapping[str, JSON],
        record: SessionRecord | None,
        *,
        delay: timedelta | None = None,
    ) -> bool:
        from temporalio.common import ActivityIDReusePolicy, RetryPolicy
        from temporalio.exceptions import ActivityAlreadyStartedError

        reuse = ActivityIDReusePolicy.REJECT_DUPLICATE
        if record is not None:
            reuse = ActivityIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
        try:
            await self._ask(
                self._client.start_activity(
                    ACTIVITY_TYPE,
                    args=[dict(spec), None if record is None else record.as_json()],
                    id=key,
                    task_queue=self._task_queue,
                    id_reuse_policy=reuse,
                    heartbeat_timeout=timedelta(seconds=self._ttl),
                    start_to_close_timeout=_YEARS,
                    # After a loss. What we give back says when itself.
                    retry_policy=RetryPolicy(
                        initial_interval=timedelta(seconds=0.1),
                        backoff_coefficient=1.5,
                        maximum_interval=timedelta(seconds=1),
                        maximum_attempts=0,
                    ),
                    start_delay=delay,
                )
            )
        except ActivityAlreadyStartedError:
            return False
        return True

    def _handle(self, key: str) -> ActivityHandle[Any]:
        return self._client.get_activity_handle(key)

    async def _ask(self, call: Awaitable[T]) -> T:
        return await bounded(call, _BOUND)


def check_loop() -> None:
    """ConfigError unless asyncio runs here."""
    if loops.current().cancelled is not asyncio.CancelledError:
        raise ConfigError(
            "Temporal's client needs asyncio, and this is trio: run the TemporalEngine under asyncio, or use LocalEngine, "
            "which runs under both"
        )


def _check_client(client: object) -> None:
    try:
        from temporalio.client import Client
        from temporalio.service import __version__ as version
    except ImportError:
        raise ConfigError(f"TemporalEngine needs temporalio: {install('temporal')}") from None

    if not isinstance(client, Client):
        raise ConfigError(
            f"client={quoting.name(repr(type(client)))}: use what temporalio.client.Client.connect gives"
        )
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SDK:
        raise ConfigError(
            f"temporalio {version} is too old: pip install 'temporalio>={'.'.join(map(str, _OLDEST_SDK))}'"
        )
