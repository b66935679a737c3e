"""What tests of live collections collect: environments, policies, plans; imported by the workers, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from engine_envs import Drift, SetDrift

from metaroll import RolloutEngine, SamplerPool
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.envs.wrappers.trials import TrialWrapper
from metaroll.policies import GaussianMLPPolicy, GRUGaussianPolicy, OrnsteinUhlenbeckPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec, RolloutPlan

SLOTS = 6


class Case(NamedTuple):
    """What is collected."""

    env: Any
    policy: Any
    plan_of: Callable[[int], RolloutPlan]


def drift_plan(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=30, env_update=SetDrift(0.01 * (number % 3)))


def short_plan(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=11)


def long_plan(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=45)


def trial() -> Any:
    return TrialWrapper(PointRobotEnv(), 3, 5)


def hopper() -> Any:
    return gymnasium.make("Hopper-v5")


def policy_for(env: Any, kind: str = "gru") -> Any:
    spec, generator = EnvSpec.from_env(env), torch_generator(0)
    if kind == "gru":
        return GRUGaussianPolicy(spec, hidden_size=8, generator=generator)
    policy = GaussianMLPPolicy(spec, hidden_sizes=(8,), generator=generator)
    return OrnsteinUhlenbeckPolicy(policy, sigma=1.0) if kind == "noise" else policy


CASES = {
    "list, memory": Case(Drift, policy_for(Drift()), drift_plan),
    "list, noise": Case(Drift, policy_for(Drift(), "noise"), drift_plan),
    "simulator": Case(PointRobotEnv, policy_for(PointRobotEnv(), "mlp"), short_plan),
    "simulator, noise": Case(PointRobotEnv, policy_for(PointRobotEnv(), "noise"), short_plan),
    "trials, memory": Case(trial, policy_for(trial()), long_plan),
    "MuJoCo, memory": Case("Hopper-v5", policy_for(hopper()), long_plan),
}


def rows(pieces: Any) -> list[tuple[int, bytes, bytes, bytes, bool]]:
    """All bits of what ``advance`` returned."""
    return [
        (p.index, r.observations.tobytes(), r.actions.tobytes(), r.rewards.tobytes(), bool(r.done[-1]))
        for p, r in zip(pieces.plans, pieces, strict=True)
    ]


def collected(
    case: str,
    calls: int,
    pool: SamplerPool | None = None,
    between: Callable[[int], None] | None = None,
    snapshot_at: tuple[int, ...] = (),
) -> list[Any]:
    """What ``calls`` calls return, with other parameters in each; ``between(call)`` comes before each.

    At the calls in ``snapshot_at`` another collection goes on from a snapshot.
    """
    env, policy, plans = CASES[case]
    found: list[Any] = []
    parameters = policy.acting_parameters()
    with RolloutEngine(env, policy, pool=pool) as engine:
        collection = engine.open(plans, SLOTS)
        for call in range(calls):
            if call in snapshot_at:
                state = collection.state_dict()
                collection.close()
                collection = engine.open(plans, SLOTS)
                collection.load_state_dict(state)
            if between is not None:
                between(call)
            shift = np.float32(0.01 * call)
            found.append(rows(collection.advance(7, parameters + shift)))
        assert not collection.cut and not collection.dropped
        collection.close()
    return found
