"""`streamguard.testing` promises its names once, and imports nothing until one is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamguard import testing


def test_every_promised_name_is_there_and_at_home_where_it_is_said_to_be():
    for name in testing.__all__:
        assert getattr(testing, name).__module__.startswith("streamguard.testing.")
    assert set(testing.__all__) <= set(dir(testing))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Scrpit'"):
        testing.Scrpit  # noqa: B018 - the access is the act


def test_importing_the_package_imports_no_event_loop():
    code = "import sys, streamguard.testing; assert not {'anyio', 'asyncio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
