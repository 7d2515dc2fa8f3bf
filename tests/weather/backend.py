"""The agent: `python -I -S backend.py PLAN LOG [--resume]`, a JSON line for each message.

Of what it does it writes a line into LOG, with the machine's clock, before it does it (and after it has written a
message): that is the truth. Which attempt this is, and what was said before, it reads there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

SESSION = "s-1"


def main() -> None:
    plan = json.loads(sys.argv[1])
    log = os.open(sys.argv[2], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    before = [json.loads(line) for line in os.pread(log, 1 << 20, 0).splitlines()]
    number = 1 + sum(line["did"] == "began" for line in before)
    said = max((line["seq"] for line in before if line["did"] == "said"), default=0)
    heard = int(sys.argv[3]) if sys.argv[3:] and sys.argv[3].isdigit() else said
    attempt = plan["attempts"][min(number, len(plan["attempts"])) - 1]

    def note(did: str, **facts: object) -> None:
        line = {"did": did, "at": time.monotonic(), "pid": os.getpid(), "attempt": number, **facts}
        os.write(log, json.dumps(line).encode() + b"\n")

    def say(**message: object) -> None:
        os.write(1, json.dumps(message).encode() + b"\n")

    def text(seq: int) -> None:
        say(
            type="assistant",
            session_id=SESSION,
            seq=seq,
            message={"id": f"m{seq}", "content": [{"type": "text", "text": "x"}]},
        )
        note("said", seq=seq)

    note("began")
    child = None
    if attempt["tree"]:
        # In a session of its own, as tools are.
        child = subprocess.Popen(
            ["/bin/sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL
        )
        note("spawned", child=child.pid)
    say(type="system", subtype="init", session_id=SESSION)
    note("greeted")
    start = max(0, min(heard, said) - attempt["replay"])
    for seq in range(start + 1, attempt["upto"] + 1):
        if plan["tools"] and seq % 7 == 3:
            for tool in ("a", "b"):
                use = {
                    "type": "tool_use",
                    "id": f"{tool}{seq}",
                    "name": "Bash",
                    "input": {"command": tool},
                }
                say(
                    type="assistant",
                    session_id=SESSION,
                    message={"id": f"t{tool}{seq}", "content": [use]},
                )
            for tool in ("b", "a", "c"):  # in another order, and one that nobody asked for
                result = {"type": "tool_result", "tool_use_id": f"{tool}{seq}", "content": "ok"}
                say(type="user", session_id=SESSION, message={"content": [result]})
            note("worked")
        if plan["gap"]:
            time.sleep(plan["gap"])
        text(seq)
    trouble = attempt["trouble"]
    note("trouble", kind=trouble)
    if trouble == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "fail":
        sys.exit(3)
    if trouble == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if trouble in ("stall", "stop"):
        time.sleep(600)
    while trouble == "ping":
        time.sleep(0.05)
        say(type="keep_alive")
        note("pinged")
    if trouble == "drop":
        return
    if child is not None:
        child.kill()
        child.wait()
    is_error = trouble == "error"
    subtype = "error_during_execution" if is_error else "success"
    say(
        type="result",
        subtype=subtype,
        is_error=is_error,
        session_id=SESSION,
        result="done",
        num_turns=1,
    )
    note("ended", well=not is_error)


main()
