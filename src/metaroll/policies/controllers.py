"""Scripted controllers of the laboratory systems: experts that know the physics."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from metaroll.checks import domain_row
from metaroll.errors import ShapeError
from metaroll.types import Context, Policy, PolicyInfo, PolicyState

__all__ = ["BallBalancerController", "CartPoleController", "Controller", "QubeController"]

Params = Mapping[str, np.ndarray]
"""Domain parameter -> its value in each row, ``(N,)``."""


class Controller(Policy):
    """A policy without parameters to learn: a formula of the observation and of the system's domain parameters.

    Args:
        domain_param: Domain parameters that the controller assumes, such as
            ``env.domain_param``. ``None`` means those of each rollout's own environment, randomized or not.
    """

    obs_dim: ClassVar[int]
    param_names: ClassVar[tuple[str, ...]]

    def __init__(self, domain_param: Mapping[str, float] | None = None) -> None:
        self._believed = None if domain_param is None else self._row(domain_param)

    @property
    def info(self) -> PolicyInfo:
        """The controller gets the domain parameters of the rollouts' environments, unless it assumes its own."""
        return PolicyInfo(takes_domain_params=self._believed is None, draws=False)

    def acting_parameters(self) -> np.ndarray:
        """None: ``(0,)``."""
        return np.zeros(0, dtype=np.float32)

    @abstractmethod
    def actions(self, obs: np.ndarray, params: Params) -> np.ndarray:
        """Actions ``(N, act_dim)`` for observations ``(N, obs_dim)``."""

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """The assumed domain parameters, ``{"domain_param": (N, D)}``.

        Raises:
            DataError: A rollout lacks a domain parameter that the formula needs.
        """
        if self._believed is not None:
            return {"domain_param": np.tile(self._believed, (len(contexts), 1))}
        rows = [None] * len(contexts) if domain_params is None else domain_params
        return {"domain_param": np.stack([self._row(params) for params in rows])}

    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos.

        Raises:
            ShapeError: Observations have another width.
        """
        obs = np.asarray(obs, dtype=np.float64)
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            kind = type(self).__name__
            raise ShapeError(f"{kind} takes observations of shape (N, {self.obs_dim}), got {obs.shape}")
        params = dict(zip(self.param_names, state["domain_param"].T, strict=True))
        with np.errstate(all="ignore"):  # slots that never started have parameters of 0
            return self.actions(obs, params), state, {}

    def _row(self, domain_param: Any) -> np.ndarray:
        """The values that the formula needs, ``(D,)``."""
        if domain_param is not None and not isinstance(domain_param, Mapping):
            raise TypeError(f"domain_param must be a dict such as env.domain_param, got {type(domain_param).__name__}")
        who = "the rollout's environment" if domain_param is None else "domain_param"
        return np.array(domain_row(self.param_names, domain_param, who))


class QubeController(Controller):
    """Swings the Qube's pendulum up by its energy, and holds it upright.

    The gains of Pyrado's controller solve the system with the corrected integrator, too. The energy counts the
    pendulum's rotation about its middle alone, and the desired value is set accordingly.
    """

    obs_dim = 6
    param_names = (
        "gravity_const",
        "motor_resistance",
        "motor_back_emf",
        "mass_rot_pole",
        "length_rot_pole",
        "mass_pend_pole",
        "length_pend_pole",
    )
    _holding = (-2.0, 35.0, -1.5, 3.0)  # V per error of theta, alpha, theta_dot, alpha_dot
    _capture = math.radians(20.0)

    def actions(self, obs: np.ndarray, params: Params) -> np.ndarray:
        """Voltages ``(N, 1)``."""
        sin_theta, cos_theta, sin_alpha, cos_alpha, theta_dot, alpha_dot = obs.T
        mass, length = params["mass_pend_pole"], params["length_pend_pole"]
        volts = (
            params["motor_resistance"] / params["motor_back_emf"] * params["mass_rot_pole"] * params["length_rot_pole"]
        )
        theta = np.arctan2(sin_theta, cos_theta)
        tilt = np.arctan2(-sin_alpha, -cos_alpha)  # alpha - pi, the short way
        kinetic = mass * length * length / 24.0 * alpha_dot * alpha_dot
        energy = kinetic + 0.5 * mass * params["gravity_const"] * length * (1.0 - cos_alpha)
        # 1 also at rest, where the pendulum would otherwise hang for ever
        pumping = np.where(alpha_dot * cos_alpha < 0.0, -1.0, 1.0)
        swing = volts * np.clip(50.0 * (energy - 0.025) * pumping - 0.4 * theta, -5.0, 5.0)
        k_theta, k_tilt, k_theta_dot, k_alpha_dot = self._holding
        hold = -(k_theta * theta + k_tilt * tilt + k_theta_dot * theta_dot + k_alpha_dot * alpha_dot)
        return np.where(np.abs(tilt) < self._capture, hold, swing)[:, None]


class BallBalancerController(Controller):
    """Tilts the plate toward its middle, in proportion to the ball's place and velocity.

    Gains of 20 rad/m and 5 rad s/m: Pyrado's (3.45 and 2.11) fit a ball that rolls without
    friction. With ``ball_damping`` it creeps to the middle and is still 2 cm away after 5 s. The offsets of the servos'
    angles are taken into account.
    """

    obs_dim = 8
    param_names = ("offset_th_x", "offset_th_y")

    def actions(self, obs: np.ndarray, params: Params) -> np.ndarray:
        """Voltages ``(N, 2)``."""
        offsets = np.stack([params["offset_th_x"], params["offset_th_y"]], axis=1)
        wanted = np.clip(-20.0 * obs[:, 2:4] - 5.0 * obs[:, 6:8], -0.5236, 0.5236)  # within 30 deg
        return 14.0 * (wanted - (obs[:, 0:2] + offsets))


class CartPoleController(Controller):
    """Swings the pole of the cart-pole up by its energy, and holds it upright in the middle of the rail.

    Near upright it is Pyrado's linear law, with its gains for the short pole and those of a linear
    quadratic regulator for a pole of more than 25 cm from hinge to middle. The swing-up is another: Pyrado's law
    chooses the cart's acceleration by the sign of ``theta_dot * cos(theta)``, but within 45 ms the motor's braking and
    ``combined_damping`` turn a voltage into a speed of the cart, after which the pole is given nothing more, and it
    stays at half of the energy that it needs. So the speed is chosen, by the sign that the time derivative of
    ``theta_dot * cos(theta)`` has for a free pole. The energy asked for is 1.1 times that of upright, since friction of
    the pole takes some on the way.
    """

    obs_dim = 5
    param_names = (
        "gravity_const",
        "cart_mass",
        "motor_efficiency",
        "gear_efficiency",
        "gear_ratio",
        "motor_inertia",
        "pinion_radius",
        "motor_resistance",
        "motor_back_emf",
        "pole_length",
    )
    _holding_short = (41.0, -200.0, 55.0, -16.0)  # m/s^2 per x, theta - pi, x_dot, theta_dot
    _holding_long = (40.8, -153.0, 46.9, -29.1)
    _capture = math.radians(10.0)

    def actions(self, obs: np.ndarray, params: Params) -> np.ndarray:
        """Voltages ``(N, 1)``."""
        x, sin, cos, x_dot, theta_dot = obs.T
        frequency2 = 0.75 * params["gravity_const"] / params["pole_length"]  # of small swings, rad^2/s^2
        speed2 = theta_dot * theta_dot
        energy = 0.25 * speed2 / frequency2 + 0.5 * (1.0 - cos)  # 1 at rest upright
        pumping = np.where(sin * (frequency2 * cos + speed2) < 0.0, 1.0, -1.0)
        swing = 7.0 * np.clip(5.0 * (1.1 - energy), -1.0, 1.0) * pumping - 12.0 * x
        tilt = np.arctan2(-sin, -cos)  # theta - pi, the short way
        acceleration = self._acceleration(params, x, tilt, x_dot, theta_dot)
        hold = _voltage(params, acceleration, x_dot)
        return np.where(np.abs(tilt) < self._capture, hold, swing)[:, None]

    def _acceleration(self, params: Params, *errors: np.ndarray) -> np.ndarray:
        """The commanded acceleration of the cart near upright, ``(N,)``."""
        long_pole = params["pole_length"] > 0.25
        gains = zip(self._holding_short, self._holding_long, errors, strict=True)
        terms = [np.where(long_pole, long, short) * error for short, long, error in gains]
        return terms[0] + terms[1] + terms[2] + terms[3]


def _voltage(params: Params, acceleration: np.ndarray, x_dot: np.ndarray) -> np.ndarray:
    """Voltage for this acceleration of a cart without load or friction, against the motor's own braking, ``(N,)``."""
    gear, ratio, radius = params["gear_efficiency"], params["gear_ratio"], params["pinion_radius"]
    motor, back_emf = params["motor_efficiency"], params["motor_back_emf"]
    inertia = params["cart_mass"] + gear * ratio * ratio * params["motor_inertia"] / (radius * radius)
    force_per_volt = gear * ratio * motor * back_emf / (params["motor_resistance"] * radius)
    return inertia * acceleration / force_per_volt + ratio * back_emf * x_dot / (radius * motor)
