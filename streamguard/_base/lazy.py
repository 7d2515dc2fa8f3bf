"""A package's public names, each imported from its home when it is first asked for.

    __getattr__, __dir__ = lazy(__name__, {"session": ("session", "open_exec")})

`import streamguard` stays cheap, and what is optional is imported by whoever uses it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself is a third of a command's start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


def lazy(
    package: str,
    names_by_module: Mapping[str, Iterable[str]],
    *,
    root: str = "",
    modules: Iterable[str] = (),
    shown: Iterable[str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for `package`, whose modules, or those of `root`, have these names.

    `modules` of it are attributes, too, imported when they are asked for. `shown`: what `dir` has, if not all.
    """
    home_of = {name: module for module, names in names_by_module.items() for name in names}
    submodules = frozenset(modules)

    def find(name: str) -> Any:
        from importlib import import_module

        if name in submodules:
            return import_module(f"{package}.{name}")  # which makes it an attribute
        if (home := home_of.get(name)) is None:
            # With both, Python itself says the nearest name.
            said = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(said, name=name, obj=sys.modules[package])
        value = getattr(import_module(f"{root or package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        if shown is not None:
            return list(shown)
        return sorted({*sys.modules[package].__dict__.get("__all__", ()), *home_of})

    return find, names
