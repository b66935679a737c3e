"""Pictures are written whole, show what they are given, and leave matplotlib's globals alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaroll.lab.figures import plots
from metaroll.lab.figures.plots import plot_adaptation_curve, plot_learning_curve
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.store.metrics_log import MetricsLog

PNG = b"\x89PNG\r\n\x1a\n"


def example_result(num_tasks: int = 20) -> EvaluationResult:
    generator = np.random.default_rng(0)
    means = np.array([-15.0, -13.0, -11.0, -10.0, -9.5, -9.0])
    returns = means + generator.normal(0, 2.5, (num_tasks, 2, 6))
    return EvaluationResult(returns, 5, [None] * num_tasks, [f"task {i}" for i in range(num_tasks)], cells=[])


def write_metrics(run_dir: Path, epochs: int = 12) -> None:
    log = MetricsLog(run_dir)
    for epoch in range(epochs):
        before, after = -20 + 0.4 * epoch, -20 + 0.9 * epoch
        values: dict[str, Any] = {"return_before": before, "return_after": after}
        for name, value in list(values.items()):
            values[f"{name}_ci_low"], values[f"{name}_ci_high"] = value - 1.5, value + 1.5
        log.append(epoch, 2000 * (epoch + 1), "MetaTest", values)
        log.append(epoch, 2000 * (epoch + 1), "MetaTest", {"return_after": 0.0}, task="task 0")
    log.flush()


def test_the_learning_curve(tmp_path: Path) -> None:
    write_metrics(tmp_path)
    path = plot_learning_curve(tmp_path, references={"floor": -15.9, "oracle": -5.2})
    assert path == tmp_path / "learning_curve.png"
    assert path.read_bytes().startswith(PNG)
    plain = plot_learning_curve(tmp_path, tmp_path / "plots" / "other.png")
    assert plain.read_bytes() != path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["learning_curve.png", "metrics.jsonl", "plots"]


def test_a_run_without_evaluations_has_a_picture_too(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.append(0, 0, "train", {"loss": 1.0})
    log.flush()
    assert plot_learning_curve(tmp_path).read_bytes().startswith(PNG)


def test_a_short_run_of_a_policy_shows_its_final_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: kept.append(figure.axes[0]) or path)
    log = MetricsLog(tmp_path)
    log.append(0, 600, "train", {"loss": 1.0})
    log.flush()
    plot_learning_curve(tmp_path, final=PolicyEvaluation(np.array([[1.0, 3.0]]), [None], ["as it is"]))
    plot_learning_curve(tmp_path)
    (bars,) = (found for found in kept[0].containers if found.get_label() == "deterministic policy")
    assert bars.lines[0].get_xydata().tolist() == [[600.0, 2.0]]
    assert [axes.get_title("left") for axes in kept] == ["Return while learning"] * 2


def test_the_adaptation_curve_of_a_result_or_its_dict(tmp_path: Path) -> None:
    result = example_result()
    one = plot_adaptation_curve(
        result, tmp_path / "a.png", references={"floor": -15.9, "oracle": np.linspace(-6, -5, 6)}
    )
    two = plot_adaptation_curve(
        result.to_dict(), tmp_path / "b.png", references={"floor": -15.9, "oracle": np.linspace(-6, -5, 6)}
    )
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(PNG)


@pytest.mark.parametrize("kind", plots.PICTURE_KINDS)
def test_the_same_numbers_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    one, two = (plot_adaptation_curve(example_result(), tmp_path / f"{name}.{kind}") for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_a_single_task_has_no_interval_but_a_picture(tmp_path: Path) -> None:
    assert plot_adaptation_curve(example_result(1), tmp_path / "a.png").exists()


def test_the_pictures_say_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def save(figure: Any, path: Path) -> Path:
        axes = figure.axes[0]
        legend = axes.get_legend_handles_labels()[1]
        texts[:] = [axes.get_title("left"), *(t.get_text() for t in axes.texts), axes.get_ylabel(), *legend]
        return path

    monkeypatch.setattr(plots, "_save", save)
    plot_adaptation_curve(example_result(), tmp_path / "a.png", references={"floor": -15.9})
    assert texts[:3] == [
        "Adapting to a new task",
        "mean over 20 held-out tasks (2 repetitions each); bars: 95 % bootstrap interval over tasks",
        "return (sum of rewards in an episode)",
    ]
    assert {"floor", "exploration episodes", "adapted episodes"} <= set(texts)
    plot_adaptation_curve(example_result(1), tmp_path / "a.png")
    assert texts[1] == "mean over 1 held-out task (2 repetitions each)"  # no bars: one task has no interval
    write_metrics(tmp_path)
    plot_learning_curve(tmp_path)
    assert texts[1] == "mean over 1 test task; shaded: 95 % bootstrap interval over tasks"


def test_a_single_epoch_has_visible_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: kept.append(figure.axes[0]) or path)
    write_metrics(tmp_path, epochs=1)
    plot_learning_curve(tmp_path)
    assert len(kept[0].containers) == 2  # error bars instead of bands without width
