"""Quanser's ball balancer: a ball on a plate that two servos tilt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.cart_pole import dead_zone
from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, symmetric
from metaroll.envs.sims.params import EFFICIENCY, NON_NEGATIVE, POSITIVE, Param, normal, uniform, within

__all__ = ["BallBalancerModel"]

_MAX_VOLTAGE = 3.0
_ROD_LENGTH = 0.10  # m, from a servo's arm to the edge of the plate


class BallBalancerModel(SimModel):
    """Ball balancer: servo angles ``theta_x``, ``theta_y``, 0 where the plate is level; ``x``, ``y`` from its middle.

    Semi-implicit Euler; the memory holds the angles ``alpha`` and ``beta`` by which the plate is tilted along x and y,
    which follow from the servos by an explicit Euler step. Either axis obeys the same equations: a positive angle of a
    servo tilts the plate so that the ball rolls to positive coordinates. ``ball_radius`` acts through the ball's
    inertia.

    Args:
        simple_dynamics: Leave out the dead zones, friction, and all of the plate's motion except its slope.
    """

    name = "ball balancer"
    state_labels = ("theta_x", "theta_y", "x", "y", "theta_x_dot", "theta_y_dot", "x_dot", "y_dot")
    observation_labels = state_labels
    action_labels = ("voltage_x", "voltage_y")
    memory_labels = ("alpha", "beta")
    dt = 0.01
    max_steps = 500
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, POSITIVE, normal(0.1, 1e-4)),
        "ball_mass": Param(0.003, POSITIVE, normal(0.2, 1e-4)),
        "ball_radius": Param(0.019625, POSITIVE, normal(0.2, 1e-3)),
        "plate_length": Param(0.275, POSITIVE, normal(0.2, 5e-2)),
        "arm_radius": Param(0.0254, POSITIVE, normal(0.2, 1e-4)),
        "gear_ratio": Param(70.0, POSITIVE, normal(0.25, 1e-2)),
        "gear_efficiency": Param(0.9, EFFICIENCY, uniform(0.25, 1e-4, 1.0)),
        "motor_efficiency": Param(0.69, EFFICIENCY, uniform(0.25, 1e-4, 1.0)),
        "load_inertia": Param(5.2822e-5, POSITIVE, normal(0.25, 1e-6)),
        "motor_inertia": Param(4.6063e-7, POSITIVE, normal(0.25, 1e-9)),
        "motor_back_emf": Param(0.0077, POSITIVE, normal(0.25, 1e-4)),
        "motor_resistance": Param(2.6, POSITIVE, normal(0.25, 1e-4)),
        "combined_damping": Param(0.015, NON_NEGATIVE, uniform(0.25, 1e-4)),
        "ball_damping": Param(0.05, NON_NEGATIVE, uniform(0.25, 1e-4)),
        "voltage_thold_x_pos": Param(0.28, varies=uniform(1 / 3)),
        "voltage_thold_x_neg": Param(-0.10, varies=uniform(1 / 3)),
        "voltage_thold_y_pos": Param(0.28, varies=uniform(1 / 3)),
        "voltage_thold_y_neg": Param(-0.074, varies=uniform(1 / 3)),
        "offset_th_x": Param(0.0, varies=within(math.radians(6.0))),
        "offset_th_y": Param(0.0, varies=within(math.radians(6.0))),
    }
    ordered = tuple((f"voltage_thold_{axis}_neg", f"voltage_thold_{axis}_pos") for axis in "xy")
    num_uniforms = 4

    def __init__(self, simple_dynamics: bool = False) -> None:
        self.simple_dynamics = simple_dynamics

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, inertias, and gains of servos and plate."""
        mass, radius2 = params["ball_mass"], params["ball_radius"] * params["ball_radius"]
        ball_inertia = 0.4 * mass * radius2
        zeta = mass * radius2 + ball_inertia
        geared = params["gear_efficiency"] * params["gear_ratio"] * params["gear_ratio"]
        servo_inertia = geared * params["motor_inertia"] + params["load_inertia"]
        motor = params["motor_efficiency"] * params["motor_back_emf"] / params["motor_resistance"]
        tilt = 2.0 * params["arm_radius"] / params["plate_length"]
        return {
            **params,
            "servo_inertia": servo_inertia,
            "acc_per_volt": params["gear_efficiency"] * params["gear_ratio"] * motor / servo_inertia,
            "servo_drag": (geared * motor * params["motor_back_emf"] + params["combined_damping"]) / servo_inertia,
            "tilt": tilt,
            "rolling_mass": zeta / radius2,
            "fall": tilt * mass * params["gravity_const"] * radius2 / zeta,
            "ball_drag": params["ball_damping"] * radius2 / zeta,
            "swing": mass * radius2 / zeta,
            "spin": ball_inertia * params["ball_radius"] / zeta,
            "reach": 0.5 * params["plate_length"],
        }

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """See ``SimModel.step``."""
        columns, angles = [], []
        for axis, name in enumerate(("x", "y")):
            voltage = action[axis]
            if not self.simple_dynamics:
                low, high = constants[f"voltage_thold_{name}_neg"], constants[f"voltage_thold_{name}_pos"]
                voltage = dead_zone(voltage, low, high, xp)
            own = (state[axis], state[2 + axis], state[4 + axis], state[6 + axis])
            offset = constants[f"offset_th_{name}"]
            following, angle = self._step_axis(own, memory[axis], voltage, offset, constants, dt, xp)
            columns.append(following)
            angles.append(angle)
        return tuple(column for pair in zip(*columns, strict=True) for column in pair), tuple(angles)

    def _step_axis(
        self, own: Columns, angle: Column, voltage: Column, offset: Column, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Column]:
        """Servo, ball and plate along one axis."""
        theta, place, theta_dot, place_dot = own
        tilt = constants["tilt"]
        sin, cos = xp.sin(theta + offset), xp.cos(theta + offset)
        sin_angle, cos_angle = xp.sin(angle), xp.cos(angle)
        theta_acc = constants["acc_per_volt"] * voltage - constants["servo_drag"] * theta_dot
        # sin(angle) = tilt * sin(theta), differentiated once and twice
        angle_dot = tilt * theta_dot * cos / cos_angle
        place_acc = constants["fall"] * sin
        if not self.simple_dynamics:
            spun = tilt * (theta_acc * cos - theta_dot * theta_dot * sin)
            angle_dot2 = angle_dot * angle_dot
            angle_acc = (spun + angle_dot2 * sin_angle) / cos_angle
            place_acc = (
                place_acc
                - constants["ball_drag"] * place_dot
                - constants["spin"] * angle_acc
                + constants["swing"] * place * angle_dot2
            )
        theta_dot = theta_dot + dt * theta_acc
        place_dot = place_dot + dt * place_acc
        return (theta + dt * theta_dot, place + dt * place_dot, theta_dot, place_dot), angle + dt * angle_dot

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """3 V either way."""
        return symmetric(_MAX_VOLTAGE, _MAX_VOLTAGE)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The ball on the plate, the servos within 45 deg."""
        reach = constants["reach"]
        return symmetric(0.25 * math.pi, 0.25 * math.pi, reach, reach, 5.0 * math.pi, 5.0 * math.pi, 0.5, 0.5)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Of distance from the middle, direction, and the ball's velocity along x and y."""
        reach = constants["reach"]
        return (0.75 * reach, -math.pi, -0.025, -0.025), (0.8 * reach, math.pi, 0.025, 0.025)

    def state_from_init(self, init: Columns, constants: Constants, xp: Any) -> Columns:
        """The servos at rest at 0, the ball at polar coordinates ``(distance, direction)`` moving with ``(vx, vy)``."""
        distance, direction, x_dot, y_dot = init
        zero = 0.0 * distance
        x, y = distance * xp.cos(direction), distance * xp.sin(direction)
        return zero, zero, x, y, zero, zero, x_dot, y_dot

    def initial_memory(self, state: Columns, constants: Constants, xp: Any) -> Columns:
        """The plate's angles where rods and arms hold it: the intersection of two circles."""
        return (
            _plate_angle(state[0] + constants["offset_th_x"], constants, xp),
            _plate_angle(state[1] + constants["offset_th_y"], constants, xp),
        )

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Of the ball, on a plate tilted by the servos, and of the turning servos, in J.

        Conserved without friction while the servos rest: they are not moved by the ball.
        """
        theta_x, theta_y, x, y, theta_x_dot, theta_y_dot, x_dot, y_dot = state
        kinetic = 0.5 * constants["rolling_mass"] * (x_dot * x_dot + y_dot * y_dot)
        servos = 0.5 * constants["servo_inertia"] * (theta_x_dot * theta_x_dot + theta_y_dot * theta_y_dot)
        slope_x, slope_y = xp.sin(theta_x + constants["offset_th_x"]), xp.sin(theta_y + constants["offset_th_y"])
        force = constants["fall"] * constants["rolling_mass"]
        return kinetic + servos - force * (x * slope_x + y * slope_y)


def _plate_angle(theta: Column, constants: Constants, xp: Any) -> Column:
    """Angle of the plate where a servo's arm is at ``theta``, positive where the arm lifts the plate's edge.

    The edge is as far from the arm's tip as the rod is long, and as far from the plate's joint as half the plate: the
    one of the two such points that is straight above the tip at ``theta = 0``, where the plate is level.
    """
    arm, half = constants["arm_radius"], constants["reach"]
    to_joint_x = arm + half - arm * xp.cos(theta)
    to_joint_y = _ROD_LENGTH - arm * xp.sin(theta)
    distance2 = to_joint_x * to_joint_x + to_joint_y * to_joint_y
    along = 0.5 + 0.5 * (_ROD_LENGTH * _ROD_LENGTH - half * half) / distance2
    # If the circles do not intersect (the rod is too short), the plate is as near as possible.
    across = xp.sqrt(xp.clip(_ROD_LENGTH * _ROD_LENGTH / distance2 - along * along, 0.0, None))
    edge_x = (1.0 - along) * to_joint_x + across * to_joint_y  # from the edge to the joint, horizontally
    edge_y = across * to_joint_x - (1.0 - along) * to_joint_y  # from the joint up to the edge
    return xp.atan2(edge_y, edge_x)
