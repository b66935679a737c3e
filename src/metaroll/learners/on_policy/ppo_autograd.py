"""Networks of PPO of any kind, by automatic differentiation (through time, where they remember), on any device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.learners.on_policy.ppo_config import PPOConfig
from metaroll.learners.on_policy.ppo_trainer import PPOData, PPONets, Targets
from metaroll.learners.snapshots import load_optimizer_tree, optimizer_tree
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.gru import RecurrentCritic
from metaroll.processing.on_policy import inside_rollouts, pad_rollouts, rollout_groups, rows_of_rollouts

__all__ = ["AutogradNets"]

_ROWS_AT_ONCE = 16384


class Tensors(NamedTuple):
    """What networks take of a minibatch of B steps.

    ``observations`` and ``actions`` of a recurrent policy, and ``critic_inputs`` of a recurrent critic, are those of
    whole rollouts ``(N, T, ...)``, in which ``inside (B,)`` are the places of steps, row by row; else ``(B, ...)``.
    """

    observations: Tensor
    actions: Tensor
    critic_inputs: Tensor
    inside: Tensor


@final
class AutogradNets(PPONets[Tensors]):
    """The modules themselves, trained with ``torch.optim.Adam``.

    A minibatch of a recurrent policy (or critic) holds whole rollouts, side by side from their beginnings with an empty
    memory; as many as have about ``batch_size`` steps together.

    Args:
        policy: Has ``evaluate_actions(obs, actions) -> (log_prob, entropy)``; a recurrent one takes sequences
            ``(N, T, ...)``.
        critic: Called as ``critic(inputs (..., D)) -> (..., 1)``; a ``RecurrentCritic`` with whole rollouts
            ``(N, T, D)``.
        config: The numbers of the optimizer.
        device: Where the modules live.
    """

    def __init__(self, policy: ActingPolicy, critic: nn.Module, config: PPOConfig, device: torch.device) -> None:
        self._policy, self._critic, self._config, self._device = policy, critic, config, device
        self._recurrent, self._critic_remembers = policy.info.recurrent, isinstance(critic, RecurrentCritic)
        self._parameters = [p for p in (*policy.parameters(), *critic.parameters()) if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._parameters, lr=config.learning_rate, eps=config.adam_eps, foreach=True)
        self._outputs: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """See ``PPONets``."""
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
        """See ``PPONets``; a recurrent critic sees the last observation of a rollout after all others."""
        if not self._critic_remembers:
            return self._row_values(critic_inputs), self._row_values(last_inputs)
        is_last = np.zeros(len(critic_inputs) + len(last_inputs), dtype=bool)
        ends = bounds + np.arange(len(bounds))
        is_last[ends[1:] - 1] = True
        rows = np.empty((len(is_last), critic_inputs.shape[1]), dtype=critic_inputs.dtype)
        rows[is_last], rows[~is_last] = last_inputs, critic_inputs
        pieces = rollout_groups(range(len(bounds) - 1), ends, _ROWS_AT_ONCE)
        values = torch.cat([self._sequence_values(rows, ends, piece) for piece in pieces]).cpu().numpy()
        return values[~is_last], values[is_last]

    def _row_values(self, critic_inputs: np.ndarray) -> np.ndarray:
        parts = [self._critic(part)[..., 0] for part in self._tensor(critic_inputs).split(_ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy()

    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[tuple[Tensors, Targets]]:
        """See ``PPONets``."""
        if self._recurrent or self._critic_remembers:
            order = generator.permutation(len(data.bounds) - 1).tolist()
            for group in rollout_groups(order, data.bounds, self._config.batch_size):
                yield self._tensors_of(data, np.array(group))
            return
        order = generator.permutation(len(data.advantages))
        for begin in range(0, len(order), self._config.batch_size):
            yield self._tensors_of(data, order[begin : begin + self._config.batch_size])

    def _tensors_of(self, data: PPOData, chosen: np.ndarray) -> tuple[Tensors, Targets]:
        """Rows (or rollouts, where something remembers) ``chosen`` of ``data`` on the device."""
        by_rollout = self._recurrent or self._critic_remembers
        rows = rows_of_rollouts(data.bounds, chosen) if by_rollout else chosen
        inside = np.flatnonzero(inside_rollouts(data.bounds, chosen)) if by_rollout else np.zeros(0, dtype=np.int64)

        def seen(column: np.ndarray, padded: bool) -> Tensor:
            return self._tensor(pad_rollouts(column, data.bounds, chosen) if padded else column[rows])

        tensors = Tensors(
            seen(data.observations, self._recurrent),
            seen(data.actions, self._recurrent),
            seen(data.critic_inputs, self._critic_remembers),
            self._tensor(inside),
        )
        columns = (data.log_probs, data.advantages, data.targets, data.values)
        targets = Targets(*(self._tensor(column[rows]) for column in columns))
        advantages = targets.advantages
        if self._config.normalize_advantages and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return tensors, targets._replace(advantages=advantages)

    def evaluate(self, inputs: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """See ``PPONets``."""
        log_prob, entropies = self._policy.evaluate_actions(inputs.observations, inputs.actions)
        if self._recurrent:
            # Padding lies behind the end of a rollout, where it changes no earlier step; no gradient comes from it.
            log_prob, entropies = log_prob.flatten()[inputs.inside], entropies.flatten()[inputs.inside]
        values = self._critic(inputs.critic_inputs)[..., 0]
        if self._critic_remembers:
            values = values.flatten()[inputs.inside]
        self._outputs = log_prob, entropies.mean(), values
        return log_prob.detach(), self._outputs[1].detach(), values.detach()

    def descend(self, d_log_prob: Tensor, d_entropy: float, d_values: Tensor, learning_rate: float) -> float:
        """See ``PPONets``."""
        outputs, self._outputs = self._outputs, ()
        grads = (d_log_prob, torch.full_like(outputs[1], d_entropy), d_values)
        # What nothing is learned of (a deviation that is fixed) has no gradient.
        learned = [i for i, output in enumerate(outputs) if output.requires_grad]
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([outputs[i] for i in learned], [grads[i] for i in learned])
        most = float("inf") if self._config.max_grad_norm is None else self._config.max_grad_norm
        norm = nn.utils.clip_grad_norm_(self._parameters, most)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        return float(norm)

    def numbers(self, *values: Any) -> list[float]:
        """See ``PPONets``."""
        return torch.stack([value.to(torch.float64) for value in values]).tolist()

    def finish(self) -> None:
        """Nothing to do: the modules themselves were trained."""

    def state_dict(self) -> dict[str, Any]:
        """See ``PPONets``."""
        return optimizer_tree(self._optimizer)

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """See ``PPONets``."""
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
