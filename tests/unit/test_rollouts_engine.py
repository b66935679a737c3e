"""design.md 4: the engine is exact, never hangs and loses nothing."""

from __future__ import annotations

import os
import time
import traceback
from functools import partial

import numpy as np
import pytest
import torch
from engine_envs import BreaksAt, Drift, SetDrift, Trouble
from interruptions import NamespaceTransport, is_interrupted, last_times

from metaroll.data.compare import rollouts_equal, trees_equal
from metaroll.data.rollouts import Rollouts
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import InvalidValueError, NotPicklableError, RolloutError, ShapeError, WorkerLost
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.reduction import check_reduce
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.requests import SampleRequest
from metaroll.rollouts.single.replay import assert_worker_invariant, replay
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers import pool as pool_module
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, RolloutPlan

SPEC = EnvSpec.from_env(Drift())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussian():
    return GaussianMLPPolicy(SPEC, hidden_sizes=(16, 16), generator=generator())


def gru():
    return GRUGaussianPolicy(SPEC, hidden_size=8, generator=generator())


def context_policy(spec=SPEC, latent_dim=3):
    from gymnasium.spaces import Box

    inner_spec = EnvSpec(Box(-1, 1, (spec.obs_dim + latent_dim,)), Box(-1, 1, (spec.act_dim,)))
    encoder = MLPEncoder(spec.obs_dim + spec.act_dim + 1, 2 * latent_dim, (8,), generator=generator(1))
    inner = TanhGaussianMLPPolicy(inner_spec, hidden_sizes=(16,), generator=generator(2))
    return ContextConditionedPolicy(latent_dim, encoder, inner, True, False, seed=0)


def plans(count, max_steps=40, **kwargs):
    return [
        RolloutPlan(
            index=i,
            seed=(3, 1, i),
            max_steps=max_steps,
            env_update=SetDrift(0.01 * (i % 5)) if i % 3 else None,
            **kwargs,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def pools(shared_pools):
    return {count: shared_pools[count] for count in (1, 2, 3)}


def same(left, right):
    return len(left) == len(right) and all(rollouts_equal(a, b) for a, b in zip(left, right, strict=True))


# -- exact ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_policy", [gaussian, gru, context_policy])
def test_same_bits_serially_with_1_2_3_workers_and_in_replay(make_policy, pools):
    rollouts = assert_worker_invariant(Drift, make_policy(), plans(19), num_workers=list(pools.values()))
    lengths = {len(r) for r in rollouts}
    assert len(lengths) > 3 and max(lengths) == 40  # early ends and time limits both occurred
    assert not rollouts_equal(rollouts[0], rollouts[3])


def test_no_plans_prove_nothing():
    with pytest.raises(ValueError, match="plans must hold at least one plan, got none"):
        assert_worker_invariant(Drift, gaussian(), [])


def test_contexts_of_plans_reach_the_policy_and_stay_exact(pools):
    rng = np.random.default_rng(0)
    given = [
        plan.with_(context={"z": rng.normal(size=3).astype(np.float32)}, deterministic=True)
        if plan.index % 2
        else plan.with_(context={"z_mean": np.zeros(3, np.float32), "z_var": np.full(3, 0.5, np.float32)})
        for plan in plans(17)
    ]
    rollouts = assert_worker_invariant(Drift, context_policy(), given, num_workers=[pools[2]])
    changed = given[1].with_(context={"z": np.ones(3, np.float32)})
    with RolloutEngine(Drift, context_policy()) as engine:
        assert not np.array_equal(engine.run([changed])[0].actions, rollouts[1].actions)


def test_count_and_step_mode_do_not_depend_on_workers(pools):
    updates = [SetDrift(0.0), SetDrift(0.02), None]
    results = []
    for pool in (None, *pools.values()):
        with RolloutEngine(Drift, gru(), pool=pool) as engine:
            steps = engine.run_groups(SampleRequest(updates=updates, seed=5, sub_seed=2, max_steps=30, min_steps=100))
            count = engine.run_groups(SampleRequest(updates=updates, seed=5, sub_seed=3, max_steps=30, num_rollouts=4))
        results.append((steps, count))
    for steps, count in results:
        for group, first in zip(steps, results[0][0], strict=True):
            lengths = [len(r) for r in group]
            assert sum(lengths) >= 100 and sum(lengths[:-1]) < 100  # the shortest prefix with enough steps
            assert same(group, first)
        assert [len(group) for group in count] == [4, 4, 4]
        assert all(same(group, first) for group, first in zip(count, results[0][1], strict=True))


@pytest.mark.parametrize("amount", [{"num_rollouts": 3}, {"min_steps": 70}])
def test_a_policy_for_each_variation_gives_the_bits_of_a_call_for_each(amount, pools):
    updates = [SetDrift(0.0), SetDrift(0.02), None]
    policy = gru()
    flat = policy.acting_parameters()
    noise = np.random.default_rng(0).normal(size=(3, flat.size)).astype(np.float32)
    rows = flat + np.float32(0.1) * noise
    for pool in (None, pools[2]):
        with RolloutEngine(Drift, policy, pool=pool) as engine:
            arguments = {"seed": 5, "sub_seed": 2, "max_steps": 30, **amount}
            together = engine.run_groups(SampleRequest(updates=updates, parameters=rows, **arguments))
            each = [
                engine.run_groups(SampleRequest(updates=updates, parameters=row, **arguments))[m]
                for m, row in enumerate(rows)
            ]
            assert all(same(group, alone) for group, alone in zip(together, each, strict=True))
            assert not same(together[1], engine.run_groups(SampleRequest(updates=updates, **arguments))[1])
            doubles = engine.run_groups(SampleRequest(updates=updates, parameters=rows.astype(np.float64), **arguments))
            assert all(same(group, again) for group, again in zip(together, doubles, strict=True))


def test_an_error_in_a_later_round_keeps_the_rounds_before():
    """A pole that falls early takes more rounds; what these gave is in ``completed``."""

    class Failing(Drift):
        resets = 0

        def reset(self, **arguments):
            type(self).resets += 1
            if type(self).resets > 4:
                raise OSError("the fifth")
            return super().reset(**arguments)

        def step(self, action):
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, True, truncated, info

    with RolloutEngine(Failing, gaussian(), slots_per_unit=1) as engine:
        with pytest.raises(RolloutError, match="the fifth") as caught:
            engine.run_groups(SampleRequest(updates=[None], seed=0, max_steps=10, min_steps=30))
    assert [r.rollout_info["plan"]["index"] for r in caught.value.completed] == [0, 1, 2, 3]


def test_rollout_equals_the_engine_and_replay(pools):
    """specs/sampling.md 8.1 (e): the sequential rollout equals item i of the sampler."""
    policy = gaussian()
    with RolloutEngine(Drift, policy, pool=pools[2], record_extras=True) as engine:
        expected = engine.run([RolloutPlan(index=i, seed=(0, 0, i), max_steps=25) for i in range(9)])
    with RolloutEngine(Drift, policy, pool=pools[2]) as engine:
        plain = engine.run([RolloutPlan(index=i, seed=(0, 0, i), max_steps=25) for i in range(9)])
    for i in (0, 4, 8):
        alone = rollout(Drift(), policy, max_steps=25, seed=0, sub_sub_seed=i)
        assert rollouts_equal(alone, expected[i], compare_info=False)
        assert rollouts_equal(replay(plain[i], Drift, policy), plain[i])
        np.testing.assert_array_equal(plain[i].observations, expected[i].observations)


def test_batched_and_listed_simulators_give_the_same_rollouts():
    goals = [{"goal": g} for g in np.random.default_rng(0).uniform(-1, 1, (20, 2))]
    policy = TanhGaussianMLPPolicy(EnvSpec.from_env(PointRobotEnv()), hidden_sizes=(16,), generator=generator())
    many = [
        RolloutPlan(index=i, seed=(1, 0, i), env_update=SetTaskUpdate(PointRobotEnv, goal, None), max_steps=20)
        for i, goal in enumerate(goals)
    ]
    with RolloutEngine(PointRobotEnv, policy, record_extras=True) as engine:
        batched = engine.run(many)
    for plan, expected in zip(many[:5], batched[:5], strict=True):
        env = plan.env_update(PointRobotEnv())
        single = rollout(env, policy, max_steps=20, seed=1, sub_sub_seed=plan.index)
        assert rollouts_equal(single, expected, compare_info=False)


def test_parameters_of_plans_are_stacked_and_exact(pools):
    policy = gaussian()
    flat = policy.acting_parameters()
    rng = np.random.default_rng(1)
    given = [p.with_(parameters=flat + 0.1 * rng.normal(size=flat.size).astype(np.float32)) for p in plans(16)]
    rollouts = assert_worker_invariant(Drift, policy, given, num_workers=[pools[2]])
    changed = policy
    changed.set_param_values(given[2].parameters)
    with RolloutEngine(Drift, changed) as engine:
        own = engine.run([given[2].with_(parameters=None)])[0]
    np.testing.assert_allclose(own.actions[0], rollouts[2].actions[0], rtol=1e-5)


def test_changed_parameters_are_sent(pools):
    policy = gaussian()
    with RolloutEngine(Drift, policy, pool=pools[2]) as engine:
        before = engine.run(plans(4))
        policy.set_param_values(policy.get_param_values() * 0.5)
        after = engine.run(plans(4))
    assert not np.array_equal(before[0].actions, after[0].actions)
    with RolloutEngine(Drift, policy) as serial:
        assert same(serial.run(plans(4)), after)


def test_foreign_policies_are_exact_too(pools):
    class Noisy:
        def get_action(self, obs):
            infos = {"q": obs.sum()} if obs[2] > 0 else {}  # must not depend on which rows share a call
            return np.tanh(obs[:2]) + 0.1 * np.random.normal(size=2), infos

    state = np.random.get_state()[1].copy()
    rollouts = assert_worker_invariant(Drift, Noisy(), plans(6), num_workers=[pools[2]])
    for r in rollouts:
        seen = r.observations[:-1]
        told = r.policy_infos["q"] if "policy_infos" in r.data_names else np.full(len(r), np.nan)
        np.testing.assert_array_equal(told, np.where(seen[:, 2] > 0, seen.sum(axis=1), np.nan))
    assert np.array_equal(np.random.get_state()[1], state)


def test_a_plan_without_seed_gets_fresh_recorded_entropy():
    with RolloutEngine(Drift, gaussian()) as engine:
        a, b = engine.run([RolloutPlan(index=i, max_steps=10) for i in range(2)])
        assert a.rollout_info["plan"]["seed"][0] == b.rollout_info["plan"]["seed"][0]
        assert not np.array_equal(a.observations[0], b.observations[0])
        assert rollouts_equal(replay(a, Drift, engine.policy), a)


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "at_step"),
    [("kill", 5), ("exit", -1), ("hang", 2)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in (("exit", 3), ("stop", 4))],
)
def test_a_lost_worker_changes_no_bit(kind, at_step, tmp_path, shared_pools):
    marker = str(tmp_path / "done")
    many = [RolloutPlan(index=i, seed=(0, 0, i), max_steps=15) for i in range(16)]
    policy = gaussian()
    with RolloutEngine(lambda: Trouble("none"), policy) as engine:
        expected = engine.run(many)
    with (
        shared_pools.strict(2, timeouts=PoolTimeouts(step_s=1.5, reset_s=1.5)) as pool,
        RolloutEngine(lambda: Trouble(kind, at_step, marker), policy, pool=pool) as engine,
    ):
        begun = time.monotonic()
        assert same(engine.run(many), expected)
        assert time.monotonic() - begun < 60
    assert os.path.exists(marker)


def test_an_env_that_always_kills_its_worker_ends_in_an_error_that_names_the_plans(shared_pools):
    with (
        shared_pools.strict(1, max_retries=1) as pool,
        RolloutEngine(lambda: Trouble("kill"), gaussian(), pool=pool) as engine,
        pytest.raises(WorkerLost, match=r"rollouts? .*\(seeds? \(0, 0.* tried 2 times, .* killed by SIGKILL") as caught,
    ):
        engine.run([RolloutPlan(index=i, seed=(0, 0, i), max_steps=15) for i in range(4)])
    plan = caught.value.plan
    seeds = ", ".join(f"{name}={x}" for name, x in zip(("seed", "sub_seed", "sub_sub_seed"), plan.seed, strict=True))
    assert f"metaroll.rollout(env, policy, max_steps=15, {seeds})" in str(caught.value)


@pytest.mark.parametrize(
    "policy", [lambda obs: None, ScriptedPolicy(lambda obs, contexts: None)], ids=["any", "script"]
)
def test_a_policy_without_a_return_is_told(policy):
    with pytest.raises(RolloutError, match=r"the policy failed at step 0 of .* got None; is a return missing\?"):
        rollout(Drift(), policy, max_steps=3, seed=0)


@pytest.mark.parametrize("workers", [None, 2])
def test_an_exception_names_rollout_step_task_and_seed_and_can_be_replayed(workers, pools):
    updates = [SetDrift(0.01 * i) for i in range(8)]
    many = [RolloutPlan(index=i, seed=(7, 2, i), env_update=updates[i], max_steps=12) for i in range(8)]
    policy = gaussian()
    env = lambda: Trouble("raise", at_step=6, only_drift=0.05)  # noqa: E731
    with RolloutEngine(env, policy, pool=pools.get(workers)) as engine:
        with pytest.raises(RolloutError) as caught:
            engine.run(many)
        text = str(caught.value)
        for part in ("rollout 5", "step 6", "'drift': 0.05", "(7, 2, 5)", "the motor is on fire", "metaroll.replay"):
            assert part in text
        assert "in _trouble" in caught.value.worker_traceback
        assert "in _trouble" in "".join(traceback.format_exception(caught.value))  # what a user sees
        assert caught.value.plan.index == 5 and caught.value.step == 6
        with pytest.raises(RolloutError, match="rollout 5"):
            replay(caught.value.plan, env, policy)
        assert len(engine.run(many[:4])) == 4  # the engine stays usable


@pytest.mark.parametrize("workers", [None, 2])
def test_nan_is_an_error_or_drops_the_rollout(workers, pools):
    many = [RolloutPlan(index=i, seed=(7, 2, i), env_update=SetDrift(0.01 * i), max_steps=12) for i in range(8)]
    env = lambda: Trouble("nan", at_step=3, only_drift=0.02)  # noqa: E731
    with RolloutEngine(env, gaussian(), pool=pools.get(workers)) as engine, pytest.raises(InvalidValueError) as caught:
        engine.run(many)
    assert "observation is not finite at step 3 of rollout 2" in str(caught.value)
    with RolloutEngine(env, gaussian(), pool=pools.get(workers), on_invalid="drop") as engine:
        kept = engine.run(many)
        assert [r.rollout_info["plan"]["index"] for r in kept] == [0, 1, 3, 4, 5, 6, 7]
        assert [(d.plan.index, d.step, d.what) for d in engine.dropped] == [(2, 3, "observation")]


def test_an_env_that_cannot_be_sent_is_refused_with_the_cure():
    env = Drift()
    env.lock = __import__("threading").Lock()
    with pytest.raises(
        TypeError,
        match=r"(cannot be (sent|copied)).*pass a function",
    ) as caught:
        RolloutEngine(env, gaussian(), num_workers=2)
    assert isinstance(caught.value, NotPicklableError | TypeError)


# -- engine probes: what later issues need --------------------------------------------------------------------------


def loop_of(policy, count, num_slots, **kwargs):
    return SlotLoop(make_slots(Drift, num_slots), policy, plans(count), **kwargs)


def test_probe_per_slot_environment_parameters():
    many = [RolloutPlan(index=i, seed=(0, 0, 0), env_update=SetDrift(d), max_steps=5) for i, d in enumerate((0.0, 0.5))]
    policy = gaussian()
    finished = SlotLoop(make_slots(lambda: Drift(end=0.0), 2), policy, many).advance()
    shift = finished[1].observations[1, :2] - finished[0].observations[1, :2]
    np.testing.assert_allclose(shift, 0.5, atol=1e-12)


def test_probe_frozen_slots_are_not_stepped():
    loop = loop_of(gaussian(), 0, 6, refill=False)
    loop.start(range(6), [*plans(3), *plans(3, max_steps=1)])
    loop.advance(1)
    assert loop.active.tolist() == [True] * 3 + [False] * 3
    before = loop.observations
    loop.advance(2)
    after = loop.observations
    assert np.array_equal(before[3:], after[3:]) and not np.array_equal(before[:3], after[:3])
    assert len(loop.advance()) <= 3 and loop.done


def test_slots_without_plans_are_left_behind():
    assert loop_of(gaussian(), 3, 6).num_slots == 3


def test_probe_advance_k_with_parameters_changed_between_calls():
    policy = gaussian()
    flat = policy.acting_parameters()
    loop = loop_of(policy, 8, 4, parameters=flat)
    first = loop.advance(3, segments=True)
    second = loop.advance(3, flat * 0.0, segments=True)
    assert all(len(s) <= 3 for s in first)
    np.testing.assert_array_equal(second[-1].policy_infos["mean"], 0.0)
    running = [s for s in second if not s.done[-1]]
    assert running and all(not s.terminated.any() for s in running)


def test_probe_segments_join_to_the_rollout():
    whole = loop_of(gaussian(), 2, 2).advance()
    loop, pieces = loop_of(gaussian(), 2, 2), {0: [], 1: []}
    while not loop.done:
        for piece in loop.advance(3, segments=True):
            pieces[piece.rollout_info["plan"]["index"]].append(piece)
    for rollout_ in whole:
        parts = pieces[rollout_.rollout_info["plan"]["index"]]
        np.testing.assert_array_equal(np.concatenate([p.actions for p in parts]), rollout_.actions)
        np.testing.assert_array_equal(parts[-1].observations[-1], rollout_.observations[-1])
        np.testing.assert_array_equal(parts[0].observations[-1], parts[1].observations[0])


@pytest.mark.parametrize("make_policy", [gaussian, gru])
def test_probe_stacked_policies_act_as_each_would_alone(make_policy):
    policy = make_policy()
    flat = policy.acting_parameters()
    stack = np.stack([flat * s for s in (0.5, 1.0, 1.5)]).astype(np.float32)
    loop = SlotLoop(make_slots(Drift, 3), policy, plans(3), parameters=stack)
    stacked = {r.rollout_info["plan"]["index"]: r for r in loop.advance()}
    for i in range(3):
        alone = SlotLoop(make_slots(Drift, 1), policy, [plans(3)[i]], parameters=stack[i]).advance()[0]
        steps = min(5, len(alone), len(stacked[i]))
        np.testing.assert_allclose(alone.actions[:steps], stacked[i].actions[:steps], rtol=1e-4, atol=1e-5)


def test_probe_a_belief_changed_between_rounds(pools):
    """Tasks are slots, episodes are rounds: contexts of the next round come from the data of the last."""
    policy = context_policy()
    with RolloutEngine(Drift, policy, pool=pools[2]) as engine:
        base = [RolloutPlan(index=i, seed=(0, 0, i), max_steps=10, deterministic=True) for i in range(6)]
        first = engine.run(base)
        contexts = []
        for r in first:
            rows = np.concatenate([r.observations[:-1], r.actions, r.rewards[:, None]], axis=1)
            mean, var = policy.posterior(torch.as_tensor(rows[None], dtype=torch.float32))
            contexts.append({"z_mean": mean[0].detach().numpy(), "z_var": var[0].detach().numpy()})
        second = engine.run([p.with_(seed=(0, 1, p.index), context=c) for p, c in zip(base, contexts, strict=True)])
    for r, c in zip(second, contexts, strict=True):
        assert not np.allclose(c["z_mean"], 0.0)
        assert len(r) >= 1


def test_probe_given_actions_drive_the_slots():
    """Executors step with actions of their own: advance(1, actions=...)."""
    loop = SlotLoop(make_slots(lambda: Drift(end=0.0), 2), gaussian(), plans(2, max_steps=4))
    actions = np.array([[1.0, -1.0], [0.5, 0.5]], np.float32)
    for _ in range(4):
        finished = loop.advance(1, actions=actions)
    assert len(finished) == 2
    np.testing.assert_array_equal(finished[0].actions, np.tile(actions[0], (4, 1)))


def test_probe_long_rollouts_cross_blocks_of_noise_and_of_the_recorder():
    long = [RolloutPlan(index=i, seed=(0, 0, i), max_steps=600 + 100 * i) for i in range(3)]
    policy = gaussian()
    finished = SlotLoop(make_slots(lambda: Drift(end=0.0), 2), policy, long).advance()
    assert sorted(len(r) for r in finished) == [600, 700, 800]
    for r in finished:
        i = r.rollout_info["plan"]["index"]
        alone = rollout(Drift(end=0.0), policy, max_steps=600 + 100 * i, seed=0, sub_sub_seed=i)
        for name in r.data_names:
            assert trees_equal(getattr(alone, name), getattr(r, name))


def test_time_limit_is_truncation_and_the_true_last_observation_is_kept():
    result = rollout(Drift(end=0.0), gaussian(), max_steps=7, seed=1)
    assert result.truncated.tolist() == [False] * 6 + [True] and not result.terminated.any()
    assert result.observations.shape == (8, 3)
    ended = rollout(Drift(end=1.0), gaussian(), max_steps=7, seed=1)
    assert ended.terminated.tolist() == [True] and not ended.truncated.any()
    assert not np.array_equal(ended.observations[0], ended.observations[1])


@pytest.mark.parametrize("count", [None, 2])
def test_rollouts_that_had_ended_are_kept_when_another_one_fails(pools, count):
    plans = [RolloutPlan(index=i, seed=(0, 0, i), max_steps=3) for i in range(8)]
    plans[4] = plans[4].with_(max_steps=10, init_state=np.array([5.0]))
    policy = ScriptedPolicy(lambda obs, contexts: np.zeros((len(obs), 1)))
    with RolloutEngine(BreaksAt, policy, pool=None if count is None else pools[count]) as engine:
        with pytest.raises(RolloutError, match="the gear broke") as caught:
            engine.run(plans)
        kept = [r.rollout_info["plan"]["index"] for r in caught.value.completed]
        assert set(kept) >= {5, 6, 7}  # with the one that failed
        assert kept == sorted(kept)
        assert all(len(r) == 3 for r in caught.value.completed)


# -- what is refused before anything runs ------------------------------------------------------------------------------


PLAN = RolloutPlan(seed=(0, 0, 0), max_steps=3)


def test_ctrl_c_at_any_statement_is_ctrl_c_and_the_engine_stays_exact():
    """It was an internal error, ``KeyError: 'terminated'``, between two statements of the recorder."""
    policy = GaussianMLPPolicy(EnvSpec.from_env(PointRobotEnv()), hidden_sizes=(4,), generator=generator())
    few = [RolloutPlan(index=i, seed=(3, 1, i), max_steps=2) for i in range(2)]
    with RolloutEngine(PointRobotEnv, policy) as engine:
        expected = engine.run(few)
        places = last_times(lambda: engine.run(few), ("/rollouts/engine/",))
        assert len(places) > 200
        for at in places:
            assert is_interrupted(lambda: engine.run(few), at, ("/rollouts/engine/",))
            assert same(engine.run(few), expected), at


class Uphill(PointRobotEnv):
    """Everything costs one more."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, reward - 1.0, *rest)


PARENT = ("/rollouts/engine/engine.py", "/workers/pool.py")


def test_ctrl_c_at_any_statement_between_workers_leaves_all_or_nothing_changed(monkeypatch):
    """Workers kept an environment or parameters that were being sent, and the engine believed the old ones there."""
    monkeypatch.setattr(pool_module, "ProcessTransport", NamespaceTransport)
    policy = GaussianMLPPolicy(EnvSpec.from_env(PointRobotEnv()), hidden_sizes=(4,), generator=generator())
    few = [RolloutPlan(index=i, seed=(3, 1, i), max_steps=2) for i in range(2)]
    values = policy.acting_parameters()
    others = values + np.float32(1.0)
    expected = {}
    for env in (PointRobotEnv, Uphill):
        with RolloutEngine(env, policy) as engine:
            expected[env] = engine.run(few, values)

    def change(engine):
        engine.set_env(Uphill)
        engine.run(few, others)

    with RolloutEngine(PointRobotEnv, policy, num_workers=2) as engine:
        engine.run(few, values)
        places = last_times(lambda: change(engine), PARENT)
        assert len(places) > 80
        for at in places:
            engine.set_env(PointRobotEnv)
            engine.run(few, values)
            assert is_interrupted(lambda: change(engine), at, PARENT)
            assert same(engine.run(few, values), expected[engine.env]), at
            assert NamespaceTransport.living == 2
    assert NamespaceTransport.living == 0


def with_plan(**changes):
    return lambda engine: engine.run([PLAN, PLAN.with_(index=1, **changes)])


def with_parameters(value):
    return lambda engine: engine.run([PLAN], value)


def groups(**changes):
    request = {"updates": [None] * 3, "seed": 0, "max_steps": 3, "num_rollouts": 1}
    return lambda engine: engine.run_groups(SampleRequest(**{**request, **changes}))


RAGGED = [[0.0], [1.0, 2.0]]
SIZE = gaussian().acting_parameters().size
MISTAKES = [
    (lambda engine: engine.run(None), TypeError, "plans"),
    (lambda engine: engine.run(PLAN), TypeError, r"plans .*; pass \[plan\]"),
    (lambda engine: engine.run([[PLAN] * 500]), TypeError, "plans"),
    (lambda engine: engine.run([PLAN], progress=3), TypeError, "progress"),
    (lambda engine: engine.run_reduced(len, [PLAN] * 500), TypeError, "reduce"),
    (with_parameters(np.zeros(SIZE + 1)), ShapeError, "parameters"),
    (with_parameters(np.zeros((3, SIZE))), ShapeError, "parameters"),
    (with_parameters([0.0]), ShapeError, "parameters"),
    (with_parameters(RAGGED), ShapeError, "parameters"),
    (with_parameters("best"), TypeError, "parameters"),
    (with_parameters({"w": 1.0}), TypeError, "parameters"),
    (with_plan(parameters=np.zeros(SIZE + 1)), ShapeError, "parameters of plan 1"),
    (with_plan(parameters=RAGGED), ShapeError, "parameters of plan 1"),
    *(
        (with_plan(parameters=np.ones(SIZE, dtype)), TypeError, "parameters of plan 1")
        for dtype in (complex, bool, "U3", object)
    ),
    (groups(num_rollouts=None), ValueError, "either min_steps or num_rollouts"),
    (groups(num_rollouts=None, min_steps=0), ValueError, "min_steps"),
    (groups(seed="a"), TypeError, "seed"),
    (groups(seed=-1), ValueError, "seed"),
    (groups(updates=SetDrift(0.1)), TypeError, "updates"),
    (groups(updates=None), TypeError, r"updates .*; pass \[None\]"),
    (groups(updates=(None for _ in range(2))), TypeError, r"updates .*; pass list\(updates\)"),
    (groups(contexts=[np.zeros(3)] * 3), TypeError, "context"),
    (groups(contexts=3), TypeError, "contexts"),
    (groups(progress=3), TypeError, "progress"),
    (groups(parameters=RAGGED), ShapeError, "parameters"),
    (groups(parameters="best"), TypeError, "parameters"),
    *(
        (groups(parameters=np.zeros(shape)), ShapeError, "parameters")
        for shape in ((2, SIZE), (3, SIZE - 1), (SIZE - 1,), (3, 1, SIZE))
    ),
    (groups(only=[0, 2, 0]), ValueError, "only .* got 0 "),
    (groups(only=[5]), ValueError, "only .* got 5"),
    (groups(only=[-1]), ValueError, "only"),
    (groups(only=[True, False, True]), TypeError, r"only .*pass np.flatnonzero\(mask\)"),
    (groups(only=np.array([True, False, True])), TypeError, "only"),
    (groups(only=1), TypeError, "only"),
    (groups(only=[1.0]), TypeError, "only"),
    (groups(only="01"), TypeError, "only"),
    (groups(num_rollouts=None, min_steps=5, only=[5]), ValueError, "only"),
]


@pytest.mark.parametrize(("call", "error", "argument"), MISTAKES)
def test_requests_that_do_not_fit_are_refused_before_anything_runs(call, error, argument):
    for on_error in ("raise", "drop"):
        with RolloutEngine(Drift, gaussian(), on_error=on_error) as engine:
            with pytest.raises(error, match=argument) as caught:
                call(engine)
            assert len(str(caught.value)) < 300  # what came is named, and not quoted
            assert not engine.dropped and len(engine.run([PLAN], engine.policy.acting_parameters().tolist())) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_workers": 0}, ValueError),
        ({"num_workers": True}, TypeError),
        ({"pool": 3}, TypeError),
    ],
)
def test_bad_options_are_refused(options, error):
    with pytest.raises(error, match=f"{next(iter(options))} must be"):
        RolloutEngine(Drift, gaussian(), **options)


@pytest.mark.parametrize(
    ("options", "argument"), [({"sub_seed": 1}, "seed"), ({"reset_kwargs": {"start": 1}}, "reset_kwargs")]
)
def test_bad_options_of_one_rollout_are_refused(options, argument):
    with pytest.raises(ValueError, match=argument):
        rollout(Drift(), gaussian(), **options)


def test_no_plans_give_no_rollouts():
    with RolloutEngine(Drift, gaussian()) as engine:
        assert len(engine.run([])) == 0


def test_only_keeps_its_order_and_takes_arrays():
    updates = [SetDrift(0.1), None, SetDrift(0.2)]
    with RolloutEngine(Drift, gaussian()) as engine:
        for amount in ({"num_rollouts": 2}, {"min_steps": 5}):
            every = engine.run_groups(SampleRequest(updates=updates, seed=0, max_steps=3, **amount))
            found = engine.run_groups(
                SampleRequest(updates=updates, seed=0, max_steps=3, only=np.array([2, 0]), **amount)
            )
            for m, group in zip((2, 0), found, strict=True):
                assert all(rollouts_equal(a, b) for a, b in zip(every[m], group, strict=True))
            assert engine.run_groups(SampleRequest(updates=updates, seed=0, max_steps=3, only=[], **amount)) == []


def test_dropped_rollouts_are_listed_in_the_order_of_their_plans(pools):
    plans = [RolloutPlan(index=i, seed=(1, 0, i), max_steps=12) for i in range(24)]
    plans = [
        plan.with_(env_update=SetDrift(0.25)) if plan.index in (1, 4, 5, 7, 10)
        else plan.with_(parameters=gaussian().acting_parameters()) if plan.index in (0, 6) else plan
        for plan in plans
    ]  # fmt: skip
    for pool in (None, pools[2]):
        with RolloutEngine(
            partial(Trouble, "raise", only_drift=0.25), gaussian(), pool=pool, on_error="drop"
        ) as engine:
            rollouts = engine.run(plans)
            assert [entry.plan.index for entry in engine.dropped] == [1, 4, 5, 7, 10]
        assert len(rollouts) == 19


def test_the_way_out_of_an_error_is_named_and_quoted():
    failing = partial(Trouble, "raise", only_drift=0.25)
    with RolloutEngine(failing, gaussian()) as engine:
        with pytest.raises(RolloutError, match="on_error='drop'"):
            engine.run([RolloutPlan(seed=(0, 0, 0), max_steps=9, env_update=SetDrift(0.25))])
    with RolloutEngine(failing, gaussian(), on_error="drop") as engine:
        with pytest.raises(
            RolloutError, match=r"all \d+ rollouts of variation 0 were dropped, .* the motor is on fire"
        ):
            engine.run_groups(SampleRequest(updates=[SetDrift(0.25)], seed=0, max_steps=9, min_steps=5))


def test_engines_that_drop_do_not_advise_to_drop():
    def fails(obs):
        raise ArithmeticError("too far")

    with RolloutEngine(Drift, fails, on_error="drop") as engine:
        engine.run([RolloutPlan(index=i, seed=(0, 0, i), max_steps=3) for i in range(3)])
        assert len(engine.dropped) == 3
        assert not any("on_error" in entry.message for entry in engine.dropped)
        with engine.open(lambda n: RolloutPlan(seed=(1, 0, n)), 3) as live:
            with pytest.raises(RolloutError, match="the policy failed at step 0 of one of 3") as caught:
                live.advance(4)
    assert "on_error" not in str(caught.value)


# -- what rollouts say -------------------------------------------------------------------------------------------------


def test_rollouts_say_what_they_have():
    with RolloutEngine(Drift, gaussian()) as engine:
        found = engine.run(plans(3, max_steps=3))
    for call in (found.column, found.each):
        with pytest.raises(KeyError, match=r"not all rollouts have 'foo'; all have .*'actions'.*'truncated'"):
            call("foo")
    with pytest.raises(AttributeError, match=r"no attribute 'foo'; rollouts.column\(name\) .*'rewards'.*'truncated'"):
        found.foo  # noqa: B018
    with pytest.raises(TypeError, match=r"reduce must be a function .* check_reduce\(reduce, rollouts\)"):
        check_reduce(found, lambda columns, bounds: np.diff(bounds))
    with pytest.raises(TypeError, match="groups must be lists of rollouts, got 3 of type int at position 1"):
        Rollouts.joined([found, 3])
    with pytest.raises(TypeError, match="rollouts must be a list of StepSequences, got 3"):
        Rollouts.of(3)
    with pytest.raises(IndexError, match="below the number of rollouts, 3, got 7"):
        found.take([0, 7])
