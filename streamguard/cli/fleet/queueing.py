"""What one orders of a fleet: `submit`, `cancel`, `release`, and its store made or brought up to date.

Prompts and specs may come from standard input or a file: the words of a command are seen by everybody on the machine.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from streamguard._base import quoting, trusted
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_FAILED, EXIT_OK
from streamguard.cli.fleet import where
from streamguard.cli.fleet.looking import unknown
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    import argparse

# In bytes; of a spec and of a prompt.
_MOST: Final = 64 << 20


def submit(asked: argparse.Namespace) -> int:
    """Queue a session; 1 if the key is known already."""
    spec = _spec(asked)
    with where.opened(asked.store) as store:
        if store.submit(asked.key, spec):
            print(f"queued: {quoting.name(asked.key)}")
            return EXIT_OK
    key = quoting.name(asked.key)
    print(
        f"streamguard fleet submit: {key!r} is known already, and nothing was changed. Each session has a key of its own",
        file=sys.stderr,
    )
    return EXIT_FAILED


def cancel(asked: argparse.Namespace) -> int:
    """Have a session end; 1 if there is none to end."""
    with where.opened(asked.store, must_be_there=True) as store:
        if store.cancel(asked.key, asked.why):
            row = store.show(asked.key)
            is_told = row is not None and row.cancelling
            how = "its worker is told with its next beat" if is_told else "it is over"
            print(f"cancelled: {quoting.name(asked.key)} ({how})")
            return EXIT_OK
        row = store.show(asked.key)
        return unknown(asked.key, store) if row is None else _refuse(asked, f"is {row.status}")


def release(asked: argparse.Namespace) -> int:
    """Let a parked session be claimed again; 1 if it is not parked."""
    with where.opened(asked.store, must_be_there=True) as store:
        if store.release(asked.key):
            print(f"released: {quoting.name(asked.key)}")
            return EXIT_OK
        row = store.show(asked.key)
        if row is None:
            return unknown(asked.key, store)
        return _refuse(asked, f"is {row.status}, and only what is parked can be released")


def init(asked: argparse.Namespace) -> int:
    """Make what a store needs, unless it is there."""
    with where.opened(asked.store) as store:
        store.initialise()
        print(f"ready: {quoted(store.place)}")
    return EXIT_OK


def migrate(asked: argparse.Namespace) -> int:
    """Bring a store to the present version."""
    with where.opened(asked.store) as store:
        done = store.migrate()
        for what in done:
            print(f"made: {quoted(what)}")
        if not done:
            print(f"nothing to do: {quoted(store.place)} is of the present version")
    return EXIT_OK


def _refuse(asked: argparse.Namespace, why: str) -> int:
    print(f"streamguard fleet {asked.command}: {quoting.name(asked.key)!r} {why}", file=sys.stderr)
    return EXIT_FAILED


# --- what is submitted ------------------------------------------------------------------------


def _spec(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.prompt is not None:
        return {"prompt": _prompt(asked.prompt)}
    if asked.spec is None:
        return {}
    text = _text("--spec", asked.spec)
    try:
        spec = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        # Where it is wrong, and nothing of what it says.
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(
            f'--spec is no JSON{line}: use an object, such as {{"prompt": "..."}}'
        ) from None
    if not isinstance(spec, dict):
        raise ConfigError('--spec: use a JSON object, such as {"prompt": "..."}')
    return dict(spec)  # pyright: ignore[reportUnknownArgumentType]


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _prompt(said: str) -> str:
    # As a shell's $(...) has it: `echo` adds a line's end that nobody means.
    text = _text("--prompt", said).removesuffix("\n") if said == "-" else said
    if not text.strip():
        where = "standard input" if said == "-" else "it"
        raise ConfigError(f"--prompt: {where} is empty, and a backend would have nothing to do")
    return text


def _text(option: str, said: str) -> str:
    """What was said, or what it says where that is: - standard input, @FILE a file."""
    try:
        if said == "-":
            data = sys.stdin.buffer.read(_MOST + 1)
            if len(data) > _MOST:
                raise ConfigError(f"{option}: standard input is larger than {_MOST >> 20} MB")
            return data.decode("utf-8")
        if said.startswith("@"):
            return trusted.read_named(said[1:], _MOST).decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{option}: {quoting.name(said)} cannot be read: {quoted(error.strerror)}"
        ) from None
    except ValueError:
        raise ConfigError(f"{option}: {quoting.name(said)} is no text in UTF-8") from None
    return said
