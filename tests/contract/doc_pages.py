"""Helpers for tests that run the code of documentation pages."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from metaroll.lab.cli.main import main

_DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """The text of a page."""
    return (_DOCS / name).read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_script(folder: Path, code: str) -> str:
    """Run ``code`` as a script in ``folder``; returns its output.

    It runs in this process, which has imported everything already. That scripts also run in a process of their own,
    from a file, from a terminal or without a ``__main__`` guard, is the subject of the tests of the README.
    """
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    with _at_home_in(folder) as out:
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def run_command(folder: Path, command: str) -> str:
    """Run ``metaroll`` with these arguments in ``folder``, and require success; returns its output."""
    with _at_home_in(folder) as out:
        assert main(command.split()) == 0, command
    return out.getvalue()


@contextlib.contextmanager
def _at_home_in(folder: Path) -> Iterator[io.StringIO]:
    """Work in ``folder``, whose modules can be imported meanwhile; yields the captured output."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            yield out
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
