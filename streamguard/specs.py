"""`FlowSpec`: the limits that a flow's spec sets, from a mapping, TOML or YAML.

    timeouts:                       # milliseconds, as in every spec of this kind, or "15m"
      step: 900000
      llm_call: 180000
    hard_limits:                    # to go further than the hard limits of the table
      step: 1800000
    steps:
      - id: heavy-analysis
        timeout_override: 1200000
        hard_limit_override: 1500000

Everything else in a spec belongs to whoever runs the flow and is left alone; only a name that
looks like one of ours misspelt is refused. YAML needs the extra `yaml`. Knows limits and errors.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from streamguard._base import durations
from streamguard._base.configured import content, text_of, toml_of
from streamguard._base.distribution import install
from streamguard._base.durations import in_words
from streamguard._base.warning import warn
from streamguard.errors import ConfigError, ScopeKind, ScopeName
from streamguard.limits import BUDGETS, MIN_ATTEMPT, Override, budget_of, check_kind, scope_under

if TYPE_CHECKING:
    from os import PathLike

    from streamguard._base.numbers import Seconds
    from streamguard._scopes.scopes import Scope

_OF_A_FLOW: Final = ("timeouts", "hard_limits", "steps")
_OF_A_STEP: Final = ("id", "timeout_override", "hard_limit_override")
# Of each pair the left one is pointless unless it is the smaller.
_INSIDE: Final[tuple[tuple[ScopeKind, ScopeKind], ...]] = (
    ("step", "flow"),
    ("llm_call", "step"),
    ("tool", "step"),
    ("llm_call", "flow"),
    ("tool", "flow"),
)
_NOTHING: Final = Override()


@dataclass(frozen=True)
class FlowSpec:
    """A flow's own limits: for each kind of scope (`kinds`), and for single `steps` by their id.

    `async with spec.scope(name="deploy"):` begins the flow; every scope inside follows the spec.
    """

    kinds: Mapping[ScopeKind, Override] = field(default_factory=dict[ScopeKind, Override])
    steps: Mapping[str, Override] = field(default_factory=dict[str, Override])

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        """The limits in a file, by its suffix: `.toml`, `.yaml` or `.yml`. ConfigError."""
        path = Path(file)
        readers = {".toml": toml_of, ".yaml": _read_yaml, ".yml": _read_yaml}
        reader = readers.get(path.suffix.lower())
        if reader is None:
            raise ConfigError(f"{path}: a spec is a .toml, .yaml or .yml file")
        text = text_of(content(os.fspath(path), str(path)), str(path))
        return cls.of(reader(text, str(path)), source=str(path))

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, source: str = "") -> Self:
        """The limits in a spec that was read already. A ConfigError says where it is wrong."""
        where = f"{source}: " if source else ""
        if not isinstance(cast("object", spec), Mapping):
            raise ConfigError(f"{where}a spec is a mapping, not {_kind_of(spec)}")
        _check_keys(spec, _OF_A_FLOW, where, "")
        timeouts = _by_kind(spec, "timeouts", where)
        hard = _by_kind(spec, "hard_limits", where)
        kinds: dict[ScopeKind, Override] = {
            kind: Override(timeouts.get(kind), hard.get(kind))
            for kind in BUDGETS
            if kind in timeouts or kind in hard
        }
        steps = dict(_steps(spec.get("steps"), where))
        made = cls(MappingProxyType(kinds), MappingProxyType(steps))
        made._check(where)
        return made

    def scope(
        self,
        kind: ScopeKind = "flow",
        name: str = "",
        *,
        timeout: Seconds | None = None,
        hard: Seconds | None = None,
    ) -> Scope:
        """A scope under this spec: as `streamguard.scope`, and so are all that lie in it."""
        return scope_under(self, kind, name, timeout, hard)

    def overrides(self, kind: ScopeKind, name: str) -> Iterable[Override]:
        """What is written for such a scope, the most specific first."""
        own = self.steps.get(name, _NOTHING) if kind == "step" else _NOTHING
        return own, self.kinds.get(kind, _NOTHING)

    def _check(self, where: str) -> None:
        """No timeout past its hard limit (P4), and a warning for what can never be reached."""
        for kind in self.kinds:
            self._check_budget(kind, "", f"{where}timeouts.{kind}", f"hard_limits.{kind}")
        for id_, own in self.steps.items():
            key = "timeouts.step" if own.timeout is None else "timeout_override"
            self._check_budget(
                "step",
                id_,
                f"{where}{key} of {ScopeName('step', id_)}",
                "hard_limit_override of the step, or hard_limits.step of the flow",
            )
        for inner, outer in _INSIDE:
            within = self.kinds.get(inner, _NOTHING).timeout
            around = self.kinds.get(outer, _NOTHING).timeout
            if within is not None and around is not None and within >= around:
                warn(
                    f"{where}timeouts.{inner} ({in_words(within)}) can never be reached: "
                    f"timeouts.{outer} ({in_words(around)}) comes first"
                )

    def _check_budget(self, kind: ScopeKind, name: str, what: str, lever: str) -> None:
        budget = budget_of(kind, self.overrides(kind, name))
        if budget.timeout > budget.hard:
            raise ConfigError(
                f"{what}: {_ms(budget.timeout)} is past the hard limit of {_ms(budget.hard)}. "
                f"Lower it, or raise the limit: {lever}"
            )


def _by_kind(spec: Mapping[str, Any], key: str, where: str) -> dict[ScopeKind, float]:
    section = spec.get(key)
    if section is None:  # also where all its lines are commented out
        return {}
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"{where}{key}: write milliseconds by scope, such as `step: 900000`, "
            f"not {_kind_of(section)}"
        )
    by_kind: dict[ScopeKind, float] = {}
    for kind, value in cast("Mapping[ScopeKind, object]", section).items():
        check_kind(kind, f"{where}{key}.{kind}: ")
        by_kind[kind] = _seconds(value, f"{where}{key}.{kind}")
    return by_kind


def _steps(steps: object, where: str) -> Iterator[tuple[str, Override]]:
    if steps is None:
        return
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise ConfigError(f"{where}steps: write a list of steps, not {_kind_of(steps)}")
    seen: set[str] = set()
    for number, step in enumerate(cast("Sequence[object]", steps)):
        if not isinstance(step, Mapping):
            continue  # whatever it is to whoever runs it: it has no limit of its own
        step = cast("Mapping[str, object]", step)
        at = f"steps[{number}]"
        _check_keys(step, _OF_A_STEP, where, f"{at}.")
        written = Override(
            *(
                _seconds(step[key], f"{where}{at}.{key}") if key in step else None
                for key in ("timeout_override", "hard_limit_override")
            )
        )
        if written == _NOTHING:
            continue
        id_ = step.get("id")
        if not isinstance(id_, str) or not id_:
            raise ConfigError(
                f"{where}{at}: a step with a limit of its own needs an id, in quotes if it is a "
                f'number: scope("step", <id>) goes by it'
            )
        if id_ in seen:
            raise ConfigError(f"{where}{at}.id: {id_!r} has a limit further up already")
        seen.add(id_)
        yield id_, written


def _check_keys(mapping: Mapping[str, Any], ours: Sequence[str], where: str, at: str) -> None:
    """Other keys are other people's, unless they look like one of ours: that would be ignored."""
    for key in mapping:
        near = difflib.get_close_matches(str(key), ours, n=1, cutoff=0.8)
        if near and key not in ours:
            raise ConfigError(f"{where}{at}{key}: unknown; did you mean {near[0]!r}?")


def _seconds(value: object, where: str) -> float:
    """`value`, in milliseconds or a text with a unit, as seconds."""
    if isinstance(value, str):
        value = _in_ms(value, where)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            f'{where}: write a number of milliseconds, such as 600000 for 10 minutes, or "10m", '
            f"not {_kind_of(value)}"
        )
    if not 0 < value <= sys.float_info.max:
        raise ConfigError(
            f"{where}: {value!r} is no time; write a positive number of milliseconds"
        )
    if value < MIN_ATTEMPT * 1000:
        raise ConfigError(
            f"{where}: {value:g} ms is less than nothing can be begun with ({_ms(MIN_ATTEMPT)}). "
            f"If seconds are meant, write {value * 1000:.0f}"
        )
    return value / 1000


def _in_ms(text: str, where: str) -> float:
    """A text says what it counts in: without a unit it would be seconds elsewhere, and milliseconds here."""
    try:
        seconds = durations.parsed(text)
    except ValueError:
        better = durations.meant(text)
        such_as = f'"{better}"' if better else f"a text with a unit, such as {durations.SUCH_AS}"
        raise ConfigError(f"{where}: {text!r}: write {such_as}") from None
    if not durations.has_unit(text):
        raise ConfigError(
            f"{where}: {text!r}: write a number of milliseconds without quotes, or a unit in them: "
            f'"{text.strip()}ms" or "{text.strip()}s"'
        )
    return seconds * 1000


def _ms(value: float) -> str:
    return f"{value * 1000:.0f} ms ({in_words(value)})"


def _kind_of(value: object) -> str:
    return "nothing" if value is None else f"{value!r} ({type(value).__name__})"


def _read_yaml(text: str, source: str) -> Mapping[str, Any]:
    # ruamel.yaml, since it refuses a key that is there twice: of two limits, the last would win.
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise ConfigError(
            f"{source}: reading YAML needs ruamel.yaml: {install('yaml')}, write TOML, "
            "or read it yourself and use FlowSpec.of"
        ) from error
    try:
        reader: Any = YAML(typ="safe", pure=True)
        spec = reader.load(text)
    except RecursionError:
        raise ConfigError(f"{source}: no valid YAML: it is nested too deeply") from None
    except (YAMLError, ValueError) as error:  # also a number of thousands of digits
        raise ConfigError(f"{source}: no valid YAML: {' '.join(str(error).split())}") from error
    return {} if spec is None else spec
