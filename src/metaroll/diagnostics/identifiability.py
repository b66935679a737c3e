"""What first observations and random rollouts tell about the task, in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.diagnostics.leaks import number_table
from metaroll.diagnostics.report import TaskCheck
from metaroll.diagnostics.trials import Trial, close_env, flat_rows, play, random_actions
from metaroll.functional.task_probes import TransitionModel, nearest_neighbor_accuracy, read_values
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["Identifiability", "numbers_told"]

_MOST_TASKS, _RESETS = 48, 3
_FEWEST_TASKS = 12
"""Tasks without which nothing can be said about how their numbers could be read."""
_MOST_ENTRIES = 256
_READ, _PARTLY_READ = 0.9, 0.5
"""Shares of explained variance from which a number of the task is told, or partly told."""
_COMPARED_TASKS, _FEWEST_ROLLOUTS, _MODEL_STEPS, _TEST_ROLLOUTS = 5, 6, 300, 4
_TOLD_APART = 0.75
_LARGE, _SMALL = 100.0, 1e-3
_R_SQUARED = "r_squared "


class Identifiability:
    """Tries to find out the task, as a learner would have to.

    Args:
        spec: Spaces of the environment.
        updates: Make environments of different tasks.
        num_steps: Longest rollout.
        seed: Of resets and actions.
    """

    def __init__(self, spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int) -> None:
        self._spec, self._updates, self._num_steps, self._seed = spec, list(updates), num_steps, seed

    # -- first observations ------------------------------------------------------------------------------------------

    def first_observation(self) -> TaskCheck:
        """Whether the task can be read from what a reset returns."""
        name, updates = "first observation", self._updates[:_MOST_TASKS]
        if len(updates) < 2:
            return TaskCheck(name, "skip", "there is only one task")
        elements = self._first_observations(updates)
        rows = flat_rows(self._spec.observation_space, elements)
        if rows is None:
            return TaskCheck(name, "skip", f"not a fixed number of entries: {self._spec.observation_space}")
        if not np.isfinite(rows).all():
            return TaskCheck(name, "fail", "it holds NaN or infinity", "return finite observations")
        if not np.ptp(rows, axis=0).any():
            return TaskCheck(name, "ok", "the same in every task and at every reset")
        labels = np.repeat(np.arange(len(updates)), _RESETS)
        columns = _varying_columns(rows.reshape(len(updates), _RESETS, -1))
        accuracy = nearest_neighbor_accuracy(rows[:, columns], labels)
        chance = (_RESETS - 1) / (len(rows) - 1)
        guesses = f"its nearest neighbor is of the same task in {accuracy:.0%} (by chance {chance:.0%})"
        numbers = {"nearest_neighbor_accuracy": accuracy, "chance": chance}
        table = number_table([update.task for update in updates])
        if table is not None and len(updates) >= _FEWEST_TASKS:
            points = rows[:, columns].reshape(len(updates), _RESETS, -1)
            return self._read(name, points, columns, table, guesses, numbers)
        return _by_guesses(name, accuracy, chance, guesses, numbers)

    def _first_observations(self, updates: Sequence[EnvUpdate]) -> list[Any]:
        elements, env = [], None
        with isolated_rng(self._seed):
            for i, update in enumerate(updates):
                env = update(env)
                seeds = [derive_seed("first", self._seed, i, j) for j in range(_RESETS)]
                elements += [play(env, seed, ()).observations[0] for seed in seeds]
            close_env(env)
        return elements

    def _read(
        self,
        name: str,
        points: np.ndarray,
        columns: np.ndarray,
        table: dict[str, np.ndarray],
        guesses: str,
        numbers: dict[str, float],
    ) -> TaskCheck:
        readings = dict(zip(table, read_values(points, np.stack(list(table.values()), axis=1)), strict=True))
        numbers = {**numbers, **{f"{_R_SQUARED}{key}": reading.r_squared for key, reading in readings.items()}}
        told = {key: reading for key, reading in readings.items() if reading.r_squared >= _PARTLY_READ}
        if not told:
            best = max(readings, key=lambda key: readings[key].r_squared)
            if numbers["nearest_neighbor_accuracy"] >= 0.5 + 0.5 * numbers["chance"]:
                return _by_guesses(name, numbers["nearest_neighbor_accuracy"], numbers["chance"], guesses, numbers)
            most = readings[best].r_squared
            what = f"at most {most:.0%} of {best}" if most >= 0.005 else "nothing of it"
            value = f"does not tell the task: {what} can be read"
            return TaskCheck(name, "ok", value, numbers=numbers)
        shown = [f"{key} ({reading.r_squared:.0%}, {self._how(reading.how, columns)})" for key, reading in told.items()]
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        value = f"tells {', '.join(shown[:4])}{more}"
        hint = "leave it out of the observation, unless the task is meant to be known"
        everything = len(told) == len(readings) and all(r.r_squared >= _READ for r in readings.values())
        if everything:
            return TaskCheck(name, "fail", f"the whole task can be read: it {value}", hint, numbers)
        return TaskCheck(name, "warn", value, hint, numbers)

    def _how(self, how: str, columns: np.ndarray) -> str:
        if not how.startswith("entry "):
            return f"from {how}"
        entry = int(columns[int(how.removeprefix("entry "))])
        labels = self._spec.observation_labels
        return f"from entry {entry}" + ("" if labels is None else f", {labels[entry]}")

    # -- rollouts ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _trials(self) -> list[list[Trial]]:
        """Rollouts in a few tasks; those of all tasks have the same seeds and actions."""
        updates = self._updates[:_COMPARED_TASKS]
        count = max(_FEWEST_ROLLOUTS, math.ceil(_MODEL_STEPS / self._num_steps)) + _TEST_ROLLOUTS
        seeds = [derive_seed("apart", self._seed, i) for i in range(count)]
        actions = [random_actions(self._spec.action_space, self._num_steps, seed) for seed in seeds]
        trials, env = [], None
        with isolated_rng(self._seed):
            for update in updates:
                env = update(env)
                trials.append([play(env, *pair) for pair in zip(seeds, actions, strict=True)])
            close_env(env)
        return trials

    def telling_apart(self) -> TaskCheck:
        """Whether a rollout with random actions shows in which task it was."""
        name = "telling apart"
        if len(self._updates) < 2:
            return TaskCheck(name, "skip", "there is only one task")
        tables = [[_transitions(self._spec, trial) for trial in trials] for trials in self._trials]
        num_inputs = tables[0][0].shape[1] - 1 - _entries(self._spec)
        right = _right_guesses(tables, num_inputs)
        pairs = right[np.triu_indices(len(right), 1)]
        mean, told = float(pairs.mean()), int((pairs >= _TOLD_APART).sum())
        guesses = f"which of two tasks a rollout was in is guessed right in {mean:.0%} (by chance 50%)"
        numbers = {"accuracy": mean, "pairs": len(pairs), "pairs_told_apart": told}
        steps = f"{self._num_steps} step{'s' * (self._num_steps != 1)}"
        value = f"random actions tell {told} of {len(pairs)} pairs of tasks apart in {steps}; {guesses}"
        if mean >= _TOLD_APART:
            return TaskCheck(name, "ok", value, numbers=numbers)
        hint = "where only good exploration shows the task, episodes must be long enough for it; or tasks are too alike"
        return TaskCheck(name, "warn", value, hint, numbers)

    def reward(self) -> TaskCheck:
        """How large rewards are, and how they differ between tasks."""
        per_task = [np.concatenate([trial.rewards for trial in trials]) for trials in self._trials]
        rewards = np.concatenate(per_task)
        if not np.isfinite(rewards).all():
            return TaskCheck("reward", "fail", "it is NaN or infinite", "return finite rewards")
        returns = [float(np.mean([sum(trial.rewards) for trial in trials])) for trials in self._trials]
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


def numbers_told(first_observation: TaskCheck) -> list[str]:
    """Numbers of the task that first observations tell, at least in part."""
    shares = first_observation.numbers.items()
    return [key.removeprefix(_R_SQUARED) for key, n in shares if key.startswith(_R_SQUARED) and n >= _PARTLY_READ]


def _by_guesses(name: str, accuracy: float, chance: float, guesses: str, numbers: dict[str, float]) -> TaskCheck:
    if accuracy >= 0.5 + 0.5 * chance:
        hint = "a learner may know the task by it; leave out what tells, unless the task is meant to be known"
        return TaskCheck(name, "warn", f"tells tasks apart: {guesses}", hint, numbers)
    return TaskCheck(name, "ok", f"does not tell the task: {guesses}", numbers=numbers)


def _varying_columns(points: np.ndarray) -> np.ndarray:
    """Entries that differ most between tasks, of points ``(K, R, D)``."""
    between = points.mean(axis=1).std(axis=0)
    varying = np.flatnonzero(np.ptp(points, axis=(0, 1)))
    return np.sort(varying[np.argsort(-between[varying], kind="stable")[:_MOST_ENTRIES]])


def _entries(spec: EnvSpec) -> int:
    rows = flat_rows(spec.observation_space, [])
    return 0 if rows is None else min(rows.shape[1], _MOST_ENTRIES)


def _transitions(spec: EnvSpec, trial: Trial) -> np.ndarray:
    """``(T, A + D + 1 + D)``: action, observation, reward, change of the observation."""
    rows, size = flat_rows(spec.observation_space, trial.observations), _entries(spec)
    actions = flat_rows(spec.action_space, trial.actions)
    steps = len(trial.rewards)
    seen = np.zeros((steps + 1, 0)) if rows is None else rows[:, :size]
    acted = np.zeros((steps, 0)) if actions is None else actions
    return np.concatenate([acted, seen[:-1], np.array(trial.rewards)[:, None], np.diff(seen, axis=0)], axis=1)


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
