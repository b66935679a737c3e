"""Is a number of the task shown in observations after the first, or in the infos of a reset?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.diagnostics.report import TaskCheck
from metaroll.diagnostics.trials import close_env, flat_rows, play, random_actions
from metaroll.seeding import derive_seed, isolated_rng
from metaroll.tasks.task_key import task_numbers
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["later_steps", "number_table"]

_NAME = "later steps"
_TASKS, _ROLLOUTS, _STEPS = 12, 3, 8
_FEWEST_ROWS = 8
"""Fewer observations could equal a number of the task by chance: where it scales what actions do, say."""
_ROUNDING = 1e-6
_NOISE = 0.2
"""An entry moves little in a task if by less than this share of its standard deviation between tasks."""
_MOST_ENTRIES = 256


def later_steps(
    spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int, told: Collection[str] = ()
) -> TaskCheck:
    """Whether an entry of all later observations tells the task, or one of the infos of a reset *is* a number of it.

    It tells the task if it is a number of it, or if it is constant in all rollouts in a task and another one in other
    tasks, however it was computed. An entry that depends on the task *and* on what was done is no leak, but what there
    is to find out. Entries that are there from the reset on are left to the check of first observations.

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
    has_numbers = table is not None
    table = {name: values for name, values in (table or {}).items() if name not in told}
    if has_numbers and not table:
        return TaskCheck(_NAME, "skip", "first observations tell the task already")
    seen = _collect(spec, updates, min(num_steps, _STEPS), seed)
    infos_show = _shown_in_infos(seen.infos, table)
    shown = {} if seen.late is None else _shown_in_rows(seen.late, table)
    in_rows = [f"{name} (entry {entry}{_label(spec, entry)})" for name, entry in shown.items()]
    in_info = [f"{name} ({key!r})" for name, key in infos_show.items()]
    if shown:
        everything = len(shown) == len(table) and not told
        value = f"observations show {', '.join(in_rows[:4])}{' and more' * (len(shown) > 4)}"
        hint = "leave it out of the observation, unless the task is meant to be known"
        return TaskCheck(_NAME, "fail" if everything else "warn", value, hint)
    kinds = _constant_in_tasks(seen)
    if kinds:
        return _tells_by_constants(spec, kinds, len(updates))
    if infos_show:
        value = f"the info of reset shows {', '.join(in_info[:4])}{' and more' * (len(in_info) > 4)}"
        return TaskCheck(_NAME, "warn", value, "no learner here sees it; leave it out if a policy of yours does")
    if not has_numbers:
        value = "no entry of observations is constant in a task and another one in others"
        if seen.later is None:
            value = "not looked at, only first observations"
        return TaskCheck(_NAME, "ok", f"{value}; tasks are not of the same numbers")
    if seen.late is None:
        return TaskCheck(
            _NAME, "ok", "no info of a reset is a number of the task; of observations, only first were looked at"
        )
    return TaskCheck(_NAME, "ok", "no entry of observations, or of the infos of a reset, is a number of the task")


def _tells_by_constants(spec: EnvSpec, kinds: Mapping[int, int], num_tasks: int) -> TaskCheck:
    """The finding about entries, each with its number of different values."""
    entries = [f"entry {entry}{_label(spec, entry)} ({count} values)" for entry, count in kinds.items()]
    several = len(entries) > 1
    are, differ, they = ("are", "differ", "they tell") if several else ("is", "differs", "it tells")
    value = (
        f"{', '.join(entries[:4])}{' and more' * (len(entries) > 4)} of observations after the first "
        f"{are} constant in a task (or nearly so), and {differ} between {num_tasks} tasks: {they} the task, or a part "
        "of it"
    )
    return TaskCheck(_NAME, "warn", value, "leave it out of the observation, unless the task is meant to be known")


def number_table(tasks: Sequence[Any]) -> dict[str, np.ndarray] | None:
    """Name -> values ``(K,)`` of the numbers that vary; ``None`` if not all tasks have the same, or none varies."""
    entries = [task_numbers(task) for task in tasks]
    if any(entry.keys() != entries[0].keys() for entry in entries):
        return None
    columns = {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
    varying = {name: values for name, values in columns.items() if np.isfinite(values).all() and np.ptp(values) > 0}
    return varying or None


class _Seen(NamedTuple):
    """What a few rollouts in each task show; ``None`` where they are too short, or observations not of numbers."""

    first: list[np.ndarray] | None
    """Per task, observations at the reset."""
    later: list[np.ndarray] | None
    """Per task, all observations after that."""
    late: list[np.ndarray] | None
    """Per task, observations of the later half of rollouts."""
    infos: list[dict[str, float]]
    """Per task, what a reset tells."""


def _collect(spec: EnvSpec, updates: Sequence[EnvUpdate], num_steps: int, seed: int) -> _Seen:
    """A few rollouts in each task, with the same seeds and actions in all tasks."""
    parts: dict[str, list[np.ndarray] | None] = {"first": [], "later": [], "late": []}
    infos, env = [], None
    with isolated_rng(seed):
        for update in updates:
            env = update(env)
            seen: dict[str, list[Any]] = {name: [] for name in parts}
            for i in range(_ROLLOUTS):
                number = derive_seed("later", seed, i)
                trial = play(env, number, random_actions(spec.action_space, num_steps, number))
                seen["first"] += trial.observations[:1]
                seen["later"] += trial.observations[1:]
                seen["late"] += trial.observations[1 + len(trial.rewards) // 2 :]
            for name, elements in seen.items():
                table, so_far = flat_rows(spec.observation_space, elements), parts[name]
                enough = table is not None and (name == "first" or len(table) >= _FEWEST_ROWS)
                parts[name] = [*so_far, table] if so_far is not None and table is not None and enough else None
            infos.append(_numbers_of(env.reset(seed=derive_seed("later", seed))[1]))
        close_env(env)
    return _Seen(**parts, infos=infos)


def _constant_in_tasks(seen: _Seen) -> dict[int, int]:
    """Entry -> number of its values, where it is constant in each task, but not the same in all, nor at the reset.

    It may be noisy: what counts is that it moves little in a task, beside how tasks differ.
    """
    if seen.first is None or seen.later is None:
        return {}
    low, high = (np.stack([bound(part, axis=0) for part in seen.later]) for bound in (np.min, np.max))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return {}  # said of first observations, and of the reward
    middle = 0.5 * (low + high)
    moves, rounding = (high - low).max(axis=0), _ROUNDING * np.abs([low, high]).max(axis=(0, 1))
    constant = (moves <= rounding + _NOISE * middle.std(axis=0)) & (np.ptp(middle, axis=0) > 2 * rounding)
    margin = np.maximum(moves, rounding)
    begun = [np.abs(part - value).max(axis=0) <= margin for part, value in zip(seen.first, middle, strict=True)]
    entries = np.flatnonzero(constant & ~np.all(begun, axis=0))
    return {int(d): 1 + int((np.diff(np.sort(middle[:, d])) > margin[d]).sum()) for d in entries}


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
