"""ProMP's executors: views of one live collection, alike in this process and in workers."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest
from meta_envs import Ending, OldPoint
from pool_functions import pids

from metaroll import SamplerPool, rollout
from metaroll.errors import MetarollError, ShapeError
from metaroll.rollouts.samplers.executors import MetaIterativeEnvExecutor, MetaParallelEnvExecutor
from metaroll.tasks.updates import SetTaskUpdate

BOTH = (MetaIterativeEnvExecutor, MetaParallelEnvExecutor)


@pytest.fixture(scope="module")
def pool(shared_pools: Any) -> SamplerPool:
    return shared_pools[2]


def made(kind: Any, pool: SamplerPool, *arguments: Any, **options: Any) -> Any:
    """An executor of either kind; those with workers share them."""
    return kind(*arguments, **options, **({"pool": pool} if kind is MetaParallelEnvExecutor else {}))


def played(executor: Any, steps: int, width: int = 1) -> list[Any]:
    """All that an executor shows in two rounds with given actions."""
    rng, found = np.random.default_rng(0), []
    for _ in range(2):
        found.append(executor.reset())
        for _ in range(steps):
            actions = list(rng.uniform(-1, 1, (executor.num_envs, width)).astype(np.float32))
            found.append(executor.step(actions))
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


@pytest.mark.parametrize(("env", "width"), [(Ending(), 1), (OldPoint(), 2), ("point-navigation", 2)])
def test_both_executors_agree_step_by_step(env: Any, width: int, pool: SamplerPool) -> None:
    """specs/meta.md 1.6 and 1.7: both give the same, path by path."""
    results = []
    for kind in BOTH:
        with made(kind, pool, env, 3, 2, 4, seed=7) as executor:
            executor.set_tasks(None)
            results.append(played(executor, 9, width))
    assert same(*results)


def test_form_of_what_is_returned() -> None:
    """specs/meta.md 1.6: lists for ``num_envs`` environments, ``dones`` a bool array, no shared memory."""
    with MetaIterativeEnvExecutor(Ending(), 3, 2, 4, seed=0) as executor:
        assert executor.num_envs == 6
        observations = executor.reset()
        assert isinstance(observations, list)
        assert [o.shape for o in observations] == [(2,)] * 6
        observations, rewards, dones, infos = executor.step([np.zeros(1)] * 6)
        assert all(isinstance(reward, float) for reward in rewards)
        assert isinstance(dones, np.ndarray)
        assert dones.dtype == bool
        assert [len(x) for x in (observations, rewards, dones, infos)] == [6] * 4
        assert all("speed" in info for info in infos)
        kept = observations[0].copy()
        executor.step([np.zeros(1)] * 6)
        np.testing.assert_array_equal(observations[0], kept)


def test_an_ended_episode_tells_how_and_the_next_one_begins() -> None:
    """specs/meta.md 1.6: auto-reset, the last observation, and how it ended."""
    with MetaIterativeEnvExecutor(Ending(), 2, 2, 3, seed=1) as executor:
        executor.set_tasks([{"chance": 0.0, "bonus": 0.0}, {"chance": 1.0, "bonus": 0.0}])
        executor.reset()
        last: Any = None
        for step in range(1, 7):
            last, _, dones, infos = executor.step([np.zeros(1)] * 4)
            assert dones.tolist() == [step % 3 == 0] * 2 + [True] * 2
            for info, done, terminates in zip(infos, dones, (False, False, True, True), strict=True):
                assert ("final_observation" in info) == done
                if done:
                    assert (info["terminated"], info["truncated"]) == (terminates, not terminates)
                    assert not np.array_equal(info["final_observation"], last[0])


def test_episode_k_of_environment_i_has_the_seed_of_both() -> None:
    with MetaIterativeEnvExecutor(Ending(), 2, 1, 3, seed=5) as executor:
        executor.set_tasks([{"chance": 0.0, "bonus": 0.0}] * 2)
        first = executor.reset()
        second = executor.reset()
        for _ in range(3):
            third, *_ = executor.step([np.zeros(1)] * 2)
    for k, shown in enumerate((first, second, third)):
        for i in range(2):
            alone = rollout(Ending(), lambda obs: np.zeros(1), max_steps=1, seed=5, sub_seed=i, sub_sub_seed=k)
            np.testing.assert_array_equal(shown[i], alone.observations[0])


def test_the_given_environment_is_never_touched() -> None:
    env = Ending()
    with MetaIterativeEnvExecutor(env, 1, 1, 3, seed=0) as executor:
        executor.set_tasks(None)
        executor.reset()
        executor.step([np.zeros(1)])
    assert env.task == {"chance": 0.3, "bonus": 0.0}
    assert env.steps == 0


def test_tasks_are_those_of_their_environments(pool: SamplerPool) -> None:
    """specs/meta.md 1.6, 1.7 and Q-10: task i for its environments; ``None`` draws them."""
    with MetaParallelEnvExecutor(Ending(), 2, 2, 5, seed=0, pool=pool) as executor:
        plain = [{"chance": 0.0, "bonus": bonus} for bonus in (10.0, 1000.0)]
        executor.set_tasks([plain[0], SetTaskUpdate(Ending, plain[1])])
        executor.reset()
        _, rewards, _, _ = executor.step([np.zeros(1)] * 4)
        assert [round(np.log10(reward)) for reward in rewards] == [1, 1, 3, 3]
        executor.set_tasks()  # drawn by the environment
        executor.reset()
        _, rewards, _, _ = executor.step([np.zeros(1)] * 4)
        assert max(rewards) < 10


@pytest.mark.parametrize("kind", BOTH)
def test_errors_come_with_the_traceback_of_their_worker(kind: Any, pool: SamplerPool) -> None:
    with made(kind, pool, Ending(fail_at=2), 2, 2, 5, seed=0) as executor:
        executor.set_tasks([{"chance": 0.0, "bonus": 0.0}] * 2)
        executor.reset()
        executor.step([np.zeros(1)] * 4)
        with pytest.raises(MetarollError, match="the motor is hot") as raised:
            executor.step([np.zeros(1)] * 4)
        assert "episode 0 of environment" in str(raised.value)
        assert "meta_envs.py" in raised.value.worker_traceback + str(raised.getrepr("long"))
        with pytest.raises(RuntimeError, match="reset"):
            executor.step([np.zeros(1)] * 4)
        executor.reset()
        executor.step([np.zeros(1)] * 4)


def test_nan_rewards_are_refused() -> None:
    with MetaIterativeEnvExecutor(Ending(fail_at=1, what="nan"), 1, 1, 5, seed=0) as executor:
        executor.reset()
        with pytest.raises(ValueError, match="reward"):
            executor.step([np.zeros(1)])


def test_a_lost_worker_is_told_and_reset_begins_anew(pool: SamplerPool) -> None:
    with MetaParallelEnvExecutor(Ending(), 2, 1, 50, seed=0, pool=pool) as executor:
        executor.set_tasks([{"chance": 0.0, "bonus": 0.0}, {"chance": 0.0, "bonus": 1.0}])
        executor.reset()
        executor.step([np.zeros(1)] * 2)
        os.kill(pool.invoke_all(pids)[0], signal.SIGKILL)
        told = r"lost, and with it the episodes of environments \d \(task \{'chance': 0.0, 'bonus': \d.0\}\); reset\(\)"
        with pytest.raises(MetarollError, match=told):
            executor.step([np.zeros(1)] * 2)
        executor.reset()
        _, _, dones, _ = executor.step([np.zeros(1)] * 2)
        assert not dones.any()


def test_closing_ends_the_workers_of_an_executor() -> None:
    with MetaParallelEnvExecutor(Ending(), 2, 1, 50, seed=0, num_workers=2) as executor:
        executor._engine.pool._init_jobs.clear()  # what a worker needs for rollouts takes seconds to import
        workers = executor._engine.pool.invoke_all(pids)
    assert not any(map(psutil.pid_exists, workers))


def test_wrong_use_is_told() -> None:
    for name, arguments in (
        ("meta_batch_size", (0, 1, 1)),
        ("envs_per_task", (1, 0, 1)),
        ("max_path_length", (1, 1, 0)),
    ):
        with pytest.raises(ValueError, match=name):
            MetaIterativeEnvExecutor(Ending(), *arguments)
    with pytest.raises(TypeError, match="env must"):
        MetaIterativeEnvExecutor(3, 1, 1, 1)
    with MetaIterativeEnvExecutor(Ending(), 2, 1, 5, seed=0) as executor:
        with pytest.raises(RuntimeError, match="reset"):
            executor.step([np.zeros(1)] * 2)
        with pytest.raises(ValueError, match="meta_batch_size=2, got 1"):
            executor.set_tasks([{}])
        with pytest.raises(TypeError, match="tasks"):
            executor.set_tasks({"chance": 1.0, "bonus": 0.0})
        executor.reset()
        with pytest.raises(TypeError, match="actions must be a list of num_envs=2, got None"):
            executor.step(None)
        with pytest.raises(ShapeError, match="num_envs=2, got 3"):
            executor.step([np.zeros(1)] * 3)
        with pytest.raises(ShapeError, match="action 1"):
            executor.step([np.zeros(1), np.zeros(2)])
        with pytest.raises(ValueError, match="finite"):
            executor.step([np.zeros(1), np.full(1, np.nan)])
    with pytest.raises(RuntimeError, match="closed"):
        executor.reset()
    with pytest.raises(RuntimeError, match="closed"):
        executor.set_tasks([{"chance": 1.0, "bonus": 0.0}] * 2)
    with MetaIterativeEnvExecutor("Pendulum-v1", 1, 1, 5, seed=0) as executor:
        with pytest.raises(TypeError, match="sample_tasks"):
            executor.set_tasks(None)
        with pytest.raises(TypeError, match="set_task"):
            executor.set_tasks([1])
