"""Success rates of a policy with a known true rate: planned episodes beside the first ones to finish.

    python benchmarks/evaluation_bias.py

Successful episodes are shorter (3 steps of 10, as in a Meta-World episode that succeeds at step 150 of 500). Four
instances share the name of each of five tasks, four episodes are run in each, and the biased rule (that of
``metaworld.evaluation.evaluation``) counts the first three of each name to finish. Ours counts all, with Wilson's
interval. Both are computed from the same episodes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import scipy.stats
from _reporting import report, versions

from metaroll.functional.robust_statistics import wilson_interval
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator

RATES = (0.1, 0.3, 0.5, 0.7)
NUM_NAMES, INSTANCES, EPISODES = 5, 4, 4
FIRST = 3  # episodes of each name that the biased rule counts
HORIZON, SUCCESS_STEP = 10, 3
WORKERS = (1, 2, 3)


class CoinEnv(gymnasium.Env):
    """An episode succeeds with the task's probability. It ends at step 3 if it does, else at step 10."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self._rate, self._step, self._lucky = 0.0, 0, False

    def set_task(self, task: Mapping[str, Any]) -> None:
        self._rate = float(task["rate"])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._lucky = 0, bool(self.np_random.random() < self._rate)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        success = self._lucky and self._step == SUCCESS_STEP
        return np.zeros(1, np.float32), float(success), success, self._step == HORIZON, {"success": success}


class Idle(MetaRLAlgorithm):
    """Always acts 0."""

    max_path_length = HORIZON

    def __init__(self) -> None:
        self.policy = ScriptedPolicy(lambda obs, contexts: np.zeros((len(obs), 1), np.float32))

    def train(self, runner: Any) -> None:
        """Nothing to learn."""

    def get_exploration_policy(self) -> Any:
        return self.policy

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        return exploration_policy


def updates(rate: float) -> list[SetTaskUpdate]:
    return [SetTaskUpdate(CoinEnv, {"rate": rate, "instance": i}) for i in range(NUM_NAMES * INSTANCES)]


def evaluate(rate: float, repetition: int, engine: RolloutEngine) -> tuple[int, float]:
    """Successes in all planned episodes, and the rate of the first to finish."""
    tasks = updates(rate)
    evaluator = MetaEvaluator(
        test_task_sampler=FixedTaskSampler(tasks),
        test_task_names=[f"task {i // INSTANCES}" for i in range(len(tasks))],
        num_adaptation_episodes=1,
        num_episodes=EPISODES,
        seed=derive_seed("bias", round(100 * rate), repetition),
    )
    result = evaluator.evaluate(Idle(), engine=engine)
    success_rate, count = result.success_rate, len(tasks) * EPISODES
    assert success_rate is not None
    return round(success_rate * count), result.first_finished_success_rate(FIRST)


def measure(rate: float, repetitions: int, quick: bool) -> None:
    count = NUM_NAMES * INSTANCES * EPISODES
    successes, biased = np.zeros(repetitions, dtype=int), np.zeros(repetitions)
    start = time.perf_counter()
    with RolloutEngine(updates(rate)[0], Idle().policy) as engine:
        for repetition in range(repetitions):
            successes[repetition], biased[repetition] = evaluate(rate, repetition, engine)
    low, high = wilson_interval(successes, count)
    covered = float(np.mean((low <= rate) & (rate <= high)))
    bounds = np.stack(wilson_interval(np.arange(count + 1), count))
    inside = (bounds[0] <= rate) & (rate <= bounds[1])
    few = NUM_NAMES * FIRST  # episodes that count by the biased rule
    biased_bounds = wilson_interval(np.round(biased * few), few)
    report(
        "evaluation_bias",
        quick,
        peer="none",
        metric="coverage",
        value=covered,
        unit="share of Wilson intervals that hold the true rate",
        config={
            "true_rate": rate,
            "names": NUM_NAMES,
            "instances": INSTANCES,
            "episodes": EPISODES,
            "first_finished": FIRST,
            "repetitions": repetitions,
        },
        expected_coverage=float(scipy.stats.binom.pmf(np.arange(count + 1), count, rate)[inside].sum()),
        mean_rate=float(successes.mean() / count),
        standard_error=float(successes.std(ddof=1) / count / math.sqrt(repetitions)),
        first_finished_rate=float(biased.mean()),
        first_finished_bias=float(biased.mean() - rate),
        first_finished_coverage=float(np.mean((biased_bounds[0] <= rate) & (rate <= biased_bounds[1]))),
        seconds=round(time.perf_counter() - start, 1),
        versions=versions("numpy", "gymnasium"),
    )


def compare_workers(repetitions: int, quick: bool) -> None:
    """Report how many repetitions are equal on 1, 2 and 3 workers."""
    results = []
    for workers in WORKERS:
        with RolloutEngine(updates(0.3)[0], Idle().policy, num_workers=workers) as engine:
            results.append([evaluate(0.3, repetition, engine) for repetition in range(repetitions)])
    equal = sum(len(set(row)) == 1 for row in zip(*results, strict=True))
    report(
        "evaluation_bias",
        quick,
        peer="none",
        metric="equal_on_all_workers",
        value=equal / repetitions,
        unit="share of repetitions",
        config={"true_rate": 0.3, "repetitions": repetitions, "workers": list(WORKERS)},
        versions=versions("numpy", "gymnasium"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000, help="evaluations per true rate")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    repetitions = min(args.repetitions, 30) if args.quick else args.repetitions
    for rate in RATES:
        measure(rate, repetitions, args.quick)
    compare_workers(3 if args.quick else 20, args.quick)


if __name__ == "__main__":
    main()
