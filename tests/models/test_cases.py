"""What once failed on an explorer, on every loop: the schedules in `cases`."""

from __future__ import annotations

import pytest

from tests.models import explorer


@pytest.mark.parametrize(("subject", "schedule"), explorer.kept(explorer.subjects().values()))
def test_a_kept_case(subject, schedule, loop):
    assert not explorer.try_one(subject, loop.name, schedule)
