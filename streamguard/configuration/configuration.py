"""`from_config()`: what `streamguard.toml` or `pyproject.toml` says, as the objects that code makes.

    config = from_config()  # or from_env("MYAPP"): MYAPP_IDLE=5m
    stream | config.guard()                          # idle_guard with what [guard] says
    session(open) | config.guard("coder") | config.reconnect()
    breaker = config.breaker("api")
    async with config.flow.scope(name="deploy"): ...
    print(config.explain())

All of it is checked when it is read, so that a mistake shows when a program starts and not when a
backend hangs. Imports the parts that it makes when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard._base import defaults
from streamguard._base.calling import checked
from streamguard._base.configured import PREFIX, variable
from streamguard._base.quoting import quoted
from streamguard._base.spending import CEILINGS
from streamguard._base.variables import MODE
from streamguard._guard.modes import environment_idle, environment_mode, mode_in_force, weaker
from streamguard.configuration import environment, values
from streamguard.configuration import toml_files as files
from streamguard.configuration.settings import (
    BY_NAME,
    Setting,
    laid_over,
    named_over,
    with_pace,
    with_preset,
)
from streamguard.errors import ConfigError
from streamguard.presets import PRESETS, named

if TYPE_CHECKING:
    from os import PathLike

    from streamguard._guard.modes import Mode
    from streamguard._guard.operator import Operator
    from streamguard.breaker.breaker import CircuitBreaker
    from streamguard.configuration.toml_files import Written
    from streamguard.retry.policy import RetryPolicy
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.points import Opener
    from streamguard.specs import FlowSpec

__all__ = ["Configuration", "from_config", "from_env"]

_SECTIONS: Final = ("guard", "guards", "retry", "resume", "breaker", "breakers", "run", "flow")
_DEFAULT: Final = "default"


@checked
def from_config(file: str | PathLike[str] | None = None) -> Configuration:
    """The configuration in `file`, or in force for the working directory.

    That is the nearest `streamguard.toml`, or `pyproject.toml` with `[tool.streamguard]`, from here
    upwards, unless the environment variable STREAMGUARD_CONFIG names a file (or says "off").
    The variables STREAMGUARD_IDLE, STREAMGUARD_PRESET and so on go before both (`from_env` has the
    list). Nothing written is a configuration, too.

    Raises:
        ConfigError: something that is written cannot be used, with its file, line and key.
    """
    found = Configuration(files.find() if file is None else files.read(Path(file)))
    found.check()
    return found


@checked
def from_env(prefix: str = PREFIX) -> Configuration:
    """The configuration from environment variables that begin with `prefix`, such as "MYAPP".

    MYAPP_IDLE, MYAPP_FIRST, MYAPP_LIVENESS, MYAPP_TOOLS, MYAPP_TURN, MYAPP_EXIT_GRACE and
    MYAPP_TOTAL are limits: seconds, or with a unit (`90s`, `5m`, `2h`); 0 or `off` for none.
    MYAPP_PRESET names a preset, MYAPP_MODE is `enforce`, `warn` or `off`. A limit that is off there is
    off, whatever the code says: `from_env("MYAPP").guard(idle=300)` gives way to MYAPP_IDLE=0. No file
    is read, and STREAMGUARD_MODE stays in force.

    Raises:
        ConfigError: variables cannot be used; all of them are named.
    """
    return Configuration(None, environment.prefix_of(prefix), is_alone=True)


class Configuration:
    """The configuration. Each value is checked when it is read; `check` checks all of them."""

    def __init__(
        self, source: Written | None, prefix: str = PREFIX, *, is_alone: bool = False
    ) -> None:
        self._source = source
        self._prefix = prefix
        self._is_alone = is_alone  # there are only variables
        if is_alone:
            environment.read(prefix)
        self._guard = self._section(values.GUARD, "guard")
        self._guards = self._named(values.GUARD, "guards")
        self._retry = self._section(values.RETRY, "retry", others=values.RETRY_CLASSES)
        self._backoffs = {
            kind: self._section(values.BACKOFF, "retry", kind) for kind in values.RETRY_CLASSES
        }
        self._resume = self._section(values.RESUME, "resume")
        self._breaker = self._section(values.BREAKER, "breaker")
        self._breakers = self._named(values.BREAKER, "breakers")
        self._run = self._section(values.RUN, "run")
        if source is not None:
            source.check_keys((*_SECTIONS, *values.FLOW))
        self._check_guard("guard", self._guard)
        for name, settings in self._guards.items():
            self._check_guard(f"guards.{name}", laid_over(self._guard, settings))

    def __repr__(self) -> str:
        where = f"from {self._prefix}_*" if self._is_alone else self.path or "without a file"
        return f"<Configuration {quoted(where)}>"

    @property
    def path(self) -> Path | None:
        """The file that it was read from."""
        return self._source.path if self._source else None

    # --- what is made of it -------------------------------------------------------------------

    def guard(self, name: str = "", **knobs: Any) -> Operator:
        """An `idle_guard` with what `[guard]` says, over it `[guards.NAME]`, over it `knobs`.

        Raises:
            ConfigError: `[guards.NAME]` is not there, or no idle limit is said anywhere.
        """
        from streamguard.operators import idle_guard

        settings = self._guard_settings(name)
        chosen = settings.pop("preset", None)
        said = {key: setting.value for key, setting in settings.items()}
        for key in BY_NAME:
            if key in said and key in knobs:
                knobs[key] = named_over(said[key], knobs[key])
        said |= knobs
        said |= self._switched_off(said)
        if "idle" not in said:
            said["idle"] = None if chosen is not None else self._idle_of_environment()
        return idle_guard(said.pop("idle"), **said)

    def _switched_off(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What the environment says is off, whatever the code says."""
        variables = self._environment()
        off: dict[str, Any] = {
            k: None for k, setting in variables.items() if setting.value is None
        }
        if "mode" in variables:
            off["mode"] = weaker(variables["mode"].value, said.get("mode") or "enforce")
        return off

    def _idle_of_environment(self) -> float | None:
        """What must be there where nothing else says a limit; the ConfigError says what to do."""
        if not self._is_alone:
            return environment_idle()
        names = " or ".join(variable(self._prefix, knob) for knob in ("idle", "preset"))
        raise ConfigError(
            f"no idle limit is said: set {names}, or write it, "
            f"from_env({self._prefix!r}).guard(idle=180)"
        )

    def reconnect(
        self,
        open: Opener[Any] | None = None,  # noqa: A002 - the word that users write
        /,
        **options: Any,
    ) -> HostingOperator[Any]:
        """A `reconnecting_resume` with what `[retry]` and `[resume]` say, over it `options`."""
        from streamguard.sessions.hosting_operators import reconnecting_resume

        said = {key: setting.value for key, setting in self._resume.items()}
        if "policy" not in options:
            said["policy"] = self.retry_policy
        return reconnecting_resume(open, **said | options)

    @cached_property
    def retry_policy(self) -> RetryPolicy:
        """What `[retry]` says, and the defaults for the rest."""
        from dataclasses import replace

        from streamguard.retry.policy import RetryPolicy

        plain = RetryPolicy()
        changed: dict[str, Any] = {key: setting.value for key, setting in self._retry.items()}
        chosen = self._preset
        if chosen is not None and (retry := named(chosen.value).retry) is not None:
            plain = replace(plain, idle=replace(plain.idle, retries=retry[0], delays=retry[1]))
            changed["idle"] = plain.idle
        for kind, backoff in self._backoffs.items():
            if backoff:
                said = {key: setting.value for key, setting in backoff.items()}
                changed[kind] = replace(getattr(plain, kind), **said)
        return replace(plain, **changed)

    def breaker(self, key: str = "", **options: Any) -> CircuitBreaker:
        """A new `CircuitBreaker` with what `[breaker]` says, over it `[breakers.KEY]`."""
        from streamguard.breaker.breaker import CircuitBreaker

        said = {k: s.value for k, s in {**self._breaker, **self._breakers.get(key, {})}.items()}
        return CircuitBreaker(key, **said | options)

    @cached_property
    def flow(self) -> FlowSpec:
        """The limits of time scopes: `flow = "flow.yaml"`, or the tables of a spec in the file."""
        from streamguard.specs import FlowSpec

        source = self._source
        if source is None:
            return FlowSpec()
        written = {key: source.table[key] for key in values.FLOW if key in source.table}
        if "flow" not in source.table:
            return FlowSpec.of(written, source=str(source.path))
        if written:
            raise ConfigError(
                f"{source.where('flow')}: the limits of scopes are in this file, too "
                f"({', '.join(written)}): keep them in one place"
            )
        named = source.table["flow"]
        if not isinstance(named, str):
            raise ConfigError(f'{source.where("flow")}: write a path, such as "flow.yaml"')
        return FlowSpec.load(source.path.parent / named)

    @property
    def says_idle(self) -> bool:
        """Whether `guard()` needs no limit of its own."""
        return not self._guard_settings("").keys().isdisjoint(("idle", "preset"))

    @property
    def windows(self) -> Mapping[str, float | None]:
        """The silences of `[guard]` in seconds: `idle` and `first`."""
        said = with_pace(self._guard_settings(""))
        return {name: said[name].value if name in said else None for name in ("idle", "first")}

    @property
    def mode(self) -> Mode | None:
        """What `[guard]` says of the mode."""
        return self._guard["mode"].value if "mode" in self._guard else None

    @property
    def run(self) -> Mapping[str, Any]:
        """What `streamguard run` takes from here: `[run]`, and what `[guard]` says of limits."""
        guard = {k: s for k, s in self._guard.items() if not s.preset}
        if "kill_grace" in guard:
            guard["kill_after"] = guard["kill_grace"]
        settings = with_preset(guard, for_run=True)
        for said_there in (self._run, self._environment(for_run=True)):
            settings = laid_over(settings, said_there)
        said = {k: s.value for k, s in with_pace(settings).items() if k in values.RUN}
        said.pop("preset", None)
        for key in BY_NAME:
            if isinstance(said.get(key), Mapping):
                by_name: dict[str, float | None] = dict(said.pop(key))
                if "*" in by_name:
                    said[key] = by_name.pop("*")
                said[f"{key}_by_name"] = by_name
        return said

    # --- what is in force, and why ------------------------------------------------------------

    def explain(self) -> str:
        """Every value in force, a line each, with where it comes from."""
        rows: list[tuple[str, str, str]] = []
        for section, settings in self._in_force():
            for key, setting in settings.items():
                said = (f"{section}.{key}", _shown(setting.value, key), setting.origin)
                rows.append((quoted(said[0]), quoted(said[1]), quoted(said[2])))
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [
            f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}".rstrip()
            for name, value, origin in rows
        ]
        head = quoted(self.path) if self.path else "no streamguard.toml, no [tool.streamguard]"
        if self._is_alone:
            head = f"environment variables {self._prefix}_*"
        return "\n".join((f"# {head}", *lines, *self._notes()))

    def _notes(self) -> list[str]:
        """What a ceiling cannot know, for want of being told."""
        from streamguard.backends.facts import who_tells

        sections = (self._guard, *self._guards.values(), self._run)
        written = {name for section in sections for name, said in section.items() if said.value}
        return [f"# {knob}: {who_tells(knob)}" for knob in CEILINGS if knob in written]

    def _in_force(self) -> list[tuple[str, Mapping[str, Setting]]]:
        from dataclasses import fields

        from streamguard.breaker.breaker import CircuitBreaker

        guard = dict.fromkeys(values.GUARD, Setting(None, _DEFAULT)) | {
            "tools": Setting(defaults.TOOLS, _DEFAULT),
            "quiet": Setting(defaults.QUIET, _DEFAULT),
            "repeats": Setting(defaults.REPEATS, _DEFAULT),
            "after_sleep": Setting(defaults.AFTER_SLEEP, _DEFAULT),
            "disconnect_timeout": Setting(defaults.DISCONNECT_TIMEOUT, _DEFAULT),
            "kill_grace": Setting(defaults.KILL_GRACE, _DEFAULT),
            "mode": Setting("enforce", _DEFAULT),
        }
        guard |= with_pace(self._guard_settings(""))
        if guard["preset"].value is None:
            del guard["preset"]
        mode = mode_in_force(guard["mode"].value, tell=_pass_over)
        if os.environ.get(MODE) and environment_mode() == mode:
            guard["mode"] = Setting(mode, f"environment variable {MODE}")
        shown = [("guard", guard)]
        shown += [(f"guards.{name}", settings) for name, settings in self._guards.items()]
        policy = self.retry_policy
        retry = {key: Setting(getattr(policy, key), _DEFAULT) for key in values.RETRY}
        shown.append(("retry", {**retry, **self._retry}))
        for kind in values.RETRY_CLASSES:
            backoff = getattr(policy, kind)
            keys = (f.name for f in fields(backoff))
            plain = {key: Setting(getattr(backoff, key), _DEFAULT) for key in keys}
            shown.append((f"retry.{kind}", {**plain, **self._backoffs[kind]}))
        options = signature(CircuitBreaker).parameters
        breaker = {key: Setting(options[key].default, _DEFAULT) for key in values.BREAKER}
        shown.append(("breaker", {**breaker, **self._breaker}))
        shown += [(f"breakers.{key}", settings) for key, settings in self._breakers.items()]
        shown += [("resume", self._resume), ("run", self._run)]
        flow = {
            f"{what}.{kind}": Setting(value, self._flow_origin())
            for kind, override in self.flow.kinds.items()
            for what, value in (("timeouts", override.timeout), ("hard_limits", override.hard))
            if value is not None
        }
        return [*shown, ("flow", flow)]

    def _flow_origin(self) -> str:
        source = self._source
        return "" if source is None else source.where("flow").rpartition(":")[0]

    # --- reading ------------------------------------------------------------------------------

    def _guard_settings(self, name: str) -> dict[str, Setting]:
        if name and name not in self._guards:
            raise ConfigError(f"{self._no_guard(name)}{self._instead(name)}")
        settings = laid_over(self._guard, self._guards.get(name, {}))
        return laid_over(settings, self._environment())

    def _no_guard(self, name: str) -> str:
        if self._is_alone:
            return f"there is no [guards.{name}]: from_env() reads no file, from_config() does"
        where = f"{self.path}: " if self.path else ""
        return (
            f"{where}there is no [guards.{name}]; there are: {', '.join(self._guards) or 'none'}"
        )

    def _instead(self, name: str) -> str:
        """What to write where the name of a preset stands for that of a guard."""
        if name not in PRESETS:
            return ""
        places = [f"{variable(self._prefix, 'preset')}={name} in the environment"]
        if not self._is_alone:
            places.append(f'preset = "{name}" below [guard] in streamguard.toml')
        return (
            f". {name!r} is a preset: write {', or '.join(places)}, and guard() without a name; "
            f"or idle_guard({name!r})"
        )

    @property
    def _preset(self) -> Setting | None:
        """The preset of all guards."""
        variables = environment.read(self._prefix, ("preset",))
        return variables.get("preset", self._guard.get("preset"))

    def _environment(self, *, for_run: bool = False) -> dict[str, Setting]:
        return with_preset(environment.read(self._prefix), for_run=for_run)

    def _named(self, section: values.Section, key: str) -> dict[str, dict[str, Setting]]:
        if self._source is None:
            return {}
        return {name: self._section(section, key, name) for name in self._source.section(key)}

    def _section(
        self, section: values.Section, *keys: str, others: tuple[str, ...] = ()
    ) -> dict[str, Setting]:
        source = self._source
        if source is None:
            return {}
        source.check_keys((*section, *others), *keys)
        settings: dict[str, Setting] = {}
        for key, value in source.section(*keys).items():
            if key in others:
                continue
            where = source.where(*keys, key)
            try:
                settings[key] = Setting(section[key](value), where.rpartition(": ")[0])
            except ValueError as error:
                raise ConfigError(f"{where} = {value!r}: {error}") from None
        return with_preset(settings, for_run=section is values.RUN)

    def check(self) -> None:
        """Make all that can be made of it. A value that cannot be used raises a ConfigError now."""
        environment.read(self._prefix)
        try:
            _ = self.retry_policy
            for key in ("", *self._breakers):
                self.breaker(key)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from error
        _ = self.flow

    def _check_guard(self, section: str, settings: Mapping[str, Setting]) -> None:
        from streamguard._guard.plan import CONTRADICTIONS

        for inner, outer in CONTRADICTIONS:
            small, large = settings.get(inner), settings.get(outer)
            if small is None or large is None or small.preset or large.preset:
                continue
            within = _paced(small.value)
            if within is None or large.value is None:
                continue
            if within > large.value or (within == large.value and inner != "turn"):
                raise ConfigError(
                    f"{small.origin}: {section}.{inner} ({_shown(within)}) can never be reached: "
                    f"{outer} ({_shown(large.value)}) comes first. Lower it, or raise {outer}"
                )


# What is no time, but a share or a factor; and what None means where it does not mean off.
_FACTORS: Final = tuple(
    key
    for section in (values.BACKOFF, values.BREAKER)
    for key, converter in section.items()
    if converter is values.share
)
_LEFT_OUT: Final = {"on_open": "raise, in a session wait", "escalate_after": "never"}


def _pass_over(_doubt: str) -> None:
    """What is in force is told, and nothing of what was meant."""


def _paced(value: Any) -> float | None:
    """The seconds of an idle limit, a pace's included."""
    if isinstance(value, str):
        return PRESETS[value].guard["idle"]
    number: float | None = value
    return number


_COUNTS: Final = ("repeats", *CEILINGS)  # no durations


def _shown(value: Any, key: str = "") -> str:
    if value is None:
        return _LEFT_OUT.get(key, "off")
    if key in _FACTORS:
        return f"{value:g}"
    if key in _COUNTS:
        return f"{value:g}"
    if isinstance(value, frozenset):
        return ", ".join(sorted(cast("frozenset[str]", value)))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g} s" if value != float("inf") else "none"
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" for part in cast("tuple[float, ...]", value)) + " s"
    if isinstance(value, Mapping):
        by_name = cast("Mapping[str, float | None]", value)
        return ", ".join(f"{name} {_shown(part)}" for name, part in by_name.items())
    return str(value)
