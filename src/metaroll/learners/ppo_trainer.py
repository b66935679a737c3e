"""PPO's passes over its data, and gradients by automatic differentiation (through time for recurrent policies)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.functional.gradients.surrogates import ratio_objective
from metaroll.learners.ppo_config import PPOConfig
from metaroll.learners.snapshots import load_optimizer_tree, optimizer_tree
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.gru import RecurrentCritic
from metaroll.processing.on_policy import inside_rollouts, pad_rollouts, rollout_groups, rows_of_rollouts

__all__ = [
    "AutogradTrainer",
    "Minibatch",
    "PPOData",
    "StepReport",
    "Trainer",
    "run_passes",
    "surrogate_loss",
    "value_loss",
]

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
    def values(
        self, critic_inputs: np.ndarray, last_inputs: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values ``(T,)`` of all steps of R rollouts, and ``(R,)`` of the observation after each."""

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
    trainer: Trainer,
    data: PPOData,
    learning_rate: float,
    generator: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """``num_passes`` over ``data``, fewer where the policy moves too far; averages over the minibatches."""
    most = trainer.config.num_passes * -(-len(data.advantages) // trainer.config.batch_size)
    if progress is not None:
        progress(0, most)
    reports: list[StepReport] = []
    passes = 0
    for _ in range(trainer.config.num_passes):
        for minibatch in trainer.minibatches(data, generator):
            reports.append(trainer.train_minibatch(minibatch, learning_rate))
            if progress is not None:
                progress(min(len(reports), most), most)
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


_ROWS_AT_ONCE = 16384


def surrogate_loss(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """``-mean(min(r A, clip(r, 1 - c, 1 + c) A))``, scalar, of arguments ``(B,)`` (Schulman et al. 2017, eq. 7)."""
    return -ratio_objective(log_prob, old_log_prob, advantages, clip_range).mean()


def value_loss(values: Tensor, targets: Tensor, old_values: Tensor, clip_range: float | None = None) -> Tensor:
    """``mean((V - R)^2)``, scalar; with ``clip_range`` see ``functional.policy_gradients.clipped_value_loss``."""
    plain = (values - targets).square()
    if clip_range is None:
        return plain.mean()
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.maximum(plain, (clipped - targets).square()).mean()


class Minibatch(NamedTuple):
    """What one gradient step takes, B steps, as tensors.

    ``observations`` and ``actions`` of a recurrent policy, and ``critic_inputs`` of a recurrent critic, are those of
    whole rollouts ``(N, T, ...)``, in which ``inside (B,)`` are the places of steps, row by row; else ``(B, ...)``.
    """

    observations: Tensor
    actions: Tensor
    critic_inputs: Tensor
    inside: Tensor
    log_probs: Tensor
    advantages: Tensor
    targets: Tensor
    values: Tensor


class AutogradTrainer(Trainer):
    """Trains the modules themselves with ``torch.optim.Adam``.

    A minibatch of a recurrent policy (or critic) holds whole rollouts, side by side from their beginnings with an empty
    memory; as many as have about ``batch_size`` steps together.

    Args:
        policy: Has ``evaluate_actions(obs, actions) -> (log_prob, entropy)``; a recurrent one
            takes sequences ``(N, T, ...)``.
        critic: Called as ``critic(inputs (..., D)) -> (..., 1)``; a ``RecurrentCritic`` with whole
            rollouts ``(N, T, D)``.
        config: The weights of the losses.
        device: Where the modules live.
    """

    def __init__(self, policy: ActingPolicy, critic: nn.Module, config: PPOConfig, device: torch.device) -> None:
        super().__init__(config)
        self._policy, self._critic, self._device = policy, critic, device
        self._recurrent, self._critic_remembers = policy.info.recurrent, isinstance(critic, RecurrentCritic)
        self._parameters = [p for p in (*policy.parameters(), *critic.parameters()) if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._parameters, lr=config.learning_rate, eps=config.adam_eps, foreach=True)

    @torch.no_grad()
    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """See ``Trainer``."""
        if self._recurrent:
            pieces = list(rollout_groups(range(len(bounds) - 1), bounds, _ROWS_AT_ONCE))
            parts = [self._evaluate_sequences(observations, actions, bounds, piece)[0] for piece in pieces]
        else:
            begins = range(0, len(observations), _ROWS_AT_ONCE)
            parts = [
                self._evaluate(self._tensor(observations[b : b + _ROWS_AT_ONCE]), actions[b : b + _ROWS_AT_ONCE])[0]
                for b in begins
            ]
        return torch.cat(parts).cpu().numpy()

    @torch.no_grad()
    def values(
        self, critic_inputs: np.ndarray, last_inputs: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Trainer``; a recurrent critic sees the last observation of a rollout after all others."""
        if not self._critic_remembers:
            return self._row_values(critic_inputs), self._row_values(last_inputs)
        is_last = np.zeros(len(critic_inputs) + len(last_inputs), dtype=bool)
        ends = bounds + np.arange(len(bounds))
        is_last[ends[1:] - 1] = True
        rows = np.empty((len(is_last), critic_inputs.shape[1]), dtype=critic_inputs.dtype)
        rows[is_last], rows[~is_last] = last_inputs, critic_inputs
        pieces = rollout_groups(range(len(bounds) - 1), ends, _ROWS_AT_ONCE)
        found = torch.cat([self._sequence_values(rows, ends, piece) for piece in pieces]).cpu().numpy()
        return found[~is_last], found[is_last]

    def _row_values(self, critic_inputs: np.ndarray) -> np.ndarray:
        parts = [self._critic(part)[..., 0] for part in self._tensor(critic_inputs).split(_ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy()

    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[tuple[PPOData, np.ndarray]]:
        """See ``Trainer``: the data, and which rows (or rollouts, where something remembers)."""
        if self._recurrent or self._critic_remembers:
            order = generator.permutation(len(data.bounds) - 1).tolist()
            for group in rollout_groups(order, data.bounds, self.config.batch_size):
                yield data, np.array(group)
            return
        order = generator.permutation(len(data.advantages))
        for begin in range(0, len(order), self.config.batch_size):
            yield data, order[begin : begin + self.config.batch_size]

    def train_minibatch(self, minibatch: tuple[PPOData, np.ndarray], learning_rate: float) -> StepReport:
        """See ``Trainer``."""
        loss, seen = self.losses(self.tensors_of(*minibatch))
        report = StepReport(*seen.tolist(), grad_norm=None)
        if self.too_far(report.kl):
            return report
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        most = float("inf") if self.config.max_grad_norm is None else self.config.max_grad_norm
        norm = nn.utils.clip_grad_norm_(self._parameters, most)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        return report._replace(grad_norm=float(norm))

    def tensors_of(self, data: PPOData, chosen: np.ndarray) -> Minibatch:
        """Rows (or rollouts, where something remembers) ``chosen`` of ``data`` on the device."""
        by_rollout = self._recurrent or self._critic_remembers
        rows = rows_of_rollouts(data.bounds, chosen) if by_rollout else chosen
        inside = np.flatnonzero(inside_rollouts(data.bounds, chosen)) if by_rollout else np.zeros(0, dtype=np.int64)

        def seen(column: np.ndarray, padded: bool) -> Tensor:
            return self._tensor(pad_rollouts(column, data.bounds, chosen) if padded else column[rows])

        columns = (data.log_probs, data.advantages, data.targets, data.values)
        return Minibatch(
            seen(data.observations, self._recurrent),
            seen(data.actions, self._recurrent),
            seen(data.critic_inputs, self._critic_remembers),
            self._tensor(inside),
            *(self._tensor(column[rows]) for column in columns),
        )

    def losses(self, batch: Minibatch) -> tuple[Tensor, Tensor]:
        """What is minimized, and the numbers of a ``StepReport`` but the last, ``(5,)``; the host waits for nothing."""
        config = self.config
        log_prob, entropies = self._policy.evaluate_actions(batch.observations, batch.actions)
        if self._recurrent:
            # Padding lies behind the end of a rollout, where it changes no earlier step; no gradient comes from it.
            log_prob, entropies = log_prob.flatten()[batch.inside], entropies.flatten()[batch.inside]
        values = self._critic(batch.critic_inputs)[..., 0]
        if self._critic_remembers:
            values = values.flatten()[batch.inside]
        advantages = batch.advantages
        if config.normalize_advantages and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = surrogate_loss(log_prob, batch.log_probs, advantages, config.clip_range)
        error = value_loss(values, batch.targets, batch.values, config.value_clip_range)
        entropy = entropies.mean()
        with torch.no_grad():
            log_ratio = log_prob - batch.log_probs
            ratio = log_ratio.exp()
            kl = (ratio - 1.0 - log_ratio).mean()
            clipped = ((ratio - 1.0).abs() > config.clip_range).float().mean()
            seen = torch.stack([policy_loss, error, entropy, kl, clipped])
        return policy_loss + config.value_coeff * error - config.entropy_coeff * entropy, seen

    def finish(self) -> None:
        """Nothing to do: the modules themselves were trained."""

    def state_dict(self) -> dict[str, Any]:
        """See ``Trainer``."""
        return optimizer_tree(self._optimizer)

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """See ``Trainer``."""
        load_optimizer_tree(self._optimizer, tree)

    def _tensor(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self._device)

    def _evaluate(self, observations: Tensor, actions: np.ndarray) -> tuple[Tensor, Tensor]:
        return self._policy.evaluate_actions(observations, self._tensor(actions))

    def _evaluate_sequences(
        self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray, which: Any
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of all steps of rollouts ``which``, one rollout after the other."""
        padded = self._tensor(pad_rollouts(observations, bounds, which))
        log_prob, entropy = self._evaluate(padded, pad_rollouts(actions, bounds, which))
        inside = self._tensor(inside_rollouts(bounds, which))
        return log_prob[inside], entropy[inside]

    def _sequence_values(self, critic_inputs: np.ndarray, bounds: np.ndarray, which: Any) -> Tensor:
        """Values of a recurrent critic at all steps of rollouts ``which``, one rollout after the other."""
        values = self._critic(self._tensor(pad_rollouts(critic_inputs, bounds, which)))[..., 0]
        return values[self._tensor(inside_rollouts(bounds, which))]
