"""The search of one target, in a process of its own: `python -m tests.fuzzing.search NAME SECONDS FOLDER [--merge]`.

FOLDER has what there is to begin with in `old`; what ran something new goes to `new`, and with --merge the fewest of
all that run as much to `few`. Of what this imports, the library's modules are made to tell which of their lines run.
"""

from __future__ import annotations

import sys
from typing import Final

import atheris

with atheris.instrument_imports(include=["streamguard", "tests.fuzzing.targets"]):
    from tests.fuzzing.targets import TARGETS

_LARGEST: Final = 2048  # bytes, of an input
_SLOW: Final = 20  # seconds that one may take


def main() -> None:
    name, seconds, folder, *merge = sys.argv[1:]
    words = [f"-max_len={_LARGEST}", f"-timeout={_SLOW}", f"-artifact_prefix={folder}/failed-"]
    if merge:
        words += ["-merge=1", f"{folder}/few", f"{folder}/new", f"{folder}/old"]
    else:
        words += [f"-max_total_time={seconds}", f"{folder}/new", f"{folder}/old"]
    atheris.Setup([sys.argv[0], *words], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
