"""What is known of each backend beside its messages: versions, limits, watchdogs of its own.

For `streamguard doctor`, and for the one line of log that says that a window of ours forestalls the
backend's own recovery. Values and pure functions, but for `installed` and `codex_config`, which look
at the machine. No SDK is imported. The figures were measured on the versions named in docs/how-to/backends/index.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from streamguard.backends._fields import fields_of, number_in

if TYPE_CHECKING:
    from streamguard._base.spending import Ceiling

Environ: TypeAlias = Mapping[str, str]
Windows: TypeAlias = Mapping[str, float | None]
Told: TypeAlias = Literal["call", "turn", "end"]

# How long after its own watchdog a backend may need to show that it goes on.
RECOVERY: Final = 60.0
# How much of what a command says of its version is read, in bytes, and how much of a settings file.
_MOST_SAID: Final = 1 << 16
_LARGEST_FILE: Final = 1 << 20
# How long processes that are killed may take to be gone, in seconds.
_ENDING: Final = 1.0


@dataclass(frozen=True, slots=True)
class Watchdog:
    """A limit that a backend has on silence, after which it recovers by itself.

    `what`: which silence, and what the backend does after it.
    `seconds`: how long it is here; `setting`: what sets it; `advice`: what to set, `{half}` being
    half a window of ours in milliseconds.
    """

    what: str
    seconds: float
    setting: str
    advice: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One backend.

    `package`: the distribution on PyPI, `minimum` its oldest version that is guarded well.
    `command`: the command line, asked for its version with `--version`.
    `bundled`: where a package brings that command line, as its import name and a path in it.
    `usage_told`, `cost_told`: when it tells how many tokens were used, and what they have cost: with each
    "call" of the model, at a "turn"'s end, or at the "end" of its process; None is never.
    `resumes`: the words of its command line that take up a session and ask it something.
    `limits`: what does not work, or not as one might think; a sentence each.
    """

    name: str
    package: str | None = None
    minimum: str | None = None
    command: str | None = None
    bundled: tuple[str, str] | None = None
    usage_told: Told | None = None
    cost_told: Told | None = None
    calls_told: Told | None = None  # where it is not as usage
    resumes: tuple[str, ...] = ()  # with {token} and {prompt}
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """What of a backend is on this machine; None is what is not."""

    package: str | None = None
    command: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Collision:
    """A window of ours that fires before the backend's own recovery could be seen.

    `limit`: our knob (`idle` or `first`), `window` its seconds.
    """

    backend: str
    limit: Literal["idle", "first"]
    window: float
    watchdog: Watchdog

    def __str__(self) -> str:
        advice = self.watchdog.advice.format(half=f"{max(self.window / 2, 10) * 1000:.0f}")
        return (
            f"{self.limit}={self.window:g} fires before {self.backend} recovers by itself "
            f"({self.watchdog.what}: {self.watchdog.seconds:g} s). That is fine if you would rather "
            f"tear down and resume. To let it recover, write {self.limit}="
            f"{self.watchdog.seconds + RECOVERY:g} or more, or {advice}"
        )


# --- what is installed --------------------------------------------------------------------


def installed(name: str, *, timeout: float = 5.0) -> Installed:
    """Which version of the backend's package, and of its command line, is on this machine.

    A command line that a package brings along goes before one on the PATH, as that package has it.
    A command that says nothing within `timeout` seconds has no version; whatever it does, it takes
    little longer than that, and leaves no process. Never raises for a backend that is known.
    """
    import shutil
    from importlib import metadata

    facts = FACTS[name]
    package = None
    if facts.package:
        with suppress(metadata.PackageNotFoundError):
            package = metadata.version(facts.package)
    path = _bundled(*facts.bundled) if facts.bundled else None
    path = path or (shutil.which(facts.command) if facts.command else None)
    return Installed(package, *_version_said(path, timeout))


def command_here(name: str, *, timeout: float = 5.0) -> Installed:
    """The same of any other command on the PATH."""
    import shutil

    return Installed(None, *_version_said(shutil.which(name), timeout))


def _version_said(path: str | None, timeout: float) -> tuple[str | None, str | None]:
    said = None
    if path:
        with suppress(OSError, ValueError):
            said = _first_line_of(path, timeout)
    return said, path


def _bundled(package: str, inside: str) -> str | None:
    from importlib.util import find_spec
    from pathlib import Path

    try:
        spec = find_spec(package)  # finds it, and does not import it
    except (ImportError, ValueError):
        return None
    path = Path(spec.origin).parent / inside if spec is not None and spec.origin else None
    return str(path) if path is not None and path.is_file() else None


def _first_line_of(path: str, timeout: float) -> str | None:
    """What `path --version` writes first; None if that is no whole line, or an empty one.

    It may be anything that is called so: it gets `timeout` seconds, what is read of it is bounded,
    and then it is ended with all that it has started.
    """
    import subprocess
    from signal import SIGKILL

    from streamguard._base.variables import MARK
    from streamguard.process import blocking, identity, marked_env
    from streamguard.process.members import Members, TreeFacts

    env = marked_env()
    deadline = time.monotonic() + timeout
    process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
        [path, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=env,
    )
    assert process.stdout is not None
    try:
        root = identity.open_handle(process.pid)
        # All is known of it, also if it has ended already.
        tree = Members.from_facts(TreeFacts(process.pid, 0.0, process.pid, env[MARK]), root)
        try:
            said, has_ended = _output_of(process.stdout.fileno(), deadline)
            if has_ended:  # it may still have something to put in order
                root.outwait(deadline - time.monotonic())
        finally:
            blocking.end(tree, 0, _ENDING)
            tree.close()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, SIGKILL)  # nobody has reaped it, so the number is its own
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING)
    line, newline, _ = said.partition(b"\n")
    is_whole = has_ended or newline
    return (line.decode(errors="replace").strip()[:100] or None) if is_whole else None


def _output_of(fd: int, deadline: float) -> tuple[bytes, bool]:
    """What can be read until the end, the deadline or a bound; and whether that was the end."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    said = b""
    while len(said) < _MOST_SAID and (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1e3):
            if not (chunk := os.read(fd, _MOST_SAID)):
                return said, True
            said += chunk
    return said, False


# --- watchdogs and collisions -------------------------------------------------------------


_SILENCES: Final[tuple[Literal["idle", "first"], ...]] = ("idle", "first")


def watchdogs(
    name: str, environ: Environ, config: Mapping[str, Any] | None = None
) -> tuple[Watchdog, ...]:
    """The backend's own limits on silence, as that environment (and configuration) sets them.

    What is given to a CLI alone (`options.env`, `-c`) is not seen here.
    """
    find = _WATCHDOGS.get(name)
    return find(environ, config or {}) if find is not None else ()


def collisions(
    name: str, windows: Windows, environ: Environ, config: Mapping[str, Any] | None = None
) -> list[Collision]:
    """Which windows fire before the backend's own recovery: a list, empty if all is well.

    Args:
        name: The backend, as `read=` names it.

        windows: Seconds by knob: `{"idle": 180, "first": None}`. Others than these two do not count.

        environ: What the backend runs with, usually `os.environ`.

        config: For codex, what `codex_config(environ)` gives.
    """
    return [
        Collision(name, limit, window, watchdog)
        for watchdog in watchdogs(name, environ, config)
        for limit in _SILENCES
        if (window := windows.get(limit)) and window < watchdog.seconds + RECOVERY
    ]


def news_of_collisions(name: str, windows: Windows) -> list[Collision]:
    """`collisions` in this process's own environment, told once for each backend.

    For a stream that has just shown whose it is: it never raises.
    """
    if name in _told or name not in _WATCHDOGS:
        return []
    _told.add(name)
    config = codex_config(os.environ) if name == "codex" else None
    return collisions(name, windows, os.environ, config)


_told: Final[set[str]] = set()


def codex_config(environ: Environ) -> dict[str, Any]:
    """What Codex's config.toml says; nothing if there is none, or none that can be read."""
    import tomllib
    from pathlib import Path

    from streamguard._base.trusted import read_named

    try:
        home = (
            environ.get("CODEX_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".codex"
        )
        text = read_named(f"{home}/config.toml", _LARGEST_FILE).decode()
        return tomllib.loads(text)
    except (OSError, ValueError, RuntimeError):  # RecursionError is one of the last
        return {}


def _claude(environ: Environ, _config: Mapping[str, Any]) -> tuple[Watchdog, ...]:
    milliseconds = _number(environ, "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS")
    if _is_on(environ, "CLAUDE_ENABLE_BYTE_WATCHDOG") or _is_first_party(environ):
        silent = min(max((milliseconds or 180_000) / 1000, 10), 1800)
    else:
        silent = 300.0
    headers = (_number(environ, "API_TIMEOUT_MS") or 360_000) / 1000
    return (
        Watchdog(
            "an API stream that falls silent is asked for again without streaming",
            silent,
            "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS",
            "set CLAUDE_ENABLE_BYTE_WATCHDOG=1 and CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS={half} "
            "for the CLI",
        ),
        Watchdog(
            "an API that does not answer at all is asked again, up to ten times",
            headers,
            "API_TIMEOUT_MS",
            "set API_TIMEOUT_MS={half} for the CLI",
        ),
    )


def _is_first_party(environ: Environ) -> bool:
    from urllib.parse import urlsplit

    if _is_on(environ, "CLAUDE_CODE_USE_BEDROCK") or _is_on(environ, "CLAUDE_CODE_USE_VERTEX"):
        return False
    base = environ.get("ANTHROPIC_BASE_URL")
    try:
        host = urlsplit(base or "https://api.anthropic.com").hostname or ""
    except ValueError:
        return False
    return host == "anthropic.com" or host.endswith(".anthropic.com")


def _codex(_environ: Environ, config: Mapping[str, Any]) -> tuple[Watchdog, ...]:
    providers = fields_of(config.get("model_providers"))
    provider = fields_of(providers.get(str(config.get("model_provider"))))
    milliseconds = number_in(provider.get("stream_idle_timeout_ms"))
    return (
        Watchdog(
            "an API stream that falls silent is opened again, up to five times",
            (milliseconds or 300_000) / 1000,
            "stream_idle_timeout_ms",
            "set stream_idle_timeout_ms={half} under [model_providers.NAME] in its config.toml",
        ),
    )


def _qwen(environ: Environ, _config: Mapping[str, Any]) -> tuple[Watchdog, ...]:
    milliseconds = _number(environ, "QWEN_STREAM_IDLE_TIMEOUT_MS")
    return (
        Watchdog(
            "an API stream that falls silent is opened again, up to three times",
            (milliseconds or 240_000) / 1000,
            "QWEN_STREAM_IDLE_TIMEOUT_MS",
            "set QWEN_STREAM_IDLE_TIMEOUT_MS={half} for the CLI",
        ),
    )


_WATCHDOGS: Final[Mapping[str, Callable[[Environ, Mapping[str, Any]], tuple[Watchdog, ...]]]] = {
    "claude": _claude,
    "codex": _codex,
    "qwen": _qwen,
}


def _number(environ: Environ, name: str) -> float | None:
    try:
        number = float(environ.get(name, ""))
    except ValueError:
        return None
    return number if 0 < number < 1e12 else None


def _is_on(environ: Environ, name: str) -> bool:
    return environ.get(name, "").lower() in {"1", "true", "yes", "on"}


# --- the facts ----------------------------------------------------------------------------

_CALLER_RUNS_TOOLS = "Tools are run by your own code, so their ends are not in the stream."
_CUT_ENDS_NORMALLY = (
    "A stream that is cut may end without an error: only TurnEnded proves its end."
)
_NO_PINGS = "Pings are dropped by the SDK, so its stream shows no Liveness."
_NO_READ_LIMIT = "It has no time limit of its own on a silent stream."

_WHEN: Final[Mapping[Told, str]] = {
    "call": "with each call",
    "turn": "at a turn's end",
    "end": "at the end of the process",
}


def who_tells(what: Ceiling) -> str:
    """Which backends tell that, and when: a ceiling on it can strike no sooner."""
    by_time: dict[Told | None, list[str]] = {}
    for name, facts in sorted(FACTS.items()):
        told = facts.cost_told if what == "cost" else facts.usage_told
        if what == "calls":
            told = facts.calls_told or told
        by_time.setdefault(told, []).append(name)
    said = [
        f"told {when} by {', '.join(by_time[told])}"
        for told, when in _WHEN.items()
        if told in by_time
    ]
    never = f"; never by {', '.join(by_time[None])}" if None in by_time else ""
    return "; ".join(said) + never


FACTS: Final[Mapping[str, Facts]] = {
    facts.name: facts
    for facts in (
        Facts(
            "claude",
            package="claude-agent-sdk",
            minimum="0.2.111",
            command="claude",
            bundled=("claude_agent_sdk", "_bundled/claude"),
            usage_told="call",
            cost_told="turn",
            resumes=("claude", "--resume", "{token}", "-p", "{prompt}"),
            limits=(
                "A recovery from a silent API is silent, too: 300 s, or 600 s, without a message.",
                "Permission prompts and hooks are invisible in the SDK's stream without the tap.",
                "query(session_id=...) does not resume; options.resume does.",
                "SIGKILL of the CLI leaves its running tool behind: end the tree.",
            ),
        ),
        Facts(
            "codex",
            package="openai-codex",
            command="codex",
            bundled=("codex_cli_bin", "bin/codex"),
            usage_told="turn",
            resumes=("codex", "exec", "resume", "{token}", "{prompt}"),
            limits=(
                "An API that never sends headers is waited for without any limit.",
                "codex exec shows no tokens: one long answer is one silence.",
                "A command of more than 10 s may go to the background and never be completed.",
                "The npm command is a wrapper: SIGKILL of it leaves the real codex running.",
            ),
        ),
        Facts(
            "gemini",
            command="gemini",
            usage_told="end",
            resumes=("gemini", "--resume", "{token}", "-p", "{prompt}"),
            limits=(
                "Retries are silent: two 429 are 17 s without a line.",
                "SIGTERM and SIGINT of the command alone are ignored while it works: end the tree.",
                "Without credentials it exits with 41 and writes no line at all.",
                "An API that hangs is asked again in silence: 14 min without headers, 20 min in an answer.",
                "An API that only pings is waited for without any limit.",
            ),
        ),
        Facts(
            "qwen",
            command="qwen",
            usage_told="call",
            resumes=("qwen", "--resume", "{token}", "-p", "{prompt}"),
            limits=(
                "An HTTP error is retried in silence; a busy API is asked again after 60 s, up to ten times.",
                "SIGTERM and SIGINT of the command alone leave the real qwen running: end the tree.",
                "A limit of its own (--max-session-turns, --max-tool-calls) ends it without a result.",
                "A shell command in the background is no line: its end is not told.",
                "An API that sends no headers is asked again every 120 s, without a line.",
            ),
        ),
        Facts(
            "opencode",
            command="opencode",
            usage_told="call",
            cost_told="call",
            resumes=("opencode", "run", "--session", "{token}", "{prompt}"),
            limits=(
                "A tool is told when it has ended, and an answer when it is whole, unless it has the tap.",
                "It reads stdin to its end although it was given a prompt: close it, or it never begins.",
                "An API that is busy is asked again without any limit, and without a line but the tap's.",
                "An API that hangs is asked again every 300 s without an end; one that only pings is waited for.",
                "Who may not be asked refuses: that ends the turn, with exit status 0.",
            ),
        ),
        Facts(
            "copilot",
            command="copilot",
            calls_told="call",
            resumes=("copilot", "--session-id", "{token}", "-p", "{prompt}"),
            limits=(
                "Its lines tell neither tokens nor costs: of ceilings only calls can be kept.",
                "The session's id is told by its last line alone; copilot.session gives it one.",
                "The npm command is a wrapper: SIGINT or SIGKILL of it leaves the real copilot running.",
                "An API that hangs is asked again after 600 s or 700 s, in silence; one that only pings is waited for.",
                "It goes on while a shell or a sub-agent in the background runs, and then asks the model again.",
            ),
        ),
        Facts(
            "kimi",
            command="kimi",
            limits=(
                "kimi -p tells a tool once it has ended: until then it is a silence, and idle must be longer.",
                "kimi -p names its session at its end: a first turn that hangs cannot be resumed.",
                'acp.session(client, "kimi", "acp") has neither limit.',
                "A turn that fails has no line, only an exit status and stderr.",
            ),
        ),
        Facts(
            "acp",
            package="agent-client-protocol",
            usage_told="turn",
            cost_told="turn",
            limits=(
                "session/cancel is a request: a deaf agent goes on, and only its process can be ended.",
                "An agent's stderr is a pipe that nobody empties: give stderr=None, or read it.",
                _NO_READ_LIMIT,
            ),
        ),
        Facts(
            "openai",
            package="openai",
            usage_told="call",
            limits=(_CALLER_RUNS_TOOLS, _CUT_ENDS_NORMALLY),
        ),
        Facts(
            "openai_agents",
            package="openai-agents",
            usage_told="call",
            limits=(
                "aclose() of a stream of a hung run hangs as long as the run: call result.cancel().",
                "A cancelled run ends its stream normally, with final_output None.",
            ),
        ),
        Facts(
            "anthropic",
            package="anthropic",
            usage_told="call",
            limits=(_CALLER_RUNS_TOOLS, _NO_PINGS, _CUT_ENDS_NORMALLY),
        ),
        Facts(
            "litellm",
            package="litellm",
            usage_told="call",
            limits=(
                "Its default time limit is 6000 s; stream_timeout= has no effect outside the router.",
                'After a cancelled pull it makes up a chunk with finish_reason="stop".',
            ),
        ),
        Facts(
            "google_genai",
            package="google-genai",
            usage_told="call",
            limits=(_CALLER_RUNS_TOOLS, _CUT_ENDS_NORMALLY, _NO_READ_LIMIT),
        ),
        Facts(
            "google_adk",
            package="google-adk",
            usage_told="call",
            limits=("A run's end is the end of its iterator: no message says it.", _NO_READ_LIMIT),
        ),
        Facts(
            "pydantic_ai",
            package="pydantic-ai-slim",
            usage_told="turn",
            cost_told="turn",
            limits=(
                "The run waits for its consumer: a slow one makes the backend look silent.",
                _CUT_ENDS_NORMALLY,
            ),
        ),
        Facts(
            "langgraph",
            package="langgraph",
            usage_told="call",
            limits=(
                'With stream_mode="updates" a node is silent until it ends: add "tasks".',
                "A run's end is the end of its iterator: no message says it.",
            ),
        ),
    )
}
