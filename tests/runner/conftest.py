"""Commands under `streamguard run` and `streamguard timeout`, in processes of their own."""

from __future__ import annotations

import pytest

from tests.process.backends import Backends, open_fds
from tests.runner.commands import Commands


@pytest.fixture
def commands(tmp_path):
    """What one test starts. It must leave no descriptor open; what it leaves alive is ended."""
    before = open_fds()
    backends = Backends()
    yield Commands(backends, tmp_path)
    backends.clear()
    assert open_fds() <= before
