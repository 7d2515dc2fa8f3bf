"""The breaker with stores in trouble and through outages, on random schedules.

A few seconds here; more as in `test_streams`.
"""

from __future__ import annotations

import pytest

from tests.models import explorer
from tests.models.breakers import SUBJECTS
from tests.models.test_streams import MORE, SCHEDULES, SEED

pytestmark = pytest.mark.timeout(3600 if MORE else 300)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    # An outage has many sessions and may last a day.
    schedules = SCHEDULES // 10 if subject.name == "outage" else SCHEDULES
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=schedules)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == schedules
