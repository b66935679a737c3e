"""Does it adapt, or only average? k-shot curves, and baselines: no adaptation, data of another task, an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.rollouts import Rollouts
from metaroll.envs.wrappers.base import typed_env
from metaroll.envs.wrappers.trials import TrialWrapper
from metaroll.functional.robust_statistics import sign_flip_interval, wilson_interval
from metaroll.learners.base import HasPosterior, MetaRLAlgorithm
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import derive_seed
from metaroll.tasks.updates import ExistingEnvUpdate, layer_with
from metaroll.training.evaluation.evaluation_metrics import (
    Interval,
    independent_means,
    intervals_of_means,
    without_repeats,
)
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator, as_meta_algorithm
from metaroll.training.evaluation.verdict import Verdict, judge, least_effect
from metaroll.types import Context, EnvSpec, EnvUpdate

__all__ = ["AdaptationStudy", "Oracle", "default_shots", "oracle_of", "study_adaptation"]

Oracle = tuple[Any, Callable[[Any], Context | None]]
"""A policy that has access to the task, and its observation of the task."""

ShotUnit = Literal["episodes", "rounds"]
"""The unit of k in a k-shot curve."""

_ALL_SHOTS = 5


@dataclass(frozen=True)
class AdaptationStudy:
    """An evaluation, and how others act in its adapted episodes: with the same seeds, so that differences are paired.

    Attributes:
        result: The evaluation.
        shots: Numbers of exploration episodes (or rounds) k.
        shot_returns: Returns after adaptation from the first k of them, ``(num_tasks, repetitions, S, num_adapted)``.
        baselines: Returns ``(num_tasks, repetitions, num_adapted)`` of ``"no adaptation"`` (the exploration policy),
            ``"random context"`` (adapted from all exploration episodes of another task) and ``"task oracle"`` (given
            the task), as far as they exist.
        shot_unit: The unit of ``shots``: exploration ``"episodes"``, or ``"rounds"`` of exploring and adapting.
        divergence: How far the posterior after all exploration episodes is from the prior, in nats,
            ``(num_tasks, repetitions)``; ``None`` for algorithms without a posterior.
        task_divergence: The same from the posterior after another task's exploration episodes.
    """

    result: EvaluationResult
    shots: tuple[int, ...]
    shot_returns: np.ndarray
    baselines: Mapping[str, np.ndarray]
    shot_unit: ShotUnit = "episodes"
    divergence: np.ndarray | None = None
    task_divergence: np.ndarray | None = None

    @property
    def per_task(self) -> dict[str, np.ndarray]:
        """Mean return of each baseline, and of the adapted policy (``"adapted"``), in each task, shape ``(M,)``."""
        columns = {name: returns.mean(axis=(1, 2)) for name, returns in self.baselines.items()}
        return {**columns, "adapted": self.result.after_per_task}

    @cached_property
    def k_shot_curve(self) -> dict[str, Any]:
        """``shots`` k, their ``unit``, and ``mean``, ``low``, ``high`` of the return.

        By 95 % bootstrap over tasks, or over repetitions where the tasks are all there are.
        """
        rows = self.shot_returns.mean(axis=(0, 3) if self.result.all_tasks else (1, 3))
        low, high = intervals_of_means(rows)
        mean = rows.mean(axis=0).tolist()
        numbers = {"shots": list(self.shots), "mean": mean, "low": low.tolist(), "high": high.tolist()}
        return {**numbers, "unit": self.shot_unit}

    def advantage(self, name: str) -> tuple[float, Interval]:
        """Advantage of the adapted policy's return over a baseline's, with its 95 % interval by sign flips.

        Over tasks, or over repetitions where the tasks are all there are.
        """
        cells = self.cell_returns
        pair = cells["after"], cells[name.replace(" ", "_")]
        after, other = without_repeats(*pair) if self.result.all_tasks else pair
        difference = after - other
        return float(difference.mean()), sign_flip_interval(independent_means(difference, self.result.all_tasks))

    @property
    def cell_returns(self) -> dict[str, np.ndarray]:
        """Returns by task and repetition, shape ``(M, R)``, from which all intervals of returns can be recomputed.

        ``before`` in the first exploration episode; ``after`` adaptation, and each of ``baselines`` (with ``_`` for
        spaces), mean over the adapted episodes.
        """
        result = self.result
        after = result.returns[:, :, result.num_exploration :].mean(axis=2)
        baselines = {name.replace(" ", "_"): returns.mean(axis=2) for name, returns in self.baselines.items()}
        return {"before": result.returns[:, :, 0], "after": after, **baselines}

    @property
    def gain_per_task(self) -> np.ndarray:
        """The gain of adaptation: adapted minus no adaptation, in the same episodes of each task, shape ``(M,)``."""
        cells = self.cell_returns
        return (cells["after"] - cells["no_adaptation"]).mean(axis=1)

    @property
    def gain(self) -> float:
        """Mean of ``gain_per_task``; its interval comes from ``advantage("no adaptation")``."""
        return float(self.gain_per_task.mean())

    @property
    def worse_per_task(self) -> np.ndarray:
        """Whether adaptation made the policy worse in a task: less return than without it, shape ``(M,)``.

        By more than ``verdict.least_effect``, so that rounding counts for nothing.
        """
        columns = self.per_task
        return self.gain_per_task < -least_effect(columns["adapted"], columns["no adaptation"])

    @property
    def share_worse_interval(self) -> Interval:
        """95 % Wilson interval of the share of tasks that got worse."""
        return Interval(*map(float, wilson_interval(int(self.worse_per_task.sum()), len(self.worse_per_task))))

    def verdict(self, floor: np.ndarray | None = None) -> Verdict:
        """Whether the agent adapts, by how much, and due to which data.

        Args:
            floor: Returns ``(M,)`` of the best policy that does not adapt, where the way to the oracle begins; ``None``
                means no adaptation.
        """
        cells = self.cell_returns
        after = cells["after"]
        return judge(
            after,
            cells["no_adaptation"],
            mismatched=cells.get("random_context"),
            oracle=cells.get("task_oracle"),
            floor=None if floor is None else np.broadcast_to(np.asarray(floor, np.float64)[:, None], after.shape),
            divergence=self.divergence,
            task_divergence=self.task_divergence,
            tasks=self.result.task_labels,
            all_tasks=self.result.all_tasks,
        )

    def to_dict(self) -> dict[str, Any]:
        """The entries that the study adds to ``EvaluationResult.to_dict``, as plain data."""
        columns = self.per_task
        baselines = {}
        for name in self.baselines:
            gap, (low, high) = self.advantage(name)
            mean = float(columns[name].mean())
            baselines[name] = {"return": mean, "advantage": gap, "advantage_ci_low": low, "advantage_ci_high": high}
        names = [name.replace(" ", "_") for name in self.baselines]
        low, high = self.advantage("no adaptation")[1]
        gains = self.gain_per_task.tolist()
        rows = []
        for i, row in enumerate(self.result.task_rows()):
            baseline_means = {key: float(columns[name][i]) for key, name in zip(names, self.baselines, strict=True)}
            rows.append({**row, **baseline_means, "gain": gains[i], "worse": bool(self.worse_per_task[i])})
        return {
            "gain": self.gain,
            "gain_ci_low": low,
            "gain_ci_high": high,
            "k_shot_curve": self.k_shot_curve,
            "baselines": baselines,
            "share_worse": float(self.worse_per_task.mean()),
            "share_worse_interval": list(self.share_worse_interval),
            "per_task": rows,
            "cell_returns": {name: returns.tolist() for name, returns in self.cell_returns.items()},
        }


def study_adaptation(
    evaluator: MetaEvaluator,
    algo: Any,
    *,
    shots: Sequence[int] | None = None,
    oracle: Oracle | None = None,
    engine: RolloutEngine | None = None,
    shot_unit: ShotUnit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AdaptationStudy:
    """Evaluate ``algo``, and how its policies act in the same adapted episodes with less, wrong, and full knowledge.

    Args:
        evaluator: Its protocol decides on cells, seeds and the number of exploration episodes K.
        algo: As in ``MetaEvaluator.evaluate``.
        shots: Numbers of exploration episodes (or rounds) to adapt from, from 0 to all K; ``None`` means
            ``default_shots(K)``.
        oracle: A policy with access to the task, and a function from a task to what it observes; ``None`` means the
            environment's own, if it has one (see ``oracle_of``).
        engine: As in ``MetaEvaluator.evaluate``.
        shot_unit: The unit of ``shots``: ``"episodes"``, or ``"rounds"`` of the evaluator's protocol (gradient steps of
            an algorithm that takes one in each); ``None`` means rounds where there are several.
        progress: Called as ``progress(done, total)``, in episodes of the whole study, while they run.
    """
    algo = as_meta_algorithm(algo)
    updates = evaluator.prepare(algo)  # which settles the rounds
    shot_unit = _unit_of(evaluator, shot_unit)
    size = evaluator.round_length if shot_unit == "rounds" else 1
    explored = evaluator.num_adaptation_episodes
    most = explored // size
    shots = default_shots(most) if shots is None else sorted({check_whole("shots", k, 0, most) for k in shots})
    if not shots:
        raise ValueError(f"shots must hold at least one number from 0 to {most} {shot_unit}, got none")
    oracle = oracle_of(updates[0]) if oracle is None else oracle
    num_further = len({0, *shots} - {most}) + (len(updates) > 1) + (oracle is not None)  # perhaps without shot 0
    parts = _Parts(progress, len(updates) * evaluator.repetitions, explored, evaluator.config.num_episodes, num_further)
    result = evaluator.evaluate(algo, engine=engine, keep_rollouts=True, progress=parts.next())
    count = result.returns.shape[0] * result.returns.shape[1]
    episodes = range(explored, result.returns.shape[2])
    history = [Rollouts.of(rollouts)[:explored] for rollouts in result.rollouts or ()]

    def returns_after(seen: Sequence[Rollouts]) -> np.ndarray:
        policies = evaluator.policies_after(algo, seen)
        return evaluator.run_cells(policies, episodes, engine=engine, progress=parts.next())

    paired = {most: result.returns[:, :, explored:]}
    paired |= {} if result.unadapted_returns is None else {0: result.unadapted_returns}
    numbers = sorted({0, *shots} - paired.keys())
    after = paired | {k: returns_after([rollouts[: k * size] for rollouts in history]) for k in numbers}
    baselines = {"no adaptation": after[0]}
    swapped: list[Rollouts] = []
    if len(updates) > 1:
        partners = _other_tasks(len(updates), evaluator.seed)
        repetitions = result.returns.shape[1]
        swapped = [history[partners[cell // repetitions] * repetitions + cell % repetitions] for cell in range(count)]
        baselines["random context"] = returns_after(swapped)
    if oracle is not None:
        policy, contexts_of_task = oracle
        contexts = [contexts_of_task(update.task) for update in updates for _ in range(evaluator.repetitions)]
        known = evaluator.run_cells([policy] * count, episodes, contexts, engine=engine, progress=parts.next())
        baselines["task oracle"] = known
    returns = np.stack([after[k] for k in shots], axis=2)
    from_prior = from_others = None
    believer: MetaRLAlgorithm = algo
    if isinstance(believer, HasPosterior):
        own = evaluator.policies_after(believer, history)
        from_prior = _divergences(believer, own, [None] * count, evaluator.repetitions)
        if len(updates) > 1:
            from_others = _divergences(
                believer, own, evaluator.policies_after(believer, swapped), evaluator.repetitions
            )
    return AdaptationStudy(result, tuple(shots), returns, baselines, shot_unit, from_prior, from_others)


class _Parts:
    """The evaluation and all policies that act in its adapted episodes, with joint progress."""

    def __init__(
        self, progress: Callable[[int, int], None] | None, cells: int, explored: int, adapted: int, further: int
    ) -> None:
        self._progress, self._done = progress, 0
        self._total = cells * (explored + adapted * (1 + further))

    def next(self) -> Callable[[int, int], None] | None:
        """The progress function of the next part."""
        report, before = self._progress, self._done
        if report is None:
            return None

        def part(done: int, total: int) -> None:
            self._done = before + done
            report(self._done, self._total)

        return part


def _divergences(
    algo: HasPosterior, policies: Sequence[Any], references: Sequence[Any], repetitions: int
) -> np.ndarray | None:
    """Distance between two posteriors of each cell, ``(num_tasks, repetitions)``; ``None`` if one is unknown."""
    divergences = [algo.posterior_divergence(policy, other) for policy, other in zip(policies, references, strict=True)]
    known = [value for value in divergences if value is not None]
    return np.array(known).reshape(-1, repetitions) if len(known) == len(divergences) else None


def _unit_of(evaluator: MetaEvaluator, unit: ShotUnit | None) -> ShotUnit:
    if unit not in (None, "episodes", "rounds"):
        raise ValueError(f"shot_unit must be 'episodes' or 'rounds', got {unit!r}")
    several = evaluator.num_rounds > 1
    if unit == "episodes" and several and evaluator.continues:
        raise ValueError("shot_unit must be 'rounds' where each round adapts the last one's policy, got 'episodes'")
    return ("rounds" if several else "episodes") if unit is None else unit


def default_shots(most: int) -> list[int]:
    """All numbers of episodes up to 5, then every doubling, and ``most`` itself."""
    doublings = [_ALL_SHOTS * 2**power for power in range(1, 32) if _ALL_SHOTS * 2**power < most]
    return sorted({*range(min(most, _ALL_SHOTS) + 1), *doublings, most})


def oracle_of(update: EnvUpdate) -> Oracle | None:
    """The oracle of the environment that ``update`` makes, where it has one.

    That is an environment with ``oracle_context(task)``, the input of the oracle (name -> array), and
    ``oracle_action(obs, contexts)``, which acts on rows of observations and of these arrays (see ``ScriptedPolicy``).
    That of an environment in a ``TrialWrapper`` does not see what this adds to observations.
    """
    env = update()
    try:
        act, context = (layer_with(env, name) for name in ("oracle_action", "oracle_context"))
        if act is None or context is None:
            return None
        trial, acts = typed_env(env, TrialWrapper), act.oracle_action
        if trial is not None:
            acts = partial(_of_first_entries, acts, EnvSpec.from_env(trial.env).obs_dim)
        return ScriptedPolicy(acts), context.oracle_context
    finally:
        if not isinstance(update, ExistingEnvUpdate):
            env.close()


def _of_first_entries(
    act: Callable[..., np.ndarray], width: int, obs: np.ndarray, contexts: Mapping[str, np.ndarray]
) -> np.ndarray:
    return act(obs[:, :width], contexts)


def _other_tasks(count: int, seed: int) -> np.ndarray:
    """For each task another one: a round trip through all tasks in random order."""
    order = np.random.default_rng(derive_seed("random context", seed)).permutation(count)
    partners = np.empty(count, dtype=int)
    partners[order] = np.roll(order, 1)
    return partners
