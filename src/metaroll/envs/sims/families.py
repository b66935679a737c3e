"""How the constants of the simulated systems vary by default, and the systems as families of such tasks."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.sims.model import SimModel
from metaroll.envs.sims.registration import SIMS, SimMaker, sim_constructor
from metaroll.tasks.distributions import BernoulliDomainParam, DomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer, RandomizationRange, params_from_rules

__all__ = ["DEFAULT_RANGES", "ranges_of"]

_HORIZONS = {
    "omo": 300,
    "pend": 400,
    "bob": 500,
    "qcp-st": 300,
    "qcp-su": 8000,
    "qq-st": 500,
    "qq-su": 4000,
    "qbb": 500,
    "cata": 1,
}
"""Those of the environments, which need not be loaded to list the families; 2dg has no default ranges."""


def _normal(fraction: float, lowest: float) -> RandomizationRange:
    return RandomizationRange("normal", fraction, lowest)


def _uniform(fraction: float, lowest: float = -math.inf, highest: float = math.inf) -> RandomizationRange:
    return RandomizationRange("uniform", fraction, lowest, highest)


def _within(halfspan: float) -> RandomizationRange:
    return RandomizationRange("uniform", halfspan, absolute=True)


DEFAULT_RANGES: dict[str, dict[str, RandomizationRange | DomainParam]] = {
    "one mass oscillator": {
        "mass": _normal(1 / 3, 1e-3),
        "stiffness": _normal(1 / 3, 1e-3),
        "damping": _normal(1 / 3, 1e-3),
    },
    "pendulum": {
        "gravity_const": _normal(0.1, 1e-3),
        "pole_mass": _normal(0.1, 1e-3),
        "pole_length": _normal(0.1, 1e-3),
        "pole_damping": _normal(0.1, 1e-3),
        "torque_thold": _normal(0.1, 1e-3),
    },
    "ball on beam": {
        "gravity_const": _normal(0.1, 1e-4),
        "ball_mass": _normal(0.2, 1e-4),
        "ball_radius": _normal(0.2, 1e-4),
        "beam_mass": _normal(0.2, 1e-3),
        "beam_length": _normal(0.2, 1e-3),
        "beam_thickness": _normal(0.2, 1e-3),
        "friction_coeff": _uniform(1.0, 0.0),
        "ang_offset": _within(math.radians(0.1)),
    },
    "cart-pole": {
        "gravity_const": _normal(0.1, 1e-4),
        "cart_mass": _normal(0.2, 1e-4),
        "rail_length": _normal(0.2, 0.11),  # shorter ones leave the cart no room between its margins
        "motor_efficiency": _uniform(0.25, 1e-4, 1.0),
        "gear_efficiency": _uniform(0.25, 1e-4, 1.0),
        "gear_ratio": _normal(0.25, 1e-4),
        "motor_inertia": _normal(0.25, 1e-9),
        "pinion_radius": _normal(0.2, 1e-4),
        "motor_resistance": _normal(0.25, 1e-4),
        "motor_back_emf": _normal(0.25, 1e-4),
        "pole_damping": _uniform(0.25, 1e-4),
        "combined_damping": _uniform(0.25, 1e-4),
        "pole_mass": _normal(0.2, 1e-4),
        "pole_length": _normal(0.2, 1e-2),
        "cart_friction_coeff": _uniform(0.5, 0.0),
    },
    "Qube": {
        "gravity_const": _normal(0.1, 1e-3),
        "motor_resistance": _normal(0.2, 1e-3),
        "motor_back_emf": _normal(0.2, 1e-4),
        "mass_rot_pole": _normal(0.2, 1e-4),
        "length_rot_pole": _normal(0.2, 1e-4),
        "damping_rot_pole": _normal(0.25, 1e-9),
        "mass_pend_pole": _normal(0.2, 1e-4),
        "length_pend_pole": _normal(0.2, 1e-4),
        "damping_pend_pole": _normal(0.25, 1e-9),
    },
    "ball balancer": {
        "gravity_const": _normal(0.1, 1e-4),
        "ball_mass": _normal(0.2, 1e-4),
        "ball_radius": _normal(0.2, 1e-3),
        "plate_length": _normal(0.2, 5e-2),
        "arm_radius": _normal(0.2, 1e-4),
        "gear_ratio": _normal(0.25, 1e-2),
        "gear_efficiency": _uniform(0.25, 1e-4, 1.0),
        "motor_efficiency": _uniform(0.25, 1e-4, 1.0),
        "load_inertia": _normal(0.25, 1e-6),
        "motor_inertia": _normal(0.25, 1e-9),
        "motor_back_emf": _normal(0.25, 1e-4),
        "motor_resistance": _normal(0.25, 1e-4),
        "combined_damping": _uniform(0.25, 1e-4),
        "ball_damping": _uniform(0.25, 1e-4),
        "voltage_thold_x_pos": _uniform(1 / 3),
        "voltage_thold_x_neg": _uniform(1 / 3),
        "voltage_thold_y_pos": _uniform(1 / 3),
        "voltage_thold_y_neg": _uniform(1 / 3),
        "offset_th_x": _within(math.radians(6.0)),
        "offset_th_y": _within(math.radians(6.0)),
    },
    "catapult": {
        "gravity_const": _normal(0.1, 1e-3),
        "stiffness": _normal(0.2, 1e-3),
        "elongation": _normal(0.2, 1e-3),
        "planet": BernoulliDomainParam("planet", val_0=0.0, val_1=1.0, prob_1=0.7),
    },
}
"""Name of a system -> domain parameter -> range around its nominal value, or distribution.

A system may lack some of the parameters: a catapult has either a planet or the rest.
"""


def ranges_of(model: Any) -> Mapping[str, RandomizationRange | DomainParam] | None:
    """Those of the parameters that ``model`` has; ``None`` for what is no system of the table."""
    if not isinstance(model, SimModel) or model.name not in DEFAULT_RANGES:
        return None
    return {name: values for name, values in DEFAULT_RANGES[model.name].items() if name in model.nominal}


def _randomizer(name: str) -> DomainRandomizer:
    model = sim_constructor(name)().model
    params = params_from_rules(model.nominal, ranges_of(model) or {})
    return DomainRandomizer(*params, generator=0, env_constructor=SimMaker(name))


for entry in SIMS:
    if entry.short_name not in _HORIZONS:
        continue
    register_family(
        TaskFamily(
            entry.short_name,
            SimMaker(entry.short_name),
            80,
            20,
            _HORIZONS[entry.short_name],
            f"{entry.description}; random constants",
            functools.partial(_randomizer, entry.short_name),
            0.2,
        )
    )
