"""A stubborn Claude CLI: as much of its stream-json protocol as claude-agent-sdk asks for.

It does as each prompt tells it, word by word, in mid-turn. What a turn says comes in one write,
when there is no word left or before the word that ends or stops the CLI.

init              say who it is, and its session
text              say something
ignore            ignore TERM, INT and HUP
tool              start a tool that hangs, in a session of its own, and say so
hold              the same for one that holds stdout open
answer            end the tools, and say so
result            end the turn: all is well
stop              stop itself (SIGSTOP)
exit N            end with that status

Between turns it ends with its stdin. In mid-turn it does so only if it waits for the model: a
tool that runs, or one that has been told to ignore signals, keeps it there, as it does the real
one. An interrupt ends the tools and the turn.
"""

import json
import os
import signal
import subprocess
import sys
import time

SESSION = "01234567-89ab-cdef-0123-456789abcdef"


class Cli:
    """What is to be said, which tools run, and whether the end of stdin matters."""

    def __init__(self):
        self.lines = []
        self.tools = {}
        self.started = 0
        self.deaf = False

    def say(self, kind, **fields):
        self.lines.append(json.dumps({"type": kind, "session_id": SESSION, **fields}) + "\n")

    def flush(self):
        left = "".join(self.lines).encode()
        self.lines.clear()
        while left:
            left = left[os.write(1, left) :]

    def serve(self):
        for line in iter(sys.stdin.readline, ""):
            message = json.loads(line)
            if message["type"] == "control_request":
                self.control(message["request_id"], message["request"]["subtype"])
            elif message["type"] == "user":
                self.turn(message["message"]["content"].split())
            self.flush()
        while self.deaf or self.tools:
            time.sleep(600)

    def control(self, request_id, subtype):
        said = {"commands": [], "pid": os.getpid()} if subtype == "initialize" else {}
        response = {"subtype": "success", "request_id": request_id, "response": said}
        self.say("control_response", response=response)
        if subtype == "interrupt":
            self.end_tools()
            self.result(is_error=True, subtype="error_during_execution")

    def turn(self, words):
        while words:
            word = words.pop(0)
            if word == "init":
                self.say("system", subtype="init", claude_code_version="2.1.327", tools=["Bash"])
            elif word == "text":
                self.assistant({"type": "text", "text": "Let me see."})
            elif word == "ignore":
                self.deaf = True
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
            elif word in ("tool", "hold"):
                self.start_tool(stdout=None if word == "hold" else subprocess.DEVNULL)
            elif word == "answer":
                self.end_tools()
            elif word == "result":
                self.result(is_error=False, subtype="success")
            elif word == "stop":
                self.flush()
                os.kill(os.getpid(), signal.SIGSTOP)
            elif word == "exit":
                self.flush()
                os._exit(int(words.pop(0)))

    def start_tool(self, stdout):
        command = ["sleep", "1000"]
        tool = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, start_new_session=True
        )
        self.started += 1
        name = f"tool-{self.started}"
        self.tools[name] = tool
        use = {"name": "Bash", "input": {"command": " ".join(command)}}
        self.assistant({"type": "tool_use", "id": name, **use})

    def end_tools(self):
        for name, tool in self.tools.items():
            tool.kill()
            tool.wait()
            block = {"type": "tool_result", "tool_use_id": name, "content": "done"}
            self.say("user", message={"role": "user", "content": [block]})
        self.tools.clear()

    def assistant(self, block):
        message = {"role": "assistant", "model": "fake", "content": [block]}
        self.say("assistant", message=message, parent_tool_use_id=None)

    def result(self, **outcome):
        times = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
        self.say("result", **outcome, **times)


if "-v" in sys.argv:  # older SDKs ask for the version before they connect
    os.write(1, b"2.1.327 (Claude Code)\n")
else:
    Cli().serve()
