"""`streamguard report RUN`: a recorded run as an HTML page, or as an SVG.

Reads what a `Recorder` has left in the folder RUN, also while the run goes on or after it has
crashed, and changes nothing of it. The page is one file, asks for no other, and links to the run's records. For a folder of
runs: a page in each of them, and an index. With --fleet: the same of a fleet's log of timeouts, from its store.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from streamguard.cli.fleet import where
from streamguard.cli.parsers import Parser
from streamguard.errors import ConfigError, StoreError
from streamguard.evidence.files import Folder
from streamguard.evidence.report import (
    OURS,
    Entry,
    drawing,
    entry,
    index,
    page,
    read_run,
    runs_in,
)
from streamguard.evidence.report.wording import listed

_HOW_TO_RECORD: Final = "A run is recorded by `streamguard run --record DIR -- COMMAND`, or in a program by Recorder(DIR)."
EXIT_CODES: Final = (
    ("0", "the report is written"),
    ("1", "the run cannot be read, or the report cannot be written"),
    ("2", "wrong usage, or nothing is recorded there"),
)


def main(words: Sequence[str]) -> int:
    """The exit code: 0, 1 if the report cannot be read or written, 2 if there is no such run."""
    understood = parser()
    asked = understood.parse_args(words)
    try:
        if asked.fleet or asked.store is not None:
            return _report_fleet(asked)
        if asked.run is None:
            understood.error("which run? Name its folder, as in Recorder(RUN); or say --fleet")
        runs = runs_in(Path(asked.run))
        if runs and not asked.svg and asked.output is None:
            return _report_all(Path(asked.run), runs)
        return _report(Path(asked.run), asked)
    except StoreError as error:
        return _fail(str(error), EXIT_USAGE)
    except ConfigError as error:
        code = _fail(str(error), EXIT_USAGE)
        if asked.run is not None and not asked.fleet and asked.store is None:
            print(_HOW_TO_RECORD, file=sys.stderr)
        return code
    except OSError as error:
        named = error.filename or asked.run or asked.output or ""
        why = f"{named}: {error.strerror}; another place may do: -o FILE"
        return _fail(why, EXIT_FAILED)


def _report(run: Path, asked: argparse.Namespace) -> int:
    recorded = read_run(run)
    own = run / ("report.svg" if asked.svg else "report.html")
    if asked.svg:
        return _put(drawing(recorded), asked.output, own)
    if (file := _file_of(asked.output, own)) is None:
        return _put(page(recorded, absolute_links=True), asked.output, own)
    return _put(page(recorded, file), asked.output, own)


def _file_of(output: str | None, otherwise: Path) -> Path | None:
    """The file that it will be; None where that is stdout, or another device."""
    if output is None:
        return otherwise
    file = Path(output).absolute()
    if output == "-" or str(file).startswith(_DEVICES):
        return None
    return file.resolve() if file.is_symlink() else file


def _report_fleet(asked: argparse.Namespace) -> int:
    from streamguard.cli.fleet import reporting

    told = reporting.fleet_report(asked.run, asked.store)
    text = told.drawing() if asked.svg else told.page()
    file = Path("fleet-report.svg" if asked.svg else "fleet-report.html")
    return _put(text, asked.output, file)


_DEVICES = ("/dev/", "/proc/")  # as root they could be replaced


def _put(text: str, output: str | None, otherwise: Path) -> int:
    """Write a report where it is wanted."""
    if output == "-":
        sys.stdout.buffer.write(text.encode())
        return EXIT_OK
    if output is None:
        _write(otherwise, text)
        return EXIT_OK
    file = Path(output).absolute()
    if str(file).startswith(_DEVICES):
        with file.open("ab") as opened:
            opened.write(text.encode())
        return EXIT_OK
    file = file.resolve() if file.is_symlink() else Path(output)
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder, and no file", str(file))
    if not file.parent.is_dir():
        return _fail(
            f"{file.parent} is no folder: make it, or choose another -o FILE", EXIT_FAILED
        )
    _write(file, text)
    return EXIT_OK


def _report_all(folder: Path, runs: list[Path]) -> int:
    """A report in each run, and an index of them in the folder; says which files it has written.

    What somebody else has put there under such a name stays, and a page that says the same already does, too.
    """
    files = [folder / "index.html", *(run / "report.html" for run in runs)]
    if others := [file for file in files if not _is_ours(file)]:
        names = listed([str(file) for file in others])
        why = (
            f"{names}: not written by streamguard, so nothing was replaced. Move it, or draw one run "
            "with -o FILE"
        )
        return _fail(why, EXIT_FAILED)
    entries: list[Entry] = []
    pages: list[tuple[Path, str]] = []
    for run in runs:
        recorded = read_run(run)
        pages.append((run / "report.html", page(recorded)))
        entries.append(entry(recorded, f"{run.name}/report.html"))
    _write(folder / "index.html", index(folder.resolve().name, entries))
    for file, text in pages:
        if _said_in(file) != text.encode():
            _write(file, text)
    return EXIT_OK


def _is_ours(file: Path) -> bool:
    said = _said_in(file)
    return not said or OURS.encode() in said


def _said_in(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _write(file: Path, text: str) -> None:
    Folder(file.parent, is_anybodys=True).replace(file.name, text.encode())
    if sys.stdout.isatty():
        print(quoted(file))
    else:  # a program reads it
        sys.stdout.buffer.write(os.fsencode(file) + b"\n")
        sys.stdout.buffer.flush()


def parser() -> Parser:
    """The words that it understands."""
    made = Parser(
        prog="streamguard report",
        description="Draw a recorded run as one HTML page: what hung, since when, what was in flight, what was tried, "
        "what is left and what to do next. Prints the name of each file that it writes.",
        epilog=_HOW_TO_RECORD,
        exit_codes=EXIT_CODES,
    )
    made.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="the folder of a run, or of several runs: a page in each of them, and an index. With --fleet: a file of lines that "
        "`streamguard fleet log --json` has written, or - for standard input [ask the store]",
    )
    made.add_argument("--svg", action="store_true", help="a picture, for mails and tickets")
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write, or - for standard output [report.html or report.svg in RUN; of a fleet, "
        "fleet-report.html in this folder]",
    )
    made.add_argument(
        "--fleet", action="store_true", help="draw a fleet's log of timeouts instead of a run"
    )
    where.add_option(made)
    return made


def _fail(why: str, code: int) -> int:
    print(f"streamguard report: {quoted(why)}", file=sys.stderr)
    return code
