"""What first observations and random rollouts show of the task, and how large rewards are, in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from metaroll.data.space_batches import take_rows
from metaroll.data.step_sequence import StepSequence
from metaroll.diagnostics.leaks import number_table
from metaroll.diagnostics.report import TaskCheck
from metaroll.diagnostics.trials import RandomActions, flat_rows, play_tasks
from metaroll.envs.base.task_family import TaskFamily
from metaroll.errors import InvalidValueError
from metaroll.functional.task_probes import TransitionModel, nearest_neighbor_accuracy, read_values
from metaroll.seeding import derive_seed
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["Identifiability", "decodable_numbers"]

_FIRST = "first observation"
_MOST_TASKS, _RESETS = 48, 3
_FEWEST_TASKS = 12
"""Tasks without which nothing can be said about how their numbers could be decoded."""
_MOST_ENTRIES = 256
_DECODABLE, _PARTLY_DECODABLE = 0.9, 0.5
"""Shares of explained variance from which a number of the task is decodable, or in part."""
_COMPARED_TASKS, _FEWEST_ROLLOUTS, _MODEL_STEPS, _TEST_ROLLOUTS = 5, 6, 300, 4
_DISTINGUISHABLE = 0.75
_LARGE, _SMALL = 100.0, 1e-3
_R_SQUARED = "r_squared "


class Identifiability:
    """Tries to find out the task, as a learner would have to.

    Args:
        family: Makes the environment.
        spec: Its spaces.
        updates: Different tasks.
        num_steps: Longest rollout.
        seed: Of resets and actions.
    """

    def __init__(
        self, family: TaskFamily, spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int
    ) -> None:
        self._family, self._spec, self._updates = family, spec, list(updates)
        self._num_steps, self._seed = num_steps, seed

    # -- first observations ------------------------------------------------------------------------------------------

    def first_observation(self) -> TaskCheck:
        """Whether the task can be decoded from what a reset returns."""
        updates = self._updates[:_MOST_TASKS]
        if len(updates) < 2:
            return TaskCheck(_FIRST, "skip", "there is only one task")
        space = self._spec.observation_space
        seed = derive_seed("first", self._seed)
        policy = RandomActions(self._spec.action_space, [seed], 1)
        rollouts = play_tasks(self._family, updates, policy, seed, num_rollouts=_RESETS, same_seeds=False)
        parts = [flat_rows(space, take_rows(one.observations, [0])) for task in rollouts for one in task]
        if parts[0] is None:
            return TaskCheck(_FIRST, "skip", f"not a fixed number of entries: {space}")
        rows = np.concatenate(parts)  # type: ignore[arg-type]
        if not np.ptp(rows, axis=0).any():
            return TaskCheck(_FIRST, "ok", "the same in every task and at every reset")
        points = rows.reshape(len(updates), _RESETS, -1)
        columns = _varying_columns(points)
        accuracy = nearest_neighbor_accuracy(rows[:, columns], np.repeat(np.arange(len(updates)), _RESETS))
        numbers = {"nearest_neighbor_accuracy": accuracy, "chance": (_RESETS - 1) / (len(rows) - 1)}
        table = number_table([update.task for update in updates])
        if table is not None and len(updates) >= _FEWEST_TASKS:
            return self._decode(points[:, :, columns], columns, table, numbers)
        return _by_neighbors(numbers)

    def _decode(
        self, points: np.ndarray, columns: np.ndarray, table: dict[str, np.ndarray], numbers: dict[str, float]
    ) -> TaskCheck:
        found = dict(zip(table, read_values(points, np.stack(list(table.values()), axis=1)), strict=True))
        numbers = {**numbers, **{f"{_R_SQUARED}{key}": reading.r_squared for key, reading in found.items()}}
        decodable = {key: reading for key, reading in found.items() if reading.r_squared >= _PARTLY_DECODABLE}
        if not decodable:
            if _neighbors_show(numbers):
                return _by_neighbors(numbers)
            best = max(found, key=lambda key: found[key].r_squared)
            most = found[best].r_squared
            what = f"at most {most:.0%} of {best}" if most >= 0.005 else "nothing of it"
            return TaskCheck(_FIRST, "ok", f"does not tell the task: {what} can be read", numbers=numbers)
        shown = [f"{key} ({one.r_squared:.0%}, {self._how(one.how, columns)})" for key, one in decodable.items()]
        value = f"tells {', '.join(shown[:4])}" + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
        hint = "leave it out of the observation, unless the task is meant to be known"
        if all(reading.r_squared >= _DECODABLE for reading in found.values()):
            return TaskCheck(_FIRST, "fail", f"the whole task can be read: it {value}", hint, numbers)
        return TaskCheck(_FIRST, "warn", value, hint, numbers)

    def _how(self, how: str, columns: np.ndarray) -> str:
        if not how.startswith("entry "):
            return f"from {how}"
        entry = int(columns[int(how.removeprefix("entry "))])
        labels = self._spec.observation_labels
        return f"from entry {entry}" + ("" if labels is None else f", {labels[entry]}")

    # -- rollouts ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _policy(self) -> RandomActions:
        count = max(_FEWEST_ROLLOUTS, math.ceil(_MODEL_STEPS / self._num_steps)) + _TEST_ROLLOUTS
        seeds = [derive_seed("apart", self._seed, i) for i in range(count)]
        return RandomActions(self._spec.action_space, seeds, self._num_steps)

    @functools.cached_property
    def _rollouts(self) -> list[list[StepSequence]]:
        """Rollouts in a few tasks; those of all tasks have the same seeds and actions."""
        updates = self._updates[:_COMPARED_TASKS]
        return play_tasks(self._family, updates, self._policy, derive_seed("apart", self._seed))

    def distinguishable(self) -> TaskCheck:
        """Whether a rollout with random actions shows in which task it was."""
        name = "telling apart"
        if len(self._updates) < 2:
            return TaskCheck(name, "skip", "there is only one task")
        tables = [[self._transitions(*pair) for pair in enumerate(rollouts)] for rollouts in self._rollouts]
        num_inputs = tables[0][0].shape[1] - 1 - self._entries
        right = _right_guesses(tables, num_inputs)
        pairs = right[np.triu_indices(len(right), 1)]
        mean, count = float(pairs.mean()), int((pairs >= _DISTINGUISHABLE).sum())
        numbers = {"accuracy": mean, "pairs": len(pairs), "pairs_told_apart": count}
        steps = f"{self._num_steps} step{'s' * (self._num_steps != 1)}"
        value = (
            f"random actions tell {count} of {len(pairs)} pairs of tasks apart in {steps}; which of two tasks a "
            f"rollout was in is guessed right in {mean:.0%} (by chance 50%)"
        )
        if mean >= _DISTINGUISHABLE:
            return TaskCheck(name, "ok", value, numbers=numbers)
        hint = "where only good exploration shows the task, episodes must be long enough for it; or tasks are too alike"
        return TaskCheck(name, "warn", value, hint, numbers)

    def reward(self) -> TaskCheck:
        """How large rewards are, and how they differ between tasks."""
        try:
            per_task = [np.concatenate([one.rewards for one in rollouts]) for rollouts in self._rollouts]
        except InvalidValueError as error:
            if error.what != "reward":
                raise
            return TaskCheck("reward", "fail", "it is NaN or infinite", "return finite rewards")
        rewards = np.concatenate(per_task)
        returns = [float(np.mean([one.rewards.sum() for one in rollouts])) for rollouts in self._rollouts]
        spread, nonzero = float(rewards.std()), float(np.mean(rewards != 0))
        value = (
            f"{rewards.mean():.3g} a step, standard deviation {spread:.2g}, from {rewards.min():.3g} to "
            f"{rewards.max():.3g}; mean return of a task from {min(returns):.4g} to {max(returns):.4g}"
        )
        numbers = {"mean": float(rewards.mean()), "std": spread, "share_not_zero": nonzero}
        size = float(np.sqrt(np.mean(rewards**2)))
        if spread == 0:
            value = f"always {rewards[0]:g} with random actions"
            hint = "give a reward that actions change; where it is sparse, longer rollouts may show it (num_steps)"
            return TaskCheck("reward", "warn", value, hint, numbers)
        if nonzero < 0.05:
            value += f"; not zero in {nonzero:.1%} of the steps"
        if size > _LARGE or size < _SMALL:
            factor = 10.0 ** -round(math.log10(size))
            hint = f"learners expect rewards around 1: scale them by about {factor:g} (reward_scale of PEARL)"
            return TaskCheck("reward", "warn", value, hint, numbers)
        return TaskCheck("reward", "ok", value, numbers=numbers)

    @functools.cached_property
    def _entries(self) -> int:
        space = self._spec.observation_space
        return min(self._spec.obs_dim, _MOST_ENTRIES) if space.is_np_flattenable else 0

    def _transitions(self, recording: int, one: StepSequence) -> np.ndarray:
        """``(T, A + D + 1 + D)``: action, observation, reward, change of the observation."""
        rows = flat_rows(self._spec.observation_space, one.observations)
        seen = np.zeros((len(one) + 1, 0)) if rows is None else rows[:, : self._entries]
        acted = self._policy.numbers(recording, len(one))
        return np.concatenate([acted, seen[:-1], one.rewards[:, None], np.diff(seen, axis=0)], axis=1)


def decodable_numbers(first_observation: TaskCheck) -> list[str]:
    """Numbers of the task that can be decoded from first observations, at least in part."""
    shares = first_observation.numbers.items()
    keys = [key for key, share in shares if key.startswith(_R_SQUARED) and share >= _PARTLY_DECODABLE]
    return [key.removeprefix(_R_SQUARED) for key in keys]


def _neighbors_show(numbers: dict[str, float]) -> bool:
    return numbers["nearest_neighbor_accuracy"] >= 0.5 + 0.5 * numbers["chance"]


def _by_neighbors(numbers: dict[str, float]) -> TaskCheck:
    accuracy, chance = numbers["nearest_neighbor_accuracy"], numbers["chance"]
    guesses = f"its nearest neighbor is of the same task in {accuracy:.0%} (by chance {chance:.0%})"
    if _neighbors_show(numbers):
        hint = "a learner may know the task by it; leave out what tells, unless the task is meant to be known"
        return TaskCheck(_FIRST, "warn", f"tells tasks apart: {guesses}", hint, numbers)
    return TaskCheck(_FIRST, "ok", f"does not tell the task: {guesses}", numbers=numbers)


def _varying_columns(points: np.ndarray) -> np.ndarray:
    """Entries that differ most between tasks, of points ``(K, R, D)``."""
    between = points.mean(axis=1).std(axis=0)
    varying = np.flatnonzero(np.ptp(points, axis=(0, 1)))
    return np.sort(varying[np.argsort(-between[varying], kind="stable")[:_MOST_ENTRIES]])


def _right_guesses(tables: Sequence[Sequence[np.ndarray]], num_inputs: int) -> np.ndarray:
    """Shares ``(K, K)`` of held-out rollouts of either task that the model of their own task predicts better."""
    everything = np.concatenate([table for task in tables for table in task])
    scale = everything.std(axis=0)
    scale[scale <= 1e-9 * np.abs(everything).max(axis=0)] = 0.0  # constant but for rounding
    models = [TransitionModel(task[:-_TEST_ROLLOUTS], num_inputs, scale) for task in tables]
    tests = [task[-_TEST_ROLLOUTS:] for task in tables]
    errors = np.array([[[model.errors(table) for table in task] for model in models] for task in tests])
    own = np.mean([errors[k, k].mean(axis=0) for k in range(len(tables))], axis=0)
    scores = (errors / (own + 1e-10)).sum(axis=-1)  # (task, model, rollout)
    mine = np.stack([scores[k, k] for k in range(len(tables))])[:, None, :]
    guesses = np.where(scores == mine, 0.5, scores > mine).mean(axis=-1)
    return 0.5 * (guesses + guesses.T)
