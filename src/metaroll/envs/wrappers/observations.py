"""Wrappers that change observations on their way to the policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import plain_number
from metaroll.envs.wrappers.base import ChainWrapper, Memory, box_of, spec_of
from metaroll.envs.wrappers.own_params import OwnParamsWrapper
from metaroll.errors import ShapeError, unknown_name
from metaroll.functional.philox import normals
from metaroll.tasks.plan_table import env_keys
from metaroll.tasks.updates import env_layers
from metaroll.types import EnvSpec, RolloutPlan

__all__ = ["GaussianObsNoiseWrapper", "ObsNormWrapper", "ObsPartialWrapper"]

_NOISE_ROLE, _MOST_NESTED = 16, 16  # roles of streams (see tasks.plan_table): one for each of nested wrappers
_BLOCK = 64  # observations for which noise is drawn at once


class _ObsWrapper(ChainWrapper):
    """Base of wrappers whose observation is a function of the one inside."""

    @abstractmethod
    def observation(self, observations: np.ndarray) -> np.ndarray:
        """The shown form of ``observations (..., *shape)``."""

    def rows_seen(self, observations: Any, memory: Memory, rows: np.ndarray) -> Any:
        """The shown observations."""
        return self.observation(observations)

    def seen_now(self, observation: Any) -> Any:
        """The present observation, as shown."""
        return self.observation(np.asarray(observation))


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

    def unseen(self, observations: np.ndarray) -> np.ndarray:
        """In the units of the environment inside."""
        return observations * self._half + self._middle


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
        """The spec of the environment inside, for the entries that are shown."""
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


class GaussianObsNoiseWrapper(OwnParamsWrapper):
    """Observations with normal noise, which hangs on the seed of the reset. Evaluations have it, too.

    The numbers are those of ``normals`` at positions of the stream of the reset's seed (see ``functional.philox``).
    Adds standard deviations as domain parameters, which hold from the next reset on: ``obs_noise_std`` where one number
    was given for all entries, else ``obs_noise_std_<label>`` (or position) of each entry that has noise.

    Args:
        env: Environment with a Box of floating-point observations.
        noise_std: Standard deviation ``(*shape,)``, or one for all.
        noise_mean: Mean likewise.
    """

    def __init__(self, env: Any, noise_std: Any, noise_mean: Any = 0.0) -> None:
        depth = sum(isinstance(layer, GaussianObsNoiseWrapper) for layer in env_layers(env))
        if depth >= _MOST_NESTED:
            raise ValueError(f"at most {_MOST_NESTED} GaussianObsNoiseWrappers may be put around each other")
        self._role = _NOISE_ROLE + depth
        space = box_of(env, "observation", self)
        self._size = int(np.prod(space.shape))
        if np.dtype(space.dtype).kind != "f":
            raise TypeError(f"GaussianObsNoiseWrapper needs floating-point observations, got {space}")
        self._std = _per_entry("noise_std", noise_std, space.shape)
        self._mean = _per_entry("noise_mean", noise_mean, space.shape)
        if (self._std < 0).any():
            raise ValueError(f"noise_std must not be negative, got {np.asarray(noise_std).tolist()}")
        if not (np.isfinite(self._std).all() and np.isfinite(self._mean).all()):
            raise ValueError(f"noise_std and noise_mean must be finite, got {noise_std!r} and {noise_mean!r}")
        free = self._std > 0
        self._entries = _noise_params(np.ndim(noise_std) == 0, free, spec_of(env).observation_labels)
        super().__init__(env, {name: self._std.flat[entries[0]] for name, entries in self._entries.items()})
        low, high = space.low + self._mean, space.high + self._mean
        self.observation_space = Box(
            np.where(free, -np.inf, low).astype(space.dtype),
            np.where(free, np.inf, high).astype(space.dtype),
            dtype=space.dtype.type,  # type: ignore[arg-type]
        )

    def checked_param(self, name: str, value: Any) -> float:
        """A standard deviation."""
        number = plain_number(f"domain parameter {name!r}", value)
        if number < 0:
            raise ValueError(f"domain parameter {name!r} must not be negative, got {number:g}")
        if number > 0 and not self._std.flat[self._entries[name][0]]:
            raise ValueError(
                f"domain parameter {name!r} must be 0, got {number:g}: the wrapper was made with noise_std=0, whose "
                "observation_space has no room for noise; make it with a positive noise_std"
            )
        return number

    def new_memory(self, num_rows: int) -> Memory:
        """Keys of the streams, how many observations were shown, the noise of a block of them, and its spread."""
        keys = env_keys(np.random.default_rng().integers(2**31, size=num_rows))
        block = np.zeros((num_rows, _BLOCK, self._size), dtype=np.float32)
        std = np.tile(self._std.reshape(-1), (num_rows, 1))
        return {"keys": keys, "shown": np.zeros(num_rows, dtype=np.int64), "block": block, "std": std}

    def start_rows(
        self, memory: Memory, rows: np.ndarray, env_seeds: np.ndarray | None, plans: Sequence[RolloutPlan] | None = None
    ) -> None:
        """Separate streams; without seeds the noise continues."""
        if env_seeds is not None:
            memory["keys"][rows], memory["shown"][rows] = env_keys(env_seeds), 0
        super().start_rows(memory, rows, env_seeds, plans)

    def write_params(self, memory: Memory, rows: np.ndarray, params: Sequence[Mapping[str, Any]]) -> None:
        """The standard deviations of these rows."""
        for name, entries in self._entries.items():
            memory["std"][rows[:, None], entries] = np.array([own[name] for own in params])[:, None]

    def row_own(self, memory: Memory, row: int) -> dict[str, float]:
        """The standard deviations."""
        return {name: float(memory["std"][row, entries[0]]) for name, entries in self._entries.items()}

    def rows_seen(self, observations: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """``observations (k, *shape)`` with the next noise."""
        shown = memory["shown"][rows]
        place = shown % _BLOCK
        if not place.all():
            due = rows[place == 0]
            noise = normals(memory["keys"][due], self._role, memory["shown"][due] * self._size, _BLOCK * self._size)
            memory["block"][due] = noise.reshape(len(due), _BLOCK, self._size)
        memory["shown"][rows] = shown + 1
        return self._noisy(observations, memory["block"][rows, place], memory["std"][rows])

    def unseen(self, observations: np.ndarray) -> np.ndarray:
        """Without the mean; the noise is not known."""
        return observations - self._mean

    def seen_now(self, observation: Any) -> Any:
        """With the noise that was shown last."""
        memory = self._memory
        return self._noisy(
            np.asarray(observation), memory["block"][0, (memory["shown"][0] - 1) % _BLOCK], memory["std"][0]
        )

    def _noisy(self, observations: np.ndarray, noise: np.ndarray, std: np.ndarray) -> np.ndarray:
        shape = observations.shape
        return (observations + (self._mean + std.reshape(shape) * noise.reshape(shape))).astype(observations.dtype)


def _noise_params(one_for_all: bool, noisy: np.ndarray, labels: tuple[str, ...] | None) -> dict[str, np.ndarray]:
    """Domain parameters of noise -> flat positions of the entries that they are the standard deviation of."""
    if one_for_all:
        return {"obs_noise_std": np.arange(noisy.size)}
    names = tuple(map(str, range(noisy.size))) if labels is None else labels
    return {f"obs_noise_std_{names[i]}": np.array([i]) for i in np.flatnonzero(noisy)}


def _bounds(name: str, limits: Any, own: np.ndarray, labels: tuple[str, ...] | None) -> np.ndarray:
    bounds = own.astype(np.float64)
    if limits is None:
        return bounds
    if not isinstance(limits, Mapping):
        return _per_entry(name, limits, own.shape)
    for key, value in limits.items():
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
