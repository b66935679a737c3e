"""A ball that rolls on a beam whose torque is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, symmetric
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param, normal, uniform, within

__all__ = ["BallOnBeamModel"]

_RAD_PER_DEG = math.pi / 180.0


class BallOnBeamModel(SimModel):
    """Ball on beam: ``x`` along the beam from its middle, ``alpha`` the beam's angle, 0 where it is level.

    Semi-implicit Euler. A solid ball that rolls without slipping is as inert as 7/5 of its mass for any radius, so
    ``ball_radius`` changes nothing that is observed.
    """

    name = "ball on beam"
    state_labels = ("x", "alpha", "x_dot", "alpha_dot")
    observation_labels = state_labels
    action_labels = ("torque",)
    dt = 0.01
    max_steps = 500
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, POSITIVE, normal(0.1, 1e-4)),
        "ball_mass": Param(0.5, POSITIVE, normal(0.2, 1e-4)),
        "ball_radius": Param(0.1, POSITIVE, normal(0.2, 1e-4)),
        "beam_mass": Param(3.0, POSITIVE, normal(0.2, 1e-3)),
        "beam_length": Param(2.0, POSITIVE, normal(0.2, 1e-3)),
        "beam_thickness": Param(0.1, POSITIVE, normal(0.2, 1e-3)),
        "friction_coeff": Param(0.05, NON_NEGATIVE, uniform(1.0, 0.0)),
        "ang_offset": Param(0.0, varies=within(math.radians(0.1))),
    }
    num_uniforms = 4

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, inertias, and weights of the ball."""
        mass, length, thickness = params["ball_mass"], params["beam_length"], params["beam_thickness"]
        ball_inertia = 0.4 * mass * params["ball_radius"] * params["ball_radius"]
        rolling_mass = mass + ball_inertia / (params["ball_radius"] * params["ball_radius"])
        weight = mass * params["gravity_const"]
        return {
            **params,
            "weight": weight,
            "beam_inertia": params["beam_mass"] * (length * length + thickness * thickness) / 12.0,
            "rolling_mass": rolling_mass,
            "drag": params["friction_coeff"] / rolling_mass,
            "swing": mass / rolling_mass,
            "fall": weight / rolling_mass,
        }

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """See ``SimModel.step``."""
        x, alpha, x_dot, alpha_dot = state
        mass, angle = constants["ball_mass"], alpha + constants["ang_offset"]
        x_acc = (
            constants["swing"] * (x * (alpha_dot * alpha_dot))
            - constants["drag"] * x_dot
            - constants["fall"] * xp.sin(angle)
        )
        mass_x = mass * x
        alpha_acc = (action[0] - 2.0 * (mass_x * (x_dot * alpha_dot)) - constants["weight"] * x * xp.cos(angle)) / (
            mass_x * x + constants["beam_inertia"]
        )
        x_dot = x_dot + dt * x_acc
        alpha_dot = alpha_dot + dt * alpha_acc
        return (x + dt * x_dot, alpha + dt * alpha_dot, x_dot, alpha_dot), ()

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Three times the torque that a weight of 1 kg at the end of the beam makes."""
        return symmetric(1.5 * constants["beam_length"] * constants["gravity_const"])

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The ball on the beam, the beam within 45 deg."""
        return symmetric(0.5 * constants["beam_length"], 0.25 * math.pi, 10.0, math.pi)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The box around all initial states; ``initial_state`` leaves out its middle, ``|x| < 0.35 beam_length``."""
        return symmetric(0.4 * constants["beam_length"], 5.0 * _RAD_PER_DEG, 0.2, 0.02 * math.pi)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        """The ball near one of the ends, moving a little."""
        centered = 2.0 * uniforms[0] - 1.0  # its sign chooses the end, its size the place
        # 0.35 to 0.4 beam lengths from the middle
        place = constants["beam_length"] * xp.where(centered < 0.0, 0.05 * centered - 0.35, 0.05 * centered + 0.35)
        spread = self.initial_bounds(constants)[1]
        moving = (most * (2.0 * u - 1.0) for most, u in zip(spread[1:], uniforms[1:], strict=True))
        return place, *moving

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Kinetic energy of ball and beam, and height of the ball above the beam's middle, in J."""
        x, alpha, x_dot, alpha_dot = state
        inertia = constants["ball_mass"] * x * x + constants["beam_inertia"]
        kinetic = 0.5 * (constants["rolling_mass"] * x_dot * x_dot + inertia * alpha_dot * alpha_dot)
        return kinetic + constants["weight"] * x * xp.sin(alpha + constants["ang_offset"])
