"""`streamguard demo`: an agent hangs, is caught, killed with its children, and resumed. Some 8 seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from streamguard.cli.parsers import Parser


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 1 if the demonstration did not come out as it should."""
    parser = Parser(
        prog="streamguard demo",
        description="See a hanging agent caught: it works, falls silent, is ended with all that it "
        "started, and its session goes on. Then a report is drawn. Nothing else is needed.",
    )
    parser.add_argument(
        "--dir", metavar="DIR", help="where the run is recorded (default: a temporary folder)"
    )
    asked = parser.parse_args(words)
    if asked.dir is None:
        folder = Path(tempfile.mkdtemp(prefix="streamguard-demo-"))
    else:
        folder = Path(asked.dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--dir {folder}: {error.strerror}")
    import anyio

    from streamguard.demo.show import show

    return anyio.run(show, folder)
