"""Recurrent SAC: what memories see, a gradient step by hand, resume, workers, bad input, learning what needs memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from metaroll.contrib.recurrent_sac import RecurrentCritics, RecurrentSAC, features_of, segment_losses, segment_tensors
from metaroll.data.replay.replay_buffer import ReplayBuffer, SegmentBatch
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.errors import ShapeError
from metaroll.functional.distributions import squashed_sample
from metaroll.policies.exploration import UniformFirstPolicy
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.gru import TanhGaussianGRUPolicy
from metaroll.policies.last_action import LastActionPolicy
from metaroll.policies.normalized import widened_spec
from metaroll.seeding import torch_generator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.experiments import build, resolve
from metaroll.types import EnvSpec

Box = gymnasium.spaces.Box


class Recall(gymnasium.Env):
    """Shows a target in the first of four steps, and rewards ``-(action - 3 target)^2``; actions lie in [-4, 2]."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-4.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.target = 0, float(self.np_random.uniform(-1, 0.6))
        return np.array([self.target, 1.0], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        reward = -float((action[0] - 3.0 * self.target) ** 2)
        return np.zeros(2, np.float32), reward, self.steps >= 4, False, {}


RECALL = EnvSpec(Recall.observation_space, Recall.action_space, 4)
TINY: dict[str, Any] = {
    "steps_per_epoch": 3,
    "n_train_steps": 6,
    "buffer_batch_size": 12,
    "segment_length": 6,
    "burn_in": 2,
    "min_buffer_size": 16,
    "rollout_batch_size": 2,
    "replay_size": 2000,
    "hidden_size": 8,
    "random_steps": 10,
    "seed": 3,
    "evaluate_every": 0,
}


def make(
    spec: EnvSpec = RECALL, policy: Any = None, qf: Any = None, buffer: Any = None, **options: Any
) -> RecurrentSAC:
    return RecurrentSAC(spec, policy=policy, qf=qf, replay_buffer=buffer, **{**TINY, **options})


def small_policy(spec: EnvSpec = RECALL, seed: int = 0) -> LastActionPolicy:
    wide = widened_spec(spec, spec.act_dim)
    return LastActionPolicy(TanhGaussianGRUPolicy(wide, 8, (16,), generator=torch_generator(seed)), spec)


def trained(algo: Any, env: Any, epochs: int = 2, **options: Any) -> LocalRunner:
    runner = LocalRunner(seed=1, **options)
    with runner:
        runner.setup(algo, env)
        runner.train(epochs)
    return runner


# --------------------------------------------------------------------------------------------------- what memories see
def acted(policy: Any, obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Actions ``(T, N, act_dim)``, means, and the last state of N rollouts ``obs (T, N, obs_dim)``."""
    state = policy.initial_state([None] * obs.shape[1], [np.random.default_rng(0)] * obs.shape[1])
    actions, means = [], []
    for now, drawn in zip(obs, noise, strict=True):
        action, state, infos = policy.act(now, state, drawn)
        actions.append(action)
        means.append(infos["mean"])
    return np.stack(actions), np.stack(means), state


def test_the_policy_acts_as_it_is_learned() -> None:
    """NumPy, torch step by step, and the learner's segments: the same means, of actions in their own units."""
    policy: Any = small_policy()
    draw = np.random.default_rng(0)
    obs, noise = draw.normal(size=(5, 3, 2)).astype(np.float32), draw.normal(size=(5, 3, 1))
    actions, means, state = acted(policy, obs, noise)
    assert actions.min() < -1.0 and actions.max() <= 2.0 and actions.min() >= -4.0
    np.testing.assert_allclose(state["last_action"], (actions[-1] + 1.0) / 3.0, atol=1e-6)
    on_torch = {name: torch.from_numpy(np.zeros_like(rows)) for name, rows in state.items()}
    for t in range(5):
        now, drawn = torch.from_numpy(obs[t]), torch.from_numpy(noise[t].astype(np.float32))
        found, on_torch, _ = policy.act_on_torch(now, on_torch, drawn)
        np.testing.assert_allclose(found.detach().numpy(), actions[t], atol=1e-5)
    stored = ((actions + 1.0) / 3.0).swapaxes(0, 1).astype(np.float32)
    starts = np.zeros((3, 5), bool)
    starts[:, 0] = True
    nothing = np.zeros((3, 4), np.float32)
    batch = SegmentBatch(
        obs.swapaxes(0, 1), stored[:, :4], nothing, nothing, starts, np.ones((3, 4), bool), np.arange(3)
    )
    segments = segment_tensors(batch, RECALL.observation_space, 0, torch.device("cpu"), 1.0)
    mean, _ = policy.policy.net(features_of(policy.policy.cell, segments, 0)).chunk(2, dim=-1)
    np.testing.assert_allclose((3.0 * torch.tanh(mean) - 1.0).detach().numpy().reshape(5, 3, 1), means, atol=1e-5)
    sequence = policy.with_last_actions(torch.from_numpy(obs.swapaxes(0, 1)), torch.from_numpy(actions.swapaxes(0, 1)))
    density = policy.policy.log_prob(sequence, torch.from_numpy(actions.swapaxes(0, 1)))
    parameters = dict(policy.policy.named_parameters())
    same = policy.policy.action_distribution(parameters, sequence).log_prob(torch.from_numpy(actions.swapaxes(0, 1)))
    assert density.shape == (3, 5)
    torch.testing.assert_close(density, same)


def test_what_is_remembered_is_what_was_done() -> None:
    """Actions at random are remembered, not those that the policy would have chosen."""
    noisy = UniformFirstPolicy(small_policy())
    noisy.set_uniform(True)
    obs, noise = np.zeros((1, 4, 2), np.float32), np.random.default_rng(1).normal(size=(1, 4, 1))
    actions, _, state = acted(noisy, obs, noise)
    np.testing.assert_allclose(state["last_action"], (actions[0] + 1.0) / 3.0, atol=1e-6)
    chosen, _, _ = noisy.policy.act(obs[0], noisy.initial_state([None] * 4, []), noise[0])
    assert np.abs(actions[0] - chosen).min() > 0.1


def test_segments_as_tensors_by_hand() -> None:
    """One segment of a burn-in of 1 and 3 rows, the last observation of an episode among them."""
    batch = SegmentBatch(
        np.array([[[1.0], [2.0], [3.0], [4.0], [5.0]]], np.float32),
        np.array([[[0.1], [0.2], [0.3], [0.4]]], np.float32),
        np.array([[1.0, 2.0, 3.0, 4.0]], np.float32),
        np.array([[0.9, 0.0, 0.9, 0.9]], np.float32),
        np.array([[False, False, False, True, False]]),
        np.array([[False, True, False, True]]),
        np.array([0]),
    )
    found = segment_tensors(batch, Box(-9, 9, (1,)), 1, torch.device("cpu"), 10.0)
    # The last action of the first row is not known, that of row 3 is none.
    torch.testing.assert_close(
        found.inputs[:, 0], torch.tensor([[1.0, 0.0], [2.0, 0.1], [3.0, 0.2], [4.0, 0.0], [5.0, 0.4]])
    )
    assert found.keep[:, 0, 0].tolist() == [1.0, 1.0, 1.0, 0.0, 1.0] and found.rows.tolist() == [0, 2]
    assert found.rewards.tolist() == [20.0, 40.0] and found.discounts.tolist() == pytest.approx([0.0, 0.9])
    assert found.actions[:, 0].tolist() == pytest.approx([0.2, 0.4])


# ------------------------------------------------------------------------------------------------------ a gradient step
def test_losses_are_those_of_steps_one_by_one() -> None:
    """Against memories that are brought up step by step in each episode alone."""
    algo: Any = trained_algo()
    networks, burn_in = algo.trainer.networks, algo.sizes.burn_in
    with torch.no_grad():
        for weights in networks.target_critics.parameters():
            weights.mul_(0.9)
    drawn, segments = algo.sample_segments()
    noise = torch.randn(2, len(segments.rows), 1, generator=torch_generator(5))
    found = segment_losses(networks, segments, burn_in, noise)

    def features(cell: Any, n: int, t: int) -> torch.Tensor:
        memory = torch.zeros(8)
        for k in range(t + 1):
            memory = cell(segments.inputs[k, n], torch.zeros(8) if drawn.starts[n, k] else memory)
            memory = memory.detach() if k < burn_in else memory
        return torch.cat([memory, segments.inputs[t, n]])

    def chosen(row: torch.Tensor, normal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = networks.policy.net(row).chunk(2)
        return squashed_sample(mean, log_std.clamp(-20, 2), normal)

    alpha, critic, policy, errors = networks.temperature(), [], [], []
    places = [(t, n) for t in range(burn_in, burn_in + 6) for n in range(2) if drawn.mask[n, t]]
    assert len(places) == len(segments.rows) and not drawn.mask.all() and drawn.starts.any()
    for i, (t, n) in enumerate(places):
        action, log_prob = chosen(features(networks.policy.cell, n, t + 1), noise[0, i])
        following = features(networks.target_critics.cell, n, t + 1)
        value = networks.target_critics(following[None], action[None]).min() - alpha * log_prob
        target = (drawn.rewards[n, t] + drawn.discounts[n, t] * value).detach()
        judged = features(networks.critics.cell, n, t)
        values = networks.critics(judged[None], torch.from_numpy(drawn.actions[n, t])[None])[:, 0]
        critic.append(0.5 * (values - target).square().sum())
        errors.append((target - values[0]).item())
        action, log_prob = chosen(features(networks.policy.cell, n, t), noise[1, i])
        policy.append(alpha * log_prob - networks.critics(judged[None], action[None]).min())
    expected = {"critics": torch.stack(critic).mean(), "policy": torch.cat(policy).mean()}
    torch.testing.assert_close(found.errors, torch.tensor(errors), rtol=1e-4, atol=1e-5)
    for name in ("critics", "policy"):
        network, loss = vars_of(networks, name), expected[name]
        torch.testing.assert_close(vars_of(found, name), loss, rtol=1e-4, atol=1e-5)
        mine = torch.autograd.grad(vars_of(found, name), list(network.parameters()), retain_graph=True)
        theirs = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def vars_of(tree: Any, name: str) -> Any:
    return tree._asdict()[name]


def trained_algo(**options: Any) -> RecurrentSAC:
    algo = make(**options)
    trained(algo, Recall)
    return algo


def test_no_gradient_reaches_the_burn_in() -> None:
    algo = trained_algo()
    _, segments = algo.sample_segments()
    inputs = segments.inputs.clone().requires_grad_()
    features = features_of(algo.qf.cell, segments._replace(inputs=inputs), 2)
    (grad,) = torch.autograd.grad(features.sum(), inputs)
    assert (grad[:2] == 0).all() and (grad[2:] != 0).any()
    changed = segments.inputs.clone()
    changed[1] += 1.0
    kept = segments._replace(keep=torch.ones_like(segments.keep))
    different = features_of(algo.qf.cell, kept._replace(inputs=changed), 2) != features_of(algo.qf.cell, kept, 2)
    assert different[:2].any()  # but what it does to the memory counts


def test_a_gradient_step_waits_for_nothing() -> None:
    algo: Any = trained_algo()
    trainer = algo.trainer
    _, segments = algo.sample_segments()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = type(segments)(*map(mode.from_tensor, segments))
        noise = mode.from_tensor(torch.zeros(2, len(segments.rows), 1))
        found = segment_losses(trainer.networks, fake, 2, noise)
        torch.autograd.grad(found.critics, list(trainer.networks.critics.parameters()))
        torch.autograd.grad(found.policy, list(trainer.networks.policy.parameters()))
    assert isinstance(found.errors, FakeTensor) and isinstance(found.log_prob, FakeTensor)


# --------------------------------------------------------------------------------------------------------- the learner
def test_it_learns_what_must_be_remembered() -> None:
    """At random about -25; without a memory at best -5.8, three steps of the variance of 3 target (1.92)."""
    options: dict[str, Any] = {
        "steps_per_epoch": 10,
        "n_train_steps": 16,
        "update_to_data": 0.5,
        "buffer_batch_size": 64,
        "segment_length": 8,
        "burn_in": 4,
        "min_buffer_size": 100,
        "random_steps": 100,
        "discount": 0.0,
        "policy_lr": 1e-2,
        "qf_lr": 1e-2,
        "temperature": 0.05,
        "evaluate_every": 2,
    }
    networks = small_policy(), RecurrentCritics(RECALL, 2, 8, (16,), generator=torch_generator(1))
    runner = trained(make(RECALL, *networks, **options), Recall, 2)
    assert runner.last_evaluation is not None and runner.last_evaluation.score > -2.0


def test_networks_that_are_drawn_have_the_width_that_was_given() -> None:
    algo = make()
    assert algo.policy.policy.hidden_size == algo.qf.hidden_size == 8


def test_it_trains_by_name_in_random_domains() -> None:
    values = {
        **{name: TINY[name] for name in ("buffer_batch_size", "segment_length", "burn_in", "hidden_size")},
        "epochs": 1,
        "cycles_per_epoch": 3,
        "n_train_steps": 5,
        "min_buffer_size": 20,
        "randomize_param": ("m=0.5:1.5",),
        "num_test_tasks": 2,
    }
    experiment = build(resolve("rsac", "Pendulum-v1", [("a test", values)]))
    experiment.runner.train(1)
    experiment.runner.close()
    assert experiment.algo.num_env_steps == 30 and experiment.algo.num_gradient_steps == 10
    with pytest.raises(Exception, match="hindsight_ratio"):
        resolve("rsac", "Pendulum-v1", [("a test", {**values, "hindsight_ratio": 0.5})])


GOALS = gymnasium.spaces.Dict({"achieved_goal": Box(-1, 1, (1,)), "desired_goal": Box(-1, 1, (1,))})


@pytest.mark.parametrize(
    ("options", "error", "about"),
    [
        ({"spec": EnvSpec.from_env(gymnasium.make("CartPole-v1"))}, TypeError, "learns actions that are a Box"),
        ({"spec": EnvSpec.from_env(PointRobotPixelsEnv())}, TypeError, "RecurrentSAC does not support images"),
        ({"n_step": 2}, ValueError, "n_step"),
        ({"buffer_batch_size": 13}, ValueError, "buffer_batch_size .* segment_length=6"),
        ({"min_buffer_size": 15}, ValueError, "min_buffer_size .* got 15"),
        ({"burn_in": -1}, ValueError, "burn_in"),
        ({"policy": TanhGaussianMLPPolicy(RECALL)}, TypeError, "policy must"),
        ({"policy": small_policy(EnvSpec(Box(-1, 1, (3,)), RECALL.action_space))}, ShapeError, "policy must"),
        ({"qf": RecurrentCritics(EnvSpec(Box(-1, 1, (3,)), RECALL.action_space))}, ShapeError, "2 critics of 3 inputs"),
        ({"qf": []}, TypeError, "qf must"),
        (
            {"replay_buffer": ReplayBuffer(RECALL.observation_space, RECALL.action_space, 99, priority_exponent=0.6)},
            TypeError,
            "replay_buffer",
        ),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], about: str) -> None:
    spec = options.pop("spec", RECALL)
    networks = [options.pop(name, None) for name in ("policy", "qf", "replay_buffer")]
    with pytest.raises(error, match=about):
        make(spec, *networks, **options)
