"""The trainable parts of the learners in this folder: networks, their optimizers, and the noise of gradient steps."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metaroll.data.replay.transitions import TransitionBatch
from metaroll.errors import DivergedError
from metaroll.functional.gradients.actor_critic import critics_loss, critics_loss_gradient, soft_update
from metaroll.functional.gradients.optimizers import Adam
from metaroll.learners.off_policy.nets import CriticNets
from metaroll.policies.exploration import Exploration
from metaroll.seeding import torch_generator
from metaroll.state import Stateful, parts, shapes_of, told

__all__ = [
    "CRITIC_LOSSES",
    "CriticLosses",
    "LossMeans",
    "ReplayTrainer",
    "Trained",
    "critic_losses_of",
    "descend_critics",
]


CRITIC_LOSSES = ("qf_loss", "q_mean")


class CriticLosses(NamedTuple):
    """The loss of a critic step, the values of ``CRITIC_LOSSES``, and TD errors ``(B,)`` of the first critic."""

    loss: Tensor
    seen: Tensor
    errors: Tensor


def critic_losses_of(values: Tensor, target: Tensor, weights: Tensor | None) -> CriticLosses:
    """``critics_loss`` of ``values (K, B)`` and ``target (B,)``, with the numbers for the log and the TD errors."""
    # sum_k mean_b w_b (Q_k - y)^2 / 2, (); Q_1, (B,)
    loss, first = critics_loss(values, target, weights), values.detach()[0]
    return CriticLosses(loss, torch.stack([loss.detach(), first.mean()]), target - first)


def descend_critics(critics: CriticNets, batch: TransitionBatch, target: Tensor) -> CriticLosses:
    """One Adam step of the critics down ``sum_k mean_b w_b (Q_k(s, a) - y)^2 / 2``.

    Lillicrap 2016, equation 4, and Haarnoja 2018b, equation 5, with the weights ``w`` of prioritized replay.

    Args:
        critics: K critics.
        batch: B transitions.
        target: y, ``(B,)``.

    Returns:
        The loss, the numbers for the log and the TD errors, from before the step.
    """
    # Q_k(s, a), (K, B); Adam on each critic
    values = critics.fit(
        batch.observations,
        batch.actions,
        # Called once per critic: dL/dQ_k = w_b (Q_k - y) / B, (B,).
        functools.partial(critics_loss_gradient, target=target, weights=batch.weights),
    )
    return critic_losses_of(values, target, batch.weights)


class LossMeans:
    """Running averages that stay on their device until ``take`` is called."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[Tensor, int]] = {}

    def add(self, names: tuple[str, ...], values: Tensor) -> None:
        """Add ``values (len(names),)``, detached."""
        total, count = self._sums.get(names, (None, 0))
        self._sums[names] = values if total is None else total.add_(values), count + 1

    def take(self) -> dict[str, float]:
        """Averages since the last call, by name (one copy from the device for each group)."""
        averages: dict[str, float] = {}
        for names, (total, count) in self._sums.items():
            averages.update(zip(names, (total / count).tolist(), strict=True))
        self._sums = {}
        return averages


class Trained(Stateful):
    """The networks of a snapshot, and the optimizers of some of them.

    Attributes:
        networks, optimizers: By name.

    Args:
        networks: By name; target networks are networks like any other.
        learning_rates: Adam's learning rate, by name of a network. Parameters that two networks share (an encoder) are
            trained with the first of them. Parameters that require no gradient now stay unchanged; freezing (or
            replacing) tensors later has no effect here.
        device: Device of the networks.
        betas: Decay rates of Adam's two moments, by name of a network; (0.9, 0.999) for the others.
    """

    state_parts = parts("networks", "optimizers")

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        learning_rates: Mapping[str, float],
        device: torch.device,
        betas: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        self.networks = dict(networks)
        for network in self.networks.values():
            network.to(device)
        self._parameters = {name: list(network.parameters()) for name, network in self.networks.items()}
        self._with_buffers = {name for name, network in self.networks.items() if any(True for _ in network.buffers())}
        self.optimizers: dict[str, Adam] = {}
        taken: set[int] = set()
        for name, lr in learning_rates.items():
            own = [p for p in self._parameters[name] if id(p) not in taken and p.requires_grad]
            if not own:
                raise ValueError(
                    f"{name} must have trainable parameters, got none: let at least one layer keep requires_grad=True"
                )
            taken.update(map(id, own))
            self.optimizers[name] = Adam(own, lr, betas.get(name, (0.9, 0.999)))

    def step(self, name: str, loss: Tensor) -> None:
        """One step of a network's optimizer down ``loss``."""
        optimizer = self.optimizers[name]
        # g = dL/dtheta of this network's parameters alone; theta <- theta - lr Adam(g)
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))

    def follow(self, target: str, source: str, tau: float) -> None:
        """Polyak step of a target network, ``theta' <- (1 - tau) theta' + tau theta``; its buffers are copied."""
        soft_update(self._parameters[target], self._parameters[source], tau)
        if source in self._with_buffers:  # running moments of a normalization, which change slowly anyway
            pairs = zip(self.networks[target].buffers(), self.networks[source].buffers(), strict=True)
            with torch.no_grad():
                for own, other in pairs:
                    own.copy_(other)

    @torch.no_grad()
    def check_finite(self, losses: Mapping[str, float], reward_scale: float) -> None:
        """``DivergedError`` if losses or weights hold NaN or Inf (one copy from the device)."""
        parameters = [p for parameters in self._parameters.values() for p in parameters]
        if not all(map(math.isfinite, losses.values())):
            problem = f"the losses are no longer finite ({dict(losses)})"
        elif not bool(torch.stack([p.isfinite().all() for p in parameters]).all()):
            problem = "the weights are no longer finite"
        else:
            return
        raise DivergedError.of(problem, {"reward_scale": reward_scale})

    def shapes(self) -> list[str]:
        """Names and shapes of all parameters in a snapshot."""
        return [f"{name}.{shape}" for name, network in self.networks.items() for shape in shapes_of(network)]


class ReplayTrainer(Stateful, ABC):
    """Gradient steps on replayed data.

    Args:
        exploration: The behavior policy.
        trained: Networks and optimizers.
        seed: Seed of the noise of gradient steps.
        device: Device of the networks.
    """

    state_parts = parts(
        networks="trained.networks", optimizers="trained.optimizers", noise="noise", device=told("device.type")
    )

    def __init__(self, exploration: Exploration, trained: Trained, seed: int, device: torch.device) -> None:
        self.exploration, self.trained, self.device = exploration, trained, device
        self.noise = torch_generator(seed, device)
        self.means = LossMeans()

    @abstractmethod
    def step(self, batch: Any) -> Tensor:
        """One gradient step; returns the TD errors ``(B,)``, for priorities.

        Args:
            batch: ``TransitionBatch``, unless the learner samples something else (``SegmentTensors``).
        """

    @property
    def arithmetic(self) -> int:
        """See ``RLAlgorithm``: 2 where losses give gradients at the networks' outputs, since version 0.2."""
        return 1

    @abstractmethod
    def described(self) -> Sequence[str]:
        """Settings that a snapshot must match, besides the shapes of the networks."""

    def draw_noise(self, *shape: int) -> Tensor:
        """Standard normal noise for a gradient step."""
        return torch.randn(shape, generator=self.noise, device=self.device)

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: a noise generator of another type of device cannot be restored, and is seeded again."""
        if tree["device"] == self.device.type:
            return tree
        begun = torch.Generator(self.device).manual_seed(self.noise.initial_seed())
        return {**tree, "noise": begun.get_state()}
