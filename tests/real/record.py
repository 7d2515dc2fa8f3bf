"""Makes recorded/*.jsonl anew: `python -m tests.real.record [NAME...]`, from the project's folder.

Each file is what one CLI wrote to stdout in one scenario against the model server, with
what differs from run to run and from machine to machine made the same.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests.loopback.script import Reply, cut, error, pings, reset, status, text, tool
from tests.loopback.server import ModelServer
from tests.process.backends import Backends, comes_true
from tests.real.clis import CLIS, FOREVER, TOOLS, Cli

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Scenario:
    """What the server answers, and what is done to the CLI meanwhile."""

    replies: Callable[[Cli], list[Reply]]
    aside: Callable[[Cli], list[Reply]] = lambda _: []
    """Answers for a sub-agent."""

    forever: Reply | None = None
    env: dict[str, str] = field(default_factory=dict)
    partials: bool = False
    tap: bool = True
    """Of opencode: whether it has ours."""

    ended_at: str = ""
    """End it at the first line that has this in it, once the tool runs."""

    end: Callable[[Popen[bytes], Backends], None] | None = None


_NOISE = b'"session.background_tasks_changed"'  # of copilot: any number of them
_SUBAGENT = "Count the files."
_IMPATIENT = {"CLAUDE_CODE_MAX_RETRIES": "1"}


def _nothing(_cli):
    return []


def _text(_cli):
    return [text("Hello, ", "world.")]


def _tool(cli):
    return [text("I look. ") + cli.shell("echo found it"), text("Done.")]


def _failing_tool(cli):
    return [cli.shell("echo no >&2; exit 3"), text("It failed.")]


def _busy(cli):
    return [cli.shell(FOREVER)]


def _interrupt(process: Popen[bytes], _backends: Backends) -> None:
    process.send_signal(signal.SIGINT)


def _kill(_process: Popen[bytes], backends: Backends) -> None:
    backends.kill()


_COMMON = {
    "text": Scenario(_text),
    "tool": Scenario(_tool),
    "failing-tool": Scenario(_failing_tool),
    "retry": Scenario(lambda _: [status(529, retry_after=0.1), text("At last.")]),
    "refused": Scenario(_nothing, forever=status(400)),
}
SCENARIOS = {
    "claude": _COMMON
    | {
        "partials": Scenario(_text, partials=True),
        "pings": Scenario(
            lambda cli: [text("I ", "think.") | pings(after=cli.midway)],
            partials=True,
            ended_at='"ping"',
            end=_interrupt,
        ),
        "overloaded": Scenario(_nothing, forever=status(529), env=_IMPATIENT),
        "empty": Scenario(_nothing, forever=text("")),
        "background": Scenario(
            lambda cli: [
                _in_background(cli.shell(f"timeout 1 {FOREVER}; echo finished")),
                text("It runs."),
                text("It has finished."),
            ]
        ),
        "subagent": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT), text("It counts."), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        "subagent-waited-for": Scenario(
            lambda cli: [_waited_for(cli.subagent(_SUBAGENT)), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        "interrupted": Scenario(_busy, ended_at='"tool_use"', end=_interrupt),
        "long-tool": Scenario(
            lambda cli: [cli.shell(f"timeout 35 {FOREVER}; echo at last"), text("Done.")]
        ),
    },
    "codex": _COMMON
    | {
        "reconnecting": Scenario(
            lambda cli: [text("I ", "think.") | cut(after=cli.midway), text("At last.")]
        ),
        "overloaded": Scenario(_nothing, forever=text("I ", "think.") | error(after=5)),
        "empty": Scenario(lambda _: [text("")]),
        "background": Scenario(
            lambda cli: [cli.shell(FOREVER, yield_time_ms=500), text("It runs.")]
        ),
        "interrupted": Scenario(_busy, ended_at="command_execution", end=_interrupt),
    },
    "gemini": _COMMON
    | {
        "overloaded": Scenario(_nothing, forever=text("I ", "think.") | error(after=1)),
        "killed": Scenario(
            _busy, ended_at='"tool_use"', end=_kill
        ),  # it is deaf to SIGINT and SIGTERM
    },
    "opencode": _COMMON
    | {
        "untapped": Scenario(_tool, tap=False),
        "reconnecting": Scenario(
            lambda cli: [text("I ", "think.") | cut(after=cli.midway), text("At last.")]
        ),
        "overloaded": Scenario(
            lambda _: [text("I ", "think.") | error(after=3), status(529), text("At last.")]
        ),
        "denied": Scenario(
            lambda cli: [cli.shell("echo never")],
            env={"OPENCODE_PERMISSION": '{"bash": "ask"}'},
        ),
        "empty": Scenario(lambda _: [text("")]),
        "subagent": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        "interrupted": Scenario(_busy, ended_at="tap.tool_start", end=_interrupt),
        "killed": Scenario(_busy, ended_at="tap.tool_start", end=_kill),
    },
    "copilot": _COMMON
    | {
        "reconnecting": Scenario(
            lambda cli: [text("I ", "think.") | cut(after=cli.midway), text("At last.")]
        ),
        "overloaded": Scenario(
            lambda _: [text("I ", "think.") | error(after=2), status(529), text("At last.")]
        ),
        "unauthorized": Scenario(_nothing, forever=status(401)),
        "empty": Scenario(lambda _: [text("")]),
        "background": Scenario(
            lambda cli: [
                cli.shell(f"timeout 1 {FOREVER}; echo finished", mode="async", shellId="one"),
                text("It runs."),
                text("It has finished."),
            ]
        ),
        "subagent": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        "subagent-background": Scenario(
            lambda cli: [
                cli.subagent(_SUBAGENT, mode="background"),
                text("It counts."),
                text("There are three."),
            ],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        # SIGINT ends the package's wrapper alone, and leaves it running with its tool.
        "killed": Scenario(_busy, ended_at="tool.execution_start", end=_kill),
    },
    "kimi": _COMMON
    | {
        "reconnecting": Scenario(
            lambda cli: [text("I ", "think.") | reset(after=cli.midway), text("At last.")]
        ),
        "two-tools": Scenario(
            lambda cli: [
                cli.shell("echo first") + cli.shell(f"timeout 2 {FOREVER}; echo second"),
                text("Done."),
            ]
        ),
        "subagent": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
    },
    "qwen": _COMMON
    | {
        "partials": Scenario(_text, partials=True),
        "long-tool": Scenario(
            lambda cli: [cli.shell(f"timeout 11 {FOREVER}; echo at last"), text("Done.")],
            partials=True,
        ),
        # Its connection breaks, which is told. (A busy API is asked again after a minute.)
        "reconnecting": Scenario(
            lambda cli: [text("I ", "think.") | reset(after=cli.midway), text("At last.")]
        ),
        "denied": Scenario(_nothing, forever=status(401)),
        "loop": Scenario(_nothing, forever=tool("glob", {"pattern": "*.py"})),
        "background": Scenario(
            lambda cli: [
                cli.shell(f"timeout 1 {FOREVER}; echo finished", background=True),
                text("It runs."),
            ]
        ),
        "subagent": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT, background=False), text("There are three.")],
            aside=lambda cli: [text("I look. ") + cli.shell("ls | wc -l"), text("Three.")],
        ),
        "subagent-behind": Scenario(
            lambda cli: [cli.subagent(_SUBAGENT), text("It counts."), text("There are three.")],
            aside=lambda cli: [cli.shell("ls | wc -l"), text("Three.")],
        ),
        "killed": Scenario(_busy, ended_at='"tool_use"', end=_kill),
    },
}


def _is_the_subagents(request):
    """Its prompt is the first that is said to it, and ours is not in it."""
    said = " ".join(text for role, text in request.history[:2] if role == "user")
    return _SUBAGENT in said and "Begin." not in said


def _waited_for(reply):
    (call,) = reply.parts
    call.input["run_in_background"] = False
    return reply


def _in_background(reply):
    (call,) = reply.parts
    call.input["run_in_background"] = True
    return reply


def record(name: str, scenario: Scenario, home: Path, backends: Backends) -> list[str]:
    """The lines of one run, as they came."""
    with ModelServer(aside=lambda request: not request.offers_tools) as server:
        cli = CLIS[name](server, home, backends.popen)
        cli.partials, cli.has_tap = scenario.partials, scenario.tap
        for_subagent = scenario.aside(cli)
        server.script(*for_subagent, when=_is_the_subagents)
        server.script(*scenario.replies(cli), forever=scenario.forever)
        process = cli.start("Begin.", env=scenario.env)
        lines: list[str] = []
        is_ended = False
        for line in process.stdout:
            if _NOISE in line:
                continue
            lines.append(line.decode())
            if scenario.end and scenario.ended_at in lines[-1] and not is_ended:
                assert comes_true(lambda: scenario.replies is not _busy or _is_busy(backends))
                scenario.end(process, backends)
                is_ended = True
        process.wait()
    return lines


def _is_busy(backends: Backends) -> bool:
    """Whether the tool runs."""
    return any(FOREVER in _command(pid) for pid in backends.living())


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


# -- the same on every machine -------------------------------------------------------------------

_OPENCODE_ID = re.compile(r"\b(ses|msg|prt)_[0-9A-Za-z]{26}\b")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(Z|\+00:00)")
_SOCKET = re.compile(r"\d+\.sock")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_LISTS = 3  # so many of a list of names are enough


_IDS = ("task_id", "run_id", "agent_id")
_TIMES = ("timestamp", "start", "end", "next")  # of opencode, in milliseconds
_SIZES = ("requestBodyBytes", "requestBodyWireBytes", "context_current_tokens")
_LEFT_OUT = ("skills", "requestFingerprint")  # its vendor's own texts; sums of what was asked


class Scrubber:
    """Replaces what differs from run to run, the same by the same."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def line(self, line: str) -> str:
        try:
            message = json.loads(line)
        except ValueError:
            return self._string(line)
        return json.dumps(self._value(message), ensure_ascii=False) + "\n"

    def _value(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                kept = {name: each for name, each in value.items() if name not in _LEFT_OUT}
                return {name: self._value(each, name) for name, each in kept.items()}
            case list() if len(value) > _LISTS and all(isinstance(each, str) for each in value):
                return [self._string(each) for each in value[:_LISTS]]
            case list():
                return [self._value(each) for each in value]
            case str() if key in _IDS and not _UUID.fullmatch(value):
                return self._names.setdefault(value, f"{key}-{len(self._names) + 1}")
            case str():
                return self._string(value)
            case float() | int() if key.endswith(("_ms", "Ms", "_seconds")) and value is not True:
                return round(value, -3)
            case int() if key in _TIMES:
                return 1_767_225_600_000
            case int() if key in _SIZES:
                return 1_000
            case _:
                return value

    def _string(self, value: str) -> str:
        value = value.replace(self._home, "/home/user")
        value = value.replace(self._home.replace("/", "-"), "-home-user")
        value = value.replace(self._home.lstrip("/"), "home/user").replace(str(TOOLS), "/tools")
        for name, stable in self._names.items():
            value = value.replace(name, stable)
        value = _TIME.sub(r"2026-01-01T00:00:00.000\1", value)
        value = _OPENCODE_ID.sub(self._name, value)
        value = _SOCKET.sub("1.sock", value)
        value = _ADDRESS.sub("127.0.0.1:1", value)
        return _UUID.sub(self._id, value)

    def _name(self, found: re.Match[str]) -> str:
        number = sum(each.startswith(found[1]) for each in self._ids) + 1
        return self._ids.setdefault(found[0], f"{found[1]}_{number}")

    def _id(self, found: re.Match[str]) -> str:
        number = len(self._ids) + 1
        return self._ids.setdefault(found[0], f"00000000-0000-4000-8000-{number:012}")


def main(wanted: list[str]) -> None:
    for name, scenarios in SCENARIOS.items():
        for title, scenario in scenarios.items():
            if wanted and name not in wanted and f"{name}-{title}" not in wanted:
                continue
            backends = Backends()
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                try:
                    lines = record(name, scenario, Path(home), backends)
                finally:
                    backends.clear()
            scrubber = Scrubber(Path(home))
            target = FOLDER / f"{name}-{title}.jsonl"
            target.write_text("".join(map(scrubber.line, lines)))
            print(f"{len(lines):3} lines  {target.name}")  # noqa: T201 - a script


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    main(sys.argv[1:])
