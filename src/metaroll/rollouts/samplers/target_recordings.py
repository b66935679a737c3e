"""Recordings of the target domain, checked and cut into the segments that simulations follow."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from metaroll.checks import described
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.rollouts.samplers.segment_starts import ObservedState, SegmentStarts
from metaroll.rollouts.samplers.series_features import applied_field, series_of
from metaroll.types import EnvSpec, flat_dim

__all__ = ["TargetRecordings", "checked_recordings"]


@dataclass(frozen=True, eq=False)
class TargetRecordings:
    """Recorded rollouts of one length that simulations follow, segment by segment.

    Attributes:
        series: Their time series, ``(R, T, D)``.
        starts: Where each segment of each rollout starts, and how many steps it has.
        fields: Sources of the rows of a series: the field of states, and that of actions.
        actions: Actions of each, ``(T, A)``, or ``(T,)`` of choices.
        contexts: Contexts that make a ``PlaybackPolicy`` play each segment.
    """

    series: np.ndarray
    starts: SegmentStarts
    fields: tuple[str, str]
    actions: list[np.ndarray]
    contexts: list[dict[str, np.ndarray]]

    @classmethod
    def of(
        cls,
        rollouts: Any,
        spec: EnvSpec,
        state_field: str,
        cut: Callable[[int], tuple[int, ...]],
        initial_state: Callable[[StepSequence], Any] | None,
        observed_state: ObservedState,
        as_given: bool = False,
        *,
        entries: np.ndarray | None = None,
        noise: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> TargetRecordings:
        """From rollouts that were recorded.

        Args:
            rollouts: A list of ``StepSequence``; not changed.
            spec: Spec of the simulation, which must show the recorded observations and accept the recorded actions.
            state_field: ``"states"`` or ``"observations"``.
            cut: From a number of steps to the steps of the segments.
            initial_state: From a segment to the state in which its simulation starts; ``None``: its first state.
            observed_state: From observations to the states in which they are shown, where states are not recorded.
            as_given: Take actions as they were given, since the simulation has wrappers that change them (e.g. a delay)
                on the way to what is applied.
            entries: Which entries of a state (or observation) series hold, bool ``(n,)``; ``None``: all.
            noise: Deviation of the noise in ``states`` and ``observations``, if there is any, ``(n,)`` or ``(R, n)``.
        """
        listed = checked_recordings(rollouts)
        names = [f"rollouts_real[{number}]" for number in range(len(listed))]
        fields = (state_field, applied_field(listed, as_given))
        series = [series_of(recorded, *fields, name) for recorded, name in zip(listed, names, strict=True)]
        _check_widths(series, names, spec, fields)
        if entries is not None:
            kept = np.concatenate([np.flatnonzero(entries), np.arange(len(entries), series[0].shape[1])])
            series = [values[:, kept] for values in series]
        segments = cut(len(listed[0]))
        if max(segments) < 2:
            raise ValueError(
                "segments must have at least 2 steps, got 1: each starts in the recorded state, so that its features "
                "carry no information about the parameters; give fewer num_segments, or a higher len_segments"
            )
        starts = SegmentStarts.of(listed, names, segments, initial_state, observed_state, noise)
        begins = [0, *itertools.accumulate(starts.segments[:-1])]
        contexts = [
            {"recording": np.array(number), "start": np.array(begin)}
            for number in range(len(listed))
            for begin in begins
        ]
        actions = [_as_recorded(recorded, fields[1]) for recorded in listed]
        return cls(np.stack(series), starts, fields, actions, contexts)

    @property
    def segments(self) -> tuple[int, ...]:
        """Steps of the segments of each rollout."""
        return self.starts.segments

    @property
    def first_rows(self) -> np.ndarray:
        """Measured states (or observations) at the starts of segments, ``(R G, S)``."""
        begins = [0, *itertools.accumulate(self.segments[:-1])]
        acts = self.actions[0].reshape(len(self.actions[0]), -1).shape[1]
        return self.series[:, begins, :-acts].reshape(len(self.series) * len(begins), -1)

    def with_noise(self, stds: np.ndarray, seed: int) -> TargetRecordings:
        """The same, where states (or observations) of series, not starts, have noise.

        Args:
            stds: Its deviations, ``(S,)``, or ``(R, S)`` for rollouts with other ones.
            seed: Seed of the noise.
        """
        series = self.series.copy()
        shown = series[:, :, : stds.shape[-1]]
        shown += np.expand_dims(stds, -2) * np.random.default_rng(seed).standard_normal(shown.shape)
        return replace(self, series=series)

    def digest(self) -> str:
        """Of all that simulations follow: other recordings, starts or segments have another one."""
        hashed = hashlib.sha256(repr((self.fields, self.segments, self.series.shape)).encode())
        for part in (self.series, *self.actions, *self.starts.states):
            hashed.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        return hashed.hexdigest()[:16]

    def check_actions(self, spec: EnvSpec) -> None:
        """``ValueError`` where a recorded action lies outside the bounds of ``env``."""
        space = spec.action_space
        if not isinstance(space, Box):
            return
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
        slack = 1e-6 * np.maximum(1.0, np.where(np.isfinite(high - low), high - low, 1.0))
        for number, actions in enumerate(self.actions):
            outside = (actions < low - slack) | (actions > high + slack)
            if outside.any():
                step = int(np.flatnonzero(outside.any(axis=1))[0])
                raise ValueError(
                    f"actions of rollouts_real[{number}] must lie within the bounds of env, {low} to {high}, got "
                    f"{actions[step]} at step {step}; record what was applied (actions_applied), or pass "
                    "clip_actions=True to play them clipped"
                )


def checked_recordings(rollouts: Any, names: Sequence[str] = ()) -> list[StepSequence]:
    """Copies of recorded rollouts in NumPy, which must have one length."""
    if isinstance(rollouts, StepSequence) or not isinstance(rollouts, Sequence):
        raise TypeError(f"rollouts_real must be a list of StepSequences, got {described(rollouts)}")
    if not rollouts:
        raise ValueError("rollouts_real must hold at least one rollout, got none")
    copies = []
    for number, recorded in enumerate(rollouts):
        if not isinstance(recorded, StepSequence):
            raise TypeError(f"rollouts_real must hold StepSequences, got {described(recorded)} at position {number}")
        if recorded.continuous and recorded.rollout_count != 1:
            raise ShapeError(f"rollouts_real[{number}] must be one rollout, got {recorded.rollout_count} in one")
        copies.append(copy.deepcopy(recorded))
        copies[-1].numpy()
    lengths = [len(recorded) for recorded in copies]
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{n}: {length}" for n, length in zip(names or range(len(lengths)), lengths, strict=True))
        raise ShapeError(
            f"recorded rollouts must have one length, got steps {shown}; cut them (rollout[:{min(lengths)}]), or fill "
            "them up (StepSequence.pad)"
        )
    return copies


def _as_recorded(recorded: StepSequence, action_field: str) -> np.ndarray:
    values = np.asarray(recorded.get_data_values(action_field))[: len(recorded)]
    return values if values.dtype.kind in "iu" and values.ndim == 1 else values.reshape(len(values), -1)


def _check_widths(series: Sequence[np.ndarray], names: Sequence[str], spec: EnvSpec, fields: tuple[str, str]) -> None:
    """``ShapeError`` where rows are not as wide as those of simulations, as far as that is known."""
    shown = spec.observation_space if fields[0] == "observations" else spec.state_space
    wanted, has = series[0].shape[1], "the first one has as many"
    if shown is not None:
        one = isinstance(spec.action_space, Discrete)
        acts = 1 if one else flat_dim(spec.action_space)
        labels = spec.observation_labels if fields[0] == "observations" else spec.state_labels
        named = "" if labels is None else f" ({', '.join(labels)})"
        wanted = flat_dim(shown) + acts
        has = f"the simulator has {flat_dim(shown)} {fields[0]}{named} and {'a choice' if one else f'{acts} actions'}"
    for name, values in zip(names, series, strict=True):
        if values.shape[1] != wanted:
            raise ShapeError(
                f"{name} must have {wanted} numbers per step ({' and '.join(fields)}), got {values.shape[1]}: {has}. "
                "Is it another robot's log? Else map its columns to the simulator's (metaroll import-log --env SIM)"
            )
