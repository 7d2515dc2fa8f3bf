"""Search for bytes that break what reads them, guided by what they run.

    python -m tests.fuzzing all --for 10m            # each target in turn, its share of the time
    python -m tests.fuzzing readers --for 1h
    python -m tests.fuzzing readers --again FILE     # one input once more

It begins with tests/fuzzing/seeds.py and the corpus, and keeps there what ran something new, as small as it gets.
What fails is kept, too, and the target is named; the exit code is 1 then. Needs atheris: pip install -e '.[fuzz]'.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from streamguard._base import durations
from tests.fuzzing.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzzing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", choices=("all", *TARGETS))
    parser.add_argument("--for", dest="seconds", type=durations.parsed, default=60.0)
    parser.add_argument("--again", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.again is not None:
        TARGETS[options.target](options.again.read_bytes())
        return 0
    names = list(TARGETS) if options.target == "all" else [options.target]
    return max(_in_a_process_of_its_own(name, options.seconds / len(names)) for name in names)


def _in_a_process_of_its_own(name: str, seconds: float) -> int:
    """The search ends its process: with 0, or with what it has found."""
    words = [sys.executable, "-m", "tests.fuzzing.search", name, str(seconds)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
    print(f"{name}: {runs[-1] if runs else done.stderr[-3000:]}", flush=True)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main())
