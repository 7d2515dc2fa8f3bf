"""The API types as users write it: `tests/typing/*.py` under mypy and pyright, both strict (O3).

A line that must not type carries an ignore for each checker. Both report an ignore that is not
needed, so such a line fails here as soon as either checker accepts it. The checkers look at the
code as Python 3.11 does, whatever runs them (`python_version` in pyproject.toml).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKERS = {
    "mypy": ["mypy", "tests/typing"],
    "pyright": ["pyright", "--pythonpath", sys.executable, "tests/typing"],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_users_write_types_and_what_they_must_not_write_does_not(checker):
    pytest.importorskip(checker)
    done = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
