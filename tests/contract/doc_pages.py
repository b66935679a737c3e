"""Pages of the documentation, as tests read and run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """The text of a page."""
    return (_DOCS / name).read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    """Its blocks of Python, in order."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_python(folder: Path, *arguments: str) -> str:
    """What Python prints when it is run in ``folder``; fails where it fails."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
