"""Checks of ``metaroll doctor`` that use the rollout engine: workers start, and give the same bits."""

from __future__ import annotations

import statistics
import time
from typing import Any

from metaroll.cli.doctor.health_checks import Check

__all__ = ["self_test", "worker_check"]

_CALLS = 20
_PLANS = 4
_STEPS = 20
_SLOW_START_S = 10.0


def worker_check(seconds: float) -> Check:
    """How long a worker takes until it answers and until its first rollout is there, and how long an empty call takes.

    The first rollout is what users wait for: the process imports all that environments and policies need before it.
    """
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec, RolloutPlan

    make_env = get_family("point-robot").env_constructor
    policy = TanhGaussianMLPPolicy(EnvSpec.from_env(make_env()), hidden_sizes=(16,), generator=torch_generator(0))
    limits = PoolTimeouts(step_s=seconds, reset_s=seconds, start_s=seconds, call_s=seconds)
    started = time.perf_counter()
    with SamplerPool(1, transport="process", timeouts=limits, max_retries=0) as pool:
        pool.invoke_all(_nothing)
        process = time.perf_counter() - started
        with RolloutEngine(make_env, policy, pool=pool) as engine:
            engine.run([RolloutPlan(seed=(0, 0, 0), max_steps=1)])
        ready = time.perf_counter() - started
        calls = []
        for _ in range(_CALLS):
            called = time.perf_counter()
            pool.invoke_all(_nothing)
            calls.append(time.perf_counter() - called)
    text = (
        f"first rollout after {ready:.2f} s (the process alone is there after {process:.2f} s), then "
        f"{1e3 * statistics.median(calls):.2f} ms per empty call"
    )
    if ready > _SLOW_START_S:
        return Check("worker start", "warn", text, "move the environment of Python to a local disk, or close programs")
    return Check("worker start", "ok", text)


def _nothing(namespace: Any) -> None:
    """What a worker is asked for when only the way counts."""


def self_test(seconds: float) -> Check:
    """Four rollouts of point-robot, which must have the same bits in this process and in two workers."""
    from metaroll.envs.lookup.registry import get_family
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy
    from metaroll.rollouts.single.invariance import assert_worker_invariant
    from metaroll.rollouts.workers.pool import PoolTimeouts, SamplerPool
    from metaroll.seeding import torch_generator
    from metaroll.types import EnvSpec, RolloutPlan

    family = get_family("point-robot")
    tasks, _ = family.split(num_train=_PLANS, num_test=0, seed=0)
    spec = EnvSpec.from_env(family.env_constructor())
    policy = TanhGaussianMLPPolicy(spec, hidden_sizes=(16, 16), generator=torch_generator(0))
    plans = [RolloutPlan(index=i, seed=(0, 0, i), env_update=t, max_steps=_STEPS) for i, t in enumerate(tasks)]
    limits = PoolTimeouts(step_s=seconds, reset_s=seconds, start_s=seconds, call_s=seconds)
    started = time.perf_counter()
    try:
        with SamplerPool(2, transport="process", timeouts=limits, max_retries=0) as pool:
            assert_worker_invariant(family.env_constructor, policy, plans, num_workers=(pool,))
    except AssertionError as error:
        return Check("self-test", "fail", str(error), "report this line: results depend on workers here")
    needed = time.perf_counter() - started
    return Check("self-test", "ok", f"{_PLANS} rollouts have the same bits serially and by 2 workers ({needed:.1f} s)")
