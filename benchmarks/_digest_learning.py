"""Cases of ``digests.py``: three epochs of every algorithm, with the options that choose other paths through the code.

Sizes are small: a case takes about a second. Widths and numbers of rows lie on both sides of the limits where
hand-written gradients, reused memory and blocks of rows take another path.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from _digest_parts import Cases, Parts
from _digest_parts import names as m

from metaroll.errors import UnknownNameError

__all__ = ["CASES", "add_actions", "make_agent", "train_agent"]

EPOCHS = 3

ONE_CONCEPT = (
    ("replay_size", "replay_buffer_size"),
    ("target_update_tau", "soft_target_tau"),
    ("min_buffer_size", "num_initial_steps"),
)
"""Groups of names of one option or metric: cases use the first; a version may know any of them."""

TIME_PREFIX = "time/"
"""Metrics with this prefix differ from run to run."""


class Choices(gymnasium.Env[Any, Any]):
    """Two discrete actions per step, of three and of two values: one moves a point, the other doubles its move."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (2,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.uniform(-1.0, 1.0), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = float(np.clip(self.position + 0.1 * (int(action[0]) - 1) * (1 + int(action[1])), -4.0, 4.0))
        self.steps += 1
        return self._obs(), -abs(self.position), abs(self.position) < 0.05, self.steps >= 25, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.position, self.steps / 25.0], dtype=np.float32)


# -- agents that learn -------------------------------------------------------------------------------------------------


def make_agent(algo: str, env: Any, options: Mapping[str, Any]) -> Any:
    """Make an agent, with the names that this version has for the options."""
    try:
        return m.agent(algo, env, **options)
    except UnknownNameError:
        renamed = _with_known_names(options, _options_of(algo, env))
        if renamed == dict(options):
            raise
        return m.agent(algo, env, **renamed)


def _options_of(algo: str, env: Any) -> set[str]:
    sections = m.agent(algo, env).config.values()
    return {name for section in sections if isinstance(section, Mapping) for name in section}


def _with_known_names(options: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    renamed = {}
    for name, value in options.items():
        synonyms = next((group for group in ONE_CONCEPT if name in group), (name,))
        renamed[name if name in known else next((other for other in synonyms if other in known), name)] = value
    return renamed


class Recorder:
    """Records the metrics of each epoch, and the weights of the policy after it."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if not name.startswith(TIME_PREFIX):
                self.parts.add(next((group[0] for group in ONE_CONCEPT if name in group), name), value)
        self.parts.add("environment steps", runner.total_env_steps)
        policy = runner.algo.policy
        if hasattr(policy, "parameters"):
            self.parts.add_weights("policy weights", policy.parameters())


def train_agent(parts: Parts, folder: Path, algo: str, env: Any, epochs: int = EPOCHS, **options: Any) -> Any:
    """Train an agent for ``epochs`` epochs, and record them in ``parts``."""
    agent = make_agent(algo, env, {"seed": 1, "epochs": epochs, "run_dir": folder / "run", **options})
    return agent.learn(progress=False, callbacks=[Recorder(parts)])


def add_actions(parts: Parts, agent: Any, adapts: bool, domain_param: Mapping[str, float] | None = None) -> None:
    """Record actions with and without noise, or rollouts before and after adaptation if the agent ``adapts``."""
    if adapts:
        env = agent.test_tasks[0]()
        rollouts = agent.explore(env, episodes=2, seed=3)
        parts.add_rollouts("exploring", rollouts)
        adapted = agent.adapt(rollouts)
        parts.add_rollouts("adapted", [m.rollout(env, adapted, seed=4, max_steps=50)])
        return
    space = agent.env_spec.observation_space
    space.seed(5)
    for deterministic in (True, False):
        agent.reset(domain_param)
        actions = [np.asarray(agent.act(_finite(space.sample()), deterministic=deterministic)) for _ in range(9)]
        parts.add(f"actions, deterministic {deterministic}", np.stack(actions))


def _finite(sample: Any) -> Any:
    """Clip a sample to [-3, 3], since one from a space with wide bounds may be huge."""
    if isinstance(sample, Mapping):
        return {key: _finite(item) for key, item in sample.items()}
    return np.clip(sample, -3.0, 3.0) if sample.dtype.kind == "f" else sample


# -- the algorithms ----------------------------------------------------------------------------------------------------

CASES = Cases()

ADAPTING = ("pearl", "rl2", "maml", "promp", "dice")


def learning(name: str, env: Any, quick: bool = False, **options: Any) -> None:
    """Add a case that trains an agent; the first word of ``name`` is the algorithm."""
    algo = name.split()[0]

    def run(parts: Parts, folder: Path) -> None:
        add_actions(parts, train_agent(parts, folder, algo, env, **options), algo in ADAPTING)

    CASES.add(name, run, quick)


FEW: dict[str, Any] = {"evaluate_every": 3, "num_episodes": 2}

PPO: dict[str, Any] = {**FEW, "steps_per_epoch": 600, "num_passes": 4}
learning("ppo", "Pendulum-v1", quick=True, **PPO)
learning("ppo relu, 8", "Pendulum-v1", **PPO, hidden_sizes=(8,), hidden_nonlinearity="relu", batch_size=50)
learning("ppo relu, 256 256", "Pendulum-v1", **PPO, hidden_sizes=(256, 256), hidden_nonlinearity="relu")
learning("ppo no hidden layer", "Pendulum-v1", **PPO, hidden_sizes=(), batch_size=60)
learning(
    "ppo whole batch, clipped values, entropy",
    "Pendulum-v1",
    **{**PPO, "steps_per_epoch": 5000, "num_passes": 2},
    batch_size=5000,
    value_clip_range=0.2,
    entropy_coeff=0.01,
    max_grad_norm=None,
)
learning(
    "ppo plain",
    "Pendulum-v1",
    **PPO,
    normalize_observations=False,
    normalize_returns=False,
    normalize_advantages=False,
    bootstrap_truncated=False,
    target_kl=0.003,
)
learning("ppo autograd", "Pendulum-v1", quick=True, **PPO, gradients="autograd")
learning("ppo autograd relu, 256 256", "Pendulum-v1", **PPO, gradients="autograd", hidden_sizes=(256, 256))
learning("ppo gru", "Pendulum-v1", quick=True, **PPO, network="gru", hidden_sizes=(16,), batch_size=200)
learning("ppo discrete", "CartPole-v1", quick=True, **PPO)
learning("ppo discrete autograd", "CartPole-v1", **PPO, gradients="autograd", hidden_nonlinearity="relu")
learning("ppo discrete gru", "CartPole-v1", **PPO, network="gru", hidden_sizes=(16,))
learning("ppo several choices", Choices, **PPO, max_path_length=25)
learning("ppo tasks", "point-robot", **PPO, num_train_tasks=10, num_test_tasks=4)
learning("ppo HalfCheetah", "HalfCheetah-v5", **PPO, max_path_length=100)
learning("ppo random domains", "pend", **PPO, randomize="default", max_path_length=100, domain_params=("pole_mass",))
learning("ppo 2 workers", "Pendulum-v1", **PPO, num_workers=2)
learning("ppo goals (Dict)", "point-goal", **PPO)
learning("ppo images", "point-robot-pixels", **{**PPO, "steps_per_epoch": 100, "num_passes": 1}, batch_size=50)

EPOPT: dict[str, Any] = {**FEW, "rollouts_per_epoch": 20, "warm_up_epochs": 1, "epsilon": 0.3, "max_path_length": 60}
learning("epopt", "pend", quick=True, **EPOPT, num_passes=4)
learning("epopt tasks", "point-navigation", **EPOPT, num_train_tasks=10, num_test_tasks=4, num_passes=2)


def distilling(network: str, quick: bool = False) -> None:
    """Add a case that distills a student from a teacher that observes the domain parameters."""

    def run(parts: Parts, folder: Path) -> None:
        options = {"steps_per_epoch": 400, "num_passes": 2, "evaluate_every": 0, "max_path_length": 60}
        domains = {"randomize": "default", "domain_params": ("pole_mass",), "privileged": True}
        teacher = make_agent("ppo", "pend", {**options, **domains, "epochs": 1, "run_dir": folder / "teacher"})
        teacher.learn(progress=False)
        add_actions(parts, teacher, False, {"pole_mass": 1.1})
        student = {**options, **FEW, "teacher": str(folder / "teacher"), "network": network, "hidden_sizes": (16,)}
        add_actions(parts, train_agent(parts, folder, "distill", "pend", batch_size=200, **student), False)

    CASES.add(f"distill {network}", run, quick)


distilling("gru", quick=True)
distilling("mlp")

EVOLUTION: dict[str, Any] = {**FEW, "max_path_length": 60}
SEARCH: dict[str, Any] = {**EVOLUTION, "mean_epochs": 1}
HIDDEN: dict[str, Any] = {"hidden_sizes": (8,)}
learning("cmaes", "CartPole-v1", quick=True, **SEARCH)
learning("cmaes ipop", "CartPole-v1", **SEARCH, restarts="ipop", target=None)
learning("cmaes bipop", "CartPole-v1", **SEARCH, restarts="bipop", epochs=12)
learning("cmaes separable, mirrored", "Pendulum-v1", **SEARCH, **HIDDEN, separable=True, mirrored=True, reevaluated=2)
learning("cmaes elitism, bounds", "CartPole-v1", **SEARCH, elitism=True, lower=-1.0, upper=1.0, active=False)
learning("cmaes starts", "CartPole-v1", **SEARCH, starts=4, round_length=1, epochs=4)
learning("cmaes mean of epochs", "CartPole-v1", **{**SEARCH, "mean_epochs": 2})
learning("cmaes tasks", "point-navigation", **SEARCH, num_train_tasks=6, num_test_tasks=4, tasks_per_epoch=2)
learning("cem", "CartPole-v1", quick=True, **SEARCH)
learning("cem full, mirrored", "Pendulum-v1", **SEARCH, covariance="full", mirrored=True, elitism=True)
learning("cem worst returns", "pend", **SEARCH, randomize="default", tasks_per_epoch=4, epsilon=0.5)
learning("ars", "CartPole-v1", quick=True, **SEARCH)
learning("ars noise of policies", "Pendulum-v1", **SEARCH, **HIDDEN, deterministic=False, common_random_numbers=False)
learning("es", "CartPole-v1", quick=True, **SEARCH)
learning(
    "es standardized", "Pendulum-v1", **SEARCH, **HIDDEN, shaping="standardized", weight_decay=0.01, mirrored=False
)
learning("pgpe", "CartPole-v1", quick=True, **SEARCH)
learning("pgpe 2 workers", "Pendulum-v1", **SEARCH, **HIDDEN, num_workers=2)
learning("snes", "CartPole-v1", quick=True, **SEARCH)
learning("snes mirrored", "Pendulum-v1", **SEARCH, **HIDDEN, mirrored=True, rollouts_per_candidate=2)
learning("hill-climbing", "CartPole-v1", quick=True, **EVOLUTION)
learning("hill-climbing sphere", "pend", **EVOLUTION, noise="sphere", randomize="default", num_domains=2, epsilon=0.5)

CYCLES: dict[str, Any] = {"steps_per_epoch": 10, "n_train_steps": 10, "min_buffer_size": 100, "replay_size": 1000}
OFF: dict[str, Any] = {**FEW, **CYCLES, "max_path_length": 60}
UNIFORM: dict[str, Any] = {**OFF, "uniform_steps": 50}
WIDE: dict[str, Any] = {"hidden_sizes": (256, 256), "buffer_batch_size": 256}
SMALL: dict[str, Any] = {"hidden_sizes": (16, 16), "buffer_batch_size": 32}
DQN: dict[str, Any] = {**OFF, "epsilon_steps": 100}
learning("dqn", "CartPole-v1", quick=True, **DQN)
learning("dqn plain, small", "CartPole-v1", **DQN, **SMALL, double=False, n_step=1, max_grad_norm=None)
learning("dqn dueling, tanh", "CartPole-v1", **DQN, **SMALL, dueling=True, hidden_nonlinearity="tanh")
learning("dqn prioritized", "CartPole-v1", quick=True, **DQN, **SMALL, priority_exponent=0.6)
learning("dqn side by side", "CartPole-v1", **DQN, rollout_batch_size=5)
learning("ddpg", "Pendulum-v1", quick=True, **UNIFORM)
learning(
    "ddpg small, tanh, OU",
    "Pendulum-v1",
    **UNIFORM,
    **SMALL,
    hidden_nonlinearity="tanh",
    exploration_noise="ornstein-uhlenbeck",
)
learning("td3", "Pendulum-v1", quick=True, **UNIFORM)
learning("td3 wide", "Pendulum-v1", quick=True, **UNIFORM, **WIDE)
learning("td3 small, tanh, n steps", "Pendulum-v1", **UNIFORM, **SMALL, hidden_nonlinearity="tanh", n_step=3)
learning("td3 random domains", "pend", **UNIFORM, **SMALL, randomize="default", rollout_batch_size=5)
learning("td3 hindsight (Dict)", "point-goal", **UNIFORM, **SMALL, hindsight_ratio=0.5, rollout_batch_size=5)
learning("sac", "Pendulum-v1", quick=True, **UNIFORM)
learning("sac wide", "Pendulum-v1", quick=True, **UNIFORM, **WIDE)
learning("sac fixed temperature", "Pendulum-v1", quick=True, **UNIFORM, temperature=0.2)
learning("sac small, tanh", "Pendulum-v1", **UNIFORM, **SMALL, hidden_nonlinearity="tanh")
learning("sac prioritized", "Pendulum-v1", **UNIFORM, **SMALL, priority_exponent=0.6, n_step=2)
learning("sac one layer, odd rows", "Pendulum-v1", **UNIFORM, hidden_sizes=(33,), buffer_batch_size=37)
learning("sac HalfCheetah", "HalfCheetah-v5", **UNIFORM, **WIDE, update_to_data=0.5)
learning("sac 2 workers", "Pendulum-v1", **UNIFORM, num_workers=2, rollout_batch_size=5)
learning("sac discrete", "CartPole-v1", quick=True, **UNIFORM)
learning("sac discrete fixed, wide", "CartPole-v1", **UNIFORM, **WIDE, temperature=0.1)
learning("sac goals (Dict)", "point-goal", **UNIFORM, **SMALL, hindsight_ratio=0.5, rollout_batch_size=5)
learning(
    "sac images", "point-robot-pixels", **{**UNIFORM, "steps_per_epoch": 2, "min_buffer_size": 20}, buffer_batch_size=16
)
learning("tqc", "Pendulum-v1", quick=True, **UNIFORM)
learning("tqc wide, 5 critics", "Pendulum-v1", **UNIFORM, **WIDE, num_critics=5, dropped_atoms=3)
learning("tqc fixed, prioritized", "Pendulum-v1", **UNIFORM, **SMALL, temperature=0.1, priority_exponent=0.5)
RSAC: dict[str, Any] = {"steps_per_epoch": 10, "n_train_steps": 5, "buffer_batch_size": 64, "min_buffer_size": 100}
learning("rsac", "Pendulum-v1", quick=True, **{**UNIFORM, **RSAC})
learning(
    "rsac small, fixed", "pend", **{**UNIFORM, **RSAC}, hidden_size=8, segment_length=8, burn_in=0, temperature=0.1
)

TESTS: dict[str, Any] = {"evaluate_every": 3, "num_test_tasks": 6, "repetitions": 1}
PEARL: dict[str, Any] = {
    **TESTS,
    "num_train_tasks": 10,
    "meta_batch_size": 4,
    "num_steps_per_epoch": 20,
    "num_initial_steps": 60,
    "num_tasks_sample": 3,
    "num_steps_prior": 40,
    "num_extra_rl_steps_posterior": 40,
    "replay_buffer_size": 2000,
}
NARROW: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "encoder_hidden_sizes": (16, 16),
    "batch_size": 32,
    "embedding_batch_size": 16,
    "embedding_mini_batch_size": 16,
}
learning("pearl", "point-robot", quick=True, **PEARL, **NARROW)
learning("pearl published widths", "point-robot", **{**PEARL, "num_steps_per_epoch": 4}, size="paper")
learning("pearl without bottleneck", "point-robot", **PEARL, **NARROW, use_information_bottleneck=False)
learning(
    "pearl next observations, posterior steps",
    "sparse-point-robot",
    **PEARL,
    **NARROW,
    use_next_obs_in_context=True,
    num_steps_posterior=40,
    kl_lambda=1.0,
)
RL2: dict[str, Any] = {**TESTS, "hidden_sizes": (16,), "num_passes": 2}
learning("rl2", "bandit-5", quick=True, **RL2, trials_per_epoch=100, batch_size=200)
learning("rl2 random-mdp", "random-mdp", **RL2, trials_per_epoch=20, batch_size=400)
learning("rl2 Box", "point-robot", **RL2, trials_per_epoch=10, episodes_per_trial=3, batch_size=200, num_train_tasks=10)
MAML: dict[str, Any] = {
    **TESTS,
    "num_train_tasks": 12,
    "meta_batch_size": 4,
    "rollouts_per_task": 4,
    "max_path_length": 30,
    "episodes_per_round": 4,
    "adaptation_rounds": 2,
}
TINY: dict[str, Any] = {"hidden_sizes": (16, 16)}
learning("maml trpo", "point-navigation", quick=True, **MAML, **TINY)
learning("maml trpo, tanh, 100 100", "point-navigation", **MAML, hidden_sizes=(100, 100), hidden_nonlinearity="tanh")
learning("maml trpo, first order", "point-navigation", **MAML, **TINY, second_order=False, normalize_advantages=False)
learning("maml vpg, two inner steps", "point-navigation", **MAML, **TINY, outer="vpg", num_inner_steps=2)
learning("maml emaml", "point-navigation", **MAML, **TINY, outer="emaml", learn_step_sizes=True, num_outer_steps=2)
learning("maml gru", "point-navigation", **MAML, hidden_sizes=(8,), network="gru")
learning("promp", "point-navigation", quick=True, **MAML, **TINY)
learning("promp adaptive penalty, relu", "point-navigation", **MAML, **TINY, target_kl=0.01, hidden_nonlinearity="relu")
learning("promp observations, first order", "point-robot", **MAML, normalize_observations=True, second_order=False)
learning("dice", "point-navigation", quick=True, **MAML, **TINY)
learning("dice vpg, clipped", "point-navigation", **MAML, **TINY, outer="vpg-dice", max_grad_norm=0.1)
