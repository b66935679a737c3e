"""Which of Gymnasium's own classic-control environments can be stepped as arrays, and how."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.spaces import Box, Discrete

from metaroll.envs.base.batching import is_as_defined, unwrapped_and_limit
from metaroll.envs.classic_control.classic_slots import ClassicControlSetting, ClassicControlSlots
from metaroll.envs.classic_control.formulas import FORMULAS, Formula
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.types import EnvSpec, RolloutPlan

__all__ = ["classic_setting", "is_classic"]

_MODULE = "gymnasium.envs.classic_control."
_TRIED_SLOTS, _TRIED_STEPS = 4, 32


def is_classic(source: str | type) -> bool:
    """Whether an id or class makes, as far as it tells, an environment that ``classic_setting`` knows."""
    if isinstance(source, type):
        return _formula_of(source) is not None
    registered: Registration | None = gymnasium.registry.get(source)
    entry = None if registered is None else registered.entry_point
    return isinstance(entry, str) and entry.startswith(_MODULE) and entry.removeprefix(_MODULE) in FORMULAS


def classic_setting(env: Any) -> ClassicControlSetting | None:
    """What copies of ``env`` have in common; ``None`` unless it is exactly one of Gymnasium's own, and not drawn.

    Around it may be wrappers that only count and check: ``TimeLimit``, ``OrderEnforcing``, ``PassiveEnvChecker``.
    Attributes may have been changed as far as the formula reads them.
    """
    inner, limit = unwrapped_and_limit(env)
    formula = _formula_of(type(inner))
    if formula is None or inner.render_mode is not None or not is_as_defined(inner):
        return None
    values: dict[str, Any] = {name: getattr(inner, name, None) for name in formula.params}
    same = all(_is_same(getattr(inner, name, None), expected) for name, expected in formula.fixed.items())
    if not same or any(type(value) not in (int, float) for value in values.values()) or not _fits(inner):
        return None
    setting = ClassicControlSetting(formula, values, EnvSpec.from_env(env), limit)
    return setting if setting.constants(None) is not None and _agrees(type(inner)) else None


def _formula_of(kind: type) -> Formula | None:
    if not kind.__module__.startswith(_MODULE):
        return None
    return FORMULAS.get(f"{kind.__module__.removeprefix(_MODULE)}:{kind.__qualname__}")


def _is_same(value: Any, expected: Any) -> bool:
    return isinstance(value, bool | int | float | str | list) and value == expected


def _fits(inner: Any) -> bool:
    """Whether its spaces are of the kind that it was written with."""
    action, observation = inner.action_space, inner.observation_space
    return (
        isinstance(observation, Box)
        and observation.dtype == np.float32
        and len(observation.shape) == 1
        and (
            (isinstance(action, Box) and action.dtype == np.float32 and action.shape == (1,))
            or (isinstance(action, Discrete) and action.start == 0)
        )
    )


@functools.cache
def _agrees(kind: type) -> bool:
    """Whether the Gymnasium that is installed steps as the formula does (another release may not), tried once."""
    envs = [kind() for _ in range(_TRIED_SLOTS)]
    formula, space = _formula_of(kind), envs[0].action_space
    if formula is None:
        return False
    values = {name: getattr(envs[0], name) for name in formula.params}
    slots = ClassicControlSlots(_TRIED_SLOTS, ClassicControlSetting(formula, values, EnvSpec.from_env(envs[0])))
    plans = [RolloutPlan(i, (0, 0, i)) for i in range(_TRIED_SLOTS)]
    first = slots.reset(range(_TRIED_SLOTS), plans)
    for env, plan, row in zip(envs, plans, first, strict=True):
        if not np.array_equal(env.reset(seed=plan_env_seed(plan.seed or (0, 0, 0)))[0], row):
            return False
    generator, active = np.random.default_rng(0), np.ones(_TRIED_SLOTS, dtype=bool)
    for _ in range(_TRIED_STEPS):
        if isinstance(space, Discrete):
            actions = generator.integers(space.n, size=_TRIED_SLOTS)
            rows: list[Any] = actions.tolist()
        else:
            actions = generator.uniform(-3.0, 3.0, (_TRIED_SLOTS, 1)).astype(np.float32)
            rows = list(actions)
        step = slots.step(actions, active)
        for slot in np.flatnonzero(active).tolist():
            observation, reward, terminated, _, _ = envs[slot].step(rows[slot])
            if not np.array_equal(observation, step.observations[slot]):
                return False
            if (reward, terminated) != (step.rewards[slot], step.terminated[slot]):
                return False
        active &= ~step.terminated
    return True
