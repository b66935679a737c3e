"""Four draws from a Gaussian in the plane, for checks of simulation-based inference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, symmetric
from metaroll.envs.sims.params import Param

__all__ = ["Gaussian2DModel"]

_NUM_DRAWS = 4
_JITTER = 1e-6


class Gaussian2DModel(SimModel):
    """Two-dimensional Gaussian: the state is four draws, whose likelihood under the parameters is known.

    Mean (m_1, m_2); covariance [[a^2, r a b], [r a b, b^2]] + 1e-6 I with a = s_1^2, b = s_2^2, r = tanh(rho). The
    draws are the initial state, so that a seed fixes them; the only step keeps them, and its action does nothing.
    """

    name = "two-dimensional Gaussian"
    state_labels = tuple(f"{axis}_{draw}" for draw in range(1, _NUM_DRAWS + 1) for axis in ("x", "y"))
    observation_labels = state_labels
    action_labels = ("unused",)
    dt = 1.0
    max_steps = 1
    params: Mapping[str, Param] = {
        "m_1": Param(0.7),
        "m_2": Param(-1.5),
        "s_1": Param(-1.0),
        "s_2": Param(-0.9),
        "rho": Param(0.6),
    }
    num_uniforms = 2 * _NUM_DRAWS

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, and the Cholesky factor of the covariance."""
        a, b = params["s_1"] * params["s_1"], params["s_2"] * params["s_2"]
        first = xp.sqrt(a * a + _JITTER)
        mixed = xp.tanh(params["rho"]) * a * b / first
        return {**params, "l_11": first, "l_21": mixed, "l_22": xp.sqrt(b * b + _JITTER - mixed * mixed)}

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """The draws stay."""
        return state, ()

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Bounds of actions, which have no effect."""
        return symmetric(1.0)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Anywhere in the plane."""
        return symmetric(*(math.inf for _ in self.state_labels))

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Anywhere in the plane."""
        return self.state_bounds(constants)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        """Draws from the Gaussian (Box-Muller)."""
        draws: list[Column] = []
        for first, second in zip(uniforms[::2], uniforms[1::2], strict=True):
            # slightly less than 1 at most, where the logarithm is finite, also in float32
            radius = xp.sqrt(-2.0 * xp.log(1.0 - (1.0 - 2.0**-23) * first))
            z_1, z_2 = radius * xp.cos(2.0 * math.pi * second), radius * xp.sin(2.0 * math.pi * second)
            draws.append(constants["m_1"] + constants["l_11"] * z_1)
            draws.append(constants["m_2"] + constants["l_21"] * z_1 + constants["l_22"] * z_2)
        return tuple(draws)
