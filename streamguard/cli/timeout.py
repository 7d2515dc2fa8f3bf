"""`streamguard timeout`: the command line of GNU `timeout`, and what it does.

    streamguard timeout [-fpv] [-k DURATION] [-s SIGNAL] DURATION COMMAND [ARGUMENT]...

As there, a command that ignores the signal is not killed unless `-k` is said, only the command and
its process group are sent signals, and its output is not touched.
"""

from __future__ import annotations

from streamguard._base.durations import as_gnu
from streamguard.cli.arguments import Option, UsageError, parse
from streamguard.runner._signal import signal_number
from streamguard.runner.options import Settings
from streamguard.runner.result import OUR_FAILURE
from streamguard.runner.words import say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "timeout"
USAGE = "usage: streamguard timeout [OPTION]... DURATION COMMAND [ARGUMENT]..."
INTRO = """\
Run COMMAND, and send it a signal if it is still running after DURATION. The
same options, durations and exit codes as GNU timeout.

A DURATION is a number of seconds, or a number with a unit: 90s, 15m, 2h, 1d.
0 is no limit. Defaults are in [brackets].
"""
OUTRO = """\
To end a command when it is silent, with all that it started: streamguard run.
"""


def _duration(text: str) -> float | None:
    try:
        return as_gnu(text) or None
    except ValueError:
        raise ValueError("invalid time interval") from None


GROUPS = {
    "Options": {
        "foreground": Option(
            "foreground",
            says="leave COMMAND our session and its terminal; only COMMAND itself is sent signals",
        ),
        "kill-after": Option(
            "kill_after",
            _duration,
            "DURATION",
            "also send KILL if it still runs so long after the first signal",
        ),
        "preserve-status": Option(
            "preserve_status", says="exit with COMMAND's own code, also after the time is up"
        ),
        "signal": Option("signal", signal_number, "SIGNAL", "what to send first", default="TERM"),
        "verbose": Option("verbose", says="say on standard error which signals are sent"),
        "help": Option("help", says="show this text"),
        "version": Option("version", says="show the version"),
    }
}
LETTERS = {
    "f": "foreground",
    "k": "kill-after",
    "p": "preserve-status",
    "s": "signal",
    "v": "verbose",
}
EXIT_CODES = (
    ("COMMAND's", "it ended in time"),
    ("124", "the time was up"),
    ("125", "wrong usage, or a failure of this command"),
    ("126", "COMMAND cannot be run"),
    ("127", "COMMAND was not found"),
    ("137", "it was killed by KILL"),
)
_NAMED = GROUPS["Options"]
OPTIONS = _NAMED | {letter: _NAMED[name] for letter, name in LETTERS.items()}


def main(words: Sequence[str]) -> int:
    """Do as `words` say. It returns only if there is nothing to run."""
    try:
        said, left = parse(words, OPTIONS)
        if said.pop("help", False):
            from streamguard.cli.helping import text_of

            told = text_of(USAGE, INTRO, GROUPS, LETTERS, exit_codes=EXIT_CODES, outro=OUTRO)
            print(told, end="")
            return 0
        if said.pop("version", False):
            from streamguard._version import __version__

            print(f"streamguard timeout {__version__}")
            return 0
        settings = _settings_of(said, left)
    except UsageError as error:
        say(f"{PROGRAM}: {error}", "Try 'streamguard timeout --help'.")
        return OUR_FAILURE
    from streamguard.runner.run import supervise

    return supervise(settings)


def _settings_of(said: dict[str, object], left: Sequence[str]) -> Settings:
    if len(left) < 2:
        raise UsageError("a duration and a command are needed")
    settings = Settings()
    settings.program = PROGRAM
    settings.group_only = True
    settings.kill_after = None
    for name, value in said.items():
        setattr(settings, name, value)
    try:
        settings.total = _duration(left[0])
    except ValueError:
        raise UsageError(f"invalid time interval {left[0]!r}") from None
    settings.command = tuple(left[1:])
    return settings
