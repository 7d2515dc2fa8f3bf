"""What is fed, each with what must hold of any bytes at all.

A target takes bytes and returns; what it raises is a fault.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from streamguard import ConfigError, ResumePoint
from streamguard._base import durations
from streamguard._lines.splitter import Splitter
from streamguard.backends import NAMES
from streamguard.backends.registry import resolve
from streamguard.backends.stream_reading import Reading
from streamguard.cli import run as run_command
from streamguard.cli.arguments import UsageError, parse
from streamguard.configuration import from_config
from streamguard.evidence.report.folder import _Reader as TimelineReader
from streamguard.evidence.resuming import plan_resume
from streamguard.retry.pushback import CAP, retry_after
from streamguard.runner.json_lines import object_in
from streamguard.signals import Signal

# Here, where the search sees what they run.
_READERS: Final = {name: resolve(name) for name in sorted(NAMES)}
_LONGEST: Final = 64
_NOW: Final = datetime(2026, 11, 20, tzinfo=UTC).timestamp()


class Answer(Exception):  # noqa: N818 - as SDKs raise it: with a response
    """An error as an SDK raises it."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.response = type("Response", (), {"headers": headers, "status_code": 429})()


def splitter(data: bytes) -> None:
    """The same lines, in whatever portions they come, and no longer than they may be."""
    size, data = (data[0] % 16 + 1 if data else 1), data[1:]
    split = Splitter(_LONGEST)
    for at in range(0, len(data), size):
        split.feed(data[at : at + size])
    split.end()
    *whole, last = data.split(b"\n")
    expected = [each.removesuffix(b"\r") if len(each) <= _LONGEST else None for each in whole]
    if last:
        expected.append(last if len(last) <= _LONGEST else None)
    assert list(split.ready) == expected


def json_line(data: bytes) -> None:
    """An object is one if Python reads it; all else is text."""
    found = object_in(data)
    try:
        value = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        value = None
    is_object = isinstance(value, dict) and data.lstrip().startswith(b"{")
    assert (found is not None) == is_object
    if is_object:
        assert json.dumps(found) == json.dumps(value)


class _Told:
    """Who hears of what a reader cannot do."""

    def unknown_message(self, kind: type) -> None:
        assert isinstance(kind, type)

    def reader_failed(self, kind: type, error: BaseException) -> None:
        raise AssertionError(f"a reader failed at a {kind.__name__}") from error


def readers(data: bytes) -> None:
    """A reader takes any object; it says signals, and the same ones if it is asked again."""
    if (message := object_in(data)) is None:
        return
    for backend in _READERS.values():
        said = Reading(backend).signals(message, _Told())
        assert all(isinstance(signal, Signal) for signal in said)
        assert Reading(backend).signals(message, _Told()) == said


def pushback(data: bytes) -> None:
    """A server may ask for any pause: it is a number of seconds, and no longer than the cap."""
    name, _, text = data.decode(errors="replace").partition("\n")
    found = retry_after(Answer({"retry-after": text, name or "x": text}), now=lambda: _NOW)
    assert found is None or 0 <= found <= CAP
    if text.isascii() and text.isdigit() and 0 < len(text) < 4 and not name:
        assert found == (min(int(text), CAP) or 60.0)


def configuration(data: bytes) -> None:
    """It is read, and explained in lines that a terminal can show; or it is refused with the file's name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "streamguard.toml"
        file.write_bytes(data)
        file.chmod(0o600)
        try:
            told = from_config(file).explain()
        except ConfigError as error:
            told = str(error)
            assert "streamguard.toml" in told
    assert all(each.isprintable() or each == "\n" for each in told), ascii(told)


def duration(data: bytes) -> None:
    """A text is so many seconds, or it is refused."""
    text = data.decode(errors="replace")
    try:
        found = durations.parsed(text)
    except ValueError:
        return
    assert found >= 0
    assert not math.isnan(found)


def point(data: bytes) -> None:
    """A resume point is read, and is the same when it is written and read again; or it is refused."""
    try:
        found = ResumePoint.from_json(data)
    except ConfigError:
        return
    assert ResumePoint.from_json(json.dumps(found.as_json())) == found


def timeline(data: bytes) -> None:
    """What is no line of ours is counted; what is one has instants that a page can draw."""
    reader = TimelineReader()
    for line in data.split(b"\n"):
        reader.take(line)
    for session in reader.sessions():
        assert all(math.isfinite(instant) for instant in session.instants())


def receipt(data: bytes) -> None:
    """Whatever a receipt says: a plan is made of it, or there is none."""
    with tempfile.TemporaryDirectory() as folder:
        receipts = Path(folder) / "flow" / "receipts"
        receipts.mkdir(parents=True, mode=0o700)
        file = receipts / "step-timeout.json"
        file.write_bytes(data)
        file.chmod(0o600)
        plan = plan_resume(folder, "flow", work_dir=folder)
        assert plan is None or plan.recommendation in plan.options


def arguments(data: bytes) -> None:
    """Words of a command line are options and a command, or one usage error that can be shown."""
    words = data.decode(errors="replace").split("\n")
    command, told = [], ""
    try:
        _, command = parse(words, run_command.OPTIONS)
    except UsageError as error:
        told = str(error)
    assert all(each.isprintable() or each == "\n" for each in told), ascii(told)
    assert all(word in words for word in command)


TARGETS: Final[dict[str, Callable[[bytes], Any]]] = {
    target.__name__: target
    for target in (
        *(splitter, json_line, readers, pushback, configuration, duration, point),
        *(timeline, receipt, arguments),
    )
}
