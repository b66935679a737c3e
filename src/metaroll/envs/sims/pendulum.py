"""A rod that swings about its end, with a motor too weak to lift it at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, angle_near, symmetric
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param, normal

__all__ = ["PendulumModel"]

_BOUND = 4 * math.pi


class PendulumModel(SimModel):
    """``(m l^2 / 3) theta'' = tau - (m g l / 2) sin theta - d theta'``; theta = 0 hangs, pi stands upright.

    ``pole_length`` is the whole length of the rod. Integrated by the semi-implicit Euler method. Every episode starts
    in rest, hanging down, unless the environment is given another ``init_space``.
    """

    name = "pendulum"
    state_labels = ("theta", "theta_dot")
    observation_labels = ("sin_theta", "cos_theta", "theta_dot")
    action_labels = ("torque",)
    dt = 0.02
    max_steps = 400
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, varies=normal(0.1, 1e-3)),
        "pole_mass": Param(1.0, POSITIVE, normal(0.1, 1e-3)),
        "pole_length": Param(1.0, POSITIVE, normal(0.1, 1e-3)),
        "pole_damping": Param(0.05, NON_NEGATIVE, normal(0.1, 1e-3)),
        "torque_thold": Param(3.5, POSITIVE, normal(0.1, 1e-3)),
    }
    num_uniforms = 0

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        mass, length = params["pole_mass"], params["pole_length"]
        agility = 3.0 / (mass * length * length)  # 1 / moment of inertia
        return {
            **params,
            "agility": agility,
            "pull": 1.5 * params["gravity_const"] / length,  # gravity's torque at 90 degrees over the inertia
            "decay": params["pole_damping"] * agility,
        }

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        theta, theta_dot = state
        acceleration = (
            action[0] * constants["agility"] - constants["pull"] * xp.sin(theta) - constants["decay"] * theta_dot
        )
        theta_dot = theta_dot + dt * acceleration
        return (theta + dt * theta_dot, theta_dot), memory

    def observe(self, state: Columns, xp: Any) -> Columns:
        return xp.sin(state[0]), xp.cos(state[0]), state[1]

    def state_from_observation(self, observation: Columns, xp: Any) -> Columns:
        sin, cos, theta_dot = observation
        return angle_near(0.0, sin, cos, xp), theta_dot

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return symmetric(constants["torque_thold"])

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return symmetric(_BOUND, _BOUND)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (0.0, 0.0), (0.0, 0.0)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        zero = constants["pole_mass"] * 0.0
        return zero, zero

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        theta, theta_dot = state
        inertia = constants["pole_mass"] * constants["pole_length"] * constants["pole_length"] / 3.0
        weight = constants["pole_mass"] * constants["gravity_const"] * constants["pole_length"] / 2.0
        return 0.5 * inertia * theta_dot * theta_dot + weight * (1.0 - xp.cos(theta))
