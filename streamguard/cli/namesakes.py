"""Other distributions that bring a package or a command called `streamguard`: one of the two hides the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final, NamedTuple

from streamguard._base import distribution

_OURS: Final = "streamguard"  # what Python imports, and the command
_FILE: Final = re.compile(rf"^{_OURS}(?:/|\.py,)", re.MULTILINE)
_COMMAND: Final = re.compile(rf"^\[console_scripts\][^\[]*?^{_OURS}\s*=", re.MULTILINE | re.DOTALL)


class Namesake(NamedTuple):
    """One of them, and what of ours it has."""

    name: str
    version: str
    has: str

    @property
    def advice(self) -> str:
        """What it does here, and what to do."""
        return (
            f"version {self.version} is another project's, or an old name of this one, and has "
            f"{self.has}. One of the two hides the other. Remove it, then install this one again: "
            f"pip uninstall {self.name} && pip install --force-reinstall {distribution.NAME}"
        )


def namesakes(path: Sequence[str] | None = None) -> Iterator[Namesake]:
    """Each that is installed on `path`, by default where Python looks for packages."""
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    seen: set[str] = set()
    for each in found:
        name = each.metadata["Name"] or ""
        if not name or (key := re.sub(r"[-_.]+", "-", name).lower()) in seen:
            continue
        seen.add(key)
        has = " and ".join(_of_ours(each, key)) if key != distribution.NAME else ""
        if has:
            yield Namesake(name, each.version, has)


def _of_ours(each: metadata.Distribution, key: str) -> Iterator[str]:
    files = each.read_text("RECORD") or ""
    tops = (each.read_text("top_level.txt") or "").split()
    # An editable one lists no files of its package: then its name says it.
    if _FILE.search(files) or _OURS in tops or key == _OURS:
        yield f"the package {_OURS!r}, too"
    if _COMMAND.search(each.read_text("entry_points.txt") or ""):
        yield f"the command {_OURS!r}"
