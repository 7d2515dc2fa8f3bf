"""How long the server asks to be left alone: `Retry-After` in all its forms.

    retry-after-ms, x-ms-retry-after-ms, x-amz-retry-after, grpc-retry-pushback-ms   milliseconds
    retry-after                                     seconds with decimals, or an HTTP date
    google.rpc.RetryInfo                            {"retryDelay": "39s"}, or google's own object
    .retry_after                                    an attribute: seconds or a timedelta

A date counts from the response's own `Date`, so that the two clocks need not agree. What is no
positive number of seconds is nonsense, and counts as missing.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard.retry import foreign
from streamguard.retry.classes import ErrorClass, class_named
from streamguard.retry.classification import classify, failed_of
from streamguard.retry.links import nearest

if TYPE_CHECKING:
    from streamguard.signals import Failed

# What a 429 without a usable number means, and the most that is waited for any (P2).
MISSING: Final = 60.0
CAP: Final = 300.0

_IN_MILLISECONDS: Final = (
    *("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"),
    "grpc-retry-pushback-ms",
)
_NUMBER: Final = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30}")


def retry_after(
    error: BaseException,
    *,
    failed: Failed | None = None,
    cap: float = CAP,
    now: Callable[[], float] = time.time,
    found: ErrorClass | None = None,
) -> float | None:
    """The seconds to wait before the next try, as the server says; None if it says nothing.

    It says so on `error`, or in a message before it (`failed`). At most `cap`. A rate limit without a usable number means a minute. `now` gives the wall
    clock's time (an epoch), for dates without a `Date` beside them. `found`: what `classify` says.
    """

    def ask(link: BaseException, _is_cause: bool) -> float | None:
        return next(filter(None, _forms(link, failed or failed_of(link), now)), None)

    asked: float | None = nearest(error, ask, max)
    if asked is not None:
        return min(asked, cap)
    found = found or classify(error, failed=failed)
    return min(MISSING, cap) if found is ErrorClass.RATE_LIMIT else None


def resets_at(
    error: BaseException | None,
    *,
    failed: Failed | None = None,
    cap: float = CAP,
    now: Callable[[], float] = time.time,
) -> float | None:
    """When the usage limit is over that this failure tells of, as an epoch; None if it tells of none.

    It is what the backend says of a reset, or a pause longer than `cap` that it asks for: one that no
    retry waits out.
    """
    if failed is None and error is not None:
        failed = failed_of(error)
    if failed is not None and failed.resets_at is not None:
        return _epoch_of(failed.resets_at, now)
    if error is not None:
        asked = retry_after(error, failed=failed, cap=math.inf, now=now)
    else:
        asked = None if failed is None else _seconds(failed.retry_after)
    # A rate limit without a number counts as a minute, whatever the cap, and tells of no reset.
    return now() + asked if asked is not None and asked > max(cap, MISSING) else None


def _epoch_of(said: datetime | time_of_day | float, now: Callable[[], float]) -> float | None:
    try:
        if isinstance(said, time_of_day):
            said = datetime.combine(datetime.fromtimestamp(now(), tz=said.tzinfo), said)
        return said.timestamp() if isinstance(said, datetime) else float(said)
    except (OverflowError, ValueError, OSError):  # no clock goes so far
        return None


def retry_after_said(failed: Failed, *, cap: float = CAP) -> float | None:
    """As `retry_after`, of an error that came as a message and that nothing was raised for."""
    if (asked := _seconds(failed.retry_after)) is None:
        is_limited = class_named(failed.error_class) is ErrorClass.RATE_LIMIT
        asked = MISSING if is_limited else None
    return None if asked is None else min(asked, cap)


def _forms(
    error: BaseException, failed: Failed | None, now: Callable[[], float]
) -> Iterator[float | None]:
    if not foreign.carries_nothing(error):
        headers = foreign.headers_of(error)
        for name in _IN_MILLISECONDS:
            milliseconds = _seconds(headers.get(name))
            yield _positive(milliseconds / 1000) if milliseconds is not None else None
        yield _seconds(headers.get("retry-after"))
        # An HTTP date: from the response's own, or from now.
        if (then := _epoch(headers.get("retry-after"))) is not None:
            since = _epoch(headers.get("date"))
            yield _positive(then - (now() if since is None else since))
        yield from map(_of_retry_info, foreign.details_of(error))
        yield _seconds(foreign.attribute(error, "retry_after"))
    yield _seconds(failed.retry_after) if failed is not None else None


def _of_retry_info(detail: object) -> float | None:
    """What google's RetryInfo asks for, as JSON or as its own object."""
    if isinstance(detail, dict):
        fields = cast("Mapping[str, Any]", detail)
        asked = fields.get("retryDelay", fields.get("retry_delay"))
    else:
        asked = foreign.attribute(detail, "retry_delay")
    if isinstance(asked, str):
        return _seconds(asked.removesuffix("s"))
    if isinstance(asked, timedelta):
        return _seconds(asked)
    whole, nanos = _part(asked, "seconds"), _part(asked, "nanos")
    return _seconds(whole + nanos / 1e9) if whole or nanos else _seconds(asked)


def _part(duration: object, name: str) -> float:
    if isinstance(duration, dict):
        return _seconds(cast("Mapping[str, Any]", duration).get(name)) or 0.0
    return _seconds(foreign.attribute(duration, name)) or 0.0


def _epoch(value: str | None) -> float | None:
    if value is None or len(value) > 100:
        return None
    from email.utils import parsedate_to_datetime

    try:
        moment: datetime = parsedate_to_datetime(value)
        # RFC 9110 knows one time zone only; its oldest form does not even name it.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _seconds(value: object) -> float | None:
    """`value` as a positive finite number: a number, a text of one, or a timedelta."""
    if isinstance(value, timedelta):
        return _positive(value.total_seconds())
    if isinstance(value, str):
        text = value.strip()
        return _positive(float(text)) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return _positive(float(value))
    except OverflowError:  # an int beyond every float
        return None


def _positive(number: float) -> float | None:
    return number if 0 < number < math.inf else None
