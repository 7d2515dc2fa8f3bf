"""A coding agent's command line that works step by step: what the workers of `streamguard fleet demo` run.

It speaks stream-json, a step each quarter of a second, and begins with the one it is told (`--from`). With `--hang` it falls
silent at that step. A process of its own; standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Final

EVERY: Final = 0.25


def main() -> None:
    """Do the steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--session", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--from", type=int, dest="first", default=1)
    parser.add_argument("--hang", type=int, default=0)
    asked, _ = parser.parse_known_args()
    sys.stdin.read()  # the prompt
    _say(asked.session, type="system", subtype="init")
    for step in range(asked.first, asked.steps + 1):
        if step == asked.hang:
            time.sleep(3600)
        time.sleep(EVERY)
        text = {"type": "text", "text": f"step {step} of {asked.steps}"}
        message = {"role": "assistant", "content": [text]}
        _say(asked.session, type="assistant", step=step, pid=os.getpid(), message=message)
    _say(asked.session, type="result", subtype="success", is_error=False, num_turns=1, usage={})


def _say(session: str, **line: Any) -> None:
    sys.stdout.write(json.dumps({**line, "session_id": session}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
