"""Configuration: what files and environment variables say, checked and explained.

configuration   `from_config()`, `from_env()`, `Configuration`
values          what may be written for each key
toml_files      where it is written: found, read, shown in errors
environment     what variables say
settings        a value and its origin; what a preset says
"""

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy

if TYPE_CHECKING:
    from streamguard.configuration.configuration import Configuration, from_config, from_env

__all__ = ["Configuration", "from_config", "from_env"]

__getattr__, __dir__ = lazy(__name__, {"configuration": __all__})
