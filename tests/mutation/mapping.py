"""Which tests run which line of a module, and how long each takes: one run of all tests under coverage.

    python -m tests.mutation --map        # ten minutes on two quiet cores; kept in .mutation/

Without a map a mutant is shown to all tests of its module's rooms, the quick ones first.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.mutation.mutants import ROOT, Mutant, file_of

FOLDER: Final = ROOT / ".mutation"
_LINES: Final = FOLDER / "lines.sqlite"
_TIMES: Final = FOLDER / "times.json"
_UNKNOWN: Final = 0.3  # seconds, of a test that is not in the map
# No mutant is shown to these: they start the tests, or mutants, themselves.
_NOT: Final = ("tests/mutation/", "tests/test_packaging.py", "tests/test_typing.py", "tests/docs/")


def make() -> int:
    """Run them all; pytest's exit code, which is no matter unless it broke off."""
    FOLDER.mkdir(exist_ok=True)
    _LINES.unlink(missing_ok=True)
    words = [
        "-q",
        "-n",
        "2",
        "-p",
        "tests.mutation.mapping",
        "--cov=streamguard",
        "--cov-context=test",
    ]
    environment = {**os.environ, "COVERAGE_FILE": str(_LINES), "STREAMGUARD_TESTS": "dev"}
    left_out = [f"--ignore={each.rstrip('/')}" for each in _NOT]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--cov-report=", *left_out, "tests"],
        cwd=ROOT,
        env=environment,
        check=False,
    ).returncode


_took: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


def pytest_runtest_logreport(report: Any) -> None:
    _took[report.nodeid] += report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: Any) -> None:
    if not hasattr(session.config, "workerinput"):
        _TIMES.write_text(json.dumps({"took": _took, "failed": sorted(_failed)}))


class Map:
    """What is known of the tests; of nothing, if no map was made."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, set[str]]] = {}

    @cached_property
    def _times(self) -> dict[str, Any]:
        return json.loads(_TIMES.read_text()) if _TIMES.exists() else {"took": {}, "failed": []}

    @cached_property
    def failing(self) -> frozenset[str]:
        """Tests that fail without any mutant: they prove nothing."""
        return frozenset(self._times["failed"])

    def took(self, test: str) -> float:
        return float(self._times["took"].get(test, _UNKNOWN))

    def running(self, mutant: Mutant) -> set[str]:
        """The tests that run its lines; for what runs at import, those that run the module at all."""
        lines = self._lines(mutant.module)
        found = set().union(*(lines.get(each, ()) for each in mutant.lines))
        return found if found and mutant.in_function else set().union(*lines.values())

    def _lines(self, module: str) -> dict[int, set[str]]:
        if module not in self._of:
            self._of[module] = dict(_read(file_of(module))) if _LINES.exists() else {}
        return self._of[module]


def _read(file: Path) -> Iterable[tuple[int, set[str]]]:
    lines: dict[int, set[str]] = defaultdict(set)
    base = sqlite3.connect(_LINES)
    rows = base.execute(
        "select context.context, line_bits.numbits from line_bits"
        " join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
        " where file.path = ?",
        (str(file),),
    )
    for context, bits in rows:
        test = context.rpartition("|")[0]
        if test:
            for number, byte in enumerate(bits):
                for bit in range(8):
                    if byte >> bit & 1:
                        lines[number * 8 + bit].add(test)
    base.close()
    return lines.items()
