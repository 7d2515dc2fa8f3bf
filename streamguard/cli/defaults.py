"""What the configuration says for `streamguard run`, read only where there is any.

`streamguard.configuration` knows how; here is only decided whether it is worth importing, which takes
longer than all the rest of the command's start.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_VARIABLES = ("STREAMGUARD_IDLE", "STREAMGUARD_MODE", "STREAMGUARD_CONFIG")
_OURS = "streamguard.toml"
_SHARED = "pyproject.toml"


def configured() -> dict[str, Any]:
    """Values by the names of `runner.settings`, and `mode`; ConfiguredWrongError if they are no good."""
    if not (any(map(os.environ.get, _VARIABLES)) or _may_have_a_file()):
        return {}
    from streamguard.cli.arguments import ConfiguredWrongError
    from streamguard.config import mode_in_force
    from streamguard.configuration import Configuration, files
    from streamguard.errors import ConfigError

    try:
        configuration = Configuration(files.find())
        found = dict(configuration.run)
        found["mode"] = mode_in_force(configuration.mode)
        if "signal" in found:
            found["signal"] = _signal(found["signal"])
    except ConfigError as error:
        raise ConfiguredWrongError(str(error)) from None
    return found


def _may_have_a_file() -> bool:
    try:
        folder = os.getcwd()
    except OSError:  # it was removed, and nothing lies above it
        return False
    while True:
        if os.path.exists(os.path.join(folder, _OURS)) or _names_us(os.path.join(folder, _SHARED)):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above


def _names_us(path: str) -> bool:
    """Whether a file that most projects have may have a table of ours."""
    try:
        with open(path, "rb") as file:
            return b"streamguard" in file.read()
    except OSError:
        return False


def _signal(name: str) -> int:
    from streamguard.cli.run import signal_number
    from streamguard.errors import ConfigError

    try:
        return signal_number(name)
    except ValueError as error:
        raise ConfigError(f"run.signal = {name!r}: {error}") from None
