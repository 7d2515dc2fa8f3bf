"""The table in docs/explanation/design.md is the house as it stands: no arrow points upwards, no module is left out.

An import inside of a function counts like any other, and so does what `lazy` imports by name. What is
imported for annotations alone is listed below the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/design.md").read_text("utf-8")
ROW = re.compile(r"^\| (\d) \| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
TYPED = re.compile(r"^- `([\w/]+)` → (.+)$", re.MULTILINE)


class Room(NamedTuple):
    layer: int
    pattern: str
    beside: tuple[str, ...]


class Arrow(NamedTuple):
    source: str
    target: str
    is_typed: bool


def quoted(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", text))


def rooms_of(page: str) -> list[Room]:
    return [
        Room(int(layer), pattern, quoted(beside))
        for layer, patterns, _, beside in ROW.findall(page)
        for pattern in quoted(patterns)
    ]


def modules() -> Mapping[str, ast.Module]:
    """Every module by its path, without the package's name: `_guard/attempt`; a package as `_guard/`."""
    found = {}
    for path in sorted((ROOT / "streamguard").rglob("*.py")):
        name = path.relative_to(ROOT / "streamguard").with_suffix("").as_posix()
        name = name.removesuffix("__init__")
        found[name or "streamguard"] = ast.parse(path.read_text("utf-8"))
    return found


MODULES = modules()
ROOMS = rooms_of(PAGE)


def room_of(module: str, rooms: list[Room]) -> Room | None:
    """The row that says most about it: `backends/*/session` rather than `backends`."""
    named = [room for room in rooms if fits(module, room.pattern)]
    return max(named, key=lambda room: len(room.pattern), default=None)


def fits(module: str, pattern: str) -> bool:
    return fnmatchcase(module.rstrip("/"), pattern.rstrip("/")) or (
        module.startswith(f"{pattern}/") and "*" not in pattern
    )


@cache
def path_of(dotted: str) -> str | None:
    """The module that a dotted name is, or None."""
    path = dotted.removeprefix("streamguard").lstrip(".").replace(".", "/")
    return next((name for name in (path or "streamguard", f"{path}/") if name in MODULES), None)


@cache
def arrows() -> list[Arrow]:
    return [
        Arrow(module, target, is_typed)
        for module, tree in MODULES.items()
        for target, is_typed in imports_in(module, tree)
        if target != module
    ]


def imports_in(module: str, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    typed = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        for name in names_in(module, tree, node):
            if (found := path_of(name)) is not None:
                yield found, id(node) in typed


def names_in(module: str, tree: ast.Module, node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name.startswith("streamguard"))
        case ast.ImportFrom(module=str(home), names=names) if home.startswith("streamguard"):
            for name in names:
                inner = f"{home}.{name.name}"
                yield inner if path_of(inner) else home
        case ast.Call(func=ast.Name(id="lazy"), args=[_, table], keywords=keywords):
            package = "streamguard." + module.rstrip("/").replace("/", ".")
            if any(each.arg == "root" for each in keywords):
                package = "streamguard"
            package = package.removesuffix(".streamguard")
            yield from (f"{package}.{key}" for key in keys_of(table, tree))
        case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name))]):
            yield name
        case _:
            pass


def keys_of(table: ast.expr, tree: ast.Module) -> list[str]:
    if isinstance(table, ast.Name):
        table = next(
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table.id
        )
    assert isinstance(table, ast.Dict)
    return [key.value for key in table.keys if isinstance(key, ast.Constant)]


def wrong(rooms: list[Room]) -> list[str]:
    """The arrows that point where the table lets none point, but for those of types alone."""
    found = []
    for source, target, is_typed in arrows():
        a, b = room_of(source, rooms), room_of(target, rooms)
        if a is None or b is None or is_typed:
            continue
        is_below = b.layer < a.layer
        is_beside = b.layer == a.layer and (
            source.partition("/")[0] == target.partition("/")[0] or b.pattern in a.beside
        )
        if not is_below and not is_beside:
            found.append(f"{source} (layer {a.layer}) imports {target} (layer {b.layer})")
    return found


def test_no_arrow_points_upwards():
    assert wrong(ROOMS) == []


def test_the_table_names_every_module():
    assert [module for module in MODULES if room_of(module, ROOMS) is None] == []


def test_the_table_invents_nothing():
    assert [
        room.pattern for room in ROOMS if not any(fits(m, room.pattern) for m in MODULES)
    ] == []
    named = {name for room in ROOMS for name in room.beside}
    assert named <= {room.pattern for room in ROOMS}


def test_every_path_that_the_page_names_is_there():
    homes = PAGE.partition("## Where is ...?")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(_?[a-z]+(?:/[a-z_]+)?)`", homes))
    assert len(named) > 10
    assert [name for name in named if name not in MODULES and f"{name}/" not in MODULES] == []


def test_what_is_imported_upwards_for_types_alone_is_listed():
    upwards = {
        (source, target)
        for source, target, is_typed in arrows()
        if is_typed and layer_of(target) > layer_of(source)
    }
    listed = {
        (source, target) for source, names in TYPED.findall(PAGE) for target in quoted(names)
    }
    assert upwards == listed


def layer_of(module: str) -> int:
    room = room_of(module, ROOMS)
    assert room is not None
    return room.layer


def test_the_top_of_the_package_shows_its_plan():
    """About ten modules beside the rooms."""
    assert len([module for module in MODULES if "/" not in module]) <= 13


@pytest.mark.parametrize(
    ("source", "target"), [("_watch/watch", "_guard"), ("retry/policy", "sessions")]
)
def test_an_arrow_upwards_would_be_seen(source: str, target: str):
    """The test can fail: with a room lifted above those that know it, its arrows are wrong."""
    room = room_of(source, ROOMS)
    assert room is not None
    lifted = [each._replace(layer=8) if each == room else each for each in ROOMS]
    assert any(f"imports {source.partition('/')[0]}" in line for line in wrong(lifted))
    assert any(line.startswith(target) for line in wrong(lifted))


def test_module_names_are_unique():
    """What two modules are both called means the same in both: a command's, or a backend's, part."""
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        name = module.rstrip("/").rpartition("/")[2]
        if not re.fullmatch(
            r"cli/\w+|backends/\w+/(reading|client|sessions|__main__)", module.rstrip("/")
        ):
            homes.setdefault(name, []).append(module)
    # A room and the one module in it that is the room's heart.
    double = {
        n: h for n, h in homes.items() if len(h) > 1 and not all(n in m.split("/") for m in h)
    }
    assert double == {}
    twice = [h for h in homes.values() if len(h) > 1 and not h[1].startswith(h[0])]
    assert twice == []


@pytest.mark.parametrize("package", [m for m in MODULES if m.endswith("/")])
def test_no_module_hides_a_name_that_is_imported_when_it_is_used(package: str):
    """Importing a module sets it as its package's attribute, over a function that has its name."""
    inside = {m.removeprefix(package).rstrip("/") for m in MODULES if m.startswith(package)}
    lazily = {
        name.value
        for node in ast.walk(MODULES[package])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy"
        for table in [node.args[1]]
        if isinstance(table, ast.Dict)
        for names in table.values
        for name in ast.walk(names)
        if isinstance(name, ast.Constant)
    }
    assert lazily & inside == set()
    assert all(f"{package}{key}" in MODULES for key in lazy_keys(package))


def lazy_keys(package: str) -> list[str]:
    return [
        key
        for node in ast.walk(MODULES[package])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy"
        for key in keys_of(node.args[1], MODULES[package])
    ]


def test_class_names_are_unique():
    homes: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    # A turn of a session's, and of ACP's bridge: users know both by that name.
    assert homes.pop("Turn") == ["backends/acp/bridge", "sessions/turns"]
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
