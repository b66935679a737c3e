"""tools/architecture.py finds what it is there to find, and finds nothing in the source."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "tools" / "architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["architecture"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


PLANTED = {
    "import cycle": (
        {
            "data/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from metaroll.data.b import B",
            "data/b.py": "def f():\n    from metaroll.data import a",
        },
        "import cycle: metaroll.data.a, metaroll.data.b",
    ),
    "folders that import each other": (
        {
            "data/a.py": "import metaroll.tasks.a",
            "tasks/a.py": "",
            "tasks/b.py": "from metaroll.data.b import x",
            "data/b.py": "",
        },
        "folders that import each other: data and tasks",
    ),
    "a folder that is too full": ({f"data/m{i}.py": "" for i in range(21)}, "data has 21 modules"),
    "a module that there is not": (
        {"data/a.py": "from metaroll.data.gone import x"},
        "metaroll.data.gone, which there",
    ),
    "an import upwards by a string": (
        {"data/a.py": "HOME = 'metaroll.tasks.a'", "tasks/a.py": "import metaroll.data.a"},
        "data/a.py names metaroll.tasks.a in a string",
    ),
    "a name that is put together": (
        {"data/a.py": "import importlib\ndef f(x):\n    return importlib.import_module(f'metaroll.{x}')"},
        "data/a.py imports a module of ours by a name that it puts together",
    ),
    "a chain of classes": (
        {
            "data/a.py": "from abc import ABC\nclass A(ABC): pass\nclass B(A, ABC): pass\nclass C(B, ABC): pass",
            "data/b.py": "from metaroll.data.a import C as Parent\nclass D(Parent): pass",
        },
        "data/b.py: D is 4 classes deep",
    ),
    "a concrete parent": (
        {"data/a.py": "class A:\n    def __init__(self): pass\nclass B(A): pass"},
        "data/a.py: B extends A, which is concrete",
    ),
    "an abstract parent that is made": (
        {"data/a.py": "from abc import ABC\nclass A(ABC): pass\nclass B(A): pass\na = A()"},
        "data/a.py: B extends A, which is concrete",
    ),
    "an algorithm's name": (
        {"data/a.py": "def f(name):\n    return name == 'pearl'"},
        "data/a.py names an algorithm (line 2): 'pearl'",
    ),
    "an algorithm's name in a class": ({"data/a.py": "class PPOBuffer: pass"}, "data/a.py names an algorithm"),
    "a second reader": (
        {"data/a.py": "import numpy as n\nx = n.load('a')"},
        "data/a.py (line 2) reads a file in a format by numpy.load: only data/doors/ may",
    ),
    "a second reader by a name of its own": (
        {"data/a.py": "from json import loads as read\n"},
        "data/a.py (line 1) reads a file in a format by json.loads",
    ),
    "a reader that is handed on": (
        {"data/a.py": "import yaml\nread = yaml.safe_load\n"},
        "data/a.py (line 2) reads a file in a format by yaml.safe_load",
    ),
    "a file that is opened": ({"data/a.py": "with open('a') as f: pass"}, "data/a.py (line 1) opens a file by open"),
    "a path that is opened": (
        {"data/a.py": "def f(path):\n    return path.open('rb').read(), path.read_text()"},
        "data/a.py (line 2) opens a file by .read_text",
    ),
    "a folder that is removed": (
        {"data/a.py": "import shutil\ndef f(p):\n    shutil.rmtree(p)"},
        "data/a.py (line 3) removes or cuts by shutil.rmtree: only data/folders/ may",
    ),
    "a second way to have children": (
        {"data/a.py": "from concurrent.futures import ProcessPoolExecutor as Pool"},
        "data/a.py (line 1) starts a process by concurrent.futures.ProcessPoolExecutor: only processes/ may",
    ),
    "a fork": ({"data/a.py": "import os\nos.fork()"}, "data/a.py (line 2) starts a process by os.fork"),
    "a reason that nothing needs": ({"data/a.py": ""}, "cli/main.py does not use os.open: take it out of ELSEWHERE"),
    "probes": ({"data/a.py": "x = getattr(1, 'real', 0)\n" * 60}, "60 probes of literal names"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_breach_is_named(name: str, tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files, expected = PLANTED[name]
    for path, text in files.items():
        target = tmp_path / "metaroll" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(text, encoding="utf-8")
    (tmp_path / "metaroll" / "__init__.py").touch()

    assert tool.main(["--check", "--source", str(tmp_path / "metaroll")]) == 1
    assert expected in capsys.readouterr().out


def test_what_is_allowed_is_not_named(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    package = tmp_path / "metaroll"
    (package / "learners").mkdir(parents=True)
    (package / "learners" / "pearl.py").write_text("class PEARL: pass", encoding="utf-8")
    (package / "learners" / "base.py").write_text(
        '"""Such as PEARL."""\nclass Mixin:\n    """Of PPO."""\nclass A(Mixin): pass  # PPO', encoding="utf-8"
    )
    (package / "__init__.py").touch()

    tool.main(["--check", "--source", str(package)])

    assert "learners/" not in capsys.readouterr().out


def test_the_source_keeps_the_rules_and_the_picture_is_up_to_date(
    tool: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    assert tool.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_the_pages_about_the_code_name_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(r"`(\w[\w/.]*(?:/|\.py|\.svg|\.yaml|\.json))[` ]", text)}
    rooms = ("src", "tests", "tools", "benchmarks")
    files = [path.relative_to(ROOT).as_posix() for room in rooms for path in (ROOT / room).rglob("*")]
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)}
    assert len(named) > 5 and not missing
