"""`streamguard report --fleet`: the log of timeouts from a store, or as lines that were exported, for the report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from streamguard._base import quoting
from streamguard.cli.fleet import where
from streamguard.errors import ConfigError
from streamguard.evidence.files import lines_of, open_to_read
from streamguard.evidence.report import FleetReport


def fleet_report(lines: str | None, store: str | None) -> FleetReport:
    """The report of a store, or of exported lines; these say nothing of what became of the sessions."""
    if lines is None:
        with where.opened(store, must_be_there=True) as opened:
            sessions = [asdict(row) for row in opened.live(all=True)]
            return FleetReport(opened.place, opened.timeouts(), sessions)
    if store is not None:
        raise ConfigError("lines are read, or a store is asked: name one of them")
    if lines == "-":
        return FleetReport("log", _objects(sys.stdin.buffer))
    try:
        file = open_to_read(Path(lines), is_anybodys=True)
    except OSError as error:
        raise ConfigError(f"{quoting.name(lines)} cannot be read: {error.strerror}") from None
    with file:
        return FleetReport(os.path.basename(lines), _objects(lines_of(file)))


def _objects(lines: Iterable[bytes] | BinaryIO) -> Iterator[dict[str, Any]]:
    """The lines as objects; what is none is counted by the report, as an empty one."""
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if line.strip():
            yield value if isinstance(value, dict) else {}
