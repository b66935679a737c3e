"""MuJoCo's rendering backend on a machine without a screen, tried in a child process: a driver may crash or hang."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from metaroll.processes.children import PIPE, ChildProcess

__all__ = ["can_draw", "without_screen"]

_BACKENDS = ("egl", "osmesa")
"""Backends that need no screen; OSMesa needs no GPU, either."""
_ENV = "HalfCheetah-v5"
_VARIABLE = "MUJOCO_GL"


@contextlib.contextmanager
def without_screen(seconds: float = 20.0) -> Iterator[str | None]:
    """Context in which MuJoCo renders with a backend that works here without a screen; gives its name.

    ``None``, and all is left unchanged, where MuJoCo is not in use, MUJOCO_GL says what to take, there is a screen, or
    nothing works (drawing then says what is wrong).
    """
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if "mujoco" not in sys.modules or os.environ.get(_VARIABLE) or screen or not sys.platform.startswith("linux"):
        yield None
        return
    backend = next((each for each in _BACKENDS if can_draw(_ENV, each, seconds)), None)
    if backend is None:
        yield None
        return
    os.environ[_VARIABLE] = backend
    try:
        yield backend
    finally:
        del os.environ[_VARIABLE]


def can_draw(env_id: str, backend: str, seconds: float) -> bool:
    """Whether an environment of Gymnasium has pictures with ``backend`` as MUJOCO_GL, and within ``seconds``."""
    process = ChildProcess(
        "metaroll.lab.figures.probes:main", [env_id], environment={_VARIABLE: backend}, stdout=PIPE, stderr=PIPE
    )
    try:
        return process.communicate(seconds) is not None and process.returncode == 0
    finally:
        process.end()


def main() -> None:
    """Draw an environment in this process, and leave with the status 0 if there is something in the picture."""
    import gymnasium

    drawn = False
    try:
        environment = gymnasium.make(sys.argv[1], render_mode="rgb_array")
        environment.reset(seed=0)
        picture: Any = environment.render()
        drawn = bool(picture.min() < picture.max())
    finally:
        os._exit(0 if drawn else 1)  # drivers crash and hang when an interpreter cleans up
