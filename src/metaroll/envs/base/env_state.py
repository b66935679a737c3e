"""Reports of environments beside observations (their state, its observation), and options of plans for them.

A wrapper with an attribute ``plan_options`` gets the entries that it names there in the ``options`` of its ``reset``:

- ``"eval"``: whether the rollout is an evaluation;
- ``"rollout"``: ``(sub_seed, sub_sub_seed)``, which batch it belongs to and its place there;
- ``"max_steps"``: after how many steps the rollout is cut off, or ``None``.

Resets by hand may give the same options. Environments that name none get none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import gymnasium
import numpy as np

from metaroll.envs.base.gymnasium_states import state_access_of
from metaroll.errors import ShapeError
from metaroll.tasks.updates import env_layers, layer_with
from metaroll.types import RolloutPlan

__all__ = [
    "PLAN_OPTIONS",
    "ResumedEnv",
    "check_init_state",
    "current_observation",
    "declared_state",
    "determined_entries",
    "frames_per_second",
    "has_init_space",
    "inner_options",
    "plan_options",
    "read_state",
    "reading_init_state",
    "render_mode_of",
    "state_from_observation",
    "state_owner",
    "time_step_of",
    "wanted_options",
]

_WITH_EARLIER = (gymnasium.wrappers.DelayObservation, gymnasium.wrappers.MaxAndSkipObservation)
"""Wrappers whose observation is made of earlier ones, though its space does not show that."""
_HINT = "give a function of one observation instead, or infer the initial state (InitStateWrapper)"


PLAN_OPTIONS = ("eval", "rollout", "max_steps")


def render_mode_of(env: Any) -> str | None:
    """The render mode of ``env``; ``None`` if it does not render."""
    return getattr(env, "render_mode", None)


def frames_per_second(env: Any) -> float | None:
    """The frames per second that it declares, if any."""
    fps = getattr(env, "metadata", {}).get("render_fps")
    return float(fps) if fps else None


def has_init_space(env: Any) -> bool:
    """Whether it declares by ``init_space`` that it can be started in any state."""
    return any(hasattr(layer, "init_space") for layer in env_layers(env))


def read_state(owner: Any) -> np.ndarray | None:
    """``owner.state`` as an array of numbers in its own memory; ``None`` if it is anything else."""
    value = getattr(owner, "state", None)
    if value is None or callable(value) or isinstance(value, str | dict):
        return None
    try:
        array = np.array(value)
    except (TypeError, ValueError):  # parts of unequal length
        return None
    return array if array.dtype.kind in "biuf" else None


def state_owner(env: Any) -> Any:
    """The outermost layer whose ``state`` is an array of numbers, or ``None``."""
    return next((layer for layer in env_layers(env) if read_state(layer) is not None), None)


def time_step_of(env: Any) -> float | None:
    """Seconds that a step takes, where a layer declares it in ``dt``, or it is known of Gymnasium's own environment."""
    layers = list(env_layers(env))
    for layer in layers:
        value = getattr(layer, "dt", None)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool) and value > 0:
            return float(value)
    access = state_access_of(layers[-1])
    return None if access is None else access.time_step(layers[-1])


def reading_init_state(env: Any) -> AbstractContextManager[None]:
    """A context in which Gymnasium's own environments, too, read ``reset(options={"init_state": ...})``."""
    *_, inner = env_layers(env)
    access = state_access_of(inner)
    return contextlib.nullcontext() if access is None else access.reading_init_state(inner)


def check_init_state(env: Any, init_state: np.ndarray) -> None:
    """After a reset with ``init_state``: the environment must be in that state, as far as it reports its state.

    An environment that does not know the option ``init_state`` ignores it silently. A state of another shape is not
    compared where the environment announces (by an attribute ``init_space``) that it computes states from it.

    Raises:
        ValueError: It is in another state.
    """
    owner = state_owner(env)
    state = read_state(owner)
    if state is None:
        return
    if state.shape != init_state.shape:
        if hasattr(owner, "init_space"):
            return
        raise ValueError(
            f"init_state must have the shape {state.shape} of the state of "
            f"{type(getattr(env, 'unwrapped', env)).__name__}, got {init_state.shape}"
        )
    if not np.allclose(state, init_state, rtol=1e-5, atol=1e-8, equal_nan=True):
        raise ValueError(
            f"{type(getattr(env, 'unwrapped', env)).__name__} must start in init_state {init_state}, but after reset "
            f"its state is {state}: it ignores reset(options={{'init_state': ...}}). Let its reset read that option, "
            "or leave init_state out"
        )


def current_observation(env: Any) -> Any:
    """The present observation of ``env``, without resetting or stepping it.

    The innermost environment is asked for it (a method ``current_observation()``, or ``_get_obs()`` as Gymnasium's
    environments have), and what the observation wrappers around it would make of that is returned.

    Raises:
        ValueError: It cannot be asked, or a wrapper's observation depends on more than the present one.
    """
    own = layer_with(env, "current_observation")
    layers = list(env_layers(env))
    inner = layers[-1]
    if own is not None:
        observation, outside = own.current_observation(), layers[: layers.index(own)]
    elif callable(getattr(inner, "_get_obs", None)):
        outside = layers[:-1]
        try:
            observation = inner._get_obs()
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{type(inner).__name__} has no present observation: {error}; reset it first") from error
    else:
        raise ValueError(
            f"the present observation of {type(inner).__name__} is not known, so no_reset=True cannot be used; give it "
            "a method current_observation()"
        )
    for layer in reversed(outside):
        if isinstance(layer, gymnasium.wrappers.NormalizeObservation):
            updates, layer.update_running_mean = layer.update_running_mean, False  # the statistics include it already
            try:
                observation = layer.observation(observation)
            finally:
                layer.update_running_mean = updates
        elif isinstance(layer, gymnasium.ObservationWrapper) and not isinstance(layer, _WITH_EARLIER):
            observation = layer.observation(observation)
        elif isinstance(layer, _WITH_EARLIER) or (
            isinstance(layer, gymnasium.Wrapper) and layer.observation_space != layer.env.observation_space
        ):
            raise ValueError(
                f"the present observation behind {type(layer).__name__} is not known, so no_reset=True cannot be used; "
                "give the wrapper a method current_observation()"
            )
    return observation


def state_from_observation(
    env: Any, observations: Any, function: Callable[[np.ndarray], Any] | None = None
) -> np.ndarray:
    """The states ``(..., S)`` in which ``env`` shows ``observations (..., *shape)``: where a logged rollout begins.

    A state that an observation does not determine (a speed that is shown clipped) is NaN.

    Args:
        env: A simulator, with wrappers or without: the outermost layer with a method ``state_from_observation`` is
            asked. Wrappers of ours undo what they do to observations, as far as that can be undone. Of Gymnasium's
            classic control and MuJoCo environments it is known.
        observations: One, or many.
        function: Instead, for any environment: state ``(S,)`` of one observation.

    Raises:
        NotImplementedError: Neither gives it; with the reason.
        ShapeError: The function's states have different shapes.
        ValueError: A state is not finite.
    """
    if function is None:
        try:
            return declared_state(env, observations)
        except NotImplementedError as error:
            raise NotImplementedError(f"{error}; {_HINT}") from None
    rows, shape = _as_observations(env, observations)
    batch_shape = rows.shape[: rows.ndim - len(shape)]
    parts = [np.array(function(one), dtype=np.float64) for one in rows.reshape(-1, *shape)]
    if len({(one.ndim, one.shape) for one in parts}) > 1 or parts[0].ndim != 1:
        raise ShapeError(f"the function must return states of one shape (S,), got {sorted({s.shape for s in parts})}")
    states = np.stack(parts).reshape(*batch_shape, -1)
    if not np.isfinite(states).all():
        raise ValueError(
            f"the function must return finite states, got {parts[int(np.argwhere(~np.isfinite(parts))[0][0])]}"
        )
    return states


def determined_entries(env: Any) -> np.ndarray | None:
    """Which entries of an observation follow from the state alone, bool ``(O,)``; ``None`` means all.

    Forces of contacts, for example, do not: an environment that was put into a state shows others than one that came
    there.
    """
    *outside, inner = env_layers(env)
    access = state_access_of(inner)
    if access is None or any(layer.observation_space != inner.observation_space for layer in outside):
        return None
    determined = access.determined(inner)
    return None if determined.all() else determined


def _as_observations(env: Any, observations: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Observations ``(..., *shape)`` of ``env``, and the shape of one."""
    array, shape = np.asarray(observations, dtype=np.float64), env.observation_space.shape or ()
    if array.shape[array.ndim - len(shape) :] != shape:
        raise ShapeError(f"observations must have shape (..., {', '.join(map(str, shape))}), got {array.shape}")
    return array, shape


def declared_state(env: Any, observations: Any) -> np.ndarray:
    """``state_from_observation`` by ``env``'s own method, whose error holds no hint."""
    observations, shape = _as_observations(env, observations)
    batch_shape = observations.shape[: observations.ndim - len(shape)]
    layers, owner = list(env_layers(env)), layer_with(env, "state_from_observation")
    access = state_access_of(layers[-1])
    if owner is None and access is None:
        raise NotImplementedError(
            f"{type(layers[-1]).__name__} does not give the state of an observation: it has no method "
            "state_from_observation(observations)"
        )
    for layer in layers[: -1 if owner is None else layers.index(owner)]:
        if isinstance(layer, gymnasium.ObservationWrapper) or layer.observation_space != layer.env.observation_space:
            raise NotImplementedError(f"what {type(layer).__name__} does to observations cannot be undone")
    if owner is None and access is not None:
        width = observations.shape[-1]
        return access.read(layers[-1], observations.reshape(-1, width)).reshape(*observations.shape[:-1], -1)
    answering: Any = owner
    try:
        copied = np.array(observations)  # which it may change
        states = np.asarray(answering.state_from_observation(copied), dtype=np.float64)
    except (TypeError, ValueError) as error:
        name = f"{type(owner).__name__}.state_from_observation"
        raise ShapeError(f"{name} must return a state for each observation, as numbers in rows: {error}") from error
    except NotImplementedError as error:
        raise NotImplementedError(str(error).removesuffix(f"; {_HINT}")) from None
    if states.ndim != len(batch_shape) + 1 or states.shape[:-1] != batch_shape:
        expected = ", ".join(map(str, (*batch_shape, "S")))
        raise ShapeError(
            f"{type(owner).__name__}.state_from_observation must return a state for each observation, shape "
            f"({expected}) for observations {observations.shape}, got {states.shape}"
        )
    return states


def wanted_options(env: Any) -> frozenset[str]:
    """Names of the options that some layer of ``env`` wants to hear."""
    return frozenset(name for layer in env_layers(env) for name in getattr(layer, "plan_options", ()))


def plan_options(plan: RolloutPlan, wanted: frozenset[str]) -> dict[str, Any]:
    """The entries of ``plan`` that are ``wanted``."""
    if not wanted or plan.seed is None:
        return {}
    entries = {"eval": plan.eval, "rollout": (plan.seed[1] or 0, plan.seed[2] or 0), "max_steps": plan.max_steps}
    return {name: entries[name] for name in PLAN_OPTIONS if name in wanted}


def inner_options(options: Mapping[str, Any], env: Any) -> dict[str, Any] | None:
    """``options`` for ``env``, the inside of a wrapper: without entries of plans that nothing in it wants."""
    wanted = wanted_options(env)
    inner = {name: value for name, value in options.items() if name not in PLAN_OPTIONS or name in wanted}
    return inner or None


class ResumedEnv:
    """An environment whose ``reset`` changes nothing and returns its present observation."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._observation = current_observation(env)
        self.step = env.step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The observation at the time when this object was made; ``seed`` and ``options`` are not used."""
        return self._observation, {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
