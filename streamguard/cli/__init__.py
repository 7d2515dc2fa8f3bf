"""The `streamguard` command: which of its parts is asked for, and nothing else.

A supervisor's own start must cost next to nothing, so a part's module is imported when its name is
said, and this imports the version alone. Nothing imports this module.
"""

from __future__ import annotations

import gc
import sys

from streamguard._version import __version__

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

USAGE = "usage: streamguard [--help | --version] COMMAND ..."
VERSION = f"streamguard {__version__}\n"
HELP = f"""\
streamguard {__version__}: a liveness layer for agent streams

{USAGE}

  run      run any agent's command, and end it with its tools when it hangs
  timeout  the same for wall time, with the command line of GNU timeout
  report   draw a recorded run: what hung, since when, what was tried
  healthy  say whether a run is well, by its --heartbeat file: for probes
  top      show the guarded runs of this machine, live
  fleet    sessions on many workers: queue, serve and watch them
  demo     see an agent that hangs be caught, ended and resumed: about 10 seconds
  doctor   what is installed, what is in force, and what is in the way

  streamguard COMMAND --help    what it can do

  -h, --help     show this text
  -V, --version  show the version

In a program it is one `|` away from any async iterator:

    from streamguard import idle_guard

    async for message in stream | idle_guard(180, disconnect=client.disconnect):
        ...
"""
# Each in its own module of this package, which has a `main(words)` that gives the exit code.
COMMANDS = ("run", "timeout", "report", "healthy", "top", "fleet", "demo", "doctor")
ANSWERS = {"-h": HELP, "--help": HELP, "help": HELP, "-V": VERSION, "--version": VERSION}

# What all parts but `run` and `timeout` end with; those two as GNU's (`runner.result`).
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2  # also where something is not installed that is asked for


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code for `argv` (default: this process's own arguments)."""
    first, *more = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if sys.platform == "win32" and first in COMMANDS:
        return _not_here(first)
    if first in ("run", "timeout"):
        _die_quietly()
        gc.disable()  # nothing that a start makes is garbage; `supervise` has it go on
        code: int = _part(first).main(more)
        gc.enable()
        return code
    if first in COMMANDS:
        from streamguard.cli.ending import ended

        return ended(lambda: _part(first).main(more))
    if first not in ANSWERS:
        return _refuse(first)
    if more:
        return _refuse(more[0])
    print(ANSWERS[first], end="")
    return EXIT_OK


def _part(name: str) -> Any:
    return __import__(f"{__name__}.{name}", fromlist=["main"])  # importlib takes its time


def _die_quietly() -> None:
    """Until there is a command to pass it on to, Ctrl-C ends us without a word that nobody may read."""
    from streamguard.runner._signal import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _not_here(command: str) -> int:
    from streamguard._base.posix import not_here

    print(not_here(f"streamguard {command}"), file=sys.stderr)
    return EXIT_USAGE


def _refuse(argument: str) -> int:
    from streamguard._base.quoting import quoted
    from streamguard.cli.arguments import guess

    hint = guess(argument, COMMANDS)
    print(f"streamguard: unknown argument '{quoted(argument)}'{hint}\n{USAGE}", file=sys.stderr)
    return EXIT_USAGE
