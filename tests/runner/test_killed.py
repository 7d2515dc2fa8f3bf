"""Our own end by SIGKILL, whenever it comes, leaves nobody behind (D7); `python -m tests.runner.killed`."""

from __future__ import annotations

import os

import pytest

from tests.runner.killed import kill_many

MORE = os.environ.get("STREAMGUARD_EXPLORE") == "minutes"

pytestmark = pytest.mark.timeout(1800 if MORE else 300)


def test_killed_in_the_commands_first_second_nobody_survives():
    count = kill_many(80 if MORE else 30, seed="ci")
    assert not count.survived, str(count)


def test_without_anybody_of_ours_left_the_same_count_finds_survivors():
    """The control: whoever `run` has forked is killed at the same instant."""
    assert kill_many(8, seed="control", is_control=True).survived
