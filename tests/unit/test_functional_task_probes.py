"""Probes are checked where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.functional.task_probes import TransitionModel, nearest_neighbor_accuracy, read_values


def test_accuracy_by_hand():
    """Of 0, 1 | 1.5, 9 the nearest ones are 1 (same label), 1.5 (the other), 1 (the other), 1.5 (same)."""
    assert nearest_neighbor_accuracy(np.array([[0.0], [1.0], [1.5], [9.0]]), np.array([0, 0, 1, 1])) == 0.5


def test_ties_count_in_part():
    """Six equal points with three labels: each has five nearest ones, of which one is of its label."""
    assert nearest_neighbor_accuracy(np.ones((6, 2)), np.array([0, 0, 1, 1, 2, 2])) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("show", "how"),
    [
        (lambda v: np.stack([v[:, 0] * 0 + 5, 3 * v[:, 0] - 1], axis=-1), "entry 1"),
        (lambda v: np.stack([v[:, 0] + v[:, 1], v[:, 0] - v[:, 1]], axis=-1), "all entries"),
        (lambda v: np.stack([np.cos(3 * v[:, 0]), np.sin(3 * v[:, 0])], axis=-1), "neighbors"),
    ],
)
def test_what_is_shown_is_read(show, how):
    values = np.random.default_rng(0).uniform(-1, 1, (48, 2))
    points = np.repeat(show(values)[:, None], 3, axis=1)
    first = read_values(points, values)[0]
    assert first.r_squared > 0.9
    assert first.how == how


def test_nothing_is_read_from_chance():
    """60 entries of noise, 48 tasks: a fit to all of them would explain everything, were it tried on the same tasks."""
    generator = np.random.default_rng(1)
    for points in (generator.normal(size=(48, 3, 60)), np.ones((48, 3, 2))):
        readings = read_values(points, generator.uniform(size=(48, 2)))
        assert max(reading.r_squared for reading in readings) < 0.4


def test_a_rollout_fits_the_model_of_its_task():
    """Rewards x * a of one task and -x * a of the other: products are among the features, so errors are rounding."""
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=(3, 200, 2))
    tables = {sign: [np.column_stack([x, sign * x[:, 0] * x[:, 1]]) for x in inputs] for sign in (1, -1)}
    scale = np.concatenate(tables[1] + tables[-1]).std(axis=0)
    models = {sign: TransitionModel(rollouts[:2], 2, scale) for sign, rollouts in tables.items()}
    assert models[1].errors(tables[1][2])[0] < 1e-4
    assert models[-1].errors(tables[1][2])[0] == pytest.approx(4.0, rel=0.2)  # (2 x a)^2 in units of the variance
