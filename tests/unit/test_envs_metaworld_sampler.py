"""The order of Meta-World's tasks, and refused arguments: specs/meta.md 3.5."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from metaworld_tasks import fake_benchmark

from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
from metaroll.envs.metaworld.library import MW_TASKS_PER_ENV, metaworld_package
from metaroll.envs.metaworld.sawyer import MetaWorldEnvMaker
from metaroll.tasks.updates import SetTaskUpdate

TRAIN = ("reach-v3", "push-v3", "door-open-v3")
TEST = ("door-close-v3", "sweep-into-v3")


def drawn(updates):
    return [(update.task.env_name, int(update.task.data)) for update in updates]


def test_fifty_tasks_per_class() -> None:
    """specs/meta.md 3.5"""
    assert MW_TASKS_PER_ENV == 50
    assert MetaWorldTaskSampler(fake_benchmark(TRAIN, TEST), "train").n_tasks == 150
    assert MetaWorldTaskSampler(fake_benchmark(TRAIN, TEST), "test").n_tasks == 100


def test_updates_of_a_class_stand_together_in_the_order_of_the_classes() -> None:
    """specs/meta.md 3.5"""
    sampler = MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", generator=1)
    updates = sampler.sample(6)
    assert all(isinstance(update, SetTaskUpdate) for update in updates)
    assert [update.task.env_name for update in updates] == [name for name in TRAIN for _ in range(2)]
    assert sampler.sample(0) == []


@pytest.mark.parametrize("each", [1, 7, 10, 20, 50, 60])
def test_every_class_goes_through_all_tasks_before_one_comes_again(each: int) -> None:
    """specs/meta.md 3.5 (Q-31: also where the number per call does not divide 50)"""
    sampler = MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", generator=1)
    seen: dict[str, list[int]] = {name: [] for name in TRAIN}
    for _ in range(20):
        updates = drawn(sampler.sample(3 * each))
        for name in TRAIN:
            own = [i for env_name, i in updates if env_name == name]
            assert len(set(own[:50])) == min(each, 50)  # within a call, too
            seen[name] += own
    for own in seen.values():
        for begin in range(0, len(own) - 49, 50):
            assert sorted(own[begin : begin + 50]) == list(range(50))
    assert seen["reach-v3"] != seen["push-v3"]


def test_with_replacement_all_tasks_are_drawn_independently() -> None:
    """specs/meta.md 3.5, 9.6: supported; the first task of a class is random as well"""
    sampler = MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", generator=1)
    assert len(sampler.sample(300, with_replacement=True)) == 300
    firsts = {drawn(sampler.sample(3, with_replacement=True))[0] for _ in range(30)}
    assert len(firsts) > 10
    once = [task for _ in range(5) for task in drawn(sampler.sample(30))]
    assert len(set(once)) == 150  # the order of draws without replacement was not touched


def test_generators_decide() -> None:
    benchmark = fake_benchmark(TRAIN)
    same, again, other = (
        drawn(MetaWorldTaskSampler(benchmark, "train", generator=seed).sample(30)) for seed in (1, 1, 2)
    )
    assert same == again
    assert same != other


def test_updates_are_small_and_can_be_pickled() -> None:
    """specs/meta.md 3.6: they do not hold the sampler"""
    (update,) = MetaWorldTaskSampler(fake_benchmark(TRAIN[:1]), "train", generator=1).sample(1)
    text = pickle.dumps(update)
    assert len(text) < 1000
    assert pickle.loads(text) == update


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("valid", "kind must .*'valid'"),
        (None, "kind must .*None"),
        ("test", "kind must .*SimpleNamespace .*test"),
    ],
)
def test_a_wrong_kind_is_refused(kind, message) -> None:
    """specs/meta.md 3.5"""
    with pytest.raises(ValueError, match=message):
        MetaWorldTaskSampler(fake_benchmark(TRAIN), kind)


def test_numbers_of_tasks_must_be_multiples() -> None:
    """specs/meta.md 3.5"""
    sampler = MetaWorldTaskSampler(fake_benchmark(TRAIN), "train")
    with pytest.raises(ValueError, match=r"n_tasks must .* 3 .*got 4; .*3 or 6"):
        sampler.sample(4)
    with pytest.raises(ValueError, match=r"n_tasks must .* 3 .*got 1; [^0-9]*3$"):
        sampler.sample(1)
    with pytest.raises(TypeError, match="n_tasks must"):
        sampler.sample(3.0)  # type: ignore[arg-type]


def test_benchmarks_of_another_size_and_other_objects_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must .*50 train tasks .*got 3 .*reach-v3"):
        MetaWorldTaskSampler(fake_benchmark(TRAIN, goals=3), "train")
    with pytest.raises(TypeError, match=r"benchmark must .*'ML10'"):
        MetaWorldTaskSampler("ML10", "train")
    with pytest.raises(TypeError, match="wrapper must"):
        MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", wrapper=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"reward_version must .*'v3'"):
        MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", reward_version="v3")
    with pytest.raises(ValueError, match="horizon must"):
        MetaWorldTaskSampler(fake_benchmark(TRAIN), "train", horizon=0)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(ImportError, match=r"Meta-World .*pip install 'metaworld>="):
        metaworld_package()
    with pytest.raises(ImportError, match="pip install 'metaworld>="):
        MetaWorldEnvMaker("reach-v3")()


def test_tasks_show_their_goal() -> None:
    import metaworld

    from metaroll.envs.metaworld.tasks import as_task

    reach = metaworld.env_dict.ALL_V3_ENVIRONMENTS["reach-v3"]
    data = {"rand_vec": np.array([0.0, 0.6, 0.02, 0.1, 0.85, 0.2]), "env_cls": reach, "partially_observable": True}
    task = metaworld.types.Task("reach-v3", pickle.dumps(data))
    assert repr(as_task(task)) == "MetaWorldTask('reach-v3', [0.  , 0.6 , 0.02, 0.1 , 0.85, 0.2 ])"
    assert as_task(task) == task
