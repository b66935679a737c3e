"""Initial states of simulated segments of recorded rollouts: recorded states, or states from observations."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.checks import array_of
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import declared_state
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DataError
from metaroll.functional.philox import normals, stream_keys
from metaroll.functional.series.noise import smoothed_rows
from metaroll.tasks.plan_table import START_NOISE

__all__ = ["ObservedState", "SegmentStarts", "observed_states", "surely_observed"]

ObservedState = Callable[[np.ndarray], np.ndarray]
"""From observations ``(N, O)`` to the states ``(N, S)`` that they show; NaN where one does not determine it."""
_MOST_OFF = 3.0
"""Deviations by which a measurement may differ from the truth: for drawn starts, and for bounds of observations."""


@dataclass(frozen=True, eq=False)
class SegmentStarts:
    """First states of G segments of R rollouts, one rollout after the other.

    Attributes:
        segments: Steps of the segments of each rollout.
        states: Where simulations of the R G segments start, ``(S,)`` each.
        measured: Measurements there, ``(R G, C)``: states or observations, smoothed; ``None`` where a function of
            the user gives the states.
        stds: Deviations of what noise is left in it, ``(R G, C)``.
        state_of: From measured rows to states; ``None``: they are states.
    """

    segments: tuple[int, ...]
    states: list[np.ndarray]
    measured: np.ndarray | None = None
    stds: np.ndarray | None = None
    state_of: ObservedState | None = None

    @classmethod
    def of(
        cls,
        rollouts: Sequence[StepSequence],
        names: Sequence[str],
        segments: tuple[int, ...],
        initial_state: Callable[[StepSequence], Any] | None,
        observed_state: ObservedState,
        noise: Mapping[str, np.ndarray],
    ) -> SegmentStarts:
        """The starts of segments of rollouts of one length.

        Args:
            rollouts: Recorded ones.
            names: Their name in errors.
            segments: Steps of the segments, which begin a little earlier or later where an observation at their first
                row does not determine the state.
            initial_state: From a segment to its first state; ``None``: the recorded state, or what ``observed_state``
                gives for the observation.
            observed_state: See ``ObservedState``.
            noise: Deviation of the noise in ``states`` and ``observations``, as far as there is any, ``(C,)`` each, or
                ``(R, C)`` where it differs between rollouts.

        Raises:
            DataError: Nothing determines the states.
            ValueError: They are not finite, or observations do not determine them.
        """
        if initial_state is not None:
            return cls(segments, _chosen(rollouts, names, segments, initial_state))
        if all("states" in recorded.data_names for recorded in rollouts):
            field, state_of = "states", None
        else:
            field, state_of = "observations", observed_state
        series = [np.asarray(one.get_data_values(field), dtype=np.float64)[: len(one)] for one in rollouts]
        series = [one.reshape(len(one), -1) for one in series]
        known = np.broadcast_to(noise.get(field, np.zeros(series[0].shape[1])), (len(series), series[0].shape[1]))
        if state_of is not None:
            segments = _observed_segments(series, names, segments, state_of, known)
        first_rows, _ = _edges(segments)
        measured, stds = [], []
        for one, its_noise in zip(series, known, strict=True):
            smoothed = smoothed_rows(one, first_rows, its_noise)
            measured.append(smoothed[0])
            stds.append(smoothed[1])
        rows = np.concatenate(measured)
        states = np.array(rows if state_of is None else state_of(rows), dtype=np.float64)
        for place, state in enumerate(states):
            if not np.isfinite(state).all():
                number, segment = divmod(place, len(segments))
                raise ValueError(
                    f"{names[number]} must have finite states to start from, got {state} at step {first_rows[segment]}"
                )
        return cls(segments, list(states), rows, np.concatenate(stds), state_of)

    @property
    def are_drawn(self) -> bool:
        """Whether noise is left in them, so that each simulation starts in its own state."""
        return self.stds is not None and bool(self.stds.any())

    def of_simulations(self, seeds: np.ndarray) -> list[np.ndarray]:
        """Where B sets of simulations start, B R G states, whose plans have seed triples ``(B R G, 3)``."""
        if not self.are_drawn or self.measured is None:
            return self.states * (len(seeds) // len(self.states))
        numbers = normals(stream_keys(seeds), START_NOISE, 0, self.measured.shape[1])
        return self.drawn(numbers.reshape(-1, *self.measured.shape).astype(np.float64))

    def drawn(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Where B sets of simulations start, B R G states, from standard normal numbers ``(B, R G, C)``.

        The true state is not known better than to ``stds``: a simulation with the right parameters that starts in the
        measured one would go another way than the robot. Starts that are spread as the measurement is make up for it.
        """
        if self.measured is None or self.stds is None:
            raise ValueError("starts that a function returns are not drawn")
        rows = self.measured + self.stds * np.clip(numbers, -_MOST_OFF, _MOST_OFF)
        flat = rows.reshape(-1, rows.shape[2])
        states = flat if self.state_of is None else np.asarray(self.state_of(flat), dtype=np.float64)
        observed = np.asarray(np.isfinite(states).all(axis=1))
        known = np.tile(np.stack(self.states), (len(numbers), 1))
        return list(np.where(observed[:, None], states, known))


def observed_states(source: EnvSource, observations: np.ndarray) -> np.ndarray:
    """The states ``(N, S)`` in which a simulator shows observations ``(N, O)``, where it gives them."""
    made = source.make()
    try:
        return declared_state(made, observations)
    finally:
        source.close(made)


def surely_observed(observed_state: ObservedState, rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Which noisy observations ``(N, C)`` determine the state, bool ``(N,)``, with deviations ``noise (C,)``.

    One that does would determine it a few deviations to either side, too. A speed that is shown clipped at 10 reads 9.9
    with
    noise: simulations from there would go another way than the robot.
    """
    observed = np.asarray(np.isfinite(observed_state(rows)).all(axis=1))
    for entry in np.flatnonzero(noise > 0.0):
        for aside in (-_MOST_OFF, _MOST_OFF):
            moved = rows.copy()
            moved[:, entry] += aside * noise[entry]
            observed = observed & np.isfinite(observed_state(moved)).all(axis=1)
    return observed


def _edges(segments: Sequence[int]) -> tuple[list[int], list[int]]:
    """Where segments begin and end."""
    ends = list(itertools.accumulate(segments))
    return [0, *ends[:-1]], ends


def _chosen(
    rollouts: Sequence[StepSequence],
    names: Sequence[str],
    segments: tuple[int, ...],
    initial_state: Callable[[StepSequence], Any],
) -> list[np.ndarray]:
    states = []
    for recorded, name in zip(rollouts, names, strict=True):
        for begin, end in zip(*_edges(segments), strict=True):
            segment = copy.deepcopy(recorded[begin:end])  # the function may change its argument
            state = array_of("what initial_state returns", initial_state(segment), "a state (S,)")
            if not np.isfinite(state).all():
                raise ValueError(f"{name} must have finite states to start from, got {state} at step {begin}")
            states.append(np.array(state, dtype=np.float64))
    return states


def _observed_segments(
    series: Sequence[np.ndarray],
    names: Sequence[str],
    segments: tuple[int, ...],
    observed_state: ObservedState,
    noise: np.ndarray,
) -> tuple[int, ...]:
    """Segments whose first rows determine the state in all rollouts, each start moved by less than half a segment."""
    observed, surely = [], []
    for shown, its_noise, name in zip(series, noise, names, strict=True):
        try:
            observed.append(surely_observed(observed_state, shown, np.zeros_like(its_noise)))
            surely.append(surely_observed(observed_state, shown, its_noise))
        except NotImplementedError as error:
            raise DataError(
                f"nothing determines the states in which simulations of {name} start: {error}. Give the simulator a "
                "method state_from_observation(observations), and let its reset start in options['init_state'] "
                "(docs/your_simulator.md); or map states in the log, or, from Python, pass initial_state, a function "
                "from a segment to its first state"
            ) from error
    begins, ends = _edges(segments)
    moved, every, sure = [], np.stack(observed), np.stack(surely)
    for begin in begins:
        reach = max(segments) // 2 - 1 if begin else 0
        rows = _rows_near(sure, begin, reach)
        rows = rows if len(rows) else _rows_near(every, begin, reach)
        if not len(rows):
            raise _undetermined(names[int(np.flatnonzero(~every[:, begin])[0])], begin)
        moved.append(int(rows[np.argmin(np.abs(rows - begin))]))
    if moved == begins:
        return segments
    warnings.warn(
        f"segments start at rows {moved[1:]} instead of {begins[1:]} (counted from 0): an observation there does not "
        "determine the state in all rollouts (e.g. a speed beyond the bounds to which the simulator clips it)",
        stacklevel=6,
    )
    return tuple(np.diff([*moved, ends[-1]]).tolist())


def _rows_near(observed: np.ndarray, begin: int, reach: int) -> np.ndarray:
    """Rows near ``begin`` at which all rollouts ``(R, T)`` determine their state."""
    low, stop = max(0, begin - reach), min(observed.shape[1], begin + reach + 1)
    return np.flatnonzero(observed[:, low:stop].all(axis=0)) + low


def _undetermined(name: str, begin: int) -> ValueError:
    way = "cut what lies before a row that does" if not begin else "choose another segment_length, or record states"
    return ValueError(
        f"{name} must show the state where a segment starts, but its observation at row {begin} (counted from "
        "0) does not determine it (e.g. a speed lies beyond the bounds to which the simulator clips what it shows), "
        f"nor does one near by in all rollouts; {way}, or map states in the log"
    )
