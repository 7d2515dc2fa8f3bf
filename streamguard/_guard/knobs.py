"""What may be written for a knob: names, defaults, presets, and one clear error for the rest (T12).

`fields_of` turns knobs as users write them into the fields of a `Plan`. Imports errors, config
presets and the watch's defaults; callers validate nothing themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from streamguard import backends
from streamguard._base import defaults, durations
from streamguard._base.callbacks import check_callable, several
from streamguard._base.near import near
from streamguard._base.numbers import (
    Default,
    Seconds,
    check_count,
    check_number,
    is_off,
    limit,
    seconds,
    wait,
)
from streamguard._base.spending import Ceiling
from streamguard._guard.modes import Mode
from streamguard.backends import _processes
from streamguard.errors import ConfigError
from streamguard.presets import PRESETS, named

PresetName: TypeAlias = Literal[
    "tokens",
    "messages",
    "command",
    "mala-retry",
    "mala-watchdog",
    "flow",
    "claude-print",
    "multica",
]
Endable: TypeAlias = Literal["quiet", "repeats", "tokens", "cost", "calls", "empty", "abandoned"]
Disconnect: TypeAlias = Callable[[], Awaitable[object] | object]


@dataclasses.dataclass(frozen=True)
class Derived:
    """A knob that nobody wrote, and that a client has: it gives way to a written one (T12).

    `spares`: as an interrupt, it leaves the client as good as it was. `is_guess`: a process that is
    there or not, as it turns out; it gives way to what is certain, and nobody is told of its lack.
    """

    client: object
    knob: str
    handle: Callable[[], Any] = dataclasses.field(compare=False, repr=False)
    spares: bool = False
    is_guess: bool = False

    def __call__(self) -> Any:
        return self.handle()


class Configured:
    """`idle_guard()`: the limit that configuration gives."""

    def __repr__(self) -> str:
        return "CONFIGURED"


IdleLimit: TypeAlias = Seconds | PresetName | Configured | None
CONFIGURED: Final = Configured()
DEFAULT_TOOLS: Final = Default(defaults.TOOLS)
DEFAULT_AFTER_SLEEP: Final = Default(defaults.AFTER_SLEEP)
DEFAULT_QUIET: Final = Default(defaults.QUIET)
DEFAULT_REPEATS: Final = Default(defaults.REPEATS)
DEFAULT_DISCONNECT_TIMEOUT: Final = Default(defaults.DISCONNECT_TIMEOUT)
DEFAULT_KILL_GRACE: Final = Default(defaults.KILL_GRACE)

# Where the name of a preset stands that has an `idle` beside it. No knob that anybody writes.
PRESET: Final = "/preset"
LIMITS: Final = ("idle", "first", "liveness", "turn", "exit_grace", "total", "after_sleep")
CEILINGS: Final[tuple[Ceiling, ...]] = get_args(Ceiling)
COUNTS: Final = ("repeats", *CEILINGS)
# What is told, unless `end_on` says that it ends the stream.
ENDABLE: Final[tuple[Endable, ...]] = get_args(Endable)


def fields_of(knobs: Mapping[str, Any], *, before: Collection[str] = ()) -> dict[str, Any]:
    """`knobs` as fields of a `Plan`; a ConfigError for a name or value that cannot be used.

    `before`: what was written already, which a preset leaves as it is. A preset is written as
    `idle`, or, where that is written beside it, as PRESET (`with_limit`).
    """
    knobs = _with_preset(knobs, before)
    fields: dict[str, Any] = {}
    limits: dict[str, float | None] = {}
    counts: dict[str, float | None] = {}
    # What a client has comes first, for what is written to go over it.
    for name, value in sorted(knobs.items(), key=lambda knob: knob[0] != "client"):
        if name in LIMITS:
            limits[name] = limit(value, name)
        elif name in COUNTS:
            counts[name] = _count(name, value)
        elif name in _OTHERS:
            for field, setting in _off_or(name, value).items():
                both = field == "disconnects"
                fields[field] = fields.get(field, ()) + setting if both else setting
        else:
            raise _unknown(name)
    numbers = {"limits": limits, "counts": counts}
    return {**fields, **{field: written for field, written in numbers.items() if written}}


def _with_preset(knobs: Mapping[str, Any], before: Collection[str]) -> Mapping[str, Any]:
    """`knobs` with those of the preset that is written: all but its `idle` give way."""
    place = PRESET if PRESET in knobs else "idle"
    name = knobs.get(place)
    if not _is_name(name):
        return knobs
    if name not in PRESETS:
        names = ", ".join(map(repr, PRESETS))
        hint = near(name, PRESETS, "")
        raise ConfigError(
            f"idle={name!r}: use seconds, a text such as {durations.SUCH_AS}, or one of the "
            f"presets {names}{hint and f'; {hint}'}"
        )
    knobs = {k: v for k, v in knobs.items() if k != place}
    written = {k: v for k, v in knobs.items() if not isinstance(v, Default)}
    said = named(name).knobs(limit(written.get("total"), "total"))
    if isinstance(written.get("tools"), Mapping) and (others := said.get("tools")) is not None:
        written["tools"] = {"*": Default(others), **written["tools"]}
    given = {
        knob: Default(value) if knob != "idle" and value is not None else value
        for knob, value in said.items()
        if knob == "idle" or knob not in before
    }
    return {**knobs, **given, **written}


def _is_name(value: object) -> bool:
    """Whether a text is to be the name of a preset: what begins with a number is a duration."""
    if not isinstance(value, str):
        return False
    return not (durations.is_meant(value) or durations.says_off(value))


def with_limit(first: IdleLimit, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """`knobs` with the limit that was written without a name, which is `idle` or a preset."""
    if isinstance(first, Configured):
        return dict(knobs)
    if "idle" not in knobs:
        return {"idle": first, **knobs}
    idle = knobs["idle"]
    if _is_name(idle) or not _is_name(first):
        raise ConfigError(
            f"{first!r} and idle={idle!r} are both the idle limit: write one of them. Beside the name "
            'of a preset idle= is seconds, or None for off: "multica", idle=60'
        )
    return {PRESET: first, **knobs}


def _off_or(name: str, value: Any) -> Mapping[str, Any]:
    # None is off, or the default; it is written in `replace`, to take away what there is.
    if value is None and name in _OFF:
        return _OFF[name]
    return _OTHERS[name](value)


def _count(name: str, value: Any) -> float | None:
    if isinstance(value, Default):
        return value
    if is_off(value):
        return None
    if name == "repeats":
        check_count(name, value, least=2)
    else:
        check_number(name, value, positive=True)
    if name != "cost" and not float(value).is_integer():
        raise ConfigError(f"{name}={value!r}: use a whole number")
    return float(value)


def check_endings(names: Collection[str], knobs: Mapping[str, Any]) -> None:
    """A ConfigError for an ending that can never come, since its knob is off."""
    for name in sorted(names):
        if name in (*COUNTS, "quiet") and is_off(knobs.get(name)):
            such_as = {"cost": 5.0, "repeats": 20, "quiet": 300}.get(name, 1_000_000)
            raise ConfigError(
                f"end_on={name!r} can end nothing: {name} is off; write it beside, such as {name}={such_as}"
            )


def _tools(tools: Seconds | Mapping[str, Seconds | None] | None) -> dict[str, Any]:
    return {"gate": True, "tools": {"*": DEFAULT_TOOLS, **_by_name("tools", tools)}}


def _quiet(quiet: Seconds | Mapping[str, Seconds | None] | None) -> dict[str, Any]:
    return {"quiet": {"*": DEFAULT_QUIET, **_by_name("quiet", quiet)}}


def _by_name(
    knob: str, windows: Seconds | Mapping[str, Seconds | None] | None
) -> dict[str, float | None]:
    """A window for each name, or one for all."""
    if not isinstance(windows, Mapping):
        return {"*": limit(windows, knob)}
    return {
        _name(knob, name): limit(window, f"{knob}[{name!r}]") for name, window in windows.items()
    }


def _name(knob: str, name: Any) -> str:
    if not isinstance(name, str):
        raise ConfigError(
            f"{knob}={{{name!r}: ...}}: use the names of tools, or '*' for the others"
        )
    return name


def _end_on(names: Any) -> dict[str, Any]:
    wanted: tuple[str, ...] = (names,)
    if isinstance(names, list | tuple | set | frozenset):
        wanted = (*names,)  # pyright: ignore[reportUnknownVariableType] - they are looked at below
    for name in wanted:
        if name not in ENDABLE:
            raise ConfigError(
                f"end_on={names!r}: {name!r} is nothing that can end a stream; {near(name, ENDABLE)}"
            )
    return {"end_on": frozenset(wanted)}


def _client(client: Any) -> dict[str, Any]:
    if (known := backends.of_client(client)) is not None:
        return _known_client(client, *known)
    disconnect = getattr(client, "disconnect", None)
    if isinstance(client, type):
        raise ConfigError(
            f"client={client!r} is a class: pass an object of it, the one whose stream you guard"
        )
    if not callable(disconnect):
        is_method = inspect.ismethod(client) or inspect.isfunction(client)
        instead = f"; did you mean disconnect=client.{client.__name__}?" if is_method else ""
        raise ConfigError(
            f"client={client!r} has no disconnect() to call: pass a client object that has one, "
            f"or disconnect= with the function that ends your backend{instead}"
        )
    return {"disconnects": (disconnect,), "process": _guessed_process(client)}


def _known_client(
    client: Any, backend: backends.Backend, known: backends.Client
) -> dict[str, Any]:
    found: dict[str, Any] = {"disconnects": (known.disconnect,), "expected": backend}
    if known.interrupt is not None:
        spares = known.outlives_interrupt
        found["interrupts"] = (Derived(client, "interrupt", known.interrupt, spares),)
    if known.process is None:
        found["process"] = _guessed_process(client)
    else:
        found["process"] = Derived(client, "process", known.process)
    return found


def _guessed_process(client: object) -> Derived:
    """The process that a client may have, though nobody knows that of its kind."""
    find = functools.partial(_processes.live_process_of, client)
    return Derived(client, "process", find, is_guess=True)


def is_guess(process: object) -> bool:
    """Whether it is no process that somebody has written, or that is known to be there."""
    return isinstance(process, Derived) and process.is_guess


def _callable(name: str, field: str) -> Callable[[Any], dict[str, Any]]:
    def check(value: Any) -> dict[str, Any]:
        check_callable(name, value)
        return {field: (value,)}

    return check


def _process(value: Any) -> dict[str, Any]:
    if isinstance(value, int) or hasattr(value, "pid"):
        from streamguard.process import check_adoptable

        check_adoptable(value)
    elif isinstance(value, str) and value.strip().isdigit():
        raise ConfigError(f"process={value!r}: write the pid as a number, process={int(value)}")
    elif not callable(value) or inspect.iscoroutinefunction(value):
        raise ConfigError(
            f"process={value!r}: pass a pid, a process object (with .pid), or a plain function "
            "that gives either, or None for as long as there is none"
        )
    else:
        check_callable("process", value)
    return {"process": value}


def _activity(value: Any) -> dict[str, Any]:
    from streamguard.activity import Activity

    if not isinstance(value, Activity):
        raise ConfigError(f"activity={value!r}: pass an Activity, such as Activity('issue-7')")
    return {"activity": value}


def _mode(value: Any) -> dict[str, Any]:
    if value not in (None, *get_args(Mode)):
        hint = near(value, get_args(Mode), "use 'enforce', 'warn' or 'off'")
        raise ConfigError(f"mode={value!r}: {hint}")
    return {"mode": value}


_OTHERS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = MappingProxyType(
    {
        "tools": _tools,
        "quiet": _quiet,
        "end_on": _end_on,
        "client": _client,
        "disconnect": _callable("disconnect", "disconnects"),
        "interrupt": _callable("interrupt", "interrupts"),
        "process": _process,
        "kill_grace": lambda v: {"kill_grace": wait(v, "kill_grace")},
        "disconnect_timeout": lambda v: {"disconnect_timeout": seconds(v, "disconnect_timeout")},
        "activity": _activity,
        "read": lambda value: {"backend": backends.resolve(value)},
        "observer": lambda v: {"observers": several("observer", v, "event")},
        "on_warn": lambda v: {"on_warn": several("on_warn", v, "event")},
        "mode": _mode,
    }
)

_OFF: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "end_on": {"end_on": frozenset()},
        "client": {"disconnects": (), "expected": None},
        "disconnect": {"disconnects": ()},
        "interrupt": {"interrupts": ()},
        "process": {"process": None},
        "disconnect_timeout": {"disconnect_timeout": DEFAULT_DISCONNECT_TIMEOUT},
        "kill_grace": {"kill_grace": DEFAULT_KILL_GRACE},
        "activity": {"activity": None},
        "observer": {"observers": ()},
        "on_warn": {"on_warn": ()},
    }
)


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"there is no knob {name!r}; {near(name, (*LIMITS, *COUNTS, *_OTHERS))}")
