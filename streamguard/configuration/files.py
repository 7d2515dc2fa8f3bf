"""Where a configuration is written: found, read, and shown with file, line and key in errors.

The nearest of `streamguard.toml` and a `pyproject.toml` with a table `[tool.streamguard]`, from a
folder upwards; or the file that `STREAMGUARD_CONFIG` names. Knows errors and TOML, nothing of what
the keys mean.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from streamguard.errors import ConfigError

CONFIG: Final = "STREAMGUARD_CONFIG"
OWN: Final = "streamguard.toml"
SHARED: Final = "pyproject.toml"
_IN_SHARED: Final = ("tool", "streamguard")
_NOWHERE: Final = ("", "0", "none", "off")


@dataclass(frozen=True)
class Source:
    """A configuration as it is written: its table, and where that is."""

    path: Path
    text: str
    table: Mapping[str, Any]
    within: tuple[str, ...] = ()

    def where(self, *keys: str) -> str:
        """`file:line: key`, for an error; without a line where the key cannot be found."""
        line = _line_of(self.text, (*self.within, *keys))
        return f"{self.path}{f':{line}' if line else ''}: {'.'.join(keys)}"

    def section(self, *keys: str) -> Mapping[str, Any]:
        """The table under `keys`, empty if there is none. ConfigError if it is no table."""
        table: Mapping[str, Any] = self.table
        for depth, key in enumerate(keys, start=1):
            found: object = table.get(key, {})
            if not isinstance(found, Mapping):
                name = ".".join((*self.within, *keys[:depth]))
                raise ConfigError(f"{self.where(*keys[:depth])}: write a table, [{name}]")
            table = cast("Mapping[str, Any]", found)
        return table

    def check_keys(self, known: Iterable[str], *keys: str) -> None:
        """A ConfigError for a key in the table under `keys` that is not `known`."""
        known = list(known)
        for key in self.section(*keys):
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise ConfigError(f"{self.where(*keys, key)}: unknown; {hint}")


def find(start: Path | None = None) -> Source | None:
    """The configuration in force for `start` (default: the working directory), if there is one."""
    named = os.environ.get(CONFIG)
    if named is not None:
        return None if named.strip().lower() in _NOWHERE else read(Path(named), said_by=CONFIG)
    try:
        folder = (start or Path()).absolute()
    except OSError:  # the working directory was removed, and nothing lies above it
        return None
    for place in (folder, *folder.parents):
        if (own := place / OWN).is_file():
            return read(own)
        shared = place / SHARED
        # Most files of that name say nothing of us, and are not worth the parsing.
        if shared.is_file() and "tool.streamguard" in _text_of(shared):
            source = read(shared)
            if source.table:
                return source
    return None


def read(path: Path, *, said_by: str = "") -> Source:
    """The configuration in `path`; ConfigError if it cannot be read."""
    if not path.is_file():
        told = f"environment variable {said_by}={str(path)!r}" if said_by else str(path)
        raise ConfigError(f"{told}: there is no such file")
    text = _text_of(path)
    table = _table_of(text, path)
    whole = Source(path, text, table)
    if path.name != SHARED:
        return whole
    return Source(path, text, whole.section(*_IN_SHARED), _IN_SHARED)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


@lru_cache(maxsize=8)
def _table_of(text: str, path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: no valid TOML: {error}") from error


_TABLE: Final = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The number of the line that `keys` is written in, or else its table or a part of its path.

    tomllib keeps no positions. For people to go to: what a line only looks like does no harm.
    """
    best, best_length = None, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _TABLE.match(line):
            found = table = _parts(heading[1])
        elif assignment := _KEY.match(line):
            found = (*table, *_parts(assignment[1]))
        else:
            continue
        if len(found) > best_length and found == keys[: len(found)]:
            best, best_length = number, len(found)
    return best


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(key))
