"""What docs/your_simulator.md says works when it is pasted."""

from __future__ import annotations

import json
import re

from doc_pages import page, python_blocks, run_command, run_script

from metaroll.configs import EstimatorConfig
from metaroll.lab.inferring import inferring

PAGE = page("your_simulator.md")


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """With a network that is not trained for long."""
    short = EstimatorConfig(max_epochs=2, num_transforms=1, hidden_features=8)
    monkeypatch.setattr(inferring, "infer_config", lambda options: short)
    module, log = python_blocks(PAGE)
    (tmp_path / "my_cart.py").write_text(module)
    run_script(tmp_path, log)
    [command] = re.findall(r"^\$ metaroll (.*)$", PAGE, flags=re.MULTILINE)
    told = run_command(tmp_path, f"{command} --no-checks --num-simulations 60 --rounds 1")
    assert re.search(r"sensor noise: entry 0 0\.\d+, entry 1 0\.\d+, estimated from the log", told), told
    found = json.loads((tmp_path / "runs" / "infer-cart" / "inference.json").read_text())
    assert [row["name"] for row in found["parameters"]] == ["mass", "friction"]
    noise = found["noise"]["std"]
    assert 0.15 < noise["0"] < 0.27 and 0.0075 < noise["1"] < 0.0135
