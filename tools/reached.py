"""Finds the top-level functions, classes and assignments that documented names reach, by the names that they use."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from source_trees import Module, Source

__all__ = ["unreached_lines"]

_Key = tuple[str, str]


def unreached_lines(source: Source) -> int:
    """Lines that no documented name reaches; a key is a module and a top-level name, "" for the module itself."""
    statements, imported = _top_level(source), _imported(source)
    reached: set[_Key] = set()
    waiting = list(_documented(source))
    entered: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key in reached or key[0] not in source.modules:
            continue
        reached.add(key)
        home, name = key
        if home not in entered:
            entered.add(home)
            for node in source.modules[home].tree.body:
                if not isinstance(node, _DEFINES | ast.Import | ast.ImportFrom | ast.If):
                    waiting += _names_in(node, home, statements, imported)
        for node in statements[home].get(name, ()):
            waiting += _names_in(node, home, statements, imported)
        if name not in statements[home] and name in imported[home]:
            waiting.append(imported[home][name])
    return sum(_lines_left(module, module.name in entered, statements, reached) for module in source.modules.values())


_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


def _lines_left(
    module: Module, is_entered: bool, statements: Mapping[str, Mapping[str, list[ast.stmt]]], reached: set[_Key]
) -> int:
    if not is_entered:
        return len(module.text.splitlines())
    lines: set[int] = set()
    for name, nodes in statements[module.name].items():
        if (module.name, name) not in reached:
            for node in nodes:
                first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
                lines |= set(range(first, (node.end_lineno or first) + 1))
    return len(lines)


def _documented(source: Source) -> Iterator[_Key]:
    """The names in the tables of ``compat/``: module of the package -> names there."""
    package = min(source.modules, key=len)
    for module in source.modules.values():
        for node in module.nodes if module.path.startswith("compat/") else ():
            if not isinstance(node, ast.Dict):
                continue
            for place, names in zip(node.keys, node.values, strict=True):
                home = f"{package}.{place.value}" if isinstance(place, ast.Constant) else ""
                if home in source.modules and isinstance(names, ast.List):
                    yield from ((home, str(name.value)) for name in names.elts if isinstance(name, ast.Constant))


def _top_level(source: Source) -> dict[str, dict[str, list[ast.stmt]]]:
    """Module -> name -> the top-level statements that define it."""
    statements: dict[str, dict[str, list[ast.stmt]]] = {}
    for module in source.modules.values():
        names = statements.setdefault(module.name, {})
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in {inner.id for t in targets for inner in ast.walk(t) if isinstance(inner, ast.Name)}:
                    names.setdefault(name, []).append(node)
    return statements


def _imported(source: Source) -> dict[str, dict[str, _Key]]:
    """Module -> name -> the key that is imported under this name."""
    imported: dict[str, dict[str, _Key]] = {}
    for module in source.modules.values():
        names = imported.setdefault(module.name, {})
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                for alias, origin in zip(node.names, source.origins(node, module), strict=True):
                    names[alias.asname or alias.name] = origin
            elif isinstance(node, ast.Import):
                names |= {a.asname: (a.name, "") for a in node.names if a.asname and a.name in source.modules}
    return imported


def _names_in(
    statement: ast.stmt,
    home: str,
    statements: Mapping[str, Mapping[str, list[ast.stmt]]],
    imported: Mapping[str, Mapping[str, _Key]],
) -> Iterator[_Key]:
    own, others = statements[home], imported[home]
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            if node.id in own:
                yield home, node.id
            elif node.id in others:
                yield others[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place, name = others.get(node.value.id, ("", "-"))
            if not name:
                yield place, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in own:
            yield home, node.value
