"""`python -m streamguard.backends.opencode`: what OPENCODE_CONFIG_CONTENT must hold for the tap.

For an opencode that is started by others than `session`, such as `streamguard run`.
"""

from __future__ import annotations

import os

from streamguard.backends.opencode.tap_plugin import VARIABLE, configuration

print(configuration(os.environ.get(VARIABLE, "")))  # noqa: T201 - what it is for
