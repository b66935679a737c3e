"""Is a number of the task shown in observations after the first, or in the infos of a reset?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.envs.task_trials import close_env, flat_rows, play, random_actions
from metaroll.rollouts.task_env_report import TaskCheck
from metaroll.seeding import isolated_rng, mix_seed
from metaroll.tasks.hashed_split import task_numbers
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["later_steps", "number_table"]

_NAME = "later steps"
_TASKS, _ROLLOUTS, _STEPS = 12, 3, 8
_FEWEST_ROWS = 8
"""Fewer observations could equal a number of the task by chance: where it scales what actions do, say."""
_ROUNDING = 1e-6
_MOST_ENTRIES = 256


def later_steps(
    spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int, told: Collection[str] = ()
) -> TaskCheck:
    """Whether an entry of all later observations, or of the infos of a reset, *is* a number of the task.

    An entry that only depends on the task is no leak, but what there is to find out. So nothing is said of tasks
    without numbers, of which only first observations are looked at.

    Args:
        spec: Spaces of the environment.
        updates: Make environments of different tasks.
        num_steps: Longest rollout.
        seed: Of resets and actions.
        told: Numbers that first observations tell, of which nothing more is said.
    """
    updates = updates[:_TASKS]
    if len(updates) < 2:
        return TaskCheck(_NAME, "skip", "there is only one task")
    table = number_table([update.task for update in updates])
    if table is None:
        return TaskCheck(_NAME, "ok", "not looked at, only first observations: tasks are not of the same numbers")
    table = {name: values for name, values in table.items() if name not in told}
    if not table:
        return TaskCheck(_NAME, "skip", "first observations tell the task already")
    rows, infos = _collect(spec, updates, min(num_steps, _STEPS), seed)
    infos_show = _shown_in_infos(infos, table)
    shown = {} if rows is None else _shown_in_rows(rows, table)
    in_rows = [f"{name} (entry {entry}{_label(spec, entry)})" for name, entry in shown.items()]
    in_info = [f"{name} ({key!r})" for name, key in infos_show.items()]
    if shown:
        everything = len(shown) == len(table) and not told
        value = f"observations show {', '.join(in_rows[:4])}{' and more' * (len(shown) > 4)}"
        cure = "leave it out of the observation, unless the task is meant to be known"
        return TaskCheck(_NAME, "fail" if everything else "warn", value, cure)
    if infos_show:
        value = f"the info of reset shows {', '.join(in_info[:4])}{' and more' * (len(in_info) > 4)}"
        return TaskCheck(_NAME, "warn", value, "no learner here sees it; leave it out if a policy of yours does")
    if rows is None:
        return TaskCheck(
            _NAME, "ok", "no info of a reset is a number of the task; of observations, only first were looked at"
        )
    return TaskCheck(_NAME, "ok", "no entry of observations, or of the infos of a reset, is a number of the task")


def number_table(tasks: Sequence[Any]) -> dict[str, np.ndarray] | None:
    """Name -> values ``(K,)`` of the numbers that vary; ``None`` if not all tasks have the same, or none varies."""
    entries = [task_numbers(task) for task in tasks]
    if any(entry.keys() != entries[0].keys() for entry in entries):
        return None
    columns = {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
    varying = {name: values for name, values in columns.items() if np.isfinite(values).all() and np.ptp(values) > 0}
    return varying or None


def _collect(
    spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int
) -> tuple[list[np.ndarray] | None, list[dict[str, float]]]:
    """Observations of the later half of a few rollouts in each task (``None``: too few), and its infos of a reset."""
    rows: list[np.ndarray] | None = []
    infos, env = [], None
    with isolated_rng(seed):
        for update in updates:
            env = update(env)
            late = []
            for i in range(_ROLLOUTS):
                number = mix_seed("later", seed, i)
                trial = play(env, number, random_actions(spec.action_space, num_steps, number))
                late += trial.observations[1 + len(trial.rewards) // 2 :]
            table = flat_rows(spec.observation_space, late)
            rows = None if rows is None or table is None or len(table) < _FEWEST_ROWS else [*rows, table]
            infos.append(_numbers_of(env.reset(seed=mix_seed("later", seed))[1]))
        close_env(env)
    return rows, infos


def _shown_in_rows(rows: Sequence[np.ndarray], table: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Number of the task -> entry that equals it in all rows of all tasks."""
    shown = {}
    for name, values in table.items():
        margin = _ROUNDING * np.abs(values).max()
        equal = [(np.abs(part - value) <= margin).all(axis=0) for part, value in zip(rows, values, strict=True)]
        entries = np.flatnonzero(np.all(equal, axis=0))
        if entries.size:
            shown[name] = int(entries[0])
    return shown


def _shown_in_infos(infos: Sequence[Mapping[str, float]], table: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Number of the task -> name of the info that equals it in all tasks."""
    shown = {}
    for name, values in table.items():
        margin = _ROUNDING * np.abs(values).max()
        for key in infos[0]:
            found = np.array([info.get(key, np.nan) for info in infos])
            if (np.abs(found - values) <= margin).all():
                shown.setdefault(name, key)
    return shown


def _numbers_of(info: Any, name: str = "") -> dict[str, float]:
    """All numbers of an info by name, but those of long arrays."""
    if isinstance(info, Mapping):
        parts = [(f"{name}.{key}" if name else str(key), value) for key, value in info.items()]
    elif isinstance(info, np.ndarray | np.generic) and info.dtype.kind in "biuf" and info.size <= _MOST_ENTRIES:
        if info.ndim == 0:
            return {name: float(info)}
        parts = [(f"{name}[{i}]", value) for i, value in enumerate(info.reshape(-1).tolist())]
    elif isinstance(info, list | tuple) and len(info) <= _MOST_ENTRIES:
        parts = [(f"{name}[{i}]", value) for i, value in enumerate(info)]
    else:
        return {name: float(info)} if isinstance(info, bool | int | float) else {}
    return {key: number for part, value in parts for key, number in _numbers_of(value, part).items()}


def _label(spec: EnvSpec, entry: int) -> str:
    return "" if spec.observation_labels is None else f", {spec.observation_labels[entry]}"
