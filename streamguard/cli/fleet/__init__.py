"""`streamguard fleet`: sessions on many workers, from the command line.

    where      which store is meant, and that no password is on the command line
    queueing   what one orders: submit, cancel, release, init, migrate
    serving    this process as a worker
    looking    what there is to see: list, show, log; and `streamguard top --fleet`

Here are the words, and what goes wrong as one line each. Exit codes as grep's: 0 done, 1 there was nothing to do it to,
2 it cannot be done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from streamguard._base.durations import parsed
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_USAGE
from streamguard.cli.fleet import where
from streamguard.cli.parsers import Parser
from streamguard.errors import ConfigError, StoreError

EXIT_CODES: Final = (
    (
        "0",
        "it is done; of a worker: it has handed on what it had, also when it was asked to by a signal",
    ),
    (
        "1",
        "there was nothing to do it to: the key is known already, no such session, not parked",
    ),
    (
        "2",
        "it cannot be done: wrong usage, a store that does not answer, something that is not installed",
    ),
    ("a signal", "a worker that got a second signal ends by it, at once"),
)
_LOOPS: Final = ("asyncio", "uvloop", "trio")


def main(words: Sequence[str]) -> int:
    """The exit code: 0, 1 if there was nothing to do it to, 2 if it cannot be done."""
    asked = parser().parse_args(words)
    try:
        return _doing(asked.command)(asked)
    except (ConfigError, StoreError) as error:
        print(f"streamguard fleet {asked.command}: {quoted(error)}", file=sys.stderr)
        return EXIT_USAGE


def _doing(command: str) -> Callable[[argparse.Namespace], int]:
    """What does it, imported now."""
    if command == "serve":
        from streamguard.cli.fleet import serving

        return serving.serve
    if command == "demo":
        return _demo
    if command in ("list", "show", "log"):
        from streamguard.cli.fleet import looking

        return {"list": looking.list_, "show": looking.show, "log": looking.log}[command]
    from streamguard.cli.fleet import queueing

    does: Callable[[argparse.Namespace], int] = getattr(queueing, command)
    return does


def _demo(asked: argparse.Namespace) -> int:
    import tempfile

    import anyio

    from streamguard.demo.fleet_show import show_fleet

    folder = Path(asked.dir or tempfile.mkdtemp(prefix="streamguard-fleet-"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--dir {quoted(folder)}: {error.strerror}") from None
    if (folder / "fleet.db").exists():
        raise ConfigError(f"--dir {quoted(folder)}: a fleet is there already; name a new folder")
    return anyio.run(show_fleet, folder)


# --- the words --------------------------------------------------------------------------------


def parser() -> Parser:
    """The words that it understands."""
    made = Parser(
        prog="streamguard fleet",
        description="Guarded sessions on many workers: a session whose worker died or hung goes on elsewhere, and "
        "never has two owners. On one machine nothing is needed but a file; on many, a PostgreSQL database.",
        exit_codes=EXIT_CODES,
    )
    parts = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def part(
        name: str, says: str, *, has_store: bool = True, **more: Any
    ) -> argparse.ArgumentParser:
        one = parts.add_parser(
            name, help=says, description=f"{says[:1].upper()}{says[1:]}.", **more
        )
        if has_store:
            where.add_option(one)
        return one

    _add_submit(part("submit", "queue a session"))
    _add_serve(part("serve", "be a worker: run sessions with a function of yours"))
    listing = part("list", "the sessions that are not over, in the order in which they came")
    listing.add_argument("--all", action="store_true", help="also those that are over")
    _add_json(listing)
    showing = part("show", "one session")
    _add_key(showing)
    _add_json(showing)
    logged = part("log", "the log of timeouts: what hung, on which worker, and what followed")
    logged.add_argument("--key", metavar="KEY", help="of one session")
    logged.add_argument(
        "--since",
        type=_seconds,
        metavar="DURATION",
        help="only of so long ago or less: 30m, 2h, 1d",
    )
    _add_json(logged, "a line of JSON for each, for a program or `streamguard report --fleet`")
    ending = part("cancel", "have a session end, wherever it runs")
    _add_key(ending)
    ending.add_argument("--why", default="", metavar="TEXT", help="shown by list and show")
    _add_key(part("release", "let a parked session be taken again, once a person has looked"))
    part("init", "make a store's tables, unless they are there (a file does that by itself)")
    part("migrate", "bring a store's tables to this version; stop the workers before")
    demo = part(
        "demo",
        "two workers, three sessions; one worker is killed, and the other goes on: about 15 seconds",
        has_store=False,
    )
    demo.add_argument(
        "--dir", metavar="DIR", help="where its files go, and stay [a temporary folder]"
    )
    return made


def _add_submit(parser: argparse.ArgumentParser) -> None:
    _add_key(parser, "what the session is called; it runs once, however often it is submitted")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--spec",
        metavar="JSON",
        help="what the handler gets as lease.spec: a JSON object; @FILE: what FILE holds; -: standard input",
    )
    what.add_argument(
        "--prompt",
        metavar="TEXT",
        help='the same as a spec of {"prompt": TEXT}; -: standard input, so that nobody sees it in ps',
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "handler",
        metavar="MODULE:HANDLER",
        help="an `async def` that takes a lease; looked for in the current folder first",
    )
    for name, convert, metavar, says in (
        ("ttl", _seconds, "DURATION", "a worker that is not heard of for so long has lost its sessions [15s]"),
        ("flush", _seconds, "DURATION", "how often it is heard of, and checkpoints are written [1s]"),
        ("limit", _count, "N", "how many sessions it runs at once [50]"),
        ("claim", _count, "N", "how many it takes at a time [2]"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=convert, metavar=metavar, help=says)
    parser.add_argument(
        "--attempts",
        dest="attempts_without_progress",
        type=_count,
        metavar="N",
        help="after so many in a row without progress a session is parked for a person [3]",
    )
    parser.add_argument(
        "--until-idle", action="store_true", help="leave when nothing waits or runs any more"
    )
    parser.add_argument(
        "--loop", choices=_LOOPS, default="asyncio", help="the event loop [asyncio]"
    )


def _add_key(parser: argparse.ArgumentParser, says: str = "the session's key") -> None:
    parser.add_argument("key", metavar="KEY", help=says)


def _add_json(parser: argparse.ArgumentParser, says: str = "for a program") -> None:
    parser.add_argument("--json", action="store_true", help=says)


def _seconds(text: str) -> float:
    try:
        value = parsed(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: use a duration such as 2, 90s or 1.5m")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number, 1 or more")
    return int(text)
