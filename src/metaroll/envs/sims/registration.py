"""Ids of the simulated environments, here and in Gymnasium's registry; imports none of them.

``import metaroll`` loads this module where Gymnasium has been imported before, the first use of a metaroll name does so
in any case; then ``gymnasium.make("metaroll/Pendulum-v0")`` and ``gymnasium.make_vec`` know the ids.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from gymnasium.envs.registration import register, registry

__all__ = ["SIMS", "SimEntry", "sim_constructor", "sim_ids"]

_CATALOG = "metaroll.envs.sims.catalog"
_VECTORS = "metaroll.rollouts.single.sim_vectors"


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
    return None if entry is None else getattr(import_module(_CATALOG), entry.class_name)


def _register() -> None:
    """Tell Gymnasium, once; horizons are the environments' own, and can be set."""
    for entry in SIMS:
        if entry.id not in registry:
            register(
                entry.id,
                entry_point=f"{_CATALOG}:{entry.class_name}",
                vector_entry_point=f"{_VECTORS}:{entry.class_name}",
            )


_register()
