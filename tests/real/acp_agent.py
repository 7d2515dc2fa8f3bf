"""A real ACP agent, made with the package: what it does is in the words of the prompt.

It keeps its sessions in the folder it works in, so that another process can load them.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import acp
from acp import schema


class Agent:
    def __init__(self):
        self._client = None
        self._cancelled = asyncio.Event()

    def on_connect(self, client):
        self._client = client

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
        )

    async def new_session(self, cwd, **_):
        self._file(cwd, "s-1").write_text("[]")
        self._cwd = cwd
        return acp.NewSessionResponse(session_id="s-1")

    async def load_session(self, cwd, session_id, **_):
        self._cwd = cwd
        for said in json.loads(self._file(cwd, session_id).read_text()):
            update = acp.update_user_message_text(said)
            await self._client.session_update(session_id=session_id, update=update)
        return acp.LoadSessionResponse()

    def _file(self, cwd, session_id):
        return Path(cwd) / f"{session_id}.session"

    async def cancel(self, session_id, **_):
        self._cancelled.set()

    async def prompt(self, session_id, prompt, **_):
        self._cancelled.clear()
        text = prompt[0].text
        file = self._file(self._cwd, session_id)
        history = [*json.loads(file.read_text()), text]
        file.write_text(json.dumps(history))

        async def tell(update):
            await self._client.session_update(session_id=session_id, update=update)

        for word in text.split():
            match word:
                case "flood":
                    for number in range(2000):
                        await tell(acp.update_agent_message_text(str(number)))
                case "tool":
                    await tell(acp.start_tool_call("call-1", "Run ls", kind="execute"))
                    await tell(acp.update_tool_call("call-1", status="completed"))
                case "ask":
                    call = schema.ToolCallUpdate(tool_call_id="call-2")
                    option = schema.PermissionOption(
                        option_id="yes", name="Yes", kind="allow_once"
                    )
                    answer = await self._client.request_permission(
                        session_id=session_id, tool_call=call, options=[option]
                    )
                    await tell(acp.update_agent_message_text(answer.outcome.outcome))
                case "hang":  # until it is cancelled
                    await self._cancelled.wait()
                    return acp.PromptResponse(stop_reason="cancelled")
                case "deaf":  # for ever, with a tool in a session of its own
                    sleep = [sys.executable, "-ISc", "import time; time.sleep(1000)"]
                    subprocess.Popen(sleep, start_new_session=True)
                    await asyncio.Event().wait()
                case "fail":
                    raise acp.RequestError.internal_error({"why": "told to"})
                case "die":
                    sys.exit(3)
                case "recall":
                    await tell(acp.update_agent_message_text(json.dumps(history)))
        return acp.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))
