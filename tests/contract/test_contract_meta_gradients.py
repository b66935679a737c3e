"""What docs/meta_gradients.md says works when it is pasted."""

from __future__ import annotations

import inspect
import re

from doc_pages import page, python_blocks, run_script

PAGE = page("meta_gradients.md")
TINY = "meta_batch_size=2, rollouts_per_task=3, num_train_tasks=4, num_test_tasks=2, evaluate_every=0"


def test_the_code_runs(tmp_path):
    (code,) = python_blocks(PAGE)
    shown = run_script(tmp_path, code.replace('size="small"', f'size="small", {TINY}'))
    assert "action: [" in shown


def test_options_and_numbers_on_the_page_exist():
    from metaroll.learners.maml.collecting import MetaSamples
    from metaroll.training.session.experiments import run_options

    known = {option.name for name in ("maml", "promp", "dice") for option in run_options(name)}
    metrics = inspect.getsource(MetaSamples.metrics)
    tables = re.findall(r"^\| (`.*?) \|", PAGE, flags=re.MULTILINE)
    named = {name for cell in tables for name in re.findall(r"`(\w+)`", cell)} - {"maml", "promp", "dice"}
    logged = {name for name in named if f'"{name}"' in metrics}
    assert {"gain", "share_worse", "inner_kl", "gradient_cosine"} <= logged
    assert named - logged - {"change"} <= known  # an evaluation tells the change
