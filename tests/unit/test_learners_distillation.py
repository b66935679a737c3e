"""Distillation: a student with memory finds out what its teacher is told; snapshots, bad input."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from training_fakes import GuessPolicy

from metaroll.contrib.distillation import Distillation, LabeledRollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.adapters import as_policy
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.policies.playback import DummyPolicy
from metaroll.processing.on_policy import collect_on_policy
from metaroll.processing.relabel import label_actions
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import torch_generator
from metaroll.tasks.distributions import BernoulliDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec, Policy, PolicyInfo, RolloutPlan

HORIZON = 12


class Rudder(gymnasium.Env):
    """A point to be brought to 0, which goes farther or less far than it is pushed, as ``gain`` says."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self) -> None:
        self.gain = 1.0
        self._x = self._time = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._x, self._time = float(self.np_random.uniform(-2.0, 2.0)), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._x += self.gain * float(action[0])
        self._time += 1
        return self._seen(), -abs(self._x), False, self._time >= HORIZON, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._x], dtype=np.float32)


class Helmsman(Policy):
    """Knows the gain, and brings the point to 0 in steps of at most 2."""

    domain_params = ("gain",)
    info = PolicyInfo(takes_domain_params=True, draws=False)

    def initial_state(self, contexts, generators, domain_params=None):
        return {"domain": np.array([[told["gain"]] for told in domain_params])}

    def act(self, obs, state, noise, deterministic=False, parameters=None):
        return np.clip(-obs / state["domain"], -2.0, 2.0).astype(np.float32), state, {}

    def acting_parameters(self):
        return np.zeros(0, dtype=np.float32)


class Told(Policy):
    """Acts with the gain itself."""

    info = PolicyInfo(takes_domain_params=True)
    acting_parameters = Helmsman.acting_parameters

    def initial_state(self, contexts, generators, domain_params):
        return {"gain": np.array([[told["gain"]] for told in domain_params])}

    def act(self, obs, state, noise, deterministic=False, parameters=None):
        return state["gain"], state, {}


SPEC = EnvSpec(Rudder.observation_space, Rudder.action_space, HORIZON)
GAINS = DomainRandomizer(BernoulliDomainParam("gain", 0.5, 2.0, 0.5))
TESTS = [DomainParamUpdate({"gain": gain}) for gain in (0.5, 2.0)]


def made_in(gain: float) -> StepSequence:
    plan = RolloutPlan(seed=(3, 0, 0), env_update=DomainParamUpdate({"gain": gain}), max_steps=HORIZON)
    with RolloutEngine(Rudder, DummyPolicy(SPEC)) as engine:
        return engine.run([plan])[0]


def student_of(last_action: bool = True, seed: int = 0) -> Any:
    options: dict[str, Any] = {"learn_std": False, "init_std": 0.1, "generator": torch_generator(seed)}
    if not last_action:
        return GRUGaussianPolicy(SPEC, 16, **options)
    return LastActionPolicy(GRUGaussianPolicy(widened_spec(SPEC, 1), 16, **options), SPEC)


def learner_of(**options: Any) -> Distillation:
    settings: dict[str, Any] = {"steps_per_epoch": 480, "batch_size": 120, "learning_rate": 1e-2, "evaluate_every": 0}
    settings |= {"task_sampler": GAINS, "tasks_per_epoch": 8, "seed": 1, **options}
    student = settings.pop("student", None)
    teacher = settings.pop("teacher", None)
    return Distillation(SPEC, teacher=teacher or Helmsman(), student=student or student_of(), **settings)


def returns_of(policy: Any) -> float:
    plans = [
        RolloutPlan(index=i, seed=(9, 0, i), env_update=TESTS[i % 2], eval=True, max_steps=HORIZON) for i in range(40)
    ]
    with RolloutEngine(Rudder, policy) as engine:
        return float(np.mean([rollout.rewards.sum() for rollout in engine.run(plans)]))


@pytest.mark.slow
def test_a_student_with_memory_comes_near_its_teacher():
    learner = learner_of()
    before = returns_of(learner.policy)
    with LocalRunner(seed=3, evaluator=PolicyEvaluator(num_episodes=2)) as runner:
        runner.setup(learner, Rudder)
        runner.train(12)
    teacher, student = returns_of(Helmsman()), returns_of(learner.policy)
    assert before < -50.0
    assert -0.2 < teacher < 0.0
    # The first push tells the gain; until then nobody can know it.
    assert student > -1.5


def test_one_without_memory_stays_behind():
    blind = GaussianMLPPolicy(SPEC, (16,), learn_std=False, init_std=0.1, generator=torch_generator(0))
    learner = learner_of(student=blind)
    with LocalRunner(seed=3) as runner:
        runner.setup(learner, Rudder)
        runner.train(12)
    assert returns_of(learner.policy) < -1.6


def test_labels_are_what_the_teacher_would_do_there():
    plans = [RolloutPlan(index=i, seed=(1, 0, i), env_update=TESTS[i], max_steps=3 + i) for i in range(2)]
    with RolloutEngine(Rudder, student_of()) as engine:
        rollouts = engine.run(plans)
    data = collect_on_policy(rollouts, SPEC)
    labels = label_actions(Helmsman(), data, rollouts)
    gains = np.repeat([0.5, 2.0], [3, 4])
    assert np.allclose(labels[:, 0], np.clip(-data.observations[:, 0] / gains, -2.0, 2.0))


def test_a_teacher_that_sees_the_last_action_is_told_the_one_that_was_taken():
    """Not the one that it would have taken itself."""
    plans = [RolloutPlan(index=i, seed=(3, 0, i), env_update=TESTS[i % 2], max_steps=HORIZON) for i in range(3)]
    with RolloutEngine(Rudder, DummyPolicy(SPEC)) as engine:
        rollouts = engine.run(plans)
    data = collect_on_policy(rollouts, SPEC)
    teacher = NormalizedPolicy(student_of(seed=4))
    labels = label_actions(teacher, data, rollouts)
    network: Any = teacher.policy
    rows = torch.from_numpy(np.stack([rollout.observations[:-1] for rollout in rollouts])).float()
    taken = torch.from_numpy(np.stack([teacher.unscaled(rollout.actions) for rollout in rollouts]))
    with torch.no_grad():
        mean = network.policy(network.with_last_actions(rows, taken)).mean.numpy()
    expected = np.clip(mean * 2.0, -2.0, 2.0)  # the bounds of the space
    np.testing.assert_allclose(labels, expected.reshape(-1, 1), atol=1e-5)


def test_a_teacher_may_be_a_formula_that_needs_domain_parameters_and_one_with_a_belief_keeps_it():
    data = collect_on_policy(rollouts := [made_in(gain) for gain in (0.5, 2.0)], SPEC)
    labels = label_actions(as_policy(Told(), SPEC), data, rollouts)
    assert np.allclose(labels[:, 0], np.repeat([0.5, 2.0], data.lengths))
    believer = GuessPolicy(guess=1.5)
    assert np.allclose(label_actions(believer, data, rollouts), 1.5)


def test_labels_of_a_policy_with_memory_are_those_of_its_own_rollouts():
    teacher = NormalizedPolicy(student_of(seed=5), False)
    plans = [RolloutPlan(index=i, seed=(1, 0, i), env_update=TESTS[i], max_steps=5 + i, eval=True) for i in range(2)]
    with RolloutEngine(Rudder, teacher) as engine:
        rollouts = engine.run(plans)
    labels = label_actions(teacher, collect_on_policy(rollouts, SPEC), rollouts)
    assert np.allclose(labels, np.concatenate([rollout.actions for rollout in rollouts]), atol=1e-6)


def test_the_last_action_is_remembered_as_it_was_limited():
    policy = student_of()
    state = policy.initial_state([None, None], [])
    assert not state["last_action"].any()
    obs = np.array([[0.5], [-1.0]], dtype=np.float32)
    noise = np.array([[100.0], [0.0]], dtype=np.float32)
    action, state, _ = policy.act(obs, state, noise)
    assert action[0] > 1.0
    assert state["last_action"][:, 0].tolist() == [1.0, float(action[1, 0])]
    rows = policy.with_last_actions(torch.zeros(1, 3, 1), torch.tensor([[[5.0], [-0.5], [0.2]]]))
    assert rows[0, :, 1].tolist() == [0.0, 1.0, -0.5]


def test_the_memory_forgets_whole_rollouts():
    memory = LabeledRollouts(6)
    for first, lengths in ((0, (2, 3)), (10, (3,)), (20, (9,))):
        rows = np.arange(first, first + sum(lengths), dtype=np.float32)[:, None]
        memory.add(rows, -rows, 2 * rows, np.concatenate([[0], np.cumsum(lengths)]))
        if first == 10:
            assert memory.observations[:, 0].tolist() == [2, 3, 4, 10, 11, 12]
            assert memory.bounds.tolist() == [0, 3, 6]
    assert memory.labels[:, 0].tolist() == [2.0 * k for k in range(20, 29)]  # the newest stays, however long
    assert memory.bounds.tolist() == [0, 9]


def test_a_student_that_knows_moments_goes_on_from_them():
    """They count for ten epochs of 480 steps: with 480 new rows the mean moves by a share of 1 / 11."""
    student = NormalizedPolicy(student_of())
    student.set_observation_moments(np.array([11.0]), np.array([2.0]))
    learner = learner_of(student=student, num_passes=1)
    with LocalRunner(seed=3) as runner:
        runner.setup(learner, Rudder)
        rollouts = learner.collect(runner)
    learner.update(rollouts)
    rows = np.concatenate([rollout.observations[:-1] for rollout in rollouts])
    assert len(rows) == 480
    assert student.obs_mean.item() == pytest.approx((10 * 11.0 + rows.mean()) / 11, rel=1e-5)


def test_a_privileged_policy_of_ppo_is_told_what_its_critic_is_told():
    network = GaussianMLPPolicy(widened_spec(SPEC, 1), (8,), generator=torch_generator(0))
    settings: dict[str, Any] = {"task_sampler": GAINS, "domain_params": ["gain"], "privileged": True, "seed": 1}
    learner = PPO(SPEC, policy=network, steps_per_epoch=240, num_passes=1, tasks_per_epoch=10, **settings)
    with LocalRunner(seed=3) as runner:
        runner.setup(learner, Rudder)
        runner.train(1)
        rollouts = learner.collect(runner)
    policy = learner.policy
    gains = np.array([rollout.rollout_info["plan"]["task"]["gain"] for rollout in rollouts])
    assert policy.obs_mean.detach().numpy()[1] != 0.0
    assert set(gains) == {0.5, 2.0}
    # The density that the rollouts were drawn with is the one that training sees.
    data = learner._data_of(rollouts)
    assert data.observations[data.bounds[:-1], 1].tolist() == gains.tolist()
    told = policy.normalized(data.observations)
    out = policy.policy.distribution(torch.from_numpy(told))[0].detach().numpy()
    means = np.concatenate([rollout.policy_infos["mean"] for rollout in rollouts])
    assert np.allclose(out, means, atol=1e-5)


def test_a_policy_that_is_told_nothing_says_so():
    network = GaussianMLPPolicy(widened_spec(SPEC, 1), (8,), generator=torch_generator(0))
    policy = NormalizedPolicy(network, domain_params=["gain"], env_spec=SPEC)
    with pytest.raises(DataError, match=r"'gain' .* the rollout's environment"):
        policy.initial_state([None], [], [None])
    state = policy.initial_state([None], [], [{"gain": -1.0, "other": 3.0}])
    assert state["domain"].tolist() == [[-1.0]]
    with pytest.raises(ValueError, match="widened_spec"):
        NormalizedPolicy(GaussianMLPPolicy(SPEC, (8,)), domain_params=["gain"], env_spec=SPEC)
    with pytest.raises(ValueError, match="name them"):
        PPO(SPEC, policy=network, task_sampler=GAINS, privileged=True)


@pytest.mark.parametrize(
    ("options", "error", "about"),
    [
        ({"teacher_epochs": -1}, ValueError, "teacher_epochs"),
        ({"teacher": "a run"}, TypeError, "teacher must"),
        ({"teacher": GaussianMLPPolicy(widened_spec(SPEC, 2), (4,))}, ValueError, "1 observations"),
        ({"student": GaussianMLPPolicy(widened_spec(SPEC, 2), (4,))}, ShapeError, "student must"),
    ],
)
def test_bad_arguments_are_named(options, error, about):
    with pytest.raises(error, match=about):
        learner_of(**options)
