"""specs/meta.md 1.0 and 5.1."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.data.paths import TimeStep, TrajectoryBatch, from_path, to_path, to_trajectory_dict
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.types import EnvSpec

SPEC = EnvSpec(
    gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32), gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
)


def make(start: float = 0, length: int = 3, terminated: bool = True, **data: Any) -> StepSequence:
    """A rollout in which observation k is ``start + k``, in two columns."""
    numbers = np.arange(start, start + length + 1, dtype=np.float32)
    ends = np.arange(length) == length - 1
    return StepSequence(
        **{
            "rewards": np.arange(length, dtype=np.float64),
            "observations": np.stack([numbers, -numbers], axis=1),
            "actions": np.zeros((length, 1), dtype=np.float32),
            "terminated": ends & terminated,
            "env_infos": {"success": np.arange(length)},
            "policy_infos": {"mean": np.ones((length, 1)), "deep": {"x": np.arange(length)}},
            **data,
        }
    )


def test_path_has_five_keys() -> None:
    rollout = make()
    path = to_path(rollout)
    assert list(path) == ["observations", "actions", "rewards", "env_infos", "agent_infos"]
    assert path["observations"].tolist() == [[0, 0], [1, -1], [2, -2]]
    assert path["agent_infos"]["deep"]["x"].tolist() == [0, 1, 2]
    assert path["rewards"] is not None and path["rewards"].shape == (3,)
    bare = StepSequence(rewards=[1.0], observations=[0.0, 1.0], actions=[0.0])
    assert to_path(bare)["env_infos"] == {} and to_path(bare)["agent_infos"] == {}
    rollout.torch()
    assert isinstance(to_path(rollout)["agent_infos"]["mean"], np.ndarray)
    with pytest.raises(ShapeError, match="a path is one rollout, got 2"):
        to_path(StepSequence.concat([make(), make()]))


def test_trajectory_dict_has_true_successors_and_endings() -> None:
    """A time limit is no ending (specs/meta.md 8, Q-24), and the last observation is the true one (Q-39)."""
    cut = to_trajectory_dict(make(terminated=False))
    assert cut["next_observations"][:, 0].tolist() == [1, 2, 3]
    assert not cut["dones"].any()
    assert to_trajectory_dict(make())["dones"].tolist() == [False, False, True]
    middle = StepSequence.concat([make(), make(100)]).get_rollout(0)
    assert to_trajectory_dict(middle)["next_observations"][:, 0].tolist() == [1, 2, 3]


def test_from_path() -> None:
    for terminated in (True, False):
        rollout = make(terminated=terminated)
        again = from_path(to_trajectory_dict(rollout))
        assert again.observations.tolist() == rollout.observations.tolist()
        assert (again.terminated == rollout.terminated).all() and (again.truncated == rollout.truncated).all()
        assert again.policy_infos["deep"]["x"].tolist() == [0, 1, 2]
    path = to_path(make())
    assert from_path(path).observations.shape == (3, 2)
    assert from_path({**path, "final_observation": np.array([9, 9])}).next_observations[-1].tolist() == [9, 9]
    column = from_path({**path, "rewards": path["rewards"][:, None], "dones": np.zeros((3, 1), dtype=bool)})
    assert column.rewards.shape == (3,) and column.truncated.tolist() == [False, False, True]
    extra = from_path({**path, "returns": np.arange(3)}, complete=False, rollout_info={"task": 1})
    assert extra.returns.tolist() == [0, 1, 2] and not extra.done.any() and extra.rollout_info == {"task": 1}
    with pytest.raises(DataError, match="the path has no 'rewards'"):
        from_path({"observations": [], "actions": []})


def test_batch_round_trips() -> None:
    rollouts = [make(0, 3), make(10, 2, terminated=False), make(20, 1)]
    batch = TrajectoryBatch.from_rollouts(SPEC, rollouts)
    assert batch.lengths.tolist() == [3, 2, 1]
    assert batch.observations[:, 0].tolist() == [0, 1, 2, 10, 11, 20]
    assert batch.last_observations[:, 0].tolist() == [3, 12, 21]
    assert batch.next_observations[:, 0].tolist() == [1, 2, 3, 11, 12, 21]
    assert batch.terminals.tolist() == [False, False, True, False, False, True]
    for rollout, original in zip(batch.to_rollouts(), rollouts, strict=True):
        assert set(rollout.data_names) == set(original.data_names)
        for name in ("rewards", "observations", "actions", "terminated", "truncated"):
            assert getattr(rollout, name).tolist() == getattr(original, name).tolist()
    paths = batch.to_trajectory_list()
    assert paths[1]["next_observations"][:, 0].tolist() == [11, 12] and not paths[1]["dones"].any()
    assert paths[1]["agent_infos"]["deep"]["x"].tolist() == [0, 1]
    same(TrajectoryBatch.from_trajectory_list(SPEC, paths), batch)
    same(TrajectoryBatch.from_rollouts(SPEC, [StepSequence.concat(rollouts)]), batch)
    same(pickle.loads(pickle.dumps(batch)), batch)
    parts = batch.split()
    assert [part.lengths.tolist() for part in parts] == [[3], [2], [1]]
    assert parts[1].env_infos["success"].tolist() == [0, 1]
    same(TrajectoryBatch.concatenate(*parts), batch)


def same(a: TrajectoryBatch, b: TrajectoryBatch) -> None:
    for name in ("observations", "last_observations", "actions", "rewards", "terminals", "lengths"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype
    np.testing.assert_array_equal(a.agent_infos["deep"]["x"], b.agent_infos["deep"]["x"])
    assert a.env_spec == b.env_spec


def test_trajectories_may_have_one_more_observation() -> None:
    path = {**to_path(make()), "observations": make().observations, "dones": np.array([False, False, True])}
    assert TrajectoryBatch.from_trajectory_list(SPEC, [path]).last_observations.tolist() == [[3, -3]]


def test_a_batch_needs_what_it_cannot_know() -> None:
    path = to_path(make())
    with pytest.raises(DataError, match="path 0"):
        TrajectoryBatch.from_trajectory_list(SPEC, [path])
    with pytest.raises(DataError, match="after the end of sub-rollout 0 is not stored"):
        TrajectoryBatch.from_trajectory_list(SPEC, [{**path, "dones": np.zeros(3, dtype=bool)}])
    with pytest.raises(ValueError, match="at least one"):
        TrajectoryBatch.from_rollouts(SPEC, [])
    with pytest.raises(ValueError, match="at least one"):
        TrajectoryBatch.concatenate()
    with pytest.raises(DataError, match=r"env_infos: .*'success' is missing in entry 1"):
        TrajectoryBatch.from_rollouts(SPEC, [make(), make(env_infos={})])
    other = EnvSpec(SPEC.observation_space, SPEC.action_space, 7)
    batch = TrajectoryBatch.from_rollouts(SPEC, [make()])
    with pytest.raises(ValueError, match="same env_spec, batch 1"):
        TrajectoryBatch.concatenate(batch, batch._replace(env_spec=other))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"env_spec": "spec"}, TypeError, "env_spec must be an EnvSpec"),
        ({"observations": np.zeros((2, 2))}, ShapeError, "observations must have 3 rows"),
        ({"observations": np.zeros((3, 5))}, ShapeError, r"observations must have shape \(3, 2\)"),
        ({"observations": np.array([["a", "b"]] * 3)}, TypeError, "observations must hold numbers"),
        ({"observations": [[0, 0]] * 3}, TypeError, "observations must be a NumPy array"),
        ({"last_observations": np.zeros((2, 2))}, ShapeError, "last_observations must have 1 rows"),
        ({"actions": np.zeros((3, 2))}, ShapeError, "actions must have shape"),
        ({"rewards": np.zeros((3, 1))}, ShapeError, "rewards must be an array of shape"),
        ({"terminals": np.zeros(3)}, TypeError, "terminals must hold bools"),
        ({"env_infos": {"x": np.zeros(2)}}, ShapeError, r"env_infos\['x'\] must be an array with 3 rows"),
        ({"agent_infos": {"a": {"b": 3}}}, ShapeError, r"agent_infos\['a'\]\['b'\]"),
        ({"agent_infos": None}, TypeError, "agent_infos must be a dict"),
        ({"lengths": [3]}, ShapeError, "lengths must be an integer array"),
        ({"lengths": np.array([3, 0])}, ShapeError, "lengths must be positive"),
    ],
)
def test_batch_is_checked(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    fields = TrajectoryBatch.from_rollouts(SPEC, [make()])._asdict()
    with pytest.raises(error, match=text):
        TrajectoryBatch(**{**fields, **changes})


def test_discrete_actions() -> None:
    spec = EnvSpec(SPEC.observation_space, gymnasium.spaces.Discrete(3))
    rollouts = [make(actions=np.array([0, 1, 2]))]
    assert TrajectoryBatch.from_rollouts(spec, rollouts).actions.tolist() == [0, 1, 2]
    one_hot = TrajectoryBatch.from_rollouts(spec, [make(actions=np.eye(3))])
    assert one_hot.actions.shape == (3, 3)
    with pytest.raises(TypeError, match="actions must hold integers"):
        TrajectoryBatch.from_rollouts(spec, [make(actions=np.array([0.0, 1.0, 2.0]))])


def test_time_step() -> None:
    fields: dict[str, Any] = {
        "env_spec": SPEC,
        "observation": np.zeros(2),
        "action": np.zeros(1),
        "reward": 1.0,
        "next_observation": np.ones(2),
        "terminal": False,
        "env_info": {},
        "agent_info": {"mean": np.zeros(1)},
    }
    step = TimeStep(**fields)
    assert step.reward == 1.0 and step[4].tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(step)).terminal is False
    for name, value, error in (
        ("observation", np.zeros(3), ShapeError),
        ("next_observation", np.zeros((1, 2)), ShapeError),
        ("action", "left", TypeError),
        ("reward", "high", TypeError),
        ("terminal", 1, TypeError),
        ("env_info", None, TypeError),
        ("env_spec", None, TypeError),
    ):
        with pytest.raises(error, match=name):
            TimeStep(**{**fields, name: value})
