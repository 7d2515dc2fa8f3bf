"""`streamguard run`: its options, as `runner.settings` takes them."""

from __future__ import annotations

import os
import sys

from streamguard._base import defaults, quoting
from streamguard._base.durations import doubt, limit, meant, parsed, said_twice, says_off, typed
from streamguard._base.quoting import quoted
from streamguard.cli import agents, elsewhere
from streamguard.cli.arguments import (
    ConfiguredWrongError,
    Option,
    UsageError,
    guess,
    parse,
)
from streamguard.runner._signal import signal_number
from streamguard.runner.options import Settings
from streamguard.runner.result import EXIT_CODES, OUR_FAILURE
from streamguard.runner.words import say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

PROGRAM = "streamguard run"
USAGE = "usage: streamguard run [OPTION]... [--] COMMAND [ARGUMENT]..."
INTRO = """\
Run COMMAND, pass its output on unchanged, and end it with everything that it
started when it hangs. Options come before COMMAND; put -- between them if
COMMAND begins with a dash.

A DURATION is a number of seconds, or a number with a unit: 500ms, 90s, 15m,
1h30m, 1d. 0 (or off) switches a limit off. Defaults are in [brackets].
"""
OUTRO = """\
Ctrl-C is passed on to COMMAND; the second one kills it.

  streamguard run --idle 15m -- claude -p "Fix issue 7" \\
      --output-format stream-json --verbose
  streamguard run --idle 10m --retries 2 \\
      --resume-cmd 'codex exec resume {session_id} --json Go' \\
      -- codex exec --json "Fix issue 7"

The names of claude-print are understood too: --timeout (--total),
--first-output-timeout (--first), --stream-json-timeout (--first-json) and
--stop-hook-timeout (--turn).
"""

# What is doubtful about the words, said when the command runs.
_doubts: list[str] = []
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")
_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_ALIASES = {
    "timeout": "total",
    "first-output-timeout": "first",
    "stream-json-timeout": "first-json",
    "stop-hook-timeout": "turn",
}


def _duration(text: str) -> float | None:
    try:
        value = limit(text)
    except ValueError:
        raise _no_duration(text, "use a duration such as 90, 1.5m or 2h (0 = off)") from None
    if text.isdigit() and value is not None and (doubtful := doubt(value)) is not None:
        _doubts.append(f"{quoted(text)} is {doubtful}")
    return value


def _no_duration(text: str, otherwise: str) -> ValueError:
    better = meant(text)
    return ValueError(f"write {better}" if better else otherwise)


def _bounded(text: str) -> float | None:
    value = _duration(text)
    if value == float("inf"):
        raise ValueError("use a duration such as 6h (0 = off)")
    return value


def _durations(text: str) -> tuple[float, ...]:
    otherwise = "use durations such as 5, 1.5m or 2h (0 = at once)"
    try:
        durations = tuple(map(parsed, text.split(",")))
    except ValueError:
        raise _no_duration(text, otherwise) from None
    if float("inf") in durations:
        raise ValueError(otherwise)
    return durations


def _repeats(text: str) -> int | None:
    times = 0 if says_off(text) else _count(text)
    if times == 1:
        raise ValueError("once is no repetition: use 2 or more (0 = never)")
    return times or None


def _amount(text: str) -> float | None:
    try:
        amount = 0.0 if says_off(text) else float(text.replace("_", ""))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ValueError("use a number (0 = off)")
    return amount or None


def _endable(text: str) -> frozenset[str]:
    words = frozenset(word.strip() for word in text.split(","))
    if unknown := sorted(words.difference(_ENDABLE)):
        hint = guess(unknown[0], _ENDABLE)
        raise ValueError(f"{quoted(unknown[0])} is none of {', '.join(_ENDABLE)}{hint}")
    return words


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("use a whole number, 0 or more")
    if len(text) > sys.get_int_max_str_digits() > 0:
        raise ValueError("it cannot be used")
    return int(text)


_CEILINGS = ("tokens", "cost", "calls")
_ENDABLE = ("quiet", "repeats", *_CEILINGS, "empty", "abandoned")


def _one_of(*words: str) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in words:
            raise ValueError(f"use {' or '.join(words)}")
        return text

    return choose


def status_file(text: str) -> str:
    """Where the status is written; ValueError for what nobody could read there."""
    if os.path.normpath(text) in _STANDARD_OUTPUT:
        raise ValueError(
            "standard output is the command's, and closed with it; use /dev/stderr, or /dev/fd/3 "
            "and 3>FILE"
        )
    if text.startswith(_DESCRIPTORS) and not os.path.exists(text):
        raise ValueError("no such descriptor is open")
    return text


def _path(text: str) -> str:
    if not text:
        raise ValueError("name a file")
    return text


def _preset(text: str) -> str:
    from streamguard.presets import PRESETS, named

    try:
        named(text)
    except ValueError as error:
        raise ValueError(f"{error}{guess(text, list(PRESETS))}") from None
    return text


def _template(text: str) -> str:
    if "{session_id}" not in text:
        raise ValueError("it does not say where the session's id goes: write {session_id}")
    import shlex

    shlex.split(text)
    return text


def _words(text: str) -> tuple[str, ...]:
    import shlex

    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("name a command")
    return words


# Every option by its heading and its name: the command line, its help and the reference pages are made of it.
GROUPS = {
    "Limits. None is on until you set one, here or in the configuration": {
        "idle": Option(
            "idle",
            _duration,
            "DURATION",
            "end COMMAND after so much silence; time in which a tool is in flight does not count",
        ),
        "first": Option(
            "first",
            _duration,
            "DURATION",
            "the same until the first output, in place of --idle; an agent's greeting is not output yet",
        ),
        "first-json": Option(
            "first_json",
            _duration,
            "DURATION",
            "end it if no line that is a JSON object has come by then, whatever else it writes",
        ),
        "liveness": Option(
            "liveness",
            _duration,
            "DURATION",
            "end it after so long without anything, not even a ping; counts from the agent's first ping",
        ),
        "tools": Option(
            "tools",
            _duration,
            "DURATION",
            "how long one tool may be in flight, which pauses --idle",
            default=defaults.TOOLS,
        ),
        "turn": Option("turn", _duration, "DURATION", "how long one turn of an agent may take"),
        "exit-grace": Option(
            "exit_grace",
            _duration,
            "DURATION",
            "how long COMMAND may stay after its agent's result, once any limit is on",
            default=defaults.EXIT_GRACE,
        ),
        "total": Option(
            "total", _duration, "DURATION", "how long the whole run may take, retries included"
        ),
        "after-sleep": Option(
            "after_sleep",
            _duration,
            "DURATION",
            "how much silence is left when this machine wakes from sleep with no tool in flight; for known agents, "
            "or for any COMMAND if you set it",
            default=defaults.AFTER_SLEEP,
        ),
        "preset": Option(
            "preset",
            _preset,
            "NAME",
            "a named set of limits, such as claude-print or multica; what you set beside it wins",
        ),
        "transcript": Option(
            "transcript",
            _path,
            "FILE",
            "what COMMAND writes to FILE counts as its output, for --idle, --first and --first-json",
        ),
    },
    "Warnings about known agents. They end nothing unless --end-on says so": {
        "quiet": Option(
            "quiet",
            _duration,
            "DURATION",
            "warn when a sub-agent that had spoken is silent for so long",
            default=defaults.QUIET,
        ),
        "repeats": Option(
            "repeats",
            _repeats,
            "N",
            "warn when the same work had the same outcome N times in a row; 0 switches it off",
            default=defaults.REPEATS,
        ),
        "tokens": Option("tokens", _amount, "N", "warn when so many tokens are used up"),
        "cost": Option("cost", _amount, "AMOUNT", "warn when so much money is spent"),
        "calls": Option("calls", _amount, "N", "warn after so many calls of the model"),
        "end-on": Option(
            "end_on",
            _endable,
            "WORD,...",
            "end COMMAND instead of warning: any of quiet, repeats, tokens, cost, calls; also empty (a turn that "
            "succeeded and did nothing) and abandoned (background work left open)",
        ),
    },
    "How COMMAND is ended": {
        "signal": Option(
            "signal",
            signal_number,
            "SIGNAL",
            "what is sent first, a name or a number",
            default="TERM",
        ),
        "kill-after": Option(
            "kill_after",
            _duration,
            "DURATION",
            "how long after it KILL is sent",
            default=defaults.KILL_GRACE,
        ),
        "preserve-status": Option(
            "preserve_status", says="exit with COMMAND's own code after a limit, too"
        ),
        "reap": Option(
            "reap", says="when COMMAND ends by itself, end what it left in the background"
        ),
    },
    "How COMMAND is run": {
        "stdin": Option(
            "stdin",
            _one_of("inherit", "null"),
            "inherit|null",
            "COMMAND's input: ours, or /dev/null, so that it cannot wait for input that never comes",
            default="inherit",
        ),
        "lock": Option(
            "lock",
            _path,
            "FILE",
            "one run at a time: while another run has FILE, start nothing and exit with 75",
        ),
        "pty": Option(
            "pty",
            says="give COMMAND a terminal of its own; some programs hold output back without one",
        ),
        "foreground": Option(
            "foreground",
            says="leave COMMAND in our session: it can use our terminal, and Ctrl-Z stops both",
        ),
    },
    "Trying again": {
        "retries": Option(
            "retries",
            _count,
            "N",
            "how often to try again after a limit, if nothing of COMMAND's output was passed on",
            default=0,
        ),
        "backoff": Option(
            "backoff",
            _durations,
            "D,D,...",
            "how long to wait before each retry; the last one repeats",
            default=defaults.BACKOFF,
        ),
        "resume-cmd": Option(
            "resume_command",
            _template,
            "'WORDS'",
            "what to run for a retry, so that the agent resumes; {session_id} becomes its session. Allows a retry "
            "after output, too",
        ),
        "fresh-if-unknown": Option(
            "fresh_if_unknown",
            says="if the agent does not know that session any more, run COMMAND once more from the beginning; not if "
            "tools have run in it",
        ),
        "wait-for-limit": Option(
            "wait_for_limit",
            _bounded,
            "DURATION",
            "when the agent met a usage limit and says when it is over, wait for that (so long in all), then go on",
        ),
    },
    "What is written, and who is told": {
        "record": Option(
            "record", str, "DIR", "keep evidence in DIR; `streamguard report DIR` draws it"
        ),
        "status-file": Option("status_file", status_file, "FILE", "write how it ended, as JSON"),
        "on-warn": Option(
            "on_warn",
            _words,
            "'WORDS'",
            "a command to run at every warning, and when half of a silence is over",
        ),
        "on-end": Option(
            "on_end",
            _words,
            "'WORDS'",
            f"a command to run at the end; it has {defaults.HOOK:g} s, and finds the facts in its environment",
        ),
        "github": Option(
            "github",
            says="tell GitHub Actions of a limit; on where GITHUB_ACTIONS is true",
        ),
        "no-github": Option("github", says="do not", value=False),
        "errors": Option(
            "errors",
            _one_of("text", "json"),
            "text|json",
            "how a limit is told on standard error: a sentence, or a JSON object",
            default="text",
        ),
        "notify-systemd": Option(
            "notify_systemd", says="tell systemd that it is ready, how it goes, and its watchdog"
        ),
        "heartbeat": Option(
            "heartbeat",
            _path,
            "FILE",
            "renew FILE as long as all is well; `streamguard healthy FILE` looks at it",
        ),
        "verbose": Option(
            "verbose", says="tell also of each signal, and when half of a silence is over"
        ),
        "help": Option("help", says="show this text"),
    },
}
LETTERS = {"k": "kill-after", "s": "signal", "v": "verbose", "h": "help"}
_NAMED = {name: option for group in GROUPS.values() for name, option in group.items()}
_LIMITS_AS_TYPED = ("--idle", "--first", "--first-json", "--turn", "--total")
OPTIONS = _NAMED | {other: _NAMED[name] for other, name in (LETTERS | _ALIASES).items()}


def main(words: Sequence[str]) -> int:
    """Do as `words` say. It returns only if there is nothing to run."""
    try:
        said, command = parse(words, OPTIONS)
        if said.pop("help", False):
            from streamguard.cli.helping import text_of

            told = text_of(USAGE, INTRO, GROUPS, LETTERS, exit_codes=EXIT_CODES, outro=OUTRO)
            print(told, end="")
            return 0
        settings = settings_of(said, command)
    except ConfiguredWrongError as error:
        say(f"{PROGRAM}: {error}")
        return OUR_FAILURE
    except UsageError as error:
        say(f"{PROGRAM}: {error}", "Try 'streamguard run --help'.")
        return OUR_FAILURE
    from streamguard.runner.run import supervise

    return supervise(settings)


def settings_of(said: dict[str, Any], command: Sequence[str]) -> Settings:
    """What was said, over what is configured, over the defaults. UsageError if it cannot be."""
    from streamguard.cli.from_configuration import configured

    if not command:
        raise UsageError("which command? Put it at the end: streamguard run --idle 15m -- ...")
    settings = Settings()
    settings.command = tuple(command)
    said = _with_preset(said)
    values = configured() | said
    settings.errors_as_json = values.pop("errors", "text") == "json"
    mode = values.pop("mode", "enforce")
    warnings = values.pop("warnings", ())
    settings.only_warn, settings.is_off = mode == "warn", mode == "off"
    for name, value in values.items():
        setattr(settings, name, value)
    _see_what_was_asked_for(settings, said, values)
    settings.github = _tells_github(settings.github)
    settings.speaks_json = agents.speaks_json(command)
    settings.elsewhere = elsewhere.unseen(command)
    if settings.watches_output and "exit_grace" not in values and not agents.stays_open(command):
        settings.exit_grace = defaults.EXIT_GRACE
    _see_how_it_goes_on(settings, said)
    if settings.pty and settings.foreground:
        raise UsageError(
            "--pty gives the command a terminal of its own, --foreground ours: use one"
        )
    if settings.is_off and settings.has_pulse:  # who waits for signs of life is not to miss them
        settings.unlimit()
    if not settings.is_off:
        if _is_closed(1):
            _refuse_what_is_not_seen(settings)
        settings.warnings = (*_doubts, *warnings, *_warnings(settings))
    return settings


def _tells_github(said: bool | None) -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true" if said is None else said


def _see_how_it_goes_on(settings: Settings, said: dict[str, Any]) -> None:
    """UsageError for what can never be done once more; a doubt about what hardly ever can."""
    if settings.resume_command is not None:
        if not settings.may_go_on:
            raise UsageError(
                "--resume-cmd is for --retries: say how many, for instance --retries 2"
            )
    elif "fresh_if_unknown" in said:
        raise UsageError("--fresh-if-unknown is for --resume-cmd: say how a session is resumed")
    elif "wait_for_limit" in said:
        _doubts.append(
            "--wait-for-limit without --resume-cmd: a command that has written anything is not run once more"
        )


def _see_what_was_asked_for(
    settings: Settings, said: dict[str, Any], values: dict[str, Any]
) -> None:
    """Of what is on by default it matters whether somebody wants it."""
    for name in ("tools", "quiet"):
        if name in said:
            setattr(settings, f"{name}_by_name", None)
    on_progress = ("quiet", "repeats", "end_on", *_CEILINGS)
    settings.watches_progress = any(name in values for name in on_progress)
    for name in sorted(settings.end_on):
        if name in ("quiet", "repeats", *_CEILINGS) and getattr(settings, name) is None:
            raise UsageError(f"--end-on {name} can end nothing: --{name} is not said, or off")
    settings.watches_tools = bool(values.get("tools") is not None or settings.tools_by_name)
    settings.wants_exit_grace = settings.exit_grace is not None
    settings.wants_after_sleep = "after_sleep" in values


def _with_preset(said: dict[str, Any]) -> dict[str, Any]:
    """What was said, over what a preset says that was said, too."""
    if (name := said.get("preset")) is None:
        return said
    from streamguard.presets import named

    preset = named(name).for_run(said.get("total"))
    given = {attribute: value for attribute, value in preset.items() if value is not None}
    return {**given, **{key: value for key, value in said.items() if key != "preset"}}


def _is_closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


def _refuse_what_is_not_seen(settings: Settings) -> None:
    """UsageError for a limit on what the command says, where it has no standard output to say it."""
    for option, is_asked in (
        ("--first-json", settings.first_json is not None and settings.transcript is None),
        ("--liveness", settings.liveness is not None),
        ("--tools", settings.watches_tools),
        ("--exit-grace", settings.wants_exit_grace),
    ):
        if is_asked:
            instead = ", or name a --transcript" if option == "--first-json" else ""
            raise UsageError(
                f"{option} looks at standard output, which is closed: open it, for instance "
                f"with >/dev/null{instead}"
            )


def _behind(command: Sequence[str]) -> str:
    """What to say of an option of ours that stands behind the command, whose own it is there."""
    found = next((word for word in command[1:] if word.partition("=")[0] in _LIMITS_AS_TYPED), "")
    return f". {found} stands behind the command: put it before" if found else ""


def _warnings(settings: Settings) -> Iterator[str]:
    if settings.shortest_limit == float("inf"):
        yield (
            "no limit is on, so nothing ends the command if it hangs: say --idle 15m, or write it "
            f"below [run] in streamguard.toml{_behind(settings.command)}"
        )
    if (twice := said_twice(settings.first, settings.idle)) is not None:
        yield twice
    advice = agents.silent_by_design(settings.command)
    silences = (("--idle", settings.idle), ("--first-json", settings.first_json))
    option, limit = next((each for each in silences if each[1] is not None), ("", None))
    if advice and limit is not None and settings.transcript is None:
        yield (
            f"{quoting.name(os.path.basename(settings.command[0]))} writes nothing until it is done, so {option} "
            f"{typed(limit)} measures all of its work; add {advice}"
        )
    if (there := elsewhere.advice(settings.command)) is not None:
        yield there
    if settings.transcript is not None and not settings.measures_silence:
        yield (
            "--transcript changes nothing: it is looked at for --idle, --first and --first-json, "
            "and none of them is on"
        )
