"""Checks that recorded rollouts and a simulator have the same columns, time step and bounds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Box

from metaroll.data.rollouts import TIME_STEP, time_step
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import time_step_of
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.wrappers.base import changes_actions
from metaroll.errors import DataError
from metaroll.rollouts.samplers.series_features import applied_field
from metaroll.types import EnvSpec

__all__ = ["comparable", "compared_field", "starting_field"]

_SAME_STEP = 5e-3
"""Share by which time steps may differ and count as one: clocks of robots, and time stamps with few digits."""
_ROUNDED = 1e-3
"""Share of their range by which actions may lie outside of it: few digits in a log."""
_MOST = 0.5
_KINDS = {"observations": "observation", "states": "state", "actions": "action", "actions_applied": "action"}


def comparable(
    source: EnvSource, rollouts: Sequence[StepSequence], params: Sequence[str], *, own_start: bool = False
) -> list[StepSequence]:
    """Copies of rollouts with columns in the simulator's order.

    Warns if columns have other names than the simulator's and are matched by position, and if the simulator will clip
    actions.

    Args:
        source: The simulator.
        rollouts: Recorded rollouts; ``rollout_info`` may hold the columns (``env_spec``), and in ``dt``
            or its ``time`` how long a step was.
        params: Inferred parameters; if ``dt`` is one of them, time steps are not compared.
        own_start: Whether a user's function reads recorded segments, in the order of the recording.

    Raises:
        DataError: Only some have states, or columns have the simulator's names in other positions and lack one.
        ValueError: Their time step differs from the simulator's, or most of their actions are out of its bounds.
    """
    env = source.make()
    try:
        spec, dt, as_given = EnvSpec.from_env(env), time_step_of(env), changes_actions(env)
    finally:
        source.close(env)
    _check_states(rollouts)
    if dt is not None and TIME_STEP not in params:
        _check_time_steps(rollouts, dt)
    elif TIME_STEP not in params and (own := time_step(rollouts[0])) is not None:
        warnings.warn(
            "the simulator has no time step (an attribute dt, in s): its steps are assumed to be as long "
            f"as those of rollouts, {own:.4g} s",
            stacklevel=4,
        )
    played = applied_field(rollouts, as_given)
    fields = tuple(dict.fromkeys((compared_field(spec, rollouts), starting_field(rollouts), played)))
    ordered = [_ordered(rollout, number, fields, spec, own_start) for number, rollout in enumerate(rollouts)]
    # If applied actions are recorded as well, the recorder has limited the actions as the simulator will.
    if played == "actions_applied" or not all("actions_applied" in one.data_names for one in rollouts):
        _check_bounds(ordered, played, spec)
    return ordered


def compared_field(spec: EnvSpec, rollouts: Sequence[StepSequence]) -> Literal["states", "observations"]:
    """``"states"`` if rollouts have them and the simulator defines them, else ``"observations"``."""
    recorded = all("states" in rollout.data_names for rollout in rollouts)
    return "states" if recorded and spec.state_space is not None else "observations"


def starting_field(rollouts: Sequence[StepSequence]) -> str:
    """``"states"`` if rollouts have them, so that simulations start in them, else ``"observations"``."""
    return "states" if all("states" in rollout.data_names for rollout in rollouts) else "observations"


def _check_states(rollouts: Sequence[StepSequence]) -> None:
    lacking = [number for number, rollout in enumerate(rollouts) if "states" not in rollout.data_names]
    if lacking and len(lacking) < len(rollouts):
        raise DataError(
            f"rollouts must all have a field 'states', or none of them (then observations are compared), but of "
            f"{len(rollouts)} rollouts those at {', '.join(map(str, lacking))} (counted from 0) have none; leave them "
            "out, or record all in the same way"
        )


# ------------------------------------------------------------------------------------------------------------ time step
def _check_time_steps(rollouts: Sequence[StepSequence], dt: float) -> None:
    for number, rollout in enumerate(rollouts):
        own = time_step(rollout)
        if own is not None and abs(own - dt) > _SAME_STEP * dt:
            raise ValueError(
                f"recorded rollouts must have the time step of the simulator, {dt:g} s, but steps of rollout {number} "
                f"(counted from 0) take {own:.4g} s. Resample the log, metaroll import-log LOG --env SIM (or --dt "
                f"{dt:g}; in Python load_log(..., dt={dt:g})), or infer in a simulator with dt={own:.4g}"
            )


# -------------------------------------------------------------------------------------------------------------- columns
def _ordered(rollout: StepSequence, number: int, fields: Sequence[str], spec: EnvSpec, own_start: bool) -> StepSequence:
    """A rollout with the columns of ``fields`` in the order of ``spec``."""
    own = (rollout.rollout_info or {}).get("env_spec")
    if not isinstance(own, EnvSpec):
        return rollout
    for field in fields:
        name = f"{_KINDS[field]}_labels"
        recorded, wanted = _labels(own, field), _labels(spec, field)
        if recorded is None or wanted is None or recorded == wanted or len(recorded) != len(wanted):
            continue  # other widths are reported elsewhere
        mismatch = f"rollout {number} (counted from 0) has {name} {list(recorded)}, the simulator {list(wanted)}"
        if set(recorded) != set(wanted):
            if any(wanted.index(label) != recorded.index(label) for label in set(recorded) & set(wanted)):
                raise DataError(f"{mismatch}: name the columns as the simulator does (metaroll import-log --env SIM)")
            if not number:
                warnings.warn(f"{mismatch}: columns are matched by position", stacklevel=4)
            continue
        if own_start:
            raise DataError(
                f"{mismatch}: reorder them first (metaroll import-log --env SIM), since initial_state reads "
                "segments as they were recorded"
            )
        rollout = _permuted(rollout, field, [recorded.index(label) for label in wanted])
    return rollout


def _labels(spec: EnvSpec, field: str) -> tuple[str, ...] | None:
    by_kind = {
        "observation": spec.observation_labels,
        "state": spec.state_labels,
        "action": spec.action_labels,
    }
    labels = by_kind[_KINDS[field]]
    return None if labels is None else tuple(labels)


def _permuted(rollout: StepSequence, field: str, order: list[int]) -> StepSequence:
    def columns(values: Any) -> Any:
        return values[:, order]

    return StepSequence.process_data(
        rollout, columns, "values", fcn_arg_types=(np.ndarray, torch.Tensor), include_fields=[field]
    )


# --------------------------------------------------------------------------------------------------------------- bounds
def _check_bounds(rollouts: Sequence[StepSequence], field: str, spec: EnvSpec) -> None:
    """Warn about actions that the simulator will clip, or raise an error if these are most of them."""
    space = spec.action_space
    if not isinstance(space, Box):
        return
    low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
    values = [np.asarray(rollout.get_data_values(field), dtype=np.float64)[: len(rollout)] for rollout in rollouts]
    if any(rollout.size != len(rollout) * len(low) for rollout in values):
        return  # other widths are reported elsewhere
    actions = np.concatenate([rollout.reshape(len(rollout), -1) for rollout in values])
    slack = _ROUNDED * np.where(np.isfinite(high - low), high - low, 1.0)
    shares = ((actions < low - slack) | (actions > high + slack)).mean(axis=0)
    labels = spec.action_labels or tuple(f"action {i}" for i in range(len(low)))
    for column in np.flatnonzero(shares).tolist():
        beyond = np.maximum(low[column] - actions[:, column], actions[:, column] - high[column])
        farthest = actions[np.nanargmax(beyond), column]
        message = (
            f"{field} of the recorded rollouts must lie within the bounds of the simulator, which clips them: "
            f"{labels[column]!r} reaches {farthest:.4g}, outside of [{low[column]:.4g}, {high[column]:.4g}], and is "
            f"outside in {100 * shares[column]:.2g} % of the steps"
        )
        if shares[column] > _MOST:
            raise ValueError(
                f"{message}. Check its unit and scale (metaroll import-log --env SIM does); if the robot clips them "
                "too, clip them in the log (outside: clip in its mapping)"
            )
        warnings.warn(f"{message}; check its unit and scale, unless the robot clips it too", stacklevel=4)
