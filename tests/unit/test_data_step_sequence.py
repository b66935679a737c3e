"""specs/sampling.md 7."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from metaroll.data.compare import rollouts_equal
from metaroll.data.rollout_values import discounted_value
from metaroll.data.step_sequence import DictIndexProxy, Step, StepSequence
from metaroll.errors import DataError, ShapeError

REWARDS = [-200.0, -100.0, -50.0, -25.0, -17.5]


class Hidden(NamedTuple):
    h: Any
    c: Any


def make(start: int = 0, length: int = 5, with_last: bool = True, **data: Any) -> StepSequence:
    """A rollout in which observation k is ``start + k``, in two columns."""
    numbers = np.arange(start, start + length + with_last, dtype=np.float64)
    return StepSequence(
        **{
            "rewards": np.arange(length, dtype=np.float64),
            "observations": np.stack([numbers, -numbers], axis=1),
            "actions": np.arange(length, dtype=np.float32)[:, None],
            **data,
        }
    )


# ---- construction (7.1) ----------------------------------------------------------------------------------------------


def test_arrays_are_taken_as_they_are() -> None:
    """specs/sampling.md 7.1"""
    rewards, observations = np.zeros(3), np.zeros((4, 2), dtype=np.float32)
    rollout = StepSequence(rewards=rewards, observations=observations, actions=np.zeros((3, 1)))
    assert rollout.rewards is rewards and rollout.observations is observations
    assert len(rollout) == rollout.length == 3
    assert rollout.data_format == "numpy"
    assert rollout.data_names == ("rewards", "observations", "actions")


def test_lists_dicts_and_tuples() -> None:
    """specs/sampling.md 7.1"""
    rollout = StepSequence(
        rewards=[1, 2],
        observations=[np.zeros(2), np.ones(2), np.ones(2)],
        actions=[[0.0], [1.0]],
        policy_infos=[{"mean": np.zeros(1), "deep": {"x": 1}}, {"mean": np.ones(1), "deep": {"x": 2}}],
        hidden=[Hidden(np.zeros(3), 1), Hidden(np.ones(3), 2)],
        states=(np.zeros((2, 4)), np.zeros((3, 1))),
        constants={"mass": 2.5},
        label=["a", "b"],
    )
    assert rollout.rewards.dtype.kind == "i"
    assert rollout.observations.shape == (3, 2)
    assert rollout.actions.shape == (2, 1)
    assert rollout.policy_infos["mean"].shape == (2, 1)
    assert rollout.policy_infos["deep"]["x"].tolist() == [1, 2]
    assert isinstance(rollout.hidden, Hidden) and rollout.hidden.h.shape == (2, 3)
    assert rollout.states[1].shape == (3, 1)
    assert rollout.constants["mass"].tolist() == [2.5, 2.5]
    assert rollout[1].label == "b"


def test_plain_tuple_of_numbers_is_a_sequence_of_steps() -> None:
    rollout = StepSequence(rewards=(1.0, 2.0), observations=[0, 1, 2], actions=(0, 1), time=(0.0, 0.1, 0.2))
    assert rollout.rewards.tolist() == [1, 2] and rollout.actions.tolist() == [0, 1]
    assert rollout.time.shape == (3,)


def test_format_is_torch_if_any_data_is() -> None:
    """specs/sampling.md 7.1, RULE"""
    arrays = {"rewards": np.zeros(2), "observations": np.zeros((3, 1)), "actions": np.zeros((2, 1))}
    tensor = torch.zeros(2)
    assert StepSequence(**arrays).data_format == "numpy"
    for extra in (
        tensor,
        {"x": {"y": tensor}},
        (tensor,),
        [torch.zeros(1), torch.ones(1)],
        [{"x": torch.zeros(1)}] * 2,
    ):
        rollout = StepSequence(**arrays, extra=extra)
        assert rollout.data_format == "torch"
        assert rollout.rewards.dtype == torch.float64
        assert isinstance(rollout.done, np.ndarray)
    assert StepSequence(**{**arrays, "observations": torch.zeros(3, 1)}).data_format == "torch"
    assert StepSequence(**arrays, extra=tensor, data_format="numpy").extra.dtype == np.float32
    assert StepSequence(**arrays, data_format="torch").actions.dtype == torch.float64


GOOD: dict[str, Any] = {"rewards": np.zeros(2), "observations": np.zeros((3, 1)), "actions": np.zeros((2, 1))}
MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(({name: []}, ShapeError, name) for name in GOOD),
    *(({"rewards": value}, ShapeError, "rewards") for value in (3.0, np.array(3.0), torch.tensor(3.0))),
    ({"rewards": {"a": [1.0], "b": [2.0]}}, ShapeError, "rewards"),
    *(
        ({"rewards": value}, ShapeError, "rewards")
        for value in (np.zeros((2, 2)), np.zeros((2, 1, 1)), [[1.0, 2.0]] * 2)
    ),
    ({"rewards": [{"a": 1.0}] * 2}, ShapeError, "rewards"),
    ({"actions": np.zeros((1, 1))}, ShapeError, "'actions' .* got 1"),
    ({"actions": np.array(1.0)}, ShapeError, "'actions'"),
    ({"observations": [np.zeros(1), np.zeros(2)]}, ShapeError, "'observations'"),
    ({"continuous": False}, ShapeError, "'observations'"),
    ({"infos": {"x": np.zeros(5)}}, ShapeError, r"'infos\.x'"),
    ({"infos": [{"a": 1}, {"b": 1}]}, DataError, "'infos': .*'a' is missing in entry 1"),
    ({"infos": {"x": torch.zeros(2, requires_grad=True)}}, ValueError, "'infos'"),
    ({"extra": None}, ValueError, "'extra'"),
    ({"length": np.zeros(2)}, ValueError, "'length'"),
    ({"data_format": "jax"}, ValueError, "data_format"),
    ({"terminated": np.zeros(3, dtype=bool)}, ShapeError, "terminated"),
    ({"done": [0.5, 1.0]}, ValueError, "done"),
    *(
        ({"rollout_bounds": bounds}, ValueError, "rollout bounds")
        for bounds in ([0, 3], [1, 2], [0, 2, 2], [0, 1.5, 2], [2])
    ),
]


@pytest.mark.parametrize(("data", "error", "argument"), MISTAKES)
def test_bad_construction_is_named(data: dict[str, Any], error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        StepSequence(**{**GOOD, **data})


def test_a_field_with_an_entry_more_knows_the_successor_of_the_last() -> None:
    assert StepSequence(**{**GOOD, "actions": np.zeros((3, 1))}).next_actions.shape == (2, 1)
    with pytest.raises(
        AttributeError, match=r"is not stored: give the field N \+ 1 entries, the last of them that after"
    ):
        _ = StepSequence(**{**GOOD, "observations": np.zeros((2, 1))}).next_observations


def test_required_fields_of_a_subclass() -> None:
    """specs/sampling.md 7.1, RULE"""

    class Strict(StepSequence):
        required_fields = {"states"}

    with pytest.raises(ValueError, match="required field 'states' is missing"):
        Strict(rewards=[1.0], observations=[0.0, 1.0], actions=[0.0])
    sequence = Strict(rewards=[1.0, 2.0], observations=[0.0, 1.0, 2.0], actions=[0.0, 1.0], states=[0.0, 1.0])
    assert type(sequence[1:]) is Strict


def test_done_and_bounds() -> None:
    """specs/sampling.md 7.1"""
    rollout = make()
    assert rollout.done.tolist() == [False] * 4 + [True] and rollout.done.dtype == bool
    assert rollout.rollout_bounds.tolist() == [0, 5]
    assert not make(complete=False).done.any()
    two = make(done=[False, True, False, False, False])
    assert two.rollout_bounds.tolist() == [0, 2, 5]
    assert two.rollout_lengths.tolist() == [2, 3] and two.rollout_count == 2
    given = make(length=20, rollout_bounds=[0, 4, 11, 17, 20])
    assert given.rollout_count == 4
    assert np.flatnonzero(given.done).tolist() == [3, 10, 16, 19]
    loose = make(with_last=False, continuous=False)
    assert not loose.done.any()
    with pytest.raises(ValueError, match="has no rollouts"):
        _ = loose.rollout_bounds
    with pytest.raises(ValueError, match="needs continuous=True"):
        make(with_last=False, continuous=False, rollout_bounds=[0, 5])


def test_terminated_and_truncated_are_kept_apart() -> None:
    """specs/sampling.md 7.1, RULE (termination vs truncation)"""
    end = np.array([False] * 4 + [True])
    nothing = make()
    assert (nothing.terminated == end).all() and not nothing.truncated.any()
    unfinished = make(complete=False)
    assert not unfinished.terminated.any() and not unfinished.truncated.any()
    ended = make(terminated=end)
    assert (ended.terminated == end).all() and not ended.truncated.any()
    cut = make(terminated=~end & False)
    assert not cut.terminated.any() and (cut.truncated == end).all()
    cut = make(truncated=end)
    assert not cut.terminated.any() and (cut.truncated == end).all()
    both = make(terminated=end, truncated=end)
    assert both.terminated[-1] and both.truncated[-1] and both.done[-1]
    assert "terminated" not in both.data_names
    assert both.get_data_values("truncated") is both.truncated


# ---- item access (7.2) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
@pytest.mark.parametrize("index", [slice(2, 4), slice(2, 5), slice(3), slice(4, None), slice(-2, None)])
def test_slices_keep_the_successor(index: slice, data_format: str) -> None:
    rollout = make(data_format=data_format)
    part = rollout[index]
    start, stop, _ = index.indices(5)
    assert part.rewards.tolist() == rollout.rewards[start:stop].tolist()
    assert part.observations.tolist() == rollout.observations[start : stop + 1].tolist()
    assert part.next_observations.tolist() == rollout.observations[start + 1 : stop + 1].tolist()
    assert part.continuous and part.rollout_bounds.tolist() == [0, stop - start]
    assert part.done.tolist() == rollout.done[start:stop].tolist()
    assert part.data_format == data_format


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_loose_selections(data_format: str) -> None:
    rollout = make(data_format=data_format, infos={"x": np.arange(6)})
    mask = np.array([True, False, False, True, False])
    for index in (slice(0, 5, 3), [0, 3], [0, -2], np.array([0, 3]), (0, 3), range(0, 5, 3), mask, mask.tolist()):
        part = rollout[index]
        assert part.rewards.tolist() == [0, 3]
        assert part.observations[:, 0].tolist() == [0, 3] and part.infos["x"].tolist() == [0, 3]
        assert not part.continuous
        assert not hasattr(part, "next_observations") and not hasattr(part[0], "next_reward")
        with pytest.raises(ShapeError, match="loose batch"):
            part.undiscounted_return()
    assert rollout[::-1].rewards.tolist() == [4, 3, 2, 1, 0]
    again = rollout[[1, 2, 3]][1:]
    assert not again.continuous and again.rewards.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("select", "error", "told"),
    [
        (lambda rollout: rollout[5], IndexError, "step 5"),
        (lambda rollout: rollout[[0, 5]], IndexError, "indices"),
        (lambda rollout: rollout[3:3], ShapeError, "no step"),
        (lambda rollout: rollout[[]], ShapeError, "no step"),
        (lambda rollout: rollout[np.array([True])], ShapeError, "mask"),
        (lambda rollout: rollout[[0.5]], TypeError, "integer"),
        (lambda rollout: rollout[True], TypeError, "bool"),
        (lambda rollout: rollout.get_rollout(True), TypeError, "bool"),
        (lambda rollout: rollout.get_rollout(4), IndexError, "sub-rollout 4"),
        (lambda rollout: rollout.get_rollout(slice(2, 2)), ShapeError, "no sub-rollout"),
        (lambda rollout: rollout[[0, 1]].get_rollout(0), ValueError, "no rollouts"),
        (lambda rollout: Step(rollout, 1.5), TypeError, "float"),
    ],
)
def test_bad_indices_are_named(select: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        select(make())


def test_indices_may_be_arrays_and_tensors() -> None:
    rollout = make()
    assert rollout[torch.tensor(2)].reward == rollout[np.array(2)].reward == 2
    assert len(rollout.get_rollout(np.array(0))) == 5


def test_slice_across_rollouts_never_takes_a_foreign_successor() -> None:
    both = StepSequence.concat([make(0, 3), make(100, 3)])
    ends_inside = both[1:5]
    assert ends_inside.observations[:, 0].tolist() == [1, 2, 100, 101, 102]
    assert ends_inside.next_observations[:, 0].tolist() == [2, 3, 101, 102]
    ends_at_boundary = both[1:3]
    assert ends_at_boundary.observations[:, 0].tolist() == [1, 2, 3]
    assert ends_at_boundary[1].next_observation.tolist() == [3, -3]
    # where no final observation is stored, there is none to be had
    unknown = StepSequence.concat([make(0, 3, with_last=False), make(100, 3, with_last=False)])
    assert unknown[1:3].observations[:, 0].tolist() == [1, 2]
    with pytest.raises(AttributeError, match="after the end of sub-rollout 0 is not stored"):
        _ = unknown.next_observations


# ---- steps (7.3) -----------------------------------------------------------------------------------------------------


def test_step_views() -> None:
    """specs/sampling.md 7.3"""
    rollout = make(
        infos={"mean": np.arange(10.0).reshape(5, 2), "deep": {"x": np.arange(5)}},
        hidden=Hidden(np.arange(5), np.arange(5)),
    )
    step = rollout[2]
    assert step.reward == 2 and step["rewards"] == 2
    assert step.observation.tolist() == [2, -2] and step.next_observation.tolist() == [3, -3]
    assert step.info.mean.tolist() == [4, 5] and step.infos.deep.x == 2
    assert step.next_info.deep.x == 3
    assert isinstance(step.hidden, Hidden) and step.hidden.h == 2
    assert not step.done and rollout[-1].done and rollout[-1].terminated
    assert set(dir(step)) == {*rollout.data_names, "done", "terminated", "truncated"}
    assert [s.reward for s in rollout] == [0, 1, 2, 3, 4]


def test_proxy_of_a_plain_dict() -> None:
    """specs/sampling.md 7.3"""
    data: dict[str, Any] = {"xs": [1, 2], "deep": {"y": np.arange(2)}, "pair": Hidden(np.arange(2), [3, 4]), "odd": 5}
    proxy = DictIndexProxy(data, 1, "infos")
    assert proxy.x == proxy["xs"] == 2 and proxy.deep.y == 1 and proxy.pair == Hidden(1, 4)
    proxy.x = 7
    assert data["xs"] == [1, 7]
    assert dir(proxy) == ["deep", "odd", "pair", "xs"]
    with pytest.raises(AttributeError, match=r"no field 'z' in 'infos.deep'; fields: y"):
        _ = proxy.deep.z
    assert not hasattr(proxy, "odd") and not hasattr(DictIndexProxy(data, 2), "x")
    with pytest.raises(TypeError, match=r"'infos\.odd' is a int, not a sequence of steps"):
        _ = proxy["odd"]


def test_step_at_the_end() -> None:
    """specs/sampling.md 7.3, RULE"""
    last = make()[4]
    assert last.next_observation.tolist() == [5, -5]
    assert not hasattr(last, "next_reward")
    with pytest.raises(AttributeError, match="no 'rewards' after it is stored"):
        _ = last.next_reward
    with pytest.raises(KeyError):
        _ = last["next_reward"]
    both = StepSequence.concat([make(0, 3, infos={"x": np.arange(4)}), make(100, 3, infos={"x": np.arange(4)})])
    assert both[2].next_observation.tolist() == [3, -3]
    assert both[2].next_info.x == 3
    assert not hasattr(both[2], "next_reward")
    assert both[1].next_reward == 2


def test_unknown_names_of_a_step() -> None:
    step = make()[0]
    with pytest.raises(AttributeError, match="no field 'color'; fields: rewards"):
        _ = step.color
    with pytest.raises(DataError, match=r"^there is no field 'color'; fields: rewards"):
        _ = step["color"]
    with pytest.raises(KeyError):
        step["color"] = 1
    step.color = "red"
    assert step.color == "red"


def test_exact_name_goes_before_prefix_and_plural() -> None:
    rollout = make(next_rewards=np.arange(5) * 10, reward=np.arange(5) * 7)
    assert rollout[1].next_rewards == 10
    assert rollout[1].reward == 7
    assert rollout.next_rewards.tolist() == [0, 10, 20, 30, 40]
    rollout = make(next_observations=np.zeros((5, 2)))
    assert not rollout.next_observations.any() and not rollout[0].next_observations.any()


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_assignment_writes_through(data_format: str) -> None:
    rollout = make(data_format=data_format, infos={"x": np.zeros(5)})
    step = rollout[1]
    step.reward = 9
    step["actions"] = 3
    step.info.x = 4
    step.next_observation = 8
    assert rollout.rewards[1] == 9 and rollout.actions[1, 0] == 3 and rollout.infos["x"][1] == 4
    assert rollout.observations[2].tolist() == [8, 8]
    assert step.reward == 9
    with pytest.raises(TypeError, match="assign to one of them"):
        step.infos = 1
    with pytest.raises(AttributeError):
        rollout[4].next_reward = 1


def test_step_shows_the_present_data() -> None:
    rollout = make()
    step = rollout[1]
    assert isinstance(step.observation, np.ndarray)
    rollout.torch()
    rollout.add_data("return", np.arange(5))
    assert isinstance(step.observation, torch.Tensor)
    assert rollout[2]["return"] == 2 and step["return"] == 1


def test_pickle_and_copy() -> None:
    rollout = StepSequence.concat([make(0, 3, infos={"x": np.zeros(3)}), make(9, 2, infos={"x": np.zeros(2)})])
    assert rollouts_equal(pickle.loads(pickle.dumps(rollout)), rollout)
    assert rollouts_equal(copy.deepcopy(rollout), rollout)
    step = rollout[2]
    step.note = "kept"
    again = pickle.loads(pickle.dumps(step))
    assert again.next_observation.tolist() == [3, -3] and again.note == "kept"
    info = pickle.loads(pickle.dumps(step.info))
    assert info.x == 0


# ---- data (7.4) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_add_data(data_format: str) -> None:
    """specs/sampling.md 7.4"""
    rollout = make(data_format=data_format)
    rollout.add_data("zeros", item_shape=(2,))
    rollout.add_data("more", with_after_last=True)
    rollout.add_data("values", [1.0, 2, 3, 4, 5])
    assert rollout.zeros.shape == (5, 2) and not rollout.zeros.any()
    assert rollout.more.shape == (6,)
    assert rollout.values[4] == 5
    assert rollout.data_names[-3:] == ("zeros", "more", "values")
    for name in ("zeros", "rewards", "done"):
        with pytest.raises(DataError, match="already"):
            rollout.add_data(name, np.zeros(5))
    with pytest.raises(ShapeError, match="'short' must have 5 or 6 entries"):
        rollout.add_data("short", np.zeros(4))
    with pytest.raises(TypeError, match="name of a field must be text, got 3"):
        rollout.add_data(3, np.zeros(5))  # pyright: ignore[reportArgumentType]
    assert "short" not in rollout.data_names


def test_get_data_values() -> None:
    """specs/sampling.md 7.4"""
    rollout = make(infos={"x": np.arange(6), "y": np.arange(5)})
    assert rollout.get_data_values("observations") is rollout.observations
    assert len(rollout.get_data_values("observations", truncate_last=True)) == 5
    cut = rollout.get_data_values("infos", truncate_last=True)
    assert len(cut["x"]) == len(cut["y"]) == 5
    with pytest.raises(DataError, match="no field 'color'"):
        rollout.get_data_values("color")


def test_convert() -> None:
    """specs/sampling.md 7.4, RULE"""
    both = StepSequence.concat([make(0, 3, flag=np.ones(3, dtype=bool), count=[1, 2, 3])] * 2)
    both.torch()
    assert both.data_format == "torch"
    assert both.observations.dtype == torch.float64 and both.actions.dtype == torch.float32
    assert both.next_observations[2].tolist() == [3, -3]
    both.torch(torch.float32)  # the format is that already, the dtype is not
    assert both.observations.dtype == both.rewards.dtype == both.next_observations.dtype == torch.float32
    assert both.flag.dtype == torch.bool and both.count.dtype == torch.int64
    assert isinstance(both.done, np.ndarray)
    both.convert("numpy", {"rewards": np.float64})
    assert both.rewards.dtype == np.float64 and both.observations.dtype == np.float32
    with pytest.raises(DataError, match="no field 'color'"):
        both.convert("numpy", {"color": np.float64})
    with pytest.raises(TypeError, match="torch dtype"):
        both.torch(np.float32)
    assert both.data_format == "numpy"


def test_convert_changes_nothing_if_a_field_cannot_follow() -> None:
    rollout = make(mission=np.array(["go"] * 5, dtype=object))
    with pytest.raises(TypeError, match="cannot become a torch tensor"):
        rollout.torch()
    assert rollout.data_format == "numpy" and isinstance(rollout.rewards, np.ndarray)
    assert rollout[1:3].mission.tolist() == ["go", "go"]


# ---- concatenation and sub-rollouts (7.5, 7.6) -----------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_concat_keeps_final_observations_reachable(data_format: str) -> None:
    """specs/sampling.md 7.5, RULE"""
    parts = [make(0, 3, rollout_info={"a": np.ones(2)}), make(100, 2, rollout_info={"a": np.ones(2)})]
    both = StepSequence.concat(parts, data_format=data_format)
    assert both.data_format == data_format
    assert both.observations[:, 0].tolist() == [0, 1, 2, 100, 101]
    assert both.next_observations[:, 0].tolist() == [1, 2, 3, 101, 102]
    assert both.get_final_values("observations")[:, 0].tolist() == [3, 102]
    assert both.rollout_bounds.tolist() == [0, 3, 5]
    assert np.flatnonzero(both.done).tolist() == [2, 4]
    assert both.rollout_info["a"].tolist() == [1, 1]
    for part, original in zip(both.iterate_rollouts(), parts, strict=True):
        part.numpy()
        assert rollouts_equal(part, original)
    kept = StepSequence.concat(parts, truncate_last=False)
    assert kept.observations[:, 0].tolist() == [0, 1, 2, 100, 101, 102]
    assert kept.next_observations[:, 0].tolist() == [1, 2, 3, 101, 102]


def test_concat_of_concatenations() -> None:
    parts = [make(10 * k, k + 1) for k in range(4)]
    nested = StepSequence.concat([StepSequence.concat(parts[:2]), StepSequence.concat(parts[2:], truncate_last=False)])
    assert rollouts_equal(nested, StepSequence.concat(parts))
    assert nested.rollout_bounds.tolist() == [0, 1, 3, 6, 10]


def test_concat_where_some_finals_are_unknown() -> None:
    both = StepSequence.concat([make(0, 2), make(100, 2, with_last=False)])
    assert both[1].next_observation.tolist() == [2, -2]
    assert not hasattr(both[3], "next_observation") and not hasattr(both, "next_observations")
    with pytest.raises(DataError, match="sub-rollout 1 is not stored"):
        both.get_final_values("observations")
    assert both.get_final_values("observations", default=np.nan)[:, 0].tolist()[0] == 2
    assert both.get_rollout(0).next_observations[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("parts", "error", "told"),
    [
        ([], ValueError, "parts"),
        (make(), TypeError, r"parts .*; pass \[part\]"),
        ([make(), {}], TypeError, "at position 1"),
        ([make(), make(x=np.zeros(5))], DataError, "'x'"),
        ([make(infos={"x": np.zeros(5)}), make(infos={"y": np.zeros(5)})], DataError, "'infos'"),
        ([make(), make(actions=np.zeros((5, 2)))], ShapeError, "'actions'"),
    ],
)
def test_concat_bad_parts(parts: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        StepSequence.concat(parts)


def test_concat_of_what_is_partly_told() -> None:
    assert StepSequence.concat([make(rollout_info=1), make(rollout_info=2)]).rollout_info is None
    loose = StepSequence.concat([make(), make()[[0, 1]]])
    assert not loose.continuous and loose.observations.shape == (7, 2)


def test_get_rollout() -> None:
    """specs/sampling.md 7.6"""
    rollout = make(length=20, rollout_bounds=[0, 4, 11, 17, 20])
    assert rollout.get_rollout(1).rewards.tolist() == list(range(4, 11))
    assert rollout.get_rollout(-1).rewards.tolist() == [17, 18, 19]
    assert rollout.get_rollout(-1).observations.shape == (4, 2)
    middle = rollout.get_rollout(slice(1, -1))
    assert middle.rewards.tolist() == list(range(4, 17)) and middle.rollout_bounds.tolist() == [0, 7, 13]
    chosen = rollout.get_rollout([1, 3])
    assert chosen.rewards.tolist() == [*range(4, 11), 17, 18, 19] and chosen.rollout_bounds.tolist() == [0, 7, 10]
    assert rollout.get_rollout(slice(None, None, -2)).rollout_lengths.tolist() == [3, 7]
    assert make().get_rollout(0).observations.shape == (6, 2)


# ---- returns (7.7) ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_returns(data_format: str) -> None:
    """specs/sampling.md 7.7"""
    rollout = make(rewards=np.array(REWARDS), data_format=data_format)
    assert rollout.undiscounted_return() == -392.5
    assert isinstance(rollout.undiscounted_return(), float)
    # -200 - 90 - 40.5 - 18.225 - 11.48175
    assert float(rollout.discounted_return(0.9)) == pytest.approx(-360.20675)
    assert rollout.discounted_return(1) == -392.5
    assert isinstance(rollout.discounted_return(0.9), torch.Tensor if data_format == "torch" else np.floating)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        rollout.discounted_return(1.5)
    with pytest.raises(ShapeError, match="2 rollouts"):
        StepSequence.concat([rollout, rollout]).undiscounted_return()
    column = make(rewards=np.array(REWARDS)[:, None], data_format=data_format)
    assert column.undiscounted_return() == -392.5 and float(column.discounted_return(1)) == -392.5


def test_text() -> None:
    rollout = StepSequence(rewards=[1.0], observations=[2.0, 3.0], actions=[4.0])
    assert str(rollout) == "[2. 3.]"
    assert repr(rollout) == "StepSequence(rewards=array([1.]), observations=array([2., 3.]), actions=array([4.]))"


def test_other_data_for_a_field_must_fit() -> None:
    """specs/sampling.md 7.1: a sequence never gets out of step with itself."""
    rollout = make()
    with pytest.raises(ShapeError, match="field 'rewards' must have 5 or 6 entries, got 1"):
        rollout.rewards = np.ones(1)
    rollout.rewards = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert rollout.undiscounted_return() == 15.0
    assert isinstance(rollout.rewards, np.ndarray)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_an_inner_ending_starts_a_new_rollout(name):
    flags = {name: [False, True, False, False]}
    rollout = StepSequence(rewards=np.ones(4), observations=np.arange(5.0), actions=np.zeros(4), **flags)
    assert rollout.rollout_bounds.tolist() == [0, 2, 4]
    assert rollout.done.tolist() == [False, True, False, True]
    assert (rollout.terminated & rollout.truncated).tolist() == [False] * 4
    assert discounted_value(rollout, 1.0).tolist() == [2, 1, 2, 1]
    assert [len(part) for part in rollout.iterate_rollouts()] == [2, 2]
    with pytest.raises(DataError, match="after the end of sub-rollout 0 is not stored"):
        rollout.get_next_values("observations")
    cut = StepSequence(rewards=np.ones(4), observations=np.arange(5.0), actions=np.zeros(4), complete=False, **flags)
    assert cut.done.tolist() == [False, True, False, False]
    kept = StepSequence(
        rewards=np.ones(4), observations=np.arange(5.0), actions=np.zeros(4), rollout_bounds=[0, 4], **flags
    )
    assert kept.rollout_count == 1  # what is said goes first
