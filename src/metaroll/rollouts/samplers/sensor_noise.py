"""Noise of the sensors that recorded rollouts: estimated from these, given, or none."""

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
"""Noise below this share of a channel's range counts as none: it may be rounding to single precision."""
_LEAST = 1 / 100
"""Minimum noise, as a share of a channel's range in a segment: no simulator is more exact, and no row or command is
exactly on time."""
_FITS = 4
"""Iterations of the fit of parameters to one-step predictions."""
_FRACTION = 1e-3
"""Step of finite differences, as a share of the prior's width or of a channel's range."""
_FEWEST = 5
"""Minimum number of predicted rows."""
_FEWEST_OF_EACH = 10
"""Minimum number of rows of a rollout for an estimate of its own noise."""
_CANNOT = (MetarollError, NotImplementedError, ValueError)
"""Errors of a simulator that does not predict single steps."""


@dataclass(frozen=True, eq=False)
class SensorNoise:
    """Standard deviations of the noise of each channel; with a first axis R if they surely differ between R rollouts.

    Attributes:
        labels: Labels of the compared channels.
        stds: ``"states"`` or ``"observations"`` -> deviations of all entries of that field, ``(n,)`` or ``(R, n)``.
        measured: Deviations of the compared channels in the recorded rollouts, ``(C,)`` or ``(R, C)``.
        how: Their source, in words.
        is_estimated: Whether they were estimated from the rollouts.
        assumed: Deviations of further noise that is added to simulations and to recorded rollouts, shaped like
            ``measured``.
        inferred: Channels whose noise is a parameter of the posterior.
    """

    labels: tuple[str, ...]
    stds: Mapping[str, np.ndarray]
    measured: np.ndarray
    how: str
    is_estimated: bool = False
    assumed: np.ndarray | None = None
    inferred: tuple[str, ...] = field(default=())

    @property
    def compared(self) -> np.ndarray:
        """Deviations of the channels of simulations, ``(C,)`` or ``(R, C)``."""
        return self.measured if self.assumed is None else np.hypot(self.measured, self.assumed)

    @property
    def differs(self) -> bool:
        """Whether noise differs between rollouts, if only in the rows that simulations start from."""
        return any(values.ndim > 1 for values in (self.measured, *self.stds.values()))

    @property
    def pooled(self) -> SensorNoise:
        """The noise to expect of any other rollout: the root mean square over rollouts if they differ."""
        assumed = None if self.assumed is None else typical(self.assumed)
        stds = {name: typical(values) for name, values in self.stds.items()}
        return replace(self, stds=stds, measured=typical(self.measured), assumed=assumed)

    def of_first(self, number: int) -> SensorNoise:
        """The noise of the first ``number`` rollouts."""
        return self._of(slice(number))

    def of_last(self, number: int) -> SensorNoise:
        """The noise of the last ``number`` rollouts, at least one."""
        return self._of(slice(-number, None))

    def _of(self, rollouts: slice) -> SensorNoise:
        if not self.differs:
            return self
        stds = {name: values[rollouts] if values.ndim > 1 else values for name, values in self.stds.items()}
        if self.measured.ndim == 1:
            return replace(self, stds=stds)
        assumed = None if self.assumed is None else self.assumed[rollouts]
        return replace(self, stds=stds, measured=self.measured[rollouts], assumed=assumed)

    def to_dict(self) -> dict[str, Any]:
        """Deviation (``None`` if inferred) and estimate by channel, and their source, as JSON types.

        If rollouts differ, these are root mean squares, and the estimates of each rollout are added.
        """
        entries: dict[str, Any] = {"how": self.how, "std": self._by_label(typical(self.compared))}
        entries["found"] = self._by_label(typical(self.measured))
        if self.measured.ndim > 1:
            entries["found_in_rollouts"] = [self._by_label(one) for one in self.measured]
        return entries

    def _by_label(self, values: np.ndarray) -> dict[str, float | None]:
        return {
            label: None if label in self.inferred else float(f"{value:.6g}")
            for label, value in zip(self.labels, values, strict=True)
        }

    def __str__(self) -> str:
        known, assumed, less = [], [], False
        columns = np.atleast_2d(self.compared).T, np.atleast_2d(self.measured).T
        for label, each, measured in zip(self.labels, *columns, strict=True):
            if label not in self.inferred and each.max() > 0.0:
                span = f"{each.min():.3g}" + (f" to {each.max():.3g}" if each.max() > each.min() else "")
                enough = bool((measured >= each).any())
                less = less or (measured.max() > 0.0 and not enough)
                (known if enough else assumed).append(f"{f'entry {label}' if label.isdigit() else label} {span}")
        how = self.how + (" (rollouts differ)" if known and self.measured.ndim > 1 else "")
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
        noise: Deviations over all rollouts, ``(n,)``.
        each: Deviations of each of R rollouts, ``(R, n)``.
        rows: Numbers of rows that ``each`` was estimated from, ``(R, n)``.
    """

    noise: np.ndarray
    each: np.ndarray
    rows: np.ndarray

    def by_rollout(self, least: np.ndarray) -> np.ndarray:
        """Deviations of each rollout, ``(R, n)``, if a channel with noise above ``least (n,)`` surely differs.

        Otherwise those of all rollouts together, ``(n,)``. If one channel surely differs, others may differ less
        clearly, so all channels are returned by rollout.
        """
        differs = noise_differs(self.noise, self.each, self.rows) & (self.each.max(axis=0) > least)
        return self.each if differs.any() else self.noise


def typical(stds: np.ndarray) -> np.ndarray:
    """Root mean square over rollouts of deviations ``(C,)`` or ``(R, C)``; shape ``(C,)``."""
    return np.sqrt(np.square(np.atleast_2d(stds)).mean(axis=0))


def given_noise(noise: float | Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """Deviations of channels, ``(C,)``, from those that the user has set.

    Raises:
        DataError: A name is not that of a channel.
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
    """Estimate the noise of all entries of ``field`` from recorded rollouts.

    Anything other than noise (motion that a model of the rows does not explain, errors of the simulator) makes an
    estimate larger, never smaller, so each channel gets the smallest of several estimates. Noise of single rollouts
    comes from the same residuals, of models that were fitted to all rollouts, since one alone may have too few rows.

    Args:
        rollouts: Recorded rollouts.
        field: ``"states"`` or ``"observations"``.
        action_field: ``"actions"`` or ``"actions_applied"``.
        predictions: One-step predictions of a simulator; ``None``: only the rows themselves are used.
        ranges: Name of each parameter -> its lowest and highest value.
        nominal: Name of each parameter -> its initial value.
        entries: Entries to estimate, bool ``(n,)``; others get zero. ``None``: all.
    """
    all_entries = [_flat(recorded, field) for recorded in rollouts]
    kept = np.arange(all_entries[0].shape[1]) if entries is None else np.flatnonzero(entries)
    series = [values[:, kept] for values in all_entries]
    inputs = [_flat(recorded, action_field) for recorded in rollouts]
    residuals = [difference_residuals(series), interpolation_residuals(series, inputs)]
    width = np.ptp(np.concatenate(series), axis=0)
    if predictions is not None:
        rough = np.zeros(all_entries[0].shape[1])
        rough[kept] = np.min([deviation(np.concatenate(parts)) for parts in residuals], axis=0)
        result = _prediction_residuals(predictions, rough, ranges, nominal, width, kept)
        if result is not None:
            left, rollout_of = result
            residuals.append([left[rollout_of == number] for number in range(len(series))])
    noise = np.min([deviation(np.concatenate(parts)) for parts in residuals], axis=0)
    apart = np.array([[deviation(part) for part in parts] for parts in residuals])
    counts = np.array([[np.isfinite(part).sum(axis=0) for part in parts] for parts in residuals])
    best = np.argmin(apart, axis=0)[None]
    each, rows = (np.take_along_axis(values, best, axis=0)[0] for values in (apart, counts))
    each = np.where(rows >= _FEWEST_OF_EACH, each, noise)
    every = [np.zeros((*values.shape[:-1], all_entries[0].shape[1])) for values in (noise, each, rows)]
    for values, target in zip((noise, each, rows), every, strict=True):
        target[..., kept] = np.where(np.isfinite(values) & (values > _NONE * width), values, 0.0)
    return EstimatedNoise(*every)


def least_noise(rollouts: Sequence[StepSequence], field: str, segment_length: int) -> np.ndarray:
    """Minimum deviations that are assumed for all entries of ``field``, ``(n,)``: 1 % of their range in a segment.

    Without a minimum, a posterior after a log that seems free of noise would rely on steps of equal length and on
    punctual commands, which no robot has. The range is the median over segments, since an angle that jumps in some of
    them has not moved that far.

    Args:
        rollouts: Recorded rollouts.
        field: ``"states"`` or ``"observations"``.
        segment_length: Steps of a segment.
    """
    series = [_flat(recorded, field) for recorded in rollouts]
    cut = [one[begin : begin + segment_length] for one in series for begin in range(0, len(one), segment_length)]
    return _LEAST * np.median([np.ptp(one, axis=0) for one in cut if len(one) > 1], axis=0)


def _flat(recorded: StepSequence, name: str) -> np.ndarray:
    values = np.asarray(recorded.get_data_values(name), dtype=np.float64)[: len(recorded)]
    return values.reshape(len(values), -1)


def _prediction_residuals(
    predictions: OneStep,
    rough: np.ndarray,
    ranges: Mapping[str, tuple[float, float]],
    nominal: Mapping[str, float],
    width: np.ndarray,
    kept: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Residuals of one-step predictions for the entries ``kept``, scaled to the size of the noise.

    Uses only rows that determine their state even with noise as large as ``rough (n,)``: predictions from a speed that
    was clipped, but does not look so, are wrong by more than noise.

    Returns:
        Residuals ``(N, C)``, NaN where there is no prediction, and the rollout of each row ``(N,)``; ``None`` if the
        simulator cannot predict single steps.
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
        if not predictions.can_predict(dict(zip(ranges, theta.tolist(), strict=True)), _FEWEST):
            return None
        for fit in range(_FITS):
            aside = _FRACTION * (high - low) * np.where(theta + _FRACTION * (high - low) <= high, 1.0, -1.0)
            sets = [theta, *(theta + np.eye(len(theta))[i] * aside[i] for i in range(len(theta)))]
            requests = [(dict(zip(ranges, one.tolist(), strict=True)), rows) for one in sets]
            base, *shifted = predicted(requests)
            if fit in (0, _FITS - 1):  # the propagation of errors hardly depends on the parameters
                gained = predicted([(requests[0][0], other) for other in moved])
                gains = np.stack([(one - base) / step for one, step in zip(gained, steps, strict=True)], axis=2)
            shape = (*base.shape, len(theta))
            slopes = np.stack([(o - base) / d for o, d in zip(shifted, aside, strict=True)], axis=2).reshape(shape)
            valid = np.isfinite(base).all(1) & np.isfinite(gains).all((1, 2)) & np.isfinite(slopes).all((1, 2))
            if valid.sum() < max(_FEWEST, len(theta)):
                break
            errors = (predictions.after[:, kept] - base)[valid]
            fitted, change = fitted_prediction_residuals(errors, slopes[valid], gains[valid])
            left = np.full_like(base, np.nan)
            left[valid] = fitted
            best = left if best is None else np.where(deviation(left) < deviation(best), left, best)
            theta = np.clip(theta + change, low, high)
    except _CANNOT:
        pass
    return None if best is None else (best, predictions.rollouts)
