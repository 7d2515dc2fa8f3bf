"""`streamguard doctor`: what is here, what is in force, and what is in the way.

Looks, and changes nothing. Exit code 1 if something found will make a guard fail or fire wrongly.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from streamguard._base.distribution import install
from streamguard._base.quoting import quoted
from streamguard._version import __version__
from streamguard.cli.parsers import Parser

if TYPE_CHECKING:
    from streamguard.backends.facts import Installed

State: TypeAlias = Literal["ok", "note", "wrong"]
_MARKS: Final[dict[State, str]] = {"ok": "+", "note": "-", "wrong": "!"}
EXIT_CODES: Final = (
    ("0", "nothing has to be mended"),
    ("1", "something will make a guard fail, or fire when it should not: it is marked !"),
    ("2", "wrong usage"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `note` is good to know, `wrong` wants to be mended."""

    section: str
    name: str
    state: State
    text: str


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 1 if something is wrong."""
    asked = parser().parse_args(words)
    findings = list(_examine(verbose=asked.verbose))
    if asked.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def parser() -> Parser:
    """The words that it understands."""
    made = Parser(
        prog="streamguard doctor",
        description="What is installed, what this machine can do, and which configuration is in force. Changes nothing.",
        exit_codes=EXIT_CODES,
    )
    made.add_argument("--json", action="store_true", help="the same for a program")
    made.add_argument(
        "--verbose",
        action="store_true",
        help="also each backend's known limits, and the defaults in force",
    )
    return made


def _examine(*, verbose: bool) -> Iterator[Finding]:
    found = _installed()
    yield from _machine()
    yield from _loops()
    yield from _backends(found, verbose=verbose)
    yield from _configuration(found, verbose=verbose)


def _print(findings: list[Finding]) -> None:
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(f"\n{section}")
        name = f"{finding.name}: " if finding.name else ""
        print(f"  {_MARKS[finding.state]} {quoted(name + finding.text)}")
    wrong = sum(finding.state == "wrong" for finding in findings)
    print(f"\n{f'{wrong} to mend, marked !' if wrong else 'Nothing to mend.'}")


# --- the machine --------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    from streamguard.process import procfs

    here = "This machine"
    yield Finding(here, "streamguard", "ok", __version__)
    yield Finding(here, "Python", "ok", f"{platform.python_version()}, {sys.platform}")
    yield from _namesakes()
    yield _ability(
        "pidfd",
        has_pidfd(),
        "a process's death is known at once, and no other is signalled",
        f"death is found by looking at /proc, or by psutil; on macOS: {install('psutil')}",
    )
    yield _ability(
        "/proc",
        procfs.is_there(),
        "a backend's children are found, also those that left its group",
        "missing, or another pid namespace's: no child is found, and no tree proven dead; "
        "mount it: mount -t proc proc /proc"
        if sys.platform == "linux"
        else f"children that left their group are found only with psutil: {install('psutil')}",
    )
    yield _ability(
        "subreaper",
        sys.platform == "linux",
        "`streamguard run` keeps orphans of its command within reach",
        "orphans go to init: they are found by their mark alone",
    )
    yield _ability(
        "cgroup v2",
        Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        "there; streamguard needs none",
        "none; streamguard needs none",
    )
    yield _ability("PTY", has_pty(), "`run --pty` works", "`run --pty` does not work here")


def _namesakes() -> Iterator[Finding]:
    from streamguard.cli.namesakes import namesakes

    yield from (Finding("This machine", each.name, "wrong", each.advice) for each in namesakes())


def _ability(name: str, is_there: bool, here: str, else_: str) -> Finding:
    return Finding("This machine", name, "ok" if is_there else "note", here if is_there else else_)


def has_pidfd() -> bool:
    """Whether this process may open a pidfd."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def has_pty() -> bool:
    """Whether a pseudo-terminal can be had."""
    try:
        for fd in os.openpty():
            os.close(fd)
    except (AttributeError, OSError):
        return False
    return True


def _loops() -> Iterator[Finding]:
    from importlib import metadata

    for package, what in (
        ("anyio", ""),
        ("trio", install("trio")),
        ("uvloop", install("uvloop")),
        ("aiostream", install("aiostream")),
    ):
        try:
            yield Finding("Event loops", package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding("Event loops", package, "note", f"not installed ({what})")


# --- the backends -------------------------------------------------------------------------


def _installed() -> Mapping[str, Installed]:
    """What of each backend is here. All are asked at once: one that hangs keeps nobody waiting."""
    from concurrent.futures import ThreadPoolExecutor

    from streamguard.backends.facts import FACTS, installed

    with ThreadPoolExecutor(len(FACTS)) as asking:
        return dict(zip(FACTS, asking.map(installed, FACTS), strict=True))


def _backends(here: Mapping[str, Installed], *, verbose: bool) -> Iterator[Finding]:
    from streamguard.backends.facts import FACTS

    absent: list[str] = []
    for name, facts in FACTS.items():
        found = here[name]
        told: list[str] = []
        if facts.package and found.package:
            told.append(f"{facts.package} {found.package}")
        if found.path:
            told.append(f"{found.path} {found.command or '(says no version)'}")
        if not told:
            absent.append(name)
            continue
        is_old = bool(facts.minimum and found.package) and (
            _numbers(str(found.package)) < _numbers(str(facts.minimum))
        )
        if is_old:
            told.append(f"older than {facts.minimum}, which is needed: upgrade it")
        yield Finding("Backends", name, "wrong" if is_old else "ok", ", ".join(told))
        if verbose:
            yield from (Finding("Backends", "", "note", limit) for limit in facts.limits)
    if absent:
        yield Finding("Backends", "not installed", "note", ", ".join(absent))


def _numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


# --- the configuration --------------------------------------------------------------------


def _configuration(here: Mapping[str, Installed], *, verbose: bool) -> Iterator[Finding]:
    from streamguard._base.variables import MODE
    from streamguard._guard.modes import doubtful_mode
    from streamguard.backends.facts import FACTS, codex_config, collisions
    from streamguard.configuration import from_config
    from streamguard.errors import ConfigError

    where = "Configuration in force"
    config, wrong = None, ""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            config = from_config()
        except ConfigError as error:
            wrong = str(error)
    yield from (Finding(where, "", "note", str(warning.message)) for warning in told)
    if (doubt := doubtful_mode()) is not None:
        yield Finding(where, MODE, "wrong", doubt)
    if config is None:
        yield Finding(where, "", "wrong", wrong)
        return
    head, *lines = config.explain().splitlines()
    yield Finding(where, "", "ok", head.removeprefix("# "))
    for line in lines:
        if verbose or not line.rstrip().endswith("  default"):
            name, _, value = line.partition(" ")
            yield Finding(where, "", "ok", f"{name} = {re.sub('  +', '  ', value.strip())}")
    windows = config.windows
    if not any(windows.values()):
        yield Finding(where, "", "note", "no idle limit: `idle_guard()` needs one written in code")
    for name in FACTS:
        found = here[name]
        if found.package or found.path:
            table = codex_config(os.environ) if name == "codex" else None
            for collision in collisions(name, windows, os.environ, table):
                yield Finding(where, "", "note", str(collision))
