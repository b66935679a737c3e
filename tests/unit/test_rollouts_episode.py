"""specs/sampling.md 8.1: one rollout, with every documented parameter."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from sampler_envs import NOMINAL, Deaf, Oscillator

from metaroll.data.compare import first_difference
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import InvalidValueError, RolloutError
from metaroll.rollouts.single.rollout import rollout
from metaroll.types import RenderMode


def push(obs):
    return np.tanh(obs[:1])


class Screen(Oscillator):
    """Draws its position as a brightness."""

    metadata = {"render_modes": ["rgb_array", "human"]}

    def __init__(self, render_mode=None, **options):
        super().__init__(**options)
        self.render_mode, self.shown = render_mode, 0

    def render(self):
        self.shown += 1
        if self.render_mode == "rgb_array":
            return np.full((4, 6, 3), self._t, np.uint8)
        return None


# -- what comes back -----------------------------------------------------------------------------------------------


def test_every_documented_parameter_and_field():
    """specs/sampling.md 8.1: fields of the result, and what its rollout_info says."""
    result = rollout(
        Oscillator(),
        push,
        False,  # eval
        12,  # max_steps
        {"init_state": [1.0, 0.0], "domain_param": {"mass": 2.0}},
        RenderMode(),
        1,  # render_step
        False,  # no_reset
        False,  # no_close
        True,  # record_dts
        True,  # stop_on_done
        3,
        2,
        1,
    )
    assert len(result) == 12 and result.truncated.tolist() == [False] * 11 + [True]
    assert result.observations.shape == result.states.shape == (13, 2)
    assert result.states[0].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(result.time, np.arange(13) * 0.1)
    # By hand: tanh(1) on a mass of 2 with a spring of 2, semi-implicit Euler with 0.1 s.
    force = 0.5 * np.tanh(1.0)
    v = 0.1 * (force - 2.0) / 2.0
    np.testing.assert_allclose(result.states[1], [1.0 + 0.1 * v, v], rtol=1e-6)
    np.testing.assert_allclose(result.actions_applied[0], [force], rtol=1e-6)  # the info act_applied
    info = result.rollout_info
    assert info["env_name"] == "Oscillator" and info["env_spec"].act_dim == 1
    assert info["domain_param"] == {"mass": 2.0, "stiffness": 2.0}
    assert info["plan"]["seed"] == (3, 2, 1) and info["plan"]["task"] == {"mass": 2.0}


def test_applied_actions_are_clipped_where_the_environment_does_not_tell():
    result = rollout("Pendulum-v1", lambda obs: np.array([5.0]), max_steps=3, seed=0)
    assert result.actions[:, 0].tolist() == [5.0] * 3 and result.actions_applied[:, 0].tolist() == [2.0] * 3
    choices = rollout("CartPole-v1", lambda obs: 1, max_steps=3, seed=0)
    assert choices.actions_applied.tolist() == [1, 1, 1] and choices.states.shape == (4, 4)
    np.testing.assert_allclose(choices.time, 0.02 * np.arange(4))  # which CartPole calls tau
    assert "time" not in rollout("MountainCar-v0", lambda obs: 1, max_steps=3, seed=0).data_names


def test_recorded_actions_are_what_the_policy_said_whatever_the_environment_does_to_them():
    """specs/sampling.md 8.1 (d), 22.15: upstream's ball balancer writes its dead zone into the recording."""

    class DeadZone(Oscillator):
        def step(self, action):
            out = super().step(action)
            action[:] = 0.0
            return out

    played = np.array([0.05], np.float32)
    result = rollout(DeadZone(), lambda obs: played, seed=0)
    assert played.tolist() == result.actions[7].tolist() == np.array([0.05], np.float32).tolist()


def test_seeds_decide_everything_and_none_is_recorded_entropy():
    first = rollout(Oscillator(), push, seed=1, sub_seed=None, sub_sub_seed=4)
    assert first_difference(first, rollout(Oscillator(), push, seed=1, sub_seed=0, sub_sub_seed=4)) is None
    other = rollout(Oscillator(), push, seed=1, sub_seed=1, sub_sub_seed=4)
    assert not np.array_equal(first.observations, other.observations)
    drawn = rollout(Oscillator(), push)
    seed, sub, subsub = drawn.rollout_info["plan"]["seed"]
    again = rollout(Oscillator(), push, seed=seed, sub_seed=sub, sub_sub_seed=subsub)
    assert first_difference(drawn, again) is None


def test_max_steps_does_not_touch_the_environment():
    """specs/sampling.md 8.1: upstream leaves env.max_steps changed."""
    env = Oscillator()
    assert len(rollout(env, push, max_steps=4, seed=0, no_close=True)) == 4
    assert env.max_steps == 20 and len(rollout(env, push, seed=0)) == 20


def test_domain_parameters_stay_in_the_environment_and_in_the_plan_of_an_error():
    env = Oscillator()
    rollout(env, push, max_steps=2, reset_kwargs={"domain_param": {"mass": 2.0}}, no_close=True)
    assert env.domain_param["mass"] == 2.0
    result = rollout(env, push, max_steps=2, reset_kwargs={"domain_param": None, "init_state": None})
    assert result.rollout_info["domain_param"]["mass"] == 2.0
    told = rollout("Pendulum-v1", push, max_steps=2, reset_kwargs={"domain_param": {"g": 3.0}})
    assert told.rollout_info["domain_param"] == {"g": 3.0}
    with pytest.raises(RolloutError) as caught:
        rollout(Oscillator(), lambda obs: 1 / 0, reset_kwargs={"domain_param": {"mass": 3.0}}, seed=0)
    assert caught.value.plan.env_update(Oscillator()).domain_param["mass"] == 3.0


def test_an_ignored_initial_state_is_an_error():
    with pytest.raises(RolloutError, match="ignores reset"):
        rollout(Deaf(), push, reset_kwargs={"init_state": np.ones(2)})


# -- closing, going on ---------------------------------------------------------------------------------------------


def test_closing():
    """specs/sampling.md 8.1: the environment is closed unless no_close; one made here is always closed."""
    env = Oscillator()
    rollout(env, push, seed=0, no_close=True)
    assert env.closed == 0
    rollout(env, push, seed=0)
    assert env.closed == 1
    with pytest.raises(RolloutError):
        rollout(env, lambda obs: 1 / 0, seed=0)
    assert env.closed == 2
    made = []

    def make():
        made.append(Oscillator())
        return made[-1]

    rollout(make, push, seed=0, no_close=True)
    assert [e.closed for e in made] == [1]


@pytest.mark.parametrize("make", [Oscillator, PointRobotEnv, lambda: gymnasium.make("Pendulum-v1")])
def test_no_reset_goes_on_from_the_present_state(make):
    """specs/sampling.md 8.1: upstream records zeros as the first observation."""

    def act(obs):
        return np.tanh(obs[:1]) if make is not PointRobotEnv else np.tanh(obs)

    env, whole = make(), rollout(make(), act, max_steps=10, seed=0)
    first = rollout(env, act, max_steps=4, seed=0, no_close=True)
    rest = rollout(env, act, max_steps=6, no_reset=True)
    np.testing.assert_array_equal(np.concatenate([first.observations[:-1], rest.observations]), whole.observations)
    np.testing.assert_array_equal(np.concatenate([first.rewards, rest.rewards]), whole.rewards)


def test_no_reset_needs_an_environment_that_can_tell():
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="no_reset=True cannot be used"):
        rollout(env, lambda obs: 0, no_reset=True)


def test_stop_on_done_false_needs_a_limit():
    env = Oscillator(max_steps=10**6, end=0.5)
    result = rollout(env, push, max_steps=30, stop_on_done=False, seed=0)
    assert len(result) == 30 and result.terminated.sum() > 1
    with pytest.raises(ValueError, match="never ends"):
        rollout(env, push, stop_on_done=False)


# -- modes, times, pictures ----------------------------------------------------------------------------------------


def test_torch_modules_are_in_their_mode_during_the_rollout_only():
    class Told(torch.nn.Module):
        def forward(self, obs):
            return torch.full((1, 1), float(self.training))

    module = Told()
    for training in (True, False):
        module.train(training)
        assert rollout(Oscillator(), module, eval=True, seed=0).actions.max() == 0.0
        assert rollout(Oscillator(), module, eval=False, seed=0).actions.min() == 1.0
        assert module.training is training


def test_times_of_steps_are_recorded():
    """specs/sampling.md 8.1 (d): also with a plain callable, where upstream fails."""
    import time

    class Slow(Oscillator):
        def step(self, action):
            time.sleep(0.02)
            return super().step(action)

    def slow(obs):
        time.sleep(0.01)
        return push(obs)

    result = rollout(Slow(), slow, max_steps=3, record_dts=True, seed=0)
    assert result.dts_policy.shape == result.dts_step.shape == result.dts_remainder.shape == (3,)
    assert (result.dts_policy >= 0.01).all() and (result.dts_step >= 0.02).all() and (result.dts_remainder >= 0).all()
    plain = rollout(Slow(), slow, max_steps=3, seed=0)
    assert "dts_step" not in plain.data_names
    np.testing.assert_array_equal(plain.observations, result.observations)


def test_text_is_one_line_per_rendered_step(capsys):
    plain = rollout(Oscillator(), push, max_steps=7, seed=0)
    capsys.readouterr()
    result = rollout(Oscillator(), push, max_steps=7, seed=0, render_mode=RenderMode(text=True), render_step=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["0", "3", "6"]
    assert "observation" in lines[0] and all(word in lines[1] for word in ("action", "reward", "return"))
    assert f"return {result.rewards[:3].sum():.4g}" in lines[1]
    assert first_difference(plain, result) is None


def test_text_of_structured_spaces(capsys):
    class Both(Oscillator):
        def __init__(self):
            super().__init__()
            self.plain = self.observation_space
            self.observation_space = gymnasium.spaces.Dict({"x": self.plain, "n": gymnasium.spaces.Discrete(3)})

        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return {"x": observation, "n": 1}, info

        def step(self, action):
            observation, *rest = super().step(action)
            return {"x": observation, "n": 1}, *rest

    rollout(Both(), lambda obs: push(obs["x"]), max_steps=2, seed=0, render_mode=RenderMode(text=True))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_video_collects_frames_and_the_window_is_drawn():
    env = Screen("rgb_array")
    result = rollout(env, push, max_steps=7, seed=0, render_mode=RenderMode(video=True), render_step=3)
    frames = result.rollout_info["frames"]
    assert frames.shape == (3, 4, 6, 3) and frames.dtype == np.uint8 and frames[:, 0, 0, 0].tolist() == [0, 3, 6]
    window = Screen("human")
    rollout(window, push, max_steps=7, seed=0, render_mode=RenderMode(render=True))
    assert window.shown == 8


def test_an_environment_made_from_an_id_can_render():
    gymnasium.register("Screen-v0", entry_point=Screen)
    try:
        result = rollout("Screen-v0", push, max_steps=2, seed=0, render_mode=RenderMode(video=True))
        assert len(result.rollout_info["frames"]) == 3
    finally:
        del gymnasium.registry["Screen-v0"]
    with pytest.raises(ValueError, match="draws nothing"):
        rollout("bandit-5", lambda obs: 0, max_steps=2, render_mode=RenderMode(video=True))


@pytest.mark.parametrize(("mode", "hint"), [(RenderMode(video=True), "rgb_array"), (RenderMode(render=True), "human")])
def test_an_environment_that_cannot_render_so_is_refused_with_the_cure(mode, hint):
    env = Oscillator()
    with pytest.raises(ValueError, match=f"gymnasium.make\\(id, render_mode='{hint}'\\)"):
        rollout(env, push, render_mode=mode)
    assert env.resets == 0


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"eval": 1}, TypeError, "eval must be True or False"),
        ({"no_reset": "yes"}, TypeError, "no_reset must be True or False"),
        ({"max_steps": 0}, ValueError, "max_steps of a RolloutPlan must be an integer of at least 1"),
        ({"max_steps": 2.5}, TypeError, "max_steps of a RolloutPlan must be an integer"),
        ({"reset_kwargs": [1.0]}, TypeError, "reset_kwargs must be a dict"),
        ({"reset_kwargs": {"start": 1}}, ValueError, "reset_kwargs may hold"),
        ({"reset_kwargs": {"init_state": [0.0, 0.0]}, "no_reset": True}, ValueError, "need a reset"),
        ({"reset_kwargs": {"domain_param": {"weight": 1.0}}}, KeyError, "Known: mass, stiffness"),
        ({"render_mode": "human"}, TypeError, "RenderMode"),
        ({"render_mode": RenderMode(video=True, render=True)}, ValueError, "together"),
        ({"render_step": 0}, ValueError, "render_step must be an integer of at least 1"),
        ({"render_step": 1.0}, TypeError, "render_step must be an integer"),
        ({"sub_seed": 1}, ValueError, "need a seed"),
        ({"seed": -1}, ValueError, "seed must not be negative"),
        ({"policy": 3}, TypeError, "policy must"),
    ],
)
def test_bad_arguments_are_refused(options, error, text):
    env = Oscillator()
    with pytest.raises(error, match=text):
        rollout(**{"env": env, "policy": push, **options})
    assert env.domain_param == NOMINAL


def test_nan_is_an_error_that_names_the_step():
    with pytest.raises(
        InvalidValueError, match=r"action is not finite at step 0.*Engines and samplers made with on_inv"
    ):
        rollout(Oscillator(), lambda obs: np.array([np.nan]), seed=0)
