"""The simulated environments: each a system with its task."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from metaroll.envs.sims.ball_balancer import BallBalancerModel
from metaroll.envs.sims.ball_on_beam import BallOnBeamModel
from metaroll.envs.sims.cart_pole import CartPoleModel
from metaroll.envs.sims.catapult import CatapultModel
from metaroll.envs.sims.gaussian_2d import Gaussian2DModel
from metaroll.envs.sims.oscillator import OscillatorModel
from metaroll.envs.sims.pendulum import PendulumModel
from metaroll.envs.sims.qube import QubeModel
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.tasks import (
    DesStateTask,
    ExpQuadrErr,
    FinalRewTask,
    LowestHeightTask,
    NoTask,
    QuadrErr,
    RadiallySymmDesStateTask,
    ScaledExpQuadrErr,
)

__all__ = [
    "SIMS",
    "BallOnBeamEnv",
    "CatapultEnv",
    "Gaussian2DEnv",
    "OneMassOscillatorEnv",
    "PendulumEnv",
    "QBallBalancerEnv",
    "QCartPoleStabEnv",
    "QCartPoleSwingUpEnv",
    "QQubeStabEnv",
    "QQubeSwingUpEnv",
    "SimEntry",
    "sim_constructor",
]

_UPRIGHT = (0.0, math.pi, 0.0, 0.0)


class OneMassOscillatorEnv(SimEnv):
    """A mass on a spring with a damper, to be brought to rest.

    It starts 0.7 m away from where the spring rests; a force moves it, and going further than 1 m costs 1000. Units,
    constants and bounds: docs/simulators.md.

    Args:
        state_des: Position and velocity to be reached.
        **options: See ``SimEnv``.
    """

    def __init__(self, state_des: tuple[float, float] = (0.0, 0.0), **options: Any) -> None:
        task = DesStateTask(state_des, QuadrErr((10.0, 0.01), (1e-6,)))
        super().__init__(OscillatorModel(), FinalRewTask(task, factor=1000.0), **options)


class PendulumEnv(SimEnv):
    """A rod on a motor that is too weak to lift it at once, to be swung up and held upright.

    It starts at rest, hanging, unless ``init_space`` is given. Units, constants and bounds: docs/simulators.md.
    """

    def __init__(self, **options: Any) -> None:
        task = RadiallySymmDesStateTask((math.pi, 0.0), ExpQuadrErr((1.0, 1e-3), (0.01,)), idcs=(0,))
        super().__init__(PendulumModel(), task, **options)


class BallOnBeamEnv(SimEnv):
    """A ball to be brought to rest in the middle of a beam.

    It starts near one of the ends; a torque tilts the beam, and the episode ends where the ball falls off. Units,
    constants and bounds: docs/simulators.md.
    """

    def __init__(self, **options: Any) -> None:
        task = DesStateTask((0.0,) * 4, ScaledExpQuadrErr((1e5, 1e3, 1e3, 1e2), (1.0,), min_reward=1e-4))
        super().__init__(BallOnBeamModel(), task, **options)


class QCartPoleStabEnv(SimEnv):
    """The pole of Quanser's cart-pole, to be held upright.

    The voltage of a motor moves the cart on its rail; the pole starts within 8 degrees of upright, and the episode ends
    where it is 15 degrees away or the cart is near an end. Units, constants and bounds: docs/simulators.md.

    Args:
        long_pole: See ``CartPoleModel``.
        simple_dynamics: See ``CartPoleModel``.
        **options: See ``SimEnv``.
    """

    def __init__(self, *, long_pole: bool = True, simple_dynamics: bool = True, **options: Any) -> None:
        model = CartPoleModel(swing_up=False, long_pole=long_pole, simple_dynamics=simple_dynamics)
        reward = QuadrErr((5.0, 10.0, 0.01, 0.01), (1e-3,))
        task = RadiallySymmDesStateTask(_UPRIGHT, reward, idcs=(1,))
        super().__init__(model, FinalRewTask(task, state_dependent=True, time_dependent=True), **options)


class QCartPoleSwingUpEnv(SimEnv):
    """The pole of Quanser's cart-pole, to be swung up and held upright.

    The same system as ``QCartPoleStabEnv`` with the short pole, friction of the cart and steps of 2 ms; the pole starts
    at any angle. Units, constants and bounds: docs/simulators.md.

    Args:
        long_pole: See ``CartPoleModel``.
        simple_dynamics: See ``CartPoleModel``.
        wild_init: See ``CartPoleModel``.
        **options: See ``SimEnv``.
    """

    def __init__(
        self, *, long_pole: bool = False, simple_dynamics: bool = False, wild_init: bool = True, **options: Any
    ) -> None:
        model = CartPoleModel(long_pole=long_pole, simple_dynamics=simple_dynamics, wild_init=wild_init)
        task = RadiallySymmDesStateTask(_UPRIGHT, QuadrErr((0.3, 0.5, 0.005, 0.001), (1e-3,)), idcs=(1,))
        super().__init__(model, FinalRewTask(task, factor=1e4, always_negative=True), **options)


class QQubeSwingUpEnv(SimEnv):
    """The pendulum of Quanser's Qube, to be swung up and held upright.

    The voltage of a motor turns an arm, whose end carries the pendulum (a Furuta pendulum); both start nearly at rest,
    hanging, and the arm's cable lets it turn by 115 degrees. Units, constants and bounds: docs/simulators.md.
    """

    def __init__(self, **options: Any) -> None:
        task = RadiallySymmDesStateTask(_UPRIGHT, ExpQuadrErr((1.0, 1.0, 0.02, 0.005), (4e-3,)), idcs=(1,))
        super().__init__(QubeModel(swing_up=True), task, **options)


class QQubeStabEnv(SimEnv):
    """The pendulum of Quanser's Qube, to be held upright.

    The same system as ``QQubeSwingUpEnv``, started within 5 degrees of upright, with steps of 10 ms. Units, constants
    and bounds: docs/simulators.md.
    """

    def __init__(self, **options: Any) -> None:
        task = RadiallySymmDesStateTask(_UPRIGHT, ExpQuadrErr((3.0, 4.0, 2.0, 2.0), (0.05,)), idcs=(1,))
        super().__init__(QubeModel(swing_up=False), task, **options)


class QBallBalancerEnv(SimEnv):
    """A ball to be brought to rest in the middle of a plate that two servos tilt.

    The actions are the voltages of the servos; the ball starts on a ring near the edges, and the episode ends where it
    falls off. Units, constants and bounds: docs/simulators.md.

    Args:
        simple_dynamics: See ``BallBalancerModel``.
        **options: See ``SimEnv``.
    """

    def __init__(self, *, simple_dynamics: bool = False, **options: Any) -> None:
        weights = (1.0, 1.0, 5e3, 5e3, 0.01, 0.01, 0.5, 0.5)
        task = DesStateTask((0.0,) * 8, ScaledExpQuadrErr(weights, (0.01, 0.01), min_reward=1e-4))
        super().__init__(BallBalancerModel(simple_dynamics), task, **options)


class CatapultEnv(SimEnv):
    """A catapult that throws once; the less high, the better.

    An episode is one step: the action is how far the spring is stretched, the best is its own elongation, which is a
    domain parameter. Units, constants and bounds: docs/simulators.md.

    Args:
        planets: See ``CatapultModel``.
        **options: See ``SimEnv``.
    """

    def __init__(self, *, planets: bool = False, **options: Any) -> None:
        super().__init__(CatapultModel(planets), LowestHeightTask(), **options)


class Gaussian2DEnv(SimEnv):
    """Four draws from a two-dimensional Gaussian, without reward.

    Its likelihood is known, so that methods of simulation-based inference can be checked against it: an episode is one
    step, whose action does nothing. Constants and their allowed range: docs/simulators.md.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(Gaussian2DModel(), NoTask(), **options)


class SimEntry(NamedTuple):
    """A simulated environment.

    Attributes:
        id: In Gymnasium's registry.
        short_name: For command lines and configurations.
        env_type: Its class.
        description: One line.
    """

    id: str
    short_name: str
    env_type: type[Any]
    description: str


SIMS = (
    SimEntry("metaroll/OneMassOscillator-v0", "omo", OneMassOscillatorEnv, "a mass on a spring, brought to rest"),
    SimEntry("metaroll/Pendulum-v0", "pend", PendulumEnv, "swing-up of a pendulum with a weak motor"),
    SimEntry("metaroll/BallOnBeam-v0", "bob", BallOnBeamEnv, "a ball on a beam, brought to rest in the middle"),
    SimEntry("metaroll/QCartPoleStab-v0", "qcp-st", QCartPoleStabEnv, "Quanser's cart-pole, held upright"),
    SimEntry("metaroll/QCartPoleSwingUp-v0", "qcp-su", QCartPoleSwingUpEnv, "Quanser's cart-pole, swung up"),
    SimEntry("metaroll/QQubeStab-v0", "qq-st", QQubeStabEnv, "Quanser's Qube, held upright"),
    SimEntry("metaroll/QQubeSwingUp-v0", "qq-su", QQubeSwingUpEnv, "Quanser's Qube, swung up"),
    SimEntry("metaroll/QBallBalancer-v0", "qbb", QBallBalancerEnv, "a ball on a plate that two servos tilt"),
    SimEntry("metaroll/Catapult-v0", "cata", CatapultEnv, "a catapult that throws once"),
    SimEntry("metaroll/Gaussian2D-v0", "2dg", Gaussian2DEnv, "draws from a Gaussian, for checks of inference"),
)
_BY_NAME = {name: entry.env_type for entry in SIMS for name in (entry.id, entry.short_name)}


def sim_constructor(name: str) -> type[Any] | None:
    """The class with this id or short name; ``None`` for any other name."""
    return _BY_NAME.get(name)
