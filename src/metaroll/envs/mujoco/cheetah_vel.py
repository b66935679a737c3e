"""HalfCheetah that has to run at a speed that it is not told (MuJoCo; needs the extra ``metaroll[mujoco]``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.errors import ShapeError
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["CheetahVelEnv"]

CONTROL_COST = 0.05  # oyster and garage; Gymnasium's own HalfCheetah weighs it with 0.1
MAX_VELOCITY = 3.0
HORIZON = 200
_RESET_NOISE = 0.1

_JOINTS = ("root_z", "root_angle", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
OBSERVATION_LABELS = (
    *_JOINTS,
    "root_x_dot",
    *(f"{joint}_dot" for joint in _JOINTS),
    "torso_x",
    "torso_y",
    "torso_z",
)


class CheetahVelEnv(gymnasium.Env):
    """Reward ``-|v - goal| - 0.05 |a|^2`` with v the mean forward speed over a step of 0.05 s, in m/s. Never ends.

    Observation ``(20,)``: positions without the forward one (8), velocities (9), position of the torso (3). The task is
    ``{"velocity": v}`` with v uniform in [0, 3]. The simulation is Gymnasium's HalfCheetah-v5, bit for bit.

    Note:
        The torso's position is the one that MuJoCo holds after a step, computed at the start of the last of its five
        sub-steps, as in oyster (Rakelly et al. 2019, arXiv:1903.08254).

    Args:
        velocity: Goal speed in m/s.
        render_mode: As for Gymnasium's HalfCheetah-v5.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 20,
    }

    def __init__(self, velocity: float = 0.0, render_mode: str | None = None) -> None:
        self._velocity = _checked_velocity(velocity)
        self.render_mode = render_mode
        self._build()
        self.observation_space = Box(-np.inf, np.inf, (len(OBSERVATION_LABELS),), np.float64)
        self.action_space = Box(-1.0, 1.0, (6,), np.float32)
        self.env_spec = EnvSpec(
            self.observation_space,
            self.action_space,
            HORIZON,
            observation_labels=OBSERVATION_LABELS,
            action_labels=_JOINTS[2:],
        )

    def _build(self) -> None:
        try:
            mujoco = _mujoco()
            from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
        except ImportError as error:
            raise ImportError(f"cheetah-vel needs MuJoCo: pip install 'metaroll[mujoco]' ({error})") from error
        self._simulator = HalfCheetahEnv(render_mode=self.render_mode)
        model, data = self._simulator.model, self._simulator.data
        self._model, self._data, self._mj_step = model, data, mujoco.mj_step
        # Views into MuJoCo's memory; asking for them anew costs more than the rest of a step.
        self._qpos, self._qvel, self._ctrl = data.qpos, data.qvel, data.ctrl
        self._torso = data.body("torso").xpos
        self._frame_skip = self._simulator.frame_skip
        self._dt = float(self._simulator.dt)

    @property
    def dt(self) -> float:
        """Seconds per step."""
        return self._dt

    @classmethod
    def sample_tasks(cls, num_tasks: int, generator: np.random.Generator | int | None = None) -> list[dict[str, float]]:
        """Tasks ``{"velocity": v}``, v uniform in [0, 3] m/s."""
        return [{"velocity": float(v)} for v in as_generator(generator).uniform(0.0, MAX_VELOCITY, size=num_tasks)]

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Aim at ``task["velocity"]``."""
        if not isinstance(task, Mapping) or "velocity" not in task:
            raise ValueError(f"task must be a mapping with 'velocity', for instance {{'velocity': 1.5}}, got {task!r}")
        self._velocity = _checked_velocity(task["velocity"])

    def get_task(self) -> dict[str, float]:
        """The task in force."""
        return {"velocity": self._velocity}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode near rest, drawn as HalfCheetah-v5 does.

        ``options["init_state"]`` (18,), positions then velocities, replaces the draw.
        """
        super().reset(seed=seed)
        init_state = (options or {}).get("init_state")
        simulator = self._simulator
        num_q, num_v = self._qpos.size, self._qvel.size
        if init_state is None:
            noise = self.np_random.uniform(-_RESET_NOISE, _RESET_NOISE, size=num_q)
            qpos = simulator.init_qpos + noise
            qvel = simulator.init_qvel + _RESET_NOISE * self.np_random.standard_normal(num_v)
        else:
            state = np.array(init_state, dtype=np.float64)
            if state.shape != (num_q + num_v,):
                raise ShapeError(f"init_state must have shape ({num_q + num_v},), got {state.shape}")
            qpos, qvel = state[:num_q], state[num_q:]
        _mujoco().mj_resetData(self._model, self._data)
        simulator.set_state(qpos, qvel)
        if self.render_mode == "human":
            self.render()
        return self.current_observation(), {"x_position": float(self._qpos[0])}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply torques ``action (6,)`` for 0.05 s."""
        action = np.asarray(action)
        if action.shape != (6,):
            raise ShapeError(f"action must have shape (6,), got {action.shape}")
        before = self._qpos.item(0)
        self._ctrl[:] = action
        # Contact forces (mj_rnePostConstraint) are left out: nothing here reads them, and they change no state.
        self._mj_step(self._model, self._data, self._frame_skip)
        x_position = self._qpos.item(0)
        velocity = (x_position - before) / self._dt
        torques = action.astype(np.float64)
        reward_forward = -abs(velocity - self._velocity)
        reward_ctrl = -CONTROL_COST * float(torques @ torques)
        if self.render_mode == "human":
            self.render()
        infos = {
            "x_position": x_position,
            "x_velocity": velocity,
            "reward_forward": reward_forward,
            "reward_ctrl": reward_ctrl,
        }
        return self.current_observation(), reward_forward + reward_ctrl, False, False, infos

    def render(self) -> Any:
        """A frame, or the window, as HalfCheetah-v5 draws it."""
        return self._simulator.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self._simulator.close()

    def current_observation(self) -> np.ndarray:
        return np.concatenate((self._qpos[1:], self._qvel, self._torso))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the simulator, whose state travels as one array: copies go on exactly where this one is."""
        views = ("_simulator", "_model", "_data", "_mj_step", "_qpos", "_qvel", "_ctrl", "_torso")
        state = {name: value for name, value in self.__dict__.items() if name not in views}
        return {"attributes": state, "physics": _get_physics(self._model, self._data)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["attributes"])
        self._build()
        _set_physics(self._model, self._data, state["physics"])


def _checked_velocity(value: Any) -> float:
    velocity = float(np.asarray(value, dtype=np.float64).item())
    if not np.isfinite(velocity):
        raise ValueError(f"velocity must be finite, got {velocity}")
    return velocity


def _mujoco() -> Any:
    import mujoco

    return mujoco


def _get_physics(model: Any, data: Any) -> np.ndarray:
    """State from which MuJoCo continues exactly (with the warm start of its solver)."""
    mujoco = _mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, physics, spec)
    return physics


def _set_physics(model: Any, data: Any, physics: np.ndarray) -> None:
    mujoco = _mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, physics, spec)
    mujoco.mj_forward(model, data)  # positions of bodies and the like
    mujoco.mj_setState(model, data, physics, spec)  # mj_forward has overwritten the warm start
