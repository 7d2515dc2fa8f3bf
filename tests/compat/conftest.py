"""Processes live in real time: the fixtures are those of `tests/process`."""

from tests.process.conftest import backends, loop, warm

__all__ = ["backends", "loop", "warm"]
