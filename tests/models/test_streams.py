"""Guarded streams in all their forms, against a naive model, on random schedules.

A few seconds here. `STREAMGUARD_EXPLORE=minutes` takes some minutes, and `python -m tests.models` as long,
and with as many seeds, as one likes.
"""

from __future__ import annotations

import os

import pytest

from tests.models import explorer
from tests.models.streams import SUBJECTS

MORE = os.environ.get("STREAMGUARD_EXPLORE") == "minutes"
SCHEDULES = 3_000 if MORE else 300
SEED = "ci" if MORE else "1"  # always the same: what a new seed finds must not fail a build

pytestmark = pytest.mark.timeout(3600 if MORE else 300)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=SCHEDULES)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == SCHEDULES
