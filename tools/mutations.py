"""The small changes of a module from which tools/mutants.py draws, found in its syntax tree.

Code without visible effects is never changed: docstrings, annotations, ``__all__``, imports, decorators, blocks for
type checkers, and texts of errors, warnings and logs (including whole ``raise`` statements).
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace

KINDS = {
    "comparison": "< to <=, == to !=, is to is not, in to not in",
    "arithmetic": "+ to -, * to /, ** to *",
    "boolean": "and to or",
    "not": "a not is removed",
    "number": "n to n + 1",
    "truth": "True to False",
    "none": "None to 0",
    "jump": "continue to break",
    "assignment": "an assignment to an attribute or an item is removed",
    "call": "a call whose value is not used is removed",
    "arguments": "the first two positional arguments are swapped",
    "return": "a value is not returned",
    "slice": "a bound of a slice is removed",
    "extreme": "min to max, any to all",
}

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
}
_EXTREMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}
_SYMMETRIC = {
    "min",
    "max",
    "minimum",
    "maximum",
    "allclose",
    "array_equal",
    "isclose",
    "hypot",
    "gcd",
    "add",
    "multiply",
}
"""Functions whose result does not depend on the order of the arguments."""
_BY_TYPE = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "delattr", "cast", "partial"}
"""Functions that fail at once if arguments are swapped."""
_TEXTS = re.compile(r"warn|print|debug|info|warning|error|exception|critical|\w*(Error|Warning)")
"""Functions and classes whose arguments are texts for people."""
_TEXT_ARGUMENTS = {"hint", "message", "help", "description", "metavar", "doc"}
_GENERICS = {"tuple", "list", "dict", "set", "frozenset", "type"}


@dataclass(frozen=True)
class Mutation:
    """One change: ``original``, the text of an expression or a statement, becomes ``mutated``."""

    path: str
    """Path of the module below the source."""
    function: str
    """Qualified name of the enclosing function or class; empty at the top level of a module."""
    kind: str
    line: int
    original: str
    mutated: str
    occurrence: int = 0
    """Number of equal changes before this one in the function."""
    start: int = 0
    """Offset of ``original`` in the module, in bytes of UTF-8."""
    lines: tuple[int, ...] = ()
    """Lines of which at least one is executed together with the changed code."""
    always: bool = False
    """Whether it is executed when the module, class or function is defined, so that its lines show no users."""

    @property
    def id(self) -> str:
        """A name that stays the same when other parts of the source change."""
        key = (self.path, self.function, self.kind, self.original, self.mutated, str(self.occurrence))
        return hashlib.sha256("\0".join(key).encode()).hexdigest()[:12]

    def apply(self, source: str) -> str:
        """The module with the change."""
        encoded, original = source.encode(), self.original.encode()
        if encoded[self.start : self.start + len(original)] != original:
            raise ValueError(f"{self.path}:{self.line} is not {self.original!r}: the source has changed")
        return (encoded[: self.start] + self.mutated.encode() + encoded[self.start + len(original) :]).decode()


def mutations_of(path: str, source: str) -> list[Mutation]:
    """All changes of a module, in the order of the source."""
    finder = _Finder(path, source)
    finder.body(ast.parse(source).body)
    seen: Counter[tuple[str, ...]] = Counter()
    result: list[Mutation] = []
    for one in sorted(finder.mutations, key=lambda one: (one.start, one.kind, one.mutated)):
        key = (one.function, one.kind, one.original, one.mutated)
        result.append(replace(one, occurrence=seen[key]))
        seen[key] += 1
    return result


def changes_something(mutation: Mutation, source: str) -> bool:
    """Whether the changed module compiles, and its syntax tree differs from that of the original."""
    try:
        changed = ast.parse(mutation.apply(source))
        compile(changed, mutation.path, "exec")
    except SyntaxError:  # e.g. a starred argument in the wrong place
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def code_lines(source: str) -> int:
    """Number of lines with code, without docstrings, comments and blank lines."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not _is_text(node):
            lines.update(range(node.lineno, _header_end(node) + 1))
    return len(lines)


def function_lines(source: str) -> set[int]:
    """The lines of the bodies of all functions."""
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in _body_lines(node)
    }


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _header_end(node: ast.stmt) -> int:
    """The last line of a statement, or of its header if it contains other statements."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    first = body[0]
    line: int = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno
    return max(node.lineno, line - 1)


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    first = node.body[1] if _is_text(node.body[0]) and len(node.body) > 1 else node.body[0]
    return range(first.lineno, (node.end_lineno or node.lineno) + 1)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


class _Finder:
    """Walks through a module and collects its mutations."""

    def __init__(self, path: str, source: str) -> None:
        self.mutations: list[Mutation] = []
        self._path, self._source = path, source.encode()
        self._line_starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._names: list[str] = []
        self._lines: tuple[int, ...] = ()  # of the current statement, or, for defaults, of the body of the function
        self._always = True

    # -- scopes ------------------------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self._names.append(node.name)
                before, self._always = self._always, True
                self.body(node.body)
                self._always = before
                self._names.pop()
            case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
                pass
            case ast.If() if _last_name(node.test) == "TYPE_CHECKING" or "__name__" in ast.dump(node.test):
                self.body(node.orelse)
            case ast.Assign() if any(_last_name(target) == "__all__" for target in node.targets):
                pass
            case _:
                before = self._lines
                self._lines = tuple(range(node.lineno, _header_end(node) + 1))
                self._changes_of_statement(node)
                self._lines = before

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        rest = node.body[1:] if _is_text(node.body[0]) else node.body
        if not rest or any(_last_name(decorator) == "overload" for decorator in node.decorator_list):
            return  # a declaration
        self._names.append(node.name)
        before = self._lines, self._always
        self._lines, self._always = tuple(_body_lines(node)), False
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._expression(default)
        self.body(rest)
        self._lines, self._always = before
        self._names.pop()

    # -- statements --------------------------------------------------------------------------------------------------

    def _changes_of_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Continue():
                self._add("jump", node, "break")
            case ast.Break():
                self._add("jump", node, "continue")
            case ast.Return() if not _is_none(node.value):
                self._add("return", node, "return None")
            case ast.Assign() if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
                self._add("assignment", node, "pass")
            case ast.Expr(value=ast.Call() as call) if _last_name(call.func) not in ("debug", "info"):
                self._add("call", node, "pass")
            case ast.AugAssign():
                self._operator(node, node.target, node.value, type(node.op), "=")
            case _:
                pass
        match node:
            case ast.AnnAssign():
                if node.value is not None and _last_name(node.annotation) != "TypeAlias":
                    self._expression(node.value)
            case ast.Match():
                self._expression(node.subject)
                for case in node.cases:
                    if case.guard is not None:
                        self._lines = (case.guard.lineno,)
                        self._expression(case.guard)
                    self.body(case.body)
            case ast.Expr() if _is_text(node):
                pass
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.stmt):
                        self._statement(child)
                    elif isinstance(child, ast.ExceptHandler):
                        self.body(child.body)
                    elif isinstance(child, ast.withitem):
                        self._expression(child.context_expr)
                    elif isinstance(child, ast.expr):
                        self._expression(child)

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr():
                return  # a text
            case ast.Constant():
                self._constant(node)
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operator, right in zip(sides[:-1], node.ops, node.comparators, strict=True):
                    sign, others = _COMPARISONS[type(operator)]
                    for other in others:
                        self._between("comparison", node, left, right, sign, other)
                for side in sides:
                    if not _is_none(side):
                        self._expression(side)
                return
            case ast.BinOp():
                self._operator(node, node.left, node.right, type(node.op), "")
            case ast.BoolOp():
                sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values[:-1], node.values[1:], strict=True):
                    self._between("boolean", node, left, right, sign, other)
            case ast.UnaryOp(op=ast.Not()):
                self._add("not", node, self._text(node.operand))
            case ast.Subscript():
                if _last_name(node.value) in _GENERICS or _last_name(node.value)[:1].isupper():
                    return  # a type
                self._slices(node)
            case ast.Call():
                self._call(node)
                return
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child)
            elif isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    self._expression(part)
            elif isinstance(child, ast.arguments):
                for default in (*child.defaults, *child.kw_defaults):
                    if default is not None:
                        self._expression(default)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if value is None:
            self._add("none", node, "0")
        elif isinstance(value, bool):
            self._add("truth", node, str(not value))
        elif isinstance(value, int | float):
            self._add("number", node, repr(value + 1))

    def _call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        if other := _EXTREMES.get(name):
            text, func = self._text(node), self._text(node.func)
            self._add("extreme", node, func[: -len(name)] + other + text[len(func) :])
        if isinstance(node.func, ast.Attribute):
            self._expression(node.func.value)
        if _TEXTS.fullmatch(name):
            return
        if len(node.args) >= 2 and name not in _SYMMETRIC | _BY_TYPE:
            first, second = node.args[:2]
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                begin, text = self._start(node), self._text(node).encode()
                a, b = (slice(self._start(one) - begin, self._end(one) - begin) for one in (first, second))
                swapped = text[: a.start] + text[b] + text[a.stop : b.start] + text[a] + text[b.stop :]
                self._add("arguments", node, swapped.decode())
        for argument in node.args[1:] if name == "cast" else node.args:
            self._expression(argument)
        for keyword in node.keywords:
            if keyword.arg not in _TEXT_ARGUMENTS:
                self._expression(keyword.value)

    def _slices(self, node: ast.Subscript) -> None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, ast.Slice):
                for bound in (part.lower, part.upper):
                    is_zero = isinstance(bound, ast.Constant) and bound.value == 0
                    if bound is not None and not (bound is part.lower and is_zero):
                        self._replace("slice", node, self._start(bound), self._end(bound), "")

    def _operator(
        self, node: ast.BinOp | ast.AugAssign, left: ast.expr, right: ast.expr, operator: type[ast.operator], end: str
    ) -> None:
        texts = any(
            isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
            for side in (left, right)
        )
        if operator in _OPERATORS and not texts:
            sign, other = _OPERATORS[operator]
            self._between("arithmetic", node, left, right, re.escape(sign + end), other + end)

    # -- mutations ---------------------------------------------------------------------------------------------------

    def _between(self, kind: str, node: ast.AST, left: ast.expr, right: ast.expr, sign: str, other: str) -> None:
        """Add a mutation that replaces the operator ``sign`` between two operands of ``node``."""
        begin = self._end(left)
        gap = self._source[begin : self._start(right)].decode()
        parts = re.fullmatch(rf"([\s)]*)({sign})([\s(\\]*)", gap)
        if parts is not None:  # there may be a comment in between
            self._replace(kind, node, begin + len(parts[1]), begin + len(parts[1]) + len(parts[2]), other)

    def _replace(self, kind: str, node: ast.AST, start: int, end: int, text: str) -> None:
        begin, stop = self._start(node), self._end(node)
        changed = self._source[begin:start] + text.encode() + self._source[end:stop]
        self._add(kind, node, changed.decode())

    def _add(self, kind: str, node: ast.AST, mutated: str) -> None:
        original = self._text(node)
        if original == mutated:
            return
        lines = tuple(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]
        self.mutations.append(
            Mutation(
                path=self._path,
                function=".".join(self._names),
                kind=kind,
                line=lines[0],
                original=original,
                mutated=mutated,
                start=self._start(node),
                lines=lines if set(lines) & set(self._lines) else self._lines,
                always=self._always,
            )
        )

    def _start(self, node: ast.AST) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        return self._source[self._start(node) : self._end(node)].decode()
