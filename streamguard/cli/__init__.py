"""The `streamguard` command: reads its arguments and says what it can do.

A supervisor's own start must cost next to nothing, so this imports the version and the
standard library alone, and of that neither asyncio nor argparse. Nothing imports this module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from streamguard._version import __version__

USAGE = "usage: streamguard [--help | --version]"
VERSION = f"streamguard {__version__}\n"
HELP = f"""\
streamguard {__version__}: a liveness layer for agent streams

{USAGE}

  -h, --help     show this text
  -V, --version  show the version

So far streamguard is a library: one `|` away from any async iterator.

    from streamguard import idle_guard

    async for message in stream | idle_guard(180, disconnect=client.disconnect):
        ...

    python -c "import streamguard; help(streamguard.idle_guard)"   shows every limit

This command does not guard processes yet: `run`, `report`, `top`, `demo` and `doctor` are
planned and are refused until they exist.
"""
PLANNED = ("run", "report", "top", "demo", "doctor")
ANSWERS = {"-h": HELP, "--help": HELP, "-V": VERSION, "--version": VERSION}

EXIT_OK = 0
EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code for `argv` (default: this process's own arguments)."""
    first, *more = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if first not in ANSWERS:
        return _refuse(first)
    if more:
        return _refuse(more[0])
    print(ANSWERS[first], end="")
    return EXIT_OK


def _refuse(argument: str) -> int:
    what = (
        f"'{argument}' does not exist yet in {__version__}"
        if argument in PLANNED
        else f"unknown argument '{argument}'"
    )
    print(f"streamguard: {what}\n{USAGE}", file=sys.stderr)
    return EXIT_USAGE
