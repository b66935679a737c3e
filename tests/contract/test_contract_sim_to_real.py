"""What docs/sim_to_real.md says works when it is pasted, and docs/simulators.md matches the simulators."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from doc_pages import page, python_blocks, run_script

from metaroll.envs.sims.catalog import SIMS, CatapultEnv, QCartPoleStabEnv
from metaroll.lab.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = page("sim_to_real.md")
SIMULATORS = page("simulators.md")
SMALL = {
    "ppo": "--epochs 1 --steps-per-epoch 50",
    "distill": "--epochs 1 --steps-per-epoch 50 --hidden-sizes 8",
    "epopt": "--epochs 1 --rollouts-per-epoch 5",
    "hill-climbing": "--epochs 1 --pop-size 4",
}
TOLD = [
    "0.2 0.127 [0.  0.1 0.  0. ]",
    "(500, 5)",
    "(4,) [-1.]",
    "['actuator_gear:bthigh', 'body_mass:torso', 'dof_damping:*', 'geom_friction:*']",
    "10 True",
    "(64,) 512",
    "20 [0.1, 0.2, 0.3]",
    "True",
    "the nearest: {'pole_mass': 0.3}",
    "300 ['device', 'torch']",
]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("simulator_table", ROOT / "tools" / "simulator_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocks_of_python_run_one_after_the_other(tmp_path):
    blocks = python_blocks(PAGE)
    assert len(blocks) == 9
    code, count = re.subn(r"(?<=SamplerPool\()2(?=\))|(?<=live, policy, )2(?=, min)", "1", "\n".join(blocks))
    assert count == 2  # any number of workers does the same
    lines = run_script(tmp_path, code).splitlines()
    assert [line for line in TOLD if line not in lines] == []
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"map.json", "map.csv", "map.png"}
    (block,) = python_blocks(SIMULATORS)
    assert run_script(tmp_path, f"{block}\nprint(env.unwrapped.domain_param['pole_mass'])") == "0.2\n"


def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ metaroll ([^#\n]*)", PAGE, flags=re.MULTILINE)
    kinds = []
    for command in commands:
        words = command.split()
        kinds.append(words[0] if words[0] != "train" else words[1])
        if "ray" in words:  # a cluster of its own; run by the tests of the Ray transport
            continue
        small = [*SMALL[words[1]].split(), "--num-test-tasks", "2"] if words[0] == "train" else ["--episodes", "2"]
        small += ["--torch-threads", "1"] if words[0] == "train" else []
        assert main([*words, *small, "--quiet"]) == 0, command
    assert kinds == ["ppo", "distill", "epopt", "hill-climbing", "ppo", "evaluate", "robustness", "ppo"]
    assert (tmp_path / "runs" / "epopt-qcp-st-0" / "robustness-pole_length-pole_mass.csv").exists()


def test_the_page_of_simulators_is_up_to_date(tool):
    assert tool.main(["--check"]) == 0, "docs/simulators.md is out of date: run python tools/simulator_table.py"
    assert [entry.id for entry in SIMS if f"\n`{entry.id}`, `{entry.env_type.__name__}`; " not in SIMULATORS] == []


def test_bounds_name_the_constants_that_they_depend_on(tool):
    """Quanser's rail is ``rail_length`` long; a catapult throws as high as it likes."""
    assert tool.bounding_parameters(QCartPoleStabEnv(), lambda env: (env.state_space.high,)) == ["rail_length"]
    assert tool.bounding_parameters(CatapultEnv(), lambda env: (env.state_space.high, env.act_space.high)) == []


@pytest.mark.parametrize(
    ("bounds", "unit", "text"),
    [
        ((-1.0, 1.0), "m", "+-1"),
        ((0.0, 0.0), "rad", "0"),
        ((-3.141592653589793, 3.141592653589793), "rad", "+-3.1416 (+-180 deg)"),
        ((-0.75, -0.65), "m", "-0.75 to -0.65"),
        ((-float("inf"), float("inf")), "m", "any"),
    ],
)
def test_bounds_are_written_short(tool, bounds, unit, text):
    assert tool.bounds_text(*bounds, unit) == text
