"""Records as fast as it can, in children that are killed at any moment.

    python recording.py kill RUN ROUNDS SEED     one child at a time, killed; checked each time
    python recording.py share RUN VERDICTS       two children, which write one run to their end
    python recording.py full RUN BYTES           one, whose files may not grow beyond that
    python recording.py leave RUN HOW            one that ends in the midst of it: exit, or raise

A child says on a pipe which verdicts' errors it has caught: their lines must be there, whatever became
of the child. Prints what was found, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from streamguard import Activity, IdleTimeoutError, Recorder, idle_guard, plan_resume, scope
from streamguard.evidence.files import read_document, read_lines


async def hang(number: int) -> Any:
    for i in range(20):
        yield {"number": number, "i": i, "text": "häßlich\n" * (i * number % 97)}
    await asyncio.sleep(3600)


async def record(run: Path, tell: int, verdicts: float, **knobs: Any) -> Recorder:
    knobs = {"flow": "build", "work_dir": "/", **knobs}
    recorder = Recorder(run, run_id="17", artifacts=["x"], **knobs)
    with recorder:
        number = 0
        while number < verdicts:
            number += 1
            activity = Activity(f"step-{number % 3}")
            try:
                async with scope("step", f"step-{number % 3}"):
                    async for _ in hang(number) | idle_guard(0.001, activity=activity):
                        pass
            except IdleTimeoutError as error:
                os.write(tell, f"{number} {error.activity.messages}\n".encode())
    return recorder


def child(run: Path, verdicts: float, **knobs: Any) -> tuple[int, int]:
    """A forked recorder: its pid, and the pipe on which it tells."""
    told, tell = os.pipe()
    if pid := os.fork():
        os.close(tell)
        return pid, told
    code = 1
    try:
        os.close(told)
        recorder = asyncio.run(record(run, tell, verdicts, **knobs))
        code = 0 if recorder.flush(60) and not recorder.failures else 3
    finally:
        os._exit(code)


def lines_of(path: Path) -> tuple[int, int]:
    """How many lines are whole, and how many are not."""
    whole = torn = 0
    for line in path.read_bytes().splitlines():
        try:
            whole += isinstance(json.loads(line), dict)
        except ValueError:
            torn += 1
    return whole, torn


def look(run: Path, rounds: int) -> dict[str, int]:
    """What is in the run: all of it must be readable."""
    found = {"lines": 0, "torn": 0, "receipts": 0}
    for path in run.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, (path, oct(path.stat().st_mode))
        if path.suffix == ".jsonl":
            whole, torn = lines_of(path)
            assert torn <= rounds, (path, torn)
            found["lines"] += whole
            found["torn"] += torn
        elif path.suffix == ".json":
            receipt = read_document(path)
            assert receipt is not None, path
            assert receipt["status"] == "timeout", path
            found["receipts"] += 1
    return found


def kill(run: Path, rounds: int, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    acknowledged = 0
    found: dict[str, int] = {}
    for number in range(1, rounds + 1):
        pid, told = child(run, float("inf"))
        with os.fdopen(told, "rb") as file:
            heard = [file.readline() for _ in range(rng.randrange(3))]
            time.sleep(rng.uniform(0, 0.05))  # when it is killed is what this is about
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            acknowledged += len(heard) + len(file.readlines())
        if run.exists():
            found = look(run, number)
            logged = sum(1 for _ in read_lines(run / "build/timeouts.jsonl"))
            assert logged >= acknowledged, (logged, acknowledged)
            if acknowledged:
                assert plan_resume(run, "build", work_dir="/") is not None
    return {**found, "acknowledged": acknowledged}


def share(run: Path, verdicts: int) -> dict[str, Any]:
    # So little is kept of transcripts that both of them rotate the same files all the time.
    children = [child(run, verdicts, transcript_bytes=40_000) for _ in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in children]
    for _, told in children:
        os.close(told)
    writers = {line["writer"] for line in read_lines(run / "timeline.jsonl")}
    timeouts = [line["timeout_id"] for line in read_lines(run / "build/timeouts.jsonl")]
    return {
        "codes": codes,
        **look(run, 0),
        "writers": len(writers),
        "timeouts": len(timeouts),
        "ids": len(set(timeouts)),
    }


def full(run: Path, size: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    told, tell = os.pipe()
    recorder = asyncio.run(record(run, tell, 60))
    recorder.flush(60)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        caught = file.read().splitlines()
    return {
        "caught": len(caught),
        "messages": sorted({int(line.split()[1]) for line in caught}),
        "failures": sorted(recorder.failures),
        **look(run, 10**6),
    }


def leave(run: Path, how: str) -> None:
    """The error of a verdict ends the program, whose recorder nobody has flushed."""
    recorder = Recorder(run, flow="build", step="only", work_dir="/")

    async def main() -> None:
        with recorder:
            async for _ in hang(1) | idle_guard(0.001):
                pass

    try:
        asyncio.run(main())
    except IdleTimeoutError:
        if how == "raise":
            raise
        sys.exit(3)


if __name__ == "__main__":
    what, run_, *rest = sys.argv[1:]
    act: Any = {"kill": kill, "share": share, "full": full, "leave": leave}[what]
    result = act(Path(run_), *(int(r) if r.isdigit() else r for r in rest))
    sys.stdout.write(json.dumps(result))
