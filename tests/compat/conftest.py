"""Processes live in real time: the fixtures are those of `tests/process`."""

import pytest

from tests.process.conftest import backends, loop, warm

__all__ = ["anyio_backend", "backends", "loop", "warm"]


def pytest_configure(config):
    """The marks of the program whose tests `test_seed_001` are."""
    for mark in ("unit", "integration"):
        config.addinivalue_line("markers", f"{mark}: as the seed has it")


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request):
    """The loops of asyncio, for tests that know no other."""
    return request.param
