"""Estimates from a log how far a robot's motion lags behind its commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaroll.data.rollouts import listed_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError
from metaroll.lab.logs.series.lags import Lag, estimate_lag

__all__ = ["lag_text", "log_lag"]


def log_lag(rollouts: Sequence[StepSequence], seed: int = 0) -> Lag:
    """The lag between commands and observations in steps, with a 95 % interval (see ``estimate_lag``).

    Args:
        rollouts: Rollouts of one robot; applied actions are used if recorded (``actions_applied``).
        seed: Seed of the bootstrap.

    Raises:
        TypeError: ``rollouts`` is not a list of rollouts.
        DataError: Observations or actions are not one-dimensional numbers.
    """
    rollouts = listed_rollouts(rollouts)
    fields = ["actions_applied" if "actions_applied" in one.data_names else "actions" for one in rollouts]
    observations = [_numbers(one, "observations") for one in rollouts]
    actions = [_numbers(one, field) for one, field in zip(rollouts, fields, strict=True)]
    return estimate_lag(observations, actions, np.random.default_rng(seed))


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


def _numbers(rollout: StepSequence, name: str) -> np.ndarray:
    """A field as numbers ``(T, width)``; choices are one column."""
    values = rollout.get_data_values(name)
    if not isinstance(values, np.ndarray) or values.ndim > 2 or values.dtype.kind not in "biuf":
        raise DataError(f"{name} must be one-dimensional numbers to estimate a lag, got {type(values).__name__}")
    return values.reshape(len(values), -1).astype(np.float64)
