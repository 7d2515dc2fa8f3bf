"""Sessions against a naive model, on random schedules.

A few seconds here; more as in `test_streams`.
"""

from __future__ import annotations

import pytest

from tests.models import explorer, sessions, tasks
from tests.models.test_streams import MORE, SCHEDULES, SEED

SUBJECTS = (*sessions.SUBJECTS, *tasks.SUBJECTS)
CASES = [(subject, case) for subject in SUBJECTS for case in explorer.kept(subject.name)]

pytestmark = pytest.mark.timeout(3600 if MORE else 300)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=SCHEDULES)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == SCHEDULES


@pytest.mark.parametrize(
    ("subject", "case"), CASES, ids=lambda part: getattr(part, "name", part[0])
)
def test_kept_cases(subject, case, loop):
    """What once failed, on every loop."""
    _, schedule, _ = case
    assert not explorer.try_one(subject, loop.name, schedule)
