"""The simulated systems as families of tasks: their constants vary as they do by default (specs/sampling.md 16.4)."""

from __future__ import annotations

import functools
from typing import Any

from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.sims.registration import SIMS, sim_constructor
from metaroll.envs.sims.spreads import spreads_of
from metaroll.tasks.domain_randomizer import DomainRandomizer, params_from_rules

__all__ = ["SimMaker", "sim_families"]

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


class SimMaker:
    """Makes the simulated environment of a name, whose class is loaded only then."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, render_mode: str | None = None) -> Any:
        return sim_constructor(self.name)(render_mode=render_mode)

    def __repr__(self) -> str:
        return f"SimMaker({self.name!r})"


def sim_families() -> list[TaskFamily]:
    """A family for each simulated system whose constants have default spreads."""
    return [
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
        for entry in SIMS
        if entry.short_name in _HORIZONS
    ]


def _randomizer(name: str) -> DomainRandomizer:
    model = sim_constructor(name)().model
    params = params_from_rules(model.nominal, spreads_of(model) or {})
    return DomainRandomizer(*params, generator=0, env_constructor=SimMaker(name))
