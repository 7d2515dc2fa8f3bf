"""Runs docs/tutorial/index.md as a reader would, and compares what its commands print.

    python -m tests.docs.tutorial            says what differs
    python -m tests.docs.tutorial --write    writes what was printed into the page

A block `python title="hang.py"` is a file in an empty folder; a block `console` has commands (`$ ...`) that are
run there, one after the other, each with what it prints.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "tutorial" / "index.md"
BLOCK: Final = re.compile(
    r'^```(?:python title="(?P<name>[\w.]+)"|console)\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
# Real time differs from run to run: small numbers and fractions are of it, virtual time has round ones.
# CONT is sent only to what TERM has not ended at once.
VARYING: Final = re.compile(r"\b(?:\d|\d+\.\d+)(?= ?s\b)|(?<=sent TERM)(?:, CONT)?")
BOUND: Final = 300  # seconds: only a command that hangs takes so long


def played(page: str) -> str:
    """The page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:

        def run(block: re.Match[str]) -> str:
            if block["name"]:
                (Path(folder) / block["name"]).write_text(block["body"], "utf-8")
                return block[0]
            commands = re.findall(r"^\$ .*$", block["body"], re.MULTILINE)
            shown = [f"{each}\n{printed_by(each[2:], folder)}" for each in commands]
            return f"```console\n{''.join(shown)}```"

        return BLOCK.sub(run, page)


def printed_by(command: str, folder: str) -> str:
    """What a person sees of it: both outputs, in their order."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STREAMGUARD", "PYTEST"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    plain = {"PATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=kept | plain,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BOUND,
        check=False,
    )
    return ran.stdout.decode()


def comparable(page: str) -> list[str]:
    """Its lines without what is a matter of luck: seconds of real time."""
    return VARYING.sub("N", page).splitlines()


def main(*arguments: str) -> int:
    """Compare, or write."""
    before = PAGE.read_text("utf-8")
    now = played(before)
    if "--write" in arguments:
        PAGE.write_text(now, "utf-8")
        return 0
    differing = list(
        difflib.unified_diff(comparable(before), comparable(now), "the page", "now", lineterm="")
    )
    sys.stdout.write("\n".join(differing) or "All that the page shows is what is printed.\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
