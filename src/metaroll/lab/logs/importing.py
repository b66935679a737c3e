"""Imports logs as rollouts: the columns that a mapping names are checked, resampled and packed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.checks import check_instance, check_number, check_path
from metaroll.data.recordings import load_rollout
from metaroll.data.rollouts import TIME_STEP
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import LogError, RecordingError
from metaroll.lab.logs.mapping import MANY_TURNS, UNITS, LogColumn, LogMapping, names_angle
from metaroll.lab.logs.minari_sets import find_minari, minari_rollouts, minari_tables
from metaroll.lab.logs.resampling import (
    Grid,
    checked_times,
    filled,
    gap_times,
    held,
    is_gap,
    joined_spans,
    lines,
    make_grid,
    unwrapped,
)
from metaroll.lab.logs.robot_log import ROBOT_LOG_SUFFIX, read_robot_log
from metaroll.lab.logs.tables import LogTable, array_table, read_table
from metaroll.lab.logs.timing import gaps_text, missing_text, timing_text
from metaroll.types import EnvSpec

__all__ = ["load_log"]

_WHOLE = 1e-6
"""Tolerance for choices that are not whole numbers: rounding in the log."""
_BEYOND = 1e-6
"""Share of their range by which actions may exceed their bounds: rounding in the log."""

_PUNCTUAL, _A_STEP = 0.01, 0.9
"""Shares of a step up to which observations count as on time, and from which a step counts as missing."""

_FAR_CLOCK = 1e-3
"""Relative error from which a clock is not a crystal: steps may really be longer or shorter."""

_ANGLE_UNITS = ("rad", "deg", "rev")
_A_TURN = 1.1 * 2.0 * math.pi
"""Range of an angle that is cut off at full turns, at most, with noise."""
_FUNCTIONS = {"sin": np.sin, "cos": np.cos}


def load_log(
    path: str | Path, mapping: Any = None, *, env_spec: EnvSpec | None = None, dt: float | None = None
) -> list[StepSequence]:
    """Load the rollouts of a log; ``save_rollouts`` can write them to a folder for later use.

    The row at time ``t`` holds what was observed at ``t``, and the action that was applied from ``t`` until the next
    row. N rows are N - 1 steps; the action of the last row is not used, and may be missing. If rows lie on a grid, its
    times are used: deviations of single stamps by less than a quarter of a step are noise, and clock errors of up to
    1 % are ignored. Between rows, observations are interpolated linearly; actions and rewards of a step are means over
    it of values held from row to row, choices those held for the longest time. Logs do not mark the end of a rollout:
    the last step is truncated, unless the mapping has ``terminated``.

    Warns about gaps (pauses in which rows are missing) that are longer than ``max_gap``.

    Args:
        path: A ``.csv``, ``.npz`` or ``.parquet`` file; the ``.jsonl`` file of a ``RealEnv``; a rollout that
            ``save_rollout`` wrote; or a data set of Minari, by its folder or as ``minari:ID`` (only what is on this
            machine: nothing is downloaded).
        mapping: A ``LogMapping``, a dict of its entries, or its file (YAML or JSON). Recordings, data sets and logs of
            a ``RealEnv`` need none. The columns of the latter two are ``observations[0]``, ..., ``actions[0]``, ...
            (those that were applied), ``rewards`` and ``terminated``, of a ``RealEnv`` also ``time``.
        env_spec: That of the simulator (``env.env_spec``): its labels choose and order observations and actions, and
            actions must lie within its bounds.
        dt: Seconds per step (``env.dt``), unless the mapping has it. The log of a ``RealEnv`` is resampled to it,
            unless its observations came on time to a hundredth of a step.

    Returns:
        Rollouts with observations ``(T+1, O)``, actions ``(T, A)``, ``time (T+1,)`` in s from the first row, rewards
        and, where they are mapped, states ``(T+1, S)``. ``rollout_info`` holds ``env_spec``, ``dt`` and ``log`` (file,
        episode, first and last row, counted from 1, ``timing``: how rows became steps, ``missing``: values
        that were made up, ``made_up``: when these and gaps longer than a step begin and end, in s, and ``columns``:
        label, column and unit of each observation and action).

    Raises:
        FileNotFoundError: There is no such file.
        ImportError: A package for this kind of file is missing; names the extra.
        TypeError, ValueError: ``dt`` is not a number above 0, or ``env_spec`` something else.
        LogError: The log or the mapping cannot be used; names file, row and column.
    """
    dt = None if dt is None else check_number("dt", dt, 0.0, above_low=True)
    if env_spec is not None:
        check_instance("env_spec", env_spec, EnvSpec, "an EnvSpec (env.env_spec) or None")
    checked_mapping = None if mapping is None else _mapping(mapping)
    check_path("path", path, "log")
    data_set = find_minari(path)
    if data_set is not None:
        if checked_mapping is None:
            return minari_rollouts(data_set, env_spec, dt)
        return [
            part
            for table in minari_tables(data_set)
            for part in _rollouts(table, checked_mapping.with_dt(dt), env_spec)
        ]
    path = Path(path).expanduser()
    if path.suffix.lower() == ROBOT_LOG_SUFFIX:
        return _robot_rollouts(read_robot_log(path), checked_mapping, env_spec, dt)
    if checked_mapping is None:
        return [_recording(path)]
    try:
        return _rollouts(read_table(path), checked_mapping.with_dt(dt), env_spec)
    except RecordingError as error:
        raise LogError(f"{path.name}: {error}") from error


def _robot_rollouts(
    logged: StepSequence, mapping: LogMapping | None, env_spec: EnvSpec | None, dt: float | None
) -> list[StepSequence]:
    """The rollout of a real environment, unchanged or resampled; if resampled, lost observations are gaps."""
    info = logged.rollout_info
    _warn_of_missing_lines(logged, info, resampled=dt is not None or (mapping is not None and mapping.dt is not None))
    if mapping is None and (dt is None or (dt == info[TIME_STEP] and _on_time(logged, dt))):
        return [logged]
    if mapping is None:
        spec: EnvSpec = info["env_spec"]
        env_spec = spec if env_spec is None else env_spec
        entries: dict[str, Any] = {}
        for kind, labels, size in (
            ("observations", spec.observation_labels, spec.obs_dim),
            ("actions", spec.action_labels, spec.act_dim),
        ):
            entries[kind] = {label: f"{kind}[{i}]" for i, label in enumerate(labels or map(str, range(size)))}
        gap = float(np.diff(logged.time).max() * (2 + logged.repeated.sum()))
        entries |= {name: name for name in ("time", "rewards", "terminated")}
        mapping = LogMapping.of({**entries, "max_gap": gap})
    observations = np.array(logged.observations)
    observations[1:][logged.repeated] = np.nan
    end = int(np.flatnonzero(np.isfinite(observations[:, 0]))[-1])  # what follows is unknown
    if not end:
        raise LogError(f"{info['log']['file']}: no observation arrived after the first one")
    steps = {"actions": logged.actions_applied, "rewards": logged.rewards, "terminated": logged.terminated}
    columns = array_table(
        {"time": logged.time[: end + 1], "observations": observations[: end + 1]}
        | {name: values[:end] for name, values in steps.items()}
    )
    return _rollouts(LogTable(info["log"]["file"], columns), mapping.with_dt(dt), env_spec)


def _on_time(logged: StepSequence, dt: float) -> bool:
    """Whether observations arrived so close to the ends of steps that interpolation would change nothing."""
    off = (logged.time - logged.time[0] - dt * np.arange(len(logged.time)))[1:]
    return bool(np.abs(off[~logged.repeated]).max(initial=0.0) <= _PUNCTUAL * dt)


def _warn_of_missing_lines(logged: StepSequence, info: Mapping[str, Any], resampled: bool) -> None:
    """Warn if all later rows are a step later than their times say.

    If overruns explain the delay, nothing is missing, and resampling restores the timing. A step that was only late
    after its wait is recognized by the next one (so a line missing right before such a step cannot be detected).
    """
    dt, times = info[TIME_STEP], logged.time
    late = times - times[0] - dt * np.arange(len(times))
    always = np.minimum.accumulate(late[::-1])[::-1][:-1]  # a single late one means nothing, the last one either
    skipped = np.cumsum(np.ceil(np.asarray(logged.overrun) / dt))
    holes = np.flatnonzero(always > (_A_STEP + skipped) * dt)
    if holes.size:
        first = int(holes[0])
        warnings.warn(
            f"{info['log']['file']}: from line {first + 2} on everything is {always[first]:.3g} s later than steps of "
            f"{dt:g} s imply: lines are missing before it; cut the log there, or resample it (dt)",
            stacklevel=4,
        )
        return
    slow = np.flatnonzero(always > _A_STEP * dt)
    if slow.size and not resampled:
        first = int(slow[0])
        warnings.warn(
            f"{info['log']['file']}: its {len(late) - 1} steps of {dt:g} s took {times[-1] - times[0]:.4g} s: some "
            f"were longer, and everything is late from line {first + 2} on; resample it (dt={dt:g})",
            stacklevel=4,
        )


def _mapping(mapping: Any) -> LogMapping:
    if isinstance(mapping, str | Path):
        return LogMapping.load(mapping)
    try:
        return LogMapping.of(mapping)
    except (TypeError, ValueError) as error:
        raise LogError(f"mapping: {error}") from error


def _recording(path: Path) -> StepSequence:
    try:
        return load_rollout(path)
    except ValueError as error:
        raise LogError(
            f"{path.name} needs a mapping that says which of its columns are observations, actions and time: {error}"
        ) from error


def _rollouts(table: LogTable, mapping: LogMapping, env_spec: EnvSpec | None) -> list[StepSequence]:
    """The rollouts of a table, one for each value of the episode column."""
    reader = _Reader(table, mapping, env_spec)
    rollouts = [reader.rollout(int(first), int(end)) for first, end in reader.episodes()]
    _warn_of_timing(table, rollouts, mapping.max_gap)
    return rollouts


def _warn_of_timing(table: LogTable, rollouts: Sequence[StepSequence], max_gap: float) -> None:
    """Warn about gaps longer than ``max_gap`` and an inaccurate clock, in one message."""
    timings = [rollout.rollout_info["log"]["timing"] for rollout in rollouts]
    gap_text = gaps_text([gap for timing in timings for gap in timing["gaps"] if gap[1] > max_gap])
    parts = [f"{gap_text} (allowed if max_gap in the mapping is at least as long)"] if gap_text else []
    missing = [one for rollout in rollouts for one in rollout.rollout_info["log"]["missing"]]
    parts += [missing_text(missing)] if missing else []
    far = [number for number, timing in enumerate(timings) if abs(timing["clock_error"]) > _FAR_CLOCK]
    if far:
        dt = rollouts[far[0]].rollout_info[TIME_STEP]
        choices = not isinstance(rollouts[far[0]].rollout_info["env_spec"].action_space, Box)
        parts.append(timing_text(timings[far[0]], dt, choices=choices))
    if parts:
        warnings.warn(f"{table.source}: {'; '.join(parts)}", stacklevel=4)


class _Reader:
    """Converts rows of a table to rollouts.

    Args:
        table: The columns.
        mapping: Their meaning.
        env_spec: See ``load_log``.
    """

    def __init__(self, table: LogTable, mapping: LogMapping, env_spec: EnvSpec | None) -> None:
        self._table, self._mapping = table, mapping
        self._observations = _ordered(mapping.observations, env_spec, "observation")
        self._actions = _ordered(mapping.actions, env_spec, "action")
        self._states = _ordered(mapping.states, env_spec, "state") if mapping.states else {}
        self._spec = (
            _spec(self._observations, self._actions, self._states)
            if env_spec is None
            else _with_labels(env_spec, self._observations, self._actions)
        )
        self._missing: list[tuple[str, int, int, float, float]] = []
        self._asked: set[str] = set()
        self._time = "row" if mapping.time is None else mapping.time.column
        names = {column.column: entry for entry, column in mapping.columns.items()}
        names |= {name: "episode" for name in [mapping.episode] if name is not None}
        # Columns of steps may have one row less: no step follows the last row.
        last = {column.column for column in (*mapping.actions.values(), mapping.rewards) if column is not None}
        last |= {name for name in [mapping.terminated] if name is not None}
        lengths = {name: len(table.column(name, entry_name)) for name, entry_name in names.items()}
        longest = max(lengths.values())
        full = {
            name: entry_name for name, entry_name in names.items() if name not in last or lengths[name] != longest - 1
        }
        self._num_rows = table.rows(full)
        numbers = {column.column: f"{entry}" for entry, column in mapping.columns.items()}
        self._numbers = {name: self._column(name, entry_name) for name, entry_name in numbers.items()}
        for entry, column in mapping.columns.items():
            if table.is_time(column.column) and column.unit not in ("", "s"):
                raise LogError(
                    f"{table.source}: {entry} needs no unit, since column {column.column!r} holds "
                    f"{table.columns[column.column].dtype}, which is read in seconds, got {column.unit!r}"
                )
        self._ended = None if mapping.terminated is None else self._column(mapping.terminated, "terminated")

    def _column(self, name: str, entry: str) -> np.ndarray:
        numbers = self._table.numbers(name, entry)
        wrong = np.flatnonzero(np.isinf(numbers))
        if wrong.size:
            raise LogError(
                f"{self._table.place(int(wrong[0]), name)}: {numbers[wrong[0]]} is not a measured value ({wrong.size} "
                "rows have one); leave it empty, or write nan, where a value is missing"
            )
        return np.append(numbers, np.nan) if len(numbers) == self._num_rows - 1 else numbers

    def episodes(self) -> np.ndarray:
        """First row and end of each rollout, ``(R, 2)``."""
        name = self._mapping.episode
        if name is None:
            return np.array([[0, self._num_rows]])
        ids = np.asarray(self._table.column(name, "episode"))
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        known: dict[Any, int] = {}
        for start in starts.tolist():
            if ids[start] in known:
                raise LogError(
                    f"{self._table.place(start, name)}: rollout {ids[start]} continues after another one has begun; "
                    f"it started in row {known[ids[start]] + 1}; sort the rows by {name!r}"
                )
            known[ids[start]] = start
        return np.stack([starts, np.append(starts[1:], self._num_rows)], axis=1)

    def rollout(self, first: int, end: int) -> StepSequence:
        """The rollout of rows ``first`` to ``end - 1``."""
        mapping, table = self._mapping, self._table
        ended = self._has_ended(first, end)
        dt = mapping.dt
        if dt is None and mapping.sample_time is not None:
            dt = mapping.sample_time
        times = self._times(first, end)
        grid = make_grid(times, dt, table, first, self._time, lambda: self._motion(first, end))

        def series(columns: Mapping[str, LogColumn]) -> np.ndarray:
            return np.stack([self._lines(label, one, first, end, grid) for label, one in columns.items()], axis=1)

        self._missing.clear()
        actions = [self._held(one, first, end, grid, i) for i, one in enumerate(self._actions.items())]
        rewards = np.zeros(len(grid.times) - 1)
        if mapping.rewards is not None:
            rewards = self._held(("rewards", mapping.rewards), first, end, grid)
        terminated = np.zeros(len(rewards), dtype=bool)
        terminated[-1] = ended
        log: dict[str, Any] = {"file": table.source, "rows": [first + 1, end], "timing": grid.timing.to_info()}
        groups = {"observations": self._observations, "actions": self._actions}
        log["columns"] = {
            name: [[label, one.column, one.unit] for label, one in group.items()] for name, group in groups.items()
        }
        if mapping.episode is not None:
            log["episode"] = str(self._table.column(mapping.episode, "episode")[first])
        fields: dict[str, Any] = {"states": series(self._states)} if self._states else {}
        observations = series(self._observations)
        log["missing"] = [[label, row, last, after - before] for label, row, last, before, after in self._missing]
        spans = [[before, after] for *_, before, after in self._missing if is_gap(after - before, grid)]
        log["made_up"] = joined_spans([*gap_times(grid, first), *spans])
        return StepSequence(
            observations=observations,
            actions=_packed(np.stack(actions, axis=1), self._spec),
            rewards=rewards,
            terminated=terminated,
            truncated=np.append(np.zeros(len(rewards) - 1, dtype=bool), ~terminated[-1]),
            time=grid.times,
            rollout_info={"env_spec": self._spec, TIME_STEP: grid.dt, "log": log},
            **fields,
        )

    def _has_ended(self, first: int, end: int) -> bool:
        """Whether a rollout terminated in its last step."""
        if self._ended is None:
            return False
        marked = np.flatnonzero(np.nan_to_num(self._ended[first:end]) != 0)
        if marked.size and marked[0] < end - first - 2:
            raise LogError(
                f"{self._table.place(first + int(marked[0]), str(self._mapping.terminated))}: the rollout has ended, "
                "but rows follow; name the column that distinguishes rollouts (episode)"
            )
        return marked.size > 0

    def _times(self, first: int, end: int) -> np.ndarray:
        mapping = self._mapping
        if mapping.time is None:
            return np.arange(end - first) * (mapping.sample_time or 1.0)
        column = mapping.time
        # Divide by units below a second: then 60 ms are 0.06 s to the last bit, in any unit.
        factor = UNITS[column.unit]
        with np.errstate(over="ignore"):  # infinite values count as missing
            since = self._table.since_first(column.column, first, end) * column.scale
        times = since / round(1.0 / factor) if factor < 1.0 else since * factor
        start = float(_converted(self._numbers[column.column][first : first + 1], column)[0])
        checked_times(times, start, self._table, first, column.column, mapping.max_gap)
        return times

    def _motion(self, first: int, end: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Observations ``(rows, O)``, states if there are any, and actions ``(rows - 1, A)``, without resampling.

        Missing values are NaN.
        """

        def values(column: LogColumn) -> np.ndarray:
            numbers = _converted(self._numbers[column.column][first:end], column)
            numbers = unwrapped(numbers) if column.is_angle else numbers
            return numbers if column.function is None else _FUNCTIONS[column.function](numbers)

        groups = [self._actions, self._observations, *([self._states] if self._states else [])]
        actions, *series = (np.stack([values(one) for one in group.values()], axis=1) for group in groups)
        return series, actions[:-1]

    def _lines(self, label: str, column: LogColumn, first: int, end: int, grid: Grid) -> np.ndarray:
        values = _converted(self._numbers[column.column][first:end], column)
        if column.function in ("sin", "cos") and not column.unit:
            self._warn_of_degrees(label, column)
        if column.is_angle:
            values = unwrapped(values)
        elif column.unit in _ANGLE_UNITS or names_angle(label):
            self._warn_of_jump(values, label, column, first)
        gap = self._mapping.max_gap
        self._note_missing(values, label, grid.row_times, first)
        interpolated = lines(filled(values, grid.row_times, gap, False, self._table, first, column.column), grid)
        return interpolated if column.function is None else _FUNCTIONS[column.function](interpolated)

    def _warn_of_degrees(self, label: str, column: LogColumn) -> None:
        """Warn, once per file, that an angle without a unit that exceeds six turns may be in degrees."""
        numbers = self._numbers[column.column]
        known = numbers[np.isfinite(numbers)] * column.scale
        if column.column in self._asked or not known.size or np.abs(known).max() <= MANY_TURNS:
            return
        self._asked.add(column.column)
        warnings.warn(
            f"{self._table.source}: column {column.column!r}, of which {label!r} is the {column.function}, goes "
            f"from {known.min():.4g} to {known.max():.4g}, more than six turns: in degrees? Then write unit: deg in "
            "the mapping, otherwise unit: rad",
            stacklevel=7,
        )

    def _note_missing(self, values: np.ndarray, label: str, times: np.ndarray, first: int) -> None:
        """Record missing values to fill: label, first and last row (from 1), and the known times around them.

        Rows after the last known value, and before the first one, are not filled.
        """
        known = np.flatnonzero(np.isfinite(values))
        for left in np.flatnonzero(np.diff(known) > 1):
            before, after = int(known[left]), int(known[left + 1])
            self._missing.append((label, first + before + 2, first + after, float(times[before]), float(times[after])))

    def _warn_of_jump(self, values: np.ndarray, label: str, column: LogColumn, first: int) -> None:
        """Warn about an angle that jumps by more than half a turn, which should not be interpolated."""
        known = np.flatnonzero(np.isfinite(values))
        jumps = np.abs(np.diff(values[known]))
        if jumps.size and jumps.max() > math.pi:
            row = int(known[int(np.argmax(jumps > math.pi)) + 1])
            hint = "set unwrap: true, so that it continues beyond a full turn, like the angles of the simulators"
            if np.ptp(values[known]) > _A_TURN:  # wrapped angles stay within one turn
                low, high = values[known].min(), values[known].max()
                hint = f"it goes from {low:.4g} to {high:.4g}, so it is not wrapped"
                hint += "" if column.unit else "; in degrees? Then write unit: deg"
            warnings.warn(
                f"{self._table.place(first + row, column.column)}: the angle {label!r} jumps by {jumps.max():.4g} rad; "
                f"{hint}",
                stacklevel=6,
            )

    def _held(
        self,
        labeled: tuple[str, LogColumn],
        first: int,
        end: int,
        grid: Grid,
        position: int | None = None,
    ) -> np.ndarray:
        label, column = labeled
        values = _converted(self._numbers[column.column][first : end - 1], column)
        if position is not None:
            self._note_missing(values, label, grid.row_times[:-1], first)
        values = filled(values, grid.row_times[:-1], self._mapping.max_gap, True, self._table, first, column.column)
        if position is not None:
            values = self._bounded(values, label, column, first, position)
        choices = position is not None and not isinstance(self._spec.action_space, Box)
        return held(np.append(values, values[-1]), grid, choices=choices)

    def _bounded(self, values: np.ndarray, label: str, column: LogColumn, first: int, position: int) -> np.ndarray:
        """Actions within their bounds."""
        low, high = _bounds(column, self._spec, position)
        if not isinstance(self._spec.action_space, Box):
            whole = np.rint(values)
            between = np.flatnonzero(np.abs(values - whole) > _WHOLE)
            if between.size:
                raise LogError(
                    f"{self._table.place(first + int(between[0]), column.column)}: the action {label!r} is "
                    f"{values[between[0]]:.6g}, but the choices of the environment are whole numbers from {low:g} to "
                    f"{high:g} ({between.size} of {len(values)} rows have others); check its scale and offset"
                )
            values = whole
        tolerance = _BEYOND * (high - low) if np.isfinite(high - low) else 0.0
        wrong = np.flatnonzero((values < low - tolerance) | (values > high + tolerance))
        if wrong.size and self._mapping.outside == "error":
            raise LogError(
                f"{self._table.place(first + int(wrong[0]), column.column)}: the action {label!r} is "
                f"{values[wrong[0]]:.6g}, outside of [{low:g}, {high:g}] ({wrong.size} rows are); check its unit and "
                + ("scale, or set outside: clip" if isinstance(self._spec.action_space, Box) else "scale")
            )
        return np.clip(values, low, high)


def _converted(numbers: np.ndarray, column: LogColumn) -> np.ndarray:
    if column.scale == 1.0 and column.offset == 0.0 and UNITS[column.unit] == 1.0:
        return numbers
    return (numbers * column.scale + column.offset) * UNITS[column.unit]


def _ordered(columns: Mapping[str, LogColumn], spec: EnvSpec | None, kind: str) -> dict[str, LogColumn]:
    """``columns`` in the order of the labels of ``spec``, all of which they must have."""
    if spec is None:
        return dict(columns)
    labels = {"observation": spec.observation_labels, "action": spec.action_labels, "state": spec.state_labels}[kind]
    if labels is None:
        size = {"observation": spec.obs_dim, "action": spec.act_dim}.get(kind, len(columns))
        discrete = kind == "action" and not isinstance(spec.action_space, Box)
        if len(columns) != (1 if discrete else size):
            raise LogError(
                f"the mapping must have as many {kind}s as the environment, {size}, got {len(columns)}: "
                f"{', '.join(columns)} (the environment has no labels for them, so their order counts, and you choose "
                "the labels). Compute what the log lacks beforehand, or leave it out of the environment"
            )
        return dict(columns)
    lacking = [label for label in labels if label not in columns]
    if lacking:
        raise LogError(
            f"{kind}s of the mapping must have the labels of the environment ({', '.join(labels)}); "
            f"{lacking[0]!r} is missing"
        )
    foreign = [label for label in columns if label not in labels]
    if foreign:
        raise LogError(f"the environment has no {kind} {foreign[0]!r}, only {', '.join(labels)}; remove it")
    return {label: columns[label] for label in labels}


def _bounds(column: LogColumn, spec: EnvSpec, position: int) -> tuple[float, float]:
    if column.bounds is not None:
        return column.bounds
    space: Any = spec.action_space
    if not isinstance(space, Box):
        return float(space.start), float(space.start + space.n - 1)
    return float(space.low.flat[position]), float(space.high.flat[position])


def _spec(
    observations: Mapping[str, LogColumn], actions: Mapping[str, LogColumn], states: Mapping[str, LogColumn]
) -> EnvSpec:
    """A spec from the columns alone."""
    bounds = [(-np.inf, np.inf) if one.bounds is None else one.bounds for one in actions.values()]
    low, high = np.array(bounds).T
    return EnvSpec(
        Box(-np.inf, np.inf, (len(observations),), np.float64),
        Box(low, high, dtype=np.float64),
        state_space=Box(-np.inf, np.inf, (len(states),), np.float64) if states else None,
        observation_labels=tuple(observations),
        action_labels=tuple(actions),
        state_labels=tuple(states) or None,
    )


def _with_labels(spec: EnvSpec, observations: Mapping[str, LogColumn], actions: Mapping[str, LogColumn]) -> EnvSpec:
    """``spec`` with the labels of the mapping if the environment has none and they name single entries."""
    changes = {}
    for kind, columns, known, size in (
        ("observation", observations, spec.observation_labels, spec.obs_dim),
        ("action", actions, spec.action_labels, spec.act_dim),
    ):
        if known is None and len(columns) == size:
            changes[f"{kind}_labels"] = tuple(columns)
    return replace(spec, **changes)


def _packed(actions: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """Actions in the form of rollouts: ``(T, A)``, or choices counted from 0, ``(T,)``."""
    space: Any = spec.action_space
    return actions if isinstance(space, Box) else np.rint(actions[:, 0]).astype(np.int64) - int(space.start)
