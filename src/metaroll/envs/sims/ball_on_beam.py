"""A ball that rolls on a beam whose torque is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from metaroll.envs.sims.model import NON_NEGATIVE, POSITIVE, Column, Columns, Constants, SimModel

__all__ = ["BallOnBeamModel"]

_RAD_PER_DEG = math.pi / 180.0
_NOMINAL = {
    "gravity_const": 9.81,
    "ball_mass": 0.5,
    "ball_radius": 0.1,
    "beam_mass": 3.0,
    "beam_length": 2.0,
    "beam_thickness": 0.1,
    "friction_coeff": 0.05,
    "ang_offset": 0.0,
}


class BallOnBeamModel(SimModel):
    """Ball on beam: ``x`` along the beam from its middle, ``alpha`` the beam's angle; the torque turns the beam.

    Semi-implicit Euler. A solid ball that rolls without slipping is as inert as 7/5 of its mass whatever its radius, so
    ``ball_radius`` changes nothing that is observed.
    """

    name = "ball on beam"
    state_labels = ("x", "alpha", "x_dot", "alpha_dot")
    observation_labels = state_labels
    action_labels = ("torque",)
    dt = 0.01
    max_steps = 500
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "gravity_const": POSITIVE,
        "ball_mass": POSITIVE,
        "ball_radius": POSITIVE,
        "beam_mass": POSITIVE,
        "beam_length": POSITIVE,
        "beam_thickness": POSITIVE,
        "friction_coeff": NON_NEGATIVE,
    }
    num_uniforms = 4

    def __init__(self) -> None:
        self.nominal = dict(_NOMINAL)

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

    def observe(self, state: Columns, xp: Any) -> Columns:
        """The state."""
        return state

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Three times the torque that a weight of 1 kg at the end of the beam makes."""
        most = 1.5 * constants["beam_length"] * constants["gravity_const"]
        return (-most,), (most,)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The ball on the beam, the beam within 45 deg."""
        high = (0.5 * constants["beam_length"], 0.25 * math.pi, 10.0, math.pi)
        return tuple(-bound for bound in high), high

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """The box around all initial states; ``initial_state`` leaves out its middle, ``|x| < 0.35 beam_length``."""
        high = (0.4 * constants["beam_length"], 5.0 * _RAD_PER_DEG, 0.2, 0.02 * math.pi)
        return tuple(-bound for bound in high), high

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        """The ball near one of the ends, moving a little."""
        side, alpha, x_dot, alpha_dot = uniforms
        centered = 2.0 * side - 1.0  # its sign chooses the end, its size the place
        # 0.35 to 0.4 beam lengths from the middle
        place = constants["beam_length"] * xp.where(centered < 0.0, 0.05 * centered - 0.35, 0.05 * centered + 0.35)
        spread = self.initial_bounds(constants)[1]
        return (
            place,
            spread[1] * (2.0 * alpha - 1.0),
            spread[2] * (2.0 * x_dot - 1.0),
            spread[3] * (2.0 * alpha_dot - 1.0),
        )

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        """Kinetic energy of ball and beam, and height of the ball above the beam's middle, in J."""
        x, alpha, x_dot, alpha_dot = state
        inertia = constants["ball_mass"] * x * x + constants["beam_inertia"]
        kinetic = 0.5 * (constants["rolling_mass"] * x_dot * x_dot + inertia * alpha_dot * alpha_dot)
        return kinetic + constants["weight"] * x * xp.sin(alpha + constants["ang_offset"])
