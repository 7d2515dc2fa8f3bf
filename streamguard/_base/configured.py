"""Files that configure us: where they may lie, and what is in them, without a meaning yet.

And which environment variables do.

The part of `configuration` that `streamguard run` needs at its start, to know whether all the rest
is worth importing, which takes longer than the start itself; and that `specs` has in common with it.
Imports the standard library, and errors where there is one to raise.
"""

from __future__ import annotations

import os

from streamguard._base.variables import CONFIG

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from streamguard._base import trusted

# What environment variables may say, each by its name in capitals behind a prefix; and ours.
PREFIX: Final = "STREAMGUARD"
IN_ENVIRONMENT: Final = (
    "preset",
    "mode",
    "idle",
    "first",
    "liveness",
    "tools",
    "turn",
    "exit_grace",
    "total",
)
OWN: Final = "streamguard.toml"
SHARED: Final = "pyproject.toml"
MOST: Final = 1 << 20

# Small letters, as keys may be spelt: "\u0074ool" is the key `tool`.
_SPELT: Final = (b"\\u006", b"\\u007", b"\\U0000006", b"\\U0000007", b"\\x6", b"\\x7")


def variable(prefix: str, knob: str) -> str:
    """The name of the environment variable for `knob`."""
    return f"{prefix}_{knob.upper()}"


def candidates(folder: str) -> Iterator[trusted.FileFound]:
    """The files from `folder` upwards that may configure us, the nearest first, trusted or not."""
    while True:
        for name in (OWN, SHARED):
            path = os.path.join(folder, name)
            if not os.path.lexists(path):
                continue
            from streamguard._base import trusted

            try:
                found = trusted.look(path, MOST)
            except OSError:
                continue
            # What was not read may be ours.
            if name == OWN or found.data is None or may_name_us(found.data):
                yield found
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def may_name_us(toml: bytes) -> bool:
    """Whether it may have a table `tool.streamguard`; False if it certainly has none.

    Most files that speak of us only depend on us. A table can be there under a heading of its own,
    by a dotted key, below `[tool]`, or in `tool = {...}`; and each key may be quoted and spelt.
    """
    if any(spelt in toml for spelt in _SPELT):
        return True
    if b"streamguard" not in toml:
        return False
    bare = b"\n" + toml.removeprefix(b"\xef\xbb\xbf").translate(None, b" \t\"'")
    return any(
        heading in bare
        for heading in (b"tool.streamguard", b"\n[tool]", b"\n[[tool]]", b"\ntool=")
    )


def warning_of(found: trusted.FileFound) -> str:
    """What to say of a file that is passed over."""
    return (
        f"{found.path} is not used: {found.distrust}. If you trust it, say so by its name: "
        f"{CONFIG}={found.path}"
    )


def content(path: str, told: str) -> bytes:
    """What is in a file that the user has named, whoever it belongs to; ConfigError, about `told`."""
    from streamguard._base import trusted

    try:
        return trusted.read_named(path, MOST)
    except FileNotFoundError:
        why = "there is no such file"
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except ValueError as error:  # a NUL in its name
        why = f"cannot be read: {error}"
    raise _wrong(f"{told}: {why}")


def text_of(data: bytes, told: str) -> str:
    """UTF-8 as text; ConfigError, about `told`."""
    try:
        return data.decode("utf-8")
    except UnicodeError as error:
        raise _wrong(f"{told}: cannot be read: {error}") from error


def toml_of(text: str, told: str) -> Mapping[str, Any]:
    """TOML as a table; ConfigError, about `told`."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _wrong(f"{told}: no valid TOML: it is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits
        raise _wrong(f"{told}: no valid TOML: {error}") from error


def _wrong(what: str) -> Exception:
    from streamguard.errors import ConfigError

    return ConfigError(what)
