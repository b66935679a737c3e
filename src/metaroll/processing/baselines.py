"""Reward baselines: return predictors, fitted to the paths of each task separately."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch

from metaroll.checks import check_number, check_seed, check_whole, described
from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.errors import DataError, ShapeError
from metaroll.functional.regression import grams_of_blocks, solve_ridge, state_features, time_features
from metaroll.policies.networks import check_widths, perceptron
from metaroll.processing.path_columns import PathColumns, PathGroup
from metaroll.seeding import torch_generator
from metaroll.types import Baseline

__all__ = [
    "LinearFeatureBaseline",
    "LinearTimeBaseline",
    "MLPBaseline",
    "TaskBaseline",
    "ZeroBaseline",
    "fit_to_tasks",
]


_WORTH_THREADS = 1_000_000
"""Numbers from which several threads fit faster than one."""
_NUMBERS_AT_ONCE = 375_000
"""Numbers of a table of features that stays in the processor's cache."""
_BLOCK_PRODUCTS = 4 * 65536
"""Multiplications of a matrix product above which OpenBLAS takes several threads."""


class TaskBaseline(ABC):
    """A baseline that is fitted to many tasks at once.

    ``fit`` and ``predict`` are those of ProMP: ``fit(paths, target_key="returns")`` replaces the previous fit,
    ``predict(path)`` gives a value for each step.
    """

    def fit(self, paths: PathGroup, target_key: str = "returns") -> None:
        """Fit to an entry of paths.

        Args:
            paths: Path dicts with ``observations (t, ...)``, ``actions``, ``rewards (t,)`` and ``target_key``.
            target_key: The entry to predict, ``(t,)``.

        Raises:
            DataError: A path does not have it.
            ShapeError: It is not one number per step.
        """
        columns = PathColumns.of([paths])
        targets = [_target_of(path, target_key, n) for n, path in enumerate(paths)]
        if [len(target) for target in targets] != columns.lengths.tolist():
            raise ShapeError(f"{target_key} of each path must have one entry per step, as rewards have")
        self.fit_tasks(columns, np.concatenate(targets))

    def predict(self, path: Mapping[str, Any]) -> np.ndarray:
        """Values of the steps of a path dict, float64 ``(t,)``; 0 before the first fit."""
        given: Any = path["observations"]
        observations: Any = given if isinstance(given, dict | tuple) else np.asarray(given)
        count = next(len(leaf) for _, leaf in iterate_leaves(observations))
        return self._values(observations, np.arange(count))

    @abstractmethod
    def fit_tasks(
        self, columns: PathColumns, targets: np.ndarray, *, finals: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Fit to each of M tasks separately; afterwards the baseline holds the fit of the last task.

        Args:
            columns: Paths of M tasks, with T steps.
            targets: Regression targets, ``(T,)``.
            finals: Also predict the values of ``columns.last_observations``.

        Returns:
            Values ``(T,)``, each from the fit to its own task, and those of the last observations ``(N,)`` or ``None``.
        """

    @abstractmethod
    def _values(self, observations: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Values ``(t,)`` of observations ``(t, ...)`` at steps ``times (t,)`` of their paths."""

    @abstractmethod
    def get_param_values(self) -> np.ndarray | None:
        """Fitted parameters, flat ``(F,)``; ``None`` before the first fit, or if there is nothing to fit."""

    @abstractmethod
    def set_params(self, values: np.ndarray | None) -> None:
        """Take over what ``get_param_values`` gave."""

    def set_param_values(self, values: np.ndarray | None) -> None:
        """The same as ``set_params``."""
        self.set_params(values)

    def state_dict(self) -> dict[str, Any]:
        """Fitted parameters (arrays and plain data)."""
        return {"params": self.get_param_values()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a ``state_dict``."""
        self.set_params(state["params"])


@final
class ZeroBaseline(TaskBaseline):
    """Expects nothing."""

    def fit_tasks(
        self, columns: PathColumns, targets: np.ndarray, *, finals: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Zeros."""
        return np.zeros(len(targets)), np.zeros(len(columns.lengths)) if finals else None

    def _values(self, observations: np.ndarray, times: np.ndarray) -> np.ndarray:
        return np.zeros(len(times))

    def get_param_values(self) -> None:
        """There are none."""

    def set_params(self, values: np.ndarray | None) -> None:
        """Does nothing: there are none."""


class _LinearBaseline(TaskBaseline, ABC):
    """Ridge regression on features of a step.

    Args:
        reg_coeff: Coefficient of the ridge; where the equations cannot be solved with it, it is raised tenfold. The
            weight of the constant is kept small, too.
    """

    def __init__(self, reg_coeff: float = 1e-5) -> None:
        self._reg_coeff = check_number("reg_coeff", reg_coeff, 0.0)
        self._weights: np.ndarray | None = None

    @property
    def reg_coeff(self) -> float:
        """Coefficient of the ridge."""
        return self._reg_coeff

    @abstractmethod
    def num_features(self, columns: PathColumns) -> int:
        """F."""

    @abstractmethod
    def features(
        self, observations: Any, times: np.ndarray, out: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """``(t, F)`` of observations (or of some of their rows), written to ``out`` if given."""

    def fit_tasks(
        self, columns: PathColumns, targets: np.ndarray, *, finals: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """M ridge regressions; see the base class. Several threads take turns where there is much to do."""
        fits = _TaskFits(self, columns, np.asarray(targets, dtype=np.float64), finals)
        size = len(targets) * self.num_features(columns)
        threads = min(torch.get_num_threads(), columns.num_tasks) if size > _WORTH_THREADS else 1
        shares = fits.shares(threads)
        if threads == 1:
            fits.run(shares[0])
        else:
            with ThreadPoolExecutor(threads - 1) as pool:
                others = pool.map(fits.run, shares[1:])
                fits.run(shares[0])
                list(others)
        self._weights = fits.weights[-1]
        return fits.values, fits.last_values

    def _values(self, observations: np.ndarray, times: np.ndarray) -> np.ndarray:
        if self._weights is None:
            return np.zeros(len(times))
        features = self.features(observations, times)
        if features.shape[1] != len(self._weights):
            raise ShapeError(
                f"observations must be such as the baseline was fitted to, which give {len(self._weights)} features, "
                f"got {features.shape[1]}"
            )
        return features @ self._weights

    def get_param_values(self) -> np.ndarray | None:
        """The weights ``(F,)``, or ``None`` before the first fit."""
        return None if self._weights is None else self._weights.copy()

    def set_params(self, values: np.ndarray | None) -> None:
        """Take over weights ``(F,)``; ``None`` forgets them."""
        if values is None:
            self._weights = None
            return
        weights = np.array(values, dtype=np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all():
            raise ValueError(f"weights must be finite numbers (F,), got {described(values)}")
        self._weights = weights


class _TaskFits:
    """Independent ridge regressions of M tasks, solved in blocks of tasks.

    Args:
        baseline: Defines the features.
        columns: Paths of M tasks.
        targets: Regression targets, ``(T,)``.
        finals: Also predict the values of the last observations.

    Attributes:
        weights: ``(M, F)``.
        values: Predictions, ``(T,)``.
        last_values: ``(N,)``, or ``None``.
    """

    def __init__(self, baseline: _LinearBaseline, columns: PathColumns, targets: np.ndarray, finals: bool) -> None:
        self.weights = np.zeros((columns.num_tasks, baseline.num_features(columns)))
        self.values = np.empty(len(targets))
        self.last_values = np.empty(len(columns.lengths)) if finals else None
        self._baseline, self._columns, self._targets = baseline, columns, targets
        # Allocate everything once: threads would wait for each other at many small calls.
        self._edges, self._times, self._rows = columns.task_bounds, columns.times, columns.step_rows
        width = self.weights.shape[1] + 1
        # Blocks are small enough that BLAS does not split them over its own threads, which would compete with ours.
        self._block = max(8, _BLOCK_PRODUCTS // width**2)
        self._blocks = -(-np.diff(self._edges) // self._block)
        self._at_once = max(int(self._blocks.max()), _NUMBERS_AT_ONCE // (self._block * width))

    def shares(self, count: int) -> list[slice]:
        """Consecutive tasks for each of ``count`` threads, with about as many rows."""
        cuts = np.searchsorted(self._edges, self._edges[-1] * np.arange(1, count) / count)
        return [slice(a, b) for a, b in pairwise([0, *cuts.tolist(), len(self._blocks)])]

    def run(self, tasks: slice) -> None:
        """Fit to each of these tasks, in blocks: threads would wait for each other at many small calls."""
        table = np.empty((self._at_once, self._block, self.weights.shape[1] + 1))
        first, used = tasks.start, 0
        for m in range(tasks.start, tasks.stop):
            if used + self._blocks[m] > self._at_once:
                self._fit(slice(first, m), table[:used])
                first, used = m, 0
            used += int(self._blocks[m])
        if used:
            self._fit(slice(first, tasks.stop), table[:used])

    def _fit(self, tasks: slice, blocks: np.ndarray) -> None:
        sizes, edges = self._blocks[tasks], self._edges[tasks.start : tasks.stop + 1].tolist()
        firsts = np.cumsum(sizes) - sizes
        begins = (firsts * self._block).tolist()
        places = [(slice(a, b), slice(k, k + b - a)) for (a, b), k in zip(pairwise(edges), begins, strict=True)]
        table = blocks.reshape(-1, blocks.shape[-1])
        for own, place in places:
            self._fill(own, table[place])
            table[place.stop : -(-place.stop // self._block) * self._block] = 0.0
        systems = grams_of_blocks(blocks, firsts)
        try:
            weights = solve_ridge(systems[:, :-1, :-1], systems[:, :-1, -1], self._baseline.reg_coeff)
        except ValueError as error:
            bad = int(np.argmin(np.isfinite(systems).all(axis=(1, 2))))
            raise ValueError(f"the baseline cannot be fitted to task {tasks.start + bad}: {error}") from error
        self.weights[tasks] = weights
        of_blocks = np.zeros((len(blocks), blocks.shape[-1], 1))  # nothing for targets
        of_blocks[:, :-1, 0] = np.repeat(weights, sizes, axis=0)
        values = np.matmul(blocks, of_blocks).reshape(-1)
        for own, place in places:
            self.values[own] = values[place]
        if self.last_values is not None:
            self._predict_last(tasks)

    def _fill(self, steps: slice, rows: np.ndarray) -> None:
        """Features and targets of the steps of a task, side by side."""
        which = self._rows[steps]
        first, stop = int(which[0]), int(which[-1]) + 1
        part = map_leaves(lambda leaf, _: leaf[first:stop], self._columns.rows)
        self._baseline.features(part, self._times[steps], rows[:, :-1], which - first)
        rows[:, -1] = self._targets[steps]

    def _predict_last(self, tasks: slice) -> None:
        assert self.last_values is not None
        columns, paths = self._columns, self._columns.tasks[tasks.start : tasks.stop + 1]
        own = slice(int(paths[0]), int(paths[-1]))
        lasts = map_leaves(lambda leaf, _: leaf[own], columns.last_observations)
        features = self._baseline.features(lasts, columns.lengths[own])
        self.last_values[own] = (features * np.repeat(self.weights[tasks], np.diff(paths), axis=0)).sum(axis=1)


@final
class LinearFeatureBaseline(_LinearBaseline):
    """Ridge regression on observations, their squares, and powers of time (``functional.regression.state_features``).

    Args:
        reg_coeff: See ``LinearTimeBaseline``.
    """

    def num_features(self, columns: PathColumns) -> int:
        """``2 O + 4``."""
        if not isinstance(columns.rows, np.ndarray):
            raise ShapeError("observations must be arrays, got structures; flatten them, or use LinearTimeBaseline")
        return 2 * int(np.prod(columns.rows.shape[1:])) + 4

    def features(
        self, observations: Any, times: np.ndarray, out: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """See ``state_features``."""
        return state_features(observations.reshape(len(observations), -1), times, out, rows)


@final
class LinearTimeBaseline(_LinearBaseline):
    """Ridge regression on powers of time (``functional.regression.time_features``); observations do not matter.

    Args:
        reg_coeff: Coefficient of the ridge; where the equations cannot be solved with it, it is raised tenfold. The
            weight of the constant is kept small, too.
    """

    def num_features(self, columns: PathColumns) -> int:
        """4."""
        return 4

    def features(
        self, observations: Any, times: np.ndarray, out: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """See ``time_features``."""
        return time_features(times, out)


@final
class MLPBaseline(TaskBaseline):
    """A small network on observations and time, trained by Adam; the networks of all tasks are trained at once.

    Every fit starts from the same weights, drawn from ``seed``, and uses the same minibatches (with replacement): the
    fit to a task depends on its paths alone. Inputs and targets are standardized per task.

    Args:
        hidden_sizes: Widths of the hidden layers (tanh).
        num_updates: Number of Adam updates.
        batch_size: Steps per minibatch.
        learning_rate: Learning rate of Adam.
        seed: Seed of initial weights and minibatches.
    """

    def __init__(
        self,
        hidden_sizes: Sequence[int] = (32, 32),
        *,
        num_updates: int = 300,
        batch_size: int = 256,
        learning_rate: float = 1e-2,
        seed: int = 0,
    ) -> None:
        self._hidden_sizes = list(check_widths("hidden_sizes", hidden_sizes))
        self._num_updates = check_whole("num_updates", num_updates)
        self._batch_size = check_whole("batch_size", batch_size)
        self._learning_rate = check_number("learning_rate", learning_rate, 0.0, above_low=True)
        self._seed = check_seed("seed", seed)
        self._params: np.ndarray | None = None

    def fit_tasks(
        self, columns: PathColumns, targets: np.ndarray, *, finals: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """M networks; see the base class."""
        inputs = _inputs(columns.observations, columns.times)
        edges, target = columns.task_bounds, np.asarray(targets, dtype=np.float64)
        parts = list(pairwise(edges.tolist()))
        shift = np.stack([inputs[a:b].mean(axis=0) for a, b in parts])
        scale = np.stack([inputs[a:b].std(axis=0) for a, b in parts]) + 1e-8
        level = np.array([target[a:b].mean() for a, b in parts])
        spread = np.array([target[a:b].std() for a, b in parts]) + 1e-8
        x, y = np.empty(inputs.shape, np.float32), np.empty(len(target), np.float32)
        for m, (a, b) in enumerate(parts):
            x[a:b], y[a:b] = (inputs[a:b] - shift[m]) / scale[m], (target[a:b] - level[m]) / spread[m]
        layers = self._trained(torch.from_numpy(x), torch.from_numpy(y), edges)
        values = np.empty(len(target))
        last_values = np.empty(len(columns.lengths)) if finals else None
        for m, (a, b) in enumerate(parts):
            own = [layer[m].numpy().astype(np.float64).ravel() for layer in layers]
            self._params = np.concatenate([shift[m], scale[m], [level[m], spread[m]], *own])
            values[a:b] = self._values(columns.observations[a:b], columns.times[a:b])
            if last_values is not None:
                paths = slice(int(columns.tasks[m]), int(columns.tasks[m + 1]))
                last_values[paths] = self._values(columns.last_observations[paths], columns.lengths[paths])
        return values, last_values

    def _shapes(self, width: int) -> list[tuple[int, ...]]:
        """Shapes of weights and biases in turn, for inputs ``(t, width)``."""
        sizes = [width, *self._hidden_sizes, 1]
        return [shape for a, b in pairwise(sizes) for shape in ((a, b), (1, b))]

    def _trained(self, x: torch.Tensor, y: torch.Tensor, edges: np.ndarray) -> list[torch.Tensor]:
        """Weights ``(M, in, out)`` and biases ``(M, 1, out)`` in turn; each task draws from its own steps only."""
        count, generator = len(edges) - 1, torch_generator(self._seed)
        layers = []
        for i, shape in enumerate(self._shapes(x.shape[1])):
            drawn = torch.zeros(shape) if i % 2 else torch.randn(shape, generator=generator) / shape[0] ** 0.5
            layers.append(drawn.repeat(count, 1, 1).requires_grad_())
        optimizer = torch.optim.Adam(layers, self._learning_rate)
        first = torch.from_numpy(edges[:-1].copy())[:, None]
        steps = torch.from_numpy(np.diff(edges))[:, None]
        for _ in range(self._num_updates):
            drawn = torch.rand((1, self._batch_size), generator=generator, dtype=torch.float64)
            rows = first + (drawn * steps).long().clamp_max(steps - 1)
            # L = sum_m mean_B (V_m(x) - y)^2, V (M, B): in the sum over tasks, the gradient of each network is that of
            # its own mean squared error.
            loss = (_forward(layers, x[rows])[..., 0] - y[rows]).square().mean(dim=1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [layer.detach() for layer in layers]

    def _values(self, observations: np.ndarray, times: np.ndarray) -> np.ndarray:
        if self._params is None:
            return np.zeros(len(times))
        inputs = _inputs(observations, times)
        width, known = inputs.shape[1], self._params
        shapes = self._shapes(width)
        if len(known) != 2 * width + 2 + sum(int(np.prod(shape)) for shape in shapes):
            raise ShapeError(
                f"observations must be such as the baseline was fitted to, got {width - 1} numbers per step"
            )
        shift, scale, (level, spread) = known[:width], known[width : 2 * width], known[2 * width : 2 * width + 2]
        layers, place = [], 2 * width + 2
        for shape in shapes:
            size = int(np.prod(shape))
            layers.append(torch.from_numpy(known[place : place + size].reshape(shape)))
            place += size
        x = torch.from_numpy((inputs - shift) / scale)
        return _forward(layers, x)[:, 0].numpy() * spread + level

    def get_param_values(self) -> np.ndarray | None:
        """Scales, weights and biases, flat, or ``None`` before the first fit."""
        return None if self._params is None else self._params.copy()

    def set_params(self, values: np.ndarray | None) -> None:
        """Take over what ``get_param_values`` gave."""
        self._params = None if values is None else np.array(values, dtype=np.float64)


def fit_to_tasks(
    baseline: Baseline, columns: PathColumns, targets: np.ndarray, *, key: str = "returns", finals: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """``TaskBaseline.fit_tasks``, also for any object with ``fit`` and ``predict``: task by task, path by path.

    Args:
        baseline: The baseline.
        columns, targets, finals: As of ``TaskBaseline.fit_tasks``.
        key: Name of ``targets`` in the path dicts passed to a foreign ``fit``.

    Raises:
        ShapeError: A foreign baseline predicts another number of values than a path has steps.
    """
    if isinstance(baseline, TaskBaseline):
        return baseline.fit_tasks(columns, targets, finals=finals)
    values = np.empty(len(targets))
    last_values = np.empty(len(columns.lengths)) if finals else None
    for m in range(columns.num_tasks):
        first = int(columns.tasks[m])
        names = ("observations", "actions", "rewards")
        rows = [
            columns.by_path(column, m) for column in (columns.observations, columns.actions, columns.rewards, targets)
        ]
        paths = [dict(zip((*names, key), row, strict=True)) for row in zip(*rows, strict=True)]
        baseline.fit(paths, target_key=key)
        for n, path in enumerate(paths, first):
            values[columns.bounds[n] : columns.bounds[n + 1]] = _predicted(baseline, path)
            if last_values is not None:
                following = columns.last_observations[n][None]
                longer = {**path, "observations": np.concatenate([path["observations"], following])}
                last_values[n] = _predicted(baseline, longer)[-1]
    return values, last_values


def _predicted(baseline: Baseline, path: Mapping[str, Any]) -> np.ndarray:
    values = np.asarray(baseline.predict(path), dtype=np.float64)
    count = len(path["observations"])
    if values.size != count:
        raise ShapeError(
            f"predict of {type(baseline).__name__} must return {count} values for a path, got {values.shape}"
        )
    return values.reshape(count)


def _forward(layers: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """A tanh network, or a stack of them, ``(..., t, in) -> (..., t, 1)``."""
    return perceptron(x, layers[::2], layers[1::2], "tanh", lambda rows, weight, bias: rows @ weight + bias)


def _inputs(observations: Any, times: np.ndarray) -> np.ndarray:
    """Flat observations and time in hundreds of steps, float64 ``(t, O + 1)``."""
    if not isinstance(observations, np.ndarray):
        raise ShapeError("observations must be arrays, got structures; flatten them, or use LinearTimeBaseline")
    rows = observations.reshape(len(observations), -1)
    return np.concatenate([rows, times[:, None] / 100.0], axis=1, dtype=np.float64)


def _target_of(path: Any, key: str, number: int) -> np.ndarray:
    if not isinstance(path, Mapping) or key not in path:
        known = ", ".join(map(str, path)) if isinstance(path, Mapping) else described(path)
        raise DataError(f"path {number} has no {key!r} to be predicted; it has: {known}")
    return np.asarray(path[key], dtype=np.float64).reshape(-1)
