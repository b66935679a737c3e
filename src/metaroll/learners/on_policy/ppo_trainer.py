"""PPO's gradient step, and its passes over the data, for networks by hand or by automatic differentiation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, final

import numpy as np

from metaroll.functional.policy_gradients import clipped_surrogate, clipped_value_loss
from metaroll.learners.on_policy.configs import PPOConfig
from metaroll.state import Stateful

__all__ = ["PPOData", "PPONets", "Targets", "Trainer", "run_passes"]

_KL_SLACK = 1.5
"""The KL divergence may exceed its target by this factor, as in the usual implementations."""


@dataclass(frozen=True)
class PPOData:
    """Data of an epoch: T steps of R concatenated rollouts; float32 (indices for choices).

    ``observations (T, obs_dim)`` are normalized; ``critic_inputs (T, obs_dim + D)`` may hold domain parameters, too;
    ``actions (T, ...)`` are those of the network, before scaling; ``log_probs``, ``advantages``, ``targets`` of the
    values, and old ``values`` are ``(T,)``; ``bounds`` of rollouts ``(R+1,)``.
    """

    observations: np.ndarray
    critic_inputs: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    targets: np.ndarray
    values: np.ndarray
    bounds: np.ndarray


class Targets(NamedTuple):
    """Targets of a minibatch of B rows, all ``(B,)``, arrays of NumPy or torch.

    Attributes:
        log_probs: ``ln pi_old(a | s)``, from when the actions were sampled.
        advantages: Advantages, normalized if configured.
        returns: Targets of the values.
        values: ``V_old(s)``, from before the passes.
    """

    log_probs: Any
    advantages: Any
    returns: Any
    values: Any


class StepReport(NamedTuple):
    """Metrics of one minibatch, from before its gradient step (``grad_norm`` is ``None`` if none was taken)."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float
    grad_norm: float | None


Inputs = TypeVar("Inputs")
"""Network inputs of a minibatch."""


class PPONets(Stateful, ABC, Generic[Inputs]):
    """Policy and critic as a gradient step uses them: outputs, then a step from the gradients at the outputs.

    The state is the optimizer's: the learner saves the modules.
    """

    @abstractmethod
    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Log-probabilities ``(T,)`` of ``actions`` given normalized ``observations (T, obs_dim)``."""

    @abstractmethod
    def values(
        self, critic_inputs: np.ndarray, last_inputs: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values ``(T,)`` of all steps of R rollouts, and ``(R,)`` of the observation after each."""

    @abstractmethod
    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[tuple[Inputs, Targets]]:
        """All of ``data`` once, in random order."""

    @abstractmethod
    def policy(self, inputs: Inputs) -> tuple[Any, Any]:
        """``ln pi(a | s)`` ``(B,)``, and the mean entropy ``()`` of pi; detached."""

    @abstractmethod
    def pull_policy(self, d_log_prob: Any, d_entropy: float) -> None:
        """Set the gradient of the parameters, from ``dL/dln pi`` ``(B,)`` and ``dL/dH`` of the last ``policy`` call."""

    @abstractmethod
    def critic(self, inputs: Inputs) -> Any:
        """``V(s)`` ``(B,)``, detached; ``pull_policy`` must come between ``policy`` and this."""

    @abstractmethod
    def pull_critic(self, d_values: Any) -> None:
        """Add the gradient of the parameters, from ``dL/dV`` ``(B,)`` of the last ``critic`` call."""

    @abstractmethod
    def descend(self, learning_rate: float) -> float:
        """One Adam step with the accumulated gradient, clipped; returns its norm before clipping."""

    @abstractmethod
    def numbers(self, *values: Any) -> list[float]:
        """Scalars ``()`` as Python floats, in one copy from the device."""

    @abstractmethod
    def finish(self) -> None:
        """Update the modules after the passes."""


@final
class Trainer:
    """Trains a policy and a critic.

    Args:
        nets: Policy and critic.
        config: Hyperparameters of the steps.
    """

    def __init__(self, nets: PPONets[Any], config: PPOConfig) -> None:
        self.nets, self.config = nets, config

    def train_minibatch(self, inputs: Any, targets: Targets, learning_rate: float) -> StepReport:
        """One gradient step down ``L_policy + c_v L_value - c_e H`` (Schulman et al. 2017, equation 9, negated).

        No step is taken where the policy has moved too far from the one that collected the data (``target_kl``).
        """
        config, size = self.config, len(targets.advantages)
        # ln pi(a | s), (B,), and the mean entropy H, ()
        log_prob, entropy = self.nets.policy(inputs)
        # L_policy = -mean(min(r A, clip(r, 1 - c, 1 + c) A)), r = exp(ln pi - ln pi_old), (B,) (equation 7)
        surrogate = clipped_surrogate(log_prob, targets.log_probs, targets.advantages, config.clip_range)
        # dL/dln pi, (B,), and dL/dH = -c_e, back to the policy's parameters
        self.nets.pull_policy(surrogate.d_log_prob, -config.entropy_coeff)
        # L_value = mean((V(s) - R)^2), times c_v; V and dL/dV, (B,)
        values = self.nets.critic(inputs)
        error = clipped_value_loss(values, targets.returns, targets.values, config.value_clip_range)
        self.nets.pull_critic(config.value_coeff * error.d_values)
        # Sums over the batch, (), in one copy from the device
        objective, squares, kl, num_clipped, entropy = self.nets.numbers(
            surrogate.objective, error.squares, surrogate.kl, surrogate.num_clipped, entropy
        )
        # Early stopping on the approximate KL(pi_old || pi); otherwise Adam with a clipped gradient norm
        too_far = config.target_kl is not None and kl / size > _KL_SLACK * config.target_kl
        norm = None if too_far else self.nets.descend(learning_rate)
        return StepReport(-objective / size, squares / size, entropy, kl / size, num_clipped / size, norm)


def run_passes(
    trainer: Trainer,
    data: PPOData,
    learning_rate: float,
    generator: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """``num_passes`` over ``data``, fewer where the policy moves too far; returns averages over the minibatches."""
    max_steps = trainer.config.num_passes * -(-len(data.advantages) // trainer.config.batch_size)
    if progress is not None:
        progress(0, max_steps)
    reports: list[StepReport] = []
    passes = 0
    for _ in range(trainer.config.num_passes):
        for inputs, targets in trainer.nets.minibatches(data, generator):
            reports.append(trainer.train_minibatch(inputs, targets, learning_rate))
            if progress is not None:
                progress(min(len(reports), max_steps), max_steps)
            if reports[-1].grad_norm is None:
                break
        else:
            passes += 1
            continue
        break
    trainer.nets.finish()
    taken = [report.grad_norm for report in reports if report.grad_norm is not None]
    means = np.array([report[:-1] for report in reports], dtype=np.float64).mean(axis=0)
    names = StepReport._fields[:-1]
    return {
        **dict(zip(names, means.tolist(), strict=True)),
        "grad_norm": float(np.mean(taken)) if taken else 0.0,
        "whole_passes": float(passes),
        "gradient_steps": float(len(taken)),
    }
