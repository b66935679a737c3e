"""TQC and discrete SAC: gradient steps by hand and against the formulas, what they choose, bad input."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import tensor

from metaroll.contrib import TQC, DiscreteSAC, discrete_sac
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.gradients.actor_critic import expected_values
from metaroll.learners.off_policy.configs import SoftUpdate
from metaroll.learners.off_policy.soft import SAC, SoftObjective, SoftTrainer
from metaroll.policies.encoders import FixedEncoder, ObservationEncoder
from metaroll.policies.exploration import ChoiceExploration
from metaroll.policies.gaussian import CategoricalMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.networks import Critics, QFunction
from metaroll.seeding import torch_generator
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.experiments import build, resolve
from metaroll.types import EnvSpec

Box, Discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete
LINE = EnvSpec(Box(-9, 9, (1,)), Box(-3, 3, (1,)), 4)
PAIR = EnvSpec(Box(-9, 9, (1,)), Discrete(2), 4)
CPU = torch.device("cpu")
RATES: dict[str, Any] = {"policy_lr": 0.1, "qf_lr": 0.1, "temperature_lr": 0.1}
TINY: dict[str, Any] = {"steps_per_epoch": 3, "n_train_steps": 8, "buffer_batch_size": 8, "min_buffer_size": 8}


# ---------------------------------------------------------------------------------------------------------------- TQC
def tqc_of_two_critics() -> TQC:
    """Critics of two atoms, ``s + a + (0, 2)`` and ``s + a + (1, 7)``, a policy that draws from N(0.5 s, 0.25)."""
    policy = TanhGaussianMLPPolicy(LINE, ())
    policy.set_param_values(np.array([0.5, 0.0, 0.0, np.log(0.5)], np.float32))
    critics = Critics(LINE, 2, (), num_atoms=2)
    with torch.no_grad():
        critics.weights[0].fill_(1.0)
        critics.biases[0].copy_(tensor([[0.0, 2.0], [1.0, 7.0]]))
    options: dict[str, Any] = {"num_critics": 2, "num_atoms": 2, "dropped_atoms": 1, "init_temperature": 0.2}
    return TQC(LINE, policy=policy, qf=critics, seed=0, replay_size=50, **options, **RATES, **TINY)


def drawn(mean: float, n: float) -> tuple[float, float]:
    """Action and log-density for a standard normal number."""
    action = math.tanh(mean + 0.5 * n)
    return action, -0.5 * n * n - math.log(0.5) - 0.5 * math.log(2 * math.pi) - math.log(1 - action**2)


def test_a_step_of_tqc_by_hand() -> None:
    trainer = tqc_of_two_critics().trainer
    assert trainer is not None
    noise = torch.randn(2, 1, 1, generator=torch_generator(0)).flatten().tolist()
    batch = TransitionBatch(tensor([[2.0]]), tensor([[1.0]]), tensor([3.0]), tensor([[1.0]]), tensor([0.9]))
    errors = trainer.step(batch)
    action, log_prob = drawn(0.5, noise[0])
    # Atoms of s' = 1: 1 + a' + (0, 1, 2, 7), of which the largest two (one of two for each critic) are left out.
    target = [3 + 0.9 * (1 + action + atom - 0.2 * log_prob) for atom in (0.0, 1.0)]
    thetas = [[3.0, 5.0], [4.0, 10.0]]
    losses, grads = [], []
    for theta, tau in ((theta, tau) for row in thetas for theta, tau in zip(row, (0.25, 0.75), strict=True)):
        us = [y - theta for y in target]
        sides = [abs(tau - (u < 0)) for u in us]
        losses.append(sum(w * (u * u / 2 if abs(u) <= 1 else abs(u) - 0.5) for w, u in zip(sides, us, strict=True)))
        grads.append(-sum(w * min(max(u, -1), 1) for w, u in zip(sides, us, strict=True)))
    told = trainer.means.take()
    assert told["qf_loss"] == pytest.approx(sum(losses) / 4, rel=1e-4) and told["q_mean"] == pytest.approx(5.5)
    assert errors.item() == pytest.approx(sum(target) / 2 - 5.5, rel=1e-5)
    # Adam's first step is 0.1 against the sign of the gradient, which is that of each atom.
    biases = np.array([0.0, 2.0, 1.0, 7.0]) - 0.1 * np.sign(grads)
    critics = trainer.networks.critics  # type: ignore[attr-defined]
    assert critics.biases[0].flatten().tolist() == pytest.approx(biases.tolist(), rel=1e-5)
    # The policy climbs the mean of all four atoms, with the critics after their step.
    action, log_prob = drawn(1.0, noise[1])
    weights = critics.weights[0].detach().reshape(4, 2).double().mean(dim=0).tolist()
    value = weights[0] * 2 + weights[1] * action + biases.mean()
    assert told["policy_loss"] == pytest.approx(0.2 * log_prob - value, rel=1e-4)
    assert told["temperature"] == pytest.approx(0.2 * math.exp(0.1 * np.sign(log_prob - 1)), rel=1e-4)


def test_atoms_are_perceptrons_side_by_side() -> None:
    critics = Critics(LINE, 3, (8,), num_atoms=4, generator=torch_generator(0))
    obs, act = torch.randn(2, 5, 1, generator=torch_generator(1))
    atoms = critics(obs, act)
    hidden = torch.relu(torch.cat((obs, act), dim=1) @ critics.weights[0][1].T + critics.biases[0][1])
    torch.testing.assert_close(atoms[1], hidden @ critics.weights[1][1].T + critics.biases[1][1])
    assert atoms.shape == (3, 5, 4) and critics(obs, act, first=True).shape == (1, 5, 4)
    assert Critics(LINE, 2, (), num_atoms=1)(obs, act).shape == (2, 5, 1)


MISTAKES: list[tuple[Any, EnvSpec, dict[str, Any], type[Exception], str]] = [
    (TQC, LINE, {"num_atoms": 3, "dropped_atoms": 3}, ValueError, "dropped_atoms .* num_atoms=3"),
    (TQC, LINE, {"qf": Critics(LINE, 5)}, ShapeError, "qf must output 25 numbers per row"),
    (TQC, LINE, {"qf": Critics(LINE, 2, num_atoms=25)}, ValueError, "qf must hold 5 critics"),
    (TQC, LINE, {"qf": QFunction(LINE)}, TypeError, "qf must be Critics"),
    (SAC, LINE, {"qf": Critics(LINE, 2, num_atoms=25)}, ShapeError, "qf must output one value per row"),
    (TQC, PAIR, {}, TypeError, r"sac \(DiscreteSAC\), dqn and ppo learn choices"),
    (SAC, PAIR, {}, TypeError, "DiscreteSAC, dqn and ppo learn choices"),
    (DiscreteSAC, LINE, {}, TypeError, "Discrete actions, got Box.*: SAC learns a Box"),
    # Two actions have an entropy of at most 0.693.
    (DiscreteSAC, PAIR, {"target_entropy": 0.7}, ValueError, r"target_entropy must lie in \[0, 0.693147\]"),
    (DiscreteSAC, PAIR, {"target_entropy": -1.0}, ValueError, "target_entropy"),
    (DiscreteSAC, PAIR, {"policy": TanhGaussianMLPPolicy(LINE)}, TypeError, "policy"),
    (DiscreteSAC, PAIR, {"qf": Critics(LINE, 2)}, ShapeError, "qf"),
    (
        DiscreteSAC,
        PAIR,
        {"qf": Critics(EnvSpec(PAIR.observation_space, Discrete(3)), 2)},
        ShapeError,
        "qf must output 2 numbers per row",
    ),
]


@pytest.mark.parametrize(("learner", "spec", "options", "error", "argument"), MISTAKES)
def test_mistakes(learner: Any, spec: EnvSpec, options: dict[str, Any], error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        learner(spec, **options, **TINY)


# ------------------------------------------------------------------------------------------------------- discrete SAC
def discrete_trainer() -> SoftTrainer:
    """Critics ``(s, 2 s)`` and ``(3 s, s)``, and probabilities (1/4, 3/4) in every state."""
    policy = CategoricalMLPPolicy(PAIR, ())
    policy.set_param_values(np.array([0.0, 0.0, 0.0, np.log(3.0)], np.float32))
    critics = Critics(PAIR, 2, ())
    with torch.no_grad():
        critics.weights[0].copy_(tensor([[[1.0], [2.0]], [[3.0], [1.0]]]))
        critics.biases[0].zero_()
    settings = SoftUpdate(target_entropy=0.3, init_temperature=0.5, tau=0.25, **RATES)
    objective = SoftObjective(discrete_sac.fit_choice_critics, discrete_sac.improve_choices, 2)
    return SoftTrainer(policy, critics, ChoiceExploration(policy, 0), settings, objective, 0, CPU)


def test_means_over_actions_by_hand() -> None:
    log_probs = tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    torch.testing.assert_close(expected_values(log_probs, tensor([[8.0, 4.0], [1.0, 3.0]])), tensor([5.0, 2.0]))


def test_a_step_of_discrete_sac_by_hand() -> None:
    trainer = discrete_trainer()
    batch = TransitionBatch(tensor([[2.0]]), tensor([1]), tensor([3.0]), tensor([[1.0]]), tensor([0.9]))
    errors = trainer.step(batch)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    # s' = 1: the smaller values are (1, 1); V' = 1 + 0.5 H = 1.281; y = 3 + 0.9 V'; Q_1(2, 1) = 4, Q_2(2, 1) = 2
    target = 3 + 0.9 * (1 + 0.5 * entropy)
    assert errors.item() == pytest.approx(target - 4, rel=1e-5)
    told = trainer.means.take()
    assert told["qf_loss"] == pytest.approx(((target - 4) ** 2 + (target - 2) ** 2) / 2, rel=1e-5)
    assert told["log_prob"] == pytest.approx(-entropy, rel=1e-5)
    # Adam: 0.1 against the sign of the gradient, in the row of the action alone; y = 4.15 lies above both values.
    torch.testing.assert_close(trainer.networks.critics.weights[0], tensor([[[1.0], [2.1]], [[3.0], [1.1]]]))
    torch.testing.assert_close(trainer.networks.target_critics.weights[0], tensor([[[1.0], [2.025]], [[3.0], [1.025]]]))
    # s = 2 with the critics after their step: min Q = (2, 1.1 * 2 + 0.1); the policy loss is -(E min Q + 0.5 H).
    values = np.array([2.0, 2.3])
    expected = 0.25 * values[0] + 0.75 * values[1]
    assert told["policy_loss"] == pytest.approx(-(expected + 0.5 * entropy), rel=1e-5)
    # d loss / d logit_a = pi_a ((alpha ln pi_a - Q_a) - the mean of that).
    slopes = 0.5 * np.log([0.25, 0.75]) - values
    grad = np.array([0.25, 0.75]) * (slopes - np.dot([0.25, 0.75], slopes))
    assert trainer.networks.policy.get_param_values()[2:] == pytest.approx([0.0, np.log(3.0)] - 0.1 * np.sign(grad))
    # The entropy, 0.56, is over 0.3: alpha falls.
    assert told["temperature"] == pytest.approx(0.5 * math.exp(-0.1), rel=1e-5)


def test_losses_of_discrete_sac_are_means_over_draws() -> None:
    """The independent reference: actions are drawn many times, as in SAC for a Box."""
    policy = CategoricalMLPPolicy(EnvSpec(Box(-1, 1, (3,)), Discrete(4)), (8,), generator=torch_generator(0))
    critics = Critics(policy.env_spec, 2, (8,), generator=torch_generator(1))
    settings = SoftUpdate(target_entropy=0.5, init_temperature=0.3)
    objective = SoftObjective(discrete_sac.fit_choice_critics, discrete_sac.improve_choices, 2)
    trainer = SoftTrainer(policy, critics, ChoiceExploration(policy, 0), settings, objective, 0, CPU)
    draw = torch_generator(2)
    seen, after = (torch.randn(6, 3, generator=draw) for _ in range(2))
    done, rewards = torch.randint(4, (6,), generator=draw), torch.randn(6, generator=draw)
    batch = TransitionBatch(seen, done, rewards, after, torch.full((6,), 0.9), torch.rand(6, generator=draw))
    first = copy.deepcopy(policy.state_dict())
    # What is measured is that of before the step; the policy's is that of the critics after theirs.
    before = copy.deepcopy(critics)
    fitted = discrete_sac.fit_choice_critics(trainer.nets, batch, rewards)
    after_step = copy.deepcopy(critics)
    improved = discrete_sac.improve_choices(trainer.nets, batch, rewards)
    policy.load_state_dict(first)
    with torch.no_grad():
        values = []
        for obs, judge in ((after, before), (seen, after_step)):
            log_probs = policy(obs)
            actions = torch.multinomial(log_probs.exp(), 200_000, replacement=True, generator=draw)
            smallest = torch.minimum(*judge(obs))
            values.append((smallest - 0.3 * log_probs).gather(1, actions).mean(dim=1))
        target = rewards + 0.9 * values[0]
        errors = [target - row[torch.arange(6), done] for row in before(seen)]
    torch.testing.assert_close(fitted.errors, errors[0], rtol=0, atol=5e-3)
    told = sum((batch.weights * error.square()).mean() / 2 for error in errors)  # type: ignore[operator]
    assert fitted.loss.item() == pytest.approx(float(told), rel=0.02)
    assert improved.seen[0].item() == pytest.approx(-float(values[1].mean()), abs=5e-3)


class Signs(gymnasium.Env):
    """Shows a number in a Dict, with a picture, and rewards the action that says its sign; four steps."""

    observation_space = gymnasium.spaces.Dict(
        {"number": Box(-1, 1, (1,), np.float32), "picture": Box(0, 255, (36, 36), np.uint8)}
    )
    action_space = Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        reward = float(action == (4 if self.number > 0 else 3))
        self.steps += 1
        return self._next(), reward, False, self.steps >= 4, {}

    def _next(self) -> dict[str, np.ndarray]:
        self.number = float(self.np_random.choice([-1.0, 1.0]))
        picture = np.full((36, 36), 128, np.uint8)
        return {"number": np.array([self.number], np.float32), "picture": picture}


def test_discrete_sac_learns_from_a_dict_with_a_picture() -> None:
    spec, draw = EnvSpec(Signs.observation_space, Signs.action_space, 4), torch_generator(0)
    encoder = ObservationEncoder(spec.observation_space, 4, (2, 2, 2), generator=draw)
    critics = Critics(spec, 2, (16,), encoder=encoder, generator=draw)
    policy = CategoricalMLPPolicy(spec, (16,), encoder=FixedEncoder(encoder), generator=draw)
    options: dict[str, Any] = {**TINY, "steps_per_epoch": 10, "buffer_batch_size": 32, "min_buffer_size": 40}
    options |= {"discount": 0.0, "temperature": 0.05, "policy_lr": 1e-2, "qf_lr": 1e-2, "priority_exponent": 0.6}
    algo = DiscreteSAC(
        spec, policy=policy, qf=critics, seed=0, replay_size=2000, random_steps=40, evaluate_every=3, **options
    )
    before = [p.detach().clone() for p in encoder.parameters()]
    with LocalRunner(seed=1) as runner:
        runner.setup(algo, Signs)
        runner.train(3)
        assert runner.last_evaluation is not None and runner.last_evaluation.score == 4.0
    assert all(not torch.equal(p, old) for p, old in zip(encoder.parameters(), before, strict=True))
    assert not policy.features(algo.sample_batch().observations).requires_grad
    assert (algo.replay_buffer.sample(50, 0, weight_exponent=1.0).weights < 1.0).any()


def test_it_makes_an_encoder_where_there_are_pictures() -> None:
    algo = DiscreteSAC(EnvSpec(Signs.observation_space, Signs.action_space, 4), seed=0, replay_size=50, **TINY)
    assert isinstance(algo.qf.encoder, ObservationEncoder) and algo.policy.encoder.encoder is algo.qf.encoder


def test_the_entropy_that_discrete_sac_aims_at() -> None:
    assert DiscreteSAC(PAIR, **TINY).trainer.settings.target_entropy == pytest.approx(0.7 * math.log(2))  # type: ignore[union-attr]


def test_the_name_sac_learns_both() -> None:
    small = {"epochs": 1, "hidden_sizes": (8,), "num_episodes": 1}
    kinds = []
    for env in ("CartPole-v1", "Pendulum-v1"):
        experiment = build(resolve("sac", env, [("a test", small)]))
        experiment.runner.close()
        kinds.append(type(experiment.algo))
    assert kinds == [DiscreteSAC, SAC]
    experiment = build(resolve("tqc", "Pendulum-v1", [("a test", {**small, "num_atoms": 7, "num_critics": 3})]))
    with contextlib.closing(experiment.runner):
        assert type(experiment.algo) is TQC and experiment.algo.qf.num_outputs == 7 and experiment.algo.qf.count == 3
    with pytest.raises(TypeError, match="TQC learns actions that are a Box"):
        build(resolve("tqc", "CartPole-v1", [("a test", small)]))
    assert get_algorithm("discrete-sac").learner is DiscreteSAC
    with pytest.raises(UnknownNameError, match="discrete-sac may be what you want"):
        get_algorithm("sac-discrete")
