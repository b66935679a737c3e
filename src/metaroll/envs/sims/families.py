"""The simulated environments by id and by name, and as families of tasks with randomized domain parameters."""

from __future__ import annotations

import functools
from typing import Any

from metaroll.envs.base.constructors import register_env
from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.sims.catalog import SIMS
from metaroll.tasks.domain_randomizer import DomainRandomizer, params_from_rules

__all__: list[str] = []


def _randomizer(env_type: type[Any]) -> DomainRandomizer:
    model = env_type().model
    params = params_from_rules(model.nominal, model.default_ranges)
    return DomainRandomizer(*params, generator=0, env_constructor=env_type)


for _id, _name, _env_type, _text in SIMS:
    register_env(_id, _env_type)
    register_env(_name, _env_type)
    _model = _env_type().model
    if _model.default_ranges:
        _source = functools.partial(_randomizer, _env_type)
        _about = f"{_text}; randomized domain parameters"
        register_family(TaskFamily(_name, _env_type, 80, 20, _model.max_steps, _about, _source, 0.2))
