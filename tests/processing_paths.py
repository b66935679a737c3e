"""Paths of several tasks for tests of processors, and slow loops to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def make_paths(lengths: Sequence[int], seed: int = 0, obs_dim: int = 2) -> list[dict[str, Any]]:
    """Path dicts with these lengths."""
    rng = np.random.default_rng(seed)
    return [
        {
            "observations": rng.normal(size=(t, obs_dim)),
            "actions": rng.normal(size=(t, 1)),
            "rewards": rng.normal(size=t),
            "env_infos": {"speed": rng.normal(size=t)},
            "agent_infos": {"mean": rng.normal(size=(t, 1)), "log_std": np.zeros((t, 1))},
        }
        for t in lengths
    ]


def slow_returns(rewards: np.ndarray, discount: float) -> list[float]:
    """Discounted sums, term by term."""
    return [sum(discount ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]


def slow_gae(rewards: np.ndarray, values: np.ndarray, final: float, discount: float, lam: float) -> list[float]:
    """For each step, the sum over all later TD errors."""
    following = [*values[1:], final]
    deltas = [rewards[k] + discount * following[k] - values[k] for k in range(len(rewards))]
    return [sum((discount * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


class MeanBaseline:
    """Another library's baseline: it expects the mean of all targets, times a number of the observation."""

    def __init__(self) -> None:
        self.mean = 0.0
        self.seen: list[int] = []

    def fit(self, paths: Any, target_key: str = "returns") -> None:
        self.mean = float(np.mean(np.concatenate([path[target_key] for path in paths])))
        self.seen.append(len(paths))

    def predict(self, path: Any) -> np.ndarray:
        return self.mean * path["observations"][:, 0]
