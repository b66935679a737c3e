"""Wrappers that change observations on their way to the policy (specs/sampling.md 16.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.wrappers.base import ChainWrapper, WrappedSlots, box_of, seed_of, spec_of
from metaroll.errors import ShapeError, unknown_name
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.tasks.updates import env_layers
from metaroll.types import EnvSpec, RolloutPlan, Slots, SlotStep

__all__ = ["GaussianObsNoiseWrapper", "ObsNormWrapper", "ObsPartialWrapper"]

_STREAM = 0x6F6E  # apart from the environment's own stream and from those of other wrappers
_BLOCK = 64  # steps for which noise is drawn at once in batches


class _ObsWrapper(ChainWrapper):
    """Base of wrappers whose observation is a function of the one inside."""

    def observation(self, observations: np.ndarray) -> np.ndarray:
        """What is shown of ``observations (..., *shape)``."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(np.asarray(observation)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        observation, *rest = self.env.step(action)
        return self.observation(np.asarray(observation)), *rest  # type: ignore[return-value]

    def _seen_now(self, observation: Any) -> Any:
        return self.observation(np.asarray(observation))


class _ObsSlots(WrappedSlots):
    def __init__(self, slots: Slots, env_spec: EnvSpec, wrapper: _ObsWrapper) -> None:
        super().__init__(slots, env_spec)
        self._wrapper = wrapper

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        return self._wrapper.observation(self._slots.reset(slots, plans))

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        result = self._slots.step(actions, active)
        return result._replace(observations=self._wrapper.observation(result.observations))


class ObsNormWrapper(_ObsWrapper):
    """Observations scaled so that their bounds become [-1, 1].

    Args:
        env: Environment with a Box of observations.
        low: Lower bounds ``(*shape,)`` or one for all; ``None`` means those of the space. A dict by label or position
            replaces single ones: ``{"theta_dot": -8.0}``.
        high: Upper bounds likewise. Infinite bounds have to be replaced.
    """

    def __init__(self, env: Any, low: Any = None, high: Any = None) -> None:
        super().__init__(env)
        space = box_of(env, "observation", self)
        labels = spec_of(env).observation_labels
        lower = _bounds("low", low, space.low, labels)
        upper = _bounds("high", high, space.high, labels)
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            bad = np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper)).ravel()).tolist()
            names = bad if labels is None else [labels[i] for i in bad]
            raise ValueError(f"ObsNormWrapper needs finite bounds, which {names} lack; give low and high for them")
        if not (lower < upper).all():
            raise ValueError(f"low must be below high, got low={lower.tolist()}, high={upper.tolist()}")
        self._middle, self._half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        self._dtype = space.dtype if np.dtype(space.dtype).kind == "f" else np.dtype(np.float32)
        scaled = (self.observation(space.low), self.observation(space.high))
        self.observation_space = Box(*scaled, dtype=self._dtype.type)

    def observation(self, observations: np.ndarray) -> np.ndarray:
        """Scaled ``observations (..., *shape)``."""
        return ((observations - self._middle) / self._half).astype(self._dtype)

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _ObsSlots(self._inner_slots(num_slots), self.env_spec, self)


class ObsPartialWrapper(_ObsWrapper):
    """Some entries of the observation are not shown.

    Args:
        env: Environment whose observations are a Box ``(obs_dim,)``.
        mask: bool ``(obs_dim,)``, true for the entries to hide.
        idcs: Instead of a mask the positions or labels of these entries.
        keep_selected: Show the selected entries instead, and hide all others.
    """

    def __init__(
        self,
        env: Any,
        mask: Any = None,
        idcs: Iterable[int | str] | None = None,
        keep_selected: bool = False,
    ) -> None:
        super().__init__(env)
        space = box_of(env, "observation", self)
        if len(space.shape) != 1:
            raise ShapeError(f"ObsPartialWrapper needs observations (obs_dim,), got shape {space.shape}")
        if (mask is None) == (idcs is None):
            raise ValueError("either mask or idcs must be given to ObsPartialWrapper")
        spec = spec_of(env)
        size, labels = space.shape[0], spec.observation_labels
        chosen = _checked_mask(mask, size) if idcs is None else _mask_of(idcs, size, labels)
        if idcs is not None and not chosen.any():
            raise ValueError("idcs must name at least one entry of the observation, got none")
        kept = chosen if keep_selected else ~chosen
        if not kept.any():
            raise ValueError("at least one entry of the observation must be shown, got a selection that hides all")
        self._kept = np.flatnonzero(kept)
        self._labels = None if labels is None else tuple(labels[i] for i in self._kept)
        self.observation_space = Box(space.low[self._kept], space.high[self._kept], dtype=space.dtype.type)  # type: ignore[arg-type]

    @property
    def env_spec(self) -> EnvSpec:
        """That of the environment inside, for the entries that are shown."""
        inner = spec_of(self.env)
        return replace(
            inner,
            observation_space=self.observation_space,
            action_space=self.action_space,
            observation_labels=self._labels,
        )

    def observation(self, observations: np.ndarray) -> np.ndarray:
        """The shown entries of ``observations (..., obs_dim)``."""
        return observations[..., self._kept]

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _ObsSlots(self._inner_slots(num_slots), self.env_spec, self)


class GaussianObsNoiseWrapper(_ObsWrapper):
    """Observations with normal noise, drawn from a stream of the seed of the reset. Evaluations have it, too.

    Args:
        env: Environment with a Box of floating-point observations.
        noise_std: Standard deviation ``(*shape,)``, or one for all.
        noise_mean: Mean likewise.
    """

    def __init__(self, env: Any, noise_std: Any, noise_mean: Any = 0.0) -> None:
        super().__init__(env)
        space = box_of(env, "observation", self)
        if np.dtype(space.dtype).kind != "f":
            raise TypeError(f"GaussianObsNoiseWrapper needs floating-point observations, got {space}")
        self._std = _per_entry("noise_std", noise_std, space.shape)
        self._mean = _per_entry("noise_mean", noise_mean, space.shape)
        if (self._std < 0).any():
            raise ValueError(f"noise_std must not be negative, got {np.asarray(noise_std).tolist()}")
        if not (np.isfinite(self._std).all() and np.isfinite(self._mean).all()):
            raise ValueError(f"noise_std and noise_mean must be finite, got {noise_std!r} and {noise_mean!r}")
        free = self._std > 0
        low, high = space.low + self._mean, space.high + self._mean
        self.observation_space = Box(
            np.where(free, -np.inf, low).astype(space.dtype),
            np.where(free, np.inf, high).astype(space.dtype),
            dtype=space.dtype.type,  # type: ignore[arg-type]
        )
        self._depth = sum(isinstance(layer, GaussianObsNoiseWrapper) for layer in env_layers(env))
        self._generator = np.random.default_rng()

    @property
    def can_batch(self) -> bool:
        """Not in a subclass with another ``observation``, which batches do not call."""
        return super().can_batch and type(self).observation is GaussianObsNoiseWrapper.observation

    def stream(self, seed: int) -> np.random.Generator:
        """The source of the noise of an episode that is reset with ``seed``."""
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM, self._depth)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without ``seed`` the noise goes on."""
        if seed is not None:
            self._generator = self.stream(seed)
        return super().reset(seed=seed, options=options)

    def observation(self, observations: np.ndarray) -> np.ndarray:
        """One observation with the next noise."""
        return self.noisy(observations, self._generator.standard_normal(self._std.shape))

    def noisy(self, observations: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """``observations (..., *shape)`` with standard normal ``noise`` of the same shape."""
        return (observations + (self._mean + self._std * noise)).astype(observations.dtype)

    def batched_slots(self, num_slots: int) -> Slots:
        """Many of this environment, stepped as arrays."""
        return _NoiseSlots(self._inner_slots(num_slots), self.env_spec, self)


class _NoiseSlots(WrappedSlots):
    """Draws the noise of each slot in blocks of steps ``(E, 64, ...)``: the same numbers as one by one."""

    def __init__(self, slots: Slots, env_spec: EnvSpec, wrapper: GaussianObsNoiseWrapper) -> None:
        super().__init__(slots, env_spec)
        self._wrapper = wrapper
        self._shape = env_spec.observation_space.shape or ()
        self._generators: list[np.random.Generator | None] = [None] * self.num_slots
        self._block = np.zeros((self.num_slots, _BLOCK, *self._shape))
        self._used = np.full(self.num_slots, _BLOCK)
        self._rows = np.arange(self.num_slots)
        self._last: np.ndarray | None = None

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        """Start ``plans[i]`` in slot ``slots[i]`` with noise of its own."""
        generators = [self._wrapper.stream(plan_env_seed(seed_of(plan))) for plan in plans]
        rows = self._slots.reset(slots, plans)
        for slot, generator in zip(slots, generators, strict=True):
            self._generators[slot] = generator
        chosen = np.asarray(list(slots), dtype=np.int64)
        self._used[chosen] = _BLOCK
        seen = self._wrapper.noisy(rows, self._next(chosen))
        if self._last is None:
            self._last = np.zeros((self.num_slots, *self._shape), seen.dtype)
        self._last[chosen] = seen
        return seen

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        """Step active slots; the others show what they have shown."""
        result = self._slots.step(actions, active)
        live = self._rows[np.asarray(active, dtype=bool)]
        inside: Any = result.observations
        seen = np.zeros_like(inside) if self._last is None else self._last.copy()
        seen[live] = self._wrapper.noisy(inside[live], self._next(live))
        self._last = seen.copy()
        return result._replace(observations=seen)

    def _next(self, slots: np.ndarray) -> np.ndarray:
        """The next noise of ``slots``, ``(len(slots), *shape)``."""
        for slot in slots[self._used[slots] >= _BLOCK].tolist():
            generator = self._generators[slot]
            if generator is not None:
                self._block[slot] = generator.standard_normal((_BLOCK, *self._shape))
            self._used[slot] = 0
        noise = self._block[slots, self._used[slots]]
        self._used[slots] += 1
        return noise


def _bounds(name: str, given: Any, own: np.ndarray, labels: tuple[str, ...] | None) -> np.ndarray:
    bounds = own.astype(np.float64)
    if given is None:
        return bounds
    if not isinstance(given, Mapping):
        return _per_entry(name, given, own.shape)
    for key, value in given.items():
        bounds.reshape(-1)[_position(key, bounds.size, labels)] = float(value)
    return bounds


def _per_entry(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), shape):
        raise ShapeError(f"{name} must be a number or have shape {shape}, got {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{name} must not hold NaN")
    return np.broadcast_to(array, shape).copy()


def _checked_mask(mask: Any, size: int) -> np.ndarray:
    array = np.asarray(mask)
    if array.shape != (size,):
        raise ShapeError(f"mask must have shape ({size},), got {array.shape}")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise ValueError(f"mask must hold truth values, got {array.tolist()}; positions are given as idcs")
    return array.astype(bool)


def _mask_of(idcs: Iterable[int | str], size: int, labels: tuple[str, ...] | None) -> np.ndarray:
    mask = np.zeros(size, dtype=bool)
    for key in idcs:
        position = _position(key, size, labels)
        if mask[position]:
            raise ValueError(f"idcs must name an entry once, got {key!r} again")
        mask[position] = True
    return mask


def _position(key: Any, size: int, labels: tuple[str, ...] | None) -> int:
    if isinstance(key, str):
        if labels is None:
            raise ValueError(f"the observation has no labels, got {key!r}; give positions from 0 to {size - 1}")
        if key not in labels:
            raise unknown_name("label of the observation", key, labels)
        return labels.index(key)
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < size:
        raise ValueError(f"positions must be whole numbers from 0 to {size - 1}, got {key!r}")
    return int(key)
