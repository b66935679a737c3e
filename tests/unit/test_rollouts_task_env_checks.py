"""``check_task_env`` finds each planted mistake, and nothing in environments that are as they should be."""

from __future__ import annotations

import functools
import json

import gymnasium
import numpy as np
import pytest
import task_envs
from task_envs import Line, Sized, ToldByReset

from metaroll import TaskFamily
from metaroll.lab import TaskEnvReport, check_task_env
from metaroll.lab.checking import task_checks
from metaroll.training.store.files import to_plain

PLACES = {"place": (-1, 1)}


def look(env, horizon=15, **options) -> TaskEnvReport:
    family = env if isinstance(env, TaskFamily) else TaskFamily.from_env(env, horizon=horizon)
    return check_task_env(family, workers=False, **options)


@functools.cache
def report_of(env: str) -> TaskEnvReport:
    """Of an environment with a mistake, which several tests read."""
    return look(getattr(task_envs, env), horizon=12)


@pytest.mark.parametrize(
    "family",
    [
        TaskFamily.from_env(Line, horizon=15),
        TaskFamily.from_params(Line, PLACES, horizon=15),
        TaskFamily.from_env(ToldByReset, PLACES, horizon=15),
        TaskFamily.from_constructors([functools.partial(Sized, size=s) for s in range(1, 30)], horizon=15),
        "point-robot",
        "sparse-point-robot",
        "pend",
    ],
    ids=["set_task", "params", "reset", "constructors", "point-robot", "sparse-point-robot", "pend"],
)
def test_nothing_is_found_where_nothing_is_wrong(family):
    report = check_task_env(family, workers=False)
    assert (report.failed, report.warned) == ([], [])
    assert report.ok and report.verdict.endswith("is ready as a family of tasks")
    assert all(check.status == "ok" and not check.hint for check in report.checks)


@pytest.mark.parametrize(
    ("env", "failed", "message"),
    [
        ("SetsNothing", "setting a task", "setting a task has no effect: 6 tasks give the same"),
        ("ResetDrawsATask", "keeping the task", "reset forgets the task that was set"),
        ("SecondResetForgets", "keeping the task", "a second reset forgets the task"),
        ("Drifts", "changing the task", "tasks give a different rollout after other tasks than in a new environment"),
        ("DrawsGlobally", "reset(seed)", "differ at the reset: the environment draws from global generators"),
        ("DrawsByItself", "reset(seed)", "draws from a generator that reset(seed) does not seed"),
        ("ShowsThePlace", "first observation", "the whole task can be decoded: it reveals place (100 %, from entry 1)"),
        ("SamplesAnew", "tasks", "the same seed gives different tasks"),
        ("OldStep", "environment", "step() must return (observation, reward, terminated, truncated, info)"),
        ("NaNReward", "reward", "it is NaN or infinite"),
        (
            "WrongShape",
            "environment",
            "(1,), float32) declares, got (3,) (after step 1)",
        ),
        ("Halves", "environment", "observation must hold values of int32"),
        ("ShowsLater", "later steps", "observations show place (entry 1)"),
    ],
)
def test_each_mistake_is_found_with_its_cure(env, failed, message):
    report = report_of(env)
    assert failed in report.failed and not report.ok
    assert message in report[failed].value
    assert report[failed].hint
    assert f"{env} is not ready" in report.verdict


def test_one_mistake_is_one_failure():
    """What follows from a failure is skipped, or only a warning."""
    for env in ("SetsNothing", "ResetDrawsATask", "Drifts", "ShowsThePlace"):
        assert len(report_of(env).failed) == 1, env


def test_a_type_that_loses_digits_is_a_warning():
    """Rollouts hold what the space says, float32."""

    class Doubles(Line):
        def shown(self):
            return np.array([self.x])

    found = look(Doubles)["environment"]
    assert found.status == "warn"
    assert found.hint.startswith(
        "observation has type float64, but its space has float32: return np.asarray(observation, "
    )


def test_infos_of_a_reset_that_show_the_task_are_a_warning():
    class Tells(Line):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"where": {"to": [0.0, self.place]}, "fixed": 3, "text": "a"}

    report = look(Tells)
    assert (report.failed, report.warned) == ([], ["later steps"])
    assert report["later steps"].value == "the info of reset shows place ('where.to[1]')"


def test_what_depends_on_the_task_is_no_leak():
    """Its speed is the push times a number of the task: what there is to find out."""

    class Pushed(Line):
        observation_space = task_envs.Line.observation_space
        action_space = gymnasium.spaces.Discrete(2)

        def step(self, action):
            self.x = float(self.place * action)
            return self.shown(), -abs(self.x - 1), False, False, {}

    report = look(TaskFamily.from_params(Pushed, {"place": (1, 2)}, horizon=15))
    assert (
        report["later steps"].value == "no entry of observations, or of the infos of a reset, is a number of the task"
    )


@pytest.mark.parametrize(
    "computed",
    [
        lambda p, _: 0.1 * p,
        lambda p, _: 2 * p + 1,
        lambda p, _: -p,
        lambda p, _: np.sin(3 * p),
        lambda p, _: float(p > 0),
        lambda p, noise: 0.1 * p + 0.001 * noise,
    ],
    ids=["scaled", "shifted", "negated", "sine", "sign", "noisy"],
)
def test_what_is_computed_from_the_task_alone_tells_it(computed):
    class Tells(task_envs.ShowsLater):
        def step(self, action):
            shown, *rest = super().step(action)
            return np.array([shown[0], computed(self.place, self.np_random.normal())], np.float32), *rest

    report = look(Tells)
    assert (report.failed, report.warned) == ([], ["later steps"])
    found = report["later steps"]
    assert found.value.startswith("entry 1 (") and "it reveals the task, or a part of it" in found.value
    assert "leave it out of the observation, unless the task is meant to be known" in found.hint


@pytest.mark.parametrize("speed", [0.01, 1.0])
def test_what_tasks_do_to_the_motion_is_no_leak(speed):
    """A wind that differs between tasks drives the point; it is at rest in the same place at first."""

    class Wind(Line):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.x = 0.0
            return self.shown(), {}

        def step(self, action):
            self.x += 0.001 * float(action[0]) + speed * self.place
            return self.shown(), -abs(self.x), False, False, {}

    assert look(Wind)["later steps"].status == "ok"


def test_constructors_are_told_by_constants_too():
    class Weighs(Sized):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            self.weight = 0.0
            return super().reset(seed=seed)

        def step(self, action):
            self.weight = 5 + self.size
            return super().step(action)

        def shown(self):
            return np.array([self.x, self.weight], np.float32)

    family = TaskFamily.from_constructors([functools.partial(Weighs, size=s) for s in range(1, 30)], horizon=15)
    assert look(family)["later steps"].value.startswith("entry 1 (12 values) of observations after the first: ")


def test_a_reward_in_an_array_is_told_as_it_is_in_training():
    class Wraps(Line):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, np.array([reward, reward]), *rest

    found = look(Wraps)["environment"]
    assert found.status == "fail"
    assert "step() must return an array, a number, two truth values and a dict, got reward=array([" in found.value


def test_constructors_with_different_spaces():
    def make(size):
        def made():
            env = Line()
            env.observation_space = gymnasium.spaces.Box(-1, 1, (size,), np.float32)
            return env

        return made

    family = TaskFamily.from_constructors({f"of {i}": make(1 + i // 20) for i in range(30)}, horizon=5)
    found = check_task_env(family, workers=False)["environment"]
    assert found.status == "fail" and "make one family per kind" in found.hint
    assert found.value.startswith(
        "tasks have different observation spaces: 'of 0' has Box(-1.0, 1.0, (1,), float32), 'of 20' has"
    )


def test_an_error_is_told_once():
    class Breaks(Line):
        def step(self, action):
            raise RuntimeError("the motor is off")

    report = look(Breaks)
    assert report.failed == ["environment"]
    assert str(report).count("the motor is off") == 1

    class BreaksLate(Line):
        def step(self, action):
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps > 30:
                raise RuntimeError("the motor is off")
            return super().step(action)

    report = look(BreaksLate, horizon=50)
    assert report.failed == ["reset(seed)"]
    assert report["distinguishable"].value == "fails in the same way as 'reset(seed)'"


def test_numbers_that_are_none_are_one_failure():
    """Rewards that are NaN spoil all rollouts, and observations the environment."""

    class Blind(Line):
        def shown(self):
            return np.array([np.nan], np.float32)

    report = report_of("NaNReward")
    assert report.failed == ["reward"]
    assert report["setting a task"].status == "skip"
    report = look(Blind)
    assert report.failed == ["environment"]
    assert report["environment"].value == "observation is NaN or infinite"


def test_any_space_will_do():
    class Nested(Line):
        observation_space = gymnasium.spaces.Dict({"x": Line.observation_space, "left": gymnasium.spaces.Discrete(2)})
        action_space = gymnasium.spaces.Dict(
            {"push": Line.action_space, "brake": gymnasium.spaces.Discrete(2, start=3)}
        )

        def step(self, action):
            assert action["brake"] in (3, 4)
            return super().step(action["push"] * (action["brake"] == 3))

        def shown(self):
            return {"x": np.array([self.x], np.float32), "left": int(self.x < 0)}

    report = look(Nested)
    assert (report.failed, report.warned) == ([], [])
    assert report["distinguishable"].numbers["accuracy"] > 0.9


def test_half_a_leak_is_a_warning():
    report = look(task_envs.ShowsHalf)
    assert report.warned == ["first observation"]
    found = report["first observation"]
    assert found.value == "reveals place (100 %, from entry 1)"
    assert found.numbers["r_squared place"] > 0.99 > 0.4 > found.numbers["r_squared tilt"]


def test_what_cannot_be_sent_is_found_in_a_real_worker():
    report = check_task_env(task_envs.locked)
    assert report.failed == ["worker"]
    assert report["worker"].value == "a task cannot be sent to another process: cannot pickle '_thread.lock' object"
    good = check_task_env(TaskFamily.from_env(Line, horizon=15))
    assert good["worker"].value == "tasks can be sent to another process, where rollouts are the same"


def test_tasks_on_one_side_only():
    report = look(TaskFamily.from_env(Line, num_test_tasks=0, horizon=15))
    assert (report.failed, report.warned) == ([], ["tasks"])
    assert report["tasks"].value == "80 tasks, none held out"
    assert look(TaskFamily.from_env(Line, num_train_tasks=0, num_test_tasks=0)).failed == ["tasks"]


def test_an_environment_that_cannot_be_made():
    report = look(TaskFamily("none", task_envs.no_license, 3, 2, 10))
    assert report.failed == ["environment"]
    assert report["environment"].value == "RuntimeError: no license"
    assert {check.status for check in report.checks[1:]} == {"skip"}


def test_tasks_that_are_hard_to_tell_apart_are_a_warning():
    """Places far away: rewards differ by a constant, which a model of one task learns; nearly equal places do not."""
    far = look(TaskFamily.from_params(Line, {"place": (5, 50)}, horizon=15))
    near = look(TaskFamily.from_params(Line, {"place": (0.5, 0.5 + 1e-9)}, horizon=15))
    assert far["distinguishable"].numbers["accuracy"] == 1.0
    assert near["distinguishable"].status == "warn"
    assert near["distinguishable"].numbers["accuracy"] < 0.75


def test_size_of_rewards():
    class Large(Line):
        def step(self, action):
            shown, reward, *rest = super().step(action)
            return shown, 1e5 * reward, *rest  # type: ignore[return-value]

    class Never(Line):
        def step(self, action):
            shown, _, *rest = super().step(action)
            return shown, 0.0, *rest  # type: ignore[return-value]

    large, never = look(Large, horizon=10)["reward"], look(Never, horizon=10)["reward"]
    assert large.status == "warn" and "scale them by about 1e-05" in large.hint
    assert never.status == "warn" and never.value == "always 0 with random actions"


def test_an_environment_itself_or_with_a_list_of_tasks_will_do(monkeypatch):
    monkeypatch.setattr(task_checks, "_MOST_STEPS", 40)
    assert check_task_env(Line(), workers=False).failed == []
    tasks = [{"place": float(p)} for p in np.linspace(-1, 1, 40)]
    report = check_task_env(ToldByReset, tasks, workers=False, num_steps=20)
    assert report.failed == []
    with pytest.raises(ValueError, match="num_steps must be an integer of at least 1, got 0"):
        check_task_env(Line, num_steps=0)
    with pytest.raises(ValueError, match=r"^seed must be an integer of at least 0, got -1"):
        check_task_env("pend", seed=-1)
    with pytest.raises(KeyError, match="there are environment, tasks"):
        report["speed"]


def test_the_report_is_text_and_plain_data():
    report = report_of("SetsNothing")
    lines = str(report).splitlines()
    assert lines[0].startswith("ok    environment        observations Box(1,), actions Box(1,), episodes of 12 steps")
    assert any(line.startswith("fail  setting a task     setting a task has no effect") for line in lines)
    assert any(line.startswith(" " * 25 + "-> store the task in set_task") for line in lines)
    assert lines[-1] == "SetsNothing is not ready: setting a task failed"
    document = json.loads(json.dumps(to_plain(report.to_dict())))
    assert document["ok"] is False
    assert [check["name"] for check in document["checks"]] == [check.name for check in report.checks]


def test_the_same_seed_gives_the_same_report():
    family = TaskFamily.from_env(Line, horizon=10)
    assert look(family, seed=3) == look(family, seed=3)
