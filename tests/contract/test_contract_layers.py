"""Who may import whom (design.md 2), and the shape of modules (style.md 4)."""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "metaroll"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (PACKAGE, PACKAGE / "configs", PACKAGE / "plugins", PACKAGE / "testing")
"""Packages whose ``__init__`` lists public names."""


def test_imports_go_downwards_only() -> None:
    lint_imports = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert lint_imports, "import-linter is missing: pip install -e '.[dev]'"
    result = subprocess.run(
        [lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


ROOMS = ("configs", "contrib", "lab", "plugins", "policies", "testing")
"""Packages that offer public names."""


def exported(tree: ast.Module) -> list[str] | None:
    """The names of a literal ``__all__``, or None if there is none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)]
        if "__all__" in names:
            value = node.value
            return [e.value for e in value.elts if isinstance(e, ast.Constant)] if isinstance(value, ast.List) else []
    return None


def flaws_of(path: Path) -> Iterator[str]:
    """What is wrong with the shape of a module."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "has no docstring"
    if path.name == "__init__.py":
        if path.parent not in (PACKAGE, *(PACKAGE / room for room in ROOMS)) and len(tree.body) != 1:
            yield "is more than one docstring, which is all that a sub-package says in its __init__"
        return
    names = exported(tree)
    if names is None:
        yield "has no __all__"


def test_shape_of_modules() -> None:
    flaws = [f"{path.relative_to(PACKAGE)} {flaw}" for path in MODULES for flaw in flaws_of(path)]
    assert flaws == []


def imports_of(path: Path) -> set[str]:
    """Names of our modules that a module imports anywhere, for type checkers only or inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


PLUGINS = [path for path in MODULES if path.parent.name == "contrib" and path.name != "__init__.py"]
PLUGINS += sorted((ROOT / "examples" / "plugins").glob("*.py"))
FOR_PLUGINS = ("configs", "plugins", "policies", "search", "statistics", "wrappers")
PUBLIC = ("metaroll", *(f"metaroll.{room}" for room in FOR_PLUGINS))


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_plugins_import_only_public_names(path: Path) -> None:
    ours: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            ours += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a plug-in is one file"
            ours += [(node.module or "", alias.name) for alias in node.names]
    ours = [(module, name) for module, name in ours if module.partition(".")[0] == "metaroll"]
    public = {module: {*importlib.import_module(module).__all__} for module in PUBLIC}
    assert [one for one in ours if one[1] not in public.get(one[0], ())] == []


def test_entry_points_of_the_distribution_are_those_of_contrib() -> None:
    declared: dict[str, dict[str, str]] = {}
    for point in metadata.Distribution.at(PACKAGE / "contrib").entry_points:
        declared.setdefault(point.group, {})[point.name] = point.value
    assert declared == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    modules = {value.partition(":")[0] for group in declared.values() for value in group.values()}
    assert modules == {f"metaroll.contrib.{path.stem}" for path in PLUGINS if path.parent.name == "contrib"}


def test_there_are_no_import_cycles() -> None:
    folders = ("functional", "data", "tasks")
    paths = {f"metaroll.{f}.{path.stem}": path for f in folders for path in (PACKAGE / f).glob("*.py")}
    below = {name: imports_of(path) & paths.keys() for name, path in paths.items()}
    while True:
        wider = {name: names.union(*(below[other] for other in names)) for name, names in below.items()}
        if wider == below:
            break
        below = wider
    assert [name for name, names in below.items() if name in names] == []
