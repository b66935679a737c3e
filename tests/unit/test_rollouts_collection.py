"""Rollouts that go on over calls, failures as data, and reduction in the worker (design.md 4.2, 4.3, 4.7)."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import numpy as np
import pytest
from engine_envs import Drift, SetDrift, Trouble

from metaroll import GaussianMLPPolicy, GRUGaussianPolicy, PoolTimeouts, RolloutEngine, SamplerPool, TrialWrapper
from metaroll.data.rollouts import check_reduce
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import ReplayError, RolloutError, ShapeError
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec, RolloutPlan


def plan_of(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=30, env_update=SetDrift(0.01 * (number % 3)))


def robot_plan_of(number: int) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(5, 0, number), max_steps=11)


def policy_for(env: Any, recurrent: bool = True) -> Any:
    spec, generator = EnvSpec.from_env(env), torch_generator(0)
    if recurrent:
        return GRUGaussianPolicy(spec, hidden_size=8, generator=generator)
    return GaussianMLPPolicy(spec, hidden_sizes=(8,), generator=generator)


def robot_trial() -> TrialWrapper:
    return TrialWrapper(PointRobotEnv(), 3, 4)


CASES = {
    "list, memory": (Drift, plan_of, policy_for(Drift())),
    "simulator": (PointRobotEnv, robot_plan_of, policy_for(PointRobotEnv(), recurrent=False)),
    "trials in a simulator, memory": (robot_trial, robot_plan_of, policy_for(robot_trial())),
}


def rows(pieces: Any) -> list[tuple[int, bytes, bytes, bool]]:
    return [
        (p.index, r.observations.tobytes(), r.actions.tobytes(), bool(r.done[-1]))
        for p, r in zip(pieces.plans, pieces, strict=True)
    ]


def collected(case: str, calls: int, pool: SamplerPool | None = None, between: Any = None) -> list[Any]:
    env, plans, policy = CASES[case]
    found: list[Any] = []
    with RolloutEngine(env, policy, pool=pool) as engine, engine.open(plans, 6) as collection:
        for call in range(calls):
            if between is not None:
                between(call, collection)
            found.append(rows(collection.advance(7)))
    return found


@pytest.mark.parametrize("case", CASES)
def test_pieces_are_those_of_whole_rollouts(case: str) -> None:
    env, plans, policy = CASES[case]
    steps: dict[int, list[Any]] = {}
    done = set()
    with RolloutEngine(env, policy) as engine:
        with engine.open(plans, 6) as collection:
            for _ in range(8):
                pieces = collection.advance(7)
                for plan, piece in zip(pieces.plans, pieces, strict=True):
                    assert plan.index not in done
                    steps.setdefault(plan.index, []).append(piece.actions)
                    done |= {plan.index} if piece.done[-1] else set()
            assert collection.total_steps == sum(len(part) for parts in steps.values() for part in parts)
        whole = engine.run([plans(number) for number in sorted(done)])
    assert len(done) >= 6
    for number, rollout in zip(sorted(done), whole, strict=True):
        np.testing.assert_array_equal(np.concatenate(steps[number]), rollout.actions)


@pytest.mark.parametrize("case", CASES)
def test_same_bits_for_any_number_of_workers_and_after_lost_ones(case: str) -> None:
    expected = collected(case, 6)
    for num_workers in (1, 2):
        with SamplerPool(num_workers, transport="process") as pool:
            assert collected(case, 6, pool) == expected

    def kill_one(call: int, collection: Any) -> None:
        if call in (1, 2, 4):
            victim = pool.describe_workers()[call % 2].pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    with SamplerPool(2, transport="process", timeouts=PoolTimeouts()) as pool:
        assert collected(case, 6, pool, kill_one) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_in_the_middle_of_episodes_goes_on_with_the_same_bits(case: str) -> None:
    env, plans, policy = CASES[case]
    expected = collected(case, 7)
    with RolloutEngine(env, policy) as engine:
        with engine.open(plans, 6) as collection:
            found = [rows(collection.advance(7)) for _ in range(3)]
            state = collection.state_dict()
        with engine.open(plans, 6) as again:
            again.load_state_dict(state)
            found += [rows(again.advance(7)) for _ in range(4)]
    assert found == expected


class Forgetful(Drift):
    """Draws from a generator that reset leaves alone."""

    generator = np.random.default_rng(0)

    def step(self, action: Any) -> Any:
        self._buffer[0] += self.generator.normal()
        return super().step(action)


def test_environments_that_cannot_be_replayed_are_told() -> None:
    with RolloutEngine(Forgetful, policy_for(Drift())) as engine:
        with engine.open(plan_of, 2) as collection:
            collection.advance(4)
            state = collection.state_dict()
        with engine.open(plan_of, 2) as again:
            again.load_state_dict(state)
            with pytest.raises(ReplayError, match=r"shows another observation after its \d recorded actions"):
                again.advance(1)


def test_given_actions_and_bad_input() -> None:
    env, plans, policy = CASES["list, memory"]
    with RolloutEngine(env, policy) as engine:
        collection = engine.open(plans, 3)
        pieces = collection.advance(2, actions=np.full((3, 2), 0.5, np.float32))
        assert all((piece.actions == 0.5).all() for piece in pieces)
        with pytest.raises(ValueError, match="steps must be"):
            collection.advance(0)
        with pytest.raises(ValueError, match="3 slots, got 4"):
            collection.load_state_dict({**collection.state_dict(), "num_slots": 4})
        collection.close()
        with pytest.raises(RuntimeError, match="has been closed"):
            collection.advance(1)
        with pytest.raises(ValueError, match="with a seed"):
            engine.open(lambda number: RolloutPlan(), 2)
    with pytest.raises(RuntimeError, match="closed"):
        engine.open(plans, 2)


# -- failures as data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_failed_rollouts_are_left_out_and_listed(num_workers: int) -> None:
    def burning() -> Trouble:
        return Trouble("raise", only_drift=0.25)

    plans = [
        RolloutPlan(index=i, seed=(1, 0, i), max_steps=12, env_update=SetDrift(0.25 if i in (3, 17) else 0.0))
        for i in range(20)
    ]
    policy = policy_for(Drift())
    pool = SamplerPool(num_workers, transport="process") if num_workers else None
    with contextlib.nullcontext() if pool is None else pool:
        with RolloutEngine(burning, policy, pool=pool, on_error="drop") as engine:
            rollouts = engine.run(plans)
            listed = [(entry.plan.index, entry.step, entry.what) for entry in engine.dropped]
            assert "the motor is on fire" in engine.dropped[0].message
    assert listed == [(3, 5, "error"), (17, 5, "error")]
    assert rollouts.indices.tolist() == [i for i in range(20) if i not in (3, 17)]
    with RolloutEngine(Drift(end=0.0), policy) as engine:
        kept = engine.run([plan for plan in plans if plan.index not in (3, 17)])
    for one, other in zip(rollouts, kept, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
    with RolloutEngine(burning, policy) as engine, pytest.raises(RolloutError, match="the motor is on fire"):
        engine.run(plans)


def test_a_failure_of_one_of_many_is_found() -> None:
    def steering(obs: Any) -> np.ndarray:
        if obs[2] > 2.0:
            raise ArithmeticError("too far")
        return np.zeros(2, np.float32)

    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=6) for i in range(12)]
    with RolloutEngine(Drift, steering, on_error="drop") as engine:
        rollouts = engine.run(plans)
        dropped = sorted(entry.plan.index for entry in engine.dropped)
    assert dropped and sorted([*dropped, *rollouts.indices.tolist()]) == list(range(12))
    assert all((rollout.observations[:-1, 2] <= 2.0).all() for rollout in rollouts)


# -- reduction ---------------------------------------------------------------------------------------------------------


def returns_and_lengths(columns: dict[str, Any], bounds: np.ndarray) -> np.ndarray:
    return np.stack([np.add.reduceat(columns["rewards"], bounds[:-1]), np.diff(bounds)], axis=1)


def test_reduced_rows_are_those_of_the_rollouts() -> None:
    plans = [plan_of(i) for i in range(40)]
    policy = policy_for(Drift())
    with RolloutEngine(Drift, policy) as engine:
        rollouts = engine.run(plans)
        expected = np.stack([rollouts.returns, rollouts.lengths], axis=1)
        np.testing.assert_allclose(engine.run_reduced(plans, returns_and_lengths), expected)
        check_reduce(returns_and_lengths, rollouts)
        with pytest.raises(ValueError, match="must treat rollouts one by one, but rollout 0"):
            check_reduce(lambda columns, bounds: np.full(len(bounds) - 1, columns["rewards"].mean()), rollouts)
        with pytest.raises(ShapeError, match="one row per rollout"):
            engine.run_reduced(plans, lambda columns, bounds: columns["rewards"])
        with pytest.raises(TypeError, match="function of columns and bounds"):
            engine.run_reduced(plans, "mean")  # type: ignore[arg-type]
    with SamplerPool(2, transport="process") as pool, RolloutEngine(Drift, policy, pool=pool) as engine:
        np.testing.assert_array_equal(engine.run_reduced(plans, returns_and_lengths), expected)


def test_rows_of_dropped_rollouts_hold_nan() -> None:
    def burning() -> Trouble:
        return Trouble("raise", only_drift=0.25)

    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=8, env_update=SetDrift(0.25 * (i == 2))) for i in range(5)]
    with RolloutEngine(burning, policy_for(Drift()), on_error="drop") as engine:
        rows = engine.run_reduced(plans, lambda columns, bounds: np.diff(bounds))
    assert rows.tolist()[:2] == [8.0, 8.0] and np.isnan(rows[2]) and rows.shape == (5,)
