"""What may be needed later of this package, kept from the start.

A command can take the files away that we were started from: agents do remove and reinstall virtual
environments. So the code of every module that a verdict, an end or a record may still want is read
before the command runs, and imported from there when it is wanted. As soon as the command turns out to run for
some time, it lies in a file that is in memory alone, and belongs to nobody's folder. Standard library only.
"""

from __future__ import annotations

import os
import sys

from streamguard.runner import aside

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

_PACKAGE = __name__.partition(".")[0]


def _in(room: str, modules: str) -> tuple[str, ...]:
    """A room, and modules of it."""
    return (room, *(f"{room}.{module}" for module in modules.split()))


TO_JUDGE = (
    *_in(
        "_base",
        "boottime done durations near own_folder quoting signal_words spending trusted vitals waking",
    ),
    *_in("_lines", "splitter"),
    *_in("_watch", "ends in_flight repetition watch windows"),
    *_in(
        "backends",
        "_anthropic_blocks _fields _gemini_api _langchain _langgraph_shapes _openai_chat "
        "_openai_errors _openai_responses _shapes acp acp.reading anthropic "
        "anthropic.reading claude claude.outcome claude.reading codex "
        "codex.failures codex.reading copilot copilot.reading gemini gemini.reading "
        "google_adk google_adk.reading google_genai google_genai.reading kimi kimi.reading "
        "langgraph langgraph.reading openai openai.reading opencode opencode.reading "
        "pydantic_ai pydantic_ai.reading qwen qwen.reading registry stream_reading "
        "unknown_sessions",
    ),
    "errors",
    *_in("retry", "classes failure_said"),
    *_in("runner", "json_lines judge parked terminal"),
    "signals",
    *_in("top", "published"),
)
TO_END = (
    *_in("process", "ending identity look marks members polled procfs table termination"),
    *_in("runner", "offspring"),
)
TO_TRY_AGAIN = (
    *_in("_base", "calling numbers tracebacks warning"),
    *_in("retry", "classification decision foreign links policy pushback"),
    *_in("runner", "again complaints"),
)
TO_LOOK = ("runner.transcript",)
TO_RECORD = (
    *_in("_base", "callbacks calling numbers tracebacks warning"),
    *_in("_guard", "knobs modes"),
    *_in("_loops", "steps timekeeper"),
    "activity",
    *_in("backends", "_processes"),
    *_in("events", "changes event kinds session_events teller"),
    *_in(
        "evidence",
        "account files lanes receipts rendering scribe secrets sequels stream "
        "stream_names surroundings timeline worker worktree",
    ),
    "presets",
    *_in("runner", "clerk record"),
)
TO_LOCK = (
    *_in("_base", "filelock"),
    *_in("process", "blocking holder sentinel sentinel.forest"),
    *_in("runner", "lock"),
)
TO_SAY_HOW_IT_ENDED = ("runner.status",)
TO_TELL = _in("runner", "github hooks notices")
_HEADER = 16
_SOURCE = b"#"  # what no code begins with
_IS_HASHED = 1


class Kept:
    """An importer, asked before all others."""

    def __init__(self) -> None:
        self._home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._at: dict[str, tuple[str, bool]] = {}
        self._code: dict[str, bytes] = {}
        self._put: dict[str, tuple[int, int]] = {}  # where it lies in the file
        self._fd = -1

    def keep(self, names: Iterable[str]) -> None:
        """Read the code of those modules of the package, if they are not imported yet.

        Rooms are known by what is in them.
        """
        rooms = {each.rpartition(".")[0] for each in names}
        for each in names:
            name = f"{_PACKAGE}.{each}"
            if name in sys.modules or name in self._at:
                continue
            is_room = each in rooms
            path = f"{self._home}/{each.replace('.', '/')}{'/__init__.py' if is_room else '.py'}"
            self._code[name] = _code_of(name, path)
            self._at[name] = path, is_room

    def put_away(self) -> None:
        """From here on it lies in a file; what is imported by now is needed no longer."""
        if self._fd >= 0:
            return
        try:
            self._fd = os.memfd_create(_PACKAGE)
        except (AttributeError, OSError):
            return  # then it stays where it is
        aside.everywhere.add(self._fd)
        end = 0
        for name in list(self._code):
            if name not in sys.modules:
                code = self._code[name]
                try:
                    written = os.write(self._fd, code)
                except OSError:
                    written = 0
                if written < len(code):  # it may not grow
                    return
                self._put[name] = end, written
                end += written
            del self._code[name]

    # -- as the import system asks -----------------------------------------------------------

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """How to import that module, if it is kept."""
        del path, target
        if (found := self._at.get(name)) is None:
            return None
        file, is_package = found
        loader: Any = self
        spec = type(__spec__)(name, loader, origin=file, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        spec.has_location = True
        return spec

    def create_module(self, spec: object) -> None:
        """As usual."""

    def exec_module(self, module: ModuleType) -> None:
        """Run its code."""
        import marshal

        name = module.__name__
        path, _ = self._at[name]
        kept = self._code.get(name) or self._from_file(name)
        if kept.startswith(_SOURCE):
            code = compile(kept.removeprefix(_SOURCE), path, "exec", dont_inherit=True)
        else:
            code = marshal.loads(kept)  # noqa: S302 - our own modules
        exec(code, vars(module))  # noqa: S102 - as above

    def _from_file(self, name: str) -> bytes:
        begin, size = self._put[name]
        return os.pread(self._fd, size, begin)


def keep(*names: tuple[str, ...]) -> None:
    """Read what is not imported yet of those modules."""
    if type(__spec__.loader).__name__ != "SourceFileLoader":
        return  # an archive, or a part of an executable
    for each in names:
        _kept.keep(each)
    sys.meta_path.insert(0, _kept)


def put_away() -> None:
    """What was read is not to be a part of our memory for as long as the command runs."""
    _kept.put_away()


_kept = Kept()


def _code_of(name: str, path: str) -> bytes:
    """The code of the module as `marshal` has it, or else its source, to be compiled when it is wanted."""
    cached = _cached(path)
    if (
        cached is None
        and not sys.dont_write_bytecode
        and os.access(os.path.dirname(path), os.W_OK)
    ):
        from importlib.machinery import SourceFileLoader

        SourceFileLoader(name, path).get_code(name)  # which leaves it where it is looked for
        cached = _cached(path)
    return _SOURCE + _content(path) if cached is None else cached


def _cached(path: str) -> bytes | None:
    """What is cached of a module, if it is of this source."""
    folder, _, file = path.rpartition("/")
    try:
        code = _content(f"{folder}/__pycache__/{file[:-3]}.{sys.implementation.cache_tag}.pyc")
        source = os.stat(path)
    except OSError:
        return None
    if len(code) < _HEADER or code[4] & _IS_HASHED:
        return None
    told = int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF
    known = int.from_bytes(code[8:12], "little"), int.from_bytes(code[12:16], "little")
    return code[_HEADER:] if known == told else None


def _content(path: str) -> bytes:
    # Plain calls: `open` takes twice the time, and there are some dozens of files.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
