"""MAML and what has come of it: exact meta-gradients, adaptation, threads, resume, bad input, and that they learn."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from meta_cases import THETA, distribution, exact_samples, finite_difference, stacked, true_return
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.registry import get_family
from metaroll.envs.point.point_navigation import PointNavigationEnv
from metaroll.errors import DataError, InvalidValueError, TaskOverlapError
from metaroll.functional.gradients.meta_gradients import adapt
from metaroll.learners.maml import tasks as task_module
from metaroll.learners.maml.learner import MAML
from metaroll.learners.maml.outer import (
    DICEOuter,
    EMAMLOuter,
    MetaProblem,
    ProMPOuter,
    TRPOOuter,
    VPGDICEOuter,
    VPGOuter,
    first_state,
    meta_losses,
)
from metaroll.learners.maml.samples import SampleSettings, gather
from metaroll.learners.maml.tasks import BatchedTasks, inner_steps, kl_product, task_gradient
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.rollouts.single.rollout import rollout
from metaroll.seeding import torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.training.evaluation.adaptation_study import study_adaptation
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.snapshots import latest
from metaroll.types import EnvSpec

OUTERS = {
    "trpo": TRPOOuter(),
    "vpg": VPGOuter(),
    "emaml": EMAMLOuter(),
    "promp": ProMPOuter(),
    "dice": DICEOuter(),
    "vpg-dice": VPGDICEOuter(),
}
ALPHA = 0.4
SIZES = torch.full((2,), ALPHA, dtype=torch.float64)
ONES = torch.ones(2, dtype=torch.float64)
SPEC = EnvSpec.from_env(PointNavigationEnv())
TASKS = get_family("point-navigation").split(12, 4, seed=0)


# ---- exact meta-gradients ----------------------------------------------------------------------------------------


def problem_of(outer, second_order=True):
    return MetaProblem(distribution, outer.inner, second_order, SIZES, ONES)


def state_of(meta, num_steps=1):
    return first_state(meta, num_steps, 0.5)


def adapted_truly(theta):
    return theta + ALPHA * torch.func.grad(true_return)(theta)


def exact_steps(theta, kind):
    """Samples before and after one exact step."""
    before = exact_samples(theta)
    after = adapt(theta.clone().requires_grad_(), [before], distribution, SIZES, kind=kind, order=0).parameters[-1]
    return [before, exact_samples(after.detach())]


@pytest.mark.parametrize("name", ["dice", "vpg-dice"])
def test_meta_gradients_by_the_unbiased_estimator_are_those_of_the_true_objective(name):
    outer = OUTERS[name]
    found, _ = task_gradient(problem_of(outer), outer, THETA, exact_steps(THETA, outer.inner), state_of(THETA))
    wanted = finite_difference(lambda theta: true_return(adapted_truly(theta)), THETA)
    torch.testing.assert_close(-found, wanted, atol=1e-8, rtol=0)
    first, _ = task_gradient(problem_of(outer, False), outer, THETA, exact_steps(THETA, outer.inner), state_of(THETA))
    torch.testing.assert_close(-first, torch.func.grad(true_return)(adapted_truly(THETA)), atol=1e-12, rtol=0)
    assert (first - found).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["trpo", "vpg", "emaml", "promp"])
def test_meta_gradients_by_ratios_are_those_of_their_objective(name):
    """Away from the parameters that made the samples, where ratios are not 1 and divergences not 0."""
    outer = OUTERS[name]
    steps, at = exact_steps(THETA, outer.inner), THETA + torch.tensor([0.03, -0.05], dtype=torch.float64)

    def loss(theta):
        leaf = theta.clone().requires_grad_()
        return meta_losses(problem_of(outer), outer, leaf, steps, state_of(theta), differentiable=False).losses

    found, losses = task_gradient(problem_of(outer), outer, at, steps, state_of(at))
    assert (losses.inner_kl.item() > 0) == (name == "promp")
    torch.testing.assert_close(found, finite_difference(loss, at).detach(), atol=1e-8, rtol=0)
    first, _ = task_gradient(problem_of(outer, False), outer, at, steps, state_of(at))
    assert (first - found).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["trpo", "vpg", "promp"])
def test_the_curvature_of_low_variance_enters(name):
    """At the samples' own parameters: ``(1 + alpha H) g`` with H of theorem 1 of Rothfuss et al. 2019."""
    outer = OUTERS[name]
    steps = exact_steps(THETA, "ratio")
    found, _ = task_gradient(problem_of(outer), outer, THETA, steps, state_of(THETA))
    before = steps[0]

    def log_probs(theta):
        return distribution(theta, before.observations).log_prob(before.actions)

    scores, curvatures = torch.func.jacrev(log_probs)(THETA), torch.func.jacrev(torch.func.jacrev(log_probs))(THETA)
    each = scores[..., :, None] * scores[..., None, :] + curvatures
    hessian = ((before.weights * before.advantages)[..., None, None] * each).sum(dim=(0, 1))
    after = torch.func.grad(true_return)(adapted_truly(THETA))
    wanted = (torch.eye(2, dtype=torch.float64) + ALPHA * hessian) @ after
    torch.testing.assert_close(-found, wanted, atol=1e-12, rtol=0)
    first, _ = task_gradient(problem_of(outer, False), outer, THETA, steps, state_of(THETA))
    torch.testing.assert_close(-first, after, atol=1e-12, rtol=0)
    assert (found - first).abs().max() > 1e-3


def test_exploration_gets_the_score_of_what_it_led_to():
    steps = exact_steps(THETA, "ratio")
    plain, explored = (
        task_gradient(problem_of(OUTERS[name]), OUTERS[name], THETA, steps, state_of(THETA))[0]
        for name in ("vpg", "emaml")
    )
    weights, before = steps[0].weights, steps[0]

    def log_likelihood(theta):
        return (weights * distribution(theta, before.observations).log_prob(before.actions)).sum()

    torch.testing.assert_close(explored - plain, -0.7 * torch.func.grad(log_likelihood)(THETA), atol=1e-12, rtol=0)


def test_learned_step_sizes_have_the_right_gradient():
    outer, meta = OUTERS["trpo"], torch.cat([THETA, SIZES])
    steps = exact_steps(THETA, "ratio")
    problem = MetaProblem(distribution, "ratio", True, SIZES, torch.ones(4, dtype=torch.float64))

    def loss(at):
        leaf = at.clone().requires_grad_()
        return meta_losses(problem, outer, leaf, steps, state_of(meta), differentiable=False).losses

    found, _ = task_gradient(problem, outer, meta, steps, state_of(meta))
    torch.testing.assert_close(found, finite_difference(loss, meta).detach(), atol=1e-8, rtol=0)


def test_products_with_the_hessian_of_the_divergence_are_exact():
    outer, steps = OUTERS["trpo"], exact_steps(THETA, "ratio")

    def slope(at):
        leaf = at.clone().requires_grad_()
        divergence = meta_losses(problem_of(outer), outer, leaf, steps, state_of(at)).outer_kl
        return torch.autograd.grad(divergence, leaf)[0]

    product = kl_product(problem_of(outer), outer, THETA, steps, state_of(THETA))
    for k, vector in enumerate(torch.eye(2, dtype=torch.float64)):
        wanted = finite_difference(lambda at, k=k: slope(at)[k], THETA)
        torch.testing.assert_close(product(vector), wanted, atol=1e-8, rtol=0)


def test_the_trust_region_bounds_the_divergence():
    outer = TRPOOuter(max_kl=1e-3)
    steps = [stacked([exact_steps(theta, "ratio")[k] for theta in (THETA, THETA)]) for k in range(2)]
    tasks = BatchedTasks(problem_of(outer), outer, steps)
    meta, _, numbers = outer.update(tasks, THETA, state_of(THETA))
    assert 5e-4 < numbers["outer_kl"] <= 1e-3
    assert tasks.means(meta, state_of(THETA)).losses < tasks.means(THETA, state_of(THETA)).losses
    stuck = TRPOOuter(max_kl=1e-3, max_backtracks=1, damping=0.0)
    overshot = stuck.update(BatchedTasks(problem_of(stuck), stuck, steps), THETA, state_of(THETA))
    assert torch.equal(overshot[0], THETA) == (overshot[2]["backtracks"] == 1.0)


def test_coefficients_of_the_divergence_follow_it():
    outer = ProMPOuter(target_kl=0.01)
    found = outer.adapted_coeffs(torch.ones(3), torch.tensor([0.001, 0.01, 0.1]))
    assert found.tolist() == [0.5, 1.0, 2.0]


# ---- tasks at once, threads, and devices that nobody waits for -----------------------------------------------------


def learner_of(outer="promp", policy=None, spec=SPEC, **options):
    policy = GaussianMLPPolicy(spec, (8, 8), init_std=0.5, generator=torch_generator(1)) if policy is None else policy
    outer = OUTERS[outer] if isinstance(outer, str) else outer
    common = {"task_sampler": TASKS[0], "test_env_sampler": FixedTaskSampler(TASKS[1]), "meta_batch_size": 3}
    common |= {"rollouts_per_task": 4, "max_path_length": 12, "evaluate_every": 0, "seed": 0}
    return MAML(spec, policy=policy, outer=outer, **{**common, **options})


def runner_of(learner, **options):
    runner = LocalRunner(seed=0, **options)
    runner.setup(learner, learner._tasks.listed[0])
    return runner


class Kept:
    """Keeps what the runner logged of each epoch."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Any) -> None:
        self.metrics.append(metrics)


def samples_of(learner):
    """What one epoch would be learned from."""
    found: list[Any] = []

    class Stop(Exception):
        """Nothing is learned."""

    def update(samples, progress=None):
        found.append(samples)
        raise Stop

    learner.update = update
    with runner_of(learner) as runner, pytest.raises(Stop):
        runner.train(1)
    del learner.update
    return found[0]


@pytest.mark.parametrize("name", OUTERS)
def test_results_do_not_depend_on_the_number_of_threads(name, monkeypatch):
    learner = learner_of(name, meta_batch_size=5)
    steps = samples_of(learner).steps
    problem, outer, meta, state = learner._problem, learner.outer, learner._meta_parameters(), learner._state
    before, found = torch.get_num_threads(), {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for rows in (1, 100, 10**9):
                monkeypatch.setattr(task_module, "_FEW_ROWS", rows)
                monkeypatch.setattr(task_module, "_MANY_ROWS", rows)
                found[threads, rows] = BatchedTasks(problem, outer, steps).gradient(meta, state)[0]
                assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for rows in (1, 100, 10**9):
        assert torch.equal(found[1, rows], found[2, rows])
        torch.testing.assert_close(found[1, rows], found[1, 1], atol=1e-6, rtol=1e-4)


def test_two_learners_in_two_threads():
    one, before = learner_of("promp"), torch.get_num_threads()
    steps, weights = samples_of(one).steps, one.policy.get_param_values()
    other = learner_of("trpo")
    tasks = BatchedTasks(one._problem, one.outer, steps)
    wanted = tasks.gradient(one._meta_parameters(), one._state)[0]
    shifted = BatchedTasks(one._problem, other.outer, steps)
    wanted_there = shifted.gradient(one._meta_parameters() + 0.1, one._state)[0]

    def compute(number):
        if number % 2:
            return torch.equal(tasks.gradient(one._meta_parameters(), one._state)[0], wanted)
        return torch.equal(shifted.gradient(one._meta_parameters() + 0.1, one._state)[0], wanted_there)

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(compute, range(24)))
    assert np.array_equal(one.policy.get_param_values(), weights)
    assert torch.get_num_threads() == before
    assert threading.active_count() < 10


def test_each_thread_gets_its_own_number_of_torch_threads_back():
    before, meet = torch.get_num_threads(), threading.Barrier(2, timeout=10)

    def compute(own):
        torch.get_num_threads()  # the first call takes over the newest number of any thread
        torch.set_num_threads(own)
        meet.wait()

        def part(number):
            meet.wait()  # both learners are inside now
            return torch.get_num_threads()

        seen = [task_module.spread(part, 1)[0]]
        meet.wait()
        seen += task_module.spread(lambda number: torch.get_num_threads(), 4)
        return torch.get_num_threads(), seen

    try:
        torch.set_num_threads(2)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(compute, (2, 3))) == [(2, [1] * 5), (3, [1] * 5)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", OUTERS)
def test_gradients_wait_for_no_device(name):
    learner = learner_of(name)
    steps = samples_of(learner).steps
    problem, outer, parameters = learner._problem, learner.outer, learner._meta_parameters()
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fake = mode.from_tensor
        own = MetaProblem(problem.distribution, problem.inner, True, fake(problem.step_sizes), fake(problem.trained))
        meta = fake(parameters)
        state = type(learner._state)(*map(fake, learner._state))
        given = [samples.map(fake) for samples in steps]
        theta = meta.expand(3, -1).clone().requires_grad_()
        adapt(theta, given[:1], problem.distribution, own.step_sizes, kind=problem.inner, order=0)
        gradient, _ = task_gradient(own, outer, meta, given, state)
        if isinstance(outer, TRPOOuter):
            following = meta + outer.direction(gradient, kl_product(own, outer, meta, given, state))
        else:
            following, state, _ = outer.step_along(meta, gradient, state)
        assert following.shape == meta.shape
        with pytest.raises(DataDependentOutputException):
            bool(following.sum() > 0)


# ---- adaptation ------------------------------------------------------------------------------------------------------


def batch_of(policy, deterministic=False, count=6):
    env = TASKS[1][0]()
    settings = {"eval": deterministic, "max_steps": 12, "no_close": True}
    return [rollout(env, policy, seed=0, sub_seed=i, **settings) for i in range(count)]


def mean_network(policy):
    return {name: value.detach().clone() for name, value in policy.named_parameters() if ".net." in name}


def test_one_inner_step_on_a_fixed_batch_changes_the_mean_network():
    learner = learner_of()
    before = mean_network(learner.policy)
    rollouts = batch_of(learner.get_exploration_policy())
    adapted = learner.adapt_policy(learner.get_exploration_policy(), rollouts)
    for name, value in mean_network(adapted).items():
        assert (value - before[name]).abs().max() > 1e-4, name
        assert torch.equal(mean_network(learner.policy)[name], before[name])
    obs = np.array([[0.1, -0.2]], dtype=np.float32)
    assert not np.allclose(adapted.get_actions(obs, True)[0], learner.policy.get_actions(obs, True)[0], atol=1e-4)
    again = learner.adapt_policy(learner.get_exploration_policy(), rollouts)
    assert np.array_equal(again.acting_parameters(), adapted.acting_parameters())
    assert not learner.info.deterministic_exploration


def test_exploration_without_noise_teaches_nothing():
    """Its actions are the means, where densities have no slope: what the evaluator must not do."""
    learner = learner_of()
    quiet = learner.adapt_policy(learner.get_exploration_policy(), batch_of(learner.policy, deterministic=True))
    for name, value in mean_network(quiet).items():
        torch.testing.assert_close(value, mean_network(learner.policy)[name], atol=1e-6, rtol=0)


def test_many_tasks_adapt_as_each_does_alone_and_go_on_from_where_they_are():
    learner = learner_of(meta_batch_size=2)
    batches = [batch_of(learner.policy, count=count) for count in (3, 5)]
    both = learner.adapt_policies([learner.get_exploration_policy() for _ in batches], batches)
    for policy, batch in zip(both, batches, strict=True):
        alone = learner.adapt_policy(learner.get_exploration_policy(), batch)
        np.testing.assert_allclose(policy.acting_parameters(), alone.acting_parameters(), atol=1e-6)
    first = both[0].acting_parameters()
    further = learner.adapt_policy(both[0], batch_of(both[0])).acting_parameters()
    assert np.abs(further - first).max() > 1e-4


def test_later_steps_may_be_shorter():
    plain, shorter = learner_of(), learner_of(later_inner_lr=0.05)
    batch = batch_of(plain.policy)
    first = [learner.adapt_policy(learner.get_exploration_policy(), batch) for learner in (plain, shorter)]
    begin = first[0].acting_parameters()
    assert np.array_equal(begin, first[1].acting_parameters())
    batch = batch_of(first[0])
    one, two = (
        learner.adapt_policy(policy, batch).acting_parameters() - begin
        for learner, policy in zip((plain, shorter), first, strict=True)
    )
    np.testing.assert_allclose(two, 0.5 * one, atol=1e-6)


def test_rollouts_of_somebody_else_s_loop_adapt():
    """Actions are those of the environment there, whose bounds are not those of the network."""
    spec = EnvSpec(SPEC.observation_space, gymnasium.spaces.Box(-3.0, 1.0, (2,)), 12)
    learner = learner_of(policy=GaussianMLPPolicy(spec, (8,), generator=torch_generator(0)), spec=spec)
    drawn = np.random.default_rng(0)
    raw = drawn.uniform(-1, 1, size=(6, 2)).astype(np.float32)
    fields: dict[str, Any] = {"rewards": drawn.normal(size=6), "observations": drawn.normal(size=(7, 2))}
    fields |= {"terminated": np.zeros(6, bool), "truncated": np.arange(6) == 5}
    ours = StepSequence(actions=raw * 2 - 1, policy_infos={"raw_action": raw}, **fields)
    theirs = StepSequence(actions=raw * 2 - 1, **fields)
    found = [
        learner.adapt_policy(learner.get_exploration_policy(), each).acting_parameters() for each in (ours, theirs)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def episode(rewards, seed=0):
    drawn, length = np.random.default_rng(seed), len(rewards)
    fields: dict[str, Any] = {"actions": drawn.uniform(-0.1, 0.1, size=(length, 2)).astype(np.float32)}
    fields |= {"rewards": np.asarray(rewards, dtype=float), "observations": drawn.normal(size=(length + 1, 2))}
    return StepSequence(**fields, terminated=np.zeros(length, bool), truncated=np.arange(length) == length - 1)


@pytest.mark.parametrize("name", ["dice", "promp"])
@pytest.mark.parametrize(("reward", "length", "count"), [(1.0, 1, 5), (-100.0, 1, 1), (1e6, 1, 3), (-100.0, 60, 5)])
def test_where_all_episodes_earn_the_same_next_to_nothing_is_learned(name, reward, length, count):
    learner = learner_of(name)
    batch = [episode([reward] * length, seed) for seed in range(count)]
    begin = learner.policy.acting_parameters()
    adapted = learner.adapt_policy(learner.get_exploration_policy(), batch).acting_parameters()
    assert np.abs(adapted - begin).max() < 1e-5


def sparse_learner(**options):
    """In a family whose agents see a sparse reward, in states that ``learner_of`` has networks for."""
    train, test = get_family("sparse-point-robot").split(6, 2)
    spec = EnvSpec.from_env(train[0]())
    tasks = {"task_sampler": train, "test_env_sampler": FixedTaskSampler(test)}
    return learner_of("promp", spec=spec, **tasks, max_path_length=20, **options), train


def test_what_is_adapted_to_is_what_may_be_seen():
    learner, tasks = sparse_learner(context_reward_key="sparse_reward")
    plain, _ = sparse_learner()
    env = SetTaskUpdate(type(tasks[0]().unwrapped), {"goal": (0.1, 0.15)})()
    rollouts = [rollout(env, learner.policy, seed=0, sub_seed=i, max_steps=20, no_close=True) for i in range(40)]
    seen = [one.env_infos["sparse_reward"] for one in rollouts]
    assert any(one.any() for one in seen)
    replaced = [
        StepSequence(
            rewards=reward, observations=one.observations, actions=one.actions, policy_infos=one.policy_infos,
            terminated=one.terminated, truncated=one.truncated,
        )
        for one, reward in zip(rollouts, seen, strict=True)
    ]  # fmt: skip
    found = learner.adapt_policy(learner.get_exploration_policy(), rollouts).acting_parameters()
    expected = plain.adapt_policy(plain.get_exploration_policy(), replaced).acting_parameters()
    np.testing.assert_array_equal(found, expected)
    dense = plain.adapt_policy(plain.get_exploration_policy(), rollouts).acting_parameters()
    assert not np.array_equal(found, dense) and learner.fingerprint() != plain.fingerprint()
    with pytest.raises(DataError, match="context_reward_key 'sparse_reward' is not among the env_infos"):
        learner.adapt_policy(learner.get_exploration_policy(), replaced)


def test_the_outer_update_and_the_log_go_by_the_reward_itself():
    learners = [sparse_learner(context_reward_key=key)[0] for key in ("sparse_reward", None)]
    sparse, dense = map(samples_of, learners)
    np.testing.assert_array_equal(sparse.returns[0], dense.returns[0])  # before adaptation both act alike
    assert (sparse.returns < 0).all()  # sums of minus the distance
    assert not torch.equal(sparse.steps[0].advantages, dense.steps[0].advantages)


def test_where_one_episode_earns_more_the_rewards_have_one_size():
    """A small difference of large rewards counts as one of small rewards."""
    learner, found = learner_of("dice"), []
    for least, more in ((0.0, 1.0), (-1000.0, -999.9)):
        batch = [episode([more if seed == 0 else least], seed) for seed in range(5)]
        begin = learner.policy.acting_parameters()
        found.append(learner.adapt_policy(learner.get_exploration_policy(), batch).acting_parameters() - begin)
    assert np.abs(found[0]).max() > 1e-3
    np.testing.assert_allclose(found[1], found[0], rtol=1e-2, atol=1e-5)


def test_episodes_that_go_on_count_as_better_than_those_that_end():
    """All rewards are 1: nothing but the end tells them apart."""
    lengths = (3, 9, 4, 12, 7, 5)
    settings = SampleSettings(discount=1.0, gae_lambda=1.0, normalize_advantages=False, time_rewards=True)
    batch = [episode([1.0] * length, seed) for seed, length in enumerate(lengths)]
    found = gather([batch], learner_of("dice").policy, SPEC, settings, torch.device("cpu"))
    np.testing.assert_allclose(found.samples.rewards[0].sum(dim=1), np.subtract(lengths, np.mean(lengths)), atol=1e-4)


def test_only_named_parameters_are_adapted():
    learner = learner_of(adapt=["policy.net.layers.2"])
    before = dict(learner.policy.named_parameters())
    adapted = learner.adapt_policy(learner.get_exploration_policy(), batch_of(learner.policy))
    for name, value in adapted.named_parameters():
        assert torch.equal(value, before[name]) != name.startswith("policy.net.layers.2"), name


def test_statistics_of_observations_are_learned_over_tasks_and_not_adapted():
    learner = learner_of(normalize_observations=True)
    with runner_of(learner) as runner:
        runner.train(1)
    mean = learner.policy.obs_mean.clone()
    assert mean.any()
    adapted = learner.adapt_policy(learner.get_exploration_policy(), batch_of(learner.policy))
    assert torch.equal(adapted.obs_mean, mean)
    twin = learner_of(normalize_observations=True)
    twin.load_state_dict(learner.state_dict())
    assert torch.equal(twin.policy.obs_mean, mean)


def test_step_sizes_are_learned():
    learner = learner_of(learn_inner_lr=True, adapt=["policy.net"])
    before = learner.step_sizes
    with runner_of(learner) as runner:
        runner.train(1)
    assert (learner.step_sizes[before == 0] == 0).all()
    assert (learner.step_sizes != before)[before > 0].mean() > 0.9


# ---- training ------------------------------------------------------------------------------------------------------


def test_inner_steps_that_diverge_are_told_with_their_tasks(tmp_path):
    learner = learner_of("vpg", inner_lr=1e38, num_inner_steps=2)
    before = learner.policy.get_param_values()
    with (
        runner_of(learner, run_dir=tmp_path / "run") as runner,
        pytest.raises(InvalidValueError, match=r"not finite in \d of 3 tasks: .*goal.*inner_lr"),
    ):
        runner.train(2)
    assert np.array_equal(learner.policy.get_param_values(), before)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert latest(tmp_path / "run") == 0


@pytest.mark.parametrize("name", ["trpo", "promp"])
def test_an_outer_update_that_is_not_finite_is_told_with_its_tasks(name, tmp_path):
    learner = learner_of(name)
    collected, update = learner.collect, learner.update

    def spoiled(runner):
        found = collected(runner)
        found.steps[-1].advantages[1] = float("nan")
        return found

    before, logged = learner.state_dict(), []
    learner.collect = spoiled
    learner.update = lambda found, progress=None: logged.append(found.tasks) or update(found)
    with (
        runner_of(learner, run_dir=tmp_path / "run") as runner,
        pytest.raises(
            InvalidValueError,
            match=r"update is not finite in 1 of 3 tasks: 1 \(.*goal.*lower (learning_rate|max_kl) \(now",
        ) as told,
    ):
        runner.train(1)
    assert f"1 ({logged[0][1]})" in str(told.value)
    after = learner.state_dict()
    assert all(str(after[part]) == str(before[part]) for part in ("policy", "outer", "moments", "counters"))
    assert latest(tmp_path / "run") == 0 and not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_step_of_the_trust_region_that_is_not_finite_is_told():
    """The line search takes none of it, and its loss and gradient are finite."""
    learner = learner_of("trpo")
    found = samples_of(learner)

    class Broken(BatchedTasks):
        def kl_product(self, meta_parameters, state):
            return lambda vector: vector * float("nan")

    _, _, numbers = learner.outer.update(
        Broken(learner._problem, learner.outer, found.steps), learner._meta_parameters(), learner._state
    )
    assert np.isfinite(numbers["outer_loss"]) and not np.isfinite(numbers["step_norm"])
    with pytest.raises(InvalidValueError, match="not finite in 3 of 3 tasks"):
        same = learner._meta_parameters(), learner._state
        found.refuse_non_finite(learner._problem, learner.outer, same, same, numbers)


def test_the_log_tells_whether_it_adapts_or_averages(tmp_path):
    learner = learner_of("promp", rollouts_per_task=10, meta_batch_size=6, max_path_length=40)
    with runner_of(learner, run_dir=tmp_path / "run") as runner:
        runner.train(2)
    logged = {row["metric"]: row["value"] for row in read_metrics(tmp_path / "run")}
    assert logged["gain"] == pytest.approx(logged["return_after"] - logged["return_before"])
    assert logged["gain"] > 0
    assert 0 <= logged["share_worse"] < 0.5
    assert logged["inner_kl"] > 0
    assert -1 <= logged["gradient_cosine"] < 0.9


def test_the_evaluator_takes_one_step_after_another():
    learner = learner_of("promp", evaluate_every=1, max_path_length=30)
    evaluator = MetaEvaluator(adaptation_rounds=2, episodes_per_round=5, adapt_from="last", n_test_rollouts=3)
    with runner_of(learner, evaluator=evaluator) as runner:
        returned = runner.train(1)
        found: Any = runner.last_evaluation
    assert found.returns.shape == (4, 1, 13)
    assert returned == pytest.approx(found.return_after)
    assert not evaluator.protocol(learner)["deterministic_exploration"]


def test_an_evaluation_takes_the_steps_that_were_learned_for():
    learner = learner_of("promp", num_inner_steps=2, max_path_length=5)
    evaluator = MetaEvaluator(test_task_sampler=FixedTaskSampler(TASKS[1][:2]), n_exploration_traj=5)
    with contextlib.closing(evaluator):
        found, study = evaluator.evaluate(learner), study_adaptation(evaluator, learner)
        told = evaluator.protocol(learner)
        assert (told["adaptation_rounds"], told["episodes_per_round"], told["adapt_from"]) == (2, 3, "last")
        assert (study.shots, study.shot_unit) == ((0, 1, 2), "rounds")
        one_step = MetaEvaluator(test_task_sampler=FixedTaskSampler(TASKS[1][:2]), n_exploration_traj=3)
        one = one_step.evaluate(learner_of("promp", max_path_length=5))
        one_step.close()
        assert found.returns.shape == (2, 1, 7) and one.returns.shape == (2, 1, 4)
        assert np.array_equal(found.returns[:, :, :3], one.returns[:, :, :3])
        assert np.array_equal(study.shot_returns[:, :, 2], found.returns[:, :, 6:])
        assert not np.array_equal(study.shot_returns[:, :, 1], study.shot_returns[:, :, 2])
        plain = evaluator.protocol(learner_of("promp"))
        assert (plain["adaptation_rounds"], plain["n_exploration_traj"], plain["adapt_from"]) == (1, 5, "all")
    two = MetaEvaluator(n_exploration_traj=6, adaptation_rounds=1).protocol(learner)
    assert (two["adaptation_rounds"], two["adapt_from"]) == (1, "all")  # as it was told


def test_held_out_gains_are_paired_so_that_a_policy_that_stays_the_same_gains_nothing():
    learner = learner_of("promp", inner_lr=1e-9, max_path_length=30)
    protocol: dict[str, Any] = {"adaptation_rounds": 2, "episodes_per_round": 3}
    protocol |= {"adapt_from": "last", "test_task_sampler": FixedTaskSampler(TASKS[1])}
    with contextlib.closing(MetaEvaluator(**protocol)) as evaluator:
        found = evaluator.evaluate(learner)
        summary = found.summary()
        assert abs(summary["change"]) > 0.1  # noise against none, one episode against another
        assert summary["gain"] == pytest.approx(0.0, abs=1e-4)
        assert np.isnan([summary["gain_ci_low"], summary["gain_ci_high"]]).all()  # of four tasks
        assert summary["share_worse"] == 0.0
        assert summary["return_unadapted"] == pytest.approx(summary["return_after"], abs=1e-4)
        assert found.env_steps == 4 * (6 + 2) * 30
        study = study_adaptation(evaluator, learner, shots=[0])
        np.testing.assert_array_equal(study.baselines["no adaptation"], found.unadapted_returns)
        verdict = study.verdict()
    assert verdict.word == "no verdict" and verdict.adapts is None and not verdict.failing
    assert verdict.text.startswith("no verdict: gain ") and "on 4 tasks" in verdict.text
    with contextlib.closing(MetaEvaluator(**protocol, deterministic=False)) as loud:
        assert loud.evaluate(learner).unadapted_returns is None  # noise in all episodes


class ChoiceTasks(gymnasium.Env):
    """Reward 1 for the choice that the task wants; it ends at the fourth step, or by chance before that."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self._wanted, self._steps = 0, 0

    def set_task(self, task: Any) -> None:
        self._wanted = task["wanted"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        ends = bool(self.np_random.random() < 0.2)
        return np.ones(2, np.float32), float(action == self._wanted), ends, self._steps >= 4, {}


@pytest.mark.parametrize("name", ["trpo", "dice"])
def test_choices_and_ragged_rollouts(name):
    spec = EnvSpec(ChoiceTasks.observation_space, ChoiceTasks.action_space, 4)
    tasks = [SetTaskUpdate(ChoiceTasks, {"wanted": i}, None) for i in range(3)]
    policy = CategoricalMLPPolicy(spec, (8,), generator=torch_generator(0))
    options = {"task_sampler": tasks, "max_path_length": 4, "inner_lr": 5.0, "rollouts_per_task": 20}
    learner, kept = learner_of(name, policy, spec, **options), Kept()
    with runner_of(learner, callbacks=[kept]) as runner:
        runner.train(2)
    assert kept.metrics[-1]["gain"] > 0.2


def test_a_policy_with_memory():
    policy = GRUGaussianPolicy(SPEC, 8, init_std=0.5, generator=torch_generator(0))
    learner, kept = learner_of("promp", policy, rollouts_per_task=8), Kept()
    with runner_of(learner, callbacks=[kept]) as runner:
        runner.train(1)
    assert np.isfinite(kept.metrics[-1]["gain"])


@pytest.mark.parametrize("name", ["promp", "emaml"])
def test_meta_gradients_of_a_policy_with_memory_are_those_of_finite_differences(name):
    policy = GRUGaussianPolicy(SPEC, 2, init_std=0.5, generator=torch_generator(0))
    learner = learner_of(name, policy, rollouts_per_task=3, max_path_length=4, meta_batch_size=1)
    steps = [samples.map(lambda tensor: in_double(tensor[0])) for samples in samples_of(learner).steps]
    problem, outer = learner._problem, learner.outer
    problem = MetaProblem(problem.distribution, problem.inner, True, problem.step_sizes.double(), problem.trained)
    made_by, drawn = learner._meta_parameters().double(), np.random.default_rng(0)
    meta = made_by + torch.from_numpy(0.05 * drawn.normal(size=len(made_by)))
    state = first_state(meta, 1, 0.5)

    def loss(at):
        leaf = at.clone().requires_grad_()
        return meta_losses(problem, outer, leaf, steps, state, differentiable=False).losses.detach()

    found, _ = task_gradient(problem, outer, meta, steps, state)
    torch.testing.assert_close(found, finite_difference(loss, meta), atol=1e-7, rtol=1e-5)
    first, _ = task_gradient(replace(problem, second_order=False), outer, meta, steps, state)
    assert (found - first).abs().max() > 1e-4


def in_double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


DICTS = EnvSpec(gymnasium.spaces.Dict(a=SPEC.observation_space), SPEC.action_space, 12)
MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"task_sampler": None}, ValueError, "task_sampler"),
    ({"inner_lr": 0.0}, ValueError, "inner_lr"),
    ({"spec": DICTS}, TypeError, "arrays .*FlattenObservation"),  # its evaluation could not adapt
    ({"outer": 3}, TypeError, "outer"),
    ({"inner": "dice"}, ValueError, "log-likelihood"),
    ({"adapt": ["head"]}, ValueError, "adapt .* policy.log_std, .* got 'head'"),
    ({"context_reward_key": 3}, TypeError, "context_reward_key"),
]


@pytest.mark.parametrize(("options", "error", "argument"), MISTAKES)
def test_mistakes(options, error, argument):
    with pytest.raises(error, match=argument):
        learner_of(**options)


def test_what_cannot_be_adapted_to_is_refused():
    learner = learner_of()
    with pytest.raises(TypeError, match="exploration_policy"):
        learner.adapt_policy(object(), batch_of(learner.policy))
    with pytest.raises(ValueError, match="at least one rollout"):
        learner.adapt_policy(learner.get_exploration_policy(), [])
    empty = [batch_of(learner.policy), Rollouts()]
    with pytest.raises(ValueError, match=r"rollouts must .* task 1"):
        learner.adapt_policies([learner.get_exploration_policy() for _ in empty], empty)


def test_a_task_without_rollouts_is_named():
    learner = learner_of()
    with runner_of(learner) as runner:
        obtain = runner.obtain_samples
        runner.obtain_samples = lambda *given, **named: [*obtain(*given, **named)[:-1], []]
        with pytest.raises(ValueError, match=r"got none for task 2 \(\{'goal': .*sampler that stopped early"):
            runner.train(1)


def test_tasks_of_a_sampler_follow_the_seed_and_are_not_tested(tmp_path):
    def make(seed, source):
        return learner_of(task_sampler=source(), seed=seed, test_env_sampler=FixedTaskSampler(TASKS[0][:2]))

    def fixed():
        return FixedTaskSampler(TASKS[0])

    def drawn():
        return SetTaskSampler(PointNavigationEnv)

    for source in (fixed, drawn):
        with LocalRunner(seed=0) as runner:
            one = make(0, source)
            runner.setup(one, PointNavigationEnv)
            seen = [one.collect(runner).tasks for _ in range(2)]
            same = make(0, source)
            assert str(same.collect(runner).tasks) == str(seen[0]) != str(make(1, source).collect(runner).tasks)
            other = make(1, source)
            other.load_state_dict(same.state_dict())
            assert str(other.collect(runner).tasks) == str(seen[1])
    assert make(0, drawn).train_tasks is None
    with pytest.raises(TaskOverlapError):
        MetaEvaluator(test_task_sampler=FixedTaskSampler(TASKS[0][:2])).prepare(make(0, fixed))


def test_inner_steps_alone_go_where_the_learner_goes():
    learner = learner_of()
    steps = samples_of(learner).steps
    taken = inner_steps(learner._problem, learner._meta_parameters(), learner._meta_parameters(), steps[0])
    assert taken.parameters.shape == (3, len(learner._meta_parameters()))
    assert (taken.kl > 0).all()
