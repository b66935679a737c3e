"""The position of a camera that sees the whole of a MuJoCo model, the body it follows, and the light on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metaroll.envs.mujoco.library import load_mujoco

__all__ = ["brighten", "fitted_camera", "followed_body"]

_POSES = 200
_USUAL_AMBIENT, _USUAL_DIFFUSE = 0.1, 0.4  # MuJoCo's
_BRIGHT_AMBIENT, _BRIGHT_DIFFUSE = 0.4, 0.8
_ROOM = 1.1
"""Distance of the camera, as a multiple of that at which the model just fits into the picture."""
_FLAT = 0.4
"""A model whose extent in one direction is less than this part of both others is viewed in that direction."""


def fitted_camera(model: Any) -> dict[str, Any]:
    """Settings of a free camera (as Gymnasium's ``default_camera_config``) that sees all poses of ``model``.

    A planar model is seen at a right angle to its plane (from slightly above, if the plane is upright), others from
    above and aside. Joints without limits that move the whole model stay where they are: the camera follows them.
    """
    corners = _reach(model)
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle = (low + high) / 2
    radius = max(float(np.linalg.norm(corners - middle, axis=1).max()), 1e-3)
    distance = _ROOM * radius / math.sin(math.radians(float(model.vis.global_.fovy)) / 2)
    azimuth, elevation = _direction(high - low)
    return {"lookat": middle, "distance": distance, "azimuth": azimuth, "elevation": elevation}


def followed_body(model: Any) -> int | None:
    """The body that a camera follows: the first one that moves through the world without limits; ``None`` without."""
    joint = load_mujoco().mjtJoint
    for body in range(1, model.nbody):
        if model.body_parentid[body] == 0 and any(
            model.jnt_type[j] == joint.mjJNT_FREE
            or (model.jnt_type[j] == joint.mjJNT_SLIDE and not model.jnt_limited[j])
            for j in _joints_of(model, body)
        ):
            return body
    return None


def brighten(model: Any) -> None:
    """Let the light at the camera show a model that has no lights, where it was not set; the physics stay.

    MuJoCo's own light there (``visual/headlight``) is meant to be added to those of the model, and dim without them.
    """
    light = model.vis.headlight
    unset = np.allclose(light.ambient, _USUAL_AMBIENT) and np.allclose(light.diffuse, _USUAL_DIFFUSE)
    if model.nlight == 0 and light.active and unset:
        light.ambient[:], light.diffuse[:] = _BRIGHT_AMBIENT, _BRIGHT_DIFFUSE


def _joints_of(model: Any, body: int) -> range:
    first = int(model.body_jntadr[body])
    return range(first, first + int(model.body_jntnum[body]))


def _direction(extent: np.ndarray) -> tuple[float, float]:
    """Azimuth and elevation in degrees from which a model of this extent ``(3,)`` is viewed."""
    thin = int(np.argmin(extent))
    wide = np.delete(extent, thin)
    if extent[thin] > _FLAT * wide.min():
        return 120.0, -25.0
    return ((180.0, -10.0), (90.0, -10.0), (90.0, -90.0))[thin]


def _reach(model: Any) -> np.ndarray:
    """Corners ``(K, 3)`` of boxes around the moving geoms in many poses, and in that of the file."""
    mujoco = load_mujoco()
    data, drawn = mujoco.MjData(model), np.random.default_rng(0)
    moving = (model.body_weldid[model.geom_bodyid] > 0) & (model.geom_rbound > 0)
    chosen = moving if moving.any() else model.geom_rbound > 0  # planes have no bound
    if not chosen.any():
        return np.array([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]) * float(model.stat.extent or 1.0) / 2
    sizes, corners = model.geom_aabb[chosen, 3:], []
    for pose in range(_POSES):
        data.qpos[:] = model.qpos0 if pose == 0 else _pose(model, drawn)
        mujoco.mj_kinematics(model, data)
        centers = data.geom_xpos[chosen]
        reach = np.einsum("gij,gj->gi", np.abs(data.geom_xmat[chosen].reshape(-1, 3, 3)), sizes)
        corners += [centers - reach, centers + reach]
    return np.concatenate(corners)


def _pose(model: Any, generator: np.random.Generator) -> np.ndarray:
    """Positions ``(nq,)``: hinges and limited slides anywhere, all else as in the file."""
    joint, qpos = load_mujoco().mjtJoint, model.qpos0.copy()
    for j in range(model.njnt):
        limited, (low, high) = bool(model.jnt_limited[j]), model.jnt_range[j]
        if model.jnt_type[j] == joint.mjJNT_HINGE:
            low, high = (low, high) if limited else (-math.pi, math.pi)
        elif model.jnt_type[j] != joint.mjJNT_SLIDE or not limited:
            continue
        qpos[model.jnt_qposadr[j]] = generator.uniform(low, high)
    return qpos
