"""Claude's CLI by script, behind the SDK's own client: what a test has in the place of a process.

    clis = Clis([[line, silence(9), result()], hang...], ...)    one list of turns for each client
    clis.install(monkeypatch)

It takes the place of the SDK's transport, so the client, its control protocol and its parser are
the real ones, in virtual time.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from functools import partial

import anyio
import claude_agent_sdk as sdk

from streamguard import _loops as loops
from streamguard.backends.claude import taps
from streamguard.testing import Script, call, message

SESSION = "sess-1"
# Whether the SDK says which prompt a result answers, and keeps what is for its host alone.
IS_RECENT = "user_message_uuid" in {field.name for field in fields(sdk.ResultMessage)}
HOME = "claude_agent_sdk._internal.transport.subprocess_cli.SubprocessCLITransport"


# -- lines -------------------------------------------------------------------------------------------


def line(kind, **fields):
    return message({"type": kind, "session_id": SESSION, "uuid": "u", **fields})


def init():
    return line("system", subtype="init", tools=[])


def says(*blocks):
    said = {"role": "assistant", "id": "msg_1", "model": "m", "content": list(blocks)}
    return line("assistant", message=said, parent_tool_use_id=None)


def text(words="..."):
    return says({"type": "text", "text": words})


def tool_use(id_="toolu_1", name="Bash", kind="tool_use"):
    return says({"type": kind, "id": id_, "name": name, "input": {}})


def tool_result(id_="toolu_1"):
    block = {"type": "tool_result", "tool_use_id": id_, "content": "ok"}
    said = {"role": "user", "content": [block]}
    return line("user", message=said, parent_tool_use_id=None)


def result(**fields):
    plain = {"is_error": False, "num_turns": 1, "duration_ms": 9, "duration_api_ms": 8}
    return line("result", **{"subtype": "success", **plain, **fields})


def request(subtype, id_="r1", **fields):
    asked = {"subtype": subtype, **fields}
    return message({"type": "control_request", "request_id": id_, "request": asked})


def permission(id_="r1"):
    more = {"permission_suggestions": [], "blocked_path": None, "tool_use_id": "toolu_1"}
    return request("can_use_tool", id_, tool_name="Bash", input={}, **more)


INTERRUPTED = (result(is_error=True, subtype="error_during_execution"),)


# -- the CLIs ------------------------------------------------------------------------------------------


class Clis:
    """Those that one test's clients start, in order; the last one's turns repeat.

    `turns`: for each client a list of scripts, one for each prompt. A result that names no prompts
    names the one that was asked, unless `names_prompts` is False, as with older CLIs.
    `deaf`: which clients (from 1) answer no interrupt. `mute`: which do not even greet.
    """

    def __init__(self, *turns, names_prompts=True, deaf=(), mute=()):
        self.turns = turns
        self.names_prompts = names_prompts
        self.deaf, self.mute = deaf, mute
        self.started = []
        self.prompts = []

    def install(self, monkeypatch):
        clis = self

        class ScriptedTransport(_ScriptedTransport):
            def __init__(self, prompt, options):
                super().__init__(clis, options)

        monkeypatch.setattr(HOME, ScriptedTransport)
        # Not the class that was made of the SDK's own.
        monkeypatch.setattr(taps, "_tapped_transport", inspect.unwrap(taps._tapped_transport))
        return self

    @property
    def options(self):
        """What each client was started with."""
        return [transport.options for transport in self.started]

    @property
    def living(self):
        return [transport for transport in self.started if not transport.closed]


class _ScriptedTransport(sdk.Transport):
    _process = None

    def __init__(self, clis, options):
        self.options = options
        self.closed = 0
        self._clis = clis
        self._turn = None
        self._answered = {}

    async def connect(self):
        self._clis.started.append(self)
        self._number = len(self._clis.started)
        turns = self._clis.turns
        self._turns = list(turns[min(self._number, len(turns)) - 1])
        self._send, self._receive = anyio.create_memory_object_stream(1000)

    def is_ready(self):
        return not self.closed

    async def write(self, data):
        said = json.loads(data)
        match said["type"]:
            case "control_request":
                self._control(said["request_id"], said["request"]["subtype"])
            case "control_response":
                self._event(said["response"]["request_id"]).set()
            case "user":
                self._clis.prompts.append(said["message"]["content"])
                self._begin(self._turns.pop(0), said.get("uuid"))

    def _control(self, id_, asked):
        clis = self._clis
        if self._number in (clis.deaf if asked == "interrupt" else clis.mute):
            return
        response = {"subtype": "success", "request_id": id_, "response": {"commands": []}}
        self._send.send_nowait({"type": "control_response", "response": response})
        if asked == "interrupt":
            self._begin(INTERRUPTED, self._uuid)

    def _begin(self, steps, uuid):
        self._stop()
        self._uuid = uuid
        self._turn = loops.current().spawn(partial(self._play, steps), name="scripted turn")

    async def _play(self, steps):
        async for each in Script(*(step(self) if callable(step) else step for step in steps)):
            said = each
            if said["type"] == "result" and self._clis.names_prompts:
                said = {"user_message_uuids": [self._uuid], **said}
            self._send.send_nowait(said)

    def _event(self, id_):
        return self._answered.setdefault(id_, anyio.Event())

    def _stop(self):
        if self._turn is not None:
            self._turn.cancel()

    async def read_messages(self):
        with self._receive:
            async for said in self._receive:
                yield said

    async def close(self):
        self.closed += 1
        self._stop()
        self._send.close()

    async def end_input(self):
        pass


def until_answered(id_="r1"):
    """The CLI waits until the SDK has answered its request."""
    return lambda transport: call(transport._event(id_).wait)
