"""The mujoco package, imported when it is first needed, and what several modules ask of it."""

from __future__ import annotations

import os
import traceback
from typing import Any

import numpy as np

__all__ = ["compute_again", "get_physics", "graphics_trouble", "load_mujoco", "set_physics", "unstable"]

_GRAPHICS = ("OpenGL", "mujoco.osmesa", "mujoco.egl", "mujoco.glfw", "mujoco.cgl", "mujoco.gl_context")


def load_mujoco(what: str = "this environment") -> Any:
    """The package, or an error that says how to install it."""
    try:
        import mujoco
    except Exception as error:
        graphics = graphics_trouble(error)
        if graphics is not None:
            raise ImportError(graphics) from error
        if not isinstance(error, ImportError):
            raise
        raise ImportError(f"{what} needs MuJoCo: pip install 'metaroll[mujoco]' ({error})") from error
    return mujoco


def graphics_trouble(error: BaseException) -> str | None:
    """What to do if ``error`` comes of loading the way of drawing that MUJOCO_GL asks for; ``None`` if it does not.

    MuJoCo loads it when it is imported, even where nothing is drawn.
    """
    chosen, cause = os.environ.get("MUJOCO_GL"), error
    while chosen and cause is not None:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            if str(frame.f_globals.get("__name__")).startswith(_GRAPHICS):
                return (
                    f"MUJOCO_GL={chosen} asks for a way of drawing that does not work on this machine, so that MuJoCo "
                    f"cannot be imported ({type(cause).__name__}: {cause}); unset MUJOCO_GL, or let `metaroll doctor` "
                    "say which works"
                )
        cause = cause.__cause__ or cause.__context__
    return None


def get_physics(model: Any, data: Any) -> np.ndarray:
    """State from which MuJoCo continues exactly (with the warm start of its solver)."""
    mujoco = load_mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, physics, spec)
    return physics


def set_physics(model: Any, data: Any, physics: np.ndarray) -> None:
    """Go on from what ``get_physics`` has told."""
    mujoco = load_mujoco()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, physics, spec)
    mujoco.mj_forward(model, data)  # positions of bodies and the like
    mujoco.mj_setState(model, data, physics, spec)  # mj_forward has overwritten the warm start


def compute_again(model: Any) -> None:
    """What MuJoCo computes from masses, gears and the like, after some have been changed.

    Version 4 leaves the mean mass and inertia, by which its solver scales its tolerance, to the compiler. They follow
    here, too, except where the model file has given others.
    """
    mujoco, stat = load_mujoco(), model.stat
    bodies, dofs = max(1, model.nbody - 1), max(1, model.nv)
    computed = np.isclose(
        (stat.meanmass, stat.meaninertia), (model.body_subtreemass[0] / bodies, sum(model.dof_M0.tolist()) / dofs)
    )
    mujoco.mj_setConst(model, mujoco.MjData(model))  # in data of its own: it moves the simulation
    if computed[0]:
        stat.meanmass = sum(model.body_mass[1:].tolist()) / bodies
    if computed[1]:
        stat.meaninertia = sum(model.dof_M0.tolist()) / dofs


def unstable(counts: np.ndarray) -> np.ndarray:
    """Which simulations MuJoCo has restarted by itself, since their numbers were not finite or huge.

    Args:
        counts: ``data.warning.number`` of each, ``(E, kinds of warnings)``.
    """
    kinds = load_mujoco().mjtWarning
    bad = [int(kinds.mjWARN_BADQPOS), int(kinds.mjWARN_BADQVEL), int(kinds.mjWARN_BADQACC)]
    return (counts[:, bad] != 0).any(axis=1)
