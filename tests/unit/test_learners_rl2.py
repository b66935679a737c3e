"""RL2: what it adapts to is what acting would have remembered, a critic with memory, returns over ends of episodes."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.registry import get_family
from metaroll.envs.lookup.source import env_kind, make_slots
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.envs.tabular.bandit import BernoulliBanditEnv
from metaroll.envs.wrappers.trials import TrialUpdate, TrialWrapper
from metaroll.errors import DataError, ShapeError
from metaroll.functional.policy_gradients import clipped_surrogate, clipped_value_loss
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.on_policy.rl2 import RL2
from metaroll.policies.gaussian import CategoricalMLPPolicy
from metaroll.policies.gru import CategoricalGRUPolicy, GRUCritic, GRUGaussianPolicy
from metaroll.policies.networks import MLP
from metaroll.policies.trial_memory import TrialMemoryPolicy
from metaroll.processing.on_policy import collect_on_policy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.seeding import torch_generator
from metaroll.tasks.updates import NewEnvUpdate, SetTaskUpdate
from metaroll.types import EnvSpec, RolloutPlan

EPISODES = 3
SMALL: dict[str, Any] = {"batch_size": 30, "num_passes": 2, "seed": 0, "bootstrap_truncated": False}


class Unsteady(gymnasium.Env):
    """Ends by itself after two to five steps, as its generator says; the observation is that number and the step."""

    observation_space = Box(-9.0, 9.0, (2,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._end, self._step = int(self.np_random.integers(2, 6)), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._seen(), float(action) + self.np_random.normal(), self._step == self._end, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._end, self._step], np.float32)


def env_of(name: str, episodes: int = EPISODES) -> TrialWrapper:
    make: Any = Unsteady if name == "unsteady" else get_family(name).env_constructor
    return TrialWrapper(make(), episodes, 6)


def learner_of(name: str = "bandit-5", hidden: int = 5, critic: Any = None, **options: Any) -> PPO:
    spec = EnvSpec.from_env(env_of(name))
    kind: Any = CategoricalGRUPolicy if isinstance(spec.action_space, Discrete) else GRUGaussianPolicy
    policy = kind(spec, hidden, generator=torch_generator(1))
    critic = GRUCritic(spec.obs_dim, hidden, generator=torch_generator(2)) if critic is None else critic
    return PPO(spec, policy=policy, critic=critic, **{"max_path_length": 6 * EPISODES, **SMALL, **options})


def make(name: str = "bandit-5", hidden: int = 5, critic: Any = None, own: Any = None, **options: Any) -> RL2:
    return RL2(learner_of(name, hidden, critic, **options), trials_per_epoch=4, **(own or {}))


def trials_of(algo: RL2, name: str, count: int = 5, policy: Any = None) -> Rollouts:
    with RolloutEngine(functools.partial(env_of, name), algo.policy if policy is None else policy) as engine:
        return engine.run([RolloutPlan(i, (7, 0, i)) for i in range(count)])


def episodes_of(trial: StepSequence, num_told: int) -> list[StepSequence]:
    """The episodes of a trial as they are by themselves: nothing is told in the first row, and each has its own end."""
    numbers = np.asarray(trial.env_infos["episode"])
    found = []
    for number in range(int(numbers[-1]) + 1):
        (steps,) = np.nonzero(numbers == number)
        rows = trial.observations[steps[0] : steps[-1] + 2].copy()
        rows[0, -num_told:] = 0.0
        ends = np.arange(len(steps)) == len(steps) - 1
        found.append(
            StepSequence(
                observations=rows,
                actions=trial.actions[steps],
                rewards=trial.rewards[steps],
                terminated=ends,
                truncated=np.zeros(len(steps), dtype=bool),
            )
        )
    return found


def states_of_acting(policy: Any, trial: StepSequence) -> list[np.ndarray]:
    """The memory before every step of a trial, and after the last, when it acts alone."""
    state = policy.initial_state([None], [np.random.default_rng(0)])
    found = [state["hidden"][0].copy()]
    for obs in trial.observations[:-1]:
        noise = np.full((1, policy.info.noise_dim), 0.5, np.float32)
        _, state, _ = policy.act(np.asarray(obs)[None], state, noise)
        found.append(state["hidden"][0].copy())
    return found


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", ["bandit-5", "random-mdp", "point-navigation", "unsteady"])
def test_what_is_adapted_to_is_what_acting_would_have_remembered(name: str, normalized: bool) -> None:
    algo = make(name, normalize_observations=normalized)
    if normalized:
        width = algo.env_spec.obs_dim
        algo.policy.set_observation_moments(np.linspace(-1.0, 1.0, width), np.linspace(0.5, 2.0, width))
    trials = trials_of(algo, name)
    batches = [episodes_of(trial, algo.num_told) for trial in trials]
    for count in (1, 2):
        adapted = algo.adapt_policies(
            [algo.get_exploration_policy() for _ in batches], [episodes[:count] for episodes in batches]
        )
        for policy, trial, episodes in zip(adapted, trials, batches, strict=True):
            begin = sum(len(episode.rewards) for episode in episodes[:count])
            np.testing.assert_array_equal(policy.memory["hidden"], states_of_acting(algo.policy, trial)[begin])
            # In the next episode it sees, thinks and does what it saw, thought and did in the trial.
            rows, infos = episodes[count].observations, trial.policy_infos
            state = policy.initial_state([policy.plan_context()], [np.random.default_rng(0)])
            for t in range(len(episodes[count].rewards)):
                noise = np.full((1, policy.info.noise_dim), 0.5, np.float32)
                _, state, told = policy.act(rows[t : t + 1], state, noise)
                for key in set(told) & {"prob", "mean"}:
                    np.testing.assert_array_equal(told[key][0], infos[key][begin + t])
    # One by one, from a batch of trajectories, from whole trials: the same memories.
    whole = algo.adapt_policy(algo.get_exploration_policy(), trials[0])
    parts = algo.adapt_policy(algo.get_exploration_policy(), batches[0])
    batch = TrajectoryBatch.from_rollouts(algo.env_spec, batches[0])
    packed = algo.adapt_policy(adapted[0], batch)  # a policy of before is as good as a new one
    for other in (parts, packed):
        for key, row in whole.memory.items():
            np.testing.assert_array_equal(other.memory[key], row)
    assert whole.memory["told"][-1] == 1.0


def test_an_adapted_policy_acts_in_the_engine_as_it_does_alone() -> None:
    algo = make("random-mdp")
    trials = trials_of(algo, "random-mdp", 4)
    policies = algo.adapt_policies([algo.get_exploration_policy() for _ in trials], list(trials))
    with RolloutEngine(functools.partial(env_of, "random-mdp", 1), policies[0]) as engine:
        plans = [RolloutPlan(i, (8, 0, i), context=policy.plan_context()) for i, policy in enumerate(policies)]
        together = engine.run(plans)
        alone = []
        for plan, policy in zip(plans, policies, strict=True):
            engine.set_policy(policy)
            alone += engine.run([plan.with_(context=None)])
        empty = engine.run([plans[0].with_(context={})])
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.policy_infos["prob"], other.policy_infos["prob"])
    assert not np.array_equal(empty[0].policy_infos["prob"][0], together[0].policy_infos["prob"][0])
    device = {
        name: torch.from_numpy(np.asarray(rows))
        for name, rows in policies[0].initial_state([policies[0].plan_context()], [np.random.default_rng(0)]).items()
    }
    first = torch.from_numpy(together[0].observations[:1].copy())
    with torch.no_grad():
        _, _, infos = policies[0].act_on_torch(first, device, torch.zeros(1, 1))
    np.testing.assert_allclose(infos["prob"][0], together[0].policy_infos["prob"][0], atol=1e-6)


def test_exploration_policies_are_their_own_and_know_nothing() -> None:
    algo = make()
    first, second = algo.get_exploration_policy(), algo.get_exploration_policy()
    assert first.plan_context() is None and algo.info.adapts and algo.info.adapts_again
    before = algo.policy.acting_parameters()
    with torch.no_grad():
        next(first.parameters()).add_(1.0)
    np.testing.assert_array_equal(algo.policy.acting_parameters(), before)
    np.testing.assert_array_equal(second.acting_parameters(), before)
    # Policies with other weights are not run together.
    (trial,) = trials_of(algo, "bandit-5", 1)
    changed, same = algo.adapt_policies([first, second], [trial, trial])
    assert not np.array_equal(changed.memory["hidden"], same.memory["hidden"])


def test_the_critic_depends_on_what_was_seen_before() -> None:
    algo = make("random-mdp")
    trials = trials_of(algo, "random-mdp", 2)
    data = collect_on_policy(trials, algo.env_spec)
    nets: Any = algo.learner._trainer.nets
    values, last = nets.values(data.observations, data.last_observations, data.bounds)
    assert values.shape == (len(data),) and last.shape == (2,)
    changed = data.observations.copy()
    changed[0, -2] += 3.0  # another reward at the very beginning of the first trial
    others, other_last = nets.values(changed, data.last_observations, data.bounds)
    length = int(data.bounds[1])
    assert (others[:length] != values[:length]).all() and other_last[0] != last[0]
    np.testing.assert_array_equal(others[length:], values[length:])
    # The value after the last step is that of the whole trial with one more row.
    rows = np.concatenate([data.observations[:length], data.last_observations[:1]])
    with torch.no_grad():
        expected = algo.critic(torch.from_numpy(rows[None]))[0, :, 0].numpy()
    np.testing.assert_allclose(np.append(values[:length], last[0]), expected, atol=1e-6)
    # What it is trained on goes through time: the loss of the last step moves what the first step fed.
    whole = torch.from_numpy(rows[None]).requires_grad_()
    algo.critic(whole)[0, -1, 0].backward()
    assert float(whole.grad[0, 0].abs().sum()) > 0.0


@pytest.mark.parametrize("across", [True, False])
def test_returns_go_over_ends_of_episodes_unless_they_are_not_to(across: bool) -> None:
    algo = make("unsteady", discount=0.9, gae_lambda=1.0, normalize_returns=False, own={"across_episodes": across})
    trials = trials_of(algo, "unsteady", 3)
    seen: list[Any] = []
    nets: Any = algo.learner._trainer.nets
    minibatches = nets.minibatches
    nets.minibatches = lambda data, generator: (seen.append(data), minibatches(data, generator))[1]
    algo.update(trials)
    data = seen[0]
    for trial, begin, end in zip(trials, data.bounds[:-1], data.bounds[1:], strict=True):
        numbers = np.asarray(trial.env_infos["episode"])
        expected = np.zeros(len(numbers))
        for t in range(len(numbers)):
            later = [k for k in range(t, len(numbers)) if across or numbers[k] == numbers[t]]
            expected[t] = sum(0.9 ** (k - t) * trial.rewards[k] for k in later)
        np.testing.assert_allclose(data.targets[begin:end], expected, rtol=1e-4, atol=1e-5)


def test_a_trial_that_is_cut_off_ends_there_where_a_rollout_would_count_what_would_follow() -> None:
    values = {}
    options: dict[str, Any] = {"discount": 1.0, "gae_lambda": 1.0, "normalize_returns": False}
    algo = make("bandit-5", **options)
    trials = trials_of(algo, "bandit-5", 3)
    assert np.asarray(trials.truncated)[trials.bounds[1:] - 1].all()
    data = collect_on_policy(trials, algo.env_spec)
    for bootstrap in (False, True):
        learner = learner_of("bandit-5", **options, bootstrap_truncated=True) if bootstrap else algo.learner
        batch, _ = learner._prepare(data, trials, None)
        values[bootstrap] = batch.targets[data.bounds[1:] - 1]
        nets: Any = learner._trainer.nets
        last = nets.values(data.observations, data.last_observations, data.bounds)[1]
        np.testing.assert_allclose(
            values[bootstrap], data.rewards[data.bounds[1:] - 1] + (last if bootstrap else 0.0), rtol=1e-5
        )
    assert (values[True] != values[False]).any()


def test_a_gradient_step_waits_for_nothing() -> None:
    """No operation hangs on values: it runs on tensors without any, ragged trials included."""
    algo = make("unsteady", max_grad_norm=None)
    trials = trials_of(algo, "unsteady", 4)
    assert len({len(trial) for trial in trials}) > 1
    data, _ = algo.learner._prepare(collect_on_policy(trials, algo.env_spec), trials, None)
    nets: Any = algo.learner._trainer.nets
    inputs, targets = nets._tensors_of(data, np.arange(4))
    weights = dict(algo.learner.policy.policy.named_parameters())
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs, targets = (type(part)(*map(mode.from_tensor, part)) for part in (inputs, targets))
        log_prob, _ = nets.policy(inputs)
        values = nets.critic(inputs)
        surrogate = clipped_surrogate(log_prob, targets.log_probs, targets.advantages, 0.2)
        error = clipped_value_loss(values, targets.returns, targets.values, 0.2)
        outputs = [*nets._outputs, nets._values]
        grads = [surrogate.d_log_prob, torch.ones_like(outputs[1]), error.d_values]
        gradients = torch.autograd.grad(outputs, [weights["head.weight"]], grads)
    assert gradients[0].shape == weights["head.weight"].shape
    assert all(isinstance(part, FakeTensor) for part in (*surrogate, *error))


def test_what_is_told_of_trials() -> None:
    algo = make("unsteady")
    trials = trials_of(algo, "unsteady", 4)
    metrics = algo.update(trials)
    numbers = [np.asarray(trial.env_infos["episode"]) for trial in trials]
    for name, which in (("return_first", 0), ("return_last", EPISODES - 1)):
        expected = np.mean([trial.rewards[n == which].sum() for trial, n in zip(trials, numbers, strict=True)])
        assert metrics[name] == pytest.approx(expected)
    assert metrics["episodes_per_trial"] == EPISODES
    assert metrics["return"] == pytest.approx(np.mean([trial.rewards.sum() for trial in trials]))


SPEC = EnvSpec.from_env(env_of("bandit-5"))
BARE = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
FORWARD = CategoricalMLPPolicy(SPEC, (4,))
MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: make(critic=MLP(SPEC.obs_dim, 1, (4,))), TypeError, "critic .* GRUCritic"),
    (lambda: make(critic=GRUCritic(SPEC.obs_dim + 1, 4)), ValueError, r"critic .* \(N, T, 8\)"),
    (
        lambda: RL2(PPO(SPEC, policy=FORWARD, critic=GRUCritic(SPEC.obs_dim, 4), max_path_length=18)),
        TypeError,
        "policy .* CategoricalMLPPolicy",
    ),
    (lambda: RL2("ppo"), TypeError, "learner"),  # type: ignore[arg-type]
    (
        lambda: RL2(
            PPO(
                BARE,
                policy=CategoricalGRUPolicy(BARE, 4),
                critic=GRUCritic(BARE.obs_dim, 4),
                bootstrap_truncated=False,
            )
        ),
        ValueError,
        "env_spec",
    ),
    (lambda: RL2(learner_of(bootstrap_truncated=True)), ValueError, "bootstrap_truncated .* False"),
    (lambda: RL2(make().learner, trials_per_epoch=0), ValueError, "trials_per_epoch"),
    (lambda: TrialUpdate(NewEnvUpdate(Unsteady), 0), ValueError, "episodes_per_trial"),
    (lambda: TrialUpdate({}, 3), TypeError, "update"),  # type: ignore[arg-type]
    (lambda: TrialMemoryPolicy(FORWARD, 7), TypeError, "recurrent policy"),
]


@pytest.mark.parametrize(("make_one", "error", "argument"), MISTAKES)
def test_mistakes(make_one: Any, error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        make_one()


def test_what_cannot_be_adapted_to_is_refused() -> None:
    algo = make()
    (trial,) = trials_of(algo, "bandit-5", 1)
    policy, broken = algo.get_exploration_policy(), trial.observations.copy()
    broken[2, 0] = np.nan

    def with_rows(rows: np.ndarray) -> StepSequence:
        ends = {"terminated": trial.terminated, "truncated": trial.truncated}
        return StepSequence(observations=rows, actions=trial.actions, rewards=trial.rewards, **ends)

    for given, error, about in (
        ([], ValueError, "at least one step"),
        (3, TypeError, "StepSequence .* got int"),
        (trials_of(make("random-mdp"), "random-mdp", 1), ShapeError, "observations of 8 numbers.* TrialWrapper"),
        (with_rows(broken), DataError, "NaN or Inf"),
        (with_rows(broken[:-1]), DataError, "observation after their last step"),
    ):
        with pytest.raises(error, match=about):
            algo.adapt_policy(policy, given)
    with pytest.raises(TypeError, match="get_exploration_policy"):
        algo.adapt_policy(algo.policy, trial)
    with pytest.raises(ShapeError, match="told"):
        policy.initial_state([{"told": np.zeros(3)}], [np.random.default_rng(0)])


def test_it_learns_to_pull_the_arm_that_pays() -> None:
    """One of two arms always pays: pull one, then the right one; a policy without memory gets half."""
    maker = TrialUpdate(NewEnvUpdate(BernoulliBanditEnv), 6, 1)
    tasks = [SetTaskUpdate(BernoulliBanditEnv, {"probabilities": row}) for row in np.eye(5)[:2]]
    trials = [TrialUpdate(task, 6, 1) for task in tasks]
    assert env_kind(maker, [RolloutPlan(i, (0, 0, i), trial) for i, trial in enumerate(trials)]) == "batched"
    spec = EnvSpec.from_env(maker())
    policy = CategoricalGRUPolicy(spec, 16, generator=torch_generator(1))
    critic = GRUCritic(spec.obs_dim, 16, generator=torch_generator(2))
    options: dict[str, Any] = {"learning_rate": 0.01, "num_passes": 4, "batch_size": 300, "discount": 1.0}
    learner = PPO(
        spec, policy=policy, critic=critic, **{**SMALL, **options}, max_path_length=6, normalize_observations=False
    )
    algo = RL2(learner, trials_per_epoch=100)
    with RolloutEngine(maker, algo.policy) as engine:
        for epoch in range(20):
            metrics = algo.update(engine.run([RolloutPlan(i, (1, epoch, i), trials[i % 2]) for i in range(100)]))
    assert metrics["return"] > 5.0  # 5.5 at best, 3 without memory
    assert metrics["return_last"] > 0.9 > metrics["return_first"]


def test_updates_make_trials_of_the_environments_of_others() -> None:
    task = {"probabilities": np.eye(5)[2]}
    update = TrialUpdate(SetTaskUpdate(BernoulliBanditEnv, task), 3, 4)
    assert update.task is task and not update.builds_env and TrialUpdate(NewEnvUpdate(Unsteady), 3).builds_env
    trial = update()
    assert isinstance(trial, TrialWrapper) and trial.unwrapped.get_task()["probabilities"][2] == 1.0  # type: ignore
    other = TrialUpdate(SetTaskUpdate(BernoulliBanditEnv, {"probabilities": np.eye(5)[1]}), 3, 4)
    assert other(trial) is trial and trial.unwrapped.get_task()["probabilities"][1] == 1.0  # type: ignore
    longer = TrialUpdate(other.update, 5, 4)
    made = longer(trial)
    assert made is not trial and made.env is trial.env and made.episodes_per_trial == 5
    assert other.replaces(update) and not other.replaces(update.update) and other != longer != update
    assert pickle.loads(pickle.dumps(update)) == update and hash(update) == hash(pickle.loads(pickle.dumps(update)))
    assert trial.accepts_update(update) and not trial.accepts_update(longer)


def test_a_list_of_environments_shows_the_trials_of_the_simulator() -> None:
    updates = [TrialUpdate(update, 3, 4) for update in get_family("random-mdp").samplers(seed=3)[0].sample(3)]
    plans = [RolloutPlan(i, (1, 0, i), updates[i % 3]) for i in range(6)]
    maker = TrialUpdate(NewEnvUpdate(get_family("random-mdp").env_constructor), 3, 4)
    policy = CategoricalGRUPolicy(EnvSpec.from_env(maker()), 4, generator=torch_generator(0))
    found = [
        SlotLoop(slots, policy, plans, parameters=policy.acting_parameters()).advance()
        for slots in (make_slots(maker, 4), GymSlots(maker, 4))
    ]
    for name in ("observations", "rewards", "actions"):
        np.testing.assert_array_equal(found[0].column(name), found[1].column(name))
