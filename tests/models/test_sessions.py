"""Sessions against a naive model, on random schedules.

A few seconds here; more as in `test_streams`.
"""

from __future__ import annotations

import pytest

from tests.models import explorer, sessions, tasks
from tests.models.test_streams import MORE, SCHEDULES, SEED

SUBJECTS = (*sessions.SUBJECTS, *tasks.SUBJECTS)

pytestmark = pytest.mark.timeout(3600 if MORE else 300)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=SCHEDULES)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == SCHEDULES
