"""What environments of a point in the plane share: how they are drawn."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

import gymnasium
import numpy as np

from metaroll.envs.base.batched_env import BatchedEnv
from metaroll.envs.base.simulator import TaskSimulator
from metaroll.envs.point.plane_drawing import Wall, draw_plane

__all__ = ["PlaneEnv"]


class PlaneEnv(BatchedEnv, ABC):
    """A ``BatchedEnv`` whose state begins with a place in the plane, and whose task holds a ``goal``.

    With ``render_mode="rgb_array"`` it is drawn from above, with the way that the point has come in this episode.

    Args:
        simulator: What is simulated (rows as ``PointRows`` has them); its ``task`` is in force before the first
            ``set_task``.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own)
    drawn_reach: ClassVar[float]
    """The square [-drawn_reach, drawn_reach]^2 is drawn."""
    goal_radius: ClassVar[float] = 0.0
    """Where the goal counts as reached; 0 draws no such area."""

    def __init__(self, simulator: TaskSimulator, render_mode: str | None = None) -> None:
        super().__init__(simulator, render_mode)
        self._trail: list[np.ndarray] = []

    def walls(self) -> list[Wall]:
        """Walls that are in force, to be drawn."""
        return []

    def on_step(self, begins: bool = False) -> None:
        """Remember where the point is, if it is drawn."""
        if begins:
            self._trail = []
        if begins or self.render_mode is not None:
            self._trail.append(self._rows.state[0][0, :2].copy())

    def render(self) -> np.ndarray | None:
        """A picture of the plane, uint8 ``(360, 360, 3)``, with ``render_mode="rgb_array"``."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() draws nothing without a render_mode; make the environment with render_mode='rgb_array'"
            )
            return None
        if not self._trail:
            raise gymnasium.error.ResetNeeded("reset() must be called before render()")
        return draw_plane(self._trail, self.get_task()["goal"], self.drawn_reach, self.goal_radius, self.walls())
