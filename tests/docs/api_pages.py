"""The API's pages: every public name, with what its docstring says, which the site puts in place of `::: name`.

Public is what `streamguard.__all__` names, and what the `__all__` of a module without `_` in its path names; of modules
without an `__all__`, `ALSO`. A name that is in several of them is shown once, under its shortest path.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import streamguard
from tests.docs.tables import MADE

# Modules that say what is public by what they define.
ALSO = ("streamguard.signals", "streamguard.specs", "streamguard.compat", "streamguard.types")
# Where a name of `streamguard` itself is shown, by the room that it lives in.
SUBJECTS = {
    "errors": ("Errors, and what they carry", ("errors", "_base")),
    "sessions": ("Sessions", ("sessions",)),
    "retry": ("Retry and circuit breaker", ("retry", "breaker")),
    "scopes": ("Nested limits", ("limits", "_scopes", "scopes", "specs")),
    "evidence": ("Evidence and resuming", ("evidence",)),
    "configuration": ("Configuration", ("configuration", "presets")),
    "programs": ("Programs and processes", ("process", "top", "_lines")),
    "types": ("Types", ("types",)),
}
GUARD = ("guard", "Guards")  # all others

INTRODUCTION = """\
On the site each name has its signature and its docstring; in the repository, `help(streamguard.idle_guard)` says the same.
"""


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Each public module below `streamguard`, with its public names that no shorter path has."""
    found: dict[str, tuple[str, ...]] = {}
    seen = {id(getattr(streamguard, name)) for name in streamguard.__all__}
    names = [info.name for info in pkgutil.walk_packages(streamguard.__path__, "streamguard.")]
    for dotted in sorted(names, key=lambda name: (name.count("."), name)):
        if any(part.startswith("_") for part in dotted.split(".")) or not is_public(dotted):
            continue
        module = import_module(dotted)
        own = [name for name in names_of(module) if is_new(getattr(module, name), seen)]
        if own:
            found[dotted] = tuple(own)
    return found


def is_public(dotted: str) -> bool:
    return dotted in ALSO or "__all__" in vars(import_module(dotted))


def names_of(module: Any) -> list[str]:
    if "__all__" in vars(module):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def is_new(value: Any, seen: set[int]) -> bool:
    """Whether no earlier module has shown it. A number or a text is of the module that names it."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")):
        return True
    is_known = id(value) in seen
    seen.add(id(value))
    return not is_known


def subject_of(name: str) -> str:
    home = getattr(getattr(streamguard, name), "__module__", "") or ""
    room = home.removeprefix("streamguard.").partition(".")[0]
    of_room = (subject for subject, (_, rooms) in SUBJECTS.items() if room in rooms)
    return next(of_room, GUARD[0])


def pages() -> dict[str, str]:
    subjects: dict[str, list[str]] = {}
    for name in sorted(streamguard.__all__, key=str.lower):
        if not name.startswith("__"):
            subjects.setdefault(subject_of(name), []).append(f"streamguard.{name}")
    titles = {GUARD[0]: GUARD[1], **{key: title for key, (title, _) in SUBJECTS.items()}}
    made = {f"api/{key}.md": page(titles[key], names) for key, names in subjects.items()}
    for dotted, names in modules().items():
        path = f"api/{dotted}.md"
        made[path] = page(f"`{dotted}`", [f"{dotted}.{name}" for name in names], dotted)
    made["api/index.md"] = index(subjects, titles)
    return made


def page(title: str, names: list[str], module: str = "") -> str:
    shown = "\n\n".join(f"::: {name}" for name in names)
    about = f"{first_line(import_module(module))}\n\n" if module else ""
    return f"# {title}\n\n{MADE}\n\n{about}{INTRODUCTION}\n{shown}\n"


def first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def index(subjects: dict[str, list[str]], titles: dict[str, str]) -> str:
    def listed() -> Iterator[str]:
        for key, title in titles.items():
            if key in subjects:
                yield f"\n## [{title}]({key}.md)\n"
                links = (linked(f"{key}.md", dotted) for dotted in subjects[key])
                yield ", ".join(links)
        yield "\n## Older names\n\nThey stay.\n"
        for old, name in older_names().items():
            yield f"- `{old}` is `{name}`"
        yield "\n## In modules of their own\n"
        for dotted, names in modules().items():
            links = [linked(f"{dotted}.md", f"{dotted}.{name}") for name in names]
            yield f"- [`{dotted}`]({dotted}.md): {', '.join(links)}"

    head = f"# Every public name\n\n{MADE}\n\nThose of the first part are imported from `streamguard` itself.\n"
    return head + "\n".join(listed()) + "\n"


def older_names() -> dict[str, str]:
    """What can be imported from `streamguard` under a name that it had before, with its present name."""
    names = sorted({name for home in streamguard._HOMES.values() for name in home})
    present = {name: getattr(getattr(streamguard, name), "__name__", name) for name in names}
    return {name: now for name, now in present.items() if name != now}


def linked(page: str, dotted: str) -> str:
    return f"[`{dotted.rpartition('.')[2]}`]({page}#{dotted})"
