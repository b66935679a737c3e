"""What is written from other source: the stub of ``metaroll``, and the names of its families of tasks.

``src/metaroll/__init__.pyi`` is what editors and type checkers read of the names that ``metaroll`` loads lazily;
``src/metaroll/envs/lookup/family_names.py`` lists families for those who do not wait for simulators to be loaded.

python tools/stubs.py --write   write them
python tools/stubs.py --check   1 if it is out of date, 0 otherwise
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["FAMILIES", "STUB", "families_text", "stub_text"]

PACKAGE = Path(__file__).parents[1] / "src" / "metaroll"
STUB = PACKAGE / "__init__.pyi"
FAMILIES = PACKAGE / "envs" / "lookup" / "family_names.py"

_HEAD = '''"""The public names of metaroll, and where they are defined; written by tools/stubs.py."""

'''
_WIDTH = 120


def stub_text(source: str) -> str:
    """The stub of a package.

    Args:
        source: Text of its ``__init__.py``, with ``_MODULES`` (module -> public names) and ``_ROOMS`` (packages that
            are attributes).

    Raises:
        ValueError: One of them is missing.
    """
    table = _constant(source, "_MODULES")
    rooms = "".join(f"from metaroll import {room} as {room}\n" for room in _constant(source, "_ROOMS"))
    imports = [rooms, *(_import(module, names) for module, names in sorted(table.items()))]
    public = sorted(["__version__", *(name for names in table.values() for name in names)], key=_place)
    listed = "".join(f'    "{name}",\n' for name in public)
    return f"{_HEAD}{''.join(imports)}\n__version__: str\n\n__all__ = [\n{listed}]\n"


def families_text() -> str:
    """The module of names of families."""
    from metaroll.envs.base.task_family import registered_families
    from metaroll.envs.lookup import registry  # importing it registers all

    rows = "".join(f'    "{name}",\n' for name in registered_families() if registry.has_family(name))
    head = '"""Names of all families of tasks; written by tools/stubs.py."""\n\n__all__ = ["FAMILY_NAMES"]\n'
    return f"{head}\nFAMILY_NAMES = (\n{rows})\n"


def _constant(source: str, name: str) -> Any:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"there is no {name}: _MODULES = {{module: [names]}}, _ROOMS = (package,)")


def _import(module: str, names: Sequence[str]) -> str:
    """One statement, as ``make format`` leaves it."""
    ordered = sorted(names, key=_place)
    line = f"from metaroll.{module} import {', '.join(ordered)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    rows = "".join(f"    {name},\n" for name in ordered)
    return f"from metaroll.{module} import (\n{rows})\n"


def _place(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the stub, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the stub")
    action.add_argument("--check", action="store_true", help="compare it with the table")
    given = parser.parse_args(arguments)
    texts = {STUB: stub_text((PACKAGE / "__init__.py").read_text("utf-8")), FAMILIES: families_text()}
    if given.write:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        return 0
    old = [path for path, text in texts.items() if not (path.is_file() and path.read_text("utf-8") == text)]
    for path in old:
        print(f"{path} is out of date: run python tools/stubs.py --write", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
