"""Gymnasium's classic control as simulators, equal to the environments in every bit.

What decides about the last bit is kept as Gymnasium has it: the order of operations, the type of every intermediate
result (an action in single precision times a Python number stays in single precision), and ``x**2``, which for one
number is the C library's ``pow``, whose last bit is not always that of ``x * x``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.spaces import Box, Discrete

from metaroll.envs.base.batching import is_as_defined, unwrapped_and_limit
from metaroll.envs.base.simulator import Columns, NextState, Rows, Simulator, finite_state, stacked
from metaroll.envs.classic_control.loops import numpy_uses_c_functions, stepped_cart_pole
from metaroll.functional.kernels import compiled
from metaroll.tasks.domain_access import derived_attributes, is_possible, warn_out_of_reach
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["TESTED_RELEASES", "ClassicSimulator", "classic_simulator", "is_classic"]

_PI = np.pi
_MODULE = "gymnasium.envs.classic_control."
TESTED_RELEASES = ("1.1", "1.2", "1.3", "1.4")
"""Releases of Gymnasium whose environments show the bits of the simulators; with others they are stepped as a list."""


class ClassicSimulator(Simulator):
    """One of Gymnasium's environments; the state is a tuple of columns in double precision, as arrays ``(N,)``.

    Args:
        values: The attributes of the environment named in ``params``, Python numbers.
        env_spec: Spaces and time limit.
        time_limit: Steps after which an episode is truncated.

    Attributes:
        params: Attributes that may have any value, and differ between rows.
        fixed: Attributes that must have this value, or the formulas do not speak for the environment.
        class_name: Class name of the environment.
        seconds: The attribute that holds the seconds of a step, if the environment has it.
        state_dim: Numbers in the environment's ``state``; flags may follow them, false where an episode starts.
    """

    seeds_as_gymnasium = True
    params: ClassVar[tuple[str, ...]]
    fixed: ClassVar[Mapping[str, Any]] = {}
    class_name: ClassVar[str]
    seconds: ClassVar[str] = "dt"
    state_dim: ClassVar[int]
    num_flags: ClassVar[int] = 0

    def __init__(self, values: Mapping[str, Any], env_spec: EnvSpec, time_limit: int | None = None) -> None:
        self.values, self.env_spec, self.time_limit = dict(values), env_spec, time_limit
        self.name = type(self).__name__
        self.takes = f"DomainParamUpdate of {', '.join(values)}"

    def can_step(self) -> bool:
        """Whether its own values can be stepped (a length of 0 cannot)."""
        return self._is_stepped(self.values)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Nothing, or values of the attributes that the formulas read, unless they cannot be stepped."""
        if type(update) is not DomainParamUpdate:
            return super().accepts_update(update)
        return all(name in self.values for name in update.task) and self._is_stepped(self.task_of(update))

    def task_of(self, update: EnvUpdate | None) -> dict[str, Any]:
        """All attributes, and those that follow from others."""
        values = dict(self.values)
        if isinstance(update, DomainParamUpdate):
            for name, value in update.task.items():
                values[name] = int(value) if type(values[name]) is int and value.is_integer() else value
            values |= derived_attributes(self.class_name, values, update.task)
            warn_out_of_reach(self.class_name, values, self.env_spec.action_space)
        return values

    def constants(self, tasks: Sequence[Mapping[str, Any]], xp: Any) -> dict[str, Any]:
        """The inputs of steps, by position, and the time step (NaN where the environment does not report it)."""
        table = np.array([(*self.derive(task), task.get(self.seconds, np.nan)) for task in tasks], dtype=np.float64)
        return {"own": tuple(np.ascontiguousarray(column) for column in table.T[:-1]), "dt": table[:, -1].copy()}

    def time_step(self, state: Rows, constants: Rows) -> float | None:
        return float(constants["dt"][0]) if self.seconds in self.values else None

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Columns:
        count = len(constants["dt"])
        return (*self.start(uniforms, count), *(np.zeros(count, dtype=bool) for _ in range(self.num_flags)))

    def check_init_state(self, init_state: Any) -> np.ndarray:
        """A finite state ``(S,)``."""
        return finite_state(init_state, self.state_dim)

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Columns:
        flags = (np.zeros(len(inits), dtype=bool) for _ in range(self.num_flags))
        return (*(np.ascontiguousarray(column) for column in inits.T), *flags)

    def state_rows(self, state: Columns, xp: Any) -> Any:
        return stacked(state[: self.state_dim], len(state[0]), np.float64, xp)

    def observe(self, state: Columns, constants: Any, xp: Any) -> Any:
        """By default the state, ``(N, O)`` float32."""
        return stacked(state[: self.state_dim], len(state[0]), np.float32, xp)

    def step(self, state: Columns, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        commands = xp.asarray(actions[:, 0], dtype=xp.float32) if actions.ndim == 2 else actions
        return self.follow(state, commands, constants["own"], xp)

    @abstractmethod
    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        """The quantities that a step needs, computed from ``params`` as Gymnasium does."""

    @abstractmethod
    def start(self, uniforms: Columns, count: int) -> Columns:
        """Where episodes start, ``state_dim`` columns, from the first numbers of Gymnasium's generator."""

    @abstractmethod
    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        """One step.

        Args:
            state: Columns.
            actions: Shape ``(N,)``: the one number of each action (float32), or choices.
            constants: Columns that ``derive`` returned.
            xp: Array namespace: NumPy, unless ``runs_on_torch``.
        """

    def _is_stepped(self, values: Mapping[str, Any]) -> bool:
        try:
            self.derive(values)
        except ArithmeticError:
            return False
        return is_possible(self.class_name, values)


def _within(low: float, high: float, uniform: np.ndarray) -> np.ndarray:
    """The arithmetic of ``Generator.uniform(low, high)``."""
    return low + (high - low) * uniform


class _Pendulum(ClassicSimulator):
    class_name = "PendulumEnv"
    num_uniforms = 2
    params = ("g", "m", "l", "dt", "max_speed", "max_torque")
    state_dim = 2

    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        g, m, length = values["g"], values["m"], values["l"]
        gravity, torque = 3 * g / (2 * length), 3.0 / (m * length**2)
        return gravity, torque, values["dt"], values["max_speed"], values["max_torque"]

    def start(self, uniforms: Columns, count: int) -> Columns:
        return _within(-_PI, _PI, uniforms[0]), _within(-1.0, 1.0, uniforms[1])

    def observe(self, state: Columns, constants: Any, xp: Any) -> np.ndarray:
        angle, speed = state
        return stacked((np.cos(angle), np.sin(angle), speed), len(angle), np.float32)

    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        angle, speed = state
        gravity, torque, dt, fastest, strongest = constants
        torque, strongest = torque.astype(np.float32), strongest.astype(np.float32)  # the dtype that Python numbers get
        push = np.minimum(np.maximum(actions, -strongest), strongest)
        costs = _squares((angle + _PI) % (2 * _PI) - _PI) + 0.1 * _squares(speed) + 0.001 * _squares(push)
        speed = speed + (gravity * np.sin(angle) + torque * push) * dt
        speed = np.minimum(np.maximum(speed, -fastest), fastest)
        return NextState((angle + speed * dt, speed), -costs)


class _CartPole(ClassicSimulator):
    """The flag is true once the pole has fallen."""

    class_name = "CartPoleEnv"
    seconds = "tau"
    runs_on_torch = True
    num_uniforms = 4
    params = (
        "gravity",
        "masspole",
        "masscart",
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

    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(values[name] for name in self.params if name != "masscart")

    def start(self, uniforms: Columns, count: int) -> Columns:
        return tuple(_within(-0.05, 0.05, uniform) for uniform in uniforms)

    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        x, x_dot, theta, theta_dot, fallen = state
        stepped = stepped_cart_pole(state[:4], fallen, actions, constants) if xp is np else None
        if stepped is not None:
            following, rewards, flags = stepped
            return NextState((*following, flags[1]), rewards, flags[0])
        gravity, masspole, mass, length, moment, strength, tau, most_theta, most_x = constants
        force = xp.where(actions == 1, strength, -strength)
        cosine, sine = xp.cos(theta), xp.sin(theta)
        temp = (force + moment * xp.square(theta_dot) * sine) / mass
        theta_acc = (gravity * sine - cosine * temp) / (length * (4.0 / 3.0 - masspole * xp.square(cosine) / mass))
        x_acc = temp - moment * theta_acc * cosine / mass
        x, x_dot = x + tau * x_dot, x_dot + tau * x_acc
        theta, theta_dot = theta + tau * theta_dot, theta_dot + tau * theta_acc
        terminated = (xp.abs(x) > most_x) | (xp.abs(theta) > most_theta)
        rewards = 1.0 - xp.astype(terminated & fallen, x.dtype)
        return NextState((x, x_dot, theta, theta_dot, terminated | fallen), rewards, terminated)


class _MountainCar(ClassicSimulator):
    class_name = "MountainCarEnv"
    num_uniforms = 1
    params = ("min_position", "max_position", "max_speed", "goal_position", "goal_velocity", "force", "gravity")
    state_dim = 2

    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(values[name] for name in self.params)

    def start(self, uniforms: Columns, count: int) -> Columns:
        return _within(-0.6, -0.4, uniforms[0]), np.zeros(count)

    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        position, velocity = state
        left, right, fastest, goal, goal_velocity, force, gravity = constants
        velocity = velocity + ((actions - 1) * force + _cosines(3 * position) * (-gravity))
        velocity = np.minimum(np.maximum(velocity, -fastest), fastest)
        position = np.minimum(np.maximum(position + velocity, left), right)
        velocity[(position == left) & (velocity < 0)] = 0.0
        terminated = (position >= goal) & (velocity >= goal_velocity)
        return NextState((position, velocity), np.full(len(goal), -1.0), terminated)


class _MountainCarContinuous(ClassicSimulator):
    """An episode starts in double precision and continues in single precision; the flag is true from then on."""

    class_name = "Continuous_MountainCarEnv"
    num_uniforms = 1
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

    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return (values["power"],)

    def start(self, uniforms: Columns, count: int) -> Columns:
        return _within(-0.6, -0.4, uniforms[0]), np.zeros(count)

    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        power, first = constants[0], ~state[2]
        at, speed = state[0], state[1]
        position, velocity = _move_car(at.astype(np.float32), speed.astype(np.float32), actions, power)
        if first.any():
            moved = _move_car(at[first], speed[first], actions[first], power[first])
            position[first], velocity[first] = moved
        terminated = (position >= 0.45) & (velocity >= 0)
        rewards = 100.0 * terminated - np.square(actions.astype(np.float64)) * 0.1
        following = (position.astype(np.float64), velocity.astype(np.float64), np.ones(len(first), dtype=bool))
        return NextState(following, rewards, terminated)


def _move_car(
    position: np.ndarray, velocity: np.ndarray, actions: np.ndarray, power: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Position and velocity after a step, in the precision of the arguments."""
    slope = 0.0025 * _cosines(3 * position)
    # A force at its bound is a Python number, so its contribution is rounded only once, at the end.
    pull = (actions * power.astype(np.float32) - slope.astype(np.float32)).astype(np.float64)
    for beyond, bound in ((actions < -1.0, -1.0), (actions > 1.0, 1.0)):
        if beyond.any():
            pull = np.where(beyond, bound * power - slope, pull)
    velocity = velocity + pull.astype(velocity.dtype)
    velocity = np.minimum(np.maximum(velocity, -0.07), 0.07)
    position = np.minimum(np.maximum(position + velocity, -1.2), 0.6)
    velocity[(position == -1.2) & (velocity < 0)] = 0.0
    return position, velocity


class _Acrobot(ClassicSimulator):
    class_name = "AcrobotEnv"
    num_uniforms = 4
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

    def derive(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        dt, l1, m1, m2, lc1, lc2, inertia, fastest_1, fastest_2 = (values[name] for name in self.params)
        g = 9.8
        return (
            *(dt, dt / 2.0, dt / 6.0, fastest_1, fastest_2, m2, inertia),
            *(m1 * lc1**2, l1**2 + lc2**2, 2 * l1 * lc2, lc2**2, l1 * lc2),
            *(m2 * lc2 * g, -m2 * l1 * lc2, 2 * m2 * l1 * lc2, (m1 * lc1 + m2 * l1) * g),
            *(m2 * l1 * lc2, m2 * lc2**2 + inertia),
        )

    def start(self, uniforms: Columns, count: int) -> Columns:
        return tuple(_within(-0.1, 0.1, uniform).astype(np.float32).astype(np.float64) for uniform in uniforms)

    def observe(self, state: Columns, constants: Any, xp: Any) -> np.ndarray:
        one, two, *speeds = state
        parts = (np.cos(one), np.sin(one), np.cos(two), np.sin(two), *speeds)
        return stacked(parts, len(one), np.float32)

    def follow(self, state: Columns, actions: Any, constants: Columns, xp: Any) -> NextState:
        (dt, half, sixth, fastest_1, fastest_2), others = constants[:5], constants[5:]
        torque = actions - 1.0
        here = np.stack(state)
        k1 = _acrobot_slopes(here, torque, others)
        k2 = _acrobot_slopes(here + half * k1, torque, others)
        k3 = _acrobot_slopes(here + half * k2, torque, others)
        k4 = _acrobot_slopes(here + dt * k3, torque, others)
        following = here + sixth * (k1 + 2 * k2 + 2 * k3 + k4)
        one, two = _wrapped(following[:2])
        speeds = (
            np.minimum(np.maximum(following[2], -fastest_1), fastest_1),
            np.minimum(np.maximum(following[3], -fastest_2), fastest_2),
        )
        terminated = -np.cos(one) - np.cos(two + one) > 1.0
        return NextState((one, two, *speeds), terminated - 1.0, terminated)


def _acrobot_slopes(state: np.ndarray, torque: np.ndarray, constants: Columns) -> np.ndarray:
    """Derivatives ``(4, N)`` of angles and speeds."""
    m2, inertia, a1, a2, a3, b1, b2, weight_2, c1, c2, weight, c3, d0 = constants
    one, two, speed_1, speed_2 = state
    cosine, sine = np.cos(two), np.sin(two)
    d1 = a1 + m2 * (a2 + a3 * cosine) + inertia + inertia
    d2 = m2 * (b1 + b2 * cosine) + inertia
    phi2 = weight_2 * np.cos(one + two - _PI / 2.0)
    phi1 = c1 * _squares(speed_2) * sine - c2 * speed_2 * speed_1 * sine + weight * np.cos(one - _PI / 2) + phi2
    pushed = (torque + d2 / d1 * phi1 - c3 * _squares(speed_1) * sine - phi2) / (d0 - _squares(d2) / d1)
    return np.stack((speed_1, speed_2, -(d2 * pushed + phi1) / d1, pushed))


def _wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles brought to [-pi, pi], whole turns at a time."""
    turn = 2 * _PI
    while (above := angles > _PI).any():
        angles = np.where(above, angles - turn, angles)
    while (below := angles < -_PI).any():
        angles = np.where(below, angles + turn, angles)
    return angles


def _squares(values: np.ndarray) -> np.ndarray:
    """``x**2`` as of one number at a time, in the precision of ``values``."""
    single = values.dtype == np.float32
    loop = compiled("single_powers" if single else "powers", 8 * len(values))
    if loop is not None:
        squares = np.empty(len(values), dtype=values.dtype)
        loop(np.ascontiguousarray(values), 2.0, squares)
        return squares
    try:
        if not single:
            return np.fromiter(map(math.pow, values.tolist(), repeat(2.0)), np.float64)
    except OverflowError:  # which is an infinity in Gymnasium
        pass
    return np.fromiter([number**2 for number in values], values.dtype)


def _cosines(values: np.ndarray) -> np.ndarray:
    """``math.cos`` of one number at a time, in double precision."""
    if numpy_uses_c_functions():
        return np.cos(values.astype(np.float64, copy=False))
    return np.fromiter(map(math.cos, values.tolist()), np.float64)


_SIMULATORS: dict[str, type[ClassicSimulator]] = {
    "acrobot:AcrobotEnv": _Acrobot,
    "cartpole:CartPoleEnv": _CartPole,
    "continuous_mountain_car:Continuous_MountainCarEnv": _MountainCarContinuous,
    "mountain_car:MountainCarEnv": _MountainCar,
    "pendulum:PendulumEnv": _Pendulum,
}
"""By module and class in ``gymnasium.envs.classic_control``."""


def is_classic(source: str | type) -> bool:
    """Whether an id or class makes, judged by its name, an environment that ``classic_simulator`` knows."""
    if isinstance(source, type):
        return _kind_of(source) is not None
    registered: Registration | None = gymnasium.registry.get(source)
    entry = None if registered is None else registered.entry_point
    return isinstance(entry, str) and entry.startswith(_MODULE) and entry.removeprefix(_MODULE) in _SIMULATORS


def classic_simulator(env: Any) -> ClassicSimulator | None:
    """The simulator of copies of ``env``; ``None`` unless it is exactly one of Gymnasium's own, and not drawn.

    Around it may be wrappers that only count and check: ``TimeLimit``, ``OrderEnforcing``, ``PassiveEnvChecker``.
    Attributes may have been changed as far as the simulator reads them.
    """
    inner, limit = unwrapped_and_limit(env)
    kind = _kind_of(type(inner))
    tested = ".".join(gymnasium.__version__.split(".")[:2]) in TESTED_RELEASES
    if kind is None or inner.render_mode is not None or not is_as_defined(inner) or not tested or not _fits(inner):
        return None
    values: dict[str, Any] = {name: getattr(inner, name, None) for name in kind.params}
    fixed = ((getattr(inner, name, None), expected) for name, expected in kind.fixed.items())
    same = all(isinstance(value, bool | int | float | str | list) and value == expected for value, expected in fixed)
    if not same or any(type(value) not in (int, float) for value in values.values()):
        return None
    simulator = kind(values, EnvSpec.from_env(env), limit)
    return simulator if simulator.can_step() else None


def _kind_of(kind: type) -> type[ClassicSimulator] | None:
    if not kind.__module__.startswith(_MODULE):
        return None
    return _SIMULATORS.get(f"{kind.__module__.removeprefix(_MODULE)}:{kind.__qualname__}")


def _fits(inner: Any) -> bool:
    """Whether its spaces are of the kind that it was written with."""
    action, observation = inner.action_space, inner.observation_space
    return (
        isinstance(observation, Box)
        and observation.dtype == np.float32
        and len(observation.shape) == 1
        and (
            (isinstance(action, Box) and action.dtype == np.float32 and action.shape == (1,))
            or (isinstance(action, Discrete) and action.start == 0)
        )
    )
