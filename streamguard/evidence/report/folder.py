"""`read_run`: the folder of a run as values, whatever has become of it.

A run may be going on, or have been cut by a crash; files may be torn, rotated or missing, and come
from several processes. What cannot be read is passed over and counted. All times are seconds since
the epoch. Knows the files of docs/how-to/evidence.md and nothing of how they are written.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from streamguard.errors import ConfigError
from streamguard.evidence.files import lines_of, open_to_read, read_document
from streamguard.evidence.report.wording import listed, several

TIMELINE: Final = "timeline.jsonl"
ROTATED: Final = "timeline.1.jsonl"
WARNING: Final = 30
# The year 2200: nobody has recorded anything after it.
_FAR: Final = 7_258_118_400.0

# Controls, what turns the reading direction, lone surrogates, and what is no character.
_UNSHOWABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedStretch:
    """So many of one name, between two instants; `busy` seconds in all if they lasted."""

    of: str
    name: str
    n: int
    start: float
    end: float
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """What lasted, or was lasting when the record ends (`end` is None)."""

    of: str
    name: str
    start: float
    end: float | None
    facts: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Mark:
    """What happened: the event's name, and what it said."""

    of: str
    at: float
    level: int
    text: str
    facts: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Writer:
    """Who recorded: one process, or one of its recorders."""

    run_id: str
    flow: str
    step: str
    agent: str
    pid: int | None


@dataclass(slots=True)
class RecordedSession:
    """One stream, as it was recorded: from when to when anything is known of it.

    `stream` is what its recorder calls it, and `name` tells it from others that are called so, too.
    `recorded_until` is when its writer is known to have been alive last.
    """

    name: str
    writer: Writer
    stream: str = ""
    start: float = 0.0
    end: float = 0.0
    recorded_until: float = 0.0
    stretches: list[RecordedStretch] = field(default_factory=list[RecordedStretch])
    spans: list[RecordedSpan] = field(default_factory=list[RecordedSpan])
    marks: list[Mark] = field(default_factory=list[Mark])

    def of(self, of: str) -> list[RecordedSpan]:
        """Its spans of one sort, in order."""
        return [span for span in self.spans if span.of == of]

    def marked(self, of: str) -> list[Mark]:
        """Its marks of one sort, in order."""
        return [mark for mark in self.marks if mark.of == of]

    def counted(self, of: str) -> int:
        """How many of a sort were counted in stretches."""
        return sum(stretch.n for stretch in self.stretches if stretch.of == of)

    def instants(self) -> Iterator[float]:
        """Every instant that is told of."""
        for stretch in self.stretches:
            yield from (stretch.start, stretch.end)
        for span in self.spans:
            yield span.start if span.end is None else span.end
            yield span.start
        for mark in self.marks:
            yield mark.at


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of the run that a reader may want: what it is, and its path in the run's folder."""

    what: str
    path: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was written of one timeout, and the files of it that are there."""

    said: Json
    records: tuple[RunFile, ...] = ()


@dataclass(slots=True)
class Run:
    """A run: its sessions in the order in which they began, and the receipts of its verdicts.

    `folder` is where it was read; None if it is in no folder.
    """

    name: str
    folder: Path | None = None
    kind: str = "run"  # what it is called: a fleet's log is drawn, too
    has_messages: bool = True  # whether they are recorded at all
    sessions: list[RecordedSession] = field(default_factory=list[RecordedSession])
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    unreadable: int = 0
    is_beheaded: bool = False  # what was before has been rotated away

    @property
    def start(self) -> float:
        """When it began, as far as it is known."""
        return min((session.start for session in self.sessions), default=0.0)

    @property
    def end(self) -> float:
        """The last instant of which anything is known."""
        return max((session.end for session in self.sessions), default=0.0)


def read_run(folder: Path) -> Run:
    """The run in `folder`; a ConfigError if there is none."""
    files = [folder / name for name in (ROTATED, TIMELINE) if (folder / name).is_file()]
    if not files:
        raise ConfigError(_no_run(folder))
    reader = _Reader()
    for file in files:
        with open_to_read(file, is_anybodys=True) as lines:
            for line in lines_of(lines):
                reader.take(line)
    receipts, unreadable = _receipts(folder)
    run = Run(
        clean(folder.resolve().name),
        folder.resolve(),
        sessions=reader.sessions(),
        receipts=receipts,
        unreadable=reader.unreadable + unreadable,
    )
    run.is_beheaded = len(files) > 1 and reader.unknown_writers > 0
    return run


def runs_in(folder: Path) -> list[Path]:
    """The folders of runs that are in `folder`; none if it is a run itself."""
    if (folder / TIMELINE).is_file():
        return []
    return sorted(file.parent for file in folder.glob(f"*/{TIMELINE}"))


def _no_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is no folder: give the folder of a run, as in Recorder(folder)"
    if runs := runs_in(folder):
        shown = listed([run.name for run in runs])
        return f"{folder} holds {several(len(runs), 'run')} ({shown}): give one of them"
    return (
        f"{folder} has no {TIMELINE}: either no Recorder wrote there, or nothing was recorded yet, "
        "or this is a flow's folder and the run is the one above it"
    )


class _Reader:
    """Lines of a timeline, gathered by session."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.unknown_writers = 0
        self._clocks: dict[str, float] = {}  # what to add to a writer's instants
        self._writers: dict[str, Writer] = {}
        self._sessions: dict[tuple[str, str], RecordedSession] = {}
        self._stretches: dict[tuple[str, str, int], RecordedStretch] = {}
        self._spans: dict[tuple[str, str, int], RecordedSpan] = {}

    def take(self, line: bytes) -> None:
        """One line; whatever it is."""
        try:
            self._take(dict(json.loads(line)))
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError):
            self.unreadable += bool(line.strip())

    def sessions(self) -> list[RecordedSession]:
        """What was read, by the time of its beginning."""
        for (writer, stream, _), stretch in self._stretches.items():
            self._session(writer, stream).stretches.append(stretch)
        for (writer, stream, _), span in self._spans.items():
            self._session(writer, stream).spans.append(span)
        sessions = list(self._sessions.values())
        for session in sessions:
            session.stretches.sort(key=lambda stretch: stretch.start)
            session.spans.sort(key=lambda span: span.start)
            session.marks.sort(key=lambda mark: mark.at)
        _date(sessions)
        _tell_apart(sessions)
        return sorted(sessions, key=lambda session: (session.start, session.name))

    def _take(self, record: Json) -> None:
        writer = str(record["writer"])
        if record["kind"] == "writer":
            self._clocks[writer] = _finite(record["wall"]) - _finite(record["at"])
            self._writers[writer] = _writer(record)
            return
        if writer not in self._clocks:
            self.unknown_writers += 1
            raise KeyError(writer)
        shift = self._clocks[writer]
        match record["kind"]:
            case "counts":
                for stream, of, name, number, n, first, last, busy in record["counts"]:
                    self._stretches[writer, str(stream), int(number)] = RecordedStretch(
                        str(of),
                        clean(name),
                        int(n),
                        _instant(first, shift),
                        _instant(last, shift),
                        _finite(busy),
                    )
            case "span":
                self._take_span(writer, record, shift)
            case "mark":
                known = {"kind", "writer", "stream", "of", "at", "level", "text"}
                facts = {key: _cleaned(record[key]) for key in record.keys() - known}
                if isinstance(since := facts.get("since_at"), int | float):
                    facts["since_at"] = _at_most(since, shift)
                mark = Mark(
                    str(record["of"]),
                    _instant(record["at"], shift),
                    int(record["level"]),
                    clean(record["text"]),
                    facts,
                )
                self._session(writer, str(record["stream"])).marks.append(mark)
            case _:
                pass  # a later version's

    def _take_span(self, writer: str, record: Json, shift: float) -> None:
        known = {"kind", "writer", "stream", "of", "id", "name", "from_at", "at"}
        facts = {key: _cleaned(value) for key, value in record.items() if key not in known}
        if isinstance(until := facts.get("until_at"), int | float):
            facts["until_at"] = _at_most(until, shift)
        end = record.get("at")
        self._spans[writer, str(record["stream"]), int(record["id"])] = RecordedSpan(
            str(record["of"]),
            clean(record["name"]),
            _instant(record["from_at"], shift),
            None if end is None else _instant(end, shift),
            facts,
        )

    def _session(self, writer: str, stream: str) -> RecordedSession:
        key = writer, stream
        if key not in self._sessions:
            name = clean(stream)
            self._sessions[key] = RecordedSession(name, self._writers[writer], name)
        return self._sessions[key]


def _writer(record: Json) -> Writer:
    words = {key: clean(record.get(key) or "") for key in ("run_id", "flow", "step", "agent")}
    pid = record.get("pid")
    return Writer(**words, pid=pid if isinstance(pid, int) else None)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _instant(value: Any, shift: float) -> float:
    at = float(value) + shift
    if not 0 <= at < _FAR:
        raise ValueError(value)
    return at


def _at_most(value: float, shift: float) -> float:
    """A hold may be meant to last for ever."""
    return _instant(min(float(value), _FAR - shift - 1), shift)


def _tell_apart(sessions: list[RecordedSession]) -> None:
    """Streams of several recorders may have one name: the later ones get a number."""
    seen: Counter[str] = Counter()
    for session in sorted(sessions, key=lambda session: session.start):
        seen[session.name] += 1
        if seen[session.name] > 1:
            session.name += f" ({seen[session.name]})"


def _date(sessions: list[RecordedSession]) -> None:
    ends: dict[int, float] = {}
    for session in sessions:
        instants = list(session.instants())
        session.start, session.end = min(instants), max(instants)
        key = id(session.writer)
        ends[key] = max(ends.get(key, 0.0), session.end)
    for session in sessions:
        session.recorded_until = ends[id(session.writer)]


def clean(text: object) -> str:
    """What others have named, without what cannot be shown, encoded, or would turn lines around."""
    return _UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def as_dict(value: object) -> Json:
    """A JSON object, or an empty one where something else stands."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """A JSON array, or an empty one where something else stands."""
    return [*cast("Iterable[Any]", value)] if isinstance(value, list) else []


def _receipts(folder: Path) -> tuple[list[Receipt], int]:
    """What the recorder wrote of each timeout, by file, and how many could not be read."""
    receipts: list[Receipt] = []
    unreadable = 0
    for file in sorted(folder.glob("*/receipts/*-timeout.json")):
        try:
            said = read_document(file, is_anybodys=True)
            if said is not None:
                receipts.append(Receipt(_cleaned(said), _records(folder, file, said)))
        except (OSError, RecursionError):
            unreadable += 1
    return receipts, unreadable


def _records(folder: Path, file: Path, said: Json) -> tuple[RunFile, ...]:
    """The files of one timeout, where they are now: the run may have been moved."""
    flow = file.parent.parent
    found = [("receipt", file)]
    transcript = as_dict(said.get("context_for_resume")).get("transcript_path")
    if isinstance(transcript, str) and (name := Path(transcript).name):
        found.append(("transcript", flow / "llm" / name))
    found.append(("log of timeouts", flow / "timeouts.jsonl"))
    return tuple(
        RunFile(what, str(path.relative_to(folder))) for what, path in found if _is_there(path)
    )


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # whatever somebody has called it
        return False


def _cleaned(value: object) -> Any:
    if members := as_dict(value):
        return {key: _cleaned(inner) for key, inner in members.items()}
    if items := as_list(value):
        return [_cleaned(inner) for inner in items]
    return clean(value) if isinstance(value, str) else value
