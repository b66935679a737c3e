"""Every example script runs."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from doc_pages import run_script

import metaroll
from metaroll.configs import EstimatorConfig
from metaroll.lab.cli.main import main
from metaroll.lab.inferring import inferring

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
FAMILIES = {"two_link_arm": ("family", "slow_family")}
"""Those that are no scripts, and their families of tasks."""
QUICK = {
    "hopper_from_logs": ("policy trained on the posterior", {"nominal", "inference", "posterior", "report.html"}),
    "adapt_on_a_posterior": ("after it had adapted", {"posterior", "pearl"}),
}
"""Those that take minutes, what they print at last, and what they leave behind."""
SCRIPTS = [path for path in EXAMPLES if path.stem not in (*FAMILIES, *QUICK)]


@pytest.mark.parametrize(("module", "name"), [(m, name) for m, names in FAMILIES.items() for name in names])
def test_example_families_are_well_made(module: str, name: str, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    assert main(["check", f"{module}:{name}", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"], report


@pytest.mark.usefixtures("lent_pools")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    assert "return on tasks it never saw -" in run_script(tmp_path, script.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "end", "folders"), [(name, *told) for name, told in QUICK.items()])
def test_all_steps_of_an_example_of_minutes(name: str, end: str, folders: set, tmp_path, monkeypatch, capsys) -> None:
    """In this process, which has imported everything already; with a network that is not trained for long."""
    short = EstimatorConfig(max_epochs=2, num_transforms=1, hidden_features=8)
    monkeypatch.setattr(inferring, "infer_config", lambda options: short)
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--out", str(tmp_path / "out")])
    ran = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert end in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == folders
    for run in {"pearl"} & folders:  # an environment that a script has given, with the tasks of a posterior
        again = metaroll.load(tmp_path / "out" / run, env=ran["robot"])
        assert again.env_spec.obs_dim == 4 and len(again.train_tasks) == 4
