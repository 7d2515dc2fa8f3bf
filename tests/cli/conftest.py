"""Commands run as they do for `tests/runner`, and stores as for `tests/fleet`."""

from tests.fleet.conftest import server, temporal, temporal_servers
from tests.runner.conftest import commands

__all__ = ["commands", "server", "temporal", "temporal_servers"]
