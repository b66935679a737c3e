"""Spaces and batches of their elements: rows for policies, elements for environments (design.md 3, 4.4)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    Sequence,
    Text,
    Tuple,
)

from metaroll.data.space_batches import (
    action_element,
    action_row,
    check_elements,
    empty_batch,
    flat_actions,
    flat_dim,
    flatten_batch,
    same_kind,
    stack_elements,
    take_rows,
    to_box_type,
)
from metaroll.errors import ShapeError

MATRIX = Box(-1.0, 1.0, (2, 3), np.float32)
CHOICE = Discrete(3, start=5)
NESTED = Dict(
    {
        "image": Box(0, 255, (2, 2, 3), np.uint8),
        "pair": Tuple((CHOICE, Box(-1.0, 1.0, (2,), np.float64))),
        "gears": MultiDiscrete([2, 3]),
        "switches": MultiBinary(2),
    }
)
NUMERIC = [MATRIX, CHOICE, MultiDiscrete([2, 3]), MultiDiscrete([[2, 3], [4, 5]]), MultiBinary((2, 2)), NESTED]


def draw(space: gymnasium.Space, count: int) -> list[Any]:
    space.seed(3)
    return [space.sample() for _ in range(count)]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b)


def test_flat_dim() -> None:
    assert [flat_dim(space) for space in (MATRIX, CHOICE, MultiDiscrete([2, 3]), MultiBinary(4))] == [6, 3, 5, 4]
    assert flat_dim(NESTED) == 12 + (3 + 2) + 5 + 2
    assert flat_dim(Dict({"text": Text(5), "x": MATRIX, "many": Sequence(CHOICE)})) == 6


def test_box_observations_are_reshaped_without_a_copy() -> None:
    batch = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    flat = flatten_batch(MATRIX, batch)
    np.testing.assert_array_equal(flat, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    assert np.shares_memory(flat, batch)


def test_discrete_observations_are_one_hot() -> None:
    flat = flatten_batch(CHOICE, np.array([5, 7]))
    np.testing.assert_array_equal(flat, [[1, 0, 0], [0, 0, 1]])
    assert flat.dtype == np.float32
    with pytest.raises(ValueError, match="from 5 to 7"):
        flatten_batch(CHOICE, np.array([4]))


@pytest.mark.parametrize("space", NUMERIC, ids=str)
def test_rows_are_those_of_gymnasium(space: gymnasium.Space) -> None:
    elements = draw(space, 4)
    rows = flatten_batch(space, stack_elements(space, elements))
    np.testing.assert_array_equal(rows, [gymnasium.spaces.flatten(space, element) for element in elements])
    assert rows.shape == (4, flat_dim(space))


@pytest.mark.parametrize("space", [*NUMERIC, Dict({"text": Text(5), "many": Sequence(CHOICE)})], ids=str)
def test_elements_come_back_as_they_were(space: gymnasium.Space) -> None:
    elements = draw(space, 3)
    batch = stack_elements(space, elements)
    for row, element in enumerate(elements):
        back = take_rows(batch, row)
        assert same(back, element)
        assert space.contains(back)


def test_batches_are_copies_in_the_types_of_the_space() -> None:
    image = np.full((2, 2, 3), 200, dtype=np.uint8)
    batch = stack_elements(NESTED["image"], [image])
    image[:] = 0
    assert (batch.dtype, batch[0, 0, 0, 0]) == (np.uint8, 200)
    structure = empty_batch(NESTED, 2)
    assert list(structure) == ["gears", "image", "pair", "switches"]  # Dict spaces sort their keys
    assert [part.dtype for part in structure["pair"]] == [np.int64, np.float64]


def test_texts_are_left_out_of_the_rows_but_kept_in_the_batch() -> None:
    space = Dict({"mission": Text(20), "x": Box(-1, 1, (2,))})
    batch = stack_elements(space, [{"mission": "go left", "x": np.zeros(2)}, {"mission": "stop", "x": np.ones(2)}])
    np.testing.assert_array_equal(flatten_batch(space, batch), [[0, 0], [1, 1]])
    assert batch["mission"].tolist() == ["go left", "stop"]
    assert flatten_batch(Dict({"mission": Text(20)}), {"mission": batch["mission"]}).shape == (2, 0)


@pytest.mark.parametrize(
    ("space", "element", "message"),
    [
        (MATRIX, np.zeros((3, 2)), r"observation must have shape \(2, 3\).*got \(3, 2\)"),
        (Dict({"a": MATRIX}), {"b": 1}, r"a dict with the parts \['a'\], got \{'b': 1\}"),
        (Dict({"a": MATRIX}), 3, "a dict with the parts .* got 3"),
        (Dict({"a": MATRIX}), {"a": np.zeros(6)}, r"observation\['a'\] must have shape"),
        (Tuple((CHOICE,)), (1, 2), r"a tuple with the parts \[0\], got \(1, 2\)"),
    ],
)
def test_elements_of_another_shape_are_told(space: gymnasium.Space, element: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        stack_elements(space, [element])


def test_wrong_batch_shape_is_told() -> None:
    with pytest.raises(ShapeError, match=r"shape \(N, 2, 3\), got \(2, 6\)"):
        flatten_batch(MATRIX, np.zeros((2, 6)))


# -- actions -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("space", [*NUMERIC, Dict({"say": Text(5), "move": CHOICE})], ids=str)
def test_actions_survive_the_way_there_and_back(space: gymnasium.Space) -> None:
    actions = draw(space, 3)
    batch = flat_actions(space, [action_row(space, action) for action in actions])
    check_elements("actions", space, batch, 3)
    for row, action in enumerate(actions):
        element = action_element(space, batch, row)
        assert space.contains(element)
        assert same(element, action)


def test_choices_are_counted_from_zero_by_policies_and_from_start_by_environments() -> None:
    assert action_row(CHOICE, 7) == 2
    action = action_element(CHOICE, np.array([2]), 0)
    assert (action, type(action)) == (7, int)
    with pytest.raises(ValueError, match="index from 0 to 2, got 3"):
        action_element(CHOICE, np.array([3]), 0)
    gears = MultiDiscrete([2, 3], start=[1, 1])
    np.testing.assert_array_equal(action_element(gears, np.array([[0, 2]]), 0), [1, 3])
    with pytest.raises(ValueError, match=r"indices from 0 to \[1, 2\], got \[2, 0\]"):
        action_element(gears, np.array([[2, 0]]), 0)


def test_box_action_is_an_own_copy_in_shape_and_dtype() -> None:
    rows = np.arange(6.0)[None]
    action = action_element(MATRIX, rows, 0)
    assert (action.shape, action.dtype) == ((2, 3), np.float32)
    action[:] = 0
    assert rows[0, 5] == 5
    with pytest.raises(ShapeError, match="6 entries"):
        action_element(MATRIX, np.zeros((1, 5)), 0)


def test_the_float32_number_nearest_to_a_bound_of_float64_means_the_bound() -> None:
    space = Box(np.array([-0.2, -np.inf]), np.array([0.1, np.finfo(np.float64).max]), dtype=np.float64)
    given = np.array([[-0.2, 3.0], [0.1, -7.3], [0.05, 0.0], [0.5, 0.0]], dtype=np.float32)
    found = to_box_type(space, given)
    assert (found.dtype, found[:2, 0].tolist()) == (np.float64, [-0.2, 0.1])
    assert np.array_equal(found[:, 1], given[:, 1])
    assert np.array_equal(found[2:], given[2:])  # actions that are meant to be elsewhere stay
    narrow = Box(-0.2, 0.1, (2,), np.float32)
    assert to_box_type(narrow, given) is given


def test_batches_of_actions_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"actions must have one row per slot \(2\) with 6 entries"):
        check_elements("actions", MATRIX, np.zeros((2, 5)), 2)
    with pytest.raises(ShapeError, match=r"actions must be a dict with the parts \['a'\]"):
        check_elements("actions", Dict({"a": MATRIX}), np.zeros((2, 6)), 2)
    with pytest.raises(ShapeError, match=r"actions\['a'\] must have one row per slot"):
        check_elements("actions", Dict({"a": MATRIX}), {"a": np.zeros((1, 6))}, 2)
    with pytest.raises(ShapeError, match="one action of"):
        action_row(MATRIX, np.zeros(5))


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (CHOICE, 5.5),
        (CHOICE, np.nan),
        (CHOICE, "left"),
        (CHOICE, None),
        (MultiDiscrete([2, 3]), [0, 1.5]),
        (MultiBinary(2), [0.3, 1.0]),
    ],
)
def test_choices_that_are_no_whole_numbers_are_refused_and_not_rounded(space: gymnasium.Space, action: Any) -> None:
    with pytest.raises(ValueError, match="the policy's action must be of whole numbers"):
        action_row(space, action, "the policy's action")


def test_same_kind_means_that_elements_fit_into_one_batch() -> None:
    assert same_kind(Box(-1, 1, (2,)), Box(-3, 3, (2,)))
    assert not same_kind(Box(-1, 1, (2,)), Box(-1, 1, (3,)))
    assert not same_kind(Box(-1, 1, (2,)), Box(-1, 1, (2,), np.float64))
    assert not same_kind(Discrete(2), Discrete(3))
    assert same_kind(Dict({"a": MATRIX}), Dict({"a": MATRIX}))
    assert not same_kind(Dict({"a": MATRIX}), Dict({"b": MATRIX}))


def test_objects_are_copied_in_and_out() -> None:
    """What an environment goes on changing does not reach what was recorded, and the other way round."""
    graph = Graph(Box(-1.0, 1.0, (2,)), None)
    space = Dict({"many": Sequence(Box(-1.0, 1.0, (2,))), "graph": graph, "text": Text(3)})
    nodes, entry = np.zeros((3, 2), np.float32), np.zeros(2, np.float32)
    element = {"many": (entry,), "graph": GraphInstance(nodes, None, None), "text": "abc"}
    batch = stack_elements(space, [element, element])
    entry += 1.0
    nodes += 1.0
    assert batch["many"][0][0].tolist() == [0, 0]
    assert type(batch["graph"][0]) is GraphInstance and not batch["graph"][0].nodes.any()
    out, rows = take_rows(batch, 0), take_rows(batch, [0])
    out["many"][0][:] = 7.0
    rows["graph"][0].nodes[:] = 7.0
    assert not batch["many"][0][0].any() and not batch["graph"][0].nodes.any()
    given = action_element(space, batch, 1)
    given["many"][0][:] = 7.0
    assert not batch["many"][1][0].any()
