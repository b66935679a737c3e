"""CartPole and Pendulum with variable constants, as simulators that step many instances at once.

Packer et al. 2018, *Assessing generalization in deep reinforcement learning*, arXiv:1810.12282. With nominal constants
they are Gymnasium's CartPole-v1 (with a time limit of 200 steps) and Pendulum-v1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.sims.model import Column, Columns, Constants, SimModel
from metaroll.envs.sims.params import POSITIVE, Param
from metaroll.envs.sims.sim_env import SimEnv
from metaroll.envs.sims.tasks import SimTask
from metaroll.envs.wrappers.base import ChainWrapper, Memory, spec_of
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.types import EnvSpec

__all__ = ["ENVS", "PackerEnv", "make_cart_pole", "make_pendulum"]

STEPS = 200
_GRAVITY, _CART_MASS = 9.8, 1.0
_TRACK, _TILT = 2.4, 12.0 * 2.0 * math.pi / 360.0
_MAX_SPEED, _MAX_TORQUE = 8.0, 2.0
_PENDULUM_GRAVITY = 10.0


class CartPole(SimModel):
    """A pole on a cart pushed left (-1) or right (1); ``length`` is half that of the pole. Explicit Euler steps."""

    name: ClassVar[str] = "cart-pole of Gymnasium"
    state_labels: ClassVar[tuple[str, ...]] = ("x", "x_dot", "theta", "theta_dot")
    observation_labels: ClassVar[tuple[str, ...]] = state_labels
    action_labels: ClassVar[tuple[str, ...]] = ("push",)
    params: Mapping[str, Param] = {
        "force": Param(10.0, POSITIVE),
        "length": Param(0.5, POSITIVE),
        "mass": Param(0.1, POSITIVE),
    }
    num_uniforms: ClassVar[int] = 4

    def __init__(self) -> None:
        self.dt, self.max_steps = 0.02, STEPS

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        total = params["mass"] + _CART_MASS
        return {**params, "total": total, "lever": params["mass"] * params["length"] / total}

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        x, x_dot, theta, theta_dot = state
        sin, cos = xp.sin(theta), xp.cos(theta)
        lever, share = constants["lever"], constants["mass"] / constants["total"]
        push = constants["force"] / constants["total"] * action[0] + lever * theta_dot * theta_dot * sin
        theta_acc = (_GRAVITY * sin - cos * push) / (constants["length"] * (4.0 / 3.0 - share * cos * cos))
        x_acc = push - lever * theta_acc * cos
        return (x + dt * x_dot, x_dot + dt * x_acc, theta + dt * theta_dot, theta_dot + dt * theta_acc), memory

    def observe(self, state: Columns, xp: Any) -> Columns:
        return state

    def observation_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        """Twice the bounds of the state, since the last observation of an episode lies outside those."""
        return (-2.0 * _TRACK, -math.inf, -2.0 * _TILT, -math.inf), (2.0 * _TRACK, math.inf, 2.0 * _TILT, math.inf)

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-1.0,), (1.0,)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-_TRACK, -math.inf, -_TILT, -math.inf), (_TRACK, math.inf, _TILT, math.inf)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-0.05,) * 4, (0.05,) * 4


class Pendulum(SimModel):
    """A rod that turns about one end; 0 is upright. Semi-implicit Euler steps, speed limited to 8 rad/s."""

    name: ClassVar[str] = "pendulum of Gymnasium"
    state_labels: ClassVar[tuple[str, ...]] = ("theta", "theta_dot")
    observation_labels: ClassVar[tuple[str, ...]] = ("cos_theta", "sin_theta", "theta_dot")
    action_labels: ClassVar[tuple[str, ...]] = ("torque",)
    params: Mapping[str, Param] = {"length": Param(1.0, POSITIVE), "mass": Param(1.0, POSITIVE)}
    num_uniforms: ClassVar[int] = 2

    def __init__(self) -> None:
        self.dt, self.max_steps = 0.05, STEPS

    def constants(self, params: Constants, xp: Any) -> dict[str, Column]:
        length = params["length"]
        agility = 3.0 / (params["mass"] * length * length)
        return {**params, "pull": 1.5 * _PENDULUM_GRAVITY / length, "agility": agility}

    def step(
        self, state: Columns, memory: Columns, action: Columns, constants: Constants, dt: float, xp: Any
    ) -> tuple[Columns, Columns]:
        theta, theta_dot = state
        acceleration = constants["pull"] * xp.sin(theta) + constants["agility"] * action[0]
        theta_dot = xp.clip(theta_dot + dt * acceleration, -_MAX_SPEED, _MAX_SPEED)
        return (theta + dt * theta_dot, theta_dot), memory

    def observe(self, state: Columns, xp: Any) -> Columns:
        return xp.cos(state[0]), xp.sin(state[0]), state[1]

    def observation_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-1.0, -1.0, -_MAX_SPEED), (1.0, 1.0, _MAX_SPEED)

    def action_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-_MAX_TORQUE,), (_MAX_TORQUE,)

    def state_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-math.inf, -math.inf), (math.inf, math.inf)

    def initial_bounds(self, constants: Constants) -> tuple[Columns, Columns]:
        return (-math.pi, -1.0), (math.pi, 1.0)


class Upright(SimTask):
    """A reward of 1 for every step."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        return 0.0 * state[0] + 1.0


class SwingUp(SimTask):
    """``-(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2)``, of the state before the step and the clipped torque."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        angle = (state[0] + math.pi) % (2.0 * math.pi) - math.pi
        torque = xp.clip(action[0], -_MAX_TORQUE, _MAX_TORQUE)
        return -(angle * angle + 0.1 * state[1] * state[1] + 0.001 * torque * torque)


class PushLeftOrRight(ChainWrapper):
    """Action 0 pushes left, 1 right."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = Discrete(2)

    @property
    def env_spec(self) -> EnvSpec:
        """Spec with two discrete actions."""
        return replace(spec_of(self.env), action_space=self.action_space, action_labels=("left", "right"))

    def rows_in(self, actions: np.ndarray, memory: Memory, rows: np.ndarray) -> np.ndarray:
        """Forces of -1 and 1, ``(k, 1)``."""
        return 2.0 * np.asarray(actions, dtype=np.float64).reshape(-1, 1) - 1.0


def make_cart_pole() -> PushLeftOrRight:
    """CartPole of 200 steps."""
    return PushLeftOrRight(SimEnv(CartPole(), Upright()))


def make_pendulum() -> SimEnv:
    """Pendulum of 200 steps."""
    return SimEnv(Pendulum(), SwingUp())


def _balanced(rollout: StepSequence) -> bool:
    """At least 195 steps."""
    return len(rollout) >= 195


def _held_up(rollout: StepSequence) -> bool:
    """Within 60 degrees of upright after each of the last 100 of 200 steps."""
    cosines = np.asarray(rollout.observations)[:, 0]
    return len(rollout) == STEPS and bool((cosines[-100:] >= 0.5).all())


@dataclass(frozen=True)
class PackerEnv:
    """An environment of the paper.

    Attributes:
        make: Makes the environment.
        low: Lowest training constants (the paper's range R).
        high: Highest training constants.
        succeeds: Whether a rollout is a success.
        published: Algorithm -> (mean, standard deviation) over five runs of the success rate, in percent, trained and
            tested in R.
    """

    make: Any
    low: Mapping[str, float]
    high: Mapping[str, float]
    succeeds: Any
    published: Mapping[str, Sequence[float]]

    def randomizer(self, generator: int | None = None) -> DomainRandomizer:
        """Uniform draws from R."""
        params = [
            UniformDomainParam(name, (low + self.high[name]) / 2, (self.high[name] - low) / 2)
            for name, low in self.low.items()
        ]
        return DomainRandomizer(*params, generator=generator)


ENVS = {
    "CartPole": PackerEnv(
        make_cart_pole,
        {"force": 5.0, "length": 0.25, "mass": 0.05},
        {"force": 15.0, "length": 0.75, "mass": 0.5},
        _balanced,
        {"ppo": (100.0, 0.0), "epopt": (99.46, 0.8)},
    ),
    "Pendulum": PackerEnv(
        make_pendulum,
        {"length": 0.75, "mass": 0.75},
        {"length": 1.25, "mass": 1.25},
        _held_up,
        {"ppo": (31.8, 40.0), "epopt": (77.3, 38.9)},
    ),
}
