"""Real command lines against the model server, in real time.

STREAMGUARD_REAL=1 runs them all, and what is missing is a failure; 0 skips them all. Else they run where they can,
on one Python: it makes no difference to a command line, and minutes to CI.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.loopback.server import ModelServer
from tests.process.backends import Backends
from tests.real.clis import CLIS, MissingError

_PYTHON = (3, 11)
_REAL = os.environ.get("STREAMGUARD_REAL", "")


def required(make):
    """`make()`; what is missing on this machine skips the test, or fails it if it must run."""
    if _REAL == "0":
        pytest.skip("STREAMGUARD_REAL=0")
    if _REAL != "1" and sys.version_info[:2] != _PYTHON:
        pytest.skip("command lines run on Python {}.{} only: STREAMGUARD_REAL=1".format(*_PYTHON))
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
