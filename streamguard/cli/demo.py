"""`streamguard demo`: an agent hangs, is caught, ended with all that it started, and resumed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streamguard.cli.parsers import Parser

EXIT_CODES: Final = (
    ("0", "the agent was caught, ended and resumed"),
    ("1", "it did not come out as it should"),
    ("2", "wrong usage"),
)


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 1 if the demonstration did not come out as it should."""
    understood = parser()
    asked = understood.parse_args(words)
    if asked.dir is None:
        folder = Path(tempfile.mkdtemp(prefix="streamguard-demo-"))
    else:
        folder = Path(asked.dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            understood.error(f"--dir {folder}: {error.strerror}")
    import anyio

    from streamguard.demo.show import show

    return anyio.run(show, folder)


def parser() -> Parser:
    """The words that it understands."""
    made = Parser(
        prog="streamguard demo",
        description="Watch a hanging agent be caught, in about 10 seconds. It works, falls silent, is ended with all "
        "that it started, and its session goes on. Then a report is drawn. It needs no account, no network and no "
        "configuration.",
        exit_codes=EXIT_CODES,
    )
    made.add_argument(
        "--dir", metavar="DIR", help="where the run is recorded, and stays [a temporary folder]"
    )
    return made
