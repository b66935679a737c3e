"""Feed-forward policies: Gaussian, tanh-squashed Gaussian, and categorical for Discrete and MultiDiscrete actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from metaroll.functional.distributions import (
    Categorical,
    DiagonalGaussian,
    SquashedGaussian,
    gaussian_entropy,
    gaussian_log_prob,
    tanh_gaussian_log_prob,
)
from metaroll.policies.acting import (
    NUMPY_ACTIVATIONS,
    ActingPolicy,
    check_box,
    choose_action,
    choose_on_torch,
    mlp_rows,
    per_row,
)
from metaroll.policies.categorical_head import CategoricalHead, LateInfos
from metaroll.policies.networks import MLP
from metaroll.policies.parameters import beside, part_of
from metaroll.policies.scaling import ActionScaling
from metaroll.seeding import fresh_seed, torch_generator
from metaroll.types import EnvSpec, PolicyInfo, PolicyState

__all__ = [
    "CategoricalMLPPolicy",
    "GaussianMLPPolicy",
    "GaussianSample",
    "TanhGaussianMLPPolicy",
    "TanhGaussianSample",
    "draw_normal",
    "squashed_choice",
    "squashed_choice_on_torch",
    "squashed_gaussian",
]

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
LAST_GAIN = 0.01
"""Gain of the output layer with orthogonal weights: the first actions hardly depend on the observation."""


class GaussianSample(NamedTuple):
    """A reparameterized draw with everything losses need, all differentiable.

    ``action``, ``mean``, ``log_std``, ``pre_tanh`` have shape ``(..., act_dim)``, ``log_prob`` ``(..., 1)``. ``mean``
    and ``log_std`` are those of the Gaussian before squashing; without squashing ``pre_tanh`` is the action.
    """

    action: torch.Tensor
    mean: torch.Tensor
    log_std: torch.Tensor
    log_prob: torch.Tensor
    pre_tanh: torch.Tensor


TanhGaussianSample = GaussianSample
"""What ``TanhGaussianMLPPolicy`` returns."""


def draw_normal(like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Standard normal numbers of the shape of ``like``, drawn on the generator's device (``None``: fresh entropy)."""
    if generator is None:
        generator = torch_generator(fresh_seed())
    drawn = torch.randn(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    return drawn.to(like.device)


class GaussianMLPPolicy(ActingPolicy):
    """Diagonal Gaussian around an MLP's output; ``log_std`` is a parameter vector that observations do not change.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        output_nonlinearity: See ``MLP``.
        learn_std: Whether ``log_std`` is trained.
        init_std: Initial standard deviation.
        min_std: Lower bound of the standard deviation, applied wherever it is used (also after adaptation).
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (64, 64),
        hidden_nonlinearity: str | Callable[..., Any] | None = "tanh",
        output_nonlinearity: str | Callable[..., Any] | None = None,
        learn_std: bool = True,
        init_std: float = 1.0,
        min_std: float = 1e-6,
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        check_box(spec, type(self).__name__)
        if not 0.0 < min_std <= init_std:
            raise ValueError(f"min_std and init_std must satisfy 0 < min_std <= init_std, got {min_std}, {init_std}")
        info = PolicyInfo(spec.act_dim, parameter_blocks=True, draws=False, runs_on_torch=True)
        super().__init__(spec, info, encoder, widths=(spec.obs_dim, *hidden_sizes, spec.act_dim))
        self.net = MLP(
            self.feature_dim,
            spec.act_dim,
            hidden_sizes,
            hidden_nonlinearity,
            output_nonlinearity,
            init=init,
            last_gain=LAST_GAIN,
            generator=generator,
        )
        self.log_std = nn.Parameter(torch.full((spec.act_dim,), math.log(init_std)), requires_grad=learn_std)
        self.min_log_std = math.log(min_std)
        self._std_cache: tuple[Any, Any] = (None, None)

    def distribution(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and (clamped) log standard deviation, both ``(..., act_dim)``."""
        mean = self.net(self.features(obs))
        return mean, self.log_std.clamp(min=self.min_log_std).expand_as(mean)

    def forward(
        self, obs: torch.Tensor, noise: torch.Tensor | None = None, generator: torch.Generator | None = None
    ) -> GaussianSample:
        """Draw ``mean + std * noise`` for ``obs (..., obs_dim)``; ``noise (..., act_dim)`` or from ``generator``."""
        mean, log_std = self.distribution(obs)
        noise = draw_normal(mean, generator) if noise is None else noise
        action = mean + log_std.exp() * noise
        return GaussianSample(action, mean, log_std, gaussian_log_prob(action, mean, log_std)[..., None], action)

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log-density ``(...)`` of ``action (..., act_dim)``."""
        return gaussian_log_prob(action, *self.distribution(obs))

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-density and entropy, both ``(...)``, of ``action (..., act_dim)`` given ``obs (..., obs_dim)``."""
        mean, log_std = self.distribution(obs)
        return gaussian_log_prob(action, mean, log_std), gaussian_entropy(log_std)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> DiagonalGaussian:
        """See ``ActingPolicy.action_distribution``."""
        mean = self.net.outputs(part_of(parameters, "net"), self.features(obs, parameters))
        return DiagonalGaussian(mean, beside(parameters["log_std"].clamp(min=self.min_log_std), mean))

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        names = [name for name in self.acting_parameter_names() if not name.startswith("encoder.")]
        log_std = arrays[names.index("log_std")]
        rest = [array for name, array in zip(names, arrays, strict=True) if name != "log_std"]
        # Activations come along, since looking up a submodule costs as much as a small ufunc.
        hidden, output = NUMPY_ACTIVATIONS[self.net.hidden_nonlinearity], self.net.output_nonlinearity
        return self._layers(rest), log_std, hidden, None if output == "identity" else NUMPY_ACTIVATIONS[output]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; infos are ``mean`` and ``log_std``."""
        mean, parameter = self._mean(obs, parameters)
        log_std, std = self._deviation(parameter, len(mean))
        log_stds = np.empty_like(mean)
        log_stds[...] = log_std
        if deterministic is True:
            action = mean.copy()
        else:
            action = std * np.asarray(noise, dtype=np.float32)
            action += mean
            if not isinstance(deterministic, bool):
                action = choose_action(action, mean, np.asarray(deterministic))
        return action, state, {"mean": mean, "log_std": log_stds}

    def _mean(self, obs: np.ndarray, parameters: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Means ``(N, act_dim)``, fresh memory, and the parameter ``log_std``."""
        layers, log_std, hidden, output = self._weights(parameters)
        x = mlp_rows(self._rows(obs, parameters), layers, hidden)
        if output is not None:
            x = output(x)
        return x.reshape(-1, self.act_dim)[: len(obs)], log_std

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        mean, log_std = self.distribution(obs.to(torch.float32))
        action = choose_on_torch(mean + log_std.exp() * noise, mean, deterministic)
        return action, dict(state), {"mean": mean, "log_std": log_std}

    def _deviation(self, log_std: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Clamped ``log_std`` and its exponential, kept as long as it is the same: this is asked at every step."""
        known, result = self._std_cache
        key = (log_std.tobytes(), num_rows)
        if known != key:
            clamped = per_row(np.maximum(log_std, np.float32(self.min_log_std)), num_rows)
            result = (clamped, np.exp(clamped))
            object.__setattr__(self, "_std_cache", (key, result))
        return result


class TanhGaussianMLPPolicy(ActingPolicy):
    """``tanh`` of a diagonal Gaussian whose mean and log standard deviation are both outputs of one MLP.

    It acts within the bounds of the action space: what tanh gives in [-1, 1] is mapped to them. An entry without one of
    its bounds stays in [-1, 1], clipped to the other.

    Args:
        env_spec: Spaces; actions are a Box.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``; with ``"oyster"`` the last layer lies within 1e-3.
        log_std_bounds: ``log_std`` is clamped to these.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    acts_in_bounds = True

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (300, 300, 300),
        hidden_nonlinearity: str | Callable[..., Any] | None = "relu",
        *,
        init: str = "xavier_uniform",
        log_std_bounds: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        check_box(spec, type(self).__name__)
        low, high = log_std_bounds
        if not low < high:
            raise ValueError(f"log_std_bounds must be (low, high) with low < high, got {log_std_bounds}")
        info = PolicyInfo(spec.act_dim, parameter_blocks=True, draws=False, runs_on_torch=True)
        super().__init__(spec, info, encoder)
        self.net = MLP(
            self.feature_dim,
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

    def distribution(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log standard deviation ``(..., act_dim)`` of the Gaussian before squashing."""
        mean, log_std = self.net(self.features(obs)).chunk(2, dim=-1)
        return mean, log_std.clamp(*self.log_std_bounds)

    def forward(
        self, obs: torch.Tensor, noise: torch.Tensor | None = None, generator: torch.Generator | None = None
    ) -> GaussianSample:
        """Draw ``tanh(mean + std * noise)`` within the bounds, for ``obs (..., obs_dim)``.

        See ``GaussianMLPPolicy.forward``; ``log_prob`` is the density of the scaled action.
        """
        mean, log_std = self.distribution(obs)
        noise = draw_normal(mean, generator) if noise is None else noise
        pre_tanh = mean + log_std.exp() * noise
        log_prob = tanh_gaussian_log_prob(pre_tanh, mean, log_std)[..., None]
        action = torch.tanh(pre_tanh)
        if self._scaling is not None:
            center, half_range = _center_and_half_range(self._scaling, action)
            action, log_prob = center + half_range * action, log_prob - half_range.log().sum()
        return GaussianSample(action, mean, log_std, log_prob, pre_tanh)

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log-density ``(...)`` of ``action (..., act_dim)``; those at a bound count as the next number inside."""
        mean, log_std = self.distribution(obs)
        return squashed_gaussian(mean, log_std, self._scaling).log_prob(action)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> SquashedGaussian:
        """See ``ActingPolicy.action_distribution``."""
        features = self.features(obs, parameters)
        mean, log_std = self.net.outputs(part_of(parameters, "net"), features).chunk(2, dim=-1)
        return squashed_gaussian(mean, log_std.clamp(*self.log_std_bounds), self._scaling)

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        return self._layers(arrays, last_parts=2), NUMPY_ACTIVATIONS[self.net.hidden_nonlinearity]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; infos: ``mean``, the deterministic action, and ``log_std`` before tanh."""
        layers, hidden = self._weights(parameters)
        x = mlp_rows(self._rows(obs, parameters), layers, hidden)
        heads = x.reshape(2, -1, self.act_dim)[:, : len(obs)]
        action, infos = squashed_choice(heads, noise, deterministic, self.log_std_bounds, self._scaling)
        return action, state, infos

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; infos as ``act``."""
        pre_mean, log_std = self.distribution(obs.to(torch.float32))
        action, infos = squashed_choice_on_torch(pre_mean, log_std, noise, deterministic, self._scaling)
        return action, dict(state), infos


def squashed_gaussian(mean: torch.Tensor, log_std: torch.Tensor, scaling: ActionScaling | None) -> SquashedGaussian:
    """``tanh`` of a Gaussian, mapped to the bounds of a space."""
    return SquashedGaussian(mean, log_std, *_center_and_half_range(scaling, mean))


def _center_and_half_range(scaling: ActionScaling | None, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the interval that [-1, 1] is mapped to, ``(act_dim,)`` both, on the device of ``like``."""
    if scaling is None:
        return like.new_zeros(like.shape[-1]), like.new_ones(like.shape[-1])
    center, half_range = (torch.as_tensor(part).to(like) for part in (scaling.center, scaling.half_range))
    return center, half_range


def squashed_choice(
    heads: np.ndarray,
    noise: np.ndarray,
    deterministic: bool | np.ndarray,
    log_std_bounds: tuple[float, float],
    scaling: ActionScaling | None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Actions ``(N, act_dim)`` of a squashed Gaussian within their bounds, and infos as ``TanhGaussianMLPPolicy.act``.

    Args:
        heads: Mean and log standard deviation before tanh, ``(2, N, act_dim)``; the second is clamped in place.
        noise: Standard normal numbers ``(N, act_dim)``.
        deterministic: Whether rows act without noise.
        log_std_bounds: What the second is clamped to.
        scaling: From [-1, 1] to the bounds of the space; ``None``: none.
    """
    pre_mean, log_std = heads
    low, high = log_std_bounds
    np.maximum(log_std, np.float32(low), out=log_std)
    np.minimum(log_std, np.float32(high), out=log_std)
    mean = np.tanh(pre_mean) if scaling is None else scaling.scaled(np.tanh(pre_mean))
    infos = {"mean": mean, "log_std": log_std}
    if deterministic is True:
        return mean.copy(), infos
    action = np.exp(log_std)
    action *= np.asarray(noise, dtype=np.float32)
    action += pre_mean
    np.tanh(action, out=action)
    action = action if scaling is None else scaling.scaled(action)
    if not isinstance(deterministic, bool):
        action = choose_action(action, mean, np.asarray(deterministic))
    return action, infos


def squashed_choice_on_torch(
    pre_mean: torch.Tensor,
    log_std: torch.Tensor,
    noise: torch.Tensor,
    deterministic: Any,
    scaling: ActionScaling | None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """``squashed_choice`` of tensors, with a log standard deviation that is clamped already."""
    mean, action = torch.tanh(pre_mean), torch.tanh(pre_mean + log_std.exp() * noise)
    if scaling is not None:
        mean, action = scaling.scaled_on_torch(mean), scaling.scaled_on_torch(action)
    return choose_on_torch(action, mean, deterministic), {"mean": mean, "log_std": log_std}


class CategoricalMLPPolicy(ActingPolicy):
    """Chooses one of the actions of a Discrete space with probabilities ``softmax(MLP(obs))``.

    In a MultiDiscrete space each choice is made by itself, with its own part of the network's output. Noise is one
    uniform number per row and choice, turned into the choice by the inverse distribution function. Actions are indices
    0 to n - 1; the environment's side adds the ``start`` of the space.

    Args:
        env_spec: Spaces; actions are Discrete or MultiDiscrete.
        hidden_sizes: Widths of the hidden layers.
        hidden_nonlinearity: See ``MLP``.
        init: See ``initialize_linear``.
        encoder: See ``ActingPolicy``.
        generator: Source of the initial weights; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        hidden_sizes: Sequence[int] = (32, 32),
        hidden_nonlinearity: str | Callable[..., Any] | None = "tanh",
        *,
        init: str = "xavier_uniform",
        encoder: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        spec = EnvSpec.from_env(env_spec)
        choices = CategoricalHead(spec, type(self).__name__, "GaussianMLPPolicy")
        info = PolicyInfo(len(choices), "uniform", parameter_blocks=True, draws=False, runs_on_torch=True)
        super().__init__(spec, info, encoder, widths=(spec.obs_dim, *hidden_sizes, spec.act_dim))
        self._choices = choices
        self.net = MLP(
            self.feature_dim,
            spec.act_dim,
            hidden_sizes,
            hidden_nonlinearity,
            init=init,
            last_gain=LAST_GAIN,
            generator=generator,
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Log-probabilities ``(..., num_actions)``; those of several choices one after the other."""
        return self._choices.log_probs(self.net(self.features(obs)))

    def log_prob(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log-probability ``(...)`` of integer actions ``(...)``, or ``(..., *shape)`` of a MultiDiscrete space."""
        return self.evaluate_actions(obs, action)[0]

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy, both ``(...)``, of actions as in ``log_prob``."""
        return self._choices.evaluate(self(obs), action)

    def action_distribution(self, parameters: Mapping[str, torch.Tensor], obs: torch.Tensor) -> Categorical:
        """See ``ActingPolicy.action_distribution``."""
        logits = self.net.outputs(part_of(parameters, "net"), self.features(obs, parameters))
        return self._choices.distribution(self._choices.log_probs(logits))

    def _arrange(self, arrays: list[np.ndarray]) -> Any:
        return self._layers(arrays), NUMPY_ACTIVATIONS[self.net.hidden_nonlinearity]

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, Mapping[str, np.ndarray]]:
        """See ``types.Policy.act``; the info is ``prob (N, num_actions)``; deterministic is the likeliest action."""
        logits = self._logits(obs, parameters)
        if deterministic is True:
            late = LateInfos(lambda: {"prob": self._choices.choose(logits, noise, True)[1]})
            return self._choices.likeliest(logits), state, late
        action, prob = self._choices.choose(logits, noise, deterministic)
        return action, state, {"prob": prob}

    def _logits(self, obs: np.ndarray, parameters: np.ndarray | None) -> np.ndarray:
        layers, hidden = self._weights(parameters)
        x = mlp_rows(self._rows(obs, parameters), layers, hidden)
        return x.reshape(-1, self.act_dim)[: len(obs)]

    def act_on_torch(
        self, obs: Any, state: Mapping[str, Any], noise: Any, deterministic: Any = False
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """See ``types.Policy.act_on_torch``; the info as ``act``."""
        logits = self.net(self.features(obs.to(torch.float32)))
        action, prob = self._choices.choose_on_torch(logits, noise, deterministic)
        return action, dict(state), {"prob": prob}
