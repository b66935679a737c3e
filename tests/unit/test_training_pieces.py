"""Recorded rollouts of any lengths, with gaps, as pieces of one length."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll import load_rollouts, rollout, save_rollouts
from metaroll.configs.inference import InferenceOptions
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.lab import load_log
from metaroll.lab.inferring.inferring import infer
from metaroll.lab.inferring.pieces import even_pieces, made_up_steps
from metaroll.sims import PendulumEnv

DT = 0.1


def recorded(length: int, gaps=(), first: float = 0.0) -> StepSequence:
    """A rollout whose observations are the numbers of its steps, with gaps of some steps."""
    return StepSequence(
        observations=first + np.arange(length + 1.0)[:, None],
        actions=np.zeros((length, 1)),
        rewards=np.zeros(length),
        time=DT * np.arange(length + 1),
        rollout_info={"log": {"made_up": [[DT * begin, DT * end] for begin, end in gaps]}},
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
        ((300, 298, 301), [298] * 3, "3 rollouts cut into 3 pieces of 298 steps; 5 of 899 steps are left out"),
        ((5000, 4900, 37), [4900] * 2, "3 rollouts cut into 2 pieces of 4900 steps; 137 of 9,937 steps are left out"),
        ((1000, 1000, 500), [500] * 5, "3 rollouts cut into 5 pieces of 500 steps"),
        ((1000, 650), [500] * 3, "2 rollouts cut into 3 pieces of 500 steps; 150 of 1,650 steps are left out"),
        ((10, 8), [8, 8], "2 rollouts cut into 2 pieces of 8 steps; 2 of 18 steps are left out"),
        ((500, 60), [250, 250], "2 rollouts cut into 2 pieces of 250 steps; 60 of 560 steps are left out"),
        ([100] * 10 + [180], [100] * 11, "11 rollouts cut into 11 pieces of 100 steps; 80 of 1,180 steps are left out"),
    ],
)
def test_pieces_keep_most_steps_and_are_few(lengths, expected, text) -> None:
    """All were cut to the shortest: of 5,000, 4,900 and 37 steps 111 were left."""
    pieces = even_pieces([recorded(length) for length in lengths], 20, at_least=2)
    assert [len(one) for one in pieces.rollouts] == expected and pieces.text == text


def test_as_many_pieces_as_are_needed() -> None:
    given = [recorded(500), recorded(60)]
    assert len(even_pieces(given, 20).rollouts) == 1 and len(even_pieces(given, 20, at_least=2).rollouts) == 2
    whole = [recorded(60)] * 3
    assert even_pieces(whole, 20, at_least=4).rollouts == whole  # nothing is cut up so that more is left


def test_no_piece_reaches_into_a_gap() -> None:
    """A gap of 0.2 s was bridged: friction came out three deviations off, and all checks passed."""
    pieces = even_pieces([recorded(1000, [(400, 410)])], 20)
    assert shown(pieces) == [(0.0, 196.0), (196.0, 392.0), (410.0, 606.0), (606.0, 802.0), (802.0, 998.0)]
    assert pieces.bridged == 0 and pieces.text == (
        "1 rollout cut into 5 pieces of 196 steps; 20 of 1,000 steps are left out; no piece reaches into the gap in "
        "which rows are missing"
    )
    whole = [recorded(300), recorded(300, [(150, 152)]), *(recorded(300) for _ in range(4))]
    pieces = even_pieces(whole, 20)
    assert len(pieces.rollouts) == 5 and pieces.rollouts[0] is whole[0]  # halves of all would be too many


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (slice(0, 300), []),
        (slice(500, 1000), []),
        (slice(405, 1000), [(0, 5)]),
        (slice(300, 404), [(100, 104)]),
        (slice(100, 900), [(300, 310)]),
    ],
)
def test_parts_of_a_rollout_have_the_gaps_that_lie_in_them(part, expected) -> None:
    """Parts had the gaps of the whole: cut again, one rollout was five pieces, four of them the same."""
    cut = recorded(1000, [(400, 410)])[part]
    assert made_up_steps(cut) == expected
    again = even_pieces(even_pieces([cut, cut], 20).rollouts, 20)
    assert again.text == "" and len(set(shown(again))) * 2 == len(again.rollouts)


def test_gaps_are_bridged_from_the_shortest_where_next_to_nothing_is_whole() -> None:
    lost = [(step, step + 1) for step in range(10, 500, 25) if not 250 < step < 295]
    pieces = even_pieces([recorded(500, sorted([*lost, (260, 290)]))], 20)
    assert all(not begin < 289.0 < end for begin, end in shown(pieces)) and pieces.bridged == 18
    assert pieces.text.endswith(
        "no piece reaches into the gap in which rows are missing; 18 gaps of one step bridged: their made-up "
        "rows count as recorded"
    )
    # Nine whole runs and eight gaps: eight of the runs, not thousands of pieces of one step.
    gaps = [(100 + 110 * k, 110 + 110 * k) for k in range(8)]
    assert [len(one) for one in even_pieces([recorded(980, gaps)], 20).rollouts] == [100] * 8
    assert made_up_steps(recorded(5)) == [] and even_pieces([recorded(4, [(0, 4)])], 20).bridged == 1


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.lists(st.integers(0, 299), max_size=12)), min_size=1, max_size=4),
    st.integers(2, 30),
    st.integers(1, 3),
)
def test_pieces_are_of_one_length_and_do_not_overlap(drawn, shortest, at_least) -> None:
    rollouts = []
    for number, (length, starts) in enumerate(drawn):
        gaps, after = [], 0
        for start in sorted(starts):
            if after <= start < length:
                gaps.append((start, min(start + 3, length)))
                after = start + 4
        rollouts.append(recorded(length, gaps, 1000.0 * number))
    pieces = even_pieces(rollouts, shortest, at_least)
    edges = shown(pieces)
    [size] = {end - begin for begin, end in edges}
    assert len(edges) <= max(8, len(rollouts))
    free = []
    for one in rollouts:
        bounds = [0, *itertools.chain.from_iterable(made_up_steps(one)), len(one)]
        free += [end - first for first, end in zip(bounds[::2], bounds[1::2], strict=True)]
    assert pieces.bridged or size >= min(shortest, max(free)) or size in free
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(edges))
    assert pieces.text or len(edges) * size == sum(map(len, rollouts))
    if not pieces.bridged:
        for number, rollout in enumerate(rollouts):
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
        [coarser] = load_log(path, mapping, dt=0.1)
    assert made_up_steps(found) == [(19, 23), (39, 41)]
    assert [made_up_steps(one) for one in parts] == [[(19, 23)], [(8, 10)]]  # of row 31 on
    assert made_up_steps(coarse) == [(9, 12)]  # of each step around row 41 another row is there
    assert made_up_steps(coarser) == []
    clean = found.observations[[*range(20), *range(23, 40), *range(41, 60)], 0]
    np.testing.assert_allclose(clean, np.sin(0.1 * rows), atol=1e-12)  # all others were recorded
    save_rollouts([found], tmp_path / "kept")
    [loaded] = load_rollouts(tmp_path / "kept")
    assert made_up_steps(loaded) == made_up_steps(found)


def test_what_is_inferred_from_has_no_gaps(tmp_path) -> None:
    options = InferenceOptions(segment_length=4, num_simulations=40, rounds=1, checks=False, hold_out=1)
    real = rollout(PendulumEnv(init_space=[1.0, 0.0]), lambda obs: [np.sign(obs[2])], max_steps=30)
    fields = {name: real.get_data_values(name) for name in ("observations", "actions", "rewards", "states", "time")}
    dt = float(np.diff(real.time)[0])
    log = StepSequence(**fields, rollout_info={"log": {"made_up": [[12.0 * dt, 15.0 * dt]]}})
    found = infer("pend", [log], {"pole_mass": (0.5, 1.5)}, tmp_path, options)
    assert found.recordings == (
        "recordings: 1 of 12 steps, the last one held out; 1 rollout cut into 2 pieces of 12 steps; 6 of 30 steps are "
        "left out; no piece reaches into the gap in which rows are missing"
    )
    held_out, seen = found.traces
    np.testing.assert_array_equal(seen.recorded, real.states[:12])
    np.testing.assert_array_equal(held_out.recorded, real.states[15:27])
    with pytest.raises(ShapeError, match="rollouts must"):
        infer("pend", [StepSequence.concat([real, real])], {"pole_mass": (0.5, 1.5)}, tmp_path, options)
    with pytest.raises(ValueError, match=r"got 1 of 1: "):
        infer("pend", [real[:3]], {"pole_mass": (0.5, 1.5)}, tmp_path, options)
