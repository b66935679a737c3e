"""A MuJoCo robot with rules of ours: one simulation as a Gymnasium environment, or many as rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.mujoco.camera import brighten, fitted_camera, followed_body
from metaroll.envs.mujoco.library import get_physics, load_mujoco, set_physics, unstable
from metaroll.envs.mujoco.model_params import forget_params
from metaroll.envs.mujoco.rules import Rules, Step, split_state
from metaroll.envs.mujoco.simulator import MujocoSimulator
from metaroll.errors import ShapeError
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["RobotEnv"]

_MODES = ("human", "rgb_array", "depth_array", "rgbd_tuple")
_VIEWS = ("data", "_views", "_warnings", "_renderer", "_ahead", "_first_place")


class RobotEnv(gymnasium.Env):
    """One simulation of ``model`` under ``rules``: a ``MujocoSimulator`` with a single row.

    Only the rules end an episode; its horizon is in ``env_spec``. A simulation whose
    numbers are no longer finite shows an observation of NaN.

    Args:
        model: MuJoCo's model, which belongs to this environment from now on. Entries of it are its domain parameters.
        rules: Observation, reward and ending.
        env_spec: Spaces, labels and horizon.
        task: The current task; ``None`` if there are none.
        task_type: The kind of environment for ``SetTaskUpdate``: a class or a function that makes it.
        render_mode: ``None``, or one of Gymnasium's for MuJoCo; its renderer draws.
        camera: Settings of the renderer's camera; ``None`` fits it to the model.
    """

    metadata: dict[str, Any] = {"render_modes": list(_MODES), "render_fps": 20}  # noqa: RUF012 (Gymnasium's own)
    is_physics = True
    """Steps cost so much that a few dozen simulations together are enough (see ``env_kind``)."""

    def __init__(
        self,
        model: Any,
        rules: Rules,
        env_spec: EnvSpec,
        *,
        task: Any = None,
        task_type: Callable[..., Any] | None = None,
        render_mode: str | None = None,
        camera: Mapping[str, Any] | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in _MODES:
            raise ValueError(f"render_mode must be None or one of {', '.join(_MODES)}, got {render_mode!r}")
        self.model = model
        self.env_spec = env_spec
        self.observation_space, self.action_space = env_spec.observation_space, env_spec.action_space
        self.render_mode = render_mode
        self._rules, self._camera = rules, camera
        self._task_type = type(self) if task_type is None else task_type
        self._task: Any = None
        self._bind()
        self._init_qpos, self._init_qvel = self.data.qpos.copy(), self.data.qvel.copy()
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.dt)}
        self._task_row = rules.task_row(None)
        if task is not None:
            self.set_task(task)

    @property
    def dt(self) -> float:
        """Seconds per step."""
        return float(self.model.opt.timestep) * self._rules.frame_skip

    @property
    def can_batch(self) -> bool:
        """Whether many may be stepped as one: not where a window shows this one."""
        return self.render_mode != "human"

    def set_task(self, task: Any) -> None:
        """Make ``task`` the current one at once."""
        row = self._rules.task_row(task)
        if self._rules.changes_model:
            forget_params(self)
            self._rules.set_in_model(self.model, task)
        self._task, self._task_row = copy.deepcopy(task), row

    def get_task(self) -> Any:
        """The current task."""
        return copy.deepcopy(self._task)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        ``options["init_state"] (nq + nv,)``, positions then velocities, replaces what is drawn.
        """
        super().reset(seed=seed)
        init_state = (options or {}).get("init_state")
        if init_state is None:
            qpos, qvel = self._rules.draw(self.np_random, self._init_qpos, self._init_qvel)
        else:
            qpos, qvel = split_state(init_state, self._init_qpos.size, self._init_qvel.size)
        mujoco = load_mujoco()
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        if self.render_mode == "human":
            self.render()
        return self.current_observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of ``frame_skip`` steps of MuJoCo."""
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise ShapeError(f"action must have shape {self.action_space.shape}, got {action.shape}")
        mujoco, rules = load_mujoco(), self._rules
        controls = rules.controls(action[None])
        before = self._read()
        self.data.ctrl[:] = controls[0]
        mujoco.mj_step(self.model, self.data, rules.frame_skip)
        if rules.contacts:
            mujoco.mj_rnePostConstraint(self.model, self.data)
        now = self._read()
        numbers = {**rules.constants(self.model), "dt": self.dt}
        constants = {name: np.asarray(value)[None] for name, value in numbers.items()}
        rewards, terminated, infos = rules.reward_and_termination(
            Step(before, now, action[None], controls, constants, self._task_arrays())
        )
        observation = rules.observe(now, self._task_arrays())[0]
        if self._warnings.any() and unstable(self._warnings[None])[0]:
            observation = np.full_like(observation, np.nan)
        if self.render_mode == "human":
            self.render()
        shown = {name: value[0].item() if value.ndim == 1 else value[0] for name, value in infos.items()}
        return observation, float(rewards[0]), bool(terminated[0]), False, shown

    def current_observation(self) -> np.ndarray:
        """The present observation."""
        return self._rules.observe(self._read(), self._task_arrays())[0]

    def render(self) -> Any:
        """A frame, or the window, drawn by Gymnasium's renderer."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            camera = fitted_camera(self.model) if self._camera is None else dict(self._camera)
            size = 480
            offscreen = self.model.vis.global_
            offscreen.offwidth, offscreen.offheight = max(offscreen.offwidth, size), max(offscreen.offheight, size)
            brighten(self.model)
            self._renderer = MujocoRenderer(self.model, self.data, camera, size, size)
            self._ahead, body = None, followed_body(self.model)
            self._first_place = None if body is None else self.data.xpos[body][:2].copy()
        self._follow()
        return self._renderer.render(self.render_mode)

    def _follow(self) -> None:
        """Let the camera go with a robot that moves through the world; in a window it belongs to the user."""
        viewer, body = self._renderer.viewer, followed_body(self.model)
        if viewer is None or body is None or self.render_mode == "human":
            return  # a viewer is made with the first picture
        at = self.data.xpos[body][:2]
        if self._ahead is None:
            self._ahead = viewer.cam.lookat[:2] - self._first_place
        viewer.cam.lookat[:2] = at + self._ahead

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # -- many of it --------------------------------------------------------------------------------------------------

    def batched_slots(self, num_slots: int) -> SimulatorSlots:
        """Many of this environment, with a model like this one's."""
        return SimulatorSlots(num_slots, self._simulator(copy.deepcopy(self.model)))

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``batched_slots`` can apply ``update``."""
        return self._simulator(self.model).accepts_update(update)

    def _simulator(self, model: Any) -> MujocoSimulator:
        return MujocoSimulator(
            model=model,
            rules=self._rules,
            env_spec=self.env_spec,
            init_qpos=self._init_qpos,
            init_qvel=self._init_qvel,
            task=self._task,
            task_type=self._task_type,
            name=type(self).__name__,
        )

    # -- MuJoCo's memory ---------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Data of a simulation, and views into them: looking them up again would cost more than the rest of a step."""
        self.data = data = load_mujoco().MjData(self.model)
        self._views = {"qpos": data.qpos, "qvel": data.qvel, **self._rules.observed(self.model, data)}
        self._warnings = data.warning.number
        self._renderer: Any = None
        self._ahead: Any = None
        self._first_place: Any = None

    def _read(self) -> dict[str, np.ndarray]:
        return {name: view[None].copy() for name, view in self._views.items()}

    def _task_arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(value)[None] for name, value in self._task_row.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but MuJoCo's data, whose state travels as one array: copies continue exactly where this one is."""
        state = {name: value for name, value in self.__dict__.items() if name not in _VIEWS}
        return {"attributes": state, "physics": get_physics(self.model, self.data)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["attributes"])
        self._bind()
        set_physics(self.model, self.data, state["physics"])
