"""P2: how long the server asks to be left alone, in all the forms it may say so."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamguard import CircuitEscalatedError, CircuitOpenError, IdleTimeoutError
from streamguard.retry import retry_after
from streamguard.signals import Failed
from tests.retry.shapes import (
    AiohttpError,
    GrpcMetadata,
    anthropic,
    botocore,
    google,
    google_core,
    grpc,
    httpx,
    named,
    openai,
    pydantic_ai,
    retry_info,
    urllib,
)

NOW = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
EVERY_TIME_THE_SAME = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def asked(error, **more):
    """`retry_after` at noon of a certain day."""
    return retry_after(error, now=NOW.timestamp, **more)


def in_seconds(seconds, day=NOW):
    """An HTTP date so many seconds from `day`."""
    return format_datetime(day + timedelta(seconds=seconds), usegmt=True)


# -- the header ----------------------------------------------------------------------------------

HEADERS = [
    ({"retry-after": "7"}, 7),
    ({"retry-after": "1.5"}, 1.5),
    ({"retry-after": " 2 "}, 2),
    ({"retry-after": ".5"}, 0.5),
    ({"retry-after": "3."}, 3),
    ({"retry-after": "171"}, 171),
    ({"retry-after": "300"}, 300),
    ({"retry-after-ms": "1500"}, 1.5),
    ({"retry-after-ms": "250.5"}, 0.2505),
    ({"x-ms-retry-after-ms": "900"}, 0.9),
    ({"x-amz-retry-after": "2000"}, 2),
    # Milliseconds are the finer, and go first unless they are nonsense.
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "nan", "retry-after": "9"}, 9),
    ({"retry-after-ms": "0", "retry-after": "9"}, 9),
    # Dates, of all three forms that HTTP knows.
    ({"retry-after": "Wed, 18 Nov 2026 12:00:42 GMT"}, 42),
    ({"retry-after": "Wednesday, 18-Nov-26 12:00:42 GMT"}, 42),
    ({"retry-after": "Wed Nov 18 12:00:42 2026"}, 42),
    ({"retry-after": "Wed, 18 Nov 2026 13:00:42 +0100"}, 42),
    # By the server's own clock, where it tells it.
    ({"retry-after": in_seconds(1042), "date": in_seconds(1000)}, 42),
    ({"retry-after": in_seconds(42), "date": "yesterday"}, 42),
    # Beyond the cap.
    ({"retry-after": "4000"}, 300),
    ({"retry-after": "9" * 25}, 300),
    ({"retry-after-ms": "4294967000"}, 300),
    ({"retry-after": in_seconds(86_400)}, 300),
    ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 300),
]
NONSENSE = [
    *("", "   ", "0", "0.0", "-1", "-5", "nan", "inf", "-inf", "1e3", "1_000", "+5", "0x10"),
    *("soon", "5 s", "7, 9", "१०", "9" * 400, "1.2.3", "٣"),
    *(in_seconds(0), in_seconds(-1), in_seconds(-86_400), "Wed, 99 Nov 2026 12:00:42 GMT"),
    *("Wed, 18 Nov 99999 12:00:42 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "GMT", "\x00", ",,,"),
]


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
@pytest.mark.parametrize("make", [anthropic, httpx, urllib, AiohttpError])
def test_the_header_in_all_its_forms(make, headers, seconds):
    """P2: for a 429, and for any other error."""
    for status in (429, 503):
        error = make(status, headers=headers)
        assert asked(error) == pytest.approx(seconds)


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
def test_nonsense_counts_as_missing(name, value):
    """P2: a minute for a 429; for any other error, nothing was asked."""
    assert asked(anthropic(429, headers={name: value})) == 60
    assert asked(anthropic(503, headers={name: value})) is None


def test_a_rate_limit_that_names_no_time_means_a_minute():
    """P2"""
    assert asked(anthropic(429)) == 60
    assert asked(anthropic(200, "rate_limit_error")) == 60
    assert asked(grpc("RESOURCE_EXHAUSTED")) == 60
    assert asked(named("RateLimitError")) == 60


def test_another_error_that_names_no_time_asks_nothing():
    """P2"""
    for error in (anthropic(503), TimeoutError(), IdleTimeoutError("x"), KeyboardInterrupt()):
        assert asked(error) is None


def test_what_is_no_rate_limit_after_all_is_not_waited_for():
    """P2: a quota that is used up does not come back in a minute."""
    assert asked(openai(429, "insufficient_quota", "insufficient_quota")) is None


def test_the_cap_is_the_callers_to_choose():
    """P2: 300 s unless told otherwise; a missing number is bounded, too."""
    error = anthropic(429, headers={"retry-after": "4000"})
    assert asked(error, cap=1000) == 1000
    assert asked(error, cap=math.inf) == 4000
    assert asked(anthropic(429), cap=10) == 10


def test_a_date_counts_from_now_by_the_wall_clock():
    """P2: without a clock given, the machine's."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    before = time.time()
    waited = retry_after(anthropic(429, headers={"retry-after": later}))
    assert 98 - (time.time() - before) <= waited <= 100


# -- other places --------------------------------------------------------------------------------

HALF_PAST_THREE = SimpleNamespace(seconds=3, nanos=500_000_000)
PLACES = [
    # google's JSON
    (google(429, "RESOURCE_EXHAUSTED", retry_info("39s")), 39),
    (google(429, "RESOURCE_EXHAUSTED", retry_info("0.250s")), 0.25),
    (google(429, "RESOURCE_EXHAUSTED", {"@type": "…Help"}, retry_info("39s")), 39),
    (google(429, "RESOURCE_EXHAUSTED", retry_info({"seconds": 3, "nanos": 500_000_000})), 3.5),
    (google(429, "RESOURCE_EXHAUSTED", retry_info({"seconds": "7"})), 7),
    (google(429, "RESOURCE_EXHAUSTED", retry_info("36000s")), 300),
    (google(429, "RESOURCE_EXHAUSTED", retry_info("-1s")), 60),
    (google(429, "RESOURCE_EXHAUSTED", retry_info("soon")), 60),
    (google(429, "RESOURCE_EXHAUSTED", retry_info(None)), 60),
    (google(429, "RESOURCE_EXHAUSTED", "text", 3, None), 60),
    (google(503, "UNAVAILABLE", retry_info("2s")), 2),
    # google's own objects
    (google_core(429, "RESOURCE_EXHAUSTED", SimpleNamespace(retry_delay=HALF_PAST_THREE)), 3.5),
    (google_core(429, "X", SimpleNamespace(retry_delay=timedelta(seconds=2.5))), 2.5),
    (google_core(429, "X", SimpleNamespace(other=1)), 60),
    # through an OpenAI-compatible endpoint
    (named("APIStatusError", status_code=429, body={"details": [retry_info("39s")]}), 39),
    # gRPC
    (grpc("UNAVAILABLE", [("grpc-retry-pushback-ms", "1500")]), 1.5),
    (grpc("UNAVAILABLE", [("grpc-retry-pushback-ms", b"1500")]), 1.5),
    (grpc("UNAVAILABLE", GrpcMetadata([("grpc-retry-pushback-ms", "1500")])), 1.5),
    (grpc("UNAVAILABLE", [("grpc-retry-pushback-ms", "-1")]), None),
    (named("GoogleAPICallError", response=grpc("X", [("grpc-retry-pushback-ms", "20")])), 0.02),
    # botocore
    (botocore("ThrottlingException", 429, {"retry-after": "3"}), 3),
    (botocore("ThrottlingException", 429, {"x-amz-retry-after": "1200"}), 1.2),
    (botocore("ThrottlingException"), 60),
    # an attribute
    (pydantic_ai(429, retry_after=12.5), 12.5),
    (pydantic_ai(429, retry_after=timedelta(minutes=2)), 120),
    (pydantic_ai(429, retry_after="8"), 8),
    (pydantic_ai(429, retry_after=None), 60),
    (pydantic_ai(429, retry_after=-3), 60),
    (pydantic_ai(429, retry_after=True), 60),
    (pydantic_ai(429, retry_after=10**400), 60),
    (pydantic_ai(429, retry_after=math.nan), 60),
    # headers as pairs, and as bytes
    (named("Strange", status_code=429, headers=[(b"Retry-After", b"4")]), 4),
    (named("Strange", status_code=429, headers="no pairs"), 60),
    # ours
    (CircuitOpenError("x", retry_after=12), 12),
    (CircuitEscalatedError("x"), None),
]


@pytest.mark.parametrize(("error", "seconds"), PLACES, ids=range(len(PLACES)))
def test_other_places_where_a_server_says_it(error, seconds):
    """P2"""
    assert asked(error) == seconds


def test_what_the_backend_said_in_a_message():
    """S0: the number on `Failed`, given or on the error's verdict."""
    failed = Failed("rate_limit", retry_after=20)
    assert asked(IdleTimeoutError("x"), failed=failed) == 20
    assert asked(IdleTimeoutError("x"), failed=Failed("rate_limit")) == 60
    assert asked(IdleTimeoutError("x"), failed=Failed("server")) is None
    assert asked(anthropic(429, headers={"retry-after": "7"}), failed=failed) == 7
    error = named("Idle", verdict=SimpleNamespace(failed=failed))
    assert asked(error) == 20


def test_the_number_is_found_on_causes_and_in_groups():
    """P1, P2: of a group the longest, so that no member is disregarded."""
    limited = anthropic(429, headers={"retry-after": "7"})
    wrapped = RuntimeError()
    wrapped.__cause__ = limited
    assert asked(wrapped) == 7
    longer = anthropic(429, headers={"retry-after": "9"})
    assert asked(ExceptionGroup("g", [limited, RuntimeError(), longer])) == 9
    assert asked(ExceptionGroup("g", [RuntimeError()])) is None


# -- whatever may come ---------------------------------------------------------------------------


@EVERY_TIME_THE_SAME
@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "date", "x-should-retry"]),
        st.text() | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(str),
    )
)
def test_whatever_the_headers_say_the_wait_is_sane(headers):
    """P2: above zero, at most the cap, and there for a rate limit."""
    waits = asked(anthropic(429, headers=headers)), asked(anthropic(503, headers=headers))
    assert waits[0] is not None
    assert all(0 < wait <= 300 for wait in waits if wait is not None)


@EVERY_TIME_THE_SAME
@given(st.floats(min_value=0.001, max_value=1e9))
def test_a_number_of_seconds_is_what_it_says_up_to_the_cap(seconds):
    """P2: never earlier than asked."""
    for text in (f"{seconds:.6f}", f"{seconds:f}"):
        expected = min(float(text), 300)
        assert asked(anthropic(429, headers={"retry-after": text})) == expected


@EVERY_TIME_THE_SAME
@given(
    st.integers(min_value=600_000_000, max_value=2_800_000_000),
    st.integers(min_value=1, max_value=299),
)
def test_a_date_is_as_far_away_as_the_server_means(epoch, seconds):
    """P2: whatever our own clock says."""
    day = datetime.fromtimestamp(epoch, UTC)
    headers = {"retry-after": in_seconds(seconds, day), "date": in_seconds(0, day)}
    assert asked(anthropic(429, headers=headers)) == seconds
