"""Commands under `streamguard run` are those of `tests/run`."""

from tests.run.conftest import commands

__all__ = ["commands"]
