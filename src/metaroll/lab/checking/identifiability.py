"""Measures the information of observations, infos and random rollouts about the task, and the size of rewards."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.space_batches import flatten_batch, take_rows
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.constructors import close_env
from metaroll.envs.base.task_family import TaskFamily
from metaroll.errors import InvalidValueError, counted
from metaroll.functional.task_probes import TransitionModel, nearest_neighbor_accuracy, read_values
from metaroll.lab.checking.report import TaskCheck
from metaroll.lab.checking.trials import RandomActions, flat_rows, play_tasks
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.tasks.task_key import task_numbers
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["Identifiability"]

_FIRST, _LATER = "first observation", "later steps"
_MOST_TASKS, _RESETS = 48, 3
_FEWEST_TASKS = 12
"""With fewer tasks, decoding their numbers cannot be assessed."""
_MOST_ENTRIES = 256
_DECODABLE, _PARTLY_DECODABLE = 0.9, 0.5
"""Shares of explained variance from which a number of the task counts as decodable, or partly decodable."""
_COMPARED_TASKS, _FEWEST_ROLLOUTS, _MODEL_STEPS, _TEST_ROLLOUTS = 5, 6, 300, 4
_DISTINGUISHABLE = 0.75
_LARGE, _SMALL = 100.0, 1e-3
_R_SQUARED = "r_squared "
_LATER_TASKS, _LATER_ROLLOUTS, _LATER_STEPS = 12, 3, 8
_FEWEST_ROWS = 8
"""Fewer observations could equal a number of the task by chance, for example if it scales the effect of actions."""
_ROUNDING = 1e-6
_NOISE = 0.2
"""An entry is nearly constant in a task below this share of its standard deviation between tasks."""
_HINT = "leave it out of the observation, unless the task is meant to be known"


class Identifiability:
    """Tries to identify the task, as a learner would have to.

    Args:
        family: Makes the environment.
        spec: Its spaces.
        updates: Different tasks.
        num_steps: Maximum number of steps in a rollout.
        seed: Seed of resets and actions.
    """

    def __init__(
        self, family: TaskFamily, spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int
    ) -> None:
        self._family, self._spec, self._updates = family, spec, list(updates)
        self._num_steps, self._seed = num_steps, seed

    # -- first observations ------------------------------------------------------------------------------------------

    @functools.cached_property
    def first_observation(self) -> TaskCheck:
        """Whether the task can be decoded from the result of a reset."""
        updates = self._updates[:_MOST_TASKS]
        if len(updates) < 2:
            return TaskCheck(_FIRST, "skip", "there is only one task")
        space = self._spec.observation_space
        seed = derive_seed("first", self._seed)
        policy = RandomActions(self._spec.action_space, [seed], 1)
        rollouts = play_tasks(self._family, updates, policy, seed, num_rollouts=_RESETS, same_seeds=False)
        parts = [flat_rows(space, take_rows(rollout.observations, [0])) for task in rollouts for rollout in task]
        if parts[0] is None:
            return TaskCheck(_FIRST, "skip", f"not a fixed number of entries: {space}")
        rows = np.concatenate(parts)  # type: ignore[arg-type]
        if not np.ptp(rows, axis=0).any():
            return TaskCheck(_FIRST, "ok", "the same in every task and at every reset")
        points = rows.reshape(len(updates), _RESETS, -1)
        # The entries that differ most between tasks.
        between, varying = points.mean(axis=1).std(axis=0), np.flatnonzero(np.ptp(points, axis=(0, 1)))
        columns = np.sort(varying[np.argsort(-between[varying], kind="stable")[:_MOST_ENTRIES]])
        accuracy = nearest_neighbor_accuracy(rows[:, columns], np.repeat(np.arange(len(updates)), _RESETS))
        numbers = {"nearest_neighbor_accuracy": accuracy, "chance": (_RESETS - 1) / (len(rows) - 1)}
        table = _number_table([update.task for update in updates])
        if table is not None and len(updates) >= _FEWEST_TASKS:
            return self._decode(points[:, :, columns], columns, table, numbers)
        return _by_neighbors(numbers)

    def _decode(
        self, points: np.ndarray, columns: np.ndarray, table: dict[str, np.ndarray], numbers: dict[str, float]
    ) -> TaskCheck:
        readings = dict(zip(table, read_values(points, np.stack(list(table.values()), axis=1)), strict=True))
        numbers = {**numbers, **{f"{_R_SQUARED}{key}": reading.r_squared for key, reading in readings.items()}}
        decodable = {key: reading for key, reading in readings.items() if reading.r_squared >= _PARTLY_DECODABLE}
        if not decodable:
            if _neighbors_show(numbers):
                return _by_neighbors(numbers)
            best = max(readings, key=lambda key: readings[key].r_squared)
            most = readings[best].r_squared
            readable = f"at most {100 * most:.0f} % of {best}" if most >= 0.005 else "nothing of it"
            return TaskCheck(_FIRST, "ok", f"does not reveal the task: {readable} can be decoded", numbers=numbers)
        shown = []
        for key, decoded in decodable.items():
            by, _, position = decoded.how.partition("entry ")
            shown.append(
                f"{key} ({100 * decoded.r_squared:.0f} %, from {by or self._entry(int(columns[int(position)]))})"
            )
        value = f"reveals {', '.join(shown[:4])}" + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
        if all(reading.r_squared >= _DECODABLE for reading in readings.values()):
            return TaskCheck(_FIRST, "fail", f"the whole task can be decoded: it {value}", _HINT, numbers)
        return TaskCheck(_FIRST, "warn", value, _HINT, numbers)

    def _entry(self, entry: int) -> str:
        labels = self._spec.observation_labels
        return f"entry {entry}" + ("" if labels is None else f", {labels[entry]}")

    # -- later observations ------------------------------------------------------------------------------------------

    def later_steps(self) -> TaskCheck:
        """Whether an entry of later observations reveals the task, or an info of a reset *is* a number of it.

        An entry reveals the task if it is a number of it, or if it is constant in all rollouts in a task and differs
        between tasks, however it was computed. An entry that depends on the task *and* on the actions is not a leak,
        but what a learner has to infer from. Numbers that first observations already reveal are left out.
        """
        shares = self.first_observation.numbers.items()
        keys = [key for key, share in shares if key.startswith(_R_SQUARED) and share >= _PARTLY_DECODABLE]
        decodable = [key.removeprefix(_R_SQUARED) for key in keys]
        updates = self._updates[:_LATER_TASKS]
        if len(updates) < 2:
            return TaskCheck(_LATER, "skip", "there is only one task")
        numbers = _number_table([update.task for update in updates])
        table = {name: values for name, values in (numbers or {}).items() if name not in decodable}
        if numbers is not None and not table:
            return TaskCheck(_LATER, "skip", "first observations already reveal the task")
        first, later, late = self._observed_later(updates)
        shown = _shown_in_rows(late or [], table)
        if shown:
            status = "fail" if len(shown) == len(table) and not decodable else "warn"
            entries = [f"{name} ({self._entry(entry)})" for name, entry in shown.items()]
            return TaskCheck(_LATER, status, f"observations show {_listed(entries)}", _HINT)
        constant = _constant_in_tasks(first, later) if first and later else {}
        if constant:
            value = (
                f"{_listed([f'{self._entry(entry)} ({count} values)' for entry, count in constant.items()])} of "
                f"observations after the first: constant in a task (or nearly so), different between {len(updates)} "
                "tasks; it reveals the task, or a part of it"
            )
            return TaskCheck(_LATER, "warn", value, _HINT)
        names, infos = self._infos(updates)
        in_infos = [f"{name} ({names[entry]!r})" for name, entry in _shown_in_rows(infos, table).items()]
        if in_infos:
            hint = "no learner here sees it; leave it out if your own policy does"
            return TaskCheck(_LATER, "warn", f"the info of reset shows {_listed(in_infos)}", hint)
        if numbers is None:
            value = "no entry of observations is constant in a task and different in others"
            value = "not checked, only first observations" if later is None else value
            return TaskCheck(_LATER, "ok", f"{value}; tasks do not share the same numbers")
        value = "no entry of observations, or of the infos of a reset, is a number of the task"
        if late is None:
            value = "no info of a reset is a number of the task; only first observations were checked"
        return TaskCheck(_LATER, "ok", value)

    def _observed_later(self, updates: Sequence[EnvUpdate]) -> list[list[np.ndarray] | None]:
        """Observations of each task ``(N, D)``: first ones, later ones, and those in the second half of rollouts.

        All tasks have the same seeds and actions. ``None`` if rollouts are too short or observations are not numeric.
        """
        seeds = [derive_seed("later", self._seed, i) for i in range(_LATER_ROLLOUTS)]
        policy = RandomActions(self._spec.action_space, seeds, min(self._num_steps, _LATER_STEPS))
        per_task = play_tasks(self._family, updates, policy, seeds[0])
        space = self._spec.observation_space
        if not space.is_np_flattenable:
            return [None, None, None]
        rows = [[flatten_batch(space, rollout.observations) for rollout in rollouts] for rollouts in per_task]
        cuts = [lambda length: (0, 1), lambda length: (1, length), lambda length: (1 + (length - 1) // 2, length)]
        observed: list[list[np.ndarray] | None] = []
        for cut, fewest in zip(cuts, (1, _FEWEST_ROWS, _FEWEST_ROWS), strict=True):
            tables = [np.concatenate([part[slice(*cut(len(part)))] for part in task], dtype=float) for task in rows]
            observed.append(tables if min(map(len, tables)) >= fewest else None)
        return observed

    def _infos(self, updates: Sequence[EnvUpdate]) -> tuple[list[str], list[np.ndarray]]:
        """Names of the numbers in the info of a reset, and their values in each task ``(1, D)``."""
        infos, env = [], None
        with isolated_rng(self._seed):
            for update in updates:
                env = update(env)
                infos.append(_numbers_of(env.reset(seed=derive_seed("later", self._seed))[1]))
            close_env(env)
        names = list(infos[0])
        return names, [np.array([[info.get(name, np.nan) for name in names]]) for info in infos]

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
        """Whether a rollout with random actions reveals its task."""
        name = "distinguishable"
        if len(self._updates) < 2:
            return TaskCheck(name, "skip", "there is only one task")
        tables = [[self._transitions(*pair) for pair in enumerate(rollouts)] for rollouts in self._rollouts]
        num_inputs = tables[0][0].shape[1] - 1 - self._entries
        right = _right_guesses(tables, num_inputs)
        pairs = right[np.triu_indices(len(right), 1)]
        mean, count = float(pairs.mean()), int((pairs >= _DISTINGUISHABLE).sum())
        numbers = {"accuracy": mean, "pairs": len(pairs), "pairs_told_apart": count}
        steps = counted(self._num_steps, "step")
        value = (
            f"random actions distinguish {count} of {len(pairs)} pairs of tasks in {steps}; the task of a rollout is "
            f"guessed correctly out of two in {100 * mean:.0f} % of cases (chance 50 %)"
        )
        if mean >= _DISTINGUISHABLE:
            return TaskCheck(name, "ok", value, numbers=numbers)
        hint = "if only good exploration reveals the task, make episodes long enough for it; or tasks are too similar"
        return TaskCheck(name, "warn", value, hint, numbers)

    def reward(self) -> TaskCheck:
        """The size of rewards, and how they differ between tasks."""
        try:
            rewards = np.concatenate([rollout.rewards for rollouts in self._rollouts for rollout in rollouts])
        except InvalidValueError as error:
            if error.what != "reward":
                raise
            return TaskCheck("reward", "fail", "it is NaN or infinite", "return finite rewards")
        returns = [float(np.mean([rollout.rewards.sum() for rollout in rollouts])) for rollouts in self._rollouts]
        spread, nonzero = float(rewards.std()), float(np.mean(rewards != 0))
        value = (
            f"{rewards.mean():.3g} a step, standard deviation {spread:.2g}, from {rewards.min():.3g} to "
            f"{rewards.max():.3g}; mean return of a task from {min(returns):.4g} to {max(returns):.4g}"
        )
        numbers = {"mean": float(rewards.mean()), "std": spread, "share_not_zero": nonzero}
        size = float(np.sqrt(np.mean(rewards**2)))
        if spread == 0:
            value = f"always {rewards[0]:g} with random actions"
            hint = "return a reward that depends on actions; if it is sparse, longer rollouts may show it (num_steps)"
            return TaskCheck("reward", "warn", value, hint, numbers)
        if nonzero < 0.05:
            value += f"; nonzero in {100 * nonzero:.1f} % of the steps"
        if _SMALL <= size <= _LARGE:
            return TaskCheck("reward", "ok", value, numbers=numbers)
        factor = 10.0 ** -round(math.log10(size))
        hint = f"learners expect rewards around 1: scale them by about {factor:g} (option reward_scale)"
        return TaskCheck("reward", "warn", value, hint, numbers)

    @functools.cached_property
    def _entries(self) -> int:
        space = self._spec.observation_space
        return min(self._spec.obs_dim, _MOST_ENTRIES) if space.is_np_flattenable else 0

    def _transitions(self, recording: int, rollout: StepSequence) -> np.ndarray:
        """``(T, A + D + 1 + D)``: action, observation, reward, change of the observation."""
        rows = flat_rows(self._spec.observation_space, rollout.observations)
        seen = np.zeros((len(rollout) + 1, 0)) if rows is None else rows[:, : self._entries]
        acted = self._policy.numbers(recording, len(rollout))
        return np.concatenate([acted, seen[:-1], rollout.rewards[:, None], np.diff(seen, axis=0)], axis=1)


def _neighbors_show(numbers: dict[str, float]) -> bool:
    return numbers["nearest_neighbor_accuracy"] >= 0.5 + 0.5 * numbers["chance"]


def _by_neighbors(numbers: dict[str, float]) -> TaskCheck:
    accuracy, chance = numbers["nearest_neighbor_accuracy"], numbers["chance"]
    guesses = f"its nearest neighbor is from the same task in {100 * accuracy:.0f} % (chance {100 * chance:.0f} %)"
    if _neighbors_show(numbers):
        hint = "a learner may read the task from it; leave out what reveals it, unless the task is meant to be known"
        return TaskCheck(_FIRST, "warn", f"distinguishes tasks: {guesses}", hint, numbers)
    return TaskCheck(_FIRST, "ok", f"does not reveal the task: {guesses}", numbers=numbers)


def _right_guesses(tables: Sequence[Sequence[np.ndarray]], num_inputs: int) -> np.ndarray:
    """Shares ``(K, K)`` of held-out rollouts of two tasks that the model of their own task predicts better."""
    everything = np.concatenate([table for task in tables for table in task])
    scale = everything.std(axis=0)
    scale[scale <= 1e-9 * np.abs(everything).max(axis=0)] = 0.0  # constant up to rounding
    models = [TransitionModel(task[:-_TEST_ROLLOUTS], num_inputs, scale) for task in tables]
    tests = [task[-_TEST_ROLLOUTS:] for task in tables]
    errors = np.array([[[model.errors(table) for table in task] for model in models] for task in tests])
    own = np.mean([errors[k, k].mean(axis=0) for k in range(len(tables))], axis=0)
    scores = (errors / (own + 1e-10)).sum(axis=-1)  # (task, model, rollout)
    mine = np.stack([scores[k, k] for k in range(len(tables))])[:, None, :]
    guesses = np.where(scores == mine, 0.5, scores > mine).mean(axis=-1)
    return 0.5 * (guesses + guesses.T)


def _number_table(tasks: Sequence[Any]) -> dict[str, np.ndarray] | None:
    """Name -> values ``(K,)`` of the numbers that vary; ``None`` if tasks have different numbers, or none varies."""
    entries = [task_numbers(task) for task in tasks]
    if any(entry.keys() != entries[0].keys() for entry in entries):
        return None
    columns = {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
    varying = {name: values for name, values in columns.items() if np.isfinite(values).all() and np.ptp(values) > 0}
    return varying or None


def _constant_in_tasks(first: Sequence[np.ndarray], later: Sequence[np.ndarray]) -> dict[int, int]:
    """Entry -> number of its values, for entries constant in each task, but not in all tasks or at the reset.

    Noise is allowed: variation within a task must be small compared to that between tasks.
    """
    low, high = (np.stack([bound(part, axis=0) for part in later]) for bound in (np.min, np.max))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return {}  # reported with first observations and the reward
    middle = 0.5 * (low + high)
    moves, rounding = (high - low).max(axis=0), _ROUNDING * np.abs([low, high]).max(axis=(0, 1))
    constant = (moves <= rounding + _NOISE * middle.std(axis=0)) & (np.ptp(middle, axis=0) > 2 * rounding)
    margin = np.maximum(moves, rounding)
    begun = [np.abs(part - value).max(axis=0) <= margin for part, value in zip(first, middle, strict=True)]
    entries = np.flatnonzero(constant & ~np.all(begun, axis=0))
    return {int(d): 1 + int((np.diff(np.sort(middle[:, d])) > margin[d]).sum()) for d in entries}


def _shown_in_rows(rows: Sequence[np.ndarray], table: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Name of a task's number -> entry that equals it in all rows of all tasks."""
    shown = {}
    for name, values in table.items() if rows else ():
        margin = _ROUNDING * np.abs(values).max()
        equal = [(np.abs(part - value) <= margin).all(axis=0) for part, value in zip(rows, values, strict=True)]
        entries = np.flatnonzero(np.all(equal, axis=0))
        if entries.size:
            shown[name] = int(entries[0])
    return shown


def _numbers_of(info: Any, name: str = "") -> dict[str, float]:
    """All numbers in an info by name, except for long arrays."""
    if isinstance(info, np.ndarray | np.generic):
        info = info.tolist() if info.size <= _MOST_ENTRIES else None
    if isinstance(info, Mapping):
        parts = [(f"{name}.{key}" if name else str(key), value) for key, value in info.items()]
    elif isinstance(info, list | tuple) and len(info) <= _MOST_ENTRIES:
        parts = [(f"{name}[{i}]", value) for i, value in enumerate(info)]
    else:
        return {name: float(info)} if isinstance(info, bool | int | float) else {}
    return {key: number for part, value in parts for key, number in _numbers_of(value, part).items()}


def _listed(entries: Sequence[str]) -> str:
    return ", ".join(entries[:4]) + " and more" * (len(entries) > 4)
