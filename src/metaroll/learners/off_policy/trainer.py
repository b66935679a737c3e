"""What a learner of this folder trains: networks, their optimizers, and the noise of gradient steps."""

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
    """What a gradient step of the critics is made of: ``loss``, ``CRITIC_LOSSES``, and errors of the first ``(B,)``."""

    loss: Tensor
    seen: Tensor
    errors: Tensor


def critic_losses_of(values: Tensor, target: Tensor, weights: Tensor | None) -> CriticLosses:
    """``critics_loss`` of these arguments, and what else is told of it."""
    loss, first = critics_loss(values, target, weights), values.detach()[0]
    return CriticLosses(loss, torch.stack([loss.detach(), first.mean()]), target - first)


def descend_critics(critics: CriticNets, batch: TransitionBatch, target: Tensor) -> CriticLosses:
    """A step of Adam of the critics down ``sum_k mean_b w_b (Q_k(s, a) - y)^2 / 2``.

    Lillicrap 2016, equation 4, and Haarnoja 2018b, equation 5, with the weights ``w`` of prioritized replay.

    Args:
        critics: K critics.
        batch: B transitions.
        target: y, ``(B,)``.

    Returns:
        The loss, and what is told of it, from before the step.
    """
    values = critics.fit(
        batch.observations,
        batch.actions,
        # Called once per critic: dL/dQ_k = w_b (Q_k - y) / B, (B,).
        functools.partial(critics_loss_gradient, target=target, weights=batch.weights),
    )
    return critic_losses_of(values, target, batch.weights)


class LossMeans:
    """Averages of numbers that stay on their device until they are asked for."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[Tensor, int]] = {}

    def add(self, names: tuple[str, ...], values: Tensor) -> None:
        """Count ``values (len(names),)``, without gradient."""
        total, count = self._sums.get(names, (None, 0))
        self._sums[names] = values if total is None else total.add_(values), count + 1

    def take(self) -> dict[str, float]:
        """Averages since the last call, by name (one copy from the device for each group)."""
        found: dict[str, float] = {}
        for names, (total, count) in self._sums.items():
            found.update(zip(names, (total / count).tolist(), strict=True))
        self._sums = {}
        return found


class Trained(Stateful):
    """Networks that a snapshot holds, and the optimizers of some of them.

    Attributes:
        networks, optimizers: By name.

    Args:
        networks: By name; deep copies of one another (target networks) are networks like any other.
        learning_rates: By name of a network: that of its optimizer, Adam. What two networks share (an encoder) is
            learned with the first of them. Parameters that require no gradient now stay as they are; what is frozen
            (or replaced by other tensors) later on is not noticed.
        device: Where the networks go.
        betas: By name of a network: decay of both moments of Adam, where it is not (0.9, 0.999).
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
                    f"{name} must have parameters that are learned, got none: let at least one layer keep "
                    "requires_grad=True"
                )
            taken.update(map(id, own))
            self.optimizers[name] = Adam(own, lr, betas.get(name, (0.9, 0.999)))

    def step(self, name: str, loss: Tensor) -> None:
        """One step of the optimizer of a network down ``loss``."""
        optimizer = self.optimizers[name]
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))

    def follow(self, target: str, source: str, tau: float) -> None:
        """Move a target network toward another one (``soft_update``), and give it the buffers of that."""
        soft_update(self._parameters[target], self._parameters[source], tau)
        if source in self._with_buffers:  # moments of a normalization, which follow slowly themselves
            pairs = zip(self.networks[target].buffers(), self.networks[source].buffers(), strict=True)
            with torch.no_grad():
                for own, other in pairs:
                    own.copy_(other)

    @torch.no_grad()
    def check_finite(self, losses: Mapping[str, float], reward_scale: float) -> None:
        """``DivergedError`` if losses or weights hold NaN or Inf (one copy from the device)."""
        parameters = [p for parameters in self._parameters.values() for p in parameters]
        if not all(map(math.isfinite, losses.values())):
            what = f"the losses are not finite any more ({dict(losses)})"
        elif not bool(torch.stack([p.isfinite().all() for p in parameters]).all()):
            what = "weights are not finite any more"
        else:
            return
        raise DivergedError.of(what, {"reward_scale": reward_scale})

    def shapes(self) -> list[str]:
        """Names and shapes of all that a snapshot holds."""
        return [f"{name}.{shape}" for name, network in self.networks.items() for shape in shapes_of(network)]


class ReplayTrainer(Stateful, ABC):
    """Gradient steps on what was replayed.

    Args:
        exploration: What acts.
        trained: Networks and optimizers.
        seed: Seed of the noise of gradient steps.
        device: Where they run.
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
        """One gradient step; the errors of the values ``(B,)``, for priorities.

        Args:
            batch: ``TransitionBatch``, unless its learner draws something else (``SegmentTensors``).
        """

    @property
    def arithmetic(self) -> int:
        """See ``RLAlgorithm``: 2 where losses have given gradients at the outputs of networks since version 0.2."""
        return 1

    @abstractmethod
    def described(self) -> Sequence[str]:
        """What a snapshot must agree with, beside the shapes of the networks."""

    def draw_noise(self, *shape: int) -> Tensor:
        """Standard normal numbers for a gradient step."""
        return torch.randn(shape, generator=self.noise, device=self.device)

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: noise that was drawn on another kind of device begins anew."""
        if tree["device"] == self.device.type:
            return tree
        begun = torch.Generator(self.device).manual_seed(self.noise.initial_seed())
        return {**tree, "noise": begun.get_state()}
