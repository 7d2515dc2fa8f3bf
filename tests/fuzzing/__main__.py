"""Search for bytes that break what reads them, guided by what they run.

    python -m tests.fuzzing all --for 10m            # each target in turn, its share of the time
    python -m tests.fuzzing readers --for 1h
    python -m tests.fuzzing readers --again 'b"..."' # one input once more

It begins with tests/fuzzing/seeds.py and the corpus, and keeps there the fewest inputs that run as much. One that fails
is shown, and kept, too; the exit code is 1 then. Needs atheris: pip install -e '.[fuzz]'.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from streamguard._base import durations
from tests.fuzzing import corpus_files
from tests.fuzzing.seeds import SEEDS
from tests.fuzzing.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzzing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", choices=("all", *TARGETS))
    parser.add_argument(
        "--for", dest="seconds", type=durations.parsed, default=60.0, metavar="TIME"
    )
    parser.add_argument("--again", type=ast.literal_eval, metavar="BYTES")
    options = parser.parse_args()
    if options.again is not None:
        TARGETS[options.target](options.again)
        return 0
    names = list(TARGETS) if options.target == "all" else [options.target]
    return max([_search(name, max(1, round(options.seconds / len(names)))) for name in names])


def _search(name: str, seconds: int) -> int:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for each in ("old", "new", "few"):
            (folder / each).mkdir()
        for seed in (*SEEDS[name], *corpus_files.read(name)):
            (folder / "old" / hashlib.sha256(seed).hexdigest()).write_bytes(seed)
        said = _in_a_process_of_its_own(name, str(seconds), place)
        runs = [line for line in said.splitlines() if line.startswith("Done ")]
        failed = [file.read_bytes() for file in folder.glob("failed-*")]
        print(f"{name}: {runs[-1] if runs else said[-2000:]}", flush=True)
        for each in failed:
            print(f"  failed: python -m tests.fuzzing {name} --again {ascii(each)!r}")
        _in_a_process_of_its_own(name, "0", place, "--merge")
        corpus_files.write(
            name, [*failed, *(file.read_bytes() for file in (folder / "few").iterdir())]
        )
    return 1 if failed or not runs else 0


def _in_a_process_of_its_own(*words: str) -> str:
    """The search ends its process. What it has said."""
    command = [sys.executable, "-m", "tests.fuzzing.search", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, errors="replace", check=False)
    return done.stderr


if __name__ == "__main__":
    sys.exit(main())
