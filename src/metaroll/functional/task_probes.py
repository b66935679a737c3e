"""Information about the task in observations and rollouts: small estimators, tested on held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Reading", "TransitionModel", "nearest_neighbor_accuracy", "read_values"]

_RIDGE = 1e-3
_NEIGHBORS = 3
_MOST_INPUTS = 12
"""Entries (of observation and action together) whose products enter a transition model."""


class Reading(NamedTuple):
    """Accuracy with which one parameter of the task can be predicted from a point.

    Attributes:
        r_squared: Share of its variance explained in held-out tasks; at most 1, 0 means nothing.
        how: ``"entry 3"`` (a line through that entry of the point), ``"all entries"`` (a linear map), ``"neighbors"``.
    """

    r_squared: float
    how: str


def nearest_neighbor_accuracy(points: np.ndarray, labels: np.ndarray) -> float:
    """Share of the points whose nearest other point has the same label; ties count in part.

    Args:
        points: ``(N, D)``; every column is scaled by its standard deviation.
        labels: ``(N,)``.
    """
    table = _standardized(np.asarray(points, dtype=np.float64))
    distances = _distances(table)
    np.fill_diagonal(distances, np.inf)
    nearest = distances <= distances.min(axis=1, keepdims=True)
    same = np.asarray(labels)[:, None] == np.asarray(labels)[None, :]
    return float(np.mean((nearest & same).sum(axis=1) / nearest.sum(axis=1)))


def read_values(points: np.ndarray, values: np.ndarray) -> list[Reading]:
    """For each parameter of the task, the best of three predictors, evaluated on held-out tasks.

    Args:
        points: ``(K, R, D)``: R points in each of K tasks.
        values: ``(K, P)``: parameters of the tasks.
    """
    points, values = np.asarray(points, dtype=np.float64), np.asarray(values, dtype=np.float64)
    num_tasks, repeats, size = points.shape
    table = _standardized(points.reshape(-1, size))
    tasks = np.repeat(np.arange(num_tasks), repeats)
    targets = values[tasks]
    spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)

    def explained(predictions: np.ndarray) -> np.ndarray:
        errors = ((predictions - targets) ** 2).sum(axis=0)
        return 1.0 - np.divide(errors, spread, out=np.ones_like(errors), where=spread > 0)

    by_map = explained(_left_out_ridge(table, targets, tasks))
    by_neighbors = explained(_left_out_neighbors(table, targets, tasks))
    by_entry = np.stack([explained(_left_out_ridge(table[:, [d]], targets, tasks)) for d in range(size)])
    readings = []
    for p in range(values.shape[1]):
        entry = int(by_entry[:, p].argmax())
        # Prefer the simplest of equally good ones: an entry, a map of all, the neighbors.
        offers = [
            Reading(float(by_entry[entry, p]) + 1e-3, f"entry {entry}"),
            Reading(float(by_map[p]) + 5e-4, "all entries"),
            Reading(float(by_neighbors[p]), "neighbors"),
        ]
        best = max(offers)
        readings.append(Reading(min(1.0, max(0.0, best.r_squared)), best.how))
    return readings


class TransitionModel:
    """A small model of one task: rewards and next observations from observations and actions, by ridge regression.

    Linear and quadratic in observation and action. A rollout belongs to the task whose model has the smallest error.

    Args:
        transitions: One array ``(T, I + O)`` per rollout: inputs (action and observation), then outputs (reward and
            change of the observation).
        num_inputs: The number I.
        scale: ``(columns,)`` standard deviations by which all columns are divided, those of all tasks together.
    """

    def __init__(self, transitions: Sequence[np.ndarray], num_inputs: int, scale: np.ndarray) -> None:
        self._num_inputs, self._scale = num_inputs, np.where(scale > 0, scale, 1.0)
        table = np.concatenate(list(transitions)) / self._scale
        features, outputs = _features(table[:, :num_inputs]), table[:, num_inputs:]
        gram = features.T @ features + _RIDGE * len(features) * np.eye(features.shape[1])
        self._weights = np.linalg.solve(gram, features.T @ outputs)

    def errors(self, rollout: np.ndarray) -> np.ndarray:
        """Mean squared errors in a rollout ``(T, I + O)``, one for each output: ``(O,)``."""
        table = rollout / self._scale
        predictions = _features(table[:, : self._num_inputs]) @ self._weights
        return ((predictions - table[:, self._num_inputs :]) ** 2).mean(axis=0)


def _features(inputs: np.ndarray) -> np.ndarray:
    leading = inputs[:, :_MOST_INPUTS]
    rows, columns = np.triu_indices(leading.shape[1])
    return np.concatenate([np.ones((len(inputs), 1)), inputs, leading[:, rows] * leading[:, columns]], axis=1)


def _standardized(table: np.ndarray) -> np.ndarray:
    spread = table.std(axis=0)
    return (table - table.mean(axis=0)) / np.where(spread > 1e-12 * np.abs(table).max(axis=0), spread, np.inf)


def _left_out_ridge(table: np.ndarray, targets: np.ndarray, tasks: np.ndarray) -> np.ndarray:
    """Predictions ``(N, P)`` for each task by a linear map fitted to the other tasks."""
    design = np.concatenate([np.ones((len(table), 1)), table], axis=1)
    gram, moments = design.T @ design, design.T @ targets
    penalty = _RIDGE * len(table) * np.eye(design.shape[1])
    penalty[0, 0] = 1e-9
    predictions = np.empty_like(targets)
    for task in np.unique(tasks):
        rows = design[tasks == task]
        weights = np.linalg.solve(gram - rows.T @ rows + penalty, moments - rows.T @ targets[tasks == task])
        predictions[tasks == task] = rows @ weights
    return predictions


def _distances(table: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import cdist  # loads slowly, and few runs need it

    return cdist(table, table)


def _left_out_neighbors(table: np.ndarray, targets: np.ndarray, tasks: np.ndarray) -> np.ndarray:
    """Predictions ``(N, P)`` for each point: the mean of its nearest points in other tasks."""
    distances = _distances(table)
    distances[tasks[:, None] == tasks[None, :]] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBORS]
    return targets[nearest].mean(axis=1)
