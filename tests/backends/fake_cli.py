"""Writes the lines of codex, gemini, claude or qwen; hangs in its first turn, deaf to TERM, with a tool.

    fake_cli.py NAME FOLDER ...     the rest as the real one has it

In FOLDER it notes what it was started with, and who of those before it is still alive.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


BEGIN = {
    "codex": {"type": "thread.started", "thread_id": "the-token"},
    "opencode": {"type": "step_start", "sessionID": "the-token", "part": {}},
    "gemini": {"type": "init", "timestamp": "t", "session_id": "the-token", "model": "m"},
    "claude": {"type": "system", "subtype": "init", "session_id": "the-token"},
    "qwen": {
        "type": "system",
        "subtype": "init",
        "session_id": "the-token",
        "qwen_code_version": "0",
    },
}
TEXT = {"type": "text", "text": "x"}
SAY = {
    "codex": {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "x"}},
    "opencode": {"type": "text", "sessionID": "the-token", "part": {"text": "x"}},
    "gemini": {"type": "message", "timestamp": "t", "role": "assistant", "content": "x"},
    "claude": {"type": "assistant", "message": {"content": [TEXT]}, "session_id": "the-token"},
    "qwen": {"type": "assistant", "message": {"content": [TEXT]}, "session_id": "the-token"},
}
END = {
    "codex": {"type": "turn.completed", "usage": {}},
    "opencode": {
        "type": "step_finish",
        "sessionID": "the-token",
        "part": {"reason": "stop"},
    },
    "gemini": {"type": "result", "timestamp": "t", "status": "success", "stats": {}},
    "claude": {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": "the-token",
    },
    "qwen": {"type": "result", "subtype": "success", "result": "x", "session_id": "the-token"},
}


def main(name, folder, *words):
    notes = Path(folder)
    prompt = sys.stdin.read()
    earlier = [json.loads(each.read_text()) for each in sorted(notes.glob("*.json"))]
    pids = [pid for note in earlier for pid in note["pids"]]
    is_resumed = "the-token" in words
    note = {"words": words, "prompt": prompt, "alive": [pid for pid in pids if lives(pid)]}
    note["pids"] = [os.getpid()]
    if not is_resumed and prompt != "leave me":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        command = [sys.executable, "-ISc", "import time; time.sleep(1000)"]
        note["pids"].append(subprocess.Popen(command, start_new_session=True).pid)
    (notes / f"{len(earlier)}.json").write_text(json.dumps(note))
    for line in (BEGIN[name], SAY[name]):
        say(line)
    if not is_resumed:
        time.sleep(1000)
    say(END[name])
    if prompt == "save":  # what it still has to do, it has not done yet
        time.sleep(0.3)
        (notes / "saved").touch()
    if prompt == "stay":  # the result is said, and the process never leaves
        os.close(1)
        time.sleep(1000)


main(*sys.argv[1:])
