"""PPO: both kinds of gradients agree, masks, normalizers, stopping rules, what it is told, and that it learns."""

from __future__ import annotations

import copy
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, InvalidValueError, ShapeError, UnknownNameError
from metaroll.functional.distributions import gaussian_log_prob
from metaroll.learners.base import TrainingTasks
from metaroll.learners.off_policy.soft import SAC
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.on_policy.ppo_trainer import PPOData
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUCritic, GRUGaussianPolicy
from metaroll.policies.networks import MLP
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.own_body import as_body
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import torch_generator
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler
from metaroll.testing import check_learner
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec, RolloutPlan

Box = gymnasium.spaces.Box
CONTINUOUS = EnvSpec(Box(-9, 9, (3,)), Box(-1, 1, (2,)), 10)
DISCRETE = EnvSpec(Box(-9, 9, (3,)), gymnasium.spaces.Discrete(4), 10)
RECURRENT = (GRUGaussianPolicy, CategoricalGRUPolicy)
SMALL = {"steps_per_epoch": 40, "batch_size": 16, "num_passes": 2, "seed": 0, "evaluate_every": 0}


class TargetEnv(gymnasium.Env):
    """Reward ``-(action - gain * target)^2``, target and noise observed; four steps, then a time limit."""

    observation_space = Box(-2, 2, (2,), np.float64)
    action_space = Box(-2, 2, (1,), np.float32)

    def __init__(self) -> None:
        self.gain = 1.0
        self._target, self._steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, np.float32))
        reward = -float((action[0] - self.gain * self._target) ** 2)
        self._steps += 1
        return self._next(), reward, False, self._steps >= 4, {}

    def _next(self) -> np.ndarray:
        self._target = float(self.np_random.uniform(-1, 1))
        return np.array([self._target, self.np_random.uniform(-1, 1)])


class ChoiceEnv(TargetEnv):
    """Reward 1 for choosing the sign of the target; ends at the first mistake."""

    action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        right = bool(action) == (self._target > 0)
        self._steps += 1
        return self._next(), float(right), not right, self._steps >= 4, {}


def make(spec=CONTINUOUS, kind=None, critic=None, **options):
    kind = kind or (GaussianMLPPolicy if spec is CONTINUOUS else CategoricalMLPPolicy)
    size = {"hidden_size": 8} if kind in RECURRENT else {"hidden_sizes": (8, 8)}
    policy = kind(spec, generator=torch_generator(1), **size)
    return PPO(spec, policy=policy, critic=critic, **{**SMALL, **options})


def rollouts_of(learner, count=5, seed=0, steps=None):
    """Rollouts as the policy could have made them, some cut off and some terminated."""
    drawn = np.random.default_rng(seed)
    found = []
    for i in range(count):
        length = int(drawn.integers(3, 11)) if steps is None else steps
        discrete = isinstance(learner.env_spec.action_space, gymnasium.spaces.Discrete)
        actions = drawn.integers(4, size=length) if discrete else drawn.normal(size=(length, 2)).astype(np.float32)
        ends = np.arange(length) == length - 1
        found.append(
            StepSequence(
                rewards=drawn.normal(size=length),
                observations=drawn.normal(2.0, 3.0, size=(length + 1, 3)),
                actions=actions,
                terminated=ends & (i % 2 == 0),
                truncated=ends & (i % 2 == 1),
            )
        )
    return found


def weights_of(learner):
    modules = (learner.policy, learner.critic)
    return {f"{type(m).__name__}.{k}": v.clone() for m in modules for k, v in m.state_dict().items()}


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["gaussian", "categorical"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"entropy_coeff": 0.1, "value_clip_range": 0.1, "clip_range": 0.05, "num_passes": 6},
        {"max_grad_norm": None, "normalize_advantages": False, "learning_rate": 1e-2},
        {"target_kl": 1e-5, "learning_rate": 1e-2},
    ],
    ids=["plain", "bonus", "free", "kl"],
)
def test_gradients_by_hand_lead_where_autograd_leads(spec, options):
    learners = [make(spec, gradients=kind, **options) for kind in ("numpy", "autograd")]
    metrics = [[learner.update(rollouts_of(learner, seed=k)) for k in range(2)][-1] for learner in learners]
    assert [learner.gradients for learner in learners] == ["numpy", "autograd"]
    first, second = (weights_of(learner) for learner in learners)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], atol=2e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("gradients", ["numpy", "autograd"])
@pytest.mark.parametrize(
    ("options", "stays"),
    [({"init_std": 0.5, "min_std": 0.5}, [True, False]), ({"learn_std": False}, [True, True])],
    ids=["bound", "fixed"],
)
def test_a_deviation_that_is_bounded_or_fixed_stays(gradients, options, stays):
    policy = GaussianMLPPolicy(CONTINUOUS, (8,), generator=torch_generator(1), **options)
    with torch.no_grad():
        policy.log_std[0] = -3.0
    before = policy.log_std.detach().clone()
    learner = PPO(CONTINUOUS, policy=policy, gradients=gradients, **SMALL)
    learner.update(rollouts_of(learner))
    assert (policy.log_std == before).tolist() == stays


class DoubledMLP(MLP):
    def forward(self, x):
        return 2.0 * super().forward(x)


class DoubledLinear(torch.nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


def test_encoders_and_critics_of_others_are_learned_by_autograd():
    generator = torch_generator(0)
    encoder = torch.nn.Identity()
    encoder.output_dim = 3
    seeing = CategoricalMLPPolicy(DISCRETE, (8, 8), encoder=encoder, generator=generator)
    assert PPO(DISCRETE, policy=seeing, critic=MLP(3, 1, (8, 8), generator=generator), **SMALL).gradients == "autograd"
    assert make(critic=DoubledMLP(3, 1, (8, 8), generator=generator)).gradients == "autograd"


def test_layers_that_acting_does_not_know_are_refused():
    def sac(policy):
        return SAC(CONTINUOUS, policy=policy, replay_size=100, max_path_length=5)

    for learner, kind in (
        (lambda spec, policy: PPO(spec, policy=policy), GaussianMLPPolicy),
        (lambda spec, policy: sac(policy), TanhGaussianMLPPolicy),
    ):
        other, hooked, doubled = (kind(CONTINUOUS, (8, 8), generator=torch_generator(0)) for _ in range(3))
        other.net = DoubledMLP(3, 2, (8, 8), generator=torch_generator(0))
        hooked.net.layers[0].register_forward_hook(lambda module, inputs, output: 2.0 * output)
        doubled.net.layers[0] = torch.nn.utils.skip_init(DoubledLinear, 3, 8)
        for policy, about in ((other, "net of"), (hooked, r"net.layers\[0\]"), (doubled, r"net.layers\[0\]")):
            with pytest.raises(TypeError, match=about):
                learner(CONTINUOUS, policy)


def test_frozen_weights_stay():
    policy = GaussianMLPPolicy(CONTINUOUS, (8, 8), generator=torch_generator(1))
    policy.net.layers[0].requires_grad_(False)
    before = [parameter.detach().clone() for parameter in policy.net.parameters()]
    learner = PPO(CONTINUOUS, policy=policy, **SMALL)
    assert learner.gradients == "autograd"
    learner.update(rollouts_of(learner))
    same = [torch.equal(old, new) for old, new in zip(before, policy.net.parameters(), strict=True)]
    assert same == [True, True, False, False, False, False]


def test_a_device_that_gradients_by_hand_do_not_know_changes_nothing():
    learner = make()
    with pytest.raises(ValueError, match="got device 'meta'"):
        learner.to("meta")
    assert all(parameter.device.type == "cpu" for parameter in learner.policy.parameters())
    learner.update(rollouts_of(learner))


def test_the_epoch_ends_when_the_policy_has_moved_too_far():
    learner = make(target_kl=1e-4, learning_rate=1e-2, num_passes=50)
    metrics = learner.update(rollouts_of(learner))
    assert metrics["whole_passes"] < 50
    free = make(learning_rate=1e-2, num_passes=50).update(rollouts_of(learner))
    assert free["whole_passes"] == 50
    assert free["kl"] > metrics["kl"]


def test_the_learning_rate_falls_linearly_to_zero():
    learner = make(lr_decay_epochs=4, learning_rate=1e-3)
    rates = [learner.update(rollouts_of(learner, seed=k))["learning_rate"] for k in range(6)]
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3, 0.0, 0.0])


def test_observations_are_normalized_by_earlier_epochs():
    """The first epoch uses its own moments; later ones those from before, so that the policy is the one that acted."""
    learner = make()
    first, second = rollouts_of(learner, seed=1), rollouts_of(learner, seed=2)
    learner.update(first)
    rows = np.concatenate([r.observations[:-1] for r in first])
    np.testing.assert_allclose(learner.policy.obs_mean.detach(), rows.mean(axis=0), rtol=1e-5)
    learner.update(second)
    rows = np.concatenate([rows, *(r.observations[:-1] for r in second)])
    np.testing.assert_allclose(learner.policy.obs_mean.detach(), rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(learner.policy.obs_scale.detach(), 1 / rows.std(axis=0), rtol=1e-5)


def test_rewards_of_any_size_give_the_same_update():
    small, large = make(), make()
    rollouts = rollouts_of(small)
    scaled = rollouts_of(large)
    for rollout in scaled:
        rollout.rewards *= 1000.0
    small.update(rollouts)
    large.update(scaled)
    for name, value in weights_of(small).items():
        torch.testing.assert_close(value, weights_of(large)[name], atol=1e-4, rtol=1e-3)
    plain = make(normalize_returns=False)
    assert plain.update(scaled)["value_loss"] > 1e3


def test_a_recurrent_policy_sees_no_padding():
    """The gradient of rollouts of several lengths side by side is that of each alone, weighted by its steps."""
    learner = make(kind=GRUGaussianPolicy, normalize_advantages=False, max_grad_norm=None)
    assert learner.gradients == "autograd"
    trainer: Any = learner._trainer
    nets = trainer.nets
    drawn = np.random.default_rng(0)
    lengths = [3, 10, 1]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rows = lambda *shape: drawn.normal(size=(14, *shape)).astype(np.float32)  # noqa: E731
    obs = rows(3)
    data = PPOData(obs, obs, rows(2), rows() - 2, rows(), rows(), rows(), bounds)

    def gradient(which):
        before = {k: v.clone() for k, v in learner.policy.state_dict().items()}
        trainer.train_minibatch(*nets._tensors_of(data, np.array(which)), 0.0)
        assert all(torch.equal(v, before[k]) for k, v in learner.policy.state_dict().items())
        return {n: p.grad.clone() for n, p in learner.policy.named_parameters() if p.grad is not None}

    together = gradient([0, 1, 2])
    alone = [gradient([i]) for i in range(3)]
    for name, value in together.items():
        expected = sum(length * part[name] for length, part in zip(lengths, alone, strict=True)) / 14
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=1e-4)
    separate = [
        trainer.nets.log_probs(obs[a:b], data.actions[a:b], np.array([0, b - a]))
        for a, b in ((0, 3), (3, 13), (13, 14))
    ]
    np.testing.assert_allclose(trainer.nets.log_probs(obs, data.actions, bounds), np.concatenate(separate), atol=1e-5)


def test_minibatches_of_a_recurrent_policy_hold_whole_rollouts():
    learner = make(kind=GRUGaussianPolicy, batch_size=20)
    metrics = learner.update(rollouts_of(learner, count=6, steps=10))
    assert metrics["gradient_steps"] == 2 * 3


@pytest.mark.parametrize("kind", [GaussianMLPPolicy, GRUGaussianPolicy])
def test_the_critic_is_told_the_domain_and_the_policy_is_not(kind):
    updates = [DomainParamUpdate({"gain": gain}) for gain in (0.5, 1.0, 2.0)]
    spec = EnvSpec.from_env(TargetEnv())
    size = {"hidden_size": 8} if kind is GRUGaussianPolicy else {}
    policy = kind(spec, generator=torch_generator(0), **size)
    learner = PPO(spec, policy=policy, task_sampler=updates, domain_params=["gain"], max_path_length=4, **SMALL)
    runner = LocalRunner(seed=0)
    runner.setup(learner, TargetEnv)
    with runner:
        runner.train(2)
        rollouts = learner.collect(runner)
    assert {r.rollout_info["plan"]["task"]["gain"] for r in rollouts} == {0.5, 1.0, 2.0}
    assert learner.critic.input_dim == spec.obs_dim + 1
    assert learner.policy.obs_dim == spec.obs_dim
    values = learner.values_of(rollouts)
    assert values.shape == (len(rollouts),)
    same = [r for r in rollouts if r.rollout_info["plan"]["task"]["gain"] == 2.0][:1]
    told_otherwise = StepSequence(
        rewards=same[0].rewards,
        observations=same[0].observations,
        actions=same[0].actions,
        rollout_info={"domain_param": {"gain": 0.5}},
    )
    assert learner.values_of(same)[0] != learner.values_of([told_otherwise])[0]
    with pytest.raises(DataError, match=r"'gain' .* rollout 0"):
        learner.update(rollouts_of_env(told_otherwise))


def rollouts_of_env(rollout):
    rollout.rollout_info = None
    return [rollout]


def test_variations_come_from_a_list_or_a_sampler():
    updates = [DomainParamUpdate({"gain": gain}) for gain in (0.5, 2.0)]
    spec = EnvSpec.from_env(TargetEnv())
    for source in (updates, FixedTaskSampler(updates, generator=0)):
        policy = GaussianMLPPolicy(spec, generator=torch_generator(0))
        learner = PPO(spec, policy=policy, task_sampler=source, tasks_per_epoch=6, max_path_length=4, **SMALL)
        runner = LocalRunner(seed=0)
        runner.setup(learner, TargetEnv)
        with runner:
            rollouts = learner.collect(runner)
        assert len(rollouts) == 12  # 40 steps in 6 variations: 7 in each, two rollouts of 4
        assert {r.rollout_info["plan"]["task"]["gain"] for r in rollouts} == {0.5, 2.0}


def test_variations_of_a_sampler_follow_the_seed_and_the_snapshot():
    """Whatever generators samplers have of their own: these are drawn from by the learner's."""
    updates = [DomainParamUpdate({"gain": gain}) for gain in np.linspace(0.5, 2.0, 50)]

    def drawn(tasks, count=8):
        return [update.task for update in tasks.draw(count)]

    for make in (
        lambda: FixedTaskSampler(updates),
        lambda: SetTaskSampler(TargetEnv, tasks=lambda num, generator: list(generator.random(num))),
    ):
        first, same, other = (TrainingTasks(make(), seed) for seed in (1, 1, 2))
        begins = drawn(first)
        assert begins == drawn(same) != drawn(other)
        state, further = first.state_dict(), drawn(first)
        other.load_state_dict(state)
        assert drawn(other) == further != begins
    assert TrainingTasks(FixedTaskSampler(updates), 0).listed == TrainingTasks(updates, 0).listed == updates
    assert TrainingTasks(None, 0).listed is TrainingTasks(DomainRandomizer(), 0).listed is None
    for num_steps, num_rollouts in ((None, None), (10, 2)):
        with pytest.raises(ValueError, match=f"either num_steps or num_rollouts, got {num_steps} and {num_rollouts}"):
            TrainingTasks(updates, 0).collect(None, 1, num_steps, num_rollouts)


@pytest.mark.parametrize(
    ("env", "kind", "options", "better_than"),
    [
        (TargetEnv, GaussianMLPPolicy, {}, -0.4),
        pytest.param(
            TargetEnv, GRUGaussianPolicy, {"learning_rate": 1e-2, "batch_size": 100}, -0.7, marks=pytest.mark.slow
        ),
        (ChoiceEnv, CategoricalMLPPolicy, {}, 3.7),
        pytest.param(
            ChoiceEnv, CategoricalGRUPolicy, {"learning_rate": 1e-2, "batch_size": 100}, 3.5, marks=pytest.mark.slow
        ),
    ],
    ids=["continuous", "recurrent", "discrete", "recurrent discrete"],
)
def test_it_learns(env, kind, options, better_than):
    spec = EnvSpec.from_env(env())
    size: dict[str, Any] = {"hidden_size": 16} if kind in RECURRENT else {"hidden_sizes": (32,)}
    if env is not ChoiceEnv:
        size["init_std"] = 0.5
    policy = kind(spec, generator=torch_generator(0), **size)
    values = {"learning_rate": 3e-3, "batch_size": 64, "discount": 0.5, **options}
    learner = PPO(spec, policy=policy, seed=0, max_path_length=4, steps_per_epoch=400, evaluate_every=0, **values)
    runner = LocalRunner(seed=0)
    runner.setup(learner, env)
    with runner:
        runner.train(25)
        rollouts = runner.obtain_samples(0, num_rollouts=100, deterministic=True)
    assert np.mean([r.rewards.sum() for r in rollouts]) > better_than


OTHER_SPACES = EnvSpec(Box(-1, 1, (5,)), CONTINUOUS.action_space, 10)
MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: make(clip_range=0.0), ValueError, "clip_range"),
    (lambda: make(gradients="numpi"), UnknownNameError, "gradients .* did you mean 'numpy'"),
    (lambda: make(gradients="numpy", kind=GRUGaussianPolicy), ValueError, "gradients=.* GRUGaussianPolicy"),
    (lambda: make(kind=TanhGaussianMLPPolicy), TypeError, "policy .* evaluate_actions"),
    (lambda: make(critic=3), TypeError, "critic"),
    (lambda: make(domain_params=["m"]), ValueError, "domain_params .* task_sampler"),
    (lambda: make(domain_params="m", task_sampler=[DomainParamUpdate({})]), TypeError, "domain_params"),
    (lambda: make(task_sampler=[]), ValueError, "task_sampler"),
    (lambda: make(task_sampler=3), TypeError, "task_sampler"),
    (lambda: make(critic=MLP(5, 1, generator=torch_generator(0))), ValueError, "critic .* rows of 3 numbers"),
    (lambda: make(critic=MLP(3, 2, generator=torch_generator(0))), ValueError, "critic .* one value per row"),
    (lambda: PPO(OTHER_SPACES, policy=make().policy.policy), ShapeError, "policy"),
    (lambda: PPO(CONTINUOUS, policy=object()), TypeError, "policy"),
    (
        lambda: PPO(CONTINUOUS, policy=NormalizedPolicy(make().policy.policy, normalize_observations=False)),
        ValueError,
        "normalize_observations",
    ),
    (
        lambda: PPO(EnvSpec(CONTINUOUS.observation_space, CONTINUOUS.action_space), policy=make().policy.policy),
        ValueError,
        "max_path_length",
    ),
    (
        lambda: PPO(CONTINUOUS, policy=GaussianMLPPolicy(CONTINUOUS, (8,)).requires_grad_(False)),
        ValueError,
        "policy must have trainable parameters",
    ),
]


@pytest.mark.parametrize(("make_one", "error", "argument"), MISTAKES)
def test_mistakes(make_one, error, argument):
    with pytest.raises(error, match=argument):
        make_one()


class Normed(torch.nn.Module):
    """Takes no gradient of a single row, and draws."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(spec.obs_dim, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


@pytest.mark.parametrize("remembers", [False, True])
def test_a_single_row_that_is_left_over_joins_the_minibatch_before_it_and_runs_resume(remembers: bool) -> None:
    """Of 9 rollouts of a step each, and of 3 rollouts of four steps."""
    spec, num_steps, size = EnvSpec.from_env(TargetEnv()), *((1, 4) if remembers else (4, 11))

    def make_normed(seed: int) -> PPO:
        drawn = torch_generator(seed)
        policy = GaussianMLPPolicy(spec, (), encoder=as_body(Normed, spec, drawn), generator=drawn)
        critic = GRUCritic(2, 4, generator=drawn) if remembers else None
        options = {**SMALL, "steps_per_epoch": 9, "batch_size": size, "seed": seed}
        return PPO(spec, policy=policy, critic=critic, max_steps=num_steps, **options)

    check_learner(make_normed, TargetEnv, num_workers=1)


def test_weights_that_are_not_finite_end_the_run():
    learner = make(learning_rate=1e30, max_grad_norm=None)
    with np.errstate(all="ignore"), pytest.raises(InvalidValueError, match="learning_rate"):
        for k in range(3):
            learner.update(rollouts_of(learner, seed=k))


@pytest.mark.parametrize("gradients", ["numpy", "autograd"])
def test_a_copy_goes_on_by_itself(gradients):
    learner = make(gradients=gradients)
    rollouts = rollouts_of(learner)
    learner.update(rollouts)
    before, copies = weights_of(learner), [copy.deepcopy(learner), cloudpickle.loads(cloudpickle.dumps(learner))]
    for other in copies:
        other.update(rollouts)
    assert all(torch.equal(value, before[name]) for name, value in weights_of(learner).items())
    learner.update(rollouts)
    after = weights_of(learner)
    assert any(not torch.equal(value, before[name]) for name, value in after.items())
    for other in copies:
        assert all(torch.equal(value, after[name]) for name, value in weights_of(other).items())


def test_a_policy_that_knows_moments_goes_on_from_them():
    """They count for ten epochs of 40 steps: with n new rows of mean m the mean is (400 * old + n * m) / (400 + n)."""
    first = make()
    first.update(rollouts_of(first, seed=1))
    pretrained = first.policy
    mean, scale = (part.detach().double().numpy() for part in (pretrained.obs_mean, pretrained.obs_scale))
    again = PPO(CONTINUOUS, policy=pretrained, **SMALL)
    assert np.array_equal(pretrained.normalized(mean[None]), np.zeros((1, 3)))
    rollouts = rollouts_of(again, seed=2)
    rows = np.concatenate([rollout.observations[:-1] for rollout in rollouts])
    metrics = again.update(rollouts)
    assert metrics["kl"] < 1.0
    n = len(rows)
    found = (400 * mean + n * rows.mean(axis=0)) / (400 + n)
    squares = (400 * (scale**-2 + mean**2) + n * (rows**2).mean(axis=0)) / (400 + n)
    np.testing.assert_allclose(pretrained.obs_mean.numpy(), found, rtol=1e-5)
    np.testing.assert_allclose(pretrained.obs_scale.numpy(), (squares - found**2) ** -0.5, rtol=1e-5)


@pytest.mark.parametrize("kind", [GaussianMLPPolicy, GRUGaussianPolicy])
def test_the_first_update_starts_from_the_policy_that_collected(kind, monkeypatch):
    """Before it has seen any observation, the policy acts on them as they are: so does its first update."""
    spec = EnvSpec.from_env(TargetEnv())
    size = {"hidden_size": 8} if kind is GRUGaussianPolicy else {"hidden_sizes": (8, 8)}
    learner = PPO(spec, policy=kind(spec, generator=torch_generator(1), **size), **{**SMALL, "max_path_length": 4})
    found = []
    monkeypatch.setattr(
        "metaroll.learners.on_policy.ppo.run_passes", lambda trainer, data, *_: found.append(data) or {}
    )
    with RolloutEngine(TargetEnv, learner.policy) as engine:
        rollouts = engine.run([RolloutPlan(index=i, seed=(0, 0, i)) for i in range(5)])
    learner.update(rollouts)
    infos = [{k: torch.from_numpy(np.array(v)) for k, v in rollout.policy_infos.items()} for rollout in rollouts]
    old = torch.cat([gaussian_log_prob(i["raw_action"], i["mean"], i["log_std"]) for i in infos]).numpy()
    np.testing.assert_allclose(found[0].log_probs, old, atol=1e-5)
    assert learner.policy.obs_mean.any()  # from the second epoch on


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE])
def test_without_networks_it_has_the_usual_ones(spec):
    one, other = (PPO(spec, **SMALL) for _ in range(2))
    assert one.gradients == "numpy" and one.fingerprint() == other.fingerprint()
    assert np.array_equal(one.policy.get_param_values(), other.policy.get_param_values())
