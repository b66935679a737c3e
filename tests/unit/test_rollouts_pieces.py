"""Parts of the engine: units, the recorder, infos, timeouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaroll.rollouts.engine.recorder import Recorder, stack_infos
from metaroll.rollouts.engine.units import cut, slots_of_unit, unit_size
from metaroll.rollouts.workers.pool import PoolTimeouts
from metaroll.rollouts.workers.transports import Health


@given(st.integers(1, 5000), st.sampled_from(["list", "batched"]))
def test_units_cover_all_plans_and_are_at_least_four_from_16_plans_on(count, kind):
    """design.md 4.2."""
    units = cut(range(count), unit_size(count, kind))
    assert [i for unit in units for i in unit] == list(range(count))
    if count >= 16:
        assert len(units) >= 4
    assert all(1 <= slots_of_unit(len(unit), kind) <= len(unit) for unit in units)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=6))
def test_the_recorder_gives_back_what_was_written(lengths):
    """Rollouts one after the other in two slots that are offset against each other, across blocks of 256."""
    recorder = Recorder(2)
    step, expected = 0, []
    recorder.begin(1)
    for length in lengths:
        recorder.begin(0)
        for _ in range(length):
            recorder.write({"x": np.array([[step, 0.5], [-step, 1.5]])})
            step += 1
        expected.append((step - length, step))
        arrays, infos = recorder.cut(0)
        np.testing.assert_array_equal(arrays["x"], [[t, 0.5] for t in range(*expected[-1])])
        assert infos == {}
    arrays, _ = recorder.cut(1)
    np.testing.assert_array_equal(arrays["x"], [[-t, 1.5] for t in range(step)])


def test_recorded_memory_is_freed_behind_the_slowest_slot():
    recorder = Recorder(1)
    recorder.begin(0)
    for step in range(3000):
        recorder.write({"x": np.array([step])})
        if step % 100 == 99:
            recorder.cut(0)
    assert len(recorder._chunks) <= 2


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
    assert limits.limit(Health("step", 0, False, 1)) == 60
    assert limits.limit(Health("reset", 0, False, 1)) == limits.limit(Health("start", 0, False, 1)) == 300
    assert limits.limit(Health("call", 0, False, 1)) is None  # the user's own function
    assert limits.limit(Health("call", 0, True, 1)) == 60  # ... unless its process is stopped
    with pytest.raises(ValueError, match="step_s must be positive"):
        PoolTimeouts(step_s=0)
