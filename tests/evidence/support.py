"""What the tests of the evidence share: a run's files as a reader finds them, and backends."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import anyio
import jsonschema

from streamguard import Recorder
from streamguard.evidence.files import read_lines
from streamguard.signals import SessionOpened, TurnEnded, WorkFinished, WorkStarted

SECRET = "sk-ant-" + "s3cr3t" * 6


def said(message: Any) -> Any:
    """The reader of streams whose messages are signals."""
    return message


async def hanging(*messages: Any) -> Any:
    """A backend that says this, and then nothing for ever."""
    for message in messages:
        yield message
    await anyio.sleep_forever()


async def ending(*messages: Any) -> Any:
    """A backend that says this, and ends."""
    for message in messages:
        yield message


def opener(hangs: int, opened: list[Any], token: str | None = "tok-1") -> Any:
    """`open` of a session whose first `hangs` attempts hang after a tool call."""

    @asynccontextmanager
    async def open_(point: Any) -> Any:
        opened.append(point)
        start = [SessionOpened(token)] if token else []
        work = [*start, WorkStarted("t1", "Bash"), WorkFinished("t1")]
        yield hanging(*work) if len(opened) <= hangs else ending(*work, TurnEnded())

    return open_


class Run:
    """The folder of a run, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.work = folder / "work"
        self.work.mkdir()

    def recorder(self, **knobs: Any) -> Recorder:
        knobs = {"flow": "build", "step": "step-3", "work_dir": self.work, **knobs}
        return Recorder(self.folder, run_id="17", **knobs)

    def timeouts(self, flow: str = "build") -> list[dict[str, Any]]:
        lines = list(read_lines(self.folder / flow / "timeouts.jsonl"))
        for line in lines:
            check("timeouts", line)
        return lines

    def receipt(self, step: str = "step-3", flow: str = "build") -> dict[str, Any]:
        path = self.folder / flow / "receipts" / f"{step}-timeout.json"
        receipt: dict[str, Any] = json.loads(path.read_bytes())
        check("receipt", receipt)
        return receipt

    def transcript(self, step: str = "step-3", flow: str = "build") -> list[dict[str, Any]]:
        return list(read_lines(self.folder / flow / "llm" / f"{step}-partial.jsonl"))

    def messages(self, step: str = "step-3") -> list[Any]:
        return [line["message"] for line in self.transcript(step) if "message" in line]

    def timeline(self) -> list[dict[str, Any]]:
        lines = list(read_lines(self.folder / "timeline.jsonl"))
        for line in lines:
            check("timeline", line)
        return lines

    def files(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if not path.is_dir())
        return sorted(str(path.relative_to(self.folder)) for path in found)


def check(schema: str, value: object) -> None:
    """That `value` is as the schema that is shipped says."""
    file = resources.files("streamguard.schemas") / f"{schema}.schema.json"
    jsonschema.Draft202012Validator(json.loads(file.read_text())).validate(value)
