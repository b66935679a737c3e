"""Quanser's cart-pole: a motor moves a cart with a pole, to balance or to swing up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, angle_near, symmetric
from metaroll.envs.sims.params import EFFICIENCY, NON_NEGATIVE, POSITIVE, Param, normal, uniform

__all__ = ["CartPoleModel"]

_RAD_PER_DEG = math.pi / 180.0
_MAX_VOLTAGE = 8.0
_RAIL_MARGIN = 0.05  # m that the cart keeps from either end

_LONG_POLE = {
    "pole_mass": Param(0.23, POSITIVE, normal(0.2, 1e-4)),
    "pole_length": Param(0.641 / 2, POSITIVE, normal(0.2, 1e-2)),
}


class CartPoleModel(SimModel):
    """Cart-pole: ``x`` of the cart from the middle of the rail, ``theta`` of the pole, 0 where it hangs, pi upright.

    Semi-implicit Euler. ``pole_length`` is half of the pole, from its hinge to its middle. ``nominal`` is that of the
    pole that was chosen. The memory is the pole's last acceleration, from which friction of the cart is computed.

    Note:
        The motor's efficiency acts once, on the voltage, as in Quanser's own model: force = gear_efficiency *
        gear_ratio * motor_back_emf / (motor_resistance * pinion_radius) * (motor_efficiency * voltage -
        gear_ratio * motor_back_emf * x_dot / pinion_radius). Reading it as a factor of the whole force would lessen
        the motor's braking as well. The force of the rail on the cart is (cart_mass + pole_mass) * g + pole_mass *
        pole_length * (sin(theta) * theta_acc + cos(theta) * theta_dot^2), the vertical acceleration of the pole with
        theta counted from hanging.

    Args:
        swing_up: Bounds and initial states of the swing-up; otherwise of balancing near upright.
        long_pole: The pole of 64.1 cm; otherwise that of 33.65 cm.
        simple_dynamics: Leave out the cart's friction and the dead zone of the voltage.
        wild_init: Swing-up starts with any angle; otherwise near hanging.
    """

    name = "cart-pole"
    state_labels = ("x", "theta", "x_dot", "theta_dot")
    observation_labels = ("x", "sin_theta", "cos_theta", "x_dot", "theta_dot")
    action_labels = ("voltage",)
    memory_labels = ("theta_acc",)
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, POSITIVE, normal(0.1, 1e-4)),
        "cart_mass": Param(0.38, POSITIVE, normal(0.2, 1e-4)),
        "rail_length": Param(0.814, (2 * _RAIL_MARGIN + 1e-3, math.inf), normal(0.2, 0.11)),  # room for the cart
        "motor_efficiency": Param(0.9, EFFICIENCY, uniform(0.25, 1e-4, 1.0)),
        "gear_efficiency": Param(0.9, EFFICIENCY, uniform(0.25, 1e-4, 1.0)),
        "gear_ratio": Param(3.71, POSITIVE, normal(0.25, 1e-4)),
        "motor_inertia": Param(3.9e-7, POSITIVE, normal(0.25, 1e-9)),
        "pinion_radius": Param(6.35e-3, POSITIVE, normal(0.2, 1e-4)),
        "motor_resistance": Param(2.6, POSITIVE, normal(0.25, 1e-4)),
        "motor_back_emf": Param(7.67e-3, POSITIVE, normal(0.25, 1e-4)),
        "pole_damping": Param(0.0024, NON_NEGATIVE, uniform(0.25, 1e-4)),
        "combined_damping": Param(5.4, NON_NEGATIVE, uniform(0.25, 1e-4)),
        "pole_mass": Param(0.127, POSITIVE, normal(0.2, 1e-4)),
        "pole_length": Param(0.3365 / 2, POSITIVE, normal(0.2, 1e-2)),
        "cart_friction_coeff": Param(0.02, NON_NEGATIVE, uniform(0.5, 0.0)),
        "voltage_thold_neg": Param(0.0),
        "voltage_thold_pos": Param(0.0),
    }
    ordered = (("voltage_thold_neg", "voltage_thold_pos"),)
    num_uniforms = 4

    def __init__(
        self,
        swing_up: bool = True,
        *,
        long_pole: bool | None = None,
        simple_dynamics: bool | None = None,
        wild_init: bool = True,
    ) -> None:
        self.swing_up = swing_up
        self.long_pole = not swing_up if long_pole is None else long_pole
        self.simple_dynamics = not swing_up if simple_dynamics is None else simple_dynamics
        self.wild_init = wild_init
        self.dt = 0.002 if swing_up else 0.01
        self.max_steps = 8000 if swing_up else 300
        self.params = {**type(self).params, **_LONG_POLE} if self.long_pole else type(self).params

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, inertias, and gains of the motor."""
        length, mass = params["pole_length"], params["pole_mass"]
        geared = params["gear_ratio"] * params["motor_back_emf"] / params["pinion_radius"]
        ratio = params["gear_ratio"] / params["pinion_radius"]
        gain = params["gear_efficiency"] * geared / params["motor_resistance"]
        rail_mass = params["cart_mass"] + params["gear_efficiency"] * (ratio * ratio) * params["motor_inertia"]
        lever = mass * length
        # about the hinge: a rod about its middle, and its middle about the hinge
        swing_inertia = lever * length * (4.0 / 3.0)
        return {
            **params,
            "force_per_volt": gain * params["motor_efficiency"],
            "braking": gain * geared,  # of the motor
            "drag": gain * geared + params["combined_damping"],
            "rail_mass": rail_mass,
            "total_mass": mass + rail_mass,
            "lever": lever,
            "weight_lever": lever * params["gravity_const"],
            "swing_inertia": swing_inertia,
            "inertia_product": (mass + rail_mass) * swing_inertia,
            "weight": (params["cart_mass"] + mass) * params["gravity_const"],
            "reach": 0.5 * params["rail_length"] - _RAIL_MARGIN,
        }

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """See ``SimModel.step``."""
        x, theta, x_dot, theta_dot = state
        voltage, lever = action[0], constants["lever"]
        sin, cos = xp.sin(theta), xp.cos(theta)
        coupling = lever * cos
        centrifugal = theta_dot * theta_dot
        if not self.simple_dynamics:
            voltage = dead_zone(voltage, constants["voltage_thold_neg"], constants["voltage_thold_pos"], xp)
        push = constants["force_per_volt"] * voltage - constants["drag"] * x_dot + (lever * sin) * centrifugal
        if not self.simple_dynamics:
            normal = constants["weight"] + lever * (sin * memory[0]) + coupling * centrifugal
            push = push - constants["cart_friction_coeff"] * xp.clip(normal, 0.0, None) * xp.sign(x_dot)
        turn = -constants["pole_damping"] * theta_dot - constants["weight_lever"] * sin
        determinant = constants["inertia_product"] - coupling * coupling
        x_acc = (constants["swing_inertia"] * push - coupling * turn) / determinant
        theta_acc = (constants["total_mass"] * turn - coupling * push) / determinant
        x_dot = x_dot + dt * x_acc
        theta_dot = theta_dot + dt * theta_acc
        return (x + dt * x_dot, theta + dt * theta_dot, x_dot, theta_dot), (theta_acc,)

    def observe(self, state: Columns, xp: Any) -> Columns:
        """The angle as sine and cosine."""
        x, theta, x_dot, theta_dot = state
        return x, xp.sin(theta), xp.cos(theta), x_dot, theta_dot

    def state_from_observation(self, observation: Columns, xp: Any) -> Columns:
        """See ``SimModel``; the angle lies around upright when balancing, around hanging for the swing-up."""
        x, sin, cos, x_dot, theta_dot = observation
        return x, angle_near(0.0 if self.swing_up else math.pi, sin, cos, xp), x_dot, theta_dot

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """8 V either way."""
        return symmetric(_MAX_VOLTAGE)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The cart on its rail; when balancing, the pole within 15 deg of upright."""
        reach, rail = constants["reach"], constants["rail_length"]
        if self.swing_up:
            return symmetric(reach, 4.0 * math.pi, 2.0 * rail, 20.0 * math.pi)
        tilt = 15.0 * _RAD_PER_DEG
        low = (-reach, math.pi - tilt, -rail, -2.0 * math.pi)
        return low, (reach, math.pi + tilt, rail, 2.0 * math.pi)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Around the middle of the rail, hanging (swing-up) or upright."""
        if not self.swing_up:
            spread = (0.02, 8.0 * _RAD_PER_DEG, 0.02, 5.0 * _RAD_PER_DEG)
        elif self.wild_init:
            spread = (0.05, math.pi, 0.02, 2.0 * _RAD_PER_DEG)
        else:
            spread = (0.02, 2.0 * _RAD_PER_DEG, 0.0, _RAD_PER_DEG)
        center = 0.0 if self.swing_up else math.pi
        low = (-spread[0], center - spread[1], -spread[2], -spread[3])
        return low, (spread[0], center + spread[1], spread[2], spread[3])

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Kinetic energy of cart, motor and pole, and height of the pole above hanging, in J."""
        _, theta, x_dot, theta_dot = state
        cos = xp.cos(theta)
        kinetic = 0.5 * constants["total_mass"] * x_dot * x_dot + constants["lever"] * cos * x_dot * theta_dot
        kinetic = kinetic + 0.5 * constants["swing_inertia"] * theta_dot * theta_dot
        return kinetic + constants["weight_lever"] * (1.0 - cos)


def dead_zone(voltage: Column, low: Column, high: Column, xp: Any) -> Column:
    """``voltage``, or 0 where it lies in [low, high]: too weak to turn the motor."""
    return xp.where(xp.logical_and(voltage >= low, voltage <= high), 0.0 * voltage, voltage)
