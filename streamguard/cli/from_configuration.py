"""What the configuration says for `streamguard run`, read only where there is any.

`streamguard.configuration` knows how; here is only decided whether it is worth importing, which takes
longer than all the rest of the command's start.
"""

from __future__ import annotations

import os

from streamguard._base import configured as files_of_ours
from streamguard._base.variables import CONFIG

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from streamguard._base.trusted import FileFound

_VARIABLES = (
    *(files_of_ours.variable(files_of_ours.PREFIX, knob) for knob in files_of_ours.IN_ENVIRONMENT),
    CONFIG,
)


def configured() -> dict[str, Any]:
    """Values by the names of `runner.settings`, and `mode` and `warnings`.

    `warnings`: what to say of files that are not used, and of a doubtful word in the environment.
    ConfiguredWrongError if something that is written is no good.
    """
    is_named = CONFIG in os.environ
    found = [] if is_named else _candidates()
    if not (found or any(map(os.environ.get, _VARIABLES))):
        return {}
    from streamguard._guard.modes import mode_in_force
    from streamguard.cli.arguments import ConfiguredWrongError
    from streamguard.cli.run import status_file
    from streamguard.configuration import Configuration
    from streamguard.configuration import toml_files as files
    from streamguard.errors import ConfigError
    from streamguard.runner._signal import signal_number

    warnings: list[str] = []
    try:
        source = files.named() if is_named else files.choose(found, warnings.append)
        configuration = Configuration(source)
        values = dict(configuration.run)
        values["mode"] = mode_in_force(configuration.mode, warnings.append)
        values["warnings"] = warnings
        for name, check in (("signal", signal_number), ("status_file", status_file)):
            try:  # as on the command line
                values |= {name: check(values[name])} if name in values else {}
            except ValueError as error:
                raise ConfigError(f"run.{name} = {values[name]!r}: {error}") from None
    except ConfigError as error:
        raise ConfiguredWrongError("\n".join((str(error), *warnings))) from None
    return values


def _candidates() -> list[FileFound]:
    try:
        folder = os.getcwd()
    except OSError:  # it was removed, and nothing lies above it
        return []
    return list(files_of_ours.candidates(folder))
