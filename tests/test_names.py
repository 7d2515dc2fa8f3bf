"""`streamguard` promises its names once, and imports nothing until one is used."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import streamguard


def test_every_promised_name_is_there_and_at_home_where_it_is_said_to_be():
    """O1: what others type is one list, sorted, and each name comes from one module."""
    assert sorted(streamguard.__all__) == list(streamguard.__all__)
    at_home = [(name, home) for home, names in streamguard._HOMES.items() for name in names]
    assert sorted([name for name, _ in at_home] + ["__version__"]) == streamguard.__all__
    for name, home in at_home:
        assert getattr(streamguard, name).__module__ == f"streamguard.{home}"
    assert set(streamguard.__all__) == set(dir(streamguard))


def test_no_module_hides_a_public_name():
    """O1: importing a module sets it as an attribute of the package, over a name that is alike."""
    modules = {module.name for module in pkgutil.iter_modules(streamguard.__path__)}
    assert not modules & set(streamguard.__all__)


def test_an_unknown_name_is_an_attribute_error():
    """O1: a name that is misspelt is said to be unknown, as for any module."""
    with pytest.raises(AttributeError, match="no attribute 'idle_gaurd'"):
        streamguard.idle_gaurd  # noqa: B018 - the access is the act


def test_importing_the_package_imports_no_event_loop():
    """Cost: who imports the library for one name pays for that name."""
    code = "import sys, streamguard; assert not {'anyio', 'asyncio', 'trio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
