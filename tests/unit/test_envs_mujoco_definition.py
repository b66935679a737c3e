"""Your own robot from an MJCF file and functions of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from metaroll import RolloutEngine, TaskFamily, make_slots
from metaroll.data.compare import first_difference
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import DataError, ShapeError
from metaroll.policies import GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.sims import MujocoEnvDefinition
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.testing import check_slots
from metaroll.types import RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools")

SLIDE = """<mujoco>
  <option timestep="0.01" integrator="Euler"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="2"/>
    </body>
  </worldbody>
  <actuator><motor joint="slide" ctrllimited="true" ctrlrange="-4 4"/></actuator>
</mujoco>"""


def reward(qpos, qpos_before, action, dt, goal):
    speed = (qpos[:, 0] - qpos_before[:, 0]) / dt
    return -np.abs(qpos[:, 0] - goal) - 0.1 * (action**2).sum(axis=1), {"speed": speed}


def scribble(qpos):
    qpos[:, 0] = 0.0
    return qpos[:, 0]


def slide(**options: Any) -> MujocoEnvDefinition:
    arguments = {"termination": lambda qpos: qpos[:, 0] > 0.2, "task": {"goal": 1.0}, "reset_noise": 0.05}
    return MujocoEnvDefinition(SLIDE, 2, reward, **{**arguments, **options})


def test_a_mass_on_a_slide() -> None:
    """Euler steps by hand: 4 N on 2 kg, v += 2 * 0.01, x += v * 0.01, twice a step."""
    env = slide(reset_noise=0.0)()
    assert env.action_space.low == -4
    assert env.dt == pytest.approx(0.02)
    env.set_task({"goal": 0.5})
    assert env.reset(seed=0)[0].tolist() == [0.0, 0.0]
    observation, value, terminated, truncated, info = env.step(np.array([4.0], np.float32))
    assert observation.tolist() == pytest.approx([0.0006, 0.04])
    assert info == {"speed": pytest.approx(0.03)}
    assert value == pytest.approx(-(0.5 - 0.0006) - 1.6)
    assert not (terminated or truncated)
    env.reset(options={"init_state": [0.199, 1.0]})
    assert env.step(np.zeros(1, np.float32))[2]


def test_noise_tasks_and_parameters_in_a_batch() -> None:
    definition = slide()
    updates = [None, SetTaskUpdate(definition, {"goal": -1.0}), DomainParamUpdate({"body_mass:cart": 5.0})]
    plans = [RolloutPlan(i, (0, 0, i), update) for i, update in enumerate(updates)]
    batched = make_slots(definition, 3, plans=plans)
    assert type(batched) is SimulatorSlots
    first = batched.reset(range(3), plans)
    assert (np.abs(first) <= 0.05).all() and len(set(first[:, 0])) == 3
    check_slots(lambda n: make_slots(definition, n), plans, num_steps=20, like=lambda n: GymSlots(definition, n))


def test_in_workers() -> None:
    definition = slide(max_steps=9)
    policy = GaussianMLPPolicy(definition.env_spec, hidden_sizes=(4,), generator=torch_generator(0))
    plans = [RolloutPlan(i, (0, 0, i), SetTaskUpdate(definition, {"goal": float(i)})) for i in range(5)]
    with RolloutEngine(definition, policy) as here, RolloutEngine(definition, policy, num_workers=2) as there:
        for one, other in zip(here.run(plans), there.run(plans), strict=True):
            assert first_difference(one, other) is None
            assert len(one) == 9
    assert cloudpickle.loads(cloudpickle.dumps(definition)) == definition != slide()


def test_as_a_family_of_tasks() -> None:
    definition = slide(max_steps=5)
    train, test = TaskFamily.from_env(definition, {"goal": (0.5, 2.0)}, name="slide").split(4, 2)
    assert all(0.5 <= update.task["goal"] <= 2.0 for update in [*train, *test])
    assert train[0]().get_task() == train[0].task


def test_other_quantities_and_observations() -> None:
    definition = MujocoEnvDefinition(
        SLIDE,
        1,
        lambda xpos, xpos_before: xpos[:, 1, 0] - xpos_before[:, 1, 0],
        lambda xpos, qvel: np.concatenate((xpos[:, 1], qvel), axis=1),
    )
    env = definition()
    assert env.reset(options={"init_state": [0.3, 0.0]})[0].tolist() == [0.3, 0, 0, 0]
    assert env.observation_space.shape == (4,)
    assert definition.env_spec.max_episode_length is None


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("<geom", "<gem", 6, "unrecognized element"),
        ("</body>", "</bod>", 4, "MISMATCHED_ELEMENT"),
        ('size="0.1"', 'size="-1"', 6, "must be positive"),
        ('joint="slide"', 'joint="slid"', 9, "slid"),
    ],
)
def test_an_mjcf_that_does_not_compile(tmp_path: Path, old: str, new: str, line: int, what: str) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(SLIDE.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"robot\.xml, line {line}: the MJCF does not compile: .*{what}"):
        MujocoEnvDefinition(path, 1, lambda qpos: qpos[:, 0])
    with pytest.raises(ValueError, match=rf"the MJCF text, line {line}: .*{what}"):
        MujocoEnvDefinition(path.read_text(encoding="utf-8"), 1, lambda qpos: qpos[:, 0])


@pytest.mark.parametrize(
    ("leg", "where"),
    [
        ("<mujocoinclude>\n <gem/>\n</mujocoinclude>", "sub/leg.xml, line 2: .*unrecognized element Element 'gem'$"),
        ("<!-- a\n leg -->\n<mujoco>\n <geom size='-1'/>\n</mujoco>", "sub/leg.xml, line 4: .*must be positive"),
        ("<mujoco>\n <geom>\n</mujoco>", "sub/leg.xml, line 3: .*MISMATCHED_ELEMENT"),
        ("<mujoco>\n <include file='toe.xml'/>\n</mujoco>", "sub/toe.xml, line 3: .*bad format in attribute 'size'"),
        ("<mujoco>\n\n <include file='none.xml'/>\n</mujoco>", r"sub/leg.xml, line 3: .*none.xml"),
        ("<mujoco/>", "sub/leg.xml: .*Empty include file"),
        ("<mujoco>\n <site/>\n</mujoco>", "robot.xml, line 11: .*slid"),
    ],
)
def test_the_included_file_that_does_not_compile_is_named(tmp_path: Path, leg: str, where: str) -> None:
    robot = SLIDE.replace("</body>", "  <include file='sub/leg.xml'/>\n</body>\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "leg.xml").write_text(leg, encoding="utf-8")
    (tmp_path / "sub" / "toe.xml").write_text("<mujoco>\n\n <geom size='x'/>\n</mujoco>", encoding="utf-8")
    path = tmp_path / "robot.xml"
    path.write_text(robot if "site" not in leg else robot.replace('joint="slide"', 'joint="slid"'), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{tmp_path}/{where}") as caught:
        MujocoEnvDefinition(path, 1, lambda qpos: qpos[:, 0])
    assert "line 0" not in str(caught.value)


@pytest.mark.parametrize(
    ("functions", "error", "text"),
    [
        ((lambda qpoz: 0,), ValueError, "unknown argument of reward 'qpoz'; did you mean 'qpos'"),
        ((lambda qpos: qpos,), ShapeError, r"reward must return an array of shape \(3\), a row per simulation"),
        ((lambda qpos: qpos[:, 0] - qpos.mean(),), ValueError, "reward must compute each simulation .* by itself"),
        ((lambda qpos: qpos[:, 0], lambda action: action), ValueError, "observation cannot have 'action'"),
        ((lambda qpos: qpos[:, 0], lambda qpos: qpos[:, 0]), ShapeError, r"observation must return .* \(3, O\)"),
        ((lambda *args: 0,), ValueError, "reward must name its arguments"),
        ((3,), TypeError, "reward must be a function, got 3"),
        ((lambda qpos: qpos[:, 0] * np.nan,), ValueError, r"reward must be a finite number, but was \[nan nan nan\]"),
        ((lambda qpos: qpos[:, 0], lambda qpos: qpos * np.inf), ValueError, "entry 0 of the observation must be a fin"),
        (
            (lambda qpos: qpos[:, 0], None, lambda qpos: qpos[:, 0]),
            TypeError,
            "termination must return an array of bool",
        ),
        ((lambda qpos: qpos[:, 0] + 1j,), TypeError, "reward must return an array of real numbers, got complex128"),
        (
            (lambda qpos: (qpos[:, 0], {}, 3),),
            TypeError,
            r"reward must return an array of rewards, or a pair: .* got a tuple of 3 \(ndarray, dict, int\)",
        ),
        ((lambda qpos: (qpos[:, 0], qpos),), TypeError, r"got a tuple of 2 \(ndarray, ndarray\)"),
        (
            (lambda qpos: qpos[:, 0], lambda qpos: qpos / (1 // 0)),
            ValueError,
            r"observation raised ZeroDivisionError: .* \(.*test_envs_mujoco_definition\.py, line \d+\)",
        ),
        ((lambda qpos: {}["x"],), ValueError, r"reward raised KeyError: 'x'"),
        ((lambda goal: goal,), ValueError, r"If 'goal' is an entry of the task, name it: .*task=\{'goal': 0\.0\}"),
        ((scribble,), ValueError, r"reward must leave its arguments as they are .*change a copy"),
    ],
)
def test_functions_that_do_not_fit(functions: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        MujocoEnvDefinition(SLIDE, 1, *functions)


def test_wrong_input_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mjcf must be the path of an MJCF file, or its text"):
        MujocoEnvDefinition(tmp_path / "none.xml", 1, lambda qpos: qpos[:, 0])
    with pytest.raises(ValueError, match="frame_skip must be a whole number of at least 1, got 0"):
        MujocoEnvDefinition(SLIDE, 0, lambda qpos: qpos[:, 0])
    with pytest.raises(ValueError, match="reset_noise must be a number of at least 0"):
        slide(reset_noise=-1.0)
    with pytest.raises(ValueError, match=r"task must be a mapping with goal, got .*'gaol'; did you mean 'goal'"):
        slide()().set_task({"gaol": 1.0})
    with pytest.raises(TypeError, match=r"task\['goal'\] must be a number or an array of numbers, got 'left'"):
        slide()().set_task({"goal": "left"})
    with pytest.raises(ValueError, match="this definition has no tasks"):
        MujocoEnvDefinition(SLIDE, 1, lambda qpos: qpos[:, 0])().set_task({"goal": 1.0})


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        ({"goal": "left"}, TypeError, r"task\['goal'\] must be a number or an array of numbers, got 'left'"),
        ({"goal": np.nan}, ValueError, r"task\['goal'\] must be finite, got nan"),
        ({"qpos": 1.0}, ValueError, "task must not have an entry 'qpos'"),
        ({"xpos_before": 1.0}, ValueError, "task must not have an entry 'xpos_before'"),
        ({"dt": 1.0}, ValueError, "task must not have an entry 'dt'"),
        ({"body_mass:cart": 1.0}, ValueError, r"names that arguments .* can have, .*TaskFamily\.from_params"),
        ([1.0], TypeError, r"task must be a dict of numbers and arrays.*, got \[1.0\]"),
    ],
)
def test_tasks_that_functions_could_not_be_told(task: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        MujocoEnvDefinition(SLIDE, 1, lambda qpos: qpos[:, 0], task=task)


def test_wrong_names_are_refused_when_the_family_is_made() -> None:
    for name, what in (
        ("body_mass:card", "'card'; did you mean 'cart'"),
        ("body_mas:cart", "did you mean 'body_mass'"),
    ):
        with pytest.raises(DataError, match=what):
            TaskFamily.from_params(slide(), {name: (1.0, 2.0)})
    with pytest.raises(DataError, match=r"an entry of its task: TaskFamily\.from_env\(make_env, \{'goal': \.\.\.\}\)"):
        TaskFamily.from_params(slide(), {"goal": (1.0, 2.0)})
    with pytest.raises(ValueError, match=r"cannot be set: ValueError: 'body_mass:cart' must be positive, got -1\."):
        TaskFamily.from_params(slide(), {"body_mass:cart": (-1.0, -0.5)})
    with pytest.raises(ValueError, match=r"cannot be set: .*unknown entry 'gaol'; did you mean 'goal'"):
        TaskFamily.from_env(slide(), {"gaol": (1.0, 2.0)})
    with pytest.raises(ValueError, match=r"cannot be set: .*by TaskFamily\.from_params"):
        TaskFamily.from_env(slide(), {"body_mass:cart": (1.0, 2.0)})
