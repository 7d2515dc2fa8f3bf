"""Our own end by SIGKILL, whenever it comes, leaves nobody behind (D7); `python -m tests.runner.killed`."""

from __future__ import annotations

import pytest

from tests.runner.killed import kill_many
from tests.sizes import size

pytestmark = pytest.mark.timeout(size(dev=300, ci=1800))


def test_killed_in_the_commands_first_second_nobody_survives():
    count = kill_many(size(dev=30, ci=50), seed="ci")
    assert not count.survived, str(count)


def test_without_anybody_of_ours_left_the_same_count_finds_survivors():
    """The control: whoever `run` has forked is killed at the same instant."""
    assert kill_many(8, seed="control", is_control=True).survived
