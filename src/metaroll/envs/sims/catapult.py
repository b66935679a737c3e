"""A catapult that throws once, and is to be stretched just so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants, SimModel, symmetric
from metaroll.envs.sims.params import NON_NEGATIVE, POSITIVE, Param, normal
from metaroll.tasks.distributions import BernoulliDomainParam

__all__ = ["CatapultModel"]

_MASS = 70.0  # kg
_MAX_STRETCH = 1000.0
_MARS = {"gravity_const": 3.71, "stiffness": 1e3, "elongation": 0.5}
_VENUS = {"gravity_const": 8.87, "stiffness": 3e3, "elongation": 1.5}
_CHANCE = BernoulliDomainParam("planet", val_0=0.0, val_1=1.0, prob_1=0.7)
_PLANETS = {"planet": Param(0.0, (NON_NEGATIVE[0], 1.0), _CHANCE)}


class CatapultModel(SimModel):
    """Catapult: the action ``theta`` stretches a spring, which throws 70 kg up to the height that is the new state.

    Args:
        planets: The only domain parameter is ``planet``, 0 for Mars and 1 for Venus, which differ in gravity and in the
            spring; otherwise gravity, stiffness and elongation are free.
    """

    name = "catapult"
    state_labels = ("height",)
    observation_labels = state_labels
    action_labels = ("theta",)
    dt = 1.0
    max_steps = 1
    params: Mapping[str, Param] = {
        "gravity_const": Param(9.81, POSITIVE, normal(0.1, 1e-3)),
        "stiffness": Param(2000.0, POSITIVE, normal(0.2, 1e-3)),
        "elongation": Param(1.0, POSITIVE, normal(0.2, 1e-3)),
    }
    num_uniforms = 0

    def __init__(self, planets: bool = False) -> None:
        self.planets = planets
        self.params = _PLANETS if planets else type(self).params

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        """``params``, and the height that a square meter of stretching gives."""
        columns = dict(params)
        if self.planets:
            venus = params["planet"] > 0.5
            one = 0.0 * params["planet"] + 1.0  # where() of two numbers would choose its own dtype
            columns |= {name: xp.where(venus, one * _VENUS[name], one * _MARS[name]) for name in _MARS}
        columns["height_per_m2"] = columns["stiffness"] / (2.0 * _MASS * columns["gravity_const"])
        return columns

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        """All of the spring's energy becomes height."""
        stretch = action[0] - constants["elongation"]
        return (constants["height_per_m2"] * stretch * stretch,), ()

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """1000 m either way."""
        return symmetric(_MAX_STRETCH)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Any height."""
        return symmetric(math.inf)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """On the ground."""
        return (0.0,), (0.0,)

    def initial_state(self, uniforms: Columns, constants: Constants, xp: Any) -> Columns:
        """On the ground."""
        return (0.0 * constants["height_per_m2"],)
