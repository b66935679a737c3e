"""The steps of Gymnasium's classic control as functions of arrays, equal to those of one environment in every bit.

What decides about the last bit is kept as Gymnasium has it: the order of operations, the type of every intermediate
result (an action in single precision times a Python number stays in single precision), and ``x**2``, which for one
number is the C library's ``pow``, whose last bit is not always that of ``x * x``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np

__all__ = ["FORMULAS", "Advanced", "Formula"]

_PI = np.pi


class Advanced(NamedTuple):
    """N environments after a step: state ``(S, N)``, observations ``(N, O)`` float32, rewards, endings ``(N,)``."""

    state: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray


class Formula(ABC):
    """One environment as functions of arrays; rows of a result do not depend on each other."""

    params: ClassVar[tuple[str, ...]]
    """Attributes of the environment, Python numbers, that may have any value, and differ between slots."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Attributes that must have this value, or the formula does not speak for the environment."""
    state_dim: ClassVar[int]
    """Numbers in the environment's ``state``."""
    num_flags: ClassVar[int] = 0
    """Rows that the formula keeps below the state, 0 where an episode starts."""

    @abstractmethod
    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        """What a step needs of ``params``, computed as Gymnasium does."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Where an episode starts, ``(state_dim,)``."""

    @abstractmethod
    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        """One step; arguments are not changed.

        Args:
            state: Shape ``(state_dim + num_flags, N)``.
            actions: Shape ``(N,)``: the one number of each action (float32), or choices.
            constants: Shape ``(K, N)``.
        """

    def first(self, state: np.ndarray) -> np.ndarray:
        """What is seen of ``state`` as it was drawn, ``(O,)`` float32."""
        return state.astype(np.float32)


class _Pendulum(Formula):
    params = ("g", "m", "l", "dt", "max_speed", "max_torque")
    state_dim = 2

    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        g, m, length = values["g"], values["m"], values["l"]
        gravity, torque = 3 * g / (2 * length), 3.0 / (m * length**2)
        return gravity, torque, values["dt"], values["max_speed"], values["max_torque"]

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        high = np.array([_PI, 1.0])
        return generator.uniform(low=-high, high=high)

    def first(self, state: np.ndarray) -> np.ndarray:
        angle, speed = state
        return np.array([np.cos(angle), np.sin(angle), speed], dtype=np.float32)

    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        angle, speed = state
        gravity, torque, dt, fastest, strongest = constants
        torque, strongest = torque.astype(np.float32), strongest.astype(np.float32)  # as Python numbers become
        push = np.minimum(np.maximum(actions, -strongest), strongest)
        push_squared = np.fromiter([number**2 for number in push], np.float32)
        costs = _squares((angle + _PI) % (2 * _PI) - _PI) + 0.1 * _squares(speed) + 0.001 * push_squared
        speed = speed + (gravity * np.sin(angle) + torque * push) * dt
        speed = np.minimum(np.maximum(speed, -fastest), fastest)
        angle = angle + speed * dt
        observations = np.empty((len(angle), 3), dtype=np.float32)
        observations[:, 0], observations[:, 1], observations[:, 2] = np.cos(angle), np.sin(angle), speed
        return Advanced(_rows(angle, speed), observations, -costs, np.zeros(len(angle), dtype=bool))


class _CartPole(Formula):
    """The flag is 1 once the pole has fallen."""

    params = (
        "gravity",
        "masspole",
        "total_mass",
        "length",
        "polemass_length",
        "force_mag",
        "tau",
        "theta_threshold_radians",
        "x_threshold",
    )
    fixed: ClassVar[Mapping[str, Any]] = {"kinematics_integrator": "euler", "_sutton_barto_reward": False}
    state_dim = 4
    num_flags = 1

    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(values[name] for name in self.params)

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(low=-0.05, high=0.05, size=(4,))

    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        x, x_dot, theta, theta_dot, fallen = state
        gravity, masspole, mass, length, moment, strength, tau, most_theta, most_x = constants
        force = np.where(actions == 1, strength, -strength)
        cosine, sine = np.cos(theta), np.sin(theta)
        temp = (force + moment * np.square(theta_dot) * sine) / mass
        theta_acc = (gravity * sine - cosine * temp) / (length * (4.0 / 3.0 - masspole * np.square(cosine) / mass))
        x_acc = temp - moment * theta_acc * cosine / mass
        x, x_dot = x + tau * x_dot, x_dot + tau * x_acc
        theta, theta_dot = theta + tau * theta_dot, theta_dot + tau * theta_acc
        terminated = (x < -most_x) | (x > most_x) | (theta < -most_theta) | (theta > most_theta)
        rewards = 1.0 - terminated * fallen
        following = _rows(x, x_dot, theta, theta_dot, np.maximum(fallen, terminated))
        return Advanced(following, following[:4].T.astype(np.float32, order="C"), rewards, terminated)


class _MountainCar(Formula):
    params = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity", "force", "gravity")
    state_dim = 2

    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(values[name] for name in self.params)

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return np.array([generator.uniform(low=-0.6, high=-0.4), 0])

    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        position, velocity = state
        left, right, fastest, goal, goal_velocity, force, gravity = constants
        velocity = velocity + ((actions - 1) * force + _cosines(3 * position) * (-gravity))
        velocity = np.minimum(np.maximum(velocity, -fastest), fastest)
        position = np.minimum(np.maximum(position + velocity, left), right)
        velocity[(position == left) & (velocity < 0)] = 0.0
        terminated = (position >= goal) & (velocity >= goal_velocity)
        following = _rows(position, velocity)
        return Advanced(following, following.T.astype(np.float32, order="C"), np.full(len(goal), -1.0), terminated)


class _MountainCarContinuous(Formula):
    """An episode starts in double precision and goes on in single precision; the flag is 1 from then on."""

    params = ("power",)
    # With other bounds, single and double precision might not agree about which of two is larger.
    fixed: ClassVar[Mapping[str, Any]] = {
        "min_action": -1.0,
        "max_action": 1.0,
        "min_position": -1.2,
        "max_position": 0.6,
        "max_speed": 0.07,
        "goal_position": 0.45,
        "goal_velocity": 0,
    }
    state_dim = 2
    num_flags = 1

    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return (values["power"],)

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return np.array([generator.uniform(low=-0.6, high=-0.4), 0])

    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        power, first = constants[0], state[2] == 0
        at, speed = state[0], state[1]
        position, velocity = _move_car(at.astype(np.float32), speed.astype(np.float32), actions, power)
        if first.any():
            moved = _move_car(at[first], speed[first], actions[first], power[first])
            position[first], velocity[first] = moved
        terminated = (position >= 0.45) & (velocity >= 0)
        rewards = 100.0 * terminated - np.square(actions.astype(np.float64)) * 0.1
        following = _rows(position, velocity, np.ones(len(first)))
        return Advanced(following, following[:2].T.astype(np.float32, order="C"), rewards, terminated)


def _move_car(
    position: np.ndarray, velocity: np.ndarray, actions: np.ndarray, power: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Position and velocity after a step, in the precision of the arguments."""
    slope = 0.0025 * _cosines(3 * position)
    # A force at its bound is a Python number, so what it adds is rounded once, in the end.
    pull = (actions * power.astype(np.float32) - slope.astype(np.float32)).astype(np.float64)
    for beyond, bound in ((actions < -1.0, -1.0), (actions > 1.0, 1.0)):
        if beyond.any():
            pull = np.where(beyond, bound * power - slope, pull)
    velocity = velocity + pull.astype(velocity.dtype)
    velocity = np.minimum(np.maximum(velocity, -0.07), 0.07)
    position = np.minimum(np.maximum(position + velocity, -1.2), 0.6)
    velocity[(position == -1.2) & (velocity < 0)] = 0.0
    return position, velocity


class _Acrobot(Formula):
    params = (
        "dt",
        "LINK_LENGTH_1",
        "LINK_MASS_1",
        "LINK_MASS_2",
        "LINK_COM_POS_1",
        "LINK_COM_POS_2",
        "LINK_MOI",
        "MAX_VEL_1",
        "MAX_VEL_2",
    )
    fixed: ClassVar[Mapping[str, Any]] = {
        "AVAIL_TORQUE": [-1.0, 0.0, 1],
        "torque_noise_max": 0.0,
        "book_or_nips": "book",
    }
    state_dim = 4

    def constants(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        dt, l1, m1, m2, lc1, lc2, inertia, fastest_1, fastest_2 = (values[name] for name in self.params)
        g = 9.8
        return (
            *(dt, dt / 2.0, dt / 6.0, fastest_1, fastest_2, m2, inertia),
            *(m1 * lc1**2, l1**2 + lc2**2, 2 * l1 * lc2, lc2**2, l1 * lc2),
            *(m2 * lc2 * g, -m2 * l1 * lc2, 2 * m2 * l1 * lc2, (m1 * lc1 + m2 * l1) * g),
            *(m2 * l1 * lc2, m2 * lc2**2 + inertia),
        )

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(low=-0.1, high=0.1, size=(4,)).astype(np.float32)

    def first(self, state: np.ndarray) -> np.ndarray:
        one, two, *speeds = state
        return np.array([np.cos(one), np.sin(one), np.cos(two), np.sin(two), *speeds], dtype=np.float32)

    def advance(self, state: np.ndarray, actions: np.ndarray, constants: np.ndarray) -> Advanced:
        dt, half, sixth, fastest_1, fastest_2, *rest = constants
        torque = actions - 1.0
        k1 = _acrobot_slopes(state, torque, *rest)
        k2 = _acrobot_slopes(state + half * k1, torque, *rest)
        k3 = _acrobot_slopes(state + half * k2, torque, *rest)
        k4 = _acrobot_slopes(state + dt * k3, torque, *rest)
        following = state + sixth * (k1 + 2 * k2 + 2 * k3 + k4)
        following[:2] = _wrapped(following[:2])
        one, two = following[:2]
        following[2] = np.minimum(np.maximum(following[2], -fastest_1), fastest_1)
        following[3] = np.minimum(np.maximum(following[3], -fastest_2), fastest_2)
        cosine_1 = np.cos(one)
        terminated = -cosine_1 - np.cos(two + one) > 1.0
        observations = np.empty((len(one), 6), dtype=np.float32)
        for column, values in enumerate((cosine_1, np.sin(one), np.cos(two), np.sin(two), *following[2:])):
            observations[:, column] = values
        return Advanced(following, observations, terminated - 1.0, terminated)


def _acrobot_slopes(
    state: np.ndarray,
    torque: np.ndarray,
    m2: np.ndarray,
    inertia: np.ndarray,
    a1: np.ndarray,
    a2: np.ndarray,
    a3: np.ndarray,
    b1: np.ndarray,
    b2: np.ndarray,
    weight_2: np.ndarray,
    c1: np.ndarray,
    c2: np.ndarray,
    weight: np.ndarray,
    c3: np.ndarray,
    d0: np.ndarray,
) -> np.ndarray:
    """Derivatives ``(4, N)`` of angles and speeds."""
    one, two, speed_1, speed_2 = state
    cosine, sine = np.cos(two), np.sin(two)
    d1 = a1 + m2 * (a2 + a3 * cosine) + inertia + inertia
    d2 = m2 * (b1 + b2 * cosine) + inertia
    phi2 = weight_2 * np.cos(one + two - _PI / 2.0)
    phi1 = c1 * _squares(speed_2) * sine - c2 * speed_2 * speed_1 * sine + weight * np.cos(one - _PI / 2) + phi2
    pushed = (torque + d2 / d1 * phi1 - c3 * _squares(speed_1) * sine - phi2) / (d0 - _squares(d2) / d1)
    return _rows(speed_1, speed_2, -(d2 * pushed + phi1) / d1, pushed)


def _wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles brought to [-pi, pi], whole turns at a time."""
    turn = 2 * _PI
    while (above := angles > _PI).any():
        angles = np.where(above, angles - turn, angles)
    while (below := angles < -_PI).any():
        angles = np.where(below, angles + turn, angles)
    return angles


def _rows(*columns: np.ndarray) -> np.ndarray:
    """``(len(columns), N)`` in double precision; ``np.stack`` takes four times as long for a few numbers."""
    rows = np.empty((len(columns), len(columns[0])))
    for row, column in zip(rows, columns, strict=True):
        row[:] = column
    return rows


def _squares(values: np.ndarray) -> np.ndarray:
    """``x**2`` as of one number at a time."""
    try:
        return np.fromiter(map(math.pow, values.tolist(), repeat(2.0)), np.float64)
    except OverflowError:  # which is an infinity in Gymnasium
        return np.fromiter([number**2 for number in values], np.float64)


def _cosines(values: np.ndarray) -> np.ndarray:
    """``math.cos`` of one number at a time."""
    return np.fromiter(map(math.cos, values.tolist()), np.float64)


FORMULAS: dict[str, Formula] = {
    "acrobot:AcrobotEnv": _Acrobot(),
    "cartpole:CartPoleEnv": _CartPole(),
    "continuous_mountain_car:Continuous_MountainCarEnv": _MountainCarContinuous(),
    "mountain_car:MountainCarEnv": _MountainCar(),
    "pendulum:PendulumEnv": _Pendulum(),
}
"""By module and class in ``gymnasium.envs.classic_control``."""
