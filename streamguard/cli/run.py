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
    parse,
)
from streamguard.runner._signal import signal_number
from streamguard.runner.options import Settings
from streamguard.runner.result import OUR_FAILURE
from streamguard.runner.words import say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

PROGRAM = "streamguard run"
HELP = """\
usage: streamguard run [OPTION]... [--] COMMAND [ARGUMENT]...

Run COMMAND and end it, with everything that it started, when it hangs. Its output is passed on
unchanged. A DURATION is a number of seconds, or has a unit (90, 1.5m, 2h, 1h30m, 500ms); 0 or off is
none.

Limits (none is on unless you ask for it, or the configuration does):
  --idle DURATION        no output for so long, with no tool in flight
  --first DURATION       in its place until the first output (of an agent: until it does something)
  --first-json DURATION  no JSON line (an object) for so long from the start, whatever else comes
  --liveness DURATION    nothing at all, not even a ping, from an agent that sends pings
  --tools DURATION       a tool may be in flight for so long (2h), and pauses --idle
  --turn DURATION        an agent's turn may take so long
  --exit-grace DURATION  COMMAND may stay for so long after an agent's result (30)
  --total DURATION       the whole run, retries and all
  --after-sleep DURATION a silence goes on for so long (30) when this machine has slept, with no tool in
                         flight, of an agent whose lines are understood; if you say it, of any COMMAND
  --preset NAME          limits by name, for instance claude-print or multica; what you say beside
                         it goes over it (docs/how-to/presets.md)
  --transcript FILE      what COMMAND writes there counts as output, too, for --idle and --first;
                         and a JSON line in it for --first-json

Told, unless --end-on says that it ends COMMAND (of agents whose lines are understood):
  --quiet DURATION       a sub-agent that had spoken says nothing for so long (15m)
  --repeats N            the same work has the same outcome N times in a row (20; 0: never)
  --tokens N             so many tokens are used up; the next two likewise
  --cost AMOUNT          so much money
  --calls N              so many calls of the model
  --end-on WORD,...      end it for some of quiet, repeats, tokens, cost, calls; also for empty (a turn
                         that ended with success and did nothing) and abandoned (work left open)

How it is ended:
  --kill-after DURATION  from the first signal to KILL (5)
  --signal SIGNAL        what is sent first (TERM)
  --preserve-status      exit with COMMAND's own status after a limit, too
  --reap                 end also what a COMMAND that has ended by itself has left behind

How it is run:
  --stdin inherit|null   its input is ours, or /dev/null: nobody waits for input that never comes
  --lock FILE            one run at a time: while another has FILE nothing is started, and that is 75
  --pty                  give COMMAND a terminal (some programs keep output back without one)
  --foreground           leave it our session: it can use the terminal, and Ctrl-Z stops both

Once more:
  --retries N            try again after a limit, if no output was passed on yet
  --backoff D,D,...      wait so long before (0,5,15; the last one repeats)
  --resume-cmd 'WORDS'   what to run instead from then on; {session_id} is the agent's session.
                         With it, also after output
  --fresh-if-unknown     where that session is not known to the agent any more, run COMMAND once
                         more, without what was said before; not if tools have run in it
  --wait-for-limit DURATION  wait so long in all for a usage limit that the agent met to be over,
                         if it says when that is; then go on as above

What is said:
  --status-file FILE     how it ended, as JSON
  --record DIR           evidence of every verdict (see `streamguard report`)
  --on-warn 'WORDS'      a command to run when half of a silence is gone, or anything else is doubtful
  --on-end 'WORDS'       and one to run at the end; it has 30 s, and the facts in its environment
  --github, --no-github  tell GitHub Actions of a limit (on where GITHUB_ACTIONS is true)
  --errors text|json     one line on standard error after a limit (text)
  --notify-systemd       tell systemd: ready, how it goes, and its watchdog that all is well
  --heartbeat FILE       renew FILE as long as all is well (see `streamguard healthy`)
  --verbose              also every signal that is sent, and half-time warnings
  --help                 this text

Exit codes: COMMAND's own (or it dies by the same signal), 124 after a limit, 137 if KILL was needed,
125 for wrong usage or a failure of ours, 126 if COMMAND cannot be run, 127 if it is not found,
75 if another run has the lock.
Ctrl-C is passed on; the second one kills.

  streamguard run --idle 15m -- claude -p "Fix issue 7" --output-format stream-json --verbose
  streamguard run --idle 10m --retries 2 --resume-cmd 'codex exec resume {session_id} --json Go' \\
      -- codex exec --json "Fix issue 7"

The names of claude-print are understood too: --timeout (--total), --first-output-timeout (--first),
--stream-json-timeout (--first-json), --stop-hook-timeout (--turn).
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
        raise ValueError(f"{quoted(unknown[0])} is none of {', '.join(_ENDABLE)}")
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
    from streamguard.presets import named

    named(text)
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


_LIMITS = (
    "idle",
    "first",
    "first-json",
    "liveness",
    "tools",
    "turn",
    "exit-grace",
    "total",
    "after-sleep",
    "kill-after",
)
OPTIONS = (
    {name: Option(name.replace("-", "_"), _duration) for name in (*_LIMITS, "quiet")}
    | {name: Option(name, _amount) for name in _CEILINGS}
    | {"repeats": Option("repeats", _repeats), "end-on": Option("end_on", _endable)}
    | {
        "signal": Option("signal", signal_number),
        "preserve-status": Option("preserve_status"),
        "reap": Option("reap"),
        "stdin": Option("stdin", _one_of("inherit", "null")),
        "lock": Option("lock", _path),
        "pty": Option("pty"),
        "foreground": Option("foreground"),
        "retries": Option("retries", _count),
        "backoff": Option("backoff", _durations),
        "resume-cmd": Option("resume_command", _template),
        "fresh-if-unknown": Option("fresh_if_unknown"),
        "wait-for-limit": Option("wait_for_limit", _bounded),
        "status-file": Option("status_file", status_file),
        "record": Option("record", str),
        "github": Option("github"),
        "no-github": Option("github", value=False),
        "on-warn": Option("on_warn", _words),
        "on-end": Option("on_end", _words),
        "transcript": Option("transcript", _path),
        "notify-systemd": Option("notify_systemd"),
        "heartbeat": Option("heartbeat", _path),
        "preset": Option("preset", _preset),
        "errors": Option("errors", _one_of("text", "json")),
        "verbose": Option("verbose"),
        "help": Option("help"),
        "h": Option("help"),
        "v": Option("verbose"),
        "k": Option("kill_after", _duration),
        "s": Option("signal", signal_number),
    }
    | {alias: Option(name.replace("-", "_"), _duration) for alias, name in _ALIASES.items()}
)


def main(words: Sequence[str]) -> int:
    """Do as `words` say. It returns only if there is nothing to run."""
    try:
        said, command = parse(words, OPTIONS)
        if said.pop("help", False):
            print(HELP, end="")
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


def _warnings(settings: Settings) -> Iterator[str]:
    if settings.shortest_limit == float("inf"):
        yield (
            "no limit is on, so nothing ends the command if it hangs: say --idle 15m, or write it "
            "below [run] in streamguard.toml"
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
