"""argparse, as the commands use it that nobody starts often: what was typed is quoted in its complaints."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from typing import Any, NoReturn

from streamguard._base.quoting import quoted
from streamguard.cli.arguments import guess
from streamguard.cli.helping import WIDTH, exits


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are short, and whose help ends with the exit codes."""

    def __init__(
        self, *args: Any, exit_codes: Iterable[tuple[str, str]] = (), **more: Any
    ) -> None:
        more.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **more)
        self.exit_codes = tuple(exit_codes)

    def format_help(self) -> str:
        """The help, with the exit codes below it."""
        text = super().format_help()
        return f"{text}\n{exits(self.exit_codes)}" if self.exit_codes else text

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        """As argparse does; but what is not known is refused, with what it may have been meant to be."""
        asked, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return asked, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does; but what is none of the choices is told what it may have been meant to be."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        name = action.option_strings[-1] if action.option_strings else "command"
        hint = guess(str(value), known) or f"; there are {', '.join(known)}"
        self.error(f"{name}: there is no '{value}'{hint}")

    def _refuse(self, word: str) -> NoReturn:
        written = word.partition("=")[0]
        known = [name for name in self._option_string_actions if name.startswith("--")]
        if not word.startswith("-"):
            self.error(f"'{word}' is one argument too many")
        self.error(f"there is no option '{written}'{guess(written, known)}")

    def error(self, message: str) -> NoReturn:
        """Print `message` and where help is, and exit with 2."""
        self.exit(2, f"{self.prog}: {quoted(message)}\nTry '{self.prog} --help'.\n")


class _Formatter(argparse.HelpFormatter):
    """As wide as the terminal, and no wider than the help of `run`."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size().columns
        super().__init__(prog, max_help_position=26, width=max(40, min(columns - 1, WIDTH)))
