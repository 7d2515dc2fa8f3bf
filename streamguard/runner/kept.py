"""What may be needed later of this package, kept from the start.

A command can take the files away that we were started from: agents do remove and reinstall virtual
environments. So the code of every module that a verdict, an end or a record may still want is read
before the command runs, and imported from there when it is wanted. It lies in a file that is in memory
alone, and belongs to nobody's folder. Standard library only.
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
    *_in("_base", "boottime done durations own_folder quoting spending vitals waking"),
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
    *_in("_base", "numbers"),
    *_in("retry", "classification decision foreign links policy pushback"),
    *_in("runner", "again complaints"),
)
TO_LOOK = ("runner.transcript",)
TO_RECORD = (
    *_in("_base", "numbers"),
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
TO_TELL = _in("runner", "github hooks notices")
_HEADER = 16
_SOURCE = b"#"  # what no code begins with
_IS_HASHED = 1


class Kept:
    """An importer, asked before all others."""

    def __init__(self) -> None:
        self._home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._at: dict[str, tuple[str, int, int, bool]] = {}
        self._size = 0
        try:
            self.fd = os.memfd_create(_PACKAGE)
        except (AttributeError, OSError):
            self.fd = -1
        self._bytes: dict[str, bytes] = {}

    def keep(self, names: Iterable[str]) -> None:
        """Read the code of those modules of the package, if they are not imported yet."""
        for each in names:
            name = f"{_PACKAGE}.{each}"
            if name in sys.modules or name in self._at:
                continue
            path = f"{self._home}/{each.replace('.', '/')}"
            is_package = os.path.isdir(path)
            path += "/__init__.py" if is_package else ".py"
            code = _code_of(name, path)
            self._at[name] = (path, self._size, len(code), is_package)
            try:
                written = os.write(self.fd, code)
            except OSError:  # there is no such file
                written = 0
            self._size += written
            if written < len(code):  # or it may not grow
                self._bytes[name] = code

    # -- as the import system asks -----------------------------------------------------------

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """How to import that module, if it is kept."""
        del path, target
        if (found := self._at.get(name)) is None:
            return None
        file, _, _, is_package = found
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
        path, begin, size, _ = self._at[name]
        kept = self._bytes.get(name) or os.pread(self.fd, size, begin)
        if kept.startswith(_SOURCE):
            code = compile(kept.removeprefix(_SOURCE), path, "exec", dont_inherit=True)
        else:
            code = marshal.loads(kept)  # noqa: S302 - our own modules
        exec(code, vars(module))  # noqa: S102 - as above


def keep(*names: Iterable[str]) -> None:
    """Read what is not imported yet of those modules."""
    if type(__spec__.loader).__name__ != "SourceFileLoader":
        return  # an archive, or a part of an executable
    kept = Kept()
    for each in names:
        kept.keep(each)
    if kept.fd >= 0:
        aside.everywhere.add(kept.fd)
    sys.meta_path.insert(0, kept)


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
