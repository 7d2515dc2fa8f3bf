"""The search of one target, in a process of its own: `python -m tests.fuzzing.search NAME SECONDS`.

Of what it imports, this package's and the library's modules are made to tell which of their lines run.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["streamguard", "tests.fuzzing.targets"]):
    from tests.fuzzing.corpus_files import CORPUS
    from tests.fuzzing.seeds import SEEDS
    from tests.fuzzing.targets import TARGETS

_LARGEST: Final = 2048  # bytes, of an input
_SLOW: Final = 20  # seconds that one may take


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    home = CORPUS / name
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as seeds:
        for seed in SEEDS[name]:
            Path(seeds, hashlib.sha256(seed).hexdigest()).write_bytes(seed)
        words = [f"-max_total_time={max(1, round(seconds))}", f"-max_len={_LARGEST}"]
        words += [f"-timeout={_SLOW}", f"-artifact_prefix={home}/failed-"]
        atheris.Setup([sys.argv[0], *words, str(home), seeds], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
