"""Real command lines against the model server, in real time.

STREAMGUARD_REAL=1: what is missing is a failure; =0: all is skipped; else what is missing is skipped.
"""

from __future__ import annotations

import os

import pytest

from tests.loopback.server import ModelServer
from tests.process.backends import Backends
from tests.real.clis import CLIS, MissingError

_REAL = os.environ.get("STREAMGUARD_REAL", "")


def required(make):
    """`make()`; what is missing on this machine skips the test, or fails it if it must run."""
    if _REAL == "0":
        pytest.skip("STREAMGUARD_REAL=0")
    try:
        return make()
    except MissingError as missing:
        if _REAL == "1":
            pytest.fail(f"STREAMGUARD_REAL=1, but {missing}", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture
def server():
    """A CLI's requests without tools are its own business: titles, summaries, whether all is well."""
    with ModelServer(aside=lambda request: not request.offers_tools) as server:
        yield server


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.clear()


@pytest.fixture
def start_cli(server, backends, tmp_path):
    """Gives a CLI by its name, in a home of its own."""

    def start(name):
        home = tmp_path / name
        home.mkdir()
        return required(lambda: CLIS[name](server, home, backends.popen))

    return start


@pytest.fixture(params=CLIS)
def cli(request, start_cli):
    return start_cli(request.param)
