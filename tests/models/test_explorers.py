"""Every form against its naive model, on random schedules.

`python -m tests.models` takes as long, and as many seeds, as one likes.
"""

from __future__ import annotations

import pytest

from tests.models import explorer
from tests.sizes import size

SCHEDULES = size(dev=30, ci=200)
SEED = size(dev="1", ci="ci")  # always the same: what a new seed finds must not fail a build

pytestmark = pytest.mark.timeout(size(dev=300, ci=3600))


@pytest.mark.parametrize("subject", explorer.subjects().values(), ids=lambda subject: subject.name)
def test_random_schedules(subject, loop):
    # An outage has many sessions and may last a day; a fleet has many workers.
    schedules = SCHEDULES // 10 if subject.name in {"outage", "fleet"} else SCHEDULES
    tally = explorer.explore(subject, loop.name, seed=SEED, schedules=schedules)
    assert not tally.mismatches, "\n\n".join(map(str, tally.mismatches))
    assert tally.seen == schedules
