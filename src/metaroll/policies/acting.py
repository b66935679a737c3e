"""The NumPy acting path that all own policies share: weights as cached views, rows in blocks, no torch per step."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.errors import ShapeError
from metaroll.functional.distributions import ActionDistribution
from metaroll.functional.linear import BLOCK, RowProducts, are_small, block_rows, matmul_columns, matmul_rows
from metaroll.policies.own_body import outputs_of
from metaroll.policies.parameters import FlatParameters, ParameterLayout
from metaroll.seeding import as_generator
from metaroll.types import Context, EnvSpec, Policy, PolicyInfo, PolicyState

__all__ = [
    "NUMPY_ACTIVATIONS",
    "ActingPolicy",
    "Affine",
    "check_box",
    "check_policy",
    "choose_action",
    "choose_on_torch",
    "lay_out",
    "lay_out_columns",
    "mlp_rows",
    "per_row",
]

Affine = tuple[np.ndarray, np.ndarray]
"""Transposed weight and bias of one layer, laid out to broadcast over blocks of rows."""


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # By tanh, since exp(-x) overflows.
    x *= np.float32(0.5)
    np.tanh(x, out=x)
    x += np.float32(1.0)
    x *= np.float32(0.5)
    return x


NUMPY_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
    "elu": _elu,
    "sigmoid": _sigmoid,
    "identity": lambda x: x,
}
"""Activations of contiguous arrays; all but elu work in place."""


def lay_out(weight: np.ndarray, bias: np.ndarray, parts: int | None = None) -> Affine:
    """Views of a layer for ``matmul_rows`` on blocks ``(B, R, in)``.

    ``weight (out, in)`` or stacked ``(N, out, in)``; ``bias (out,)`` or ``(N, out)``. With ``parts`` the output is cut
    in equal parts that come first, ``(parts, B, R, out / parts)``, so that each part is contiguous memory.
    """
    *stack, num_out, num_in = weight.shape
    if parts is not None:
        weight = weight.reshape(*stack, parts, num_out // parts, num_in)
        bias = bias.reshape(*stack, parts, 1, num_out // parts)
        if stack:
            return weight.transpose(1, 0, 3, 2), bias.swapaxes(0, 1)
        return weight[:, None].swapaxes(-1, -2), bias[:, None]
    return weight.swapaxes(-1, -2), (bias[:, None] if stack else bias)


def lay_out_columns(weight: np.ndarray, bias: np.ndarray) -> Affine:
    """Views of a layer for ``matmul_columns``, of arguments as of ``lay_out``."""
    if weight.ndim == 3:
        return weight.transpose(1, 2, 0), bias.T
    return weight[:, :, None], bias[:, None]


def mlp_rows(x: np.ndarray, layers: Sequence[Affine], activation: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Rows ``(B, R, in)`` through a perceptron, or columns ``(in, N)``; ``activation`` between the layers.

    What becomes of columns are rows ``(N, out)``, too, which lie in memory as columns.
    """
    last, by_columns = len(layers) - 1, x.ndim == 2
    product = matmul_columns if by_columns else matmul_rows
    for k, (weight, bias) in enumerate(layers):
        x = product(x, weight)
        x += bias
        if k < last:
            x = activation(x)
    return x.T if by_columns else x


def choose_action(sampled: np.ndarray, mean: np.ndarray, deterministic: np.ndarray) -> np.ndarray:
    """Rows of ``mean`` where ``deterministic (N,)``, else of ``sampled``."""
    return np.where(deterministic.reshape(-1, *([1] * (sampled.ndim - 1))), mean, sampled)


def choose_on_torch(sampled: torch.Tensor, mean: torch.Tensor, deterministic: bool | torch.Tensor) -> torch.Tensor:
    """``choose_action`` of tensors, where the flag may be one for all."""
    if isinstance(deterministic, bool):
        return mean if deterministic else sampled
    return torch.where(deterministic.reshape(-1, *([1] * (sampled.ndim - 1))), mean, sampled)


class ActingPolicy(Policy, FlatParameters, nn.Module, ABC):
    """Base of own policies: a torch module for training that acts through NumPy.

    Subclasses say how weights are laid out (``_arrange``) and how rows become actions (``act``). One that acts around
    another policy hands on to it what it does not do itself (``own_parameters``).

    Args:
        env_spec: Spaces of the environment.
        info: What the policy is.
        encoder: Makes features ``(..., encoder.output_dim)`` of observations ``(..., obs_dim)``, on torch (an
            ``ObservationEncoder``, an ``OwnBody``); ``None``: observations are features. Its buffers are acting
            parameters, too.
        widths: Of input, hidden layers and output of a perceptron that ``_layers`` lays out; if it is small, it is
            computed by columns.
    """

    acts_in_bounds = False
    """Whether actions keep the bounds of the space by themselves, so that nothing needs to scale them."""

    own_parameters: tuple[str, ...] | None = None
    """Of a policy that acts around another one, ``policy``: its own acting parameters, which come before those of it;
    ``None``: it acts around none."""

    policy: ActingPolicy

    def __init__(
        self, env_spec: EnvSpec, info: PolicyInfo, encoder: Any = None, *, widths: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self._by_columns = encoder is None and widths is not None and are_small(widths)
        if self._by_columns:
            info = replace(info, parameter_blocks=False, parameter_columns=True)
        if encoder is not None:  # which computes other last bits for other numbers of rows
            info = replace(info, width_independent=False, parameter_blocks=False)
        # A class that acts otherwise in NumPy than the one that it comes from does not act so on a device.
        runs_on_torch = info.runs_on_torch and _definer(type(self), "act") >= _definer(type(self), "act_on_torch")
        self._info = replace(info, runs_on_torch=runs_on_torch)
        self.env_spec = EnvSpec.from_env(env_spec)
        self.obs_dim, self.act_dim = self.env_spec.obs_dim, self.env_spec.act_dim
        self.feature_dim = self.obs_dim if encoder is None else int(encoder.output_dim)
        self._layout: ParameterLayout | None = None
        self._sources: list[tuple[dict[str, Any], str]] = []
        self._flat_cache: tuple[np.ndarray | None, Any] = (None, None)
        self._live_cache: tuple[Any, Any] = (None, None)
        self._split_cache: tuple[Any, Any] = (None, None)

    # -- types.Policy ----------------------------------------------------------------------------------------------

    @property
    def info(self) -> PolicyInfo:
        """What the policy is."""
        return self._info

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """State rows of ``policy``, where it acts around one; else nothing is remembered."""
        if self.own_parameters is None:
            return super().initial_state(contexts, generators, domain_params)
        return self.policy.initial_state(contexts, generators, domain_params)

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        """As ``policy``, where it acts around one; see ``types.Policy``."""
        return state if self.own_parameters is None else self.policy.with_actions_taken(state, actions)

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-densities and entropies, both ``(...)``, of ``action (..., act_dim)`` given ``obs (..., obs_dim)``.

        Differentiable. Recurrent policies take whole rollouts ``(N, T, ...)``.

        Raises:
            TypeError: The policy has none (``has_densities``).
        """
        raise TypeError(f"{type(self).__name__} has no evaluate_actions")

    @property
    def has_densities(self) -> bool:
        """Whether ``evaluate_actions`` works."""
        return type(self).evaluate_actions is not ActingPolicy.evaluate_actions

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> ActionDistribution:
        """Distribution of what the policy chooses, as a pure function: the module's own parameters do not count.

        Any number of threads may call it, and ``torch.func`` may transform it (``torch.func.functional_call`` changes
        the module while it runs, which others see).

        Args:
            parameters: The acting parameters by name, as ``parameter_layout().torch_views(flat)`` gives them: those of
                one policy, or stacks ``(M, *shape)`` of M of them.
            obs: Observations ``(..., obs_dim)``, ``(M, ..., obs_dim)`` with stacks. A recurrent policy takes whole
                rollouts ``(..., T, obs_dim)``, which begin with an empty memory.

        Raises:
            TypeError: The policy has no such densities (``has_distributions``).
        """
        raise TypeError(f"{type(self).__name__} has no densities as a function of its parameters")

    @property
    def has_distributions(self) -> bool:
        """Whether ``action_distribution`` works."""
        return type(self).action_distribution is not ActingPolicy.action_distribution

    def acting_parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that ``act`` uses, in the order of the flat vector."""
        if self.own_parameters is None:
            return self.parameter_layout().names
        return (*self.own_parameters, *(f"policy.{name}" for name in self.policy.acting_parameter_names()))

    def acting_parameters(self) -> np.ndarray:
        """Flat float32 copy ``(P,)`` of the parameters that ``act`` uses."""
        return self.parameter_layout().flatten(self)

    def parameter_layout(self) -> ParameterLayout:
        """Names and shapes of the acting parameters, for ``torch.func.functional_call`` and stacks."""
        if self._layout is None:
            self._layout = ParameterLayout.of(self, self._own_names())
        return self._layout

    def _own_names(self) -> tuple[str, ...]:
        """Names of all parameters, and of the buffers of the encoder behind them."""
        if self.own_parameters is not None:
            return self.acting_parameter_names()
        names = [name for name, _ in self.named_parameters()]
        buffers = () if self.encoder is None else self.encoder.named_buffers(prefix="encoder")
        return (*names, *(name for name, _ in buffers))

    # -- features ----------------------------------------------------------------------------------------------------

    def features(self, obs: torch.Tensor, parameters: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
        """What the encoder makes of ``obs (..., obs_dim)``, with its own weights or those among ``parameters``.

        Stacks ``(M, *shape)`` of these, with ``obs (M, ..., obs_dim)``, are for an ``OwnBody``.
        """
        if self.encoder is None:
            return obs
        return self.encoder(obs) if parameters is None else outputs_of(self.encoder, parameters, obs)

    def _feature_rows(self, obs: np.ndarray, parameters: np.ndarray | None) -> np.ndarray:
        """``features`` of NumPy's rows, float32 ``(N, feature_dim)``."""
        if self.encoder is None:
            return obs
        if parameters is not None and parameters.ndim != 1:
            return self._feature_rows_of_sets(obs, parameters)
        own = next(self.encoder.parameters(), None)
        rows = torch.from_numpy(np.ascontiguousarray(obs) if obs.flags.writeable else np.array(obs))
        with torch.no_grad(), RowProducts():
            if parameters is None:
                return self.features(rows if own is None else rows.to(own.device)).cpu().numpy()
            flat = torch.from_numpy(parameters if parameters.flags.writeable else np.array(parameters))
            return self.features(rows, self.parameter_layout().torch_views(flat)).numpy()

    def _feature_rows_of_sets(self, obs: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        """``_feature_rows`` with a set of parameters for each row, ``(N, P)``: rows with equal sets at once."""
        if len(parameters) != len(obs):
            raise _unequal(obs, parameters)
        found = np.empty((len(obs), self.feature_dim), dtype=np.float32)
        differs = (parameters[1:] != parameters[:-1]).any(axis=1)
        for rows in np.split(np.arange(len(obs)), np.flatnonzero(differs) + 1):
            # Always in blocks of one height: another one would change the last bits.
            blocks = block_rows(obs[rows])
            parts = [self._feature_rows(block, parameters[rows[0]]) for block in blocks]
            found[rows] = np.concatenate(parts)[: len(rows)]
        return found

    # -- one row, for scripts and foreign loops --------------------------------------------------------------------

    def get_action(
        self,
        obs: np.ndarray,
        deterministic: bool = False,
        generator: np.random.Generator | None = None,
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Action and infos for one observation, flat or in the shape of the space; noise from ``generator``."""
        actions, infos = self.get_actions(np.reshape(obs, (1, -1)), deterministic, generator)
        return actions[0], {name: value[0] for name, value in infos.items()}

    def get_actions(
        self,
        observations: np.ndarray,
        deterministic: bool = False,
        generator: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions and infos for observations ``(N, obs_dim)``.

        Raises:
            TypeError: The policy remembers: call ``act``.
        """
        if self.info.recurrent:
            raise TypeError(f"{type(self).__name__} remembers: call act, which takes and returns its state")
        obs = np.asarray(observations).reshape(len(observations), -1)
        drawn = as_generator(generator)
        shape = (len(obs), self.noise_dim)
        noise = drawn.random(shape) if self.noise_kind == "uniform" else drawn.standard_normal(shape)
        action, _, infos = self.act(obs, {}, noise, deterministic)
        return action, dict(infos)

    # -- weights -----------------------------------------------------------------------------------------------------

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        """Lay out parameter views (with a leading axis N if stacked) as ``act`` wants them. Views only, no arithmetic:
        the arrays may be changed in place later.
        """
        return arrays

    def _split(self, parameters: np.ndarray | None, num_rows: int) -> tuple[Sequence[np.ndarray], np.ndarray | None]:
        """Of a policy around another one: its own parameters ``(A,)`` or ``(N, A)``, and those of ``policy``: views."""
        if parameters is None:
            return self._live_weights()[: len(self.own_parameters or ())], None
        if not self.own_parameters:
            return (), parameters
        if parameters is self._split_cache[0]:
            own, inner = self._split_cache[1]
        else:
            flat = np.asarray(parameters, dtype=np.float32)
            ends = np.cumsum([math.prod(shape) for shape in self.parameter_layout().shapes[: len(self.own_parameters)]])
            *own, inner = np.split(flat, ends, axis=-1)
            if flat is parameters:  # a copy would not follow changes in place
                object.__setattr__(self, "_split_cache", (parameters, (own, inner)))
        return [per_row(values, num_rows) for values in own], inner

    def _layers(self, arrays: list[np.ndarray], last_parts: int | None = None) -> list[Affine]:
        """Layers from ``[weight, bias, weight, bias, ...]``, the last one cut in parts."""
        pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
        if self._by_columns:
            return [lay_out_columns(weight, bias) for weight, bias in pairs]
        layers = [lay_out(weight, bias) for weight, bias in pairs[:-1]]
        return [*layers, lay_out(*pairs[-1], last_parts)]

    def _weights(self, parameters: np.ndarray | None) -> Any:
        """What ``_arrange`` made of ``parameters``, cached by identity; of the live module for ``None``."""
        if parameters is None:
            return self._live_weights()
        if parameters is self._flat_cache[0]:
            return self._flat_cache[1]
        flat = np.asarray(parameters)
        # Rows may lie apart (a part of a stack), as long as each is contiguous, or else columns.
        lies_well = flat.flags.c_contiguous or flat.strides[-1] == flat.itemsize or self._by_columns
        usable = flat.dtype == np.float32 and lies_well
        own = flat if usable else np.ascontiguousarray(flat, dtype=np.float32)
        weights = self._arrange(self._beyond_encoder(self.parameter_layout().numpy_views(own)))
        if own is parameters:
            # Views: they follow changes in place. (A converted copy would not, so it is not kept.)
            object.__setattr__(self, "_flat_cache", (parameters, weights))
        return weights

    def _live_weights(self) -> Any:
        if not self._sources:
            self._sources = _parameter_slots(self, self.acting_parameter_names())
        tensors = [owner[name] for owner, name in self._sources]
        key = [tensor.data_ptr() for tensor in tensors]
        if key == self._live_cache[0]:
            return self._live_cache[1]
        arrays = [tensor.detach().to("cpu", torch.float32).numpy() for tensor in tensors]
        weights = self._arrange(self._beyond_encoder(arrays))
        if all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors):
            object.__setattr__(self, "_live_cache", (key, weights))
        return weights

    def _beyond_encoder(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """What ``_arrange`` lays out: all but the weights of the encoder."""
        if self.encoder is None:
            return arrays
        names = self.acting_parameter_names()
        return [array for name, array in zip(names, arrays, strict=True) if not name.startswith("encoder.")]

    def _rows(self, obs: np.ndarray, parameters: np.ndarray | None) -> np.ndarray:
        """Features of ``obs (N, obs_dim)`` as float32 rows ``(B, 8, F)``; ``(N, 1, F)`` with a set for each row.

        Of a small perceptron they are columns ``(F, N)``.
        """
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ShapeError(f"obs must have shape (N, {self.obs_dim}), got {obs.shape}")
        if self._by_columns:
            if parameters is not None and parameters.ndim == 2 and len(parameters) != len(obs):
                raise _unequal(obs, parameters)
            return np.ascontiguousarray(obs.T, dtype=np.float32)
        obs = np.ascontiguousarray(self._feature_rows(obs, parameters), dtype=np.float32)
        if parameters is None or parameters.ndim == 1:
            return block_rows(obs)
        if self._info.parameter_blocks and BLOCK * len(parameters) == len(obs):
            return obs.reshape(-1, BLOCK, self.feature_dim)
        if len(parameters) != len(obs):
            raise _unequal(obs, parameters)
        return obs[:, None]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module | nn.Parameter):  # a part was exchanged
            nothing = (None, None)
            empty = {"_layout": None, "_sources": [], "_flat_cache": nothing, "_split_cache": nothing}
            for cache, value in empty.items():
                object.__setattr__(self, cache, value)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Views of this object's memory; the copy makes its own.
        state.update(_flat_cache=(None, None), _live_cache=(None, None), _split_cache=(None, None), _sources=[])
        return state


def _unequal(obs: np.ndarray, parameters: np.ndarray) -> ShapeError:
    return ShapeError(f"stacked parameters must have one row per observation ({len(obs)}, P), got {parameters.shape}")


def _definer(kind: type, name: str) -> int:
    """Position in the method resolution order of the class that defines ``name``."""
    return next(i for i, base in enumerate(kind.__mro__) if name in base.__dict__)


def _parameter_slots(module: nn.Module, names: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    slots = []
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner: Any = module.get_submodule(path)
        slots.append((owner._parameters if leaf in owner._parameters else owner._buffers, leaf))
    return slots


def per_row(values: np.ndarray, num_rows: int) -> np.ndarray:
    """Parameters ``(A,)`` or ``(N, A)`` as they are; those of blocks of rows, ``(N / 8, A)``, as ``(N, A)``."""
    return values if values.ndim == 1 or len(values) == num_rows else np.repeat(values, BLOCK, axis=0)


def check_box(env_spec: EnvSpec, policy: str) -> None:
    """Raise unless actions are a Box.

    Raises:
        TypeError: They are something else.
    """
    if not isinstance(env_spec.action_space, gymnasium.spaces.Box):
        raise TypeError(f"{policy} needs a Box action space, got {env_spec.action_space}; see CategoricalMLPPolicy")


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
