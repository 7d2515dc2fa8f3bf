"""What the configuration says for `streamguard run`, read only where there is any.

The library's `config` knows how; here is only decided whether it is worth importing, which takes
longer than all the rest of the command's start.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_IDLE = "STREAMGUARD_IDLE"
_MODE = "STREAMGUARD_MODE"


def configured() -> dict[str, Any]:
    """Values by the names of `runner.settings`, and `mode`. UsageError if they cannot be used."""
    found: dict[str, Any] = {}
    if not (os.environ.get(_IDLE) or os.environ.get(_MODE)):
        return found
    from streamguard import config
    from streamguard.cli.arguments import UsageError
    from streamguard.errors import ConfigError

    try:
        found["mode"] = config.mode_in_force(None)
        if os.environ.get(_IDLE):
            found["idle"] = config.environment_idle()
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return found
