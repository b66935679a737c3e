"""Commands in texts can be pasted into a shell, because ``command_text`` quotes their arguments."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import metaroll
from metaroll.errors import command_text, in_shell, option_text
from metaroll.lab.cli.main import _COMMANDS

SOURCE = Path(metaroll.__file__).parent
_NAMES = "|".join(re.escape(usage.split()[0]) for usage in _COMMANDS)
_OPEN = re.compile(rf"\bmetaroll ({_NAMES})\b[^`;,()\n]*$")
"""A command that continues at the end of a piece of text."""


def unquoted(tree: ast.AST) -> Iterator[str]:
    """The expressions that are inserted into commands in texts without quotes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = ""
            for piece in node.values:
                if isinstance(piece, ast.Constant):
                    text += str(piece.value)
                elif isinstance(piece, ast.FormattedValue):
                    if _OPEN.search(text):
                        yield f"line {node.lineno}: {text[-60:]}{{{ast.unparse(piece.value)}}}"
                    text += "x"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('f"`metaroll resume {folder}`"', 1),
        ('f"`metaroll train {algo} {env}` does"', 2),
        ('f"metaroll "\nf"resume {folder}"', 0),
        ('f"metaroll train ALGO {name} --tasks "\nf"{folder}"', 1),
        ('(f"metaroll train ALGO SIM --tasks " f"{folder}")', 1),
        ('f"`metaroll list` shows {names}"', 0),
        ('f"continue with: {resume}"', 0),
    ],
)
def test_commands_with_values_are_found(code, count):
    assert len(list(unquoted(ast.parse(code)))) == count


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_all_commands_in_texts_come_from_command_text(path):
    assert list(unquoted(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("name", ["runs/a", "a b", "it's", "$(rm -r x)", "a;b", "-x", "ünï", "a\nb", "*"])
def test_a_shell_reads_commands_as_intended(name):
    assert shlex.split(command_text("resume", Path(name), "--epochs", "N")) == [
        *("metaroll", "resume", name, "--epochs", "N")
    ]
    with in_shell():
        assert shlex.split(option_text("run_dir", name)) == ["--out", name]
        assert shlex.split(option_text("hidden_sizes", [64, 64])) == ["--hidden-sizes", "64", "64"]
