"""Estimates from a log how far a robot's motion lags behind its commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaroll.checks import check_seed
from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError
from metaroll.lab.logs.series.lags import FEWEST_STEPS, Lag, compared_steps, estimate_lag

__all__ = ["lag_of_log", "lag_text", "log_lag"]


def log_lag(rollouts: Sequence[StepSequence], seed: int = 0) -> Lag:
    """The lag between commands and observations in steps, with a 95 % interval (see ``estimate_lag``).

    Args:
        rollouts: Rollouts of one robot; applied actions are used if recorded (``actions_applied``).
        seed: Seed of the bootstrap.

    Raises:
        TypeError: ``rollouts`` is not a list of rollouts.
        ValueError: There are fewer than 200 steps to compare, not counting the first 6 and the last 2 of each rollout.
        DataError: Observations or actions are not one-dimensional numbers.
    """
    seed = check_seed("seed", seed)
    observations, actions = _columns(rollouts)
    number = sum(int(np.count_nonzero(compared_steps(len(of_one)))) for of_one in actions)
    if number < FEWEST_STEPS:
        raise ValueError(
            f"rollouts must have at least {FEWEST_STEPS} steps to estimate a lag, not counting the first 6 and the "
            f"last 2 of each rollout, got {number}"
        )
    return estimate_lag(observations, actions, np.random.default_rng(seed))


def lag_of_log(rollouts: Sequence[StepSequence]) -> Lag:
    """``log_lag``, but for reports: NaN with wide bounds if there are too few steps."""
    observations, actions = _columns(rollouts)
    return estimate_lag(observations, actions, np.random.default_rng(0))


def lag_text(lag: Lag, dt: float | None) -> str:
    """A lag in words, with milliseconds if ``dt`` is known."""
    if not lag.is_known:
        return f"lag of commands: not identifiable from this log ({lag.low:.2g} to {lag.high:.2g} steps)"
    seconds = "" if dt is None else f" ({1000 * dt * lag.steps:.3g} ms)"
    if lag.high < 0.0:
        number = max(1, round(-lag.steps))
        where, rows = ("in the row", "a row") if number == 1 else (f"{number} rows", f"{number} rows")
        return (
            f"lag of commands: {lag.steps:.2g} steps{seconds}, {lag.low:.2g} to {lag.high:.2g} with 95 %: commands "
            f"are logged {where} after the row from which they acted; move their columns up by {rows}"
        )
    text = f"lag of commands: {lag.steps:.2g} steps{seconds}, {lag.low:.2g} to {lag.high:.2g} with 95 %"
    return text if lag.low <= 0.0 else f"{text}; a simulator needs it too (ActDelayWrapper, act_delay)"


def _columns(rollouts: Sequence[StepSequence]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Observations ``(T+1, O)`` and commands ``(T, A)`` of each rollout."""
    rollouts = listed_rollouts(rollouts)
    fields = ["actions_applied" if "actions_applied" in one.data_names else "actions" for one in rollouts]
    observations = [_numbers(one, "observations") for one in rollouts]
    return observations, [_numbers(one, field) for one, field in zip(rollouts, fields, strict=True)]


def _numbers(rollout: StepSequence, name: str) -> np.ndarray:
    """A field as numbers ``(T, width)``; choices are one column."""
    values = rollout.get_data_values(name)
    if not isinstance(values, np.ndarray) or values.ndim > 2 or values.dtype.kind not in "biuf":
        raise DataError(f"{name} must be one-dimensional numbers to estimate a lag, got {type(values).__name__}")
    return values.reshape(len(values), -1).astype(np.float64)
