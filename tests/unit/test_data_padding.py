"""specs/sampling.md 7.5, pad."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch

from metaroll.data.compare import rollouts_equal
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError


class Hidden(NamedTuple):
    h: Any
    c: Any


def make(**data: Any) -> StepSequence:
    arrays: dict[str, Any] = {
        "rewards": np.array([1.0, 2.0]),
        "observations": np.array([[1.0, 5], [2, 6], [3, 7]]),
        "actions": np.array([[1.0], [2]], dtype=np.float32),
        "infos": {"mean": np.array([0.5, 0.25]), "goal": np.array([1, 2, 3])},
        "hidden": Hidden(np.ones((2, 2)), np.ones(3)),
        "rollout_info": {"task": np.ones(2)},
    }
    return StepSequence(**{**arrays, **data})


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
@pytest.mark.parametrize("value", [0, 0.14])
def test_pad_lengthens_the_data_in_place(data_format: str, value: float) -> None:
    """specs/sampling.md 7.5"""
    rollout = make(data_format=data_format)
    assert StepSequence.pad(rollout, 4, pad_value=value) is None
    fill = pytest.approx([value, value])
    assert len(rollout) == 4 and rollout.data_format == data_format
    assert rollout.rewards.tolist()[:2] == [1, 2] and rollout.rewards.tolist()[2:] == fill
    # padding comes after the final observation
    assert rollout.observations.tolist()[:3] == [[1, 5], [2, 6], [3, 7]] and rollout.observations[3].tolist() == fill
    assert rollout.observations.shape == (5, 2) and rollout.actions.shape == (4, 1)
    assert rollout.infos["mean"].tolist()[2:] == fill
    assert rollout.infos["goal"].tolist() == [1, 2, 3, 0, 0]  # 0.14 is no whole number
    assert isinstance(rollout.hidden, Hidden) and rollout.hidden.h.shape == (4, 2) and rollout.hidden.c.shape == (5,)
    assert rollout.rollout_info["task"].tolist() == [1, 1]
    assert rollout.rollout_bounds.tolist() == [0, 4]
    assert rollout.padded.tolist() == [False, False, True, True]
    assert isinstance(rollout.padded, torch.Tensor if data_format == "torch" else np.ndarray)
    assert rollout[2].padded and not rollout[1].padded


def test_pad_moves_the_end() -> None:
    """specs/sampling.md 7.5, RULE"""
    rollout = make(truncated=[False, True])
    StepSequence.pad(rollout, 4, pad_value=0.14)
    assert rollout.done.tolist() == rollout.truncated.tolist() == [False, False, False, True]
    assert not rollout.terminated.any()
    ended = make()
    StepSequence.pad(ended, 3)
    assert ended.terminated.tolist() == [False, False, True] and not ended.truncated.any()
    unfinished = make(complete=False)
    StepSequence.pad(unfinished, 3)
    assert unfinished.done.tolist() == unfinished.truncated.tolist() == [False, False, True]


def test_pad_with_the_last_values() -> None:
    for data_format in ("numpy", "torch"):
        rollout = make(data_format=data_format, flag=np.array([False, True]))
        StepSequence.pad(rollout, 4, mode="edge")
        assert rollout.rewards.tolist() == [1, 2, 2, 2]
        assert rollout.observations.tolist() == [[1, 5], [2, 6], [3, 7], [3, 7], [3, 7]]
        assert rollout.infos["goal"].tolist() == [1, 2, 3, 3, 3] and rollout.flag.tolist() == [False, True, True, True]


def test_pad_with_nan_leaves_what_cannot_be_nan() -> None:
    objects = np.array(["go", "stop"], dtype=object)
    rollout = make(flag=np.ones(2, dtype=bool), text=np.array(["a", "b"]), mission=objects, wave=np.array([1j, 2]))
    StepSequence.pad(rollout, 3, pad_value=np.nan)
    assert np.isnan(rollout.rewards[2]) and np.isnan(rollout.wave[2])
    assert not rollout.flag[2] and rollout.text[2] == "" and rollout.mission[2] is None
    assert rollout.infos["goal"].dtype.kind == "i"


def test_a_rollout_that_is_long_enough_only_gets_the_mask() -> None:
    rollout, same = make(), make(padded=np.zeros(2, dtype=bool))
    StepSequence.pad(rollout, 2)
    assert rollouts_equal(rollout, same)
    StepSequence.pad(rollout, 1)
    assert rollouts_equal(rollout, same)
    longer = make()
    StepSequence.pad(longer, 3)
    StepSequence.pad(longer, 4, pad_value=9)
    assert longer.padded.tolist() == [False, False, True, True] and longer.rewards.tolist() == [1, 2, 0, 9]
    assert len(StepSequence.concat([rollout, longer])) == 6


def test_final_entries_of_a_concatenation_of_one_are_put_in_place() -> None:
    rollout = StepSequence.concat([make()])
    assert rollout.observations.shape == (2, 2)
    StepSequence.pad(rollout, 3)
    assert rollout.observations.tolist() == [[1, 5], [2, 6], [3, 7], [0, 0]]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"len_to_pad_to": 0}, ValueError, "len_to_pad_to must be an integer of at least 1"),
        ({"len_to_pad_to": 3.0}, TypeError, "len_to_pad_to must be an integer"),
        ({"pad_value": "0"}, TypeError, "pad_value must be an int or a float"),
        ({"pad_value": True}, TypeError, "pad_value must be an int or a float"),
        ({"pad_value": 1j}, TypeError, "pad_value must be an int or a float"),
        ({"mode": "reflect"}, ValueError, "mode must be 'constant' or 'edge'"),
        ({"pad_value": 1e30}, ValueError, r"pad_value 1e\+30 does not fit into field 'infos.goal'"),
    ],
)
def test_bad_input_changes_nothing(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    rollout = make()
    with pytest.raises(error, match=match):
        StepSequence.pad(rollout, **{"len_to_pad_to": 4, **arguments})
    assert rollouts_equal(rollout, make())


def test_only_single_rollouts_are_padded() -> None:
    both = StepSequence.concat([make(), make()])
    with pytest.raises(ShapeError, match=r"this is 2; pad each of iterate_rollouts"):
        StepSequence.pad(both, 9)
    with pytest.raises(ValueError, match="loose batch"):
        StepSequence.pad(both[[0, 1]], 9)
    mode: Literal["edge"] = "edge"
    with pytest.raises(ValueError, match="'padded' is meant for the mask"):
        StepSequence.pad(make(padded=np.zeros(2)), 3, mode=mode)
