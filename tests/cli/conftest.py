"""Commands run as they do for `tests/runner`, and stores as for `tests/fleet`."""

from tests.fleet.conftest import server
from tests.runner.conftest import commands

__all__ = ["commands", "server"]
