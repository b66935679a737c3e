"""One mass on a spring with a damper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from metaroll.envs.sims.model import NON_NEGATIVE, Column, Columns, Constants, SimModel

__all__ = ["OscillatorModel"]

_NOMINAL = {"mass": 1.0, "stiffness": 30.0, "damping": 0.5}
_POSITION_BOUND, _SPEED_BOUND = 1.0, 10.0


class OscillatorModel(SimModel):
    """``m x'' = F - k x - d x'``; the action is the force F in N, up to what holds the spring 1 m out of rest.

    Integrated by the semi-implicit Euler method: the explicit one would gain energy in spite of the damper.
    """

    name: ClassVar[str] = "one mass oscillator"
    state_labels: ClassVar[tuple[str, ...]] = ("x", "x_dot")
    observation_labels: ClassVar[tuple[str, ...]] = ("x", "x_dot")
    action_labels: ClassVar[tuple[str, ...]] = ("force",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "mass": (0.0, float("inf")),
        "stiffness": (0.0, float("inf")),
        "damping": NON_NEGATIVE,
    }
    num_uniforms: ClassVar[int] = 2

    def __init__(self) -> None:
        self.dt, self.max_steps = 0.02, 300
        self.nominal = dict(_NOMINAL)

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        return {**params, "mobility": 1.0 / params["mass"]}

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        x, x_dot = state
        force = action[0] - constants["stiffness"] * x - constants["damping"] * x_dot
        x_dot = x_dot + dt * (force * constants["mobility"])
        return (x + dt * x_dot, x_dot), memory

    def observe(self, state: Columns, xp: Any) -> Columns:
        return state

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        most = _POSITION_BOUND * constants["stiffness"]
        return (-most,), (most,)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-_POSITION_BOUND, -_SPEED_BOUND), (_POSITION_BOUND, _SPEED_BOUND)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-0.75, -0.1), (-0.65, 0.1)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        return -0.75 + 0.1 * uniforms[0], -0.1 + 0.2 * uniforms[1]

    def energy(self, state: Columns, constants: Constants, xp: Any) -> Column:
        x, x_dot = state
        return 0.5 * constants["mass"] * x_dot * x_dot + 0.5 * constants["stiffness"] * x * x
