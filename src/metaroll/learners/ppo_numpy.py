"""PPO's gradient steps for small feed-forward networks, by hand in NumPy: several times faster than autograd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from metaroll.functional.mlp_gradients import (
    HIDDEN_ACTIVATIONS,
    FlatAdam,
    Layer,
    clip_norm,
    count_weights,
    layer_views,
    mlp_backward,
    mlp_forward,
)
from metaroll.functional.policy_gradients import (
    categorical_log_prob,
    categorical_log_prob_gradient,
    clipped_surrogate,
    clipped_value_loss,
    gaussian_log_prob_and_deviation,
    log_softmax,
    standardize,
)
from metaroll.learners.ppo_config import PPOConfig
from metaroll.learners.ppo_trainer import PPOData, StepReport, Trainer
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.networks import MLP

__all__ = ["NumpyTrainer", "can_train"]

_GAUSSIAN_ENTROPY = 0.5 * float(np.log(2.0 * np.pi)) + 0.5
_ROWS_AT_ONCE = 4096


def can_train(policy: nn.Module, critic: nn.Module) -> bool:
    """Whether ``NumpyTrainer`` knows the gradients: MLPs with tanh or relu, on the CPU, of our own policies.

    All weights are trained; only the deviation of a Gaussian may be fixed.
    """
    if type(policy) not in (GaussianMLPPolicy, CategoricalMLPPolicy) or type(critic) is not MLP:
        return False
    if isinstance(policy, CategoricalMLPPolicy) and policy.noise_dim != 1:
        return False  # several choices
    networks: list[Any] = [policy.net, critic]
    tensors = [*policy.parameters(), *critic.parameters()]
    if not all(tensor.requires_grad for net in networks for tensor in net.parameters()):
        return False
    return all(
        isinstance(net, MLP) and net.hidden_nonlinearity in HIDDEN_ACTIVATIONS and net.output_nonlinearity == "identity"
        for net in networks
    ) and all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


class NumpyTrainer(Trainer):
    """Trains a copy of the weights in one flat vector; ``finish`` writes them back into the modules.

    Args:
        policy: A policy that ``can_train`` accepts.
        critic: Its critic.
        config: The weights of the losses.
    """

    def __init__(self, policy: GaussianMLPPolicy | CategoricalMLPPolicy, critic: MLP, config: PPOConfig) -> None:
        super().__init__(config)
        self._policy, self._critic = policy, critic
        sizes = [_sizes_of(policy.net), _sizes_of(critic)]
        counts = [count_weights(sizes[0]), policy.act_dim if isinstance(policy, GaussianMLPPolicy) else 0]
        ends = np.cumsum([*counts, count_weights(sizes[1])]).tolist()
        self._weights, self._gradient = (np.zeros(ends[-1], dtype=np.float32) for _ in range(2))

        def parts(flat: np.ndarray) -> tuple[list[Layer], np.ndarray, list[Layer]]:
            actor, log_std, critic = np.split(flat, ends[:2])
            return layer_views(actor, sizes[0]), log_std, layer_views(critic, sizes[1])

        self._actor, self._log_std, self._critic_layers = parts(self._weights)
        self._d_actor, self._d_log_std, self._d_critic = parts(self._gradient)
        self._optimizer = FlatAdam(self._weights, config.adam_eps)
        self._read_modules()

    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """See ``Trainer``."""
        self._read_modules()
        activation = self._policy.net.hidden_nonlinearity
        parts = []
        for rows in _pieces(len(observations)):
            output = mlp_forward(observations[rows], self._actor, activation)[-1]
            if isinstance(self._policy, GaussianMLPPolicy):
                parts.append(gaussian_log_prob_and_deviation(actions[rows], output, self._clamped_log_std())[0])
            else:
                parts.append(categorical_log_prob(log_softmax(output), actions[rows])[0])
        return np.concatenate(parts)

    def values(
        self, critic_inputs: np.ndarray, last_inputs: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``Trainer``."""
        self._read_modules()
        return self._row_values(critic_inputs), self._row_values(last_inputs)

    def _row_values(self, critic_inputs: np.ndarray) -> np.ndarray:
        activation = self._critic.hidden_nonlinearity
        parts = [
            mlp_forward(critic_inputs[rows], self._critic_layers, activation)[-1][:, 0]
            for rows in _pieces(len(critic_inputs))
        ]
        return np.concatenate(parts)

    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[Sequence[np.ndarray]]:
        """See ``Trainer``; rows are shuffled once, so that each minibatch is a piece of contiguous memory."""
        order = generator.permutation(len(data.advantages))
        observations = data.observations[order]
        shared = data.critic_inputs is data.observations
        columns = [
            observations,
            observations if shared else data.critic_inputs[order],
            *(c[order] for c in (data.actions, data.log_probs, data.advantages, data.targets, data.values)),
        ]
        for begin in range(0, len(order), self.config.batch_size):
            yield [column[begin : begin + self.config.batch_size] for column in columns]

    def train_minibatch(self, minibatch: Sequence[np.ndarray], learning_rate: float) -> StepReport:
        """See ``Trainer``."""
        observations, critic_inputs, actions, old_log_probs, advantages, targets, old_values = minibatch
        config = self.config
        if config.normalize_advantages:
            advantages = standardize(advantages)
        losses = self._gaussian_step if isinstance(self._policy, GaussianMLPPolicy) else self._categorical_step
        policy_loss, entropy, kl, clip_fraction = losses(observations, actions, old_log_probs, advantages)

        activation = self._critic.hidden_nonlinearity
        outputs = mlp_forward(critic_inputs, self._critic_layers, activation)
        value_loss, d_values = clipped_value_loss(outputs[-1][:, 0], targets, old_values, config.value_clip_range)
        if self.too_far(kl):
            return StepReport(policy_loss, value_loss, entropy, kl, clip_fraction, None)
        d_values *= np.float32(config.value_coeff)
        mlp_backward(d_values[:, None], outputs, self._critic_layers, self._d_critic, activation)
        norm = clip_norm(self._gradient, config.max_grad_norm)
        self._optimizer.step(self._gradient, learning_rate)
        return StepReport(policy_loss, value_loss, entropy, kl, clip_fraction, norm)

    def finish(self) -> None:
        """Write the weights into the modules, in place."""
        with torch.no_grad():
            for module, layers in self._networks():
                for linear, (weight, bias) in zip(module.layers, layers, strict=True):
                    linear.weight.copy_(torch.from_numpy(weight.T))
                    linear.bias.copy_(torch.from_numpy(bias))
            if isinstance(self._policy, GaussianMLPPolicy):
                self._policy.log_std.copy_(torch.from_numpy(self._log_std))

    def state_dict(self) -> dict[str, Any]:
        """See ``Trainer``."""
        return self._optimizer.state_dict()

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """See ``Trainer``."""
        self._optimizer.load_state_dict(tree)

    def _networks(self) -> list[tuple[Any, list[Layer]]]:
        return [(self._policy.net, self._actor), (self._critic, self._critic_layers)]

    def _read_modules(self) -> None:
        # Before every epoch: somebody may have loaded other weights.
        for module, layers in self._networks():
            for linear, (weight, bias) in zip(module.layers, layers, strict=True):
                weight[...] = linear.weight.detach().numpy().T
                bias[...] = linear.bias.detach().numpy()
        if isinstance(self._policy, GaussianMLPPolicy):
            self._log_std[...] = self._policy.log_std.detach().numpy()

    def _clamped_log_std(self) -> np.ndarray:
        least = self._policy.min_log_std if isinstance(self._policy, GaussianMLPPolicy) else 0.0
        return np.maximum(self._log_std, np.float32(least))

    def _gaussian_step(
        self, observations: np.ndarray, actions: np.ndarray, old_log_probs: np.ndarray, advantages: np.ndarray
    ) -> tuple[float, float, float, float]:
        """Loss, entropy, KL and clipped share of a Gaussian policy; gradients are written."""
        activation, coeff = self._policy.net.hidden_nonlinearity, self.config.entropy_coeff
        log_std = self._clamped_log_std()
        outputs = mlp_forward(observations, self._actor, activation)
        log_prob, z = gaussian_log_prob_and_deviation(actions, outputs[-1], log_std)
        loss, d_log_prob, kl, clip_fraction = clipped_surrogate(
            log_prob, old_log_probs, advantages, self.config.clip_range
        )
        d_mean = z * d_log_prob[:, None]
        d_mean *= np.exp(-log_std)
        if self._policy.log_std.requires_grad:  # pyright: ignore[reportAttributeAccessIssue] - a Gaussian policy
            np.multiply(z, z, out=z)
            z -= np.float32(1.0)
            np.matmul(d_log_prob, z, out=self._d_log_std)
            self._d_log_std -= np.float32(coeff)
            self._d_log_std *= self._log_std >= log_std  # below the bound it is constant
        mlp_backward(d_mean, outputs, self._actor, self._d_actor, activation)
        return loss, float(log_std.sum()) + len(log_std) * _GAUSSIAN_ENTROPY, kl, clip_fraction

    def _categorical_step(
        self, observations: np.ndarray, actions: np.ndarray, old_log_probs: np.ndarray, advantages: np.ndarray
    ) -> tuple[float, float, float, float]:
        """The same of a categorical policy."""
        activation = self._policy.net.hidden_nonlinearity
        outputs = mlp_forward(observations, self._actor, activation)
        log_probs = log_softmax(outputs[-1])
        log_prob, entropy = categorical_log_prob(log_probs, actions)
        loss, d_log_prob, kl, clip_fraction = clipped_surrogate(
            log_prob, old_log_probs, advantages, self.config.clip_range
        )
        d_entropy = np.full(len(actions), -self.config.entropy_coeff / len(actions), dtype=np.float32)
        d_logits = categorical_log_prob_gradient(log_probs, actions, entropy, d_log_prob, d_entropy)
        mlp_backward(d_logits, outputs, self._actor, self._d_actor, activation)
        return loss, float(entropy.mean()), kl, clip_fraction


def _sizes_of(net: MLP) -> list[int]:
    layers: Any = list(net.layers)
    return [net.input_dim, *(layer.out_features for layer in layers)]


def _pieces(count: int) -> list[slice]:
    return [slice(begin, begin + _ROWS_AT_ONCE) for begin in range(0, count, _ROWS_AT_ONCE)]
