"""The inputs that the search has kept: `corpus/NAME.txt`, each a line, as Python writes bytes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("corpus")


def read(name: str) -> list[bytes]:
    file = _FOLDER / f"{name}.txt"
    return (
        [ast.literal_eval(line) for line in file.read_text().splitlines()] if file.exists() else []
    )


def write(name: str, inputs: Iterable[bytes]) -> None:
    _FOLDER.mkdir(exist_ok=True)
    lines = sorted({ascii(each) for each in inputs}, key=lambda line: (len(line), line))
    (_FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
