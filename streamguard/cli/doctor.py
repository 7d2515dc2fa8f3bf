"""`streamguard doctor`: what is here, what is in force, and what is in the way.

Looks, and changes nothing. Exit code 1 if something found will make a guard fail or fire wrongly.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from streamguard._base.distribution import install
from streamguard._base.quoting import quoted
from streamguard._version import __version__
from streamguard.cli.arguments import guess
from streamguard.cli.extras import EXTRAS, OBSERVERS, Extra, numbers, too_old, version_of
from streamguard.cli.helping import WIDTH
from streamguard.cli.parsers import Parser

if TYPE_CHECKING:
    from streamguard.backends.facts import Installed

State: TypeAlias = Literal["ok", "note", "wrong"]
_PIP: Final = ": pip "  # how a hint ends that says what to install
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
    found, git = _asked()
    yield from _machine()
    yield from _extras()
    yield from _observers()
    yield from _backends(found, verbose=verbose)
    yield from _tools(git)
    yield from _environment()
    yield from _configuration(found, verbose=verbose)


def _print(findings: list[Finding]) -> None:
    print("+ in order   - good to know   ! to mend")
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(f"\n{section}")
        name = f"{finding.name}: " if finding.name else ""
        print(_wrapped(f"  {_MARKS[finding.state]} ", quoted(name + finding.text)))
    wrong = sum(finding.state == "wrong" for finding in findings)
    print(f"\n{f'{wrong} to mend, marked !' if wrong else 'Nothing to mend.'}")


def _wrapped(mark: str, text: str) -> str:
    """`text` in lines that are short enough; a command at its end is whole, so that it can be pasted."""
    told, pip, command = text.rpartition(_PIP)
    indent = " " * len(mark)
    wrapped = textwrap.fill(
        f"{told}:" if pip else text,
        WIDTH,
        initial_indent=mark,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (wrapped or mark) + (f"\n{indent}pip {command}" if pip else "")


# --- the machine --------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    from streamguard.process import procfs

    here = "This machine"
    yield Finding(here, "streamguard", "ok", f"{__version__}, in {Path(__file__).parents[1]}")
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


# --- what is installed --------------------------------------------------------------------


def _asked() -> tuple[Mapping[str, Installed], Installed]:
    """What of each backend is here, and git. All are asked at once: one that hangs keeps nobody waiting."""
    from concurrent.futures import ThreadPoolExecutor

    from streamguard.backends.facts import FACTS, command_here, installed

    with ThreadPoolExecutor(len(FACTS) + 1) as asking:
        git = asking.submit(command_here, "git")
        return dict(zip(FACTS, asking.map(installed, FACTS), strict=True)), git.result()


def _extras() -> Iterator[Finding]:
    here = "Extras"
    yield _package("anyio", "anyio", "needed", here)
    missing: list[Extra] = []
    for extra in EXTRAS:
        if version_of(extra.package) is None:
            missing.append(extra)
        else:
            yield _package(extra.name, extra.package, extra.gives, here)
    if missing:
        told = ", ".join(f"{extra.name} ({extra.gives})" for extra in missing)
        yield Finding(here, "missing", "note", f"{told}. For one of them: {install('NAME')}")


def _package(name: str, package: str, gives: str, here: str) -> Finding:
    version = version_of(package)
    if version is None:
        return Finding(here, name, "wrong", f"{package} is not installed, and is {gives}")
    what = version if name == package else f"{package} {version}"
    if (minimum := too_old(package, version)) is not None:
        told = f"{what} is older than {minimum}, which is needed: upgrade it"
        return Finding(here, name, "wrong", told)
    return Finding(here, name, "ok", f"{what} ({gives})")


def _observers() -> Iterator[Finding]:
    here = "Observers"
    yield Finding(
        here, "log", "ok", "the logger 'streamguard' of Python's logging is told by itself"
    )
    for extra in OBSERVERS:
        if version_of(extra.package) is None:
            yield Finding(here, extra.name, "note", f"not installed: {install(extra.name)}")
        else:
            yield _package(extra.name, extra.package, extra.gives, here)


def _backends(here: Mapping[str, Installed], *, verbose: bool) -> Iterator[Finding]:
    from streamguard.backends.facts import FACTS

    absent: list[str] = []
    for name, facts in FACTS.items():
        found = here[name]
        told: list[str] = []
        if facts.package and found.package:
            told.append(f"{facts.package} {found.package}")
        if found.path:
            told.append(_command(found))
        if not told:
            absent.append(name)
            continue
        is_old = bool(facts.minimum and found.package) and (
            numbers(str(found.package)) < numbers(str(facts.minimum))
        )
        if is_old:
            told.append(f"older than {facts.minimum}, which is needed: upgrade it")
        yield Finding("Backends", name, "wrong" if is_old else "ok", ", ".join(told))
        if verbose:
            yield from (Finding("Backends", "", "note", limit) for limit in facts.limits)
    if absent:
        hint = f"their messages are understood all the same. For a package: {install('NAME')}"
        yield Finding("Backends", "not installed", "note", f"{', '.join(absent)}; {hint}")


def _tools(git: Installed) -> Iterator[Finding]:
    if git.path:
        yield Finding("Tools", "git", "ok", _command(git))
    else:
        yield Finding("Tools", "git", "note", "not on the PATH: a receipt cannot name the commit")


def _command(found: Installed) -> str:
    return f"{found.path} {found.command or '(says no version)'}"


# --- the environment ----------------------------------------------------------------------


def _environment() -> Iterator[Finding]:
    from streamguard._base.configured import IN_ENVIRONMENT, PREFIX, variable
    from streamguard._base.variables import CONFIG, FLEET, MARK, MODE
    from streamguard._guard.modes import doubtful_mode, environment_mode

    here = "Environment"
    mode = environment_mode()
    if (doubt := doubtful_mode()) is not None:
        yield Finding(here, MODE, "wrong", doubt)
    elif mode != "enforce":
        means = "nothing is guarded" if mode == "off" else "limits are told, and end nothing"
        told = f"the kill switch is on: {means} ({os.environ[MODE]})"
        yield Finding(here, MODE, "note", told)
    else:
        yield Finding(here, MODE, "ok", "the kill switch is not used: limits are enforced")
    known = [*(variable(PREFIX, knob) for knob in IN_ENVIRONMENT), CONFIG, FLEET]
    for name in sorted(os.environ):
        if not name.startswith(f"{PREFIX}_") or name in {MODE, MARK}:
            continue
        if name == FLEET:
            yield Finding(
                here, name, "ok", "set (an address may hold a password, so it is not shown)"
            )
        elif name in known:
            yield Finding(here, name, "ok", os.environ[name] or "empty, as if it were not set")
        else:
            yield Finding(
                here, name, "note", f"is no variable of streamguard's{guess(name, known)}"
            )


# --- the configuration --------------------------------------------------------------------


def _configuration(here: Mapping[str, Installed], *, verbose: bool) -> Iterator[Finding]:
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
