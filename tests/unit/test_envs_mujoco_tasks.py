"""MuJoCo task families against Gymnasium's simulations (specs/meta.md 7)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll import get_family, make_slots
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.mujoco.cheetah_vel import CheetahVelEnv
from metaroll.envs.mujoco.task_envs import (
    AntDirEnv,
    AntGoalEnv,
    CheetahDirEnv,
    HopperRandParamsEnv,
    HumanoidDirEnv,
    SwimmerVelEnv,
    WalkerRandParamsEnv,
)
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import ShapeError
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.task_key import task_key
from metaroll.types import RolloutPlan

SHAPES = {
    "cheetah-vel": (20, 6, 200),
    "cheetah-dir": (20, 6, 200),
    "ant-dir": (27, 8, 200),
    "ant-goal": (113, 8, 200),
    "humanoid-dir": (376, 17, 200),
    "hopper-rand-params": (11, 3, 200),
    "walker-rand-params": (17, 6, 200),
    "swimmer-vel": (8, 2, 100),
}


@pytest.mark.parametrize("name", SHAPES)
def test_batched_equals_single(name: str) -> None:
    """Tasks, plain plans and domain parameters in turn; new tasks in slots that had others."""
    train, _ = get_family(name).split(2, 1)
    plain = [RolloutPlan(i, (3, 0, i), update) for i, update in enumerate([train[0], None, train[1]])]
    plans = [*plain, plain[0].with_(env_update=DomainParamUpdate({"dof_damping:*": 1.7, "opt_timestep": 0.004}))]
    batched, listed = make_slots(name, 4, plans=plans), GymSlots(name, 4)
    assert type(batched) is SimulatorSlots
    spec = batched.env_spec
    assert (spec.obs_dim, spec.act_dim, spec.max_episode_length) == SHAPES[name]
    active = np.ones(4, dtype=bool)
    drawn = np.random.default_rng(0).uniform(-1.2, 1.2, (2, 25, 4, spec.act_dim)).astype(np.float32)
    for given, part in zip((plans, plans[::-1]), drawn, strict=True):
        np.testing.assert_array_equal(batched.reset(range(4), given), listed.reset(range(4), given))
        for actions in part:
            result, expected = batched.step(actions, active), listed.step(actions, active)
            for one, other in zip(result[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            infos: Any = expected.infos
            for key in infos[0]:
                np.testing.assert_array_equal(result.infos[key], [info[key] for info in infos])  # type: ignore[call-overload]


def beside(kind: type, twin: str, task: Any, num_steps: int = 40) -> Any:
    """Steps of ours and of Gymnasium's simulation with the same start and actions, until ours ends."""
    ours: Any = kind()
    ours.set_task(task)
    theirs: Any = gymnasium.make(twin, disable_env_checker=True)
    ours.reset(seed=7)
    theirs.reset(seed=7)
    high = theirs.action_space.high
    for action in np.random.default_rng(1).uniform(-1, 1, (num_steps, *high.shape)).astype(np.float32):
        step = ours.step(action)
        # The same product as ours, since the simulations shall be the same to the last bit.
        given = theirs.unwrapped.model.actuator_ctrlrange[:, 1] * action if kind is HumanoidDirEnv else action
        other = theirs.step(given)
        yield theirs.unwrapped, given.astype(np.float64), step, other
        if step[2]:
            return


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_cheetah_dir(direction: float) -> None:
    """specs/meta.md 7.2: direction * v - 0.05 |a|^2, observation qpos[1:], qvel, torso; never done"""
    for simulator, action, (obs, reward, ended, _, _), other in beside(
        CheetahDirEnv, "HalfCheetah-v5", {"direction": direction}
    ):
        assert reward == pytest.approx(direction * other[4]["x_velocity"] - 0.05 * action @ action)
        np.testing.assert_array_equal(obs, [*other[0], *simulator.data.body("torso").xpos])
        assert not ended


def test_ant_dir() -> None:
    """specs/meta.md 7.2: v . u - 0.5 |a|^2 - C + 1, observation qpos[2:], qvel; ends with z outside [0.2, 1]"""
    angle, forces = 2.0, 0.0
    for simulator, action, (obs, reward, ended, _, _), other in beside(AntDirEnv, "Ant-v5", {"angle": angle}, 120):
        info = other[4]
        along = np.cos(angle) * info["x_velocity"] + np.sin(angle) * info["y_velocity"]
        assert reward == pytest.approx(along - 0.5 * action @ action + info["reward_contact"] + 1, abs=1e-6)
        np.testing.assert_array_equal(obs, other[0][:27])
        assert ended == (not 0.2 <= simulator.data.qpos[2] <= 1)
        forces += info["reward_contact"]
    assert forces < 0


def test_ant_goal() -> None:
    """specs/meta.md 7.2: -|xy - g|_1 - 0.1 |a|^2 - C, observation qpos, qvel, clipped forces; never done"""
    goal = np.array([1.0, -2.0])
    for simulator, action, (obs, reward, ended, _, _), other in beside(AntGoalEnv, "Ant-v5", {"goal": goal}, 120):
        away = np.abs(simulator.data.body("torso").xpos[:2] - goal).sum()
        assert reward == pytest.approx(-away - 0.1 * action @ action + other[4]["reward_contact"])
        forces = np.clip(simulator.data.cfrc_ext, -1, 1).ravel()
        np.testing.assert_array_equal(obs, [*simulator.data.qpos, *simulator.data.qvel, *forces])
        assert not ended


def test_humanoid_dir() -> None:
    """specs/meta.md 7.2: 1.25 v . u - 0.1 |ctrl|^2 - min(0.5e-6 sum f^2, 10) + 5; ends with z outside [1, 2]"""
    for simulator, torques, (obs, reward, ended, _, _), other in beside(HumanoidDirEnv, "Humanoid-v5", {"angle": 1.0}):
        info = other[4]
        along = np.cos(1.0) * info["x_velocity"] + np.sin(1.0) * info["y_velocity"]
        contact = min(0.5e-6 * np.sum(simulator.data.cfrc_ext**2), 10)
        assert reward == pytest.approx(1.25 * along - 0.1 * torques @ torques - contact + 5)
        data = simulator.data
        parts = (data.qpos[2:], data.qvel, data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
        np.testing.assert_array_equal(obs, np.concatenate([part.ravel() for part in parts]))
        assert ended == (not 1 <= data.qpos[2] <= 2)


def test_swimmer_vel() -> None:
    """specs/meta.md 7.1, Q-46: minus the distance to the goal velocity"""
    for _, action, (obs, reward, ended, _, _), other in beside(SwimmerVelEnv, "Swimmer-v5", {"velocity": 0.1}):
        assert reward == pytest.approx(-abs(other[4]["x_velocity"] - 0.1) - 1e-4 * action @ action)
        np.testing.assert_array_equal(obs, other[0])
        assert not ended


@pytest.mark.parametrize(("kind", "twin"), [(HopperRandParamsEnv, "Hopper-v5"), (WalkerRandParamsEnv, "Walker2d-v5")])
def test_factors_of_one_change_nothing(kind: type, twin: str) -> None:
    """specs/meta.md 7.2: v + 1 - 0.001 |a|^2 until it falls, which for these two is Gymnasium's own reward"""
    neutral = kind().get_task()
    assert all((factors == 1).all() for factors in neutral.values())
    ended = False
    for _, action, (obs, reward, ended, _, _), other in beside(kind, twin, neutral, 200):
        assert reward == pytest.approx(other[4]["x_velocity"] + 1 - 1e-3 * action @ action, abs=1e-6)
        np.testing.assert_array_equal(obs, other[0])
        assert ended == other[2]
    assert ended


def test_factors_are_of_the_nominal_values() -> None:
    """specs/meta.md 7.1, Q-49: a second task starts from the original parameters; derived masses follow"""
    env, reference = HopperRandParamsEnv(), HopperRandParamsEnv()
    nominal = {name: getattr(env.model, name).copy() for name in ("body_mass", "dof_damping", "body_subtreemass")}
    first, second = env.sample_tasks(2, generator=0)
    env.set_task(first)
    env.set_task(second)
    reference.set_task(second)
    for name in ("body_mass", "dof_damping", "body_inertia", "geom_friction", "dof_invweight0", "body_subtreemass"):
        np.testing.assert_array_equal(getattr(env.model, name), getattr(reference.model, name))
    np.testing.assert_allclose(env.model.body_mass, nominal["body_mass"] * second["body_mass"])
    assert env.model.body_subtreemass[0] == pytest.approx(env.model.body_mass.sum())
    assert env.model.body_subtreemass[0] != nominal["body_subtreemass"][0]
    factors = np.concatenate([f.ravel() for task in env.sample_tasks(50, generator=1) for f in task.values()])
    assert 1.5**-3 <= factors.min() < 0.32
    assert 3.2 < factors.max() <= 1.5**3
    damping = np.concatenate([task["dof_damping"] for task in env.sample_tasks(50, generator=1)])
    assert 1.3**-3 <= damping.min() < 0.47
    assert 2.1 < damping.max() <= 1.3**3


def test_task_distributions() -> None:
    """specs/meta.md 7"""
    angles = np.array([task["angle"] for task in AntDirEnv.sample_tasks(500, generator=0)])
    assert 0 <= angles.min() < 0.1
    assert 6.1 < angles.max() < 2 * np.pi
    both = {task["angle"] for task in AntDirEnv.sample_tasks(20, generator=0, forward_backward=True)}
    assert both == {0.0, np.pi}
    radii = np.array([np.hypot(*task["goal"]) for task in AntGoalEnv.sample_tasks(2000, generator=0)])
    assert radii.max() <= 3
    assert np.mean(radii < 1.5) == pytest.approx(0.25, abs=0.03)  # uniform in the disc, not in the radius
    speeds = [task["velocity"] for task in SwimmerVelEnv.sample_tasks(200, generator=0)]
    assert 0.1 <= min(speeds) < 0.11
    assert 0.19 < max(speeds) <= 0.2
    assert {task["direction"] for task in CheetahDirEnv.sample_tasks(20, generator=0)} == {-1.0, 1.0}


def test_both_directions_are_trained_and_tested_on() -> None:
    """specs/meta.md 6.1: cheetah-dir 2/2, the same two; the others are held out"""
    for name, value, values in (("cheetah-dir", "direction", [-1.0, 1.0]), ("ant-dir", "angle", [0.0, np.pi])):
        train, test = get_family(name).split()
        assert train == test and get_family(name).all_tasks
        assert sorted(update.task[value] for update in train) == values
    for name, numbers in (("ant-goal", (150, 30)), ("humanoid-dir", (100, 30))):
        train, test = get_family(name).split()
        assert (len(train), len(test)) == numbers
        assert len({task_key(update.task) for update in [*train, *test]}) == sum(numbers)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_keep_what_is_set_in_the_model(twin_of: Any) -> None:
    env = CheetahVelEnv(1.0)
    DomainParamUpdate({"body_mass:torso": 3.0})(env)
    env.reset(seed=0)
    twin = twin_of(env)
    assert twin.model is not env.model
    assert twin.model.body("torso").mass[0] == 3.0
    action = np.full(6, 0.5, np.float32)
    np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])
    DomainParamUpdate({"body_mass:fthigh": 1.0})(twin)  # from the nominal values, not from those at the copy
    assert twin.model.body("torso").mass[0] == CheetahVelEnv().model.body("torso").mass[0]
    assert env.model.body("torso").mass[0] == 3.0


def test_wrong_tasks_are_told() -> None:
    with pytest.raises(ValueError, match=r"direction must be 1 \(forward\) or -1 \(backward\), got 0.5"):
        CheetahDirEnv().set_task({"direction": 0.5})
    with pytest.raises(ShapeError, match=r"task\['goal'\] must have shape \(2,\), got \(3,\)"):
        AntGoalEnv().set_task({"goal": [0, 1, 2]})
    hopper = HopperRandParamsEnv()
    task = hopper.get_task()
    with pytest.raises(ValueError, match="factors for body_mass, dof_damping, body_inertia, geom_friction, got"):
        hopper.set_task({"body_mass": task["body_mass"]})
    with pytest.raises(ValueError, match=r"task\['body_mass'\] must be positive"):
        hopper.set_task({**task, "body_mass": -task["body_mass"]})
    with pytest.raises(ShapeError, match=r"task\['dof_damping'\] must have shape \(6,\), got \(1,\)"):
        hopper.set_task({**task, "dof_damping": np.ones(1)})
    with pytest.raises(ValueError, match="render_mode must be None or one of human, rgb_array"):
        CheetahVelEnv(render_mode="ansi")
