"""`streamguard` promises its names once, and imports nothing until one is used."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import FunctionType

import pytest

import streamguard
from streamguard import errors, types

MODULES = {module.name for module in pkgutil.iter_modules(streamguard.__path__)}
# What is no module for who uses the library, but a part of the command or of its own machinery.
OF_THE_COMMAND = {"cli", "demo", "runner"}
AT_HOME_IN_THE_PACKAGE = {"operators", "single_call"}  # what they have is in `streamguard` itself
OLD = {
    "DeadlineExceededError": "TotalTimeoutError",
    "derived_idle": "idle_for_total",
    "live": "live_streams",
    "publishing": "publish_to_top",
}


@pytest.mark.parametrize("package", [streamguard, types])
def test_every_promised_name_is_there_and_at_home_where_it_is_said_to_be(package):
    """O1: what others type is one list, sorted, and each name comes from one module."""
    assert sorted(package.__all__) == list(package.__all__)
    at_home = [(name, home) for home, names in package._HOMES.items() for name in names]
    assert len(dict(at_home)) == len(at_home)
    assert set(package.__all__) <= {*dict(at_home), "__version__"}
    for name, home in at_home:
        found = getattr(package, name)
        if isinstance(found, type | FunctionType):
            assert found.__module__ == f"streamguard.{home}"


def test_what_is_left_out_of_the_list_is_a_type_or_an_old_name():
    """Which go on working, for checkers too (tests/typing)."""
    named = {name for names in streamguard._HOMES.values() for name in names}
    assert named - set(streamguard.__all__) - set(types.__all__) == set(OLD)
    for old, name in OLD.items():
        assert getattr(streamguard, old) is getattr(streamguard, name)
    for name in named & set(types.__all__):
        assert getattr(streamguard, name) is getattr(types, name)


def test_dir_is_short_enough_to_read():
    shown = dir(streamguard)
    assert len(shown) <= 45
    assert set(shown) <= {*streamguard.__all__, *streamguard._MODULES}


def test_each_public_module_is_an_attribute():
    """`import streamguard; streamguard.retry.decide`: nobody has to import the module first."""
    public = {name for name in MODULES if not name.startswith("_")}
    assert set(streamguard._MODULES) == public - OF_THE_COMMAND - AT_HOME_IN_THE_PACKAGE
    for name in streamguard._MODULES:
        assert streamguard.__getattr__(name) is sys.modules[f"streamguard.{name}"]


def test_errors_are_called_as_their_knobs():
    for knob in ("idle", "first", "liveness", "tools", "turn", "total"):
        name = errors.ERRORS[knob].__name__
        assert name.endswith("TimeoutError")
        assert name.lower().startswith(knob.removesuffix("s"))


def test_no_module_hides_a_public_name():
    """O1: importing a module sets it as an attribute of the package, over a name that is alike."""
    assert not MODULES & {name for names in streamguard._HOMES.values() for name in names}


def test_an_unknown_name_is_an_attribute_error():
    """O1: a name that is misspelt is said to be unknown, as for any module."""
    with pytest.raises(AttributeError, match="no attribute 'idle_gaurd'"):
        streamguard.idle_gaurd  # noqa: B018 - the access is the act


def test_importing_the_package_imports_no_event_loop():
    """Cost: who imports the library for one name pays for that name."""
    code = "import sys, streamguard; assert not {'anyio', 'asyncio', 'trio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
