"""States of Gymnasium's own environments: how they are set, and which state shows an observation.

Gymnasium's classic control and MuJoCo environments know neither ``reset(options={"init_state": state})`` nor
``state_from_observation``. Here both are added from outside, so that they can be simulated from recorded states. The
state of classic control is its attribute ``state``; that of MuJoCo is ``qpos``, then ``qvel``.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["StateAccess", "state_access_of"]

_PACKAGES = ("gymnasium.envs.classic_control.", "gymnasium.envs.mujoco.")
_RESETS = ("reset", "reset_model", "set_state", "_get_obs", "_get_ob", "state_from_observation")
"""Methods that define states and observations: a class that overrides one of them must declare its own conversion."""


class StateAccess(ABC):
    """Sets and reads the state of one kind of environment."""

    @abstractmethod
    def size(self, env: Any) -> int:
        """Numbers in a state."""

    @abstractmethod
    def read(self, env: Any, observations: np.ndarray) -> np.ndarray:
        """The states ``(N, S)`` that show ``observations (N, O)``; NaN where an observation does not determine it."""

    def time_step(self, env: Any) -> float | None:
        """Seconds that a step takes, where only this kind of environment gives it this way."""
        return None

    def determined(self, env: Any) -> np.ndarray:
        """Which entries of an observation follow from the state alone, bool ``(O,)``."""
        return np.ones(env.observation_space.shape, dtype=bool)

    @contextlib.contextmanager
    def reading_init_state(self, env: Any) -> Iterator[None]:
        """Inside, ``env.reset`` reads ``options["init_state"] (S,)``.

        Raises:
            ShapeError: The state has another size.
            ValueError: It is not finite.
        """
        original, size = env.reset, self.size(env)

        def reset(*, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
            value = (options or {}).get("init_state")
            if value is None:
                return original(seed=seed, options=options)
            state = np.array(value, dtype=np.float64)
            if state.shape != (size,):
                raise ShapeError(f"init_state of {type(env).__name__} must have shape ({size},), got {state.shape}")
            if not np.isfinite(state).all():
                raise ValueError(f"init_state of {type(env).__name__} must be finite, got {state}")
            return self._reset_in(state, env, lambda: original(seed=seed, options=options))

        env.reset = reset  # of this object, so that its wrappers see the observation of that state, too
        try:
            yield
        finally:
            del env.reset

    @abstractmethod
    def _reset_in(self, state: np.ndarray, env: Any, reset: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """The result of ``reset()``, in ``state``."""


class _Classic(StateAccess):
    """The state is an attribute; observations are the state, or its angles' cosines and sines and the rest.

    Args:
        size: Numbers in a state.
        angles: How many of the first ones are shown as cosine and sine.
        step: The attribute that holds the seconds of a step, where there is no ``dt``.
    """

    def __init__(self, size: int, angles: int = 0, step: str | None = None) -> None:
        self._size, self._angles, self._step = size, angles, step

    def time_step(self, env: Any) -> float | None:
        seconds = None if self._step is None else getattr(env, self._step, None)
        return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None

    def size(self, env: Any) -> int:
        return self._size

    def read(self, env: Any, observations: np.ndarray) -> np.ndarray:
        shown = observations[:, : 2 * self._angles]
        # Noise may move the pair off the unit circle: the angle is that of the nearest point on it.
        angles = np.arctan2(shown[:, 1::2], shown[:, ::2])
        return np.concatenate((angles, observations[:, 2 * self._angles :]), axis=1)

    def _reset_in(self, state: np.ndarray, env: Any, reset: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        drawn, info = reset()
        env.state = state
        angles = state[: self._angles]
        pairs = np.stack((np.cos(angles), np.sin(angles)), axis=1).reshape(-1)
        return np.concatenate((pairs, state[self._angles :])).astype(drawn.dtype), info


class _Mujoco(StateAccess, ABC):
    """The state is ``qpos``, then ``qvel``.

    Args:
        clip: Speeds are shown within this bound; beyond it, an observation does not determine the state.
    """

    def __init__(self, clip: float = np.inf) -> None:
        self._clip = clip

    def size(self, env: Any) -> int:
        return env.model.nq + env.model.nv

    def speeds(self, shown: np.ndarray) -> np.ndarray:
        """Speeds as they are shown, NaN where they are clipped."""
        return np.where(np.abs(shown) < self._clip, shown, np.nan)

    def _reset_in(self, state: np.ndarray, env: Any, reset: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        def reset_model() -> Any:
            env.set_state(state[: env.model.nq], state[env.model.nq :])
            return env._get_obs()

        env.reset_model = reset_model  # MuJoCo's own reset comes before, and infos after it
        try:
            return reset()
        finally:
            del env.reset_model


class _Robot(_Mujoco):
    """Observations hold ``qpos`` without the place on the ground, then ``qvel``, then entries that do not determine the
    state.

    A robot's place on the ground, where it is not shown, is 0: nothing depends on it.

    Args:
        ground: Entries of ``qpos`` with its place on the ground.
        clip: See ``_Mujoco``.
    """

    def __init__(self, ground: int = 0, clip: float = np.inf) -> None:
        super().__init__(clip)
        self._ground = ground

    def read(self, env: Any, observations: np.ndarray) -> np.ndarray:
        hidden, num_q, num_v = self._hidden(env), env.model.nq, env.model.nv
        positions, others = np.split(observations, [num_q - hidden], axis=1)
        place = np.zeros((len(observations), hidden))
        return np.concatenate((place, positions, self.speeds(others[:, :num_v])), axis=1)

    def determined(self, env: Any) -> np.ndarray:
        return np.arange(env.observation_space.shape[0]) < self.size(env) - self._hidden(env)

    def _hidden(self, env: Any) -> int:
        """Number of the first positions that are not observed."""
        return self._ground if getattr(env, "_exclude_current_positions_from_observation", True) else 0


class _DoublePendulum(_Mujoco):
    """Place, sines of angles, cosines of angles, speeds within bounds, and forces of constraints."""

    def read(self, env: Any, observations: np.ndarray) -> np.ndarray:
        place, sines, cosines, speeds, _ = np.split(observations, [1, 3, 5, 8], axis=1)
        return np.concatenate((place, np.arctan2(sines, cosines), self.speeds(speeds)), axis=1)

    def determined(self, env: Any) -> np.ndarray:
        return np.arange(env.observation_space.shape[0]) < 8


class _Reacher(_Mujoco):
    """Cosines and sines of two angles, the position of the target, angular velocities, and derived entries.

    The target rests.
    """

    def read(self, env: Any, observations: np.ndarray) -> np.ndarray:
        cosines, sines, target, speeds, _ = np.split(observations, [2, 4, 6, 8], axis=1)
        return np.concatenate((np.arctan2(sines, cosines), target, speeds, np.zeros_like(speeds)), axis=1)


_ACCESS: dict[str, StateAccess] = {
    "CartPoleEnv": _Classic(4, step="tau"),
    "MountainCarEnv": _Classic(2),
    "Continuous_MountainCarEnv": _Classic(2),
    "PendulumEnv": _Classic(2, angles=1),
    "AcrobotEnv": _Classic(4, angles=2),
    "HalfCheetahEnv": _Robot(ground=1),
    "HopperEnv": _Robot(ground=1, clip=10.0),
    "Walker2dEnv": _Robot(ground=1, clip=10.0),
    "AntEnv": _Robot(ground=2),
    "HumanoidEnv": _Robot(ground=2),
    "HumanoidStandupEnv": _Robot(ground=2),
    "SwimmerEnv": _Robot(ground=2),
    "InvertedPendulumEnv": _Robot(),
    "InvertedDoublePendulumEnv": _DoublePendulum(clip=10.0),
    "ReacherEnv": _Reacher(),
}
"""By class in Gymnasium's packages, of all their versions. Missing: Pusher, which does not show its object's speed."""


def state_access_of(env: Any) -> StateAccess | None:
    """Access to the state of ``env``, one of Gymnasium's own environments without wrappers; ``None`` for any other.

    A subclass counts as long as it leaves alone how episodes begin and what is observed.
    """
    depth = _depth(env)
    if depth is None:
        return None
    kinds = type(env).__mro__
    changed = any(name in vars(kind) for kind in kinds[:depth] for name in _RESETS)
    return None if changed or any(name in vars(env) for name in _RESETS) else _ACCESS.get(kinds[depth].__name__)


def _depth(env: Any) -> Any:
    """Place of Gymnasium's own class among the classes of ``env``; ``None`` where it has none."""
    kinds = type(env).__mro__
    return next((i for i, kind in enumerate(kinds) if kind.__module__.startswith(_PACKAGES)), None)
