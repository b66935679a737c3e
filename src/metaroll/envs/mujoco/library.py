"""The mujoco package, imported on first use, and functions that several modules share."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.errors import install_text

__all__ = [
    "BOUNDS",
    "compute_again",
    "compute_bounds_again",
    "get_physics",
    "graphics_trouble",
    "is_from_mujoco",
    "load_mujoco",
    "set_physics",
    "unstable",
]

_GRAPHICS = ("OpenGL", "mujoco.osmesa", "mujoco.egl", "mujoco.glfw", "mujoco.cgl", "mujoco.gl_context")


def load_mujoco(what: str = "this environment") -> Any:
    """The package, or an error with the command that installs it."""
    try:
        import mujoco
    except Exception as error:
        graphics = graphics_trouble(error)
        if graphics is not None:
            raise ImportError(graphics) from error
        if not isinstance(error, ImportError):
            raise
        raise ImportError(f"{what} needs MuJoCo: {install_text('mujoco')} ({error})") from error
    return mujoco


def graphics_trouble(error: BaseException) -> str | None:
    """The hint if ``error`` comes from loading the renderer that MUJOCO_GL names; ``None`` if it does not.

    MuJoCo loads it when it is imported, even where nothing is drawn.
    """
    chosen, cause = os.environ.get("MUJOCO_GL"), _raised_in(_GRAPHICS, error)
    if not chosen or cause is None:
        return None
    return (
        f"MUJOCO_GL={chosen} asks for a way of drawing that does not work on this machine, so that MuJoCo cannot be "
        f"imported ({type(cause).__name__}: {cause}); unset MUJOCO_GL, or set it to egl or osmesa"
    )


def is_from_mujoco(error: BaseException) -> bool:
    """Whether ``error`` was raised inside MuJoCo, or in what draws its pictures."""
    return _raised_in((*_GRAPHICS, "mujoco", "gymnasium.envs.mujoco"), error) is not None


def _raised_in(modules: tuple[str, ...], error: BaseException | None) -> BaseException | None:
    """The first of ``error`` and its causes that has passed through one of the ``modules``; ``None`` if none has."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if str(frame.f_globals.get("__name__")).startswith(modules):
                return error
        error = error.__cause__ or error.__context__
    return None


def get_physics(model: Any, data: Any) -> np.ndarray:
    """State from which MuJoCo continues exactly (with the warm start of its solver)."""
    mujoco = load_mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, physics, spec)
    return physics


def set_physics(model: Any, data: Any, physics: np.ndarray) -> None:
    """Continue from the result of ``get_physics``."""
    mujoco = load_mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, physics, spec)
    mujoco.mj_forward(model, data)  # positions of bodies and the like
    mujoco.mj_setState(model, data, physics, spec)  # mj_forward has overwritten the warm start


def compute_again(model: Any) -> None:
    """Recompute the constants that MuJoCo derives from masses, gears and the like, after changes.

    Version 4 leaves the mean mass and inertia, by which its solver scales its tolerance, to the compiler. They follow
    here, too, except where the model file has given others.
    """
    mujoco, stat = load_mujoco(), model.stat
    bodies, dofs = max(1, model.nbody - 1), max(1, model.nv)
    computed = np.isclose(
        (stat.meanmass, stat.meaninertia), (model.body_subtreemass[0] / bodies, sum(model.dof_M0.tolist()) / dofs)
    )
    mujoco.mj_setConst(model, mujoco.MjData(model))  # in separate data, since it advances the simulation
    if computed[0]:
        stat.meanmass = sum(model.body_mass[1:].tolist()) / bodies
    if computed[1]:
        stat.meaninertia = sum(model.dof_M0.tolist()) / dofs


BOUNDS = ("geom_rbound", "geom_aabb", "bvh_aabb", "body_margin", "geom_sameframe", "site_sameframe", "body_sameframe")
"""Quantities that the compiler computes from shapes, places and margins, for contacts and placement."""


def compute_bounds_again(model: Any, nominal: Mapping[str, np.ndarray], moved: Mapping[str, np.ndarray]) -> None:
    """Recompute the constants that depend on shapes, positions and margins, which ``mj_setConst`` does not update.

    Args:
        model: MuJoCo's model.
        nominal: ``BOUNDS`` as they were before anything was changed.
        moved: Attribute (``"geom_size"``, ``"geom_pos"`` ...) -> which of its rows differ from the nominal ones, bool.
    """
    for name, values in nominal.items():
        getattr(model, name)[...] = values
    bodies = _any_of(moved, ("body_ipos", "body_iquat"), model.nbody)
    model.body_sameframe[bodies] = 0
    for kind, owners in (("geom", model.geom_bodyid), ("site", model.site_bodyid)):
        places = _any_of(moved, (f"{kind}_pos", f"{kind}_quat"), len(owners))
        getattr(model, f"{kind}_sameframe")[places | bodies[owners]] = 0
        bodies_of_places = np.unique(owners[places]) if kind == "geom" else np.zeros(0, dtype=np.int64)
        bodies[bodies_of_places] = True
    sized = _any_of(moved, ("geom_size",), model.ngeom)
    for geom in np.flatnonzero(sized).tolist():
        _bound_geom(model, geom)
    bodies[np.unique(model.geom_bodyid[sized])] = True
    for body in np.flatnonzero(bodies).tolist():
        _bound_body(model, body)
    for body in np.unique(model.geom_bodyid[_any_of(moved, ("geom_margin",), model.ngeom)]).tolist():
        model.body_margin[body] = model.geom_margin[model.geom_bodyid == body].max()


def _any_of(moved: Mapping[str, np.ndarray], names: Sequence[str], count: int) -> np.ndarray:
    any_moved = np.zeros(count, dtype=bool)
    for name in names:
        any_moved |= moved.get(name, False)
    return any_moved


def _bound_geom(model: Any, geom: int) -> None:
    """Sphere and box around a geom whose size gives its shape; meshes and height fields bring theirs, planes have none.

    As MuJoCo's compiler does (``mjCGeom::GetRBound`` and ``mjCGeom::ComputeAABB`` of user_objects.cc).
    """
    kinds, kind = load_mujoco().mjtGeom, int(model.geom_type[geom])
    x, y, z = model.geom_size[geom].tolist()
    known = {
        int(kinds.mjGEOM_SPHERE): (x, (x, x, x)),
        int(kinds.mjGEOM_CAPSULE): (x + y, (x, x, x + y)),
        int(kinds.mjGEOM_CYLINDER): (math.hypot(x, y), (x, x, y)),
        int(kinds.mjGEOM_ELLIPSOID): (max(x, y, z), (x, y, z)),
        int(kinds.mjGEOM_BOX): (math.sqrt(x * x + y * y + z * z), (x, y, z)),
    }
    if kind in known:
        model.geom_rbound[geom], model.geom_aabb[geom, 3:] = known[kind]


def _bound_body(model: Any, body: int) -> None:
    """The tree of boxes around a body's geoms, in the frame of its inertia."""
    begin, count = int(model.body_bvhadr[body]), int(model.body_bvhnum[body])
    frame, origin = _rotation(model.body_iquat[body]).T, model.body_ipos[body]
    for node in range(begin + count - 1, begin - 1, -1):  # children come after their parents
        children = model.bvh_child[node]
        if children[0] < 0:
            geom = int(model.bvh_nodeid[node])
            turn = _rotation(model.geom_quat[geom])
            center = frame @ (model.geom_pos[geom] + turn @ model.geom_aabb[geom, :3] - origin)
            half = np.abs(frame @ turn) @ model.geom_aabb[geom, 3:]
        else:
            boxes = model.bvh_aabb[begin + children]
            low, high = (boxes[:, :3] - boxes[:, 3:]).min(axis=0), (boxes[:, :3] + boxes[:, 3:]).max(axis=0)
            center, half = 0.5 * (low + high), 0.5 * (high - low)
        model.bvh_aabb[node] = np.concatenate((center, half))


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    matrix = np.empty(9)
    load_mujoco().mju_quat2Mat(matrix, quaternion / np.linalg.norm(quaternion))
    return matrix.reshape(3, 3)


def unstable(counts: np.ndarray) -> np.ndarray:
    """The simulations that MuJoCo has restarted automatically, since their numbers were not finite or huge.

    Args:
        counts: ``data.warning.number`` of each, ``(E, kinds of warnings)``.
    """
    kinds = load_mujoco().mjtWarning
    bad = [int(kinds.mjWARN_BADQPOS), int(kinds.mjWARN_BADQVEL), int(kinds.mjWARN_BADQACC)]
    return (counts[:, bad] != 0).any(axis=1)
