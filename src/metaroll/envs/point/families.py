"""Points in the plane as families of tasks."""

from __future__ import annotations

from metaroll.envs.base.task_family import TaskFamily, register_family
from metaroll.envs.point.point_corners import (
    DensePointCornersEnv,
    DenseSquaredPointCornersEnv,
    PointCornersEnv,
    PointMomentumEnv,
    PointWallsEnv,
)
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_navigation import PointNavigationEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.envs.point.point_robot import PointRobotEnv, SparsePointRobotEnv

__all__: list[str] = []

_GOALS = {
    "point-robot": (PointRobotEnv, "a point in the plane; goals in the square [-1, 1]^2, dense reward"),
    "sparse-point-robot": (
        SparsePointRobotEnv,
        "a point in the plane; goals on the unit half circle, sparse reward in the context",
    ),
}
_DRAWN = {
    "point-navigation": (PointNavigationEnv, "the point in the plane of Finn et al. 2017; goals in the unit square"),
    "point-walls": (PointWallsEnv, "a point behind two walls with gaps, goals in four corners"),
}
_CORNERS = {
    "point-corners": (PointCornersEnv, "a point that searches for one of four corners, sparse reward"),
    "point-corners-dense": (DensePointCornersEnv, "a point that searches for one of four corners, minus its distance"),
    "point-corners-dense-squared": (
        DenseSquaredPointCornersEnv,
        "a point that searches for one of four corners, minus its squared distance",
    ),
    "point-momentum": (PointMomentumEnv, "a point with momentum that searches for one of four corners, sparse reward"),
}

for name, (kind, text) in _GOALS.items():
    # Algorithms that adapt to a sparse goal see and are scored by the sparse reward (Rakelly et al. 2019, section 6.3).
    key = "sparse_reward" if "sparse_reward" in kind.infos else None
    register_family(TaskFamily(name, kind, 80, 20, 20, text, observed_reward=key, scored_reward=key))
register_family(
    TaskFamily("point-robot-pixels", PointRobotPixelsEnv, 80, 20, 20, "the point of point-robot, seen in 64x64 pixels")
)
register_family(
    TaskFamily("point-goal", PointGoalEnv, 80, 20, 50, "a point that observes its goal (a Dict observation), sparse")
)
for name, (kind, text) in _DRAWN.items():
    register_family(TaskFamily(name, kind, 100, 40, 100, text, test_share=0.2))
for name, (kind, text) in _CORNERS.items():  # there are only four corners: all are used in training and in tests
    register_family(TaskFamily(name, kind, 4, 4, 100, text, same_tasks=True, all_tasks=True))
