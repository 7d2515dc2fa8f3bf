"""What can be changed in a module, one small thing at a time.

A mutant is named by where it stands and what it does, not by its line: it keeps its name while other code changes.
Left alone is what is no decision: texts, types, what a log line says, `__repr__`, asserts.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

_NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_WORD: Final = re.compile(r"[a-z][a-z_]{1,20}$")
_TYPES: Final = {"cast", "TypeVar", "ParamSpec", "getLogger", "NewType"}
_LOGGING: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_TEXTUAL: Final = {"__repr__", "__str__"}
_WORDS_FOR_PEOPLE: Final = {"name", "why", "reason", "text", "message"}


@dataclass(frozen=True)
class Mutant:
    module: str
    function: str
    operator: str
    before: str
    after: str
    nth: int  # of those that are otherwise the same
    lines: range  # those which a test has to run
    in_function: bool
    begin: int = field(repr=False)  # in the module's bytes
    end: int = field(repr=False)
    instead: str = field(repr=False)
    around: str = field(
        repr=False
    )  # a digest of the function, or the statement, that it stands in

    @property
    def name(self) -> str:
        which = f" #{self.nth}" if self.nth > 1 else ""
        return (
            f"{self.module} {self.function} {self.operator}: {self.before} -> {self.after}{which}"
        )

    @property
    def key(self) -> str:
        return _digest(self.name)

    @property
    def file(self) -> Path:
        return file_of(self.module)

    @property
    def text(self) -> str:
        """The whole module, with the fault in it."""
        raw = self.file.read_bytes()
        return (raw[: self.begin] + self.instead.encode() + raw[self.end :]).decode()


def file_of(module: str) -> Path:
    """`_guard/attempt`, or a package such as `_loops`."""
    return ROOT / "streamguard" / f"{module}.py"


def mutants_of(module: str) -> list[Mutant]:
    """All of them, in the order of the text."""
    return _Finder(module, file_of(module).read_text("utf-8")).found


class _Finder:
    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._raw = source.encode()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self._where: list[str] = []
        self._depth = 0  # of functions
        self._around = ""
        self._same: Counter[tuple[str, ...]] = Counter()
        self._seen: set[tuple[int, int, str]] = set()
        self.found: list[Mutant] = []
        self._block(ast.parse(source).body)

    # -- texts ---------------------------------------------------------------------------------

    def _span(self, node: Any) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: Any) -> str:
        begin, end = self._span(node)
        return self._raw[begin:end].decode()

    def _add(self, node: Any, operator: str, after: str) -> None:
        begin, end = self._span(node)
        before = self._text(node)
        if (begin, end, after) in self._seen or before == after:
            return
        self._seen.add((begin, end, after))
        what = (".".join(self._where) or "<module>", operator, _short(before), _short(after))
        self._same[what] += 1
        lines = range(node.lineno, min(node.end_lineno, node.lineno + 12) + 1)
        self.found.append(
            Mutant(
                self._module,
                *what,
                nth=self._same[what],
                lines=lines,
                in_function=self._depth > 0,
                begin=begin,
                end=end,
                instead=after,
                around=self._around,
            )
        )

    def _put(self, node: ast.expr, operator: str, new: ast.expr) -> None:
        text = ast.unparse(ast.fix_missing_locations(new))
        plain = isinstance(new, ast.Name | ast.Call | ast.Attribute) or (
            isinstance(new, ast.Constant) and not text.startswith("-")
        )
        self._add(node, operator, text if plain else f"({text})")

    # -- statements ----------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if not self._depth and not isinstance(node, ast.ClassDef):
            self._around = _digest(self._text(node))
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Global() | ast.Nonlocal():
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                if not any("Protocol" in ast.unparse(base) for base in node.bases):
                    self._where.append(node.name)
                    self._block(node.body)
                    self._where.pop()
            case ast.If():
                if "TYPE_CHECKING" not in ast.unparse(node.test):
                    self._branch(node.test, has_else=bool(node.orelse))
                    self._block(node.body)
                self._block(node.orelse)
            case ast.While():
                self._branch(node.test, has_else=False)
                self._block(node.body + node.orelse)
            case ast.For() | ast.AsyncFor():
                self._expression(node.iter)
                self._block(node.body + node.orelse)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._entered(item.context_expr)
                self._block(node.body)
            case ast.Try():
                self._block(node.body)
                for handler in node.handlers:
                    if handler.type is not None:
                        self._handled(handler.type)
                    self._block(handler.body)
                self._block(node.orelse + node.finalbody)
            case ast.Match():
                self._expression(node.subject)
                for case in node.cases:
                    self._case(case)
            case ast.Return():
                if node.value is None:
                    self._add(node, "remove", "pass")
                elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
                    self._add(node, "return-none", "return None")
                    self._expression(node.value)
            case ast.Raise():
                self._add(node, "remove", "pass")
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if isinstance(raised, ast.Name) and raised.id[0].isupper():
                    self._add(raised, "exception", "ArithmeticError")
            case ast.Expr():
                if not isinstance(node.value, ast.Constant):
                    self._add(node, "remove", "pass")
                    self._expression(node.value)
            case ast.Assign():
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
                if not {"__slots__", "__all__", "__match_args__"} & set(names):
                    if len(names) < len(node.targets):
                        self._add(node, "remove", "pass")
                    self._expression(node.value)
            case ast.AnnAssign():
                if node.value is not None and "TypeAlias" not in ast.unparse(node.annotation):
                    if isinstance(node.target, ast.Attribute):
                        self._add(node, "remove", "pass")
                    self._expression(node.value)
            case ast.AugAssign():
                self._add(node, "remove", "pass")
                if new := _ARITHMETIC.get(type(node.op)):
                    swapped = copy.deepcopy(node)
                    swapped.op = new()
                    self._add(node, "arithmetic", ast.unparse(swapped))
                self._expression(node.value)
            case ast.Delete() | ast.Continue() | ast.Break():
                self._add(node, "remove", "pass")
            case _:
                pass

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
        if "overload" in decorators or "abstractmethod" in decorators or node.name in _TEXTUAL:
            return
        self._where.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            self._expression(default)
        self._depth += 1
        self._block(node.body)
        self._depth -= 1
        self._where.pop()

    def _branch(self, test: ast.expr, *, has_else: bool) -> None:
        self._condition(test)
        self._add(test, "never", "False")
        if has_else:
            self._add(test, "always", "True")
        self._expression(test)

    def _case(self, case: ast.match_case) -> None:
        if case.guard is None:
            self._add(case.pattern, "never", f"{self._text(case.pattern)} if False")
        else:
            self._condition(case.guard)
            self._add(case.guard, "never", "False")
            self._add(case.guard, "always", "True")
            self._expression(case.guard)
        self._block(case.body)

    def _entered(self, node: ast.expr) -> None:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            if len(node.args) == 1:
                self._handled(node.args[0])
        else:
            self._expression(node)

    def _handled(self, kind: ast.expr) -> None:
        """The classes that a handler, or `suppress`, names."""
        if isinstance(kind, ast.Tuple):
            for number in range(len(kind.elts)):
                fewer = copy.deepcopy(kind)
                del fewer.elts[number]
                self._add(kind, "narrow", ast.unparse(fewer))
            return
        name = ast.unparse(kind)
        self._add(kind, "narrow", "ArithmeticError")
        if name == "BaseException":
            self._add(kind, "narrow", "Exception")
        else:
            wider = "BaseException" if name in {"Exception", "OSError"} else "Exception"
            self._add(kind, "widen", wider)

    # -- expressions ---------------------------------------------------------------------------

    def _condition(self, test: ast.expr) -> None:
        """Its negation, where comparisons and `not` have none of their own."""
        single = isinstance(test, ast.Compare) and len(test.ops) == 1
        if not single and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._add(test, "negate", f"not ({self._text(test)})")

    def _expression(self, node: ast.expr | None) -> None:
        match node:
            case None | ast.JoinedStr() | ast.Name():
                pass
            case ast.Compare():
                self._comparison(node)
            case ast.BoolOp():
                swapped = copy.deepcopy(node)
                swapped.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                self._put(node, "and-or", swapped)
                for number in range(len(node.values)):
                    rest = copy.deepcopy(node)
                    del rest.values[number]
                    self._put(node, "drop", rest if len(rest.values) > 1 else rest.values[0])
                self._each(node.values)
            case ast.UnaryOp(op=ast.Not()):
                self._put(node, "negate", node.operand)
                self._expression(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                self._put(node, "arithmetic", node.operand)
                self._expression(node.operand)
            case ast.BinOp():
                if _is_text(node.left) or _is_text(node.right):
                    return
                if new := _ARITHMETIC.get(type(node.op)):
                    changed = copy.deepcopy(node)
                    changed.op = new()
                    self._put(node, "arithmetic", changed)
                self._each([node.left, node.right])
            case ast.Constant():
                self._constant(node)
            case ast.IfExp():
                self._branch(node.test, has_else=True)
                self._each([node.body, node.orelse])
            case ast.Call():
                self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node)
            case ast.Lambda():
                self._depth += self._depth > 0
                self._expression(node.body)
                self._depth -= self._depth > 1
            case _:
                self._each(ast.iter_child_nodes(node))

    def _each(self, nodes: Any) -> None:
        for node in nodes:
            if isinstance(node, ast.expr):
                self._expression(node)

    def _comparison(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            for name, table in (("negate", _NEGATED), ("boundary", _BOUNDARY)):
                if new := table.get(type(operator)):
                    changed = copy.deepcopy(node)
                    changed.ops[number] = new()
                    self._put(node, name, changed)
        self._each(
            each
            for each in (node.left, *node.comparators)
            if not (isinstance(each, ast.Constant) and each.value is None)
        )

    def _comprehension(self, node: Any) -> None:
        for generator in node.generators:
            for test in generator.ifs:
                self._add(test, "always", "True")
                self._condition(test)
            self._each([generator.iter, *generator.ifs])
        self._each([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    def _call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if last in _TYPES or last.endswith(("Error", "Exception")):
            return
        if isinstance(node.func, ast.Attribute) and last in _LOGGING and "log" in name:
            return
        if name in _SWAPPED:
            self._add(node.func, "min-max", _SWAPPED[name])
            plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
            if name in {"min", "max"} and plain and len(node.args) > 1:
                for number in range(len(node.args)):
                    rest = copy.deepcopy(node)
                    del rest.args[number]
                    self._put(node, "drop", rest if len(rest.args) > 1 else rest.args[0])
        self._each(a.value if isinstance(a, ast.Starred) else a for a in node.args)
        self._each(each.value for each in node.keywords if each.arg not in _WORDS_FOR_PEOPLE)
        if isinstance(node.func, ast.Attribute):
            self._expression(node.func.value)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, "constant", str(not value))
        elif value is None:
            self._add(node, "constant", "1")
        elif isinstance(value, int | float):
            self._add(node, "constant", repr(value + 1))
            self._add(node, "constant", f"({value - 1!r})")
        elif isinstance(value, str) and _WORD.match(value):
            self._add(node, "constant", repr("x" + value))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _short(text: str) -> str:
    return " ".join(text.split())[:110]
