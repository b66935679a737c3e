"""Rollouts as columns: groups that share them, and sequences that fill themselves."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.rollouts.engine.reduction import check_reduce
from metaroll.types import EnvSpec


def columns(lengths: list[int], seed: int = 0, **more: object) -> RolloutColumns:
    rng, steps = np.random.default_rng(seed), sum(lengths)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    ends = np.isin(np.arange(steps), bounds[1:] - 1)
    fields = {
        "observations": rng.normal(size=(steps + len(lengths), 2)),
        "actions": rng.normal(size=(steps, 1)),
        "rewards": rng.normal(size=steps),
        "env_infos": {"x": rng.normal(size=steps)},
    }
    complete, infos = np.ones(len(lengths), dtype=bool), [{"number": (seed, i)} for i in range(len(lengths))]
    return RolloutColumns(fields, ends, np.zeros(steps, dtype=bool), bounds, complete, infos, **more)


ROLLOUTS = Rollouts([columns([3, 1, 2], 1), columns([4, 2], 2)])


def same(a: StepSequence, b: StepSequence) -> bool:
    arrays = (np.array_equal(getattr(a, n), getattr(b, n)) for n in ("observations", "actions", "rewards", "done"))
    return all(arrays) and a.rollout_info == b.rollout_info


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4], [1, 3], [4, 0], [2, 3, 4], []])
def test_a_choice_of_rollouts_has_the_columns_of_those(numbers):
    chosen = ROLLOUTS.take(numbers)
    expected = [ROLLOUTS[i] for i in numbers]
    assert len(chosen) == len(numbers) and all(map(same, chosen, expected))
    assert chosen.lengths.tolist() == [len(rollout) for rollout in expected]
    assert chosen.bounds.tolist() == np.cumsum([0, *(len(rollout) for rollout in expected)]).tolist()
    for name in ("rewards", "observations", "terminated") if numbers else ():
        values = [getattr(rollout, name) for rollout in expected]
        assert np.array_equal(chosen.column(name), np.concatenate(values))
        assert all(map(np.array_equal, chosen.each(name), values))
    assert chosen.returns == pytest.approx([rollout.rewards.sum() for rollout in expected])
    assert chosen.discounted_returns(0.9).tolist() == [rollout.discounted_return(0.9) for rollout in expected]


def test_slices_and_sums_are_rollouts():
    assert isinstance(ROLLOUTS[1:4], Rollouts) and all(map(same, ROLLOUTS[1:4], list(ROLLOUTS)[1:4]))
    both = ROLLOUTS[:2] + ROLLOUTS[2:]
    assert isinstance(both, Rollouts) and all(map(same, both, ROLLOUTS))
    assert isinstance(ROLLOUTS[:2] + list(ROLLOUTS), list)
    order = ROLLOUTS[1:4].sorted_by(np.array([2, 0, 1]))
    assert all(map(same, order, [ROLLOUTS[2], ROLLOUTS[3], ROLLOUTS[1]]))


@pytest.mark.parametrize("chosen", [ROLLOUTS, ROLLOUTS[1:4], ROLLOUTS.take([3, 0]), ROLLOUTS[:0]])
def test_a_field_may_have_other_values(chosen):
    rows = np.arange(3.0 * (chosen.lengths.sum() + len(chosen))).reshape(-1, 3)
    seen = chosen.with_column("observations", rows)
    assert len(seen) == len(chosen)
    for new, old, begin in zip(seen, chosen, chosen.bounds[:-1] + np.arange(len(chosen)), strict=True):
        assert np.array_equal(new.observations, rows[begin : begin + len(old) + 1])
        assert old.observations.shape[1] == 2, "the others stay as they are"
        assert np.array_equal(new.rewards, old.rewards) and new.rollout_info == old.rollout_info
    if len(chosen):
        assert chosen.with_column("rewards", -chosen.rewards).returns == pytest.approx(-chosen.returns)
    with pytest.raises(ShapeError, match=f"must have {len(rows)} entries"):
        chosen.with_column("observations", rows[:-1] if len(rows) else np.zeros(1))
    if len(chosen):
        with pytest.raises(UnknownNameError, match="terminated"):
            chosen.with_column("terminated", chosen.terminated)
        with pytest.raises(TypeError, match="'rewards' must be an array, got list"):
            chosen.with_column("rewards", chosen.rewards.tolist())


def test_no_rollout_is_made_before_somebody_looks(monkeypatch):
    listed = list(ROLLOUTS)
    made = []
    rollout = RolloutColumns.rollout
    monkeypatch.setattr(RolloutColumns, "rollout", lambda self, i: (made.append(i), rollout(self, i))[1])
    assert [len(one) for one in listed] == [3, 1, 2, 4, 2] and not made
    found = Rollouts.of(listed)
    assert np.array_equal(found.rewards, ROLLOUTS.rewards) and not made
    assert listed[2].rewards.shape == (2,) and made == [2]
    assert listed[2].observations.shape == (3, 2) and made == [2]


def test_what_is_changed_in_a_list_stays_there():
    listed = list(ROLLOUTS)
    listed[1].rollout_info["mine"] = 1
    listed[3].rewards = np.zeros(4)
    listed[4].torch()
    assert listed[1].rollout_info["mine"] == 1 and "mine" not in ROLLOUTS[1].rollout_info
    found = Rollouts.of(listed)
    assert found.each("rewards")[3].tolist() == [0, 0, 0, 0] and found.infos[1]["mine"] == 1
    assert isinstance(found.column("observations"), np.ndarray) and len(found.column("observations")) == 12 + 5


def test_an_attribute_may_be_set_before_anything_is_read():
    rollout = ROLLOUTS[0]
    rollout.rollout_info = {"a": 1}
    assert rollout.rollout_info == {"a": 1} and len(rollout.rewards) == 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = ROLLOUTS[0].nothing


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda rollout: pickle.loads(pickle.dumps(rollout))])
def test_a_copy_is_that_of_the_rollout_alone(copied):
    assert same(copied(ROLLOUTS[1]), ROLLOUTS[1])
    big = Rollouts([columns([100_000, 1])])
    assert len(pickle.dumps(big[1])) < 5000


def test_rollouts_without_a_final_observation_have_no_column_of_them():
    loose = StepSequence(rewards=[1.0, 2.0], observations=np.zeros((2, 1)), actions=np.zeros((2, 1)))
    found = Rollouts.of([loose])
    assert found.rewards.tolist() == [1, 2]
    with pytest.raises(ShapeError, match="after its last step"):
        found.require_final_observations()
    with pytest.raises(TypeError, match="StepSequences, got int"):
        Rollouts.of([3])


@pytest.mark.parametrize("own", [None, [{}, {"env_infos": {"y": np.zeros(1)}}, {}]])
def test_a_batch_of_columns_is_that_of_the_list(own):
    box = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Box(-9, 9, (1,))
    rollouts = Rollouts([columns([3, 1, 2], own=own)])
    if own is not None:
        rollouts = rollouts.take([1])
    batch = TrajectoryBatch.from_rollouts(EnvSpec(*box), rollouts)
    expected = TrajectoryBatch.from_rollouts(EnvSpec(*box), list(rollouts))
    for name, value in expected._asdict().items():
        found = getattr(batch, name)
        if isinstance(value, dict):
            assert value.keys() == found.keys() and all(np.array_equal(found[key], value[key]) for key in value)
        else:
            assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value
    batch.rewards[:] = 0
    assert rollouts.rewards.any()


# -- choosing among rollouts -------------------------------------------------------------------------------------------


def test_numbers_and_masks_choose_rollouts() -> None:
    assert ROLLOUTS.take([-1, 0]).lengths.tolist() == [2, 3]
    assert ROLLOUTS.take(ROLLOUTS.lengths > 2).lengths.tolist() == [3, 4]
    assert len(ROLLOUTS.take([])) == 0
    with pytest.raises(IndexError, match="a mask must have one entry per rollout"):
        ROLLOUTS.take(np.array([True, False]))
    with pytest.raises(IndexError, match=r"below the number of rollouts, 5, got 5"):
        ROLLOUTS.take([5])
    with pytest.raises(TypeError, match="must be a list of whole numbers"):
        ROLLOUTS.take([1.5])  # type: ignore[list-item]
    for index in (1.5, [0, 1], np.array([0]), "rewards", True):
        with pytest.raises(TypeError, match=r"take\(numbers\) gives several rollouts, column\(name\) a field"):
            ROLLOUTS[index]  # type: ignore[call-overload]
    with pytest.raises(ShapeError, match="one entry per rollout"):
        ROLLOUTS.sorted_by(np.arange(3))


def test_no_rollouts_have_no_rewards() -> None:
    none = ROLLOUTS[2:2]
    assert none.rewards.shape == none.returns.shape == (0,) and len(none.sorted_by(np.arange(0))) == 0
    with pytest.raises(KeyError, match="there are no rollouts here, so there is no 'observations'"):
        none.column("observations")


def test_a_pickled_slice_holds_its_own_rollouts_only() -> None:
    again = pickle.loads(pickle.dumps(ROLLOUTS[1:4]))
    assert sum(map(len, again.parts)) == 3 and again.lengths.tolist() == [1, 2, 4]
    assert all(same(one, other) for one, other in zip(again, ROLLOUTS[1:4], strict=True))
    assert pickle.loads(pickle.dumps(ROLLOUTS)).returns.tolist() == ROLLOUTS.returns.tolist()
    assert len(pickle.loads(pickle.dumps(ROLLOUTS[2:2]))) == 0


def test_what_reduce_does_wrong_is_said() -> None:
    with pytest.raises(ValueError, match=r"reduce\(columns, bounds\) raised KeyError: 'foo'; columns are actions, "):
        check_reduce(lambda columns, bounds: columns["foo"], ROLLOUTS)
    with pytest.raises(ShapeError, match="must return an array with equal rows"):
        check_reduce(lambda columns, bounds: [[0.0] * n for n in np.diff(bounds)], ROLLOUTS)
    with pytest.raises(TypeError, match="must return an array of numbers, got NoneType None"):
        check_reduce(lambda columns, bounds: None, ROLLOUTS)
    check_reduce(lambda columns, bounds: np.diff(bounds), list(ROLLOUTS))  # type: ignore[arg-type]


def test_what_is_common_to_a_part_stays_with_its_rollouts():
    """Rollouts of two calls, put in one part by sorting or by a pickle, keep what was added to each call."""
    calls = [Rollouts([columns([3, 2], seed)]) for seed in range(2)]
    for number, call in enumerate(calls):
        call.add_info("call", number)
    both = calls[0] + calls[1][1:]
    assert [info["call"] for info in both.infos] == [0, 0, 1]
    assert [info["call"] for info in both.sorted_by(np.array([2, 1, 0])).infos] == [1, 0, 0]
    assert [rollout.rollout_info["call"] for rollout in pickle.loads(pickle.dumps(both))] == [0, 0, 1]
    again = both.sorted_by(np.arange(3))
    again.add_info("call", 7)
    assert [info["call"] for info in again.infos] == [7, 7, 7]
    assert [info["call"] for info in both.infos] == [0, 0, 1]


def test_fields_that_are_no_attributes_say_where_they_are():
    """Observations have an entry more than steps for each rollout, so they are no attribute beside rewards."""
    rollouts = Rollouts([columns([3, 2])])
    for name in ("observations", "actions"):
        with pytest.raises(AttributeError, match=rf"'{name}'; rollouts.column\('{name}'\) .* rollouts.each"):
            getattr(rollouts, name)
    with pytest.raises(AttributeError, match=r"a single one has: rollouts\[0\].done"):
        rollouts.done  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"no attribute 'nothing'; rollouts.column\(name\) .* recorded: \['actions', "
    ):
        rollouts.nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Rollouts' object has no attribute 'observations'$"):
        Rollouts().observations  # noqa: B018
    assert len(copy.deepcopy(rollouts)) == 2
