"""Issue 15 item 5: tasks from the draws of a posterior; no sbi."""

from __future__ import annotations

import pickle
import shutil
import sys

import gymnasium
import numpy as np
import pytest

from metaroll import LocalRunner, SplitTaskSampler, TaskFamily, TaskSampler, check_split
from metaroll.data.posteriors.folder import Draws, write_folder
from metaroll.envs.lookup.posteriors import posterior_family, posterior_name
from metaroll.errors import PosteriorError, ShapeError, SnapshotError
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler
from metaroll.types import EnvSpec
from metaroll.wrappers import DomainRandWrapperLive

NAMES = ("m", "l")


def table(num: int = 200) -> np.ndarray:
    mass = np.random.default_rng(0).uniform(0.8, 1.2, num)
    return np.stack([mass, 2.0 - mass], axis=1)  # jointly: the sum is always 2


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "posterior", Draws(NAMES, table()), {})


def rows(updates):
    return [tuple(update.task[name] for name in NAMES) for update in updates]


def test_every_draw_is_a_task(folder):
    sampler = PosteriorTaskSampler(folder, generator=1)
    assert isinstance(sampler, TaskSampler) and sampler.n_tasks == 200 and sampler.names == list(NAMES)
    known = list(map(tuple, table()))
    assert rows(sampler.updates) == known
    assert sorted(rows(sampler.sample(200))) == sorted(known)  # without replacement: each once
    drawn = sampler.sample(50, with_replacement=True, generator=7)
    assert set(rows(drawn)) <= set(known)
    assert drawn == PosteriorTaskSampler(folder).sample(50, with_replacement=True, generator=7)
    assert PosteriorTaskSampler(folder, ["l", "m"]).values[0].tolist() == table()[0, ::-1].tolist()


def test_training_and_held_out_draws_never_meet(folder):
    sampler = PosteriorTaskSampler(folder)
    train, test = (SplitTaskSampler(sampler, side, 0.2, generator=0) for side in ("train", "test"))
    assert train.n_tasks + test.n_tasks == 200 and 20 <= test.n_tasks <= 60
    assert not check_split(train.updates, test.updates).overlaps
    family = TaskFamily.from_params("Pendulum-v1", sampler, num_train_tasks=10, num_test_tasks=5)
    train_tasks, test_tasks = family.split()
    for update in train_tasks + test_tasks:
        assert update.task["m"] + update.task["l"] == pytest.approx(2.0)


def test_as_a_randomizer_it_is_joint(folder):
    sampler = PosteriorTaskSampler(folder)
    env = DomainRandWrapperLive(gymnasium.make("Pendulum-v1"), sampler)
    seen = set()
    for seed in range(5):
        env.reset(seed=seed)
        assert env.unwrapped.m + env.unwrapped.l == pytest.approx(2.0)
        seen.add(env.unwrapped.m)
    env.close()
    assert len(seen) == 5
    sampler.randomize(30)
    held = sampler.get_params(fmt="dict")
    np.testing.assert_allclose(held["m"] + held["l"], 2.0)
    narrow = sampler.narrowed(0.5)
    np.testing.assert_allclose(narrow.values.std(axis=0), 0.5 * table().std(axis=0))
    assert isinstance(narrow, PosteriorTaskSampler)


def test_its_state_is_restored(folder):
    sampler = PosteriorTaskSampler(folder, generator=5)
    sampler.sample(3)
    state = pickle.loads(pickle.dumps(sampler.state_dict()))
    expected = sampler.sample(20)
    resumed = PosteriorTaskSampler(folder)
    resumed.load_state_dict(state)
    assert resumed.sample(20) == expected
    with pytest.raises(SnapshotError, match="200 draws"):
        PosteriorTaskSampler((NAMES, table(9))).load_state_dict(state)


def test_a_learner_that_trains_on_it_resumes_bitwise(folder, tmp_path):
    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))

    def runner_in(out: str) -> LocalRunner:
        policy = GaussianMLPPolicy(spec, (4,), generator=torch_generator(0))
        tasks = PosteriorTaskSampler(folder, generator=0)
        learner = PPO(
            spec, policy=policy, seed=1, task_sampler=tasks, steps_per_epoch=40, num_passes=1, max_path_length=20
        )
        runner = LocalRunner(run_dir=tmp_path / out, seed=3)
        runner.setup(learner, "Pendulum-v1")
        return runner

    def weights(runner: LocalRunner) -> list[np.ndarray]:
        return [value.numpy() for value in runner._source.algo.state_dict()["policy"].values()]

    with runner_in("straight") as straight:
        straight.train(3)
        expected = weights(straight)
    with runner_in("stopped") as first:
        first.train(1)
    with runner_in("stopped") as second:
        second.restore(tmp_path / "stopped")
        second.resume(3)
        for a, b in zip(weights(second), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_wrong_posteriors_are_refused(folder, tmp_path):
    with pytest.raises(PosteriorError, match="'g'"):
        PosteriorTaskSampler(folder, ["m", "g"])
    with pytest.raises(PosteriorError, match=r"none.*posterior"):
        PosteriorTaskSampler(tmp_path / "none")
    with pytest.raises(ShapeError, match=r"\(1, 1\)"):
        PosteriorTaskSampler((NAMES, [[1.0]]))
    other = PosteriorTaskSampler((("m", "viscosity"), table()))
    with pytest.raises(KeyError, match="viscosity"):
        TaskFamily.from_params("Pendulum-v1", other)


def test_no_sbi_is_loaded(folder, monkeypatch):
    for name in ("sbi", "sklearn", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)  # so that importing it is an error
    assert len(PosteriorTaskSampler(folder).sample(3)) == 3


def test_tasks_do_not_depend_on_how_the_folder_is_written_or_where_it_is(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "elsewhere")
    found = []
    for written in ("posterior", "./posterior", str(folder), "elsewhere"):
        family = posterior_family(posterior_name("Pendulum-v1", written))
        (train, test), samplers = family.split(5, 3, seed=2), family.samplers(2)
        found.append([rows(updates) for updates in (train, test, *(sampler.sample(4) for sampler in samplers))])
    assert found[0] == found[1] == found[2] == found[3]
    other = write_folder(tmp_path / "other", Draws(NAMES, table()[::-1].copy()), {})
    assert rows(posterior_family(posterior_name("Pendulum-v1", other)).split(5, 3, seed=2)[0]) != found[0][0]


def test_earlier_runs_have_the_tasks_that_were_drawn_from_the_name_as_it_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for written in ("posterior", "./posterior"):
        family = posterior_family(posterior_name("Pendulum-v1", written))
        old, new = (family.split(5, 3, seed=2, test_after_train=before) for before in (True, False))
        found.append([[rows(side) for side in sides] for sides in (old, new)])
    (first, same), (second, again) = found
    assert first != second and same == again
