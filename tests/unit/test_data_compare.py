from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from metaroll.data.compare import first_difference, rollouts_equal, tree_difference, trees_equal
from metaroll.data.step_sequence import StepSequence


def make(**changes: Any) -> StepSequence:
    arrays: dict[str, Any] = {
        "rewards": np.array([0.0, np.nan]),
        "observations": np.zeros((3, 2), dtype=np.float32),
        "actions": np.zeros((2, 1)),
        "infos": {"x": np.arange(2)},
        "rollout_info": {"task": np.ones(2)},
    }
    return StepSequence(**{**arrays, **changes})


class Alike:
    def __repr__(self) -> str:
        return "alike"


def test_equal_rollouts_are_equal_bit_for_bit() -> None:
    assert rollouts_equal(make(), make())
    assert rollouts_equal(StepSequence.concat([make()] * 2), StepSequence.concat([make()] * 2))
    a, b = make(), make()
    a.torch()
    b.torch()
    assert rollouts_equal(a, b)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rewards": np.array([-0.0, np.nan])}, "rewards: first at entry 0: 0.0 and -0.0 (1"),
        ({"observations": np.zeros((3, 2))}, "observations: float32"),
        ({"observations": np.zeros((2, 2), dtype=np.float32)}, "observations: float32 (3, 2) and float32 (2, 2)"),
        ({"infos": {"y": np.arange(2)}}, "infos: has entries in one case only: ['x', 'y']"),
        ({"infos": {"x": np.array([0, 2])}}, "infos['x']: first at entry 1: 1 and 2 (1 of 2"),
        ({"extra": np.zeros(2)}, "data_names"),
        ({"complete": False}, "done"),
        ({"truncated": [False, True]}, "terminated"),
        ({"done": [True, True]}, "rollout_bounds"),
        ({"rollout_info": {"task": np.zeros(2)}}, "rollout_info['task']: first at entry 0: 1.0 and 0.0 (2 of 2"),
        ({"rollout_info": {}}, "rollout_info: has entries in one case only: ['task']"),
        ({"data_format": "torch"}, "length, continuous, data_format"),
    ],
)
def test_every_difference_is_found(changes: dict[str, Any], name: str) -> None:
    difference = first_difference(make(), make(**changes))
    assert difference is not None and difference.startswith(name)


def test_two_values_that_differ_never_read_the_same() -> None:
    wide, long = np.zeros((3, 11)), list(range(8))
    other = wide.copy()
    other[1, 7] = 1
    keys = dict.fromkeys("abcdef", 1)
    One, Two = namedtuple("P", "a b"), namedtuple("P", "c d")
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    for a, b, text in (
        (wide, other, "x: first at entry [1, 7]: 0.0 and 1.0 (1 of 33 values differ)"),
        (torch.tensor(wide), torch.tensor(other), "x: first at entry [1, 7]: 0.0 and 1.0 (1 of 33 values differ)"),
        (nans[:1], nans[1:], "x: first at entry 0: nan and nan, of other bits (1 of 1 values differ)"),
        (np.array([None, {"k": 1}]), np.array([None, {"k": 2}]), "x[1]['k']: 1 and 2"),
        (np.array(1.0), np.array(2.0), "x: 1.0 and 2.0"),
        (One(1, 2), Two(1, 2), "x: ('a', 'b') and ('c', 'd')"),
        (keys, {**keys, "g": 1}, "x: has entries in one case only: ['g']"),
        ({1: 0}, {"1": 0}, "x: has entries in one case only: ['1', 1]"),
        ({1: Alike()}, {1: Alike()}, "x[1]: alike and alike, not equal, but with the same text"),
        ([*long, {"k": "s"}], [*long, {"k": "t"}], "x[8]['k']: 's' and 't'"),
        (long, [*long, 1], "x: 8 entries and 9 entries"),
        (np.float64(1.0), 1.0, "x: 1.0 of type float64 and 1.0 of type float"),
        (np.ones(2), [1.0, 1.0], "x: ndarray of dtype float64 and shape (2,) and list with 2 entries"),
        ([(1, 2)], [[1, 2]], "x[0]: tuple with 2 entries and list with 2 entries"),
        (f"{'a' * 30}b{'a' * 30}", f"{'a' * 30}c{'a' * 30}", f"x: '{'a' * 10}b{'a' * 29}' and '{'a' * 10}c"),
        (10**100, 10**100 + 10**50, "x: 'ce408e211a7"),
        (Physics(np.ones(2)), Physics(np.zeros(2)), "x.mass: first at entry 0: 1.0 and 0.0 (2 of 2 values differ)"),
    ):
        difference = tree_difference(a, b, "x")
        assert difference is not None and difference.startswith(text), difference
    assert tree_difference([(1, 2)], [[1, 2]], exact=False) is None
    assert tree_difference([make()], [make()]) is None
    assert tree_difference([make()], [make(rewards=np.zeros(2))]) == (
        "[0]: rewards: first at entry 1: nan and 0.0 (1 of 2 values differ)"
    )


def test_final_observations_count() -> None:
    last = np.zeros((3, 2), dtype=np.float32)
    last[2] = 1
    a, b = StepSequence.concat([make(), make()]), StepSequence.concat([make(), make(observations=last)])
    assert first_difference(a, b) == "final entries of the sub-rollouts"


def test_info_may_be_left_out() -> None:
    assert rollouts_equal(make(), make(rollout_info=None), compare_info=False)


def test_trees() -> None:
    assert trees_equal(
        {"a": [1, (2.0, "x")], "b": np.array([None, "s"])}, {"b": np.array([None, "s"]), "a": [1, (2.0, "x")]}
    )
    assert not trees_equal([1], (1,))
    assert not trees_equal(1, 1.0)
    assert not trees_equal(np.float32(1), np.float64(1))
    assert trees_equal(float("nan"), float("nan"))
    assert not trees_equal(0.0, -0.0)
    assert trees_equal(torch.tensor(float("nan")), torch.tensor(float("nan")))
    assert not trees_equal(torch.zeros(1), np.zeros(1, dtype=np.float32))


@dataclass
class Physics:
    mass: Any
    name: str = "ball"


def test_dataclasses_that_hold_arrays_or_tensors() -> None:
    for make_mass in (lambda: np.ones(2), lambda: torch.ones(2)):
        assert trees_equal(Physics(make_mass()), Physics(make_mass()))
        assert not trees_equal(Physics(make_mass()), Physics(make_mass() * 2))
        assert not trees_equal(Physics(make_mass()), Physics(make_mass(), "cube"))
        parts = [make(rollout_info={"physics": Physics(make_mass())}) for _ in range(2)]
        assert trees_equal(StepSequence.concat(parts).rollout_info, parts[0].rollout_info)


def test_tensors_of_unusual_memory() -> None:
    conjugate = torch.tensor([1 + 2j]).conj()
    assert trees_equal(conjugate, torch.tensor([1 - 2j]))
    assert not trees_equal(conjugate, torch.tensor([1 + 2j]))
    # One entry with a stride of 0 counts as contiguous.
    assert trees_equal(torch.ones(1).expand(3)[:1], torch.ones(1))
    assert trees_equal(torch.zeros(0), torch.zeros(0))
