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
TO_JUDGE = (
    "_base.done",
    "_lines",
    "_lines.splitter",
    "_watch",
    "_watch.watch",
    "_watch.windows",
    "backends",
    "backends._fields",
    "backends._gemini_api",
    "backends._langchain",
    "backends._langgraph_shapes",
    "backends._openai_chat",
    "backends._openai_errors",
    "backends._openai_responses",
    "backends._shapes",
    "backends.acp",
    "backends.acp.reading",
    "backends.anthropic",
    "backends.anthropic.reading",
    "backends.claude",
    "backends.claude.outcome",
    "backends.claude.reading",
    "backends.codex",
    "backends.codex.failures",
    "backends.codex.reading",
    "backends.gemini",
    "backends.gemini.reading",
    "backends.google_adk",
    "backends.google_adk.reading",
    "backends.google_genai",
    "backends.google_genai.reading",
    "backends.langgraph",
    "backends.langgraph.reading",
    "backends.openai",
    "backends.openai.reading",
    "backends.pydantic_ai",
    "backends.pydantic_ai.reading",
    "backends.registry",
    "backends.stream_reading",
    "errors",
    "retry",
    "retry.classes",
    "runner.json_lines",
    "runner.judge",
    "runner.terminal",
    "signals",
    "top",
    "top.published",
)
TO_END = (
    "process",
    "process.ending",
    "process.identity",
    "process.marks",
    "process.members",
    "process.polled",
    "process.procfs",
    "process.table",
    "process.termination",
    "runner.offspring",
)
TO_TRY_AGAIN = (
    "_base.numbers",
    "retry.classification",
    "retry.decision",
    "retry.foreign",
    "retry.links",
    "retry.policy",
    "retry.pushback",
    "runner.again",
)
TO_LOOK = ("runner.transcript",)
TO_RECORD = (
    "_base.numbers",
    "_guard",
    "_guard.knobs",
    "_guard.modes",
    "_loops",
    "_loops.steps",
    "_loops.timekeeper",
    "activity",
    "backends._processes",
    "events",
    "events.changes",
    "events.event",
    "events.kinds",
    "events.session_events",
    "events.teller",
    "evidence",
    "evidence.account",
    "evidence.files",
    "evidence.lanes",
    "evidence.receipts",
    "evidence.rendering",
    "evidence.scribe",
    "evidence.secrets",
    "evidence.sequels",
    "evidence.stream",
    "evidence.stream_names",
    "evidence.surroundings",
    "evidence.timeline",
    "evidence.worker",
    "evidence.worktree",
    "presets",
    "runner.clerk",
    "runner.record",
)
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
            if name in sys.modules:
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
