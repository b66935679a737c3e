"""The code of docs/python.md runs as it is, except for smaller numbers where it would train for a long time."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import page, python_blocks, run_script

TINY = (
    "num_train_tasks=4, num_test_tasks=2, num_initial_steps=20, num_steps_prior=20, num_tasks_sample=2, "
    "num_steps_per_epoch=3, meta_batch_size=2, hidden_sizes=(8,), encoder_hidden_sizes=(8,)"
)


@pytest.mark.parametrize("number", range(5))
def test_the_code_runs(number: int, tmp_path: Path) -> None:
    blocks = python_blocks(page("python.md"))
    assert len(blocks) == 5
    code = blocks[number].replace('size="small"', f'size="small", {TINY}')
    shown = run_script(tmp_path, code)
    assert "epoch 1/" in shown
    assert any((tmp_path / "runs").iterdir())


def test_names_in_the_table_exist() -> None:
    import metaroll

    text = page("python.md")
    for name in (
        "learn",
        "act",
        "reset",
        "evaluate",
        "explore",
        "adapt",
        "save",
        "algo",
        "policy",
        "config",
        "run_dir",
    ):
        assert f"agent.{name}" in text or f"`{name}`" in text
        assert hasattr(metaroll.Agent, name) or name in ("config", "run_dir")
