"""One mass on a spring with a damper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, symmetric
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param, normal

__all__ = ["OscillatorModel"]

_POSITION_BOUND, _SPEED_BOUND = 1.0, 10.0


class OscillatorModel(SimModel):
    """``m x'' = F - k x - d x'``; the action is the force F in N, up to the force that holds the spring 1 m from rest.

    Integrated by the semi-implicit Euler method: the explicit one would gain energy in spite of the damper.
    """

    name = "one mass oscillator"
    state_labels = ("x", "x_dot")
    observation_labels = ("x", "x_dot")
    action_labels = ("force",)
    dt = 0.02
    max_steps = 300
    params: Mapping[str, Param] = {
        "mass": Param(1.0, POSITIVE, normal(1 / 3, 1e-3)),
        "stiffness": Param(30.0, POSITIVE, normal(1 / 3, 1e-3)),
        "damping": Param(0.5, NON_NEGATIVE, normal(1 / 3, 1e-3)),
    }
    num_uniforms = 2

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        return {**params, "mobility": 1.0 / params["mass"]}

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        x, x_dot = state
        force = action[0] - constants["stiffness"] * x - constants["damping"] * x_dot
        x_dot = x_dot + dt * (force * constants["mobility"])
        return (x + dt * x_dot, x_dot), memory

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return symmetric(_POSITION_BOUND * constants["stiffness"])

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return symmetric(_POSITION_BOUND, _SPEED_BOUND)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-0.75, -0.1), (-0.65, 0.1)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        return -0.75 + 0.1 * uniforms[0], -0.1 + 0.2 * uniforms[1]

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        x, x_dot = state
        return 0.5 * constants["mass"] * x_dot * x_dot + 0.5 * constants["stiffness"] * x * x
