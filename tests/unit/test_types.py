"""Specs and errors."""

from __future__ import annotations

import pickle

import gymnasium
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from metaroll import errors
from metaroll.types import EnvSpec, EnvUpdate, RenderMode, RolloutPlan, TaskNote


def test_labels_name_every_entry_once():
    space = Box(-1, 1, (2,))
    spec = EnvSpec(space, Discrete(3), observation_labels=("x", "v"))
    assert (spec.obs_dim, spec.act_dim, spec.obs_space, spec.act_space) == (2, 3, space, Discrete(3))
    with pytest.raises(ValueError, match="observation_labels must name every entry"):
        EnvSpec(space, Discrete(3), observation_labels=("x",))
    with pytest.raises(ValueError, match="must differ"):
        EnvSpec(space, Discrete(3), observation_labels=("x", "x"))
    with pytest.raises(ValueError, match="state_labels"):
        EnvSpec(space, Discrete(3), state_labels=("x",))


def test_spec_of_an_env():
    spec = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
    assert spec.max_episode_length == 500 and spec.obs_dim == 4
    assert EnvSpec.from_env(spec) is spec
    with pytest.raises(TypeError, match="observation_space"):
        EnvSpec.from_env(3)


class _Unregistered(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,)), Discrete(3)


def test_a_time_limit_counts_around_an_environment_that_is_not_registered():
    limited = TimeLimit(OrderEnforcing(TimeLimit(_Unregistered(), 7)), 10)
    assert limited.spec is None and EnvSpec.from_env(OrderEnforcing(limited)).max_episode_length == 7
    assert EnvSpec.from_env(OrderEnforcing(_Unregistered())).max_episode_length is None


def test_a_plan_acts_deterministically_in_evaluation_unless_told():
    assert RolloutPlan(eval=True).acts_deterministically and not RolloutPlan().acts_deterministically
    assert not RolloutPlan(eval=True, deterministic=False).acts_deterministically


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("index", -1, ValueError),
        ("index", 0.5, TypeError),
        ("max_steps", 0, ValueError),
        ("max_steps", 2.5, TypeError),
        ("max_steps", True, TypeError),
        ("max_steps", 2**63, ValueError),
        ("seed", 3, TypeError),
        ("seed", "x", TypeError),
        ("seed", (1, 2), ValueError),
        ("seed", (1, -2, 3), ValueError),
        ("seed", (1, "a", 3), TypeError),
        ("extras", 3, TypeError),
    ],
)
def test_a_plan_checks_its_fields(field, value, error):
    with pytest.raises(error, match=f"{field} of a RolloutPlan must be"):
        RolloutPlan(**{field: value})


def test_the_plain_update_changes_nothing():
    """specs/meta.md 3.6."""
    env = object()
    note = TaskNote({"mass": 1.0})
    assert note(env) is env and note.task == {"mass": 1.0}
    assert not note.builds_env and not note.replaces(note)
    with pytest.raises(TypeError, match="EnvUpdate is the class that updates derive from: make a SetTaskUpdate"):
        EnvUpdate()  # type: ignore[abstract]
    assert pickle.loads(pickle.dumps(note)).task == {"mass": 1.0}


def test_render_mode_is_off_by_default():
    assert RenderMode() == (False, False, False)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ShapeError, ValueError),
        (errors.DataError, KeyError),
        (errors.UnknownNameError, ValueError),
        (errors.NotPicklableError, TypeError),
        (errors.SnapshotError, ValueError),
        (errors.RunExistsError, FileExistsError),
        (errors.InvalidValueError, ValueError),
        (errors.WorkerLost, RuntimeError),
        (errors.ClusterError, ConnectionError),
        (errors.NotSetupError, RuntimeError),
    ],
)
def test_errors_refine_built_in_ones(error, builtin):
    """specs/sampling.md 0.1."""
    assert issubclass(error, builtin) and issubclass(error, errors.MetarollError)


def test_unknown_names_come_with_the_nearest_ones():
    text = str(errors.unknown_name("environment", "chetah-vel", ["cheetah-vel", "point-robot"]))
    assert text == "unknown environment 'chetah-vel'; did you mean 'cheetah-vel'? Known: cheetah-vel, point-robot"
    assert str(errors.DataError("no quotes")) == "no quotes"


def test_a_plan_takes_updates_only() -> None:
    with pytest.raises(TypeError, match="env_update of a RolloutPlan must be an EnvUpdate, got <function"):
        RolloutPlan(env_update=lambda env: env)  # type: ignore[arg-type]
