"""Tables of what one can write and what one is told: knobs, keys, variables, flags, exit codes, events, metrics."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from streamguard import errors, events, idle_guard
from streamguard._base import configured, variables
from streamguard._base.numbers import Default
from streamguard._guard.knobs import ENDABLE
from streamguard.breaker.circuit_events import CircuitEvent
from streamguard.cli import reference
from streamguard.cli.helping import with_unit
from streamguard.configuration import Configuration, values
from streamguard.events.flat import _VERDICT, name_of
from streamguard.observers import genai, instruments, prometheus
from streamguard.presets import PRESETS
from streamguard.runner.hooks import FACTS
from tests.docs.tables import code, page, paragraph, table


def pages() -> dict[str, str]:
    commands = [*reference.commands()]
    return {
        "knobs.md": knobs(commands),
        "configuration.md": configuration(commands),
        "environment.md": environment(),
        "commands.md": command_line(commands),
        "exit-codes.md": exit_codes(commands),
        "events.md": all_events(),
        "metrics.md": metrics(),
    }


# --- knobs ------------------------------------------------------------------------------------


def told_of_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each parameter below `Args:`."""
    told = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\nRaises:\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n(?: {8}.*|\s*$))*)", told, re.MULTILINE)
    return {name: paragraph(text) for name, text in found}


def shown_default(value: Any) -> str:
    """A default as one would write it; empty for none."""
    if isinstance(value, Default):
        value = getattr(value, "value", float(value))
    match value:
        case None | () | inspect.Parameter.empty:
            return ""
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:g}"
        case str():
            return value
        case _:
            return "" if repr(value) == "CONFIGURED" else str(value)


UNITS = {
    values.limit: "seconds",
    values.idle: "seconds, or a preset's name",
    values.tools: "seconds, or by name",
    values.duration: "seconds",
    values.grace: "seconds",
    values.repeats: "times",
    values.ceiling: "a number",
}


FLAGS = {"kill_grace": "kill-after"}  # what `streamguard run` calls it


def knobs(commands: list[reference.Command]) -> str:
    flags = flags_of(commands)
    told = told_of_arguments(idle_guard)
    rows, lines = [], []
    for name, parameter in inspect.signature(idle_guard).parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            continue
        error = errors.ERRORS.get(name)
        rows.append(
            (
                f"[`{name}`](#{name})",
                code(shown_default(parameter.default)),
                UNITS.get(values.GUARD.get(name), ""),
                "yes" if name in values.GUARD else "",
                code(configured.variable(configured.PREFIX, name))
                if name in configured.IN_ENVIRONMENT
                else "",
                code(flags.get(FLAGS.get(name, name).replace("_", "-"), "").partition(" ")[0]),
                code(error.__name__) if error else "",
            )
        )
        lines.append(f"### {name}\n\n{told[name]}")
    head = (
        "keyword",
        "default",
        "unit",
        "below `[guard]`",
        "variable",
        "flag of `run`",
        "error",
    )
    ends = [
        (code(name), code(error.__name__), paragraph((error.__doc__ or "").partition("\n")[0]))
        for name, error in errors.ERRORS.items()
    ]
    presets = [
        (code(name), ", ".join(f"{key} {shown(value)}" for key, value in said_of(preset).items()))
        for name, preset in PRESETS.items()
    ]
    return page(
        "Knobs",
        "What `idle_guard` takes, and how each is said elsewhere. Where no unit is said, a duration is in seconds. "
        "`tools`, `quiet`, `repeats` and the ceilings end nothing, or raise, as their line says.",
        table(head, rows),
        "## What each does",
        *lines,
        "## Presets",
        "What their names stand for, in seconds. What is written beside a preset goes over it.",
        table(("preset", "says"), presets),
        "## Limits and errors",
        "`error.verdict.limit` is the name of the limit. Only what `end_on` names ends a stream for "
        + ", ".join(map(code, ENDABLE))
        + ".",
        table(("limit", "error", "raised when"), ends),
    )


def said_of(preset: Any) -> dict[str, Any]:
    return {name: value for name, value in preset.knobs().items() if value is not None}


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


# --- configuration ----------------------------------------------------------------------------

SECTIONS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "guard": (
        values.GUARD,
        "Every guard that is made of the configuration, and `streamguard run`.",
    ),
    "retry": (values.RETRY, "What `from_config().reconnect()` retries; see `RetryPolicy`."),
    "retry.idle": (
        values.BACKOFF,
        "One class of errors; likewise "
        + ", ".join(f"`[retry.{kind}]`" for kind in values.RETRY_CLASSES if kind != "idle")
        + ".",
    ),
    "resume": (values.RESUME, "How a session goes on; see `reconnecting_resume`."),
    "breaker": (
        values.BREAKER,
        "Circuit breakers; see `CircuitBreaker`. `[breakers.KEY]` for one of them.",
    ),
    "run": (values.RUN, "`streamguard run` alone. What is not here is taken from `[guard]`."),
}
MEANT = {
    "duration": 'seconds, or a text with a unit, such as `"90s"` or `"3m"`',
    "grace": "as a duration; `0` is at once",
    "limit": 'a duration; `0`, `false` or `"off"` for none',
    "idle": 'a duration, `"tokens"`, `"messages"` or `"command"`; `0`, `false` or `"off"` for none',
    "tools": 'a duration, or a table of them by name (`"*"`: the others); `0`, `false` or `"off"` for none',
    "repeats": 'a whole number from 2; `0`, `false` or `"off"` for never',
    "ceiling": 'a number; `0`, `false` or `"off"` for none',
    "count": "a whole number",
    "count_or_never": "a whole number, or `false` for never",
    "share": "a number from 0",
    "delays": "a list of durations",
    "switch": "`true` or `false`",
    "text": "a text",
    "file_name": "a path",
    "preset": "a preset's name",
    "endable": "a list of " + ", ".join(f'`"{name}"`' for name in ENDABLE),
}


def choices_of(converter: Any) -> tuple[str, ...]:
    """The words of `one_of`."""
    return tuple(inspect.getclosurevars(converter).nonlocals.get("words", ()))


def meaning_of(converter: Any) -> str:
    if words := choices_of(converter):
        return " or ".join(f'`"{word}"`' for word in words)
    return MEANT[converter.__name__]


def configuration(commands: list[reference.Command]) -> str:
    in_force = dict(Configuration(None)._in_force())
    flags = {flag_name(flag): flag for flag in options_of(commands)}
    parts = []
    for section, (keys, about) in SECTIONS.items():
        rows = []
        for key, converter in keys.items():
            if section == "run":
                flag = flags.get(key.replace("_", "-"))
                default = flag.default if flag else ""
            else:
                setting = in_force.get(section, {}).get(key)
                value = setting.value if setting else None
                if value is None and section == "guard":
                    value = default_of(key)
                default = toml_default(value, key)
            rows.append((code(key), meaning_of(converter), code(default)))
        parts += [f"## `[{section}]`", about, table(("key", "value", "default"), rows)]
    return page(
        "Configuration keys",
        "What `streamguard.toml` may say; in `pyproject.toml` the same below `[tool.streamguard]`. How it is found, and what "
        "goes over what, is in [the how-to](../how-to/configuration.md). Its JSON Schema is among [the files' formats](files.md).",
        *parts,
        "## `[guards.NAME]`",
        'The keys of `[guard]`, over it, for `from_config().guard("NAME")`.',
        "## Time scopes",
        "`flow` is the path of a flow's spec. Or, in its place, the tables of a spec: `[timeouts]` and `[hard_limits]`, each with "
        "`flow`, `step`, `llm_call` and `tool` in milliseconds, and `[[steps]]` with `id`, `timeout_override` and "
        "`hard_limit_override`. See [time scopes](../how-to/scopes.md).",
    )


def default_of(knob: str) -> Any:
    """What `idle_guard` takes if it is not written."""
    parameter = inspect.signature(idle_guard).parameters.get(knob)
    value = parameter.default if parameter is not None else None
    return float(value) if isinstance(value, Default) else None


def toml_default(value: Any, key: str) -> str:
    match value:
        case None | "":
            return ""
        case bool():
            return str(value).lower()
        case float() if value == float("inf"):
            return ""
        case int() | float():
            is_time = key not in {"jitter", "pause_growth", "repeats"} and isinstance(value, float)
            return f'"{with_unit(value)}"' if is_time and value else f"{value:g}"
        case tuple() | list():
            return f"[{', '.join(f'{each:g}' for each in value)}]"
        case _:
            return f'"{value}"'


# --- variables --------------------------------------------------------------------------------

OURS = {
    "MODE": "`enforce`, `warn` (tell, end nothing) or `off`, for every guard of the program. Of this and what the code says, the weaker is in force.",
    "IDLE": "The idle limit of `idle_guard()` without one, and of `streamguard run`.",
    "CONFIG": "The configuration's file, in place of the nearest one; `off` for none.",
    "FLEET": "Where a fleet's sessions are: a file, an address, or `@FILE`.",
    "MARK": "Set by us, for processes of a backend: whose they are. Pass it on.",
}


def environment() -> str:
    ours = [
        (code(name), OURS[constant])
        for constant, name in vars(variables).items()
        if constant.isupper() and constant != "TYPE_CHECKING"
    ]
    mentioned = {row[0] for row in ours}
    for knob in configured.IN_ENVIRONMENT:
        name = code(configured.variable(configured.PREFIX, knob))
        if name not in mentioned:
            says = "A preset's name." if knob == "preset" else f"[`{knob}`](knobs.md#{knob})."
            ours.append((name, says))
    facts = [
        (code(configured.variable(configured.PREFIX, fact)), HOOK_FACTS[fact]) for fact in FACTS
    ]
    return page(
        "Environment variables",
        table(("variable", "what it says"), ours),
        'Durations as in the configuration: `90`, `90s`, `5m`, `2h`; `0` or `off` for none. `from_env("MYAPP")` reads the same '
        "behind a prefix of yours: "
        + ", ".join(code(configured.variable("MYAPP", knob)) for knob in configured.IN_ENVIRONMENT)
        + ".",
        "## What hooks are told",
        "A command of `streamguard run --on-warn` or `--on-end` has these in its environment; what is not known is not there.",
        table(("variable", "what it says"), facts),
    )


HOOK_FACTS = {
    "EVENT": "What happened: the event's name.",
    "REASON": "The same in words, for a person.",
    "LIMIT": "Which limit it is.",
    "WINDOW": "How long that is, in seconds.",
    "ELAPSED": "How long it has lasted, in seconds.",
    "PID": "The command's process.",
    "EXIT": "The exit code of `streamguard run`.",
    "RECEIPT": "The receipt that was written, with `--record`.",
    "STATUS_FILE": "The file of `--status-file`.",
    "SESSION_ID": "The agent's session.",
}


# --- commands ---------------------------------------------------------------------------------


def options_of(commands: list[reference.Command]) -> Iterator[reference.Flag]:
    """The flags of `streamguard run`."""
    (run,) = (command for command in commands if command.name == "run")
    return (flag for flags in run.groups.values() for flag in flags)


def flag_name(flag: reference.Flag) -> str:
    return re.search(r"--([\w-]+)", flag.flags)[1]


def flags_of(commands: list[reference.Command]) -> dict[str, str]:
    return {flag_name(flag): flag.flags.rpartition(", ")[2] for flag in options_of(commands)}


def command_line(commands: list[reference.Command]) -> str:
    parts = []
    for command in commands:
        about = re.sub(r"(?m)^  (.+(?:\n  .+)*)", r"`\1`", command.says).strip()
        parts += [f"## streamguard {command.name}", f"`{command.usage}`", about]
        for heading, flags in command.groups.items():
            shown_flags = [flag for flag in flags if "--help" not in flag.flags]
            if not shown_flags:
                continue
            has_default = any(flag.default for flag in shown_flags)
            head = ("", "what it does", "default")[: 2 + has_default]
            rows = [
                (code(flag.flags), flag.says, code(flag.default))[: 2 + has_default]
                for flag in shown_flags
            ]
            parts += [f"**{heading}**", table(head, rows)]
    return page(
        "Commands",
        "What each command's `--help` says. How to use them: [streamguard run](../how-to/run.md), [top](../how-to/top.md), "
        "[the report](../how-to/report.md), [a fleet](../how-to/fleet.md). All their [exit codes](exit-codes.md).",
        *parts,
    )


def exit_codes(commands: list[reference.Command]) -> str:
    parts = []
    for command in commands:
        if command.exit_codes:
            rows = [(code(number), says) for number, says in command.exit_codes]
            parts += [f"## streamguard {command.name}", table(("code", "meaning"), rows)]
    return page(
        "Exit codes",
        "`exit_code_for(error)` gives a program of yours the same codes: 124 or 137 after a limit, 130 after Ctrl-C, 2 for wrong "
        "configuration, else 1.",
        *parts,
    )


# --- events -----------------------------------------------------------------------------------


def below(base: type) -> Iterator[type]:
    for child in base.__subclasses__():
        yield child
        yield from below(child)


def of_base(base: type) -> list[type]:
    """Those that are told, and shipped: a test's own kinds are not ours."""
    found = {
        kind: None
        for kind in below(base)
        if not kind.__subclasses__() and kind.__module__.startswith("streamguard.")
    }
    return sorted(found, key=lambda kind: kind.__name__)


def named(kind: type) -> str:
    return name_of(object.__new__(kind))


def level_of(kind: type) -> str:
    level = getattr(kind, "level", None)
    return logging.getLevelName(level).lower() if isinstance(level, int) else "by how it went"


def event_table(base: type, known: set[str]) -> str:
    rows = []
    has_level = base is events.Event
    for kind in of_base(base):
        own = [field.name for field in fields(kind) if field.name not in known]
        docs = re.split(r"\n\s*\n", inspect.getdoc(kind) or "")
        about = paragraph(docs[0])
        level = (level_of(kind),) if has_level else ()
        rows.append(
            (code(named(kind)), code(kind.__name__), *level, ", ".join(map(code, own)), about)
        )
    level = ("log level",) if has_level else ()
    return table(("name", "type", *level, "its own fields", "what it says"), rows)


def all_events() -> str:
    return page(
        "Events",
        "What `observer=` is called with, and what a log record's `record.streamguard` has under the same names. How to use them: "
        "[observers](../how-to/observers.md).",
        "## Of a stream",
        "Each has `activity` and `at`, an instant on the loop's clock.",
        event_table(events.Event, {"activity", "at"}),
        "## Of a time scope",
        event_table(events.ScopeEvent, set()),
        "## Of a circuit breaker",
        "Each has `key` and `at`.",
        event_table(CircuitEvent, {"key", "at"}),
        "## A verdict",
        "Where an event has a `verdict`, a log record has "
        + ", ".join(map(code, _VERDICT))
        + " of it, as far as they are known.",
    )


# --- metrics ----------------------------------------------------------------------------------


def metrics() -> str:
    prometheus_rows = [
        (code(f"streamguard_{name}"), kind.lower(), ", ".join(map(code, labels)), says)
        for name, (kind, says, labels, *_) in prometheus_metrics().items()
    ]
    histograms = [
        (code(name), "histogram", code(made.unit), made.text)
        for name, made in genai.HISTOGRAMS.items()
    ]
    counters = [
        (code(name), "counter", code(instruments._UNITS.get(name, "1")), says)
        for name, says in instruments.COUNTERS.items()
    ]
    return page(
        "Metrics",
        "How to export them: [observers](../how-to/observers.md).",
        "## Prometheus",
        "Of `PrometheusObserver`. The client adds `_total` to counters.",
        table(("metric", "kind", "labels", "what it counts"), prometheus_rows),
        "## OpenTelemetry",
        f"Of `OpenTelemetryObserver`, by version `{genai.VERSION}` of the conventions.",
        table(("metric", "kind", "unit", "what it counts"), [*histograms, *counters]),
    )


def prometheus_metrics() -> Mapping[str, Any]:
    """The table that the observer makes its metrics of."""
    return next(
        value
        for value in vars(prometheus).values()
        if isinstance(value, Mapping) and "timeouts_withdrawn" in value
    )
