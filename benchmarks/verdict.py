"""Is the verdict of an evaluation right? Tested on agents of which it is known whether they adapt.

Usage: python benchmarks/verdict.py [--agent null counts ...] [--protocol NAME ...] [--check] [--quick]
       python benchmarks/verdict.py --judge

The agents act in an environment of one step that is fully known. An action has two numbers: a bet, which is paid out,
and a guess, which wins a prize if it equals the key of the task. In exploration, an agent sees the key of the task, its
noise and its reward. Agents differ in how they use these:

- null: bets the noise that it has seen; on average it gains nothing.
- averager: the same plus a bonus, so that it is better after exploration, whatever it has seen.
- counts: the same plus a bonus for each episode that it has seen.
- ignores: acts as before.
- elsewhere: guesses the key of another task.
- shifts: bets a bonus plus the rewards that it has seen; these differ between tasks by a shift that no action changes.
- adapter: guesses the key that it has seen. Before and after exploration it bets independent noise, so that the mean of
  paired differences is 1.5 of their standard deviations.

Noise has standard deviation 1 (except Cauchy's) and is normal, skewed to either side (exponential), heavy-tailed
(Student's t with 3 degrees of freedom, Cauchy's), or correlated between neighboring tasks (0.3).

Each agent is studied (`study_adaptation`) by the protocol of each preset in 5,000 tasks (or repetitions, if the tasks
are all there are). From these, 1,000 studies of 2 to 60 tasks are drawn and judged. Data of another task come from any
of the 5,000 tasks, not only from those of the study, whose noise would cancel. The results state how often each verdict
was given, and how often printed intervals contain the truth: of the gain, of the gain by own data, of the return after
adaptation, and of the share of successes.

Bars: agents other than the adapter are said to adapt in at most 5 % of studies. From 10 tasks on, the adapter is said
to adapt in 90 %, and intervals contain the truth in 93 to 97 %. Cells that are in the results are skipped, and
`--judge` summarizes the results.
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
PROTOCOL = (
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
"""Tasks with correlated noise are drawn in blocks of this many neighbors."""
SHORT = "rl2 point-navigation"
"""The protocol of short runs."""
FALSE, FOUND, COVERED, ENOUGH = 0.05, 0.9, (0.93, 0.97), 10
"""The bars, and the number of tasks from which on those of the adapter and of intervals hold."""

NOISES = ("normal", "right", "left", "heavy", "cauchy", "correlated")
TASK = ("key", "kind", "noise", "shift", "chance", "prize")


# ---------------------------------------------------------------------------------------- an environment of one step
def quantiles_of(kind: str, shares: np.ndarray) -> np.ndarray:
    """Quantiles of noise at ``shares``. It has mean 0 and standard deviation 1 (Cauchy's has median 0)."""
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
    """One step: the reward is bet + shift + noise of the step, plus a prize if the guess is the key."""

    num_uniforms, noise_dim, time_limit = 1, 2, 1

    def __init__(self, env_type: type) -> None:
        plane = Box(-np.inf, np.inf, (2,), np.float32)
        super().__init__(env_type, EnvSpec(plane, plane, 1), dict.fromkeys(TASK, 0.0))

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        return {name: np.array(value, dtype=np.float64) for name, value in task.items()}

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        raise NotImplementedError

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Noise of the episode, or that of the task if it is correlated."""
        kinds, shares, noise = constants["kind"], np.asarray(uniforms[0]), constants["noise"]
        for index, kind in enumerate(NOISES[:-1]):
            if (kinds == index).any():
                noise = np.where(kinds == index, quantiles_of(kind, shares), noise)
        return (noise,)

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """Key and noise, ``(N, 2)``."""
        return np.stack([constants["key"], state[0]], axis=1).astype(np.float32)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        rewards = actions[:, 0] + constants["shift"] + 2.0 * (noise[0] - 0.5)
        rewards = rewards + constants["prize"] * (actions[:, 1] == constants["key"])
        ended = np.ones(len(rewards), dtype=bool)
        return NextState(state, rewards, ended, infos={"success": noise[1] < constants["chance"]})


class BetsEnv(SettableTask, BatchedEnv):
    """A single environment of ``Bets``."""

    def __init__(self) -> None:
        super().__init__(Bets(type(self)))


class Bettor(Policy):
    """Bets ``bet`` plus ``noise_weight`` times the noise that it sees; guesses ``guess``."""

    def __init__(self, bet: float = 0.0, guess: float = -1.0, noise_weight: float = 0.0) -> None:
        self._parameters = np.array([bet, guess, noise_weight], dtype=np.float32)

    @property
    def info(self) -> PolicyInfo:
        return PolicyInfo(draws=False)

    def acting_parameters(self) -> np.ndarray:
        return self._parameters.copy()

    def act(
        self, obs: Any, state: Any, noise: np.ndarray, deterministic: Any = False, parameters: np.ndarray | None = None
    ) -> tuple[Any, Any, dict[str, np.ndarray]]:
        rows = np.broadcast_to(self._parameters if parameters is None else parameters, (len(obs), 3))
        return np.stack([rows[:, 0] + rows[:, 2] * obs[:, 1], rows[:, 1]], axis=1), state, {}


# --------------------------------------------------------------------------------------------------------- known agents
@dataclasses.dataclass(frozen=True)
class Experience:
    """What agents have seen in exploration, arrays ``(cells,)`` with one entry per adaptation.

    Attributes:
        keys: Keys of the tasks.
        noise: Noise of the last episode.
        shifts: Reward minus bet, on average over episodes.
        episodes: Number of episodes.
    """

    keys: np.ndarray
    noise: np.ndarray
    shifts: np.ndarray
    episodes: int


Strategy = Callable[[Experience], tuple[Any, Any]]
"""Bets and guesses after exploration."""


class Agent(MetaRLAlgorithm):
    """Acts by its strategy after exploration; before, it bets ``noise_weight`` times the noise of the episode."""

    max_path_length = 1

    def __init__(self, strategy: Strategy, noise_weight: float) -> None:
        self.strategy, self.noise_weight = strategy, noise_weight

    def train(self, runner: Any) -> None:
        """Does nothing: there is nothing to learn."""

    def get_exploration_policy(self) -> Any:
        return Bettor(noise_weight=self.noise_weight)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        last = np.array([batch.observations[-1] for batch in batches], dtype=np.float64)
        shifts = np.array([np.mean(batch.rewards - batch.actions[:, 0]) for batch in batches])
        seen = Experience(last[:, 0], last[:, 1], shifts, len(batches[0].lengths))
        bets, guesses = np.broadcast_arrays(*self.strategy(seen))
        return [Bettor(bet, guess) for bet, guess in zip(bets, guesses, strict=True)]


def _elsewhere(seen: Experience) -> tuple[Any, Any]:
    return seen.noise, np.roll(seen.keys, np.count_nonzero(seen.keys == seen.keys[0]))


BONUS, PRIZE, NO_KEY, CHANCE = 1.5, 1.5 * math.sqrt(2.0), -1.0, 0.6
AGENTS: Mapping[str, tuple[Strategy, tuple[str, ...]]] = {
    "null": (lambda seen: (seen.noise, NO_KEY), NOISES),
    "averager": (lambda seen: (BONUS + seen.noise, NO_KEY), NOISES),
    "counts": (lambda seen: (BONUS * seen.episodes + seen.noise, NO_KEY), ("normal", "heavy", "correlated")),
    "ignores": (lambda seen: (0.0 * seen.noise, NO_KEY), ("normal",)),
    "elsewhere": (_elsewhere, ("normal", "heavy", "correlated")),
    "shifts": (lambda seen: (BONUS + seen.shifts, NO_KEY), ("normal", "left", "heavy", "correlated")),
    "adapter": (lambda seen: (seen.noise, seen.keys), ("normal", "right", "left", "heavy", "correlated")),
}
"""Agent -> its strategy, and the kinds of noise with which it is studied."""


def gain_of(agent: str, protocol: Mapping[str, Any]) -> float:
    """Expected gain of an agent."""
    episodes = protocol["n_exploration_traj"] // (protocol["adaptation_rounds"] or 1)
    return {"averager": BONUS, "shifts": BONUS, "counts": BONUS * episodes, "adapter": PRIZE}.get(agent, 0.0)


def own_gain_of(agent: str) -> float | None:
    """Expected gain over another task's data; ``None`` if it depends on which task that is."""
    return {"adapter": PRIZE, "elsewhere": None}.get(agent, 0.0)


# ------------------------------------------------------------------------------------------------------------ protocols
def protocols() -> dict[str, dict[str, Any]]:
    """Different settings of evaluations, of presets and of environments without one, by the first name with them."""
    by_name: dict[str, dict[str, Any]] = {}
    for algo in ALGORITHM_NAMES:
        if not get_algorithm(algo).adapts:
            continue
        for env in (*preset_names(algo), "point-momentum", "point-corners"):
            for size in (None, "small", "medium"):
                config = resolve(algo, env, size=size)
                evaluation = former_names(config["evaluation"], MetaEvaluationConfig)
                protocol = {name: evaluation[name] for name in PROTOCOL}
                if protocol["adaptation_rounds"] is not None:
                    protocol["n_exploration_traj"] = protocol["adaptation_rounds"] * protocol["episodes_per_round"]
                    # Policy gradients need noise in exploration.
                    protocol["deterministic_exploration"] = False
                protocol["all_tasks"] = get_family(env).all_tasks
                if protocol not in by_name.values():
                    by_name[f"{algo} {env}" + (f" {size}" if size else "")] = protocol
    return by_name


# -------------------------------------------------------------------------------------------------------------- studies
@dataclasses.dataclass(frozen=True)
class Pool:
    """Results from which studies are drawn: M tasks with R repetitions.

    Attributes:
        returns: Arm of the evaluation -> returns ``(M, R)``.
        successes: Whether episodes after adaptation succeeded, ``(M, R, episodes)``.
        shifts: Shifts of the tasks, ``(M,)``.
    """

    returns: Mapping[str, np.ndarray]
    successes: np.ndarray
    shifts: np.ndarray


def make_pool(agent: str, noise: str, protocol: Mapping[str, Any], size: int) -> Pool:
    """Study one agent in ``size`` tasks; if tasks are all there are, in ``size`` repetitions of two tasks."""
    strategy, _ = AGENTS[agent]
    algo = Agent(strategy, 1.0 if agent == "adapter" else 0.0)
    prize = PRIZE if agent in ("adapter", "elsewhere") else 0.0
    all_tasks, parts = protocol["all_tasks"], []
    shots = protocol["adaptation_rounds"] or protocol["n_exploration_traj"]
    generator = np.random.default_rng(derive_seed("tasks", agent, noise))
    number = 2 if all_tasks else size
    normals = generator.normal(size=number + 1)
    correlated = (3.0 * normals[1:] + normals[:-1]) / np.sqrt(10.0)  # 0.3 between neighbors
    shifts = 3.0 * generator.normal(size=number)
    if agent == "shifts":
        shifts = correlated if noise == "correlated" else quantiles_of(noise, generator.random(number))
    chances = generator.beta(1.2, 0.8, size=number)  # of mean CHANCE
    columns = np.broadcast_arrays(np.arange(number), NOISES.index(noise), correlated, shifts, chances, prize)
    tasks = [dict(zip(TASK, row, strict=True)) for row in zip(*columns, strict=True)]
    for begin in range(0, size, PART):
        count = min(PART, size - begin)
        chosen = tasks if all_tasks else tasks[begin : begin + count]
        evaluator = MetaEvaluator(
            test_task_sampler=FixedTaskSampler([SetTaskUpdate(BetsEnv, task) for task in chosen]),
            max_path_length=1,
            seed=derive_seed("study", agent, noise, begin),
            **{**protocol, **({"repetitions": count} if all_tasks else {})},
        )
        with contextlib.closing(evaluator):
            parts.append(study_adaptation(evaluator, algo, shots=[shots]))
    axis = 1 if all_tasks else 0
    results = [part.result for part in parts]
    return Pool(
        {name: np.concatenate([part.cell_returns[name] for part in parts], axis) for name in parts[0].cell_returns},
        np.concatenate([np.asarray(r.success_steps)[:, :, r.num_exploration :] > 0 for r in results], axis),
        shifts,
    )


def judge_studies(
    agent: str, noise: str, protocol: Mapping[str, Any], pool: Pool, number: int, studies: int
) -> dict[str, Any]:
    """Shares of verdicts, and of intervals that contain the truth, in studies of ``number`` tasks or repetitions."""
    all_tasks = protocol["all_tasks"]
    returns, axis = pool.returns, 1 if all_tasks else 0
    generator = np.random.default_rng(derive_seed("studies", agent, noise, number))
    gain, own = gain_of(agent, protocol), own_gain_of(agent)
    if agent == "shifts" and all_tasks:
        gain += float(pool.shifts.mean())  # the truth is that of these two tasks
    words: collections.Counter[str] = collections.Counter()
    covered: collections.Counter[str] = collections.Counter()
    after = PRIZE + (pool.shifts.mean() if all_tasks else 0.0)
    chance = float(pool.successes.mean()) if all_tasks else CHANCE
    block = min(number, NEIGHBORS) if noise == "correlated" else 1
    for _ in range(studies):
        blocks = generator.choice(returns["after"].shape[axis] // block, number // block, replace=False)
        indices = (blocks[:, None] * block + np.arange(block)).reshape(-1)
        study = {name: values.take(indices, axis) for name, values in returns.items()}
        verdict = judge(study["after"], study["no_adaptation"], mismatched=study["random_context"], all_tasks=all_tasks)
        words[verdict.word] += 1
        covered["gain"] += verdict.gain.interval.low <= gain <= verdict.gain.interval.high
        if own is not None:
            interval = verdict.own_data_gain.interval
            covered["own_data_gain"] += interval.low <= own <= interval.high
        if agent == "adapter" and number >= ENOUGH:
            low, high = intervals_of_means(independent_means(study["after"], all_tasks)[:, None])
            covered["return_after"] += bool(low[0] <= after <= high[0])
            flags = pool.successes.take(indices, axis)
            low, high = wilson_interval_of_tasks(independent_means(flags.mean(axis=2), all_tasks), flags.size)
            covered["success_rate"] += low <= chance <= high
    coverage = {} if number < FEWEST_TASKS else {name: count / studies for name, count in sorted(covered.items())}
    return {"words": {name: count / studies for name, count in sorted(words.items())}, "held": coverage}


def measure(agent: str, noise: str, name: str, protocol: Mapping[str, Any], quick: bool, saves: bool) -> bool:
    """Judge one agent by one protocol, and report; returns whether enough of its verdicts are right."""
    begun, studies = time.perf_counter(), STUDIES // (10 if quick else 1)
    pool = make_pool(agent, noise, protocol, SIZE // (2 if quick else 1))
    cells = {str(number): judge_studies(agent, noise, protocol, pool, number, studies) for number in COUNTS}
    shares = {int(number): cell["words"].get("adapts", 0.0) for number, cell in cells.items()}
    adapts = agent == "adapter"
    share = min(shares[number] for number in COUNTS if number >= ENOUGH) if adapts else max(shares.values())
    report(
        NAME,
        not saves,
        peer="none",
        metric="found" if adapts else "false",
        value=share,
        unit=f"share of studies that say 'adapts', {'least from 10 tasks on' if adapts else 'most'}",
        config={"agent": agent, "noise": noise, "protocol": name, **protocol},
        cells=cells,
        studies=studies,
        tasks=SIZE // (2 if quick else 1),
        seconds=round(time.perf_counter() - begun, 1),
        versions=versions(*PACKAGES),
    )
    slack = 3.0 * math.sqrt(FALSE * (1.0 - FALSE) / studies) if quick else 0.0
    return share >= FOUND - slack if adapts else share <= FALSE + slack


def summarize(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Print a summary of the results; returns whether the bars on verdicts are met."""
    good = True
    for agent in AGENTS:
        cells = [line for line in lines if line["config"]["agent"] == agent]
        if not cells:
            continue
        worst = (min if agent == "adapter" else max)(cells, key=lambda line: line["value"])
        passed = worst["value"] >= FOUND if agent == "adapter" else worst["value"] <= FALSE
        good &= passed
        at = f"{worst['config']['noise']} noise, {worst['config']['protocol']}"
        text = f"{len(cells)} noises x protocols, at worst 'adapts' in {100 * worst['value']:.1f} % of studies ({at})"
        print(f"{agent}: {text}: {'ok' if passed else 'FAILS'}")
    coverage: dict[tuple[str, str, int], list[float]] = {}
    for line in lines:
        for number, cell in line["cells"].items():
            for quantity, share in cell["held"].items():
                coverage.setdefault((quantity, line["config"]["noise"], int(number)), []).append(share)
    for quantity in ("gain", "own_data_gain", "return_after", "success_rate"):
        for noise in NOISES:
            texts = []
            for number in COUNTS:
                shares = coverage.get((quantity, noise, number))
                if shares:
                    outside = number >= ENOUGH and not COVERED[0] <= float(np.mean(shares)) <= COVERED[1]
                    span = f"{100 * min(shares):.1f} to {100 * max(shares):.1f}"
                    mark = " OUTSIDE" if outside else ""
                    texts.append(f"{number}: {100 * float(np.mean(shares)):.1f} % ({span}){mark}")
            if texts:
                print(f"interval of {quantity}, {noise} noise, contains the truth, by tasks: {', '.join(texts)}")
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
    parser.add_argument("--judge", action="store_true", help="run nothing, only summarize the results")
    parser.add_argument(
        "--check", action="store_true", help="one protocol, 100 studies, nothing appended; status 1 if it fails"
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
    return int(not summarize(read_results(NAME)))


if __name__ == "__main__":
    sys.exit(main())
