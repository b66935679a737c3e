"""What docs/robot_logs.md says works when it is pasted."""

from __future__ import annotations

import re

import pytest
import yaml
from doc_pages import page, python_blocks

from metaroll.lab import LogMapping
from metaroll.lab.cli.main import main

PAGE = page("robot_logs.md")


@pytest.mark.filterwarnings("ignore:.*some were longer:UserWarning")  # its device runs in real time, on any machine
def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, *others = python_blocks(PAGE)
    names: dict = {}
    exec(first, names)
    (mapping,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "swing.yaml").write_text(mapping)
    (command,) = re.findall(r"^\$ metaroll (.*)", PAGE, flags=re.MULTILINE)
    assert main(command.split()) == 0
    assert "50 steps, 1 s in steps of 0.02 s, from swing.csv" in capsys.readouterr().out
    for block in others:
        exec(block, names)
    assert capsys.readouterr().out.splitlines() == [
        "50 (51, 3) (50, 1) True",
        "rows, 5 ms apart, were gathered into steps of 20 ms: actions are means over steps []",
        "Lag(steps=0.0, low=0.0, high=0.05)",
        "['theta changes by 0.01745 times what theta_dot says: one of them is in degrees (then write unit: deg, or "
        "deg/s, in the mapping)']",
        "[1. 0.] (51, 2)",
        "[0.4, 2, 0.02, 1.2]",
        "50 True False",
        "50 True",
    ]
    assert names["same"].states[0] == pytest.approx(names["start"])
    assert LogMapping.of(yaml.safe_load(mapping)).max_gap == 0.02
