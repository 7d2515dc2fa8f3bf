"""The pages of the reference that are made of the code: `python -m tests.docs.make` writes them anew.

Each maker imports what the code itself uses, and gives pages by their path below docs/reference. A test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.docs import api_pages, code_tables, file_formats

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
MAKERS: tuple[Callable[[], Mapping[str, str]], ...] = (
    api_pages.pages,
    code_tables.pages,
    file_formats.pages,
)


def pages() -> dict[str, str]:
    return {path: text for maker in MAKERS for path, text in maker().items()}


def differences() -> Iterator[str]:
    made = pages()
    for path, text in made.items():
        file = FOLDER / path
        if not file.exists() or file.read_text("utf-8") != text:
            yield path
    for file in (FOLDER / "api").glob("*.md"):
        path = file.relative_to(FOLDER).as_posix()
        if path not in made:
            yield path


def main() -> None:
    made = pages()
    for path in [*differences()]:
        file = FOLDER / path
        if path in made:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(made[path], "utf-8")
        else:
            file.unlink()
        sys.stdout.write(f"{file.relative_to(FOLDER.parents[1])}\n")


if __name__ == "__main__":
    main()
