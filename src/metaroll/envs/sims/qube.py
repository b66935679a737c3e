"""Quanser's Qube: a pendulum on a turning arm (Furuta), to balance or to swing up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.cart_pole import dead_zone
from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, angle_near, symmetric
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param, normal

__all__ = ["QubeModel"]

_RAD_PER_DEG = math.pi / 180.0
_MAX_VOLTAGE = 4.5


class QubeModel(SimModel):
    """Qube: ``theta`` of the arm, 0 in the middle, ``alpha`` of the pendulum, 0 where it hangs, pi upright.

    Runge-Kutta of fourth order, the voltage held over a step.

    Note:
        Quanser's choices are kept: the pendulum's centrifugal and coupling terms are those of a point mass at its
        middle (with a rod's inertia about the middle added for its own swing), and the arm's inertia is that about its
        middle. A thin rod's would change accelerations by up to 10 %.

    Args:
        swing_up: Start near hanging, steps of 4 ms; otherwise near upright, steps of 10 ms.
    """

    name = "Qube"
    state_labels = ("theta", "alpha", "theta_dot", "alpha_dot")
    observation_labels = ("sin_theta", "cos_theta", "sin_alpha", "cos_alpha", "theta_dot", "alpha_dot")
    action_labels = ("voltage",)
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, POSITIVE, normal(0.1, 1e-3)),
        "motor_resistance": Param(8.4, POSITIVE, normal(0.2, 1e-3)),
        "motor_back_emf": Param(0.042, POSITIVE, normal(0.2, 1e-4)),
        "mass_rot_pole": Param(0.095, POSITIVE, normal(0.2, 1e-4)),
        "length_rot_pole": Param(0.085, POSITIVE, normal(0.2, 1e-4)),
        "damping_rot_pole": Param(5e-6, NON_NEGATIVE, normal(0.25, 1e-9)),
        "mass_pend_pole": Param(0.024, POSITIVE, normal(0.2, 1e-4)),
        "length_pend_pole": Param(0.129, POSITIVE, normal(0.2, 1e-4)),
        "damping_pend_pole": Param(1e-6, NON_NEGATIVE, normal(0.25, 1e-9)),
        "voltage_thold_neg": Param(0.0),
        "voltage_thold_pos": Param(0.0),
    }
    ordered = (("voltage_thold_neg", "voltage_thold_pos"),)
    num_uniforms = 4

    def __init__(self, swing_up: bool = True) -> None:
        self.swing_up = swing_up
        self.dt = 0.004 if swing_up else 0.01
        self.max_steps = 4000 if swing_up else 500

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, the five constants ``c0`` to ``c4`` of the equations of motion, and gains of the motor."""
        arm, pole = params["length_rot_pole"], params["length_pend_pole"]
        arm_mass, pole_mass = params["mass_rot_pole"], params["mass_pend_pole"]
        gain = params["motor_back_emf"] / params["motor_resistance"]
        c1 = 0.25 * pole_mass * pole * pole
        c3 = pole_mass * pole * pole / 12.0 + c1
        return {
            **params,
            "c0": arm_mass * arm * arm / 12.0 + pole_mass * arm * arm,
            "c1": c1,
            "c2": 0.5 * pole_mass * pole * arm,
            "c3": c3,
            "c4": 0.5 * pole_mass * pole * params["gravity_const"],
            "torque_per_volt": gain,
            "drag": gain * params["motor_back_emf"] + params["damping_rot_pole"],
        }

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """See ``SimModel.step``."""
        theta, alpha, theta_dot, alpha_dot = state
        voltage = dead_zone(action[0], constants["voltage_thold_neg"], constants["voltage_thold_pos"], xp)
        torque = constants["torque_per_volt"] * voltage
        half = 0.5 * dt
        # Runge-Kutta for q'' = a(q, q'): stage i sees the position that stage i - 1 moved to with its own velocity.
        v1, w1 = theta_dot, alpha_dot
        a1, b1 = _accelerations(alpha, v1, w1, torque, constants, xp)
        v2, w2 = theta_dot + half * a1, alpha_dot + half * b1
        a2, b2 = _accelerations(alpha + half * w1, v2, w2, torque, constants, xp)
        v3, w3 = theta_dot + half * a2, alpha_dot + half * b2
        a3, b3 = _accelerations(alpha + half * w2, v3, w3, torque, constants, xp)
        v4, w4 = theta_dot + dt * a3, alpha_dot + dt * b3
        a4, b4 = _accelerations(alpha + dt * w3, v4, w4, torque, constants, xp)
        sixth = dt / 6.0
        a23, b23 = a2 + a3, b2 + b3
        return (
            theta + dt * (theta_dot + sixth * (a1 + a23)),
            alpha + dt * (alpha_dot + sixth * (b1 + b23)),
            theta_dot + sixth * (a1 + 2.0 * a23 + a4),
            alpha_dot + sixth * (b1 + 2.0 * b23 + b4),
        ), ()

    def observe(self, state: Columns, xp: Any) -> Columns:
        """Angles as sines and cosines."""
        theta, alpha, theta_dot, alpha_dot = state
        return xp.sin(theta), xp.cos(theta), xp.sin(alpha), xp.cos(alpha), theta_dot, alpha_dot

    def state_from_observation(self, observation: Columns, xp: Any) -> Columns:
        """See ``SimModel``; the pendulum's angle lies around upright when balancing, else around hanging."""
        sin_theta, cos_theta, sin_alpha, cos_alpha, theta_dot, alpha_dot = observation
        alpha = angle_near(0.0 if self.swing_up else math.pi, sin_alpha, cos_alpha, xp)
        return angle_near(0.0, sin_theta, cos_theta, xp), alpha, theta_dot, alpha_dot

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """4.5 V either way."""
        return symmetric(_MAX_VOLTAGE)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The arm within 115 deg of its middle: its cable is no longer."""
        return symmetric(115.0 * _RAD_PER_DEG, 4.0 * math.pi, 20.0 * math.pi, 20.0 * math.pi)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Near hanging (swing-up) or upright at rest."""
        if self.swing_up:
            return symmetric(*(_RAD_PER_DEG * bound for bound in (2.0, 1.0, 0.5, 0.5)))
        tilt = 5.0 * _RAD_PER_DEG
        return (-tilt, math.pi - tilt, 0.0, 0.0), (tilt, math.pi + tilt, 0.0, 0.0)

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Kinetic energy, and height of the pendulum above hanging, in J."""
        _, alpha, theta_dot, alpha_dot = state
        sin, cos = xp.sin(alpha), xp.cos(alpha)
        arm = constants["c0"] + constants["c1"] * sin * sin
        kinetic = 0.5 * (arm * theta_dot * theta_dot + constants["c3"] * alpha_dot * alpha_dot)
        return kinetic + constants["c2"] * cos * theta_dot * alpha_dot + constants["c4"] * (1.0 - cos)


def _accelerations(
    alpha: Column, theta_dot: Column, alpha_dot: Column, torque: Column, constants: Constants, xp: Any
) -> tuple[Column, Column]:
    """Accelerations of arm and pendulum: a 2 x 2 system of linear equations, solved by Cramer's rule."""
    c1, c2, c3 = constants["c1"], constants["c2"], constants["c3"]
    sin, cos = xp.sin(alpha), xp.cos(alpha)
    c1_cos, arm, coupling = c1 * cos, constants["c0"] + c1 * (sin * sin), c2 * cos
    spin = c1_cos * theta_dot
    push = torque - constants["drag"] * theta_dot + (sin * alpha_dot) * (c2 * alpha_dot - 2.0 * spin)
    turn = sin * (spin * theta_dot - constants["c4"]) - constants["damping_pend_pole"] * alpha_dot
    scale = 1.0 / (arm * c3 - coupling * coupling)
    return (c3 * push - coupling * turn) * scale, (arm * turn - coupling * push) * scale
