"""``metrics.jsonl``: long format, one append per epoch, cut back on resume (design.md 5)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from metaroll.training.store.metrics_log import FILE_NAME, MetricsLog, read_metrics


def test_lines_are_json_in_long_format(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(3, 600, "train", {"loss": np.float32(0.5), "count": 7})
    log.append(3, 600, "MetaTest", {"return_after": torch.tensor(-1.25)}, task="task 0")
    assert not (tmp_path / FILE_NAME).exists()  # an epoch is written at once, not line by line
    log.flush()
    lines = [json.loads(line) for line in (tmp_path / FILE_NAME).read_text().splitlines()]
    head = {"iteration": 3, "env_steps": 600}
    assert lines == [
        {**head, "phase": "train", "task": None, "metric": "loss", "value": 0.5},
        {**head, "phase": "train", "task": None, "metric": "count", "value": 7},
        {**head, "phase": "MetaTest", "task": "task 0", "metric": "return_after", "value": -1.25},
    ]


def test_non_finite_numbers_are_valid_json_and_come_back(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(0, 0, "train", {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    log.flush()
    text = (tmp_path / FILE_NAME).read_text()
    assert "NaN" not in text
    values = [row["value"] for row in read_metrics(tmp_path)]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1.0]


def test_truncate_forgets_what_came_after(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(0, 0, "train", {"a": 1.0})
    offset = log.flush()
    assert offset == (tmp_path / FILE_NAME).stat().st_size
    log.append(1, 0, "train", {"a": 2.0})
    log.flush()
    log.append(2, 0, "train", {"a": 3.0})  # pending
    log.truncate(offset)
    log.flush()
    assert [row["value"] for row in read_metrics(tmp_path)] == [1.0]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(0, 0, "train", {"a": 1.0, "b": 2.0})
    log.flush()
    whole = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(whole[:-5])
    assert [row["metric"] for row in read_metrics(tmp_path)] == ["a"]


def test_rows_are_chosen_by_phase_and_metric(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(0, 0, "train", {"a": 1.0, "b": 2.0})
    log.append(0, 0, "time", {"a": 3.0})
    log.flush()
    assert [row["value"] for row in read_metrics(tmp_path, phase="train")] == [1.0, 2.0]
    assert [row["value"] for row in read_metrics(tmp_path, metric="a")] == [1.0, 3.0]


def test_without_a_folder_nothing_is_written() -> None:
    log = MetricsLog(None)
    log.append(0, 0, "train", {"a": 1.0})
    assert log.flush() == 0


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"metric 'loss' must be one number"):
        MetricsLog(tmp_path).append(0, 0, "train", {"loss": np.zeros(2)})
    with pytest.raises(FileNotFoundError, match="holds no metrics"):
        read_metrics(tmp_path)
    (tmp_path / FILE_NAME).write_text("{]\n")
    with pytest.raises(ValueError, match=r"metrics.jsonl: line 1: it is not valid JSON"):
        read_metrics(tmp_path)
