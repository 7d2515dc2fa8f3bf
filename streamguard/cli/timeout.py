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
HELP = """\
usage: streamguard timeout [OPTION]... DURATION COMMAND [ARGUMENT]...

Run COMMAND, and send it a signal if it is still running after DURATION: a number of seconds, or of
minutes, hours or days with m, h or d behind it; 0 is no limit. As GNU timeout does.

  -f, --foreground           leave COMMAND our session and its terminal; only it is sent signals
  -k, --kill-after DURATION  also send KILL if it runs for so long after the first signal
  -p, --preserve-status      exit with COMMAND's status, also after the time is up
  -s, --signal SIGNAL        what to send (TERM)
  -v, --verbose              say on standard error which signals are sent
      --help                 this text
      --version              the version

Exit codes: COMMAND's own, 124 if the time was up, 137 if it was killed, 125 if this command failed,
126 if COMMAND cannot be run, 127 if it is not found. For silence instead of time, and for all that
a command started: streamguard run.
"""


def _duration(text: str) -> float | None:
    try:
        return as_gnu(text) or None
    except ValueError:
        raise ValueError("invalid time interval") from None


OPTIONS = {
    "foreground": Option("foreground"),
    "kill-after": Option("kill_after", _duration),
    "preserve-status": Option("preserve_status"),
    "signal": Option("signal", signal_number),
    "verbose": Option("verbose"),
    "help": Option("help"),
    "version": Option("version"),
    "f": Option("foreground"),
    "k": Option("kill_after", _duration),
    "p": Option("preserve_status"),
    "s": Option("signal", signal_number),
    "v": Option("verbose"),
}


def main(words: Sequence[str]) -> int:
    """Do as `words` say. It returns only if there is nothing to run."""
    try:
        said, left = parse(words, OPTIONS)
        if said.pop("help", False):
            print(HELP, end="")
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
