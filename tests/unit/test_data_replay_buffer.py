"""The replay memory of off-policy learners: what it keeps, how it is sampled, what it refuses."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from live_pieces import LivePieces
from metaroll import ReplayBuffer, RolloutEngine, RolloutPlan, StepSequence
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import DataError, ShapeError
from metaroll.policies import GaussianMLPPolicy
from metaroll.types import EnvSpec

spaces = gymnasium.spaces
BOX = spaces.Box(-np.inf, np.inf, (1,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)


def piece(
    observations: np.ndarray,
    rewards: list[float],
    *,
    terminated: bool = False,
    truncated: bool = False,
    complete: bool = False,
    first: int = 0,
    plan: int = 0,
    actions: np.ndarray | None = None,
) -> Rollouts:
    count = len(rewards)
    flags = np.zeros((2, count), dtype=bool)
    flags[:, -1] = terminated, truncated
    acted = np.zeros((count, 1), dtype=np.float32) if actions is None else actions
    fields = {"rewards": np.array(rewards), "observations": observations, "actions": acted}
    plans = [RolloutPlan(index=plan, seed=(0, 0, plan), max_steps=99)]
    bounds, firsts = np.array([0, count]), np.array([first])
    return Rollouts([RolloutColumns(fields, *flags, bounds, np.array([complete]), [{}], None, plans, firsts=firsts)])


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def steps_of(buffer: ReplayBuffer, n_step: int = 1) -> dict[float, tuple[float, float, float]]:
    """Observation -> sum of rewards, next observation, discount, of all steps that are stored."""
    batch = buffer.sample(300, 0, n_step=n_step, discount=0.5)
    rows = zip(batch.observations, batch.rewards, batch.next_observations, batch.discounts, strict=True)
    return {float(o[0]): (float(r), float(following[0]), float(d)) for o, r, following, d in rows}


def test_pieces_are_joined_and_endings_count_as_what_they_are() -> None:
    buffer = ReplayBuffer(BOX, BOX, 100)
    assert buffer.add(piece(column(1, 2, 3), [1, 2])) == 2
    assert buffer.add(piece(column(3, 4), [4], terminated=True, complete=True, first=2)) == 1
    buffer.add(piece(column(10, 11), [8], truncated=True, complete=True, plan=1))
    buffer.add(piece(column(20, 21), [16], plan=2))  # goes on
    assert buffer.n_transitions_stored == len(buffer) == 5
    ends = {10.0: (8.0, 11.0, 0.5), 20.0: (16.0, 21.0, 0.5)}
    assert steps_of(buffer) == {1.0: (1.0, 2.0, 0.5), 2.0: (2.0, 3.0, 0.5), 3.0: (4.0, 4.0, 0.0), **ends}
    assert steps_of(buffer, 2) == {1.0: (2.0, 3.0, 0.25), 2.0: (4.0, 4.0, 0.0), 3.0: (4.0, 4.0, 0.0), **ends}
    assert steps_of(buffer, 9) == {1.0: (3.0, 4.0, 0.0), 2.0: (4.0, 4.0, 0.0), 3.0: (4.0, 4.0, 0.0), **ends}
    # A piece of another rollout cuts the one before; what lay between them is not made up.
    buffer.add(piece(column(30, 31), [32], plan=2, first=7))
    assert steps_of(buffer, 9)[20.0] == (16.0, 21.0, 0.5)
    assert steps_of(buffer)[30.0] == (32.0, 31.0, 0.5)
    buffer.clear()
    assert buffer.n_transitions_stored == 0


@pytest.mark.parametrize("restored", [False, True])
def test_a_buffer_that_was_cleared_or_restored_counts_and_draws_as_a_new_one(restored: bool) -> None:
    new, used = (ReplayBuffer(BOX, BOX, 20, num_slots=2) for _ in range(2))
    before = LivePieces(2, np.random.default_rng(1))
    for _ in range(9):
        used.add(before.advance(4))
    pieces = LivePieces(2, np.random.default_rng(0))
    if restored:
        new.add(pieces.advance(2))
        used.load_state_dict(new.state_dict())
    else:
        used.clear()
    for _ in range(8):  # until the ring is full, and more
        more = pieces.advance(2)
        assert used.add(more) == new.add(more)
        assert len(used) == used.n_transitions_stored == new.n_transitions_stored > 0
        for mine, theirs in zip(used.sample(40, 0), new.sample(40, 0), strict=True):
            assert mine.tobytes() == theirs.tobytes()


def test_live_collection_is_stored_whole() -> None:
    policy = GaussianMLPPolicy(EnvSpec.from_env(PointRobotEnv()), hidden_sizes=(4,))
    spec = EnvSpec.from_env(PointRobotEnv())
    buffer = ReplayBuffer(spec.observation_space, spec.action_space, 1000, num_slots=3)
    known: dict[bytes, tuple[bytes, bytes, float]] = {}
    plan = lambda n: RolloutPlan(index=n, seed=(0, 0, n), max_steps=5)  # noqa: E731
    with RolloutEngine(PointRobotEnv, policy) as engine, engine.open(plan, num_slots=3) as live:
        for count in (3, 4, 1, 7):
            pieces = live.advance(count)
            assert buffer.add(pieces) == 3 * count
            for one in pieces:
                for t in range(len(one)):
                    after = one.observations[t + 1].tobytes()
                    known[one.observations[t].tobytes()] = (one.actions[t].tobytes(), after, float(one.rewards[t]))
    assert buffer.n_transitions_stored == 45 == len(known)
    batch = buffer.sample(400, 0)
    for seen, action, reward, after in zip(*batch[:4], strict=True):
        acted, following, rewarded = known[seen.tobytes()]
        assert (acted, following) == (action.tobytes(), after.tobytes()) and reward == np.float32(rewarded)
    assert (batch.discounts == np.float32(0.99)).all() and (batch.weights == 1).all()


def test_observations_keep_their_dtypes_and_are_stored_once() -> None:
    space = spaces.Dict({"image": IMAGE, "state": spaces.Tuple([BOX, spaces.Discrete(5, start=2)])})
    buffer = ReplayBuffer(space, spaces.Discrete(3), 10)
    assert buffer.memory_estimate(space, spaces.Discrete(3), 10) == 10 * (48 + 4 + 8 + 8 + 4 + 1 + 4)
    images = np.arange(3 * 48, dtype=np.uint8).reshape(3, 4, 4, 3)
    seen = {"image": images, "state": (column(1, 2, 3), np.array([2, 3, 4]))}
    buffer.add(piece(seen, [1, 2], actions=np.array([2, 1]), truncated=True, complete=True))
    batch = buffer.sample(50, 0)
    assert batch.observations["image"].dtype == np.uint8 and batch.actions.dtype == np.int64
    for i, image in enumerate(batch.observations["image"]):
        row = int(image[0, 0, 0]) // 48
        assert (image == images[row]).all() and (batch.next_observations["image"][i] == images[row + 1]).all()
        assert batch.next_observations["state"][1][i] == row + 3 and batch.actions[i] == 2 - row


def test_actions_may_be_given_in_other_units() -> None:
    buffer = ReplayBuffer(BOX, BOX, 10)
    buffer.add(piece(column(1, 2, 3), [0, 0]), actions=column(0.25, 0.5))
    assert set(buffer.sample(30, 0).actions[:, 0].tolist()) == {0.25, 0.5}


@pytest.mark.parametrize("broken", ["observations", "actions", "rewards"])
def test_what_is_not_finite_is_refused_and_nothing_changes(broken: str) -> None:
    buffer = ReplayBuffer(BOX, BOX, 10)
    buffer.add(piece(column(1, 2), [5]))
    values = {"observations": column(2, 3, 4), "actions": column(0, 0), "rewards": column(1, 1)}
    values[broken][1] = np.nan
    bad = piece(values["observations"], values["rewards"][:, 0].tolist(), actions=values["actions"], first=1)
    with pytest.raises(DataError, match=f"{broken} of rollout 0 holds NaN or Inf at step 1"):
        buffer.add(bad)
    assert steps_of(buffer) == {1.0: (5.0, 2.0, 0.5)}
    buffer.add(piece(column(2, 3), [6], first=1))
    assert steps_of(buffer, 2)[1.0] == (8.0, 3.0, 0.25)


MISTAKES = [
    *(
        (lambda buffer, capacity=capacity: ReplayBuffer(BOX, BOX, capacity), "capacity")
        for capacity in (0, -1, 2.0, True)
    ),
    (lambda buffer: ReplayBuffer(spaces.Dict({"a": spaces.Text(3)}), BOX, 10), r"observation_space\['a'\]"),
    (lambda buffer: ReplayBuffer(BOX, spaces.Dict({"a": BOX}), 10), "action_space"),
    (lambda buffer: ReplayBuffer(BOX, BOX, 10, memory_map="/nowhere"), "memory_map"),
    (lambda buffer: ReplayBuffer(BOX, BOX, 20, priority_exponent=-1.0), "priority_exponent"),
    (lambda buffer: ReplayBuffer(BOX, BOX, 10).sample(3), "empty"),
    (lambda buffer: buffer.add(piece(np.zeros((2, 3), np.float32), [1])), "observations"),
    (lambda buffer: buffer.add(piece(np.zeros((2, 1), complex), [1])), "observations"),
    (lambda buffer: buffer.add([3]), "rollouts"),
    (
        lambda buffer: buffer.add(
            [StepSequence(observations=column(1), actions=column(1), rewards=[1.0], complete=False)]
        ),
        "observation after its last step",
    ),
    (lambda buffer: buffer.sample(3, n_step=0), "n_step"),
    (lambda buffer: buffer.sample(3, discount=1.5), "discount"),
    (lambda buffer: buffer.sample_segments(1, 0, length=5), "a segment of 5 steps .* holds 1"),
    (lambda buffer: buffer.sample_segments(1, 0, length=1, burn_in=-1), "burn_in"),
    (lambda buffer: buffer.update_priorities(np.arange(3), np.ones(3)), "uniformly"),
]


@pytest.mark.parametrize(("call", "argument"), MISTAKES)
def test_bad_input(call, argument: str) -> None:
    buffer = ReplayBuffer(BOX, BOX, 10)
    assert buffer.add([]) == 0
    buffer.add(piece(column(1, 2), [5]))
    with pytest.raises((ValueError, TypeError), match=argument):
        call(buffer)
    assert steps_of(buffer) == {1.0: (5.0, 2.0, 0.5)}


def test_the_estimate_comes_before_the_memory() -> None:
    needed = 10**9 * (4 * 4 * 3 + 4 + 4 + 1 + 4)
    with pytest.raises(ValueError, match=rf"needs {needed:,} bytes .*room for at most 16,393,442 steps"):
        ReplayBuffer(IMAGE, BOX, 10**9, memory_limit=10**9)
    assert ReplayBuffer(IMAGE, BOX, 10**9, memory_limit=10**9, planned_steps=1000).capacity == 10**9
    with pytest.raises(ValueError, match=r"bytes in .* left; choose a smaller capacity"):
        ReplayBuffer(IMAGE, BOX, 10**15, memory_map=".")


def test_planned_steps_are_all_kept() -> None:
    buffer = ReplayBuffer(BOX, BOX, 10**9, planned_steps=20)
    for i in range(20):  # rollouts of one step: as many final observations as steps
        buffer.add(piece(column(i, i + 0.5), [1], terminated=True, complete=True, plan=i))
    assert buffer.n_transitions_stored == 20 and set(steps_of(buffer)) == set(map(float, range(20)))


def test_files_hold_the_same(tmp_path) -> None:
    buffers = [ReplayBuffer(BOX, BOX, 20, num_slots=2, memory_map=where) for where in (None, tmp_path)]
    pieces = LivePieces(2, np.random.default_rng(0))
    for _ in range(9):
        batch = pieces.advance(3)
        for buffer in buffers:
            buffer.add(batch)
    for mine, theirs in zip(*(buffer.sample(40, 1) for buffer in buffers), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    assert not list(tmp_path.iterdir())  # nothing is left of them, however a process ends


def test_as_garage_uses_it() -> None:
    buffer = ReplayBuffer(BOX, BOX, 50)
    path = {
        "observation": column(1, 2),
        "action": column(5, 6),
        "reward": column(7, 8),
        "next_observation": column(2, 3),
        "terminal": np.array([[False], [True]]),
    }
    buffer.add_path(path)
    buffer.add_path({**path, "terminal": np.zeros((2, 1))})
    assert buffer.n_transitions_stored == 4
    found = buffer.sample_transitions(80, 0)
    rows = set(zip(*(found[key][:, 0].tolist() for key in path), strict=True))
    assert rows == {(1, 5, 7, 2, 0), (2, 6, 8, 3, 1), (2, 6, 8, 3, 0)}
    with pytest.raises(ShapeError, match="must be the observation after it"):
        buffer.add_path({**path, "observation": column(1, 5)})
    with pytest.raises(DataError, match="'terminal' is missing"):
        buffer.add_path({key: value for key, value in path.items() if key != "terminal"})


def test_states_that_do_not_fit_are_refused() -> None:
    buffer = ReplayBuffer(BOX, BOX, 10, num_slots=2)
    buffer.add(LivePieces(2, np.random.default_rng(0)).advance(4))
    state = buffer.state_dict()
    before = buffer.sample(20, 0)
    for other, message in (
        (ReplayBuffer(BOX, BOX, 11, num_slots=2), "of a buffer of 10 steps, this has 11"),
        (ReplayBuffer(BOX, BOX, 10), "of 2 slots, this buffer has 1"),
        (ReplayBuffer(IMAGE, BOX, 10, num_slots=2), "the state has observations of float32"),
        (ReplayBuffer(spaces.Dict({"a": BOX}), BOX, 10, num_slots=2), "no 'observations.a' in slot 0"),
    ):
        with pytest.raises((ValueError, DataError), match=message):
            other.load_state_dict(state)
    with pytest.raises(DataError, match="not the state of a ReplayBuffer: 'capacity' is missing"):
        buffer.load_state_dict({})
    assert all((a == b).all() for a, b in zip(before, buffer.sample(20, 0), strict=True))


def test_a_longer_plan_takes_over_the_state_of_a_shorter_one() -> None:
    pieces = LivePieces(2, np.random.default_rng(0))
    short, long = (ReplayBuffer(BOX, BOX, 10**6, num_slots=2, planned_steps=steps) for steps in (20, 400))
    for _ in range(5):
        batch = pieces.advance(2)
        short.add(batch)
        long.add(batch)
    other = ReplayBuffer(BOX, BOX, 10**6, num_slots=2, planned_steps=400)
    other.load_state_dict(short.state_dict())
    for _ in range(20):
        batch = pieces.advance(3)
        long.add(batch)
        other.add(batch)
    assert all((a == b).all() for a, b in zip(long.sample(50, 0), other.sample(50, 0), strict=True))


@pytest.mark.parametrize("priority_exponent", [None, 0.5])
def test_a_larger_ring_takes_over_what_a_full_one_has_kept_and_nothing_else(priority_exponent: float | None) -> None:
    pieces = LivePieces(2, np.random.default_rng(0))
    small, large = (
        ReplayBuffer(BOX, BOX, 10**6, num_slots=2, planned_steps=steps, priority_exponent=priority_exponent)
        for steps in (10, 400)
    )
    for _ in range(20):  # 40 steps and more into 11 rows per slot
        small.add(pieces.advance(4))
    large.load_state_dict(small.state_dict())
    kept = {row.tobytes() for row in small.sample(500, 0).observations}
    assert len(large) == len(small) and kept == {row.tobytes() for row in large.sample(500, 0).observations}
    if priority_exponent is None:
        mine, theirs = (buffer.sample_segments(500, 0, length=5) for buffer in (large, small))
        assert mine.mask.mean() == pytest.approx(theirs.mask.mean(), abs=0.05)  # segments were empty where nothing was
    more = pieces.advance(4)
    before = len(large)
    assert large.add(more) and len(large) > before  # a piece still joins the rollout that it goes on


# ---- priorities ------------------------------------------------------------------------------------------------------


def test_priorities_by_hand() -> None:
    buffer = ReplayBuffer(BOX, BOX, 10, priority_exponent=0.5)
    buffer.add(piece(column(0, 1, 2, 3, 4), [0, 1, 2, 3], truncated=True, complete=True))
    buffer.add(piece(column(5, 6), [5], plan=1))  # row 4 is no step; all steps have priority 1 at first
    first = buffer.sample(5, 0)
    assert sorted(first.observations[:, 0].tolist()) == [0, 1, 2, 3, 5] and (first.weights == 1).all()
    # Priorities sqrt(0), sqrt(1), sqrt(4), sqrt(9), and that of row 5 is 1 still: shares 0, 1/7, 2/7, 3/7, 1/7.
    buffer.update_priorities(np.array([0, 1, 3, 2, 3]), np.array([0.0, 1.0, 77.0, -4.0, 9.0]))
    batch = buffer.sample(7000, 0, weight_exponent=1.0)
    counts = np.bincount(batch.observations[:, 0].astype(int), minlength=6)
    assert np.abs(counts - [1, 1000, 2000, 3000, 0, 1000]).max() <= 2  # one from each of 7000 equal shares
    # Weights are 1 / (5 P), divided by the largest.
    expected = {1: 1.0, 2: 1 / 2, 3: 1 / 3, 5: 1.0}
    weights = buffer.sample(7, 1, weight_exponent=1.0)
    for seen, weight in zip(weights.observations[:, 0], weights.weights, strict=True):
        assert weight == pytest.approx(expected[int(seen)], rel=1e-3)
    buffer.add(piece(column(6, 7), [6], plan=1, first=1))  # a new one has the largest, sqrt(77)
    assert buffer.sample(1000, 2).observations[:, 0].tolist().count(6) > 500


def test_priorities_survive_a_snapshot() -> None:
    pieces = LivePieces(2, np.random.default_rng(0))
    buffer, other = (ReplayBuffer(BOX, BOX, 20, num_slots=2, priority_exponent=0.6) for _ in range(2))
    for _ in range(8):
        buffer.add(pieces.advance(3))
        batch = buffer.sample(16, 1)
        buffer.update_priorities(batch.indices, batch.rewards)
    other.load_state_dict(buffer.state_dict())
    more = pieces.advance(2)
    for one in (buffer, other):
        one.add(more)
    for mine, theirs in zip(buffer.sample(40, 1), other.sample(40, 1), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    with pytest.raises(ValueError, match="draws by priorities, the other uniformly"):
        ReplayBuffer(BOX, BOX, 20, num_slots=2).load_state_dict(buffer.state_dict())
    with pytest.raises(ShapeError, match="errors must be a finite number for each of 3 indices"):
        buffer.update_priorities(np.arange(3), np.array([1, np.nan, 2]))


# ---- goals in hindsight ----------------------------------------------------------------------------------------------

GOALS = spaces.Dict({"observation": BOX, "achieved_goal": BOX, "desired_goal": BOX})


def reached(achieved: np.ndarray, desired: np.ndarray, infos: object) -> np.ndarray:
    return -(achieved != desired)[:, 0].astype(np.float32)


def test_goals_in_hindsight_by_hand() -> None:
    buffer = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached, hindsight_ratio=1.0)
    seen = {"observation": column(0, 1, 2), "achieved_goal": column(10, 11, 12), "desired_goal": column(9, 9, 9)}
    buffer.add(piece(seen, [-1, -1], truncated=True, complete=True))
    batch = buffer.sample(200, 0)
    rows = np.column_stack([batch.observations["observation"], batch.observations["desired_goal"], batch.rewards])
    # From the first step 11 was reached at once, 12 only later; from the second one 12 at once.
    assert {tuple(row) for row in rows.tolist()} == {(0, 11, 0), (0, 12, -1), (1, 12, 0)}
    share = (rows[rows[:, 0] == 0, 1] == 11).mean()
    assert 0.3 < share < 0.7
    assert (batch.next_observations["desired_goal"] == batch.observations["desired_goal"]).all()
    none = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached, hindsight_ratio=0.0)
    none.add(piece(seen, [-1, -1], truncated=True, complete=True))
    assert (none.sample(50, 0).observations["desired_goal"] == 9).all()
    assert (buffer.sample(50, 0).observations["desired_goal"] != 9).all()  # what is stored stays as it was


def test_an_episode_that_reaches_its_goal_in_hindsight_ends_there_where_the_environment_says_so() -> None:
    def ends(achieved: np.ndarray, desired: np.ndarray, infos: object) -> np.ndarray:
        return (achieved == desired)[:, 0]

    seen = {"observation": column(0, 1, 2), "achieved_goal": column(10, 11, 12), "desired_goal": column(9, 9, 9)}
    for n_step, expected in ((1, {(11, 0.0), (12, 0.5), (12, 0.0)}), (2, {(11, 0.0), (12, 0.0)})):
        buffer = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached, hindsight_ratio=1.0, compute_terminated=ends)
        buffer.add(piece(seen, [-1, -1], truncated=True, complete=True))
        batch = buffer.sample(200, 0, n_step=n_step, discount=0.5)
        found = zip(batch.observations["desired_goal"][:, 0].tolist(), batch.discounts.tolist(), strict=True)
        assert set(found) == expected
        first = batch.observations["desired_goal"][:, 0] == 11
        assert (batch.rewards[first] == 0.0).all()  # nothing is summed behind the end


def test_endings_of_one_pair_at_a_time_are_asked_for_and_none_at_all_are_said() -> None:
    seen = {"observation": column(0, 1, 2), "achieved_goal": column(10, 11, 12), "desired_goal": column(9, 9, 9)}
    for ends, expected in (
        (lambda a, d, infos: bool(np.linalg.norm(a - d) < 0.5), {0.0, 0.5}),  # as Gymnasium-Robotics' mazes
        (lambda a, d, infos: False, {0.5}),  # as its other robots
    ):
        buffer = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached, hindsight_ratio=1.0, compute_terminated=ends)
        buffer.add(piece(seen, [-1, -1], terminated=True, complete=True))
        assert set(buffer.sample(200, 0, discount=0.5).discounts.tolist()) == expected
        buffer.sample(1, 3)
        few = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached, hindsight_ratio=0.0, compute_terminated=ends)
        few.add(piece(seen, [-1, -1], terminated=True, complete=True))
        assert (few.sample(20, 0).observations["desired_goal"] == 9).all()  # of no pairs nothing is asked
    unsaid = ReplayBuffer(GOALS, BOX, 10, compute_reward=reached)
    unsaid.add(piece(seen, [-1, -1], truncated=True, complete=True))
    with pytest.warns(UserWarning, match="would end at other goals"):
        unsaid.add(piece(seen, [-1, -1], terminated=True, complete=True))
    unsaid.add(piece(seen, [-1, -1], terminated=True, complete=True))  # once


def test_what_is_asked_of_goals_must_do_without_infos() -> None:
    seen = {"observation": column(0, 1), "achieved_goal": column(10, 11), "desired_goal": column(9, 9)}
    for wrong, said in (
        ({"compute_reward": lambda a, d, infos: infos["x"]}, r"compute_reward asks for info\['x'\]"),
        ({"compute_terminated": lambda a, d, infos: np.zeros(3)}, "compute_terminated must return a flag for each"),
    ):
        buffer = ReplayBuffer(GOALS, BOX, 10, **{"compute_reward": reached, "hindsight_ratio": 1.0, **wrong})
        buffer.add(piece(seen, [1]))
        with pytest.raises(ValueError, match=said):
            buffer.sample(20, 0)


def test_goals_need_goals() -> None:
    for space in (BOX, spaces.Dict({"achieved_goal": BOX}), spaces.Dict({"achieved_goal": BOX, "desired_goal": IMAGE})):
        with pytest.raises(ValueError, match="need a Dict observation space with 'achieved_goal' and 'desired_goal'"):
            ReplayBuffer(space, BOX, 10, compute_reward=reached)
    buffer = ReplayBuffer(GOALS, BOX, 10, compute_reward=lambda achieved, desired, infos: 0.0)
    buffer.add(piece({key: column(1, 2) for key in GOALS}, [1]))
    with pytest.raises(ShapeError, match="compute_reward must return a finite number for each of"):
        buffer.sample(20, 0)


# ---- segments --------------------------------------------------------------------------------------------------------


def test_segments_by_hand() -> None:
    buffer = ReplayBuffer(BOX, BOX, 10)
    buffer.add(piece(column(1, 2, 3), [1, 2], terminated=True, complete=True))
    buffer.add(piece(column(4, 5), [4], plan=1))
    batch = buffer.sample_segments(1, 0, length=3, burn_in=1, discount=0.5)
    assert batch.observations[0, :, 0].tolist() == [1, 2, 3, 4, 5]
    assert batch.mask.tolist() == [[False, True, False, True]]
    assert batch.starts.tolist() == [[True, False, False, True, False]]
    assert batch.discounts[0, [0, 1, 3]].tolist() == [0.5, 0.0, 0.5] and batch.rewards[0, [0, 1, 3]].tolist() == [
        1,
        2,
        4,
    ]


def test_a_buffer_beyond_the_memory_of_the_machine_is_refused_with_the_estimate():
    with pytest.raises(
        ValueError, match=r"needs [\d,]{15,} bytes \(1,000,000,000,000 steps of \d+ bytes\), more than the"
    ):
        ReplayBuffer(IMAGE, BOX, 10**12)
    assert ReplayBuffer(IMAGE, BOX, 10**12, planned_steps=100).capacity == 10**12
