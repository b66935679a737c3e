"""``import metaroll`` is cheap, its names are lazy, and heavy extras stay behind their doors (design.md 2)."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import metaroll

HEAVY = {"torch", "gymnasium", "scipy", "numba", "mujoco", "matplotlib", "rich", "tyro", "yaml", "safetensors", "ray"}
BEHIND_A_DOOR = {
    "mujoco",
    "matplotlib",
    "ray",
    "metaworld",
    "sbi",
    "sklearn",
    "wandb",
    "minari",
    "onnx",
    "envpool",
    "imageio",
    "imageio_ffmpeg",
    "tensorboard",
    "numba",
    "pandas",
    "pyarrow",
}


def loaded_by(code: str, folder: Path | None = None) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has loaded after ``code``."""
    code += "\nimport sys, json\nprint(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False, cwd=folder
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_importing_metaroll_loads_nothing_heavy() -> None:
    assert not loaded_by("import metaroll") & HEAVY


def test_help_and_lists_import_no_learner_and_no_simulator(tmp_path: Path) -> None:
    """One after the other in one interpreter: none of them may load anything, so no order hides it."""
    commands = ["--help", "list", *(f"train{algo} --help" for algo in ("", " sac", " snes", " pgpe", " es"))]
    code = f"""
import sys
from metaroll.lab.cli.main import main
for command in {commands!r}:
    assert main(command.split()) == 0, command
    assert not {{"torch", "mujoco"}} & sys.modules.keys(), command
"""
    assert not loaded_by(code, tmp_path) & {"torch", "mujoco"}


def test_a_search_plugin_imports_no_torch(tmp_path: Path) -> None:
    names = "Config, Positive, Search, SearchState, Whole, checked_mean, normal_rows, shaped"
    loaded = loaded_by(f"import metaroll.contrib.snes\nfrom metaroll.plugins import {names}", tmp_path)
    assert not loaded & {"torch", "gymnasium", "mujoco"}


@pytest.mark.parametrize("name", metaroll.plugins.__all__)
def test_every_name_of_plugins_exists(name: str) -> None:
    assert getattr(metaroll.plugins, name) is not None
    assert name in dir(metaroll.plugins)


def test_importing_every_module_and_every_name_opens_no_door() -> None:
    names = [module.name for module in pkgutil.walk_packages(metaroll.__path__, "metaroll.")]
    assert len(names) > 30
    assert not loaded_by(f"import {', '.join(names)}\nfrom metaroll import *") & BEHIND_A_DOOR


@pytest.mark.parametrize("name", metaroll.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(metaroll, name) is not None
    assert name in dir(metaroll)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PERAL'"):
        _ = metaroll.PERAL


ROOMS = ("contrib", "lab", "policies", "search", "sims", "statistics", "wrappers")
MOVED = [(room, name) for room in ROOMS for name in getattr(metaroll, room).__all__ if name != "infer"]


@pytest.mark.parametrize(("room", "name"), MOVED)
def test_names_of_rooms_can_be_loaded_from_their_former_place_for_one_release(room: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"metaroll\.{name} is metaroll\.{room}\.{name} now; .* removed"):
        assert getattr(metaroll, name) is getattr(getattr(metaroll, room), name)
    assert name not in metaroll.__all__


def test_a_from_import_of_a_moved_name_warns_once() -> None:
    with pytest.warns(DeprecationWarning) as caught:
        exec("from metaroll import PendulumEnv")
    assert len(caught) == 1


def test_names_that_were_never_in_metaroll_are_not_found_there() -> None:
    for name in ("SACConfig", "check_learner", "GaussianHead"):
        with pytest.raises(AttributeError, match=name):
            getattr(metaroll, name)
