"""Off-policy learners: what their base collects and stores, gradient steps by hand, resume, bad input, learning."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import tensor

from metaroll.compat.constructors import OffPolicyRLAlgorithm
from metaroll.contrib import TQC, DiscreteSAC
from metaroll.data.replay.path_buffer import PathBuffer
from metaroll.data.replay.replay_buffer import ReplayBuffer
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.distributions import squashed_sample, squashed_sample_gradients, tanh_gaussian_log_prob
from metaroll.learners.off_policy import base, choosing, deterministic, soft
from metaroll.learners.off_policy.choosing import DQN, ValueTrainer
from metaroll.learners.off_policy.configs import DeterministicUpdate, SoftUpdate, ValueUpdate
from metaroll.learners.off_policy.deterministic import DDPG, TD3
from metaroll.learners.off_policy.soft import SAC, SoftTrainer
from metaroll.policies.exploration import EpsilonGreedyPolicy, GaussianNoisePolicy, OrnsteinUhlenbeckPolicy
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy, GreedyQPolicy
from metaroll.policies.networks import Critics, QFunction
from metaroll.policies.playback import DummyPolicy
from metaroll.seeding import torch_generator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.experiments import build, resolve
from metaroll.types import EnvSpec

Box = gymnasium.spaces.Box


class Counting(gymnasium.Env):
    """Shows the number of steps since the reset, rewards the action, ends after 5 steps; actions lie in [0, 10]."""

    observation_space = Box(0, 99, (1,), np.float32)
    action_space = Box(0.0, 10.0, (1,), np.float32)

    def __init__(self, ends_at: int = 5) -> None:
        self.ends_at, self.count = ends_at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self._seen(), float(action[0]), self.count >= self.ends_at, False, {"success": self.count % 2 == 0}

    def _seen(self) -> np.ndarray:
        return np.array([self.count], np.float32)


class Aim(gymnasium.Env):
    """Shows a target, and rewards ``-(action - 3 target)^2``; four steps; actions lie in [-4, 2]."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-4.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        reward = -float((action[0] - 3.0 * self.target - 0.0) ** 2)
        self.steps += 1
        return self._next(), reward, False, self.steps >= 4, {}

    def _next(self) -> np.ndarray:
        self.target = float(self.np_random.uniform(-1, 0.6))
        return np.array([self.target], np.float32)


class Pick(gymnasium.Env):
    """Shows one of three things, and rewards the action of its number; four steps."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.shown)
        self.steps += 1
        return self._next(), reward, False, self.steps >= 4, {}

    def _next(self) -> np.ndarray:
        self.shown = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.shown]


PICK = EnvSpec(Pick.observation_space, Pick.action_space, 4)
COUNTING = EnvSpec(Counting.observation_space, Counting.action_space, 8)
AIM = EnvSpec(Aim.observation_space, Aim.action_space, 4)
TINY: dict[str, Any] = {"steps_per_epoch": 3, "n_train_steps": 4, "buffer_batch_size": 8, "min_buffer_size": 8}


class Plain(OffPolicyRLAlgorithm):
    """Remembers what it was called with."""

    def __init__(self, policy: Any, **options: Any) -> None:
        self.calls: list[tuple[int, list[dict[str, Any]]]] = []
        self.batches: list[TransitionBatch] = []
        self.prepared, self.told = 0, 0
        spec = options.pop("env_spec", COUNTING)
        buffer = options.pop("replay_buffer", None)
        buffer = ReplayBuffer(spec.observation_space, spec.action_space, 100, num_slots=2) if buffer is None else buffer
        usual = {**TINY, "rollout_batch_size": 2, "discount": 0.9, "seed": 0, "evaluate_every": 0}
        super().__init__(spec, policy, self, buffer, **{**usual, **options})

    def init_opt(self) -> None:
        self.prepared += 1

    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        self.calls.append((itr, [dict(path) for path in paths]))
        if self.is_filled:
            self.batches.append(self.sample_batch())
        return self.average_return

    def log_diagnostics(self, paths: Sequence[Mapping[str, Any]]) -> None:
        self.told += len(paths)
        self.qf = None
        super().log_diagnostics(paths)


def fixed_policy(spec: EnvSpec = COUNTING) -> DeterministicMLPPolicy:
    """Always the middle of the range."""
    policy = DeterministicMLPPolicy(spec, ())
    policy.set_param_values(np.zeros(policy.get_param_values().size, np.float32))
    return policy


def trained(algo: Any, env: Any, epochs: int = 2, **options: Any) -> LocalRunner:
    runner = LocalRunner(seed=1, **options)
    with runner:
        runner.setup(algo, env)
        runner.train(epochs)
    return runner


# ------------------------------------------------------------------------------------------------------------ the base
def test_cycles_collect_and_are_numbered() -> None:
    """specs/meta.md 2.6: one train_once call per cycle, paths that go on over calls, running totals, process_samples"""
    algo = Plain(fixed_policy(), max_path_length=8)
    runner = trained(algo, Counting)
    assert algo.prepared == 1 and [itr for itr, _ in algo.calls] == list(range(6))
    assert algo.env_steps_per_cycle == 4 and runner.total_env_steps == algo.num_env_steps == 24
    paths = [path for _, paths in algo.calls for path in paths]
    assert [len(path["rewards"]) for path in paths[:2]] == [2, 2]
    # Episodes of 5 steps, 2 slots, calls of 2 steps: the third call has the end, and the first step of the next.
    third = algo.calls[2][1]
    assert [len(path["rewards"]) for path in third] == [1, 1, 1, 1]
    ended = [path for path in third if path["dones"][-1]]
    assert [path["undiscounted_return"] for path in ended] == [25.0, 25.0]
    assert [path["running_length"] for path in ended] == [5, 5]
    told = algo.process_samples(0, third)
    assert told["complete"].count(True) == 2
    assert set(told["success_history"]) == {2 / 5, 0.0} and set(told["undiscounted_returns"]) == {25.0, 5.0}
    assert algo.average_return == 25.0 and algo.told == len(algo.calls[2][1]) + len(algo.calls[5][1])


def test_documented_attributes_may_be_set_and_count_from_then_on() -> None:
    algo = Plain(fixed_policy())
    algo.n_train_steps, algo.steps_per_epoch, algo.discount, algo.n_step = 6, 2, 0.5, 2
    algo.max_path_length, algo.max_eval_path_length = 3, 2
    assert (algo.config.discount, algo.evaluation_limit) == (0.5, 2)
    runner = trained(algo, Counting, 1)
    assert runner.total_env_steps == 2 * 6 and {
        path["running_length"] for _, paths in algo.calls for path in paths
    } == {3}
    for name, value in (("buffer_batch_size", 101), ("n_train_steps", 3), ("max_path_length", 0), ("discount", 2)):
        with pytest.raises(ValueError, match=name):
            setattr(algo, name, value)
    assert (algo.buffer_batch_size, algo.n_train_steps, algo.max_path_length, algo.discount) == (8, 6, 3, 0.5)


def test_paths_hold_each_entry_of_a_dict_observation() -> None:
    """What train_once is given: a step's next observation is the observation of the step after it"""
    spec = EnvSpec.from_env(PointGoalEnv())
    policy = GaussianMLPPolicy(spec, hidden_sizes=(4,), generator=torch_generator(0))
    buffer = ReplayBuffer(spec.observation_space, spec.action_space, 100, num_slots=2)
    algo = Plain(policy, env_spec=spec, replay_buffer=buffer, max_path_length=8)
    trained(algo, PointGoalEnv, 1)
    paths = [path for _, paths in algo.calls for path in paths]
    assert len(paths) == 6 and all(len(path["rewards"]) == 2 for path in paths)
    for path in paths:
        seen, after = path["observations"], path["next_observations"]
        assert set(seen) == set(after) == {"observation", "achieved_goal", "desired_goal"}
        assert all(rows.shape == (2, 2) for rows in (*seen.values(), *after.values()))
        assert all(np.array_equal(seen[name][1], after[name][0]) for name in seen)
        assert np.array_equal(seen["achieved_goal"], seen["observation"])  # a point has reached the place where it is
        assert not np.array_equal(seen["observation"], after["observation"])
        assert np.array_equal(seen["desired_goal"], after["desired_goal"])


def test_what_is_stored_of_an_end() -> None:
    """specs/meta.md 2.6, Q-24: a time limit is no terminal, and the observation after the last step is the final one"""
    terminal = Plain(fixed_policy())
    trained(terminal, Counting, 4)
    limited = Plain(fixed_policy(), max_path_length=3)
    trained(limited, lambda: Counting(99), 4)
    for algo, last, ends in ((terminal, 5, True), (limited, 3, False)):
        for batch in algo.batches:
            seen, after = batch.observations[:, 0], batch.next_observations[:, 0]
            assert torch.equal(after, seen + 1) and after.max() <= last
            expected = torch.where((after == last) & tensor(ends), 0.0, 0.9)
            torch.testing.assert_close(batch.discounts, expected.float())
        assert any((batch.next_observations == last).any() for batch in algo.batches)


def test_rewards_are_scaled_as_they_enter_the_update() -> None:
    """specs/meta.md 2.6, Q-25"""
    algo = Plain(fixed_policy(), reward_scale=0.1)
    trained(algo, Counting)
    assert all((batch.rewards == 0.5).all() for batch in algo.batches) and algo.batches
    assert (algo.replay_buffer.sample(20, 0).rewards == 5.0).all() and algo.calls[0][1][0]["rewards"][0] == 5.0


def test_exploration_goes_on_until_its_episode_ends() -> None:
    """specs/meta.md 2.6, Q-26: the process of each rollout begins at 0, and is not begun anew between calls"""
    policy = fixed_policy()
    noisy = OrnsteinUhlenbeckPolicy(policy, sigma=0.5, theta=0.0, dt=1.0)
    algo = Plain(policy, exploration_policy=noisy)
    trained(algo, Counting, 6)
    whole = _episodes([path for _, paths in algo.calls for path in paths])
    assert len(whole) >= 10
    steps = np.array([np.diff(np.concatenate([[5.0], actions])) for actions in whole])
    # Independent steps of deviation 0.5 from the middle, 5: a process that began anew would fall back to it.
    assert steps.std() == pytest.approx(0.5, rel=0.3)
    assert np.array([actions[-1] - 5.0 for actions in whole]).std() > 0.75  # sqrt(5) * 0.5 = 1.1


def _episodes(paths: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """Actions of whole episodes; the pieces of two slots alternate, and carry on where the count says."""
    open_ones: list[dict[str, Any]] = []
    whole = []
    for path in paths:
        first = int(path["observations"][0, 0])
        found = next((one for one in open_ones if first and one["count"] == first), None)
        if found is None:
            found = {"count": 0, "actions": []}
            open_ones.append(found)
        open_ones.remove(found)
        found["actions"].extend(path["actions"][:, 0].tolist())
        found["count"] += len(path["rewards"])
        if path["dones"][-1]:
            whole.append(np.array(found["actions"]))
        else:
            open_ones.append(found)
    return whole


def test_evaluations_act_without_noise() -> None:
    """specs/meta.md 2.6, Q-27: the same score again, in n_eval_trajs episodes with a limit of their own"""
    policy = fixed_policy()
    noisy = GaussianNoisePolicy(policy, 1.0)
    options: dict[str, Any] = {"n_eval_trajs": 3, "max_eval_path_length": 4, "evaluate_every": 1}
    algo = Plain(policy, exploration_policy=noisy, **options)
    found: list[Any] = []

    class Notes:
        def on_evaluation(self, runner: Any, result: Any) -> None:
            found.append(result)

    trained(algo, Counting, 4, callbacks=[Notes()])
    assert len(found) >= 3 and all((result.returns == 20.0).all() for result in found)
    assert found[0].returns.shape == (1, 3)
    rewards = np.concatenate([path["rewards"] for _, paths in algo.calls for path in paths])
    assert rewards.std() > 1.0


def test_smooth_return_counts_all_episodes() -> None:
    rough = Plain(fixed_policy(), smooth_return=False)
    trained(rough, Counting, 1)
    rough._counts.begin_epoch()
    assert np.isnan(rough.average_return)
    smooth = Plain(fixed_policy())
    trained(smooth, Counting, 1)
    smooth._counts.begin_epoch()
    assert smooth.average_return == 25.0


def test_a_path_buffer_serves_as_documented() -> None:
    """specs/meta.md 5.6: garage's buffers have add_path and sample_transitions"""
    algo = Plain(fixed_policy(), replay_buffer=PathBuffer(100))
    trained(algo, Counting, 4)
    batch = algo.batches[-1]
    assert torch.equal(batch.next_observations, batch.observations + 1)
    torch.testing.assert_close(batch.discounts, torch.where(batch.next_observations[:, 0] == 5, 0.0, 0.9))


MISTAKES_OF_THE_BASE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"buffer_batch_size": 101, "min_buffer_size": 0}, ValueError, "buffer_batch_size"),
    ({"min_buffer_size": 101}, ValueError, "min_buffer_size .* 100 steps"),
    ({"n_train_steps": 3}, ValueError, "n_train_steps .* rollout_batch_size=2"),
    ({"update_to_data": 8.0}, ValueError, "rollout_batch_size=2, got 4 / 8"),
    ({"replay_buffer": []}, TypeError, "replay_buffer"),
    ({"exploration_policy": DummyPolicy(COUNTING)}, TypeError, "exploration_policy must be an ActingPolicy"),
    ({"replay_buffer": PathBuffer(100), "n_step": 2}, ValueError, "n_step"),
    ({"discount": 1.5}, ValueError, "discount"),
    ({"env_spec": EnvSpec(COUNTING.observation_space, COUNTING.action_space)}, ValueError, "max_path_length"),
]


@pytest.mark.parametrize(("options", "error", "argument"), MISTAKES_OF_THE_BASE)
def test_mistakes_of_the_base(options: dict[str, Any], error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        Plain(fixed_policy(), **options)


# -------------------------------------------------------------------------------------------------- one gradient step
def small_networks(count: int, learning_rate: float = 0.1, **settings: Any) -> Any:
    """Linear critics ``Q_k = (k + 1) s + a + 0.5`` and a policy ``tanh(0.5 s)``."""
    spec = EnvSpec(Box(-9, 9, (1,)), Box(-3, 3, (1,)))
    policy = DeterministicMLPPolicy(spec, ())
    policy.set_param_values(np.array([0.5, 0.0], np.float32))
    critics = Critics(spec, count, ())
    with torch.no_grad():
        critics.weights[0].copy_(tensor([[[k + 1.0, 1.0]] for k in range(count)]))
        critics.biases[0].fill_(0.5)
    usual = {"policy_delay": 1, "smoothing_std": 0.0}
    made = DeterministicUpdate(policy_lr=learning_rate, qf_lr=learning_rate, tau=0.25, **{**usual, **settings})
    explorer = deterministic.BoxExploration(GaussianNoisePolicy(policy), 0)
    return deterministic.DeterministicTrainer(policy, critics, explorer, made, 0, torch.device("cpu"))


BATCH = TransitionBatch(tensor([[2.0]]), tensor([[1.0]]), tensor([3.0]), tensor([[0.0]]), tensor([0.9]))


def test_a_step_of_ddpg_by_hand() -> None:
    trainer = small_networks(1)
    errors = trainer.step(BATCH)
    networks = trainer.networks
    # s' = 0: a' = tanh(0) = 0, Q' = 0.5; y = 3 + 0.9 * 0.5 = 3.45; Q = 2 + 1 + 0.5 = 3.5; error -0.05, loss 0.00125
    assert errors.item() == pytest.approx(-0.05)
    # The first step of Adam is the learning rate against the sign of the gradient, (Q - y) (s, a, 1) = (+, +, +).
    torch.testing.assert_close(networks.critics.weights[0], tensor([[[0.9, 0.9]]]))
    torch.testing.assert_close(networks.critics.biases[0], tensor([[0.4]]))
    # The policy climbs dQ/da = 0.9 > 0 with s = 2 > 0: weight and bias go up.
    assert networks.policy.get_param_values() == pytest.approx([0.6, 0.1])
    # Targets: a quarter of the way.
    torch.testing.assert_close(networks.target_critics.weights[0], tensor([[[0.975, 0.975]]]))
    assert networks.target_policy.get_param_values() == pytest.approx([0.525, 0.025])
    losses = trainer.means.take()
    assert losses["qf_loss"] == pytest.approx(0.00125, rel=1e-3) and losses["q_mean"] == pytest.approx(3.5)
    # Q of the new critic at a = tanh(0.5 * 2) = 0.7616: 0.9 * 2 + 0.9 * 0.7616 + 0.4
    assert losses["policy_loss"] == pytest.approx(-(1.8 + 0.9 * 0.76159 + 0.4), rel=1e-4)


def test_a_step_of_td3_by_hand() -> None:
    trainer = small_networks(2, policy_delay=2, smoothing_std=0.2, smoothing_clip=0.5)
    before = trainer.networks.policy.get_param_values()
    noise = torch.randn(1, 1, generator=torch_generator(0)).item()
    errors = trainer.step(BATCH._replace(next_observations=tensor([[1.0]])))
    # a' = tanh(0.5) + clip(0.2 n, 0.5); Q'_1 = 1 + a' + 0.5 < Q'_2 = 2 + a' + 0.5
    action = min(max(np.tanh(0.5) + np.clip(0.2 * noise, -0.5, 0.5), -1.0), 1.0)
    assert errors.item() == pytest.approx(3 + 0.9 * (1.5 + action) - 3.5, rel=1e-5)
    # The policy and the targets wait for the second step.
    assert np.array_equal(trainer.networks.policy.get_param_values(), before)
    assert trainer.networks.target_critics.biases[0].tolist() == [[0.5], [0.5]]
    assert trainer.networks.critics.biases[0].tolist() != [[0.5], [0.5]]
    trainer.step(BATCH)
    assert not np.array_equal(trainer.networks.policy.get_param_values(), before)
    assert trainer.networks.target_critics.biases[0].tolist() != [[0.5], [0.5]]


def test_critics_are_perceptrons_side_by_side() -> None:
    spec = EnvSpec(Box(-9, 9, (3,)), Box(-3, 3, (2,)))
    first = QFunction(spec, (8, 7), "relu", generator=torch_generator(0))
    critics = Critics.of(first, 3, torch_generator(1))
    obs, act = (torch.randn(5, width, generator=torch_generator(2)) for width in (3, 2))
    values = critics(obs, act)
    torch.testing.assert_close(values[0], first(obs, act)[:, 0])
    torch.testing.assert_close(values[:1], critics(obs, act, first=True))
    assert values.shape == (3, 5) and (values[0] != values[1]).all() and (values[1] != values[2]).all()
    act.requires_grad_()
    critics(obs, act, fixed=True).sum().backward()
    assert act.grad is not None and all(p.grad is None for p in critics.parameters())


def test_a_step_of_sac_by_hand() -> None:
    spec = EnvSpec(Box(-9, 9, (1,)), Box(-3, 3, (1,)))
    policy = TanhGaussianMLPPolicy(spec, ())
    policy.set_param_values(np.array([0.5, 0.0, 0.0, np.log(0.5)], np.float32))  # mean 0.5 s, deviation 0.5
    critics = Critics(spec, 2, ())
    with torch.no_grad():
        critics.weights[0].copy_(tensor([[[k + 1.0, 1.0]] for k in range(2)]))
        critics.biases[0].fill_(0.5)
    settings = SoftUpdate(target_entropy=-1.0, init_temperature=0.2, policy_lr=0.1, qf_lr=0.1, temperature_lr=0.1)
    objective = soft.SoftObjective(soft.fit_critics, soft.improve_policy, 1)
    explorer = deterministic.BoxExploration(policy, 0)
    trainer = SoftTrainer(policy, critics, explorer, settings, objective, 0, torch.device("cpu"))
    noise = torch.randn(2, 1, 1, generator=torch_generator(0)).flatten().tolist()

    def drawn(mean: float, n: float) -> tuple[float, float]:
        u = mean + 0.5 * n
        normal = -0.5 * n * n - np.log(0.5) - 0.5 * np.log(2 * np.pi)
        return np.tanh(u), normal - np.log(1 - np.tanh(u) ** 2)

    errors = trainer.step(BATCH._replace(next_observations=tensor([[1.0]])))
    # s' = 1: a' from N(0.5, 0.5^2); V' = min(Q'_1, Q'_2) - 0.2 ln pi = 1 + a' + 0.5 - 0.2 ln pi; Q_1 = 3.5
    action, log_prob = drawn(0.5, noise[0])
    assert errors.item() == pytest.approx(3 + 0.9 * (1.5 + action - 0.2 * log_prob) - 3.5, rel=1e-5)
    losses = trainer.means.take()
    # s = 2, a from N(1, 0.5^2), with the critics after their step: Adam's first one is 0.1 against the gradient's sign.
    action, log_prob = drawn(1.0, noise[1])
    assert losses["log_prob"] == pytest.approx(log_prob, rel=1e-4)
    target = 3 + 0.9 * (1.5 + drawn(0.5, noise[0])[0] - 0.2 * drawn(0.5, noise[0])[1])
    steps = [0.1 * np.sign(target - q) for q in (3.5, 5.5)]
    values = [(k + 1 + step) * 2 + (1 + step) * action + 0.5 + step for k, step in enumerate(steps)]
    assert losses["policy_loss"] == pytest.approx(0.2 * log_prob - min(values), rel=1e-4)
    # The gradient for ln alpha is -(ln pi - 1): alpha falls where ln pi < 1, and 0.2 goes to 0.2 exp(-0.1) or exp(0.1).
    assert losses["temperature"] == pytest.approx(0.2 * np.exp(0.1 * np.sign(log_prob - 1)), rel=1e-4)


def dqn_trainer(**settings: Any) -> ValueTrainer:
    """Values ``(s, 2 s, 0)``, and those of the target ``(3 s, s, 0)``."""
    spec = EnvSpec(Box(-9, 9, (1,)), gymnasium.spaces.Discrete(3))
    policy = GreedyQPolicy(spec, ())
    explorer = choosing.EpsilonGreedy(EpsilonGreedyPolicy(policy), 1.0, 0.1, 10)
    trainer = ValueTrainer(policy, explorer, ValueUpdate(learning_rate=0.1, **settings), 0, torch.device("cpu"))
    policy.set_param_values(np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0], np.float32))
    trainer.networks.target.set_param_values(np.array([3.0, 1.0, 0.0, 0.0, 0.0, 0.0], np.float32))
    return trainer


CHOICE = TransitionBatch(tensor([[2.0]]), tensor([1]), tensor([3.0]), tensor([[1.0]]), tensor([0.9]))


@pytest.mark.parametrize(("double", "value"), [(True, 1.0), (False, 3.0)])
def test_a_step_of_dqn_by_hand(double: bool, value: float) -> None:
    """s' = 1: the online values are (1, 2, 0), those of the target (3, 1, 0)."""
    trainer = dqn_trainer(double=double, target_update_steps=2, max_grad_norm=None)
    errors = trainer.step(CHOICE)
    # y = 3 + 0.9 * value = 3.9 or 5.7; Q(2, 1) = 4
    assert errors.item() == pytest.approx(3 + 0.9 * value - 4)
    error = 4 - (3 + 0.9 * value)
    loss = error**2 / 2 if abs(error) <= 1 else abs(error) - 0.5
    assert trainer.means.take()["qf_loss"] == pytest.approx(loss, rel=1e-5)
    # Adam goes 0.1 against the sign of the gradient, in the row of the action alone.
    step = -0.1 * np.sign(error)
    expected = [1.0, 2.0 + step, 0.0, 0.0, step, 0.0]
    assert trainer.networks.policy.get_param_values() == pytest.approx(expected)
    assert trainer.networks.target.get_param_values()[0] == 3.0
    trainer.step(CHOICE)
    assert np.array_equal(trainer.networks.target.get_param_values(), trainer.networks.policy.get_param_values())


def test_the_step_size_of_dqn_falls_linearly_and_goes_on_after_a_resume() -> None:
    """0.1 falls to 0.02 in four steps; Adam's first steps against equal gradients are as long as the step size."""
    settings = ValueUpdate(learning_rate=0.1, min_learning_rate=0.02, lr_decay_steps=4)
    assert [settings.learning_rate_after(k) for k in (0, 1, 3, 4, 9)] == pytest.approx([0.1, 0.08, 0.04, 0.02, 0.02])
    assert ValueUpdate(learning_rate=0.1).learning_rate_after(9) == 0.1

    options = {
        "min_learning_rate": 0.02,
        "lr_decay_steps": 4,
        "max_grad_norm": None,
        "double": False,
        "target_update_steps": 99,
    }
    far = CHOICE._replace(rewards=tensor([50.0]))  # the loss is linear there: one and the same gradient

    def moved(trainer: ValueTrainer) -> float:
        before = trainer.networks.policy.get_param_values()
        trainer.step(far)
        return float(np.abs(trainer.networks.policy.get_param_values() - before).max())

    trainer = dqn_trainer(**options)
    assert [moved(trainer) for _ in range(3)] == pytest.approx([0.1, 0.08, 0.06], rel=1e-4)
    resumed = dqn_trainer(**options)
    resumed.load_state_dict(trainer.state_dict())
    assert [moved(resumed) for _ in range(3)] == pytest.approx([0.04, 0.02, 0.02], rel=1e-4)


def test_dueling_values_and_actions() -> None:
    policy = GreedyQPolicy(PICK, (8,), dueling=True, generator=torch_generator(0))
    obs = torch.eye(3)
    outputs = policy.net(obs)
    expected = outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(dim=1, keepdim=True)
    torch.testing.assert_close(policy(obs), expected)
    action, _, _ = policy.act(obs.numpy(), {}, np.zeros((3, 0)))
    assert action.tolist() == expected.argmax(dim=1).tolist()


def test_epsilon_is_an_acting_parameter_that_falls() -> None:
    policy = GreedyQPolicy(PICK, (8,), generator=torch_generator(0))
    greedy, _, _ = policy.act(np.eye(3, dtype=np.float32)[[0] * 4000], {}, np.zeros((4000, 0)))
    noisy = EpsilonGreedyPolicy(policy)
    explorer = choosing.EpsilonGreedy(noisy, 1.0, 0.1, 100)
    noise = np.random.default_rng(0).random((4000, 2))
    for steps, epsilon in ((0, 1.0), (50, 0.55), (100, 0.1), (1000, 0.1)):
        explorer.prepare(steps)
        assert explorer.vector()[0] == pytest.approx(epsilon)
        found, _, _ = noisy.act(np.eye(3, dtype=np.float32)[[0] * 4000], {}, noise, False, explorer.vector())
        assert (found != greedy).mean() == pytest.approx(epsilon * 2 / 3, abs=0.03)
        assert np.array_equal(noisy.act(np.eye(3, dtype=np.float32)[[0] * 4000], {}, noise, True)[0], greedy)


def test_dqn_learns_from_what_surprised_it() -> None:
    algo = make(
        DQN,
        steps_per_epoch=10,
        n_train_steps=20,
        update_to_data=1.0,
        buffer_batch_size=32,
        min_buffer_size=50,
        epsilon_steps=200,
        discount=0.0,
        learning_rate=1e-2,
        target_update_steps=50,
        dueling=True,
        priority_exponent=0.6,
        evaluate_every=3,
    )
    runner = trained(algo, Pick, 3)
    assert runner.last_evaluation is not None and runner.last_evaluation.score == 4.0
    assert (algo.replay_buffer.sample(50, 0, weight_exponent=1.0).weights < 1.0).any()


def test_totals_are_part_of_the_state() -> None:
    algo, other = make(TD3), make(TD3)
    trained(algo, Aim, 1)
    other.load_state_dict(algo.state_dict())
    one, two = (
        (each.num_env_steps, each.num_gradient_steps, each._counts.cycles, each.average_return)
        for each in (algo, other)
    )
    assert one == two and min(one[:3]) > 0 and np.isfinite(one[3])


@pytest.mark.parametrize("at_once", [1, 2 * 8, 2**18])
def test_batches_of_a_cycle_are_drawn_before_they_are_used(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_DRAWN_AT_ONCE", at_once)
    algo = make(TD3, steps_per_epoch=4, n_train_steps=5, update_to_data=0.5, rollout_batch_size=2)
    seen: list[TransitionBatch] = []
    taken = algo.trainer.step
    algo.trainer.step = lambda batch: (seen.append(batch), taken(batch))[1]
    trained(algo, Aim, 1)
    assert algo.num_gradient_steps == len(seen) >= 15 and len(seen) % 5 == 0
    for batch in seen:
        assert batch.observations.shape == batch.next_observations.shape == (8, 1) and batch.actions.shape == (8, 1)
        assert batch.rewards.shape == batch.discounts.shape == (8,) and batch.weights is None
    assert len({tuple(batch.rewards.tolist()) for batch in seen}) == len(seen)


def test_draws_of_a_squashed_gaussian_have_its_density() -> None:
    mean, log_std, noise = torch.randn(3, 50, 2, generator=torch_generator(0))
    action, log_prob = squashed_sample(mean, log_std, noise)
    pre_tanh = mean + log_std.exp() * noise
    torch.testing.assert_close(action, pre_tanh.tanh())
    torch.testing.assert_close(log_prob, tanh_gaussian_log_prob(pre_tanh, mean, log_std), rtol=1e-4, atol=1e-4)


def test_gradients_of_draws_of_a_squashed_gaussian_are_those_of_autograd() -> None:
    mean, log_std, noise = torch.randn(3, 50, 2, generator=torch_generator(0), dtype=torch.float64)
    grad_action = torch.randn(50, 2, generator=torch_generator(1), dtype=torch.float64)
    grad_log_prob = torch.randn(50, generator=torch_generator(2), dtype=torch.float64)
    mean.requires_grad_(), log_std.requires_grad_()
    action, log_prob = squashed_sample(mean, log_std, noise)
    expected = torch.autograd.grad([action, log_prob], [mean, log_std], [grad_action, grad_log_prob])
    with torch.no_grad():
        found = squashed_sample_gradients(log_std, noise, action, grad_action, grad_log_prob[:, None])
    torch.testing.assert_close(found, expected)


# -------------------------------------------------------------------------------------------------------- the learners
def make(learner: Any, **options: Any) -> Any:
    usual: dict[str, Any] = {
        **TINY,
        "replay_size": 2000,
        "rollout_batch_size": 2,
        "seed": 3,
        "evaluate_every": 0,
    }
    generator = torch_generator(0)
    if learner is DQN:
        spec = options.pop("env_spec", PICK)
        policy = GreedyQPolicy(spec, (16,), dueling=options.get("dueling", False), generator=generator)
        return DQN(spec, policy=policy, **{**usual, **options})
    usual["random_steps"] = 10
    if learner is DiscreteSAC:
        spec = options.pop("env_spec", PICK)
        policy = CategoricalMLPPolicy(spec, (16,), generator=generator)
        return DiscreteSAC(spec, policy=policy, qf=Critics(spec, 2, (16,), generator=generator), **{**usual, **options})
    spec = options.pop("env_spec", AIM)
    kind = TanhGaussianMLPPolicy if learner in (SAC, TQC) else DeterministicMLPPolicy
    policy = kind(spec, (16,), generator=generator)
    if learner is TQC:
        sizes: dict[str, Any] = {"num_critics": 3, "num_atoms": 5}
        qf: Any = Critics(spec, 3, (16,), num_atoms=5, generator=generator)
        return TQC(spec, policy=policy, qf=qf, **{**usual, **sizes, **options})
    qf = QFunction(spec, (16,), generator=generator)
    return learner(spec, policy=policy, qf=qf, **{**usual, **options})


LEARNERS = [DDPG, TD3, SAC, TQC]


@pytest.mark.parametrize("learner", [DDPG, TD3, SAC, pytest.param(TQC, marks=pytest.mark.slow)])
def test_it_learns_where_actions_are_not_within_one(learner: Any) -> None:
    algo = make(
        learner,
        steps_per_epoch=10,
        n_train_steps=24,
        update_to_data=1.0,
        buffer_batch_size=64,
        min_buffer_size=100,
        random_steps=100,
        discount=0.0,
        policy_lr=5e-3,
        qf_lr=1e-2,
        evaluate_every=3,
        **({"temperature": 0.1} if learner in (SAC, TQC) else {"exploration_sigma": 0.3}),
    )
    runner = trained(algo, Aim, 3)
    assert runner.last_evaluation is not None and runner.last_evaluation.score > -1.5  # at random: about -25
    stored = algo.replay_buffer.sample(200, 0).actions
    assert np.abs(stored).max() <= 1.0 and stored.min() < -0.8 and stored.max() > 0.8  # in the policy's units


WIDE = EnvSpec(Box(-1, 1, (2,)), AIM.action_space)
CHOICES = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
MISTAKES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    *(
        (learner, options, error, argument)
        for learner in LEARNERS
        for options, error, argument in (
            ({"env_spec": CHOICES}, TypeError, "learns actions that are a Box"),
            ({"env_spec": EnvSpec(gymnasium.spaces.Text(3), AIM.action_space, 4)}, ValueError, "observation_space"),
            ({"tau": 2.0}, ValueError, "tau"),
            ({"replay_size": 4}, ValueError, "buffer_batch_size"),
        )
    ),
    (TD3, {"exploration_noise": "pink"}, UnknownNameError, "exploration_noise"),
    (TD3, {"qf": Critics(AIM, 3)}, ValueError, "qf must hold 2 critics, got 3"),
    (DDPG, {"policy": GaussianMLPPolicy(AIM)}, TypeError, "policy .* GaussianMLPPolicy"),
    (DDPG, {"policy": DeterministicMLPPolicy(WIDE)}, ShapeError, "policy"),
    (DDPG, {"qf": QFunction(WIDE)}, ShapeError, "qf"),
    (DDPG, {"qf": []}, TypeError, "qf"),
    (DQN, {"env_spec": AIM}, TypeError, "Discrete actions, got Box.*: ddpg, td3 and sac learn"),
    (DQN, {"env_spec": PICK, "policy": fixed_policy()}, TypeError, "policy"),
    (DQN, {"env_spec": PICK, "qf": QFunction(AIM)}, ValueError, "qf"),
    (
        DQN,
        {"env_spec": PICK, "learning_rate": 0.001, "min_learning_rate": 0.01, "lr_decay_steps": 5},
        ValueError,
        "min_learning_rate .* learning_rate=0.001",
    ),
]


@pytest.mark.parametrize(("learner", "options", "error", "argument"), MISTAKES)
def test_mistakes(learner: Any, options: dict[str, Any], error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        learner(**{"env_spec": AIM, **TINY, **options})


# ---- images and goals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TD3, SAC, TQC])
def test_images_are_seen_through_an_encoder_that_critics_learn(kind: Any) -> None:
    spec = EnvSpec.from_env(PointRobotPixelsEnv())
    algo = kind(spec, seed=0, replay_size=100, max_path_length=4, **{**TINY, "n_train_steps": 4})
    encoder, target = algo.qf.encoder, algo.trainer.networks.target_critics.encoder
    assert algo.policy.encoder.encoder is encoder and target is not encoder
    before = [[p.detach().clone() for p in module.parameters()] for module in (encoder, target)]
    runner = LocalRunner(seed=0)
    runner.setup(algo, PointRobotPixelsEnv)
    with runner:
        runner.train(1)
    for module, weights in zip((encoder, target), before, strict=True):
        assert all(not torch.equal(p, old) for p, old in zip(module.parameters(), weights, strict=True))
    assert not algo.policy.features(algo.sample_batch().observations).requires_grad


def test_goals_in_hindsight_are_learned_from_a_dict_observation() -> None:
    env = PointGoalEnv()
    spec = EnvSpec.from_env(env)
    space = spec.observation_space
    buffer = ReplayBuffer(space, spec.action_space, 500, num_slots=2, compute_reward=env.compute_reward)
    algo = SAC(spec, replay_buffer=buffer, seed=0, rollout_batch_size=2, max_path_length=10, **TINY)
    runner = LocalRunner(seed=0)
    runner.setup(algo, PointGoalEnv)
    with runner:
        runner.train(2)
    batch = buffer.sample(200, 0)
    assert (batch.rewards == 0).mean() > 0.05  # at random, a goal is hardly ever reached
    assert algo.sample_batch().observations.shape == (8, 6)


def test_goals_in_hindsight_are_an_option_of_a_run() -> None:
    values = {"epochs": 3, "cycles_per_epoch": 2, "n_train_steps": 16, "min_buffer_size": 16}
    experiment = build(resolve("td3", "point-goal", [("a test", values)]))
    with contextlib.closing(experiment.runner):
        experiment.runner.train(3)
    buffer = experiment.algo.replay_buffer
    assert buffer.n_transitions_stored == 96 and (buffer.sample(300, 0).rewards == 0).mean() > 0.02
    plain = build(resolve("td3", "point-goal", [("a test", {**values, "hindsight_ratio": 0.0})]))
    plain.runner.close()
    with pytest.raises(ValueError, match="hindsight_ratio is for environments with compute_reward"):
        build(resolve("td3", "Pendulum-v1", [("a test", {"hindsight_ratio": 0.5})]))
    with pytest.raises(ValueError, match=r"the replay buffer needs .* more than memory_limit=1,000"):
        build(resolve("td3", "Pendulum-v1", [("a test", {"memory_limit": 1000})]))


def test_the_log_tells_the_gradient_steps_of_the_epoch() -> None:
    """Other learners tell those of the epoch, too: the display divides them by its seconds."""
    algo = make(TD3, steps_per_epoch=4, n_train_steps=5, update_to_data=0.5, rollout_batch_size=2, min_buffer_size=25)
    told: list[float] = []

    class Listening:
        def on_epoch_end(self, runner: Any, epoch: int, metrics: Any) -> None:
            told.append(metrics["gradient_steps"])

    trained(algo, Aim, 3, callbacks=[Listening()])
    assert told == [10.0, 20.0, 20.0] and algo.num_gradient_steps == 50  # filled after three of four cycles


@pytest.mark.parametrize(
    ("steps", "ratio", "slots", "told"), [(37, 1.0, 3, 36), (38, 1.0, 3, 39), (20, 3.0, 1, 21), (1, 0.5, 3, 3)]
)
def test_numbers_of_gradient_steps_that_make_no_whole_cycle_come_with_the_nearest(steps, ratio, slots, told):
    changed = {"n_train_steps": steps, "update_to_data": ratio, "rollout_batch_size": slots}
    with pytest.raises(ValueError, match=f"gradient_steps={told}$"):
        build(resolve("td3", "Pendulum-v1", [("a test", changed)]))
