"""specs/sampling.md 7.5, from_pandas, and the way back."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest

from metaroll.data.compare import rollouts_equal, trees_equal
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError
from metaroll.types import EnvSpec

Box = gymnasium.spaces.Box
SPEC = EnvSpec(
    observation_space=Box(-np.inf, np.inf, (1,), np.float64),
    action_space=Box(-1, 1, (1,), np.float64),
    state_space=Box(-np.inf, np.inf, (2,), np.float64),
    observation_labels=("y",),
    action_labels=("u",),
    state_labels=("x", "v"),
)


class Task:
    def step_rew(self, state: np.ndarray, action: np.ndarray, remaining_steps: int) -> np.ndarray:
        assert state.shape == (2,) and action.shape == (1,) and remaining_steps == 0
        return np.array([state[0] * 10 + action[0]])


def log(**columns: Any) -> pd.DataFrame:
    """Three steps and what follows them."""
    return pd.DataFrame(
        {
            "x": [0.0, 1.0, 2.0, 3.0],
            "v": [5.0, 6.0, 7.0, 8.0],
            "y": [0.0, -1.0, -2.0, -3.0],
            "u": [0.1, 0.2, 0.3, np.nan],
            "rewards": [1.0, 2.0, 3.0, np.nan],
            **columns,
        }
    )


def test_labeled_columns_become_fields() -> None:
    """specs/sampling.md 7.5"""
    rollout = StepSequence.from_pandas(log(time=[0.0, 0.1, 0.2, 0.3], current=[4.0, 5, 6, np.nan]), SPEC)
    assert len(rollout) == 3 and rollout.continuous and rollout.rollout_bounds.tolist() == [0, 3]
    assert rollout.states.tolist() == [[0, 5], [1, 6], [2, 7], [3, 8]]
    assert rollout.observations.tolist() == [[0], [-1], [-2], [-3]]
    assert rollout.actions.tolist() == [[0.1], [0.2], [0.3]]
    assert rollout.rewards.tolist() == [1, 2, 3]
    assert rollout.time.tolist() == [0, 0.1, 0.2, 0.3] and rollout.current.tolist() == [4, 5, 6]
    assert rollout.done.tolist() == [False, False, True]
    # what follows an action in the last row is unknown
    assert rollouts_equal(
        StepSequence.from_pandas(log(u=[0.1, 0.2, 0.3, 0.4]), SPEC), StepSequence.from_pandas(log(), SPEC)
    )


def test_rewards_of_a_task_or_none() -> None:
    """specs/sampling.md 7.5"""
    assert StepSequence.from_pandas(log(), SPEC, task=Task()).rewards.tolist() == [0.1, 10.2, 20.3]
    assert StepSequence.from_pandas(log().drop(columns="rewards"), SPEC).rewards.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match=r"task must .*step_rew"):
        StepSequence.from_pandas(log(), SPEC, task=3)
    stateless = EnvSpec(SPEC.observation_space, SPEC.action_space, observation_labels=("y",), action_labels=("u",))
    with pytest.raises(ValueError, match=r"task .*states"):
        StepSequence.from_pandas(log(), stateless, task=Task())
    assert StepSequence.from_pandas(log(), stateless).x.tolist() == [0, 1, 2, 3]


def test_objects_stay_objects_and_missing_numbers_become_nan() -> None:
    """specs/sampling.md 7.5, RULE"""
    rollout = StepSequence.from_pandas(
        log(
            mission=pd.Series(["go", None, "stop", None], dtype=object),
            count=pd.array([1, None, 3, None], dtype="Int64"),
            full=pd.array([1, 2, 3, None], dtype="Int64"),
            x=[0.0, np.nan, 2.0, 3.0],
        ),
        SPEC,
    )
    assert rollout.mission.tolist() == ["go", None, "stop"] and rollout.mission.dtype == object
    np.testing.assert_array_equal(rollout.get_data_values("count"), [1, np.nan, 3])
    assert rollout.full.tolist() == [1, 2, 3] and rollout.full.dtype == np.int64
    assert np.isnan(rollout.states[1, 0])  # a gap in a measurement is not padding


def test_rows_that_are_not_continuous_are_steps() -> None:
    rollout = StepSequence.from_pandas(log(u=[0.1, 0.2, 0.3, 0.4], rewards=[1.0, 2, 3, 4]), SPEC, continuous=False)
    assert not rollout.continuous and len(rollout) == 4 and rollout.observations.shape == (4, 1)
    assert len(StepSequence.from_pandas(log(), SPEC, continuous=False)) == 3


def test_columns_of_endings_are_read() -> None:
    frame = log(terminated=[False, False, False, None], truncated=[False, False, True, None])
    rollout = StepSequence.from_pandas(frame, SPEC)
    assert not rollout.terminated.any() and rollout.truncated.tolist() == [False, False, True]
    two = StepSequence.from_pandas(log(done=pd.array([True, False, True, None], dtype="boolean")), SPEC)
    assert two.rollout_bounds.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [
        ({"rewards": [1.0, 2.0, np.nan, np.nan]}, ShapeError, "rewards must .* 3"),
        ({"rewards": [1.0, np.nan, 3.0, np.nan]}, ValueError, "'rewards' must .* row 1"),
        ({"u": [0.1, np.nan, 0.3, np.nan]}, ValueError, "'u' must .* row 1"),
        ({"u": [0.1, 0.2, np.nan, np.nan]}, ShapeError, "(states|observations) must .* 2"),
        ({"u": [np.nan] * 4}, ShapeError, "df must"),
        ({"y": [0.0, np.nan, np.nan, np.nan]}, ShapeError, "observations must .* 3"),
        ({"u": ["a", "b", "c", None]}, ValueError, "'u' must"),
        ({"actions": [1, 2, 3, 4]}, ValueError, "'actions'"),
        ({3: [1, 2, 3, 4]}, ValueError, "got 3"),
    ],
)
def test_bad_tables_are_named(columns: dict[Any, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        StepSequence.from_pandas(
            log().assign(**columns) if 3 not in columns else log().join(pd.DataFrame(columns)), SPEC
        )


@pytest.mark.parametrize("name", ["complete", "continuous", "length", "rollout_info", "self"])
def test_names_with_another_meaning_are_refused_everywhere(name: str) -> None:
    rollout = rollout_of(EnvSpec(Box(-1, 1, (2,)), Box(-1, 1, (1,))))
    with pytest.raises(ValueError, match=f"'{name}'"):
        rollout.add_data(name, np.zeros(3))
    spec = EnvSpec(Box(-1, 1, (2,)), Box(-1, 1, (1,)))
    frame = rollout.to_pandas(spec)
    frame[name] = np.arange(4.0)
    with pytest.raises(ValueError, match=f"df .*'{name}'"):
        StepSequence.from_pandas(frame, spec)


@pytest.mark.parametrize("name", ["done", "rewards", "terminated"])
def test_labels_must_not_be_names_of_other_columns(name: str) -> None:
    spec = EnvSpec(Box(-1, 1, (2,)), Box(-1, 1, (1,)), observation_labels=("x", name))
    rollout = rollout_of(EnvSpec(Box(-1, 1, (2,)), Box(-1, 1, (1,))))
    for call in (lambda: rollout.to_pandas(spec), lambda: StepSequence.from_pandas(rollout.to_pandas(), spec)):
        with pytest.raises(ValueError, match=f"observation_labels .*'{name}'"):
            call()


@pytest.mark.parametrize(
    ("df", "spec", "error", "match"),
    [
        ({"x": [1]}, SPEC, TypeError, "df must"),
        (log(), None, TypeError, "env_spec must"),
        (log(), EnvSpec(SPEC.observation_space, SPEC.action_space, observation_labels=("y",)), ValueError, "action_l"),
        (log().drop(columns="u"), SPEC, DataError, "'u'"),
        (pd.concat([log(), log()[["x"]]], axis=1), SPEC, ValueError, "'x'"),
        (log().iloc[:1], SPEC, ShapeError, "df must"),  # one row has no step that is followed by something
    ],
)
def test_bad_arguments_are_named(df: Any, spec: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        StepSequence.from_pandas(df, spec)


# ---- to tables -------------------------------------------------------------------------------------------------------


def rollout_of(spec: EnvSpec, length: int = 3, with_last: bool = True) -> StepSequence:
    def draw(space: gymnasium.Space, count: int) -> Any:
        space.seed(0)
        return [space.sample() for _ in range(count)]

    return StepSequence(
        rewards=np.arange(length) / 3,
        observations=draw(spec.observation_space, length + with_last),
        actions=draw(spec.action_space, length),
        truncated=np.arange(length) == length - 1,
    )


SPACES = [
    Box(-1, 1, (2,), np.float32),
    Box(-1, 1, (2, 2), np.float64),
    Box(0, 255, (3,), np.uint8),
    gymnasium.spaces.Discrete(3, start=2),
    gymnasium.spaces.MultiBinary(3),
    gymnasium.spaces.Dict({"a": Box(-1, 1, (2,), np.float64), "b": gymnasium.spaces.Discrete(2)}),
    gymnasium.spaces.Tuple([Box(-1, 1, (), np.float32), Box(-1, 1, (1,), np.float64)]),
]


@pytest.mark.parametrize("with_last", [True, False])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_table_gives_the_rollout_back(space: gymnasium.Space, with_last: bool) -> None:
    size = gymnasium.spaces.flatdim(space)
    labels = tuple(f"o{i}" for i in range(size)), tuple(f"a{i}" for i in range(size))
    spec = EnvSpec(space, space, observation_labels=labels[0], action_labels=labels[1])
    rollout = rollout_of(spec, with_last=with_last)
    frame = rollout.to_pandas(spec)
    assert list(frame.columns) == ["rewards", *labels[0], *labels[1], "done", "terminated", "truncated"]
    assert len(frame) == 4
    assert rollouts_equal(StepSequence.from_pandas(frame, spec), rollout)


def test_states_may_share_labels_with_observations() -> None:
    spec = EnvSpec(
        Box(-9, 9, (2,), np.float64),
        Box(-9, 9, (1,), np.float64),
        state_space=Box(-9, 9, (2,), np.float64),
        observation_labels=("x", "v"),
        action_labels=("u",),
        state_labels=("x", "v"),
    )
    numbers = np.arange(6.0).reshape(3, 2)
    same = StepSequence(rewards=[0.0, 1.0], observations=numbers, actions=[[1.0], [2.0]], states=numbers.copy())
    back = StepSequence.from_pandas(same.to_pandas(spec), spec)
    assert trees_equal(back.states, same.states) and trees_equal(back.observations, same.observations)
    noisy = StepSequence(rewards=[0.0, 1.0], observations=numbers + 1, actions=[[1.0], [2.0]], states=numbers)
    with pytest.raises(ValueError, match="'x'"):
        noisy.to_pandas(spec)


def test_without_labels_columns_are_named_after_their_fields() -> None:
    rollout = StepSequence(
        rewards=[0.5, 1.5],
        observations={"image": np.zeros((3, 1, 2), dtype=np.uint8), "text": np.array(["a", "b", "c"])},
        actions=np.array([1, 2]),
        data_format="numpy",
    )
    frame = rollout.to_pandas()
    names = ["rewards", "observations.image[0,0]", "observations.image[0,1]", "observations.text", "actions"]
    assert list(frame.columns) == [*names, "done", "terminated", "truncated"]
    assert frame["actions"].tolist()[:2] == [1, 2] and frame["actions"].isna().tolist() == [False, False, True]
    assert frame["actions"].dtype == "Int64" and frame["observations.image[0,0]"].dtype == np.uint8
    assert rollout[[1]].to_pandas()["rewards"].tolist() == [1.5]
    tensors = StepSequence(rewards=[0.5], observations=[0.0, 1.0], actions=[2.0], data_format="torch")
    assert tensors.to_pandas()["observations"].tolist() == [0, 1]


def test_what_a_table_cannot_hold_is_named() -> None:
    rollout = rollout_of(SPEC)
    with pytest.raises(ShapeError, match=r"2; .*iterate_rollouts"):
        StepSequence.concat([rollout, rollout]).to_pandas()
    with pytest.raises(TypeError, match="env_spec must"):
        rollout.to_pandas(3)  # pyright: ignore[reportArgumentType]
    wide = StepSequence(rewards=[0.0], observations=np.zeros((2, 2)), actions=[[0.0]])
    with pytest.raises(ShapeError, match=r"observations must .*\(1,\).*, got \(2,\)"):
        wide.to_pandas(SPEC)


def test_without_pandas_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'pandas>=2.2' 'pyarrow>=16.0'"):
        rollout_of(SPEC).to_pandas()


def test_tables_without_labels_come_back_too() -> None:
    spec = EnvSpec(Box(-1, 1, (2, 2), np.float64), gymnasium.spaces.Discrete(3))
    rollout = StepSequence(
        observations=np.arange(12.0).reshape(3, 2, 2), actions=np.array([2, 0]), rewards=np.array([1.0, 2.0])
    )
    back = StepSequence.from_pandas(rollout.to_pandas(), spec)
    assert trees_equal(back.observations, rollout.observations)
    assert back.actions.tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"df must .*observations\[0\], observations\[1\]"):
        StepSequence.from_pandas(rollout.to_pandas(), EnvSpec(Box(-1, 1, (5,)), gymnasium.spaces.Discrete(3)))


def test_fields_of_several_columns_come_back_as_one() -> None:
    spec = EnvSpec(Box(-9, 9, (2,), np.float64), Box(-9, 9, (1,), np.float32))
    rollout = StepSequence(
        rewards=np.array([1.0, 2.0]),
        observations=np.arange(6.0).reshape(3, 2),
        actions=np.array([[0.5], [0.25]], dtype=np.float32),
        truncated=[False, True],
        states=np.arange(9.0).reshape(3, 3),
        actions_applied=np.array([[0.5], [0.25]], dtype=np.float32),
        env_infos={"forces": np.arange(8).reshape(2, 2, 2), "deep": {"hit": np.array([True, False])}},
        policy_infos={"mean": np.array([[0.5], [0.75]], dtype=np.float32)},
        hidden=(np.zeros((3, 2)), np.arange(3)),
        time=np.array([0.0, 0.5, 1.0]),
    )
    assert rollouts_equal(StepSequence.from_pandas(rollout.to_pandas(), spec), rollout)
    loose = rollout[[0, 1]]
    assert rollouts_equal(StepSequence.from_pandas(loose.to_pandas(), spec, continuous=False), loose)
    column = StepSequence(rewards=np.ones((2, 1)), observations=np.zeros((2, 2)), actions=np.zeros((2, 1)))
    assert StepSequence.from_pandas(column.to_pandas(), spec).rewards.shape == (2, 1)


@pytest.mark.parametrize("space", [*SPACES, gymnasium.spaces.MultiDiscrete([2, 3])], ids=str)
def test_structured_spaces_come_back_without_labels(space: gymnasium.Space) -> None:
    spec = EnvSpec(space, space)
    rollout = rollout_of(spec)
    assert rollouts_equal(StepSequence.from_pandas(rollout.to_pandas(), spec), rollout)


def test_what_a_rollout_records_comes_back() -> None:
    """Actions in flat rows, text, and states that the table lacks though the environment has some."""
    box = Box(-1, 1, (2, 2), np.float32)
    observations = gymnasium.spaces.Dict({"say": gymnasium.spaces.Text(3), "x": box})
    spec = EnvSpec(observations, box, state_space=box, state_labels=("a", "b", "c", "d"))
    rollout = StepSequence(
        rewards=np.zeros(1),
        observations={"say": np.array(["no", "yes"], dtype=object), "x": np.ones((2, 2, 2), np.float32)},
        actions=np.ones((1, 4), np.float32),
    )
    back = StepSequence.from_pandas(rollout.to_pandas(spec), spec)
    assert rollouts_equal(back, rollout) and "states" not in back.data_names
    with pytest.raises(ValueError, match=r"observations.say, observations.x\[0,0\], .*to_pandas"):
        StepSequence.from_pandas(rollout.to_pandas().drop(columns="observations.x[1,1]"), spec)


def test_columns_that_form_no_complete_array_are_separate_fields() -> None:
    frame = log(**{"motor[1]": 1.0, "p[0]": 0.0, "p[2]": 2.0, "q": 0.0, "q.mean": 1.0, "t [s]": 0.0, "v.": 1.0})
    rollout = StepSequence.from_pandas(frame, SPEC)
    assert {"motor[1]", "p[0]", "p[2]", "q", "q.mean", "t [s]", "v."} < set(rollout.data_names)


def test_a_joint_may_have_one_name_in_observations_and_actions():
    spec = EnvSpec(
        observation_space=Box(-np.inf, np.inf, (2,), np.float64),
        action_space=Box(-1, 1, (1,), np.float64),
        observation_labels=("knee", "ankle"),
        action_labels=("knee",),
    )
    rollout = StepSequence(
        observations=np.arange(6.0).reshape(3, 2), actions=np.array([[0.5], [-0.5]]), rewards=np.array([1.0, 2.0])
    )
    table = rollout.to_pandas(spec)
    assert {"knee", "ankle", "actions[0]"} <= set(table.columns)
    back = StepSequence.from_pandas(table, spec)
    assert np.array_equal(back.actions, rollout.actions) and np.array_equal(back.observations, rollout.observations)
