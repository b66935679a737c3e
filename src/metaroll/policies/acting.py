"""The NumPy acting path of all policies of metaroll: weights as cached views, rows in blocks, no torch per step."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import array_api_compat.torch as torch_namespace
import numpy as np
import torch
from torch import nn

from metaroll.errors import ShapeError
from metaroll.functional.distributions import ActionDistribution
from metaroll.functional.linear import BLOCK, RowProducts, block_rows
from metaroll.policies.bodies import Body
from metaroll.policies.heads import Head
from metaroll.policies.own_body import outputs_of
from metaroll.policies.parameters import BoundModule, FlatParameters, ParameterLayout, broadcast_over, one_call, part_of
from metaroll.seeding import as_generator
from metaroll.types import Context, EnvSpec, Policy, PolicyInfo, PolicyState

__all__ = ["ActingPolicy", "check_policy"]

_FLOAT32 = np.dtype(np.float32)


class ActingPolicy(Policy, FlatParameters, nn.Module, ABC):
    """Base class of policies: a torch module for training that acts through NumPy.

    It is a body times a head: the body maps features to outputs, the head maps outputs to actions. A wrapper of another
    policy has neither, and delegates to that policy (``own_parameters``). Other policies override ``_arrange`` (layout
    of weights) and ``act``.

    Args:
        env_spec: Spaces of the environment.
        info: Properties of the policy; by default those of body and head.
        encoder: Maps observations ``(..., obs_dim)`` to features ``(..., encoder.output_dim)``, on torch (an
            ``ObservationEncoder``, an ``OwnBody``); ``None``: observations are features. Its buffers are also acting
            parameters.
        body: Maps features to outputs.
        head: Maps outputs to actions.
    """

    acts_in_bounds = False
    """Whether actions are within the bounds of the space already, so that they need no scaling."""

    own_parameters: tuple[str, ...] | None = None
    """Own acting parameters of a wrapper of another policy, ``policy``, which precede those of ``policy``; ``None``:
    not a wrapper."""

    policy: ActingPolicy

    def __init__(
        self,
        env_spec: EnvSpec,
        info: PolicyInfo | None = None,
        encoder: Any = None,
        *,
        body: Body | None = None,
        head: Head | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self._body, self._head = encoder, body, head
        if body is not None and head is not None:
            info = PolicyInfo(
                head.noise_dim,
                head.noise_kind,
                parameter_blocks=not body.by_columns,
                parameter_columns=body.by_columns,
                recurrent=body.recurrent,
                draws=False,
                runs_on_torch=True,
            )
            self.acts_in_bounds = head.acts_in_bounds
        if info is None:
            raise TypeError(f"{type(self).__name__} must have a body and a head, or an info of its own")
        self._by_columns = body is not None and body.by_columns
        if encoder is not None:  # its last bits depend on the number of rows
            info = replace(info, width_independent=False, parameter_blocks=False)
        # A class that overrides act only does not act the same way on a device.
        runs_on_torch = info.runs_on_torch and _definer(type(self), "act") >= _definer(type(self), "act_on_torch")
        self._info = replace(info, runs_on_torch=runs_on_torch)
        self.env_spec = EnvSpec.from_env(env_spec)
        self.obs_dim, self.act_dim = self.env_spec.obs_dim, self.env_spec.act_dim
        self.feature_dim = self.obs_dim if encoder is None else int(encoder.output_dim)
        self._layout: ParameterLayout | None = None
        self._sources: list[tuple[dict[str, Any], str]] = []
        self._flat_cache: tuple[np.ndarray | None, Any] = (None, None)
        self._bound_cache: tuple[np.ndarray | None, Any] = (None, None)
        self._live_cache: tuple[Any, Any] = (None, None)
        self._split_cache: tuple[Any, Any] = (None, None)
        self._own_cache: tuple[Any, Any] = (None, None)

    # -- types.Policy ----------------------------------------------------------------------------------------------

    @property
    def info(self) -> PolicyInfo:
        """Properties of the policy."""
        return self._info

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """The initial state of the body, or of ``policy`` for a wrapper."""
        if self._body is not None:
            return self._body.first_state(contexts)
        if self.own_parameters is None:
            return super().initial_state(contexts, generators, domain_params)
        return self.policy.initial_state(contexts, generators, domain_params)

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        """See ``types.Policy``; a wrapper delegates to ``policy``."""
        return state if self.own_parameters is None else self.policy.with_actions_taken(state, actions)

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are those of the head."""
        body, head = self._parts
        laid_out, own = self._weights(parameters)
        outputs, state = body.rows(laid_out, self._rows(obs, parameters), state, len(obs))
        if own is not None:
            own = self._prepared(head, own, len(obs))
        if noise.dtype != _FLOAT32:
            noise = noise.astype(np.float32)
        action, infos = head.choose(outputs, noise, deterministic, own, np)
        return action, state, infos

    def _prepared(self, head: Head, own: np.ndarray, num_rows: int) -> Any:
        """``head.prepared`` of the head's parameter, cached until that changes, since every step needs it."""
        key = (own.tobytes(), num_rows)
        kept, prepared = self._own_cache  # read atomically: other threads may act, too
        if kept != key:
            prepared = head.prepared(per_row(own, num_rows), np)
            object.__setattr__(self, "_own_cache", (key, prepared))
        return prepared

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        body, head = self._body, self._head
        if body is None or head is None:
            return super().act_on_torch(obs, state, noise, deterministic)
        outputs, following = body.tensor_rows(self, self.features(obs.to(torch.float32)), state)
        own = None if head.own is None else head.prepared(getattr(self, head.own), torch_namespace)
        action, infos = head.choose(head.parts_of(outputs), noise, deterministic, own, torch_namespace)
        return action, following, dict(infos)

    @property
    def _parts(self) -> tuple[Body, Head]:
        """Body and head.

        Raises:
            TypeError: The policy has neither.
        """
        if self._body is None or self._head is None:
            raise TypeError(f"{type(self).__name__} has neither a body and a head, nor its own method for this")
        return self._body, self._head

    # -- densities -----------------------------------------------------------------------------------------------------

    @property
    def has_densities(self) -> bool:
        """Whether ``evaluate_actions`` works."""
        return self._head is not None and self._head.has_entropy

    @property
    def has_distributions(self) -> bool:
        """Whether ``action_distribution`` works."""
        return self._head is not None and self._head.has_distribution

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-densities and entropies, both ``(...)``, of ``action (..., act_dim)`` given ``obs (..., obs_dim)``.

        Differentiable. Recurrent policies take complete rollouts ``(N, T, ...)``.

        Raises:
            TypeError: The policy has no densities (``has_densities``).
        """
        if not self.has_densities:
            raise TypeError(f"{type(self).__name__} has no evaluate_actions")
        body, head = self._parts
        distribution = head.distribution(*self._for_head(body.outputs(self, self.features(obs))))
        return distribution.log_prob(action), distribution.entropy()

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """Log-densities ``(...)`` of ``action (..., act_dim)``, integers ``(...)`` where actions are choices.

        Args:
            obs: Observations ``(..., obs_dim)``; sequences ``(..., T, obs_dim)`` for a recurrent policy.
            action: Actions; for a squashed Gaussian, actions at a bound count as the next number inside.
            hidden: Previous hidden states ``(..., H)`` of a recurrent policy; ``None``: zeros.

        Raises:
            TypeError: The policy has no densities (``has_distributions``).
        """
        if not self.has_distributions:
            raise TypeError(f"{type(self).__name__} has no log_prob")
        body, head = self._parts
        outputs, _ = body.steps(self, self.features(obs), hidden)
        return head.distribution(*self._for_head(outputs)).log_prob(action)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> ActionDistribution:
        """Action distribution as a pure function of ``parameters``: the module's own parameters are not used.

        It is thread-safe, and ``torch.func`` may transform it (``torch.func.functional_call`` temporarily changes the
        module, which is visible to other threads).

        Args:
            parameters: The acting parameters by name, as from ``parameter_layout().torch_views(flat)``: those of one
                policy, or stacks ``(M, *shape)`` of M of them.
            obs: Observations ``(..., obs_dim)``, ``(M, ..., obs_dim)`` with stacks. A recurrent policy takes complete
                rollouts ``(..., T, obs_dim)``, from a zero hidden state.

        Raises:
            TypeError: The policy has no such densities (``has_distributions``).
        """
        if not self.has_distributions:
            raise TypeError(f"{type(self).__name__} has no densities as a function of its parameters")
        body, head = self._parts
        outputs = body.pure_outputs(self, parameters, self.features(obs, parameters))
        own = None if head.own is None else broadcast_over(parameters[head.own], outputs)
        return head.distribution(head.parts_of(outputs), own)

    def _for_head(self, outputs: torch.Tensor) -> tuple[Any, torch.Tensor | None]:
        """Outputs ``(..., width)`` of the body in parts, and the head's own parameter, broadcast to them."""
        _, head = self._parts
        return head.parts_of(outputs), None if head.own is None else getattr(self, head.own).expand_as(outputs)

    def acting_parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that ``act`` uses, in the order of the flat vector."""
        if self.own_parameters is None:
            return self.parameter_layout().names
        return (*self.own_parameters, *(f"policy.{name}" for name in self.policy.acting_parameter_names()))

    def _flat_names(self) -> list[str]:
        return list(dict.fromkeys([*super()._flat_names(), *self.acting_parameter_names()]))

    def acting_parameters(self) -> np.ndarray:
        """Flat float32 copy ``(P,)`` of the parameters that ``act`` uses."""
        return self.parameter_layout().flatten(self)

    def parameter_layout(self) -> ParameterLayout:
        """Names and shapes of the acting parameters, for ``torch.func.functional_call`` and stacks."""
        if self._layout is None:
            self._layout = ParameterLayout.of(self, self._own_names())
        return self._layout

    def _own_names(self) -> tuple[str, ...]:
        """Names of all parameters, followed by the buffers of the encoder."""
        if self.own_parameters is not None:
            return self.acting_parameter_names()
        names = [name for name, _ in self.named_parameters()]
        buffers = () if self.encoder is None else self.encoder.named_buffers(prefix="encoder")
        return (*names, *(name for name, _ in buffers))

    # -- features ----------------------------------------------------------------------------------------------------

    def features(self, obs: torch.Tensor, parameters: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
        """Features of ``obs (..., obs_dim)`` by the encoder, with its own weights or those in ``parameters``.

        Stacks ``(M, *shape)`` of these, with ``obs (M, ..., obs_dim)``, are for an ``OwnBody``.
        """
        if self.encoder is None:
            return obs
        if parameters is not None:
            return outputs_of(self.encoder, parameters, obs)
        with one_call:
            return self.encoder(obs)

    def _feature_rows(self, obs: np.ndarray, parameters: np.ndarray | None) -> np.ndarray:
        """``features`` of NumPy rows, float32 ``(N, feature_dim)``."""
        if parameters is not None and parameters.ndim != 1:
            return self._feature_rows_of_sets(obs, parameters)
        rows = torch.from_numpy(np.ascontiguousarray(obs) if obs.flags.writeable else np.array(obs))
        if parameters is not None:
            bound = self._bound_encoder(parameters)
            with torch.no_grad(), RowProducts():
                return bound(rows).numpy()
        with torch.no_grad(), RowProducts(), one_call:
            own = next(self.encoder.parameters(), None)
            return self.features(rows if own is None else rows.to(own.device)).cpu().numpy()

    def _bound_encoder(self, parameters: np.ndarray) -> BoundModule:
        """The encoder with its part of ``parameters (P,)``, cached by identity: views, which follow changes."""
        given, bound = self._bound_cache
        if parameters is given:
            return bound
        shares = parameters.flags.writeable  # torch accepts only writable memory
        flat = torch.from_numpy(parameters if shares else np.array(parameters))
        bound = BoundModule(self.encoder, part_of(self.parameter_layout().torch_views(flat), "encoder"))
        if shares:
            object.__setattr__(self, "_bound_cache", (parameters, bound))
        return bound

    def _feature_rows_of_sets(self, obs: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        """``_feature_rows`` with a set of parameters for each row, ``(N, P)``, batched over rows with equal sets."""
        if len(parameters) != len(obs):
            raise _unequal(obs, parameters)
        features = np.empty((len(obs), self.feature_dim), dtype=np.float32)
        differs = (parameters[1:] != parameters[:-1]).any(axis=1)
        for rows in np.split(np.arange(len(obs)), np.flatnonzero(differs) + 1):
            # Always in blocks of the same size: another one would change the last bits.
            blocks, own = block_rows(obs[rows]), parameters[rows[0]]
            parts = [self._feature_rows(block, own) for block in blocks]
            features[rows] = np.concatenate(parts)[: len(rows)]
        return features

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
            TypeError: The policy is recurrent: call ``act``.
        """
        if self.info.recurrent:
            raise TypeError(f"{type(self).__name__} is recurrent: call act, which takes and returns its state")
        obs = np.asarray(observations).reshape(len(observations), -1)
        drawn = as_generator(generator)
        shape = (len(obs), self.noise_dim)
        noise = drawn.random(shape) if self.noise_kind == "uniform" else drawn.standard_normal(shape)
        action, _, infos = self.act(obs, {}, noise, deterministic)
        return action, dict(infos)

    # -- weights -----------------------------------------------------------------------------------------------------

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        """Arrange views of ``_arranged_names`` (with a leading axis N if stacked) in the layout of ``act``. Views only,
        no arithmetic: the arrays may be changed in place later.

        With a body and a head: the layout of the body, and the head's own parameter.
        """
        if self._body is None or self._head is None:
            return arrays
        named = dict(zip(self._arranged_names(), arrays, strict=True))
        own = None if self._head.own is None else named.pop(self._head.own)
        return self._body.lay_out(self, named), own

    def _split(self, parameters: np.ndarray | None, num_rows: int) -> tuple[Sequence[np.ndarray], np.ndarray | None]:
        """For a wrapper: its own parameters ``(A,)`` or ``(N, A)``, and those of ``policy``, as views."""
        if parameters is None:
            return self._live_weights(), None
        if not self.own_parameters:
            return (), parameters
        given, parts = self._split_cache
        if parameters is given:
            own, inner = parts
        else:
            flat = np.asarray(parameters, dtype=np.float32)
            ends = np.cumsum([math.prod(shape) for shape in self.parameter_layout().shapes[: len(self.own_parameters)]])
            *own, inner = np.split(flat, ends, axis=-1)
            if flat is parameters:  # a copy would not follow changes in place
                object.__setattr__(self, "_split_cache", (parameters, (own, inner)))
        return [per_row(values, num_rows) for values in own], inner

    def _weights(self, parameters: np.ndarray | None) -> Any:
        """``_arrange`` of ``parameters``, cached by identity; of the live module for ``None``."""
        if parameters is None:
            return self._live_weights()
        given, weights = self._flat_cache
        if parameters is given:
            return weights
        flat = np.asarray(parameters)
        # Rows may be strided (a part of a stack), as long as each is contiguous, unless columns are used.
        is_contiguous = flat.flags.c_contiguous or flat.strides[-1] == flat.itemsize or self._by_columns
        usable = flat.dtype == np.float32 and is_contiguous
        own = flat if usable else np.ascontiguousarray(flat, dtype=np.float32)
        views = zip(self.acting_parameter_names(), self.parameter_layout().numpy_views(own), strict=True)
        names = {*self._arranged_names()}
        weights = self._arrange([view for name, view in views if name in names])
        if own is parameters:
            # Views, which follow in-place changes. (A converted copy would not, so it is not cached.)
            object.__setattr__(self, "_flat_cache", (parameters, weights))
        return weights

    def _live_weights(self) -> Any:
        if not self._sources:
            self._sources = _parameter_slots(self, self._arranged_names())
        tensors = [owner[name] for owner, name in self._sources]
        key = [tensor.data_ptr() for tensor in tensors]
        kept, weights = self._live_cache
        if key == kept:
            return weights
        arrays = [tensor.detach().to("cpu", torch.float32).numpy() for tensor in tensors]
        weights = self._arrange(arrays)
        if all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors):
            object.__setattr__(self, "_live_cache", (key, weights))
        return weights

    def _arranged_names(self) -> tuple[str, ...]:
        """Names of the parameters for ``_arrange``: the own ones of a wrapper, else all but the encoder's."""
        if self.own_parameters is not None:
            return self.own_parameters
        names = self.acting_parameter_names()
        return names if self.encoder is None else tuple(name for name in names if not name.startswith("encoder."))

    def _rows(self, obs: np.ndarray, parameters: np.ndarray | None) -> np.ndarray:
        """Features of ``obs (N, obs_dim)`` as float32 rows ``(B, 8, F)``; ``(N, 1, F)`` with a parameter set per row.

        For a small MLP, they are columns ``(F, N)``.
        """
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ShapeError(f"obs must have shape (N, {self.obs_dim}), got {obs.shape}")
        if self._by_columns:
            if parameters is not None and parameters.ndim == 2 and len(parameters) != len(obs):
                raise _unequal(obs, parameters)
            return np.ascontiguousarray(obs.T, dtype=np.float32)
        rows = obs if self.encoder is None else self._feature_rows(obs, parameters)
        if rows.dtype != _FLOAT32:
            rows = rows.astype(np.float32)
        if parameters is None or parameters.ndim == 1:
            return block_rows(rows)
        rows = np.ascontiguousarray(rows)
        if self._info.parameter_blocks and BLOCK * len(parameters) == len(obs):
            return rows.reshape(-1, BLOCK, self.feature_dim)
        if len(parameters) != len(obs):
            raise _unequal(obs, parameters)
        return rows[:, None]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module | nn.Parameter):  # a part was replaced
            caches = dict.fromkeys(("_flat_cache", "_bound_cache", "_split_cache"), (None, None))
            empty = {"_layout": None, "_sources": [], **caches}
            for cache, value in empty.items():
                object.__setattr__(self, cache, value)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Views of this object's memory; a copy makes new ones.
        caches = ("_flat_cache", "_bound_cache", "_live_cache", "_split_cache")
        state.update(dict.fromkeys(caches, (None, None)), _sources=[])
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
    """Parameters ``(A,)`` or ``(N, A)`` unchanged; those of blocks of rows, ``(N / 8, A)``, repeated to ``(N, A)``."""
    return values if values.ndim == 1 or len(values) == num_rows else np.repeat(values, BLOCK, axis=0)


def check_policy(policy: Any, kind: type[ActingPolicy], spec: EnvSpec, name: str = "policy") -> None:
    """Raise unless ``policy`` is a ``kind`` for the spaces of ``spec``.

    Args:
        policy: The policy.
        kind: Its required class.
        spec: The spec that it must be built for.
        name: Name of the argument, for the error message.

    Raises:
        ShapeError: It is for other spaces.
        TypeError: It has another class.
    """
    if not isinstance(policy, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(policy).__name__}")
    if (policy.obs_dim, policy.act_dim) != (spec.obs_dim, spec.act_dim):
        raise ShapeError(
            f"{name} must be built for the spaces of env_spec ({spec.obs_dim} observations, {spec.act_dim} actions), "
            f"got {policy.obs_dim} and {policy.act_dim}"
        )
