"""Runs one rollout again, in this process, bit for bit."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.extras import module_mode
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["replay"]


def replay(
    plan: RolloutPlan | StepSequence,
    env: Any,
    policy: Any,
    *,
    env_update: EnvUpdate | None = None,
    context: Context | None = None,
    parameters: np.ndarray | None = None,
) -> StepSequence:
    """The rollout that ``plan`` describes, run again in this process with the same bits.

    Args:
        plan: A plan (``error.plan`` of a ``RolloutError``, say), or a rollout of the engine.
        env: As given to the engine.
        policy: As given to the engine.
        env_update: The task, where ``plan`` is a rollout (which knows only the task's data).
        context: What the policy was told, if that is to be another one than the rollout remembers.
        parameters: Flat policy parameters ``(P,)`` of then, if the policy has changed since.

    Raises:
        ValueError: The rollout does not say how it was made, or had a task and ``env_update`` is not given.
    """
    extras = isinstance(plan, StepSequence) and "actions_applied" in plan.data_names
    if isinstance(plan, StepSequence):
        info = plan.rollout_info.get("plan") if isinstance(plan.rollout_info, dict) else None
        if not isinstance(info, dict):
            raise ValueError("this StepSequence carries no plan in rollout_info['plan'], so it cannot be replayed")
        if info["task"] is not None and env_update is None:
            raise ValueError(f"the rollout was made in task {info['task']}; pass the env_update that sets it")
        names = ("index", "seed", "max_steps", "eval", "deterministic", "stop_on_done", "init_state")
        known = {name: info[name] for name in names if name in info}
        told = info.get("context") if context is None else context
        plan = RolloutPlan(**known, env_update=env_update, context=told or {})
    with (
        module_mode(policy, plan.eval) if extras else contextlib.nullcontext(),
        RolloutEngine(env, policy, transport="serial", record_extras=extras) as engine,
    ):
        result = engine.run([plan], parameters)[0]
        if extras:
            result.rollout_info["env_spec"] = engine.env_spec
        return result
