"""argparse, with what was typed quoted in its complaints: for the commands that nobody starts often."""

from __future__ import annotations

import argparse
from typing import NoReturn

from streamguard._base.quoting import quoted


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Print `message`, and exit with 2."""
        super().error(quoted(message))
