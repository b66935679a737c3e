"""Meta-World's environments, made to be re-used: same numbers, real seeds, clear errors, and less work per step.

A step of Meta-World spends more time in Python than in MuJoCo: bodies and sites looked up by name, contacts wrapped one
by one, arrays split and stacked. ``Sawyer`` goes before Meta-World's own class in the method resolution order, does
the same arithmetic in the same order on views into MuJoCo's memory, and leaves rewards and the reading of objects to
Meta-World. Trajectories are bitwise Meta-World's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.error import ResetNeeded

from metaroll.checks import check_whole
from metaroll.envs.metaworld.library import HORIZON, env_classes, mujoco_package, provenance_of
from metaroll.envs.metaworld.rotations import with_fast_rotations
from metaroll.envs.metaworld.tasks import MetaWorldTask, as_task, read_task
from metaroll.errors import ShapeError, unknown_name
from metaroll.types import EnvSpec

__all__ = ["MetaWorldEnvMaker", "Sawyer"]

REWARD_VERSIONS = ("v1", "v2")
_CAMERA = "corner2"
"""Sees hand, object and goal, which the arm hides from Meta-World's own view; it hangs upside down."""
_MARKS = ("_metaroll_made_by",)
"""Marks of ``SetTaskUpdate`` that a copy keeps."""


class MetaWorldEnvMaker:
    """Makes one of Meta-World's environments: a picklable constructor.

    Args:
        env_name: Such as ``"reach-v3"``.
        reward_version: ``"v2"`` (rewards from 0 to 10), or ``"v1"``, those of the first publication.
        horizon: Steps after which episodes are truncated.
        render_mode: ``"rgb_array"``, ``"human"`` or ``None``.
    """

    def __init__(
        self, env_name: str, *, reward_version: str = "v2", horizon: int = HORIZON, render_mode: str | None = None
    ) -> None:
        if not isinstance(env_name, str):
            raise TypeError(f"env_name must be a name such as 'reach-v3', got {env_name!r}")
        self.env_name = env_name
        self.reward_version, self.horizon = checked_setting(reward_version, horizon)
        self.render_mode = render_mode

    def __call__(self, render_mode: str | None = None) -> Sawyer:
        """A new environment; ``render_mode`` takes the place of the maker's own."""
        if render_mode not in (None, self.render_mode):
            setting = {"reward_version": self.reward_version, "horizon": self.horizon}
            return MetaWorldEnvMaker(self.env_name, **setting, render_mode=render_mode)()
        known = env_classes()
        if self.env_name not in known:
            raise unknown_name("Meta-World environment", self.env_name, known)
        return _fast_class(known[self.env_name])(self)

    @property
    def key(self) -> str:
        """The same for makers of the same environments."""
        return f"metaworld:{self.env_name}:{self.reward_version}:{self.horizon}:{self.render_mode}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetaWorldEnvMaker) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"MetaWorldEnvMaker({self.env_name!r})"


def checked_setting(reward_version: str, horizon: int) -> tuple[str, int]:
    """Check and return a reward version and a horizon."""
    if reward_version not in REWARD_VERSIONS:
        raise ValueError(f"reward_version must be one of {REWARD_VERSIONS}, got {reward_version!r}")
    return reward_version, check_whole("horizon", horizon)


class Sawyer:
    """Mixin before Meta-World's class; environments are made by ``MetaWorldEnvMaker``.

    - ``set_task(task)`` sets the goal without building anything; a task of another class is an error.
    - A task fixes the goal and the start, so nothing in an episode is random; ``reset(seed=...)`` seeds what Meta-World
      would draw from NumPy's global generator if the goal were unfrozen.
    - The 500th step is truncated; infos hold ``success`` at every step.
    - A copy is a new environment with the same task, to be reset before it is stepped.
    """

    # Attributes of Meta-World's class, which follows in the order of bases:
    model: Any
    data: Any
    frame_skip: int
    render_mode: str | None
    action_scale: float
    mocap_low: Any
    mocap_high: Any
    sawyer_observation_space: Any
    reset_model: Any
    evaluate_state: Any
    _target_site_config: Any
    _obs_obj_max_len: int
    _get_pos_objects: Any
    _get_quat_objects: Any
    _get_pos_goal: Any
    seed: Any
    action_space: Any
    _set_task_inner: Any

    def __init__(self, maker: MetaWorldEnvMaker) -> None:
        self._maker = maker
        self._task: MetaWorldTask | None = None
        self._ready = False
        camera = _CAMERA if maker.render_mode == "rgb_array" else None
        settings = {"reward_function_version": maker.reward_version, "render_mode": maker.render_mode}
        super().__init__(**settings, camera_name=camera)  # pyright: ignore[reportCallIssue]
        self.seeded_rand_vec = True  # if the goal is unfrozen: draw from np_random, not from NumPy's own
        self.max_path_length = maker.horizon
        self.spec = GymnasiumSpec(id=f"Meta-World/{maker.env_name}", max_episode_steps=maker.horizon)
        self.provenance = provenance_of(maker.reward_version, maker.horizon)

    @property
    def env_name(self) -> str:
        """Meta-World's name, such as ``"reach-v3"``."""
        return self._maker.env_name

    @property
    def env_spec(self) -> EnvSpec:
        return EnvSpec(self.observation_space, self.action_space, self._maker.horizon)

    def set_task(self, task: Any) -> None:
        """Take the goal and the start of ``task``, from the next reset on."""
        task = as_task(task)
        if task.env_name != self.env_name:
            raise ValueError(
                f"task must be one of {self.env_name!r}, got one of {task.env_name!r}; "
                "use the update of the sampler, which brings the right environment"
            )
        data = read_task(task)
        if not isinstance(self, data.pop("env_cls")):
            raise ValueError(f"task must be one of {type(self).__name__}, got {task!r}")
        vector = np.array(data.pop("rand_vec"), dtype=np.float64)
        hidden = bool(data.pop("partially_observable"))
        self._set_task_inner(**data)
        self._task, self._ready = task, False
        self._set_task_called = self._freeze_rand_vec = True
        self._last_rand_vec = vector
        if hidden != self._partially_observable:
            self._partially_observable = hidden
            self.__dict__.pop("sawyer_observation_space", None)  # a cached property, with the bounds of the goal
            self.observation_space = self.sawyer_observation_space

    def get_task(self) -> MetaWorldTask | None:
        """The current task."""
        return self._task

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode of the task.

        Args:
            seed: Seeds the environment's generator; start and goal are the task's.
            options: Not used; ``init_state`` is refused, since the task defines where episodes start.
        """
        if self._task is None:
            raise ResetNeeded(f"{self.env_name} has no task: call set_task(task) before reset()")
        if options and "init_state" in options:
            raise ValueError("init_state cannot be set: in Meta-World the task defines where an episode starts")
        if seed is not None:
            self.seed(seed)
        self.curr_path_length = 0
        # Meta-World resets twice: the first time only to write the task into the model, so that the arm moves to its
        # start beside the new goal, not beside the last one. Nothing else of the first time is left: no need to move.
        self._moving = False
        try:
            self.reset_model()
        finally:
            self._moving = True
        self._reset_data(self.model, self.data)
        observation = self.reset_model()
        self._prev_obs = observation[:18].copy()
        observation[18:36] = self._prev_obs
        self._ready = True
        if self.render_mode == "human":
            self.render()
        return observation, {"task_name": self.env_name}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move the hand by ``action[:3]`` (in centimeters) and the fingers by ``action[3]``."""
        action = np.asarray(action)
        if action.shape != (4,):
            raise ShapeError(f"action must have shape (4,), got {action.shape}")
        if not self._ready or self.curr_path_length >= self.max_path_length:
            raise ResetNeeded(f"{self.env_name} must be reset before it is stepped")
        self.set_xyz_action(action[:3])
        self.do_simulation((action[-1], -action[-1]), self.frame_skip)
        self.curr_path_length += 1
        for site, position in self._target_site_config:  # the simulator has put them back
            self._set_pos_site(site, position)
        self._forward(self.model, self.data)
        space = self.sawyer_observation_space
        observation = np.minimum(np.maximum(self._get_obs(), space.low), space.high)
        self._last_stable_obs = observation
        reward, info = self.evaluate_state(observation, action)
        info["task_name"] = self.env_name
        return observation.copy(), reward, False, self.curr_path_length == self.max_path_length, info

    def render(self) -> Any:
        """A picture ``(height, width, 3)`` where ``render_mode`` is ``"rgb_array"``."""
        picture = super().render()  # pyright: ignore[reportAttributeAccessIssue]
        return np.rot90(picture, 2).copy() if self.render_mode == "rgb_array" else picture

    def __reduce__(self) -> Any:
        marks = {name: value for name, value in self.__dict__.items() if name in _MARKS}
        return _made_again, (self._maker, self._task, marks)

    # -- Meta-World's own methods, on views ----------------------------------------------------------------------------

    def _initialize_simulation(self) -> tuple[Any, Any]:
        mujoco = mujoco_package()
        model, data = super()._initialize_simulation()  # pyright: ignore[reportAttributeAccessIssue]
        self._moving, self._mj_step, self._forward = True, mujoco.mj_step, mujoco.mj_forward
        self._reset_data = mujoco.mj_resetData
        self._ctrl, self._mocap_pos, self._mocap_quat = data.ctrl, data.mocap_pos, data.mocap_quat
        self._bodies = {name: data.body(name).xpos for name in _names(model, "body")}
        self._sites = {name: data.site(name).xpos for name in _names(model, "site")}
        self._hand_parts = [self._bodies[name] for name in ("hand", "rightclaw", "leftclaw")]
        self._finger_tips = [self._sites[name] for name in ("rightEndEffector", "leftEndEffector")]
        self._pads = [model.geom(name).id for name in ("leftpad_geom", "rightpad_geom")]
        return model, data

    def do_simulation(self, ctrl: Any, n_frames: int) -> None:
        # Without mj_rnePostConstraint: nothing of Meta-World reads those forces, and they change no state.
        if self._moving:
            self._ctrl[:] = ctrl
            self._mj_step(self.model, self.data, n_frames)

    def set_xyz_action(self, action: np.ndarray) -> None:
        delta = np.minimum(np.maximum(action, -1), 1) * self.action_scale
        moved = self._mocap_pos + delta
        moved[0] = np.minimum(np.maximum(moved[0], self.mocap_low), self.mocap_high)
        self._mocap_pos[:] = moved
        self._mocap_quat[:] = (1.0, 0.0, 1.0, 0.0)

    @property
    def tcp_center(self) -> np.ndarray:
        right, left = self._finger_tips
        return (right + left) / 2.0

    def get_endeff_pos(self) -> np.ndarray:
        return self._hand_parts[0]

    def get_body_com(self, body_name: str) -> np.ndarray:
        return self._bodies[body_name]

    def _get_site_pos(self, site_name: str) -> np.ndarray:
        return self._sites[site_name].copy()

    def _set_pos_site(self, name: str, pos: np.ndarray) -> None:
        self._sites[name][:] = pos[:3]

    def touching_object(self, object_geom_id: int) -> bool:
        """Whether both pads press on a geom."""
        contact = self.data.contact
        first, second = contact.geom1, contact.geom2
        on_object = (first == object_geom_id) | (second == object_geom_id)
        if not on_object.any():
            return False
        addresses, forces = contact.efc_address, self.data.efc_force
        for pad in self._pads:
            pressed = addresses[on_object & ((first == pad) | (second == pad))]
            if not sum(forces[address] for address in pressed) > 0:
                return False
        return True

    def _get_curr_obs_combined_no_goal(self) -> np.ndarray:
        hand, right, left = self._hand_parts
        gap = right - left
        opening = math.sqrt(gap.dot(gap)) / 0.1
        positions, quaternions = self._get_pos_objects(), self._get_quat_objects()
        observation = np.zeros(4 + self._obs_obj_max_len)
        observation[:3] = hand
        observation[3] = min(max(opening, 0.0), 1.0)
        for i in range(len(positions) // 3):
            at = 4 + 7 * i
            observation[at : at + 3] = positions[3 * i : 3 * i + 3]
            observation[at + 3 : at + 7] = quaternions[4 * i : 4 * i + 4]
        return observation

    def _get_obs(self) -> np.ndarray:
        goal = np.zeros(3) if self._partially_observable else self._get_pos_goal()
        current = self._get_curr_obs_combined_no_goal()
        observation = np.concatenate((current, self._prev_obs, goal))
        self._prev_obs = current
        return observation


def _names(model: Any, kind: str) -> list[str]:
    count = {"body": model.nbody, "site": model.nsite}[kind]
    names = (getattr(model, kind)(i).name for i in range(count))
    return [name for name in names if name]


@functools.cache
def _fast_class(env_class: Any) -> Any:
    """``env_class`` behind ``Sawyer``, under its own name, which Meta-World looks up."""
    quaternions = with_fast_rotations(env_class._get_quat_objects)
    members = {"__module__": __name__, "__doc__": Sawyer.__doc__, "_get_quat_objects": quaternions}
    return type(env_class.__name__, (Sawyer, env_class), members)


def _made_again(maker: MetaWorldEnvMaker, task: MetaWorldTask | None, marks: dict[str, Any]) -> Any:
    env = maker()
    if task is not None:
        env.set_task(task)
    for name, value in marks.items():
        setattr(env, name, value)
    return env
