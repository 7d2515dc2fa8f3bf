"""What failed a moment ago, once more and alone: `python .ci/again.py`, in the folder whose .pytest_cache knows.

Tests with real processes share two cores with all else that CI does. One that fails in that crowd and passes alone is
named, and is no failure; one that fails alone is. What runs in virtual time has no such excuse, nor have many at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 5


def main() -> int:
    sys.path.insert(0, ".")
    from tests.conftest import is_real

    kept = Path(".pytest_cache/v/cache/lastfailed")
    failed = list(json.loads(kept.read_text())) if kept.exists() else []
    if not failed or len(failed) > MOST:
        return 1
    if excluded := [
        test for test in failed if not is_real(Path(test.partition("::")[0]).absolute())
    ]:
        print(f"again: not tried, since these need no real time: {' '.join(excluded)}")
        return 1
    print(f"again: once more, alone: {' '.join(failed)}")
    words = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, *failed],
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
