"""Ids of the simulated environments; importing this module imports none of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from metaroll.envs.base.constructors import register_env

__all__ = ["SIMS", "SimEntry", "SimMaker", "sim_constructor", "sim_ids"]


class SimEntry(NamedTuple):
    """A simulated environment.

    Attributes:
        id: In Gymnasium's registry.
        short_name: For command lines and configurations.
        class_name: Of its class in ``metaroll.envs.sims.catalog``.
        description: One line.
    """

    id: str
    short_name: str
    class_name: str
    description: str


SIMS = (
    SimEntry("metaroll/OneMassOscillator-v0", "omo", "OneMassOscillatorEnv", "a mass on a spring, brought to rest"),
    SimEntry("metaroll/Pendulum-v0", "pend", "PendulumEnv", "swing-up of a pendulum with a weak motor"),
    SimEntry("metaroll/BallOnBeam-v0", "bob", "BallOnBeamEnv", "a ball on a beam, brought to rest in the middle"),
    SimEntry("metaroll/QCartPoleStab-v0", "qcp-st", "QCartPoleStabEnv", "Quanser's cart-pole, held upright"),
    SimEntry("metaroll/QCartPoleSwingUp-v0", "qcp-su", "QCartPoleSwingUpEnv", "Quanser's cart-pole, swung up"),
    SimEntry("metaroll/QQubeStab-v0", "qq-st", "QQubeStabEnv", "Quanser's Qube, held upright"),
    SimEntry("metaroll/QQubeSwingUp-v0", "qq-su", "QQubeSwingUpEnv", "Quanser's Qube, swung up"),
    SimEntry("metaroll/QBallBalancer-v0", "qbb", "QBallBalancerEnv", "a ball on a plate that two servos tilt"),
    SimEntry("metaroll/Catapult-v0", "cata", "CatapultEnv", "a catapult that throws once"),
    SimEntry("metaroll/Gaussian2D-v0", "2dg", "Gaussian2DEnv", "draws from a Gaussian, for checks of inference"),
)
_BY_NAME = {name: entry for entry in SIMS for name in (entry.id, entry.short_name)}


def sim_ids() -> list[str]:
    """Ids and short names of all simulated environments."""
    return list(_BY_NAME)


def sim_constructor(name: str) -> Any:
    """The class with this id or short name; ``None`` for any other name."""
    entry = _BY_NAME.get(name)
    if entry is None:
        return None
    from metaroll.envs.sims import catalog

    return getattr(catalog, entry.class_name)


class SimMaker:
    """Makes the simulated environment of a name, whose class is loaded only then."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, render_mode: str | None = None) -> Any:
        return sim_constructor(self.name)(render_mode=render_mode)

    def __repr__(self) -> str:
        return f"SimMaker({self.name!r})"


for _name in _BY_NAME:
    register_env(_name, SimMaker(_name))
