"""Every form against its naive model, on random schedules.

A few seconds here. `STREAMGUARD_EXPLORE=minutes` takes some minutes, and `python -m tests.models` as long,
and with as many seeds, as one likes.
"""

from __future__ import annotations

import os

import pytest

from tests.models import explorer

MORE = os.environ.get("STREAMGUARD_EXPLORE") == "minutes"
SCHEDULES = 1_000 if MORE else 300
SEED = "ci" if MORE else "1"  # always the same: what a new seed finds must not fail a build

pytestmark = pytest.mark.timeout(3600 if MORE else 300)


@pytest.mark.parametrize("subject", explorer.subjects().values(), ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    # An outage has many sessions and may last a day.
    schedules = SCHEDULES // 10 if subject.name == "outage" else SCHEDULES
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=schedules)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == schedules
