"""MetaSampler: exactly so many paths per task, true counts, policies of ours and of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from meta_envs import Echo, Ending, OldPoint, ProMPPolicy

from metaroll import RolloutEngine, SamplerPool, TaskFamily, rollout
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import MetarollError, ShapeError
from metaroll.policies import GaussianMLPPolicy
from metaroll.processing.baselines import LinearFeatureBaseline
from metaroll.processing.sample_processor import DiceMetaSampleProcessor, MetaSampleProcessor
from metaroll.rollouts.samplers.meta_sampler import MetaSampler, Sampler
from metaroll.seeding import torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan


@pytest.fixture(scope="module")
def pool(shared_pools: Any) -> SamplerPool:
    return shared_pools[2]


KEYS = {"observations", "actions", "rewards", "env_infos", "agent_infos"}


def policy_for(env: Any) -> GaussianMLPPolicy:
    return GaussianMLPPolicy(EnvSource.of(env).spec, hidden_sizes=(8,), generator=torch_generator(0))


def same_paths(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_paths(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return len(a) == len(b) and all(same_paths(x, y) for x, y in zip(a, b, strict=True))


POLICIES = {"ours": lambda: policy_for(Ending), "ProMP's": ProMPPolicy, "another's": Echo}


@pytest.mark.parametrize("kind", list(POLICIES))
@pytest.mark.parametrize("envs_per_task", [None, 1, 3, 7])
def test_exactly_so_many_paths_of_each_task_however_long_they_are(kind: str, envs_per_task: int | None) -> None:
    """specs/meta.md 1.2 and Q-01: B paths per task, five keys, true step counts."""
    with MetaSampler(Ending(), POLICIES[kind](), 5, 3, 6, envs_per_task, seed=3) as sampler:
        sampler.update_tasks()
        steps = 0
        for _ in range(2):
            found = sampler.obtain_samples()
            assert list(found) == [0, 1, 2]
            for paths in found.values():
                assert len(paths) == 5
                for path in paths:
                    assert path.keys() == KEYS
                    length = len(path["rewards"])
                    steps += length
                    assert 1 <= length <= 6
                    assert path["observations"].shape == (length, 2)
                    assert path["actions"].shape == (length, 1)
                    assert path["env_infos"]["speed"].shape == (length,)
            assert sampler.total_timesteps_sampled == steps
        assert sampler.total_samples == 3 * 5 * 6
        assert len({len(path["rewards"]) for paths in found.values() for path in paths}) > 1


def test_path_b_is_an_episode_of_environment_b_modulo_envs_per_task() -> None:
    """Both ways to run have the same episodes: the same first observations, that follow from the seeds alone."""
    firsts = []
    for kind in POLICIES:
        with MetaSampler(Ending(), POLICIES[kind](), 5, 2, 4, 2, seed=9) as sampler:
            for _ in range(2):
                found = sampler.obtain_samples()
            firsts.append([path["observations"][0] for paths in found.values() for path in paths])
            plans = [rollout_.rollout_info["plan"]["seed"] for paths in found.values() for rollout_ in paths.rollouts]
    # environment 0 of a task has run 3 episodes in the first call, environment 1 has run 2
    assert plans[:5] == [(9, 0, 3), (9, 1, 2), (9, 0, 4), (9, 1, 3), (9, 0, 5)]
    assert plans[5:] == [(9, 2, 3), (9, 3, 2), (9, 2, 4), (9, 3, 3), (9, 2, 5)]
    for other in firsts[1:]:
        np.testing.assert_array_equal(firsts[0], other)
    alone = rollout(Ending(), lambda obs: np.zeros(1), max_steps=1, seed=9, sub_seed=1, sub_sub_seed=2)
    np.testing.assert_array_equal(firsts[0][1], alone.observations[0])


def test_each_task_has_parameters_of_its_own() -> None:
    policy = policy_for("point-navigation")
    own = np.stack([policy.acting_parameters() * scale for scale in (0.0, 1.0, 3.0)])
    with MetaSampler("point-navigation", policy, 4, 3, 10, seed=1) as sampler:
        sampler.update_tasks()
        found = sampler.obtain_samples(parameters=own)
        again = MetaSampler("point-navigation", policy, 4, 3, 10, seed=1)
        again.update_tasks()
        shared = again.obtain_samples(parameters=own[1])
        again.close()
        for m, update in enumerate(sampler._updates):
            engine = RolloutEngine("point-navigation", policy)
            plans = [RolloutPlan(seed=(1, m * 4 + b, 0), env_update=update, max_steps=10) for b in range(4)]
            expected = engine.run(plans, own[m])
            for path, one in zip(found[m], expected, strict=True):
                np.testing.assert_allclose(path["actions"], one.actions, rtol=1e-6, atol=1e-6)
            engine.close()
        assert same_paths(shared[1][0]["observations"][0], found[1][0]["observations"][0])
        with pytest.raises(ShapeError, match="parameters"):
            sampler.obtain_samples(parameters=own[:2])
    with MetaSampler(Ending(), ProMPPolicy(), 2, 2, 3) as sampler, pytest.raises(TypeError, match="ProMP"):
        sampler.obtain_samples(parameters=np.zeros(3))


def test_tasks_hold_from_the_next_call_on_and_differ() -> None:
    """specs/meta.md 1.2: tasks of a batch differ, and all paths of one have it."""
    with MetaSampler(Ending(), Echo(), 3, 4, 5, seed=0) as sampler:
        assert sampler.tasks is None
        sampler.update_tasks()
        first = sampler.tasks
        assert first is not None
        assert len({task["bonus"] for task in first}) == 4
        found = sampler.obtain_samples()
        for task, paths in zip(first, found.values(), strict=True):
            for path in paths:
                bonus = path["rewards"][:-1] - path["observations"][1:, 0]
                np.testing.assert_allclose(bonus, task["bonus"], atol=1e-12)
        sampler.update_tasks()
        assert sampler.tasks != first


def test_tasks_from_a_sampler() -> None:
    updates = [SetTaskUpdate(Ending, {"chance": 0.0, "bonus": float(b)}) for b in range(3)]
    with MetaSampler(Ending, Echo(), 1, 3, 2, seed=0, task_sampler=FixedTaskSampler(updates)) as sampler:
        sampler.update_tasks()
        assert sampler.tasks is not None
        assert [task["bonus"] for task in sampler.tasks] == [0, 1, 2]
    with MetaSampler(Ending, Echo(), 1, 4, 2, seed=0, task_sampler=FixedTaskSampler(updates)) as sampler:
        with pytest.raises(ValueError, match="at most 3"):
            sampler.update_tasks()


@pytest.mark.parametrize("kind", ["ours", "ProMP's"])
@pytest.mark.parametrize("parallel", [False, True])
def test_logs_the_seconds_of_policy_and_environments(kind: str, parallel: bool, pool: SamplerPool) -> None:
    told: list[Any] = []
    options: Any = {"parallel": True, "pool": pool} if parallel else {}
    with MetaSampler(Ending(), POLICIES[kind](), 3, 2, 4, seed=0, log_to=told.append, **options) as sampler:
        sampler.obtain_samples()
        assert not told
        sampler.obtain_samples(log=True, log_prefix="Step_0-")
        assert told == [sampler.logged]
        assert told[0].keys() == {"Step_0-PolicyExecTime", "Step_0-EnvExecTime"}
        assert all(0 < seconds < 60 for seconds in told[0].values())


def test_old_gym_environments_with_policies_of_promps_and_of_ours(pool: SamplerPool) -> None:
    before = np.random.get_state()[1].copy()
    results = []
    for workers in (None, pool):
        options: Any = {"parallel": workers is not None, "pool": workers}
        with MetaSampler(OldPoint(), ProMPPolicy(2), 3, 2, 8, seed=2, **options) as sampler:
            sampler.update_tasks()
            found = sampler.obtain_samples()
            results.append([list(paths) for paths in found.values()])
            for paths in found.values():
                for one in paths.rollouts:
                    # ended where the goal was near, and only there
                    distance = one.env_infos["distance"]
                    assert one.terminated[-1] == (distance[-1] < 0.5)
                    assert (distance[:-1] >= 0.5).all()
                    assert one.truncated[-1] == (len(one) == 8)
    assert same_paths(*results)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    env = OldPoint()
    with MetaSampler(env, lambda obs: np.zeros(2), 3, 2, 8, seed=2) as sampler:
        sampler.update_tasks()
        assert len(sampler.obtain_samples()[1]) == 3
    assert not env.goal.any()


def test_a_promp_policy_without_infos() -> None:
    with MetaSampler(Ending(), ProMPPolicy(infos=False), 2, 2, 3, seed=0) as sampler:
        for paths in sampler.obtain_samples().values():
            assert paths[0]["agent_infos"] == {}


def test_processors_take_what_samplers_give() -> None:
    with MetaSampler(Ending(), policy_for(Ending), 4, 3, 6, seed=0) as sampler:
        found = sampler.obtain_samples()
    processor = MetaSampleProcessor(LinearFeatureBaseline(), normalize_adv=True)
    columns, dicts = processor.process_samples(found), processor.process_samples({m: list(p) for m, p in found.items()})
    assert same_paths(columns, dicts)
    assert {"mean", "log_std"} <= columns[0]["agent_infos"].keys()
    padded = DiceMetaSampleProcessor(LinearFeatureBaseline(), 6).process_samples(found)
    assert padded[0]["mask"].sum() == len(columns[0]["rewards"])
    bootstrapped = MetaSampleProcessor(LinearFeatureBaseline(), bootstrap_truncated=True).process_samples(found)
    plain = MetaSampleProcessor(LinearFeatureBaseline()).process_samples(found)
    place = 0
    for path, one in zip(found[0], found[0].rollouts, strict=True):
        length = len(path["rewards"])
        difference = bootstrapped[0]["advantages"][place + length - 1] - plain[0]["advantages"][place + length - 1]
        assert bool(one.terminated[-1]) == (difference == 0)
        place += length


def test_errors_are_named() -> None:
    with MetaSampler(Ending(fail_at=1), Echo(), 2, 2, 3, seed=0) as sampler:
        with pytest.raises(MetarollError, match="the motor is hot"):
            sampler.obtain_samples()
    for policy in (Echo(), ProMPPolicy()):
        with MetaSampler(Ending(fail_at=1, what="nan"), policy, 2, 2, 3, seed=0) as sampler:
            with pytest.raises(ValueError, match="reward") as raised:
                sampler.obtain_samples()
            assert "on_invalid" not in str(raised.value)  # which it does not take
    for name, arguments in {
        "rollouts_per_meta_task": (0, 1, 1),
        "meta_batch_size": (1, 0, 1),
        "max_path_length": (1, 1, 0),
    }.items():
        with pytest.raises(ValueError, match=name):
            MetaSampler(Ending(), Echo(), *arguments)
    with pytest.raises(ValueError, match="envs_per_task"):
        MetaSampler(Ending(), Echo(), 1, 1, 1, 0)
    with pytest.raises(TypeError, match="env must"):
        MetaSampler(None, Echo(), 1, 1, 1)
    with pytest.raises(TypeError, match="policy must"):
        MetaSampler(Ending(), 3, 1, 1, 1)
    with pytest.raises(ValueError, match="num_workers"):
        MetaSampler(Ending(), Echo(), 1, 1, 1, num_workers=2)
    with pytest.raises(TypeError, match="parallel must be True or False"):
        MetaSampler(Ending(), Echo(), 1, 1, 1, parallel="yes")  # type: ignore[arg-type]
    with MetaSampler(Ending(), Echo(), 1, 1, 1, seed=0) as sampler:
        for name, options in {"log": {"log": 3}, "log_prefix": {"log": True, "log_prefix": None}}.items():
            with pytest.raises(TypeError, match=f"{name} must be"):
                sampler.obtain_samples(**options)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="closed"):
        sampler.update_tasks()
    with pytest.raises(TypeError, match="discount"):
        MetaSampleProcessor(LinearFeatureBaseline(), discount=True)
    with pytest.raises(TypeError, match="task_sampler"):
        MetaSampler(Ending(), Echo(), 1, 1, 1, task_sampler=[1])  # type: ignore[arg-type]


class TooFew(Ending):
    def sample_tasks(self, num_tasks: int) -> list[Any]:
        return super().sample_tasks(num_tasks)[:2]


class WrongActions(ProMPPolicy):
    def get_actions(self, observations: list[np.ndarray]) -> Any:
        actions, infos = super().get_actions(observations)
        return actions[:-1], infos


def test_too_few_tasks_or_actions_are_told() -> None:
    wanted = "meta_batch_size=3 tasks cannot be drawn: .*3 tasks, got 2"
    with MetaSampler(TooFew(), Echo(), 1, 3, 2, seed=0) as sampler, pytest.raises(ValueError, match=wanted):
        sampler.update_tasks()
    two = FixedTaskSampler([SetTaskUpdate(TooFew, 0.0)] * 2)
    wanted = "meta_batch_size=3 tasks cannot be drawn: n_tasks must be at most 2"
    with MetaSampler(TooFew(), Echo(), 1, 3, 2, seed=0, task_sampler=two) as sampler:
        with pytest.raises(ValueError, match=wanted):
            sampler.update_tasks()
    with MetaSampler(Ending(), WrongActions(), 1, 3, 2, seed=0) as sampler:
        with pytest.raises(ShapeError, match="actions of get_actions of WrongActions"):
            sampler.obtain_samples()
    with MetaSampler("Pendulum-v1", policy_for("Pendulum-v1"), 1, 1, 2, seed=0) as sampler:
        with pytest.raises(TypeError, match=r"sample_tasks.*PendulumEnv lacks.*task_sampler="):
            sampler.update_tasks()


class Pushed(Ending):
    """Has a constant, and no tasks of its own."""

    sample_tasks = set_task = get_task = None  # type: ignore[assignment]
    push = 1.0


family = TaskFamily.from_params(Pushed, {"push": (0.5, 2.0)}, horizon=3)


def test_a_family_by_name_has_its_own_tasks() -> None:
    drawn = []
    for _ in range(2):
        with MetaSampler(f"{__name__}:family", Echo(), 1, 3, 2, seed=0) as sampler:
            sampler.update_tasks()
            assert sampler.tasks is not None
            drawn.append([task["push"] for task in sampler.tasks])
            sampler.obtain_samples()
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3
    assert all(0.5 <= push <= 2.0 for push in drawn[0])


@pytest.mark.parametrize("env", [OldPoint, lambda: OldPoint()])
def test_what_makes_old_gym_environments_is_as_good_as_one(env: Any) -> None:
    """They need not have close()."""
    with MetaSampler(env, ProMPPolicy(2), 2, 2, 3, seed=0) as sampler:
        sampler.update_tasks()
        found = sampler.obtain_samples()
    with MetaSampler(OldPoint(), ProMPPolicy(2), 2, 2, 3, seed=0) as sampler:
        sampler.update_tasks()
        again = sampler.obtain_samples()
    assert same_paths({m: list(paths) for m, paths in found.items()}, {m: list(paths) for m, paths in again.items()})


def test_the_interface_of_samplers() -> None:
    """specs/meta.md 1.1: the four arguments, and an abstract ``obtain_samples``."""

    class Two(Sampler):
        def obtain_samples(self) -> list[Any]:
            return [self.policy] * self.batch_size

    sampler = Two(Ending(), "policy", 2, 9)
    assert sampler.obtain_samples() == ["policy", "policy"]
    assert (sampler.batch_size, sampler.max_path_length) == (2, 9)
    with pytest.raises(TypeError, match="obtain_samples"):
        Sampler(Ending(), "policy", 2, 9)  # type: ignore[abstract]
    with pytest.raises(TypeError, match="env must"):
        Two(object(), "policy", 2, 9)
