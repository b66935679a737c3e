"""Networks of PPO as its gradient step uses them: by hand in NumPy, or by automatic differentiation.

Small feed-forward networks are several times faster by hand. All others, recurrent ones included, use autograd, on any
device.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.functional.gradients.backends import NUMPY
from metaroll.functional.gradients.optimizers import Adam, clip_norm
from metaroll.functional.gradients.perceptrons import Memory, Perceptrons
from metaroll.functional.policy_gradients import (
    categorical_log_prob,
    categorical_log_prob_gradient,
    gaussian_rows,
    log_softmax,
    standardize,
)
from metaroll.learners.on_policy.configs import PPOConfig
from metaroll.learners.on_policy.ppo_trainer import PPOData, PPONets, Targets
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import RecurrentCritic
from metaroll.policies.networks import MLP, check_layers, is_plain
from metaroll.policies.own_body import takes_one_row
from metaroll.processing.on_policy import inside_rollouts, pad_rollouts, rollout_groups, rows_of_rollouts
from metaroll.state import parts

__all__ = ["AutogradNets", "KernelNets", "can_train"]

# -- by hand -----------------------------------------------------------------------------------------------------------

_ROWS_OF_KERNEL = 4096


def can_train(policy: nn.Module, critic: nn.Module) -> bool:
    """Whether ``KernelNets`` knows the gradients: MLPs with tanh or relu, on the CPU, of our own policies.

    All weights are trained; only the deviation of a Gaussian may be fixed.
    """
    if type(policy) not in (GaussianMLPPolicy, CategoricalMLPPolicy) or policy.encoder is not None:
        return False
    check_layers(policy, policy.net)
    # A user's critic may compute something else.
    if type(critic) is not MLP or not all(map(is_plain, critic.layers)):
        return False
    if isinstance(policy, CategoricalMLPPolicy) and policy.noise_dim != 1:
        return False  # several choices
    networks: list[Any] = [policy.net, critic]
    tensors = [*policy.parameters(), *critic.parameters()]
    if not all(tensor.requires_grad for net in networks for tensor in net.parameters()):
        return False
    return all(
        net.hidden_nonlinearity in NUMPY.activations and net.output_nonlinearity == "identity" for net in networks
    ) and all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


class Rows(NamedTuple):
    """Network inputs of a minibatch: B rows of observations, critic inputs and actions."""

    observations: np.ndarray
    critic_inputs: np.ndarray
    actions: np.ndarray


class _Layers(NamedTuple):
    """Weights ``(in, out)`` and biases of a perceptron, views of a flat vector."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]


def _count(net: MLP) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(_sizes_of(net)))


def _sizes_of(net: MLP) -> list[int]:
    layers: Any = list(net.layers)
    return [net.input_dim, *(layer.out_features for layer in layers)]


def _layers_of(flat: np.ndarray, net: MLP) -> _Layers:
    """Views of ``flat``: the weight and then the bias of each layer."""
    layers, begin = _Layers([], []), 0
    for a, b in itertools.pairwise(_sizes_of(net)):
        middle, end = begin + a * b, begin + (a + 1) * b
        layers.weights.append(flat[begin:middle].reshape(a, b))
        layers.biases.append(flat[middle:end])
        begin = end
    return layers


def _kernel(net: MLP, layers: _Layers, gradients: _Layers, memory: Memory) -> Perceptrons:
    grads = [*gradients.weights, *gradients.biases]
    return Perceptrons(layers.weights, layers.biases, net.hidden_nonlinearity, NUMPY, gradients=grads, memory=memory)


class _Actor(ABC):
    """A policy: log-probabilities of actions, the mean entropy, and their gradients."""

    kernel: Perceptrons

    @abstractmethod
    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, float]:
        """``ln pi(a | s)`` ``(B,)``, and the mean entropy."""

    @abstractmethod
    def pull(self, d_log_prob: np.ndarray, d_entropy: float) -> None:
        """Write the gradient of the parameters, from ``dL/dln pi`` ``(B,)`` and ``dL/dH`` of the mean entropy."""


@final
class _GaussianActor(_Actor):
    """``N(mu(s), sigma^2)`` with a state-independent ``ln sigma`` ``(A,)`` of at least ``least``, perhaps fixed."""

    def __init__(
        self, kernel: Perceptrons, log_std: np.ndarray, d_log_std: np.ndarray, least: float, is_learned: bool
    ) -> None:
        self.kernel = kernel
        self._log_std, self._d_log_std, self._least, self._is_learned = log_std, d_log_std, least, is_learned
        self._bounded, self._rows = log_std, gaussian_rows(log_std[None], log_std[None], log_std)

    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, float]:
        # mu(s), (B, A); z = (a - mu) / sigma, (B, A); ln pi = -sum_i (z_i^2 / 2 + ln sigma_i + ln(2 pi) / 2), (B,)
        mean = self.kernel(observations)[0]
        self._bounded = log_std = np.maximum(self._log_std, np.float32(self._least))
        self._rows = rows = gaussian_rows(actions, mean, log_std)
        return rows.log_prob, rows.entropy

    def pull(self, d_log_prob: np.ndarray, d_entropy: float) -> None:
        _, z, inverse_std, _ = self._rows
        # d ln pi / d mu = z / sigma, (B, A)
        d_mean = z * d_log_prob[:, None]
        d_mean *= inverse_std
        if self._is_learned:
            # d ln pi / d ln sigma = z^2 - 1, (B, A), summed over the batch; d H / d ln sigma = 1, (A,)
            np.multiply(z, z, out=z)
            z -= np.float32(1.0)
            np.matmul(d_log_prob, z, out=self._d_log_std)
            self._d_log_std += np.float32(d_entropy)
            self._d_log_std *= self._log_std >= self._bounded  # no gradient below the bound
        self.kernel.pull(d_mean[None])


@final
class _CategoricalActor(_Actor):
    """A categorical policy, ``pi(a | s) = softmax(f(s))_a``."""

    def __init__(self, kernel: Perceptrons) -> None:
        self.kernel = kernel
        self._log_probs = self._actions = self._entropy = np.zeros(0, dtype=np.float32)

    def evaluate(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, float]:
        # ln pi(. | s) = log softmax(f(s)), (B, n); ln pi(a | s) and H, (B,)
        self._log_probs, self._actions = log_softmax(self.kernel(observations)[0]), actions
        log_prob, self._entropy = categorical_log_prob(self._log_probs, actions)
        return log_prob, float(np.add.reduce(self._entropy) / len(self._entropy))

    def pull(self, d_log_prob: np.ndarray, d_entropy: float) -> None:
        # dL/dlogits, (B, n), from dL/dln pi(a | s), (B,), and dL/dH of each row, (B,)
        d_entropies = np.full(len(d_log_prob), d_entropy / len(d_log_prob), dtype=np.float32)
        d_logits = categorical_log_prob_gradient(self._log_probs, self._actions, self._entropy, d_log_prob, d_entropies)
        self.kernel.pull(d_logits[None])


@final
class KernelNets(PPONets[Rows]):
    """A copy of the weights in one flat vector; ``finish`` writes them back into the modules.

    Args:
        policy: A policy that ``can_train`` accepts.
        critic: Its critic.
        config: Hyperparameters of the optimizer.
    """

    state_parts = parts(first="_optimizer.first.0", second="_optimizer.second.0", num_steps="num_steps")

    def __init__(self, policy: GaussianMLPPolicy | CategoricalMLPPolicy, critic: MLP, config: PPOConfig) -> None:
        self._policy, self._critic, self._config = policy, critic, config
        num_stds = policy.act_dim if isinstance(policy, GaussianMLPPolicy) else 0
        ends = np.cumsum([_count(policy.net), num_stds, _count(critic)]).tolist()
        self._weights, self._gradient = (np.zeros(ends[-1], dtype=np.float32) for _ in range(2))
        of_actor, self._log_std, of_critic = np.split(self._weights, ends[:2])
        d_actor, d_log_std, d_critic = np.split(self._gradient, ends[:2])
        self._layers: list[tuple[Any, _Layers]] = [
            (policy.net, _layers_of(of_actor, policy.net)),
            (critic, _layers_of(of_critic, critic)),
        ]
        memory = Memory()  # shared: policy and critic take turns
        kernel = _kernel(policy.net, self._layers[0][1], _layers_of(d_actor, policy.net), memory)
        self._actor: _Actor = (
            _GaussianActor(kernel, self._log_std, d_log_std, policy.min_log_std, policy.log_std.requires_grad)
            if isinstance(policy, GaussianMLPPolicy)
            else _CategoricalActor(kernel)
        )
        self._judge = _kernel(critic, self._layers[1][1], _layers_of(d_critic, critic), memory)
        self._optimizer = Adam([self._weights], config.learning_rate, eps=config.adam_eps)
        self._read_modules()

    def log_probs(self, observations: np.ndarray, actions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """See ``PPONets``."""
        self._read_modules()
        pieces = _pieces(len(observations))
        return np.concatenate([self._actor.evaluate(observations[rows], actions[rows])[0] for rows in pieces])

    def values(
        self, critic_inputs: np.ndarray, last_inputs: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See ``PPONets``."""
        self._read_modules()
        return self._row_values(critic_inputs), self._row_values(last_inputs)

    def _row_values(self, critic_inputs: np.ndarray) -> np.ndarray:
        pieces = _pieces(len(critic_inputs))
        return np.concatenate([self._judge(critic_inputs[rows])[0, :, 0].copy() for rows in pieces])

    def minibatches(self, data: PPOData, generator: np.random.Generator) -> Iterator[tuple[Rows, Targets]]:
        """See ``PPONets``; rows are shuffled once, so that each minibatch is contiguous in memory."""
        order = generator.permutation(len(data.advantages))
        observations = data.observations[order]
        shared = data.critic_inputs is data.observations
        columns = [
            observations,
            observations if shared else data.critic_inputs[order],
            *(c[order] for c in (data.actions, data.log_probs, data.advantages, data.targets, data.values)),
        ]
        for begin in range(0, len(order), self._config.batch_size):
            piece = [column[begin : begin + self._config.batch_size] for column in columns]
            if self._config.normalize_advantages:
                piece[4] = standardize(piece[4])  # advantages, (B,)
            yield Rows(*piece[:3]), Targets(*piece[3:])

    def policy(self, inputs: Rows) -> tuple[np.ndarray, float]:
        """See ``PPONets``."""
        return self._actor.evaluate(inputs.observations, inputs.actions)

    def pull_policy(self, d_log_prob: np.ndarray, d_entropy: float) -> None:
        """See ``PPONets``."""
        self._actor.pull(d_log_prob, d_entropy)

    def critic(self, inputs: Rows) -> np.ndarray:
        """See ``PPONets``."""
        return self._judge(inputs.critic_inputs)[0, :, 0]

    def pull_critic(self, d_values: np.ndarray) -> None:
        """See ``PPONets``."""
        # dL/dtheta of the critic, from dL/dV (B,) as (1, B, 1): one network with one output
        self._judge.pull(d_values[None, :, None])

    def descend(self, learning_rate: float) -> float:
        """See ``PPONets``."""
        # g <- g min(1, max_norm / |g|), (P,) of both networks together; then theta <- theta - lr Adam(g)
        norm = clip_norm(self._gradient, self._config.max_grad_norm)
        self._optimizer.set_lr(learning_rate)
        self._optimizer.step([self._gradient])
        return norm

    def numbers(self, *values: Any) -> list[float]:
        """See ``PPONets``."""
        return [float(value) for value in values]

    def finish(self) -> None:
        """Write the weights into the modules, in place."""
        with torch.no_grad():
            for module, layers in self._layers:
                for linear, weight, bias in zip(module.layers, *layers, strict=True):
                    linear.weight.copy_(torch.from_numpy(weight.T))
                    linear.bias.copy_(torch.from_numpy(bias))
            if isinstance(self._policy, GaussianMLPPolicy):
                self._policy.log_std.copy_(torch.from_numpy(self._log_std))

    @property
    def num_steps(self) -> int:
        """Number of gradient steps."""
        return int(self._optimizer.steps)

    @num_steps.setter
    def num_steps(self, value: int) -> None:
        self._optimizer.steps = value

    def __reduce__(self) -> tuple[Any, ...]:
        # A plain copy would detach the layers from the flat vector that they are views of.
        return KernelNets, (self._policy, self._critic, self._config), self.state_dict()

    def __setstate__(self, tree: Mapping[str, Any]) -> None:
        self.load_state_dict(tree)

    def _read_modules(self) -> None:
        # Before every epoch: other weights may have been loaded.
        for module, layers in self._layers:
            for linear, weight, bias in zip(module.layers, *layers, strict=True):
                weight[...] = linear.weight.detach().numpy().T
                bias[...] = linear.bias.detach().numpy()
        if isinstance(self._policy, GaussianMLPPolicy):
            self._log_std[...] = self._policy.log_std.detach().numpy()


def _pieces(count: int) -> Sequence[slice]:
    return [slice(begin, begin + _ROWS_OF_KERNEL) for begin in range(0, count, _ROWS_OF_KERNEL)]


# -- by autograd -------------------------------------------------------------------------------------------------------

_ROWS_AT_ONCE = 16384


class Tensors(NamedTuple):
    """Network inputs of a minibatch of B steps.

    ``observations`` and ``actions`` of a recurrent policy, and ``critic_inputs`` of a recurrent critic, are padded
    rollouts ``(N, T, ...)``; ``inside (B,)`` are the flat indices of their steps, row by row. Else ``(B, ...)``.
    """

    observations: Tensor
    actions: Tensor
    critic_inputs: Tensor
    inside: Tensor


@final
class AutogradNets(PPONets[Tensors]):
    """The modules themselves, trained with ``torch.optim.Adam``.

    A minibatch of a recurrent policy (or critic) holds complete rollouts, padded and starting from a zero hidden state,
    with about ``batch_size`` steps in total.

    Args:
        policy: Has ``evaluate_actions(obs, actions) -> (log_prob, entropy)``; a recurrent one takes sequences
            ``(N, T, ...)``.
        critic: Called as ``critic(inputs (..., D)) -> (..., 1)``; a ``RecurrentCritic`` with complete rollouts
            ``(N, T, D)``.
        config: Hyperparameters of the optimizer.
        device: Device of the modules.
    """

    state_parts = "_optimizer"

    def __init__(self, policy: ActingPolicy, critic: nn.Module, config: PPOConfig, device: torch.device) -> None:
        self._policy, self._critic, self._config, self._device = policy, critic, config, device
        self._recurrent, self._critic_is_recurrent = policy.info.recurrent, isinstance(critic, RecurrentCritic)
        self._takes_one_row = takes_one_row(policy)
        if not any(p.requires_grad for p in policy.parameters()):
            raise ValueError(
                "policy must have trainable parameters, got none: let at least one layer keep requires_grad=True"
            )
        self._parameters = [p for p in (*policy.parameters(), *critic.parameters()) if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._parameters, lr=config.learning_rate, eps=config.adam_eps, foreach=True)
        self._outputs: tuple[Tensor, ...] = ()
        self._values: Tensor | None = None

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
        """See ``PPONets``; a recurrent critic gets the last observation of a rollout after all others."""
        if not self._critic_is_recurrent:
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
        """See ``PPONets``; a single left-over row joins the previous minibatch where a gradient needs several."""
        size = self._config.batch_size
        if self._recurrent or self._critic_is_recurrent:
            order = generator.permutation(len(data.bounds) - 1).tolist()
            pieces = [np.array(group) for group in rollout_groups(order, data.bounds, size)]
            left_over = int(np.diff(data.bounds)[pieces[-1]].sum())
        else:
            order = generator.permutation(len(data.advantages))
            pieces = [order[begin : begin + size] for begin in range(0, len(order), size)]
            left_over = len(pieces[-1])
        if left_over == 1 and len(pieces) > 1 and not self._takes_one_row:
            pieces[-2:] = [np.concatenate(pieces[-2:])]
        for chosen in pieces:
            yield self._tensors_of(data, chosen)

    def _tensors_of(self, data: PPOData, chosen: np.ndarray) -> tuple[Tensors, Targets]:
        """Rows (or rollouts, for recurrent networks) ``chosen`` of ``data`` on the device."""
        by_rollout = self._recurrent or self._critic_is_recurrent
        rows = rows_of_rollouts(data.bounds, chosen) if by_rollout else chosen
        inside = np.flatnonzero(inside_rollouts(data.bounds, chosen)) if by_rollout else np.zeros(0, dtype=np.int64)

        def tensor(column: np.ndarray, padded: bool) -> Tensor:
            return self._tensor(pad_rollouts(column, data.bounds, chosen) if padded else column[rows])

        tensors = Tensors(
            tensor(data.observations, self._recurrent),
            tensor(data.actions, self._recurrent),
            tensor(data.critic_inputs, self._critic_is_recurrent),
            self._tensor(inside),
        )
        columns = (data.log_probs, data.advantages, data.targets, data.values)
        targets = Targets(*(self._tensor(column[rows]) for column in columns))
        advantages = targets.advantages  # (B,)
        if self._config.normalize_advantages and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return tensors, targets._replace(advantages=advantages)

    def policy(self, inputs: Tensors) -> tuple[Tensor, Tensor]:
        """See ``PPONets``."""
        self._optimizer.zero_grad(set_to_none=True)
        log_prob, entropies = self._policy.evaluate_actions(inputs.observations, inputs.actions)
        if self._recurrent:
            # Padding follows the end of a rollout, where it affects no earlier step; it gets no gradient.
            log_prob, entropies = log_prob.flatten()[inputs.inside], entropies.flatten()[inputs.inside]
        self._outputs = log_prob, entropies.mean()
        return log_prob.detach(), self._outputs[1].detach()

    def pull_policy(self, d_log_prob: Tensor, d_entropy: float) -> None:
        """See ``PPONets``."""
        outputs, self._outputs = self._outputs, ()
        grads = (d_log_prob, torch.full_like(outputs[1], d_entropy))
        # dL/dtheta = dL/dln pi dln pi/dtheta + dL/dH dH/dtheta, with dL/dln pi (B,) and dL/dH (). An output without
        # trainable parameters (the entropy, if the deviation is fixed) has no gradient.
        learned = [i for i, output in enumerate(outputs) if output.requires_grad]
        torch.autograd.backward([outputs[i] for i in learned], [grads[i] for i in learned])

    def critic(self, inputs: Tensors) -> Tensor:
        """See ``PPONets``."""
        values = self._critic(inputs.critic_inputs)[..., 0]
        if self._critic_is_recurrent:
            values = values.flatten()[inputs.inside]
        self._values = values
        return values.detach()

    def pull_critic(self, d_values: Tensor) -> None:
        """See ``PPONets``."""
        values, self._values = self._values, None
        if values is not None and values.requires_grad:  # the critic may be frozen
            # dL/dtheta of the critic, from dL/dV, (B,), added to that of the policy
            values.backward(d_values)

    def descend(self, learning_rate: float) -> float:
        """See ``PPONets``."""
        max_norm = float("inf") if self._config.max_grad_norm is None else self._config.max_grad_norm
        # g <- g min(1, max_norm / |g|) over all parameters together; then Adam with the learning rate of this epoch
        norm = nn.utils.clip_grad_norm_(self._parameters, max_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        return float(norm)

    def numbers(self, *values: Any) -> list[float]:
        """See ``PPONets``."""
        return torch.stack([value.to(torch.float64) for value in values]).tolist()

    def finish(self) -> None:
        """Nothing to do: the modules themselves were trained."""

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
