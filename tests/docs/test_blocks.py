"""Every block of the pages does what it shows: Python runs, our commands parse, our TOML is a configuration.

A page is one program, with its TOML as its configuration and the variables that it sets: its blocks of Python run from top to bottom in one namespace, in virtual time, over the scripted
backends of `prelude`; then each of its `async def`s is called, if the prelude has a value for each of its parameters.
A block with tests is a test file. What cannot run says why in a comment above it (see `blocks`), is compiled, and each
of its names is somebody's.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import re
import shlex
import symtable
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from streamguard import from_config
from streamguard.cli import main
from streamguard.cli import run as run_command
from streamguard.runner import run as runner
from streamguard.testing import run_virtual
from tests.docs.blocks import PAGES, ROOT, Block, all_blocks, blocks_of

pytest.importorskip("claude_agent_sdk")  # the prelude's client is the SDK's
from tests.docs import prelude

pytest_plugins = ["pytester"]

# Pages whose blocks are run by a test that knows them better.
ELSEWHERE = {
    "docs/tutorial/index.md": "tests/docs/test_tutorial.py",
    "docs/how-to/fleet.md": "tests/cli/test_fleet_docs.py",
    "docs/how-to/testing.md": "tests/testing/test_docs.py",
}


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# --- Python -----------------------------------------------------------------------------------


def code_of(block: Block) -> Any:
    """Compiled so that a traceback shows the page's own line. A block may begin with `except`."""
    is_branch = block.text.startswith("except")
    source = f"try: pass\n{block.text}" if is_branch else block.text
    source = "\n" * (block.line - 1 - is_branch) + source
    return compile(source, ROOT / block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def is_test(block: Block) -> bool:
    return re.search(r"^(async )?def test_", block.text, re.MULTILINE) is not None


VARIABLE = re.compile(r"^(?:export )?([A-Z_]+)=([\w.]+) *(?:#.*)?$", re.MULTILINE)
PYTHON = [page for page in PAGES if any(blocks_of(page, "python"))]


@pytest.mark.parametrize("page", PYTHON, ids=page_id)
def test_every_block_of_python_runs(page, monkeypatch, tmp_path):
    if page_id(page) in ELSEWHERE:
        pytest.skip(f"{ELSEWHERE[page_id(page)]} does it")
    prelude.install(monkeypatch, tmp_path)
    monkeypatch.setattr("asyncio.run", lambda made, **_: run_virtual(lambda: made))
    for block in blocks_of(page, "toml"):
        if not block.why_not:
            Path("streamguard.toml").write_text(block.text, "utf-8")
    for block in blocks_of(page, "sh"):
        for name, value in VARIABLE.findall(block.text):
            monkeypatch.setenv(name, value)
    known = prelude.names()
    for block in blocks_of(page, "python"):
        if block.why_not:
            look_up(block, known)
        elif not is_test(block):
            with pytest.raises(error_of(block, known)) if block.raises else nullcontext():
                run(block, known)


def error_of(block: Block, known: dict[str, Any]) -> Any:
    return known.get(block.raises) or getattr(builtins, block.raises)


def run(block: Block, known: dict[str, Any]) -> None:
    before = dict(known)
    code = code_of(block)

    async def as_it_stands() -> None:
        await eval(code, known)

    if code.co_flags & inspect.CO_COROUTINE:
        run_virtual(as_it_stands)
    else:
        exec(code, known)
    for name in [name for name in known if known[name] is not before.get(name)]:
        if inspect.iscoroutinefunction(known[name]):
            values = values_for(known[name], known)
            if values is not None:
                run_virtual(lambda made=known[name], values=values: made(**values))


def values_for(function: Any, known: dict[str, Any]) -> dict[str, Any] | None:
    """What to call it with; None if a parameter is nobody's."""
    fresh = prelude.names()
    needed = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
    ]
    if not all(name in fresh or name in known for name in needed):
        return None
    return {name: fresh.get(name, known.get(name)) for name in needed}


def look_up(block: Block, known: dict[str, Any]) -> None:
    """The names of a block that is not run: those of ours are there, the others are somebody's."""
    code_of(block)
    source = f"try: pass\n{block.text}" if block.text.startswith("except") else block.text
    tree = ast.parse(source)
    bound = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(home), names=names) if is_there(home):
                module = import_module(home)
                for name in names:
                    assert hasattr(module, name.name) or find_spec(f"{home}.{name.name}"), (
                        f"{block.where}: {home} has no {name.name}"
                    )
                    known[name.asname or name.name] = getattr(module, name.name, None)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                value = known.get(name)
                if getattr(value, "__name__", "").startswith("streamguard."):
                    assert hasattr(value, attribute), f"{block.where}: no {name}.{attribute}"
    table = symtable.symtable(source, block.where, "exec")
    bound |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    bound |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_imported()}
    bound |= {name.id for name in ast.walk(tree) if is_stored(name)}
    used = set(globals_used(table))
    unknown = {name for name in used - bound - known.keys() if not hasattr(builtins, name)}
    assert unknown == set(), f"{block.where}: nobody says what these are"
    known |= dict.fromkeys(bound - known.keys())


def is_there(home: str) -> bool:
    package = home.partition(".")[0]
    return package not in prelude.ABSENT and find_spec(package) is not None


def is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def globals_used(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from globals_used(inner)


def test_every_block_with_tests_passes(pytester, monkeypatch):
    tests = [
        block
        for block in all_blocks("python")
        if is_test(block) and block.page not in ELSEWHERE and not block.why_not
    ]
    if not tests:
        pytest.skip("there is none but those of the pages that are run elsewhere")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    names = [re.sub(r"\W", "_", f"test_{block.where}").lower() for block in tests]
    pytester.makepyfile(**dict(zip(names, [block.text for block in tests], strict=True)))
    plugins = ("streamguard.testing.plugin", "pytest_asyncio.plugin", "anyio.pytest_plugin")
    options = [option for plugin in plugins for option in ("-p", plugin)]
    result = pytester.runpytest_subprocess(*options)
    assert set(result.parseoutcomes()) <= {"passed", "warnings", "warning"}


@pytest.mark.parametrize("page", ELSEWHERE)
def test_what_is_run_elsewhere_is(page):
    name = page.rpartition("/")[2]
    assert name in (ROOT / ELSEWHERE[page]).read_text("utf-8")


# --- our commands -----------------------------------------------------------------------------


class ParsedError(Exception):
    """The words were understood; nothing was done."""


@pytest.fixture
def only_parse(monkeypatch, tmp_path):
    """Our command says ParsedError where it would begin."""
    parse = argparse.ArgumentParser.parse_args

    def parse_args(parser, words=None, namespace=None):
        parse(parser, words, namespace)
        raise ParsedError

    def supervise(_):
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(runner, "supervise", supervise)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_command, "_doubts", [])


def commands_of(text: str) -> Iterator[list[str]]:
    """The words behind each `streamguard` that is a command in these lines of a shell."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                yield from ours_in(command)
                command = []
            else:
                command.append(word)


def ours_in(words: list[str]) -> Iterator[list[str]]:
    for place, word in enumerate(words):
        if word.rpartition("/")[2] == "streamguard":
            if all(is_before(earlier) for earlier in words[:place]):
                yield without_redirections(words[place + 1 :])
            return


def is_before(word: str) -> bool:
    """What may stand before a command's name: a prompt, a variable, a shell's own word, tmux's and others' command."""
    return "=" in word or word in ("$", "exec", "time", "then", "do", "if", "!", "nohup", "setsid")


def without_redirections(words: list[str]) -> list[str]:
    found = next((n for n, word in enumerate(words) if re.match(r"\d?[<>]", word)), len(words))
    return words[:found]


SHELL = [
    (block, words)
    for block in all_blocks("sh", "bash", "shell", "console")
    for words in commands_of(block.text)
]


@pytest.mark.parametrize(
    ("block", "words"), SHELL, ids=[f"{block.where}-{n}" for n, (block, _) in enumerate(SHELL)]
)
def test_every_command_is_one(block, words, only_parse, capsys):
    """Parsed by the command's own parser, and not run."""
    if block.why_not:
        pytest.skip(block.why_not)
    try:
        code = main(words)
    except ParsedError:
        return
    except SystemExit as ended:
        code = ended.code
    assert code == 0, f"streamguard {shlex.join(words)}: {capsys.readouterr().err}"


def test_commands_are_found():
    lines = (
        "X=1 streamguard top | head; (cd a && streamguard run --idle 5 -- a <b) # streamguard x"
    )
    assert [*commands_of(lines)] == [["top"], ["run", "--idle", "5", "--", "a"]]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_command_is_cut_off(page):
    """A line that goes on is followed by one, in a block that is only indented, too."""
    assert not re.findall(r"^.*\\\n *(?:```.*)?$", page.read_text("utf-8"), re.MULTILINE)


# --- configurations ---------------------------------------------------------------------------

TOML = all_blocks("toml")


@pytest.mark.parametrize("block", TOML, ids=[block.where for block in TOML])
def test_every_block_of_toml_is_a_configuration(block, tmp_path):
    if block.why_not:
        pytest.skip(block.why_not)
    is_shared = "[tool.streamguard" in re.sub("#.*", "", block.text)
    file = tmp_path / ("pyproject.toml" if is_shared else "streamguard.toml")
    file.write_text(block.text, "utf-8")
    from_config(file)


# --- what must fail ---------------------------------------------------------------------------


def block_of(text: str, **more: Any) -> Block:
    return Block("README.md", 1, "python", text, **more)


@pytest.mark.parametrize(
    "text",
    [
        "stream | idle_gaurd(180)",
        "async def f():\n    idle_gaurd(180)",
        "from streamguard import idle_gaurd",
        "from streamguard.backends import claude\nclaude.sesion()",
    ],
)
def test_a_wrong_name_is_found(text):
    with pytest.raises((NameError, ImportError, AttributeError)):
        known = prelude.names()
        run(block_of(text), known)
        run_virtual(known["f"])
    with pytest.raises(AssertionError):
        look_up(block_of(text, why_not="x"), prelude.names())


def test_a_wrong_word_is_found(monkeypatch, tmp_path):
    prelude.install(monkeypatch, tmp_path)
    text = "from streamguard.backends import claude\nclaude.session(promt='x')"
    with pytest.raises(TypeError, match="promt"):
        run(block_of(text), prelude.names())
    with pytest.raises(TypeError):
        run(block_of("stream | idle_guard(180, idel=3)"), prelude.names())


def test_a_wrong_option_is_found(only_parse):
    assert main(["run", "--idel", "5", "--", "x"]) == 125
    with pytest.raises(SystemExit):
        main(["top", "--onec"])
