"""specs/sampling.md 7.5, process_data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.signal
import torch

from metaroll.data.compare import rollouts_equal
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError


class Hidden(NamedTuple):
    h: Any
    c: Any


def make(start: float = 0.0, length: int = 3, **data: Any) -> StepSequence:
    numbers = start + np.arange(length + 1.0)
    arrays: dict[str, Any] = {
        "rewards": numbers[:-1].copy(),
        "observations": numbers[:, None].copy(),
        "actions": numbers[:-1, None].copy(),
        "infos": {"deep": {"x": numbers.copy()}},
        "hidden": Hidden(numbers[:-1].copy(), numbers.copy()),
        "time": numbers.copy(),
        "rollout_info": {"task": np.ones(2)},
    }
    return StepSequence(**{**arrays, **data})


def centered(x: Any, scale: float = 1.0) -> Any:
    x -= x.mean(0)  # in place: the original must not see it
    return x * scale


def test_every_field_of_every_rollout_is_processed_apart() -> None:
    """specs/sampling.md 7.5, RULE"""
    parts = [make(0, 3, truncated=[False, False, True]), make(100, 2)]
    both = StepSequence.concat(parts)
    before = StepSequence.concat([make(0, 3, truncated=[False, False, True]), make(100, 2)])
    done = StepSequence.process_data(both, centered, "x", exclude_fields=["time"], scale=2.0)
    assert rollouts_equal(both, before)
    assert done.rewards.tolist() == [-2, 0, 2, -1, 1]
    assert done.observations[:, 0].tolist() == [-3, -1, 1, -2, 0]  # 0, 1, 2, 3 and 100, 101, 102
    assert done.next_observations[:, 0].tolist() == [-1, 1, 3, 0, 2]
    assert done.infos["deep"]["x"].tolist() == done.observations[:, 0].tolist()
    assert isinstance(done.hidden, Hidden) and done.hidden.h.tolist() == done.rewards.tolist()
    assert done.time.tolist() == both.time.tolist()
    assert done.rollout_bounds.tolist() == [0, 3, 5] and done.data_names == both.data_names
    assert (done.truncated == both.truncated).all() and (done.done == both.done).all()
    assert done.rollout_info is both.rollout_info
    kept = StepSequence.process_data(StepSequence.concat(parts, truncate_last=False), centered, "x", scale=2.0)
    assert kept.observations[:, 0].tolist() == [-3, -1, 1, -2, 0, 2]


def test_filter_of_scipy() -> None:
    numbers = np.random.default_rng(0).normal(size=(31, 2))
    rollout = make(length=30, observations=numbers)
    b, a = scipy.signal.butter(3, 0.2)
    done = StepSequence.process_data(
        rollout, scipy.signal.filtfilt, "x", include_fields=["observations"], b=b, a=a, axis=0
    )
    np.testing.assert_array_equal(done.observations, scipy.signal.filtfilt(b, a, numbers, axis=0))
    assert done.rewards is rollout.rewards


def test_tensors_and_loose_batches() -> None:
    rollout = make(data_format="torch")
    done = StepSequence.process_data(rollout, torch.neg, "input", torch.Tensor)
    assert done.data_format == "torch" and done.rewards.tolist() == [0, -1, -2]
    with pytest.raises(TypeError, match="pass fcn_arg_types=Tensor"):
        StepSequence.process_data(rollout, centered, "x")
    loose = StepSequence.process_data(make()[[2, 0]], lambda x: x + 1, "x", include_fields=["rewards"])
    assert not loose.continuous and loose.rewards.tolist() == [3, 1]


def test_choice_of_fields() -> None:
    rollout = make()
    nothing = StepSequence.process_data(rollout, centered, "x", include_fields=[])
    assert rollouts_equal(nothing, rollout)
    one = StepSequence.process_data(rollout, centered, "x", include_fields=["rewards", "time"], exclude_fields=["time"])
    assert one.rewards.tolist() == [-1, 0, 1] and one.time is rollout.time
    for name in ("include_fields", "exclude_fields"):
        with pytest.raises(DataError, match=f"{name}: there is no field 'color'; fields: rewards"):
            StepSequence.process_data(rollout, centered, "x", **{name: ["color"]})
        with pytest.raises(TypeError, match="must be a list of names"):
            StepSequence.process_data(rollout, centered, "x", **{name: "rewards"})


def test_bad_functions_are_named() -> None:
    rollout = make(mission=np.array(["a"] * 3, dtype=object))
    with pytest.raises(ShapeError, match=r"must keep the number of entries, but made shape \(2,\) of the \(3,\)"):
        StepSequence.process_data(rollout, lambda x: x[1:], "x")
    with pytest.raises(ShapeError, match=r"made shape \(\) of"):
        StepSequence.process_data(rollout, np.mean, "a", include_fields=["rewards"])
    with pytest.raises(TypeError) as caught:
        StepSequence.process_data(rollout, centered, "x")
    assert "field 'mission'" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="fcn_arg_name 'x' is the argument that takes the data"):
        StepSequence.process_data(rollout, centered, "x", x=3)
    with pytest.raises(TypeError, match="fcn must be callable"):
        StepSequence.process_data(rollout, None, "x")  # pyright: ignore[reportArgumentType]


def test_results_that_trace_gradients_are_refused() -> None:
    rollout = make()
    rollout.torch(torch.float32)
    weight = torch.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="'rewards' must not require gradients"):
        StepSequence.process_data(rollout, lambda x: x * weight, "x", torch.Tensor, include_fields=["rewards"])
    detached = StepSequence.process_data(rollout, lambda x: x * weight.detach(), "x", torch.Tensor, ["rewards"])
    assert torch.equal(detached.rewards, rollout.rewards)
