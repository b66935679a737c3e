"""Policies with memory: a GRU cell made of linear operations, so that parameters can be stacked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from metaroll.checks import check_whole
from metaroll.errors import ShapeError
from metaroll.functional.distributions import (
    Categorical,
    DiagonalGaussian,
    SquashedGaussian,
    gaussian_entropy,
    gaussian_log_prob,
)
from metaroll.functional.gradients.recurrent import gru_memories
from metaroll.functional.linear import block_rows, matmul_rows
from metaroll.policies.acting import (
    NUMPY_ACTIVATIONS,
    ActingPolicy,
    Affine,
    check_box,
    choose_action,
    choose_on_torch,
    lay_out,
    mlp_rows,
    per_row,
)
from metaroll.policies.categorical_head import CategoricalHead
from metaroll.policies.gaussian import (
    LAST_GAIN,
    LOG_STD_MAX,
    LOG_STD_MIN,
    squashed_choice,
    squashed_choice_on_torch,
    squashed_gaussian,
)
from metaroll.policies.networks import MLP, empty_linear, initialize_linear
from metaroll.policies.parameters import beside, part_of, stacked_linear
from metaroll.policies.scaling import ActionScaling
from metaroll.seeding import fresh_seed, torch_generator
from metaroll.types import Context, EnvSpec, PolicyInfo, PolicyState

__all__ = [
    "CategoricalGRUOutput",
    "CategoricalGRUPolicy",
    "GRUCell",
    "GRUCritic",
    "GRUGaussianPolicy",
    "GRUOutput",
    "RecurrentCritic",
    "TanhGaussianGRUPolicy",
]


class GRUOutput(NamedTuple):
    """``mean (..., T, act_dim)``, ``log_std (..., T, act_dim)`` and the last ``hidden (..., H)``."""

    mean: torch.Tensor
    log_std: torch.Tensor
    hidden: torch.Tensor


class CategoricalGRUOutput(NamedTuple):
    """``log_probs (..., T, num_actions)`` and the last ``hidden (..., H)``."""

    log_probs: torch.Tensor
    hidden: torch.Tensor


class GRUCell(nn.Module):
    """Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) from linear operations.

    ``r, z = sigmoid(W x + b + U h + c)``, ``n = tanh(W x + b + r (U h + c))``, ``h' = (1 - z) n + z h``; gates are
    stacked in the order r, z, n, as in ``torch.nn.GRUCell`` (for which ``torch.func.vmap`` has no rule).

    Args:
        input_size: Width of the input.
        hidden_size: Width H of the memory.
        init: See ``initialize_linear``.
        generator: Source of the initial weights.
    """

    def __init__(self, input_size: int, hidden_size: int, *, init: str, generator: torch.Generator) -> None:
        super().__init__()
        self.input_map = empty_linear(input_size, 3 * hidden_size)
        self.hidden_map = empty_linear(hidden_size, 3 * hidden_size)
        initialize_linear(self.input_map, generator, init, heads=3)
        initialize_linear(self.hidden_map, generator, init, heads=3)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Next memory ``(..., H)`` of ``x (..., input_size)`` and ``hidden (..., H)``."""
        return _gated(self.input_map(x), self.hidden_map(hidden), hidden)

    def memories(self, parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """``steps`` from an empty memory as a pure function of ``parameters``, of one cell or stacks of M.

        Args:
            parameters: By name, as ``named_parameters`` has them.
            x: Sequences ``(..., T, input_size)``, ``(M, ..., T, input_size)`` with stacks.
        """
        from_x = stacked_linear(x, parameters["input_map.weight"], parameters["input_map.bias"])
        weight, bias = parameters["hidden_map.weight"], parameters["hidden_map.bias"]
        memory = x.new_zeros(*x.shape[:-2], weight.shape[-1])
        memories = []
        for now in from_x.unbind(-2):
            memory = _gated(now, stacked_linear(memory, weight, bias), memory)
            memories.append(memory)
        return torch.stack(memories, dim=-2)

    def steps(self, x: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Memories ``(..., T, H)`` along sequences ``x (..., T, input_size)`` from ``hidden`` (``None``: zeros)."""
        memory = x.new_zeros(*x.shape[:-2], self.hidden_map.in_features) if hidden is None else hidden
        memories = []
        for t in range(x.shape[-2]):
            memory = self(x[..., t, :], memory)
            memories.append(memory)
        return torch.stack(memories, dim=-2)

    def sequence(self, x: torch.Tensor) -> torch.Tensor:
        """Memories ``(N, T, H)`` along sequences ``x (N, T, input_size)`` that begin with an empty memory.

        By torch's fused kernel, many times faster than step by step; for ``torch.func.vmap`` use ``forward``.
        """
        maps = (self.input_map, self.hidden_map)
        weights = [*(m.weight for m in maps), *(m.bias for m in maps)]
        hidden = x.new_zeros(1, len(x), self.hidden_map.in_features)
        return torch.gru(x, hidden, weights, True, 1, 0.0, False, False, True)[0]

    def segments(self, x: torch.Tensor, keep: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Memories ``(T, N, H)`` along segments ``x (T, N, input_size)``, in which episodes begin (``gru_memories``).

        Args:
            x: Inputs.
            keep: 0 where an episode begins, else 1, ``(T, N, 1)``.
            hidden: Memories before, ``(N, H)``; ``None``: empty.
        """
        before = x.new_zeros(x.shape[1], self.hidden_map.in_features) if hidden is None else hidden
        return gru_memories(self.input_map(x), keep, before, self.hidden_map.weight, self.hidden_map.bias)


class RecurrentCritic(nn.Module, ABC):
    """A critic that remembers: it is called with whole rollouts, ``critic(inputs (N, T, D)) -> (N, T, 1)``."""

    @abstractmethod
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Values ``(N, T, 1)`` along rollouts ``inputs (N, T, D)`` that begin with an empty memory."""


class GRUCritic(RecurrentCritic):
    """Values that are a linear map of a GRU's memory, for learners that train on whole rollouts.

    Args:
        input_size: Width D of its inputs.
        hidden_size: Width H of the memory.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 64,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_whole("input_size", input_size)
        self.hidden_size = _checked_size(hidden_size)
        generator = torch_generator(fresh_seed()) if generator is None else generator
        self.cell = GRUCell(self.input_size, self.hidden_size, init=init, generator=generator)
        self.head = empty_linear(self.hidden_size, 1)
        initialize_linear(self.head, generator, init, last=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Values ``(N, T, 1)`` along rollouts ``inputs (N, T, D)`` that begin with an empty memory.

        Raises:
            ShapeError: ``inputs`` have another shape.
        """
        if inputs.ndim != 3 or inputs.shape[-1] != self.input_size:
            raise ShapeError(f"inputs must have shape (N, T, {self.input_size}), got {tuple(inputs.shape)}")
        return self.head(self.cell.sequence(inputs))


def _gated(from_x: torch.Tensor, from_h: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Next memory ``(..., H)`` of both maps ``(..., 3 H)`` and the present one."""
    x_r, x_z, x_n = from_x.chunk(3, dim=-1)
    h_r, h_z, h_n = from_h.chunk(3, dim=-1)
    reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    new = torch.tanh(x_n + reset * h_n)
    return new + update * (hidden - new)


class GRUGaussianPolicy(ActingPolicy):
    """Diagonal Gaussian whose mean is a linear map of a GRU's memory; the state is ``{"hidden": (N, H)}``.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_size: Width H of the memory.
        learn_std: Whether ``log_std`` is trained.
        init_std: Initial standard deviation.
        min_std: Lower bound of the standard deviation.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        learn_std: bool = True,
        init_std: float = 1.0,
        min_std: float = 1e-6,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        check_box(spec, type(self).__name__)
        if not 0.0 < min_std <= init_std:
            raise ValueError(f"min_std and init_std must satisfy 0 < min_std <= init_std, got {min_std}, {init_std}")
        info = PolicyInfo(spec.act_dim, parameter_blocks=True, recurrent=True, draws=False, runs_on_torch=True)
        super().__init__(spec, info)
        self.hidden_size = _checked_size(hidden_size)
        self.cell, self.head = _networks(spec, self.hidden_size, init, generator)
        self.log_std = nn.Parameter(torch.full((spec.act_dim,), math.log(init_std)), requires_grad=learn_std)
        self.min_log_std = math.log(min_std)

    def forward(self, obs: torch.Tensor, hidden: torch.Tensor | None = None) -> GRUOutput:
        """Run over sequences ``obs (..., T, obs_dim)`` from ``hidden (..., H)`` (``None``: zeros)."""
        memories = self.cell.steps(obs, hidden)
        mean = self.head(memories)
        return GRUOutput(mean, self.log_std.clamp(min=self.min_log_std).expand_as(mean), memories[..., -1, :])

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Log-densities ``(..., T)`` of actions ``(..., T, act_dim)`` along sequences ``obs (..., T, obs_dim)``."""
        out = self(obs, hidden)
        return gaussian_log_prob(action, out.mean, out.log_std)

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-densities and entropies ``(N, T)`` along sequences that begin with an empty memory."""
        mean = self.head(self.cell.sequence(obs))
        log_std = self.log_std.clamp(min=self.min_log_std).expand_as(mean)
        return gaussian_log_prob(action, mean, log_std), gaussian_entropy(log_std)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> DiagonalGaussian:
        """See ``ActingPolicy.action_distribution``."""
        memories = self.cell.memories(part_of(parameters, "cell"), obs)
        mean = stacked_linear(memories, parameters["head.weight"], parameters["head.bias"])
        return DiagonalGaussian(mean, beside(parameters["log_std"].clamp(min=self.min_log_std), mean))

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """``{"hidden": (N, H)}``: ``hidden (H,)`` of a rollout's context, where it has one, else zeros."""
        return {"hidden": _first_memories(contexts, self.hidden_size)}

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        named = dict(zip(self.acting_parameter_names(), arrays, strict=True))
        return _layers(named), named["log_std"]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are ``mean`` and ``log_std``."""
        layers, log_std = self._weights(parameters)
        n = len(obs)
        mean, hidden = _remember(self._rows(obs, parameters), state["hidden"], layers)
        next_state = {**state, "hidden": hidden}
        log_std = per_row(np.maximum(log_std, np.float32(self.min_log_std)), n)
        log_stds = np.empty_like(mean)
        log_stds[...] = log_std
        infos = {"mean": mean, "log_std": log_stds}
        if deterministic is True:
            return mean.copy(), next_state, infos
        action = np.exp(log_std) * np.asarray(noise, dtype=np.float32)
        action += mean
        if not isinstance(deterministic, bool):
            action = choose_action(action, mean, np.asarray(deterministic))
        return action, next_state, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        hidden = self.cell(obs.to(torch.float32), state["hidden"])
        mean = self.head(hidden)
        log_std = self.log_std.clamp(min=self.min_log_std).expand_as(mean)
        action = choose_on_torch(mean + log_std.exp() * noise, mean, deterministic)
        return action, {**state, "hidden": hidden}, {"mean": mean, "log_std": log_std}


class TanhGaussianGRUPolicy(ActingPolicy):
    """``tanh`` of a diagonal Gaussian, both parts of which an MLP makes of a GRU's memory and the observation.

    It acts within the bounds of the action space, as ``TanhGaussianMLPPolicy``. The memory is brought up with an
    observation before the MLP sees both side by side. The state is ``{"hidden": (N, H)}``.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_size: Width H of the memory.
        hidden_sizes: Widths of the hidden layers of the MLP.
        hidden_nonlinearity: Their activation, see ``MLP``.
        init: See ``initialize_linear``.
        log_std_bounds: ``log_std`` is clamped to these.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    acts_in_bounds = True

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        hidden_sizes: Sequence[int] = (64,),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        log_std_bounds: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        check_box(spec, type(self).__name__)
        low, high = log_std_bounds
        if not low < high:
            raise ValueError(f"log_std_bounds must be (low, high) with low < high, got {log_std_bounds}")
        info = PolicyInfo(spec.act_dim, parameter_blocks=True, recurrent=True, draws=False, runs_on_torch=True)
        super().__init__(spec, info)
        self.hidden_size = _checked_size(hidden_size)
        generator = torch_generator(fresh_seed()) if generator is None else generator
        self.cell = GRUCell(spec.obs_dim, self.hidden_size, init=init, generator=generator)
        self.net = MLP(
            self.hidden_size + spec.obs_dim,
            2 * spec.act_dim,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            output_heads=2,
            last_bound=1e-3,
            generator=generator,
        )
        self.log_std_bounds = (float(low), float(high))
        self._scaling = ActionScaling.of_squashed(spec.action_space)
        self.action_bounds = None if self._scaling is None else self._scaling.bounds

    def forward(self, obs: torch.Tensor, hidden: torch.Tensor | None = None) -> GRUOutput:
        """Run over sequences ``obs (..., T, obs_dim)`` from ``hidden (..., H)``; the Gaussian is that before tanh."""
        memories = self.cell.steps(obs, hidden)
        mean, log_std = self._heads(memories, obs)
        return GRUOutput(mean, log_std, memories[..., -1, :])

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> SquashedGaussian:
        """See ``ActingPolicy.action_distribution``."""
        memories = self.cell.memories(part_of(parameters, "cell"), obs)
        outputs = self.net.outputs(part_of(parameters, "net"), torch.cat([memories, obs], dim=-1))
        mean, log_std = outputs.chunk(2, dim=-1)
        return squashed_gaussian(mean, log_std.clamp(*self.log_std_bounds), self._scaling)

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Log-densities ``(..., T)`` of actions ``(..., T, act_dim)`` along sequences ``obs (..., T, obs_dim)``."""
        out = self(obs, hidden)
        return squashed_gaussian(out.mean, out.log_std, self._scaling).log_prob(action)

    def _heads(self, memories: torch.Tensor, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.net(torch.cat([memories, obs], dim=-1)).chunk(2, dim=-1)
        return mean, log_std.clamp(*self.log_std_bounds)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """``{"hidden": (N, H)}``: ``hidden (H,)`` of a rollout's context, where it has one, else zeros."""
        return {"hidden": _first_memories(contexts, self.hidden_size)}

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        names = self.acting_parameter_names()
        cell = {name: array for name, array in zip(names, arrays, strict=True) if name.startswith("cell.")}
        rest = [array for name, array in zip(names, arrays, strict=True) if name not in cell]
        return _cell_layers(cell), self._layers(rest, last_parts=2), NUMPY_ACTIVATIONS[self.net.hidden_nonlinearity]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; infos as ``TanhGaussianMLPPolicy.act``."""
        maps, layers, activation = self._weights(parameters)
        x = self._rows(obs, parameters)
        h = _next_memories(x, state["hidden"], *maps)
        heads = mlp_rows(np.concatenate([h, x], axis=-1), layers, activation).reshape(2, -1, self.act_dim)
        heads = heads[:, : len(obs)]
        action, infos = squashed_choice(heads, noise, deterministic, self.log_std_bounds, self._scaling)
        return action, {**state, "hidden": h.reshape(-1, self.hidden_size)[: len(obs)]}, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        obs = obs.to(torch.float32)
        hidden = self.cell(obs, state["hidden"])
        mean, log_std = self._heads(hidden, obs)
        action, infos = squashed_choice_on_torch(mean, log_std, noise, deterministic, self._scaling)
        return action, {**state, "hidden": hidden}, infos


class CategoricalGRUPolicy(ActingPolicy):
    """Chooses actions by ``softmax`` of a linear map of a GRU's memory; the state is ``{"hidden": (N, H)}``.

    Actions, noise and several choices (MultiDiscrete) are those of ``CategoricalMLPPolicy``.

    Args:
        env_spec: Spaces; actions are Discrete or MultiDiscrete.
        hidden_size: Width H of the memory.
        init: See ``initialize_linear``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_size: int = 64,
        *,
        init: str = "xavier_uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        choices = CategoricalHead(spec, type(self).__name__, "GRUGaussianPolicy")
        info = PolicyInfo(
            len(choices), "uniform", parameter_blocks=True, recurrent=True, draws=False, runs_on_torch=True
        )
        super().__init__(spec, info)
        self._choices = choices
        self.hidden_size = _checked_size(hidden_size)
        self.cell, self.head = _networks(spec, self.hidden_size, init, generator)

    def forward(self, obs: torch.Tensor, hidden: torch.Tensor | None = None) -> CategoricalGRUOutput:
        """Run over sequences ``obs (..., T, obs_dim)`` from ``hidden (..., H)`` (``None``: zeros)."""
        memories = self.cell.steps(obs, hidden)
        return CategoricalGRUOutput(self._choices.log_probs(self.head(memories)), memories[..., -1, :])

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Log-probabilities ``(..., T)`` of integer actions ``(..., T)`` along sequences ``obs (..., T, obs_dim)``."""
        return self._choices.evaluate(self(obs, hidden).log_probs, action)[0]

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies ``(N, T)`` along sequences that begin with an empty memory."""
        return self._choices.evaluate(self._choices.log_probs(self.head(self.cell.sequence(obs))), action)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> Categorical:
        """See ``ActingPolicy.action_distribution``."""
        memories = self.cell.memories(part_of(parameters, "cell"), obs)
        logits = stacked_linear(memories, parameters["head.weight"], parameters["head.bias"])
        return self._choices.distribution(self._choices.log_probs(logits))

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """``{"hidden": (N, H)}``: ``hidden (H,)`` of a rollout's context, where it has one, else zeros."""
        return {"hidden": _first_memories(contexts, self.hidden_size)}

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        return _layers(dict(zip(self.acting_parameter_names(), arrays, strict=True)))

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; the info is ``prob (N, num_actions)``; deterministic is the likeliest action."""
        logits, hidden = _remember(self._rows(obs, parameters), state["hidden"], self._weights(parameters))
        action, prob = self._choices.choose(logits, noise, deterministic)
        return action, {**state, "hidden": hidden}, {"prob": prob}

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; the info as ``act``."""
        hidden = self.cell(obs.to(torch.float32), state["hidden"])
        action, prob = self._choices.choose_on_torch(self.head(hidden), noise, deterministic)
        return action, {**state, "hidden": hidden}, {"prob": prob}


def _checked_size(hidden_size: int) -> int:
    return check_whole("hidden_size", hidden_size)


def _first_memories(contexts: Sequence[Context | None], size: int) -> np.ndarray:
    rows = np.zeros((len(contexts), size), dtype=np.float32)
    for row, context in zip(rows, contexts, strict=True):
        if not context or "hidden" not in context:
            continue
        if np.shape(context["hidden"]) != (size,):
            raise ShapeError(f"context['hidden'] must have shape ({size},), got {np.shape(context['hidden'])}")
        row[...] = context["hidden"]
    return rows


def _networks(
    spec: EnvSpec, hidden_size: int, init: str, generator: torch.Generator | None
) -> tuple[GRUCell, nn.Linear]:
    """The cell, and the linear map of its memory to ``act_dim`` numbers."""
    generator = torch_generator(fresh_seed()) if generator is None else generator
    cell = GRUCell(spec.obs_dim, hidden_size, init=init, generator=generator)
    head = empty_linear(hidden_size, spec.act_dim)
    initialize_linear(head, generator, init, last=True, last_gain=LAST_GAIN)
    return cell, head


def _layers(named: Mapping[str, np.ndarray]) -> tuple[Affine, Affine, Affine]:
    """The maps of the input, of the memory, and of the memory to the output."""
    return (*_cell_layers(named), lay_out(named["head.weight"], named["head.bias"]))


def _cell_layers(named: Mapping[str, np.ndarray]) -> tuple[Affine, Affine]:
    """The maps of the input, and of the memory."""
    return (
        lay_out(named["cell.input_map.weight"], named["cell.input_map.bias"], 3),
        lay_out(named["cell.hidden_map.weight"], named["cell.hidden_map.bias"], 3),
    )


def _remember(
    x: np.ndarray, hidden: np.ndarray, layers: tuple[Affine, Affine, Affine]
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs ``(N, act_dim)`` and next memories ``(N, H)`` of rows ``x (B, R, obs_dim)`` and ``hidden (N, H)``."""
    n, width = hidden.shape
    h = _next_memories(x, hidden, layers[0], layers[1])
    output = matmul_rows(h, layers[2][0])
    output += layers[2][1]
    return output.reshape(-1, output.shape[-1])[:n], h.reshape(-1, width)[:n]


def _next_memories(x: np.ndarray, hidden: np.ndarray, input_map: Affine, hidden_map: Affine) -> np.ndarray:
    """Next memories in blocks of rows ``(B, R, H)``, of ``x (B, R, obs_dim)`` and ``hidden (N, H)``."""
    hidden = np.ascontiguousarray(hidden, dtype=np.float32)
    h = hidden[:, None] if x.shape[1] == 1 else block_rows(hidden)
    # Gates come first, (3, B, R, H), so that each is contiguous.
    from_x, from_h = matmul_rows(x, input_map[0]), matmul_rows(h, hidden_map[0])
    from_x += input_map[1]
    from_h += hidden_map[1]
    from_x[:2] += from_h[:2]
    reset, update = NUMPY_ACTIVATIONS["sigmoid"](from_x[:2])
    new = np.tanh(from_x[2] + reset * from_h[2])
    return new + update * (h - new)
