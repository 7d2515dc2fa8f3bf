"""Prints pip constraints: the oldest version that pyproject.toml promises, of all that users install."""

import re
import tomllib
from pathlib import Path

# All of what users install beside it.
FOR_USERS = ("trio", "uvloop", "aiostream", "claude", "postgres", "temporal", "yaml")

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in [*project["dependencies"], *(r for extra in FOR_USERS for r in extras[extra])]:
    # A constraint has no extras: psycopg's brings the same version of it.
    print(re.sub(r"\[.*?\]", "", requirement).replace(">=", "=="))
