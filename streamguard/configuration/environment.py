"""What environment variables say of a guard: `STREAMGUARD_IDLE`, or under a prefix of one's own.

Each knob of `configured.IN_ENVIRONMENT` has a variable, the prefix and its name in capitals. All that
is wrong is said at once. Knows what may be written for each knob, and presets; nothing of files.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard._base.configured import IN_ENVIRONMENT, PREFIX, variable
from streamguard._base.variables import IDLE
from streamguard._guard.modes import doubtful_mode, environment_idle, environment_mode, log_once
from streamguard.configuration import values
from streamguard.configuration.settings import Setting
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def prefix_of(text: str) -> str:
    """`MYAPP` for "MYAPP" and "MYAPP_". ConfigError for what no variable can begin with."""
    prefix = text.rstrip("_") if isinstance(cast("object", text), str) else ""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f'prefix={text!r}: write what your variables begin with, such as "MYAPP"'
        )
    return prefix


def read(prefix: str = PREFIX, knobs: Iterable[str] = IN_ENVIRONMENT) -> Mapping[str, Setting]:
    """What is set, by knob. A ConfigError names every variable that cannot be used.

    The mode is not in it under our own prefix: that one is in force for every guard (`_guard/modes`).
    """
    said: dict[str, Setting] = {}
    wrong: list[str] = []
    for knob in knobs:
        name = variable(prefix, knob)
        text = os.environ.get(name)
        if not text or (knob == "mode" and prefix == PREFIX):
            continue
        try:
            said[knob] = Setting(_value(knob, name, text), f"environment variable {name}")
        except ConfigError as error:
            wrong.append(str(error))
        except ValueError as error:
            wrong.append(f"environment variable {name}={text!r}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong))
    return said


def _value(knob: str, name: str, text: str) -> Any:
    if knob == "mode":
        if (doubt := doubtful_mode(name)) is not None:
            log_once(doubt)
        return environment_mode(name)
    if name == IDLE:
        return environment_idle()
    text = text.strip()
    if knob == "preset":
        return values.preset(text)
    return values.limit(text)
