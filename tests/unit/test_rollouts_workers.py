"""specs/meta.md 4.8 and 5.4: workers, their factory, and LocalSampler."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from engine_envs import Drift, SetDrift, Trouble
from gymnasium.spaces import Box

from metaroll.errors import RolloutError
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.networks import MLPEncoder
from metaroll.rollouts.garage.local_sampler import LocalSampler
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker, WorkerFactory
from metaroll.tasks.updates import ExistingEnvUpdate
from metaroll.types import EnvSpec

SPEC = EnvSpec.from_env(Drift())


def agent(latent_dim=2, use_next_obs=False):
    generator = torch.Generator().manual_seed(0)
    inner = TanhGaussianMLPPolicy(
        EnvSpec(Box(-1, 1, (3 + latent_dim,)), Box(-1, 1, (2,))), hidden_sizes=(8,), generator=generator
    )
    encoder = MLPEncoder(3 + 2 + 1 + 3 * use_next_obs, 2 * latent_dim, (8,), generator=generator)
    return ContextConditionedPolicy(latent_dim, encoder, inner, True, use_next_obs, seed=0)


def pearl_worker(env=None, policy=None, **kwargs):
    worker = PEARLWorker(**{"seed": 1, "max_path_length": 20, "worker_number": 0, **kwargs})
    worker.update_env(env or Drift(end=0.0))
    worker.update_agent(policy or agent())
    return worker


def gaussian():
    return GaussianMLPPolicy(SPEC, hidden_sizes=(8,), generator=torch.Generator().manual_seed(0))


# -- PEARLWorker ---------------------------------------------------------------------------------------------------


def test_pearl_worker_rollout_shapes_and_context():
    """specs/meta.md 4.8, member rollout: shapes (20, O), (20, A), (20,); the context grows to (1, 20, O + A + 1)."""
    worker = pearl_worker(accum_context=True)
    batch = worker.rollout()
    assert batch.observations.shape == (20, 3) and batch.actions.shape == (20, 2) and batch.rewards.shape == (20,)
    assert batch.lengths.tolist() == [20] and not batch.terminals.any()
    assert worker.agent.context.shape == (1, 20, 6)
    row = worker.agent.context[0, 7].numpy()
    expected = np.concatenate([batch.observations[7], batch.actions[7], [batch.rewards[7]]]).astype(np.float32)
    np.testing.assert_array_equal(row, expected)


def test_pearl_worker_context_with_next_observations():
    """specs/meta.md 4.8 with 4.3: use_next_obs adds the true successor to every row."""
    worker = pearl_worker(policy=agent(use_next_obs=True), accum_context=True)
    batch = worker.rollout()
    assert worker.agent.context.shape == (1, 20, 9)
    last = worker.agent.context[0, -1, -3:].numpy()
    np.testing.assert_array_equal(last, batch.last_observations[0].astype(np.float32))


def test_pearl_worker_without_accum_context_leaves_the_agent_alone():
    """specs/meta.md 4.8: accum_context=False."""
    worker = pearl_worker()
    worker.rollout()
    assert worker.agent.context is None


def test_pearl_worker_start_and_step():
    """specs/meta.md 4.8, members start_rollout and step_rollout: True exactly when the rollout is over."""
    worker = pearl_worker(max_path_length=3)
    worker.start_rollout()
    assert [worker.step_rollout() for _ in range(3)] == [False, False, True]
    assert worker.collect_rollout().lengths.tolist() == [3]
    with pytest.raises(ValueError, match="call start_rollout"):
        worker.step_rollout()
    ended = pearl_worker(env=Drift(end=1.0))
    ended.start_rollout()
    assert ended.step_rollout() is True
    batch = ended.collect_rollout()
    assert batch.terminals.tolist() == [True]
    assert not np.array_equal(batch.last_observations[0], batch.observations[0])  # the real final observation


def test_pearl_worker_agent_and_env():
    """specs/meta.md 4.8, attributes agent and env: None until they are set."""
    worker = PEARLWorker(seed=0, max_path_length=5, worker_number=0)
    assert worker.agent is None and worker.env is None
    with pytest.raises(ValueError, match="update_agent"):
        worker.rollout()
    env, policy = Drift(), agent()
    worker.update_env(env)
    worker.update_agent(policy)
    assert worker.agent is policy and worker.env is env


def test_deterministic_pearl_worker_acts_with_the_mean():
    """Q-38: deterministic=True has an effect: the action recorded is tanh of the mean under the rollout's z."""
    policy = agent()
    batch = pearl_worker(policy=policy, deterministic=True).rollout()
    z = policy.z.detach().numpy()
    for t in (0, 19):
        action, _, _ = policy.act(batch.observations[t : t + 1].astype(np.float32), {"z": z}, np.zeros((1, 2)), True)
        np.testing.assert_array_equal(batch.actions[t], action[0])
    noisy = pearl_worker(policy=agent()).rollout()
    assert not np.array_equal(noisy.actions, batch.actions)


def test_z_is_drawn_anew_for_every_rollout():
    """specs/meta.md 9.14: once per rollout, not per step."""
    policy = agent()
    worker = pearl_worker(policy=policy)
    worker.rollout()
    first = policy.z.clone()
    worker.rollout()
    assert not torch.equal(first, policy.z)


def test_workers_with_the_same_seed_agree_and_differ_by_number():
    a, b = pearl_worker().rollout(), pearl_worker().rollout()
    np.testing.assert_array_equal(a.actions, b.actions)
    other = pearl_worker(worker_number=1).rollout()
    assert not np.array_equal(a.observations, other.observations)


@pytest.mark.parametrize("kwargs", [{"max_path_length": 0}, {"max_path_length": -3}])
def test_max_path_length_is_checked(kwargs):
    with pytest.raises(ValueError, match="max_path_length"):
        pearl_worker(**kwargs)


def test_pearl_worker_takes_keywords_only():
    """The documented signature: all keyword-only; max_path_length is required."""
    with pytest.raises(TypeError):
        PEARLWorker(1, 20, 0)
    with pytest.raises(TypeError):
        PEARLWorker(seed=1, worker_number=0)


# -- DefaultWorker -------------------------------------------------------------------------------------------------


def default_worker(env=None, max_path_length=10):
    worker = DefaultWorker(seed=0, max_path_length=max_path_length, worker_number=0)
    worker.update_env(env or Drift(end=0.0))
    worker.update_agent(gaussian())
    return worker


def test_update_agent_takes_parameters_or_an_agent():
    worker = default_worker()
    worker.update_agent(worker.agent.get_param_values() * 0.0)
    np.testing.assert_array_equal(worker.rollout().agent_infos["mean"], 0.0)
    worker.update_agent(gaussian().state_dict())
    assert worker.rollout().agent_infos["mean"].any()
    worker.update_agent(None)
    replacement = gaussian()
    worker.update_agent(replacement)
    assert worker.agent is replacement
    fresh = DefaultWorker(seed=0, max_path_length=5, worker_number=0)
    with pytest.raises(ValueError, match="no agent yet"):
        fresh.update_agent(np.zeros(3))


def test_update_env_takes_updates_and_envs():
    worker = default_worker()
    first = worker.env
    worker.update_env(SetDrift(0.5))
    assert worker.env is first and first.drift == 0.5
    worker.update_env(None)
    assert worker.env is first
    closed = []
    first.close = lambda: closed.append(True)
    worker.update_env(Drift())
    assert closed == [True]
    with pytest.raises(TypeError, match="EnvUpdate, an environment or None"):
        worker.update_env(3)


def test_infinite_path_length_runs_to_the_end_of_the_episode():
    batch = default_worker(env=Drift(end=0.1), max_path_length=float("inf")).rollout()
    assert batch.terminals[-1]


def test_foreign_agents_work_in_workers():
    class Constant:
        def get_action(self, obs):
            return np.array([0.5, -0.5]), {}

    worker = default_worker()
    worker.update_agent(Constant())
    np.testing.assert_allclose(worker.rollout().actions, np.tile([0.5, -0.5], (10, 1)))


def test_a_default_worker_acts_under_the_z_that_the_agent_holds():
    """specs/meta.md 4.3: get_action uses the policy's present z."""
    policy = agent()
    batches = []
    for value in (0.0, 2.0):
        policy.z = torch.full((1, 2), value)
        worker = default_worker()
        worker.update_agent(policy)
        batches.append(worker.rollout())
    assert not np.allclose(batches[0].agent_infos["mean"][0], batches[1].agent_infos["mean"][0])


def test_an_error_ends_the_rollout():
    worker = default_worker(env=Trouble("raise", at_step=2))
    with pytest.raises(RolloutError, match="the motor is on fire"):
        worker.rollout()
    with pytest.raises(ValueError, match="call start_rollout"):
        worker.step_rollout()
    with pytest.raises(ValueError, match="no rollout to collect"):
        worker.collect_rollout()
    worker.env.at_step = 99
    assert worker.rollout().lengths.tolist() == [10]


def test_accumulating_workers_sample_the_same_rollouts():
    plain, accumulating = (pearl_worker(accum_context=accum).rollout() for accum in (False, True))
    for name in ("observations", "actions", "rewards", "terminals", "last_observations"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(accumulating, name))
    for name in ("env_infos", "agent_infos"):
        told, found = getattr(plain, name), getattr(accumulating, name)
        assert told.keys() == found.keys() and told
        for key, value in told.items():
            np.testing.assert_array_equal(value, found[key])
            assert value.dtype == found[key].dtype


def test_workers_are_not_pickled():
    with pytest.raises(ValueError, match="WorkerFactory"):
        pickle.dumps(default_worker())


# -- factory and sampler --------------------------------------------------------------------------------------------


def test_factory_makes_numbered_workers_and_checks_messages():
    factory = WorkerFactory(
        max_path_length=7, seed=3, n_workers=2, worker_class=PEARLWorker, worker_args={"deterministic": True}
    )
    factory = pickle.loads(pickle.dumps(factory))
    assert isinstance(factory(1), PEARLWorker)
    with pytest.raises(ValueError, match="worker_number must be at most 1"):
        factory(2)
    assert factory.prepare_worker_messages("x") == ["x", "x"]
    assert factory.prepare_worker_messages([1, 2], str) == ["1", "2"]
    with pytest.raises(ValueError, match=r"one entry per worker \(2\), got 3"):
        factory.prepare_worker_messages([1, 2, 3])


def test_factory_seed_is_not_frozen_at_import():
    """Q-42."""
    a, b = WorkerFactory(max_path_length=5), WorkerFactory(max_path_length=5)
    assert a._seed != b._seed


def sampler(n_workers=2, **kwargs):
    factory = WorkerFactory(max_path_length=10, seed=0, n_workers=n_workers, **kwargs)
    return LocalSampler.from_worker_factory(factory, gaussian(), Drift)


def test_local_sampler_samples_whole_rollouts():
    """specs/meta.md 5.4: at least as many steps as asked for; exact counts in worker order."""
    local = sampler()
    batch = local.obtain_samples(0, 35, None)
    assert int(batch.lengths.sum()) >= 35 and int(batch.lengths[:-1].sum()) < 35
    assert len(local.obtain_exact_trajectories(3, None).lengths) == 6
    with pytest.raises(ValueError, match="num_samples"):
        local.obtain_samples(0, 0, None)
    with pytest.raises(ValueError, match="one entry per worker"):
        local.obtain_samples(0, 5, None, [SetDrift(0.1)])
    local.shutdown_worker()


def test_local_sampler_does_not_clone_existing_envs():
    """Q-55."""
    local = sampler(n_workers=1)
    env = Drift(drift=0.3)
    local.obtain_samples(0, 5, None, ExistingEnvUpdate(env))
    assert local._workers[0].env is env
