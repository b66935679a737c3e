"""The door to the package ``metaworld``: its import or an explanation, and its entries in results."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from metaroll.envs.mujoco.library import graphics_trouble
from metaroll.errors import install_text

__all__ = [
    "HORIZON",
    "MW_TASKS_PER_ENV",
    "env_classes",
    "metaworld_package",
    "mujoco_package",
    "provenance_of",
]

MW_TASKS_PER_ENV = 50
"""Tasks (goals) that a Meta-World benchmark has for each class of environments."""

HORIZON = 500
"""Steps after which Meta-World truncates an episode."""


def metaworld_package() -> Any:
    """The package, or an error that names the extra."""
    try:
        import metaworld
    except Exception as error:
        graphics = graphics_trouble(error)
        if graphics is not None:
            raise ImportError(graphics) from error
        if not isinstance(error, ImportError):
            raise
        raise ImportError(f"Meta-World is not installed: {install_text('metaworld')} ({error})") from error
    return metaworld


def mujoco_package() -> Any:
    """MuJoCo, which Meta-World brings along."""
    import mujoco

    return mujoco


def env_classes() -> dict[str, Any]:
    """Name (``"reach-v3"``) -> class of all of Meta-World's environments."""
    metaworld_package()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    return dict(ALL_V3_ENVIRONMENTS)


def provenance_of(reward_version: str, horizon: int) -> dict[str, Any]:
    """The record that makes a Meta-World result comparable with another one."""
    metaworld_package()
    return {
        "benchmark": "Meta-World",
        "metaworld": metadata.version("metaworld"),
        "envs": "v3",
        "reward_version": reward_version,
        "horizon": horizon,
        "success_rule": "at any step",
    }
