"""One simulation as a Gymnasium environment; it is the batched computation of width 1."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.base.batched_env import check_render_mode
from metaroll.envs.base.simulator_slots import SimulatorRows
from metaroll.envs.sims.config import SimConfig
from metaroll.envs.sims.model import SimModel
from metaroll.envs.sims.simulator import SimSimulator, SimSlots, SimState
from metaroll.envs.sims.tasks import SimTask
from metaroll.errors import ShapeError, unknown_name
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["RealEnv", "SimEnv"]

_OPTIONS = ("domain_param", "init_state", "max_steps")
_ROW = np.zeros(1, dtype=np.int64)


class RealEnv:
    """Marks environments that are real devices: their domain parameters are not known."""


class _NominalParams:
    """A method that can be called on an instance (a cart-pole with the pole that was chosen) and on the class."""

    def __get__(self, env: SimEnv | None, kind: type[SimEnv]) -> Callable[[], dict[str, float]]:
        return functools.partial(_nominal_params, kind if env is None else env)


def _nominal_params(env: Any) -> dict[str, float]:
    if isinstance(env, type):
        try:
            env = env()
        except TypeError as error:
            raise TypeError(
                f"{env.__name__} has no nominal domain parameters without arguments ({error}); ask an instance"
            ) from error
    return dict(env.model.nominal)


class SimEnv(gymnasium.Env):
    """A simulated system with a task.

    The reward of a step is that of the state before it and of the action as it was given; the system gets the action
    within its bounds, which ``info["act_applied"]`` tells. ``terminated`` means success, or a state outside of
    ``state_space`` (which the last observation then shows), ``truncated`` the horizon.

    ``reset(seed, options)`` takes the options ``init_state``, a state ``(S,)`` or an element of the model's own space
    of initial states, ``domain_param``, a dict, which stays in force, and ``max_steps``, where this episode is cut off
    if that is before the horizon. All that can be set survives copying and pickling.

    Args:
        model: The physics.
        task: Rewards.
        dt: Length of a step in s; ``None`` means the model's.
        max_steps: Horizon, a whole number or infinity; ``None`` means the model's.
        domain_param: Domain parameters that differ from the nominal ones.
        init_space: See the attribute.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's own)

    def __init__(
        self,
        model: SimModel,
        task: SimTask,
        *,
        dt: float | None = None,
        max_steps: float | None = None,
        domain_param: Mapping[str, Any] | None = None,
        init_space: Any = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(self, render_mode)
        self.render_mode = render_mode
        config = SimConfig.of(model, task, dt=dt, max_steps=max_steps)
        self._use(config.with_params(domain_param or {}).with_initial(init_space))
        self._begun = False

    # -- configuration -----------------------------------------------------------------------------------------------

    @property
    def config(self) -> SimConfig:
        """All of the configuration, as an immutable object."""
        return self._config

    @property
    def plan_options(self) -> tuple[str, ...]:
        """What of a plan a reset wants to know: where rollouts are cut off, if rewards count the remaining steps."""
        return ("max_steps",) if self.task.needs_horizon else ()

    @property
    def model(self) -> SimModel:
        """The physics."""
        return self._config.model

    @property
    def task(self) -> SimTask:
        """Rewards; may be set."""
        return self._config.task

    @task.setter
    def task(self, task: SimTask) -> None:
        self._use(self._config.with_task(task))

    @property
    def dt(self) -> float:
        """Length of a step in s; may be set."""
        return self._config.dt

    @dt.setter
    def dt(self, dt: float) -> None:
        self._use(self._config.with_dt(dt))

    @property
    def max_steps(self) -> float:
        """Horizon: a whole number, or infinity; may be set."""
        return self._config.max_steps

    @max_steps.setter
    def max_steps(self, max_steps: float) -> None:
        self._use(self._config.with_max_steps(max_steps))

    @property
    def init_space(self) -> Any:
        """Where episodes start: a ``Box``, a state, or a list of states to choose from with equal chances.

        ``None`` stands for the model's own, which is shown as the ``Box`` around it. What is set holds until it is set
        again, whatever happens to the domain parameters.
        """
        own = self._config.initial.shown()
        return Box(*self._config.initial_bounds(), dtype=np.float64) if own is None else own

    @init_space.setter
    def init_space(self, init_space: Any) -> None:
        self._use(self._config.with_initial(init_space))

    @property
    def domain_param(self) -> dict[str, float]:
        """All domain parameters (a copy); setting a dict changes those it names."""
        return dict(self._config.params)

    @domain_param.setter
    def domain_param(self, params: Mapping[str, Any]) -> None:
        self._use(self._config.with_params(params))

    get_nominal_domain_param = _NominalParams()
    """Domain parameters of the undisturbed system, a dict; called on the class: as it is by default."""

    @property
    def supported_domain_param(self) -> tuple[str, ...]:
        """Names of all domain parameters."""
        return tuple(self.model.nominal)

    @property
    def state_space(self) -> Box:
        """States in which the task has not failed."""
        return self.env_spec.state_space  # type: ignore[return-value]

    @property
    def obs_space(self) -> Box:
        """The same as ``observation_space``."""
        return self.observation_space  # type: ignore[return-value]

    @property
    def act_space(self) -> Box:
        """The same as ``action_space``."""
        return self.action_space  # type: ignore[return-value]

    # -- episodes ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> np.ndarray | None:
        """The present state ``(S,)`` (a copy); ``None`` before the first reset."""
        return self._state_rows()[0] if self._begun else None

    @property
    def curr_step(self) -> int:
        """Steps since the last reset."""
        return int(self._rows.ages[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode (see the class for the options)."""
        super().reset(seed=seed)
        options = dict(options or {})
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("option of reset", str(name), _OPTIONS)
        given, params, limit = options.get("init_state"), options.get("domain_param"), options.get("max_steps")
        config = self._config if params is None else self._config.with_params(params)
        inits = None if given is None else [self._rows.simulator.check_init_state(given)]
        if params is not None:
            self._use(config)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        limits = None if limit is None else np.array([limit], dtype=np.float64)
        self._rows.begin(_ROW, np.array([drawn]), inits=inits, max_steps=limits)
        self._begun = True
        return self._rows.observe()[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with ``action (A,)``, which is left as it is."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset() must be called before step()")
        action = np.asarray(action, dtype=np.float64)
        if action.shape != self.action_space.shape:
            raise ShapeError(f"action must have shape {self.action_space.shape}, got {action.shape}")
        if np.isnan(action).any():
            raise ValueError(f"action must not be NaN, got {action.tolist()}; the environment has not moved")
        found = self._rows.step(action[None])
        info = {name: values[0] for name, values in found.infos.items()}
        ends = bool(found.terminated[0]), bool(found.truncated[0])
        return self._rows.observe()[0], float(found.rewards[0]), *ends, info

    def observe(self, state: np.ndarray) -> np.ndarray:
        """What is observed in ``state (S,)``."""
        state = np.asarray(state, dtype=np.float64)
        if state.shape != (len(self.model.state_labels),):
            raise ShapeError(f"state must have shape ({len(self.model.state_labels)},), got {state.shape}")
        return np.concatenate(self.model.observe(tuple(state[:, None]), np))

    def current_observation(self) -> np.ndarray:
        """What is observed now, ``(O,)``."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset() must be called before current_observation()")
        return self._rows.observe()[0]

    def limit_act(self, act: np.ndarray) -> np.ndarray:
        """``act (A,)`` within its bounds (a copy)."""
        space, act = self.act_space, np.asarray(act, dtype=np.float64)
        if act.shape != space.shape:
            raise ShapeError(f"act must have shape {space.shape}, got {act.shape}")
        return np.clip(act, space.low, space.high)

    def energy(self) -> float:
        """Mechanical energy of the present state in J, for the models that know theirs."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset() must be called before energy()")
        state: SimState = self._rows.state
        return float(self.model.energy(state.values, self._config.constants(), np)[0])

    def render(self) -> np.ndarray | None:
        """A picture of the present state, uint8 ``(H, W, 3)``, with ``render_mode="rgb_array"``."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() draws nothing without a render_mode; make the environment with render_mode='rgb_array'"
            )
            return None
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset() must be called before render()")
        from metaroll.envs.sims.drawing import draw

        memory = np.array([column[0] for column in self._rows.state.memory])
        return draw(self.model, self._state_rows()[0], memory, self.domain_param)

    def close(self) -> None:
        """Nothing to release."""

    def __repr__(self) -> str:
        nominal = self.model.nominal
        changed = {name: value for name, value in self.domain_param.items() if value != nominal[name]}
        params = f", domain_param={changed}" if changed else ""
        return f"<{type(self).__name__}: {self.model.name}, dt={self.dt:g}, max_steps={self.max_steps}{params}>"

    # -- many at once ------------------------------------------------------------------------------------------------

    def batched_slots(self, num_slots: int) -> SimSlots:
        """Many of this environment, stepped as arrays."""
        return SimSlots(num_slots, self)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``SimSlots`` can apply ``update``: nothing, or domain parameters."""
        return self._rows.simulator.accepts_update(update)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _use(self, config: SimConfig) -> None:
        """Go on with another configuration from the present state."""
        simulator = SimSimulator(config, name=type(self).__name__)
        rows = SimulatorRows(simulator, 1)
        before: SimulatorRows | None = self.__dict__.get("_rows")
        if before is not None:
            rows.resume(before, before.state._replace(horizon=np.array([config.max_steps], dtype=np.float64)))
        self._config, self._rows = config, rows
        self.env_spec: EnvSpec = simulator.env_spec
        self.observation_space, self.action_space = self.env_spec.observation_space, self.env_spec.action_space

    def _state_rows(self) -> np.ndarray:
        return self._rows.simulator.state_rows(self._rows.state, np)
