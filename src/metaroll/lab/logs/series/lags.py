"""Time from a command until a system begins to follow it: lags in fractions of a step, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["FEWEST_STEPS", "Lag", "compared_steps", "estimate_lag", "held_later"]

_BLOCK = 25
"""Steps per block of the bootstrap: blocks are resampled as a whole, since errors of neighboring steps correlate."""
_FEWEST_BLOCKS = 8
FEWEST_STEPS = _FEWEST_BLOCKS * _BLOCK
"""Minimum number of steps from which a lag is estimated."""
_FLOOR = 1e-10
"""An error below this share of the changes is a rounding error."""
_RIDGE = 1e-9
"""Ridge for collinear columns, such as sine and cosine near a stop."""
_MOST_COLUMNS = 64
_OF_THE_OTHER, _BEYOND = 0.25, 2.0
"""A negative lag is chosen if adding the best other lag gains at most this share of its own gain, and if that gain
exceeds this factor times the information that a controller's commands have from the observations of their own row."""
_FAR_BELOW = -0.45
"""A lower quantile of resampled lags at or below this is not due to chance: the interval always includes it."""
_LEAST_REST = 0.01
"""Minimum share of the variance of commands that is not a linear function of the observations of their row."""
_KNOWN_WIDTH = 1.0
"""Maximum width of the interval, in steps, of a lag that counts as known."""


class Lag(NamedTuple):
    """A lag in steps, and its interval.

    Attributes:
        steps: The most likely lag; NaN if the log is too short. A negative lag means that commands are recorded in rows
            after they acted.
        low: Lower bound.
        high: Upper bound.
    """

    steps: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether the interval is at most one step wide."""
        return self.high - self.low <= _KNOWN_WIDTH


def held_later(actions: np.ndarray, lag: float) -> np.ndarray:
    """Means over steps of commands that act ``lag`` steps late, ``(N, A)``; NaN where they would need unknown commands.

    With ``lag = m + f``: ``(1 - f) u_{k-m} + f u_{k-m-1}``.

    Args:
        actions: Command of each step, ``(N, A)``.
        lag: Steps; negative for commands that are recorded in rows after they acted.
    """
    steps = math.floor(lag)
    fraction = lag - steps
    unknown = np.full((abs(steps) + 1, actions.shape[1]), np.nan)
    padded = np.concatenate([unknown, actions, unknown])
    first = len(unknown) - steps
    newer, older = padded[first : first + len(actions)], padded[first - 1 : first - 1 + len(actions)]
    return newer if fraction == 0.0 else (1.0 - fraction) * newer + fraction * older


def compared_steps(num_steps: int, min_lag: float = -2.0, max_lag: float = 5.0) -> np.ndarray:
    """The steps of a rollout at which the commands of all candidates are known, as truth values ``(num_steps,)``."""
    steps = np.arange(num_steps)
    return (steps > max_lag) & (steps < num_steps + math.floor(min_lag))


def estimate_lag(
    observations: Sequence[np.ndarray],
    actions: Sequence[np.ndarray],
    generator: np.random.Generator,
    *,
    min_lag: float = -2.0,
    max_lag: float = 5.0,
    resolution: float = 0.1,
    num_reps: int = 200,
    confidence: float = 0.95,
) -> Lag:
    """Estimate the lag between commands and their effect on observations, by the profile likelihood of a linear model.

    For each lag it fits ``x_{k+1} - x_k = A x_k + B u(held over [t_k - lag, t_{k+1} - lag]) + c + e_k`` by least
    squares, and takes the lag that maximizes ``-N/2`` times the sum over entries of ``log sum e^2``. The interval is
    that of a bootstrap of blocks of 25 steps (Künsch 1989), which repeats all of this, widened by half of
    ``resolution``.

    Commands that a controller computes from observations carry information about the observations of their own row
    without acting: at most ``-N/2 log det(1 - R^2)``. A negative lag is therefore chosen only if its gain is at least
    twice that, and the best other lag gains little more; if its gain is smaller, the interval still contains it.

    The errors of a linear model of a nonlinear system count as noise. If speeds are not observed, the lag may seem
    longer than it is.

    Args:
        observations: Observations of each rollout, ``(T+1, O)``.
        actions: Commands held during its steps, ``(T, A)``.
        generator: Source of randomness.
        min_lag: Smallest candidate, in steps; at most 0.
        max_lag: Largest candidate, in steps.
        resolution: Distance of neighboring candidates, in steps.
        num_reps: Number of resamples.
        confidence: Level of the interval.

    Returns:
        The lag; NaN with the bounds 0 and ``max_lag`` if there are fewer than 8 blocks or more than 64 observations, or
        if all but a hundredth of the commands is a linear function of the observations of their row.

    Raises:
        ShapeError: The shapes of observations and actions do not fit.
    """
    for x, u in zip(observations, actions, strict=True):
        if x.ndim != 2 or u.ndim != 2 or len(x) != len(u) + 1:
            raise ShapeError(f"observations (T+1, O) and actions (T, A) do not fit: {x.shape} and {u.shape}")
    unknown = Lag(float("nan"), 0.0, max_lag)
    lags = resolution * np.arange(round(min_lag / resolution), round(max_lag / resolution) + 1)
    if not observations:
        return unknown
    changes = np.concatenate([np.diff(x, axis=0) for x in observations])
    states = np.concatenate([x[:-1] for x in observations])
    used = np.concatenate([compared_steps(len(u), min_lag, max_lag) for u in actions])  # the same for all lags
    blocks = int(np.count_nonzero(used)) // _BLOCK
    if blocks < _FEWEST_BLOCKS:
        return unknown
    changes, states = _scaled(changes[used]), _scaled(states[used])
    if not changes.size or states.shape[1] > _MOST_COLUMNS:
        return unknown
    drawn = generator.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=num_reps)
    weights = np.concatenate([np.ones((1, blocks)), drawn])

    def held(lag: float) -> np.ndarray:
        return _scaled(np.concatenate([held_later(u, lag) for u in actions])[used])

    def fits(*commands: np.ndarray, by: np.ndarray = weights) -> np.ndarray:
        design = np.concatenate([np.ones((len(states), 1)), states, *commands], axis=1)
        return _log_likelihood(design, changes, blocks, by)

    profiles = np.array([fits(held(lag)) for lag in lags])
    after = lags > -0.5 * resolution
    early, usual = (lags[of][np.argmax(profiles[of, 0])] for of in (~after, after)) if not after.all() else (0.0, 0.0)
    equal = weights[:1]  # every block once
    together, alone = fits(held(early), held(usual), by=equal)[0], fits(held(early), by=equal)[0]
    gained = together - fits(held(usual), by=equal)[0]
    rest = _unexplained(held(0.0), states)
    if rest.size and np.square(rest).mean() < _LEAST_REST:
        return unknown
    tail, half = 0.5 * (1.0 - confidence), 0.5 * resolution
    lowest = float(np.quantile(lags[np.argmax(profiles, axis=0)][1:], tail))
    if gained <= _BEYOND * _shared_information(held(0.0), rest) or together - alone > _OF_THE_OTHER * gained:
        lags, profiles = lags[after], profiles[after]
    best = lags[np.argmax(profiles, axis=0)]
    low, high = np.quantile(best[1:], [tail, 1.0 - tail])
    if low >= 0.0 > _FAR_BELOW >= lowest:  # a real lag, or only the dependence of a controller's commands on their row
        return Lag(float(best[0]), lowest - half, float(max(high, best[0])) + half)
    least = min(0.0, float(lags[0]))
    return Lag(float(best[0]), max(least, float(min(low, best[0])) - half), float(max(high, best[0])) + half)


def _unexplained(commands: np.ndarray, states: np.ndarray) -> np.ndarray:
    """The part of ``commands (N, A)`` that is not a linear function of the ``states (N, O)`` of their row."""
    return commands - states @ np.linalg.lstsq(states, commands, rcond=None)[0] if states.size else commands


def _shared_information(commands: np.ndarray, rest: np.ndarray) -> float:
    """Information, in nats, of a linear controller's commands about their row: at most ``-N/2 log det(1 - R^2)``.

    This is what they know of the row by having been computed from it, not by acting on it.

    Args:
        commands: ``(N, A)``.
        rest: Their part that is not a linear function of the row, ``(N, A)``.
    """
    small = _RIDGE * np.eye(commands.shape[1])
    before, after = (np.linalg.slogdet(each.T @ each / len(each) + small)[1] for each in (commands, rest))
    return 0.5 * len(commands) * float(before - after)


def _log_likelihood(design: np.ndarray, changes: np.ndarray, blocks: int, weights: np.ndarray) -> np.ndarray:
    """Log-likelihood ``(R,)`` of the best linear model for each of R sets of block ``weights (R, blocks)``."""
    both = np.concatenate([design, changes], axis=1)[: blocks * _BLOCK].reshape(blocks, _BLOCK, -1)
    products = np.einsum("bki,bkj->bij", both, both)
    sums = np.tensordot(weights, products, axes=1)  # (R, P + O, P + O)
    width = design.shape[1]
    inner = sums[:, :width, :width] + _RIDGE * blocks * _BLOCK * np.eye(width)
    mixed, squares = sums[:, :width, width:], np.diagonal(sums[:, width:, width:], axis1=1, axis2=2)
    errors = squares - np.sum(mixed * np.linalg.solve(inner, mixed), axis=1)
    return -0.5 * blocks * _BLOCK * np.log(np.maximum(errors, _FLOOR * squares)).sum(axis=1)


def _scaled(values: np.ndarray) -> np.ndarray:
    """The columns that vary, standardized to mean 0 and standard deviation 1."""
    centered = values - values.mean(axis=0)
    spread = centered.std(axis=0)
    moving = spread > 1e-12 * np.maximum(np.abs(values).max(axis=0, initial=0.0), 1e-300)
    return centered[:, moving] / spread[moving]
