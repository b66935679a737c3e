"""Critics as one batched network, parameters in one vector, and gradients that stop where they are not wanted."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium
import torch
from torch import Tensor, nn

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.encoders import FixedEncoder, ObservationEncoder, holds_images
from metaroll.policies.networks import MLP, activation_name, perceptron
from metaroll.policies.parameters import ParameterLayout
from metaroll.types import EnvSpec

__all__ = ["Critics", "as_one_vector", "check_policy", "critics_of", "encoders_of", "target_of"]


class Critics(nn.Module):
    """K action values ``Q_k(s, a)`` of perceptrons of one shape, computed together; or distributions of them, as atoms.

    Layer l of all of them is one weight ``(K, out, in)`` and one bias ``(K, out)``, so that K critics take one product
    of matrices per layer.

    Args:
        env_spec: Spaces; observations and actions side by side are the input. Discrete actions are none: critics say
            the values of all of them.
        count: Number of critics K.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        num_atoms: Numbers that each critic says of an action in a Box, whose value is their mean; ``None``: the value.
        init: See ``initialize_linear``; each critic draws weights of its own.
        encoder: Makes features of observations, for all critics (an ``ObservationEncoder``); ``None``: they take
            observations as they are.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        count: int = 2,
        hidden_sizes: Sequence[int] = (256, 256),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        num_atoms: int | None = None,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec, count = EnvSpec.from_env(env_spec), check_whole("count", count)
        width, outputs = _widths(spec, encoder, None if num_atoms is None else check_whole("num_atoms", num_atoms))
        single = (
            MLP(width, outputs or 1, hidden_sizes, hidden_nonlinearity, init=init, generator=generator)
            for _ in range(count)
        )
        self._build(list(single), encoder, outputs)

    @classmethod
    def of(cls, qf: MLP, count: int, generator: torch.Generator) -> Critics:
        """``qf`` as the first of ``count`` critics, the others with weights that are drawn anew."""
        others = [copy.deepcopy(qf) for _ in range(count - 1)]
        for other in others:
            other.reinitialize(generator)
        critics = cls.__new__(cls)
        critics._build([qf, *others], None)
        return critics

    def _build(self, single: Sequence[MLP], encoder: nn.Module | None, num_outputs: int | None = None) -> None:
        super().__init__()
        self.encoder, self.num_outputs = encoder, num_outputs
        self.count, self.input_dim = len(single), single[0].input_dim
        self.hidden_nonlinearity = activation_name(single[0].hidden_nonlinearity)
        layers = [cast("list[nn.Linear]", list(network.layers)) for network in single]
        self.weights = nn.ParameterList(_stack([each[k].weight for each in layers]) for k in range(len(layers[0])))
        self.biases = nn.ParameterList(_stack([each[k].bias for each in layers]) for k in range(len(layers[0])))

    def forward(
        self, observations: Tensor, actions: Tensor | None = None, *, fixed: bool = False, first: bool = False
    ) -> Tensor:
        """Values ``(K, B)`` for ``observations (B, obs_dim)`` and ``actions (B, act_dim)`` in [-1, 1].

        Atoms are ``(K, B, num_atoms)``, values of all Discrete actions ``(K, B, n)``.

        Args:
            observations: Flat.
            actions: In the policy's units; ``None`` where they are Discrete.
            fixed: No gradient for the weights: only one for the actions (a third of a backward pass less).
            first: Only the first critic: ``(1, B)``.
        """
        weights, biases = list(self.weights), list(self.biases)
        if fixed:
            weights, biases = [w.detach() for w in weights], [b.detach() for b in biases]
        if first:
            weights, biases = [w[:1] for w in weights], [b[:1] for b in biases]
        if self.encoder is not None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not fixed):
                observations = self.encoder(observations)
        x = observations if actions is None else torch.cat((observations, actions), dim=-1)
        # One critic after the other: what belongs to one of them fits into a cache.
        each = zip(*(p.unbind() for p in (*weights, *biases)), strict=True)
        depth, activation = len(weights), self.hidden_nonlinearity
        values = torch.stack([perceptron(x, layers[:depth], layers[depth:], activation) for layers in each])
        return values[..., 0] if self.num_outputs is None else values


def _widths(spec: EnvSpec, encoder: Any, num_atoms: int | None = None) -> tuple[int, int | None]:
    """Numbers of inputs and outputs of a critic; ``None`` for its value alone."""
    features = spec.obs_dim if encoder is None else int(encoder.output_dim)
    if isinstance(spec.action_space, gymnasium.spaces.Discrete):
        return features, spec.act_dim
    return features + spec.act_dim, num_atoms


def _stack(parameters: Sequence[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.stack([parameter.detach() for parameter in parameters]))


def critics_of(
    qf: Any, env_spec: EnvSpec, count: int, generator: torch.Generator, num_atoms: int | None = None
) -> Critics:
    """What was given as ``qf`` as ``count`` critics (of ``num_atoms`` each).

    Raises:
        ShapeError: It is of another width.
        TypeError: It is something else than ``Critics`` or a ``QFunction``.
        ValueError: There are so many critics in it already, but another number.
    """
    single = _widths(env_spec, None, num_atoms)[1] is None
    if isinstance(qf, MLP) and single:
        qf = Critics.of(qf, count, generator)
    if not isinstance(qf, Critics):
        raise TypeError(f"qf must be {'a QFunction, or ' if single else ''}Critics, got {type(qf).__name__}")
    width, outputs = _widths(env_spec, qf.encoder, num_atoms)
    if qf.input_dim != width:
        raise ShapeError(f"qf must be built for env_spec: {width} inputs (observation and action), got {qf.input_dim}")
    if qf.num_outputs != outputs:
        raise ShapeError(f"qf must say {_told(outputs)} for each row, got {_told(qf.num_outputs)}")
    if qf.count != count:
        raise ValueError(f"qf must hold {count} critics, got {qf.count}")
    return qf


def check_policy(policy: Any, kind: type[ActingPolicy], spec: EnvSpec) -> None:
    """Raise unless ``policy`` is of ``kind``, for the spaces of ``spec``.

    Raises:
        ShapeError: It is for other spaces.
        TypeError: It is of another kind.
    """
    if not isinstance(policy, kind):
        raise TypeError(f"policy must be a {kind.__name__}, got {type(policy).__name__}")
    if (policy.obs_dim, policy.act_dim) != (spec.obs_dim, spec.act_dim):
        raise ShapeError(
            f"policy must be built for the spaces of env_spec ({spec.obs_dim} observations, {spec.act_dim} actions), "
            f"got {policy.obs_dim} and {policy.act_dim}"
        )


def encoders_of(spec: EnvSpec, qf: Any, generator: torch.Generator) -> tuple[nn.Module | None, FixedEncoder | None]:
    """What critics see images through, and what a policy does: the same, which no gradient reaches from there.

    Args:
        spec: Spaces.
        qf: What was given; ``Critics`` have an encoder of their own, or none.
        generator: Source of the initial weights; without images, nothing is drawn.

    Returns:
        Two encoders; ``None``, where observations are taken as they are.
    """
    encoder = qf.encoder if isinstance(qf, Critics) else None
    if qf is None and holds_images(spec.observation_space):
        encoder = ObservationEncoder(spec.observation_space, generator=generator)
    return encoder, None if encoder is None else FixedEncoder(encoder)


def _told(num_outputs: int | None) -> str:
    return "one value" if num_outputs is None else f"{num_outputs} numbers"


def target_of(module: nn.Module) -> Any:
    """A copy without gradients: a target network, equal to ``module`` now."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def as_one_vector(module: nn.Module, names: Sequence[str] | None = None) -> Tensor:
    """Make the parameters of ``module`` views of one vector ``(P,)``, which is returned, and follows them.

    Optimizers that are made before lose nothing: parameters stay the same objects.

    Args:
        module: All its parameters must be of one dtype, on one device.
        names: Those to take, in this order; ``None`` means all.
    """
    layout = ParameterLayout.of(module, names)
    parameters = dict(module.named_parameters())
    vector = torch.cat([parameters[name].detach().reshape(-1) for name in layout.names])
    begin = 0
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        end = begin + math.prod(shape)
        parameters[name].data = vector[begin:end].view(shape)
        begin = end
    return vector
