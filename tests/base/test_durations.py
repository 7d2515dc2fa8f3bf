"""One grammar of durations: in code, files, the environment and flags."""

from __future__ import annotations

import math
import sys
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamguard import ConfigError
from streamguard._base import durations
from streamguard._base.numbers import is_off, limit, limit_or_default, seconds, wait, waits
from tests.sizes import size

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("500ms", 0.5)],
        *[("1h30m", 5400), ("1h 30m", 5400), ("1d2h3m4s5ms", 93784.005), ("1m0.5s", 60.5)],
        *[(" 5 m ", 300), ("250 ms", 0.25), (".5s", 0.5), ("1e-3d", 86.4), ("0x10", 16)],
        *[("0", 0), ("0s", 0), ("0h0m", 0), ("+5", 5), ("1001ms", 1.001)],
    ],
)
def test_what_a_text_says(text, expected):
    assert durations.parsed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "m", "ms", "soon", "off", "nan", "-5", "-5m", "-5ms", "1_000", "1,5", "15M"],
        *["15 min", "30m1h", "1h1h", "1h30", "1.5.5s", "5 5", "5mms", "1h-30m", "٣", "1h٣m"],
    ],
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError):
        durations.parsed(text)


@given(st.floats(min_value=0, allow_nan=False))
@settings(max_examples=size(dev=100, ci=1000), deadline=None)
def test_what_is_written_of_a_number_says_that_number(value):
    assert durations.parsed(durations.typed(value)) == value


@given(st.integers(min_value=0, max_value=10**12))
@settings(max_examples=size(dev=100, ci=1000), deadline=None)
def test_whole_minutes_are_written_with_a_unit(minutes):
    text = durations.typed(minutes * 60.0)
    assert durations.has_unit(text) == bool(minutes)
    assert durations.parsed(text) == minutes * 60


@given(st.lists(st.integers(min_value=0, max_value=10**6), min_size=5, max_size=5), st.data())
@settings(max_examples=size(dev=100, ci=1000), deadline=None)
def test_a_sum_is_the_sum_of_its_parts(numbers, data):
    parts = [
        (number, unit)
        for number, unit in zip(numbers, UNITS, strict=True)
        if data.draw(st.booleans())
    ]
    text = data.draw(st.sampled_from(["", " "])).join(f"{number}{unit}" for number, unit in parts)
    if parts:
        expected = sum(number * UNITS[unit] for number, unit in parts)
        assert durations.parsed(text) == pytest.approx(expected)
        assert durations.meant(text) is not None


@given(st.text(alphabet="0123456789.-+ dhmsexp,MPTin", max_size=12))
@settings(max_examples=size(dev=200, ci=5000), deadline=None)
def test_any_text_is_seconds_or_refused_alike_by_all(text):
    try:
        expected = durations.parsed(text)
    except ValueError:
        expected = None
    else:
        assert expected >= 0
    if expected is None or expected == 0 or expected > sys.float_info.max:
        with pytest.raises(ConfigError, match="idle="):
            seconds(text, "idle")
    else:
        assert limit(text, "idle") == seconds(text, "idle") == wait(text, "idle") == expected
    if (better := durations.meant(text)) is not None:
        assert durations.parsed(better) >= 0


@given(st.text(max_size=10))
@settings(max_examples=size(dev=50, ci=500), deadline=None)
def test_nothing_else_is_raised_for_any_text(text):
    for check in (limit, limit_or_default, seconds, wait, waits):
        refused = None
        try:
            check(text, "idle")
        except ConfigError as error:
            refused = str(error)
        assert refused is None or refused.startswith(f"idle={text!r}: ")


@pytest.mark.parametrize(
    ("written", "better"),
    [
        *[("15 min", "15m"), ("15min", "15m"), ("15 Minutes", "15m"), ("15M", "15m")],
        *[("90 sec", "90s"), ("2 hours and 5 minutes", "2h5m"), ("1,5 h", "1.5h")],
        *[("PT15M", "15m"), ("500 millis", "500ms"), ("1 day", "1d"), ("soon", None)],
        *[("15", None), ("5 parsecs", None), ("", None), ("30m1h", None)],
    ],
)
def test_what_people_write_otherwise(written, better):
    assert durations.meant(written) == better


# -- what 0 means ------------------------------------------------------------------------------------

ZEROS = [0, 0.0, -0.0, timedelta(0), "0", "0s", "0 ms", "0h0m"]


@pytest.mark.parametrize("zero", [*ZEROS, None, "off", "OFF", "none"])
def test_zero_of_a_limit_is_off(zero):
    assert is_off(zero)
    assert limit(zero, "idle") is None
    if zero is not None:
        for check in (seconds, limit_or_default):
            with pytest.raises(ConfigError, match=r"ttl=.*: it cannot be off; use a positive"):
                check(zero, "ttl")


@pytest.mark.parametrize("zero", ZEROS)
def test_zero_of_a_wait_is_at_once(zero):
    assert wait(zero, "backoff") == 0
    assert waits(zero, "backoff") == (0,)
    assert waits([zero, "1s"], "backoff") == (0, 1)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, 10**400, timedelta(-1)])
def test_nonsense_is_neither(value):
    assert not is_off(value)
    for check in (limit, limit_or_default, seconds, wait, waits):
        with pytest.raises(ConfigError, match=r"^knob="):
            check(value, "knob")


@pytest.mark.parametrize("value", [True, False, [1], b"5s", object()])
def test_what_is_no_number_is_no_zero_either(value):
    assert not is_off(value)
    for check in (limit, limit_or_default, seconds, wait):
        with pytest.raises(ConfigError, match="use seconds, a timedelta, or a text"):
            check(value, "knob")
