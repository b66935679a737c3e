"""One simulation as a Gymnasium environment; it is the batched computation of width 1 (specs/sampling.md 16.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.sims.batch import SimBatch
from metaroll.envs.sims.initial_states import checked_init
from metaroll.envs.sims.model import SimModel
from metaroll.envs.sims.setting import SimSetting
from metaroll.envs.sims.sim_slots import SimSlots, applicable, place_of
from metaroll.envs.sims.tasks import SimTask
from metaroll.errors import ShapeError, unknown_name
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["RealEnv", "SimEnv"]

_OPTIONS = ("domain_param", "init_state")
_ROW = np.zeros(1, dtype=np.int64)


class RealEnv:
    """Marks environments that are real devices: their domain parameters are not known (specs/sampling.md 16.2)."""


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
    """A simulated system with a task (specs/sampling.md 16.2).

    The reward of a step is that of the state before it and of the action as it was given; the system gets the action
    within its bounds, which ``info["act_applied"]`` tells. ``terminated`` means success, or a state outside of
    ``state_space`` (which the last observation then shows), ``truncated`` the horizon.

    ``reset(seed, options)`` takes the options ``init_state``, a state ``(S,)`` or an element of the model's own space
    of initial states, and ``domain_param``, a dict, which stays in force. All that can be set survives copying and
    pickling.

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
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        setting = SimSetting.of(model, task, dt=dt, max_steps=max_steps)
        self._use(setting.with_params(domain_param or {}).with_initial(init_space))
        self._begun = False

    # -- configuration -----------------------------------------------------------------------------------------------

    @property
    def setting(self) -> SimSetting:
        """All of the configuration, as an immutable object."""
        return self._setting

    @property
    def model(self) -> SimModel:
        """The physics."""
        return self._setting.model

    @property
    def task(self) -> SimTask:
        """Rewards; may be set."""
        return self._setting.task

    @task.setter
    def task(self, task: SimTask) -> None:
        self._use(self._setting.with_task(task))

    @property
    def dt(self) -> float:
        """Length of a step in s; may be set."""
        return self._setting.dt

    @dt.setter
    def dt(self, dt: float) -> None:
        self._use(self._setting.with_dt(dt))

    @property
    def max_steps(self) -> float:
        """Horizon: a whole number, or infinity; may be set."""
        return self._setting.max_steps

    @max_steps.setter
    def max_steps(self, max_steps: float) -> None:
        self._use(self._setting.with_max_steps(max_steps))

    @property
    def init_space(self) -> Any:
        """Where episodes start: a ``Box``, a state, or a list of states to choose from with equal chances.

        ``None`` stands for the model's own, which is shown as the ``Box`` around it. What is set holds until it is set
        again, whatever happens to the domain parameters.
        """
        own = self._setting.initial.shown()
        return Box(*self._setting.initial_bounds(), dtype=np.float64) if own is None else own

    @init_space.setter
    def init_space(self, init_space: Any) -> None:
        self._use(self._setting.with_initial(init_space))

    @property
    def domain_param(self) -> dict[str, float]:
        """All domain parameters (a copy); setting a dict changes those it names."""
        return dict(self._setting.params)

    @domain_param.setter
    def domain_param(self, params: Mapping[str, Any]) -> None:
        self._use(self._setting.with_params(params))

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
        return self._batch.state[0] if self._begun else None

    @property
    def curr_step(self) -> int:
        """Steps since the last reset."""
        return int(self._batch.steps[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode (see the class for the options)."""
        super().reset(seed=seed)
        options = dict(options or {})
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("option of reset", str(name), _OPTIONS)
        given, params = options.get("init_state"), options.get("domain_param")
        setting = self._setting if params is None else self._setting.with_params(params)
        init = None if given is None else checked_init(self.model, given)
        if params is not None:
            self._use(setting)
        self._batch.begin(_ROW, None, place_of(setting, lambda row: self.np_random, [init]))
        self._begun = True
        return self._batch.observe()[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step with ``action (A,)``, which is left as it is."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset() must be called before step()")
        action = np.asarray(action, dtype=np.float64)
        if action.shape != self.action_space.shape:
            raise ShapeError(f"action must have shape {self.action_space.shape}, got {action.shape}")
        if np.isnan(action).any():
            raise ValueError(f"action must not be NaN, got {action.tolist()}; the environment has not moved")
        outcome = self._batch.outcome(action[None])
        self._batch.accept(outcome)
        info = {"act_applied": np.concatenate(outcome.applied)}
        ends = bool(outcome.terminated[0]), bool(outcome.truncated[0])
        return self._batch.observe()[0], float(outcome.reward[0]), *ends, info

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
        return self._batch.observe()[0]

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
        state = tuple(self._batch.state.T)
        return float(self.model.energy(state, self._setting.constants(), np)[0])

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

        return draw(self.model, self._batch.state[0], self._batch.memory[0], self.domain_param)

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
        return applicable(update)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _use(self, setting: SimSetting) -> None:
        """Go on with another setting from the present state."""
        spec, batch = setting.spec(), SimBatch(setting, 1, generator=0)
        before: SimBatch | None = self.__dict__.get("_batch")
        if before is not None:
            batch.take_over(before)
        self._setting, self._batch = setting, batch
        self.env_spec: EnvSpec = spec
        self.observation_space, self.action_space = spec.observation_space, spec.action_space
