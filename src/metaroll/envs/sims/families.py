"""The simulated systems as families of tasks: their constants vary as they do by default (specs/sampling.md 16.4)."""

from __future__ import annotations

import functools

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.sims.registration import SIMS, SimMaker, sim_constructor
from metaroll.envs.sims.spreads import spreads_of
from metaroll.tasks.domain_randomizer import DomainRandomizer, params_from_rules
from metaroll.tasks.task_sources import ParamTasks

__all__: list[str] = []

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
"""Those of the environments, which need not be loaded to list the families; 2dg has no default spreads."""


def _randomizer(name: str) -> DomainRandomizer:
    model = sim_constructor(name)().model
    return DomainRandomizer(*params_from_rules(model.nominal, spreads_of(model) or {}), generator=0)


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
            ParamTasks(SimMaker(entry.short_name), functools.partial(_randomizer, entry.short_name)),
            0.2,
        )
    )
