"""A container's engine in small: a pid namespace of its own, and who starts processes in it for others.

It speaks as much of Docker's HTTP API over a unix socket as `docker exec` needs, so that both the real client
and the one below can be its clients. What they have started descends from the engine, as with Docker's own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socketserver
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.process.backends import comes_true

# `docker exec [-e NAME[=VALUE]]... CONTAINER COMMAND...`, where there is no docker.
CLIENT = """\
import http.client, json, os, socket, sys
words, env = sys.argv[2:], []
while words[0].startswith("-"):
    if words.pop(0) == "-e":
        name, equals, value = words.pop(0).partition("=")
        if equals or name in os.environ:
            env.append(f"{name}={value if equals else os.environ[name]}")
def ask(path, told):
    link = http.client.HTTPConnection("docker")
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    link.request("POST", path, json.dumps(told), {"Content-Type": "application/json"})
    return link, link.getresponse()
_, answer = ask(f"/containers/{words[0]}/exec", {"Cmd": words[1:], "Env": env})
link, answer = ask(f"/exec/{json.load(answer)['Id']}/start", {})
while head := answer.fp.read(8):
    os.write(1, answer.fp.read(int.from_bytes(head[4:], "big")))
"""


class Engine(socketserver.ThreadingUnixStreamServer):
    """One engine with one container, whose first process is a sleep."""

    def __init__(self, folder, backends):
        self.path = f"{folder}/docker.sock"
        super().__init__(self.path, Handler)
        self.backends = backends
        self.asked = {}
        self.container = backends.popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "600"]
        )
        assert comes_true(lambda: self.init() is not None)
        bin_folder = Path(folder, "bin")
        bin_folder.mkdir()
        script = bin_folder / "docker"
        script.write_text(f"#!{sys.executable} -IS\n{CLIENT}")
        script.chmod(0o755)
        self._bin = str(bin_folder)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def init(self):
        """The container's first process, by its number here."""
        pid = self.container.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children or "sleep" not in Path(f"/proc/{children[0]}/comm").read_text():
            return None
        return int(children[0])

    def environment(self, client):
        """For a `client`: "docker" is the one that is installed, any other word our own."""
        path = os.environ["PATH"] if client == "docker" else f"{self._bin}:{os.environ['PATH']}"
        home = str(Path(self._bin).parent)
        return {**os.environ, "PATH": path, "DOCKER_HOST": f"unix://{self.path}", "HOME": home}

    def start(self, asked):
        """A process in the container, with what was asked for as its environment and nothing else."""
        enter = ["nsenter", "--target", str(self.init()), "--pid", "--mount", "--wd=/"]
        given = [f"PATH={os.environ['PATH']}", *(asked.get("Env") or ())]
        # The test's own mark goes with it, so that what is left of it is found.
        given += [f"{name}={value}" for name, value in self.backends.env({}).items()]
        return subprocess.Popen(
            [*enter, "env", "-i", *given, *asked["Cmd"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def stop(self):
        """When all that it has started has ended, and so its clients."""
        with suppress(ProcessLookupError):
            os.kill(self.container.pid, signal.SIGKILL)
        for asked in self.asked.values():  # nsenter stops where its child was stopped
            if "process" in asked:
                asked["process"].kill()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """What a client asks."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing."""

    def address_string(self):
        return "client"

    def answer(self, told, code=200):
        body = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.answer({})

    def do_GET(self):
        if "/exec/" in self.path:
            asked = self.server.asked[self.path.split("/")[-2]]
            code = asked["process"].poll()
            told = {"Running": code is None, "ExitCode": code, "Pid": asked["process"].pid}
            self.answer({"ID": "x", **told})
        elif self.path.endswith("_ping"):
            self.answer("OK")
        else:
            state = {"Running": True, "Status": "running"}
            self.answer({"Id": "c", "Name": "/c", "State": state, "Config": {"Tty": False}})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = json.loads(body or b"{}")
        if self.path.endswith("/start"):
            self.serve(self.server.asked[self.path.split("/")[-2]])
        else:
            number = str(len(self.server.asked) + 1)
            self.server.asked[number] = asked
            self.answer({"Id": number}, 201)

    def serve(self, asked):
        self.close_connection = True
        process = asked["process"] = self.server.start(asked)
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        with process.stdout as out:
            while came := os.read(out.fileno(), 4096):
                with suppress(OSError):  # the client has gone, and what it asked for goes on
                    self.wfile.write(struct.pack(">BxxxL", 1, len(came)) + came)
        process.wait()


def why_not():
    """Why there can be no container here; empty if there can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "no unshare or nsenter here"
    words = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr.strip() and "no pid namespace may be made here"
