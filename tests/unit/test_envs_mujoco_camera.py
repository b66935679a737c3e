"""A camera that nobody has set sees the whole model, and follows it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import mujoco
import numpy as np
import pytest

from metaroll.envs.mujoco.camera import brighten, fitted_camera, followed_body

_ARM = """<mujoco><worldbody><body><joint axis="{axis}" type="hinge"/>
<geom type="capsule" fromto="0 0 0 {end}" size="0.05"/></body></worldbody></mujoco>"""
_FLOOR = '<geom type="plane" size="50 50 1"/><geom type="box" pos="30 0 0" size="1 1 1"/>'
_ROBOT = """<mujoco><worldbody>{floor}<body pos="0 0 1">{root}<geom type="sphere" size="0.2"/>
<body><joint axis="1 1 1" type="ball"/><geom type="capsule" fromto="0 0 0 0.3 0.3 0.3" size="0.02"/></body>
</body></worldbody></mujoco>"""


def model_of(text: str) -> Any:
    return mujoco.MjModel.from_xml_string(text)


@pytest.mark.parametrize(
    ("axis", "end", "azimuth", "elevation"),
    [("0 0 1", "1 0 0", 90.0, -90.0), ("0 1 0", "0 0 1", 90.0, -10.0), ("1 0 0", "0 0 1", 180.0, -10.0)],
)
def test_a_planar_model_is_seen_at_a_right_angle_and_as_a_whole(axis: str, end: str, azimuth: float, elevation: float):
    model = model_of(_ARM.format(axis=axis, end=end))
    camera = fitted_camera(model)
    assert (camera["azimuth"], camera["elevation"]) == (azimuth, elevation)
    np.testing.assert_allclose(camera["lookat"], 0.0, atol=0.1)  # it turns around the origin
    reach = camera["distance"] * math.sin(math.radians(model.vis.global_.fovy) / 2)
    assert 1.05 < reach < 2.0  # the arm of length 1.05 stays in the picture, and is not small in it


def test_what_does_not_move_is_not_looked_for():
    model = model_of(_ROBOT.format(floor=_FLOOR, root="<freejoint/>"))
    camera = fitted_camera(model)
    np.testing.assert_allclose(camera["lookat"], (0.0, 0.0, 1.0), atol=0.4)
    assert camera["distance"] < 4.0 and (camera["azimuth"], camera["elevation"]) == (120.0, -25.0)


@pytest.mark.parametrize(
    ("root", "body"),
    [
        ("<freejoint/>", 1),
        ('<joint type="slide" axis="1 0 0"/>', 1),
        ('<joint type="slide" axis="1 0 0" limited="true" range="-1 1"/>', None),
        ('<joint type="hinge"/>', None),
    ],
)
def test_what_moves_through_the_world_is_followed(root: str, body: int | None):
    assert followed_body(model_of(_ROBOT.format(floor="", root=root))) == body


def test_a_model_of_nothing_but_planes_has_a_camera():
    camera = fitted_camera(model_of('<mujoco><worldbody><geom type="plane" size="1 1 1"/></worldbody></mujoco>'))
    assert np.isfinite(camera["lookat"]).all() and camera["distance"] > 0


_SWING = """<mujoco>{visual}<worldbody>{light}<body><joint name="j" axis="0 1 0" type="hinge"/>
<geom type="capsule" fromto="0 0 0 0 0 1" size="0.1"/></body></worldbody>
<actuator><motor joint="j"/></actuator></mujoco>"""
_OWN_LIGHT = '<visual><headlight ambient="0 0 0.2" diffuse="0.1 0.1 0.1"/></visual>'


def test_only_a_model_without_lights_of_its_own_is_brightened_and_its_physics_stay() -> None:
    for visual, light, is_brightened in (
        ("", "", True),
        ("", '<light pos="0 0 4"/>', False),
        (_OWN_LIGHT, "", False),
        ('<visual><headlight active="0"/></visual>', "", False),
    ):
        model = model_of(_SWING.format(visual=visual, light=light))
        before = np.concatenate([model.vis.headlight.ambient, model.vis.headlight.diffuse])
        brighten(model)
        after = np.concatenate([model.vis.headlight.ambient, model.vis.headlight.diffuse])
        assert (after > before).all() == is_brightened
        assert is_brightened or (after == before).all()
    states = []
    for bright in (False, True):
        model = model_of(_SWING.format(visual="", light=""))
        if bright:
            brighten(model)
        data = mujoco.MjData(model)
        data.qpos[0], data.ctrl[0] = 0.3, 0.2
        mujoco.mj_step(model, data, 50)
        states.append(np.concatenate([data.qpos, data.qvel, data.sensordata]))
    np.testing.assert_array_equal(*states)


_PICTURE = """
import numpy as np
from metaroll.sims import MujocoEnvDefinition
definition = MujocoEnvDefinition({text!r}, 1, lambda qpos: -qpos[:, 0] ** 2, lambda qpos, qvel: qpos, max_steps=5)
env = definition(render_mode="rgb_array")
env.reset(seed=0)
frame = env.render()
arm = frame.max(axis=2) > 10
print(float(frame[arm].mean()))
env.close()
"""


def test_a_model_without_lights_is_bright_in_a_picture() -> None:
    code = _PICTURE.format(text=_SWING.format(visual="", light=""))
    environment = {**os.environ, "MUJOCO_GL": "egl"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 90  # of 255; 59 with MuJoCo's own light at the camera
