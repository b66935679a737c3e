"""The k-shot curve as a picture: its points are those of the study, and it says what they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaroll.lab.figures import plots
from metaroll.lab.figures.plots import plot_k_shot_curve
from metaroll.training.evaluation.adaptation_study import AdaptationStudy
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.store.files import read_json, write_json


def example_study(num_tasks: int = 6, oracle: bool = True) -> AdaptationStudy:
    generator = np.random.default_rng(0)
    after = np.array([-15.0, -11.0, -9.5, -9.0]) + generator.normal(0, 1.5, (num_tasks, 2, 4))
    returns = np.concatenate([generator.normal(-14, 1, (num_tasks, 2, 3)), after[:, :, -1:]], axis=2)
    names = [f"task {i}" for i in range(num_tasks)]
    baselines = {"no adaptation": after[:, :, :1], "random context": after[:, :, :1] - 2.0}
    if oracle:
        baselines["task oracle"] = np.full((num_tasks, 2, 1), -5.2)
    result = EvaluationResult(returns, 3, [None] * num_tasks, names, cells=[])
    return AdaptationStudy(result, (0, 1, 2, 3), after[..., None], baselines)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: kept.append(figure.axes[0]) or path)
    return kept


def test_the_points_bars_and_baselines_are_those_of_the_study(tmp_path: Path, drawn: list[Any]) -> None:
    study = example_study()
    plot_k_shot_curve(study, tmp_path / "a.png")
    points, _, (bars,) = drawn[0].containers[0]
    np.testing.assert_allclose(points.get_xydata()[:, 0], [0, 1, 2, 3])
    np.testing.assert_allclose(points.get_xydata()[:, 1], study.k_shot_curve["mean"])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.stack([study.k_shot_curve["low"], study.k_shot_curve["high"]], axis=1))
    levels = {line.get_label(): line.get_ydata()[0] for line in drawn[0].lines if len(line.get_xdata()) == 2}
    assert levels["oracle (has access to the task)"] == pytest.approx(-5.2)
    assert levels["mismatched context (another task's data)"] == pytest.approx(study.k_shot_curve["mean"][0] - 2.0)
    assert "mean over 6 held-out tasks (2 repetitions each); bars: 95 % bootstrap interval over tasks" in [
        text.get_text() for text in drawn[0].texts
    ]


def test_rounds_are_called_rounds(tmp_path: Path, drawn: list[Any]) -> None:
    plot_k_shot_curve(example_study(), tmp_path / "a.png")
    plot_k_shot_curve(dataclasses.replace(example_study(), shot_unit="rounds"), tmp_path / "a.png")
    assert [axes.get_xlabel().split(" (")[0] for axes in drawn] == ["exploration episodes seen", "rounds of adaptation"]


def test_a_single_task_has_points_without_bars(tmp_path: Path, drawn: list[Any]) -> None:
    plot_k_shot_curve(example_study(1, oracle=False), tmp_path / "a.png")
    assert drawn[0].texts[0].get_text() == "mean over 1 held-out task (2 repetitions each)"
    assert "oracle (has access to the task)" not in drawn[0].get_legend_handles_labels()[1]


def test_labels_of_many_shots_do_not_run_into_each_other(tmp_path: Path, drawn: list[Any]) -> None:
    study = example_study()
    shots = (0, 1, 2, 3, 4, 5, 10, 20, 40, 80)
    returns = np.repeat(study.shot_returns[:, :, :1], len(shots), axis=2)
    plot_k_shot_curve(AdaptationStudy(study.result, shots, returns, study.baselines), tmp_path / "a.png")
    assert drawn[0].get_xticks().tolist() == [0, 3, 10, 20, 40, 80]


@pytest.mark.parametrize("num_tasks", [1, 6])
def test_what_was_written_to_a_file_gives_the_same_picture(tmp_path: Path, num_tasks: int) -> None:
    study = example_study(num_tasks)
    write_json(tmp_path / "evaluation.json", {**study.result.to_dict(), **study.to_dict()})
    one = plot_k_shot_curve(study, tmp_path / "a.png")
    two = plot_k_shot_curve(read_json(tmp_path / "evaluation.json"), tmp_path / "b.png")
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
