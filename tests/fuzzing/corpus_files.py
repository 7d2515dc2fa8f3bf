"""Where the inputs are that the search has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
