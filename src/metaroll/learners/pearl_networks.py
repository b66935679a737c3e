"""Networks, optimizers and generators of PEARL, built, checked, moved and saved together."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import flatdim
from torch import Tensor, nn

from metaroll.errors import ShapeError
from metaroll.functional.gradients.optimizers import fast_optimizer
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.policies.adapters import reinitialize
from metaroll.seeding import derive_seed, isolated_rng, torch_generator
from metaroll.state import Stateful, parts, told
from metaroll.types import EnvSpec

__all__ = [
    "PEARLGenerators",
    "PEARLNetworks",
    "PEARLOptimizers",
    "accepts",
    "build_encoder",
    "reinitialized_copy",
]


def accepts(function: Callable[..., Any], argument: str) -> bool:
    """Whether ``function`` has a parameter called ``argument``."""
    try:
        return argument in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def build_encoder(
    encoder_class: Callable[..., nn.Module],
    spec: Any,
    hidden_sizes: Sequence[int],
    seed: int,
) -> nn.Module:
    """The context encoder for the ``InOutSpec`` ``spec``, initialized from ``seed`` alone."""
    draws = derive_seed("pearl encoder", seed)
    options = {"generator": torch_generator(draws)} if accepts(encoder_class, "generator") else {}
    with isolated_rng(draws):  # foreign encoders draw their weights from the global generator
        return encoder_class(
            input_dim=flatdim(spec.input_space),
            output_dim=flatdim(spec.output_space),
            hidden_sizes=tuple(hidden_sizes),
            **options,
        )


def reinitialized_copy(qf: nn.Module, seed: int) -> nn.Module:
    """A second Q function: a copy of ``qf`` with newly initialized weights.

    With equal weights the two would stay equal forever (same targets, same optimizer), and their minimum would have no
    effect.
    """
    second = copy.deepcopy(qf)
    draws = derive_seed("pearl second q function", seed)
    with isolated_rng(draws):  # torch's reset_parameters draws from the global generator
        reinitialize(second, torch_generator(draws))
    pairs = zip(qf.parameters(), second.parameters(), strict=True)
    if all(torch.equal(one, other) for one, other in pairs if one.dim() > 1):
        raise ValueError(
            f"qf ({type(qf).__name__}) cannot be re-initialized for the second Q function: give it a method "
            f"reinitialize(generator), or pass an independent network as qf2"
        )
    return second


class PEARLNetworks:
    """The seven networks, under their names."""

    def __init__(
        self,
        policy: Any,
        encoder: Any,
        inner_policy: nn.Module,
        qf: nn.Module,
        qf2: nn.Module,
        vf: nn.Module,
    ) -> None:
        self.policy = policy
        self.encoder = encoder
        self.inner_policy = inner_policy
        self.qf1 = qf
        self.qf2 = qf2
        self.vf = vf
        self.target_vf = copy.deepcopy(vf).requires_grad_(False)
        shared = {id(p) for p in qf.parameters()} & {id(p) for p in qf2.parameters()}
        if shared:
            raise ValueError("qf and qf2 must be two networks without common parameters, got the same ones")

    def as_list(self) -> list[nn.Module]:
        """Encoder, inner policy, context policy, Q1, Q2, V, target of V."""
        return [self.encoder, self.inner_policy, self.policy, self.qf1, self.qf2, self.vf, self.target_vf]

    @property
    def saved(self) -> dict[str, nn.Module]:
        """The networks of a snapshot."""
        # Without the context policy: encoder, inner policy and a belief that is reset after each epoch.
        return {
            "encoder": self.encoder,
            "inner_policy": self.inner_policy,
            "qf1": self.qf1,
            "qf2": self.qf2,
            "vf": self.vf,
            "target_vf": self.target_vf,
        }

    def to(self, device: torch.device) -> None:
        """Move all networks."""
        for network in self.as_list():
            network.to(device)

    def q_parameters(self) -> list[nn.Parameter]:
        """Parameters of both Q functions."""
        return [*self.qf1.parameters(), *self.qf2.parameters()]

    @torch.no_grad()
    def all_finite(self) -> bool:
        """Whether no parameter is NaN or Inf (one copy from the device)."""
        parameters = [p for network in self.saved.values() for p in network.parameters()]
        return bool(torch.stack([p.isfinite().all() for p in parameters]).all())

    def shapes(self) -> str:
        """Shapes of all parameters as one line of text."""
        return "; ".join(
            f"{name}: " + ",".join("x".join(map(str, p.shape)) or "1" for p in network.parameters())
            for name, network in self.saved.items()
        )

    @torch.no_grad()
    def check_widths(self, env_spec: EnvSpec, config: PEARLConfig, device: torch.device) -> None:
        """Pass one row of zeros through Q, V and the inner policy; the error names the network that does not fit."""
        obs, act, latent = env_spec.obs_dim, env_spec.act_dim, config.latent_dim

        def zeros(width: int) -> Tensor:
            return torch.zeros(1, width, device=device)

        augmented = f"PEARL.augment_env_spec(env_spec, {latent})"
        cases = [
            ("qf", self.qf1, (zeros(obs + act), zeros(latent)), obs + act + latent, 1, augmented),
            ("qf2", self.qf2, (zeros(obs + act), zeros(latent)), obs + act + latent, 1, augmented),
            (
                "vf",
                self.vf,
                (zeros(obs), zeros(latent)),
                obs + latent,
                1,
                f"PEARL.get_env_spec(env_spec, {latent}, 'vf')",
            ),
            ("inner_policy", self.inner_policy, (zeros(obs + latent),), obs + latent, act, augmented),
        ]
        for name, network, inputs, width, out, hint in cases:
            with isolated_rng(0):  # a policy may draw its action here
                _check_width(name, network, inputs, width, out, hint)


def _check_width(name: str, network: nn.Module, inputs: tuple[Tensor, ...], width: int, out: int, hint: str) -> None:
    where = f"{name} ({type(network).__name__})"
    try:
        result = network(*inputs)
    except (RuntimeError, ValueError) as error:
        raise ShapeError(
            f"{where} does not accept inputs of width {width} (observation, action where it has one, and latent): "
            f"{error}; build it from {hint}"
        ) from error
    first = result if isinstance(result, Tensor) else result[0]
    if tuple(first.shape) != (1, out):
        raise ShapeError(f"{where} must return (B, {out}), got {tuple(first.shape)} for B = 1; build it from {hint}")


class PEARLOptimizers:
    """Five optimizers: inner policy, both Q functions, V and the encoder.

    Adam and its variants run fused or multi-tensor where the class supports it; the update is the same.
    """

    def __init__(
        self, networks: PEARLNetworks, optimizer_class: Callable[..., torch.optim.Optimizer], config: PEARLConfig
    ) -> None:
        def build(network: nn.Module, lr: float) -> torch.optim.Optimizer:
            return fast_optimizer(optimizer_class, list(network.parameters()), lr)

        self.policy = build(networks.inner_policy, config.policy_lr)
        self.qf1 = build(networks.qf1, config.qf_lr)
        self.qf2 = build(networks.qf2, config.qf_lr)
        self.vf = build(networks.vf, config.vf_lr)
        self.encoder = build(networks.encoder, config.context_lr)

    @property
    def saved(self) -> dict[str, torch.optim.Optimizer]:
        """All optimizers by name."""
        return {"policy": self.policy, "qf1": self.qf1, "qf2": self.qf2, "vf": self.vf, "encoder": self.encoder}

    @property
    def kind(self) -> str:
        """Name of the optimizers' class."""
        return type(self.policy).__name__

    def follow_parameters(self) -> None:
        """Move the state of every optimizer to the device of its parameters."""
        for optimizer in self.saved.values():
            optimizer.load_state_dict(optimizer.state_dict())


class PEARLGenerators(Stateful):
    """One generator per purpose, so that more draws for one purpose change no other.

    Args:
        seed: Seed that all generators are derived from.
        device: Device of the networks' noise.

    Attributes:
        tasks: Draws the tasks to visit, and the context of their posterior while collecting.
        batches: Draws tasks, transitions and context of the gradient steps.
        noise: Draws latents and actions in the gradient steps.
    """

    state_parts = parts("seed", "tasks", "batches", "noise", noise_device=told("device.type"))

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self.tasks = np.random.default_rng(derive_seed("pearl tasks", seed))
        self.batches = np.random.default_rng(derive_seed("pearl batches", seed))
        self.noise = self._new_noise(seed)

    def _new_noise(self, seed: int) -> torch.Generator:
        return torch_generator(derive_seed("pearl noise", self.device.type, seed), self.device)

    def completed_state(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Stateful``: a noise generator of another type of device cannot be restored, and is seeded again."""
        if tree["noise_device"] == self.device.type:
            return tree
        return {**tree, "noise": self._new_noise(int(tree["seed"])).get_state()}

    def belief(self) -> torch.Generator:
        """A new generator for draws of z outside training, so that they do not affect training."""
        return torch_generator(derive_seed("pearl belief", self.seed), self.device)

    def move(self, device: torch.device) -> None:
        """Draw noise on ``device`` from now on; on another device that is a new stream."""
        if device != self.device:
            self.device = device
            self.noise = self._new_noise(self.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.device, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["state"]["seed"], state["device"])
        self.load_state_dict(state["state"])
