"""The tap: a plugin by which `opencode run` also says what it is doing, and how it is given one.

opencode takes more configuration from an environment variable, in one piece; what is there already is kept.
May import `errors`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamguard.errors import ConfigError

PLUGIN: Final = Path(__file__).with_name("tap.mjs")
VARIABLE: Final = "OPENCODE_CONFIG_CONTENT"


def tapped(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """`env` (this process's own if there is none) with the plugin added to opencode's configuration.

    An opencode that is run with `--pure` takes no plugins, and so no tap.

    Raises:
        ConfigError: If OPENCODE_CONFIG_CONTENT is there, and is no JSON object that it can be added to.
    """
    kept = dict(os.environ if env is None else env)
    return {**kept, VARIABLE: configuration(kept.get(VARIABLE, ""))}


def configuration(given: str = "") -> str:
    """What the variable has to hold: `given`, with the plugin."""
    try:
        config = json.loads(given or "{}")
        plugins = list(config.get("plugin", []))
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f"{VARIABLE} cannot be added to, since it is no JSON object with a list of plugins: "
            "put it into a file, and name that in OPENCODE_CONFIG"
        ) from None
    plugin = PLUGIN.as_uri()
    others = [each for each in plugins if each != plugin]
    return json.dumps({**config, "plugin": [*others, plugin]})
