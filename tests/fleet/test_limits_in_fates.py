"""F5, P2: what becomes of a session whose handler raises a usage limit."""

from __future__ import annotations

import pytest

from streamguard import RetryPolicy
from streamguard.fleet.fates import Back, Parked, fate_of
from tests.retry.shapes import anthropic

HOUR = 3600.0
LIMIT = anthropic(429, headers={"retry-after": "7200"})


def fate(error, wait, **more):
    policy = RetryPolicy(random=lambda: 0.0, wait_for_limit=wait)
    known = {"owner": "worker", "is_gone": True, "fruitless": 1, "limit": 3, **more}
    return fate_of(error, policy, **known)


def test_it_is_given_back_until_the_limit_is_over():
    """F5: and that counts nothing, however often it was so before."""
    for fruitless in (1, 3, 9):
        back = fate(LIMIT, 6 * HOUR, fruitless=fruitless)
        assert isinstance(back, Back)
        assert (round(back.delay), back.counts) == (7200, False)
        assert back.why.endswith("usage limit")


@pytest.mark.parametrize("wait", [None, HOUR])
def test_without_the_word_it_is_a_rate_limit_as_any_other(wait):
    """F5, P2: the default, and one that lasts longer than is waited for."""
    back = fate(LIMIT, wait)
    assert isinstance(back, Back)
    assert (back.delay, back.counts) == (300, True)
    assert isinstance(fate(LIMIT, wait, fruitless=3), Parked)


def test_a_backend_that_may_be_alive_goes_before():
    """F4"""
    assert isinstance(fate(LIMIT, 6 * HOUR, is_gone=False), Parked)
