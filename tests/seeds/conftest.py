"""Commands under `streamguard run` are those of `tests/runner`."""

from tests.runner.conftest import commands

__all__ = ["commands"]
