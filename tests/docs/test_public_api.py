"""What users rely on changes on purpose: the public names and their signatures are written down.

If this fails: `python -m tests.docs.public_api` writes the file anew. A line that goes away takes a deprecation first, and
a line in CHANGELOG.md: see docs/reference/stability.md.
"""

from __future__ import annotations

from tests.docs import public_api


def test_the_public_api_is_as_it_is_written_down():
    assert public_api.differences() == []


def test_it_has_functions_classes_members_and_no_addresses():
    text = public_api.text()
    assert "\nstreamguard.idle_guard(" in f"\n{text}"
    assert "\nclass streamguard.IdleTimeoutError(" in text
    assert "\n    verdict" in text
    assert " at 0x" not in text
