"""Points in the plane, bandits and tables as families of tasks."""

from __future__ import annotations

from metaroll.envs.base.task_family import TaskFamily
from metaroll.envs.point.point_corners import (
    DensePointCornersEnv,
    DenseSquaredPointCornersEnv,
    PointCornersEnv,
    PointMomentumEnv,
    PointWallsEnv,
)
from metaroll.envs.point.point_navigation import PointNavigationEnv
from metaroll.envs.tabular.bandit import BernoulliBanditEnv, TenArmedBanditEnv
from metaroll.envs.tabular.random_mdp import RandomMDPEnv

__all__ = ["point_and_tabular_families"]

_TEST_SHARE = 0.2
_CORNERS = {
    "point-corners": (PointCornersEnv, "a point that looks for one of four corners, sparse reward"),
    "point-corners-dense": (DensePointCornersEnv, "a point that looks for one of four corners, minus its distance"),
    "point-corners-dense-squared": (
        DenseSquaredPointCornersEnv,
        "a point that looks for one of four corners, minus its squared distance",
    ),
    "point-momentum": (PointMomentumEnv, "a point with momentum that looks for one of four corners, sparse reward"),
}
_DRAWN = {
    "point-navigation": (PointNavigationEnv, 100, 40, 100, "MAML's point in the plane; goals in the unit square"),
    "point-walls": (PointWallsEnv, 100, 40, 100, "a point behind two walls with gaps, goals in four corners"),
    "bandit-5": (BernoulliBanditEnv, 200, 200, 10, "Bernoulli bandits with 5 arms, 10 pulls"),
    "bandit-10": (TenArmedBanditEnv, 200, 200, 10, "Bernoulli bandits with 10 arms, 10 pulls"),
    "random-mdp": (RandomMDPEnv, 100, 40, 10, "random MDPs with 10 states and 5 actions"),
}


def point_and_tabular_families() -> list[TaskFamily]:
    """The families; of the four corners, of which there are no more, one is held out."""
    corners = [TaskFamily(name, kind, 3, 1, 100, text) for name, (kind, text) in _CORNERS.items()]
    drawn = [
        TaskFamily(name, kind, num_train, num_test, horizon, text, test_share=_TEST_SHARE)
        for name, (kind, num_train, num_test, horizon, text) in _DRAWN.items()
    ]
    return [*drawn, *corners]
