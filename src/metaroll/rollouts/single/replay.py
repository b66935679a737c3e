"""The same rollouts again, bitwise: one of them in this process, or all of them however the work is spread."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_instance
from metaroll.data.compare import first_difference
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ConformanceError
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.extras import module_mode
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.plan_table import resolve_plans
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["assert_worker_invariant", "replay"]


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
        plan: A plan (e.g. ``error.plan`` of a ``RolloutError``), or a rollout of the engine.
        env: As given to the engine.
        policy: As given to the engine.
        env_update: The task, where ``plan`` is a rollout (which knows only the task's data).
        context: The policy's context, where ``plan`` is a rollout, if it differs from the one recorded there.
        parameters: Flat policy parameters ``(P,)`` of then, if the policy has changed since.

    Raises:
        TypeError: ``plan`` is something else.
        ValueError: The rollout does not record how it was made, or had a task and ``env_update`` is not given; or a
            ``RolloutPlan``, which has both, comes with ``env_update`` or ``context``.
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
        used = info.get("context") if context is None else context
        plan = RolloutPlan(**known, env_update=env_update, context=used or {})
    else:
        check_instance("plan", plan, RolloutPlan, "a RolloutPlan, or a StepSequence of the engine")
        if env_update is not None or context is not None:
            name = "context" if env_update is None else "env_update"
            raise ValueError(f"{name} is for a StepSequence; a RolloutPlan holds its own: plan.with_({name}=...)")
    with (
        module_mode(policy, plan.eval) if extras else contextlib.nullcontext(),
        RolloutEngine(env, policy, transport="serial", record_extras=extras) as engine,
    ):
        result = engine.run([plan], parameters)[0]
        if extras:
            result.rollout_info["env_spec"] = engine.env_spec
        return result


def assert_worker_invariant(
    env: Any,
    policy: Any,
    plans: Sequence[RolloutPlan],
    *,
    num_workers: Sequence[int | SamplerPool] = (1, 2),
    parameters: np.ndarray | None = None,
) -> list[StepSequence]:
    """Run ``plans`` serially, in worker processes and one by one (as ``replay`` does); the rollouts, if all bits agree.

    For your own environments and policies: anything that makes rollouts depend on workers (a shared or global
    generator, state that a reset leaves behind) shows here.

    Args:
        env: As for ``RolloutEngine``.
        policy: As for ``RolloutEngine``.
        plans: The plans to run.
        num_workers: Numbers of workers to try; running pools may be given instead of numbers.
        parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's present ones.

    Raises:
        ValueError: There are no plans.
        ConformanceError: Some rollout differs; an ``AssertionError`` that names it, the field, and the first step that
            differs.
    """
    plans = resolve_plans(plans)
    if not plans:
        raise ValueError("plans must hold at least one plan, got none")
    with RolloutEngine(env, policy, transport="serial") as engine:
        expected = list(engine.run(plans, parameters))
        _compare(expected, [engine.run([plan], parameters)[0] for plan in plans], plans, "run one by one")
        _compare(expected, engine.run(plans, parameters), plans, "run again in the same environments")
    for entry in num_workers:
        pool = entry if isinstance(entry, SamplerPool) else SamplerPool(entry, transport="process")
        try:
            with RolloutEngine(env, policy, pool=pool) as engine:
                _compare(expected, engine.run(plans, parameters), plans, f"run by {pool.num_workers} worker(s)")
        finally:
            if pool is not entry:
                pool.stop()
    return list(expected)


def _compare(
    expected: Sequence[StepSequence], actual: Sequence[StepSequence], plans: Sequence[RolloutPlan], how: str
) -> None:
    if len(expected) != len(actual):
        raise ConformanceError("workers", f"{len(expected)} rollouts serially, but {len(actual)} when {how}")
    for plan, left, right in zip(plans, expected, actual, strict=True):
        difference = first_difference(left, right)
        if difference is not None:
            raise ConformanceError(
                "workers", f"rollout {plan.index} (seed {plan.seed}) differs when {how}: {difference}"
            )
