"""What PPO asks of whoever computes its gradients, and the passes over the data that both kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from metaroll.learners.ppo_config import PPOConfig

__all__ = ["PPOData", "StepReport", "Trainer", "run_passes"]

_KL_SLACK = 1.5
"""The KL divergence may exceed its target by this factor, as in the usual implementations."""


@dataclass(frozen=True)
class PPOData:
    """What the passes go over: T steps of R rollouts, one after the other; float32 (indices for choices).

    ``observations (T, obs_dim)`` are normalized; ``critic_inputs (T, obs_dim + D)`` may tell more; ``actions (T, ...)``
    are the policy's own; ``log_probs``, ``advantages``, ``targets`` of the values, ``values`` are ``(T,)``; ``bounds
    (R+1,)``.
    """

    observations: np.ndarray
    critic_inputs: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    targets: np.ndarray
    values: np.ndarray
    bounds: np.ndarray


class StepReport(NamedTuple):
    """What one minibatch showed, before the step that it gave rise to (none if ``grad_norm`` is ``None``)."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float
    grad_norm: float | None


class Trainer(ABC):
    """Evaluates and trains a policy and a critic.

    Args:
        config: The weights of the losses.
    """

    def __init__(self, config: PPOConfig) -> None:
        self.config = config

    @abstractmethod
    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Log-probabilities ``(T,)`` of ``actions`` given normalized ``observations (T, obs_dim)``."""

    @abstractmethod
    def values(self, critic_inputs: np.ndarray) -> np.ndarray:
        """Values ``(T,)``."""

    @abstractmethod
    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[Any]:
        """All of ``data`` once, in random order."""

    @abstractmethod
    def train_minibatch(self, minibatch: Any, learning_rate: float) -> StepReport:
        """One gradient step, unless ``too_far``."""

    def too_far(self, kl: float) -> bool:
        """Whether the policy has moved so far that the epoch ends."""
        target = self.config.target_kl
        return target is not None and kl > _KL_SLACK * target

    @abstractmethod
    def finish(self) -> None:
        """Bring the modules up to date after the passes."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """State of the optimizer."""

    @abstractmethod
    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``; the modules have been restored before."""


def run_passes(
    trainer: Trainer, data: PPOData, learning_rate: float, generator: np.random.Generator
) -> dict[str, float]:
    """``num_passes`` over ``data``, fewer where the policy moves too far; averages over the minibatches."""
    reports: list[StepReport] = []
    passes = 0
    for _ in range(trainer.config.num_passes):
        for minibatch in trainer.minibatches(data, generator):
            reports.append(trainer.train_minibatch(minibatch, learning_rate))
            if reports[-1].grad_norm is None:
                break
        else:
            passes += 1
            continue
        break
    trainer.finish()
    taken = [report.grad_norm for report in reports if report.grad_norm is not None]
    means = np.array([report[:-1] for report in reports], dtype=np.float64).mean(axis=0)
    names = StepReport._fields[:-1]
    return {
        **dict(zip(names, means.tolist(), strict=True)),
        "grad_norm": float(np.mean(taken)) if taken else 0.0,
        "whole_passes": float(passes),
        "gradient_steps": float(len(taken)),
    }
