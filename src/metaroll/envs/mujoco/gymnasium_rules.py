"""Gymnasium's MuJoCo environments, version 5, as functions of arrays: the same bits as the environments themselves.

Weights and ranges are those of the environment from which the rules are made, so arguments of ``gymnasium.make`` hold.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any

import numpy as np

from metaroll.envs.mujoco.rules import Arrays, Rules, Step, StepResult, as_rows, draw_uniform, row_norms

__all__ = ["RULES", "body_mean_position"]


class GymnasiumRules(Rules, ABC):
    """Base: reads the settings of one of Gymnasium's environments."""

    def __init__(self, env: Any) -> None:
        self.frame_skip = env.frame_skip
        self.noise = getattr(env, "_reset_noise_scale", 0.0)
        self.weight_forward = getattr(env, "_forward_reward_weight", 0.0)
        self.weight_control = getattr(env, "_ctrl_cost_weight", getattr(env, "_reward_control_weight", 0.0))
        self.hides_position = getattr(env, "_exclude_current_positions_from_observation", False)
        self.healthy_reward = getattr(env, "_healthy_reward", 0.0)
        self.ends_unhealthy = getattr(env, "_terminate_when_unhealthy", False)
        self.healthy_z: tuple[float, float] = getattr(env, "_healthy_z_range", (-np.inf, np.inf))
        self.init_height = env.init_qpos[1] if env.init_qpos.size > 1 else 0.0

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return draw_uniform(generator, qpos, self.noise), draw_uniform(generator, qvel, self.noise)

    def control_cost(self, actions: np.ndarray) -> np.ndarray:
        return self.weight_control * np.square(actions).sum(axis=1)


def _normal_velocities(
    self: GymnasiumRules, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    positions = draw_uniform(generator, qpos, self.noise)
    return positions, qvel + self.noise * generator.standard_normal(qvel.size)


class HalfCheetahRules(GymnasiumRules):
    """HalfCheetah-v5."""

    draw = _normal_velocities

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 1 if self.hides_position else 0 :], now["qvel"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        x_position = step.now["qpos"][:, 0]
        x_velocity = (x_position - step.before["qpos"][:, 0]) / step.constants["dt"]
        forward, control = self.weight_forward * x_velocity, self.control_cost(step.actions)
        infos = {
            "x_position": x_position.copy(),
            "x_velocity": x_velocity,
            "reward_forward": forward,
            "reward_ctrl": -control,
        }
        return StepResult(forward - control, np.zeros(len(forward), dtype=bool), infos)


class WalkerRules(GymnasiumRules):
    """Walker2d-v5 and Hopper-v5, which has bounds for all else of its state, too."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.healthy_angle = env._healthy_angle_range
        self.healthy_state: tuple[float, float] | None = getattr(env, "_healthy_state_range", None)

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        velocity = np.clip(now["qvel"], -10, 10)
        return np.concatenate((now["qpos"][:, 1 if self.hides_position else 0 :], velocity), axis=1)

    def is_healthy(self, now: Arrays) -> np.ndarray:
        z, angle = now["qpos"][:, 1], now["qpos"][:, 2]
        (min_z, max_z), (min_angle, max_angle) = self.healthy_z, self.healthy_angle
        healthy = (min_z < z) & (z < max_z) & (min_angle < angle) & (angle < max_angle)
        if self.healthy_state is not None:
            low, high = self.healthy_state
            state = np.concatenate((now["qpos"][:, 2:], now["qvel"]), axis=1)
            healthy &= ((low < state) & (state < high)).all(axis=1)
        return healthy

    def reward_and_termination(self, step: Step) -> StepResult:
        qpos = step.now["qpos"]
        x_velocity = (qpos[:, 0] - step.before["qpos"][:, 0]) / step.constants["dt"]
        is_healthy = self.is_healthy(step.now)
        forward, control = self.weight_forward * x_velocity, self.control_cost(step.actions)
        survive = is_healthy * self.healthy_reward
        infos = {
            "x_position": qpos[:, 0].copy(),
            "z_distance_from_origin": qpos[:, 1] - self.init_height,
            "x_velocity": x_velocity,
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_survive": survive,
        }
        return StepResult(forward + survive - control, ~is_healthy & bool(self.ends_unhealthy), infos)


class AntRules(GymnasiumRules):
    """Ant-v5."""

    contacts = True
    draw = _normal_velocities

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.main_body = env._main_body
        self.force_range = env._contact_force_range
        self.weight_contact = env._contact_cost_weight
        self.shows_forces = env._include_cfrc_ext_in_observation

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {"cfrc_ext": data.cfrc_ext, "main_body": data.body(self.main_body).xpos}

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        parts = [now["qpos"][:, 2 if self.hides_position else 0 :], now["qvel"]]
        if self.shows_forces:
            parts.append(as_rows(np.clip(now["cfrc_ext"], *self.force_range)[:, 1:]))
        return np.concatenate(parts, axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        now = step.now
        qpos, dt = now["qpos"], step.constants["dt"]
        velocity = (now["main_body"][:, :2] - step.before["main_body"][:, :2]) / dt[:, None]
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(now["qvel"]).all(axis=1)
        is_healthy = finite & (self.healthy_z[0] <= qpos[:, 2]) & (qpos[:, 2] <= self.healthy_z[1])
        forward, survive = velocity[:, 0] * self.weight_forward, is_healthy * self.healthy_reward
        control = self.control_cost(step.actions)
        forces = as_rows(np.clip(now["cfrc_ext"], *self.force_range))
        contact = self.weight_contact * np.square(forces).sum(axis=1)
        infos = {
            **_planar_infos(qpos, velocity),
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
            "reward_survive": survive,
        }
        return StepResult(forward + survive - (control + contact), ~is_healthy & bool(self.ends_unhealthy), infos)


class HumanoidRules(GymnasiumRules):
    """Humanoid-v5."""

    contacts = True

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.weight_contact, self.contact_range = env._contact_cost_weight, env._contact_cost_range
        shown = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
        self.shown = tuple(name for name in shown if getattr(env, f"_include_{name}_in_observation") is True)

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        names = {*self.shown, "cfrc_ext", "xipos", "ten_length", "ten_velocity"}
        return {name: getattr(data, name) for name in sorted(names) if getattr(data, name).size}

    def constants(self, model: Any) -> dict[str, Any]:
        return {"body_mass": model.body_mass, "total_mass": model.body_mass.sum()}

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        parts = [now["qpos"][:, 2 if self.hides_position else 0 :], now["qvel"]]
        # The world is left out, and the six numbers of the free joint.
        skipped = {name: 6 if name == "qfrc_actuator" else 1 for name in self.shown}
        parts += [as_rows(now[name][:, skip:]) for name, skip in skipped.items()]
        return np.concatenate(parts, axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        now, constants = step.now, step.constants
        qpos, count = now["qpos"], len(step.actions)
        moved = body_mean_position(now, constants) - body_mean_position(step.before, constants)
        velocity = moved[:, :2] / constants["dt"][:, None]
        is_healthy = (self.healthy_z[0] < qpos[:, 2]) & (qpos[:, 2] < self.healthy_z[1])
        forward, survive = self.weight_forward * velocity[:, 0], is_healthy * self.healthy_reward
        control = self.weight_control * np.square(step.controls.astype(np.float64)).sum(axis=1)
        contact = self.weight_contact * as_rows(np.square(now["cfrc_ext"])).sum(axis=1)
        contact = np.clip(contact, *self.contact_range)
        infos = {
            **_planar_infos(qpos, velocity),
            "tendon_length": now["ten_length"].copy() if "ten_length" in now else np.zeros((count, 0)),
            "tendon_velocity": now["ten_velocity"].copy() if "ten_velocity" in now else np.zeros((count, 0)),
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
        }
        return StepResult(forward + survive - (control + contact), ~is_healthy & bool(self.ends_unhealthy), infos)


class SwimmerRules(GymnasiumRules):
    """Swimmer-v5."""

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"][:, 2 if self.hides_position else 0 :], now["qvel"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        qpos = step.now["qpos"]
        velocity = (qpos[:, :2] - step.before["qpos"][:, :2]) / step.constants["dt"][:, None]
        forward, control = self.weight_forward * velocity[:, 0], self.control_cost(step.actions)
        infos = {**_planar_infos(qpos, velocity), "reward_forward": forward, "reward_ctrl": -control}
        return StepResult(forward - control, np.zeros(len(forward), dtype=bool), infos)


class InvertedPendulumRules(GymnasiumRules):
    """InvertedPendulum-v5."""

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        return np.concatenate((now["qpos"], now["qvel"]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        qpos = step.now["qpos"]
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(step.now["qvel"]).all(axis=1)
        terminated = ~finite | (np.abs(qpos[:, 1]) > 0.2)
        rewards = (~terminated).astype(np.int64)
        return StepResult(rewards.astype(np.float64), terminated, {"reward_survive": rewards})


class InvertedDoublePendulumRules(GymnasiumRules):
    """InvertedDoublePendulum-v5."""

    draw = _normal_velocities

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {"qfrc_constraint": data.qfrc_constraint, "tip": data.site_xpos[0]}

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        angles = now["qpos"][:, 1:].copy()
        velocity, force = np.clip(now["qvel"], -10, 10), np.clip(now["qfrc_constraint"], -10, 10)
        return np.concatenate((now["qpos"][:, :1], np.sin(angles), np.cos(angles), velocity, force[:, :1]), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        x, y = step.now["tip"][:, 0], step.now["tip"][:, 2]
        terminated = y <= 1
        distance = 0.01 * _squares(x) + _squares(y - 2)
        speed = 1e-3 * _squares(step.now["qvel"][:, 1]) + 5e-3 * _squares(step.now["qvel"][:, 2])
        survive = self.healthy_reward * (~terminated).astype(np.int64)
        infos = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -speed}
        return StepResult(survive - distance - speed, terminated, infos)


class ReacherRules(GymnasiumRules):
    """Reacher-v5."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.weight_distance = env._reward_dist_weight

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {"fingertip": data.body("fingertip").xpos, "target": data.body("target").xpos}

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = generator.uniform(low=-0.1, high=0.1, size=qpos.size) + qpos
        while True:
            goal = generator.uniform(low=-0.2, high=0.2, size=2)
            if np.linalg.norm(goal) < 0.2:
                break
        positions[-2:] = goal
        velocities = draw_uniform(generator, qvel, 0.005)
        velocities[-2:] = 0
        return positions, velocities

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        angles = now["qpos"][:, :2].copy()
        away = now["fingertip"] - now["target"]
        parts = (np.cos(angles), np.sin(angles), now["qpos"][:, 2:], now["qvel"][:, :2], away[:, :2])
        return np.concatenate(parts, axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        distance = -row_norms(step.now["fingertip"] - step.now["target"]) * self.weight_distance
        control = -np.square(step.actions).sum(axis=1) * self.weight_control
        infos = {"reward_dist": distance, "reward_ctrl": control}
        return StepResult(distance + control, np.zeros(len(distance), dtype=bool), infos)


class PusherRules(GymnasiumRules):
    """Pusher-v5."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.weight_near, self.weight_distance = env._reward_near_weight, env._reward_dist_weight

    def observed(self, model: Any, data: Any) -> dict[str, np.ndarray]:
        return {name: data.body(name).xpos for name in ("tips_arm", "object", "goal")}

    def draw(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        while True:
            x, y = generator.uniform(low=-0.3, high=0, size=1), generator.uniform(low=-0.2, high=0.2, size=1)
            cylinder = np.concatenate((x, y))
            if np.linalg.norm(cylinder) > 0.17:
                break
        positions = qpos.copy()
        positions[-4:-2], positions[-2:] = cylinder, 0.0
        velocities = draw_uniform(generator, qvel, 0.005)
        velocities[-4:] = 0
        return positions, velocities

    def observe(self, now: Arrays, task: Arrays) -> np.ndarray:
        places = (now["tips_arm"], now["object"], now["goal"])
        return np.concatenate((now["qpos"][:, :7], now["qvel"][:, :7], *places), axis=1)

    def reward_and_termination(self, step: Step) -> StepResult:
        now = step.now
        near = -row_norms(now["object"] - now["tips_arm"]) * self.weight_near
        distance = -row_norms(now["object"] - now["goal"]) * self.weight_distance
        control = -np.square(step.actions).sum(axis=1) * self.weight_control
        infos = {"reward_dist": distance, "reward_ctrl": control, "reward_near": near}
        return StepResult(distance + control + near, np.zeros(len(distance), dtype=bool), infos)


RULES: dict[str, Callable[[Any], GymnasiumRules]] = {
    "ant_v5:AntEnv": AntRules,
    "half_cheetah_v5:HalfCheetahEnv": HalfCheetahRules,
    "hopper_v5:HopperEnv": WalkerRules,
    "humanoid_v5:HumanoidEnv": HumanoidRules,
    "inverted_double_pendulum_v5:InvertedDoublePendulumEnv": InvertedDoublePendulumRules,
    "inverted_pendulum_v5:InvertedPendulumEnv": InvertedPendulumRules,
    "pusher_v5:PusherEnv": PusherRules,
    "reacher_v5:ReacherEnv": ReacherRules,
    "swimmer_v5:SwimmerEnv": SwimmerRules,
    "walker2d_v5:Walker2dEnv": WalkerRules,
}
"""Module and class of an environment in ``gymnasium.envs.mujoco`` -> its rules."""


def body_mean_position(now: Arrays, constants: Arrays) -> np.ndarray:
    """Center of mass ``(E, 3)``."""
    weighted = np.einsum("eb,ebj->ej", constants["body_mass"], now["xipos"])
    return weighted / constants["total_mass"][:, None]


def _planar_infos(qpos: np.ndarray, velocity: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "x_position": qpos[:, 0].copy(),
        "y_position": qpos[:, 1].copy(),
        "distance_from_origin": row_norms(qpos[:, 0:2]),
        "x_velocity": velocity[:, 0].copy(),
        "y_velocity": velocity[:, 1].copy(),
    }


def _squares(values: np.ndarray) -> np.ndarray:
    # ``**`` of single numbers is pow(), which differs in the last bit from the product that ``**`` of arrays is.
    return np.array([value**2 for value in values.tolist()])
