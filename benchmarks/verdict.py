"""Does the verdict of an evaluation say what is so? Agents of which it is known whether they adapt.

Usage: python benchmarks/verdict.py [--agent null counts ...] [--protocol NAME ...] [--check] [--quick]
       python benchmarks/verdict.py --judge

Each agent acts in an environment of one step, of which all is known. An action has two numbers: a bet, which is paid,
and a guess, which is paid if it is the task's own key. While it explores, an agent sees the task's key, its noise and
its reward; what it makes of them is the agent:

- null: bets the noise that it has seen; on average it gains nothing.
- averager: the same, and a bonus: whatever it has seen, it is better afterwards.
- counts: the same, and a bonus for each episode that it has seen.
- ignores: acts as before.
- elsewhere: guesses the key that another task has shown.
- shifts: a bonus, and bets the rewards that it has seen, which differ from task to task by a shift that nobody can win.
- adapter: guesses the key that it has seen. Before and after it bets noise of its own, so that each paired difference
  has a mean of 1.5 of its deviations.

Noise has deviation 1 (but for Cauchy's) and is normal, skewed to either side (exponential), heavy-tailed (Student's t
with 3 degrees of freedom, Cauchy's), or correlated from one task to the next (0.3).

Each agent is studied (`study_adaptation`) by the protocol of each preset, in 5,000 tasks (or repetitions, where
tasks are all there are), of which 1,000 studies of 2 to 60 are drawn and judged. Another task's data are those of any
of the 5,000, and not of the study's own alone, whose noise would cancel. Told is how often each word came, and how
often printed intervals hold the truth: of the gain, of what own data gain, of the return after adaptation, and of the
share of successes.

Bars: no agent but the adapter is said to adapt in more than 5 % of studies; from 10 tasks on the adapter is in 90 %;
from 10 tasks on intervals hold the truth in 93 to 97 %. Cells are done one by one: what is in the results already is
left out, and `--judge` tells what they come to.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from _reporting import read_results, report, versions
from gymnasium.spaces import Box
from scipy import special

from metaroll import MetaEvaluator
from metaroll.config import former_names
from metaroll.configs.evaluation import MetaEvaluationConfig
from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.lookup.registry import get_family
from metaroll.functional.robust_statistics import wilson_interval_of_tasks
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, get_algorithm, preset_names
from metaroll.training.evaluation.adaptation_study import study_adaptation
from metaroll.training.evaluation.evaluation_metrics import independent_means, intervals_of_means
from metaroll.training.evaluation.verdict import FEWEST_TASKS, judge
from metaroll.training.session.experiments import resolve
from metaroll.types import EnvSpec, Policy, PolicyInfo

NAME = "verdict"
PACKAGES = ("metaroll", "numpy", "scipy", "torch")
COUNTS = (2, 3, 5, 6, 10, 20, 60)
STUDIES, SIZE, PART = 1_000, 5_000, 2_500
HOW = (
    "n_exploration_traj",
    "n_test_rollouts",
    "repetitions",
    "posterior_sampling",
    "num_prior_episodes",
    "adaptation_rounds",
    "episodes_per_round",
    "adapt_from",
)
NEIGHBORS = 10
"""Tasks with correlated noise are drawn by so many neighbors at a time."""
SHORT = "rl2 point-navigation"
"""The protocol of short runs."""
FALSE, FOUND, COVERED, ENOUGH = 0.05, 0.9, (0.93, 0.97), 10


NOISES = ("normal", "right", "left", "heavy", "cauchy", "correlated")
TASK = ("key", "kind", "noise", "shift", "chance", "prize")


# --------------------------------------------------------------------------------------- one step of which all is known
def quantiles_of(kind: str, shares: np.ndarray) -> np.ndarray:
    """Noise at ``shares`` of its distribution: of mean 0 and deviation 1 (Cauchy's: of median 0)."""
    match kind:
        case "right":
            return -np.log1p(-shares) - 1.0
        case "left":
            return np.log1p(-shares) + 1.0
        case "heavy":
            return special.stdtrit(3, shares) / np.sqrt(3.0)
        case "cauchy":
            return np.tan(np.pi * (shares - 0.5))
    return special.ndtri(shares)


class Bets(TaskSimulator):
    """One step: the reward is bet + shift + noise of its own, and a prize where the guess is the key."""

    num_uniforms, noise_dim, time_limit = 1, 2, 1

    def __init__(self, env_type: type) -> None:
        plane = Box(-np.inf, np.inf, (2,), np.float32)
        super().__init__(env_type, EnvSpec(plane, plane, 1), dict.fromkeys(TASK, 0.0))

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        return {name: np.array(value, dtype=np.float64) for name, value in task.items()}

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        raise NotImplementedError

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Noise of the episode, or of the task."""
        kinds, drawn, found = constants["kind"], np.asarray(uniforms[0]), constants["noise"]
        for place, kind in enumerate(NOISES[:-1]):
            if (kinds == place).any():
                found = np.where(kinds == place, quantiles_of(kind, drawn), found)
        return (found,)

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """Key and noise, ``(N, 2)``."""
        return np.stack([constants["key"], state[0]], axis=1).astype(np.float32)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        rewards = actions[:, 0] + constants["shift"] + 2.0 * (noise[0] - 0.5)
        rewards = rewards + constants["prize"] * (actions[:, 1] == constants["key"])
        ended = np.ones(len(rewards), dtype=bool)
        return NextState(state, rewards, ended, infos={"success": noise[1] < constants["chance"]})


class BetsEnv(SettableTask, BatchedEnv):
    """One copy of ``Bets``."""

    def __init__(self) -> None:
        super().__init__(Bets(type(self)))


class Bettor(Policy):
    """Bets ``bet``, and ``draft`` times the noise that it sees; guesses ``guess``."""

    def __init__(self, bet: float = 0.0, guess: float = -1.0, draft: float = 0.0) -> None:
        self._parameters = np.array([bet, guess, draft], dtype=np.float32)

    @property
    def info(self) -> PolicyInfo:
        return PolicyInfo(draws=False)

    def acting_parameters(self) -> np.ndarray:
        return self._parameters.copy()

    def act(
        self, obs: Any, state: Any, noise: np.ndarray, deterministic: Any = False, parameters: np.ndarray | None = None
    ) -> tuple[Any, Any, dict[str, np.ndarray]]:
        own = np.broadcast_to(self._parameters if parameters is None else parameters, (len(obs), 3))
        return np.stack([own[:, 0] + own[:, 2] * obs[:, 1], own[:, 1]], axis=1), state, {}


# --------------------------------------------------------------------------------------------------------- known agents
@dataclasses.dataclass(frozen=True)
class Seen:
    """What the episodes of some cells have shown, arrays ``(cells,)``.

    Attributes:
        keys: Of the tasks.
        noise: Of the last episode.
        shifts: What was paid beyond bets, on average over episodes.
        episodes: Their number.
    """

    keys: np.ndarray
    noise: np.ndarray
    shifts: np.ndarray
    episodes: int


Habit = Callable[[Seen], tuple[Any, Any]]
"""What is bet and guessed after what was seen."""


class Agent(MetaRLAlgorithm):
    """Acts by its habit after what it has seen; before, it bets ``draft`` times the noise of the present episode."""

    max_path_length = 1

    def __init__(self, habit: Habit, draft: float) -> None:
        self.habit, self.draft = habit, draft

    def train(self, runner: Any) -> None:
        """It knows all that it ever will."""

    def get_exploration_policy(self) -> Any:
        return Bettor(draft=self.draft)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        last = np.array([batch.observations[-1] for batch in batches], dtype=np.float64)
        paid = np.array([np.mean(batch.rewards - batch.actions[:, 0]) for batch in batches])
        seen = Seen(last[:, 0], last[:, 1], paid, len(batches[0].lengths))
        bets, guesses = np.broadcast_arrays(*self.habit(seen))
        return [Bettor(bet, guess) for bet, guess in zip(bets, guesses, strict=True)]


def _elsewhere(seen: Seen) -> tuple[Any, Any]:
    return seen.noise, np.roll(seen.keys, np.count_nonzero(seen.keys == seen.keys[0]))


BONUS, PRIZE, NO_KEY, CHANCE = 1.5, 1.5 * math.sqrt(2.0), -1.0, 0.6
AGENTS: Mapping[str, tuple[Habit, tuple[str, ...]]] = {
    "null": (lambda seen: (seen.noise, NO_KEY), NOISES),
    "averager": (lambda seen: (BONUS + seen.noise, NO_KEY), NOISES),
    "counts": (lambda seen: (BONUS * seen.episodes + seen.noise, NO_KEY), ("normal", "heavy", "correlated")),
    "ignores": (lambda seen: (0.0 * seen.noise, NO_KEY), ("normal",)),
    "elsewhere": (_elsewhere, ("normal", "heavy", "correlated")),
    "shifts": (lambda seen: (BONUS + seen.shifts, NO_KEY), ("normal", "left", "heavy", "correlated")),
    "adapter": (lambda seen: (seen.noise, seen.keys), ("normal", "right", "left", "heavy", "correlated")),
}
"""Agent -> its habit, and the kinds of noise that it is studied with."""


def gain_of(agent: str, protocol: Mapping[str, Any]) -> float:
    """What an agent gains on average."""
    episodes = protocol["n_exploration_traj"] // (protocol["adaptation_rounds"] or 1)
    return {"averager": BONUS, "shifts": BONUS, "counts": BONUS * episodes, "adapter": PRIZE}.get(agent, 0.0)


def own_gain_of(agent: str) -> float | None:
    """What it gains over another task's data on average; ``None`` where that depends on whose data these are."""
    return {"adapter": PRIZE, "elsewhere": None}.get(agent, 0.0)


# ------------------------------------------------------------------------------------------------------------ protocols
def protocols() -> dict[str, dict[str, Any]]:
    """How evaluations of each preset, and of an environment without one, go: the first name that does so -> how."""
    found: dict[str, dict[str, Any]] = {}
    for algo in ALGORITHM_NAMES:
        if not get_algorithm(algo).adapts:
            continue
        for env in (*preset_names(algo), "point-momentum", "point-corners"):
            for size in (None, "small", "medium"):
                config = resolve(algo, env, size=size)
                evaluation = former_names(config["evaluation"], MetaEvaluationConfig)
                how = {name: evaluation[name] for name in HOW}
                if how["adaptation_rounds"] is not None:
                    how["n_exploration_traj"] = how["adaptation_rounds"] * how["episodes_per_round"]
                    # Gradients of scores need noise, so that nobody acts as the exploration policy does.
                    how["deterministic_exploration"] = False
                how["all_tasks"] = get_family(env).all_tasks
                if how not in found.values():
                    found[f"{algo} {env}" + (f" {size}" if size else "")] = how
    return found


# -------------------------------------------------------------------------------------------------------------- studies
@dataclasses.dataclass(frozen=True)
class Pool:
    """Returns ``(M, R)`` by arm, successes ``(M, R, episodes)`` and shifts ``(M,)`` of tasks (or repetitions)."""

    returns: Mapping[str, np.ndarray]
    successes: np.ndarray
    shifts: np.ndarray


def studied(agent: str, noise: str, protocol: Mapping[str, Any], size: int) -> Pool:
    """``size`` tasks of one agent; of two tasks as many repetitions, where they are all there are."""
    habit, _ = AGENTS[agent]
    algo = Agent(habit, 1.0 if agent == "adapter" else 0.0)
    prize = PRIZE if agent in ("adapter", "elsewhere") else 0.0
    alone, parts = protocol["all_tasks"], []
    every = protocol["adaptation_rounds"] or protocol["n_exploration_traj"]
    generator = np.random.default_rng(derive_seed("tasks", agent, noise))
    # Repetitions of two tasks have no neighbors.
    number = 2 if alone else size
    drawn = generator.normal(size=number + 1)
    near = (3.0 * drawn[1:] + drawn[:-1]) / np.sqrt(10.0)
    shifts = 3.0 * generator.normal(size=number)
    if agent == "shifts":
        shifts = near if noise == "correlated" else quantiles_of(noise, generator.random(number))
    chances = generator.beta(1.2, 0.8, size=number)  # of mean CHANCE
    columns = np.broadcast_arrays(np.arange(number), NOISES.index(noise), near, shifts, chances, prize)
    tasks = [dict(zip(TASK, row, strict=True)) for row in zip(*columns, strict=True)]
    for begin in range(0, size, PART):
        count = min(PART, size - begin)
        mine = tasks if alone else tasks[begin : begin + count]
        evaluator = MetaEvaluator(
            test_task_sampler=FixedTaskSampler([SetTaskUpdate(BetsEnv, task) for task in mine]),
            max_path_length=1,
            seed=derive_seed("study", agent, noise, begin),
            **{**protocol, **({"repetitions": count} if alone else {})},
        )
        with contextlib.closing(evaluator):
            parts.append(study_adaptation(evaluator, algo, shots=[every]))
    axis = 1 if alone else 0
    results = [part.result for part in parts]
    return Pool(
        {name: np.concatenate([part.cell_returns[name] for part in parts], axis) for name in parts[0].cell_returns},
        np.concatenate([np.asarray(r.success_steps)[:, :, r.num_exploration :] > 0 for r in results], axis),
        shifts,
    )


def judged(
    agent: str, noise: str, protocol: Mapping[str, Any], pool: Pool, number: int, studies: int
) -> dict[str, Any]:
    """How often each word came, and intervals held the truth, in studies of ``number`` tasks (or repetitions)."""
    alone = protocol["all_tasks"]
    returns, axis = pool.returns, 1 if alone else 0
    generator = np.random.default_rng(derive_seed("studies", agent, noise, number))
    gain, own = gain_of(agent, protocol), own_gain_of(agent)
    if agent == "shifts" and alone:
        gain += float(pool.shifts.mean())  # of these two tasks
    words: collections.Counter[str] = collections.Counter()
    held: collections.Counter[str] = collections.Counter()
    after = PRIZE + (pool.shifts.mean() if alone else 0.0)
    chance = float(pool.successes.mean()) if alone else CHANCE
    block = min(number, NEIGHBORS) if noise == "correlated" else 1
    for _ in range(studies):
        drawn = generator.choice(returns["after"].shape[axis] // block, number // block, replace=False)
        these = (drawn[:, None] * block + np.arange(block)).reshape(-1)
        mine = {name: values.take(these, axis) for name, values in returns.items()}
        told = judge(mine["after"], mine["no_adaptation"], mismatched=mine["random_context"], all_tasks=alone)
        words[told.word] += 1
        held["gain"] += told.gain.interval.low <= gain <= told.gain.interval.high
        if own is not None:
            held["own_data_gain"] += told.own_data_gain.interval.low <= own <= told.own_data_gain.interval.high
        if agent == "adapter" and number >= ENOUGH:
            low, high = intervals_of_means(independent_means(mine["after"], alone)[:, None])
            held["return_after"] += bool(low[0] <= after <= high[0])
            flags = pool.successes.take(these, axis)
            low, high = wilson_interval_of_tasks(independent_means(flags.mean(axis=2), alone), flags.size)
            held["success_rate"] += low <= chance <= high
    known = {} if number < FEWEST_TASKS else {name: count / studies for name, count in sorted(held.items())}
    return {"words": {name: count / studies for name, count in sorted(words.items())}, "held": known}


def measure(agent: str, noise: str, name: str, protocol: Mapping[str, Any], quick: bool, saves: bool) -> bool:
    """Judge one agent by one protocol; whether it is judged rightly often enough."""
    begun, studies = time.perf_counter(), STUDIES // (10 if quick else 1)
    pool = studied(agent, noise, protocol, SIZE // (2 if quick else 1))
    cells = {str(number): judged(agent, noise, protocol, pool, number, studies) for number in COUNTS}
    shares = {int(number): cell["words"].get("adapts", 0.0) for number, cell in cells.items()}
    adapts = agent == "adapter"
    found = min(shares[number] for number in COUNTS if number >= ENOUGH) if adapts else max(shares.values())
    report(
        NAME,
        not saves,
        peer="none",
        metric="found" if adapts else "false",
        value=found,
        unit=f"share of studies that say 'adapts', {'least from 10 tasks on' if adapts else 'most'}",
        config={"agent": agent, "noise": noise, "protocol": name, **protocol},
        cells=cells,
        studies=studies,
        tasks=SIZE // (2 if quick else 1),
        seconds=round(time.perf_counter() - begun, 1),
        versions=versions(*PACKAGES),
    )
    slack = 3.0 * math.sqrt(FALSE * (1.0 - FALSE) / studies) if quick else 0.0
    return found >= FOUND - slack if adapts else found <= FALSE + slack


def told_of(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Print what the results come to; whether they keep to the bars."""
    good = True
    for agent in AGENTS:
        mine = [line for line in lines if line["config"]["agent"] == agent]
        if not mine:
            continue
        worst = (min if agent == "adapter" else max)(mine, key=lambda line: line["value"])
        passed = worst["value"] >= FOUND if agent == "adapter" else worst["value"] <= FALSE
        good &= passed
        at = f"{worst['config']['noise']} noise, {worst['config']['protocol']}"
        text = f"{len(mine)} of noise x protocol, at the worst 'adapts' in {100 * worst['value']:.1f} % ({at})"
        print(f"{agent}: {text}: {'ok' if passed else 'FAILS'}")
    held: dict[tuple[str, str, int], list[float]] = {}
    for line in lines:
        for number, cell in line["cells"].items():
            for what, share in cell["held"].items():
                held.setdefault((what, line["config"]["noise"], int(number)), []).append(share)
    for what in ("gain", "own_data_gain", "return_after", "success_rate"):
        for noise in NOISES:
            texts = []
            for number in COUNTS:
                shares = held.get((what, noise, number))
                if shares:
                    out = number >= ENOUGH and not COVERED[0] <= float(np.mean(shares)) <= COVERED[1]
                    span = f"{100 * min(shares):.1f} to {100 * max(shares):.1f}"
                    texts.append(f"{number}: {100 * float(np.mean(shares)):.1f} % ({span}){' OUTSIDE' if out else ''}")
            if texts:
                print(f"interval of {what}, {noise} noise, holds the truth, by tasks: {', '.join(texts)}")
    return good


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = protocols()
    parser.add_argument("--agent", nargs="+", choices=list(AGENTS), default=list(AGENTS))
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--protocol", nargs="+", choices=list(known), metavar="NAME")
    parser.add_argument("--judge", action="store_true", help="say what the results come to, and run nothing")
    parser.add_argument(
        "--check", action="store_true", help="one protocol, 100 studies, nothing appended; status 1 where it fails"
    )
    parser.add_argument("--quick", action="store_true", help="the same with two agents")
    args = parser.parse_args()
    torch.set_num_threads(1)
    short = args.check or args.quick
    if not args.judge:
        done = [] if short else [line["config"] for line in read_results(NAME)]
        good = True
        for name in args.protocol or ([SHORT] if short else known):
            for agent in ("null", "adapter") if args.quick else args.agent:
                for noise in AGENTS[agent][1]:
                    config = {"agent": agent, "noise": noise, "protocol": name, **known[name]}
                    if noise not in args.noise or config in done:
                        continue
                    if not (noise == "correlated" and known[name]["all_tasks"]):  # repetitions have no neighbors
                        good &= measure(agent, noise, name, known[name], short, not short)
        if short:
            return int(not good)
    return int(not told_of(read_results(NAME)))


if __name__ == "__main__":
    sys.exit(main())
