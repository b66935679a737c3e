"""specs/sampling.md 16.2, 16.4: constants of MuJoCo models by path; references are models loaded with other values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import half_cheetah_v5
from gymnasium.spaces import Box
from interruptions import is_interrupted, last_times

from metaroll import DomainParamUpdate, DomainRandomizer, ParallelRolloutSampler, UniformDomainParam, rollout
from metaroll.envs.mujoco.library import BOUNDS
from metaroll.envs.mujoco.model_params import BoundModelParams
from metaroll.errors import DataError
from metaroll.sims import default_randomizer
from metaroll.tasks.domain_access import domain_params_of, read_domain_params, set_domain_params
from metaroll.wrappers import DomainRandWrapperLive

pytestmark = pytest.mark.usefixtures("lent_pools")

XML = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="arm">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="{damping}"/>
      <inertial pos="0 0 -0.5" mass="{mass}" diaginertia="0.1 0.1 0.1"/>
    </body>
    <body name="stone" pos="3 0 0">
      <freejoint name="free"/>
      <geom name="ball" type="sphere" size="0.1" mass="2" friction="0.5 0.1 0.1"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="hinge" gear="{gear}"/></actuator>
</mujoco>
"""
NOMINAL = {"mass": 1.0, "damping": 0.2, "gear": 3.0}


class Arm(gymnasium.Env):
    """A hinged arm and a falling stone."""

    def __init__(self, **changes):
        self.model = mujoco.MjModel.from_xml_string(XML.format(**{**NOMINAL, **changes}))
        self.data = mujoco.MjData(self.model)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.observation_space = Box(-np.inf, np.inf, (self.model.nq + self.model.nv,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[0] = 0.5
        return self._get_obs(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data)
        return self._get_obs(), 0.0, False, False, {}

    def _get_obs(self):
        return np.concatenate([self.data.qpos, self.data.qvel])


def push(obs):
    return np.array([0.7])


def run(env, steps=60):
    env.reset(seed=0)
    return np.array([env.step(env.action_space.high * 0.7)[0] for _ in range(steps)])


def image(model):
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


@pytest.mark.parametrize(
    ("path", "value", "change"),
    [
        ("body_mass:arm", 2.5, {"mass": 2.5}),
        ("dof_damping:hinge", 1.5, {"damping": 1.5}),
        ("dof_damping:0", 1.5, {"damping": 1.5}),
        ("actuator_gear", 7.0, {"gear": 7.0}),
        ("actuator_gear:motor:0", 7.0, {"gear": 7.0}),
        ("actuator_gear:motor:*", 2.0, {"gear": 6.0}),
        ("dof_damping:*", 4.0, {"damping": 0.8}),
    ],
)
def test_the_motion_is_that_of_a_model_made_with_the_value(path, value, change):
    env = Arm()
    before, nominal = run(env), image(env.model)
    DomainParamUpdate({path: value})(env)
    changed = run(env)
    np.testing.assert_array_equal(changed, run(Arm(**change)))
    assert image(env.model) == image(Arm(**change).model)  # what MuJoCo computes from it, too
    assert np.abs(changed - before).max() > 1e-3
    set_domain_params(env, {})
    assert image(env.model) == nominal
    np.testing.assert_array_equal(run(env), before)


def test_a_stone_falls_with_the_gravity_that_was_drawn():
    """Semi-implicit Euler: after n steps of h the stone has fallen g h^2 n (n + 1) / 2."""
    env = DomainRandWrapperLive(Arm(), default_randomizer(Arm, {"opt_gravity:2": ("uniform", 0.5)}))
    for seed in range(3):
        result = rollout(env, push, seed=seed, max_steps=20, no_close=True)
        gravity = result.rollout_info["domain_param"]["opt_gravity:2"]
        fallen = result.observations[-1, 3] - result.observations[0, 3]
        assert -14.8 < gravity < -4.9
        np.testing.assert_allclose(fallen, gravity * 0.01**2 * 20 * 21 / 2, rtol=1e-9)


def test_what_was_half_set_is_set_whole_by_the_next_call():
    """Ctrl-C: values that had been written became the nominal ones, and what MuJoCo computes of them was left out."""
    modules = ("/mujoco/model_params.py",)
    values = {"body_mass:arm": 2.5, "dof_damping:hinge": 1.5, "geom_margin:ball": 0.1}
    env, nominal = Arm(), image(Arm().model)
    for at in last_times(lambda: set_domain_params(Arm(), values), modules):  # the first call of an environment
        new = Arm()
        assert is_interrupted(lambda new=new: set_domain_params(new, values), at, modules)
        set_domain_params(new, {})
        assert image(new.model) == nominal, at
    for wanted, other in ((values, {}), ({}, values)):
        for before in (values, {}, other):
            set_domain_params(env, before)
        places = last_times(lambda wanted=wanted: set_domain_params(env, wanted), modules)
        expected = image(env.model)
        for at in places:
            set_domain_params(env, other)
            assert is_interrupted(lambda wanted=wanted: set_domain_params(env, wanted), at, modules)
            set_domain_params(env, wanted)
            assert image(env.model) == expected, at
    assert expected == nominal


def test_every_update_starts_from_the_nominal_values():
    env = Arm()
    DomainParamUpdate({"body_mass:*": 2.0, "body_mass:arm": 5.0})(env)
    assert env.model.body_mass.tolist() == [0.0, 5.0, 4.0]
    DomainParamUpdate({"body_mass:*": 2.0, "opt_timestep": 0.005})(env)
    assert env.model.body_mass.tolist() == [0.0, 2.0, 4.0] and env.model.opt.timestep == 0.005
    assert domain_params_of(env) == {"body_mass:*": 2.0, "opt_timestep": 0.005}
    DomainParamUpdate({"dof_damping:free": 0.3, "geom_friction:ball:1": 0.2, "body_mass": 3.0})(env)
    assert env.model.body_mass.tolist() == [0.0, 3.0, 3.0] and env.model.opt.timestep == 0.01
    assert env.model.dof_damping.tolist() == [0.2] + [0.3] * 6 and env.model.geom_friction.tolist() == [[0.5, 0.2, 0.1]]
    assert read_domain_params(env, ["dof_damping", "dof_damping:free", "geom_friction", "dof_damping:*"]) == {
        "dof_damping:free": 0.3,
        "geom_friction": 0.5,
        "dof_damping:*": 1.0,
        "geom_friction:ball:1": 0.2,
        "body_mass": 3.0,
    }


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"body_mas:arm": 1.0}, "did you mean 'body_mass'"),
        ({"body_mass:armm": 1.0}, r"unknown body .*'armm'; did you mean 'arm'"),
        ({"dof_damping:hing": 1.0}, r"unknown joint .*'hing'; did you mean 'hinge'"),
        ({"bodymass": 1.0}, "unknown domain parameter of Arm 'bodymass'; did you mean 'body_mass'"),
        ({"geom_friction:ball:3": 1.0}, "has columns 0 to 2, got '3'"),
        ({"body_inertia:arm": 1.0}, r"has 3 columns; name one as in 'body_inertia:arm:0'"),
        ({"body_mass:arm": 0.0}, "'body_mass:arm' must be positive, got 0.0"),
        ({"body_mass:*": -1.0}, "must be positive"),
        ({"dof_damping": -1.0}, "must not be negative"),
        ({"qpos0:99": 1.0}, "has elements 0 to 7 without names"),
        ({"geom_friction:ball:0:1": 1.0}, "must be attribute, attribute:element"),
        ({"opt_gravitee:2": 1.0}, "did you mean 'opt_gravity'"),
    ],
)
def test_wrong_paths_and_values_change_nothing(params, error):
    env = Arm()
    DomainParamUpdate({"body_mass:arm": 2.0})(env)
    before = image(env.model)
    with pytest.raises((DataError, ValueError), match=error):
        DomainParamUpdate({"dof_damping:hinge": 9.0, **params})(env)
    assert image(env.model) == before and domain_params_of(env) == {"body_mass:arm": 2.0}


def test_half_cheetah_equals_one_loaded_from_a_changed_file(tmp_path):
    text = (Path(half_cheetah_v5.__file__).parent / "assets" / "half_cheetah.xml").read_text(encoding="utf-8")
    changed = text
    for old, new in (('".4 .1 .1"', '".9 .1 .1"'), ('damping="6"', 'damping="8"'), ('gear="30"', 'gear="40"')):
        assert changed.count(old) == 1
        changed = changed.replace(old, new)
    path = tmp_path / "cheetah.xml"
    path.write_text(changed, encoding="utf-8")
    reference = run(gymnasium.make("HalfCheetah-v5", xml_file=str(path)), 80)
    env = gymnasium.make("HalfCheetah-v5")
    before = run(env, 80)
    DomainParamUpdate({"geom_friction": 0.9, "dof_damping:bthigh": 8.0, "actuator_gear:ffoot": 40.0})(env)
    np.testing.assert_array_equal(run(env, 80), reference)
    assert np.abs(reference - before).max() > 0.1
    set_domain_params(env, {})
    np.testing.assert_array_equal(run(env, 80), before)


def test_random_bodies_in_samplers():
    drawn = DomainRandomizer(UniformDomainParam("body_mass:*", 1.0, 0.5), UniformDomainParam("dof_damping", 1.0, 0.9))

    def cheetah():
        return gymnasium.make("HalfCheetah-v5", max_episode_steps=20)

    def push(obs):
        return np.full(6, 0.5)

    env = DomainRandWrapperLive(cheetah(), drawn)
    with ParallelRolloutSampler(env, push, 1, min_rollouts=8, seed=1, show_progress_bar=False) as sampler:
        training, evaluation = sampler.sample(), sampler.sample(eval=True)
    factors = [r.rollout_info["domain_param"]["body_mass:*"] for r in training]
    assert len(set(factors)) == 8 and len({r.observations[-1, 0] for r in training}) == 8
    plain = rollout(cheetah(), push, seed=1, sub_seed=1, sub_sub_seed=3, eval=True)
    np.testing.assert_array_equal(plain.observations, evaluation[3].observations)


GEOMS = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body pos="0 0 1"><freejoint/>
<inertial pos=".02 .03 .04" euler="20 0 0" mass="1" diaginertia=".1 .1 .1"/>
<geom name="sphere" type="sphere" size="{sphere}" pos=".1 .2 0"/>
<geom name="capsule" type="capsule" size=".1 {capsule}" euler="10 20 30"/><geom name="box" size="{box} .2 .3"/>
<geom name="ellipsoid" type="ellipsoid" size="{ellipsoid} .2 .3" pos="0 {place} 0" margin="{margin}"/>
<geom name="cylinder" type="cylinder" size=".1 {cylinder}" pos="0 0 .4"/></body></worldbody></mujoco>"""
GEOMS_BEFORE = {
    "sphere": 0.1, "capsule": 0.3, "box": 0.1, "ellipsoid": 0.1, "cylinder": 0.2, "place": 0.0, "margin": 0.0
}  # fmt: skip
GEOMS_AFTER = {
    "sphere": 0.4, "capsule": 0.7, "box": 0.5, "ellipsoid": 0.6, "cylinder": 0.8, "place": 0.3, "margin": 0.2
}  # fmt: skip
GEOM_PATHS = {
    "geom_size:sphere:0": 0.4, "geom_size:capsule:1": 0.7, "geom_size:box:0": 0.5, "geom_size:ellipsoid:0": 0.6,
    "geom_size:cylinder:1": 0.8, "geom_pos:ellipsoid:1": 0.3, "geom_margin:ellipsoid": 0.2,
}  # fmt: skip


def test_bounds_of_geoms_follow_their_sizes_and_places() -> None:
    """As if the file had said so; and nothing is left of it when the next domain is set."""
    given, wanted = (mujoco.MjModel.from_xml_string(GEOMS.format(**values)) for values in (GEOMS_BEFORE, GEOMS_AFTER))
    before = {name: getattr(given, name).copy() for name in BOUNDS}
    params = BoundModelParams(SimpleNamespace(model=given))
    params.set(GEOM_PATHS)
    for name in ("geom_rbound", "geom_aabb", "body_margin"):
        np.testing.assert_allclose(getattr(given, name), getattr(wanted, name), atol=1e-12, err_msg=name)
    for model in (given, wanted):  # the tree may have other branches, but every geom the same box, and the root
        leaves = model.bvh_nodeid >= 0
        model.bvh_aabb[:] = model.bvh_aabb[np.lexsort((model.bvh_nodeid, ~leaves))]
    np.testing.assert_allclose(given.bvh_aabb[:6], wanted.bvh_aabb[:6], atol=1e-9)
    params.set({})
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(given, name), values, err_msg=name)


def test_a_larger_geom_touches_the_floor() -> None:
    """Contacts used to be missed, since the box around it stayed as small as it had been."""
    xml = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body pos="0 0 1"><freejoint/>
    <geom name="ball" type="sphere" size=".1"/><geom name="other" type="sphere" size=".1" pos=".5 0 0"/></body>
    <body pos="0 2 1"><freejoint/><geom name="wall" type="box" size=".1 .1 .1"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    params, data = BoundModelParams(SimpleNamespace(model=model)), mujoco.MjData(model)
    for values, contacts in (({"geom_size:ball:0": 1.2}, 1), ({"geom_size:ball:0": 1.95, "geom_size:wall:1": 1.0}, 2)):
        params.set(values)
        mujoco.mj_forward(model, data)
        assert data.ncon >= contacts
    params.set({"geom_pos:ball:2": -0.95})  # its frame was the body's
    mujoco.mj_forward(model, data)
    assert data.geom_xpos[1, 2] == pytest.approx(0.05) and data.ncon == 1
    params.set({})
    mujoco.mj_forward(model, data)
    assert data.ncon == 0


def test_what_has_no_effect_is_refused() -> None:
    params = BoundModelParams(SimpleNamespace(model=mujoco.MjModel.from_xml_string(GEOMS.format(**GEOMS_BEFORE))))
    with pytest.raises(ValueError, match="body_gravcomp has no effect in this model"):
        params.set({"body_gravcomp": 1.0})
