"""Recorded rollouts of any lengths, with gaps, as pieces of one length."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll import load_log
from metaroll.data.step_sequence import StepSequence
from metaroll.training.comparing.pieces import even_pieces, made_up_steps


def recorded(length: int, gaps=(), first: float = 0.0) -> StepSequence:
    """A rollout whose observations are the numbers of its steps."""
    return StepSequence(
        observations=first + np.arange(length + 1.0)[:, None],
        actions=np.zeros((length, 1)),
        rewards=np.zeros(length),
        rollout_info={"log": {"made_up": [list(gap) for gap in gaps]}},
    )


def shown(pieces) -> list[tuple[float, float]]:
    """First and last observation of each piece, the one after its last step included."""
    return [(float(one.observations[0, 0]), float(one.observations[-1, 0])) for one in pieces.rollouts]


def test_rollouts_of_one_length_without_gaps_stay_as_they_are() -> None:
    given = [recorded(50), recorded(50)]
    pieces = even_pieces(given, 20)
    assert pieces.text == "" and all(one is other for one, other in zip(pieces.rollouts, given, strict=True))


@pytest.mark.parametrize(
    ("lengths", "expected", "text"),
    [
        ((300, 298, 301), [298, 298, 298], "pieces of 3 rollouts, of whose 899 steps 5 are left out"),
        ((5000, 4900, 37), [4900, 4900], "pieces of 3 rollouts, of whose 9,937 steps 137 are left out"),
        ((1000, 1000, 500), [500] * 5, ""),
        ((1000, 650), [500] * 3, "pieces of 2 rollouts, of whose 1,650 steps 150 are left out"),
        ((10, 8), [8, 8], "pieces of 2 rollouts, of whose 18 steps 2 are left out"),
    ],
)
def test_pieces_keep_most_steps_and_are_few(lengths, expected, text) -> None:
    """All were cut to the shortest: of 5,000, 4,900 and 37 steps 111 were left."""
    pieces = even_pieces([recorded(length) for length in lengths], 20)
    assert [len(one) for one in pieces.rollouts] == expected and pieces.text == text


def test_no_piece_reaches_into_a_gap() -> None:
    """A gap of 0.2 s was bridged: friction came out three deviations off, and all checks passed."""
    pieces = even_pieces([recorded(1000, [(400, 410)])], 20)
    assert shown(pieces) == [(0.0, 196.0), (196.0, 392.0), (410.0, 606.0), (606.0, 802.0), (802.0, 998.0)]
    assert pieces.text == (
        "pieces of one rollout, of whose 1,000 steps 20 are left out; none reaches into the gap in which rows are "
        "missing"
    )
    whole = [recorded(300), recorded(300, [(150, 152)]), *(recorded(300) for _ in range(4))]
    pieces = even_pieces(whole, 20)
    assert len(pieces.rollouts) == 5 and pieces.rollouts[0] is whole[0]  # halves of all would be too many


def test_gaps_are_bridged_from_the_shortest_where_next_to_nothing_is_whole() -> None:
    lost = [(step, step + 1) for step in range(10, 500, 25)]
    pieces = even_pieces([recorded(500, [*lost, (260, 290)])], 20)
    assert all(not begin < 289.0 < end for begin, end in shown(pieces))
    assert pieces.text.endswith(
        "none reaches into the gap in which rows are missing; 20 gaps of one step bridged: what is made up there counts"
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.lists(st.integers(0, 199), max_size=3)), min_size=1, max_size=4),
    st.integers(2, 30),
)
def test_pieces_are_of_one_length_and_do_not_overlap(drawn, shortest) -> None:
    rollouts = []
    for number, (length, starts) in enumerate(drawn):
        gaps, after = [], 0
        for start in sorted(starts):
            if after <= start < length:
                gaps.append((start, min(start + 3, length)))
                after = start + 4
        rollouts.append(recorded(length, gaps, 1000.0 * number))
    pieces = even_pieces(rollouts, shortest)
    edges = shown(pieces)
    assert len({end - begin for begin, end in edges}) == 1 and len(edges) <= max(8, len(rollouts))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(edges))
    if "bridged" not in pieces.text:
        for rollout, number in zip(rollouts, range(len(rollouts)), strict=True):
            for first, end in made_up_steps(rollout):
                assert all(right <= 1000.0 * number + first or left >= 1000.0 * number + end for left, right in edges)


def test_a_log_tells_which_steps_are_made_up(tmp_path) -> None:
    rows = np.delete(np.arange(60), [20, 21, 22, 40])
    path = tmp_path / "log.npz"
    np.savez(path, t=0.02 * rows, x=np.sin(0.1 * rows), u=np.cos(rows), run=(rows > 30).astype(int))
    mapping = {"time": "t", "observations": ["x"], "actions": {"u": {"column": "u", "bounds": [-1.0, 1.0]}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gaps
        [found] = load_log(path, mapping, dt=0.02)
        parts = load_log(path, {**mapping, "episode": "run"}, dt=0.02)
        [coarse] = load_log(path, mapping, dt=0.04)
    assert made_up_steps(found) == [(19, 23), (39, 41)]
    assert [made_up_steps(one) for one in parts] == [[(19, 23)], [(8, 10)]]  # of row 31 on
    assert made_up_steps(coarse) == [(9, 12), (19, 21)]
    assert made_up_steps(recorded(5)) == []
    clean = found.observations[[*range(20), *range(23, 40), *range(41, 60)], 0]
    np.testing.assert_allclose(clean, np.sin(0.1 * rows), atol=1e-12)  # all others were recorded
