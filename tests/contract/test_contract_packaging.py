"""Contents of the built package, and tested versions, which must satisfy the declared bounds (design.md 6)."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import metaroll

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
}
TESTED_EXTRAS = ("fast", "mujoco", "tables", "dev")
TESTED = [*PROJECT["dependencies"], *(r for e in TESTED_EXTRAS for r in PROJECT["optional-dependencies"][e])]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_wheel_holds_every_module_the_types_and_the_license(wheel: zipfile.ZipFile) -> None:
    shipped = set(wheel.namelist())
    sources = {f"metaroll/{p.relative_to(ROOT / 'src' / 'metaroll')}" for p in (ROOT / "src").rglob("*.py")}
    assert sources <= shipped
    assert {
        "metaroll/py.typed",
        "metaroll/__init__.pyi",
        "metaroll/_agent.pyi",
        "metaroll/plugins/__init__.pyi",
    } <= shipped
    assert any(name.endswith("licenses/LICENSE") for name in shipped)
    assert {name.split("/")[0] for name in shipped} == {"metaroll", f"metaroll-{metaroll.__version__}.dist-info"}


def test_version_has_one_source() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", metaroll.__version__)
    assert importlib.metadata.version("metaroll") == metaroll.__version__


def test_console_script_is_callable() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="metaroll")
    assert script.value == "metaroll.__main__:main"
    assert callable(script.load())


@pytest.mark.parametrize("text", TESTED)
def test_tested_version_fits_the_declared_bound(text: str) -> None:
    requirement = Requirement(text)
    pinned = PINNED.get(canonicalize_name(requirement.name))
    assert pinned, f"constraints.txt does not pin {requirement.name}"
    assert requirement.specifier.contains(pinned)
    assert all(spec.operator == ">=" for spec in requirement.specifier), "pyproject.toml holds lower bounds only"


def test_constraints_hold_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []


def test_changelog_mentions_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{metaroll.__version__}]" in text


def test_every_extra_of_the_design_is_declared() -> None:
    expected = {"fast", "mujoco", "metaworld", "sbi", "ray", "plot", "tables", "tensorboard", "wandb", "minari", "onnx"}
    assert expected | {"envpool", "video", "dev", "all"} == set(PROJECT["optional-dependencies"])
