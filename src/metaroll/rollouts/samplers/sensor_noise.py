"""How noisy the sensors were that recorded rollouts: estimated from them, given, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, MetarollError, unknown_name
from metaroll.functional.series.noise import (
    deviation,
    difference_residuals,
    fitted_prediction_residuals,
    interpolation_residuals,
    noise_differs,
)
from metaroll.rollouts.samplers.one_step import OneStep

__all__ = ["EstimatedNoise", "SensorNoise", "estimated_noise", "given_noise", "least_noise", "typical"]

_NONE = 1e-5
"""Share of the range of a channel below which noise counts as none: numbers in single precision are rounded so."""
_LEAST = 1 / 100
"""Share of what a channel does in a segment: no simulator predicts it better; no row or command is quite on time."""
_FITS = 4
"""How often parameters are brought nearer to those that predict best."""
_FRACTION = 1e-3
"""Share of the prior's width, and of a channel's range, by which derivatives are taken."""
_FEWEST = 5
"""Rows that must be predicted, or predictions carry no information."""
_FEWEST_OF_EACH = 10
"""Rows of a rollout from which its own noise is estimated."""
_CANNOT = (MetarollError, NotImplementedError, ValueError)
"""Errors of a simulator that does not predict single steps."""


@dataclass(frozen=True, eq=False)
class SensorNoise:
    """Deviations of the noise of each channel; with a first axis R where R rollouts surely have other ones.

    Attributes:
        labels: Of the channels that are compared.
        stds: ``"states"`` or ``"observations"`` -> deviations of all its entries, ``(n,)`` or ``(R, n)``.
        found: Those of the channels that are compared, ``(C,)`` or ``(R, C)``.
        how: Where they come from, in words.
        is_estimated: Whether that is from the rollouts.
        assumed: Deviations of noise that recorded rollouts do not have and get, as simulations do, shaped as
            ``found``.
        inferred: Channels whose noise is a parameter of the posterior.
    """

    labels: tuple[str, ...]
    stds: Mapping[str, np.ndarray]
    found: np.ndarray
    how: str
    is_estimated: bool = False
    assumed: np.ndarray | None = None
    inferred: tuple[str, ...] = field(default=())

    @property
    def compared(self) -> np.ndarray:
        """Deviations of the channels of simulations, ``(C,)`` or ``(R, C)``."""
        return self.found if self.assumed is None else np.hypot(self.found, self.assumed)

    @property
    def differs(self) -> bool:
        """Whether rollouts have other ones, be it only of rows that simulations start from."""
        return any(values.ndim > 1 for values in (self.found, *self.stds.values()))

    @property
    def pooled(self) -> SensorNoise:
        """That of any other rollout: the root of the mean square, where rollouts differ."""
        assumed = None if self.assumed is None else typical(self.assumed)
        stds = {name: typical(values) for name, values in self.stds.items()}
        return replace(self, stds=stds, found=typical(self.found), assumed=assumed)

    def of_first(self, number: int) -> SensorNoise:
        """That of the first ``number`` rollouts."""
        return self._of(slice(number))

    def of_last(self, number: int) -> SensorNoise:
        """That of the last ``number`` rollouts, at least one."""
        return self._of(slice(-number, None))

    def _of(self, rollouts: slice) -> SensorNoise:
        if not self.differs:
            return self
        stds = {name: values[rollouts] if values.ndim > 1 else values for name, values in self.stds.items()}
        if self.found.ndim == 1:
            return replace(self, stds=stds)
        assumed = None if self.assumed is None else self.assumed[rollouts]
        return replace(self, stds=stds, found=self.found[rollouts], assumed=assumed)

    def to_dict(self) -> dict[str, Any]:
        """Channel -> deviation (``None`` where it is inferred), the estimate, and how, JSON types.

        Where rollouts differ, the root of the mean square, and the estimate in each.
        """
        entries: dict[str, Any] = {"how": self.how, "std": self._by_label(typical(self.compared))}
        entries["found"] = self._by_label(typical(self.found))
        if self.found.ndim > 1:
            entries["found_in_rollouts"] = [self._by_label(one) for one in self.found]
        return entries

    def _by_label(self, values: np.ndarray) -> dict[str, float | None]:
        return {
            label: None if label in self.inferred else float(f"{value:.6g}")
            for label, value in zip(self.labels, values, strict=True)
        }

    def __str__(self) -> str:
        known, assumed, less = [], [], False
        stds, finds = np.atleast_2d(self.compared).T, np.atleast_2d(self.found).T
        for label, each, found in zip(self.labels, stds, finds, strict=True):
            if label not in self.inferred and each.max() > 0.0:
                span = f"{each.min():.3g}" + (f" to {each.max():.3g}" if each.max() > each.min() else "")
                enough = bool((found >= each).any())
                less = less or (found.max() > 0.0 and not enough)
                (known if enough else assumed).append(f"{f'entry {label}' if label.isdigit() else label} {span}")
        how = self.how + (" (rollouts differ)" if known and self.found.ndim > 1 else "")
        parts = [f"{', '.join(known)}, {how}" if known else f"{'little' if less else 'none'}, {how}"]
        share = "a hundredth of what a segment shows"
        if assumed:
            some = f"less was found, and {share} is assumed, in" if known or less else f"{share} is assumed:"
            parts.append(f"{some} {', '.join(assumed)}")
        parts += [f"inferred: {', '.join(self.inferred)}"] if self.inferred else []
        return f"sensor noise: {'; '.join(parts)}"


class EstimatedNoise(NamedTuple):
    """Estimates of the noise of all entries of a field from recorded rollouts.

    Attributes:
        noise: Deviations, ``(n,)``.
        each: Those of R rollouts, ``(R, n)``.
        rows: Rows that each of these comes from, ``(R, n)``.
    """

    noise: np.ndarray
    each: np.ndarray
    rows: np.ndarray

    def by_rollout(self, least: np.ndarray) -> np.ndarray:
        """``(R, n)`` where that of any channel surely differs between rollouts and is not below ``least (n,)``.

        Else ``(n,)``. Where one channel differs, others may, by less than is sure.
        """
        differs = noise_differs(self.noise, self.each, self.rows) & (self.each.max(axis=0) > least)
        return self.each if differs.any() else self.noise


def typical(stds: np.ndarray) -> np.ndarray:
    """Of deviations ``(C,)`` or ``(R, C)`` typical ones for all rollouts, ``(C,)``."""
    return np.sqrt(np.square(np.atleast_2d(stds)).mean(axis=0))


def given_noise(noise: float | Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """Deviations of channels, ``(C,)``, that the user gives.

    Raises:
        DataError: There is no channel of a name.
    """
    if not isinstance(noise, Mapping):
        return np.full(len(labels), float(noise))
    for name in noise:
        if name not in labels:
            raise DataError(str(unknown_name("channel of noise", name, labels)))
    return np.array([float(noise.get(label, 0.0)) for label in labels])


def estimated_noise(
    rollouts: Sequence[StepSequence],
    field: str,
    action_field: str,
    predictions: OneStep | None,
    ranges: Mapping[str, tuple[float, float]],
    nominal: Mapping[str, float],
    entries: np.ndarray | None = None,
) -> EstimatedNoise:
    """Deviations of the noise of all entries of ``field``, as recorded rollouts show it.

    What is not noise (motion that no model of rows in time explains, a simulator that is wrong) makes each estimate
    larger, never smaller: the least one of each channel counts. Those of single rollouts come from the same residuals,
    of models that were fitted to all of them: one alone may have too few rows.

    Args:
        rollouts: Recorded ones.
        field: ``"states"`` or ``"observations"``.
        action_field: ``"actions"`` or ``"actions_applied"``.
        predictions: Of a simulator; ``None``: only the rows themselves are used.
        ranges: Name -> lowest and highest value that a parameter may have.
        nominal: Its value to begin with.
        entries: Which entries to estimate, bool ``(n,)``; others get zero. ``None``: all.
    """
    whole = [_flat(recorded, field) for recorded in rollouts]
    kept = np.arange(whole[0].shape[1]) if entries is None else np.flatnonzero(entries)
    series = [values[:, kept] for values in whole]
    inputs = [_flat(recorded, action_field) for recorded in rollouts]
    residuals = [difference_residuals(series), interpolation_residuals(series, inputs)]
    width = np.ptp(np.concatenate(series), axis=0)
    if predictions is not None:
        rough = np.zeros(whole[0].shape[1])
        rough[kept] = np.min([deviation(np.concatenate(parts)) for parts in residuals], axis=0)
        made = _left_by_predictions(predictions, rough, ranges, nominal, width, kept)
        if made is not None:
            left, of = made
            residuals.append([left[of == number] for number in range(len(series))])
    noise = np.min([deviation(np.concatenate(parts)) for parts in residuals], axis=0)
    apart = np.array([[deviation(part) for part in parts] for parts in residuals])
    counts = np.array([[np.isfinite(part).sum(axis=0) for part in parts] for parts in residuals])
    best = np.argmin(apart, axis=0)[None]
    each, rows = (np.take_along_axis(values, best, axis=0)[0] for values in (apart, counts))
    each = np.where(rows >= _FEWEST_OF_EACH, each, noise)
    every = [np.zeros((*values.shape[:-1], whole[0].shape[1])) for values in (noise, each, rows)]
    for values, target in zip((noise, each, rows), every, strict=True):
        target[..., kept] = np.where(np.isfinite(values) & (values > _NONE * width), values, 0.0)
    return EstimatedNoise(*every)


def least_noise(rollouts: Sequence[StepSequence], field: str, segment_length: int) -> np.ndarray:
    """Least deviations of all entries of ``field``, ``(n,)``, that are assumed: a hundredth of what a segment shows.

    Without any, a posterior after a log that seems to have no noise rests on what no robot keeps to: steps of equal
    length, commands that come in time. Of all segments the median counts: an angle that jumps in some is no motion.

    Args:
        rollouts: Recorded ones.
        field: ``"states"`` or ``"observations"``.
        segment_length: Steps of a segment.
    """
    series = [_flat(recorded, field) for recorded in rollouts]
    cut = [one[begin : begin + segment_length] for one in series for begin in range(0, len(one), segment_length)]
    return _LEAST * np.median([np.ptp(one, axis=0) for one in cut if len(one) > 1], axis=0)


def _flat(recorded: StepSequence, name: str) -> np.ndarray:
    values = np.asarray(recorded.get_data_values(name), dtype=np.float64)[: len(recorded)]
    return values.reshape(len(values), -1)


def _left_by_predictions(
    predictions: OneStep,
    rough: np.ndarray,
    ranges: Mapping[str, tuple[float, float]],
    nominal: Mapping[str, float],
    width: np.ndarray,
    kept: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Residuals of one-step predictions for the entries ``kept``, of the size of noise, ``(N, C)``.

    Only from rows that determine their state although their noise may be as large as ``rough (n,)``: what is predicted
    from a speed that was clipped, and appears as if it was not, misses by more than noise.

    Returns:
        Them (NaN where none was made), and whose rows they are, ``(N,)``; ``None`` where the simulator cannot make any.
    """
    try:
        predictions = predictions.from_observed(np.where(np.isfinite(rough), rough, 0.0))
    except _CANNOT:
        return None
    low, high = (np.array([ends[i] for ends in ranges.values()]) for i in (0, 1))
    theta = np.clip([nominal[name] for name in ranges], low, high)
    rows, best = predictions.before, None
    gains, unit = np.zeros((len(rows), len(kept), len(kept))), np.eye(rows.shape[1])
    steps = _FRACTION * np.where(width > 0.0, width, 1.0)
    moved = [rows + unit[entry] * step for entry, step in zip(kept, steps, strict=True)]

    def predicted(sets: Sequence[tuple[Mapping[str, float], np.ndarray]]) -> list[np.ndarray]:
        return [values[:, kept] for values in predictions.predicted(sets)]

    try:
        if not predictions.can_be_made(dict(zip(ranges, theta.tolist(), strict=True)), _FEWEST):
            return None
        for fit in range(_FITS):
            aside = _FRACTION * (high - low) * np.where(theta + _FRACTION * (high - low) <= high, 1.0, -1.0)
            sets = [theta, *(theta + np.eye(len(theta))[i] * aside[i] for i in range(len(theta)))]
            requests = [(dict(zip(ranges, one.tolist(), strict=True)), rows) for one in sets]
            base, *shifted = predicted(requests)
            if fit in (0, _FITS - 1):  # how errors of the row before continue hardly depends on the parameters
                gained = predicted([(requests[0][0], other) for other in moved])
                gains = np.stack([(one - base) / step for one, step in zip(gained, steps, strict=True)], axis=2)
            shape = (*base.shape, len(theta))
            slopes = np.stack([(o - base) / d for o, d in zip(shifted, aside, strict=True)], axis=2).reshape(shape)
            whole = np.isfinite(base).all(1) & np.isfinite(gains).all((1, 2)) & np.isfinite(slopes).all((1, 2))
            if whole.sum() < max(_FEWEST, len(theta)):
                break
            errors = (predictions.after[:, kept] - base)[whole]
            fitted, change = fitted_prediction_residuals(errors, slopes[whole], gains[whole])
            left = np.full_like(base, np.nan)
            left[whole] = fitted
            best = left if best is None else np.where(deviation(left) < deviation(best), left, best)
            theta = np.clip(theta + change, low, high)
    except _CANNOT:
        pass
    return None if best is None else (best, predictions.rollouts)
