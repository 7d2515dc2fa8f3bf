"""aiostream's own tests of `timeout` hold for `idle_timeout` (O3); see `conformance`."""

from __future__ import annotations

import pytest

from tests.interop import conformance


def test_what_aiostream_tests_of_its_timeout_holds_for_ours(tmp_path):
    """O3: iterated and awaited, at exact times, with one wakeup, everything closed, no warning."""
    try:
        done = conformance.run(tmp_path)
    except conformance.Unavailable as reason:
        pytest.skip(f"aiostream's own tests are fetched from the package index: {reason}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * len(conformance.NODES)} passed" in done.stdout
