"""specs/sampling.md 18.2: EPOpt learns from the worst rollouts of a randomized ensemble."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import metaroll
from metaroll.contrib.epopt import EPOpt
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.samplers.cvar import CVaRSampler, select_cvar
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.seeding import torch_generator
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.testing import check_learner
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

Box = gymnasium.spaces.Box
SPEC = EnvSpec(Box(-9, 9, (3,)), Box(-1, 1, (2,)), 10)
SMALL: dict[str, Any] = {"batch_size": 16, "num_passes": 2, "evaluate_every": 0}
FULL = ("full avg rollout len", "full avg return", "full median return", "full std return")


def make_ppo(spec=SPEC, **options):
    policy = GaussianMLPPolicy(spec, (8,), generator=torch_generator(1))
    return PPO(spec, policy=policy, **{**SMALL, "seed": 0, **options})


def rollouts_of(returns, length=5):
    """Rollouts with these returns, as the policy could have made them."""
    drawn = np.random.default_rng(0)
    found = []
    for total in returns:
        rewards = np.zeros(length)
        rewards[-1] = total
        ends = np.arange(length) == length - 1
        found.append(
            StepSequence(
                rewards=rewards,
                observations=drawn.normal(size=(length + 1, 3)),
                actions=drawn.normal(size=(length, 2)).astype(np.float32),
                terminated=np.zeros(length, bool),
                truncated=ends,
            )
        )
    return found


def weights_of(learner):
    return {name: value.clone() for name, value in learner.policy.state_dict().items()}


def same(one, two):
    return all(torch.equal(value, two[name]) for name, value in one.items())


def test_the_worst_are_learned_from_and_all_are_told():
    rollouts = rollouts_of([5.0, -1.0, 3.0, 0.0, 9.0, 8.0, 7.0, 2.0, 6.0, 11.0])
    learner, by_hand = EPOpt(make_ppo(), epsilon=0.3, warmup_epochs=0), make_ppo()
    metrics = learner.update(rollouts)
    expected = by_hand.update(select_cvar(rollouts, 0.3))
    assert same(weights_of(learner), weights_of(by_hand))
    assert {name: metrics[name] for name in expected} == expected
    assert (metrics["return"], metrics["episodes"], metrics["epsilon"]) == (pytest.approx(1 / 3), 3.0, 0.3)
    told = [metrics[name] for name in FULL]
    assert told == pytest.approx([5.0, 5.0, 5.5, np.std([5, -1, 3, 0, 9, 8, 7, 2, 6, 11])])


def test_the_first_epochs_are_those_of_the_learner_alone():
    rollouts = rollouts_of(range(10))
    learner, alone = EPOpt(make_ppo(), epsilon=0.1, warmup_epochs=2), make_ppo()
    for number in range(3):
        assert learner.epsilon == (1.0 if number < 2 else 0.1)
        metrics = learner.update(rollouts)
        alone.update(rollouts)
        assert metrics["episodes"] == (10.0 if number < 2 else 1.0)
        assert same(weights_of(learner), weights_of(alone)) == (number < 2)


def test_returns_that_decide_may_be_discounted():
    early, late = rollouts_of([0.0, 3.0])
    early.rewards[0] = 2.0
    for discount, worse in ((1.0, 2.0), (0.5, 3.0)):
        learner = EPOpt(make_ppo(), epsilon=0.5, warmup_epochs=0, return_discount=discount)
        assert learner.update([early, late])["return"] == worse


def randomizer():
    return DomainRandomizer(UniformDomainParam("pole_mass", 1.0, 0.5), UniformDomainParam("pole_length", 1.0, 0.3))


def randomized_pendulum():
    return DomainRandWrapperLive(PendulumEnv(max_steps=15), randomizer())


def make_runner(run_dir: Path | None = None, inside: bool = False, **options: Any):
    env: Any = randomized_pendulum if inside else PendulumEnv
    spec = EnvSpec.from_env(env())
    more = {} if inside else {"task_sampler": randomizer(), "domain_params": ["pole_mass"]}
    ppo = make_ppo(spec, max_path_length=15, **more)
    learner = EPOpt(ppo, **{"epsilon": 0.25, "warmup_epochs": 2, "rollouts_per_epoch": 8, **options})
    runner = LocalRunner(run_dir=run_dir, seed=3)
    runner.setup(learner, env)
    return runner, learner


@pytest.mark.parametrize("inside", [False, True], ids=["task sampler", "wrapper"])
def test_every_rollout_has_constants_of_its_own(inside):
    runner, learner = make_runner(inside=inside)
    with runner:
        runner.train(1)
        rollouts = learner.collect(runner)
    infos: list[Any] = [rollout.rollout_info for rollout in rollouts]
    masses = {info["domain_param"]["pole_mass"] for info in infos}
    assert len(rollouts) == len(masses) == 8
    assert all(0.5 <= mass <= 1.5 for mass in masses)


def test_only_the_worst_count_after_the_first_epochs(tmp_path):
    with make_runner(tmp_path / "run")[0] as runner:
        runner.train(4)
    logged = {name: [row["value"] for row in read_metrics(tmp_path / "run", metric=name)] for name in FULL}
    assert [len(values) for values in logged.values()] == [4] * 4
    counts = [row["value"] for row in read_metrics(tmp_path / "run", metric="episodes")]
    assert counts == [8.0, 8.0, 2.0, 2.0]


def test_it_keeps_its_promises_where_a_wrapper_randomizes():
    """Stopped while all rollouts count, resumed until only the worst do."""
    spec = EnvSpec.from_env(randomized_pendulum())

    def make(seed: int) -> EPOpt:
        ppo = make_ppo(spec, max_path_length=15, seed=seed)
        return EPOpt(ppo, epsilon=0.25, warmup_epochs=2, rollouts_per_epoch=8)

    check_learner(make, randomized_pendulum, num_epochs=4)


def test_evaluations_are_of_the_learner_s_kind():
    spec = EnvSpec.from_env(PendulumEnv())
    held_out = FixedTaskSampler([DomainParamUpdate({"pole_mass": mass}) for mass in (0.8, 1.0, 1.2)])
    ppo = make_ppo(spec, task_sampler=randomizer(), test_env_sampler=held_out, evaluate_every=2, max_path_length=15)
    with LocalRunner(seed=0, evaluator=PolicyEvaluator(num_episodes=2)) as runner:
        runner.setup(EPOpt(ppo, rollouts_per_epoch=4), PendulumEnv)
        returned = runner.train(3)
        found: Any = runner.last_evaluation
    assert found.returns.shape == (3, 2)
    assert returned == pytest.approx(found.return_mean)


def test_by_hand_with_a_sampler_that_keeps_the_worst():
    env = randomized_pendulum()
    ppo = make_ppo(EnvSpec.from_env(env))
    inner = ParallelRolloutSampler(env, ppo.policy, num_workers=1, min_rollouts=2, show_progress_bar=False, seed=0)
    before = weights_of(ppo)
    with CVaRSampler(inner, epsilon=1.0, min_rollouts=2) as sampler:
        for epsilon in (1.0, 0.25):
            sampler.epsilon = epsilon
            metrics = ppo.update(sampler.sample())
            sampler.reinit(policy=ppo.policy)
            assert metrics["episodes"] == 2.0
            worse = metrics["return"] < sampler.full_metrics["full avg return"] - 1e-9
            assert worse == (epsilon < 1.0)
    assert not same(before, weights_of(ppo))


def test_the_lines_in_the_documentation_work(capfd):
    _, text = (EPOpt.__doc__ or "").split("The equivalent with the samplers::\n\n")
    code = textwrap.dedent(text.split("\n\n")[0])
    smaller = {"PendulumEnv()": "PendulumEnv(max_steps=15)", "range(150)": "range(2)", "num_workers=2": "num_workers=1"}
    for long, short in {**smaller, "epoch < 100": "epoch < 1"}.items():
        assert long in code
        code = code.replace(long, short)
    rooms = (metaroll, metaroll.contrib, metaroll.policies, metaroll.sims, metaroll.wrappers)
    names = {name: getattr(room, name) for room in rooms for name in room.__all__}
    exec(code, names)
    assert names["sampler"].full_metrics["full avg rollout len"] == 15.0
    assert names["metrics"]["episodes"] == 10.0


class TargetEnv(gymnasium.Env):
    """One step; the reward is ``-(action - target)^2``, and the target is a domain parameter."""

    observation_space = Box(-1, 1, (1,), np.float64)
    action_space = Box(-1, 1, (1,), np.float32)
    target = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        return np.zeros(1), -float((action[0] - self.target) ** 2), True, False, {}


def test_it_serves_the_worst_case_where_the_learner_serves_the_mean():
    """Targets are 0 (eight in ten) and 1 (two in ten).

    The mean return is best at 0.2. The worst tenth are rollouts of the farther target: they are best halfway, at 0.5.
    """
    targets = [DomainParamUpdate({"target": value}) for value in [0.0] * 8 + [1.0] * 2]
    spec = EnvSpec(TargetEnv.observation_space, TargetEnv.action_space, 1)
    actions = {}
    for epsilon in (1.0, 0.1):
        policy = GaussianMLPPolicy(spec, (8,), init_std=0.1, learn_std=False, generator=torch_generator(0))
        ppo = PPO(
            spec,
            policy=policy,
            task_sampler=targets,
            learning_rate=3e-3,
            seed=0,
            batch_size=100,
            evaluate_every=0,
        )
        learner = EPOpt(ppo, epsilon=epsilon, warmup_epochs=0, rollouts_per_epoch=200)
        with LocalRunner(seed=0) as runner:
            runner.setup(learner, TargetEnv)
            runner.train(30)
            actions[epsilon] = float(runner.obtain_samples(0, num_rollouts=1, deterministic=True)[0].actions[0, 0])
    assert actions[1.0] == pytest.approx(0.2, abs=0.1)
    assert actions[0.1] == pytest.approx(0.5, abs=0.1)


def test_mistakes():
    with pytest.raises(ValueError, match="epsilon"):
        EPOpt(make_ppo(), epsilon=0.0)
    with pytest.raises(TypeError, match=r"learner .* EPOpt"):
        EPOpt(EPOpt(make_ppo()))  # type: ignore[arg-type]
    learner = EPOpt(make_ppo(), warmup_epochs=1)
    with pytest.raises(ValueError, match="at least one rollout"):
        learner.update([])
    assert learner.epsilon == 1.0
