"""Networks of a learner without autograd, where they are perceptrons on the CPU: gradients by hand, in kept memory.

They are called as the modules whose parameters they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from metaroll.functional.gradients.actor_critic import critics_loss_gradient
from metaroll.functional.gradients.optimizers import Adam
from metaroll.functional.gradients.reused_perceptrons import Memory, ReusedPerceptrons, can_reuse
from metaroll.learners.off_policy.networks import Critics
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.trainer import CriticLosses, critic_losses_of
from metaroll.policies.deterministic import DeterministicMLPPolicy
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLP

__all__ = ["DirectCritics", "DirectNet", "can_be_direct"]


def can_be_direct(policy: DeterministicMLPPolicy | TanhGaussianMLPPolicy, critics: Critics) -> bool:
    """Whether both are made of perceptrons on the CPU, and nothing else."""
    if policy.encoder is not None or critics.encoder is not None:
        return False
    return all(can_reuse(list(net.parameters()), net.hidden_nonlinearity) for net in (policy.net, critics))


class _Learned:
    """Perceptrons and their optimizer, if they have one."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        activation: str,
        optimizer: Adam | None,
        memory: Memory | None,
    ) -> None:
        self.passes = ReusedPerceptrons(
            weights, biases, activation, differentiable=optimizer is not None, memory=memory
        )
        places = {id(parameter): i for i, parameter in enumerate([*weights, *biases])}
        self._optimizer = optimizer
        self._order = [] if optimizer is None else [places[id(parameter)] for parameter in optimizer.parameters]

    def step(self, gradients: Sequence[Tensor]) -> None:
        if self._optimizer is None:
            raise RuntimeError("a network without an optimizer is not learned")
        self._optimizer.step([gradients[i] for i in self._order])


@final
class DirectNet:
    """The perceptron of a policy, without the activation of its output.

    Args:
        net: Whose parameters.
        optimizer: Of these and no others; ``None``: they are not learned.
        memory: See ``ReusedPerceptrons``.
    """

    def __init__(self, net: MLP, optimizer: Adam | None = None, memory: Memory | None = None) -> None:
        layers = cast("list[nn.Linear]", list(net.layers))
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self._trained = _Learned(weights, biases, net.hidden_nonlinearity, optimizer, memory)

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs ``(B, out)`` for rows ``x (B, in)``, overwritten by the next call."""
        return self._trained.passes.outputs(x)[0]

    def descend(self, grad: Tensor) -> None:
        """A step of the optimizer, from the gradient ``(B, out)`` of the outputs of the latest call."""
        self._trained.step(self._trained.passes.parameter_gradients(grad[None]))


@final
class DirectCritics:
    """Critics; see ``DirectNet``."""

    def __init__(self, critics: Critics, optimizer: Adam | None = None, memory: Memory | None = None) -> None:
        weights, biases = list(critics.weights), list(critics.biases)
        self._trained = _Learned(weights, biases, critics.hidden_nonlinearity, optimizer, memory)

    def __call__(self, observations: Tensor, actions: Tensor, *, first: bool = False) -> Tensor:
        """Values ``(K, B)``, or of the first critic ``(1, B)``; overwritten by the next call."""
        x = torch.cat((observations, actions), dim=-1)
        return self._trained.passes.outputs(x, 1 if first else None)[..., 0]

    def fit(self, batch: TransitionBatch, target: Tensor) -> CriticLosses:
        """A step of the optimizer down ``critics_loss``, with ``target (B,)``."""
        values, gradients = self._trained.passes.outputs_and_gradients(
            torch.cat((batch.observations, batch.actions), dim=-1),
            lambda found: critics_loss_gradient(found[:, 0], target, batch.weights)[:, None],
        )
        self._trained.step(gradients)
        return critic_losses_of(values[..., 0], target, batch.weights)

    def action_gradient(self, grad: Tensor, act_dim: int) -> Tensor:
        """Gradient of the actions ``(B, act_dim)``, from that ``(K, B)`` of the values of the latest call."""
        return self._trained.passes.input_gradient(grad[..., None], slice(-act_dim, None))

    def action_gradient_of_least(self, grad: Tensor, values: Tensor, act_dim: int) -> Tensor:
        """The same from the gradient ``(B,)`` of the least of ``values (K, B)``; of equal ones the first counts."""
        chosen, columns = values.argmin(dim=0), slice(-act_dim, None)
        return self._trained.passes.chosen_input_gradient(grad[:, None], chosen, columns)
