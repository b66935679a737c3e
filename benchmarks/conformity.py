"""Do known policies earn the published returns in bandits, random MDPs and point environments?

    python benchmarks/conformity.py            # a few minutes
    python benchmarks/conformity.py --quick

Bandits and MDPs are those of Duan et al. 2016 (arXiv:1611.02779). A trial is one task: n pulls, or n episodes of 10
steps, over which a policy may learn. The reward of the first n does not depend on how many follow, so one run covers
all n. The tasks are drawn from the environments, and stepped together.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _reporting import report, versions

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.registry import get_family
from metaroll.envs.point.point_robot import go_to
from metaroll.envs.tabular.bandit import BernoulliBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan

NAME = "conformity"
DUAN = "Duan et al. 2016, arXiv:1611.02779, mean of 1000 trials"
ANALYTIC = "calculated"
PUBLISHED_TRIALS = 1000
EPISODE = 10
CHUNK = 2000

PUBLISHED: dict[tuple[str, str, int], float] = {
    ("bandit-5", "random", 10): 5.0,
    ("bandit-5", "greedy", 10): 6.6,
    ("bandit-5", "thompson", 10): 5.7,
    ("bandit-5", "random", 100): 49.9,
    ("bandit-5", "greedy", 100): 74.8,
    ("bandit-5", "thompson", 100): 74.7,
    ("bandit-5", "random", 500): 249.8,
    ("bandit-5", "greedy", 500): 380.6,
    ("bandit-5", "thompson", 500): 402.0,
    ("bandit-10", "random", 10): 5.0,
    ("bandit-10", "greedy", 10): 6.6,
    ("bandit-10", "thompson", 10): 5.5,
    ("bandit-10", "random", 100): 49.9,
    ("bandit-10", "greedy", 100): 77.1,
    ("bandit-10", "thompson", 100): 76.7,
    ("random-mdp", "random", 10): 100.1,
    ("random-mdp", "thompson", 10): 138.1,
    ("random-mdp", "random", 25): 250.2,
    ("random-mdp", "thompson", 25): 408.8,
    ("random-mdp", "random", 50): 499.7,
    ("random-mdp", "thompson", 50): 904.4,
}
"""(family, policy, n) -> mean total reward; Thompson sampling on MDPs is PSRL (Osband et al. 2013)."""

DEMANDED: dict[tuple[str, str, int], tuple[float, float]] = {
    ("bandit-5", "random", 10): (5.0, 0.05),
    ("bandit-5", "random", 100): (50.0, 0.3),
    ("bandit-5", "greedy", 10): (6.6, 0.1),
    ("random-mdp", "random", 10): (100.1, 1.0),
    ("point-navigation", "stay in the origin", 1): (-16.67, 0.1),
}
"""The demanded value, and the largest deviation that is allowed."""


# ------------------------------------------------------------------------------------------------------------- bandits
def bandit_choice(
    policy: str, won: np.ndarray, lost: np.ndarray, best: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Arms ``(N,)`` given how often each has won and lost, ``(N, k)``; probabilities have a uniform prior."""
    if policy == "random":
        return generator.integers(won.shape[1], size=len(won))
    if policy == "oracle":
        return best
    if policy == "greedy":
        return np.argmax((won + 1) / (won + lost + 2), axis=1)
    return np.argmax(generator.beta(won + 1, lost + 1), axis=1)


def play_bandits(num_arms: int, policy: str, pulls: int, trials: int, seed: int) -> np.ndarray:
    """Rewards ``(trials, pulls)``."""
    env = BernoulliBanditEnv(num_arms=num_arms)
    tasks = env.sample_tasks(trials, generator=derive_seed("tasks", num_arms, seed))
    slots = start(env, tasks, 0, seed)
    generator = np.random.default_rng(derive_seed("policy", policy, num_arms, seed))
    rows, active = np.arange(trials), np.ones(trials, dtype=bool)
    won, lost = np.zeros((2, trials, num_arms))
    best = np.argmax([task["probabilities"] for task in tasks], axis=1)
    rewards = np.empty((trials, pulls))
    for pull in range(pulls):
        arms = bandit_choice(policy, won, lost, best, generator)
        rewards[:, pull] = slots.step(arms, active).rewards
        won[rows, arms] += rewards[:, pull]
        lost[rows, arms] += 1 - rewards[:, pull]
    return rewards


# ---------------------------------------------------------------------------------------------------------------- MDPs
class Beliefs:
    """Beliefs about N MDPs: priors Dirichlet(1) of transitions and N(1, 1) of mean rewards; reward noise N(0, 1)."""

    def __init__(self, trials: int, num_states: int, num_actions: int) -> None:
        self.moves = np.ones((trials, num_states, num_actions, num_states))
        self.visits = np.ones((trials, num_states, num_actions))
        self.sums = np.ones((trials, num_states, num_actions))
        self.rows = np.arange(trials)

    def update(self, state: np.ndarray, action: np.ndarray, reward: np.ndarray, following: np.ndarray) -> None:
        self.moves[self.rows, state, action, following] += 1
        self.visits[self.rows, state, action] += 1
        self.sums[self.rows, state, action] += reward

    def mean(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior means of mean rewards ``(N, S, A)`` and of transitions ``(N, S, A, S)``."""
        return self.sums / self.visits, self.moves / self.moves.sum(axis=-1, keepdims=True)

    def sample(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mean rewards and transitions, as ``mean`` gives them, drawn from the posterior."""
        rewards = self.sums / self.visits + generator.standard_normal(self.sums.shape) / np.sqrt(self.visits)
        moves = generator.standard_gamma(self.moves)
        return rewards, moves / moves.sum(axis=-1, keepdims=True)


def best_actions(rewards: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """Optimal actions ``(EPISODE, N, S)`` at each step of an episode, by backward induction."""
    value, actions = np.zeros(rewards.shape[:2]), []
    for _ in range(EPISODE):
        # Q(s, a) = r(s, a) + sum_s' p(s' | s, a) V(s'), (N, S, A).
        returns = rewards + np.matmul(transitions, value[:, None, :, None])[..., 0]
        actions.append(returns.argmax(axis=2))
        value = returns.max(axis=2)
    return np.stack(actions[::-1])


def play_mdps(policy: str, episodes: int, trials: int, seed: int) -> np.ndarray:
    """Rewards ``(trials, episodes)``."""
    parts = [min(CHUNK, trials - first) for first in range(0, trials, CHUNK)]
    return np.concatenate([_play_mdps(policy, episodes, part, seed, i) for i, part in enumerate(parts)])


def _play_mdps(policy: str, episodes: int, trials: int, seed: int, part: int) -> np.ndarray:
    env = RandomMDPEnv()
    tasks = env.sample_tasks(trials, generator=derive_seed("tasks", part, seed))
    generator = np.random.default_rng(derive_seed("policy", policy, part, seed))
    beliefs, rows, active = Beliefs(trials, 10, 5), np.arange(trials), np.ones(trials, dtype=bool)
    slots = SimulatorSlots(trials, env.simulator)
    plan: np.ndarray | None = None
    if policy == "oracle":
        plan = best_actions(*(np.stack([task[name] for task in tasks]) for name in ("rewards", "transitions")))
    totals = np.zeros((trials, episodes))
    for episode in range(episodes):
        state = restart(slots, tasks, episode, derive_seed(part, seed))
        if policy in ("greedy", "thompson"):
            plan = best_actions(*(beliefs.mean() if policy == "greedy" else beliefs.sample(generator)))
        for step in range(EPISODE):
            action = generator.integers(5, size=trials) if plan is None else plan[step][rows, state]
            result = slots.step(action, active)
            beliefs.update(state, action, result.rewards, result.observations)
            totals[:, episode] += result.rewards
            state = result.observations
    return totals


def start(env: Any, tasks: Sequence[Any], episode: int, seed: int) -> SimulatorSlots:
    slots = SimulatorSlots(len(tasks), env.simulator)
    restart(slots, tasks, episode, seed)
    return slots


def restart(slots: SimulatorSlots, tasks: Sequence[Any], episode: int, seed: int) -> np.ndarray:
    """First observations of a new episode in every slot."""
    kind = RandomMDPEnv if "rewards" in tasks[0] else BernoulliBanditEnv
    plans = [RolloutPlan(i, (seed, episode, i), SetTaskUpdate(kind, task)) for i, task in enumerate(tasks)]
    return slots.reset(range(len(tasks)), plans)


# -------------------------------------------------------------------------------------------------------------- points
def point_returns(name: str, target: str, trials: int, seed: int) -> np.ndarray:
    """Returns ``(trials,)`` of episodes that go to the ``"goal"`` or the ``"origin"``, each in its own task."""
    family = get_family(name)
    tasks = family.env_constructor.sample_tasks(trials, generator=derive_seed("tasks", name, seed))  # type: ignore[attr-defined]

    def act(obs: np.ndarray, contexts: dict[str, np.ndarray]) -> np.ndarray:
        return go_to(contexts["goal"] if target == "goal" else np.zeros_like(obs), obs)

    returns: list[float] = []
    with RolloutEngine(name, ScriptedPolicy(act)) as engine:
        for first in range(0, trials, CHUNK):
            plans = [
                RolloutPlan(
                    i,
                    (seed, first, i),
                    SetTaskUpdate(family.env_constructor, task),
                    context={"goal": task["goal"]},
                    max_steps=family.horizon,
                )
                for i, task in enumerate(tasks[first : first + CHUNK])
            ]
            for rollout in engine.run(plans):
                returns.append(float(rollout.env_infos.get("sparse_reward", rollout.rewards).sum()))
    return np.array(returns)


# -------------------------------------------------------------------------------------------------------------- report
def report_mean(
    family: str, policy: str, n: int, values: np.ndarray, quick: bool, known: float | None, source: str
) -> None:
    """Report the mean of ``values (trials,)`` beside a ``known`` one."""
    mean, low, high = (float(np.ravel(v)[0]) for v in bootstrap_ci(values, np.mean, 1000, 0.05, 2, seed=0))
    more: dict[str, Any] = {}
    deviation = float(values.std(ddof=1))
    if known is not None:
        # A published mean has its own standard error, and is rounded to one decimal; a calculated value is exact.
        variance = 0.05**2 / 3 + deviation**2 / PUBLISHED_TRIALS if source == DUAN else 0.0
        more |= {
            "known_value": known,
            "source": source,
            "z": (mean - known) / math.sqrt(deviation**2 / len(values) + variance),
        }
    demand = DEMANDED.get((family, policy, n))
    if demand is not None:
        more |= {"demanded": list(demand), "holds": abs(mean - demand[0]) <= demand[1]}
    report(
        NAME,
        quick,
        peer="none" if known is None or source != DUAN else "published",
        metric="total_reward",
        value=mean,
        unit="reward per trial",
        ratio=None,
        config={"env": family, "policy": policy, "n": n, "trials": len(values)},
        versions=versions("metaroll", "numpy"),
        ci_low=low,
        ci_high=high,
        deviation=deviation,
        **more,
    )


def report_trials(
    family: str, policy: str, rewards: np.ndarray, ns: Sequence[int], quick: bool, oracle: Callable[[int], float | None]
) -> None:
    """Report the total reward of the first n pulls or episodes, for each of ``ns``; ``rewards (trials, max(ns))``."""
    for n in ns:
        known, source = PUBLISHED.get((family, policy, n)), DUAN
        if policy == "oracle":
            known, source = oracle(n), ANALYTIC
        report_mean(family, policy, n, rewards[:, :n].sum(axis=1), quick, known, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trials, nothing is saved")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    quick, seed, share = args.quick, args.seed, 0.02 if args.quick else 1.0
    begun = time.perf_counter()
    for policy in ("random", "greedy", "thompson", "oracle"):
        for arms, ns in ((5, (10, 100, 500)), (10, (10, 100))):
            rewards = play_bandits(arms, policy, max(ns), int(20_000 * share), seed)
            # The expected maximum of k uniform probabilities is k / (k + 1).
            report_trials(f"bandit-{arms}", policy, rewards, ns, quick, lambda n, k=arms: n * k / (k + 1))
        rewards = play_mdps(policy, 50, int((5_000 if policy == "random" else 2_000) * share), seed)
        report_trials("random-mdp", policy, rewards, (10, 25, 50), quick, lambda n: None)
    points = (
        ("point-navigation", "origin", "stay in the origin", -100 / 6, 40_000),
        ("point-navigation", "goal", "oracle", None, 10_000),
        ("point-robot", "origin", "go to the origin", None, 20_000),
        ("point-robot", "goal", "oracle", None, 20_000),
        ("sparse-point-robot", "goal", "oracle", None, 1_000),
    )
    for name, target, policy, known, trials in points:
        returns = point_returns(name, target, int(trials * share), seed)
        report_mean(name, policy, 1, returns, quick, known, ANALYTIC)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
