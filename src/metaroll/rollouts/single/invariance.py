"""Shows that results do not depend on how the work is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.data.compare import first_difference
from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.plan_table import resolve_plans
from metaroll.types import RolloutPlan

__all__ = ["assert_worker_invariant"]


def assert_worker_invariant(
    env: Any,
    policy: Any,
    plans: Sequence[RolloutPlan],
    *,
    num_workers: Sequence[int | SamplerPool] = (1, 2),
    parameters: np.ndarray | None = None,
) -> list[StepSequence]:
    """Run ``plans`` serially, in worker processes and one by one (as ``replay`` does); the rollouts, if all bits agree.

    For your own environments and policies: whatever makes rollouts depend on workers (a shared or global generator,
    state that a reset leaves behind) shows here.

    Args:
        env: As for ``RolloutEngine``.
        policy: As for ``RolloutEngine``.
        plans: What to run.
        num_workers: Numbers of workers to try; pools that are running already may stand for themselves.
        parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's present ones.

    Raises:
        AssertionError: Some rollout differs; names it, the field, and the first step that differs.
    """
    plans = resolve_plans(plans)
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
        raise AssertionError(f"{len(expected)} rollouts serially, but {len(actual)} when {how}")
    for plan, left, right in zip(plans, expected, actual, strict=True):
        difference = first_difference(left, right)
        if difference is not None:
            raise AssertionError(f"rollout {plan.index} (seed {plan.seed}) differs when {how}: {difference}")
