"""Features of rollouts for simulation-based inference: time series, filled up to one length, through an embedding.

A time series of one rollout has a row per step: the state before the step (or what was observed of it) and the action
that was applied. Rollouts that end early are filled up, so that all series have T rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.functional.philox import normals, stream_keys
from metaroll.rollouts.engine.unit_work import one_torch_thread
from metaroll.tasks.plan_table import SENSOR_NOISE
from metaroll.types import EnvSpec, flat_dim

__all__ = [
    "SeriesEmbedding",
    "SeriesFeatures",
    "applied_field",
    "channel_labels",
    "check_chained",
    "check_embedding",
    "finite_limit",
    "segment_lengths",
    "series_of",
]

_STEPS_AT_A_TIME = 1 << 16
"""Steps that an embedding is called with, about: more would leave the processor's cache."""


@runtime_checkable
class SeriesEmbedding(Protocol):
    """Protocol of features of time series: the embeddings of ``metaroll.inference``, or your own."""

    @property
    def dim_output(self) -> int:
        """Features F of one rollout."""
        ...

    @property
    def requires_target_domain_data(self) -> bool:
        """Whether each row also holds the recording in the target domain, besides the simulation."""
        ...

    def pack(self, data: Tensor) -> Tensor:
        """``data (B, R, T, D)`` as ``(B, R, T * D)``."""
        ...

    def __call__(self, data: Tensor) -> Tensor:
        """Features ``(B, R * F)`` of packed series of B sets of R rollouts."""
        ...


@runtime_checkable
class ChangesEmbedding(SeriesEmbedding, Protocol):
    """One that declares whether its features depend only on how states change, not on where they are."""

    of_changes: bool


def check_embedding(embedding: Any) -> None:
    """Raise ``TypeError`` unless ``embedding`` has the required members."""
    if not isinstance(embedding, SeriesEmbedding):
        raise TypeError(
            "embedding must be an Embedding (e.g. BayesSimEmbedding(spec, dim_data)): a callable with pack(data), "
            f"dim_output and requires_target_domain_data, got {type(embedding).__name__}"
        )


def segment_lengths(length: int, num_segments: int | None, len_segments: int | None) -> tuple[int, ...]:
    """Steps of the segments into which ``length`` steps are cut.

    ``num_segments`` of them, whose lengths differ by one step at most, or some of ``len_segments`` steps (the last one
    may have fewer).

    Raises:
        ValueError: There are fewer steps than segments.
    """
    if num_segments is None:
        size = min(len_segments or length, length)
        return (size,) * (length // size) + ((length % size,) if length % size else ())
    if num_segments > length:
        raise ValueError(f"num_segments must be at most the number of steps, {length}, got {num_segments}")
    return tuple(length // num_segments + (i < length % num_segments) for i in range(num_segments))


def applied_field(rollouts: Sequence[StepSequence], as_given: bool = False) -> str:
    """Which actions to use: those that were applied, where all rollouts have them; choices as they were made.

    With ``as_given`` those that were given: what plays them changes them itself.
    """
    if as_given:
        return "actions"
    choices = any(not _is_floating(r.actions) for r in rollouts)
    applied = all("actions_applied" in r.data_names for r in rollouts)
    return "actions_applied" if applied and not choices else "actions"


def channel_labels(spec: EnvSpec, state_field: str, entries: np.ndarray | None = None) -> tuple[str, ...]:
    """Names of the entries of a state (or observation) in a series; their numbers where they have none."""
    observed = state_field == "observations"
    labels = spec.observation_labels if observed else spec.state_labels
    space = spec.observation_space if observed else spec.state_space
    if labels is not None:
        names = tuple(labels)
    elif space is not None:
        names = tuple(map(str, range(flat_dim(space))))
    else:
        raise DataError(f"nothing gives the length of {state_field} of simulations; use series='observations'")
    return names if entries is None else tuple(name for name, kept in zip(names, entries, strict=True) if kept)


def labeled_as(spec: EnvSpec, rollouts: Sequence[StepSequence]) -> EnvSpec:
    """``spec`` with the labels of recorded columns, in their order, if it has no labels itself."""
    own = (rollouts[0].rollout_info or {}).get("env_spec") if rollouts else None
    if not isinstance(own, EnvSpec):
        return spec
    labels = {}
    for name, space in (("observation_labels", spec.observation_space), ("state_labels", spec.state_space)):
        recorded = getattr(own, name)
        if (
            getattr(spec, name) is None
            and recorded is not None
            and space is not None
            and len(recorded) == flat_dim(space)
        ):
            labels[name] = recorded
    return replace(spec, **labels)


def series_of(rollout: StepSequence, state_field: str, action_field: str, name: str) -> np.ndarray:
    """The time series of one rollout, float64 ``(T, D)``.

    Raises:
        DataError: It has no such field.
        ShapeError: A field has no flat entries.
        ValueError: It has NaN or Inf.
    """
    columns = []
    for field in (state_field, action_field):
        if field not in rollout.data_names:
            raise DataError(f"{name} must have a field {field!r}, it has {', '.join(rollout.data_names)}")
        values = rollout.get_data_values(field, truncate_last=True)
        values = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        values = values[: len(rollout)].astype(np.float64)
        if values.ndim > 2:
            raise ShapeError(f"{field} of {name} must have flat entries (T, n), got shape {values.shape}")
        if not np.isfinite(values).all():
            step = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
            raise ValueError(f"{field} of {name} must be finite, got {values[step]} at step {step}")
        columns.append(values.reshape(len(values), -1))
    return np.concatenate(columns, axis=1)


@dataclass(frozen=True, eq=False)
class SeriesFeatures:
    """The features of simulated rollouts: a function of columns and bounds for ``RolloutEngine.run_reduced``.

    The embedding is always called with equally many sets, the last ones repeated where there are fewer, so that the
    bits of a row do not depend on which others are computed with it.

    Attributes:
        embedding: Makes features of series.
        num_rollouts: R.
        segments: Steps of the segments of each rollout, G numbers; T is their sum.
        state_field, action_field: Fields of the rows of a series.
        pieces: How many series of equal length each rollout is cut into for the embedding.
        pad_mode: ``"zeros"`` or ``"last"``: what fills up rollouts that have ended early.
        target: Recordings of the target domain, float32 ``(R, T, D)``; ``None``: series are their own target.
        entries: Which entries of a state series hold, bool ``(n,)``; ``None``: all.
        noise: Deviations of the noise that is added to what is simulated, by set and rollout, ``(B, R, S)``, or by set
            alone, ``(B, 1, S)``; ``None``: none. The noise follows from the seeds of plans, whose third numbers count B
            R G segments.
        firsts: Measurements at the starts of segments, ``(R G, S)``: simulations with noise have measured the same
            there, since this measurement is why they start where they do. ``None``: they have their own noise.
        chained: Whether each segment is moved to where the one before has ended. Else the jump to the next recorded
            start is a change from row to row. Where starts are noisy, that jump is there with the true parameters, too,
            and a recording has none.
    """

    embedding: Any
    num_rollouts: int
    segments: tuple[int, ...]
    state_field: str
    action_field: str
    pieces: int = 1
    pad_mode: str = "zeros"
    target: np.ndarray | None = None
    entries: np.ndarray | None = None
    noise: np.ndarray | None = None
    firsts: np.ndarray | None = None
    chained: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """Columns that are needed."""
        return (self.state_field, self.action_field, *(() if self.noise is None else ("seeds",)))

    @property
    def dim_output(self) -> int:
        """Features of a set of R rollouts."""
        return int(self.embedding.dim_output) * self.num_rollouts * self.pieces

    def __call__(self, columns: dict[str, Any], bounds: np.ndarray) -> np.ndarray:
        """Features, float32 ``(B, dim_output)``, of B R G simulated segments: by set, rollout and segment."""
        for field in (self.state_field, self.action_field):
            if not isinstance(columns.get(field), np.ndarray):
                hint = "; observations are always there: series='observations'" if field == "states" else ""
                raise DataError(f"simulated rollouts have no field {field!r} of flat entries{hint}")
        columns = {**columns, self.state_field: self._as_measured(columns, bounds)}
        lengths = np.tile(self.segments, (len(bounds) - 1) // len(self.segments))
        whole = bool((np.diff(bounds) == lengths).all())
        series = self._whole(columns) if whole else self._filled_up(columns, bounds, lengths)
        return self.of_series(series)

    def of_series(self, series: np.ndarray) -> np.ndarray:
        """Features, float32 ``(B, dim_output)``, of series float32 ``(B, R, T, D)``."""
        num_sets, num_steps = len(series), self.num_rollouts * sum(self.segments)
        width = max(1, -(-_STEPS_AT_A_TIME // num_steps))
        target = None if self.target is None else np.broadcast_to(self.target, (width, *self.target.shape))
        parts = []
        for begin in range(0, num_sets, width):
            part = series[begin : begin + width]
            if len(part) < width:
                part = np.concatenate([part, np.broadcast_to(part[:1], (width - len(part), *part.shape[1:]))])
            if self.embedding.requires_target_domain_data:
                part = np.concatenate([part, part if target is None else target], axis=3)
            parts.append(self._embedded(part))
        return np.concatenate([np.zeros((0, self.dim_output), dtype=np.float32), *parts])[:num_sets]

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _as_measured(self, columns: dict[str, Any], bounds: np.ndarray) -> np.ndarray:
        """Simulated states (or observations), ``(sum T + n, S)``: those entries that count, with noise."""
        values = columns[self.state_field]
        values = values.reshape(len(values), -1)
        if self.entries is not None:
            values = values[:, self.entries]
        if self.noise is None:
            return values
        seeds, rows = np.asarray(columns["seeds"]), np.diff(bounds) + 1
        width, longest = values.shape[1], int(rows.max(initial=0))
        drawn = normals(stream_keys(seeds), SENSOR_NOISE, 0, longest * width).reshape(len(seeds), longest, width)
        each = self.num_rollouts * len(self.segments)
        place, segment = np.divmod(seeds[:, 2].astype(np.int64), each)
        rollout = segment // len(self.segments) if self.noise.shape[1] > 1 else 0
        drawn = drawn * self.noise[place, rollout][:, None, :]
        values = values + drawn[np.arange(longest) < rows[:, None]]
        if self.firsts is not None:
            values[np.cumsum(rows) - rows] = self.firsts[segment]
        return values

    def _whole(self, columns: dict[str, Any]) -> np.ndarray:
        """Series of rollouts that have gone on to the end."""
        total, count = sum(self.segments), len(self.segments)
        states, actions = columns[self.state_field], columns[self.action_field]
        states = states.reshape(-1, total + count, states.shape[-1] if states.ndim > 1 else 1)
        actions = actions.reshape(-1, total, actions.shape[-1] if actions.ndim > 1 else 1)
        return self._joined(states, actions)

    def _filled_up(self, columns: dict[str, Any], bounds: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Series of rollouts of which some have ended before."""
        num_steps, parts = np.diff(bounds), []
        for field, final in ((self.state_field, 1), (self.action_field, 0)):
            rows = lengths + final
            rollout = np.repeat(np.arange(len(rows)), rows)
            step = np.arange(len(rollout)) - np.repeat(np.cumsum(rows) - rows, rows)
            source = bounds[rollout] + final * rollout + np.minimum(step, num_steps[rollout] - 1 + final)
            values = columns[field][source].reshape(len(source), -1)
            if self.pad_mode == "zeros":
                values[step >= num_steps[rollout] + final] = 0.0
            parts.append(values.reshape(-1, sum(self.segments) + final * len(self.segments), values.shape[1]))
        return self._joined(*parts)

    def _joined(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Series ``(B, R, T, D)`` of segments, which have a state (B R, T + G, S) more each, after their last step."""
        total, size = sum(self.segments), states.shape[2]
        series = np.empty((len(states), total, size + actions.shape[2]), dtype=np.float32)
        ends = np.cumsum(self.segments) + np.arange(len(self.segments))  # of each the place of that state
        if self.chained:
            changes = np.delete(np.diff(states.astype(np.float64), axis=1), ends[:-1], axis=1)
            series[:, 0, :size] = states[:, 0]
            series[:, 1:, :size] = states[:, :1] + np.cumsum(changes[:, :-1], axis=1)
        else:
            series[:, :, :size] = np.delete(states, ends, axis=1)
        series[:, :, size:] = actions
        return series.reshape(-1, self.num_rollouts, total, series.shape[2])

    def _embedded(self, series: np.ndarray) -> np.ndarray:
        """Features of as many sets as the embedding is called with."""
        num_sets, num_series = len(series), self.num_rollouts * self.pieces
        data = torch.from_numpy(np.ascontiguousarray(series)).reshape(num_sets, num_series, -1, series.shape[3])
        with torch.no_grad(), one_torch_thread(True):
            features = self.embedding(self.embedding.pack(data))
        expected = (num_sets, self.dim_output)
        if not isinstance(features, Tensor) or tuple(features.shape) != expected:
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ShapeError(f"embedding must return features (B, R * dim_output), here {expected}, got {shape}")
        return features.detach().cpu().to(torch.float32).numpy()


def _is_floating(values: Any) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else np.asarray(values).dtype.kind == "f"


def check_chained(embedding: Any, recorded: bool) -> None:
    """``ValueError`` where series of segments are to be ``chained`` whose features are not those of one motion."""
    if not isinstance(embedding, ChangesEmbedding) or not embedding.of_changes:
        raise ValueError(
            "chained must be False with features that depend on where states are, not on how they change alone "
            f"(of_changes), as those of {type(embedding).__name__} do"
        )
    if not recorded:
        raise ValueError("chained must be False without rollouts_real: nothing is cut into segments then, got True")


def finite_limit(spec: EnvSpec, what: str, hint: str = "") -> int:
    """Steps after which every rollout ends; ``ValueError`` where there is no such limit."""
    if spec.max_episode_length is None:
        raise ValueError(
            f"env must have a limit of steps for {what} (env.max_steps, or Gymnasium's TimeLimit), got none{hint}"
        )
    return int(spec.max_episode_length)
