"""A package as syntax trees: its modules, their imports, and helpers that read their text.

The package itself is not imported, so the source of any commit can be read.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
_ASKED_FOR = (ast.Assign, ast.Call, ast.ClassDef, ast.Compare, ast.Constant, ast.Expr, ast.ImportFrom)
"""The classes of nodes that rules ask for alone."""


def walk(node: ast.AST) -> list[ast.AST]:
    """The nodes of ``ast.walk`` in the same order, kept on the node for the next rule that walks it."""
    kept: list[ast.AST] | None = node.__dict__.get("_walked")
    if kept is None:
        kept = [node]
        for parent in kept:  # grows meanwhile
            for name in parent._fields:
                value = getattr(parent, name, None)
                if isinstance(value, ast.AST):
                    kept.append(value)
                elif isinstance(value, list):
                    kept += [item for item in value if isinstance(item, ast.AST)]
        node.__dict__["_walked"] = kept
    return kept


@dataclass(frozen=True)
class Module:
    """One file: its name (``metaroll.data.step``), its path below the package, its text and its tree."""

    name: str
    path: str
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def is_init(self) -> bool:
        return self.path.endswith("__init__.py")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, collected once for all rules, and the lazy imports of a package."""
        return [*walk(self.tree), *self._lazy_imports()]

    def of(self, *kinds: type[Node]) -> list[Node]:
        """The nodes of these classes, which have no subclasses, in the order of ``nodes``."""
        if kinds not in self._found:
            self._found[kinds] = [node for node in self.nodes if type(node) in kinds]
        return self._found[kinds]

    @cached_property
    def _found(self) -> dict[tuple[type, ...], list]:
        """Nodes by their classes, those of one class at once, and those of several as they are asked for."""
        found: dict[tuple[type, ...], list] = {(kind,): [] for kind in _ASKED_FOR}
        for node in self.nodes:
            if (kind := (type(node),)) in found:
                found[kind].append(node)
        return found

    def _lazy_imports(self) -> Iterator[ast.ImportFrom]:
        """The imports in ``_MODULES`` (module -> names); those of the top package are left out."""
        for node in self.tree.body if self.is_init and self.folder else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
                package = self.name.partition(".")[0]
                for module, names in ast.literal_eval(node.value).items():
                    aliases = [ast.alias(name, lineno=node.lineno, col_offset=0) for name in names]
                    yield ast.ImportFrom(f"{package}.{module}", aliases, 0, lineno=node.lineno, col_offset=0)

    @property
    def folder(self) -> str:
        """The package that directly contains the module, "" for the top one."""
        return self.path.rpartition("/")[0]

    @cached_property
    def mentions(self) -> list[tuple[int, str]]:
        """All of ``resolved``."""
        return list(_resolved(self))


@dataclass(frozen=True)
class Source:
    """All modules of a package, by name."""

    modules: dict[str, Module]

    @classmethod
    def read(cls, package: Path) -> Source:
        modules = {}
        for path in sorted(package.rglob("*.py")):
            relative = path.relative_to(package)
            parts = [package.name, *relative.with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            modules[name] = Module(name, relative.as_posix(), text, ast.parse(text))
        return cls(modules)

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Module -> the modules of the package that it imports anywhere."""
        return {name: set(self._imports_of(module)) - {name} for name, module in self.modules.items()}

    def _imports_of(self, module: Module) -> Iterator[str]:
        for node in module.of(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom):
                for origin, _ in self.origins(node, module):
                    if origin in self.modules:
                        yield origin

    def origins(self, node: ast.ImportFrom, module: Module) -> Iterator[tuple[str, str]]:
        """(module, name there) of each name that a ``from`` statement imports; a sub-module has the name ""."""
        base = node.module or ""
        if node.level:
            package = module.name if module.is_init else module.name.rpartition(".")[0]
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield (full, "") if full in self.modules else (base, alias.name)

    def home(self, origin: tuple[str, str]) -> tuple[str, str]:
        """Where a name is defined; an ``__init__`` may only import it from another module."""
        door = self.modules.get(origin[0])
        if door is not None and door.is_init:
            for node in door.of(ast.ImportFrom):
                for alias, source in zip(node.names, self.origins(node, door), strict=True):
                    if (alias.asname or alias.name) == origin[1]:
                        return self.home(source)
        return origin

    @cached_property
    def folders(self) -> dict[str, list[Module]]:
        """Folder -> its modules without the ``__init__``."""
        folders: dict[str, list[Module]] = {}
        for module in self.modules.values():
            if not module.is_init:
                folders.setdefault(module.folder, []).append(module)
        return folders

    @cached_property
    def folder_imports(self) -> dict[str, set[str]]:
        """Folder -> the other folders that its modules import, without the imports of ``__init__`` and ``__main__``.

        An import of a folder that has only an ``__init__`` counts as an import of what that imports.
        """
        imported: dict[str, set[str]] = {folder: set() for folder in self.folders}

        def folders_of(name: str) -> set[str]:
            folder = self.modules[name].folder
            return {folder} if folder in imported else set[str]().union(*map(folders_of, self.imports[name]))

        for name, module in self.modules.items():
            if not (module.is_init or module.path == "__main__.py"):
                imported[module.folder] |= set[str]().union(*map(folders_of, self.imports[name])) - {module.folder}
        return imported


def docstrings(module: Module) -> set[ast.Constant]:
    """The strings that are statements: docstrings, also those of attributes."""
    statements = (node.value for node in module.of(ast.Expr))
    return {value for value in statements if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def strings(module: Module) -> Iterator[tuple[int, str]]:
    """(line, value) of every string that is not a docstring."""
    excluded = docstrings(module)
    for node in module.of(ast.Constant):
        if isinstance(node.value, str) and node not in excluded:
            yield node.lineno, node.value


def identifiers(module: Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every name that is defined, used or imported."""
    for node in module.nodes:
        for attribute in _names_of(type(node)):
            value = getattr(node, attribute, None)
            if isinstance(value, str):
                yield getattr(node, "lineno", 0), value


@cache
def _names_of(kind: type[ast.AST]) -> list[str]:
    """The fields of a node of this class that can be names."""
    return [name for name in ("id", "attr", "name", "arg", "asname", "module") if name in kind._fields]


_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_tokens(module: Module) -> list[tokenize.TokenInfo]:
    """The tokens of code, without comments, line ends, indentation and docstrings."""
    excluded = {(node.lineno, node.end_lineno or node.lineno) for node in docstrings(module)}
    return [
        token
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline)
        if token.type not in _NO_CODE
        and not any(first <= token.start[0] <= last for first, last in excluded if token.type == tokenize.STRING)
    ]


def code_lines(module: Module) -> set[int]:
    """Numbers of the lines with code, without comments, blank lines and docstrings."""
    lines = {line for token in code_tokens(module) for line in range(token.start[0], token.end[0] + 1)}
    return lines - {n for node in docstrings(module) for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def comment_lines(module: Module) -> int:
    """Number of lines that contain only a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return sum(token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip() for token in tokens)


def resolved(module: Module) -> list[tuple[int, str]]:
    """(line, name) of what a module mentions: dotted names resolved by its imports; methods of objects as ``.name``."""
    return module.mentions


def _resolved(module: Module) -> Iterator[tuple[int, str]]:
    known: dict[str, str] = {}
    for node in module.of(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    assigned = {name.id for node in module.of(ast.Assign) for name in node.targets if isinstance(name, ast.Name)}
    for node in module.of(ast.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _dotted(node.value, known)
            if value is not None and "." in value:  # read = json.loads
                known.setdefault(node.targets[0].id, value)
    for node in module.of(ast.Attribute, ast.Name):
        if isinstance(node, ast.Attribute):
            name = _dotted(node, known)
            if name is not None:
                yield node.lineno, name
            elif node.attr != "open" or _opens(module, node):
                yield node.lineno, f".{node.attr}"
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id == "open"
            and "open" not in assigned
        ):
            yield node.lineno, known.get("open", "open")


def _dotted(node: ast.expr, known: dict[str, str]) -> str | None:
    """The dotted name of a member of a module; ``None`` for members of other objects."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *reversed(parts)])


def _opens(module: Module, function: ast.Attribute) -> bool:
    """Whether a call of a method ``open`` opens a path: it has no arguments, or a mode."""
    call = next((n for n in module.of(ast.Call) if n.func is function), None)
    if call is None:
        return False
    first = call.args[0] if call.args else None
    has_mode = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return has_mode or (
        first is None and all(k.arg in ("mode", "encoding", "errors", "newline") for k in call.keywords)
    )
