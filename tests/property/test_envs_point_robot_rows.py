"""The physics of a point robot does not depend on how many are stepped together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metaroll.envs.point.point_robot import go_to, point_robot_step

COORDINATES = st.floats(-5, 5)


@st.composite
def rows(draw: st.DrawFn) -> list[np.ndarray]:
    num = draw(st.integers(1, 9))
    return [draw(arrays(np.float64, (num, 2), elements=COORDINATES)) for _ in range(3)]


@given(rows())
def test_a_row_has_the_same_bits_alone_and_among_others(batch: list[np.ndarray]) -> None:
    position, action, goal = batch
    together = point_robot_step(position, action, goal)
    for i in range(len(position)):
        alone = point_robot_step(position[i : i + 1], action[i : i + 1], goal[i : i + 1])
        assert together[0][i].tobytes() == alone[0][0].tobytes()
        assert together[1][i] == alone[1][0]


@given(rows())
def test_a_step_moves_at_most_a_tenth_and_never_overshoots_a_target(batch: list[np.ndarray]) -> None:
    position, action, target = batch
    moved, _ = point_robot_step(position, action, target)
    assert np.all(np.abs(moved - position) <= 0.1 + 1e-12)
    nearer, _ = point_robot_step(position, go_to(target, position), target)
    expected = np.maximum(np.abs(target - position) - 0.1, 0)
    np.testing.assert_allclose(np.abs(target - nearer), expected, atol=1e-12)
