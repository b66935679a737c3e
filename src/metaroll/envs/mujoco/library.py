"""The mujoco package, imported when it is first needed, and what several modules ask of it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["compute_again", "get_physics", "load_mujoco", "set_physics", "unstable"]


def load_mujoco(what: str = "this environment") -> Any:
    """The package, or an error that says how to install it."""
    try:
        import mujoco
    except ImportError as error:
        raise ImportError(f"{what} needs MuJoCo: pip install 'metaroll[mujoco]' ({error})") from error
    return mujoco


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
