"""The fitting ``Slots`` for an environment: its own batched simulator, or else a list of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from metaroll.envs.gym_slots import GymSlots
from metaroll.envs.registry import family_names, get_family
from metaroll.envs.sources import env_source, is_env_instance, make_env
from metaroll.envs.vector_slots import VectorEnvSlots
from metaroll.types import EnvUpdate, RolloutPlan, Slots

__all__ = ["env_kind", "env_source", "make_env", "make_slots"]


def make_slots(source: Any, num_slots: int, *, share: bool = False, plans: Sequence[RolloutPlan] = ()) -> Slots:
    """``num_slots`` environments as ``Slots``.

    An environment announces a batched simulator with a method ``batched_slots(num_slots) -> Slots``, and with
    ``accepts_update(update) -> bool`` which updates that can apply. It is used where the environment is not wrapped
    and accepts the updates of all ``plans``; the rollouts are the same either way.

    Args:
        source: An id (``"point-robot"``, ``"Pendulum-v1"``), a class or function that makes an environment, an
            environment (copied), a vector environment or a function that makes one, or ``Slots``, which are returned
            as they are.
        num_slots: How many.
        share: Step the given environment itself, in the one slot there is.
        plans: What will be run, as far as that is known.
    """
    if _is_slots(source):
        if source.num_slots != num_slots:
            raise ValueError(f"num_slots must be {source.num_slots}, as the given Slots have, got {num_slots}")
        return source
    if isinstance(num_slots, bool) or not isinstance(num_slots, int | np.integer) or num_slots < 1:
        raise ValueError(f"num_slots must be a whole number of at least 1, got {num_slots!r}")
    if share and isinstance(source, VectorEnv):
        raise ValueError(
            f"env must be one environment here, got the vector environment {type(source).__name__}; give it to a "
            "RolloutEngine, which runs many rollouts in it"
        )
    if share and is_env_instance(source):
        return GymSlots(source, num_slots, share=True)
    kind = env_kind(source, plans)
    if kind == "list":
        return GymSlots(source, num_slots)
    env = make_env(source)
    return VectorEnvSlots(env, owned=env is not source) if kind == "vector" else env.batched_slots(int(num_slots))


def env_kind(source: Any, plans: Sequence[RolloutPlan] = ()) -> Literal["batched", "list", "vector"]:
    """Which kind of ``Slots`` ``make_slots`` makes of ``source`` for ``plans``.

    "vector" environments have a number of slots of their own, whatever is asked for. A function has to be called to
    find out; ids, classes and environments tell without.
    """
    if _is_slots(source):
        return "list" if isinstance(source, GymSlots) else "batched"
    if isinstance(source, str):
        if source not in family_names():
            return "list"
        source = get_family(source).env_constructor
    if isinstance(source, type):
        if not _is_batched(source):
            return "vector" if issubclass(source, VectorEnv) else "list"
        if not _differing_updates(plans):
            return "batched"
        env = source()
    elif is_env_instance(source):
        env = source
    else:
        env = make_env(source)
    if isinstance(env, VectorEnv):
        return "vector"
    if not _is_batched(type(env)) or not all(env.accepts_update(update) for update in _differing_updates(plans)):
        return "list"
    return "batched"


def _is_batched(kind: type) -> bool:
    """Whether a class has a batched simulator that is still its own: no subclass has changed how it steps."""
    if not hasattr(kind, "batched_slots") or issubclass(kind, gymnasium.Wrapper):
        return False
    announced = _definer(kind, "batched_slots")
    return all(_definer(kind, name) >= announced for name in ("step", "reset"))


def _definer(kind: type, name: str) -> int:
    """Position in the method resolution order of the class that defines ``name``."""
    return next(i for i, base in enumerate(kind.__mro__) if name in base.__dict__)


def _differing_updates(plans: Sequence[RolloutPlan]) -> list[EnvUpdate]:
    updates = {id(plan.env_update): plan.env_update for plan in plans if plan.env_update is not None}
    return list(updates.values())


def _is_slots(source: Any) -> bool:
    return not isinstance(source, type | str) and not isinstance(source, gymnasium.Env) and isinstance(source, Slots)
