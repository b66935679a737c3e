"""Feed-forward networks with initialization from a given generator: MLP, Q function, critics, encoder."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast, final

import gymnasium
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaroll.checks import check_whole, described, short_name
from metaroll.errors import ShapeError, unknown_name
from metaroll.functional.gradients.tanh_mlp import tanh_mlp
from metaroll.policies.parameters import FlatParameters, stacked_linear
from metaroll.seeding import as_torch_generator
from metaroll.types import EnvSpec, InOutSpec

__all__ = [
    "MLP",
    "ContinuousMLPQFunction",
    "Critics",
    "MLPEncoder",
    "QFunction",
    "activation_name",
    "check_layers",
    "check_widths",
    "critics_of",
    "empty_linear",
    "initialize_linear",
    "is_plain",
    "perceptron",
    "target_of",
]

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
_INITS = ("xavier_uniform", "oyster", "orthogonal", "fan_in")


def activation_name(activation: str | Callable[..., Any] | None) -> str:
    """Our name of an activation given as a name, a torch function, an ``nn`` class or instance, or ``None``.

    Raises:
        UnknownNameError: We have no such activation.
    """
    if activation is None:
        return "identity"
    name = (activation if isinstance(activation, str) else short_name(activation)).lower()
    if name not in _ACTIVATIONS:
        raise unknown_name("activation", name, _ACTIVATIONS)
    return name


@final
class _EmptyLinear(nn.Linear):
    """A linear layer with unset weights, like ``nn.utils.skip_init``, which would load half of torch's compiler."""

    def reset_parameters(self) -> None:
        """Leave the weights unset."""


def empty_linear(num_in: int, num_out: int) -> nn.Linear:
    """A layer with unset weights; ``nn.Linear`` itself would draw them from torch's global generator."""
    return _EmptyLinear(num_in, num_out)


def initialize_linear(
    layer: nn.Linear,
    generator: torch.Generator,
    init: str = "xavier_uniform",
    *,
    last: bool = False,
    heads: int = 1,
    last_bound: float = 3e-3,
    last_gain: float = 1.0,
) -> None:
    """Draw the weights of ``layer`` from ``generator``.

    Args:
        layer: The layer to fill, in place.
        generator: Source of the draws.
        init: ``"xavier_uniform"``: weights within ``sqrt(6 / (in + out))``, bias 0 (Glorot and Bengio 2010).
            ``"oyster"`` (the reference implementation of PEARL): hidden weights within ``1 / sqrt(out)``, bias 0.1;
            last layer, including bias, within ``last_bound``. ``"orthogonal"`` (common for PPO): orthogonal rows or
            columns of length ``sqrt(2)``, in the last layer ``last_gain``; bias 0 (Saxe et al. 2014, arXiv:1312.6120).
            ``"fan_in"`` (common for off-policy learners; PyTorch's default): weights and bias within ``1 / sqrt(in)``.
        last: Whether this is the output layer.
        heads: Number of equal parts of the outputs, each initialized as a separate layer.
        last_bound: See ``init``.
        last_gain: See ``init``.

    Note:
        oyster calls its hidden bound fan-in, but uses the first axis of torch's ``(out, in)`` weights, as we do.

    Raises:
        UnknownNameError: There is no such ``init``.
    """
    if init not in _INITS:
        raise unknown_name("init", init, _INITS)
    num_out, num_in = layer.weight.shape
    with torch.no_grad():
        for weight, bias in zip(layer.weight.chunk(heads), layer.bias.chunk(heads), strict=True):
            if init == "xavier_uniform":
                bound = math.sqrt(6.0 / max(num_in + num_out // heads, 1))
                _uniform(weight, bound, generator)
                bias.zero_()
            elif init == "orthogonal":
                _orthogonal(weight, last_gain if last else math.sqrt(2.0), generator)
                bias.zero_()
            elif init == "fan_in":
                bound = 1.0 / math.sqrt(num_in)
                _uniform(weight, bound, generator)
                _uniform(bias, bound, generator)
            elif last:
                _uniform(weight, last_bound, generator)
                _uniform(bias, last_bound, generator)
            else:
                _uniform(weight, 1.0 / math.sqrt(num_out), generator)
                bias.fill_(0.1)


def _uniform(tensor: torch.Tensor, bound: float, generator: torch.Generator) -> None:
    # Drawn on the generator's device, so that the weights do not depend on the module's device.
    values = torch.rand(tensor.shape, generator=generator, device=generator.device)
    tensor.copy_(values * (2.0 * bound) - bound)


def _orthogonal(tensor: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    """Orthogonal rows (columns of a tall matrix) of length ``gain``, uniformly distributed among such matrices."""
    tall = max(tensor.shape), min(tensor.shape)
    values = torch.randn(tall, generator=generator, device=generator.device)
    q, r = torch.linalg.qr(values)
    q = q * torch.sign(torch.diagonal(r))  # else not uniform
    tensor.copy_(gain * (q if tensor.shape[0] >= tensor.shape[1] else q.T))


def perceptron(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    hidden_nonlinearity: str,
    affine: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = stacked_linear,
) -> torch.Tensor:
    """Outputs of an MLP, or of stacks (see ``stacked_linear``), as a differentiable function; the last layer is affine.

    Args:
        x: Rows ``(..., in)``.
        weights: Weight of each layer, ``(out, in)``.
        biases: Bias of each layer, ``(out,)``.
        hidden_nonlinearity: Name of the activation between layers.
        affine: A layer of rows, a weight and a bias; they may then have other shapes.
    """
    hidden, last = _ACTIVATIONS[hidden_nonlinearity], len(weights) - 1
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = affine(x, weight, bias)
        x = hidden(x) if k < last else x
    return x


def check_widths(name: str, value: Any) -> tuple[int, ...]:
    """``value`` as widths of layers, if it is a sequence of integers of at least 1, which may be empty.

    Raises:
        TypeError: It is no sequence, or an entry is not an integer; names the argument and the entry.
        ValueError: An entry is less than 1.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of integers such as (64, 64), got {described(value)}")
    return tuple(check_whole(f"{name}[{i}]", width) for i, width in enumerate(value))


class MLP(FlatParameters, nn.Module):
    """Multi-layer perceptron ``(..., input_dim) -> (..., output_dim)``.

    Args:
        input_dim: Width of the input.
        output_dim: Width of the output, all heads together.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: Activation of the hidden layers: a name, torch function or ``nn`` class.
        output_nonlinearity: Activation of the output; ``None`` for none.
        init: See ``initialize_linear``.
        output_heads: Number of equal parts of the output that are initialized separately.
        last_bound: See ``initialize_linear``.
        last_gain: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy. Torch's global generator is not used.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        output_nonlinearity: str | Callable[..., Any] | None = None,
        *,
        init: str = "xavier_uniform",
        output_heads: int = 1,
        last_bound: float = 3e-3,
        last_gain: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        hidden = check_widths("hidden_sizes", hidden_sizes)
        sizes = [check_whole("input_dim", input_dim), *hidden, check_whole("output_dim", output_dim)]
        if sizes[-1] % output_heads:
            raise ValueError(f"output_dim must be a multiple of output_heads={output_heads}, got {output_dim}")
        self.input_dim, self.output_dim = sizes[0], sizes[-1]
        self.hidden_nonlinearity = activation_name(hidden_nonlinearity)
        self.output_nonlinearity = activation_name(output_nonlinearity)
        self.init, self.output_heads = init, output_heads
        self.last_bound, self.last_gain = last_bound, last_gain
        self.layers = nn.ModuleList(empty_linear(a, b) for a, b in itertools.pairwise(sizes))
        self.reinitialize(generator)

    def reinitialize(self, generator: torch.Generator | None = None) -> None:
        """Reinitialize all weights in place; ``None`` means fresh entropy."""
        generator = as_torch_generator(generator)
        layers = cast("list[nn.Linear]", list(self.layers))
        for k, layer in enumerate(layers):
            last = k == len(layers) - 1
            heads = self.output_heads if last else 1
            initialize_linear(
                layer,
                generator,
                self.init,
                last=last,
                heads=heads,
                last_bound=self.last_bound,
                last_gain=self.last_gain,
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(..., output_dim)``.

        Raises:
            ShapeError: Inputs have another width.
        """
        if x.shape[-1] != self.input_dim:
            raise ShapeError(f"input must have {self.input_dim} numbers in its last axis, got shape {tuple(x.shape)}")
        hidden = _ACTIVATIONS[self.hidden_nonlinearity]
        last = len(self.layers) - 1
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k < last:
                x = hidden(x)
        return _ACTIVATIONS[self.output_nonlinearity](x)

    def outputs(self, parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """``forward`` as a pure function of ``parameters``, of one network or stacks (see ``stacked_linear``)."""
        weights, biases = (
            [parameters[f"layers.{k}.{part}"] for k in range(len(self.layers))] for part in ("weight", "bias")
        )
        is_tanh = self.hidden_nonlinearity == "tanh"
        x = tanh_mlp(x, weights, biases) if is_tanh else perceptron(x, weights, biases, self.hidden_nonlinearity)
        return _ACTIVATIONS[self.output_nonlinearity](x)


class QFunction(MLP):
    """Q function of an observation and an action: ``qf(obs (..., O), act (..., A)) -> (..., 1)``.

    The parts are concatenated, so a spec whose "action" is a latent serves as V(s, z).
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (32, 32),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        output_nonlinearity: str | Callable[..., Any] | None = None,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        super().__init__(
            spec.obs_dim + spec.act_dim,
            1,
            hidden_sizes,
            hidden_nonlinearity,
            output_nonlinearity,
            init=init,
            generator=generator,
        )
        self.env_spec = spec

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        """Values ``(..., 1)`` of observations and actions (in any number of parts, which are concatenated)."""
        return super().forward(torch.cat((x, *more), dim=-1))


ContinuousMLPQFunction = QFunction
"""garage's name of ``QFunction``."""


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is an ``nn.Linear`` with a bias and nothing else."""
    plain = type(layer) in (nn.Linear, _EmptyLinear) and layer.bias is not None
    return plain and not layer._forward_hooks and not layer._forward_pre_hooks


def check_layers(policy: nn.Module, net: Any) -> None:
    """Check the network of a policy of metaroll, whose acting path uses the weights and biases of its layers alone.

    Raises:
        TypeError: It is not an ``MLP``, or a layer computes something else than ``nn.Linear``.
    """
    hint = "derive a policy with its own act from ActingPolicy"
    name = type(policy).__name__
    if type(net) is not MLP:
        raise TypeError(f"the net of a {name} must be an MLP, got {type(net).__name__}: {hint}")
    for k, layer in enumerate(net.layers):
        if not is_plain(layer):
            raise TypeError(
                f"net.layers[{k}] of a {name} must be an nn.Linear with a bias and without hooks, got {layer}: {hint}"
            )


class MLPEncoder(MLP):
    """Encoder of context rows: ``(X, N, input_dim) -> (X, N, output_dim)``; stateless, so ``reset`` does nothing.

    Args:
        input_dim: Width of a context row, or an ``InOutSpec`` that gives both widths.
        output_dim: Width of an embedding; left out with an ``InOutSpec``.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        output_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        generator: See ``MLP``.
    """

    def __init__(
        self,
        input_dim: int | InOutSpec,
        output_dim: int | None = None,
        hidden_sizes: Sequence[int] = (200, 200, 200),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        output_nonlinearity: str | Callable[..., Any] | None = None,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        if isinstance(input_dim, InOutSpec):
            spec = input_dim
            input_dim = int(gymnasium.spaces.flatdim(spec.input_space))
            output_dim = int(gymnasium.spaces.flatdim(spec.output_space))
        if output_dim is None:
            raise TypeError("output_dim is needed unless input_dim is an InOutSpec")
        super().__init__(
            input_dim,
            output_dim,
            hidden_sizes,
            hidden_nonlinearity,
            output_nonlinearity,
            init=init,
            generator=generator,
        )

    def reset(self, do_resets: Any = None) -> None:
        """Does nothing; recurrent encoders reset their hidden state here."""


class Critics(nn.Module):
    """K action-value MLPs ``Q_k(s, a)`` of the same shape, evaluated together; or distributional ones, with atoms.

    Layer l of all critics is one weight ``(K, out, in)`` and one bias ``(K, out)``.

    Args:
        env_spec: Spaces; the input is the concatenation of observation and action. With Discrete actions, it is the
            observation, and critics return the values of all actions.
        count: Number of critics K.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        num_atoms: Number of atoms of each critic for Box actions, whose mean is the value; ``None``: the value itself.
        init: See ``initialize_linear``; each critic has its own random weights.
        encoder: Features of observations, shared by all critics (an ``ObservationEncoder``); ``None``: observations are
            the features.
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
        """``qf`` as the first of ``count`` critics; the others are copies with newly initialized weights."""
        copies = [copy.deepcopy(qf) for _ in range(count - 1)]
        for network in copies:
            network.reinitialize(generator)
        critics = cls.__new__(cls)
        critics._build([qf, *copies], None)
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
            actions: In the policy's units; ``None`` for Discrete actions.
            fixed: No gradient for the weights, only for the actions (saves a third of a backward pass).
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
        # One critic after the other: the data of one of them fit into the cache.
        each = zip(*(p.unbind() for p in (*weights, *biases)), strict=True)
        depth, activation = len(weights), self.hidden_nonlinearity
        values = torch.stack([perceptron(x, layers[:depth], layers[depth:], activation) for layers in each])
        return values[..., 0] if self.num_outputs is None else values


def _widths(spec: EnvSpec, encoder: Any, num_atoms: int | None = None) -> tuple[int, int | None]:
    """Numbers of inputs and outputs of a critic; ``None`` outputs for a single value."""
    features = spec.obs_dim if encoder is None else int(encoder.output_dim)
    if isinstance(spec.action_space, gymnasium.spaces.Discrete):
        return features, spec.act_dim
    return features + spec.act_dim, num_atoms


def _stack(parameters: Sequence[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.stack([parameter.detach() for parameter in parameters]))


def critics_of(
    qf: Any, env_spec: EnvSpec, count: int, generator: torch.Generator, num_atoms: int | None = None
) -> Critics:
    """``qf`` as ``count`` critics (with ``num_atoms`` each).

    Raises:
        ShapeError: It has the wrong width.
        TypeError: It is neither ``Critics`` nor a ``QFunction``.
        ValueError: It does not have ``count`` critics.
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
        raise ShapeError(f"qf must output {_outputs_text(outputs)} per row, got {_outputs_text(qf.num_outputs)}")
    if qf.count != count:
        raise ValueError(f"qf must hold {count} critics, got {qf.count}")
    return qf


def _outputs_text(num_outputs: int | None) -> str:
    return "one value" if num_outputs is None else f"{num_outputs} numbers"


def target_of(module: nn.Module) -> Any:
    """A target network: a copy of ``module`` without gradients."""
    return copy.deepcopy(module).requires_grad_(False)
