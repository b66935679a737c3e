"""Samplers of constructors and of pools: specs/meta.md 3.0, 3.2, 3.4."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.tasks.finite_samplers import ConstructEnvsSampler, EnvPoolSampler, sample_indices
from metaroll.tasks.updates import ExistingEnvUpdate


class Closable(PointRobotEnv):
    closed = False

    def close(self) -> None:
        self.closed = True


class Noisy(gymnasium.Env):
    """Draws from a generator of its own as well as from Gymnasium's."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self) -> None:
        self.own = np.random.default_rng(5)
        self.reset(seed=1)

    def draws(self) -> tuple[float, float]:
        return self.own.random(), self.np_random.random()


class Uncopyable(PointRobotEnv):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("bound to a device")


@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (3, 3), (7, 3), (20, 6)])
def test_without_replacement_permutations_follow_one_another(count: int, size: int) -> None:
    """specs/meta.md 3.0"""
    indices = sample_indices(count, size, False, 1)
    assert indices.shape == (count,)
    for begin in range(0, count, size):
        block = indices[begin : begin + size]
        assert len(set(block.tolist())) == len(block)
    counts = np.bincount(indices, minlength=size)
    assert counts.max(initial=0) - counts.min() <= 1


def test_blocks_are_shuffled_each_on_its_own() -> None:
    indices = sample_indices(200, 10, False, 1).reshape(20, 10)
    assert len({tuple(block) for block in indices.tolist()}) == 20


def test_with_replacement_draws_are_independent() -> None:
    """specs/meta.md 3.0: of 10 out of 10 all are different in about 1 of 2755 cases"""
    assert len(set(sample_indices(10, 10, True, 1).tolist())) < 10
    assert sample_indices(0, 10, True, 1).shape == (0,)
    with pytest.raises(ValueError, match=r"size must .*got 0"):
        sample_indices(1, 0, False)


def test_construct_envs_sampler_builds_new_environments() -> None:
    """specs/meta.md 3.2: constructors are not called by the sampler; an update closes the old environment"""
    built: list[int] = []

    def constructor(i: int) -> Any:
        def build() -> Closable:
            built.append(i)
            return Closable()

        return build

    sampler = ConstructEnvsSampler([constructor(i) for i in range(5)], generator=1)
    assert sampler.n_tasks == 5
    updates = sampler.sample(15)
    assert built == []
    old = Closable()
    envs = [update(old if i == 0 else None) for i, update in enumerate(updates)]
    assert old.closed
    assert len({id(env) for env in envs}) == 15
    assert sorted(built[:5]) == sorted(built[5:10]) == sorted(built[10:]) == list(range(5))
    assert sampler.sample(0) == []


def test_construct_envs_sampler_with_replacement() -> None:
    """specs/meta.md 3.0, 3.2"""
    sampler = ConstructEnvsSampler([lambda: 0, lambda: 1, lambda: 2], generator=1)
    drawn = [update() for update in sampler.sample(300, with_replacement=True)]
    assert set(drawn) == {0, 1, 2}
    assert any(len(set(drawn[i : i + 3])) < 3 for i in range(0, 300, 3))


def test_generators_decide_and_the_global_one_is_left_alone() -> None:
    constructors = [lambda: None for _ in range(6)]
    before = np.random.get_state()[1].copy()
    same, again, other = (ConstructEnvsSampler(constructors, generator=seed).sample(6) for seed in (1, 1, 2))
    assert same == again
    assert same != other
    assert (np.random.get_state()[1] == before).all()


def test_env_pool_sampler_returns_the_very_environments() -> None:
    """specs/meta.md 3.4"""
    pool = [PointRobotEnv() for _ in range(5)]
    sampler = EnvPoolSampler(pool, generator=1)
    assert sampler.n_tasks == 5
    updates = sampler.sample(5)
    assert all(isinstance(update, ExistingEnvUpdate) for update in updates)
    assert {id(update()) for update in updates} == {id(env) for env in pool}
    assert sampler.sample(0) == []
    assert len({tuple(id(update()) for update in sampler.sample(5)) for _ in range(10)}) > 1


def test_env_pool_sampler_refuses_what_a_pool_cannot_give() -> None:
    """specs/meta.md 3.4"""
    sampler = EnvPoolSampler([PointRobotEnv(), PointRobotEnv()])
    with pytest.raises(ValueError, match=r"n_tasks must .* 2, .*got 3; .*grow_pool\(3\)"):
        sampler.sample(3)
    with pytest.raises(ValueError, match="with_replacement must"):
        sampler.sample(1, with_replacement=True)


def test_grow_pool_copies_environments_of_the_pool() -> None:
    """specs/meta.md 3.4: originals first and themselves, the caller's list as it was"""
    pool = [PointRobotEnv() for _ in range(3)]
    for i, env in enumerate(pool):
        env.set_task({"goal": (0.1 * i, 0.0)})
    sampler = EnvPoolSampler(pool, generator=1)
    sampler.grow_pool(2)
    assert sampler.n_tasks == 3
    sampler.grow_pool(9)
    assert len(pool) == 3
    envs = [update() for update in sampler.sample(9)]
    assert len({id(env) for env in envs}) == 9
    assert {id(env) for env in pool} <= {id(env) for env in envs}
    goals = [float(env.get_task()["goal"][0]) for env in envs]
    assert sorted(goals) == sorted([0.0, 0.1, 0.2] * 3)


def test_copies_of_a_pool_draw_numbers_of_their_own() -> None:
    """specs/meta.md 3.4: deep copies share the state of their generators, so growth reseeds"""
    first = Noisy()
    first.draws()
    sampler = EnvPoolSampler([first], generator=1)
    sampler.grow_pool(4)
    draws = [update().draws() for update in sampler.sample(4)]
    assert len({own for own, _ in draws}) == 4
    assert len({given for _, given in draws}) == 4
    twin = EnvPoolSampler([Noisy()], generator=1)
    twin.grow_pool(4)
    assert {update().draws() for update in twin.sample(4)} & set(draws)  # seeded by the sampler's generator


def test_a_pool_that_cannot_grow_stays_as_it_is() -> None:
    sampler = EnvPoolSampler([Uncopyable()])
    with pytest.raises(TypeError, match=r"pool .* 1: .*Uncopyable .*bound to a device"):
        sampler.grow_pool(2)
    assert sampler.n_tasks == 1
    with pytest.raises(ValueError, match=r"new_size must .*-1"):
        sampler.grow_pool(-1)


def test_empty_and_wrong_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="env_constructors must"):
        ConstructEnvsSampler([])
    with pytest.raises(TypeError, match=r"env_constructors\[1\] must .*'point-robot'"):
        ConstructEnvsSampler([PointRobotEnv, "point-robot"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"envs\[0\] must .*ConstructEnvsSampler"):
        EnvPoolSampler([PointRobotEnv])
    with pytest.raises(TypeError, match=r"envs must .*'point-robot'"):
        EnvPoolSampler("point-robot")


def test_an_empty_pool_gives_no_tasks_and_refuses_to_give_more() -> None:
    """specs/meta.md 3.4: an own list may be empty"""
    sampler = EnvPoolSampler([])
    assert sampler.n_tasks == 0
    assert sampler.sample(0) == []
    sampler.grow_pool(0)
    with pytest.raises(ValueError, match=r"n_tasks must .* 0"):
        sampler.sample(1)
    with pytest.raises(ValueError, match=r"new_size must .*got 1: .*empty"):
        sampler.grow_pool(1)
