"""The formats of files: their JSON Schemas, shown as tables; and the schema of streamguard.toml, made of what reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamguard._guard.knobs import ENDABLE
from streamguard.configuration import configuration, values
from streamguard.limits import BUDGETS
from streamguard.presets import PRESETS
from tests.docs.code_tables import SECTIONS, choices_of
from tests.docs.tables import code, page, table

SCHEMAS = Path(__file__).parents[2] / "streamguard" / "schemas"
# Of each file: its schema, and where a person reads about it.
FILES = {
    "configuration": ("`streamguard.toml`", "[Configuration](../how-to/configuration.md)"),
    "status": ("`streamguard run --status-file`", "[streamguard run](../how-to/run.md)"),
    "timeouts": ("`timeouts.jsonl`, each line", "[Evidence](../how-to/evidence.md)"),
    "receipt": ("`receipts/<step>-timeout.json`", "[Evidence](../how-to/evidence.md)"),
    "timeline": (
        "`timeline.jsonl`, each line",
        "[Evidence](../how-to/evidence.md#the-timeline-file)",
    ),
}


def pages() -> dict[str, str]:
    made = json.dumps(of_configuration(), indent=2) + "\n"
    return {
        "files.md": files(),
        "../../streamguard/schemas/configuration.schema.json": made,
    }


# --- streamguard.toml -------------------------------------------------------------------------

NUMBER = r"(\d+(\.\d*)?|\.\d+)"
TEXT = rf"^\s*({NUMBER}\s*(ms|s|m|h|d)?|({NUMBER}\s*(d|h|ms|m|s)\s*)+)\s*$"
OFF: dict[str, Any] = {"enum": [0, False, "0", "off", "no", "false", "none"]}
DURATION: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 86400},
        {"type": "string", "pattern": TEXT},
    ]
}
AT_ONCE: dict[str, Any] = {"anyOf": [{"const": 0}, *DURATION["anyOf"]]}
LIMIT: dict[str, Any] = {"anyOf": [OFF, *DURATION["anyOf"]]}
PACES = ["tokens", "messages", "command"]
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
CONVERTED: dict[str, dict[str, Any]] = {
    "duration": DURATION,
    "grace": AT_ONCE,
    "limit": LIMIT,
    "idle": {"anyOf": [{"enum": PACES}, *LIMIT["anyOf"]]},
    "tools": {"anyOf": [{"type": "object", "additionalProperties": LIMIT}, *LIMIT["anyOf"]]},
    "repeats": {"anyOf": [OFF, {"type": "integer", "minimum": 2}]},
    "ceiling": {"anyOf": [OFF, {"type": "number", "exclusiveMinimum": 0}]},
    "count": COUNT,
    "count_or_never": {"anyOf": [{"const": False}, COUNT]},
    "share": {"type": "number", "minimum": 0},
    "delays": {"type": "array", "minItems": 1, "items": AT_ONCE},
    "switch": {"type": "boolean"},
    "text": {"type": "string", "pattern": r"\S"},
    "file_name": {"type": "string", "pattern": r"\S"},
    "preset": {"enum": [*PRESETS]},
    "endable": {"anyOf": [{"enum": [*ENDABLE]}, {"type": "array", "items": {"enum": [*ENDABLE]}}]},
}


def converted(converter: Any) -> dict[str, Any]:
    if words := choices_of(converter):
        return {"enum": [*words]}
    return CONVERTED[converter.__name__]


def section(name: str) -> dict[str, Any]:
    keys, about = SECTIONS[name]
    properties = {key: converted(converter) for key, converter in keys.items()}
    return {
        "description": about.replace("`", ""),
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def of_configuration() -> dict[str, Any]:
    retry = section("retry")
    retry["properties"] |= {kind: section("retry.idle") for kind in values.RETRY_CLASSES}
    milliseconds = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, DURATION["anyOf"][1]]}
    of_kinds = {"type": "object", "properties": dict.fromkeys(BUDGETS, milliseconds)}
    step = {
        "id": {"type": "string"},
        "timeout_override": milliseconds,
        "hard_limit_override": milliseconds,
    }
    by_section = {
        "guard": section("guard"),
        "guards": {"type": "object", "additionalProperties": section("guard")},
        "retry": retry,
        "resume": section("resume"),
        "breaker": section("breaker"),
        "breakers": {"type": "object", "additionalProperties": section("breaker")},
        "run": section("run"),
        "flow": {"type": "string", "description": "The path of a flow's spec."},
        "timeouts": {"description": "Of time scopes, in milliseconds.", **of_kinds},
        "hard_limits": {"description": "Of time scopes, in milliseconds.", **of_kinds},
        "steps": {"type": "array", "items": {"type": "object", "properties": step}},
    }
    assert by_section.keys() == {*configuration._SECTIONS, *values.FLOW}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:streamguard:schema:configuration:1",
        "title": "streamguard.toml",
        "description": "And the table [tool.streamguard] of pyproject.toml.",
        "type": "object",
        "properties": by_section,
        "additionalProperties": False,
    }


# --- the page ---------------------------------------------------------------------------------


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    return found


def files() -> str:
    rows = [
        (about, code(identity(name)), code(f"{name}.schema.json"), where)
        for name, (about, where) in FILES.items()
    ]
    about_all = (
        "What streamguard reads and writes, and a JSON Schema for each. They are in the package: "
        '`importlib.resources.files("streamguard.schemas")`. The number at the end of an `$id` is the format\'s version: '
        "it grows when a reader of the old one could misread the new one."
    )
    parts = [
        about_all,
        table(("file", "`$id`", "schema", "about it"), rows),
    ]
    for name in FILES:
        if name != "configuration":
            parts += [f"## {schema(name)['title']}", *described(schema(name))]
    about_toml = (
        "Its keys are on [a page of their own](configuration.md). An editor that knows TOML and JSON Schemas completes and checks "
        "them, once it is told where `configuration.schema.json` is."
    )
    return page("Files and their formats", *parts, "## streamguard.toml", about_toml)


def identity(name: str) -> str:
    return (
        "urn:streamguard:schema:configuration:1"
        if name == "configuration"
        else schema(name)["$id"]
    )


def described(of: Mapping[str, Any]) -> Iterator[str]:
    if of.get("description"):
        yield str(of["description"])
    for variant in of.get("oneOf", ()):
        yield f"### {variant['title']}"
        yield from described(variant)
    if "properties" in of:
        required = of.get("required", ())
        rows = [
            (
                code(key),
                types_of(about),
                "" if key in required else "not always",
                about.get("description", ""),
            )
            for key, about in of["properties"].items()
        ]
        yield table(("key", "value", "there", "what it says"), rows)
        for key, about in of["properties"].items():
            if "properties" in about and key != "vitals":
                yield f"### {code(key)}"
                yield from described({**about, "description": ""})


def types_of(about: Mapping[str, Any]) -> str:
    if "const" in about:
        return code(json.dumps(about["const"]))
    if "enum" in about:
        return ", ".join(code(json.dumps(each)) for each in about["enum"])
    if "oneOf" in about or "anyOf" in about:
        found = [types_of(each) for each in about.get("oneOf", about.get("anyOf"))]
        return " or ".join(dict.fromkeys(found))
    kinds = about.get("type", "anything")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
