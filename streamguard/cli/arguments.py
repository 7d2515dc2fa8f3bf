"""Options as GNU's commands take them, read up to the command that is to be run.

`--name value`, `--name=value`, any unambiguous beginning of a name, `-k5`, `-k 5`, `-vp`; the
first word that is no option begins the command, `--` ends the options. Imports quoting alone:
argparse would double the command's start.
"""

from __future__ import annotations

from streamguard._base.quoting import quoted

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class UsageError(Exception):
    """What is wrong with the command line, in one line for the person who wrote it."""

    def __init__(self, text: str) -> None:
        super().__init__(quoted(text))


class ConfiguredWrongError(UsageError):
    """What is wrong with a file or the environment, where no help on the command line helps."""


class Option:
    """One option: where its value goes, and what makes a value of its text (None: a flag, which is `value`).

    Its ValueError says what is wrong with a value. `metavar`, `says` and `default` are for help and reference pages.
    """

    def __init__(
        self,
        attribute: str,
        convert: Callable[[str], Any] | None = None,
        metavar: str = "",
        says: str = "",
        *,
        value: object = True,
        default: float | str | tuple[float, ...] | None = None,
    ) -> None:
        self.attribute = attribute
        self.convert = convert
        self.metavar = metavar
        self.says = says
        self.value = value
        self.default = default


def parse(words: Sequence[str], options: Mapping[str, Option]) -> tuple[dict[str, Any], list[str]]:
    """The values by attribute, and the words that are left. UsageError says what is wrong.

    `options` has long names (`idle`) and letters (`k`). Of an option said twice, the last counts.
    """
    said: dict[str, Any] = {}
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            _take_long(word, left, options, said)
        else:
            _take_letters(word, left, options, said)
    return said, left


def _take_long(
    word: str, left: list[str], options: Mapping[str, Option], said: dict[str, Any]
) -> None:
    written, equals, value = word[2:].partition("=")
    name = _name(written, options)
    option = options[name]
    if option.convert is None:
        if equals:
            raise UsageError(f"option '--{name}' takes no value")
        said[option.attribute] = option.value
    else:
        said[option.attribute] = _convert(
            f"--{name}", option.convert, value if equals else _next(f"--{name}", left)
        )


def _take_letters(
    word: str, left: list[str], options: Mapping[str, Option], said: dict[str, Any]
) -> None:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = options.get(letter)
        if option is None:
            raise UsageError(f"there is no option '-{letter}'")
        if option.convert is None:
            said[option.attribute] = option.value
        else:
            value = letters or _next(f"-{letter}", left)
            said[option.attribute] = _convert(f"-{letter}", option.convert, value)
            return


def _name(written: str, options: Mapping[str, Option]) -> str:
    if len(written) > 1 and written in options:
        return written
    found = [name for name in options if len(name) > 1 and written and name.startswith(written)]
    # Two names of one option are no doubt: --kill and --kill-after.
    if found and len({options[name].attribute for name in found}) == 1:
        return found[0]
    if found:
        raise UsageError(f"option '--{written}' could be any of --{', --'.join(sorted(found))}")
    long = [name for name in options if len(name) > 1]
    raise UsageError(f"there is no option '--{written}'{guess(written, long, '--')}")


def guess(word: str, known: Sequence[str], dashes: str = "") -> str:
    """What `word` may have been meant to be, as the end of a sentence; empty if that is not clear."""
    from streamguard._base.near import near

    found = near(f"{dashes}{word}", [f"{dashes}{name}" for name in known], "")
    return f"; {found}" if found else ""


def _next(option: str, left: list[str]) -> str:
    if not left or left[0] == "--":
        raise UsageError(f"option '{option}' needs a value")
    return left.pop(0)


def _convert(option: str, convert: Callable[[str], Any], value: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise UsageError(f"option '{option}': {value!r}: {error}") from None
