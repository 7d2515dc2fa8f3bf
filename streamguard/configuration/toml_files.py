"""Where a configuration is written: found, read, and shown with file, line and key in errors.

The nearest of `streamguard.toml` and a `pyproject.toml` with a table `[tool.streamguard]`, from a
folder upwards; or the file that `STREAMGUARD_CONFIG` names. What is found, and is not trusted
(`trusted`), is passed over and told. Knows errors and TOML, nothing of what the keys mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard._base.configured import (
    OWN,
    SHARED,
    candidates,
    content,
    text_of,
    toml_of,
    warning_of,
)
from streamguard._base.near import near
from streamguard._base.variables import CONFIG
from streamguard._base.warning import warn
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    from streamguard._base.trusted import FileFound

_IN_SHARED: Final = ("tool", "streamguard")
_NOWHERE: Final = ("", "0", "none", "off")


@dataclass(frozen=True)
class Written:
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
                raise ConfigError(f"{self.where(*keys, key)}: unknown; {near(key, known)}")


def find(start: Path | None = None) -> Written | None:
    """The configuration in force for `start` (default: the working directory), if there is one.

    What is not trusted is passed over, with a warning.
    """
    if CONFIG in os.environ:
        return named()
    try:
        folder = (start or Path()).absolute()
    except OSError:  # the working directory was removed, and nothing lies above it
        return None
    return choose(candidates(os.fspath(folder)), _warn)


def named() -> Written | None:
    """What the environment variable names; None if it says "off"."""
    value = os.environ.get(CONFIG, "")
    if value.strip().lower() in _NOWHERE:
        return None
    return read(Path(value), said_by=CONFIG)


def choose(found: Iterable[FileFound], tell: Callable[[str], object]) -> Written | None:
    """The first of these that is trusted and of ours; `tell` hears of those that are not trusted."""
    for each in found:
        if each.data is None or each.distrust is not None:
            tell(warning_of(each))
            continue
        source = _source(Path(each.path), each.data)
        if source.table or source.path.name == OWN:
            return source
    return None


def read(path: Path, *, said_by: str = "") -> Written:
    """The configuration in `path`, whoever it belongs to; ConfigError if it cannot be read."""
    told = f"environment variable {said_by}={str(path)!r}" if said_by else str(path)
    return _source(path, content(os.fspath(path), told))


def _source(path: Path, data: bytes) -> Written:
    text = text_of(data, str(path))
    whole = Written(path, text, _table_of(text, path))
    if path.name != SHARED:
        return whole
    return Written(path, text, whole.section(*_IN_SHARED), _IN_SHARED)


@lru_cache(maxsize=8)
def _table_of(text: str, path: Path) -> Mapping[str, Any]:
    return toml_of(text, str(path))


def _warn(text: str) -> None:
    if text in _told:
        return
    _told.add(text)
    warn(text)


_told: Final[set[str]] = set()


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
