"""`streamguard report RUN`: a recorded run as an HTML page, or as an SVG.

Reads what a `Recorder` has left in the folder RUN, also while the run goes on or after it has
crashed, and changes nothing of it. The page is one file and asks for no other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from streamguard.errors import ConfigError
from streamguard.evidence.files import Folder
from streamguard.evidence.report import drawing, page, read_run

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def main(words: Sequence[str]) -> int:
    """The exit code: 0, 1 if the report cannot be written, 2 if there is no such run."""
    asked = _parser().parse_args(words)
    run = Path(asked.run)
    try:
        recorded = read_run(run)
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    except OSError as error:
        return _fail(f"{run} cannot be read: {error.strerror}", EXIT_FAILED)
    text = drawing(recorded) if asked.svg else page(recorded)
    if asked.output == "-":
        sys.stdout.buffer.write(text.encode())
        return EXIT_OK
    file = Path(asked.output or run / ("report.svg" if asked.svg else "report.html"))
    if not file.parent.is_dir():
        return _fail(
            f"{file.parent} is no folder: make it, or choose another -o FILE", EXIT_FAILED
        )
    try:
        Folder(file.parent).replace(file.name, text.encode())
    except OSError as error:
        why = f"{file} cannot be written: {error.strerror}; choose another place with -o FILE"
        return _fail(why, EXIT_FAILED)
    print(file)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="streamguard report",
        description="Draw a recorded run: what hung, since when, what was in flight, what was "
        "tried, what was left. Prints the name of the file.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder, as in Recorder(RUN)")
    parser.add_argument("--svg", action="store_true", help="a picture for mails and tickets")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write, - for stdout (default: report.html or report.svg in RUN)",
    )
    return parser


def _fail(why: str, code: int) -> int:
    print(f"streamguard report: {why}", file=sys.stderr)
    return code
