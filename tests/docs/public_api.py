"""The public API as text: each public name with its signature. `python -m tests.docs.public_api` writes it anew.

A change to `public_api.txt` is a change of what users rely on, and is read as one (docs/reference/stability.md). With
`--check` it only says what is different, by its exit code, too.
"""

from __future__ import annotations

import difflib
import enum
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import streamguard
from tests.docs import api_pages

FILE = Path(__file__).with_name("public_api.txt")
# What a value that has no words of its own is shown as differs from run to run, and from Python to Python.
_ADDRESS = re.compile(r"<[^<>]*\bat 0x[0-9a-f]+>|<object object[^<>]*>|<factory>")
_QUALIFIED = re.compile(
    r"\b(?:streamguard|collections\.abc|typing|typing_extensions)\.(?:\w+\.)*(?=\w)"
)


def text() -> str:
    return "".join(f"{line}\n" for line in lines())


def lines() -> Iterator[str]:
    for name in sorted(streamguard.__all__):
        yield from described(f"streamguard.{name}", getattr(streamguard, name))
    for module, names in sorted(api_pages.modules().items()):
        for name in sorted(names):
            yield from described(f"{module}.{name}", getattr(import_module(module), name))


def described(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from described_class(path, value)
    elif callable(value):
        yield f"{path}{signature(value)}"
    elif inspect.ismodule(value):
        yield f"{path}: module"
    else:
        yield f"{path}: {type(value).__name__}"


def described_class(path: str, kind: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    yield f"class {path}({bases})" if bases else f"class {path}"
    if issubclass(kind, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
        return
    if is_ours(getattr(kind, "__init__", None)):
        yield f"    __init__{signature(kind.__init__)}"
    for name, value in sorted(members(kind).items()):
        match value:
            case property():
                yield f"    {name}{returned(value.fget)}"
            case staticmethod() | classmethod():
                yield f"    {type(value).__name__} {name}{signature(value.__func__)}"
            case _ if inspect.isfunction(value):
                yield f"    {'async ' * inspect.iscoroutinefunction(value)}{name}{signature(value)}"
            case _:
                yield f"    {name}"


def members(kind: type) -> dict[str, Any]:
    """What it and our classes above it define, and what they annotate."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.partition(".")[0] == "streamguard":
            found |= dict.fromkeys(inspect.get_annotations(each))
            found |= vars(each)
    return {name: value for name, value in found.items() if not name.startswith("_")}


def is_ours(value: Any) -> bool:
    """A dataclass's `__init__` is made in the module of its class."""
    return str(getattr(value, "__module__", "")).partition(".")[0] == "streamguard" or (
        getattr(value, "__qualname__", "").startswith("__create_fn__")
    )


def signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    shown = [
        each.replace(annotation=plain(each.annotation), default=shown_default(each.default))
        for each in found.parameters.values()
    ]
    annotation = plain(found.return_annotation)
    return str(found.replace(parameters=shown, return_annotation=annotation))


def returned(getter: Any) -> str:
    return signature(getter).partition(")")[2].replace(" ->", ":", 1) if getter else ""


class Words(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def plain(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    said = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Words(_QUALIFIED.sub("", said))


def shown_default(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    if isinstance(value, enum.Enum) or callable(value):
        return Words(getattr(value, "name", None) or getattr(value, "__name__", "..."))
    return Words(_ADDRESS.sub("...", repr(value)))


def differences() -> list[str]:
    """What `public_api.txt` has otherwise."""
    written = FILE.read_text("utf-8") if FILE.exists() else ""
    return [
        line
        for line in difflib.unified_diff(
            written.splitlines(),
            text().splitlines(),
            "public_api.txt",
            "the code",
            n=0,
            lineterm="",
        )
        if not line.startswith("@@")
    ]


def main(words: list[str]) -> int:
    found = differences()
    print(*found, sep="\n")
    if "--check" in words:
        return 1 if found else 0
    FILE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
