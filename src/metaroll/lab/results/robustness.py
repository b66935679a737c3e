"""Measures how the return of a policy depends on domain parameters, on a grid of them."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.checks import check_fraction, check_limit, check_number, check_seed, check_whole, described
from metaroll.data.folders.atomic_files import write_text
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import unknown_name
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import fresh_seed
from metaroll.tasks.domain_access import read_domain_params
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import RandomDomains
from metaroll.tasks.updates import layer_with
from metaroll.training.evaluation.evaluation_metrics import episode_returns, intervals_of_means
from metaroll.training.store.files import write_json
from metaroll.types import RolloutPlan

__all__ = ["RobustnessMap", "robustness_map"]

_DRAWS = 4000
_MIDDLE = (0.025, 0.975)
_METHOD = "percentile"
_FEW_EPISODES = 10


@dataclass(frozen=True)
class RobustnessMap:
    """Returns over a grid of one or two domain parameters.

    Attributes:
        grid: Name -> values ``(n,)``, rising, of the one or two parameters.
        returns: Undiscounted returns ``(n1, E)`` or ``(n1, n2, E)`` of E episodes at each point; episode e has the same
            seed at all points.
        nominal: Name -> value of the nominal environment, as far as known.
        training_range: Name -> lowest and highest value in training, of the parameters that varied there.
        confidence: Level of the intervals.
        env: Name of the environment.
    """

    grid: Mapping[str, np.ndarray]
    returns: np.ndarray
    nominal: Mapping[str, float] = field(default_factory=dict)
    training_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    confidence: float = 0.95
    env: str = ""

    @property
    def mean(self) -> np.ndarray:
        """Mean return at each point, ``(n1,)`` or ``(n1, n2)``."""
        return self.returns.mean(axis=-1)

    @cached_property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Percentile bootstrap interval of the mean at each point, over its episodes: two arrays like ``mean``.

        Unlike the basic interval of ``bootstrap_ci`` it never leaves the range of the returns. NaN for one episode.
        """
        columns = self.returns.reshape(-1, self.returns.shape[-1]).T
        low, high = intervals_of_means(columns, confidence=self.confidence, method=_METHOD)
        return low.reshape(self.mean.shape), high.reshape(self.mean.shape)

    @property
    def note(self) -> str:
        """A warning about the intervals; empty with enough episodes."""
        episodes = self.returns.shape[-1]
        if episodes == 1:
            return "one episode per point: no intervals"
        return f"few episodes per point ({episodes}): intervals are rough" if episodes < _FEW_EPISODES else ""

    def rows(self) -> list[dict[str, float]]:
        """One dict per point: the parameters, ``return_mean``, ``ci_low``, ``ci_high`` and ``episodes``."""
        low, high = self.interval
        points = itertools.product(*(values.tolist() for values in self.grid.values()))
        numbers = zip(points, self.mean.ravel().tolist(), low.ravel().tolist(), high.ravel().tolist(), strict=True)
        return [
            {
                **dict(zip(self.grid, point, strict=True)),
                "return_mean": mean,
                "ci_low": below,
                "ci_high": above,
                "episodes": self.returns.shape[-1],
            }
            for point, mean, below, above in numbers
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "env": self.env,
            "grid": {name: values.tolist() for name, values in self.grid.items()},
            "return_mean": self.mean.tolist(),
            "ci_low": self.interval[0].tolist(),
            "ci_high": self.interval[1].tolist(),
            "confidence": self.confidence,
            "interval_method": _METHOD,
            "note": self.note,
            "episodes": int(self.returns.shape[-1]),
            "nominal": dict(self.nominal),
            "training_range": {name: list(bounds) for name, bounds in self.training_range.items()},
            "returns": self.returns.tolist(),
        }

    def write(self, path: str | Path) -> list[Path]:
        """Write ``path`` with the endings ``.json`` (everything) and ``.csv`` (one line per point); both paths."""
        json_path, csv_path = (Path(path).with_suffix(ending) for ending in (".json", ".csv"))
        json_path.parent.mkdir(parents=True, exist_ok=True)
        rows, text = self.rows(), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_json(json_path, self.to_dict())
        write_text(csv_path, text.getvalue())
        return [json_path, csv_path]


def robustness_map(
    policy: Any,
    env: Any,
    grid: Mapping[str, Sequence[float] | np.ndarray],
    *,
    num_episodes: int = 20,
    max_steps: int | None = None,
    training: RandomDomains | Mapping[str, tuple[float, float]] | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    pool: SamplerPool | None = None,
) -> RobustnessMap:
    """Return of the deterministic ``policy`` over a grid of domain parameters; all other parameters stay nominal.

    Args:
        policy: As for ``RolloutEngine``.
        env: As for ``RolloutEngine``, with parameters that ``DomainParamUpdate`` can set; wrappers that randomize it
            are bypassed.
        grid: Name -> values, of one or two parameters.
        num_episodes: Episodes at each point.
        max_steps: Truncate episodes after this number of steps; ``None`` means the environment's own limit.
        training: The parameters of training, to be shown in plots: a randomizer (the middle 95 % of its draws),
            or name -> (lowest, highest value).
        confidence: Level of the intervals.
        seed: Seed of the episodes, the same at each point; ``None`` means fresh entropy.
        pool: Workers; ``None`` runs in this process.
    """
    check_whole("num_episodes", num_episodes, 1)
    check_fraction("confidence", confidence)
    if max_steps is not None:
        check_limit("max_steps", max_steps)
    chosen = fresh_seed() if seed is None else check_seed("seed", seed)
    axes = _checked_grid(grid)
    training_range = _training_ranges(training, list(axes))
    names, points = list(axes), list(itertools.product(*(values.tolist() for values in axes.values())))
    updates = [DomainParamUpdate(dict(zip(names, point, strict=True))) for point in points]
    source = EnvSource.of(env)
    nominal = _try_out(source, names, updates)
    plans = [
        RolloutPlan(
            index=i * num_episodes + episode,
            seed=(chosen, 0, episode),
            env_update=update,
            max_steps=max_steps,
            eval=True,
        )
        for i, update in enumerate(updates)
        for episode in range(num_episodes)
    ]
    with RolloutEngine(source, policy, pool=pool, record_infos=False) as engine:
        returns = episode_returns(engine.run(plans))
    shape = [*(len(values) for values in axes.values()), num_episodes]
    return RobustnessMap(
        grid=axes,
        returns=returns.reshape(shape),
        nominal=nominal,
        training_range=training_range,
        confidence=confidence,
        env=source.name,
    )


def _checked_grid(grid: Any) -> dict[str, np.ndarray]:
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must be a dict of names and values, got {type(grid).__name__}")
    if not 1 <= len(grid) <= 2:
        raise ValueError(f"grid must have one or two domain parameters, got {len(grid)}: {list(grid)}")
    axes: dict[str, np.ndarray] = {}
    for name, values in grid.items():
        try:
            array = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"grid of {name!r} must hold numbers, got {values!r}") from error
        if array.ndim != 1 or not array.size or not np.isfinite(array).all() or len(np.unique(array)) < len(array):
            raise ValueError(
                f"grid of {name!r} must be a list of at least one value: finite, different values, got {values!r}"
            )
        axes[str(name)] = np.sort(array)
    return axes


def _try_out(source: EnvSource, names: Sequence[str], updates: Sequence[DomainParamUpdate]) -> dict[str, float]:
    """Nominal values of ``names``; sets every point of the grid once, so that invalid ones are found early."""
    env = source.make()
    try:
        owner = layer_with(env, "get_nominal_domain_param")
        values = dict(owner.get_nominal_domain_param()) if owner is not None else {}
        missing = [name for name in names if name not in values]
        values.update(read_domain_params(env, missing))
        for update in updates:
            update(env)
    finally:
        source.close(env)
    return {name: float(values[name]) for name in names if name in values}


def _training_ranges(
    training: RandomDomains | Mapping[str, tuple[float, float]] | None, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    if training is None:
        return {}
    if isinstance(training, RandomDomains):
        draws = training.draw(_DRAWS, 0)
        ranges = {}
        for name in names:
            if name in training.names:
                low, high = np.quantile([draw[name] for draw in draws], _MIDDLE)
                ranges[name] = (float(low), float(high))
        return ranges
    if not isinstance(training, Mapping):
        raise TypeError(f"training must be a DomainRandomizer or a dict of ranges, got {type(training).__name__}")
    for name in training:
        if name not in names:
            raise unknown_name("parameter of the grid (in training)", str(name), names)
    return {name: _checked_range(f"training[{name!r}]", span) for name, span in training.items()}


def _checked_range(name: str, span: Any) -> tuple[float, float]:
    expected = f"{name} must be (lowest, highest value)"
    if not isinstance(span, list | tuple | np.ndarray) or len(span) != 2:
        raise TypeError(f"{expected}, got {described(span)}")
    low, high = (check_number(f"each of {name}", end, -math.inf) for end in span)
    if low > high:
        raise ValueError(f"{expected}, got ({low:g}, {high:g})")
    return low, high
