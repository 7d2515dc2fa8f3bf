"""Commands run as they do for `tests/runner`."""

from tests.runner.conftest import commands

__all__ = ["commands"]
