"""`streamguard healthy`: whether a run is, by the file that its `--heartbeat` renews. For probes."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Final

from streamguard._base import defaults
from streamguard._base.durations import parsed, typed
from streamguard._base.quoting import name
from streamguard.cli import EXIT_FAILED, EXIT_OK
from streamguard.cli.helping import with_unit
from streamguard.cli.parsers import Parser

EXIT_CODES: Final = (
    ("0", "healthy: FILE was renewed lately"),
    ("1", "not healthy: FILE is too old, or not there"),
    ("2", "wrong usage"),
)


def main(words: Sequence[str]) -> int:
    """The exit code: 0 if the file was renewed lately, else 1; and one line that says why."""
    asked = parser().parse_args(words)
    is_well, why = judged(asked.file, asked.within)
    print(f"{'healthy' if is_well else 'not healthy'}: {why}")
    return EXIT_OK if is_well else EXIT_FAILED


def judged(path: str, within: float) -> tuple[bool, str]:
    """Whether the file was renewed within so many seconds, and what is to be said of it."""
    shown = name(path)
    try:
        # A clock that was set back makes no file old: it is renewed soon, by the new time.
        age = abs(time.time() - os.stat(path).st_mtime)
    except FileNotFoundError:
        return False, f"{shown} is not there: the run has not begun, or is over"
    except (OSError, ValueError) as error:
        return False, f"{shown}: {getattr(error, 'strerror', None) or error}"
    if age < within:
        return True, f"{shown} was renewed {age:.0f} s ago"
    return False, f"{shown} was last renewed {age:.0f} s ago, and {typed(within)} is the most"


def _within(text: str) -> float:
    try:
        within = parsed(text)
    except ValueError:
        within = 0.0
    if within <= 0:
        raise argparse.ArgumentTypeError(
            f"use a duration such as 60, 1.5m or 2h, not {name(text)}"
        )
    return within


def parser() -> Parser:
    """The words that it understands."""
    made = Parser(
        prog="streamguard healthy",
        description="Say whether `streamguard run --heartbeat FILE` is well, for probes and monitors. The run renews "
        f"FILE every {with_unit(defaults.HEARTBEAT)}, unless it should have ended by now and has not.",
        epilog="Where streamguard is not installed: "
        "test $(( $(date +%s) - $(stat -c %Y FILE) )) -lt 60",
        exit_codes=EXIT_CODES,
    )
    made.add_argument("file", metavar="FILE", help="the file that --heartbeat names")
    made.add_argument(
        "--within",
        metavar="DURATION",
        type=_within,
        default=defaults.HEARTBEAT_OLD,
        help=f"how old FILE may be [{with_unit(defaults.HEARTBEAT_OLD)}]",
    )
    return made
