"""Robustness maps: the return over a grid of domain parameters, as numbers, files and pictures; bad input."""

from __future__ import annotations

import csv
import json
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll.envs.lookup.randomization import default_randomizer
from metaroll.errors import DamagedFileError, DataError, UnknownNameError
from metaroll.lab.cli.main import main
from metaroll.lab.figures import plots
from metaroll.lab.figures.plots import plot_robustness
from metaroll.lab.results.robustness import RobustnessMap, robustness_map
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import torch_generator
from metaroll.training.evaluation.evaluation_metrics import interval_of_mean
from metaroll.types import EnvSpec


class Scale(gymnasium.Env):
    """Each of three steps returns ``a * b`` and noise that its seed decides."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.a, self.b = 1.0, 2.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        noise = float(self.np_random.normal())
        return np.zeros(1, dtype=np.float32), self.a * self.b + noise, self._time == 3, False, {}


POLICY = GaussianMLPPolicy(EnvSpec.from_env(Scale()), (4,), generator=torch_generator(0))


def test_every_point_is_run_with_its_parameters_and_the_same_seeds():
    result = robustness_map(POLICY, Scale, {"b": [3.0, 1.0], "a": [0.0, 1.0, 2.0]}, num_episodes=6, seed=0)
    assert result.grid["b"].tolist() == [1.0, 3.0]
    assert result.returns.shape == (2, 3, 6)
    noise = result.returns[0, 0]
    expected = 3.0 * np.array([[0.0, 1.0, 2.0], [0.0, 3.0, 6.0]])
    assert np.allclose(result.returns, expected[..., None] + noise)
    assert result.nominal == {"b": 2.0, "a": 1.0}
    low, high = result.interval
    percentile = interval_of_mean(result.returns[1, 2], method="percentile")
    assert (low[1, 2], high[1, 2]) == pytest.approx(tuple(percentile))
    again = robustness_map(POLICY, Scale, {"b": [1.0, 3.0], "a": [0.0, 1.0, 2.0]}, num_episodes=6, seed=0)
    assert np.array_equal(again.returns, result.returns)


def test_the_number_of_workers_changes_nothing(shared_pools):
    results = []
    for workers in (1, 2):
        pool = SamplerPool(1) if workers == 1 else shared_pools[workers]
        grid = {"pole_length": np.linspace(0.5, 1.5, 3)}
        results.append(robustness_map(policy_of("pend"), "pend", grid, num_episodes=2, max_steps=9, seed=1, pool=pool))
    assert np.array_equal(results[0].returns, results[1].returns)


def policy_of(env: str) -> Any:
    from metaroll.envs.lookup.source import make_env

    return GaussianMLPPolicy(EnvSpec.from_env(make_env(env)), (4,), generator=torch_generator(0))


def test_the_range_of_training_is_that_of_most_draws():
    randomizer = default_randomizer("pend")
    grid = {"pole_mass": [1.0], "pole_length": [0.9, 1.1]}
    result = robustness_map(policy_of("pend"), "pend", grid, num_episodes=1, max_steps=2, training=randomizer, seed=0)
    low, high = result.training_range["pole_mass"]
    nominal = result.nominal["pole_mass"]
    # 95 % of a normal distribution with a deviation of a tenth of the nominal value.
    assert (low, high) == pytest.approx((nominal * (1 - 0.196), nominal * (1 + 0.196)), rel=0.02)
    assert np.isnan(result.interval[0]).all()  # a single episode says nothing about the spread


def test_intervals_of_few_episodes_stay_within_the_returns_and_are_called_rough():
    returns = np.array([[-126.8, -60.0, -8.5], [-4.0, -2.0, -1.0]])  # the basic interval of the first reaches above 0
    result = RobustnessMap(grid={"a": np.array([0.0, 1.0])}, returns=returns)
    low, high = result.interval
    assert (returns.min(axis=1) <= low).all() and (high <= returns.max(axis=1)).all()
    assert result.to_dict()["note"] == result.note == "few episodes per point (3): intervals are rough"
    assert result.to_dict()["interval_method"] == "percentile"
    assert RobustnessMap(grid=result.grid, returns=np.zeros((2, 10))).note == ""
    assert RobustnessMap(grid=result.grid, returns=np.zeros((2, 1))).note == "one episode per point: no intervals"


def drawn(monkeypatch: pytest.MonkeyPatch, folder: Any, result: RobustnessMap) -> Any:
    """The axes of the picture, after it was laid out."""
    found = []

    save = plots._save

    def keep(figure: Any, path: Any) -> Any:
        found.append(figure.axes[0])
        return save(figure, path)

    monkeypatch.setattr(plots, "_save", keep)
    plot_robustness(result, folder / "map.png")
    return found[0]


@pytest.mark.parametrize("spread", [1.0, 1e4])
@pytest.mark.parametrize("sizes", [(4, 3), (7, 5), (10, 8)])
def test_numbers_in_a_field_lie_in_their_fields_and_on_no_line(tmp_path, monkeypatch, sizes, spread):
    returns = -spread * np.random.default_rng(0).lognormal(2, 1, size=(*sizes, 12))
    grid = {"length": np.linspace(0.2, 0.5, sizes[0]), "mass": np.linspace(0.1, 0.4, sizes[1])}
    result = RobustnessMap(grid=grid, returns=returns, training_range={"length": (0.27, 0.4), "mass": (0.16, 0.25)})
    axes = drawn(monkeypatch, tmp_path, result)
    written = [text for text in axes.texts if text.get_transform() == axes.transData]
    assert len(written) == sizes[0] * sizes[1]
    low, high = result.interval
    if sizes == (4, 3) and spread == 1.0:
        assert written[0].get_text() == f"{result.mean[0, 0]:.3g}\n[{low[0, 0]:.3g}, {high[0, 0]:.3g}]"
    extents = [text.get_window_extent() for text in written]
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[:i])
    marked = [line.get_window_extent() for line in axes.lines]
    assert len(marked) == 2 and not any(extent.overlaps(mark) for extent in extents for mark in marked)


def test_the_range_in_training_and_nominal_values_make_no_field_smaller(tmp_path, monkeypatch):
    grid = {"length": np.array([0.2, 0.3, 0.4]), "mass": np.array([1.0, 2.0])}
    wide = {"training_range": {"length": (0.25, 9.0), "mass": (0.0, 50.0)}, "nominal": {"length": 0.2, "mass": 7.0}}
    axes = drawn(monkeypatch, tmp_path, RobustnessMap(grid=grid, returns=np.ones((3, 2, 12)), **wide))
    assert axes.get_xlim() == pytest.approx((0.15, 0.45)) and axes.get_ylim() == pytest.approx((0.5, 2.5))
    length, nominal, mass = (np.transpose(line.get_data()) for line in axes.lines)
    np.testing.assert_allclose(length, [(0.25, 0.0), (0.45, 0.0)])
    np.testing.assert_allclose(nominal, [(0.2, 1.0)])  # that of the mass is not in the picture
    np.testing.assert_allclose(mass, [(0.0, 0.5), (0.0, 2.5)])
    assert axes.get_legend_handles_labels()[1] == ["range in training", "nominal values"]
    elsewhere = RobustnessMap(grid=grid, returns=np.ones((3, 2, 12)), training_range={"length": (5.0, 9.0)})
    axes = drawn(monkeypatch, tmp_path, elsewhere)
    assert not axes.lines and not axes.get_legend_handles_labels()[1]


def test_the_interval_of_a_single_point_is_a_bar(tmp_path, monkeypatch):
    result = RobustnessMap(grid={"length": np.array([0.3])}, returns=np.array([[1.0, 2.0, 4.0, 8.0]]))
    (bar,) = drawn(monkeypatch, tmp_path, result).containers
    ((_, low), (_, high)) = bar.lines[2][0].get_segments()[0]
    assert (low, high) == pytest.approx((result.interval[0][0], result.interval[1][0]))


def test_files_hold_all_numbers(tmp_path):
    result = robustness_map(POLICY, Scale, {"a": [1.0, 2.0]}, num_episodes=4, seed=0, training={"a": (0.5, 1.5)})
    json_path, csv_path = result.write(tmp_path / "deep" / "map.png")
    told = json.loads(json_path.read_text())
    assert np.array_equal(told["returns"], result.returns)
    assert told["training_range"] == {"a": [0.5, 1.5]}
    assert told["nominal"] == {"a": 1.0}
    rows = list(csv.DictReader(csv_path.read_text().splitlines()))
    assert [float(row["a"]) for row in rows] == [1.0, 2.0]
    assert [float(row["return_mean"]) for row in rows] == pytest.approx(result.mean.tolist())
    assert float(rows[0]["ci_low"]) < result.mean[0] < float(rows[0]["ci_high"])


@pytest.mark.parametrize("episodes", [1, 5])
@pytest.mark.parametrize("sizes", [(1,), (4,), (3, 2), (1, 1), (12, 12)])
def test_pictures_are_drawn_of_any_grid(tmp_path, sizes, episodes):
    names = ("length", "mass")[: len(sizes)]
    returns = np.random.default_rng(0).normal(size=(*sizes, episodes))
    result = RobustnessMap(
        grid={name: np.linspace(0.5, 1.5, size) for name, size in zip(names, sizes, strict=True)},
        returns=returns,
        nominal={name: 1.0 for name in names},
        training_range={"length": (0.8, 1.2)},
    )
    path = plot_robustness(result, tmp_path / "map.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("grid", "error", "about"),
    [
        ({}, ValueError, "one or two"),
        ({"pole_mass": []}, ValueError, "at least one value"),
        ({"pole_mass": [0.5, float("nan")]}, ValueError, "finite"),
        ({"pole_mass": [1.0, 1.0]}, ValueError, "different values"),
        ({"pole_mass": ["heavy"]}, TypeError, "numbers"),
        ({"pole_mas": [1.0]}, DataError, "did you mean 'pole_mass'"),
        ({"pole_mass": [0.5, 0.0]}, ValueError, "must be positive, got 0.0"),
        ([("pole_mass", [1.0])], TypeError, "dict"),
        ({"pole_mass": [1.0], "pole_length": [1.0], "gravity_const": [9.8]}, ValueError, "one or two"),
    ],
)
def test_wrong_grids_are_named_before_anything_is_run(grid, error, about):
    with pytest.raises(error, match=about):
        robustness_map(policy_of("pend"), "pend", grid, num_episodes=2, max_steps=5)


@pytest.mark.parametrize(
    ("given", "error", "about"),
    [
        ({"training": {"pole_mass": (2, 1)}}, ValueError, r"^training\['pole_mass'\] must be .*, got \(2, 1\)"),
        ({"training": {"pole_mass": 3}}, TypeError, r"^training\['pole_mass'\] must be .*, got 3 of type int"),
        ({"training": {"pole_mass": (0.5, float("nan"))}}, ValueError, "pole_mass.*finite"),
        ({"training": {"pole_mass": ("a", 2)}}, TypeError, "pole_mass.*number"),
        ({"training": {"mass": (1, 2)}}, UnknownNameError, "in training"),
        ({"training": [1, 2]}, TypeError, "^training must be"),
        ({"seed": -1}, ValueError, "^seed must be an integer of at least 0, got -1"),
        ({"seed": 1.5}, TypeError, "^seed must be an integer"),
    ],
)
def test_wrong_ranges_and_seeds_are_named_before_anything_is_run(given, error, about):
    with pytest.raises(error, match=about):
        robustness_map(None, "pend", {"pole_mass": [1.0]}, **given)


def test_the_command_measures_a_run(tmp_path, capsys, monkeypatch):
    run = str(tmp_path / "run")
    small = ["--epochs", "1", "--steps-per-epoch", "60", "--max-steps", "20", "--evaluate-every", "0"]
    small += ["--num-episodes", "2", "--randomize", "default", "--num-test-tasks", "2", "--torch-threads", "1"]
    teacher = ["--domain-params", "pole_mass", "--privileged"]
    assert main(["train", "ppo", "pend", *small, *teacher, "--out", run, "--quiet"]) == 0
    grid = ["--param", "pole_mass", "0.8:1.2:3", "--param", "pole_length=0.9,1.1"]
    assert main(["robustness", run, *grid, "--episodes", "2", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert np.shape(told["returns"]) == (3, 2, 2)
    assert set(told["training_range"]) == {"pole_mass", "pole_length"}
    assert [path.rsplit(".", 1)[1] for path in told["files"]] == ["png", "json", "csv"]
    assert told["note"] == "few episodes per point (2): intervals are rough"
    assert main(["robustness", run, "--param", "pole_mass", "1.0", "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 episodes at one point" in shown and told["note"] in shown and "worst" not in shown
    for error in (OSError("disk full"), DamagedFileError("matplotlibrc: it is damaged")):
        with monkeypatch.context() as patch:
            patch.setattr(plots, "plot_robustness", Mock(side_effect=error))
            assert main(["robustness", run, "--param", "pole_mass", "1.0", "--episodes", "2"]) == 0
        shown = capsys.readouterr().out
        assert f"no picture: {error}" in shown and ".json" in shown and ".csv" in shown and ".png" not in shown
    for arguments, about in (
        ([], "once or twice"),
        (["--param", "pole_mass", "0.8:1.2:1"], "COUNT of at least 2, or --param pole_mass=0.8"),
        (["--param", "pole_mass=-0.8:1.2:3"], "must be positive, got -0.8"),
        (["--param", "pole_mass", "-0.8:1.2:3"], "must be positive, got -0.8"),
        (["--param", "pole_mass", "--quiet"], "write --param NAME FROM:TO:COUNT or --param NAME=V1,V2"),
        (["--param", "pole_mass", "1:0:3"], "FROM must not be above TO"),
        (
            ["--param", "pole_mass", "1:inf:3"],
            "--param pole_mass: FROM and TO must be finite, and so their difference, got 1",
        ),
        (
            ["--param", "pole_mass", "nan:1:3"],
            "--param pole_mass: FROM and TO must be finite, and so their difference, got n",
        ),
        (["--param", "pole_mass", "a:b:c"], "FROM:TO:COUNT"),
        (["--param", "pole_mas", "1:2:3"], "did you mean 'pole_mass'"),
    ):
        assert main(["robustness", run, *arguments]) == 2
        assert about in capsys.readouterr().err
    # The policy of that run is privileged: a teacher.
    student, options = str(tmp_path / "student"), [*small[:8], "--num-test-tasks", "2", "--torch-threads", "1"]
    assert main(["train", "distill", "pend", "--teacher", run, *options, "--out", student, "--json", "--quiet"]) == 0
    assert np.shape(json.loads(capsys.readouterr().out)["returns"])[0] == 2
    assert main(["train", "distill", "pend", "--teacher", student, "--out", run + "3"]) == 2
    assert "is one of distill" in capsys.readouterr().err
    # It is named as seen from the student, so that both can be moved; and no path of this machine is written.
    for path in (tmp_path / "student" / "config.yaml", tmp_path / "student" / "snapshots" / "000001" / "manifest.json"):
        assert "../run" in path.read_text() and str(tmp_path) not in path.read_text()
    (tmp_path / "moved").mkdir()
    for name in ("run", "student"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert main(["resume", str(tmp_path / "moved" / "student"), "--epochs", "2", "--quiet"]) == 0
    saved = metaroll.load(tmp_path / "moved" / "student").save(tmp_path / "deep" / "saved")
    assert metaroll.load(saved).config["algorithm"]["teacher"] == str(tmp_path / "moved" / "run")
    assert "../../moved/run" in (saved / "config.yaml").read_text()
