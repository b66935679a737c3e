"""Parts of the engine: units, the recorder, infos, timeouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaroll.errors import ShapeError
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.recorder import Recorder, stack_infos
from metaroll.rollouts.engine.units import cut, slots_of_unit, unit_size


@given(st.integers(1, 5000), st.sampled_from(["list", "batched"]), st.integers(1, 8))
def test_units_cover_all_plans_and_keep_all_workers_busy(count, kind, workers):
    """design.md 4.2."""
    units = cut(np.arange(count), unit_size(count, kind, workers))
    assert [i for unit in units for i in unit] == list(range(count))
    assert len(units) >= min(count, workers)
    assert all(1 <= slots_of_unit(len(unit), kind) <= len(unit) for unit in units)


def record(recorder, steps, positions, ages, begin=0, **more):
    """One block of ``steps`` lock-steps of two slots, whose observations count up from ``begin``."""
    seen = lambda step: np.array([[step, 0.5], [-step, 1.5]])  # noqa: E731
    recorder.open(steps + 1, np.array(positions), np.array(ages), seen(begin), None)
    no = np.zeros(2, dtype=bool)
    for step in range(begin, begin + steps):
        arrays = {"rewards": np.array([step, -step]) * 1.0, "terminated": no, "truncated": no}
        extra = {name: value(step) for name, value in more.items() if value(step) is not None}
        recorder.write(np.array([step, 2 * step]), {**arrays, **extra}, seen(step + 1), None)


def packed(recorder, pieces, running=()):
    positions, first, lengths = (np.array(column) for column in zip(*pieces, strict=True))
    notes = [{} for _ in pieces]
    return recorder.pack(positions, first, lengths, np.ones(len(pieces), bool), notes, running)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=6))
def test_the_recorder_gives_back_what_was_written(blocks):
    """Short rollouts one after the other in slot 0, a long one in slot 1; some blocks go on past the short ending."""
    recorder, begin, spans = Recorder(), 0, []
    for number, (length, beyond) in enumerate(blocks):
        record(recorder, length + beyond, [number + 1, 0], [0, begin], begin)
        recorder.close(np.array([length, length + beyond]))
        spans.append((begin, begin + length))
        begin += length + beyond
    pieces = [(0, 0, begin), *((i + 1, 0, stop - start) for i, (start, stop) in enumerate(spans))]
    columns = packed(recorder, pieces)
    rollout = columns.rollout(0)
    np.testing.assert_array_equal(rollout.observations, [[-t, 1.5] for t in range(begin + 1)])
    np.testing.assert_array_equal(rollout.actions, 2 * np.arange(begin))
    for number, (start, stop) in enumerate(spans):
        rollout = columns.rollout(number + 1)
        np.testing.assert_array_equal(rollout.observations, [[t, 0.5] for t in range(start, stop + 1)])
        np.testing.assert_array_equal(rollout.rewards, np.arange(start, stop))


def test_recorded_memory_is_freed_with_the_rollouts_that_go_on():
    recorder = Recorder()
    for number in range(30):
        record(recorder, 10, [2 * number, 2 * number + 1], [0, 0])
        recorder.close(np.array([10, 10]))
        packed(recorder, [(2 * number, 0, 10)], running=[2 * number + 1] if number < 20 else ())
    assert len(recorder._blocks) <= 1


def test_names_that_come_and_go_hold_nan_where_they_are_absent():
    recorder = Recorder()
    late = lambda step: np.array([step, step]) if step >= 30 and step != 40 else None  # noqa: E731
    record(recorder, 20, [0, 1], [0, 0], **{"policy_infos/late": late})
    recorder.close(np.array([20, 20]))
    record(recorder, 40, [0, 2], [20, 0], 20, **{"policy_infos/late": late})
    recorder.close(np.array([40, 5]))
    columns = packed(recorder, [(0, 0, 60), (1, 0, 20), (2, 0, 5)])
    expected = np.arange(60.0)
    expected[:30] = expected[40] = np.nan
    np.testing.assert_array_equal(columns.rollout(0).policy_infos["late"], expected)
    assert "policy_infos" not in columns.rollout(1).data_names
    assert "policy_infos" not in columns.rollout(2).data_names


def test_types_grow_and_shapes_stay():
    recorder = Recorder()
    x = lambda step: np.array([1, 2]) if step == 0 else np.array([0.5, 0.25])  # noqa: E731
    record(recorder, 2, [0, 1], [0, 0], x=x)
    recorder.close(np.array([2, 2]))
    np.testing.assert_array_equal(packed(recorder, [(0, 0, 2)]).rollout(0).x, [1, 0.5])
    with pytest.raises(ShapeError, match=r"x must keep its shape \(2,\) at every step, got \(2, 1\)"):
        record(Recorder(), 2, [0, 1], [0, 0], x=lambda step: np.zeros((2, 1)) if step else np.zeros(2))
    with pytest.raises(ShapeError, match=r"y must have one row per slot \(2\), got shape \(3,\)"):
        record(Recorder(), 2, [0, 1], [0, 0], y=lambda step: np.zeros(3))


def test_infos_with_changing_keys_are_kept_over_the_union():
    """Q-03."""
    stacked = stack_infos([{"a": 1, "b": "x"}, {"a": 2, "c": np.array([1.0, 2.0])}, {"b": "y"}])
    np.testing.assert_array_equal(stacked["a"], [1, 2, np.nan])
    np.testing.assert_array_equal(stacked["c"], [[np.nan] * 2, [1.0, 2.0], [np.nan] * 2])
    assert stacked["b"].tolist() == ["x", None, "y"]
    assert stack_infos([]) == {}
    assert stack_infos([{"a": True}, {"a": False}])["a"].dtype == bool
    ragged = stack_infos([{"a": np.zeros(2)}, {"a": np.zeros(3)}])["a"]
    assert ragged.dtype == object and len(ragged[1]) == 3


def test_allowed_silence_depends_on_the_phase():
    """design.md 4.3; defaults of the issue: 60 s without a step, 300 s for reset and start-up."""
    limits = PoolTimeouts()
    assert limits.limit("step", False) == 60
    assert limits.limit("reset", False) == limits.limit("start", False) == 300
    assert limits.limit("call", False) is None  # the user's own function
    assert limits.limit("call", True) == 60  # ... unless its process is stopped
    with pytest.raises(ValueError, match="step_s must be positive"):
        PoolTimeouts(step_s=0)
