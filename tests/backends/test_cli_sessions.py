"""R1, D5: a command line as a session: resumed by its token, and never owned by two.

In real time, with real processes. Only the first process hangs, and it does so for ever; a machine so
busy that a later one is late only costs another retry.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from streamguard import ResumePoint, idle_guard, process, reconnecting_resume
from streamguard.backends import claude, codex, copilot, gemini, opencode, qwen
from streamguard.backends import command_line as _cli
from streamguard.errors import ProcessExitedError, SessionHeldError
from streamguard.events import OwnerAbandoned
from streamguard.process.identity import PidfdHandle
from tests.process.backends import Backends
from tests.support import Events

FAKE = Path(__file__).parent / "fake_cli.py"
ARGUMENTS = {
    "codex": (["exec", "--json", "-x"], ["resume", "the-token"], ["-"]),
    "gemini": (["--output-format", "stream-json", "-x"], ["--resume", "the-token"], []),
    "opencode": (["run", "--format", "json", "-x"], ["--session", "the-token"], []),
    "claude": (
        ["-p", "--output-format", "stream-json", "--verbose", "-x"],
        ["--resume", "the-token"],
        [],
    ),
    "qwen": (["--output-format", "stream-json", "-x"], ["--resume", "the-token"], []),
}
SESSIONS = {
    "codex": codex.session,
    "gemini": gemini.session,
    "opencode": opencode.session,
    "claude": claude.cli_session,
    "qwen": qwen.session,
}
GUARD = idle_guard(2, first=60, kill_grace=1)
RESUME = reconnecting_resume(retries=20, backoff=[0])


@dataclass
class Fake:
    """One of them, as a script whose processes say what they were started with."""

    name: str
    folder: Path
    backends: Backends

    def session(self, *options, **more):
        command = [sys.executable, "-IS", str(FAKE), self.name, str(self.folder)]
        env = self.backends.env()
        return SESSIONS[self.name](*options, command=command, cwd=self.folder, env=env, **more)

    @property
    def processes(self):
        return [json.loads(each.read_text()) for each in sorted(self.folder.glob("*.json"))]


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.clear()


@pytest.fixture(params=SESSIONS)
def fake(request, tmp_path, backends):
    return Fake(request.param, tmp_path, backends)


@pytest.fixture
def codex_like(tmp_path, backends):
    return Fake("codex", tmp_path, backends)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cli_that_hangs_is_ended_with_its_tool_and_resumed(fake, backend):
    """D5: it is deaf to TERM, and its tool is in a session of its own."""

    async def main():
        async with fake.session("-x", prompt="Fix issue 7") | GUARD | RESUME as chat:
            types = [message["type"] async for message in chat]
            types += [message["type"] async for message in chat.ask("--and the tests?\n")]
            assert chat.point.token == "the-token"
        assert len(types) >= 2 + 3 + 3
        first, *later = fake.processes
        begin, resumed, end = ARGUMENTS[fake.name]
        assert (first["words"], first["prompt"]) == ([*begin, *end], "Fix issue 7")
        assert all(process["words"] == [*begin, *resumed, *end] for process in later)
        prompts = [process["prompt"] for process in later]
        assert prompts[0] == "Continue."
        assert set(prompts) == {"Continue.", "--and the tests?\n"}
        assert not any(process["alive"] for process in later)
        assert not fake.backends.living()

    anyio.run(main, backend=backend)


# What leaving a turn in its midst may take, unless a `disconnect_timeout` was written.
BOUND = 5


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("how", ["break", "aclose"])
def test_a_turn_that_is_left_takes_its_process_with_it_at_once(codex_like, how, backend):
    """D4: nobody waits for the output of a process that nobody listens to any more to end."""

    async def main():
        async with codex_like.session(prompt="leave me") | idle_guard(60) as chat:
            await anext(aiter(chat))
            left = anyio.current_time()
            if how == "aclose":
                await aiter(chat).aclose()
                assert not codex_like.backends.living()
        assert anyio.current_time() - left < BOUND / 2
        assert not codex_like.backends.living()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("how", ["break", "cancelled"])
def test_a_process_that_is_deaf_is_dead_when_its_turn_was_left(codex_like, how, backend):
    """D4: with its tool, and within the bound; so nobody was left behind."""

    async def main():
        told, scope = Events(), anyio.CancelScope()
        with scope:
            guard = idle_guard(60, observer=told)
            async with codex_like.session(prompt="Fix issue 7") | guard as chat:
                await anext(aiter(chat))
                left = anyio.current_time()
                if how == "cancelled":
                    scope.cancel()
                    await anyio.sleep(1)
        assert not codex_like.backends.living()
        assert anyio.current_time() - left < BOUND
        assert told.of(OwnerAbandoned) == []

    anyio.run(main, backend=backend)


def test_who_leaves_with_the_last_message_lets_it_exit_by_itself(codex_like):
    """What it does behind its result, such as saving its session, is not cut."""
    point = ResumePoint(token="the-token")

    async def main():
        async with codex_like.session(prompt="save", point=point) | idle_guard(60) as chat:
            async for message in chat:
                if message["type"] == "turn.completed":
                    break
        assert (codex_like.folder / "saved").exists()
        assert not codex_like.backends.living()

    anyio.run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_consumer_leaves_no_process(codex_like, backend):
    async def main():
        with anyio.CancelScope() as scope:
            async with codex_like.session(prompt="leave me") | idle_guard(60) as chat:
                async for message in chat:
                    if message["type"] == "item.completed":
                        scope.cancel()
        assert scope.cancelled_caught
        assert not codex_like.backends.living()

    anyio.run(main, backend=backend)


def test_a_process_that_says_its_result_and_never_leaves_is_ended(codex_like, monkeypatch):
    """A run like that is a success, and the next turn must find nobody."""
    monkeypatch.setattr(_cli, "LEAVING", 0.1)
    point = ResumePoint(token="the-token")

    async def main():
        async with codex_like.session(prompt="stay", point=point) | idle_guard(60) as chat:
            assert [message["type"] async for message in chat][-1] == "turn.completed"
        assert not codex_like.backends.living()

    anyio.run(main)


def test_a_prompt_may_be_longer_than_any_argument(codex_like):
    prompt = "--help " + "x" * 2_000_000
    point = ResumePoint(token="the-token")

    async def main():
        async with codex_like.session(prompt=prompt, point=point) | idle_guard(60) as chat:
            assert [message["type"] async for message in chat][-1] == "turn.completed"

    anyio.run(main)
    (process,) = codex_like.processes
    assert process["prompt"] == prompt


def test_a_cli_that_does_not_read_its_prompt_says_why_itself(tmp_path):
    command = ["/bin/sh", "-c", "echo no credentials >&2; exit 41"]

    async def main():
        session = gemini.session(prompt="x" * 2_000_000, command=command)
        with pytest.raises(ProcessExitedError, match="41") as raised:
            async with session | idle_guard(60) as chat:
                async for _ in chat:
                    pass
        assert "no credentials" in raised.value.tail.stderr

    anyio.run(main)


def test_how_a_cli_ended_may_be_known_a_moment_after_its_death(monkeypatch):
    """Who reaps it knows first, and its object a little later."""
    returncode, asked = process._returncode, []

    def known_later(target):
        asked.append(target)
        return returncode(target) if len(asked) > 5 else None

    monkeypatch.setattr(process, "_returncode", known_later)
    monkeypatch.setattr(PidfdHandle, "exit_status", lambda handle: None)

    async def main():
        session = gemini.session(prompt="Go on", command=["/bin/sh", "-c", "exit 41"])
        with pytest.raises(ProcessExitedError, match="41"):
            async with session | idle_guard(60) as chat:
                async for _ in chat:
                    pass

    anyio.run(main)


def test_a_cli_that_is_not_there_is_the_systems_error():
    async def main():
        with pytest.raises(FileNotFoundError):
            async with codex.session(prompt="x", command="no-such-cli") | idle_guard(60) as chat:
                async for _ in chat:
                    pass

    anyio.run(main)


def test_a_cli_wants_a_prompt():
    async def main():
        with pytest.raises(TypeError, match="wants a prompt"):
            async with codex.session() | idle_guard(60) as chat:
                async for _ in chat:
                    pass

    anyio.run(main)


@pytest.mark.parametrize("name", SESSIONS)
def test_of_one_session_there_is_one_owner_unasked(name):
    """D5: its history is on this machine; it can be turned off."""
    made = SESSIONS[name](prompt="go", point=ResumePoint(token="t"))
    assert made._opening.exclusive == name
    assert SESSIONS[name](prompt="go", exclusive=False)._opening.exclusive is None


def test_the_app_servers_threads_are_the_command_lines(codex_like):
    """D5: one history for both."""
    assert codex.client_session(prompt="go")._opening.exclusive == "codex"
    assert codex.client_session(prompt="go", exclusive=False)._opening.exclusive is None


def test_who_comes_second_is_told_by_whom(codex_like):
    """D5: no second process is started."""

    async def main():
        point = ResumePoint(token="the-token", prompt="go")
        async with codex_like.session("-x", point=point) | GUARD as chat:
            async for _ in chat:
                with pytest.raises(
                    SessionHeldError, match="codex is at work in this very program"
                ):
                    async with codex_like.session("-x", point=point) as second:
                        async for _ in second:
                            pass
                break
        assert len(codex_like.processes) == 1

    anyio.run(main)


# A command that does not name its session: it notes its words, says a line, and hangs where it is new.
UNNAMED = """
import json, sys, time
from pathlib import Path
words = sys.argv[2:]
with Path(sys.argv[1]).open("a") as notes:
    notes.write(json.dumps(words) + "\\n")
print(json.dumps({"type": "assistant.message_delta", "data": {}, "parentId": None}), flush=True)
if sys.stdin.read() == "Begin":
    time.sleep(1000)
print(json.dumps({"type": "result", "exitCode": 0, "sessionId": words[-1]}), flush=True)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_session_that_is_not_named_in_time_gets_its_name_from_here(tmp_path, backends, backend):
    """R1: so that one which hangs in its first turn can be resumed."""
    notes = tmp_path / "notes"
    command = [sys.executable, "-ISc", UNNAMED, str(notes)]
    made = copilot.session("-x", prompt="Begin", command=command, env=backends.env())

    async def main():
        async with made | GUARD | RESUME as chat:
            messages = [message async for message in chat]
            return messages, chat.point.token

    messages, token = anyio.run(main, backend=backend)
    first, *later = [json.loads(line) for line in notes.read_text().splitlines()]
    assert first == ["--output-format", "json", "-x", "--session-id", token]
    assert later
    assert all(each == first for each in later)
    types = [message["type"] for message in messages]
    assert types.count("session.start") == 1
    assert (types[0], types[-1]) == ("session.start", "result")
    assert not backends.living()
