"""Checks whether the columns of a log are plausible; findings are for people, and never reject a log."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box
from scipy.optimize import linear_sum_assignment

from metaroll.data.rollouts import listed_rollouts, time_step
from metaroll.data.step_sequence import StepSequence
from metaroll.functional.series.noise import difference_noise
from metaroll.lab.logs.mapping import MANY_TURNS, names_angle
from metaroll.lab.logs.series.signals import DerivativeFit, circle_error, derivative_fit, spikes, stuck_values
from metaroll.types import EnvSpec

__all__ = ["Finding", "check_log"]

_LISTED, _MANY, _MOST_COLUMNS = 3, 8, 128
_SURE = 0.98
"""Agreement from which a speed counts as the derivative of a position without labels."""
_PLAIN = 0.998
"""The same if there is only the log itself, and the minimum number of steps for that."""
_ENOUGH = 50
_OF_SIMULATED = 3.0
"""Minimum size of an outlier, as a multiple of the simulator's largest spike."""
_LONGEST, _DROWNED = 16, 0.3
"""The longest span of ``derivative_fit``, and the share of noise in changes over it from which it hides the motion."""
_FEW = 10
"""Minimum number of rows for judging a speed."""
_LOST = 0.5
"""Agreement below which a speed has nothing to do with the position whose derivative it should be."""
_CLOSE, _RATHER = 0.9, 0.8
"""Columns count as swapped if a speed has at least this agreement with the position of another speed, and leaves at
most this share of the variation unexplained that it leaves with its own position."""
_OFF = 0.2
"""Relative deviation that is allowed of the factor between position and speed."""
_ROUND = 0.1
"""Root mean square of ``sin^2 + cos^2 - 1`` above which two columns are not a sine and a cosine."""
_EXACT, _ROUGHLY = 1e-4, 0.05
"""The same, below which two columns of a simulator, or of a log, count as a sine and a cosine."""
_TURNED = 0.05
"""Minimum range of both columns."""
_JUMP, _SLOW, _RARE, _MOST_JUMPS = 1.5, 0.2, 20.0, 0.1
"""A jump exceeds these multiples of the change of speed, of the fastest step, and of the median error; and the maximum
share of steps that may be jumps."""
_BACK, _NEAR_TURN = 3, 0.1
"""Steps within which a second jump means that the first one returns, and relative distance of a jump from a full turn
that makes it a wrapped angle."""
_SHARE_USED, _UNBOUNDED = 0.02, 1e6
"""Commands below this share of their bounds seem to have another unit; larger bounds than this count as none."""
_OUTSIDE, _NOISY, _DEVIATIONS = 1e-6, 0.1, 4.0
"""A column may leave its space by this share of the range; a noisy one by up to the second share, or this many
deviations of its noise."""
_UNITS = (
    (180.0 / math.pi, "one of them is in degrees (then write unit: deg, or deg/s, in the mapping)"),
    (60.0 / (2.0 * math.pi), "one of them is in turns per minute (rpm)"),
    (2.0 * math.pi, "one of them is in turns"),
    (6.0, "one is in turns per minute (rpm), the other one in degrees"),
    (1000.0, "one of them is in thousandths (mm), or the time is (ms)"),
    (100.0, "one of them is in cm"),
)
_DEGREES = re.compile(r"(?:_|\b)deg(?:rees?)?(?:_|\b|/)", re.IGNORECASE)
_AS_FAR = 10.0
"""Factor up to which a log goes about as far as a simulator with random actions; degrees are 57 radians."""
_FUNCTION = re.compile(r"(sin|cos)(?:e|ine)?(?:_of)?[ _(]*(\w*)\)?")
_SPEED = re.compile(r"(?:_|\b)(?:angular[ _])?(?:dot|velocity|speed|vel|rate)\b")
_PLACE = re.compile(r"(?:_|\b)(?:angle|position|pos)\b")


class Finding(NamedTuple):
    """A possible error in a log.

    Attributes:
        kind: ``"degrees"``, ``"speed"``, ``"jump"``, ``"circle"``, ``"outside"``, ``"outlier"``, ``"constant"``,
            ``"small"`` or ``"stuck"``.
        columns: Labels of the observations (or actions) concerned, or ``"observation 3"`` if they have none.
        steps: Positions in the rollouts, as (number of the rollout, step), both counted from 0; empty: all.
        text: The finding in words.
    """

    kind: str
    columns: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]
    text: str


class _Pair(NamedTuple):
    """Positions and speeds of parts of rollouts, and where each begins: (number of the rollout, row)."""

    positions: list[np.ndarray]
    speeds: list[np.ndarray]
    begins: list[tuple[int, int]]


_Stops = Mapping[int, Sequence[float]]


class _Relation(NamedTuple):
    """``speed`` is the derivative of a position, or of the angle that has two columns as sine and cosine."""

    position: tuple[int, ...]
    speed: int
    factor: float = 1.0


def check_log(
    rollouts: Sequence[StepSequence],
    simulated: Sequence[StepSequence] | None = None,
    simulated_dt: float | None = None,
) -> list[Finding]:
    """Report what may be wrong with the observations of a log, and commands that never change.

    Speeds are compared with the derivatives of positions (forgotten units, signs, swapped columns), values with the
    observation space, each column with itself (outliers, constants, values at a stop). Which observation is the speed
    of which is inferred from labels (``theta`` and ``theta_dot``, ``hip angle`` and ``hip velocity``), from
    ``simulated`` rollouts, or from the log if it is clear.

    Args:
        rollouts: Rollouts of one log, with observations ``(T+1, O)``.
        simulated: Rollouts of the simulator with any actions, as a reference for the log.
        simulated_dt: Seconds per step of ``simulated``, and of a log without its own; ``None``: as in the log.

    Returns:
        The findings; empty if nothing is suspicious. Nothing is found in observations that are not rows of numbers, or
        not equally wide in all rollouts.

    Raises:
        TypeError: ``rollouts`` is not a list of rollouts.
        ValueError: There are no rollouts.
    """
    rollouts, simulated = listed_rollouts(rollouts), listed_rollouts(simulated or (), "simulated")
    if not rollouts:
        raise ValueError("rollouts must hold at least one rollout, got none")
    logs = [_flat(rollout) for rollout in rollouts]
    if any(log is None or log.shape[1] != logs[0].shape[1] for log in logs):  # type: ignore[union-attr]
        return []
    data: list[np.ndarray] = [log for log in logs if log is not None]
    names = _names(rollouts[0], data[0].shape[1])
    reference = [flat for one in simulated if (flat := _flat(one)) is not None and flat.shape[1] == len(names)]
    dt = time_step(rollouts[0])
    dt = simulated_dt if dt is None else dt
    findings = list(_degrees(rollouts[0], data, names, reference))
    if dt is not None:
        findings += _speeds([_without_spikes(log) for log in data], reference, names, dt, simulated_dt or dt)
    return [*findings, *_columns(rollouts, data, reference, names), *_commands(rollouts)]


def _flat(rollout: StepSequence, name: str = "observations") -> np.ndarray | None:
    """Observations ``(T+1, O)`` or actions ``(T, A)``, if they are numbers of one axis; choices are one column."""
    if name not in rollout.data_names:
        return None
    values = rollout.get_data_values(name)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        return None
    if values.ndim == 1 and name == "actions":
        values = values[:, None]
    return values.astype(np.float64) if values.ndim == 2 else None


def _without_spikes(log: np.ndarray) -> np.ndarray:
    """Replace outliers by the mean of their neighbors: they are reported with their columns."""
    smooth = log.copy()
    for i in range(log.shape[1]):
        rows = spikes(log[:, i])
        smooth[rows, i] = 0.5 * (log[rows - 1, i] + log[rows + 1, i])
    return smooth


def _names(rollout: StepSequence, width: int) -> tuple[str, ...]:
    spec = _spec(rollout)
    labels = None if spec is None else spec.observation_labels
    return labels if labels is not None and len(labels) == width else tuple(f"observation {i}" for i in range(width))


def _spec(rollout: StepSequence) -> EnvSpec | None:
    spec = (rollout.rollout_info or {}).get("env_spec")
    return spec if isinstance(spec, EnvSpec) else None


def _degrees(
    rollout: StepSequence, logs: list[np.ndarray], names: Sequence[str], reference: list[np.ndarray]
) -> Iterator[Finding]:
    """Columns without a unit in the mapping that are named degrees, or have a larger range than angles in radians.

    If the range in the simulator is similar, it uses degrees too.
    """
    log_info = (rollout.rollout_info or {}).get("log")
    columns = log_info.get("columns", {}).get("observations", []) if isinstance(log_info, Mapping) else []
    if len(columns) != len(names):
        return
    all_rows = np.concatenate(logs)
    for i, (label, column, unit) in enumerate(columns):
        if unit:
            continue
        low, high = float(all_rows[:, i].min()), float(all_rows[:, i].max())
        if reference and high - low < _AS_FAR * max(float(np.ptp(one[:, i])) for one in reference):
            continue
        named_degrees, is_angle = bool(_DEGREES.search(column)), names_angle(label)
        if named_degrees or (is_angle and high - low > MANY_TURNS):
            yield Finding(
                "degrees",
                (names[i],),
                (),
                f"{names[i]} (column {column!r}) has no unit, and goes from {low:.4g} to {high:.4g}: in degrees? Then "
                f"write unit: deg{'' if is_angle else ' (or deg/s)'} in the mapping",
            )


# ------------------------------------------------------------------------------------------------------------- speeds
def _speeds(
    logs: list[np.ndarray], reference: list[np.ndarray], names: Sequence[str], dt: float, reference_dt: float
) -> Iterator[Finding]:
    # Labels of a log may be in another order than the simulator's entries, so the simulator's data take precedence.
    relations = _plain(reference, reference_dt) if reference else []
    relations += [one for one in _labeled(names) if one.speed not in {known.speed for known in relations}]
    if not relations and sum(map(len, logs)) >= _ENOUGH:
        relations = _plain(logs, dt, alone=True)
    stops = _stops(reference)
    swapped = _swapped(logs, relations, dt, stops)
    jumps = _jumps(logs, relations, dt, stops)
    if jumps and not (reference and _jumps(reference, relations, reference_dt, stops)):
        place, speed = _place(relations[0].position, names), names[relations[0].speed]
        yield Finding(
            "jump",
            tuple(names[i] for relation in relations for i in (*relation.position, relation.speed)),
            jumps,
            f"{place} jumps in {_listed(jumps)}, farther than {speed} explains"
            f"{', and others with it' if len(relations) > 1 else ''}: does a new rollout begin there (then name the "
            "column that distinguishes rollouts, episode, or cut the log), or are rows missing?",
        )
    for relation in relations:
        finding = _speed_finding(logs, relation, swapped.get(relation), names, dt, jumps, stops)
        if finding is not None:
            yield finding


def _speed_finding(
    logs: list[np.ndarray],
    relation: _Relation,
    better: tuple[tuple[int, ...], float] | None,
    names: Sequence[str],
    dt: float,
    jumps: tuple[tuple[int, int], ...],
    stops: _Stops,
) -> Finding | None:
    """What is wrong with one position and its speed, if anything.

    ``better`` holds the columns of another position that the speed fits better, and the share that it explains.
    """
    columns = tuple(names[i] for i in (*relation.position, relation.speed))
    if len(relation.position) == 2:
        error = circle_error(*(np.concatenate([log[:, i] for log in logs]) for i in relation.position))
        if error > _ROUND:
            return Finding(
                "circle",
                columns[:2],
                (),
                f"{columns[0]} and {columns[1]} are not the sine and cosine of an angle: the sum of their squares "
                f"differs from 1 by {error:.2g}; check the columns, and function and unit in the mapping",
            )
    pair = _pair(logs, relation, stops)
    if sum(map(len, pair.positions)) < _FEW:
        return None  # everything is clipped, or there are too few steps for integration
    fit = _fit(_cut(pair, jumps), dt)
    factor = fit.factor / relation.factor
    place = _place(relation.position, names)
    if better is not None:
        position, agreement = better
        return Finding(
            "speed",
            columns,
            (),
            f"{columns[-1]} fits {_place(position, names)} ({_percent(agreement)} of its changes explained) better "
            f"than {place} ({_percent(fit.agreement)}): are columns of positions or of speeds swapped?",
        )
    still = all(np.ptp(log[:, i]) == 0.0 for log in logs for i in relation.position)
    if still or all(np.ptp(log[:, relation.speed]) == 0.0 for log in logs):
        return None  # reported for the column itself
    if fit.agreement < _LOST:
        if _is_drowned(pair):
            return None
        text = f"{columns[-1]} is not the speed of {place} (it explains {_percent(fit.agreement)} of its changes)"
        hint = "check the columns and unwrap, and separate rollouts that were logged as one (episode)"
        return Finding("speed", columns, (), f"{text}; {hint}")
    if abs(factor - 1.0) > _OFF:
        return Finding(
            "speed",
            columns,
            (),
            f"{place} changes by {factor:.4g} times what {columns[-1]} says: {_hint(factor, len(columns) == 3)}",
        )
    return None


def _jumps(
    logs: list[np.ndarray], relations: Sequence[_Relation], dt: float, stops: _Stops
) -> tuple[tuple[int, int], ...]:
    """Steps in which all positions move much farther than the speeds before and after explain, and stay there.

    If acceleration keeps its sign in a step, the mean of both speeds is off by at most half their difference; if not,
    as in contacts, that rarely affects all joints at once. Jumps by full turns are wrapped angles.
    """
    counts: Counter[tuple[int, int]] = Counter()
    known = 0
    for relation in relations:
        pair, scale = _pair(logs, relation, stops), dt * abs(relation.factor)
        if sum(map(len, pair.positions)) < _FEW:
            continue
        known += 1
        residuals = [
            np.diff(place) - 0.5 * dt * relation.factor * (speed[1:] + speed[:-1])
            for place, speed in zip(pair.positions, pair.speeds, strict=True)
        ]
        least = max(
            _SLOW * scale * max(float(np.abs(speed).max()) for speed in pair.speeds),
            _RARE * float(np.median(np.abs(np.concatenate(residuals)))),
        )
        for one, speed, (number, begin) in zip(residuals, pair.speeds, pair.begins, strict=True):
            steps = np.flatnonzero(np.abs(one) > np.maximum(_JUMP * scale * np.abs(np.diff(speed)), least)).tolist()
            lone = [
                step
                for step in steps
                if not any(abs(step - other) <= _BACK for other in steps if other != step)
                and _BACK <= begin + step < len(logs[number]) - 1 - _BACK
                and not _is_full_turn(abs(float(one[step])))
            ]
            counts.update((number, begin + step + 1) for step in lone)
    places = sorted(place for place, count in counts.items() if count == known)
    return tuple(places) if len(places) <= _MOST_JUMPS * sum(map(len, logs)) else ()


def _is_full_turn(size: float) -> bool:
    return any(abs(size / turn - 1.0) < _NEAR_TURN for turn in (2.0 * math.pi, 360.0))


def _swapped(
    logs: list[np.ndarray], relations: Sequence[_Relation], dt: float, stops: _Stops
) -> dict[_Relation, tuple[tuple[int, ...], float]]:
    """Relations whose speed belongs to another position, with that position and the agreement.

    Uses the assignment of speeds to positions that leaves the least unexplained. All reassigned speeds must fit clearly
    better: a noisy position whose neighbor moves similarly was not swapped.
    """
    if len(relations) < 2:
        return {}
    pairs = [[_pair(logs, _Relation(other.position, one.speed), stops) for other in relations] for one in relations]
    agreements = np.array([[_fit(pair, dt).agreement for pair in row] for row in pairs])
    left = np.maximum(1.0 - agreements, 1e-12)
    speeds, places = linear_sum_assignment(np.log(left))
    moved = [(i, j) for i, j in zip(speeds.tolist(), places.tolist(), strict=True) if i != j]
    if not all(agreements[i, j] > _CLOSE and left[i, j] < _RATHER * left[i, i] for i, j in moved):
        return {}
    return {relations[i]: (relations[j].position, float(agreements[i, j])) for i, j in moved}


def _place(position: tuple[int, ...], names: Sequence[str]) -> str:
    if len(position) == 1:
        return names[position[0]]
    return f"the angle of {names[position[0]]} and {names[position[1]]}"


def _percent(share: float) -> str:
    """A share in percent, with enough digits to distinguish it from 100 %."""
    return f"{100 * share:.{0 if share < 0.99 else 1 if share < 0.999 else 2}f} %"


def _hint(factor: float, is_circle: bool) -> str:
    notes = _unit_hint(factor, 0.1)
    if factor < 0.0:
        notes.append(
            "sine and cosine are swapped, or one has another sign" if is_circle else "one of them has another sign"
        )
    return ", and ".join(notes) or "check their units and scales"


def _unit_hint(factor: float, near: float) -> list[str]:
    """A hint at a missing unit whose factor is within a share ``near`` of this one."""
    size = max(abs(factor), 1.0 / abs(factor)) if factor else math.inf
    return [text for known, text in _UNITS if abs(size / known - 1.0) < near][:1]


def _labeled(names: Sequence[str]) -> list[_Relation]:
    """Relations inferred from labels."""
    places: dict[str, int] = {}
    speeds: dict[str, int] = {}
    circles: dict[str, dict[str, int]] = {}
    for i, name in enumerate(map(str.lower, names)):
        function = _FUNCTION.fullmatch(name)
        if function:
            circles.setdefault(function[2], {})[function[1]] = i
        elif _SPEED.search(name):
            speeds[_SPEED.sub("", name).strip(" _")] = i
        else:
            places[_PLACE.sub("", name).strip(" _")] = i
    relations = [_Relation((places[name],), i) for name, i in speeds.items() if name in places]
    pairs = {name: (one["sin"], one["cos"]) for name, one in circles.items() if len(one) == 2}
    relations += [_Relation(pairs[name], i) for name, i in speeds.items() if name in pairs and name not in places]
    if not relations and len(pairs) == len(speeds) == 1:
        relations = [_Relation(next(iter(pairs.values())), next(iter(speeds.values())))]
    return relations


def _plain(logs: list[np.ndarray], dt: float, *, alone: bool = False) -> list[_Relation]:
    """Relations inferred from data: a speed belongs to the position that agrees best with it, if closely.

    Args:
        logs: Observations of each rollout.
        dt: Seconds per step.
        alone: Whether these may have wrong units.
    """
    all_rows = np.concatenate(logs)
    if all_rows.shape[1] > _MOST_COLUMNS:
        return []  # checking all pairs would take minutes
    moving = [i for i in range(all_rows.shape[1]) if np.ptp(all_rows[:, i]) > 0.0]
    circles = [
        pair
        for pair in itertools.combinations(moving, 2)
        if circle_error(all_rows[:, pair[0]], all_rows[:, pair[1]]) < (_ROUGHLY if alone else _EXACT)
        and min(np.ptp(all_rows[:, i]) for i in pair) > _TURNED
    ]
    # Assumes that the later one is the sine: in the order (sin, cos) the factor is -1.
    positions = [(i,) for i in moving] + [(j, i) for i, j in circles]
    best: dict[int, tuple[float, _Relation]] = {}
    for position, speed in itertools.product(positions, moving):
        if speed in position:
            continue
        fit = _fit(_pair(logs, _Relation(position, speed), {}), dt)
        if fit.agreement <= max(_PLAIN if alone else _SURE, best.get(speed, (0.0,))[0]):
            continue
        is_one = abs(abs(fit.factor) - 1.0) < 0.1
        if is_one or (alone and _unit_hint(fit.factor, 0.05)):
            # A log alone does not determine the signs of sine and cosine.
            wanted = fit.factor if not alone else math.copysign(1.0, fit.factor if len(position) == 2 else 1.0)
            best[speed] = (fit.agreement, _Relation(position, speed, wanted))
    return [relation for _, relation in best.values()]


def _stops(reference: list[np.ndarray]) -> dict[int, list[float]]:
    """The values at which each entry of simulated rollouts is clipped."""
    if not reference:
        return {}
    all_rows = np.concatenate(reference)
    return {i: [value for value, _ in stuck_values(all_rows[:, i]) if value != 0.0] for i in range(all_rows.shape[1])}


def _pair(logs: list[np.ndarray], relation: _Relation, stops: _Stops) -> _Pair:
    """Positions and speeds of each rollout, split where the sensor of the speed is at its stop.

    ``stops`` are known ones in addition to those in the log, where noise may blur them.
    """
    if len(relation.position) == 1:
        positions = [log[:, relation.position[0]] for log in logs]
    else:
        sin, cos = relation.position
        positions = [np.unwrap(np.arctan2(log[:, sin], log[:, cos])) for log in logs]
    speeds = [log[:, relation.speed] for log in logs]
    pair = _Pair(positions, speeds, [(number, 0) for number in range(len(logs))])
    own = [value for value, _ in stuck_values(np.concatenate(speeds)) if value != 0.0]
    known = stops.get(relation.speed, [])
    if not own and not known:
        return pair
    noise = _DEVIATIONS * float(difference_noise([speed[:, None] for speed in speeds])[0]) if known else 0.0
    free = []
    for speed in speeds:
        clipped = np.isin(speed, own)
        for value in known:
            clipped |= math.copysign(1.0, value) * speed >= abs(value) - min(noise, _NOISY * abs(value))
        free.append(np.flatnonzero(~clipped))
    return _parts(pair, [np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) for rows in free])


def _cut(pair: _Pair, jumps: Sequence[tuple[int, int]]) -> _Pair:
    """The pair without the steps that are jumps."""
    if not jumps:
        return pair
    runs = []
    for place, (number, begin) in zip(pair.positions, pair.begins, strict=True):
        cuts = [row - begin for of, row in jumps if of == number and begin < row < begin + len(place)]
        runs.append(np.split(np.arange(len(place)), cuts))
    return _parts(pair, runs)


def _parts(pair: _Pair, rows: Sequence[Sequence[np.ndarray]]) -> _Pair:
    """Runs of rows of each part, except for single rows."""
    kept = [
        (place[run], speed[run], (number, begin + int(run[0])))
        for place, speed, (number, begin), runs in zip(*pair, rows, strict=True)
        for run in runs
        if len(run) > 1
    ]
    return _Pair([place for place, _, _ in kept], [speed for _, speed, _ in kept], [begin for _, _, begin in kept])


def _is_drowned(pair: _Pair) -> bool:
    """Whether a position moves, over the longest span that is compared, little more than its noise."""
    moved = [place[_LONGEST:] - place[:-_LONGEST] for place in pair.positions if len(place) > _LONGEST]
    noise = difference_noise([place[:, None] for place in pair.positions])[0]
    return not moved or 2.0 * noise**2 > _DROWNED * float(np.square(np.concatenate(moved)).mean())


def _fit(pair: _Pair, dt: float) -> DerivativeFit:
    return derivative_fit(pair.positions, pair.speeds, dt)


# ------------------------------------------------------------------------------------------------------- single columns
def _columns(
    rollouts: Sequence[StepSequence], logs: list[np.ndarray], reference: list[np.ndarray], names: Sequence[str]
) -> Iterator[Finding]:
    low, high = _bounds(rollouts[0], len(names))
    all_rows = np.concatenate(logs)
    simulated = np.concatenate(reference) if reference else None
    constant = [i for i in range(len(names)) if np.ptp(all_rows[:, i]) == 0.0]
    strange = [i for i in constant if simulated is None or np.ptp(simulated[:, i]) > 0.0]
    if strange and len(all_rows) > 2:
        values_text = ", ".join(f"{names[i]} ({all_rows[0, i]:.6g})" for i in strange[:_MANY])
        more = f" and {len(strange) - _MANY} more" if len(strange) > _MANY else ""
        yield Finding("constant", tuple(names[i] for i in strange), (), f"always the same: {values_text}{more}")
    for i, name in enumerate(names):
        column = all_rows[:, i]
        if i in constant:
            continue
        margin = 0.0
        if 0.0 < high[i] - low[i] < np.inf:  # noise may leave the space a little, a wrong unit far more
            noise = _DEVIATIONS * difference_noise([log[:, i : i + 1] for log in logs])[0]
            margin = max(_OUTSIDE, min(noise / (high[i] - low[i]), _NOISY)) * (high[i] - low[i])
        outside = [np.flatnonzero((log[:, i] < low[i] - margin) | (log[:, i] > high[i] + margin)) for log in logs]
        places = _places(outside)
        if places:
            worst = column[np.argmax(np.maximum(low[i] - column, column - high[i]))]
            yield Finding(
                "outside",
                (name,),
                places,
                f"{name} leaves the observation space [{low[i]:.6g}, {high[i]:.6g}] in {_listed(places)}, up to "
                f"{worst:.6g}; check its unit and scale",
            )
        places = _places([spikes(log[:, i]) for log in logs])
        usual = max((_spike_size(one[:, i], spikes(one[:, i])) for one in reference), default=0.0)  # such as contacts
        if places and max(_spike_size(log[:, i], spikes(log[:, i])) for log in logs) > _OF_SIMULATED * usual:
            first = logs[places[0][0]][:, i]
            around = first[places[0][1] - 1 : places[0][1] + 2]
            yield Finding(
                "outlier",
                (name,),
                places,
                f"{name} has outliers in {_listed(places)}: "
                f"{', '.join(f'{value:.5g}' for value in around)} around the first one",
            )
        idle = [] if simulated is None else [value for value, _ in stuck_values(simulated[:, i]) if value == 0.0]
        for value, count in stuck_values(column):
            if value in idle:
                continue  # a contact sensor that is also mostly 0 in simulation
            places = _places([np.flatnonzero(log[:, i] == value) for log in logs])
            yield Finding(
                "stuck",
                (name,),
                places,
                f"{name} is exactly {value:.6g}, its {'largest' if value == column.max() else 'smallest'} value, in "
                f"{count} of {len(column)} entries ({_listed(places)}): clipped, or at a stop; states are unknown "
                "there",
            )


def _spike_size(values: np.ndarray, places: np.ndarray) -> float:
    """Distance of the largest spike at these places from its neighbors; 0 if there is none."""
    return float(np.abs(values[places] - 0.5 * (values[places - 1] + values[places + 1])).max(initial=0.0))


def _commands(rollouts: Sequence[StepSequence]) -> Iterator[Finding]:
    """Commands that never change, about which a log says nothing: it may be the wrong column."""
    logs = [log[: len(one)] for one in rollouts if (log := _flat(one, "actions")) is not None]
    if sum(map(len, logs)) <= 2 or len({log.shape[1] for log in logs}) > 1:
        return
    all_rows = np.concatenate(logs)
    spec = _spec(rollouts[0])
    labels = None if spec is None else spec.action_labels
    named = labels if labels is not None and len(labels) == all_rows.shape[1] else range(all_rows.shape[1])
    names = [f"action {name}" for name in named]
    for i in np.flatnonzero(np.ptp(all_rows, axis=0) == 0.0).tolist():
        yield Finding("constant", (names[i],), (), f"the {names[i]} is always {all_rows[0, i]:.6g}")
    space = None if spec is None else spec.action_space
    if not isinstance(space, Box) or space.shape != (all_rows.shape[1],):
        return
    most = np.maximum(np.abs(space.low), np.abs(space.high)).astype(np.float64)
    farthest = np.abs(all_rows).max(axis=0)
    small = (most < _UNBOUNDED) & (np.ptp(all_rows, axis=0) > 0.0) & (farthest < _SHARE_USED * most)
    for i in np.flatnonzero(small).tolist():
        yield Finding(
            "small",
            (names[i],),
            (),
            f"the {names[i]} goes from {all_rows[:, i].min():.4g} to {all_rows[:, i].max():.4g}, and its bounds from "
            f"{space.low[i]:.4g} to {space.high[i]:.4g}: check its unit and scale, unless it really is that small",
        )


def _bounds(rollout: StepSequence, width: int) -> tuple[np.ndarray, np.ndarray]:
    spec = _spec(rollout)
    space = None if spec is None else spec.observation_space
    if isinstance(space, Box) and space.shape == (width,):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    return np.full(width, -np.inf), np.full(width, np.inf)


def _places(rows: list[np.ndarray]) -> tuple[tuple[int, int], ...]:
    return tuple((number, int(step)) for number, steps in enumerate(rows) for step in steps)


def _listed(places: Sequence[tuple[int, int]]) -> str:
    """Steps in words; without the number of the rollout if there is only the first."""
    several = any(number for number, _ in places)
    texts = [f"step {step}" + (f" of rollout {number}" if several else "") for number, step in places[:_LISTED]]
    more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
    return f"{', '.join(texts)}{more}"
