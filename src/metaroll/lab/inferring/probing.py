"""Checks, before thousands of simulations are run, whether a simulator can follow a log at all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.configs.inference import InferenceOptions
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, RolloutError
from metaroll.inference.priors import Prior
from metaroll.lab.inferring.compared import Compared
from metaroll.lab.inferring.following import Followed
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.failures import error_summary
from metaroll.rollouts.samplers.segment_starts import SegmentStarts
from metaroll.seeding import derive_seed
from metaroll.tasks.domain_access import read_domain_params
from metaroll.tasks.domain_params import NOISE, DomainParamUpdate
from metaroll.types import RolloutPlan

__all__ = ["probe"]

_ROUNDED = 1e-4
"""Share of a channel's range by which observations may be off at a start: logs have few digits."""
_UNKNOWN = 0.05
"""The same if noise was not estimated."""
_DEVIATIONS = 6.0
_FARTHER, _AGAINST, _MOVES = 10.0, 0.5, 3.0
"""The factor of a channel's motion that no parameter explains, the (negative) agreement below which it moves the other
way, and the minimum motion in deviations of its noise."""
_PAGE = "docs/your_simulator.md"


def probe(followed: Followed, prior: Prior, options: InferenceOptions) -> None:
    """Simulate the first recorded rollout, once with nominal parameters and once for each unknown parameter.

    Raises:
        DataError: The simulator ignores the initial state, or its observation there differs from the recorded one, or
            no parameter has an effect, or its states are unknown.
        RolloutError: It cannot be simulated.
    """
    compared, rollouts, starts = followed.compared, followed.rollouts, followed.starts
    first, again = _simulated(compared, rollouts[0], starts, [dict(compared.nominal)] * 2, options)
    _compare_repeats(first, again)
    _check_starts(compared, rollouts[0], starts, first)
    _compare_motion(compared, rollouts[0], starts, first)
    _check_params(compared, rollouts[0], starts, first, prior, options)


def _compare_repeats(first: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> None:
    """Warn if the same start, actions, parameters and seed give different results the second time."""
    for one, other in zip(first, again, strict=True):
        if not np.array_equal(one, other, equal_nan=True):
            row = min(len(one), len(other))
            if one.shape == other.shape:
                row = int(np.argmax(((one != other) & ~(np.isnan(one) & np.isnan(other))).any(axis=1)))
            where = f", from row {row} of a segment on" if row else ", where a segment starts"
            warnings.warn(
                "the simulator gives different results when the same segment is simulated again with the same seed"
                f"{where}: reset must set all of its state, and random numbers must come from self.np_random. "
                f"Otherwise no posterior is reproducible ({_PAGE})",
                stacklevel=4,
            )
            return


def _check_starts(compared: Compared, rollout: StepSequence, starts: SegmentStarts, shown: list[np.ndarray]) -> None:
    """Check that the simulator's observations at the start of each segment match the recorded ones.

    The first row is not enough: it also matches if the simulator ignores the initial state and the log happens to begin
    in its default state. Later rows may differ in entries that the state does not contain (such as the last command),
    which only causes a warning.
    """
    recorded, noise = compared.recorded(rollout), np.atleast_2d(compared.noise.compared)[0]
    begins = np.cumsum([0, *starts.segments[:-1]])
    measured, first = recorded[begins], np.stack([one[0] for one in shown])
    if starts.state_of is not None and starts.measured is not None:
        measured = compared.shown(starts.measured[: len(begins)])
    known = recorded[np.isfinite(recorded).all(axis=1)]
    if not len(known):
        return
    size = np.maximum(np.ptp(known, axis=0), np.abs(known).max(axis=0))
    # Noise lies beside what any state shows, too (a cosine and sine off their circle), in all channels together: as
    # shares of what they do, unless recorded states, whose noise is another one, say where a segment starts.
    relative = np.divide(noise, size, out=np.zeros_like(noise), where=noise < size)
    around = size * np.linalg.norm(relative) if starts.state_of is not None else np.linalg.norm(noise[noise < size])
    allowed = _DEVIATIONS * (noise + around) + 1e-6
    allowed = allowed + (_ROUNDED if compared.noise.is_estimated else _UNKNOWN) * size
    off = np.where(np.isfinite(first), np.abs(first - measured) / allowed, np.inf)
    off = np.where(np.isnan(measured), 0.0, off)
    starts_differ = bool(np.ptp(np.stack(starts.states[: len(first)]), axis=0).any())
    differ = starts_differ and bool((np.ptp(measured, axis=0) > allowed).any())
    ignores_start = differ and bool((np.ptp(first, axis=0) <= allowed).all())  # it always starts in the same state
    place = int(np.argmax(off.max(axis=1))) if ignores_start else 0
    worst = int(np.argmax(off[place]))
    difference = f"{compared.labels[worst]!r} is {measured[place, worst]:.6g} in the log and {first[place, worst]:.6g}"
    if off[place, worst] > 1.0:
        state_text = (
            "the state that it computed from the recorded observation" if starts.state_of is not None else "that state"
        )
        where = "in the first row" if place == 0 else f"in row {begins[place]} (counted from 0) of the first rollout"
        hint = (
            f"It shows about the same at the start of all {len(first)} segments: its reset must read "
            "options['init_state']"
            if ignores_start
            else "Check units, signs, zeros of angles and the order of columns; if the simulator is yours, also that "
            "reset reads options['init_state'] and that state_from_observation is its inverse"
        )
        raise DataError(
            f"the simulator must show what was recorded where it starts: {where}, {difference} in the simulator, which "
            f"was reset to {state_text}, {np.array2string(starts.states[place], precision=4, threshold=12)}. "
            f"{hint} ({_PAGE})"
        )
    later = np.flatnonzero(off.max(axis=0) > 1.0)
    if later.size:
        names = ", ".join(compared.labels[entry] for entry in later)
        place, worst = (int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
        difference = f"{measured[place, worst]:.6g} in the log and {first[place, worst]:.6g} in the simulator"
        warnings.warn(
            f"where segments of the first rollout start, the simulator differs in {names} (in row {begins[place]}, "
            f"counted from 0, {difference}): the state does not contain it (such as the last command; such entries "
            "hide the effect of parameters, so leave them out), or only one of them wraps an angle at full turns",
            stacklevel=4,
        )


def _compare_motion(compared: Compared, rollout: StepSequence, starts: SegmentStarts, shown: list[np.ndarray]) -> None:
    """Warn if channels move far more or less than in the log, or the other way: no parameter explains that."""
    recorded, problems = compared.recorded(rollout), []
    begins = np.cumsum([0, *starts.segments[:-1]])
    pairs = [
        (recorded[begin + 1 : begin + len(one)] - recorded[begin], one[1 : len(recorded) - begin] - one[0])
        for begin, one in zip(begins.tolist(), shown, strict=True)
    ]
    logged, simulated = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    noise = np.atleast_2d(compared.noise.measured)[0]
    for i, name in enumerate(compared.labels):
        label = f"entry {name}" if name.isdigit() else name
        here, there = (float(np.sqrt(np.square(moved[:, i]).mean())) for moved in (logged, simulated))
        if min(here, there) <= 0.0 or here < _MOVES * noise[i]:
            continue
        agreement = float(logged[:, i] @ simulated[:, i]) / (len(logged) * here * there)
        factor = max(here / there, there / here)
        if factor > _FARTHER:
            problems.append(f"{label} moves {factor:.3g} times {'more' if here > there else 'less'} in the log")
        elif agreement < -_AGAINST:
            problems.append(f"{label} moves the other way in the log")
    if problems:
        warnings.warn(
            f"compared with the simulator with its own parameters, from the same states with the same actions, "
            f"{'; '.join(problems)}: check units (unit: deg in the mapping for a column in degrees, unless the "
            "simulator uses degrees), signs and the order of columns",
            stacklevel=4,
        )


def _check_params(
    compared: Compared,
    rollout: StepSequence,
    starts: SegmentStarts,
    first: list[np.ndarray],
    prior: Prior,
    options: InferenceOptions,
) -> None:
    """Check that parameters have an effect on the first recorded rollout."""
    ranges = {
        name: (low, high)
        for name, low, high in zip(prior.names, prior.low.tolist(), prior.high.tolist(), strict=True)
        if not name.startswith(NOISE)
    }
    sets = [
        {
            **compared.nominal,
            # A name of several different entries (dof_damping of a robot) has no nominal value.
            name: low
            if abs(low - compared.nominal.get(name, low)) > abs(high - compared.nominal.get(name, low))
            else high,
        }
        for name, (low, high) in ranges.items()
    ]
    if not sets:
        return
    _check_taken(compared, ranges)
    changed = []
    for name, other in zip(ranges, _simulated(compared, rollout, starts, sets, options, may_fail=True), strict=True):
        same = all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(first, other, strict=True))
        changed += [] if same else [name]
    still = [name for name in ranges if name not in changed]
    if not changed:
        raise DataError(
            f"parameters must change what is simulated, but nothing in the first recorded rollout changes with "
            f"{' or '.join(still)}, from the nominal value to the farther end of the prior: the simulator accepts "
            f"such values but does not use them, or nothing moves in the log. How parameters are set: {_PAGE}"
        )
    if still:
        warnings.warn(
            f"{', '.join(still)} changed nothing in the first recorded rollout, from the nominal value to the farther "
            f"end of the prior: this log may not identify {'it' if len(still) == 1 else 'them'}",
            stacklevel=4,
        )


def _check_taken(compared: Compared, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Warn if a parameter is clamped: the end of its prior and a value well inside become the same."""
    env, problems = compared.source.make(), []
    try:
        for name, (low, high) in ranges.items():
            for end, inside in ((low, 0.75 * low + 0.25 * high), (high, 0.25 * low + 0.75 * high)):
                actual, other = (_taken(compared, env, name, value) for value in (end, inside))
                if np.isfinite([actual, other]).all() and actual == other and not np.isclose(actual, end, rtol=1e-5):
                    problems.append(f"{name} is {actual:.6g} after it was set to {end:.6g}, and to {inside:.6g}")
    finally:
        compared.source.close(env)
    if problems:
        warnings.warn(
            f"the simulator clamps parameters inside their prior: {'; '.join(problems)}. No log can distinguish values "
            f"that it treats alike; give a range that it accepts ({_PAGE})",
            stacklevel=5,
        )


def _taken(compared: Compared, env: Any, name: str, value: float) -> float:
    """The value of a parameter after it was set and the simulator was reset; NaN if it is not reported."""
    try:
        update = DomainParamUpdate(compared.domain_params({**compared.nominal, name: value}))(env)
        update.reset(seed=0)
        return float(read_domain_params(update, [name]).get(name, math.nan))
    except Exception:  # a rejected value is a failed simulation
        return math.nan


def _simulated(
    compared: Compared,
    rollout: StepSequence,
    starts: SegmentStarts,
    sets: Sequence[Mapping[str, float]],
    options: InferenceOptions,
    may_fail: bool = False,
) -> list[list[np.ndarray]]:
    """Simulations of the segments of a recorded rollout for each set of parameters, ``(T, C)`` each."""
    begins = [0, *np.cumsum(starts.segments[:-1]).tolist()]
    actions = [np.asarray(rollout.get_data_values(compared.action_field))[: len(rollout)]]
    plans = [
        RolloutPlan(
            number * len(begins) + part,
            (derive_seed("probe", options.seed), 0, part),
            DomainParamUpdate(compared.domain_params(params)),
            eval=True,
            init_state=starts.states[part],
            max_steps=starts.segments[part],
            stop_on_done=False,
            context={"recording": np.array(0), "start": np.array(begin)},
        )
        for number, params in enumerate(sets)
        for part, begin in enumerate(begins)
    ]
    lenient = "drop" if may_fail else "raise"
    policy = PlaybackPolicy(compared.source.spec, actions)
    with RolloutEngine(
        compared.source, policy, on_invalid=lenient, on_error=lenient, record_extras=compared.field == "states"
    ) as engine:
        try:
            simulations = engine.run(plans)
        except RolloutError as error:
            raise RolloutError(
                f"the simulator cannot simulate the first recorded rollout, with its own parameters, from the state "
                f"{np.array2string(starts.states[0], precision=4, threshold=12)}: {error_summary(error)}. What infer "
                f"requires of a simulator (also that it can be stepped after it has ended an episode): {_PAGE}",
                error.plan,
                error.step,
                error.worker_traceback,
            ) from error
        lost = {entry.plan.index for entry in engine.dropped}
    shown = iter(simulations)
    results: list[list[np.ndarray]] = [[] for _ in sets]
    for plan in plans:
        values = np.zeros((0, len(compared.labels)))
        if plan.index not in lost:
            simulation = next(shown)
            values = compared.shown(np.asarray(simulation.get_data_values(compared.field), dtype=np.float64))
        results[plan.index // len(begins)].append(values)
    return results
