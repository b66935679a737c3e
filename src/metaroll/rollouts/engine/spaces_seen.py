"""Warnings, once, where an environment violates its declared spaces: nothing else would show it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.data.data_format import iterate_leaves
from metaroll.data.replay.streams import named_leaves
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.scaling import NO_BOUND

__all__ = ["warn_of_actions", "warn_of_observations"]

_SLACK = 1e-3
"""Tolerance, as a share of the width of the bounds: observations in single precision may exceed them by rounding."""


def warn_of_actions(policy: Any) -> None:
    """Warn about action entries without bounds if the policy limits them, and about entries that cannot vary."""
    if not isinstance(policy, ActingPolicy) or not isinstance(policy.env_spec.action_space, Box):
        return
    space = policy.env_spec.action_space
    low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
    open_ended = (low < -NO_BOUND) | (high > NO_BOUND)
    if open_ended.any() and policy.acts_in_bounds:
        place = int(np.flatnonzero(open_ended)[0])
        reach = f"[{max(-1.0, low[place]):g}, {min(1.0, high[place]):g}]"
        warnings.warn(
            f"{_entries(open_ended, 'action')} of {space} lacks a bound, and the policy keeps it in {reach}; if it "
            "should go farther, declare how far: action_space = Box(low, high)",
            stacklevel=3,
        )
    if (low == high).any():
        place = int(np.flatnonzero(low == high)[0])
        warnings.warn(
            f"{_entries(low == high, 'action')} of {space} can only be {low[place]:g}: leave it "
            "out of the action space",
            stacklevel=3,
        )


def warn_of_observations(space: Any, observations: Any) -> None:
    """Warn of observations ``(T, ...)`` of one rollout outside of their space, or of a Box that is a part of it."""
    leaves = {"".join(f"[{key!r}]" for key in path): leaf for path, leaf in iterate_leaves(observations)}
    for name, part in named_leaves(space, ""):
        values = leaves.get(name)
        if not isinstance(part, Box) or not isinstance(values, np.ndarray):
            continue
        rows = values.reshape(len(values), -1).astype(np.float64, copy=False)
        low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (part.low, part.high))
        if rows.shape[1] != len(low):
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            slack = _SLACK * np.where(np.isfinite(high - low), high - low, 1.0)
            outside: np.ndarray = (rows < low - slack) | (rows > high + slack)
        if not outside.any():
            continue
        row, place = (int(at[0]) for at in np.nonzero(outside))
        warnings.warn(
            f"observations lie outside of their space: {_entries(np.any(outside, axis=0), f'observation{name}')} is "
            f"{rows[row, place]:g} in step {row} of the first rollout, and {low[place]:g} to {high[place]:g} is "
            "declared: declare bounds that hold",
            stacklevel=3,
        )
        return


def _entries(chosen: np.ndarray, what: str) -> str:
    """``entry 2 of actions``, and how many more there are."""
    first, more = int(np.flatnonzero(chosen)[0]), int(chosen.sum()) - 1
    suffix = f" (and {more} more)" if more else ""
    return f"{what} {first}{suffix}"
