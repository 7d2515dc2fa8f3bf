"""How Temporal describes an activity, as the `Row` that people see of its session.

What it decodes of a description (the last record, the last failure) stays here; the row has no prompt, no token and no
error's text. Where it cannot be decoded, for want of the payload codec's key, the row says less.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamguard._base import quoting
from streamguard.events.teller import logger
from streamguard.fleet.store import Row
from streamguard.fleet.temporal_record import SessionRecord
from streamguard.fleet.temporal_task import GIVEN_BACK, PARKED

if TYPE_CHECKING:
    from temporalio.client import ActivityExecutionDescription

    from streamguard.fleet.store import Status

PAUSED = "paused in Temporal"
# Temporal keeps no reason that is empty.
UNSAID = "no reason given"


async def row_of(activity: ActivityExecutionDescription) -> Row:
    """The session as people may see it."""
    record, failure = await _record_of(activity), await _failure_of(activity)
    status, now = _status_of(activity), datetime.now(UTC)
    started = activity.last_heartbeat_time or activity.last_started_time or now
    is_lost = status == "waiting" and not record.is_over
    return Row(
        key=activity.activity_id,
        status=status,
        owner=(activity.last_worker_identity or "") if status == "running" else "",
        attempt=record.attempt,
        fruitless=record.given_back().fruitless if is_lost else record.fruitless,
        delivered=await _delivered_of(activity, record),
        why=quoting.quoted(_why(activity, status, failure, is_lost=is_lost)),
        wait=_seconds(now, activity.next_attempt_schedule_time) if status == "waiting" else 0.0,
        silent=_seconds(started, now) if status == "running" else 0.0,
        age=_seconds(activity.schedule_time, now),
        cancelling=status == "running" and _is_cancelling(activity),
    )


def is_open(activity: ActivityExecutionDescription) -> bool:
    """Whether it has not ended, for Temporal."""
    from temporalio.client import ActivityExecutionStatus as Status

    return activity.status in (Status.RUNNING, Status.PAUSED)


def _status_of(activity: ActivityExecutionDescription) -> Status:
    from temporalio.client import ActivityExecutionStatus as Ended
    from temporalio.client import PendingActivityState as State

    if is_open(activity):
        waits = activity.run_state in (State.SCHEDULED, State.PAUSED, State.UNSPECIFIED, None)
        return "waiting" if waits else "running"
    match activity.status:
        case Ended.COMPLETED:
            return "done"
        case Ended.CANCELED | Ended.TERMINATED:
            return "cancelled"
        case _:
            # One that fails, or is lost, after a cancel was asked for is not tried again.
            return "cancelled" if activity.canceled_reason else "parked"


def _is_cancelling(activity: ActivityExecutionDescription) -> bool:
    from temporalio.client import PendingActivityState as State

    return activity.run_state == State.CANCEL_REQUESTED or bool(activity.canceled_reason)


def _why(
    activity: ActivityExecutionDescription,
    status: Status,
    failure: BaseException | None,
    *,
    is_lost: bool,
) -> str:
    from temporalio.client import PendingActivityState as State
    from temporalio.exceptions import ApplicationError

    if status == "cancelled":
        reason = activity.canceled_reason or ""
        return "" if reason == UNSAID else reason
    if activity.run_state in (State.PAUSED, State.PAUSE_REQUESTED):
        return PAUSED
    if isinstance(failure, ApplicationError):
        # What others have made it fail with may quote anything.
        ours = failure.type in (GIVEN_BACK, PARKED)
        return failure.message if ours else f"failed for Temporal ({failure.type})"
    if status == "parked":
        return "timed out for Temporal"
    return "lost" if is_lost or failure is not None else ""


async def _record_of(activity: ActivityExecutionDescription) -> SessionRecord:
    try:
        said: list[Any] = await activity.heartbeat_details() or [None]
        return SessionRecord.from_json(said[0])
    except Exception as error:  # noqa: BLE001 - a codec's, or of another version: a row is shown all the same
        _tell(activity, error)
        return SessionRecord(attempt=activity.attempt)


async def _failure_of(activity: ActivityExecutionDescription) -> BaseException | None:
    try:
        return await activity.outcome_failure() or await activity.last_failure()
    except Exception as error:  # noqa: BLE001 - as above
        _tell(activity, error)
        return None


async def _delivered_of(activity: ActivityExecutionDescription, record: SessionRecord) -> int:
    try:
        result = await activity.result() if activity.has_result() else None
        return int(result["delivered"]) if result else record.checkpoint.delivered
    except Exception as error:  # noqa: BLE001 - as above
        _tell(activity, error)
        return record.checkpoint.delivered


def _tell(activity: ActivityExecutionDescription, error: Exception) -> None:
    logger.debug(
        "fleet: a payload of session %r cannot be read (%s)",
        activity.activity_id,
        type(error).__name__,
    )


def _seconds(since: datetime, until: datetime | None) -> float:
    return max(0.0, (until - since).total_seconds()) if until is not None else 0.0
