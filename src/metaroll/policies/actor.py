"""One observation in, one action out: a policy for a robot, a notebook, or a custom loop."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from metaroll.data.data_format import map_leaves
from metaroll.data.space_batches import action_element, check_elements, flatten_batch, is_structured, take_rows
from metaroll.errors import ShapeError
from metaroll.types import EnvSpec, Policy, PolicyState

__all__ = ["Actor"]


class Actor(ABC):
    """Acts on single observations, episode after episode; functions that take a policy use its ``policy``.

    A recurrent policy, or one with a latent variable per episode, keeps its state between calls of ``act``: call
    ``reset`` at the start of each episode.

    Args:
        env_spec: Spaces of the environment.
        seed: Seed of the action noise, and of the policy's draws at the start of an episode.
        max_path_length: Maximum number of steps of an episode in training; ``rollout`` ends episodes there in
            environments without a time limit.
    """

    def __init__(self, env_spec: EnvSpec, seed: int = 0, max_path_length: int | None = None) -> None:
        self.env_spec, self.max_path_length = env_spec, max_path_length
        self._space = env_spec.observation_space
        self._shape = None if is_structured(self._space) else (self._space.shape or ())
        self._generator = np.random.default_rng(seed)
        self._acting: Policy | None = None
        self._state: PolicyState | None = None
        self._domain_param: dict[str, float] | None = None

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The underlying policy, which acts on batches."""

    def reset(self, domain_param: Mapping[str, float] | None = None) -> None:
        """Start a new episode: reset the state of the policy.

        Args:
            domain_param: Domain parameters of the episode, for a privileged policy, which observes them.
        """
        self._state, self._domain_param = None, None if domain_param is None else dict(domain_param)

    def act(self, obs: Any, *, deterministic: bool = True) -> Any:
        """The action for an observation, for the environment's ``step``.

        Args:
            obs: An observation of the environment; or N of them, ``(N, ...)``, for a policy without state.
            deterministic: The mean (or the likeliest choice) instead of a sample.

        Returns:
            An element of the action space (clipped to the bounds of a Box), or N of them.

        Raises:
            ShapeError: ``obs`` has another shape.
            ValueError: N observations for a policy with state, or a non-finite observation.
        """
        batch, single = self._batch(obs)
        policy = self.policy
        rows = batch if policy.info.structured else flatten_batch(self._space, batch)
        numbers = rows.__class__ is np.ndarray and rows.dtype.kind == "f"
        if numbers and not math.isfinite(np.vdot(rows, rows)) and not np.isfinite(rows).all():
            raise ValueError(f"obs must be finite, got {obs!r}")
        count = 1 if single else len(rows)
        if self._state is None or policy is not self._acting:
            self._acting, self._state = policy, self._first_state(policy)
        if not single and self._state:
            raise ValueError(
                f"obs must be one observation of shape {self._shape} for a policy with state, got "
                f"{count} of them; roll out many episodes with metaroll.RolloutEngine"
            )
        shape = (count, policy.info.noise_dim)
        if deterministic:
            noise = np.zeros(shape, dtype=np.float32)
        elif policy.info.noise_kind == "normal":
            noise = self._generator.standard_normal(shape, dtype=np.float32)
        else:
            noise = self._generator.random(shape, dtype=np.float32)
        actions, self._state, _ = policy.act(rows, self._state, noise, deterministic)
        return self._as_actions(actions, single, count)

    def _first_state(self, policy: Policy) -> PolicyState:
        if policy.info.takes_domain_params and self._domain_param is None:
            raise ValueError(
                "a privileged policy observes the domain parameters of the episode: call reset(domain_param={...}) "
                "before act, or train a student that acts without them"
            )
        params = [self._domain_param] if policy.info.takes_domain_params else None
        return policy.initial_state([policy.plan_context()], [self._generator], params)

    def _batch(self, obs: Any) -> tuple[Any, bool]:
        """``obs`` with a leading axis, and whether it is a single one."""
        if self._shape is None:
            return map_leaves(lambda leaf, path: np.asarray(leaf)[None], obs), True
        if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict):
            raise TypeError("obs must be an observation, got the result of reset: obs, info = env.reset()")
        try:
            array = np.asarray(obs)
        except ValueError:
            array = np.zeros(0, dtype=object)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"obs must hold numbers, shape {self._shape}, got {obs!r} of type {type(obs).__name__}")
        if array.shape == self._shape:
            return array[None], True
        if array.ndim and array.shape[1:] == self._shape and len(array):
            return array, False
        raise ShapeError(f"obs must have shape {self._shape}, or (N, ...) of that, got {array.shape}")

    def _as_actions(self, actions: Any, single: bool, count: int) -> Any:
        space = self.env_spec.action_space
        if isinstance(space, gymnasium.spaces.Box) and actions.__class__ is np.ndarray:
            values = actions.reshape(count, *space.shape)
            if space.dtype is not None and np.dtype(space.dtype).kind in "iu":
                values = np.rint(values)
            values = np.minimum(np.maximum(values, space.low), space.high).astype(space.dtype, copy=False)
            return values[0] if single else values
        checked = check_elements("the policy's actions", space, actions, count)
        if single:
            return action_element(space, checked, 0, "the action")
        if isinstance(space, gymnasium.spaces.Discrete):
            return np.asarray(checked) + int(space.start)
        return take_rows(checked, slice(None))
