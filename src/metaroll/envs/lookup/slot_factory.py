"""The fitting ``Slots`` for an environment: its own batched simulator, or else a list of environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from metaroll.envs.base.batching import has_simulator, is_batched, unguarded
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.classic_control.gymnasium_classic import classic_simulator, is_classic
from metaroll.envs.lookup.registry import get_family, has_family
from metaroll.envs.lookup.source import env_source, is_env_instance, make_env
from metaroll.envs.mujoco.gymnasium_envs import gymnasium_simulator, is_gymnasium_id
from metaroll.envs.sims.registration import sim_constructor
from metaroll.envs.slots.gym_slots import GymSlots, env_name
from metaroll.envs.slots.vector_slots import VectorEnvSlots
from metaroll.types import EnvUpdate, RolloutPlan, Slots

__all__ = ["env_kind", "env_source", "make_env", "make_slots"]


def make_slots(
    source: Any,
    num_slots: int,
    *,
    share: bool = False,
    reachable: bool = False,
    plans: Sequence[RolloutPlan] = (),
) -> Slots:
    """``num_slots`` environments as ``Slots``.

    An environment announces a batched simulator with a method ``batched_slots(num_slots) -> Slots``, and with
    ``accepts_update(update) -> bool`` which updates that can apply. It is used where the environment accepts the
    updates of all ``plans``, and is not wrapped, or only by wrappers that announce the same
    (``metaroll.envs.wrappers``). Gymnasium's own MuJoCo environments of version 5 are stepped together, too
    (``metaroll.envs.mujoco``), in as many threads as ``physics_threads`` says, and so is its classic control
    (``metaroll.envs.classic_control``). The rollouts are the same either way.

    Args:
        source: An id (``"point-robot"``, ``"Pendulum-v1"``), a class or function that makes an environment, an
            environment (copied), a vector environment or a function that makes one, or ``Slots``, which are returned
            as they are.
        num_slots: How many.
        share: Step the given environment itself, in the one slot there is.
        reachable: Step classic control as a list, whose environments can be asked for, and given, attributes.
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
    if kind == "vector":
        return VectorEnvSlots(env, owned=env is not source)
    slots: Slots
    if (robot := gymnasium_simulator(env)) is not None:
        slots = SimulatorSlots(int(num_slots), robot)
    elif (classic := classic_simulator(env)) is not None:
        if reachable:
            return GymSlots(source, num_slots)
        slots = SimulatorSlots(int(num_slots), classic)
    else:
        slots = unguarded(env).batched_slots(int(num_slots))
    slots.info = replace(slots.info, name=env_name(env))  # as in a list
    return slots


def env_kind(source: Any, plans: Sequence[RolloutPlan] = ()) -> Literal["batched", "list", "physics", "vector"]:
    """Which kind of ``Slots`` ``make_slots`` makes of ``source`` for ``plans``.

    "physics" are batched simulators whose steps cost much, so that a few dozen are enough (MuJoCo's). "vector"
    environments have a number of slots of their own, whatever is asked for. A function has to be called to find out;
    ids, classes and environments tell without.
    """
    if _is_slots(source):
        return "list" if isinstance(source, GymSlots) else "batched"
    if isinstance(source, str):
        simulator = sim_constructor(source)
        if simulator is not None:
            source = simulator
        elif has_family(source):
            source = get_family(source).env_constructor
        elif not is_gymnasium_id(source):
            if not is_classic(source):
                return "list"
        elif not _differing_updates(plans):
            return "physics"
    if isinstance(source, type) and not is_classic(source):
        if not has_simulator(source):
            return "vector" if issubclass(source, VectorEnv) else "list"
        if not _differing_updates(plans) and not issubclass(source, gymnasium.Wrapper):
            return _kind_of_batch(source)
        make: Any = source
        env = make()
    elif is_env_instance(source):
        env = source
    else:
        env = make_env(source)
    if isinstance(env, VectorEnv):
        return "vector"
    classic = None if is_batched(env) else classic_simulator(env)
    if classic is not None:
        return "batched" if all(classic.accepts_plan(plan) for plan in plans) else "list"
    updates = _differing_updates(plans)
    robot = None if is_batched(env) else gymnasium_simulator(env)
    if robot is not None:
        return "physics" if all(robot.accepts_update(update) for update in updates) else "list"
    if not is_batched(env) or not all(unguarded(env).accepts_update(update) for update in updates):
        return "list"
    return _kind_of_batch(getattr(env, "unwrapped", env))


def _kind_of_batch(env: Any) -> Literal["batched", "physics"]:
    """An environment (or class) with an attribute ``is_physics`` that is true brings an expensive simulator."""
    return "physics" if getattr(env, "is_physics", False) else "batched"


def _differing_updates(plans: Sequence[RolloutPlan]) -> list[EnvUpdate]:
    updates = {id(plan.env_update): plan.env_update for plan in plans if plan.env_update is not None}
    return list(updates.values())


def _is_slots(source: Any) -> bool:
    return not isinstance(source, type | str) and not isinstance(source, gymnasium.Env) and isinstance(source, Slots)
